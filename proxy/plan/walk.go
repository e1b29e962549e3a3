package plan

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// maxPoints is how many steps a server evaluates for one query_range.
const maxPoints = 11000

// walk makes leaves of e, or of parts of it, and returns them and what is read raw as explain shows
// them. why is what kept the expression around it here.
func (p *planner) walk(e *parser.Expr, f frame, why string) []*Node {
	if p.nodes.constant(*e) || p.ctx.Err() != nil {
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

// place gives the leaf its number, that of an equal one where there is one, and returns the
// selector that stands for it. It has the matchers of a selector whose absence absent() would
// report.
//
// A leaf that is the same at all steps is read at the first one, by an @: the engine evaluates what
// depends on nothing else once, as it would have the leaf's own text, and says no more and no less
// of it.
func (p *planner) place(leaf *Leaf, e parser.Expr, ms []*labels.Matcher) *parser.VectorSelector {
	id := slices.IndexFunc(p.leaves, leaf.same)
	if id < 0 {
		id = len(p.leaves)
		p.leaves = append(p.leaves, leaf)
	} else {
		p.leaves[id].share(leaf)
	}
	vs := &parser.VectorSelector{LabelMatchers: append(slices.Clone(ms), leafMatcher(id)), PosRange: e.PositionRange()}
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
	var known tree.Regexps
	known.KnowAll(e)
	own, err := known.Parse(tree.Parser, tree.String(e)) // which is changed
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

// leafMatcher is that matcher: no equality, which absent() would turn into a label.
func leafMatcher(id int) *labels.Matcher {
	return labels.MustNewMatcher(labels.MatchRegexp, tree.LeafLabel, strconv.Itoa(id))
}

// LeafOf returns the number of the leaf that a selector stands for.
func LeafOf(ms []*labels.Matcher) (int, bool) {
	i := slices.IndexFunc(ms, func(m *labels.Matcher) bool { return m.Name == tree.LeafLabel }) // printing sorts them
	if i < 0 {
		return 0, false
	}
	id, err := strconv.Atoi(ms[i].Value)
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
			if n.Op == parser.SUB {
				v = -v
			}
			f.near = append(f.near, v)
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
		switch {
		case n.Param == nil:
		case unprepared(n.Param):
			nodes = append(nodes, p.raw(n.Param, "what an @, or an argument in parentheses, is in a parameter it is in no query of its own")...)
		default:
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
	case parser.MOD:
		l.jump()
		r.jump()
	case parser.EQLC, parser.NEQ:
		l.strict, r.strict = true, true
		if b.ReturnBool {
			near = nil
		}
		if n := literal(b.RHS); n != nil && sumOfSeries(b.LHS) {
			l.strict, l.near = f.strict, slices.Concat(n, near)
		}
		if n := literal(b.LHS); n != nil && sumOfSeries(b.RHS) {
			r.strict, r.near = f.strict, slices.Concat(n, near)
		}
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
		r.strict = r.strict || b.Op == parser.POW // of a negative base there is a power only by whole numbers
	}
	return append(p.walk(&b.LHS, l, why), p.walk(&b.RHS, r, why)...)
}

// call walks the arguments; near are numbers that its results are compared with.
func (p *planner) call(c *parser.Call, f frame, near []float64, why string) []*Node {
	f.strict = f.strict || steps[c.Func.Name]
	if jumps[c.Func.Name] != nil {
		f.jump()
	}
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
		if nodes, is := p.absent(c, f, why); is {
			return nodes
		}
	}
	var nodes []*Node
	for i := range c.Args {
		arg := f
		arg.strict = f.strict || bent[c.Func.Name] && c.Args[i].Type() == parser.ValueTypeScalar
		nodes = append(nodes, p.walk(&c.Args[i], arg, why)...)
	}
	if vs, ok := tree.Bare(c.Args[0]).(*parser.VectorSelector); ok { // a leaf in place of what was no selector
		switch c.Func.Name {
		case "timestamp":
			vs.Timestamp = nil // each step's own time is asked
		case "start_timestamp":
			c.Args[0] = &parser.UnaryExpr{Op: parser.ADD, Expr: vs} // must not be taken for a selector, which has start timestamps
		}
	}
	return nodes
}

// absent lets the shards say whether they have any series of a selector; the engine then makes of
// it what absent() makes of the series themselves. It is false where that is nothing of its own.
func (p *planner) absent(c *parser.Call, f frame, why string) ([]*Node, bool) {
	sel := tree.Selector(c.Args[0])
	if sel == nil {
		return nil, false
	}
	if sel.Anchored || sel.Smoothed {
		return p.raw(c, why), true // a leaf in its place would say nothing of the labels
	}
	inner := tree.Bare(c.Args[0])
	if _, ok := inner.(*parser.MatrixSelector); ok {
		inner = &parser.Call{Func: parser.Functions["present_over_time"], Args: parser.Expressions{inner}, PosRange: c.PosRange}
	}
	some := &parser.AggregateExpr{Op: parser.GROUP, Expr: inner, PosRange: c.PosRange}
	leaf, _ := p.leaf(some, f, false)
	if leaf == nil {
		return nil, false
	}
	c.Func = parser.Functions["absent"]
	c.Args = parser.Expressions{p.place(leaf, some, sel.LabelMatchers)}
	return []*Node{leaf.Node}, true
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
			node.Why += homed(l) + alone(l.Shard)
			if w := p.read(vs).window; notes < maxNotes && !strings.Contains(why, l.Shard.Name()) { // which says it already
				if note := short(l.Shard, 0, w, p.v.now); note != "" {
					node.Why += note
					notes++
				}
			}
			node.asks(call)
		}
		nodes = append(nodes, node)
	})
	return nodes
}

