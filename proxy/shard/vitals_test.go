package shard

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/vitals"
)

const metricsPage = "/metrics"

// holding is a server whose memory, in hundredths of its limit of 1 GiB, is told by share; below
// zero it has no limit.
func holding(share *atomic.Int64) fakeshard.Config {
	return fakeshard.Config{Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
		if r.Path != metricsPage {
			return fakeshard.Answer{}, false
		}
		limit := "1073741824"
		n := share.Load()
		if n < 0 {
			limit, n = "9.223372036854776e+18", -n
		}
		live := itoa(int(n * 1 << 30 / 100))
		return fakeshard.Answer{
			Status: http.StatusOK, Header: http.Header{"Content-Type": {"text/plain; version=0.0.4"}},
			Body: []byte("go_gc_gomemlimit_bytes " + limit + "\ngo_gc_heap_live_bytes " + live + "\ngo_memstats_heap_released_bytes 0\n" +
				"go_memstats_heap_sys_bytes 1\ngo_memstats_sys_bytes 1\nprocess_start_time_seconds 1\nprometheus_engine_queries 3\n"),
		}, true
	}}
}

// TestReloadsAreNoReadings: however often the configuration changes, a server is read as often as
// without that, and is well again no sooner.
func TestReloadsAreNoReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := share(95)
		b := newBubble(t, holding(memory))
		defer b.close()
		var top *Topology
		reload := func() {
			next, err := New([]config.Group{group(b.urls...)}, Options{Dial: b.dial}, top)
			if err != nil {
				t.Fatal(err)
			}
			next.Start(t.Context())
			if top != nil {
				top.Close()
			}
			top = next
		}
		reload()
		defer func() { top.Close() }()
		time.Sleep(2 * time.Second)
		memory.Store(20)
		for range 10 {
			time.Sleep(1100 * time.Millisecond)
			reload()
		}
		if n, v := b.count(0, metricsPage), top.Status()[0].Vitals; n > 2 || v.State != vitals.Sick {
			t.Errorf("it was read %d times and is %s", n, v.State)
		}
		time.Sleep(time.Minute)
		if v := top.Status()[0].Vitals; v.State != vitals.Sound {
			t.Errorf("at the end: %+v", v)
		}
	})
}

// TestOneRefusedPage: a page that is refused once, or twice, leaves the server watched.
func TestOneRefusedPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused atomic.Int64
		cfg := holding(share(95))
		answer := cfg.Answer
		cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
			if r.Path == metricsPage && refused.Add(-1) >= 0 {
				return fakeshard.Answer{Status: http.StatusForbidden}, true
			}
			return answer(r)
		}
		b := newBubble(t, cfg)
		defer b.close()
		top := build(t, Options{Dial: b.dial}, true, group(b.urls...))
		defer top.Close()
		refused.Store(2)
		time.Sleep(35 * time.Second)
		if v := top.Status()[0].Vitals; v.State != vitals.Sick || v.Unwatched != "" {
			t.Errorf("%+v", v)
		}
		refused.Store(3)
		time.Sleep(35 * time.Second)
		if v := top.Status()[0].Vitals; v.State != vitals.Unknown || !strings.Contains(v.Unwatched, "status 403") {
			t.Errorf("refused three times: %+v", v)
		}
		time.Sleep(6 * time.Minute)
		if v := top.Status()[0].Vitals; v.State != vitals.Sick || v.Unwatched != "" {
			t.Errorf("served again: %+v", v)
		}
	})
}

// TestOneThatIsGoneIsNotSick: what is not there at all is another process when it comes back.
func TestOneThatIsGoneIsNotSick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, holding(share(95)))
		defer b.close()
		var gone atomic.Bool
		var mu sync.Mutex
		var conns []net.Conn
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			if gone.Load() {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
			}
			c, err := b.dial(ctx, network, address)
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, c)
			return c, err
		}
		top := build(t, Options{Dial: dial}, true, group(b.urls...))
		defer top.Close()
		time.Sleep(2 * time.Second)
		s := top.Groups[0].Shards[0]
		if !s.Strained() {
			t.Fatal("it is not sick")
		}
		gone.Store(true)
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		time.Sleep(20 * time.Second)
		if v := s.Replicas[0].Vitals(); v.State != vitals.Unknown {
			t.Errorf("%+v", v)
		}
	})
}

func share(n int64) *atomic.Int64 {
	v := &atomic.Int64{}
	v.Store(n)
	return v
}

// seen is a logger whose lines are counted.
type seen struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *seen) Write(p []byte) (int, error) { s.mu.Lock(); defer s.mu.Unlock(); return s.all.Write(p) }

func (s *seen) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.all.String(), text)
}

func (s *seen) logger() *slog.Logger { return slog.New(slog.NewTextHandler(s, nil)) }

