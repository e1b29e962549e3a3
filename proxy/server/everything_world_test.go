package server

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/spillwayproject/spillway/internal/localprom"
)

// A fleet is a random topology with random data: one to three clusters of one or two shards of one
// or two replicas, some of them re-sharded in the middle of the time that there is data for, some
// with a history group for what is older. Everything that a server was given is kept, so that a
// reference can be built from it by code that shares nothing with the proxy.
//
//	start            boundary                now
//	  |  history[0]     |                     |      older samples: the history group
//	  |  . . . . . . . .|  jaguar[0]          |      and the cluster's own shards from there on
//	  |  ibis[0] n0 n1  |  ibis[2] n0         |      re-sharded: targets move between shards;
//	  |  ibis[1] n2     |  ibis[3] n1 n2      |      each server holds a few minutes beyond its span that no answer may show
//
// Every sample's value says which server it is from, so that a sample from the wrong one is seen.
type fleet struct {
	t        testing.TB
	rng      *rand.Rand
	start    time.Time
	length   time.Duration
	interval time.Duration
	narrow   time.Duration // limits.metadata_range
	groups   []*fleetGroup
	servers  map[string]*fleetServer // as the proxy calls them
	nodes    []string
}

type fleetGroup struct {
	name          string
	labels        labels.Labels
	replicaLabels []string
	heartbeat     bool
	from, until   int64 // milliseconds; until is exclusive
	shards        []*fleetShard
}

type fleetShard struct {
	group       *fleetGroup
	from, until int64
	nodes       []string
	replicas    []*fleetServer
}

// fleetServer is what one server stores, with labels as it stores them.
type fleetServer struct {
	shard     *fleetShard
	name      string
	external  labels.Labels
	series    []storedSeries
	exemplars []fleetExemplar
	url       string
}

type fleetExemplar struct {
	series   labels.Labels
	exemplar exemplar.Exemplar
}

// fleetFamily is a metric: the labels of its series on one node, and how it runs.
type fleetFamily struct {
	name     string
	variants [][]string // pairs
	kind     int        // of the value
}

const (
	runsUp = iota
	runsCounter
	runsGauge
	runsHistogram
)

var fleetFamilies = []fleetFamily{
	{"up", [][]string{{"job", "node"}}, runsUp},
	{"http_requests_total", [][]string{{"job", "api", "code", "200"}, {"job", "api", "code", "500"}}, runsCounter},
	{"gpu_temperature", [][]string{{"job", "gpu", "gpu", "0"}, {"job", "gpu", "gpu", "1"}}, runsGauge},
	{"request_seconds_bucket", [][]string{{"le", "0.1"}, {"le", "+Inf"}}, runsCounter},
	{"rpc_seconds", [][]string{{"job", "rpc"}}, runsHistogram},
	{"http.latency", [][]string{{"http.method", "GET", "größe", "klein"}, {"http.method", "PUT", "größe", "\"groß\"\n\\"}}, runsGauge},
	// Labels of the names that groups own, stored: they are in no answer of such a group, and in
	// every answer of one without.
	{"stored_labels", [][]string{
		{"cluster", "stored", "x", "1"},
		{"prometheus_replica", "zz", "x", "2"},
		{"x", "3"},
		{"rack.unit", "7", "x", "4"},
	}, runsGauge},
}

const always, never = int64(math.MinInt64), int64(math.MaxInt64)

