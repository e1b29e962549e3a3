package server

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
)

// maxTieOrders is in how many orders of the series the reference is asked at most before a choice
// between equal values counts as one that it never makes.
const maxTieOrders = 192

// tied tells whether the answer is one that the choice between equal values allows. Where the
// choice is the whole expression, that is judged by what there was to choose from: the values must
// be the best, or so many as there are to be, and every series must be there with the value that it
// was chosen for. Where more is done to what was chosen, each single value, or its absence, and the
// number of series at each time must be one of the reference's own in some order of its series.
func (h *exactHarness) tied(q exactQuestion, e parser.Expr, seen *exactSeen, got *exactAnswer, others []*exactAnswer,
	shuffle func([]storage.Series),
) bool {
	tolerance := exactTolerance(e)
	for p, ok := e.(*parser.ParenExpr); ok; p, ok = e.(*parser.ParenExpr) {
		e = p.Expr
	}
	if a, ok := e.(*parser.AggregateExpr); ok && choosesTie(a.Op) && !hasTie(a.Expr) {
		if k, ok := a.Param.(*parser.NumberLiteral); ok {
			part := q
			part.query = a.Expr.String()
			if from := h.ref.ask(h.t.Context(), part, *seen, nil); from.err == nil {
				return from.answer.allows(a, int(k.Val), got, tolerance)
			}
		}
	}
	for asked := len(others); asked < maxTieOrders; asked += 16 {
		if got.mixed(others, tolerance) {
			return true
		}
		for range 16 {
			other := h.ref.ask(h.t.Context(), q, *seen, shuffle)
			if other.err == nil { // of some choices two have the same labels at last, of others not
				others = append(others, other.answer)
			}
		}
	}
	return got.mixed(others, tolerance)
}

// chosen tells whether it depends on the choice between equal values that the query fails, as where
// only some choices leave two series with the same labels: the reference fails too in some order of
// its series, or answers as the proxy does, which failed where got is nil.
func (h *exactHarness) chosen(q exactQuestion, seen exactSeen, got *exactAnswer) bool {
	e, err := exactParser.ParseExpr(q.query)
	if err != nil || !hasTie(e) {
		return false
	}
	rng := rand.New(rand.NewPCG(h.w.seed, 31))
	var others []*exactAnswer
	for range maxTieOrders {
		other := h.ref.ask(h.t.Context(), q, seen,
			func(s []storage.Series) { rng.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] }) })
		switch {
		case other.err == nil:
			others = append(others, other.answer)
		case got == nil && strings.Contains(other.err.Error(), "same labelset"):
			return true
		}
	}
	return got != nil && len(others) > 0 && got.mixed(others, exactTolerance(e))
}

func choosesTie(op parser.ItemType) bool {
	return op == parser.TOPK || op == parser.BOTTOMK || op == parser.LIMITK
}

func hasTie(e parser.Node) bool {
	found := false
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		a, ok := n.(*parser.AggregateExpr)
		found = found || ok && choosesTie(a.Op)
		return nil
	})
	return found
}

// allows tells whether got is a choice of k of each group of what there is.
func (a *exactAnswer) allows(by *parser.AggregateExpr, k int, got *exactAnswer, tolerance float64) bool {
	type place struct {
		group string
		t     int64
	}
	had, chosen := map[place][]float64{}, map[place][]float64{}
	group := func(key string) (string, bool) {
		l, err := exactParser.ParseMetric(key)
		if err != nil {
			return "", false
		}
		b := labels.NewBuilder(l)
		if by.Without {
			b.Del(append(slices.Clone(by.Grouping), "__name__")...)
		} else {
			b.Keep(by.Grouping...)
		}
		return b.Labels().String(), true
	}
	// What a choice looks at: limitk only counts.
	rank := func(v exactValue) float64 {
		f, err := strconv.ParseFloat(v.text, 64)
		switch {
		case by.Op == parser.LIMITK || err != nil:
			return 0
		case math.IsNaN(f):
			return math.Inf(1) // after all others, infinite ones among them
		case f == 0:
			return 0 // of either sign
		case by.Op == parser.TOPK:
			return -f
		}
		return f
	}
	for key, points := range a.series {
		g, ok := group(key)
		if !ok {
			return false
		}
		for t, v := range points {
			if v.h == nil || by.Op == parser.LIMITK {
				had[place{g, t}] = append(had[place{g, t}], rank(v))
			}
		}
	}
	for key, points := range got.series {
		g, ok := group(key)
		if !ok {
			return false
		}
		for t, v := range points {
			if from, ok := a.series[key][t]; !ok || v.differ(from, tolerance) != nil {
				return false // it was not there, or with another value
			}
			chosen[place{g, t}] = append(chosen[place{g, t}], rank(v))
		}
	}
	for p, best := range had {
		slices.Sort(best)
		best = best[:max(0, min(k, len(best)))]
		own := chosen[p]
		slices.Sort(own)
		if len(own) != len(best) {
			return false
		}
		for i := range own {
			if differNumbers(fmt.Sprint(own[i]), fmt.Sprint(best[i]), tolerance) != nil {
				return false
			}
		}
		delete(chosen, p)
	}
	return len(chosen) == 0
}

// mixed tells whether each value of the answer, each absence of one, and the number of series at
// each time are those of one of the others.
func (a *exactAnswer) mixed(others []*exactAnswer, tolerance float64) bool {
	keys := map[string]map[int64]bool{}
	note := func(o *exactAnswer) map[int64]int {
		counts := map[int64]int{}
		for key, points := range o.series {
			if keys[key] == nil {
				keys[key] = map[int64]bool{}
			}
			for t := range points {
				keys[key][t] = true
				counts[t]++
			}
		}
		return counts
	}
	own := note(a)
	sizes := make([]map[int64]int, len(others))
	for i, o := range others {
		if o.kind != a.kind {
			return false
		}
		sizes[i] = note(o)
	}
	for key, times := range keys {
		for t := range times {
			got, has := a.series[key][t]
			if !slices.ContainsFunc(others, func(o *exactAnswer) bool {
				v, ok := o.series[key][t]
				return ok == has && (!ok || got.differ(v, tolerance) == nil)
			}) {
				return false
			}
		}
	}
	all := map[int64]int{}
	for _, counts := range append(sizes, own) {
		maps.Copy(all, counts)
	}
	for t := range all {
		if !slices.ContainsFunc(sizes, func(counts map[int64]int) bool { return counts[t] == own[t] }) {
			return false
		}
	}
	return true
}
