package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/plan/raw"
)

// point is one sample of the world: a float or a native histogram.
type point struct {
	t int64
	f float64
	h *histogram.Histogram
}

func (p point) T() int64                      { return p.t }
func (p point) ST() int64                     { return 0 }
func (p point) F() float64                    { return p.f }
func (p point) H() *histogram.Histogram       { return p.h }
func (p point) FH() *histogram.FloatHistogram { return p.h.ToFloat(nil) }
func (p point) Type() (t chunkType)           { return pointType(p.h != nil) }
func (p point) Copy() chunks.Sample           { return p }

// replicaData is what one server stores: label sets as stored, and their samples.
type replicaData struct {
	series map[string]*storedSeries
}

type storedSeries struct {
	lbls   labels.Labels
	points []point
}

// world is all data of a test: groups, shards, replicas, and the servers that hold it.
type world struct {
	t      testing.TB
	rng    *rand.Rand
	start  time.Time
	length time.Duration
	step   time.Duration
	groups []*worldGroup
}

type worldGroup struct {
	name     string
	labels   labels.Labels // the group's
	replicas int
	shards   [][]*replicaData
	names    [][]string // of replicas, by shard, as the proxy calls them
}

// family is a metric of the world: how its value runs.
type family struct {
	name   string
	labels []string // pairs for each series, "code=200,handler=/a"
	value  func(node int, variant int, at float64) float64
	native bool
}

var families = []family{
	{"up", []string{"job=node"}, func(int, int, float64) float64 { return 1 }, false},
	{"http_requests_total", []string{"job=api,code=200,handler=/a", "job=api,code=200,handler=/b", "job=api,code=500,handler=/a"}, func(n, v int, at float64) float64 {
		return math.Mod(math.Floor(at*(1.5+float64(n)*0.7+float64(v))), 4000) // with resets
	}, false},
	{"node_memory_free_bytes", []string{"job=node"}, func(n, _ int, at float64) float64 { return 1e9 * (2 + math.Sin(at/300+float64(n))) }, false},
	{"gpu_temperature", []string{"gpu=0", "gpu=1"}, func(n, v int, at float64) float64 {
		if math.Mod(at, 700) < 60 {
			return math.NaN()
		}
		return 40 + float64(n) + 10*math.Cos(at/200+float64(v))
	}, false},
	{"request_duration_seconds_bucket", []string{"le=0.1", "le=0.5", "le=1.0", "le=+Inf"}, func(n, v int, at float64) float64 {
		return math.Floor(at * float64(v+1) * (0.5 + float64(n)/10))
	}, false},
	{"request_duration_seconds_count", []string{""}, func(n, _ int, at float64) float64 { return math.Floor(at * 4 * (0.5 + float64(n)/10)) }, false},
	{"rpc_duration_seconds", []string{"service=a"}, nil, true},
	{"mixed_in", []string{"cluster=stored,x=1", "prometheus_replica=zz,x=2"}, func(n, v int, at float64) float64 { return float64(n*10+v) + at/1000 }, false},
}

func makeWorld(t testing.TB, seed uint64) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 7)), length: 40 * time.Minute, step: 15 * time.Second}
	w.start = time.Now().Add(-w.length - time.Minute).Truncate(time.Minute)
	w.groups = []*worldGroup{
		{name: "jaguar", labels: labels.FromStrings("cluster", "jaguar"), replicas: 2},
		{name: "ibis", labels: labels.FromStrings("cluster", "ibis"), replicas: 2},
		{name: "heron", labels: labels.FromStrings("cluster", "heron"), replicas: 1},
	}
	shards := []int{2, 2, 1}
	node := 0
	for gi, g := range w.groups {
		for range shards[gi] {
			var replicas []*replicaData
			first := node
			for r := range g.replicas {
				replicas = append(replicas, w.makeReplica(g, first, 3, r))
			}
			node += 3
			g.shards = append(g.shards, replicas)
		}
	}
	return w
}

