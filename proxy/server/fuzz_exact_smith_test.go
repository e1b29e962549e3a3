package server

import (
	"maps"
	rand1 "math/rand"
	"slices"
	"time"

	"github.com/cortexproject/promqlsmith"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// promqlsmith puts a function of its own into the parser's table when it is loaded. Nothing else
// here may see it.
func init() { delete(parser.Functions, "holt_winters") }

// newExactSmith returns promqlsmith over the label sets of the world. It walks maps: the same seed
// does not write the same queries again, which is why a failure is printed with its text.
func newExactSmith(w *exactWorld) func() string {
	held := map[string]labels.Labels{}
	for _, g := range w.groups {
		for _, s := range g.shards {
			for _, r := range s.replicas {
				for i := range r.series {
					l := g.held(r.series[i].lbls)
					held[l.String()] = l
				}
			}
		}
	}
	var sets []labels.Labels
	for _, key := range slices.Sorted(maps.Keys(held)) {
		sets = append(sets, held[key])
	}
	functions := make([]*parser.Function, 0, len(parser.Functions))
	for _, name := range slices.Sorted(maps.Keys(parser.Functions)) {
		switch name {
		case "time", "pi", "sort", "sort_desc": // nothing that asks the shards, or an order that only the outermost node has
		case "histogram_quantiles", "start", "end", "range", "step": // promqlsmith does not know how their arguments are written
		default:
			functions = append(functions, parser.Functions[name])
		}
	}
	smiths := make([]*promqlsmith.PromQLSmith, 3)
	rng := rand1.New(rand1.NewSource(int64(w.seed)))
	for i := range smiths {
		smiths[i] = promqlsmith.New(rng, sets, promqlsmith.WithMaxDepth(2+i), promqlsmith.WithEnableOffset(true),
			promqlsmith.WithEnableAtModifier(true),
			promqlsmith.WithEnableVectorMatching(true), promqlsmith.WithEnabledFunctions(functions),
			promqlsmith.WithEnabledAggrs([]parser.ItemType{
				parser.SUM, parser.SUM, parser.MIN, parser.MAX, parser.AVG, parser.COUNT, parser.GROUP, parser.STDDEV, parser.STDVAR,
				parser.TOPK, parser.BOTTOMK, parser.QUANTILE,
				parser.COUNT_VALUES, parser.LIMITK, parser.LIMIT_RATIO,
			}))
	}
	return func() (text string) {
		defer func() {
			if recover() != nil {
				text = "" // it cuts label values in the middle of a rune, which is no regular expression
			}
		}()
		e := smiths[rng.Intn(len(smiths))].WalkRangeQuery()
		if e == nil {
			return ""
		}
		parser.Inspect(e, func(n parser.Node, _ []parser.Node) error { // @ into the data, not into 1970
			within := func(ts *int64) {
				if ts != nil {
					*ts = w.start.UnixMilli() + *ts%w.length.Milliseconds()
				}
			}
			switch n := n.(type) {
			case *parser.VectorSelector:
				within(n.Timestamp)
			case *parser.SubqueryExpr:
				within(n.Timestamp)
				n.Range, n.Step = 10*time.Minute, time.Minute
			}
			return nil
		})
		return e.String()
	}
}
