package plan

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// Query is an expression to plan.
type Query struct {
	// Text is its source; it parses.
	Text string
	// Expr is Text parsed by Parser, or nil. It is only read, so that whoever has it need not parse it twice where shards answer the whole query.
	Expr parser.Expr
	// Grid is when it is evaluated, Range whether as a range query.
	Grid  merge.Grid
	Range bool
	// Windows are what each selector reads, in the order of the text.
	Windows []Window
	// Interval is the step of a subquery that has none.
	Interval time.Duration
	// Raw keeps all but whole queries of one shard from running on shards, for the reason given; empty does not.
	Raw string
	// Inexact tells that the reason is that the parts, as shards answered them, could not be put together.
	Inexact bool
	// NoPass keeps these here too.
	NoPass bool
	// Heavy tells why a part of Expr is not for shards, whatever they hold; empty where it is. nil is where all of it is.
	Heavy func(parser.Expr) string
	// Constant tells that it selects no series.
	Constant bool
	// NoExplain leaves out what explain alone shows: Plan.Root, Leaf.Node and Part.Call.
	NoExplain bool
	// Avoid names replicas that failed this request, Lost shards that its answer goes without. Both may be nil.
	Avoid func(*shard.Replica) bool
	Lost  func(*shard.Shard) bool
}

// Window is a stretch of time in milliseconds, both ends inclusive.
type Window struct{ From, Until int64 }

// maxPoints is how many steps a server evaluates for one query_range.
const maxPoints = 11000

// planner plans one query.
type planner struct {
	v       *View
	ctx     context.Context
	q       Query
	root    parser.Expr
	delayed bool
	reads   []read // of its selectors, by where they stand
	shards  int    // in the topology
	leaves  []*Leaf
	fetches bool
	cause   Cause        // the first that lies with the servers
	blamed  *shard.Shard // with which of them
	refused error
}

// frame is when a part of the query is evaluated.
type frame struct {
	grid merge.Grid
	rng  bool
	top  bool // as the whole query is: start(), end(), step() and range() mean the same

	strict bool      // see Leaf
	near   []float64 // likewise
	loose  bool      // likewise
}