// makeReplica scrapes its nodes with a phase, jitter and gaps of its own.
func (w *world) makeReplica(g *worldGroup, firstNode, nodes, _ int) *replicaData {
	d := &replicaData{series: map[string]*storedSeries{}}
	gapAt := w.rng.Int64N(int64(w.length / w.step))
	gapLen := w.rng.Int64N(20)
	for n := firstNode; n < firstNode+nodes; n++ {
		phase := w.rng.Int64N(w.step.Milliseconds())
		for fi, f := range families {
			if g.replicas == 1 && f.name == "mixed_in" {
				continue // the one shard that can be passed through stores no such labels
			}
			for v, pairs := range f.labels {
				b := labels.NewBuilder(labels.FromStrings("__name__", f.name, "node", fmt.Sprintf("n%d", n), "instance", fmt.Sprintf("10.0.0.%d:9100", n)))
				for _, kv := range strings.Split(pairs, ",") {
					if k, val, ok := strings.Cut(kv, "="); ok {
						b.Set(k, val)
					}
				}
				s := &storedSeries{lbls: b.Labels()}
				ends := int64(-1)
				if (n+fi+v)%7 == 0 {
					ends = int64(w.length/w.step) * 2 / 3 // the target goes away, with a stale marker
				}
				for i := range int64(w.length / w.step) {
					if i >= gapAt && i < gapAt+gapLen {
						continue
					}
					jitter := w.rng.Int64N(40)
					at := w.start.UnixMilli() + i*w.step.Milliseconds() + phase + jitter
					if ends >= 0 && i >= ends {
						s.points = append(s.points, point{t: at, f: math.Float64frombits(value.StaleNaN)})
						break
					}
					sec := float64(at-w.start.UnixMilli()) / 1000
					if f.native {
						h := tsdbutil.GenerateTestHistogram(int64(sec) + int64(n))
						s.points = append(s.points, point{t: at, h: h})
						continue
					}
					s.points = append(s.points, point{t: at, f: f.value(n, v, sec)})
				}
				d.series[s.lbls.String()] = s
			}
		}
	}
	return d
}

// serve starts a server for every replica and a proxy over them.
func (w *world) serve(ctx context.Context) (*Server, string) {
	t := w.t
	var cfg strings.Builder
	cfg.WriteString("groups:\n")
	for _, g := range w.groups {
		fmt.Fprintf(&cfg, "  - name: %s\n    labels: {cluster: %s}\n    replica_labels: [prometheus_replica]\n    shards:\n", g.name, g.labels.Get("cluster"))
		for _, replicas := range g.shards {
			cfg.WriteString("      - replicas:\n")
			for r, d := range replicas {
				p, err := localprom.Start(ctx, localprom.Options{
					DisableWAL: true, ExternalLabels: labels.FromStrings("cluster", g.labels.Get("cluster"), "prometheus_replica", string(rune('a'+r))),
					Features: []string{"promql-experimental-functions"},
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := p.Close(); err != nil {
						t.Error(err)
					}
				})
				if err := p.Append(func(app storage.Appender) error {
					for _, s := range d.series {
						for _, pt := range s.points {
							var err error
							if pt.h != nil {
								_, err = app.AppendHistogram(0, s.lbls, pt.t, pt.h, nil)
							} else {
								_, err = app.Append(0, s.lbls, pt.t, pt.f)
							}
							if err != nil {
								return err
							}
						}
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&cfg, "          - {url: %q}\n", p.URL())
			}
		}
	}
	return startProxy(t, ctx, cfg.String())
}

// startProxy serves a configuration on free ports until the test ends.
func startProxy(t testing.TB, ctx context.Context, text string, change ...func(*Options)) (*Server, string) {
	t.Helper()
	cfg, err := config.Parse([]byte(text), t.TempDir())
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	o := Options{Config: cfg, ListenAddress: "127.0.0.1:0", AdminListenAddress: "127.0.0.1:0", Version: "test"}
	for _, f := range change {
		f(&o)
	}
	ready := make(chan string, 1)
	inner := o.Ready
	o.Ready = func(main, admin netAddr) {
		if inner != nil {
			inner(main, admin)
		}
		ready <- "http://" + main.String()
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, context.Background()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the proxy ended with %v", err)
		}
		if used := s.poolNow().InUse(); used != 0 {
			t.Errorf("%d bytes of memory.budget were not given back", used)
		}
	})
	select {
	case url := <-ready:
		return s, url
	case err := <-ended:
		ended <- nil
		t.Fatalf("the proxy did not start: %v", err)
	}
	return nil, ""
}

// reference evaluates over one storage that holds, for each shard, the samples of one replica in each segment: the segments that the proxy reports are its
// only input from there; labels, samples, merging and evaluation are done here again.
type reference struct {
	w        *world
	mu       sync.Mutex
	selected []raw.Selected
}

