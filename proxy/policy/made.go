package policy

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"

	"github.com/spillwayproject/spillway/internal/tree"
)

// What an expression makes: labels that no shard stores, and the work of regular expressions on the
// way. Neither is seen by a bound on samples or on bytes that are read, and both multiply: a
// replacement "$1$1" doubles a label, another one around it doubles it again, and group_left copies
// the result onto every series of the other side. So one walk over the syntax tree finds, for each
// node, how long the labels can become that it sets, before anybody is asked.
//
// How many series a selector has and how long their labels are is not known here. A size is
// therefore a linear function of the longest label of a stored series, which all the functions that
// make labels keep linear: they join, repeat and copy. Rows are counted where they are known
// (vector(1) is one), else they are many, and what is made of each of them is noted per selector,
// for whoever reads the series.

// Grown is a number that grows with the longest label of a stored series.
type Grown struct {
	// Fixed is the part that does not grow, Times what is added for each byte of that label.
	Fixed, Times int64
}

// At is the number for series whose longest label has that many bytes.
func (g Grown) At(longest int) int64 { return satAdd(g.Fixed, satMul(g.Times, int64(longest))) }

func (g Grown) plus(o Grown) Grown { return Grown{satAdd(g.Fixed, o.Fixed), satAdd(g.Times, o.Times)} }

func (g Grown) mul(n int64) Grown { return Grown{satMul(g.Fixed, n), satMul(g.Times, n)} }

// or is at least as much as each of the two, whatever the label.
func (g Grown) or(o Grown) Grown { return Grown{max(g.Fixed, o.Fixed), max(g.Times, o.Times)} }

// Made is what an expression makes of each series of one selector.
type Made struct {
	// Labels are the bytes of labels that are set on it and held at a time, Work the steps of
	// regular expressions that it goes through: about a nanosecond each for expressions that people
	// write.
	Labels, Work Grown
}

// Plus is what is made of a series that two selectors select.
func (m Made) Plus(o Made) Made { return Made{m.Labels.plus(o.Labels), m.Work.plus(o.Work)} }

// Or is at least what either makes.
func (m Made) Or(o Made) Made { return Made{m.Labels.or(o.Labels), m.Work.or(o.Work)} }

const (
	// assumedLabel is how long the longest label of a stored series is taken to be as long as none
	// was seen.
	assumedLabel = 64
	// many are so many rows as series are found.
	many = math.MaxInt64
	// numberBytes is how long a number is as the value of a label.
	numberBytes = 24
	// infoLabels is how many labels info() is taken to add.
	infoLabels = 8
	// longText is the length from which on a regular expression is not run by the fast matchers,
	// and slowFactor how much slower the others are.
	longText, slowFactor = 256, 4
	// sortWork is the work of sort_by_label for each byte of a label: it compares numbers in texts
	// as numbers, some thirty times for each series.
	sortWork = 100
	// smallRows is what a group that count_values makes at each step may carry of other labels
	// before it counts.
	smallRows = 256
)

// rows are the series that a node may give.
type rows struct {
	n      int64            // at most so many, or many
	stored bool             // labels of stored series are on them
	own    map[string]Grown // labels that were made, by name; others are stored ones
	from   []int            // selectors whose series these stem from, where they are many
	per    int64            // rows of one such series
}

// size is how long a label can be. A label that was made may not be on all rows, so a stored one
// may stand in its place.
func (r *rows) size(name string) Grown {
	size := r.own[name]
	if r.stored {
		size = size.or(Grown{Times: 1})
	}
	return size
}

// made are the bytes of the labels of one row that were made.
func (r *rows) made() Grown {
	var sum Grown
	for name, size := range r.own {
		sum = sum.plus(size).plus(Grown{Fixed: int64(len(name))})
	}
	return sum
}

// set notes a label that was made, whole of it or only where something matches.
func (r *rows) set(name string, size Grown) {
	if r.own == nil {
		r.own = map[string]Grown{}
	}
	r.own[name] = r.own[name].or(size)
}