// Query plans an expression. The error is that of the request's context.
func (v *View) Query(ctx context.Context, q Query) (*Plan, error) {
	if p := v.only(ctx, q); p != nil {
		return p, nil
	}
	expr, err := q.Expr, error(nil)
	if expr == nil {
		if expr, err = q.parse(); err != nil {
			return nil, err
		}
	}
	p := &planner{v: v, ctx: ctx, q: q, root: expr, delayed: v.top.DelayedNameRemoval()}
	if constant(expr) {
		if expr, err = q.own(expr); err != nil {
			return nil, err
		}
		return &Plan{Mode: ModeLocal, Expr: expr, Root: p.node(q.Text, "it selects no series and is evaluated here", nil)}, nil
	}
	p.look()
	f := frame{grid: q.Grid, rng: q.Range, top: true}
	leaf, why := p.leaf(expr, f, true)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if leaf != nil {
		return &Plan{Mode: leaf.Mode, Leaves: []*Leaf{leaf}, Whole: true, Root: leaf.Node}, nil
	}
	if expr, err = q.own(expr); err != nil {
		return nil, err
	}
	p.root = expr
	var nodes []*Node
	if q.Raw == "" {
		nodes = p.inside(&expr, f, why)
	} else {
		nodes = p.raw(expr, why)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	shown := why
	if len(p.leaves) > 0 {
		shown = "evaluated here, over the answers of its parts: " + why
	}
	return &Plan{Mode: ModeRaw, Why: why, Leaves: p.leaves, Raw: p.fetches, Cause: p.why(), Shard: p.whose(), Refused: p.refused, Expr: expr, Root: p.node(q.Text, shown, nodes)}, nil
}

func (q *Query) parse() (parser.Expr, error) {
	expr, err := Parser.ParseExpr(q.Text)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return expr, nil
}

// own is the expression for an evaluation, which changes it, as do the leaves that are put into it: another tree where this one is the caller's.
func (q *Query) own(expr parser.Expr) (parser.Expr, error) {
	if q.Expr == nil {
		return expr, nil
	}
	return q.parse()
}

// node is what explain shows of a part that is evaluated here.
func (p *planner) node(expr, why string, children []*Node) *Node {
	if p.q.NoExplain {
		return nil
	}
	return &Node{Mode: ModeRaw, Expr: expr, Why: why, Children: children}
}

// only is the plan over a topology of one shard that owns no labels and has no end in time: nothing in the text can matter, so it is not even parsed. nil where
// it is not as simple as that.
func (v *View) only(ctx context.Context, q Query) *Plan {
	if q.Constant || q.NoPass || q.Heavy != nil || len(v.top.Groups) != 1 || len(v.top.Groups[0].Shards) != 1 {
		return nil
	}
	g, s := v.top.Groups[0], v.top.Groups[0].Shards[0]
	if from, until := s.Span(v.now); from != math.MinInt64 || until != math.MaxInt64 || ownsAny(g) || s.Thanos() || !g.Trusted() || q.Lost != nil && q.Lost(s) {
		return nil
	}
	w := Window{math.MaxInt64, math.MinInt64}
	for _, own := range q.Windows {
		w.From, w.Until = min(w.From, own.From), max(w.Until, own.Until)
	}
	replicas, err := s.Wholes(ctx, w.From, w.Until, v.now)
	if err != nil || len(replicas) == 0 || slices.ContainsFunc(replicas, func(r *shard.Replica) bool { return r.Differs() || q.Avoid != nil && q.Avoid(r) }) {
		return nil
	}
	leaf := &Leaf{Mode: ModePass, Grid: q.Grid, Range: q.Range, Streams: true}
	part := &Part{Shard: s, Replicas: replicas, Query: q.Text, From: w.From, Until: w.Until}
	leaf.Parts = []*Part{part}
	if !q.NoExplain {
		part.Call = &Call{Shard: s.Name(), Replica: replicas[0].Name(), Query: q.Text}
		leaf.Node = &Node{Mode: ModePass, Expr: q.Text, Why: reason(leaf) + short(s, len(replicas), w, v.now), Calls: []*Call{part.Call}}
	}
	return &Plan{Mode: ModePass, Leaves: []*Leaf{leaf}, Whole: true, Root: leaf.Node}
}

// walk makes leaves of e, or of parts of it, and returns them and what is read raw as explain shows them. why is what kept the expression around it here.
func (p *planner) walk(e *parser.Expr, f frame, why string) []*Node {
	if constant(*e) {
		return nil
	}
	leaf, not := p.leaf(*e, f, false)
	if leaf != nil {
		*e = p.place(leaf, *e, nil)
		return []*Node{leaf.Node}
	}
	if not == "" {
		not = why
	}
	return p.inside(e, f, not)
}

// place gives the leaf its number, that of an equal one where there is one, and returns the selector that stands for it. It has the matchers of a selector whose absence absent() would report.
//
// A leaf that is the same at all steps is read at the first one, by an @: the engine evaluates what depends on nothing else once, as it would have the leaf's own text, and says no more and no less of it.
func (p *planner) place(leaf *Leaf, e parser.Expr, ms []*labels.Matcher) *parser.VectorSelector {
	id := slices.IndexFunc(p.leaves, leaf.same)
	if id < 0 {
		id = len(p.leaves)
		p.leaves = append(p.leaves, leaf)
	} else {
		p.leaves[id].share(leaf)
	}
	// No equality, which absent() would turn into a label.
	m := labels.MustNewMatcher(labels.MatchRegexp, leafLabel, strconv.Itoa(id))
	vs := &parser.VectorSelector{LabelMatchers: append(slices.Clone(ms), m), PosRange: e.PositionRange()}
	if leaf.Range && invariant(e) {
		first := leaf.Grid.Start
		vs.Timestamp = &first
	}
	return vs
}

// invariant tells whether the engine would evaluate an expression once for all steps.
func invariant(e parser.Expr) bool {
	anchored := false
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			anchored = anchored || n.Timestamp != nil || n.StartOrEnd != 0
		case *parser.SubqueryExpr:
			anchored = anchored || n.Timestamp != nil || n.StartOrEnd != 0
		}
		return nil
	})
	if !anchored {
		return false
	}
	own, err := Parser.ParseExpr(e.String()) // which is changed
	if err != nil {
		return false
	}
	own, err = promql.PreprocessExpr(own, time.UnixMilli(0), time.UnixMilli(1), time.Millisecond) // which times does not matter
	if err != nil {
		return false
	}
	_, ok := own.(*parser.StepInvariantExpr)
	return ok
}

// leafLabel is the label of the matcher by which a selector stands for a leaf.
const leafLabel = "__spillway_leaf__"

// LeafOf returns the number of the leaf that a selector stands for.
func LeafOf(ms []*labels.Matcher) (int, bool) {
	if len(ms) == 0 || ms[len(ms)-1].Name != leafLabel {
		return 0, false
	}
	id, err := strconv.Atoi(ms[len(ms)-1].Value)
	return id, err == nil
}