// unprepared tells whether a parameter of an aggregate has something that the engine prepares
// everywhere but there, and so evaluates otherwise than in a query of its own: start() and end()
// after an @, what an @ makes the same at all steps, and arguments in parentheses at which a
// function looks itself.
func unprepared(n parser.Node) bool {
	if c, ok := n.(*parser.Call); ok && slices.ContainsFunc(c.Args, enclosed) {
		return true
	}
	if a, ok := n.(*parser.AggregateExpr); ok && a.Param != nil && enclosed(a.Param) {
		return true
	}
	for child := range parser.ChildrenIter(n) {
		if unprepared(child) {
			return true
		}
	}
	return pins(n)
}

// enclosed tells whether an argument is a selector, a subquery or a text in parentheses.
func enclosed(e parser.Expr) bool {
	if _, ok := e.(*parser.ParenExpr); !ok {
		return false
	}
	switch tree.Bare(e).(type) {
	case *parser.VectorSelector, *parser.MatrixSelector, *parser.SubqueryExpr, *parser.StringLiteral:
		return true
	}
	return false
}

// pins tells whether a selector or a subquery in it has an @.
func pins(n parser.Node) bool {
	switch n := n.(type) {
	case *parser.VectorSelector:
		if n.Timestamp != nil || n.StartOrEnd != 0 {
			return true
		}
	case *parser.SubqueryExpr:
		if n.Timestamp != nil || n.StartOrEnd != 0 {
			return true
		}
	}
	for child := range parser.ChildrenIter(n) {
		if pins(child) {
			return true
		}
	}
	return false
}

// subframe is when the inside of a subquery is evaluated, as Prometheus' engine lays it out: at the
// multiples of its step.
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
	// The engine leaves the offsets of what is pinned as they are where a subquery begins when the
	// query does, and looks for the leaf's values at another time.
	if g.Start == f.grid.Start && offset != 0 && pins(n.Expr) {
		return frame{}, false
	}
	return frame{grid: g, rng: true, strict: f.strict, near: f.near, loose: f.loose}, true
}