// join takes the rows of both for rows of one kind; their number is for the caller to say. Both are
// used up.
func (r *rows) join(o rows) {
	small := o.own
	if len(small) > len(r.own) {
		r.own, small = small, r.own
	}
	for name, size := range small {
		r.set(name, size)
	}
	r.stored = r.stored || o.stored
	r.from = append(r.from, o.from...)
	r.per = max(r.per, o.per)
}

// making is a node that makes much.
type making struct {
	name string // of the function
	pos  posrange.PositionRange
	seen int64
}

func (m *making) raise(name string, n parser.Node, seen int64) {
	if seen > 0 && seen >= m.seen { // the outermost of those that are countless
		*m = making{name, n.PositionRange(), seen}
	}
}

// maker goes through an expression and notes what it makes. Its depth is that of the expression,
// which the pre-scan bounds.
type maker struct {
	points func(*parser.SubqueryExpr) int64 // steps at which a subquery is evaluated for the whole request

	each  []Made    // by selector, in the order in which ChildrenIter comes to them
	wide  making    // the most bytes of labels that are made of one of many series
	once  int64     // bytes of labels made of rows whose number is known
	most  making    // where the most of these are made
	work  int64     // steps of regular expressions, many rows counted as one
	slow  making    // where the most of these are
	sizes regexSize // of the regular expressions that are compiled for it

	stepped map[posrange.PositionRange]int64 // nodes that may make series at each step, and at how many
}

// makes tells whether a call makes something at all.
func makes(name string) bool {
	switch name {
	case "label_replace", "label_join", "sort_by_label", "sort_by_label_desc", "histogram_quantiles", "info":
		return true
	}
	return false
}

// makesAny tells whether anything in an expression makes labels, which nearly no expression of a
// dashboard does.
func makesAny(node parser.Node) bool {
	switch n := node.(type) {
	case *parser.Call:
		if n.Func != nil && makes(n.Func.Name) {
			return true
		}
	case *parser.AggregateExpr:
		if n.Op == parser.COUNT_VALUES {
			return true
		}
	case *parser.BinaryExpr:
		if n.VectorMatching != nil && len(n.VectorMatching.Include) > 0 {
			return true
		}
	}
	for child := range parser.ChildrenIter(node) {
		if makesAny(child) {
			return true
		}
	}
	return false
}

// makingOf goes through an expression that is evaluated at so many steps.
func makingOf(expr parser.Expr, steps int64, points func(*parser.SubqueryExpr) int64) *maker {
	m := &maker{points: points}
	m.of(expr, steps)
	return m
}

// note charges the selectors with what a node makes of their series. extra are bytes that are held
// beside the labels of the rows.
func (m *maker) note(name string, n parser.Node, r *rows, labels, work Grown) {
	bytes, steps := labels.At(assumedLabel), work.At(assumedLabel)
	if r.n != many {
		all := satMul(r.n, bytes)
		m.once = satAdd(m.once, all)
		m.most.raise(name, n, all)
		steps = satMul(r.n, steps)
	} else {
		m.wide.raise(name, n, bytes)
		for _, i := range r.from {
			made := &m.each[i]
			made.Labels = made.Labels.or(labels.mul(r.per))
			made.Work = made.Work.plus(work.mul(r.per))
		}
	}
	m.work = satAdd(m.work, steps)
	m.slow.raise(name, n, steps)
}

func (m *maker) of(node parser.Expr, steps int64) rows {
	switch n := node.(type) {
	case *parser.VectorSelector:
		return m.selector()
	case *parser.MatrixSelector:
		return m.selector()
	case *parser.SubqueryExpr:
		return m.of(n.Expr, m.points(n))
	case *parser.ParenExpr:
		return m.of(n.Expr, steps)
	case *parser.StepInvariantExpr:
		return m.of(n.Expr, steps)
	case *parser.UnaryExpr:
		return m.of(n.Expr, steps)
	case *parser.AggregateExpr:
		return m.aggregate(n, steps)
	case *parser.BinaryExpr:
		return m.binary(n, steps)
	case *parser.Call:
		return m.call(n, steps)
	}
	return rows{n: 1, per: 1} // numbers and strings
}

