package cost

import (
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/policy"
)

const (
	// pointBytes is a float and its time in the engine, pointJSON about what it takes in an answer
	// beside that, which is built whole before it is sent.
	pointBytes, pointJSON = 16, 32
	// readBytes is what the storage makes of a series for each selector and block, with a copy of
	// its labels, which the engine holds until the query ends; chunkBytes what it makes of each
	// chunk in the selector's window. Windows beyond the first block meet a few others.
	readBytes, chunkBytes = 400, 48
	blockTime, chunkTime  = 2 * time.Hour, 30 * time.Minute
	fewBlocks             = 3
	// bareBytes is what a result holds of a series whose labels are the storage's; madeBytes of
	// one that was made, with labels and the entries of maps; jsonBytes what a series takes in an
	// answer beside its points.
	bareBytes, madeBytes, jsonBytes = 128, 512, 256
	// matchBytes is what matching takes beside for a series of a result: signatures, and the
	// vectors of a step.
	matchBytes = 256
	// pairBytes is what a join remembers of two series that met, with all their labels.
	pairBytes = 2*2*assumedLabels + policy.PairBytes
	// assumedLabels are the bytes of a stored series' labels.
	assumedLabels = 80
	// maxSeries is what a number of series is cut to, so that sums of products stay numbers.
	maxSeries = 1 << 30
	// maxCover is what a window is cut to, in milliseconds: ten years.
	maxCover = 10 * 365 * 24 * 3_600_000
	// assumedInterval is how often a series is taken to be scraped, where its samples themselves
	// are the result.
	assumedInterval = 5 * time.Second
)

// Grid says at which steps an expression is evaluated: how many, the milliseconds between two, and
// the step, in milliseconds, of a subquery that has none.
type Grid struct{ Steps, Step, Interval int64 }

// Held is the most bytes that an engine holds at a time while it evaluates the expression at the
// steps of the grid, and writes the answer. The function series gives the number of series of a
// selector.
func Held(expr parser.Expr, g Grid, series func(*parser.VectorSelector) int64) int64 {
	e := estimate{interval: g.Interval, series: series}
	p := e.of(expr, tree.Over(g.Steps, g.Step))
	return e.read + max(p.peak, p.held+p.series*(jsonBytes+p.points*pointJSON))
}

// part is what a node gives: at most so many series of so many points each, the bytes that they
// hold, and the most that are held on the way to them.
type part struct{ series, points, held, peak int64 }

// estimate goes through an expression and adds up what is read of the storage.
type estimate struct {
	interval int64
	series   func(*parser.VectorSelector) int64
	read     int64
}

// selects is the number of series of a selector that is evaluated over a span, and looks back by a
// range.
func (e *estimate) selects(vs *parser.VectorSelector, s tree.Span, back time.Duration) int64 {
	n := min(max(e.series(vs), 0), maxSeries)
	window := time.Duration(min(s.Cover, maxCover))*time.Millisecond + back
	e.read += n * (readBytes*(1+min(int64(window/blockTime), fewBlocks)) + chunkBytes*(1+int64(window/chunkTime)))
	return n
}

// give is a result of so many series, each with so many bytes beside its points.
func give(series, points, bytes int64) part {
	series = min(max(series, 0), maxSeries)
	held := series * (points*pointBytes + bytes)
	return part{series, points, held, held}
}

// after is what a node gives whose arguments held so much until then, at most, and hold so much
// still.
func (p part) after(peak, held int64) part {
	p.peak = max(peak, held+p.held)
	return p
}

