package server

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/spillwayproject/spillway/internal/localprom"
)

// An exactWorld is a random topology with its data: what each server stores, and what of it one Prometheus that held everything would hold. All of it follows
// from the seed, but for the moment at which the data begins.
type exactWorld struct {
	seed    uint64
	kind    exactKind
	rng     *rand.Rand
	start   time.Time // a multiple of five minutes, as the buckets of heartbeats are
	length  time.Duration
	every   time.Duration // the scrape interval
	groups  []*exactGroup
	moved   time.Time // where shards or groups begin or end; zero where none does
	traits  []string  // what is special about it, for the log
	strange bool      // some servers store labels with the names of the group's or of replica labels
}

// exactKind says how the replicas of a world relate.
type exactKind string

const (
	// exactSingle: every shard has one replica.
	exactSingle exactKind = "single"
	// exactAgreeing: pairs without gaps, with a heartbeat.
	exactAgreeing exactKind = "agreeing"
	// exactGaps: pairs and single replicas, gaps, heartbeats here and there.
	exactGaps exactKind = "gaps"
	// exactMoving: shards or groups that begin or end in time.
	exactMoving exactKind = "moving"
)

var exactKinds = []exactKind{exactSingle, exactAgreeing, exactGaps, exactMoving, exactSingle, exactAgreeing}

type exactGroup struct {
	name          string
	labels        labels.Labels
	replicaLabels []string
	heartbeat     string
	from, until   time.Time // zero is unbounded
	keys          string    // further keys of the configuration, such as shard_by
	hashed        bool      // by hashmod
	shards        []*exactShard
}

type exactShard struct {
	group       *exactGroup
	name        string // as the proxy calls it
	from, until time.Time
	keys        string // further keys
	nodes       []exactNode
	replicas    []*exactReplica
}

// exactNode is a machine: its targets are scraped by one shard at a time.
type exactNode struct {
	name string
	id   int // distinguishes its data from that of other nodes of the same name
}

type exactReplica struct {
	name     string // as the proxy calls it; known once it is served
	external labels.Labels
	series   []storedSeries
	byKey    map[string][]int // places in series by the label set that one Prometheus would hold
}

// span is the shard's own time, from inclusive, until exclusive, in milliseconds.
func (s *exactShard) span() (from, until int64) {
	from, until = math.MinInt64, math.MaxInt64
	for _, t := range []time.Time{s.from, s.group.from} {
		if !t.IsZero() {
			from = max(from, t.UnixMilli())
		}
	}
	for _, t := range []time.Time{s.until, s.group.until} {
		if !t.IsZero() {
			until = min(until, t.UnixMilli())
		}
	}
	return from, until
}

// held is the label set of a stored series in one Prometheus that holds everything.
func (g *exactGroup) held(stored labels.Labels) labels.Labels {
	b := labels.NewBuilder(stored)
	b.Del(g.replicaLabels...)
	g.labels.Range(func(l labels.Label) { b.Set(l.Name, l.Value) })
	return b.Labels()
}

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

// special are the values that aggregations treat in their own ways. Large ones that cancel out are among them.
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
	{"température.c", "node", "gauge", []string{"baie.n°=α,node.zone=z1"}, func(d *exactData, at float64) float64 { return 20 + float64(d.node) + math.Mod(at, 97)/7 }},
	{"special", "node", "gauge", []string{"s=a", "s=b"}, func(d *exactData, at float64) float64 {
		return special[(d.node*31+d.variant*7+int(at/120)*int(5+d.variant))%len(special)]
	}},
	{"node_info", "node", "info", []string{"rack=r1", ""}, func(*exactData, float64) float64 { return 1 }},
	{"target_info", "node", "info", []string{"version=v1"}, func(*exactData, float64) float64 { return 1 }},
	{"up", "api", "gauge", []string{""}, func(*exactData, float64) float64 { return 1 }},
	{"http_requests_total", "api", "counter", []string{"code=200,handler=/a", "code=200,handler=/b", "code=500,handler=/a"}, func(d *exactData, at float64) float64 {
		return d.counted(at, 1.5+float64(d.node)*0.7+float64(d.variant))
	}},
	{"http_seconds_bucket", "api", "bucket", []string{"le=0.1", "le=0.5", "le=1.0", "le=+Inf"}, func(d *exactData, at float64) float64 {
		return d.counted(at, float64(d.variant+1)*(0.5+float64(d.node)/10))
	}},
	{"http_seconds_count", "api", "counter", []string{""}, func(d *exactData, at float64) float64 { return d.counted(at, 4*(0.5+float64(d.node)/10)) }},
	{"rpc_seconds", "api", "exponential", []string{"service=a"}, nil},
	{"batch_seconds", "api", "custom", []string{"service=a"}, nil},
	{"mixed_kind", "api", "mixed", []string{"k=1"}, nil},
	{"slow_value", "slow", "gauge", []string{"v=1", "v=2"}, func(d *exactData, at float64) float64 { return at/60 + float64(d.node*d.variant) }},
	{"collides", "node", "gauge", []string{"cluster=s1", "cluster=s2"}, func(d *exactData, at float64) float64 { return float64(d.variant) }},
	{"mixed_in", "node", "gauge", []string{"cluster=stored,x=1", "prometheus_replica=zz,x=2"}, func(d *exactData, at float64) float64 { return float64(d.node*10+d.variant) + at/1000 }},
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

