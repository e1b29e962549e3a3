package plan

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// A shard does not store its group's labels, but in the answer, and at every step of the reference
// evaluation, they are on every series. Where one shard evaluates a whole expression, its answer is
// right up to these labels, provided that for each label and at each node either all series would
// carry it or none would: then nothing that compares, groups or joins series can tell the
// difference, and the label can be set (or not) on the finished answer.

// carried are the group's labels that the results of the expression carry; ok is false where that
// cannot be proven for one of them, or of its replica labels.
func carried(e parser.Expr, g *shard.Group) (set map[string]string, ok bool) {
	set, ok = map[string]string{}, true
	for _, name := range g.ReplicaLabels {
		ok = ok && groupPresence(e, []string{name}) != mixed
	}
	g.Labels.Range(func(l labels.Label) {
		switch groupPresence(e, []string{l.Name}) {
		case with:
			set[l.Name] = l.Value
		case mixed:
			ok = false
		}
	})
	return set, ok
}

// presence says whether the series of a node would carry labels of the group.
type presence int

const (
	// without: a scalar, a string, or series that carry none of the labels.
	without presence = iota
	// with: every series carries all of them.
	with
	// mixed: neither can be proven; the expression is not passed.
	mixed
)

// groupPresence follows labels of the group through an expression, those of names together; with no
// names everything is trivially without.
func groupPresence(e parser.Expr, names []string) presence {
	if len(names) == 0 {
		return without
	}
	p := presenceOf{names}
	return p.of(e)
}

type presenceOf struct{ names []string }

func (p presenceOf) of(e parser.Expr) presence {
	switch n := e.(type) {
	case *parser.VectorSelector, *parser.MatrixSelector:
		return with
	case *parser.SubqueryExpr:
		return p.of(n.Expr)
	case *parser.ParenExpr:
		return p.of(n.Expr)
	case *parser.UnaryExpr:
		return p.of(n.Expr)
	case *parser.StepInvariantExpr:
		return p.of(n.Expr)
	case *parser.NumberLiteral, *parser.StringLiteral:
		return without
	case *parser.Call:
		return p.call(n)
	case *parser.AggregateExpr:
		return p.aggregate(n)
	case *parser.BinaryExpr:
		return p.binary(n)
	}
	return mixed
}

// split tells how many of the group's labels are in list.
func (p presenceOf) split(list []string) (some, all bool) {
	n := 0
	for _, name := range p.names {
		if slices.Contains(list, name) {
			n++
		}
	}
	return n > 0, n == len(p.names)
}

func (p presenceOf) call(c *parser.Call) presence {
	switch c.Func.Name {
	case "absent", "absent_over_time":
		// Its labels come from the equality matchers of its argument, those on group labels
		// included.
		if sel := tree.Selector(c.Args[0]); sel != nil {
			for _, m := range sel.LabelMatchers {
				if m.Type == labels.MatchEqual && slices.Contains(p.names, m.Name) {
					return mixed
				}
			}
		}
		if p.of(c.Args[0]) == mixed {
			return mixed
		}
		return without
	case "scalar", "vector":
		if p.of(c.Args[0]) == mixed {
			return mixed
		}
		return without
	case "info":
		return mixed // joins with series that its arguments do not show
	}
	if strings.HasPrefix(c.Func.Name, "histogram_") && slices.Contains(p.names, labels.BucketLabel) {
		return mixed // it would take the group's label for a bucket's bound
	}
	out, vectors := without, 0
	for _, a := range c.Args {
		if s, ok := tree.Bare(a).(*parser.StringLiteral); ok && slices.Contains(p.names, s.Val) {
			return mixed // it may name a label to read or to set, as in label_replace and histogram_quantiles
		}
		at := p.of(a)
		if at == mixed {
			return mixed
		}
		if t := a.Type(); t == parser.ValueTypeVector || t == parser.ValueTypeMatrix {
			out, vectors = at, vectors+1
		}
	}
	if vectors > 1 {
		return mixed
	}
	return out
}

func (p presenceOf) aggregate(a *parser.AggregateExpr) presence {
	if a.Param != nil && p.of(a.Param) == mixed {
		return mixed
	}
	in := p.of(a.Expr)
	if in == mixed {
		return mixed
	}
	switch a.Op {
	case parser.TOPK, parser.BOTTOMK:
		return in // whole series; grouping by a constant changes nothing
	case parser.LIMITK, parser.LIMIT_RATIO:
		return mixed // chosen by a hash over all labels
	case parser.COUNT_VALUES:
		if s, ok := tree.Bare(a.Param).(*parser.StringLiteral); !ok || slices.Contains(p.names, s.Val) {
			return mixed
		}
	}
	if in == without {
		return without
	}
	some, all := p.split(a.Grouping)
	switch {
	case a.Without && !some, !a.Without && all:
		return with
	case a.Without && all, !a.Without && !some:
		return without
	}
	return mixed
}

func (p presenceOf) binary(b *parser.BinaryExpr) presence {
	l, r := p.of(b.LHS), p.of(b.RHS)
	if l == mixed || r == mixed {
		return mixed
	}
	lv, rv := b.LHS.Type() == parser.ValueTypeVector, b.RHS.Type() == parser.ValueTypeVector
	switch {
	case !lv && !rv:
		return without
	case lv && !rv:
		return l
	case !lv:
		return r
	}
	m := b.VectorMatching
	if m == nil || m.FillValues.LHS != nil || m.FillValues.RHS != nil {
		return mixed
	}
	some, all := p.split(m.MatchingLabels)
	if l != r {
		// One side carries the labels, the other does not: they must take no part in the matching.
		if m.On && some || !m.On && !all {
			return mixed
		}
	}
	switch b.Op {
	case parser.LAND, parser.LUNLESS:
		return l
	case parser.LOR:
		if l != r {
			return mixed
		}
		return l
	}
	if inc, _ := p.split(m.Include); inc && l != r {
		return mixed
	}
	switch m.Card {
	case parser.CardManyToOne:
		return l
	case parser.CardOneToMany:
		return r
	case parser.CardOneToOne:
		if l != r {
			return without // matching excludes the labels (above), and a one-to-one result keeps only what was matched
		}
		if l == without {
			return without
		}
		switch {
		case m.On && all, !m.On && !some:
			return with
		case m.On && !some, !m.On && all:
			return without
		}
	}
	return mixed
}
