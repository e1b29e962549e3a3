package cost

import (
	"math"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/policy"
)

// A join in which many series meet one that is chosen anew at each step, as topk does, remembers
// each two that have met, and makes a series of each two whose labels it copies. How many a series
// may meet is how many of the other side have the labels that it looks for: of
// on (pod) group_left (node) topk by (pod) (1, kube_pod_info) one or two, of on (job) thousands.

// Labels are those by which series are told apart: the ones that are named, in order, or, where
// Without is set, all but these.
type Labels struct {
	Without bool
	Names   []string
}

// Alike gives the most series of a selector that the labels do not tell apart.
type Alike func(*parser.VectorSelector, Labels) int64

// drop is without the labels that a node takes away or sets.
func (l Labels) drop(names ...string) Labels {
	if l.Without {
		names = append(slices.Clone(l.Names), names...)
		slices.Sort(names)
		return Labels{true, slices.Compact(names)}
	}
	return Labels{false, slices.DeleteFunc(slices.Clone(l.Names), func(n string) bool { return slices.Contains(names, n) })}
}

// keep is without the labels that a node does not keep.
func (l Labels) keep(names ...string) Labels {
	kept := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(l.Names, n) == l.Without })
	slices.Sort(kept)
	return Labels{false, slices.Compact(kept)}
}

// by is what a matching or a grouping leaves of the labels.
func (l Labels) by(without bool, names []string) Labels {
	if without {
		return l.drop(names...)
	}
	return l.keep(names...)
}

// meets is how many series of the one side one of the many sides may meet over the steps, at most;
// 1 where it is the same one at all of them.
func (e *estimate) meets(n *parser.BinaryExpr, s tree.Span) float64 {
	if !policy.MeetsChosen(n) || s.Steps < 2 {
		return 1
	}
	if e.alike == nil {
		return float64(s.Steps)
	}
	one, vm := n.RHS, n.VectorMatching
	if vm.Card == parser.CardOneToMany {
		one = n.LHS
	}
	l := Labels{Without: true, Names: []string{model.MetricNameLabel}}.by(!vm.On, vm.MatchingLabels)
	return max(1, min(float64(s.Steps), e.same(one, l)))
}

// same is how many series of an expression's result are not told apart by the labels over all of
// its steps, at most. Stored series that come and go count as far as they were counted, and a join
// with what is stored is taken to meet the same one at all steps.
func (e *estimate) same(node parser.Node, l Labels) float64 {
	switch n := node.(type) {
	case *parser.VectorSelector:
		return e.sameOf(n, l)
	case *parser.AggregateExpr:
		switch {
		case n.Op == parser.COUNT_VALUES: // as many as there are values at all steps
			return math.Inf(1)
		case sole(n.Op):
			l = l.by(n.Without, n.Grouping)
		}
		return e.same(n.Expr, l)
	case *parser.BinaryExpr:
		return e.sameOfTwo(n, l)
	case *parser.Call:
		return e.sameOfCall(n, l)
	}
	n := float64(0)
	for child := range parser.ChildrenIter(node) {
		n += e.same(child, l)
	}
	return max(n, 1)
}

func (e *estimate) sameOf(vs *parser.VectorSelector, l Labels) float64 {
	named := slices.ContainsFunc(vs.LabelMatchers, func(m *labels.Matcher) bool {
		return m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual
	})
	switch {
	case !l.Without && len(l.Names) == 0:
		n, _ := e.series(vs)
		return float64(n)
	case named && l.Without && (len(l.Names) == 0 || len(l.Names) == 1 && l.Names[0] == model.MetricNameLabel):
		return 1
	}
	return float64(e.alike(vs, l))
}

func (e *estimate) sameOfTwo(n *parser.BinaryExpr, l Labels) float64 {
	vm := n.VectorMatching
	switch {
	case n.LHS.Type() != parser.ValueTypeVector:
		return e.same(n.RHS, l)
	case n.RHS.Type() != parser.ValueTypeVector || n.Op == parser.LAND || n.Op == parser.LUNLESS || vm == nil:
		return e.same(n.LHS, l)
	case n.Op == parser.LOR:
		return e.same(n.LHS, l) + e.same(n.RHS, l)
	case vm.FillValues.LHS != nil || vm.FillValues.RHS != nil || policy.CopiesChosen(n):
		return math.Inf(1)
	}
	switch l = l.drop(model.MetricNameLabel); vm.Card {
	case parser.CardManyToOne:
		return e.same(n.LHS, l.drop(vm.Include...))
	case parser.CardOneToMany:
		return e.same(n.RHS, l.drop(vm.Include...))
	}
	return e.same(n.LHS, l.by(!vm.On, vm.MatchingLabels))
}

func (e *estimate) sameOfCall(n *parser.Call, l Labels) float64 {
	switch l = l.drop(model.MetricNameLabel); n.Func.Name {
	case "label_replace", "label_join":
		l = l.drop(tree.Text(n.Args[1]))
	case "info": // sets any
		l = Labels{}
	case "histogram_quantiles": // one for each quantile
		return float64(max(len(n.Args)-2, 1)) * e.same(n.Args[0], l.drop(model.BucketLabel, tree.Text(n.Args[1])))
	case "histogram_quantile", "histogram_fraction":
		l = l.drop(model.BucketLabel)
	case "absent", "absent_over_time":
		return 1
	}
	most := float64(1)
	for _, arg := range n.Args {
		if t := arg.Type(); t == parser.ValueTypeVector || t == parser.ValueTypeMatrix {
			most = max(most, e.same(arg, l))
			if n.Func.Name == "info" { // the other one selects labels
				break
			}
		}
	}
	return most
}
