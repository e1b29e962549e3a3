package server

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
)

// exactMetric is a family of series: what a target of its job exposes.
type exactMetric struct {
	name   string
	job    string
	kind   string // gauge, counter, bucket, exponential, custom, mixed, info
	labels []string
	value  func(d *exactData, at float64) float64
}

// exactData is what a value depends on, beside the time.
type exactData struct {
	node, variant int
	resets        []float64 // when its target started again, in seconds
}

// counted is a counter that grew at the rate since the last reset.
func (d *exactData) counted(at, rate float64) float64 {
	since := 0.0
	for _, r := range d.resets {
		if r <= at {
			since = r
		}
	}
	return math.Floor((at - since) * rate)
}

// special are the values that aggregations treat in their own ways. Large ones that cancel out are
// among them.
var special = []float64{0, math.Copysign(0, -1), 1, -1, 2, 2, 3, math.Inf(1), math.Inf(-1), math.NaN(), 1e16, -1e16, 1e-300, 0.1, 0.2, 0.3}

var exactMetrics = []exactMetric{
	{"up", "node", "gauge", []string{""}, func(*exactData, float64) float64 { return 1 }},
	{"node_memory_free_bytes", "node", "gauge", []string{""}, func(d *exactData, at float64) float64 {
		return 1e9 * (2 + math.Sin(at/300+float64(d.node)))
	}},
	{"gpu_temperature", "node", "gauge", []string{"gpu=0", "gpu=1"}, func(d *exactData, at float64) float64 {
		if math.Mod(at+float64(100*d.node), 700) < 60 {
			return math.NaN()
		}
		return math.Round(40+float64(d.node)+10*math.Cos(at/200+float64(d.variant))) + float64(d.variant)/3
	}},
	{
		"température.c", "node", "gauge",
		[]string{"baie.n°=α,node.zone=z1"},
		func(d *exactData, at float64) float64 { return 20 + float64(d.node) + math.Mod(at, 97)/7 },
	},
	{"special", "node", "gauge", []string{"s=a", "s=b"}, func(d *exactData, at float64) float64 {
		return special[(d.node*31+d.variant*7+int(at/120)*int(5+d.variant))%len(special)]
	}},
	{"node_info", "node", "info", []string{"rack=r1", ""}, func(*exactData, float64) float64 { return 1 }},
	{"target_info", "node", "info", []string{"version=v1"}, func(*exactData, float64) float64 { return 1 }},
	{"up", "api", "gauge", []string{""}, func(*exactData, float64) float64 { return 1 }},
	{
		"http_requests_total", "api", "counter",
		[]string{"code=200,handler=/a", "code=200,handler=/b", "code=500,handler=/a"},
		func(d *exactData, at float64) float64 {
			return d.counted(at, 1.5+float64(d.node)*0.7+float64(d.variant))
		},
	},
	{"http_seconds_bucket", "api", "bucket", []string{"le=0.1", "le=0.5", "le=1.0", "le=+Inf"}, func(d *exactData, at float64) float64 {
		return d.counted(at, float64(d.variant+1)*(0.5+float64(d.node)/10))
	}},
	{
		"http_seconds_count", "api", "counter",
		[]string{""},
		func(d *exactData, at float64) float64 { return d.counted(at, 4*(0.5+float64(d.node)/10)) },
	},
	{"rpc_seconds", "api", "exponential", []string{"service=a"}, nil},
	{"batch_seconds", "api", "custom", []string{"service=a"}, nil},
	{"mixed_kind", "api", "mixed", []string{"k=1"}, nil},
	{
		"slow_value", "slow", "gauge",
		[]string{"v=1", "v=2"},
		func(d *exactData, at float64) float64 { return at/60 + float64(d.node*d.variant) },
	},
	{
		"collides", "node", "gauge",
		[]string{"cluster=s1", "cluster=s2"},
		func(d *exactData, at float64) float64 { return float64(d.variant) },
	},
	{
		"mixed_in", "node", "gauge",
		[]string{"cluster=stored,x=1", "prometheus_replica=zz,x=2"},
		func(d *exactData, at float64) float64 { return float64(d.node*10+d.variant) + at/1000 },
	},
}

