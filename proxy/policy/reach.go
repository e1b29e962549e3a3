package policy

import (
	"math"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// window is what one selector of an expression reads.
type window struct {
	selector   *parser.VectorSelector
	pos        posrange.PositionRange
	start, end int64 // ms, inclusive: the oldest and the newest instant read
	width      int64 // ms: its range and those of the subqueries around it, which one evaluation reads
}

// subquery is what one subquery of an expression costs.
type subquery struct {
	pos    posrange.PositionRange
	points int64 // steps at which it is evaluated for the whole request
	visits int64 // how often all outer steps together look at one of its points, for one series
	step   int64 // ms
}

// frame is how often and over which stretch of time a node is evaluated.
type frame struct {
	start, end int64 // ms: first and last evaluation
	steps      int64 // number of evaluations
	inner      int64 // ms: ranges of the subqueries around the node, since the innermost @
}

// walker goes through an expression and notes what its selectors read and its subqueries cost. Its
// depth is that of the expression, which the pre-scan bounds.
type walker struct {
	outer    frame
	lookback int64
	step     time.Duration // of the request, for duration expressions
	width    time.Duration // end - start of the request, likewise

	windows    []window
	subqueries []subquery
	info       map[*parser.VectorSelector]bool // selectors that are info()'s second argument; nil for none
	inInfo     int                             // calls of info() whose first argument is being visited
	inParam    int                             // aggregates whose parameter is being visited
	function   string                          // whose argument is being visited
	effort     int64                           // visits of points, weighted by what is done at each, for one series
	dearest    making                          // where the most of these are
	err        error
}

// walk returns what the request's expression reads.
func walk(q *Query, expr parser.Expr) *walker {
	r := q.Request
	w := &walker{lookback: defaultLookbackMs, step: r.Step}
	switch r.ID.Span() {
	case endpoint.SpanSteps, endpoint.SpanRange:
		w.outer = frame{start: r.Start.Or(q.NowMs), end: r.End.Or(q.NowMs), steps: 1}
		if step := ms(r.Step); step > 0 {
			w.outer.steps = satAdd(satSub(w.outer.end, w.outer.start)/step, 1)
		}
		w.width = time.Duration(satMul(max(0, satSub(w.outer.end, w.outer.start)), int64(time.Millisecond)))
	default:
		at := r.Time.Or(q.NowMs)
		w.outer = frame{start: at, end: at, steps: 1}
	}
	if r.LookbackDelta > 0 {
		w.lookback = ms(r.LookbackDelta)
	}
	w.visit(expr, w.outer)
	return w
}

func (w *walker) visit(node parser.Node, f frame) {
	w.effort = satAdd(w.effort, satMul(f.steps, nodeVisits))
	switch n := node.(type) {
	case *parser.MatrixSelector:
		if vs, ok := n.VectorSelector.(*parser.VectorSelector); ok {
			width := w.duration(n.Range, n.RangeExpr)
			w.window(n, vs, f.steps, width)
			w.selector(vs, n.PositionRange(), f, width)
		}
		return
	case *parser.VectorSelector:
		w.selector(n, n.PosRange, f, 0)
		return
	case *parser.SubqueryExpr:
		w.visit(n.Expr, w.subquery(n, f))
		return
	case *parser.AggregateExpr:
		w.visit(n.Expr, f)
		if n.Param != nil {
			w.inParam++
			w.visit(n.Param, f)
			w.inParam--
		}
		return
	case *parser.Call:
		if n.Func != nil && n.Func.Name == "info" {
			w.visitInfo(n, f)
			return
		}
		for _, arg := range n.Args {
			w.function = n.Func.Name
			w.visit(arg, f)
		}
		return
	}
	for child := range parser.ChildrenIter(node) {
		w.visit(child, f)
	}
}

// visitInfo visits a call of info(), which reads target_info wherever its first argument is read,
// and back from there by the lookback.
func (w *walker) visitInfo(n *parser.Call, f frame) {
	for i, arg := range n.Args {
		switch vs, ok := arg.(*parser.VectorSelector); {
		case i == 1 && ok:
			if w.info == nil {
				w.info = map[*parser.VectorSelector]bool{}
			}
			w.info[vs] = true
			w.visit(arg, f)
		default:
			w.inInfo++
			w.visit(arg, f)
			w.inInfo--
		}
	}
}

// selector notes what a selector reads; width is its range in ms, 0 for an instant selector.
func (w *walker) selector(vs *parser.VectorSelector, pos posrange.PositionRange, f frame, width int64) {
	start, end, inner := f.start, f.end, f.inner
	if at, ok := w.at(vs.Timestamp, vs.StartOrEnd); ok {
		start, end, inner = at, at, 0
	}
	offset := w.offset(vs.OriginalOffset, vs.OriginalOffsetExpr)
	start, end = satSub(start, offset), satSub(end, offset)
	back := width
	if width == 0 || vs.Anchored || vs.Smoothed {
		back = satAdd(back, w.lookback)
	}
	if w.inInfo > 0 {
		back = max(back, w.lookback)
	}
	if vs.Smoothed {
		end = satAdd(end, w.lookback)
	}
	w.windows = append(w.windows, window{selector: vs, pos: pos, start: satSub(start, back), end: end, width: satAdd(inner, width)})
}

// subquery notes what a subquery costs and returns the frame of what is inside it.
func (w *walker) subquery(n *parser.SubqueryExpr, f frame) frame {
	width := w.duration(n.Range, n.RangeExpr)
	step := w.duration(n.Step, n.StepExpr)
	if step == 0 && n.StepExpr == nil && n.Step == 0 {
		step = defaultSubqueryStepMs
	}
	step = max(step, 1)
	if at, ok := w.at(n.Timestamp, n.StartOrEnd); ok {
		f = frame{start: at, end: at, steps: 1}
	}
	offset := w.offset(n.OriginalOffset, n.OriginalOffsetExpr)
	in := frame{
		start: satSub(satSub(f.start, offset), width),
		end:   satSub(f.end, offset),
		inner: satAdd(f.inner, width),
	}
	in.steps = satAdd(satSub(in.end, in.start)/step, 1)
	each := satAdd(width/step, 1)
	visits := satMul(f.steps, each)
	w.subqueries = append(w.subqueries, subquery{pos: n.PositionRange(), points: in.steps, visits: visits, step: step})
	w.spend(n, satMul(visits, weight(w.function, each)))
	return in
}

// window notes what a function does over the samples of a range, where it is dear: others look at
// each only once as it comes into the window.
func (w *walker) window(n *parser.MatrixSelector, vs *parser.VectorSelector, steps, width int64) {
	if w.function != "quantile_over_time" && w.function != "mad_over_time" {
		return
	}
	if _, ok := w.at(vs.Timestamp, vs.StartOrEnd); ok {
		steps = 1
	}
	each := satAdd(width/assumedIntervalMs, 1)
	w.spend(n, satMul(satMul(steps, each), weight(w.function, each)))
}

// spend notes the effort at a node.
func (w *walker) spend(n parser.Node, effort int64) {
	w.effort = satAdd(w.effort, effort)
	w.dearest.raise(w.function, n, effort)
}

// weight is what a function does at each point of a window of so many, in visits of sum_over_time,
// which take two to four nanoseconds.
func weight(function string, points int64) int64 {
	switch function {
	case "quantile_over_time": // sorts them: 15 ns times the logarithm
		return 4 * int64(bits.Len64(uint64(points)))
	case "mad_over_time": // sorts them twice
		return 8 * int64(bits.Len64(uint64(points)))
	case "predict_linear":
		return 5
	case "deriv", "double_exponential_smoothing", "stddev_over_time", "stdvar_over_time":
		return 3
	}
	return 1
}

// at is the instant of an @ modifier. In the parameter of an aggregate the engine does not resolve
// start() and end(), and evaluates at each step's own time.
func (w *walker) at(ts *int64, preprocessor parser.ItemType) (int64, bool) {
	switch {
	case w.inParam > 0 && preprocessor != 0:
		return 0, false
	case preprocessor == parser.START:
		return w.outer.start, true
	case preprocessor == parser.END:
		return w.outer.end, true
	case ts != nil:
		return *ts, true
	}
	return 0, false
}

// duration is a range or step in ms: the literal, or the value of the duration expression. Both are
// at least 0.
func (w *walker) duration(literal time.Duration, expr *parser.DurationExpr) int64 {
	if expr == nil {
		return max(0, ms(literal))
	}
	v := w.seconds(expr)
	if v <= 0 {
		w.fail("duration must be greater than 0", expr)
		return 0
	}
	return ms(v2d(v))
}

// offset is an offset in ms, which may be negative.
func (w *walker) offset(literal time.Duration, expr *parser.DurationExpr) int64 {
	if expr == nil {
		return ms(literal)
	}
	return ms(v2d(w.seconds(expr)))
}

// v2d turns seconds that seconds has checked into a duration.
func v2d(seconds float64) time.Duration { return time.Duration(seconds*1000) * time.Millisecond }

// seconds is the value of a duration expression, which is finite and fits a time.Duration, or else
// 1 with w.err set.
func (w *walker) seconds(expr *parser.DurationExpr) float64 {
	v := tree.Seconds(expr, w.step.Seconds(), w.width.Seconds())
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		w.fail("duration is NaN or infinite", expr)
		return 1
	case v >= math.MaxInt64/1e9 || v <= math.MinInt64/1e9:
		w.fail("duration is out of range", expr)
		return 1
	}
	return v
}

