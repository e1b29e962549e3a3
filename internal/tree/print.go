package tree

import (
	"math"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// String is e.String() in time that is linear in its length. Prometheus' own copies what is inside
// a node once more for each node around it: milliseconds for a chain of a thousand operators. Two
// things are otherwise, where what Prometheus prints is another expression: number tells of one.
//
// Prometheus sorts the matchers of a selector. absent(up{job="a",job!="b"}) has no label job where
// absent(up{job!="b",job="a"}) has one, so where absent() looks at several matchers of one label
// they stay as they are written.
func String(e parser.Expr) string {
	p := printer{}
	p.print(e)
	return string(p.out)
}

// printer appends to out.
type printer struct {
	out   []byte
	spans map[parser.Expr]span   // where each node stands in out; nil where nobody asks
	order *parser.VectorSelector // whose matchers keep their order
}

type span struct{ start, end int }

func (p *printer) add(parts ...string) {
	for _, s := range parts {
		p.out = append(p.out, s...)
	}
}

func (p *printer) print(e parser.Expr) {
	start := len(p.out)
	switch n := e.(type) {
	case *parser.AggregateExpr:
		p.add(n.ShortString(), "(")
		if n.Op.IsAggregatorWithParam() {
			p.print(n.Param)
			p.add(", ")
		}
		p.print(n.Expr)
		p.add(")")
	case *parser.BinaryExpr:
		p.print(n.LHS)
		p.add(" ", n.ShortString(), " ")
		p.print(n.RHS)
	case *parser.Call:
		if n.Func.Name == "absent" || n.Func.Name == "absent_over_time" {
			p.order = Selector(n.Args[0])
		}
		p.add(n.Func.Name, "(")
		for i, arg := range n.Args {
			if i > 0 {
				p.add(", ")
			}
			p.print(arg)
		}
		p.add(")")
	case *parser.ParenExpr:
		p.add("(")
		p.print(n.Expr)
		p.add(")")
	case *parser.UnaryExpr:
		p.add(n.Op.String())
		p.print(n.Expr)
	case *parser.StepInvariantExpr:
		p.print(n.Expr)
	case *parser.SubqueryExpr:
		p.print(n.Expr)
		p.subquery(n)
	case *parser.MatrixSelector:
		p.matrix(n)
	case *parser.VectorSelector:
		plain := *n
		plain.OriginalOffsetExpr = nil
		if n.OriginalOffsetExpr != nil {
			plain.OriginalOffset = 0
		}
		p.selector(n, plain)
		p.offset(0, n.OriginalOffsetExpr)
	case *parser.DurationExpr:
		p.duration(n)
	case *parser.NumberLiteral:
		p.number(n)
	default:
		p.add(e.String())
	}
	if p.spans != nil {
		p.spans[e] = span{start, len(p.out)}
	}
}

// number prints a number, and one that was written as a duration as that duration: Prometheus' own
// drops a millisecond of some, such as 1s7ms.
func (p *printer) number(n *parser.NumberLiteral) {
	ms := math.Round(n.Val * 1000)
	switch {
	case !n.Duration || math.Abs(ms) > math.MaxInt64/1e6:
		p.add(n.String())
	case ms < 0:
		p.add("-", model.Duration(time.Duration(-ms)*time.Millisecond).String())
	default:
		p.add(model.Duration(time.Duration(ms) * time.Millisecond).String())
	}
}

// selector prints a selector of the tree by what it has of it that stands next to its matchers.
func (p *printer) selector(vs *parser.VectorSelector, plain parser.VectorSelector) {
	if vs != p.order || !repeated(vs.LabelMatchers) {
		p.add(plain.String())
		return
	}
	p.add(plain.Name)
	sep := "{"
	for _, m := range plain.LabelMatchers {
		if m.Name != model.MetricNameLabel || m.Type != labels.MatchEqual || m.Value != plain.Name || m.Value == "" {
			p.add(sep, m.String())
			sep = ","
		}
	}
	p.add("}")
	plain.Name, plain.LabelMatchers = "", nil
	p.add(plain.String())
}

// repeated tells whether two matchers look at one label; absent() makes none of the name.
func repeated(ms []*labels.Matcher) bool {
	seen := map[string]bool{}
	for _, m := range ms {
		if m.Name != model.MetricNameLabel && seen[m.Name] {
			return true
		}
		seen[m.Name] = true
	}
	return false
}

// subquery prints what stands behind the expression of a subquery.
func (p *printer) subquery(n *parser.SubqueryExpr) {
	p.add("[")
	p.length(n.Range, n.RangeExpr)
	p.add(":")
	if n.Step != 0 {
		p.add(model.Duration(n.Step).String())
	} else if n.StepExpr != nil {
		p.duration(n.StepExpr)
	}
	p.add("]")
	p.at(n.Timestamp, n.StartOrEnd)
	p.offset(n.OriginalOffset, n.OriginalOffsetExpr)
}

func (p *printer) matrix(n *parser.MatrixSelector) {
	vs, ok := n.VectorSelector.(*parser.VectorSelector)
	if !ok {
		p.add(n.String())
		return
	}
	plain := *vs
	plain.OriginalOffset, plain.OriginalOffsetExpr, plain.Timestamp, plain.StartOrEnd = 0, nil, nil, 0
	plain.Anchored, plain.Smoothed = false, false
	p.selector(vs, plain)
	p.add("[")
	p.length(n.Range, n.RangeExpr)
	p.add("]")
	switch {
	case vs.Anchored:
		p.add(" anchored")
	case vs.Smoothed:
		p.add(" smoothed")
	}
	p.at(vs.Timestamp, vs.StartOrEnd)
	p.offset(vs.OriginalOffset, vs.OriginalOffsetExpr)
}

func (p *printer) length(literal time.Duration, expr *parser.DurationExpr) {
	if expr != nil {
		p.duration(expr)
		return
	}
	p.add(model.Duration(literal).String())
}

func (p *printer) offset(literal time.Duration, expr *parser.DurationExpr) {
	switch {
	case expr != nil:
		p.add(" offset ")
		p.duration(expr)
	case literal > 0:
		p.add(" offset ", model.Duration(literal).String())
	case literal < 0:
		p.add(" offset -", model.Duration(-literal).String())
	}
}

// duration prints a duration expression.
func (p *printer) duration(e parser.Expr) {
	n, ok := e.(*parser.DurationExpr)
	if !ok {
		p.add(e.String())
		return
	}
	if n.Wrapped {
		p.add("(")
	}
	switch {
	case n.Op == parser.STEP || n.Op == parser.RANGE:
		p.add(n.Op.String(), "()")
	case n.Op == parser.MIN_OF || n.Op == parser.MAX_OF:
		p.add(n.Op.String(), "(")
		p.duration(n.LHS)
		p.add(", ")
		p.duration(n.RHS)
		p.add(")")
	case n.LHS == nil && n.Op == parser.ADD: // a sign that Prometheus does not print
		p.duration(n.RHS)
	case n.LHS == nil:
		p.add(n.Op.String())
		p.duration(n.RHS)
	default:
		p.duration(n.LHS)
		p.add(" ", n.Op.String(), " ")
		p.duration(n.RHS)
	}
	if n.Wrapped {
		p.add(")")
	}
}

func (p *printer) at(ts *int64, preprocessor parser.ItemType) {
	switch {
	case ts != nil:
		p.add(" @ ")
		p.out = strconv.AppendFloat(p.out, float64(*ts)/1000, 'f', 3, 64)
	case preprocessor == parser.START:
		p.add(" @ start()")
	case preprocessor == parser.END:
		p.add(" @ end()")
	}
}