// inside walks the parts of an expression that is itself evaluated here.
func (p *planner) inside(e *parser.Expr, f frame, why string) []*Node {
	switch n := (*e).(type) {
	case *parser.VectorSelector, *parser.MatrixSelector:
		return p.raw(n, why)
	case *parser.ParenExpr:
		return p.walk(&n.Expr, f, why)
	}
	near := f.near
	f.near = nil // of the expression itself, not of what is inside
	switch n := (*e).(type) {
	case *parser.UnaryExpr:
		for _, v := range near {
			f.near = append(f.near, -v)
		}
		return p.walk(&n.Expr, f, why)
	case *parser.AggregateExpr:
		f.strict = f.strict || n.Op == parser.COUNT_VALUES
		switch n.Op {
		case parser.MAX, parser.MIN, parser.TOPK, parser.BOTTOMK:
			f.near = near // of its results, each is a value of what is inside
		case parser.STDDEV, parser.STDVAR:
			f.strict = f.strict || f.loose || len(near) > 0 // 0 where all are equal
		default:
			f.loose = f.loose || len(near) > 0
		}
		if leaf := p.again(n, f); leaf != nil {
			n.Expr = p.place(leaf, n.Expr, nil)
			return []*Node{leaf.Node}
		}
		nodes := p.walk(&n.Expr, f, why)
		if n.Param != nil {
			f.strict = true // it is cut to a whole number, or chooses by its size
			nodes = append(nodes, p.walk(&n.Param, f, why)...)
		}
		return nodes
	case *parser.BinaryExpr:
		return p.binary(n, f, near, why)
	case *parser.SubqueryExpr:
		f.near = near
		if in, ok := p.subframe(n, f); ok {
			return p.walk(&n.Expr, in, why)
		}
		return p.raw(n, "a subquery with @ or computed durations is evaluated here")
	case *parser.Call:
		return p.call(n, f, near, why)
	}
	return p.raw(*e, why)
}

// binary walks both sides; near are numbers that its results are compared with.
func (p *planner) binary(b *parser.BinaryExpr, f frame, near []float64, why string) []*Node {
	l, r := f, f
	switch b.Op {
	case parser.EQLC, parser.NEQ, parser.MOD:
		l.strict, r.strict = true, true
	case parser.GTR, parser.LSS, parser.GTE, parser.LTE:
		if b.ReturnBool {
			near = nil
		}
		if literal(b.LHS) == nil && literal(b.RHS) == nil {
			l.loose, r.loose = true, true
		}
		l.near, r.near = slices.Concat(literal(b.RHS), near), slices.Concat(literal(b.LHS), near)
	case parser.LAND, parser.LOR, parser.LUNLESS:
		l.near = near
		if b.Op == parser.LOR {
			r.near = near
		}
	case parser.ADD, parser.SUB, parser.MUL, parser.DIV:
		left, right := literal(b.LHS), literal(b.RHS)
		for _, n := range near {
			switch {
			case right != nil:
				l.near = append(l.near, undo(b.Op, n, right[0], false))
			case left != nil:
				r.near = append(r.near, undo(b.Op, n, left[0], true))
			default:
				l.loose, r.loose = true, true
			}
		}
	default:
		l.loose, r.loose = l.loose || len(near) > 0, r.loose || len(near) > 0
	}
	return append(p.walk(&b.LHS, l, why), p.walk(&b.RHS, r, why)...)
}

// call walks the arguments; near are numbers that its results are compared with.
func (p *planner) call(c *parser.Call, f frame, near []float64, why string) []*Node {
	f.strict = f.strict || steps[c.Func.Name]
	switch name := c.Func.Name; {
	case keeping[name]:
		f.near = near
	case differences[name]:
		f.strict = f.strict || f.loose || len(near) > 0
	default:
		f.loose = f.loose || len(near) > 0
	}
	switch c.Func.Name {
	case "abs":
		for _, v := range near {
			f.near = append(slices.Clip(f.near), -v)
		}
	case "info":
		return p.raw(c, "info() reads series that the text does not show")
	case "timestamp", "start_timestamp":
		if _, ok := tree.Bare(c.Args[0]).(*parser.VectorSelector); ok {
			return p.raw(c, why) // the engine looks at the selector itself, whose samples have times of their own
		}
	case "absent", "absent_over_time":
		if nodes := p.absent(c, f); nodes != nil {
			return nodes
		}
	}
	var nodes []*Node
	for i := range c.Args {
		nodes = append(nodes, p.walk(&c.Args[i], f, why)...)
	}
	switch c.Func.Name {
	case "timestamp", "start_timestamp":
		if vs, ok := tree.Bare(c.Args[0]).(*parser.VectorSelector); ok {
			vs.Timestamp = nil // of a leaf each step's own time is asked
		}
	}
	return nodes
}

