package evaluation

import (
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/policy"
)

// count_values makes a series of each value that it meets in a group, at whatever step: one stored
// series may become as many as there are steps, and the engine sets aside room for all steps in
// each of them. How many there will be only the values say. So what count_values is about to count
// goes through a function first that hands it on as it is, at all steps before count_values sees
// the first, and tells of each series that will be made of it. Both sides of a join go through one
// too, where many series of one meet others at each step.

const (
	// rowsName is the function that looks at what count_values counts, or a join matches. No text
	// can name it, since it is in no grammar.
	rowsName = "rows"
	// workOfRow is what looking at one value takes, in samples.
	workOfRow = 8
)

// Grid says at which steps an expression is evaluated, in milliseconds, and what the step of a
// subquery without one is.
type Grid struct {
	Steps, Step, Interval int64
}

// Rows makes each count_values of the expression tell of the series that it is about to make, and
// each join of those that it makes beyond one for each of its own. No other evaluation may share
// the expression. An error of tell ends the evaluation. Rows is called after Watch, which would
// take its function for one of the text.
func (t *Turn) Rows(expr parser.Expr, grid Grid, tell func(of parser.Expr, row policy.Row) error) {
	w := rowWatch{turn: t, tell: tell, grid: grid}
	w.visit(expr, tree.Over(grid.Steps, grid.Step), 0)
}

// rowWatch goes through an expression and puts the function before each node that may make series.
type rowWatch struct {
	turn *Turn
	tell func(of parser.Expr, row policy.Row) error
	grid Grid
}

// visit goes on below a node; visits is how often the nodes above look at a series of this one.
func (w *rowWatch) visit(node parser.Node, s tree.Span, visits int64) {
	switch n := node.(type) {
	case *parser.SubqueryExpr:
		in, each := s.Inside(n, tree.TimesOf(w.grid.Steps, w.grid.Step, w.grid.Interval))
		w.visit(n.Expr, in, visits+s.Steps*each)
		return
	case *parser.AggregateExpr:
		w.visit(n.Expr, s, visits+s.Steps)
		if n.Param != nil {
			w.visit(n.Param, s, visits+s.Steps)
		}
		if n.Op == parser.COUNT_VALUES && s.Steps > 1 {
			w.wrap(n, s, visits)
		}
		return
	case *parser.BinaryExpr:
		w.visit(n.LHS, s, visits+s.Steps)
		w.visit(n.RHS, s, visits+s.Steps)
		if s.Steps > 1 && policy.MeetsChosen(n) {
			w.join(n, s, visits)
		}
		return
	case *parser.Call:
		visits += s.Steps
	}
	for child := range parser.ChildrenIter(node) {
		w.visit(child, s, visits)
	}
}

// looker stands behind the argument of the function, as a seat does, and is shown what there is at
// each step.
type looker interface {
	look(promql.Vector) error
}

// before puts the function before an argument of a node.
func before(arg *parser.Expr, l interface {
	parser.Expr
	looker
},
) {
	args := make(parser.Expressions, 2)
	args[0], args[1] = *arg, l
	*arg = &parser.Call{
		Func: &parser.Function{Name: rowsName, ArgTypes: []parser.ValueType{parser.ValueTypeVector}, ReturnType: parser.ValueTypeVector},
		Args: args[:1], PosRange: (*arg).PositionRange(),
	}
}

// rowSeat is before count_values.
type rowSeat struct {
	parser.Expr
	turn *Turn
	tell func(of parser.Expr, row policy.Row) error
	of   *parser.AggregateExpr
	row  policy.Row // of each, but for its labels

	label    string
	grouping []string
	seen     map[rowKey]struct{}
	buf      []byte
}

// rowKey tells one series that count_values makes from another: its group, and the value.
type rowKey struct{ group, value uint64 }

func (w *rowWatch) wrap(n *parser.AggregateExpr, s tree.Span, visits int64) {
	seat := &rowSeat{
		turn: w.turn, tell: w.tell, seen: map[rowKey]struct{}{}, of: n,
		row: policy.Row{Points: s.Steps, Held: 1, Visits: visits},
	}
	if visits > 0 { // what stands around it makes others of them
		seat.row.Held = 2
	}
	if l, ok := n.Param.(*parser.StringLiteral); ok {
		seat.label = l.Val
	}
	seat.grouping = slices.Clone(n.Grouping)
	slices.Sort(seat.grouping)
	before(&n.Expr, seat)
}

// look tells of what count_values will make of a step's values that it did not make before.
func (s *rowSeat) look(vec promql.Vector) error {
	without := s.of.Without
	if err := s.turn.Work(workOfRow * len(vec)); err != nil {
		return err
	}
	for i := range vec {
		key, value := rowKey{}, int64(numberBytes)
		if h := vec[i].H; h != nil {
			text := h.String()
			key.value, value = xxhash.Sum64String(text), int64(len(text))
		} else if f := vec[i].F; !math.IsNaN(f) {
			key.value = math.Float64bits(f)
		} else {
			key.value = math.Float64bits(math.NaN()) // they are all written alike
		}
		switch {
		case without:
			key.group, s.buf = vec[i].Metric.HashWithoutLabels(s.buf, s.grouping...)
		case len(s.grouping) > 0:
			key.group, s.buf = vec[i].Metric.HashForLabels(s.buf, s.grouping...)
		}
		if _, ok := s.seen[key]; ok {
			continue
		}
		s.seen[key] = struct{}{}
		row := s.row
		row.Labels = int64(len(s.label)) + value
		vec[i].Metric.Range(func(l labels.Label) {
			if l.Name != s.label && slices.Contains(s.grouping, l.Name) != without {
				row.Labels += int64(len(l.Name) + len(l.Value))
			}
		})
		if err := s.tell(s.of, row); err != nil {
			return err
		}
	}
	return nil
}

