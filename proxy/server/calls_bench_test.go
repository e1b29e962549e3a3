package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// connections counts a proxy's connections by server.
type connections struct {
	mu         sync.Mutex
	open, most map[string]int
}

// tcpConn is a connection that is counted. It keeps the methods by which its state can be looked
// at.
type tcpConn struct {
	*net.TCPConn
	closed func()
}

// Close implements net.Conn.
func (c *tcpConn) Close() error {
	defer c.closed()
	return c.TCPConn.Close()
}

func (c *connections) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.count(addr, 1)
	return &tcpConn{conn.(*net.TCPConn), sync.OnceFunc(func() { c.count(addr, -1) })}, nil
}

func (c *connections) count(addr string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open, c.most = map[string]int{}, map[string]int{}
	}
	c.open[addr] += n
	c.most[addr] = max(c.most[addr], c.open[addr])
}

// max are the largest numbers of any server: at any time, and now.
func (c *connections) max() (ever, now int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for addr, n := range c.most {
		ever, now = max(ever, n), max(now, c.open[addr])
	}
	return ever, now
}

// sumOf asks a proxy for a query and tells whether it was answered.
func sumOf(b *testing.B, client *http.Client, proxy, query string) bool {
	resp, err := client.PostForm(proxy+"/api/v1/query", url.Values{"query": {query}})
	if err != nil {
		b.Log(err)
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		b.Logf("%d %.300s %v", resp.StatusCode, text, err)
		return false
	}
	return true
}

// readiness is how long servers took to answer /-/ready, in seconds.
type readiness struct {
	P99, Slowest float64
	Failed       int64
}

// watchChild asks each of the servers ten times a second whether it is ready, over a connection of
// its own each time as a kubelet does, and says at its address what it has seen.
func watchChild(servers string) int {
	var mu sync.Mutex
	var took []float64
	var failed int64
	for s := range strings.SplitSeq(servers, ",") {
		go func() {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			for range time.Tick(100 * time.Millisecond) {
				began := time.Now()
				resp, err := client.Get(s + "/-/ready")
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				mu.Lock()
				took = append(took, time.Since(began).Seconds())
				if err != nil || resp.StatusCode != http.StatusOK {
					failed++
				}
				mu.Unlock()
			}
		}()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println("http://" + l.Addr().String())
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(took)
			_ = json.NewEncoder(w).Encode(readiness{P99: took[len(took)*99/100], Slowest: took[len(took)-1], Failed: failed})
		}))
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// BenchmarkStorm reports what two proxies with 300 clients each, who ask for eight parts at once,
// do to four real servers with their default number of connections: requests that failed,
// connections of one proxy to one server at most and a minute later, and the longest time that a
// server's own /-/ready took.
func BenchmarkStorm(b *testing.B) {
	const clients, rounds = 300, 3
	var text strings.Builder
	text.WriteString("groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    shards:\n")
	var servers []string
	for i := range 4 {
		targets := make([]string, 18)
		for n := range targets {
			targets[n] = fmt.Sprintf("'127.0.0.1:%d'", n+1) // nobody is there: up is 0
		}
		p := realpromtest.Start(b, realprom.Options{Config: fmt.Sprintf("scrape_configs: [{job_name: j%d, scrape_interval: 1s, static_configs: [{targets: [%s]}]}]", i, strings.Join(targets, ", "))})
		servers = append(servers, p.URL())
		fmt.Fprintf(&text, "      - {replicas: [{url: %q}]}\n", p.URL())
	}
	var counts [2]connections
	var proxies []string
	for i := range counts {
		_, u := startProxy(b, b.Context(), text.String(), func(o *Options) { o.shards = shard.Options{Dial: counts[i].dial} })
		proxies = append(proxies, u)
	}
	tr := &http.Transport{MaxIdleConnsPerHost: clients}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr}
	query := terms(8)
	for b.Loop() {
		var failed atomic.Int64
		watch := startChild(b, "watch", strings.Join(servers, ","))
		var wg sync.WaitGroup
		began := time.Now()
		for _, p := range proxies {
			for range clients {
				wg.Go(func() {
					for range rounds {
						if !sumOf(b, client, p, query) {
							failed.Add(1)
						}
					}
				})
			}
		}
		wg.Wait()
		took := time.Since(began)
		seen := readiness{}
		if resp, err := http.Get(watch.url); err != nil {
			b.Fatal(err)
		} else if err := errors.Join(json.NewDecoder(resp.Body).Decode(&seen), resp.Body.Close()); err != nil {
			b.Fatal(err)
		}
		time.Sleep(time.Minute)
		most, later := 0, 0
		for i := range counts {
			ever, now := counts[i].max()
			most, later = max(most, ever), max(later, now)
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(failed.Load()+seen.Failed), "failed")
		b.ReportMetric(float64(most), "conns-at-most")
		b.ReportMetric(float64(later), "conns-a-minute-later")
		b.ReportMetric(seen.P99*1000, "ready-p99-ms")
		b.ReportMetric(seen.Slowest*1000, "ready-ms-at-most")
		b.ReportMetric(2*clients*rounds/took.Seconds(), "requests/s")
	}
}

// BenchmarkFanOut reports what 32 callers of sum(up) at once over 800 shards in 200 groups take:
// connections at most, of memory.budget at most, and the time of all.
func BenchmarkFanOut(b *testing.B) {
	var text strings.Builder
	text.WriteString("groups:\n")
	for g := range 200 {
		fmt.Fprintf(&text, "  - name: g%d\n    labels: {cluster: g%d}\n    shards:\n", g, g)
		for i := range 4 {
			s := fakeshard.Start(b, fakeshard.Config{Series: []map[string]string{{
				"__name__": "up", "instance": fmt.Sprint(g, "-", i),
				"job": "fake",
			}}})
			fmt.Fprintf(&text, "      - {replicas: [{url: %q}]}\n", s.URL())
		}
	}
	var conns, most atomic.Int64
	s, proxy := startProxy(b, b.Context(), text.String(), func(o *Options) {
		o.shards = shard.Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			for n := conns.Add(1); n > most.Load(); {
				most.Store(n)
			}
			return &tcpConn{conn.(*net.TCPConn), sync.OnceFunc(func() { conns.Add(-1) })}, nil
		}}
	})
	tr := &http.Transport{MaxIdleConnsPerHost: 32}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr}
	for b.Loop() {
		var failed, held atomic.Int64
		over := make(chan struct{})
		var watch, wg sync.WaitGroup
		watch.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(5 * time.Millisecond):
					held.Store(max(held.Load(), s.poolNow().InUse()))
				}
			}
		})
		began := time.Now()
		for range 32 {
			wg.Go(func() {
				if !sumOf(b, client, proxy, "sum(up)") {
					failed.Add(1)
				}
			})
		}
		wg.Wait()
		b.ReportMetric(time.Since(began).Seconds()*1000, "ms")
		close(over)
		watch.Wait()
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(failed.Load()), "failed")
		b.ReportMetric(float64(most.Load()), "conns-at-most")
		b.ReportMetric(float64(held.Load())/(1<<20), "budget-MiB-at-most")
	}
}
