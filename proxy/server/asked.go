package server

import (
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
)

// expected is what a shard's own answer to the request's query must fit: what it sends beyond that
// would be passed on as the answer, by a server that errs or one that lies.
func (x *exchange) expected() *merge.Asked {
	req := x.dec.Request
	if req.ID.Span() == endpoint.SpanSteps {
		return &merge.Asked{
			Type: string(parser.ValueTypeMatrix),
			Grid: merge.Grid{Start: req.Start.Ms, End: req.End.Ms, Step: req.Step.Milliseconds()},
		}
	}
	// Prometheus gives all samples the time of the evaluation
	a := &merge.Asked{Type: string(x.dec.Expr.Type()), Grid: merge.Grid{Start: req.Time.Ms, End: req.Time.Ms}}
	if x.dec.Expr.Type() == parser.ValueTypeMatrix {
		a.Grid, a.Unsorted = storedAt(x.dec.Expr, req.Time.Ms), true
	}
	return a
}

// storedAt are the times that the samples of a range or a subquery may have, whose evaluation at ms
// is its samples as they are stored; all times where a duration is computed, or samples beyond the
// range count.
func storedAt(expr parser.Expr, ms int64) merge.Grid {
	const always = 1 << 62
	anywhere := merge.Grid{Start: -always, End: always, Step: 1}
	switch e := expr.(type) {
	case *parser.ParenExpr:
		return storedAt(e.Expr, ms)
	case *parser.MatrixSelector:
		v, ok := e.VectorSelector.(*parser.VectorSelector)
		if !ok || e.RangeExpr != nil || v.OriginalOffsetExpr != nil || v.Anchored || v.Smoothed {
			return anywhere
		}
		if v.Timestamp != nil {
			ms = *v.Timestamp
		}
		ms -= v.OriginalOffset.Milliseconds()
		return merge.Grid{Start: ms - e.Range.Milliseconds(), End: ms, Step: 1}
	case *parser.SubqueryExpr:
		if e.RangeExpr != nil || e.OriginalOffsetExpr != nil {
			return anywhere
		}
		if e.Timestamp != nil {
			ms = *e.Timestamp
		}
		ms -= e.OriginalOffset.Milliseconds()
		return merge.Grid{Start: ms - e.Range.Milliseconds(), End: ms, Step: 1}
	}
	return anywhere
}