func (r *reference) observe(s raw.Selected) {
	r.mu.Lock()
	r.selected = append(r.selected, s)
	r.mu.Unlock()
}

func (r *reference) take() []raw.Selected {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.selected
	r.selected = nil
	return s
}

// expected is the label set of a stored series in one Prometheus that holds everything.
func expected(g *worldGroup, stored labels.Labels) labels.Labels {
	b := labels.NewBuilder(stored)
	b.Del("cluster", "prometheus_replica")
	g.labels.Range(func(l labels.Label) { b.Set(l.Name, l.Value) })
	return b.Labels()
}

type refQuerier struct {
	*storage.MockQuerier
	r        *reference
	selected []raw.Selected
	problems *[]string
}

func (q *refQuerier) Select(_ context.Context, _ bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	var seen *raw.Selected
	for i := range q.selected {
		if s := &q.selected[i]; s.From == hints.Start && s.Until == hints.End && matchersText(s.Matchers) == matchersText(ms) {
			seen = s
		}
	}
	var out []storage.Series
	for _, g := range q.r.w.groups {
		for si, replicas := range g.shards {
			// All label sets that any replica holds in the window.
			merged := map[string]labels.Labels{}
			for _, d := range replicas {
				for _, s := range d.series {
					l := expected(g, s.lbls)
					if !matches(l, ms) || !slices.ContainsFunc(s.points, func(p point) bool { return p.t >= hints.Start && p.t <= hints.End }) {
						continue
					}
					merged[l.String()] = l
				}
			}
			for key, l := range merged {
				var samples []chunks.Sample
				if seen == nil { // passed through: the one replica's own samples
					if len(replicas) > 1 {
						*q.problems = append(*q.problems, "no segments were reported for "+key)
						continue
					}
					samples = take(g, replicas[0], key, hints.Start, hints.End)
				} else {
					segments, ok := seen.Series[key]
					if !ok {
						*q.problems = append(*q.problems, "the proxy did not read "+key)
						continue
					}
					last := int64(math.MinInt64)
					for _, seg := range segments {
						if seg.From <= last || seg.Until < seg.From {
							*q.problems = append(*q.problems, fmt.Sprintf("segments of %s overlap or go back: %v", key, segments))
						}
						last = seg.Until
						ri := slices.IndexFunc(g.names[si], func(name string) bool { return name == seg.Copy })
						if ri < 0 {
							*q.problems = append(*q.problems, "unknown copy "+seg.Copy)
							continue
						}
						samples = append(samples, take(g, replicas[ri], key, max(seg.From, hints.Start), min(seg.Until, hints.End))...)
					}
				}
				if len(samples) > 0 {
					out = append(out, storage.NewListSeries(l, samples))
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return &listSet{series: out, at: -1}
}

func (*refQuerier) Close() error { return nil }

type listSet struct {
	series []storage.Series
	at     int
}

func (s *listSet) Next() bool                      { s.at++; return s.at < len(s.series) }
func (s *listSet) At() storage.Series              { return s.series[s.at] }
func (*listSet) Err() error                        { return nil }
func (*listSet) Warnings() annotations.Annotations { return nil }

func take(g *worldGroup, d *replicaData, key string, from, until int64) []chunks.Sample {
	var out []chunks.Sample
	for _, s := range d.series {
		if expected(g, s.lbls).String() != key {
			continue
		}
		for _, p := range s.points {
			if p.t >= from && p.t <= until {
				out = append(out, p)
			}
		}
	}
	return out
}

func matches(l labels.Labels, ms []*labels.Matcher) bool {
	for _, m := range ms {
		if !m.Matches(l.Get(m.Name)) {
			return false
		}
	}
	return true
}

func matchersText(ms []*labels.Matcher) string {
	texts := make([]string, len(ms))
	for i, m := range ms {
		texts[i] = m.String()
	}
	slices.Sort(texts)
	return strings.Join(texts, ",")
}

// answer is a query's result in a form that can be compared: by label set, by time.
type answer map[string]map[int64]string

func fromResult(v any) answer {
	out := answer{}
	put := func(l string, t int64, val string) {
		if out[l] == nil {
			out[l] = map[int64]string{}
		}
		out[l][t] = val
	}
	switch v := v.(type) {
	case promql.Vector:
		for _, s := range v {
			if s.H != nil {
				put(s.Metric.String(), s.T, s.H.String())
			} else {
				put(s.Metric.String(), s.T, number(s.F))
			}
		}
	case promql.Matrix:
		for _, s := range v {
			for _, p := range s.Floats {
				put(s.Metric.String(), p.T, number(p.F))
			}
			for _, p := range s.Histograms {
				put(s.Metric.String(), p.T, p.H.String())
			}
		}
	case promql.Scalar:
		put("scalar", v.T, number(v.V))
	}
	return out
}

func number(f float64) string {
	if math.IsNaN(f) {
		return "NaN"
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// ask queries the proxy. Histograms are compared by count and sum in text form of the reference, so they are kept as raw JSON here.
func ask(t testing.TB, base, path string, form url.Values) (code int, body []byte) {
	t.Helper()
	resp, err := http.PostForm(base+path, form)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

func fromJSON(t testing.TB, body []byte) (answer, string) {
	t.Helper()
	var env struct {
		Status, Error string
		Data          struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &env); err != nil {
		t.Fatalf("%v: %.300s", err, body)
	}
	if env.Status != "success" {
		return nil, env.Error
	}
	out := answer{}
	if env.Data.ResultType == "scalar" {
		var pair []any
		if err := json.Unmarshal(env.Data.Result, &pair); err != nil {
			t.Fatal(err)
		}
		f, _ := strconv.ParseFloat(pair[1].(string), 64)
		out["scalar"] = map[int64]string{ms(pair[0]): number(f)}
		return out, ""
	}
	var list []struct {
		Metric     map[string]string
		Value      []any
		Values     [][]any
		Histogram  []any
		Histograms [][]any
	}
	if err := json.Unmarshal(env.Data.Result, &list); err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		key := labels.FromMap(s.Metric).String()
		if out[key] != nil {
			t.Errorf("%s stands twice", key)
		}
		out[key] = map[int64]string{}
		add := func(p []any) {
			if len(p) != 2 {
				return
			}
			switch v := p[1].(type) {
			case string:
				f, err := strconv.ParseFloat(v, 64)
				if err != nil {
					t.Fatal(err)
				}
				out[key][ms(p[0])] = number(f)
			case map[string]any:
				out[key][ms(p[0])] = fmt.Sprintf("histogram count=%v sum=%v", v["count"], v["sum"])
			}
		}
		add(s.Value)
		add(s.Histogram)
		for _, p := range s.Values {
			add(p)
		}
		for _, p := range s.Histograms {
			add(p)
		}
	}
	return out, ""
}

func ms(v any) int64 { return int64(math.Round(v.(float64) * 1000)) }

// compare says how two answers differ; tolerance is relative.
func compare(got, want answer, tolerance float64) string {
	for key, points := range want {
		g, ok := got[key]
		if !ok {
			return "missing " + key
		}
		for t, w := range points {
			v, ok := g[t]
			if !ok {
				return fmt.Sprintf("%s: no value at %d, want %s", key, t, w)
			}
			if v == w || strings.HasPrefix(v, "histogram ") && strings.HasPrefix(w, "{count:") && histogramsAgree(v, w) {
				continue
			}
			a, err1 := strconv.ParseFloat(v, 64)
			b, err2 := strconv.ParseFloat(w, 64)
			if err1 != nil || err2 != nil || math.Abs(a-b) > tolerance*math.Max(math.Abs(a), math.Abs(b)) {
				return fmt.Sprintf("%s at %d: got %s, want %s", key, t, v, w)
			}
		}
		if len(g) != len(points) {
			return fmt.Sprintf("%s: %d points, want %d", key, len(g), len(points))
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			return "unexpected " + key
		}
	}
	return ""
}

// histogramsAgree compares count and sum of the JSON form with the engine's text form.
func histogramsAgree(js, text string) bool {
	var count, sum string
	if _, err := fmt.Sscanf(js, "histogram count=%s sum=%s", &count, &sum); err != nil {
		return false
	}
	return histogramNumber(text, "count:") == parse(count) && histogramNumber(text, "sum:") == parse(sum)
}

func histogramNumber(text, key string) float64 {
	_, rest, _ := strings.Cut(text, key)
	rest, _, _ = strings.Cut(rest, ",")
	rest = strings.TrimSuffix(rest, "}")
	return parse(rest)
}

// parse rounds to what the text form shows.
func parse(s string) float64 {
	f, _ := strconv.ParseFloat(s, 64)
	f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'g', 6, 64), 64)
	return f
}

// expressions are what is asked: every kind of node, over one shard, one group and everything.
func expressions(rng *rand.Rand) []string {
	selectors := []string{
		`http_requests_total`, `http_requests_total{cluster="jaguar"}`, `http_requests_total{cluster="heron",code="500"}`, `node_memory_free_bytes{cluster=~"ibis|heron"}`,
		`gpu_temperature{node=~"n[0-5]"}`, `gpu_temperature{cluster!="jaguar"}`, `request_duration_seconds_bucket`, `mixed_in`, `mixed_in{cluster="ibis"}`,
		`http_requests_total{prometheus_replica=""}`, `up{cluster="heron"}`, `{__name__=~"up|node_memory_free_bytes"}`, `nothing_has_this_name`, `up{cluster="nowhere"}`,
	}
	var out []string
	for _, s := range selectors {
		out = append(out,
			s, s+" offset 3m", s+" @ end()", "-"+s, "rate("+s+"[3m])", "increase("+s+"[7m])", "max_over_time("+s+"[2m:30s])", "sum("+s+")", "sum by (cluster) ("+s+")",
			"count without (node, instance) ("+s+")", "avg by (node) ("+s+")", "topk(2, "+s+")", "quantile(0.3, "+s+")", "stddev by (cluster) ("+s+")", "absent("+s+")",
			"count_values(\"v\", count by (cluster) ("+s+"))", s+" > 50", "timestamp("+s+")", "changes("+s+"[10m])", "sum(rate("+s+"[5m])) by (job, cluster)",
			"label_replace("+s+`, "c", "$1", "cluster", "(.).*")`, "sort_desc("+s+")", "last_over_time("+s+"[45s])", "sum by (prometheus_replica) ("+s+")", "group by (cluster) ("+s+")",
		)
	}
	out = append(out,
		`sum(rate(http_requests_total{code="500"}[5m])) / sum(rate(http_requests_total[5m]))`,
		`sum by (cluster) (rate(http_requests_total{code="500"}[5m])) / sum by (cluster) (rate(http_requests_total[5m]))`,
		`histogram_quantile(0.9, sum by (le) (rate(request_duration_seconds_bucket[5m])))`,
		`histogram_quantile(0.9, sum by (le, cluster) (rate(request_duration_seconds_bucket[5m])))`,
		`histogram_quantile(0.5, rpc_duration_seconds)`, `histogram_quantile(0.5, sum(rate(rpc_duration_seconds[5m])))`, `histogram_count(rpc_duration_seconds)`, `rate(rpc_duration_seconds{cluster="heron"}[4m])`,
		`sum(rpc_duration_seconds)`, `max(http_requests_total) < 10`, `10 - max(http_requests_total)`, `up * on (node) group_left (job) gpu_temperature{gpu="0"}`,
		`up * on (cluster, node) group_right () http_requests_total`, `up unless on (node) (gpu_temperature > 45)`, `up{cluster="jaguar"} or up{cluster="ibis"}`, `up or vector(0)`,
		`scalar(up{node="n1"})`, `vector(1)`, `time()`, `sum(up) + count(up)`, `max by (cluster) (gpu_temperature) > bool 50`,
		`count(count by (node) (up))`, `sum(sum by (cluster) (up))`, `avg(avg by (cluster) (gpu_temperature{gpu="1"}))`,
		`absent(up{cluster="heron"})`, `absent(up{cluster="nowhere"})`, `absent_over_time(up{node="none"}[5m])`, `up{cluster="heron"} and on () vector(1)`,
		`sum by (cluster) (up) * on (cluster) group_left () up`, `label_join(up{cluster="heron"}, "x", "-", "node", "cluster")`, `count by (cluster, node) (up{cluster="heron"})`,
		`sum without (cluster) (up{cluster="heron"})`, `min without (cluster, node, instance) (gpu_temperature)`, `http_requests_total{cluster="heron"} / ignoring (code) group_left sum without (code) (http_requests_total{cluster="heron"})`,
		`predict_linear(node_memory_free_bytes[10m], 3600)`, `deriv(node_memory_free_bytes{cluster="heron"}[10m])`, `resets(http_requests_total[30m])`, `irate(http_requests_total[2m])`, `delta(gpu_temperature[5m])`,
		`sum_over_time(up[5m])`, `stdvar_over_time(gpu_temperature[5m])`, `quantile_over_time(0.7, node_memory_free_bytes[6m])`, `rate(http_requests_total[5m:30s])`, `max_over_time(sum(up)[5m:1m])`,
		`http_requests_total @ start()`, `sum(http_requests_total @ end()) by (cluster)`, `clamp(gpu_temperature, 42, 48)`, `hour()`, `day_of_week(up{cluster="heron"})`,
	)
	for range 30 { // random pairs
		a, b := out[rng.IntN(len(selectors)*25)], out[rng.IntN(len(selectors)*25)]
		out = append(out, "count("+a+") + on () count("+b+")")
	}
	return out
}

// Equal answers over shards and replicas, against one Prometheus that holds all of it.
func TestQueriesAreExact(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if testSeed != 0 {
		seed = testSeed
	}
	t.Logf("seed %d (run again with -seed)", seed)
	w := makeWorld(t, seed)
	s, base := w.serve(t.Context())
	ref := &reference{w: w}
	s.observe = ref.observe
	for _, g := range w.groups {
		for _, shard := range s.state.Load().top.Group(g.name).Shards {
			var names []string
			for _, r := range shard.Replicas {
				names = append(names, r.Name())
			}
			g.names = append(g.names, names)
		}
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e8, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true, Parser: plan.Parser})
	passed := map[string]int{}
	end := w.start.Add(w.length)
	for i, expr := range expressions(w.rng) {
		at := w.start.Add(time.Duration(w.rng.Int64N(int64(w.length)))).Truncate(time.Millisecond)
		if i%3 == 0 {
			at = end.Add(time.Duration(w.rng.Int64N(int64(3 * time.Minute))))
		}
		for _, isRange := range []bool{false, true} {
			form, path := url.Values{"query": {expr}}, "/api/v1/query"
			start, step := at.Add(-10*time.Minute), 37*time.Second
			if isRange {
				path = "/api/v1/query_range"
				form.Set("start", stamp(start))
				form.Set("end", stamp(at))
				form.Set("step", "37")
			} else {
				form.Set("time", stamp(at))
			}
			code, body := ask(t, base, path, form)
			selected := ref.take()
			var problems []string
			queryable := storage.QueryableFunc(func(int64, int64) (storage.Querier, error) {
				return &refQuerier{r: ref, selected: selected, problems: &problems}, nil
			})
			var qry promql.Query
			var err error
			if isRange {
				qry, err = engine.NewRangeQuery(t.Context(), queryable, nil, expr, start, at, step)
			} else {
				qry, err = engine.NewInstantQuery(t.Context(), queryable, nil, expr, at)
			}
			if err != nil {
				t.Fatalf("%s: %v", expr, err)
			}
			res := qry.Exec(t.Context())
			got, msg := fromJSON(t, body)
			what := fmt.Sprintf("%s (range %v, at %s)", expr, isRange, stamp(at))
			switch {
			case res.Err != nil && got == nil:
				passed["error"]++ // both refuse, such as a many-to-many match
			case res.Err != nil:
				t.Errorf("%s: the reference fails with %v, the proxy answers", what, res.Err)
			case got == nil:
				t.Errorf("%s: the proxy answers %d %s", what, code, msg)
			default:
				mode := "raw"
				if len(selected) == 0 {
					mode = "pass or local"
				}
				passed[mode]++
				tolerance := 0.0
				if mode != "raw" {
					tolerance = 1e-12
				}
				want := fromResult(res.Value)
				if diff := compare(got, want, tolerance); diff != "" && !tiesOnly(expr) {
					t.Errorf("%s: %s", what, diff)
				}
			}
			if len(problems) > 0 {
				t.Errorf("%s: %s", what, problems[0])
			}
			qry.Close()
		}
	}
	t.Logf("compared: %v", passed)
	if passed["raw"] < 200 || passed["pass or local"] < 50 {
		t.Errorf("too few comparisons: %v", passed)
	}
}

// tiesOnly tells whether the expression's answer depends on the order of equal values.
func tiesOnly(expr string) bool {
	return strings.HasPrefix(expr, "topk(2, up") || strings.HasPrefix(expr, `topk(2, {__name__`) || strings.Contains(expr, "count(topk")
}

func stamp(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
