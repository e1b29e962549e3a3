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

// load is what one shard is asked for a leaf, whose selectors read those windows.
type load struct {
	leaf    *plan.Leaf
	part    *plan.Part
	grid    cost.Grid
	windows map[*parser.VectorSelector]plan.Window
}

// pieces is in how many pieces of time the query is to be asked, so that none of its servers holds
// more than max_shard_bytes at a time: 1 where it is asked as it is. The error is a refusal where
// no number of pieces is enough, or what kept the series from being counted.
func (x *exchange) pieces(q plan.Query, p *plan.Plan) (int, error) {
	if n := min(x.s.divide, q.Grid.Len()); n > 1 && q.Divide(n) != nil {
		return n, nil
	}
	light := x.light(p, false)
	if light && x.light(p, true) {
		return 1, nil
	}
	loads, known := x.loads(q, p), numbers{}
	native, err := x.natives(loads, known)
	if err != nil || light && !native {
		return 1, err
	}
	heavy, unknown := x.open(loads, known)
	if len(unknown) > 0 {
		more, _, err := x.beyond(unknown, false, known)
		switch {
		case err == nil:
		case refused(err): // a metric may be too large for a server to count where the selector is not
			more = unknown
		default:
			return 1, err
		}
		heavy = append(heavy, more...)
	}
	heavy, held, err := x.beyond(heavy, true, known)
	if err != nil || len(heavy) == 0 {
		return 1, err
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
				if native && x.givesNative(q, loads, known) {
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
func (x *exchange) loads(q plan.Query, p *plan.Plan) []load {
	var out []load
	for _, l := range p.Leaves {
		if l.Expr == nil {
			continue
		}
		windows, i := map[*parser.VectorSelector]plan.Window{}, 0
		eachSelector(l.Expr, func(vs *parser.VectorSelector) {
			nth := i
			if len(l.Uses) > 0 { // wherever it stands, it reads the same
				nth = l.Uses[0][i]
			}
			if i++; nth < len(q.Windows) {
				windows[vs] = q.Windows[nth]
			}
		})
		for _, part := range l.Parts {
			out = append(out, load{l, part, x.costGrid(l), windows})
		}
	}
	return out
}

// window is what a selector of the load reads.
func (l load) window(vs *parser.VectorSelector) plan.Window {
	w, ok := l.windows[vs]
	if !ok {
		return plan.Window{From: l.part.From, Until: l.part.Until}
	}
	return w
}

// open returns those of the loads of whose shards the sizes of metrics do not show that all of them
// together are little enough: where they show too much, and where they are not known.
func (x *exchange) open(loads []load, known numbers) (heavy, open []load) {
	held, unknown := map[*shard.Shard]int64{}, map[*shard.Shard]bool{}
	for _, l := range loads {
		s := l.part.Shard
		held[s] += cost.Held(l.leaf.Expr, l.grid, func(vs *parser.VectorSelector) (int64, int64) {
			n, ok := x.st.sizes.of(s, nameOf(vs))
			if !ok || x.old(l, vs) {
				unknown[s] = true
				return 0, 0
			}
			return n, x.native(l, vs, known)
		}, nil)
	}
	for _, l := range loads {
		switch s := l.part.Shard; {
		case unknown[s]:
			open = append(open, l)
		case held[s] > x.limits.MaxShardBytes:
			heavy = append(heavy, l)
		}
	}
	return heavy, open
}

// beyond returns those of the loads whose shards would hold too much, and how much each shard
// would. exact tells whether the series of each selector are counted, or all of its metric. What
// was counted is added to the numbers.
func (x *exchange) beyond(loads []load, exact bool, known numbers) ([]load, map[*shard.Shard]int64, error) {
	var unknown []selected
	sum := func() map[*shard.Shard]int64 {
		unknown = nil
		held := map[*shard.Shard]int64{}
		for _, l := range loads {
			held[l.part.Shard] += x.held(l, exact, known, &unknown)
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
	var heavy []load
	for _, l := range loads {
		if held[l.part.Shard] > x.limits.MaxShardBytes {
			heavy = append(heavy, l)
		}
	}
	return heavy, held, nil
}

// held is what a shard would hold for a load, what is not known left out and added to unknown.
func (x *exchange) held(l load, exact bool, known numbers, unknown *[]selected) int64 {
	number := func(t selected) int64 {
		n, ok := x.known(t, known)
		if !ok && unknown != nil {
			*unknown = append(*unknown, t)
		}
		return n
	}
	return cost.Held(l.leaf.Expr, l.grid, func(vs *parser.VectorSelector) (int64, int64) {
		return number(x.selectedOf(l, vs, exact)), x.native(l, vs, known)
	}, func(vs *parser.VectorSelector, by cost.Labels) int64 {
		return number(x.alikeOf(l, vs, exact, by))
	})
}

// fits tells whether no shard of the loads would hold too much over so many of their steps.
func (x *exchange) fits(loads []load, steps int64, known numbers) bool {
	held := map[*shard.Shard]int64{}
	for _, l := range loads {
		l.grid.Steps = min(l.grid.Steps, steps)
		held[l.part.Shard] += x.held(l, true, known, nil)
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