// newFleet plans a fleet; nothing runs yet.
func newFleet(t testing.TB, rng *rand.Rand) *fleet {
	f := &fleet{
		t: t, rng: rng, length: 40 * time.Minute, interval: 15 * time.Second, narrow: 10 * time.Minute,
		servers: map[string]*fleetServer{},
	}
	f.start = time.Now().Add(-f.length).Truncate(time.Second)
	boundary := f.start.Add(15*time.Minute + time.Duration(rng.Int64N(int64(10*time.Minute)))).Truncate(time.Second).UnixMilli()
	clusters := []string{"jaguar", "ibis", "heron"}[:1+rng.IntN(3)]
	bare := -1 // at most one cluster has no labels
	if rng.IntN(3) == 0 {
		bare = rng.IntN(len(clusters))
	}
	for ci, name := range clusters {
		own := labels.FromStrings("cluster", name)
		switch {
		case ci == bare:
			own = labels.EmptyLabels()
		case rng.IntN(2) == 0:
			own = labels.FromStrings("cluster", name, "region", "eu")
		}
		replicaLabels := []string{"prometheus_replica"}
		if rng.IntN(2) == 0 {
			replicaLabels = append(replicaLabels, "rack.unit")
		}
		var nodes []string
		for n := range 3 + rng.IntN(3) {
			nodes = append(nodes, fmt.Sprintf("%s-%d", name, n))
		}
		f.nodes = append(f.nodes, nodes...)
		g := &fleetGroup{name: name, labels: own, replicaLabels: replicaLabels, heartbeat: rng.IntN(2) == 0, from: always, until: never}
		switch rng.IntN(3) {
		case 0:
			f.shard(g, always, never, nodes)
		case 1: // re-sharded
			f.shard(g, always, boundary, nodes)
			f.shard(g, boundary, never, nodes)
		case 2: // a history group
			h := &fleetGroup{
				name: "history-" + name, labels: own, replicaLabels: replicaLabels, heartbeat: rng.IntN(2) == 0, from: always,
				until: boundary,
			}
			g.from = boundary
			f.shard(h, always, never, nodes)
			f.shard(g, always, never, nodes)
			f.groups = append(f.groups, h)
		}
		f.groups = append(f.groups, g)
	}
	rng.Shuffle(len(f.groups), func(i, j int) { f.groups[i], f.groups[j] = f.groups[j], f.groups[i] })
	for _, g := range f.groups {
		for _, s := range g.shards {
			f.fill(s)
		}
	}
	return f
}

// shard adds one or two shards to the group that share out its nodes for the span.
func (f *fleet) shard(g *fleetGroup, from, until int64, nodes []string) {
	n := 1 + f.rng.IntN(2)
	shards := make([]*fleetShard, n)
	for i := range shards {
		shards[i] = &fleetShard{group: g, from: from, until: until}
		for range 1 + f.rng.IntN(2) {
			shards[i].replicas = append(shards[i].replicas, &fleetServer{shard: shards[i]})
		}
	}
	for _, node := range nodes {
		s := shards[f.rng.IntN(n)]
		s.nodes = append(s.nodes, node)
	}
	g.shards = append(g.shards, shards...)
}

// span is the time for which the shard answers, its first and its last millisecond.
func (s *fleetShard) span() (first, last int64) {
	first, last = max(s.from, s.group.from), min(s.until, s.group.until)
	if last != never {
		last--
	}
	return first, last
}

// fill scrapes the shard's nodes for each of its replicas, with a phase and jitter for each target.
// A replica may miss stretches of time; where a heartbeat is to see that, only one of two does, and
// then for all targets: what hides from a heartbeat is documented, and not asked for here.
func (f *fleet) fill(s *fleetShard) {
	const slop = 4 * time.Minute // what a server holds beyond its span, as after a re-sharding that deleted nothing
	first, last := s.span()
	begin, end := f.start.UnixMilli(), f.start.Add(f.length).UnixMilli()
	if first != always {
		begin = max(begin, first-slop.Milliseconds())
	}
	if last != never {
		end = min(end, last+slop.Milliseconds())
	}
	sick := f.rng.IntN(len(s.replicas))
	for ri, srv := range s.replicas {
		id := float64(1+len(f.servers)+ri) / 1024
		srv.external = f.externalLabels(s.group, ri)
		var gaps [][2]int64
		if !s.group.heartbeat || ri == sick {
			for range f.rng.IntN(3) {
				at := begin + f.rng.Int64N(end-begin)
				gaps = append(gaps, [2]int64{at, at + f.rng.Int64N(6*time.Minute.Milliseconds())})
			}
		}
		for ni, node := range s.nodes {
			own := gaps
			if !s.group.heartbeat && f.rng.IntN(4) == 0 { // a target that only this replica misses
				at := begin + f.rng.Int64N(end-begin)
				own = append(slices.Clone(gaps), [2]int64{at, at + f.rng.Int64N(4*time.Minute.Milliseconds())})
			}
			phase := f.rng.Int64N(f.interval.Milliseconds())
			for fi, fam := range fleetFamilies {
				for v, pairs := range fam.variants {
					one := storedSeries{lbls: labels.FromStrings(append([]string{"__name__", fam.name, "node", node}, pairs...)...)}
					stops, starts := never, always
					switch (ni*7 + fi*3 + v) % 11 { // the same on all replicas
					case 0:
						stops = f.start.Add(20 * time.Minute).UnixMilli()
					case 1:
						starts = f.start.Add(25 * time.Minute).UnixMilli()
					case 2: // its marker is the newest sample that federation finds
						stops = f.start.Add(f.length - 3*time.Minute).UnixMilli()
					}
					for i := f.start.UnixMilli(); i < end; i += f.interval.Milliseconds() {
						at := i + phase + f.rng.Int64N(40)
						if at >= begin && at < end && at >= stops {
							// Who was away when the series ended never marks it.
							if len(one.points) > 0 && !inGap(own, at) {
								one.points = append(one.points, staleAt(fam, at))
							}
							break
						}
						if at < begin || at >= end || at < starts || inGap(own, at) {
							continue
						}
						one.points = append(one.points, f.value(fam, v, at, id))
					}
					if len(one.points) == 0 {
						continue
					}
					srv.series = append(srv.series, one)
					if fam.kind == runsCounter {
						f.exemplify(srv, one)
					}
				}
			}
		}
		srv.name = fmt.Sprintf("unnamed-%d", len(f.servers)+ri) // until the proxy has named it
	}
	for _, srv := range s.replicas {
		f.servers[srv.name] = srv
	}
}

