package server

import (
	"fmt"
	"maps"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/answer"
	"github.com/spillwayproject/spillway/proxy/cost"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// What shards are asked is weighed before they are: what it makes each of them hold is a function
// of the text, of its steps, and of how many series its selectors have there (proxy/cost). What a
// server says of its metrics' sizes, which is asked for once in ten minutes, mostly shows that it
// is not too much. Where it shows too much, the series of the selectors are counted, which is no
// more than the query itself does first. Where it is not known, since the server has no head or the
// window is older, all series of the metric are counted, once for all who ask about it: that takes
// a sixth of what the server holds of them at rest.
//
// A text that weighed at most half of the bound is not weighed again for ten minutes.
//
// A native histogram takes hundreds of times what a float does, and no text tells which series are
// such. Where a metric is so large that it would be too much if it were one, its server is asked.

const (
	// lightSeries is what a text may make a server hold for one series before these are counted: a
	// server holds about as much of each at rest, in its head and its index, and of a metric's
	// series only few of its own are such.
	lightSeries = 4 << 10
	// lightNative is the same for a native histogram, with its chunks of samples.
	lightNative = 32 << 10
	// maxLightNames is how many metrics a text may read of which none makes much.
	maxLightNames = 8
)

// load is what one shard is asked for a leaf, and its selectors there.
type load struct {
	leaf  *plan.Leaf
	part  *plan.Part
	grid  cost.Grid
	reads []read
	// weight is what its shard would hold, by what is known.
	weight int64
}

// read is a selector of the load.
func (l *load) read(vs *parser.VectorSelector) *read {
	for i := range l.reads {
		if l.reads[i].vs == vs {
			return &l.reads[i]
		}
	}
	return nil
}

// held is what a shard would hold for a load of so many series, and native histograms among them,
// of each selector, where each chosen series may be another one at each step.
func (l *load) held(series func(*read) (int64, int64)) int64 {
	return cost.Held(l.leaf.Expr, l.grid, func(vs *parser.VectorSelector) (int64, int64) {
		if r := l.read(vs); r != nil {
			return series(r)
		}
		return 0, 0
	}, nil)
}

// pieces is in how many pieces of time the query is to be asked, so that none of its servers holds
// more than max_shard_bytes at a time: 1 where it is asked as it is. The error is a refusal where
// no number of pieces is enough, or what kept the series from being counted.
func (x *exchange) pieces(q plan.Query, p *plan.Plan) (int, error) {
	if n := min(x.s.divide, q.Grid.Len()); n > 1 && q.Divide(n) != nil {
		return n, nil
	}
	if x.weighedBefore(p) {
		return 1, nil
	}
	light := x.light(p, false)
	if light && x.light(p, true) {
		x.remember(p, nil)
		return 1, nil
	}
	loads, known := x.loads(q, p), numbers{}
	if err := x.countMetrics(loads, known); err != nil {
		return 1, err
	}
	native, err := x.natives(loads, known)
	if err != nil {
		return 1, err
	}
	if light && !native {
		x.remember(p, loads)
		return 1, nil
	}
	heavy, held, err := x.beyond(x.open(loads), known)
	if err != nil {
		return 1, err
	}
	if len(heavy) == 0 {
		x.remember(p, loads)
		return 1, nil
	}
	worst, most := heavy[0].part.Shard, int64(0)
	for s, n := range held {
		if n > most || n == most && s.Name() < worst.Name() {
			worst, most = s, n
		}
	}
	if q.Range {
		steps := int64(q.Grid.Len())
		for n := max(most/x.limits.MaxShardBytes, 2); n <= min(plan.MaxPieces, steps); n++ {
			if x.fits(heavy, (steps+n-1)/n, known) {
				if q.Divide(int(n)) == nil {
					break
				}
				if native && givesNative(q, loads) {
					return 1, errHistograms
				}
				return int(n), nil
			}
		}
	}
	if q.Inexact && !q.NoPass { // this text came to be evaluated here before, for which no shard holds much
		return 1, &answer.Inexact{Why: q.Raw}
	}
	return 1, x.tooMuch(q, worst, most)
}

// weighedBefore tells whether all parts of the plan were weighed within the last ten minutes, and
// together at most half of what their shards may hold was found.
func (x *exchange) weighedBefore(p *plan.Plan) bool {
	for _, l := range p.Leaves {
		for _, part := range l.Parts {
			n, ok := x.st.weights.Known(x.weightOf(l, part))
			if !ok || n > x.limits.MaxShardBytes/2/int64(len(p.Leaves)) {
				return false
			}
		}
	}
	return true
}

// remember is what the parts of a plan weigh; without loads so little that it was not looked at.
func (x *exchange) remember(p *plan.Plan, loads []*load) {
	for _, l := range loads {
		x.st.weights.Remember(x.weightOf(l.leaf, l.part), l.weight)
	}
	for _, l := range p.Leaves {
		for _, part := range l.Parts {
			x.st.weights.Remember(x.weightOf(l, part), 0)
		}
	}
}

func (x *exchange) weightOf(l *plan.Leaf, part *plan.Part) cost.Key {
	return cost.WeightKey(part.Shard.Name(), part.Query, x.costGrid(l), min(l.Grid.End, x.view.Now().UnixMilli()))
}

// refused tells whether a server would not answer, whatever the time.
func refused(err error) bool {
	k := qerr.From(err).Kind
	return k == qerr.BadData || k == qerr.TooExpensive
}

// light tells whether all leaves together make little of each series of a metric, if these are
// floats, or native histograms.
func (x *exchange) light(p *plan.Plan, native bool) bool {
	var names []string
	for _, l := range p.Leaves {
		if l.Expr != nil {
			names = appendNames(names, l.Expr)
		}
	}
	if len(names) > maxLightNames {
		return false
	}
	most, n := x.s.lightSeries, int64(0)
	if native {
		most, n = max(most, lightNative), 1
	}
	for _, name := range names {
		one := int64(0)
		for _, l := range p.Leaves {
			if l.Expr != nil {
				one += cost.Held(l.Expr, x.costGrid(l), func(vs *parser.VectorSelector) (int64, int64) {
					if nameOf(vs) == name {
						return 1, n
					}
					return 0, 0
				}, nil)
			}
		}
		if one > most {
			return false
		}
	}
	return true
}

func (x *exchange) costGrid(l *plan.Leaf) cost.Grid {
	return cost.Grid{Steps: int64(l.Grid.Len()), Step: l.Grid.Step, Interval: x.evaluationInterval().Milliseconds()}
}

// loads are the leaves' parts.
func (x *exchange) loads(q plan.Query, p *plan.Plan) []*load {
	var out []*load
	for _, l := range p.Leaves {
		for _, part := range l.Parts {
			if l.Expr != nil {
				out = append(out, &load{leaf: l, part: part, grid: x.costGrid(l), reads: x.reads(q, l, part)})
			}
		}
	}
	return out
}

// open returns those of the loads of whose shards the sizes of metrics do not show that all of them
// together are little enough.
func (x *exchange) open(loads []*load) (open []*load) {
	held, unknown := map[*shard.Shard]int64{}, map[*shard.Shard]bool{}
	for _, l := range loads {
		s := l.part.Shard
		l.weight = l.held(func(r *read) (int64, int64) {
			unknown[s] = unknown[s] || !r.sized
			return r.size, r.native
		})
		held[s] += l.weight
	}
	for _, l := range loads {
		if s := l.part.Shard; unknown[s] || held[s] > x.limits.MaxShardBytes {
			open = append(open, l)
		}
	}
	return open
}

// beyond counts the series of the loads' selectors, which it adds to the numbers, and returns those
// of the loads whose shards would hold too much, and how much each shard would.
func (x *exchange) beyond(loads []*load, known numbers) ([]*load, map[*shard.Shard]int64, error) {
	var unknown []selected
	sum := func() map[*shard.Shard]int64 {
		unknown = nil
		held := map[*shard.Shard]int64{}
		for _, l := range loads {
			l.weight = x.held(l, l.grid, known, &unknown)
			held[l.part.Shard] += l.weight
		}
		return held
	}
	held := sum()
	if len(unknown) > 0 {
		found, err := x.count(unknown)
		if err != nil {
			return nil, nil, err
		}
		maps.Copy(known, found)
		held = sum()
	}
	var heavy []*load
	for _, l := range loads {
		if held[l.part.Shard] > x.limits.MaxShardBytes {
			heavy = append(heavy, l)
		}
	}
	return heavy, held, nil
}

// held is what a shard would hold for a load over the grid, what is not known left out and added to
// unknown.
func (x *exchange) held(l *load, grid cost.Grid, known numbers, unknown *[]selected) int64 {
	number := func(t selected) int64 {
		n, ok := x.known(t, known)
		switch {
		case ok:
			known[t.key] = n // it may be forgotten
		case unknown != nil:
			*unknown = append(*unknown, t)
		}
		return n
	}
	return cost.Held(l.leaf.Expr, grid, func(vs *parser.VectorSelector) (int64, int64) {
		if r := l.read(vs); r != nil {
			return number(x.ofSelector(r)), r.native
		}
		return 0, 0
	}, func(vs *parser.VectorSelector, by cost.Labels) int64 {
		if r := l.read(vs); r != nil {
			return number(x.alikeOf(r, by))
		}
		return 1
	})
}

// fits tells whether no shard of the loads would hold too much over so many of their steps.
func (x *exchange) fits(loads []*load, steps int64, known numbers) bool {
	held := map[*shard.Shard]int64{}
	for _, l := range loads {
		grid := l.grid
		grid.Steps = min(grid.Steps, steps)
		held[l.part.Shard] += x.held(l, grid, known, nil)
	}
	for _, n := range held {
		if n > x.limits.MaxShardBytes {
			return false
		}
	}
	return true
}

// tooMuch refuses what would make a server hold too much.
func (x *exchange) tooMuch(q plan.Query, s *shard.Shard, held int64) error {
	steps, advice := "", "select fewer series, "
	if hasSubquery(q.Expr) {
		advice += "give the subquery a shorter range or a longer step, "
	}
	if q.Range {
		steps = fmt.Sprintf(" at %d steps", q.Grid.Len())
		advice += "shorten the range or widen the step, "
	}
	advice += "or record a part of the query"
	limit := merge.FormatBytes(x.limits.MaxShardBytes)
	return qerr.Refuse(policy.BoundMaxShardBytes, limit, "about "+merge.FormatBytes(held), advice,
		"evaluating this%s would make a server of shard %s hold about %s at once, as estimated from the series that it selects there, "+
			"and max_shard_bytes allows %s", steps, s.Name(), merge.FormatBytes(held), limit)
}

// hasSubquery tells whether an expression has a subquery.
func hasSubquery(n parser.Node) bool {
	if _, ok := n.(*parser.SubqueryExpr); ok {
		return true
	}
	for child := range parser.ChildrenIter(n) {
		if hasSubquery(child) {
			return true
		}
	}
	return false
}
