package weigh

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/cost"
	"github.com/spillwayproject/spillway/proxy/shard"
	"github.com/spillwayproject/spillway/proxy/vitals"
)

// topology is a group with a shard of each of the URLs.
func topology(t *testing.T, previous *shard.Topology, urls ...string) *shard.Topology {
	t.Helper()
	g := config.Group{Name: "jaguar"}
	for _, u := range urls {
		r := config.Replica{URL: u, Type: config.TypePrometheus}
		g.Shards = append(g.Shards, config.Shard{Replicas: []config.Replica{r}})
	}
	top, err := shard.New([]config.Group{g}, shard.Options{}, previous)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(top.Close)
	return top
}

// TestSizesOfANewTopology: of a shard that stays the same, wherever it stands, what is known stays,
// and when it is asked again; of another one nothing is known.
func TestSizesOfANewTopology(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	clock := func() time.Time { return now }
	top := topology(t, nil, "http://10.0.0.1:9090", "http://10.0.0.2:9090")
	before := NewSizes(t.Context(), top, nil, clock, slog.New(slog.DiscardHandler))
	for i, told := range []string{`[{"name":"up","value":7}]`, `[{"name":"up","value":8}]`} {
		n := before.Names(top.Groups[0].Shards[i])
		if err := n.Learn(strings.NewReader(`{"data":{"seriesCountByMetricName":`+told+`}}`), now, 0); err != nil {
			t.Fatal(err)
		}
	}
	next := topology(t, top, "http://10.0.0.2:9090", "http://10.0.0.3:9090")
	z := NewSizes(t.Context(), next, before, clock, slog.New(slog.DiscardHandler))
	before.Close()
	kept, other := next.Groups[0].Shards[0], next.Groups[0].Shards[1]
	if n, ok := z.Of(kept, "up"); !ok || n != 8 || z.Names(kept).Due(now) {
		t.Errorf("of a shard that stayed %d series are known (%v), or it is asked again", n, ok)
	}
	if _, ok := z.Names(other).AtMost("up"); ok || !z.Names(other).Due(now) {
		t.Error("of a new shard something is known, or it is not asked")
	}
}

// TestOneLargeSketchAtOnce: one shard at a time is asked for ten thousand names, also where another
// topology's Sizes ask.
func TestOneLargeSketchAtOnce(t *testing.T) {
	var now, most, at, asked atomic.Int64
	now.Store(1_790_000_000)
	clock := func() time.Time { return time.Unix(now.Load(), 0) }
	var told strings.Builder
	for i := range cost.MaxNames {
		fmt.Fprintf(&told, `,{"name":"x%d","value":9}`, i)
	}
	answer := `{"data":{"seriesCountByMetricName":[` + told.String()[1:] + `]}}`
	var urls []string
	for range 6 {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("limit") != "10000" {
				t.Errorf("asked for %s", r.URL)
			}
			n := at.Add(1)
			defer at.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(20 * time.Millisecond)
			asked.Add(1)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, answer)
		}))
		t.Cleanup(srv.Close)
		urls = append(urls, srv.URL)
	}
	log := slog.New(slog.DiscardHandler)
	top := topology(t, nil, urls[:3]...)
	z := NewSizes(t.Context(), top, nil, clock, log)
	next := topology(t, top, urls[3:]...)
	other := NewSizes(t.Context(), next, z, clock, log)
	for _, of := range []struct {
		z   *Sizes
		top *shard.Topology
	}{{z, top}, {other, next}} {
		for _, sh := range of.top.Groups[0].Shards {
			if err := of.z.Names(sh).Learn(strings.NewReader(answer), clock(), 0); err != nil || of.z.Names(sh).Limit() != cost.MoreNames {
				t.Fatalf("%v, %d names are asked for", err, of.z.Names(sh).Limit())
			}
		}
	}
	now.Add(int64(cost.NamesAge.Seconds()) + 1)
	for i := range 3 {
		_, _ = z.Of(top.Groups[0].Shards[i], "up")
		_, _ = other.Of(next.Groups[0].Shards[i], "up")
	}
	z.asking.Wait()
	other.asking.Wait()
	if most.Load() != 1 || asked.Load() != 6 {
		t.Errorf("%d shards were asked, %d at once", asked.Load(), most.Load())
	}
}