// exemplify gives some of a counter's samples an exemplar. Replicas scrape the same application:
// half of them are the same on all.
func (f *fleet) exemplify(srv *fleetServer, s storedSeries) {
	last := always
	for i, p := range s.points {
		if value.IsStaleNaN(p.f) || f.rng.IntN(12) != 0 {
			continue
		}
		e := exemplar.Exemplar{
			Labels: labels.FromStrings("trace_id", fmt.Sprintf("%08x", f.rng.Uint32())),
			Value:  float64(f.rng.IntN(1000)) / 8, Ts: p.t, HasTs: true,
		}
		if i%2 == 0 {
			slot := p.t / f.interval.Milliseconds()
			e = exemplar.Exemplar{
				Labels: labels.FromStrings("trace_id", fmt.Sprintf("common-%d", slot)), Value: float64(slot % 100),
				Ts: slot * f.interval.Milliseconds(), HasTs: true,
			}
		}
		if e.Ts > last { // a server takes them in their order only
			last = e.Ts
			srv.exemplars = append(srv.exemplars, fleetExemplar{s.lbls, e})
		}
	}
}

func (f *fleet) externalLabels(g *fleetGroup, replica int) labels.Labels {
	b := labels.NewBuilder(labels.EmptyLabels())
	if f.rng.IntN(4) > 0 {
		g.labels.Range(func(l labels.Label) { b.Set(l.Name, l.Value) })
	}
	if f.rng.IntN(4) > 0 {
		b.Set("prometheus_replica", string(rune('a'+replica)))
	}
	return b.Labels()
}

func inGap(gaps [][2]int64, at int64) bool {
	return slices.ContainsFunc(gaps, func(g [2]int64) bool { return at >= g[0] && at < g[1] })
}

// staleAt is a stale marker, as a server stores it in a series of that kind.
func staleAt(fam fleetFamily, at int64) point {
	if fam.kind == runsHistogram {
		return point{t: at, h: &histogram.Histogram{Sum: math.Float64frombits(value.StaleNaN)}}
	}
	return point{t: at, f: math.Float64frombits(value.StaleNaN)}
}

func (f *fleet) value(fam fleetFamily, variant int, at int64, id float64) point {
	sec := float64(at-f.start.UnixMilli()) / 1000
	switch fam.kind {
	case runsUp:
		return point{t: at, f: 1}
	case runsCounter:
		return point{t: at, f: math.Mod(math.Floor(sec*float64(variant+2)), 1500) + id} // with resets
	case runsHistogram:
		h := tsdbutil.GenerateTestHistogram(int64(sec))
		h.Sum += id
		return point{t: at, h: h}
	}
	if math.Mod(sec, 700) < 40 {
		return point{t: at, f: math.NaN()}
	}
	return point{t: at, f: 40 + 10*math.Cos(sec/200+float64(variant)) + id}
}

