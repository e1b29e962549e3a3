package plan

import (
	"context"
	"math"
	"slices"
	"sort"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// MaxPieces is how many parts a range query is divided into at most: each asks all of its
// shards.
const MaxPieces = 32

// Stretches divides the steps of a range query for which some shard has no replica that is whole
// over everything that they read: into runs of steps over which each shard has one, and runs of
// the other steps, in the order of time. So it does those that read the time since a group's
// targets are being divided anew, and those before. Each run is to be planned by itself; the
// answers follow each other. A replica that restarted yesterday then costs the steps that look
// at its restart, not the day. The result is nil where the query is not divided: one replica
// holds all of it, no step is any better, there would be too many runs, or a step on its own
// would mean something else.
func (v *View) Stretches(ctx context.Context, q Query) []Query {
	n := q.Grid.Len()
	if !q.Range || n < 2 || q.Raw != "" || q.Constant {
		return nil
	}
	expr := q.Expr
	if expr == nil {
		var err error
		if expr, err = q.parse(); err != nil {
			return nil
		}
	}
	if tied(expr) {
		return nil
	}
	p := &planner{v: v, ctx: ctx, q: q, root: expr}
	p.look()
	type use struct{ window, back Window } // all that a shard is asked for, and how far before a step it reaches
	uses := map[*shard.Shard]*use{}
	var order []*shard.Shard
	last := q.Grid.Time(n - 1)
	for _, r := range p.reads {
		w := r.window
		if w.From == math.MinInt64 || w.Until == math.MaxInt64 {
			return nil
		}
		for _, l := range r.legs {
			u := uses[l.Shard]
			if u == nil {
				u = &use{Window{math.MaxInt64, math.MinInt64}, Window{math.MinInt64, math.MaxInt64}}
				uses[l.Shard], order = u, append(order, l.Shard)
			}
			u.window = Window{min(u.window.From, w.From), max(u.window.Until, w.Until)}
			u.back = Window{max(u.back.From, q.Grid.Start-w.From), min(u.back.Until, last-w.Until)}
		}
	}
	cuts := map[int]bool{0: true}
	bad := make([]bool, n)
	for _, s := range order {
		u := uses[s]
		if since, divides := s.DividedSince(u.window.Until); divides { // what reads the time since then is raw
			if first := max(stepAt(q.Grid, since, u.back.Until, true), 0); first < n {
				cuts[first] = true
				for i := first; i < n; i++ {
					bad[i] = true
				}
			}
			continue
		}
		lacks, known := s.Lacks(ctx, u.window.From, u.window.Until, v.now)
		if !known {
			return nil
		}
		divide(q.Grid, u.back, lacks, cuts, bad)
	}
	if len(cuts) < 2 || len(cuts) > MaxPieces || !slices.Contains(bad, false) {
		return nil
	}
	starts := make([]int, 0, len(cuts))
	for i := range cuts {
		starts = append(starts, i)
	}
	sort.Ints(starts)
	var out []Query
	for i, first := range starts {
		end := n - 1
		if i+1 < len(starts) {
			end = starts[i+1] - 1
		}
		out = append(out, q.steps(first, end))
	}
	return out
}

// Divide divides the steps of a range query into that many pieces of about equal length, in the
// order of time. Each is to be planned by itself; the answers follow each other. The result is nil
// where there are not as many steps, or where a step on its own would mean something else.
func (q Query) Divide(pieces int) []Query {
	if !q.Divides(pieces) {
		return nil
	}
	n, out := q.Grid.Len(), make([]Query, pieces)
	for i := range out {
		out[i] = q.steps(n*i/pieces, n*(i+1)/pieces-1)
	}
	return out
}

// Divides tells whether Divide would give that many pieces.
func (q *Query) Divides(pieces int) bool {
	return q.Range && pieces >= 2 && pieces <= min(q.Grid.Len(), MaxPieces) && q.Raw == "" && !q.Constant && q.Expr != nil && !tied(q.Expr)
}

// steps is the query over some of its steps, both ends inclusive.
func (q Query) steps(first, last int) Query {
	whole := q.Grid
	end := whole.Time(whole.Len() - 1)
	q.Grid = merge.Grid{Start: whole.Time(first), End: whole.Time(last), Step: whole.Step}
	windows := make([]Window, len(q.Windows))
	for i, w := range q.Windows {
		windows[i] = Window{w.From + q.Grid.Start - whole.Start, w.Until - (end - q.Grid.End)}
	}
	q.Windows = windows
	return q
}

// divide adds the steps before which the replica that is read has to change, and marks those that
// no replica is whole for. back is how far before a step's time what it reads begins and ends.
func divide(g merge.Grid, back Window, lacks []shard.Lack, cuts map[int]bool, bad []bool) {
	n := len(bad)
	missing := make([][][2]int, len(lacks)) // of each replica the runs of steps that it is not whole for
	for i, l := range lacks {
		for _, s := range l.Spans {
			first, last := stepAt(g, s.From, back.Until+1, true), stepAt(g, s.Until, back.From, false)
			if first = max(first, 0); first > min(last, n-1) {
				continue
			}
			missing[i] = append(missing[i], [2]int{first, min(last, n-1)})
		}
	}
	if len(lacks) == 0 {
		return
	}
	for at := 0; at < n; {
		best, none := at, n
		for _, runs := range missing {
			good := n // the first step from at on that the replica is not whole for
			for _, r := range runs {
				if r[1] < at {
					continue
				}
				if good = r[0]; r[0] <= at {
					none = min(none, r[1]+1)
				}
				break
			}
			best = max(best, good)
		}
		if best <= at { // nobody: up to where somebody is again
			for i := at; i < none; i++ {
				bad[i] = true
			}
			best = none
		}
		if at = best; at < n {
			cuts[at] = true
		}
	}
}

// stepAt is the first step whose time is at ms+after or later, or the last one whose time is not
// later.
func stepAt(g merge.Grid, ms, after int64, first bool) int {
	if ms == math.MaxInt64 {
		return math.MaxInt32
	}
	d := ms + after - g.Start
	q, r := d/g.Step, d%g.Step
	if r < 0 {
		q, r = q-1, r+g.Step
	}
	if first && r > 0 {
		q++
	}
	return int(min(max(q, math.MinInt32), math.MaxInt32))
}

// tied tells whether a step of the expression means something else where it is evaluated alone, or
// whether its series, which are different ones at different times, could become equal: over all
// steps together that is an error.
func tied(n parser.Node) bool {
	is := false
	switch n := n.(type) {
	case *parser.VectorSelector:
		is = n.Timestamp != nil || n.StartOrEnd != 0 || n.OriginalOffsetExpr != nil || !named(n)
	case *parser.MatrixSelector:
		is = n.RangeExpr != nil
	case *parser.SubqueryExpr:
		is = n.Timestamp != nil || n.StartOrEnd != 0 || n.RangeExpr != nil || n.StepExpr != nil || n.OriginalOffsetExpr != nil ||
			severalNames(n.Expr) // a function over it drops the names of all steps' series
	case *parser.Call:
		switch n.Func.Name {
		case "start", "end", "step", "range", "label_replace", "label_join", "info":
			is = true
		}
	}
	for child := range parser.ChildrenIter(n) {
		is = is || tied(child)
	}
	return is
}

// severalNames tells whether the series of an expression can have several names, by an or.
func severalNames(e parser.Expr) bool {
	names := map[string]bool{}
	namesOf(e, names)
	return len(names) > 1
}

// namesOf adds the names that series of an expression can have; an empty one is that they have
// none.
func namesOf(e parser.Expr, names map[string]bool) {
	switch e := e.(type) {
	case *parser.ParenExpr:
		namesOf(e.Expr, names)
	case *parser.StepInvariantExpr:
		namesOf(e.Expr, names)
	case *parser.SubqueryExpr:
		namesOf(e.Expr, names)
	case *parser.MatrixSelector:
		namesOf(e.VectorSelector, names)
	case *parser.VectorSelector:
		for _, m := range e.LabelMatchers {
			if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
				names[m.Value] = true
			}
		}
	case *parser.BinaryExpr:
		switch {
		case e.Op == parser.LOR:
			namesOf(e.LHS, names)
			namesOf(e.RHS, names)
		case e.Op.IsSetOperator(), e.Op.IsComparisonOperator() && !e.ReturnBool:
			if e.LHS.Type() == parser.ValueTypeScalar {
				namesOf(e.RHS, names)
			} else {
				namesOf(e.LHS, names)
			}
		default:
			names[""] = true
		}
	case *parser.AggregateExpr:
		switch {
		case e.Op == parser.TOPK, e.Op == parser.BOTTOMK, e.Op == parser.LIMITK, e.Op == parser.LIMIT_RATIO,
			slices.Contains(e.Grouping, model.MetricNameLabel) != e.Without:
			namesOf(e.Expr, names)
		default:
			names[""] = true
		}
	case *parser.Call:
		switch e.Func.Name {
		case "last_over_time", "first_over_time", "sort", "sort_desc", "sort_by_label", "sort_by_label_desc":
			namesOf(e.Args[0], names)
		default:
			names[""] = true
		}
	default:
		names[""] = true
	}
}

// named tells whether a selector selects series of one name.
func named(n *parser.VectorSelector) bool {
	return slices.ContainsFunc(n.LabelMatchers, func(m *labels.Matcher) bool {
		return m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual && m.Value != ""
	})
}