// newExactWorld makes a topology and its data, ending a few minutes before now.
func newExactWorld(seed uint64, kind exactKind, now time.Time) *exactWorld {
	w := &exactWorld{seed: seed, kind: kind, rng: rand.New(rand.NewPCG(seed, 11)), length: 40 * time.Minute, every: 15 * time.Second}
	w.start = now.Add(-w.length - 2*time.Minute).Truncate(5 * time.Minute)
	w.topology()
	for _, g := range w.groups {
		for _, s := range g.shards {
			w.fill(s)
		}
	}
	return w
}

func (w *exactWorld) chance(p float64) bool { return w.rng.Float64() < p }

func (w *exactWorld) trait(format string, args ...any) {
	w.traits = append(w.traits, fmt.Sprintf(format, args...))
}

// topology chooses groups, shards and replicas, and where nodes live.
func (w *exactWorld) topology() {
	id := 0
	nodes := func(n int, unique bool) []exactNode {
		out := make([]exactNode, n)
		for i := range out {
			name := fmt.Sprintf("n%d", i)
			if unique {
				name = fmt.Sprintf("u%d", id)
			}
			out[i] = exactNode{name, id}
			id++
		}
		return out
	}
	w.strange = w.chance(0.2)
	for i := range 1 + w.rng.IntN(3) {
		name := []string{"jaguar", "ibis", "heron"}[i]
		g := &exactGroup{name: name}
		labelled := w.chance(0.75)
		if labelled {
			b := labels.NewScratchBuilder(2)
			b.Add("cluster", name)
			if w.chance(0.3) {
				b.Add("region", "eu")
			}
			b.Sort()
			g.labels = b.Labels()
		}
		if w.kind != exactSingle || w.chance(0.5) {
			g.replicaLabels = []string{"prometheus_replica"}
		}
		if w.kind == exactAgreeing || w.chance(0.5) {
			g.heartbeat = []string{"up", `up{job="node"}`}[w.rng.IntN(2)]
		}
		shards := 1 + w.rng.IntN(3)
		if i == 0 && shards == 3 && w.chance(0.5) {
			shards = 4
		}
		all := nodes(shards*(1+w.rng.IntN(3)), !labelled)
		hashed := shards > 1 && w.chance(0.2)
		switch {
		case hashed:
			g.hashed = true
			g.keys = fmt.Sprintf("    hashmod: {labels: [node], modulus: %d}\n", shards)
			w.trait("%s by hash", name)
		case shards > 1 && w.chance(0.35):
			g.keys = "    shard_by: [node]\n"
			w.trait("%s by node", name)
		}
		for si := range shards {
			s := &exactShard{group: g}
			if hashed {
				s.keys = fmt.Sprintf("        hash: %d\n", si)
			}
			for n := range all {
				if hashed && hashOf(all[n].name, shards) == si || !hashed && n%shards == si {
					s.nodes = append(s.nodes, all[n])
				}
			}
			g.shards = append(g.shards, s)
		}
		w.groups = append(w.groups, g)
		w.trait("%s %s: %d shards", name, g.labels, shards)
	}
	if w.kind == exactMoving {
		w.moved = w.start.Add(12*time.Minute + time.Duration(w.rng.IntN(960))*time.Second)
		g := w.groups[0]
		switch {
		case !g.labels.IsEmpty() && (g.hashed || w.chance(0.5)):
			w.history(g)
		case !g.hashed:
			w.reshard(g)
		}
	}
	for _, g := range w.groups {
		for si, s := range g.shards {
			s.name = fmt.Sprintf("%s[%d]", g.name, si)
			replicas := 1
			if w.kind == exactAgreeing || (w.kind == exactGaps || w.kind == exactMoving) && w.chance(0.6) {
				replicas = 2
			}
			for r := range replicas {
				external := labels.NewScratchBuilder(3)
				if w.chance(0.7) {
					g.labels.Range(func(l labels.Label) { external.Add(l.Name, l.Value) })
				}
				if len(g.replicaLabels) > 0 && w.chance(0.8) {
					external.Add("prometheus_replica", string(rune('a'+r)))
				}
				external.Sort()
				s.replicas = append(s.replicas, &exactReplica{external: external.Labels()})
			}
		}
	}
}