func (m *maker) selector() rows {
	m.each = append(m.each, Made{})
	return rows{n: many, stored: true, from: []int{len(m.each) - 1}, per: 1}
}

// call returns the rows of a function's vector argument with what the function sets on them.
func (m *maker) call(c *parser.Call, steps int64) rows {
	out := rows{n: 1, per: 1}
	for i, arg := range c.Args {
		r := m.of(arg, steps)
		if t := arg.Type(); (t == parser.ValueTypeVector || t == parser.ValueTypeMatrix) && (i == 0 || c.Func.Name != "info") {
			out = r
		}
	}
	switch name := c.Func.Name; name {
	case "scalar", "vector":
		return rows{n: 1, per: 1}
	case "absent", "absent_over_time":
		return absentRow(c)
	case "label_replace":
		m.replace(c, &out)
	case "label_join":
		sep := len(tree.Text(c.Args[2]))
		size := Grown{Fixed: satMul(int64(sep), int64(max(0, len(c.Args)-4)))}
		for _, src := range c.Args[min(3, len(c.Args)):] {
			size = size.plus(out.size(tree.Text(src)))
		}
		out.set(tree.Text(c.Args[1]), size)
		m.note(name, c, &out, out.made(), size)
	case "histogram_quantiles":
		quantiles := int64(max(1, len(c.Args)-2))
		out.per = satMul(out.per, quantiles)
		if out.n != many {
			out.n = satMul(out.n, quantiles)
		}
		out.set(tree.Text(c.Args[1]), Grown{Fixed: numberBytes})
		m.note(name, c, &out, out.made(), Grown{})
	case "info":
		out.stored = true
		m.note(name, c, &out, out.made().plus(Grown{Times: infoLabels}), Grown{})
	case "sort_by_label", "sort_by_label_desc":
		var size Grown
		for _, by := range c.Args[1:] {
			size = size.plus(out.size(tree.Text(by)))
		}
		m.note(name, c, &out, out.made(), size.mul(sortWork))
	}
	return out
}

// replace is label_replace: the length of the replacement as regexp.Expand reads it, and a run of
// the regular expression over each row's source label.
func (m *maker) replace(c *parser.Call, r *rows) {
	dst, repl, src, re := tree.Text(c.Args[1]), tree.Text(c.Args[2]), tree.Text(c.Args[3]), tree.Text(c.Args[4])
	source := r.size(src)
	literal, refs := expansion(repl)
	r.set(dst, source.mul(refs).plus(Grown{Fixed: literal}))
	size := compiledSize(re)
	m.sizes = m.sizes.plus(size)
	work := source.plus(Grown{Fixed: 1}).mul(int64(max(1, size.all-expressionCost)))
	if source.At(assumedLabel) > longText {
		work = work.mul(slowFactor)
	}
	m.note(c.Func.Name, c, r, r.made(), work)
}

// expansion reads a replacement as regexp.Expand does: the bytes that stand for themselves, and how
// many references to what was matched. Each of these may be as long as the whole source.
func expansion(repl string) (literal, refs int64) {
	for i := 0; i < len(repl); i++ {
		if repl[i] != '$' || i+1 == len(repl) {
			literal++
			continue
		}
		switch next := repl[i+1]; {
		case next == '$':
			i++
			literal++
		case next == '{' || next == '_' || next >= '0' && next <= '9' || next|0x20 >= 'a' && next|0x20 <= 'z' || next >= 0x80:
			refs++
			i++
		default:
			literal++
		}
	}
	return literal, refs
}