// TestSizesBesideOthersCalls: where others have all of process_calls, a shard still tells how large
// its metrics are: else nothing would be known for as long as the storm lasts.
func TestSizesBesideOthersCalls(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"data":{"seriesCountByMetricName":[{"name":"up","value":7}]}}`)
	}))
	t.Cleanup(srv.Close)
	var shards []config.Shard
	for _, u := range []string{srv.URL, "http://127.0.0.1:1"} {
		shards = append(shards, config.Shard{Replicas: []config.Replica{{URL: u, Type: config.TypePrometheus}}})
	}
	top, err := shard.New([]config.Group{{Name: "jaguar", Shards: shards}}, shard.Options{ProcessCalls: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(top.Close)
	sh := top.Groups[0].Shards[0]
	leave, err := top.Groups[0].Shards[1].Enter(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	z := NewSizes(t.Context(), top, nil, time.Now, slog.New(slog.DiscardHandler))
	defer z.Close()
	_, _ = z.Of(sh, "up")
	z.asking.Wait()
	if n, ok := z.Of(sh, "up"); !ok || n != 7 {
		t.Errorf("%d series are known: %v", n, ok)
	}
}

// TestOldSizes: what a shard told too long ago is not known, nor is an estimate made from it.
func TestOldSizes(t *testing.T) {
	w := sketched(t)
	z, sh, now := w.Known.Sizes, w.shards[0], time.Now()
	z.cancel() // nobody is asked
	for _, tc := range []struct {
		after time.Duration
		known bool
	}{{0, true}, {14 * time.Minute, true}, {16 * time.Minute, false}} {
		z.asking.Wait()
		z.now = func() time.Time { return now.Add(tc.after) }
		_, sized := z.Of(sh, "up")
		_, selected := z.Selects(sh, nil, nil)
		_, values := z.values(sh, "job")
		_, names := z.labels(sh)
		by := w.Known.Estimate(w.panel(t, "up", 1)).By
		if sized != tc.known || selected != tc.known || values != tc.known || names != tc.known || (by == BySketch) != tc.known {
			t.Errorf("after %s: known: %v %v %v %v, by %s", tc.after, sized, selected, values, names, by)
		}
	}
	z.Close()
}

// TestOneReplicaIsAsked: where a replica does not tell, the other one is not asked for it.
func TestOneReplicaIsAsked(t *testing.T) {
	var asked atomic.Int64
	g := config.Group{Name: "jaguar", Shards: make([]config.Shard, 1)}
	for range 2 {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		t.Cleanup(srv.Close)
		g.Shards[0].Replicas = append(g.Shards[0].Replicas, config.Replica{URL: srv.URL, Type: config.TypePrometheus})
	}
	top, err := shard.New([]config.Group{g}, shard.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(top.Close)
	z := NewSizes(t.Context(), top, nil, time.Now, slog.New(slog.DiscardHandler))
	_, _ = z.Of(top.Groups[0].Shards[0], "up")
	z.asking.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("%d replicas were asked", n)
	}
}

// TestSizesOfAServerWithoutMemory: one that is short of memory is asked all the same, and one that
// has none left where nothing is known of it, or what is known is old: without that no query would
// be known to be too much for it.
func TestSizesOfAServerWithoutMemory(t *testing.T) {
	const told = `{"status":"success","data":{"seriesCountByMetricName":[{"name":"up","value":7}]}}`
	for _, tc := range []struct {
		percent int
		state   vitals.State
		known   time.Duration // for how long; 0 is not
		asked   int64
	}{
		{85, vitals.Busy, 6 * time.Minute, 1},
		{95, vitals.Sick, 6 * time.Minute, 0},
		{95, vitals.Sick, 16 * time.Minute, 1},
		{95, vitals.Sick, 0, 1},
	} {
		var asked atomic.Int64
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/metrics":
				fmt.Fprintf(w, "go_gc_gomemlimit_bytes 100\ngo_gc_heap_live_bytes %d\ngo_memstats_sys_bytes 0\n", tc.percent)
				_, _ = io.WriteString(w, "go_memstats_heap_sys_bytes 0\nprometheus_ready 1\n")
			case "/api/v1/status/tsdb":
				asked.Add(1)
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, told)
			}
		}))
		t.Cleanup(srv.Close)
		top := topology(t, nil, srv.URL)
		top.Start(t.Context())
		sh := top.Groups[0].Shards[0]
		late := time.Now().Add(20 * time.Second)
		for ; sh.Replicas[0].Vitals().State != tc.state || !sh.Sound(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(late) {
				t.Fatalf("at %d %% it is %s", tc.percent, sh.Replicas[0].Vitals().State)
			}
		}
		now := time.Now()
		z := NewSizes(t.Context(), top, nil, func() time.Time { return now }, slog.New(slog.DiscardHandler))
		if tc.known > 0 {
			if err := z.Names(sh).Learn(strings.NewReader(told), now.Add(-tc.known), 0); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = z.Of(sh, "up")
		z.asking.Wait()
		if n := asked.Load(); n != tc.asked {
			t.Errorf("at %d %%, known for %s: it was asked %d times, want %d", tc.percent, tc.known, n, tc.asked)
		}
		z.Close()
		top.Close()
	}
}

// TestNamedTogether: metrics and jobs have what all shards told of them, the largest first; what is
// old counts for nothing.
func TestNamedTogether(t *testing.T) {
	w := sketched(t)
	z, n := w.Known.Sizes, int64(len(w.shards))
	if got := z.Named(); len(got) != 2 || got[0] != (cost.Metric{Name: "x_total", Series: 20_000 * n}) || got[1].Name != "up" {
		t.Errorf("%v", got)
	}
	if got := z.Jobs(); len(got) != 1 || got[0] != (cost.Metric{Name: "a", Series: 700 * n}) {
		t.Errorf("%v", got)
	}
	now := time.Now()
	z.now = func() time.Time { return now.Add(time.Hour) }
	if len(z.Named()) > 0 || len(z.Jobs()) > 0 {
		t.Error("what is old is named")
	}
}
