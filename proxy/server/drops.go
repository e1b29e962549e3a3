package server

import (
	"github.com/spillwayproject/spillway/proxy/dropped"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// lookDropped finds out what of the request drop rules have taken away, for its answer and the metric. Without drop_rules it does nothing.
func (x *exchange) lookDropped() {
	if x.st.drops == nil {
		return
	}
	asked := dropped.Asked{Selectors: x.dec.Selectors, Until: func(i int) int64 {
		if i < len(x.dec.Windows) { // queries know of each selector what it reads
			return x.dec.Windows[i].End
		}
		return x.dec.End
	}}
	switch x.req.ID {
	case endpoint.Query, endpoint.QueryRange:
		asked.Expr = x.dec.Expr
	case endpoint.QueryExemplars, endpoint.Series, endpoint.Labels, endpoint.LabelValues, endpoint.Read, endpoint.Federate:
	default:
		return // nothing stored is looked at
	}
	x.drops = x.st.drops.Look(asked)
	for _, rule := range x.drops.Rules {
		x.s.metrics.drops.WithLabelValues(rule).Inc()
	}
}