func (w *walker) fail(why string, expr *parser.DurationExpr) {
	if w.err == nil {
		pos := expr.PositionRange()
		w.err = qerr.New(qerr.BadData, `invalid parameter "query": %d:%d: %s`, pos.Start, pos.End, why)
	}
}

// selectorsOf lists the selectors of an expression and what they read.
func selectorsOf(q *Query, expr parser.Expr) *walker {
	w := walk(q, expr)
	q.Selectors = slices.Grow(q.Selectors, len(w.windows))
	for _, read := range w.windows {
		vs := read.selector
		class := classOf(vs.LabelMatchers, q.group, q.Request.ID)
		if w.info[vs] && class == Unselective && !looksAt(vs, model.MetricNameLabel) {
			class = Named // info() adds __name__="target_info" itself
		}
		q.Selectors = append(q.Selectors, Selector{vs.LabelMatchers, class})
		if looksAt(vs, tree.LeafLabel) && w.err == nil {
			w.err = qerr.New(qerr.BadData, `invalid parameter "query": %d:%d: the label %s is Spillway's own; no series has it`,
				vs.PosRange.Start, vs.PosRange.End, tree.LeafLabel)
		}
	}
	return w
}

// looksAt tells whether a selector has any matcher on a label.
func looksAt(vs *parser.VectorSelector, name string) bool {
	return slices.ContainsFunc(vs.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == name })
}

