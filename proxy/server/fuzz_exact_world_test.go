package server

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
)

// An exactWorld is a random topology with its data: what each server stores, and what of it one
// Prometheus that held everything would hold. All of it follows from the seed, but for the moment
// at which the data begins.
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
	engine  exactEngine
	tight   int  // max_shard_bytes in KiB; 0 where it is the default
	parcel  int  // how many targets are in a parcel; 0 where nothing has to be read in parcels
	pieces  int  // in how many range queries are asked; 0 where it is as they weigh
	strange bool // some servers store labels with the names of the group's or of replica labels
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
	byKey    map[string]*exactHeld // by the label set that one Prometheus would hold, as text
}

// exactHeld is a label set that one Prometheus would hold, and where its samples are stored; more
// than one place is a collision.
type exactHeld struct {
	lbls   labels.Labels
	places []*storedSeries
}

// index finds what is stored by what one Prometheus would hold.
func (r *exactReplica) index(g *exactGroup) {
	r.byKey = map[string]*exactHeld{}
	for i := range r.series {
		l := g.held(r.series[i].lbls)
		key := l.String()
		if r.byKey[key] == nil {
			r.byKey[key] = &exactHeld{lbls: l}
		}
		r.byKey[key].places = append(r.byKey[key].places, &r.series[i])
	}
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

// exactStart is when the data of a world of that length begins: it ends some minutes ago. Five
// minutes after a target was scraped for the last time it is none any more, so that for the length
// of one interval copies of those that go on for longer have different ones: no test is then.
func exactStart(now time.Time, length time.Duration) time.Time {
	start := now.Add(-length - 2*time.Minute).Truncate(5 * time.Minute)
	if ended := now.Sub(start.Add(length)); ended > 210*time.Second && ended < 330*time.Second {
		start = start.Add(-5 * time.Minute)
	}
	return start
}

// newExactWorld makes a topology and its data, ending a few minutes before now.
func newExactWorld(seed uint64, kind exactKind, now time.Time) *exactWorld {
	w := &exactWorld{seed: seed, kind: kind, rng: rand.New(rand.NewPCG(seed, 11)), length: 40 * time.Minute, every: 15 * time.Second}
	w.start = exactStart(now, w.length)
	switch own := rand.New(rand.NewPCG(seed, 12)); own.IntN(4) {
	case 0:
		w.tight = 1 << own.IntN(8)
		w.trait("max_shard_bytes: %dKiB", w.tight)
	case 1:
		w.pieces = 2 + own.IntN(6)
		w.trait("range queries in %d pieces", w.pieces)
	}
	if own := rand.New(rand.NewPCG(seed, 13)); own.IntN(2) == 0 {
		w.parcel = 1 + own.IntN(3)
		w.trait("parcels of %d targets", w.parcel)
	}
	w.draw()
	w.topology()
	for _, g := range w.groups {
		for _, s := range g.shards {
			w.fill(s)
		}
	}
	for _, g := range w.groups {
		if w.chance(0.2) {
			w.names(g)
		}
	}
	own := rand.New(rand.NewPCG(seed, 14))
	for _, g := range w.groups {
		if len(g.shards) > 1 && own.IntN(3) == 0 {
			w.shardNames(g, own)
		}
	}
	return w
}

// shardNames leaves some of the group's metrics to one shard at a time, and says in the
// configuration to which. What the heartbeat counts stays where it is.
func (w *exactWorld) shardNames(g *exactGroup, rng *rand.Rand) {
	overlap := func(a, b *exactShard) bool {
		af, au := a.span()
		bf, bu := b.span()
		return max(af, bf) < min(au, bu)
	}
	all, patterns, homes := map[string]bool{}, map[*exactShard][]string{}, 0
	for _, s := range g.shards {
		for _, r := range s.replicas {
			for i := range r.series {
				all[r.series[i].lbls.Get(model.MetricNameLabel)] = true
			}
		}
	}
	delete(all, "up")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if rng.IntN(2) == 0 {
			continue
		}
		var on []*exactShard // none of them at the same time
		for _, i := range rng.Perm(len(g.shards)) {
			if s := g.shards[i]; !slices.ContainsFunc(on, func(o *exactShard) bool { return overlap(o, s) }) && rng.IntN(5) > 0 {
				on = append(on, s)
			}
		}
		for _, s := range g.shards {
			if slices.Contains(on, s) {
				patterns[s] = append(patterns[s], strconv.Quote(regexp.QuoteMeta(name)))
				homes++
			} else if slices.ContainsFunc(on, func(o *exactShard) bool { return overlap(o, s) }) {
				for _, r := range s.replicas {
					r.series = slices.DeleteFunc(r.series, func(x storedSeries) bool { return x.lbls.Get(model.MetricNameLabel) == name })
					r.index(g)
				}
			}
		}
	}
	for s, list := range patterns {
		s.keys += fmt.Sprintf("        names: [%s]\n", strings.Join(list, ", "))
	}
	w.trait("%s has %d metrics on one shard alone", g.name, homes)
}

// names leaves the group some of its metrics, and says in the configuration which those are. What
// the heartbeat counts stays.
func (w *exactWorld) names(g *exactGroup) {
	gone, patterns := map[string]bool{}, map[string]string{}
	for _, s := range g.shards {
		for _, r := range s.replicas {
			r.series = slices.DeleteFunc(r.series, func(x storedSeries) bool {
				name := x.lbls.Get(model.MetricNameLabel)
				if _, drawn := gone[name]; !drawn {
					gone[name] = name != "up" && w.chance(0.4)
				}
				if !gone[name] {
					patterns[name] = strconv.Quote(regexp.QuoteMeta(name))
				}
				return gone[name]
			})
			r.index(g)
		}
	}
	g.keys += fmt.Sprintf("    names: [%s]\n", strings.Join(slices.Sorted(maps.Values(patterns)), ", "))
	w.trait("%s by %d names", g.name, len(patterns))
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
	c.Action, c.SourceLabels, c.Modulus, c.TargetLabel, c.NameValidationScheme = relabel.HashMod, model.LabelNames{"node"}, uint64(modulus),
		"hash", model.UTF8Validation
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

// config is the proxy's configuration for the world, given the address of each replica.
func (w *exactWorld) config(url func(*exactReplica) string) string {
	var b strings.Builder
	b.WriteString("limits: {max_range: 90d")
	if w.tight > 0 {
		fmt.Fprintf(&b, ", max_shard_bytes: %dKiB", w.tight)
	}
	b.WriteString("}\ngroups:\n")
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

// serve starts a server for every replica and a proxy over them, until the test ends.
func (w *exactWorld) serve(t testing.TB) (*Server, string) {
	t.Helper()
	urls := map[*exactReplica]string{}
	for _, g := range w.groups {
		for _, s := range g.shards {
			for _, r := range s.replicas {
				urls[r] = exactServer(t, r, w.engine).URL()
			}
		}
	}
	server, base := startProxy(t, t.Context(), w.config(func(r *exactReplica) string { return urls[r] }))
	if w.tight > 0 {
		server.lightSeries = 1 // few series of few steps are all there is
	}
	server.divide, server.parcel = w.pieces, w.parcel
	for _, g := range w.groups {
		for si, s := range server.state.Load().top.Group(g.name).Shards {
			for ri, r := range s.Replicas {
				g.shards[si].replicas[ri].name = r.Name()
			}
		}
	}
	return server, base
}
