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
	// nativeBytes and nativeJSON are the same for a native histogram, of 300 buckets. Nothing tells
	// how many there are; clients have a limit of 160 as a rule.
	nativeBytes, nativeJSON = 3 << 10, 14 << 10
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
	// maxSeries is what a number of series is cut to, and maxHeld one of bytes, so that those of
	// many leaves can be added up.
	maxSeries, maxHeld = 1 << 30, 1 << 50
	// maxCover is what a window is cut to, in milliseconds: ten years.
	maxCover = 10 * 365 * 24 * 3_600_000
	// assumedInterval is how often a series is taken to be scraped, where its samples themselves
	// are the result.
	assumedInterval = 5 * time.Second
)

// Grid says at which steps an expression is evaluated: how many, the milliseconds between two, the
// step of a subquery that has none, and how far back a selector without a range looks for a sample.
// Storage reads all chunks of that, though only the last sample is wanted.
type Grid struct{ Steps, Step, Interval, Lookback int64 }

// Held is the most bytes that an engine holds at a time while it evaluates the expression at the
// steps of the grid, and writes the answer; 1 PiB stands for anything more.
func Held(expr parser.Expr, g Grid, series Series, alike Alike) int64 {
	return HeldBy(expr, g, series, alike, nil)
}

// HeldBy is Held where it is also known how many values labels have: an aggregation by these has no
// more groups than there are combinations of them.
func HeldBy(expr parser.Expr, g Grid, series Series, alike Alike, values Values) int64 {
	e := estimate{times: tree.TimesOf(g.Steps, g.Step, g.Interval), series: series, alike: alike, values: values}
	e.lookback = time.Duration(min(max(g.Lookback, 0), maxCover)) * time.Millisecond
	p := e.of(expr, tree.Over(g.Steps, g.Step))
	held := e.read + max(p.peak, p.held+p.series*jsonBytes+p.points*(p.series*pointJSON+p.native*nativeJSON))
	return int64(min(held, maxHeld))
}

// Native tells whether the result of an expression has native histograms.
func Native(expr parser.Expr, series Series) bool {
	e := estimate{times: tree.TimesOf(1, 0, 1), series: series}
	return e.of(expr, tree.Over(1, 0)).native > 0
}

// Series gives the number of series of a selector, and how many of them are native histograms. A
// number below 0 counts as 0, and more native histograms than series as all of the series.
type Series func(*parser.VectorSelector) (series, native int64)

// part is what a node gives: at most so many series of so many points each, of which so many are
// native histograms, the bytes that they hold, and the most that are held on the way to them.
// Products of what a text says and a server tells are numbers of any size.
type part struct{ series, native, points, held, peak float64 }

// estimate goes through an expression and adds up what is read of the storage.
type estimate struct {
	times  tree.Times
	series Series
	alike  Alike
	values Values
	// lookback is how far back selectors without a range look.
	lookback time.Duration
	read     float64
}

// selects gives the series of a selector that is evaluated over a span, looks back by a range, and
// gives so many points of each.
func (e *estimate) selects(vs *parser.VectorSelector, s tree.Span, back time.Duration, points int64) part {
	n, native := e.series(vs)
	n = min(max(n, 0), maxSeries)
	window := time.Duration(min(s.Cover, maxCover))*time.Millisecond + back
	e.read += float64(n) * float64(readBytes*(1+min(int64(window/blockTime), fewBlocks))+chunkBytes*(1+int64(window/chunkTime)))
	return give(float64(n), float64(native), points, bareBytes)
}

// give is a result of so many series, so many of them native histograms, each with so many bytes
// beside its points.
func give(series, native float64, points int64, bytes float64) part {
	native = min(max(native, 0), series)
	held := series*bytes + float64(points)*(series*pointBytes+native*nativeBytes)
	return part{series, native, float64(points), held, held}
}

// after is what a node gives whose arguments held so much until then, at most, and hold so much
// still.
func (p part) after(peak, held float64) part {
	p.peak = max(peak, held+p.held)
	return p
}

// of goes through an expression. Its depth is that of the expression, which policy bounds.
func (e *estimate) of(node parser.Node, s tree.Span) part {
	switch n := node.(type) {
	case *parser.VectorSelector:
		return e.selects(n, s, e.lookback, s.Steps)
	case *parser.MatrixSelector: // the samples themselves: a range at one step
		vs, ok := n.VectorSelector.(*parser.VectorSelector)
		if !ok {
			return part{}
		}
		width, points := maxCover*time.Millisecond, int64(tree.Countless)
		if ms, ok := e.times.Of(n.Range, n.RangeExpr); ok {
			width = time.Duration(min(ms, maxCover)) * time.Millisecond
			points = int64(width/assumedInterval) + 1
		}
		return e.selects(vs, s, width, points)
	case *parser.SubqueryExpr:
		in, _ := s.Inside(n, e.times)
		return e.of(n.Expr, in)
	case *parser.ParenExpr:
		return e.of(n.Expr, s)
	case *parser.UnaryExpr: // in place
		return e.of(n.Expr, s)
	case *parser.StepInvariantExpr: // at one step, then copied to all
		in := e.of(n.Expr, tree.Over(1, 0))
		return give(in.series, in.native, s.Steps, bareBytes).after(in.peak, in.held)
	case *parser.AggregateExpr:
		return e.aggregate(n, s)
	case *parser.BinaryExpr:
		return e.binary(n, s)
	case *parser.Call:
		return e.call(n, s)
	}
	return give(1, 0, s.Steps, bareBytes) // a number, or a text
}

