package server

import (
	"github.com/spillwayproject/spillway/proxy/dropped"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// lookDropped finds out what of the request drop rules have taken away, for its answer and the
// metric. Without drop_rules it does nothing, and for an inventory neither: who asks for all that
// is stored misses nothing, and takes any warning for a hole in it.
func (x *exchange) lookDropped() {
	if x.st.drops == nil || x.takesStock() {
		return
	}
	asked := dropped.Asked{Selectors: x.dec.Selectors, Until: func(i int) int64 {
		if i < len(x.dec.Windows) { // queries know of each selector what it reads
			return x.dec.Windows[i].End
		}
		return x.dec.End
	}}
	switch x.req.ID.Selects() {
	case endpoint.SelectsNothing:
		return
	case endpoint.SelectsComputed:
		asked.Expr = x.dec.Expr
	}
	x.drops = x.st.drops.Look(asked)
	for _, rule := range x.drops.Rules {
		x.s.metrics.drops.WithLabelValues(rule).Inc()
	}
	if x.tenant.Narrow() { // rules name what others have, or had
		x.drops.Warnings, x.drops.Infos = nil, nil
	}
}
