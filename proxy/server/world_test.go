package server

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/spillwayproject/spillway/proxy/config"
)

// point is one sample of the world: a float or a native histogram.
type point struct {
	t  int64
	f  float64
	h  *histogram.Histogram
	st int64 // start timestamp; 0 is none
}

func (p point) T() int64                      { return p.t }
func (p point) ST() int64                     { return p.st }
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
	{
		"http_requests_total",
		[]string{"job=api,code=200,handler=/a", "job=api,code=200,handler=/b", "job=api,code=500,handler=/a"},
		func(n, v int, at float64) float64 {
			return math.Mod(math.Floor(at*(1.5+float64(n)*0.7+float64(v))), 4000) // with resets
		}, false,
	},
	{
		"node_memory_free_bytes",
		[]string{"job=node"},
		func(n, _ int, at float64) float64 { return 1e9 * (2 + math.Sin(at/300+float64(n))) },
		false,
	},
	{"gpu_temperature", []string{"gpu=0", "gpu=1"}, func(n, v int, at float64) float64 {
		if math.Mod(at, 700) < 60 {
			return math.NaN()
		}
		return 40 + float64(n) + 10*math.Cos(at/200+float64(v))
	}, false},
	{"request_duration_seconds_bucket", []string{"le=0.1", "le=0.5", "le=1.0", "le=+Inf"}, func(n, v int, at float64) float64 {
		return math.Floor(at * float64(v+1) * (0.5 + float64(n)/10))
	}, false},
	{
		"request_duration_seconds_count",
		[]string{""},
		func(n, _ int, at float64) float64 { return math.Floor(at * 4 * (0.5 + float64(n)/10)) }, false,
	},
	{"rpc_duration_seconds", []string{"service=a"}, nil, true},
	{
		"mixed_in",
		[]string{"cluster=stored,x=1", "prometheus_replica=zz,x=2"},
		func(n, v int, at float64) float64 { return float64(n*10+v) + at/1000 }, false,
	},
}

func makeWorld(t testing.TB, seed uint64) *world { return makeWorldOf(t, seed, 2, 2, 1) }

// makeWorldOf makes a world whose three groups have so many replicas of each shard.
func makeWorldOf(t testing.TB, seed uint64, replicas ...int) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 7)), length: 40 * time.Minute, step: 15 * time.Second}
	w.start = time.Now().Add(-w.length - time.Minute).Truncate(time.Minute)
	w.groups = []*worldGroup{
		{name: "jaguar", labels: labels.FromStrings("cluster", "jaguar"), replicas: replicas[0]},
		{name: "ibis", labels: labels.FromStrings("cluster", "ibis"), replicas: replicas[1]},
		{name: "heron", labels: labels.FromStrings("cluster", "heron"), replicas: replicas[2]},
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
				continue // shards that are whole, and so may evaluate for themselves, store no such labels
			}
			for v, pairs := range f.labels {
				b := labels.NewBuilder(labels.FromStrings("__name__", f.name, "node", fmt.Sprintf("n%d", n), "instance",
					fmt.Sprintf("10.0.0.%d:9100", n)))
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
				var series []storedSeries
				for _, s := range d.series {
					series = append(series, *s)
				}
				p := promShard(t, labels.FromStrings("cluster", g.labels.Get("cluster"), "prometheus_replica", string(rune('a'+r))), series)
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
	o := Options{Config: cfg, ListenAddress: "127.0.0.1:0", AdminListenAddress: "127.0.0.1:0", Version: "test", lame: time.Millisecond}
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