// hashOf is the number that Prometheus' relabel action gives a node.
func hashOf(node string, modulus int) int {
	c := relabel.DefaultRelabelConfig
	c.Action, c.SourceLabels, c.Modulus, c.TargetLabel, c.NameValidationScheme = relabel.HashMod, model.LabelNames{"node"}, uint64(modulus), "hash", model.UTF8Validation
	b := labels.NewBuilder(labels.FromStrings("node", node))
	relabel.ProcessBuilder(b, &c)
	n, _ := strconv.Atoi(b.Get("hash"))
	return n
}

// reshard lets the shards of a group end, and others begin, where series move.
func (w *exactWorld) reshard(g *exactGroup) {
	var all []exactNode
	for _, s := range g.shards {
		s.until = w.moved
		all = append(all, s.nodes...)
	}
	w.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	n := 1 + w.rng.IntN(2)
	for i := range n {
		s := &exactShard{group: g, from: w.moved}
		for k := i; k < len(all); k += n {
			s.nodes = append(s.nodes, all[k])
		}
		g.shards = append(g.shards, s)
	}
	if w.chance(0.3) { // one slice stays where it was
		keep := g.shards[0]
		keep.until = time.Time{}
		for _, s := range g.shards[len(g.shards)-n:] {
			s.nodes = slices.DeleteFunc(s.nodes, func(n exactNode) bool { return slices.Contains(keep.nodes, n) })
		}
	}
	w.trait("%s is re-sharded to %d at +%s", g.name, n, w.moved.Sub(w.start))
}

// history lets a group begin in time; another one holds its older samples.
func (w *exactWorld) history(g *exactGroup) {
	g.from = w.moved
	h := &exactGroup{name: "history", labels: g.labels, replicaLabels: g.replicaLabels, heartbeat: g.heartbeat, until: w.moved}
	s := &exactShard{group: h}
	for _, of := range g.shards {
		s.nodes = append(s.nodes, of.nodes...)
	}
	h.shards = []*exactShard{s}
	w.groups = append(w.groups, h)
	w.trait("history ends at +%s", w.moved.Sub(w.start))
}

// exactSpell is a stretch of time in which something is not scraped, in seconds.
type exactSpell struct{ from, until float64 }

func (s exactSpell) holds(at float64) bool { return at >= s.from && at < s.until }

// fill scrapes the shard's targets into each of its replicas, with a phase and jitter of each replica's own.
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
		if len(s.nodes) > 0 { // series that belong to no node, of a label that is another on each shard
			t := exactTarget{phase: w.rng.Float64() * 15, every: w.every.Seconds(), lo: lo, hi: hi, server: server}
			q := labels.FromStrings("__name__", "quota", "pool", fmt.Sprintf("p%d", s.nodes[0].id), "tier", []string{"gold", "tin"}[s.nodes[0].id%2])
			r.series = append(r.series, storedSeries{lbls: q, points: t.run(w, func(at float64) (point, bool) { return point{f: math.Floor(at/100) + float64(s.nodes[0].id)}, true })})
		}
		r.series = slices.DeleteFunc(r.series, func(s storedSeries) bool { return len(s.points) == 0 })
		r.byKey = map[string][]int{}
		for i := range r.series {
			key := s.group.held(r.series[i].lbls).String()
			r.byKey[key] = append(r.byKey[key], i)
		}
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