// TestVitals: each server's memory is read every ten seconds, by name, and shown; a state that is
// new is logged once, and one that is not heard of any more is not known.
func TestVitals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := share(50), share(-70)
		hung := &atomic.Bool{}
		cfg := holding(first)
		answer := cfg.Answer
		cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
			for r.Path == metricsPage && hung.Load() {
				time.Sleep(time.Second)
			}
			return answer(r)
		}
		b := newBubble(t, cfg, holding(second), fakeshard.Config{Metrics: map[string]float64{"go_gc_gomemlimit_bytes": 50 << 20}})
		defer b.close()
		reg, log := prometheus.NewRegistry(), &seen{}
		g := group(b.urls[:2]...)
		g.Shards = append(g.Shards, config.Shard{Replicas: group(b.urls[2]).Shards[0].Replicas})
		top := build(t, Options{Dial: b.dial, Registerer: reg, Logger: log.logger()}, true, g)
		defer top.Close()
		expect := func(when string, states ...vitals.State) {
			t.Helper()
			for i, info := range top.Status() {
				if info.Vitals.State != states[i] {
					t.Errorf("%s: server %d is %s, want %s (%+v)", when, i, info.Vitals.State, states[i], info.Vitals)
				}
				host := b.urls[i][len("http://"):]
				for _, s := range vitals.States() {
					want := 0.0
					if s == states[i] {
						want = 1
					}
					if got := labelled(t, reg, "spillway_shard_health", host, string(s)).GetGauge().GetValue(); got != want {
						t.Errorf("%s: the metric of server %d, %s, is %g", when, i, s, got)
					}
				}
			}
		}
		time.Sleep(2 * time.Second)
		expect("at first", vitals.Sound, vitals.Unknown, vitals.Sick) // the second one has no limit
		v := top.Status()[0].Vitals
		if v.LimitBytes != 1<<30 || v.HeldBytes != 1<<29 || v.Queries != 3 || v.Unwatched != "" || v.At.IsZero() {
			t.Errorf("%+v", v)
		}
		if got := labelled(t, reg, "spillway_shard_memory_bytes", "10.0.0.1:9090").GetGauge().GetValue(); got != 1<<29 {
			t.Errorf("memory: %g", got)
		}
		if got := labelled(t, reg, "spillway_shard_memory_limit_bytes", "10.0.0.3:9090").GetGauge().GetValue(); got != 50<<20 {
			t.Errorf("limit: %g", got)
		}
		if q := b.fakes[0].RequestsTo(metricsPage)[0].Form["name[]"]; !slices.Contains(q, "go_gc_heap_live_bytes") {
			t.Errorf("it is asked for %q", q)
		}
		before := b.count(0, metricsPage)
		time.Sleep(5 * time.Minute)
		if n := b.count(0, metricsPage) - before; n < 27 || n > 34 {
			t.Errorf("it was asked %d times in five minutes", n)
		}
		first.Store(91)
		time.Sleep(15 * time.Second)
		expect("when it is full", vitals.Sick, vitals.Unknown, vitals.Sick)
		time.Sleep(5 * time.Minute)
		hung.Store(true) // under load it does not come to answer
		time.Sleep(15 * time.Second)
		expect("when it has just fallen silent", vitals.Sick, vitals.Unknown, vitals.Sick)
		time.Sleep(5 * time.Minute)
		expect("when it is silent", vitals.Sick, vitals.Unknown, vitals.Sick)
		time.Sleep(6 * time.Minute)
		expect("when it is silent for long", vitals.Unknown, vitals.Unknown, vitals.Sick)
		hung.Store(false)
		first.Store(20)
		time.Sleep(time.Minute)
		expect("at the end", vitals.Sound, vitals.Unknown, vitals.Sick)
		if why := top.Status()[1].Vitals.Unwatched; !strings.Contains(why, "no memory limit that is known") {
			t.Errorf("of the second one it is said: %q", why)
		}
		if n := log.count("replica=jaguar/10.0.0.1:9090"); n != 2 { // that it got sick, and well
			t.Errorf("%d lines about the first server:\n%s", n, log.all.String())
		}
	})
}