// selects tells whether an expression reads series. info() reads target_info even where nothing
// else is selected.
func selects(node parser.Node) bool {
	switch n := node.(type) {
	case *parser.VectorSelector:
		return true
	case *parser.Call:
		if n.Func != nil && n.Func.Name == "info" {
			return true
		}
	}
	for child := range parser.ChildrenIter(node) {
		if selects(child) {
			return true
		}
	}
	return false
}

// span is the stretch of time that the windows cover together.
func span(ws []window) (start, end int64) {
	if len(ws) == 0 {
		return 0, 0
	}
	start, end = ws[0].start, ws[0].end
	for _, w := range ws[1:] {
		start, end = min(start, w.start), max(end, w.end)
	}
	return start, end
}

// selectorRange refuses selectors that read more than max_range at one evaluation, by their own
// range and those of the subqueries around them. An offset or @ moves what is read and makes it no
// wider.
type selectorRange struct{}

func (selectorRange) Name() string { return "selector_range" }

func (selectorRange) Check(q *Query) error {
	if q.reach == nil {
		return nil
	}
	if q.reach.err != nil {
		return q.reach.err
	}
	for _, w := range q.reach.windows {
		if w.width > ms(q.Limits.MaxRange) {
			return refuseRange(q, w.width, "the selector at %s reads %s for each of its results", w.pos.StartPosInput(q.Request.Query, 0), span2text(w.width))
		}
	}
	return nil
}

// subqueryCost refuses subqueries with too many steps: a short step costs as much as a long range.
// What all of the text does together at one series is bounded too.
type subqueryCost struct{}

func (subqueryCost) Name() string { return "subquery_cost" }

func (subqueryCost) Check(q *Query) error {
	if q.reach == nil {
		return nil
	}
	for _, s := range q.reach.subqueries {
		if s.points <= maxSubqueryPoints && s.visits <= maxSubqueryVisits {
			continue
		}
		value, seen := int64(maxSubqueryPoints), s.points
		what := "is evaluated at"
		if s.points <= maxSubqueryPoints {
			value, seen, what = maxSubqueryVisits, s.visits, "makes the steps around it look at"
		}
		return qerr.Refuse(BoundMaxPoints, strconv.FormatInt(value, 10), strconv.FormatInt(seen, 10),
			"give the subquery a longer step (it has "+span2text(s.step)+") or a shorter range, or evaluate its inside by a recording rule",
			"the subquery at %s %s %s points for each series and the bound is %d", s.pos.StartPosInput(q.Request.Query, 0), what, count(seen), value)
	}
	if effort := q.reach.effort; effort > maxEffort {
		most := ""
		if w := q.reach.dearest; w.seen > effort/2 && w.name != "" {
			most = ", most of them by " + w.name + " over the range at " + w.pos.StartPosInput(q.Request.Query, 0)
		}
		return qerr.Refuse(BoundMaxPoints, strconv.Itoa(maxEffort), strconv.FormatInt(effort, 10),
			"ask for fewer steps, shorten the ranges, give subqueries a longer step, split the query, or evaluate a part by a recording rule",
			"the query looks at points %s times for each series%s, and the bound is %d", count(effort), most, maxEffort)
	}
	return nil
}

// count writes a number that may have been held at the end of int64.
func count(n int64) string {
	if n == math.MaxInt64 {
		return "countless"
	}
	return strconv.FormatInt(n, 10)
}
