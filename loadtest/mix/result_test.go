package mix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/loadtest/bench"
)

// turns makes two rounds of two queries in which the direct path takes 1 and 10 ms and the proxied
// one factor times that.
func turns(paths []*path, factor []float64) []*turn {
	var out []*turn
	for round := range 2 {
		slower := time.Duration(1 + round) // the machine is busier in the second round; ratios do not mind
		for i, p := range paths {
			t := &turn{
				path: p, concurrency: 1, round: round, wall: time.Second,
				proxy: time.Duration(factor[i] * float64(time.Millisecond)), servers: 4 * time.Millisecond,
			}
			for q, base := range []time.Duration{time.Millisecond, 10 * time.Millisecond} {
				for range 3 {
					t.samples = append(t.samples, sample{query: q, took: time.Duration(factor[i] * float64(base*slower))})
				}
			}
			out = append(out, t)
		}
	}
	return out
}

func TestSum(t *testing.T) {
	w := &World{o: Options{Mix: Mix{Queries: []Query{{Name: "small", Shards: One}, {Name: "large", Shards: All}}}}}
	paths := []*path{{name: Direct}, {name: Reverse, pid: 1}, {name: SpillwayFour, pid: 2}}
	all := turns(paths, []float64{1, 1.25, 2})
	all[2].samples[3].err = errors.New("it broke")
	p := w.sum(paths[2], all)
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-6 {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	near("p50 ratio", p.P50Ratio, 2)
	near("ratio for one", p.OneRatio, 2)
	near("ratio for all", p.AllRatio, 2)
	near("mean", p.GeoMean, 2)
	near("proxy CPU", p.ProxyCPU, 4.0/12)
	near("servers' CPU", p.ServersCPU, 8.0/12)
	near("to ReverseProxy", p.ReverseCPU, 1.6)
	near("rate", p.PerSecond, 6)
	near("p50 of small", p.Queries[0].P50, 2)
	near("p99", p.P99, 40)
	if p.Requests != 12 || p.Failed != 1 || p.Error != "it broke" {
		t.Errorf("%+v", p)
	}
	if p := w.sum(paths[0], all); p.P50Ratio != 1 || p.ReverseCPU != 0 {
		t.Errorf("direct: %+v", p)
	}
}

func TestQuantiles(t *testing.T) {
	var took []time.Duration
	for i := 100; i > 0; i-- {
		took = append(took, time.Duration(i))
	}
	if quantile(took, 50) != 50 || quantile(took, 99) != 99 || quantile(took[:1], 99) != 100 || quantile(nil, 50) != 0 {
		t.Error("nearest ranks are wrong")
	}
	for want, values := range map[float64][]float64{0: nil, 3: {3}, 2.5: {4, 1, 2, 3}, 2: {3, 2, 1}} {
		if got := medianOf(values); got != want {
			t.Errorf("median of %v: %v", values, got)
		}
	}
}

func example() *Result {
	path := func(name string, ratio float64) Path {
		return Path{
			Name: name, Requests: 10, P50: ratio, P99: 9, P50Ratio: ratio, OneRatio: ratio, AllRatio: ratio, GeoMean: ratio, PerSecond: 100,
			ProxyCPU: 0.3 * ratio, ServersCPU: 3, ReverseCPU: ratio / 1.2, PeakMiB: 50,
			Queries: []QueryTimes{{"small", One, ratio, 2, ratio}, {"large", All, 10 * ratio, 20, ratio * 1.5}},
		}
	}
	r := &Result{
		Series: 1000, Rounds: 2, Requests: 10, Shards: 4, Machine: "a machine",
		Loads: []Load{{Concurrency: 2, Paths: []Path{
			path(Direct, 1), path(DirectShard, 1.05), path(Reverse, 1.2),
			path(ReverseShard, 1.1), path(SpillwayOne, 1.2), path(SpillwayFour, 1.9), path("a peer", 7),
		}}},
		Bulk: &Bulk{
			Query: "up", Series: 500, Points: 1000, Bytes: 10_000, SlowestAlone: 0.1, SlowestAtOnce: 0.3,
			Paths: []BulkPath{{Name: SpillwayFour, Seconds: 0.33, OverIdleMiB: 80}},
		},
	}
	r.Goals = r.goals()
	return r
}

func TestGoals(t *testing.T) {
	r := example()
	reached := map[string]bool{}
	for _, g := range r.Goals {
		reached[g.Name] = g.Reached
	}
	for name, want := range map[string]bool{
		"one server: p50 to direct, 2 at a time": true, "one server: proxy's CPU to ReverseProxy's, 2 at a time": true,
		"four shards: p50 to direct, queries for one shard, 2 at a time": false, "four shards: p50 to direct, queries for all shards, 2 at a time": true,
		"four shards: geometric mean over the queries, 2 at a time": true, "four shards: proxy's CPU per 1,000, 2 at a time": true, "four shards: CPU of proxy and servers per 1,000, 2 at a time": true,
		"four shards: 500 series: peak memory over idle": false, "four shards: 500 series: time to the slowest shard's own, all asked at once": true,
		"answers that differ from the server's, or failed": true,
	} {
		if got, ok := reached[name]; !ok || got != want {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
	if err := r.Err(false); err != nil {
		t.Error(err)
	}
	if err := r.Err(true); err == nil || !strings.Contains(err.Error(), "queries for one shard") {
		t.Errorf("all goals: %v", err)
	}
	r.Wrong = []string{"Spillway: it lied"}
	r.Goals = r.goals()
	if err := r.Err(false); err == nil {
		t.Error("a wrong answer is no error")
	}
	// A path that answered nothing has reached nothing.
	r.Loads[0].Paths[5] = Path{Name: SpillwayFour, Requests: 10, Failed: 10}
	for _, g := range r.goals() {
		if g.Reached && strings.Contains(g.Name, "four shards: p50") {
			t.Errorf("reached by failing: %+v", g)
		}
	}
}

// TestMarkdown: all rows of a table have as many cells as its head.
func TestMarkdown(t *testing.T) {
	var sb strings.Builder
	if err := example().WriteMarkdown(&sb); err != nil {
		t.Fatal(err)
	}
	cells, tables := 0, 0
	for line := range strings.Lines(sb.String()) {
		if !strings.HasPrefix(line, "|") {
			cells = 0
			continue
		}
		n := strings.Count(line, "|")
		if cells == 0 {
			cells, tables = n, tables+1
		}
		if n != cells {
			t.Errorf("%d cells instead of %d: %s", n, cells, line)
		}
	}
	if tables != 4 {
		t.Errorf("%d tables:\n%s", tables, sb.String())
	}
	for _, want := range []string{"| a peer |", "| NO | the worst: small 1.90; the node's shard asked directly 1.05, through ReverseProxy 1.10 |", "80 MiB | 64 MiB | NO"} {
		if !strings.Contains(sb.String(), want) {
			t.Errorf("%q is not in\n%s", want, sb.String())
		}
	}
}

func TestPicture(t *testing.T) {
	var svg, png strings.Builder
	r := example()
	if err := errors.Join(r.WriteSVG(&svg), r.WritePNG(&png)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(svg.String(), "a peer") || !strings.Contains(svg.String(), "small") ||
		!strings.HasPrefix(png.String(), "\x89PNG") {
		t.Error("the picture lacks something")
	}
	if err := (&Result{}).WriteSVG(&svg); err == nil {
		t.Error("a picture of nothing")
	}
}

func TestValidate(t *testing.T) {
	err := Options{
		Series: 1, Rounds: -1, Requests: 1, Concurrency: []int{0}, Peers: []bench.Peer{{Name: Direct, URL: "x"}, {URL: "http://h"}},
		Port: 1,
	}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"spillway binary", "series: 1", "rounds: -1", "requests: 1", "concurrency: 0", `peer "direct"`, `peer ""`,
		"port: 1 to 5",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if err := (Options{Spillway: "x", Laboratory: "y"}).Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
}

// TestFourShards: what Spillway is told of the shards, and that it is told nothing where that is
// wanted.
func TestFourShards(t *testing.T) {
	w := &World{parts: make([]*realprom.Server, 2)}
	for i := range w.parts {
		w.parts[i] = &realprom.Server{}
	}
	if got := w.fourShards(); got.Hashmod.Modulus != 4 || got.Hashmod.Labels[0] != "node" || got.Shards[1].Hash.String() != "1" {
		t.Errorf("%+v", got)
	}
	w.o.NoHints = true
	if got := w.fourShards(); got.Hashmod.Modulus != 0 || len(got.ShardBy) > 0 || got.Shards[1].Hash.Set {
		t.Errorf("%+v", got)
	}
}

func TestCPUAndMemory(t *testing.T) {
	before, err := cpuTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for x, began := 1.0, time.Now(); time.Since(began) < 5*time.Millisecond; x *= 1.0000001 {
		_ = x
	}
	after, err := cpuTime(os.Getpid())
	if err != nil || after <= before {
		t.Errorf("%s after %s: %v", after, before, err)
	}
	if _, err := cpuTime(1 << 22); err == nil {
		t.Error("processor time of a process that is not there")
	}
}

// TestReverseProxyToTheShard: a query of the mix about one node goes to the server that has it, any
// other to the one that has everything.
func TestReverseProxyToTheShard(t *testing.T) {
	mix := Builtin()
	for _, q := range mix.Queries {
		what := mix.path(q, time.Unix(1_700_000_000, 0), "gpu-00042", "research-nlp")
		m := nodeOfQuery.FindStringSubmatch(what)
		switch {
		case q.Shards == One && (m == nil || m[1] != "gpu-00042"):
			t.Errorf("%s: no node is found in %s", q.Name, what)
		case q.Shards == All && m != nil:
			t.Errorf("%s: node %q is found in %s", q.Name, m[1], what)
		}
	}
}

// TestReverseProxy: it passes on what it is asked, and ends with its context.
func TestReverseProxy(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL) }))
	defer s.Close()
	port, err := realprom.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("127.0.0.1:%d", port)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ReverseProxy(ctx, at, s.URL) }()
	for { // until it listens
		c, err := net.Dial("tcp", at)
		if err == nil {
			_ = c.Close()
			break
		}
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	res, err := client.Get("http://" + at + "/api/v1/query?query=up")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil || string(body) != "/api/v1/query?query=up" {
		t.Errorf("%q, %v", body, err)
	}
	if err := ReverseProxy(t.Context(), at, s.URL, "nowhere"); err == nil || !strings.Contains(err.Error(), "must be a URL") {
		t.Errorf("a wrong shard: %v", err)
	}
	if err := ReverseProxy(t.Context(), at, "nowhere"); err == nil || !strings.Contains(err.Error(), "must be a URL") {
		t.Errorf("a wrong upstream: %v", err)
	}
}