// TestVitalsFaults: whatever is served in place of metrics, a server is never sick for it, is asked
// all the same, and what is read of it is bounded. One that serves none is told of once, and hardly
// asked again.
func TestVitalsFaults(t *testing.T) {
	unwatched := map[string]bool{"404": true, "401": true, "403": true, "login": true, "deep": true, "gateway": true}
	for name, script := range map[string]string{
		"404": "status 404; send 'not here'", "401": "status 401", "403": "status 403", "login": "garbage html", "empty": "garbage empty",
		"500": "status 500; send broken", "503": "status 503", "429": "status 429; header Retry-After 60",
		"503, later": "status 503; header Retry-After 60", "random": "send 'prometheus_ready x\n'", "hang": "stall", "slow": "header Content-Type text/plain; drip 1B/1s; send 'prometheus_ready 1'",
		"reset": "reset", "cut": "length 5000; send 'prometheus_ready 1\n'; close", "bomb": "gzip bomb 1GiB", "huge": "generate 1GiB",
		"gateway":  "header Content-Type text/plain; send 'go_gc_gomemlimit_bytes 10\ngo_gc_heap_live_bytes 9\ngo_memstats_sys_bytes 9\ngo_memstats_heap_sys_bytes 9\n'",
		"redirect": "redirect http://10.9.9.9/ 302", "deep": "garbage deep",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: metricsPage, Script: script}}})
				defer b.close()
				log := &seen{}
				top := build(t, Options{Dial: b.dial, Logger: log.logger()}, true, group(b.urls...))
				defer top.Close()
				time.Sleep(2*time.Minute + 30*time.Second)
				info := top.Status()[0]
				if info.Vitals.State != vitals.Unknown || info.State != Up || info.Breaker != Closed || info.Lagging {
					t.Errorf("%+v", info)
				}
				asked, told := b.count(0, metricsPage), log.count("cannot be read")
				switch {
				case unwatched[name] && (asked != 3 || told != 1 || info.Vitals.Unwatched == ""):
					t.Errorf("asked %d times, told %d times, %q", asked, told, info.Vitals.Unwatched)
				case !unwatched[name] && (asked < 8 || told != 0 || info.Vitals.Unwatched != ""):
					t.Errorf("asked %d times, told %d times, %q", asked, told, info.Vitals.Unwatched)
				}
				for _, r := range b.fakes[0].RequestsTo(metricsPage) {
					if r.Sent > 9<<20 {
						t.Errorf("%d bytes were read", r.Sent)
					}
				}
				for range 30 { // whenever it is asked
					time.Sleep(time.Second)
					if _, err := ask(t.Context(), top.Groups[0].Shards[0], seriesRequest); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// TestVitalsFollowTheConfiguration: what was learned of a server outlives a reload; a limit that is
// new holds with the next page, and a server that is no longer to be watched is not.
func TestVitalsFollowTheConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{Metrics: map[string]float64{"go_gc_gomemlimit_bytes": math.NaN()}})
		defer b.close()
		of := func(previous *Topology, change func(*config.Replica)) *Topology {
			g := group(b.urls...)
			change(&g.Shards[0].Replicas[0])
			top, err := New([]config.Group{g}, Options{Dial: b.dial}, previous)
			if err != nil {
				t.Fatal(err)
			}
			top.Start(t.Context())
			if previous != nil {
				previous.Close()
			}
			return top
		}
		first := of(nil, func(*config.Replica) {})
		time.Sleep(3 * time.Second)
		if v := first.Status()[0].Vitals; v.State != vitals.Unknown || v.HeldBytes != 90<<20 {
			t.Errorf("without a limit: %+v", v)
		}
		second := of(first, func(r *config.Replica) { r.MemoryLimit = 100 << 20 })
		if v := second.Status()[0].Vitals; v.HeldBytes != 90<<20 || v.LimitBytes != 100<<20 || v.State != vitals.Sick {
			t.Errorf("just after a reload: %+v", v)
		}
		time.Sleep(11 * time.Second)
		if v := second.Status()[0].Vitals; v.State != vitals.Sick || v.LimitBytes != 100<<20 {
			t.Errorf("with a limit: %+v", v)
		}
		third := of(second, func(r *config.Replica) { r.Metrics = config.MetricsNone })
		asked := b.count(0, metricsPage)
		if v := third.Status()[0].Vitals; v.State != vitals.Unknown || third.Groups[0].Shards[0].Strained() {
			t.Errorf("just after it is no longer to be watched: %+v", v)
		}
		time.Sleep(time.Minute)
		v := third.Status()[0].Vitals
		if v.State != vitals.Unknown || !strings.Contains(v.Unwatched, "metrics: none") || b.count(0, metricsPage) != asked {
			t.Errorf("not watched: %+v, asked %d times more", v, b.count(0, metricsPage)-asked)
		}
		third.Close()
	})
}

// TestOneReadingAtATime: while a reload puts another topology beside the one before, a server is
// not asked for its metrics twice at once.
func TestOneReadingAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		cfg := holding(share(50))
		answer := cfg.Answer
		cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
			if r.Path == metricsPage {
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(time.Second)
				defer now.Add(-1)
			}
			return answer(r)
		}
		b := newBubble(t, cfg)
		defer b.close()
		o := Options{Dial: b.dial, VitalsEvery: 500 * time.Millisecond}
		var before *Topology
		for range 4 {
			top, err := New([]config.Group{group(b.urls...)}, o, before)
			if err != nil {
				t.Fatal(err)
			}
			defer top.Close()
			top.Start(t.Context())
			before = top
		}
		time.Sleep(time.Minute)
		if n := b.count(0, metricsPage); most.Load() != 1 || n < 30 {
			t.Errorf("%d times at once, of %d", most.Load(), n)
		}
	})
}