// of goes through an expression. Its depth is that of the expression, which policy bounds.
func (e *estimate) of(node parser.Node, s tree.Span) part {
	switch n := node.(type) {
	case *parser.VectorSelector:
		return give(e.selects(n, s, 0), s.Steps, bareBytes)
	case *parser.MatrixSelector: // the samples themselves: a range at one step
		vs, ok := n.VectorSelector.(*parser.VectorSelector)
		if !ok {
			return part{}
		}
		points := int64(n.Range/assumedInterval) + 1
		if n.RangeExpr != nil {
			points = tree.Countless
		}
		return give(e.selects(vs, s, n.Range), points, bareBytes)
	case *parser.SubqueryExpr:
		in, _ := s.Inside(n, e.interval)
		return e.of(n.Expr, in)
	case *parser.ParenExpr:
		return e.of(n.Expr, s)
	case *parser.UnaryExpr: // in place
		return e.of(n.Expr, s)
	case *parser.StepInvariantExpr: // at one step, then copied to all
		in := e.of(n.Expr, tree.Over(1, 0))
		return give(in.series, s.Steps, bareBytes).after(in.peak, in.held)
	case *parser.AggregateExpr:
		return e.aggregate(n, s)
	case *parser.BinaryExpr:
		return e.binary(n, s)
	case *parser.Call:
		return e.call(n, s)
	}
	return give(1, s.Steps, bareBytes) // a number, or a text
}

// aggregate is a result with a series for each group. How many there are is in no text; each series
// may be one.
func (e *estimate) aggregate(n *parser.AggregateExpr, s tree.Span) part {
	in := e.of(n.Expr, s)
	groups := in.series
	if len(n.Grouping) == 0 && !n.Without && sole(n.Op) {
		groups = 1
	}
	return give(groups, s.Steps, madeBytes).after(in.peak, in.held)
}

// sole tells whether an aggregation gives one series for each group.
func sole(op parser.ItemType) bool {
	switch op {
	case parser.TOPK, parser.BOTTOMK, parser.LIMITK, parser.LIMIT_RATIO, parser.COUNT_VALUES:
		return false
	}
	return true
}

// binary holds both sides, which are evaluated one after the other, and what comes of them.
func (e *estimate) binary(n *parser.BinaryExpr, s tree.Span) part {
	l, r := e.of(n.LHS, s), e.of(n.RHS, s)
	var series int64
	switch {
	case n.Op == parser.LOR:
		series = l.series + r.series
	case n.Op.IsSetOperator():
		series = l.series
	default: // many to one, or one of the sides is a number
		series = max(l.series, r.series)
		vectors := n.LHS.Type() == parser.ValueTypeVector && n.RHS.Type() == parser.ValueTypeVector
		if vm := n.VectorMatching; vectors && vm != nil && vm.Card == parser.CardOneToOne {
			series = min(l.series, r.series)
		}
	}
	pairs := e.pairs(n, s, l.series, r.series) * pairBytes
	return give(series, s.Steps, madeBytes+matchBytes).after(max(l.peak, l.held+r.peak), l.held+r.held+pairs)
}

// pairs is how many times two series may meet in a join that lets many meet another one at each
// step: the engine remembers each two. Where on() names labels that tell the chosen ones apart,
// each meets one.
func (e *estimate) pairs(n *parser.BinaryExpr, s tree.Span, l, r int64) int64 {
	if !policy.MeetsChosen(n) || n.VectorMatching.On && len(n.VectorMatching.MatchingLabels) > 0 {
		return 0
	}
	if n.VectorMatching.Card == parser.CardOneToMany {
		l, r = r, l
	}
	return l * max(0, min(s.Steps, r)-1)
}

// call holds all arguments, but for ranges of stored samples, which are read one series after the
// other.
func (e *estimate) call(n *parser.Call, s tree.Span) part {
	var series, held, peak int64
	for _, arg := range n.Args {
		a := e.of(arg, s)
		if _, ok := tree.Bare(arg).(*parser.MatrixSelector); ok {
			a.held, a.peak = 0, 0
		}
		series, peak = max(series, a.series), max(peak, held+a.peak)
		held += a.held
	}
	switch n.Func.Name {
	case "absent", "scalar", "vector", "time", "pi":
		series = 1
	case "absent_over_time": // which is found out of a result for each series
		all := give(series, s.Steps, madeBytes).after(peak, held)
		return give(1, s.Steps, madeBytes).after(all.peak, all.held)
	case "histogram_quantiles": // one for each quantile, at most as many as there are buckets
	case "label_replace", "label_join": // in place, but for the labels
		out := give(series, s.Steps, madeBytes)
		return out.after(peak, 0)
	}
	return give(max(series, 1), s.Steps, madeBytes).after(peak, held)
}