// serve starts a server for each replica and a proxy over them all.
func (f *fleet) serve(ctx context.Context) (*Server, string) {
	var cfg strings.Builder
	fmt.Fprintf(&cfg, "limits: {metadata_range: %s}\ngroups:\n", f.narrow)
	for _, g := range f.groups {
		fmt.Fprintf(&cfg, "  - name: %s\n    replica_labels: [%s]\n", g.name, strings.Join(g.replicaLabels, ", "))
		if !g.labels.IsEmpty() {
			cfg.WriteString("    labels:\n")
			g.labels.Range(func(l labels.Label) { fmt.Fprintf(&cfg, "      %s: %q\n", l.Name, l.Value) })
		}
		if g.heartbeat {
			cfg.WriteString("    heartbeat: up\n")
		}
		cfg.WriteString(spanText("    ", g.from, g.until) + "    shards:\n")
		for _, s := range g.shards {
			cfg.WriteString("      - replicas:\n")
			for _, srv := range s.replicas {
				srv.url = f.start1(srv)
				fmt.Fprintf(&cfg, "          - {url: %q}\n", srv.url)
			}
			cfg.WriteString(spanText("        ", s.from, s.until))
		}
	}
	s, base := startProxy(f.t, ctx, cfg.String())
	s.rewriteTime = 0 // a refused request selects nothing
	clear(f.servers)
	for _, g := range f.groups {
		for _, sh := range g.shards {
			for _, srv := range sh.replicas {
				u, err := url.Parse(srv.url)
				if err != nil {
					f.t.Fatal(err)
				}
				srv.name = g.name + "/" + u.Host
				f.servers[srv.name] = srv
			}
		}
	}
	return s, base
}

func spanText(indent string, from, until int64) string {
	out := ""
	if from != always {
		out += indent + "from: " + time.UnixMilli(from).UTC().Format(time.RFC3339) + "\n"
	}
	if until != never {
		out += indent + "until: " + time.UnixMilli(until).UTC().Format(time.RFC3339) + "\n"
	}
	return out
}

// start1 is a server with the data, and its URL.
func (f *fleet) start1(srv *fleetServer) string {
	p, err := localprom.Start(f.t.Context(), localprom.Options{
		DisableWAL: true, ExternalLabels: srv.external,
		Features: []string{"exemplar-storage", "promql-experimental-functions"},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := p.Close(); err != nil {
			f.t.Error(err)
		}
	})
	err = p.Append(func(app storage.Appender) error {
		for _, s := range srv.series {
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
	})
	if err != nil {
		f.t.Fatal(err)
	}
	slices.SortStableFunc(srv.exemplars, func(a, b fleetExemplar) int { return int(a.exemplar.Ts - b.exemplar.Ts) })
	if err := p.Append(func(app storage.Appender) error {
		for _, e := range srv.exemplars {
			if _, err := app.AppendExemplar(0, e.series, e.exemplar); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		f.t.Fatal(err)
	}
	return p.URL()
}

// shown is the label set of a stored series in the answers: what the group owns is removed,
// whatever its value, and the group's labels are set.
func (g *fleetGroup) shown(stored labels.Labels) labels.Labels {
	m := map[string]string{}
	stored.Range(func(l labels.Label) {
		if !slices.Contains(g.replicaLabels, l.Name) {
			m[l.Name] = l.Value
		}
	})
	g.labels.Range(func(l labels.Label) { m[l.Name] = l.Value })
	return labels.FromMap(m)
}

// owned tells whether some group owns the label, so that a matcher on it chooses groups.
func (f *fleet) owned(name string) bool {
	return slices.ContainsFunc(f.groups, func(g *fleetGroup) bool { return g.labels.Has(name) || slices.Contains(g.replicaLabels, name) })
}

// String describes the topology for a failure.
func (f *fleet) String() string {
	var b strings.Builder
	for _, g := range f.groups {
		fmt.Fprintf(&b, "\n%s%s owns %q, heartbeat %v%s", g.name, g.labels, g.replicaLabels, g.heartbeat,
			strings.ReplaceAll(spanText(" ", g.from, g.until), "\n", ""))
		for i, s := range g.shards {
			fmt.Fprintf(&b, "\n  [%d]%s %q:", i, strings.ReplaceAll(spanText(" ", s.from, s.until), "\n", ""), s.nodes)
			for _, srv := range s.replicas {
				fmt.Fprintf(&b, " %s%s", srv.name, srv.external)
			}
		}
	}
	return b.String()
}