// scrape adds the series of one target to a replica. What the target does depends on the node and the job alone, so that all servers see the same.
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
	if own.IntN(6) == 0 {
		t.ends = seconds/2 + own.Float64()*seconds/2
	}
	if own.IntN(6) == 0 {
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
			b := labels.NewBuilder(labels.FromStrings("__name__", m.name, "node", n.name, "instance", fmt.Sprintf("10.0.0.%d:%d", n.id, 9000+len(job)), "job", job))
			for _, kv := range strings.Split(pairs, ",") {
				if k, val, ok := strings.Cut(kv, "="); ok {
					b.Set(k, val)
				}
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
					return point{h: exactHistogram(m, &d, at)}, true
				}
				return point{f: m.value(&d, at)}, true
			})
			r.series = append(r.series, storedSeries{lbls: b.Labels(), points: points})
		}
	}
}

// config is the proxy's configuration for the world, given the address of each replica.
func (w *exactWorld) config(url func(*exactReplica) string) string {
	var b strings.Builder
	b.WriteString("limits: {max_range: 90d}\ngroups:\n")
	bounds := func(indent string, from, until time.Time) {
		if !from.IsZero() {
			fmt.Fprintf(&b, "%sfrom: %s\n", indent, from.UTC().Format(time.RFC3339))
		}
		if !until.IsZero() {
			fmt.Fprintf(&b, "%suntil: %s\n", indent, until.UTC().Format(time.RFC3339))
		}
	}
	for _, g := range w.groups {
		fmt.Fprintf(&b, "  - name: %s\n", g.name)
		if !g.labels.IsEmpty() {
			b.WriteString("    labels:\n")
			g.labels.Range(func(l labels.Label) { fmt.Fprintf(&b, "      %s: %s\n", l.Name, l.Value) })
		}
		if len(g.replicaLabels) > 0 {
			fmt.Fprintf(&b, "    replica_labels: [%s]\n", strings.Join(g.replicaLabels, ", "))
		}
		if g.heartbeat != "" {
			fmt.Fprintf(&b, "    heartbeat: '%s'\n", g.heartbeat)
		}
		b.WriteString(g.keys)
		bounds("    ", g.from, g.until)
		b.WriteString("    shards:\n")
		for _, s := range g.shards {
			b.WriteString("      - replicas:\n")
			for _, r := range s.replicas {
				fmt.Fprintf(&b, "          - {url: %q}\n", url(r))
			}
			bounds("        ", s.from, s.until)
			b.WriteString(s.keys)
		}
	}
	return b.String()
}

// exactFeatures are switched on in every shard: the generators write all that they allow.
var exactFeatures = []string{"promql-experimental-functions", "promql-extended-range-selectors", "promql-binop-fill-modifiers"}

// serve starts a server for every replica and a proxy over them, until the test ends.
func (w *exactWorld) serve(t testing.TB) (*Server, string) {
	t.Helper()
	urls := map[*exactReplica]string{}
	for _, g := range w.groups {
		for _, s := range g.shards {
			for _, r := range s.replicas {
				urls[r] = exactServer(t, r).URL()
			}
		}
	}
	server, base := startProxy(t, t.Context(), w.config(func(r *exactReplica) string { return urls[r] }))
	for _, g := range w.groups {
		for si, s := range server.state.Load().top.Group(g.name).Shards {
			for ri, r := range s.Replicas {
				g.shards[si].replicas[ri].name = r.Name()
			}
		}
	}
	return server, base
}

// exactServer serves what a replica stores, until the test ends.
func exactServer(t testing.TB, r *exactReplica) *localprom.Shard {
	t.Helper()
	p, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true, ExternalLabels: r.external, Features: exactFeatures, BlockDuration: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := p.Append(func(app storage.Appender) error {
		for _, s := range r.series {
			ref := storage.SeriesRef(0)
			for _, pt := range s.points {
				var err error
				if pt.h != nil {
					ref, err = app.AppendHistogram(ref, s.lbls, pt.t, pt.h, nil)
				} else {
					ref, err = app.Append(ref, s.lbls, pt.t, pt.f)
				}
				if err != nil {
					return fmt.Errorf("%s at %d: %w", s.lbls, pt.t, err)
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return p
}