// absent lets the shards say whether they have any series of a selector; the engine then makes of it what absent() makes of the series themselves.
func (p *planner) absent(c *parser.Call, f frame) []*Node {
	sel := selectorOf(c.Args[0])
	if sel == nil || sel.Anchored || sel.Smoothed {
		return nil
	}
	inner := tree.Bare(c.Args[0])
	if _, ok := inner.(*parser.MatrixSelector); ok {
		inner = &parser.Call{Func: parser.Functions["present_over_time"], Args: parser.Expressions{inner}, PosRange: c.PosRange}
	}
	some := &parser.AggregateExpr{Op: parser.GROUP, Expr: inner, PosRange: c.PosRange}
	leaf, _ := p.leaf(some, f, false)
	if leaf == nil {
		return nil
	}
	c.Func = parser.Functions["absent"]
	c.Args = parser.Expressions{p.place(leaf, some, sel.LabelMatchers)}
	return []*Node{leaf.Node}
}

// raw lists the selectors of a part that is read raw.
func (p *planner) raw(e parser.Node, why string) []*Node {
	p.fetches = true
	var nodes []*Node
	selectors(e, func(vs *parser.VectorSelector) {
		legs := p.read(vs).legs
		for _, l := range legs {
			if l.Shard.Thanos() && p.refused == nil {
				p.refused = shard.ErrNoRaw(l.Shard)
			}
		}
		if p.q.NoExplain {
			return
		}
		node := &Node{Mode: ModeRaw, Expr: vs.String(), Why: why, reads: Selector(vs.LabelMatchers)}
		notes := 0
		for _, l := range legs {
			call := &Call{Shard: l.Shard.Name(), Query: Selector(Filled(l.Matchers))}
			if base, err := l.Shard.Base(); err == nil {
				call.Replica = base.Name()
			}
			node.Why += alone(l.Shard)
			if w := p.read(vs).window; notes < maxNotes && !strings.Contains(why, l.Shard.Name()) { // which says it already
				if note := short(l.Shard, 0, w, p.v.now); note != "" {
					node.Why += note
					notes++
				}
			}
			node.Calls = append(node.Calls, call)
		}
		nodes = append(nodes, node)
	})
	return nodes
}

// subframe is when the inside of a subquery is evaluated, as Prometheus' engine lays it out: at the multiples of its step.
func (p *planner) subframe(n *parser.SubqueryExpr, f frame) (frame, bool) {
	if n.Timestamp != nil || n.StartOrEnd != 0 || n.RangeExpr != nil || n.StepExpr != nil || n.OriginalOffsetExpr != nil {
		return frame{}, false
	}
	step := n.Step.Milliseconds()
	if step == 0 {
		step = p.q.Interval.Milliseconds()
	}
	if step <= 0 {
		return frame{}, false
	}
	offset, width := n.OriginalOffset.Milliseconds(), n.Range.Milliseconds()
	first, last := f.grid.Start, f.grid.End
	if f.grid.Step > 0 {
		last = first + (last-first)/f.grid.Step*f.grid.Step
	}
	start := step * ((first - offset - width) / step)
	if start <= first-offset-width {
		start += step
	}
	g := merge.Grid{Start: start, End: last - offset, Step: step}
	if g.End < g.Start || (g.End-g.Start)/step+1 > maxPoints {
		return frame{}, false
	}
	return frame{grid: g, rng: true, strict: f.strict, near: f.near, loose: f.loose}, true
}