// joined is what is known of the two sides of a join: of each group of series that meet, how many
// there are on the one side, and how many different sets of labels are copied from the other. Each
// series becomes as many as there are sets.
type joined struct {
	turn *Turn
	tell func(of parser.Expr, row policy.Row) error
	of   *parser.BinaryExpr
	row  policy.Row

	match, copied []string
	groups        map[uint64]*meeting
	buf           []byte
}

// meeting is one such group: its series and what they meet, the sets of labels that are copied of
// these, and the bytes of the labels of either.
type meeting struct{ series, ones, sets, bytes, oneBytes int64 }

// joinSeat is before one side of a join.
type joinSeat struct {
	parser.Expr
	*joined
	from bool // labels are copied from this side
	seen map[rowKey]struct{}
	ones map[rowKey]struct{} // series of this side where labels are copied from it
}

func (w *rowWatch) join(n *parser.BinaryExpr, s tree.Span, visits int64) {
	vm := n.VectorMatching
	j := &joined{
		turn: w.turn, tell: w.tell, of: n, row: policy.Row{Points: s.Steps, Held: 1, Visits: visits},
		groups: map[uint64]*meeting{},
	}
	if visits > 0 {
		j.row.Held = 2
	}
	j.match, j.copied = slices.Clone(vm.MatchingLabels), slices.Clone(vm.Include)
	slices.Sort(j.match)
	slices.Sort(j.copied)
	right := vm.Card == parser.CardOneToMany
	before(&n.LHS, &joinSeat{joined: j, from: right, seen: map[rowKey]struct{}{}, ones: map[rowKey]struct{}{}})
	before(&n.RHS, &joinSeat{joined: j, from: !right, seen: map[rowKey]struct{}{}, ones: map[rowKey]struct{}{}})
}

// look tells of the series beyond one of each that the join will make.
func (s *joinSeat) look(vec promql.Vector) error {
	if err := s.turn.Work(workOfRow * len(vec)); err != nil {
		return err
	}
	for i := range vec {
		metric, key := vec[i].Metric, rowKey{}
		if s.of.VectorMatching.On {
			key.group, s.buf = metric.HashForLabels(s.buf, s.match...)
		} else {
			key.group, s.buf = metric.HashWithoutLabels(s.buf, s.match...)
		}
		g := s.groups[key.group]
		if g == nil {
			g = &meeting{}
			s.groups[key.group] = g
		}
		if s.from {
			if err := s.meets(g, rowKey{key.group, metric.Hash()}, metric); err != nil {
				return err
			}
			key.value, s.buf = metric.HashForLabels(s.buf, s.copied...)
		} else {
			key.value = metric.Hash()
		}
		if _, ok := s.seen[key]; ok {
			continue
		}
		s.seen[key] = struct{}{}
		made := g.series // one of each for this set
		if s.from {
			g.sets++
			if g.sets == 1 {
				made = 0
			}
		} else {
			g.series++
			g.bytes += size(metric)
			made = max(0, g.sets-1)
			if err := s.pairs(g, g.ones-1); err != nil {
				return err
			}
		}
		row := s.row
		row.Labels = g.bytes / max(1, g.series)
		for range made {
			if err := s.tell(s.of, row); err != nil {
				return err
			}
		}
	}
	return nil
}

// meets tells of the pairs that a series makes with all that it may meet, beyond one of each.
func (s *joinSeat) meets(g *meeting, key rowKey, metric labels.Labels) error {
	if _, ok := s.ones[key]; ok {
		return nil
	}
	s.ones[key] = struct{}{}
	g.ones++
	g.oneBytes += size(metric)
	if g.ones == 1 {
		return nil
	}
	return s.pairs(g, g.series)
}

// pairs tells of so many pairs of a group.
func (s *joinSeat) pairs(g *meeting, n int64) error {
	if n <= 0 {
		return nil
	}
	both := g.bytes/max(1, g.series) + g.oneBytes/max(1, g.ones)
	return s.tell(s.of, policy.Row{Labels: 2 * both, Pairs: n})
}

// size is the bytes of a series' labels.
func size(metric labels.Labels) (n int64) {
	metric.Range(func(l labels.Label) { n += int64(len(l.Name) + len(l.Value)) })
	return n
}

// numberBytes is what a number takes as the value of a label.
const numberBytes = 24

// init makes the function known to the engine before any can be at work.
func init() {
	promql.FunctionCalls[rowsName] = func(vectors []promql.Vector, _ promql.Matrix, args parser.Expressions,
		enh *promql.EvalNodeHelper,
	) (promql.Vector, annotations.Annotations) {
		if n := len(args); n < cap(args) {
			if s, ok := args[: n+1 : n+1][n].(looker); ok {
				if err := s.look(vectors[0]); err != nil {
					panic(err)
				}
			}
		}
		return append(enh.Out, vectors[0]...), nil
	}
}