// aggregate is a result with a series for each group. How many there are is in no text; each series
// may be one, but for what is known of the values of labels.
func (e *estimate) aggregate(n *parser.AggregateExpr, s tree.Span) part {
	in := e.of(n.Expr, s)
	groups := in.series
	if !n.Without && sole(n.Op) {
		groups = min(groups, e.groups(n))
	}
	native := min(in.native, groups)
	switch n.Op {
	case parser.SUM, parser.AVG, parser.LIMITK, parser.LIMIT_RATIO:
	default: // which are of floats, or count
		native = 0
	}
	return give(groups, native, s.Steps, madeBytes).after(in.peak, in.held)
}

// groups is how many groups an aggregation by labels has at most, as far as that is known. Of
// labels that the expression makes nothing is.
func (e *estimate) groups(n *parser.AggregateExpr) float64 {
	if len(n.Grouping) == 0 {
		return 1
	}
	if e.values == nil || makesLabels(n.Expr) {
		return maxHeld
	}
	out := 1.0
	for _, label := range n.Grouping {
		v, ok := e.values(label)
		if !ok {
			return maxHeld
		}
		out *= float64(v + 1) // some series may have none
	}
	return out
}

// makesLabels tells whether series of an expression may have values of labels that no stored one
// has.
func makesLabels(node parser.Node) bool {
	switch n := node.(type) {
	case *parser.Call:
		switch n.Func.Name {
		case "label_replace", "label_join", "info", "histogram_quantiles":
			return true
		}
	case *parser.AggregateExpr:
		if n.Op == parser.COUNT_VALUES {
			return true
		}
	}
	for child := range parser.ChildrenIter(node) {
		if makesLabels(child) {
			return true
		}
	}
	return false
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
	var series, native float64
	switch {
	case n.Op == parser.LOR:
		series, native = l.series+r.series, l.native+r.native
	case n.Op.IsSetOperator():
		series, native = l.series, l.native
	default: // many to one, or one of the sides is a number
		series, native = max(l.series, r.series), max(l.native, r.native)
		vectors := n.LHS.Type() == parser.ValueTypeVector && n.RHS.Type() == parser.ValueTypeVector
		if vm := n.VectorMatching; vectors && vm != nil && vm.Card == parser.CardOneToOne {
			series = min(l.series, r.series)
		}
	}
	pairs := float64(0)
	if meets := e.meets(n, s); meets > 1 {
		of := l.series
		if n.VectorMatching.Card == parser.CardOneToMany {
			of = r.series
		}
		pairs = of * (meets - 1)
		if policy.CopiesChosen(n) { // each becomes as many as it has met
			series, native = series*meets, native*meets
		}
	}
	out := give(series, native, s.Steps, madeBytes+matchBytes)
	return out.after(max(l.peak, l.held+r.peak), l.held+r.held+pairs*pairBytes)
}

// call holds all arguments, but for ranges of stored samples, of which it holds those of one series
// at a time.
func (e *estimate) call(n *parser.Call, s tree.Span) part {
	var series, native, held, peak float64
	for _, arg := range n.Args {
		a := e.of(arg, s)
		if _, ok := tree.Bare(arg).(*parser.MatrixSelector); ok {
			a.held = 0
			a.peak = min(a.series, 1)*a.points*pointBytes + min(a.native, 1)*a.points*nativeBytes
		}
		series, native, peak = max(series, a.series), max(native, a.native), max(peak, held+a.peak)
		held += a.held
	}
	if !keepsNative[n.Func.Name] {
		native = 0
	}
	switch n.Func.Name {
	case "absent", "scalar", "vector", "time", "pi":
		series = 1
	case "absent_over_time": // which is found out of a result for each series
		all := give(series, 0, s.Steps, madeBytes).after(peak, held)
		return give(1, 0, s.Steps, madeBytes).after(all.peak, all.held)
	case "histogram_quantiles": // one for each quantile of each histogram
		series *= float64(max(len(n.Args)-2, 1))
	case "label_replace", "label_join": // in place, but for the labels
		out := give(series, native, s.Steps, madeBytes)
		return out.after(peak, 0)
	}
	return give(max(series, 1), native, s.Steps, madeBytes).after(peak, held)
}

// keepsNative are the functions that give native histograms where they are given some.
var keepsNative = map[string]bool{
	"rate": true, "increase": true, "delta": true, "irate": true, "idelta": true,
	"sum_over_time": true, "avg_over_time": true, "first_over_time": true, "last_over_time": true,
	"label_replace": true, "label_join": true, "info": true, "sort_by_label": true, "sort_by_label_desc": true,
}
