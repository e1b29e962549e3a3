package plan

import (
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// complete finds for each shard whom to ask and what, or says why that cannot be.
func (p *planner) complete(leaf *Leaf, e parser.Expr, legs []Leg, w Window) (*Leaf, string) {
	if why := apart(legs); why != "" {
		return nil, why
	}
	if p.q.Heavy != nil {
		if why := p.q.Heavy(e); why != "" {
			return nil, why
		}
	}
	var use []int
	selectors(e, func(vs *parser.VectorSelector) { use = append(use, p.read(vs).nth) })
	leaf.Expr, leaf.Uses, leaf.At = e, [][]int{use}, e.PositionRange()
	leaf.Streams, leaf.Parts = true, make([]*Part, 0, len(legs))
	settled := slices.ContainsFunc(legs, func(l Leg) bool { return l.Shard.Thanos() })
	var last *Part // shards of one group are asked the same
	for _, leg := range legs {
		leg.settled = settled
		part, why := p.part(leaf, e, leg, w, last)
		if why != "" {
			return nil, why
		}
		leaf.Parts = append(leaf.Parts, part)
		last = part
		if g, first := leg.Shard.Group, legs[0].Shard.Group; g != first {
			leaf.Streams = leaf.Streams && slices.Equal(Owned(g), Owned(first))
		}
	}
	if p.q.NoExplain {
		return leaf, ""
	}
	leaf.Node = &Node{Mode: leaf.Mode, Expr: tree.String(e), Why: reason(leaf)}
	notes := 0
	for i, part := range leaf.Parts {
		leaf.Node.Why += homed(legs[i]) + alone(part.Shard)
		if notes < maxNotes {
			if note := short(part.Shard, len(part.Replicas), p.beside.window(legs[i], w), p.v.now); note != "" {
				leaf.Node.Why += note
				notes++
			}
		}
		part.Call = &Call{Shard: part.Shard.Name(), Replica: part.Replicas[0].Name(), Query: part.Query}
		leaf.Node.asks(part.Call)
	}
	return leaf, ""
}

// same tells whether the shards are asked the same for both leaves, and the answers put together in
// the same way: it is done once, whatever it is used for.
func (l *Leaf) same(o *Leaf) bool {
	return l.Mode == o.Mode && l.Text == o.Text && l.Grid == o.Grid && l.Range == o.Range && l.Fold == o.Fold && l.Folds == o.Folds &&
		l.Streams == o.Streams &&
		slices.Equal(l.Guards, o.Guards) && slices.EqualFunc(l.Parts, o.Parts, func(a, b *Part) bool {
		return a.Shard == b.Shard && a.Query == b.Query && a.From == b.From && a.Until == b.Until && slices.Equal(a.Replicas, b.Replicas)
	})
}

// share makes the leaf stand for another one that is the same, with all that its last bits may
// decide there.
func (l *Leaf) share(o *Leaf) {
	l.Strict, l.Loose = l.Strict || o.Strict, l.Loose || o.Loose
	for _, n := range o.Near {
		if !slices.Contains(l.Near, n) {
			l.Near = append(slices.Clip(l.Near), n)
		}
	}
	l.Uses = append(l.Uses, o.Uses...)
	if o.Node != nil {
		o.Node.Calls = l.Node.Calls
	}
}

// apart says why shards may hold the same series at the same time. One that begins later than
// another takes over series that the other may go on to hold, which is seen only where both say
// what they scrape.
func apart(legs []Leg) string {
	for i, a := range legs {
		for _, b := range legs[:i] {
			if a.From != b.From && !(a.Shard.Compared() && b.Shard.Compared()) {
				return "shard " + a.Shard.Name() + " does not begin when " + b.Shard.Name() + " does, and whether both hold the same series is not known (their up is compared)"
			}
		}
	}
	return ""
}

// part is what one shard is asked for a leaf, or why it cannot be asked.
func (p *planner) part(leaf *Leaf, e parser.Expr, leg Leg, w Window, last *Part) (*Part, string) {
	s, g := leg.Shard, leg.Shard.Group
	if last != nil && (last.Shard.Group != g || last.Shard.Thanos() != s.Thanos()) {
		last = nil
	}
	if ownsAny(g) && last == nil {
		for _, ms := range parser.ExtractSelectors(e) {
			// Sent without the matchers that exclude the group, it would select what it must not.
			if _, ok := Strip(g, ms); !ok {
				return nil, "one of its selectors selects nothing in group " + g.Name
			}
		}
	}
	if w.From < leg.From || leg.Until != math.MaxInt64 && w.Until >= leg.Until {
		return nil, p.because(CauseBoundary, s, "its window crosses the from or until of shard "+s.Name())
	}
	if leg.From != math.MinInt64 && w.Until < leg.From+settle.Milliseconds() {
		return nil, p.because(CauseBoundary, s, "its window ends less than 10 minutes after the from of shard "+s.Name())
	}
	switch {
	case !leg.settled && s.Divides(w.Until):
		return nil, p.because(CauseSick, s, "group "+g.Name+" has other shards than a while ago, and its targets may be moving between them")
	case g.Trusted():
	case g.Awaits():
		return nil, p.because(CauseSick, s, "a server that may hold series of group "+g.Name+" is up again, and was not compared with the others yet")
	default:
		return nil, p.because(CauseSick, s, "group "+g.Name+" is not as the configuration says; see shards")
	}
	wholes, err := p.beside.wholes(p.ctx, leg, w, p.v.now, p.q.Avoid)
	if err != nil {
		return nil, p.because(CauseUnreachable, s, "no replica of shard "+s.Name()+" can be asked")
	}
	avoided := func(r *shard.Replica) bool { return p.q.Avoid != nil && p.q.Avoid(r) }
	replicas := slices.DeleteFunc(slices.Clone(wholes), avoided)
	if len(replicas) == 0 && s.Unjudged() {
		return nil, p.because(CauseNoHeartbeat, s, "shard "+s.Name()+" has several replicas, and its group no heartbeat by which one could be known to be whole")
	}
	if len(replicas) == 0 {
		return nil, p.because(CauseNotWhole, s, notWhole(s, p.beside.window(leg, w), p.v.now))
	}
	replicas = slices.DeleteFunc(replicas, func(r *shard.Replica) bool { return r.Differs() })
	if len(replicas) == 0 {
		return nil, p.because(CauseEngine, s, "the query engine of shard "+s.Name()+" differs from the others'")
	}
	part := &Part{Shard: s, Replicas: replicas, From: w.From, Until: w.Until}
	if s.Thanos() {
		replicas = slices.DeleteFunc(replicas, func(r *shard.Replica) bool { return !r.StoresGroupLabels() })
	} else if ownsAny(g) {
		replicas = slices.DeleteFunc(replicas, func(r *shard.Replica) bool { return !r.Clean() })
		if last != nil {
			part.Relabel = last.Relabel
		} else {
			set, ok := carried(e, g)
			if !ok {
				return nil, p.because(CauseLabels, s, "it uses the labels of group "+g.Name+", which its shards do not store")
			}
			if len(set) > 0 {
				part.Relabel = merge.NewRelabel(set, nil)
			}
		}
	}
	if part.Replicas = replicas; len(replicas) == 0 {
		return nil, p.because(CauseLabels, s, "shard "+s.Name()+" stores labels with the names of its group's, or has not said yet whether it does")
	}
	if last != nil {
		part.Query = last.Query
		return part, ""
	}
	var ok bool
	if part.Query, ok = p.text(leaf, e, s); !ok {
		return nil, "it cannot be written without the matchers on the labels of group " + g.Name
	}
	return part, ""
}

// alone tells of a shard of which one replica alone can be asked.
func alone(s *shard.Shard) string {
	if r := s.Alone(); r != nil {
		return "; of shard " + s.Name() + " only " + r.Name() + " can be asked, so nothing that it lacks can be filled"
	}
	return ""
}

// homed says that a shard is asked for what it has alone.
func homed(l Leg) string {
	if l.Alone {
		return "; by its names shard " + l.Shard.Name() + " alone has such metrics"
	}
	return ""
}

// maxNotes is of how many shards a node tells what some of their replicas lack.
const maxNotes = 5

// short tells what the replicas of a shard lack of which so many are whole over the window, so that
// one of these is read.
func short(s *shard.Shard, whole int, w Window, now time.Time) string {
	if whole >= len(s.Replicas) {
		return ""
	}
	if what := s.Shortfalls(w.From, w.Until, now); what != "" {
		return "; " + what + ", so another one is read"
	}
	return ""
}

// notWhole says of which shard no replica is known to be whole, and what each lacks as far as that
// is known.
func notWhole(s *shard.Shard, w Window, now time.Time) string {
	why := "no replica of shard " + s.Name() + " is known to be whole over its window"
	if what := s.Shortfalls(w.From, w.Until, now); what != "" {
		why += ": " + what
	}
	return why
}

// text is what a shard is sent, and the others of its group.
func (p *planner) text(leaf *Leaf, e parser.Expr, s *shard.Shard) (string, bool) {
	text := p.q.Text // as the client wrote it: positions in the shard's notes are right then
	if e != p.root {
		if text = tree.String(e); !says(text, e) {
			return "", false
		}
	}
	var interval time.Duration
	if leaf.Mode != ModePass || s.Thanos() {
		interval = p.q.Interval // that of several shards need not be one, and that of a Thanos Query is not its Prometheus servers'
	}
	text, ok := rewrite(text, e, s.Group, interval)
	if !ok || !leaf.Folds || leaf.Fold != merge.FoldAvg {
		return text, ok
	}
	return sumAndCount(text)
}