// absentRow is the one row of absent(), which takes its labels from the text.
func absentRow(c *parser.Call) rows {
	out := rows{n: 1, per: 1}
	inner := tree.Bare(c.Args[0])
	if matrix, ok := inner.(*parser.MatrixSelector); ok {
		inner = matrix.VectorSelector
	}
	if vs, ok := inner.(*parser.VectorSelector); ok {
		for _, matcher := range vs.LabelMatchers {
			if matcher.Type == labels.MatchEqual {
				out.set(matcher.Name, Grown{Fixed: int64(len(matcher.Value))})
			}
		}
	}
	return out
}

func (m *maker) aggregate(a *parser.AggregateExpr, steps int64) rows {
	in := m.of(a.Expr, steps)
	if a.Param != nil {
		m.of(a.Param, steps)
	}
	switch a.Op {
	case parser.TOPK, parser.BOTTOMK, parser.LIMITK, parser.LIMIT_RATIO:
		return in // whole series
	}
	for name := range in.own {
		if slices.Contains(a.Grouping, name) == a.Without {
			delete(in.own, name)
		}
	}
	switch {
	case a.Op == parser.COUNT_VALUES: // at each step each row may be a group of its own
		m.atSteps(a, steps)
		if in.n != many {
			in.n = satMul(in.n, steps)
		}
		if carried := in.made(); carried.At(assumedLabel) > smallRows {
			in.per = satMul(in.per, steps)
		}
		in.set(tree.Text(a.Param), Grown{Fixed: numberBytes})
		m.note("count_values", a, &in, in.made(), Grown{})
	case !a.Without && len(a.Grouping) == 0:
		return rows{n: 1, per: 1}
	}
	return in
}

func (m *maker) binary(b *parser.BinaryExpr, steps int64) rows {
	l, r := m.of(b.LHS, steps), m.of(b.RHS, steps)
	switch lv, rv := b.LHS.Type() == parser.ValueTypeVector, b.RHS.Type() == parser.ValueTypeVector; {
	case !rv:
		return l // a scalar's row has no labels
	case !lv:
		return r
	}
	vm := b.VectorMatching
	if vm != nil && vm.On && len(vm.MatchingLabels) == 0 && CopiesChosen(b) {
		m.atSteps(b, steps)
	}
	switch {
	case b.Op == parser.LAND || b.Op == parser.LUNLESS:
		return l
	case b.Op == parser.LOR || vm == nil || vm.FillValues.LHS != nil || vm.FillValues.RHS != nil:
		n := satAdd(l.n, r.n)
		l.join(r)
		l.n = n
		if vm != nil && len(vm.Include) > 0 {
			m.note("group_left", b, &l, l.made(), Grown{})
		}
		return l
	}
	switch vm.Card {
	case parser.CardOneToMany:
		return m.group(b, "group_right", r, l)
	case parser.CardManyToOne:
		return m.group(b, "group_left", l, r)
	}
	if r.n < l.n {
		l.n, l.from = r.n, nil
	}
	for name := range l.own {
		if slices.Contains(vm.MatchingLabels, name) != vm.On {
			delete(l.own, name)
		}
	}
	return l
}

// group copies labels of the one side onto each row of the other that matches.
func (m *maker) group(b *parser.BinaryExpr, name string, of, one rows) rows {
	copied := false
	for _, label := range b.VectorMatching.Include {
		if size, ok := one.own[label]; ok {
			of.set(label, size)
			copied = true
		}
	}
	of.stored = of.stored || one.stored && len(b.VectorMatching.Include) > 0
	if copied {
		m.note(name, b, &of, of.made(), Grown{})
	}
	return of
}

// compiledSize is the cost of a regular expression that Go compiles as it is, literal alternatives
// too. All of it counts in full: beside it nothing bounds how often an expression is compiled, once
// for each shard and each evaluation.
func compiledSize(re string) regexSize {
	if literalAlternation(re) {
		return regexSize{all: addInt(expressionCost, len(re))}
	}
	size := sizeOf(re).full()
	size.wide = 0 // Go itself does not look through them
	return size
}