// exactHistogram is a native histogram as its target exposes it at the time.
func exactHistogram(m *exactMetric, d *exactData, at float64) *histogram.Histogram {
	n := int64(d.counted(at, 0.2+float64(d.node%5)/10))
	if m.kind == "custom" {
		return tsdbutil.GenerateTestCustomBucketsHistogram(n)
	}
	h := tsdbutil.GenerateTestHistogram(n)
	if d.node%3 == 1 { // a finer schema than its neighbours'
		h.Schema++
	}
	return h
}

// exactSpell is a stretch of time in which something is not scraped, in seconds.
type exactSpell struct{ from, until float64 }

func (s exactSpell) holds(at float64) bool { return at >= s.from && at < s.until }

// fill scrapes the shard's targets into each of its replicas, with a phase and jitter of each
// replica's own.
func (w *exactWorld) fill(s *exactShard) {
	seconds := w.length.Seconds()
	// What the targets do is the same for all replicas and shards that see them.
	gapped := -1
	if w.kind == exactGaps || w.kind == exactMoving {
		gapped = w.rng.IntN(len(s.replicas))
	}
	lo, hi := 0.0, seconds // the server was there a little before its span and after it
	from, until := s.span()
	if from != math.MinInt64 {
		lo = max(0, float64(from-w.start.UnixMilli())/1000-float64(w.rng.IntN(180)))
	}
	if until != math.MaxInt64 {
		hi = min(seconds, float64(until-w.start.UnixMilli())/1000+float64(w.rng.IntN(180)))
	}
	for ri, r := range s.replicas {
		var server []exactSpell
		if ri == gapped && w.chance(0.8) {
			for range 1 + w.rng.IntN(2) {
				at := w.rng.Float64() * seconds
				server = append(server, exactSpell{at, at + 10 + w.rng.Float64()*300})
			}
		}
		for _, n := range s.nodes {
			for _, job := range []string{"node", "api", "slow"} {
				w.scrape(s, r, n, job, server, lo, hi)
			}
		}
		if len(s.nodes) > 0 {
			t := exactTarget{phase: w.rng.Float64() * 15, every: w.every.Seconds(), lo: lo, hi: hi, server: server}
			w.shared(s, r, &t)
		}
		r.series = slices.DeleteFunc(r.series, func(s storedSeries) bool { return len(s.points) == 0 })
		r.index(s.group)
	}
}

// exactTarget is how one target is scraped by one replica.
type exactTarget struct {
	phase, every float64
	lo, hi       float64 // the server scrapes it in between
	server       []exactSpell
	failing      []exactSpell // the target does not answer: stale markers, and up is 0
	ends         float64      // it goes away, with stale markers; 0 is never
	begins       float64
	stamps       []int64 // of its scrapes, so that the series of one scrape share their time
	seconds      []float64
}

// plan fixes the moments of the scrapes.
func (t *exactTarget) plan(w *exactWorld) {
	for at := t.phase; at < w.length.Seconds(); at += t.every {
		jitter := w.rng.Float64() * 0.04
		if at < t.lo || at >= t.hi || slices.ContainsFunc(t.server, func(s exactSpell) bool { return s.holds(at) }) || at < t.begins {
			continue
		}
		ms := int64((at + jitter) * 1000)
		t.stamps = append(t.stamps, w.start.UnixMilli()+ms)
		t.seconds = append(t.seconds, float64(ms)/1000)
	}
}