// leaf makes a leaf of e, or says why it cannot be one.
func (p *planner) leaf(e parser.Expr, f frame, root bool) (*Leaf, string) {
	if t := e.Type(); t != parser.ValueTypeVector && !root {
		return nil, ""
	}
	legs, window, info := p.reach(e)
	if info && p.shards > 1 {
		return nil, "info() reads series that the text does not show"
	}
	if len(legs) == 0 {
		return nil, "no shard can hold its series"
	}
	leaf := &Leaf{Grid: f.grid, Range: f.rng, Strict: f.strict, Near: f.near, Loose: f.loose}
	switch {
	case len(legs) == 1 && !p.q.NoPass && (root || p.q.Raw == ""):
		leaf.Mode = ModePass
	case p.q.Raw != "":
		return nil, p.q.Raw
	case e.Type() != parser.ValueTypeVector:
		return nil, "its series may be on several shards"
	}
	finished := p.q.Heavy != nil && !slices.ContainsFunc(legs, func(l Leg) bool { return !l.Shard.Thanos() }) // of which answers alone can be had
	if _, bare := tree.Bare(e).(*parser.VectorSelector); bare && !root && f.grid.Len() > 1 && !finished {
		return nil, "its series are fetched, which is cheaper than their values at each step"
	}
	if !f.top && usesFrame(e) {
		return nil, "start(), end(), step() and range() mean the whole query's"
	}
	end := root || leaf.Mode == ModePush
	if leaf.Mode == "" {
		k := p.key(legs)
		l := local(e, k)
		leaf.Mode = ModeSplice
		if agg, ok := tree.Bare(e).(*parser.AggregateExpr); ok && l.why != "" {
			var f finish
			if f, l = pushes(agg, k); l.why == "" && f.again {
				return nil, "the shards' own " + agg.Op.String() + " are joined here"
			}
			leaf.Mode, leaf.Fold, leaf.Folds = ModePush, f.fold, true
			end = root || !keepsName(agg)
			e = agg
		}
		if l.why != "" {
			return nil, l.why
		}
		p.guard(leaf, l.filled, legs)
	}
	if p.delayed && !end {
		return nil, "the shards drop metric names only at the end of a query, and this is not the end"
	}
	return p.complete(leaf, e, legs, window)
}

// again makes a leaf of what the shards themselves choose by topk or bottomk, of which the same is chosen once more here.
func (p *planner) again(agg *parser.AggregateExpr, f frame) *Leaf {
	legs, window, _ := p.reach(agg)
	if len(legs) < 2 || p.delayed || !f.top && usesFrame(agg) {
		return nil
	}
	fin, l := pushes(agg, p.key(legs))
	if l.why != "" || !fin.again {
		return nil
	}
	leaf := &Leaf{Mode: ModePush, Grid: f.grid, Range: f.rng}
	p.guard(leaf, l.filled, legs)
	leaf, _ = p.complete(leaf, agg, legs, window)
	return leaf
}

// key is what tells the shards of the legs apart.
func (p *planner) key(legs []Leg) key {
	k := keyOf(legs)
	k.units = p.v.top.TypeAndUnitLabels()
	return k
}

// guard adds the questions of which the leaf depends, each once.
func (p *planner) guard(leaf *Leaf, guards []guard, legs []Leg) {
	for _, g := range guards {
		w := p.read(g.selector).window
		for _, leg := range legs {
			if sent, ok := Strip(leg.Shard.Group, g.matchers); ok {
				if g := (Guard{leg.Shard, Selector(Filled(sent)), w.From, w.Until}); !slices.Contains(leaf.Guards, g) {
					leaf.Guards = append(leaf.Guards, g)
				}
			}
		}
	}
}

// keepsName tells whether an aggregate's results may have a metric name.
func keepsName(a *parser.AggregateExpr) bool {
	switch a.Op {
	case parser.TOPK, parser.BOTTOMK, parser.LIMITK, parser.LIMIT_RATIO:
		return true
	}
	return !a.Without && slices.Contains(a.Grouping, model.MetricNameLabel)
}

// usesFrame tells whether an expression means something else when it is sent as a query of its own over other times.
func usesFrame(n parser.Node) bool {
	uses := false
	switch n := n.(type) {
	case *parser.VectorSelector:
		uses = n.StartOrEnd != 0 || n.OriginalOffsetExpr != nil
	case *parser.MatrixSelector:
		uses = n.RangeExpr != nil
	case *parser.SubqueryExpr:
		uses = n.StartOrEnd != 0 || n.RangeExpr != nil || n.StepExpr != nil || n.OriginalOffsetExpr != nil
	case *parser.Call:
		switch n.Func.Name {
		case "start", "end", "step", "range":
			uses = true
		}
	}
	for child := range parser.ChildrenIter(n) {
		uses = uses || usesFrame(child)
	}
	return uses
}

// reason says why a leaf runs where it does.
func reason(l *Leaf) string {
	switch {
	case l.Mode == ModePass:
		return "one shard holds all its series"
	case l.Mode == ModeSplice:
		return "each result comes from series of one shard, so the shards' answers side by side are the answer"
	case l.Folds:
		return "each shard aggregates what it holds; the partial results are put together here"
	}
	return "each shard chooses among what it holds; of these it is chosen once more here"
}
