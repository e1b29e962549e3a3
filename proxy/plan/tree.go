package plan

import (
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// object is a JSON object of parse_query's answer. Its keys are those that Prometheus' UI reads.
type object map[string]any

// Tree is an expression as Prometheus' parse_query shows it. It fails only for a node that this
// version does not know.
func Tree(e parser.Expr) (any, error) {
	if e == nil {
		return nil, nil
	}
	switch n := e.(type) {
	case *parser.NumberLiteral:
		return object{"type": "numberLiteral", "val": number(n.Val)}, nil
	case *parser.StringLiteral:
		return object{"type": "stringLiteral", "val": n.Val}, nil
	case *parser.ParenExpr:
		return with1(object{"type": "parenExpr"}, n.Expr)
	case *parser.UnaryExpr:
		return with1(object{"type": "unaryExpr", "op": n.Op.String()}, n.Expr)
	case *parser.VectorSelector:
		return selector("vectorSelector", n)
	case *parser.MatrixSelector:
		vs, ok := n.VectorSelector.(*parser.VectorSelector)
		if !ok {
			return nil, unknownNode(n.VectorSelector)
		}
		o, err := selector("matrixSelector", vs)
		if err != nil {
			return nil, err
		}
		o["range"] = n.Range.Milliseconds()
		o["rangeExpr"], err = durationTree(n.RangeExpr)
		return o, err
	case *parser.SubqueryExpr:
		return subquery(n)
	case *parser.Call:
		args := make([]any, len(n.Args))
		for i, a := range n.Args {
			t, err := Tree(a)
			if err != nil {
				return nil, err
			}
			args[i] = t
		}
		f := object{"name": n.Func.Name, "argTypes": n.Func.ArgTypes, "variadic": n.Func.Variadic, "returnType": n.Func.ReturnType}
		return object{"type": "call", "func": f, "args": args}, nil
	case *parser.AggregateExpr:
		param, err := Tree(n.Param)
		if err != nil {
			return nil, err
		}
		return with1(object{"type": "aggregation", "op": n.Op.String(), "param": param, "grouping": list(n.Grouping), "without": n.Without},
			n.Expr)
	case *parser.BinaryExpr:
		return binaryTree(n)
	case *parser.DurationExpr:
		return durationTree(n)
	}
	return nil, unknownNode(e)
}

func unknownNode(e parser.Expr) error {
	return qerr.New(qerr.BadData, "parse_query does not know the node %T", e)
}

// with1 adds the one child that many nodes have.
func with1(o object, child parser.Expr) (any, error) {
	t, err := Tree(child)
	o["expr"] = t
	return o, err
}

func binaryTree(n *parser.BinaryExpr) (any, error) {
	l, err := Tree(n.LHS)
	if err != nil {
		return nil, err
	}
	r, err := Tree(n.RHS)
	if err != nil {
		return nil, err
	}
	o := object{"type": "binaryExpr", "op": n.Op.String(), "lhs": l, "rhs": r, "bool": n.ReturnBool, "matching": nil}
	if m := n.VectorMatching; m != nil {
		o["matching"] = object{
			"card": m.Card.String(), "labels": list(m.MatchingLabels), "on": m.On, "include": list(m.Include),
			"fillValues": map[string]*float64{"lhs": m.FillValues.LHS, "rhs": m.FillValues.RHS},
		}
	}
	return o, nil
}

func selector(typ string, n *parser.VectorSelector) (object, error) {
	offset, err := durationTree(n.OriginalOffsetExpr)
	return object{
		"type": typ, "name": n.Name, "offset": n.OriginalOffset.Milliseconds(), "offsetExpr": offset, "matchers": matchers(n.LabelMatchers),
		"timestamp": n.Timestamp, "startOrEnd": bound(n.StartOrEnd), "anchored": n.Anchored, "smoothed": n.Smoothed,
	}, err
}

func subquery(n *parser.SubqueryExpr) (any, error) {
	o := object{
		"type": "subquery", "range": n.Range.Milliseconds(), "offset": n.OriginalOffset.Milliseconds(), "step": n.Step.Milliseconds(),
		"timestamp": n.Timestamp, "startOrEnd": bound(n.StartOrEnd),
	}
	for key, d := range map[string]*parser.DurationExpr{
		"rangeExpr": n.RangeExpr, "offsetExpr": n.OriginalOffsetExpr,
		"stepExpr": n.StepExpr,
	} {
		t, err := durationTree(d)
		if err != nil {
			return nil, err
		}
		o[key] = t
	}
	return with1(o, n.Expr)
}

// durationTree shows a duration expression; e may be a nil *DurationExpr, since that is how
// selectors without one hold it.
func durationTree(e parser.Expr) (any, error) {
	switch n := e.(type) {
	case nil:
		return nil, nil
	case *parser.DurationExpr:
		if n == nil {
			return nil, nil
		}
		l, err := durationTree(n.LHS)
		if err != nil {
			return nil, err
		}
		r, err := durationTree(n.RHS)
		return object{"type": "durationExpr", "op": n.Op.String(), "lhs": l, "rhs": r, "wrapped": n.Wrapped}, err
	case *parser.NumberLiteral:
		if n == nil {
			return nil, nil
		}
		return object{"type": "numberLiteral", "val": number(n.Val), "duration": n.Duration}, nil
	}
	return Tree(e)
}

func matchers(ms []*labels.Matcher) []object {
	out := make([]object, len(ms))
	for i, m := range ms {
		out[i] = object{"name": m.Name, "value": m.Value, "type": m.Type.String()}
	}
	return out
}

func bound(i parser.ItemType) any {
	if i == 0 {
		return nil
	}
	return i.String()
}

func list(l []string) []string {
	if l == nil {
		return []string{}
	}
	return l
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