// run makes the samples of one series.
func (t *exactTarget) run(w *exactWorld, value func(at float64) (point, bool)) []point {
	if t.stamps == nil {
		t.plan(w)
	}
	var out []point
	gone := true
	for i, at := range t.seconds {
		p, ok := value(at)
		if t.ends > 0 && at >= t.ends {
			ok = false
		}
		if !ok {
			if !gone {
				out = append(out, point{t: t.stamps[i], f: staleNaN()})
				if last := out[len(out)-2]; last.h != nil {
					out[len(out)-1] = point{t: t.stamps[i], h: &histogram.Histogram{Sum: staleNaN()}}
				}
			}
			gone = true
			continue
		}
		p.t = t.stamps[i]
		out = append(out, p)
		gone = false
	}
	return out
}

// scrape adds the series of one target to a replica. What the target does depends on the node and
// the job alone, so that all servers see the same.
func (w *exactWorld) scrape(s *exactShard, r *exactReplica, n exactNode, job string, server []exactSpell, lo, hi float64) {
	own := rand.New(rand.NewPCG(w.seed, uint64(n.id)*3+uint64(len(job))))
	seconds := w.length.Seconds()
	t := &exactTarget{phase: w.rng.Float64() * 15, every: w.every.Seconds(), lo: lo, hi: hi, server: server}
	d := exactData{node: n.id}
	if own.IntN(3) == 0 {
		d.resets = append(d.resets, own.Float64()*seconds)
	}
	if own.IntN(4) == 0 && w.kind != exactAgreeing {
		at := own.Float64() * seconds
		t.failing = append(t.failing, exactSpell{at, at + own.Float64()*200})
	}
	rarely := 6
	if w.kind == exactAgreeing {
		rarely = 40 // where a target ends or begins, its replicas may be one scrape apart, which is doubt enough
	}
	if own.IntN(rarely) == 0 {
		t.ends = seconds/2 + own.Float64()*seconds/2
	}
	if own.IntN(rarely) == 0 {
		t.begins = own.Float64() * seconds / 2
	}
	if job == "slow" {
		t.every = 60
	}
	churn := own.IntN(5) // every so many series of it come and go
	if w.kind == exactGaps && w.chance(0.1) {
		at := w.rng.Float64() * seconds // this replica alone loses the target
		t.server = append(slices.Clone(server), exactSpell{at, at + w.rng.Float64()*200})
	}
	for mi := range exactMetrics {
		m := &exactMetrics[mi]
		if m.job != job {
			continue
		}
		if (m.name == "mixed_in" || m.name == "collides") && !w.strange {
			continue
		}
		for v, pairs := range m.labels {
			b := labels.NewBuilder(labels.FromStrings("__name__", m.name, "node", n.name, "instance",
				fmt.Sprintf("10.0.0.%d:%d", n.id, 9000+len(job)), "job", job))
			for _, kv := range strings.Split(pairs, ",") {
				if k, val, ok := strings.Cut(kv, "="); ok {
					b.Set(k, val)
				}
			}
			if w.engine.units {
				m.typed(b, n.id)
			}
			d := d
			d.variant = v
			off := exactSpell{}
			if m.name != "up" && churn == 0 && (mi+v)%3 == 0 {
				off = exactSpell{seconds / 3, seconds/3 + float64(60+mi*20)}
			}
			if m.name == "node_info" && v != n.id%2 {
				continue
			}
			points := t.run(w, func(at float64) (point, bool) {
				failing := slices.ContainsFunc(t.failing, func(s exactSpell) bool { return s.holds(at) })
				switch {
				case m.name == "up" && failing:
					return point{f: 0}, true
				case failing || off.holds(at):
					return point{}, false
				case m.kind == "mixed" && int(at/400)%2 == 0:
					return point{f: at}, true
				case m.value == nil:
					return point{h: exactHistogram(m, &d, at), st: w.began(m, &d, at)}, true
				}
				return point{f: m.value(&d, at), st: w.began(m, &d, at)}, true
			})
			r.series = append(r.series, storedSeries{lbls: b.Labels(), points: points})
		}
	}
}
