package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/internal/timers"
	"github.com/spillwayproject/spillway/loadtest/cluster"
	"github.com/spillwayproject/spillway/proxy/config"
)

// childEnv makes the test binary one of the two proxies of BenchmarkPassThrough, in a process of
// its own whose processor time can be read, the shards of BenchmarkIdle, whose processor time is
// not the proxy's, or who watches the servers of BenchmarkStorm, whom its many goroutines must not
// keep waiting.
const childEnv = "SPILLWAY_TEST_CHILD"

// child runs as "KIND URL" says until its standard input ends, and prints its address first.
func child(spec string) int {
	kind, upstream, _ := strings.Cut(spec, " ")
	switch kind {
	case "shards":
		return fleetChild(upstream)
	case "watch":
		return watchChild(upstream)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if kind == "reverse" {
		target, err := url.Parse(upstream)
		if err != nil {
			panic(err)
		}
		l, err := listen("127.0.0.1:0", caps{4096, 4096, 0}, "main", newMetricsForTest(), new(timers.Set), slog.New(slog.DiscardHandler))
		if err != nil {
			panic(err)
		}
		fmt.Println("http://" + l.Addr().String())
		hs := &http.Server{Handler: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}}
		go func() { <-ctx.Done(); _ = hs.Close() }()
		_ = hs.Serve(l)
		return 0
	}
	group := "{name: one, "
	if kind == "labeled" {
		group += "labels: {cluster: jaguar}, "
	}
	cfg, err := config.Parse([]byte("groups: ["+group+"shards: [{replicas: [{url: '"+upstream+"'}]}]}]\n"), ".")
	if err != nil {
		panic(err)
	}
	s, err := New(Options{
		Config: cfg, ListenAddress: "127.0.0.1:0", AdminListenAddress: "127.0.0.1:0",
		Ready: func(main, _ netAddr) { fmt.Println("http://" + main.String()) },
	})
	if err != nil {
		panic(err)
	}
	if err := s.Run(ctx, context.Background()); err != nil {
		panic(err)
	}
	return 0
}

type proxyProcess struct {
	name, url string
	pid       int
	ratios    []float64
}

func startChild(b *testing.B, kind, upstream string) *proxyProcess {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+kind+" "+upstream)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return &proxyProcess{name: kind, url: strings.TrimSpace(line), pid: cmd.Process.Pid}
}

// cpu is the processor time of the process so far, user and system.
func (p *proxyProcess) cpu(b *testing.B) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		b.Fatal(err)
	}
	f := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}

// BenchmarkPassThrough compares the processor time that Spillway and Go's own reverse proxy take
// for the same dashboard mix over one server, in rounds side by side: A B C A B C. The server and
// the client are in other processes and are not counted.
func BenchmarkPassThrough(b *testing.B) {
	now := time.Now()
	dir := b.TempDir()
	m, err := cluster.New(cluster.Options{Seed: 1, Nodes: 40})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := m.Backfill(b.Context(), dir, cluster.BackfillOptions{From: now.Add(-time.Hour), Until: now}); err != nil {
		b.Fatal(err)
	}
	p, err := localprom.Start(b.Context(), localprom.Options{
		Blocks: []string{dir}, DisableWAL: true,
		ExternalLabels: labels.FromStrings("cluster", "jaguar"), MaxConcurrency: 100,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	plain, err := localprom.Start(b.Context(), localprom.Options{Blocks: []string{dir}, DisableWAL: true})
	if err != nil {
		b.Fatal(err)
	}
	defer plain.Close()

	reverse := startChild(b, "reverse", plain.URL())
	proxies := []*proxyProcess{reverse, startChild(b, "spillway", plain.URL()), startChild(b, "labeled", p.URL())}
	mix := readMix(b)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4, DisableCompression: true}}
	defer client.CloseIdleConnections()
	round := func(p *proxyProcess, requests int) time.Duration {
		before := p.cpu(b)
		for i := range requests {
			at := now.Add(-time.Duration(i%120) * time.Second)
			r := strings.NewReplacer("{now}", unix(at), "{end}", unix(at), "{start}", unix(at.Add(-30*time.Minute)))
			path, form, _ := strings.Cut(mix[i%len(mix)], "?")
			values := url.Values{}
			for _, kv := range strings.Split(form, "&") { // no query of the mix has an & in it
				k, v, _ := strings.Cut(kv, "=")
				values.Set(k, r.Replace(v))
			}
			// GET: under POST Go's reverse proxy now and then breaks an answer off ("use of closed
			// network connection").
			req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, p.url+path+"?"+values.Encode(), nil)
			if err != nil {
				b.Fatal(err)
			}
			req.Header.Set("Accept-Encoding", "identity") // nobody inflates or deflates: the same bytes go through all
			resp, err := client.Do(req)
			if err != nil {
				b.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != 200 {
				b.Fatalf("%s: %d %v %.200s", p.name, resp.StatusCode, err, body)
			}
		}
		return p.cpu(b) - before
	}
	for _, p := range proxies {
		round(p, 4*len(mix)) // connections, pools, caches
	}
	const requests = 600
	total := map[string]time.Duration{}
	for b.Loop() {
		var base time.Duration
		for _, p := range proxies {
			took := round(p, requests)
			total[p.name] += took
			if p == reverse {
				base = took
			} else {
				p.ratios = append(p.ratios, float64(took)/float64(base))
			}
		}
	}
	for _, p := range proxies {
		b.ReportMetric(total[p.name].Seconds()/float64(b.N)/requests*1000, p.name+"-cpu-s/1000req")
		if p != reverse {
			slices.Sort(p.ratios)
			b.ReportMetric(p.ratios[len(p.ratios)/2], p.name+"/reverse")
		}
	}
	b.ReportMetric(0, "ns/op")
}

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

func readMix(b *testing.B) []string {
	data, err := os.ReadFile("testdata/mix.txt")
	if err != nil {
		b.Fatal(err)
	}
	var mix []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			mix = append(mix, line)
		}
	}
	return mix
}
