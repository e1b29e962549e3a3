package server

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/proxy/cost"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/weigh"
)

// newEstimates is the metric of what estimates are worth.
func newEstimates() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "spillway_estimate_ratio", Help: "What a request was estimated to take, by what it took, of series and samples that shards sent; by whether answers had shown something of such a text before (known).",
		Buckets: []float64{.1, .25, .5, .8, .95, 1.05, 1.5, 2, 5, 10, 100},
	}, []string{"endpoint", "of", "known"})
}

// foresee estimates what the request will take. Nobody is asked for it.
func (x *exchange) foresee() {
	if a := x.weighable(); a != nil && !bare {
		x.expect(x.st.known.Estimate(a))
	}
}

// weighable is what an estimate is made for; nil where the request selects nothing.
func (x *exchange) weighable() *weigh.Asked {
	req := x.dec.Request
	if req.ID.Selects() == endpoint.SelectsNothing || x.dec.Empty {
		return nil
	}
	a := &weigh.Asked{
		Request: req, Tenant: x.tenantName(), Expr: x.dec.Expr, Selectors: x.dec.Selectors, Windows: x.dec.Windows,
		From: x.dec.Start, Until: x.dec.End, View: x.view,
	}
	if req.ID.Selects() == endpoint.SelectsListed {
		a.Limit = x.dec.Limit
	}
	if req.ID.Evaluates() {
		a.Grid = cost.Grid{
			Steps: 1, Interval: x.evaluationInterval().Milliseconds(), Lookback: cmp.Or(req.LookbackDelta, x.lookback()).Milliseconds(),
		}
		if req.ID.Span() == endpoint.SpanSteps {
			a.Grid.Steps, a.Grid.Step = int64(x.grid().Len()), req.Step.Milliseconds()
		}
	}
	return a
}

// expect is what the request is expected to take from now on.
func (x *exchange) expect(e *weigh.Estimate) {
	x.foreseen.Store(e)
	if x.account != nil && !x.tenant.Narrow() { // shards tell of what others have, too
		x.account.cost = estimateOf(e)
	}
}

// estimateOf is an estimate as explain has it.
func estimateOf(e *weigh.Estimate) *plan.Estimate {
	if e == nil {
		return nil
	}
	return &plan.Estimate{
		By: string(e.By), Series: e.Series, Samples: e.Samples, Bytes: e.Bytes, Selected: e.Selected, Read: e.Read,
		Held: e.Held, Seconds: e.Seconds, GiBSeconds: e.GiBSeconds(),
	}
}

// ratios are where it is told what estimates of an endpoint were worth; of lists nothing is told of
// samples.
type ratios struct{ series, samples prometheus.Observer }

// ratioKey is of which requests.
type ratioKey struct {
	id    endpoint.ID
	known bool
}

func (s *Server) ratios(id endpoint.ID, known bool) ratios {
	key := ratioKey{id, known}
	if r, ok := s.told.Load(key); ok {
		return r.(ratios)
	}
	text := "no"
	if known {
		text = "yes"
	}
	r := ratios{series: s.metrics.estimates.WithLabelValues(string(id), "series", text)}
	if id.Selects() != endpoint.SelectsListed {
		r.samples = s.metrics.estimates.WithLabelValues(string(id), "samples", text)
	}
	s.told.Store(key, r)
	return r
}

// compare compares the estimate with what the answer took, and learns of it. Only whole answers
// that shards were asked for tell how much there is; of one that gave its statistics up what was
// read in vain for them was expected.
func (s *Server) compare(x *exchange, qe *qerr.Error) {
	e := x.foreseen.Load()
	if e == nil || qe != nil || x.trial != nil || x.budget == nil || x.cut || x.less ||
		x.attempt.NoStats && !x.uncounted || len(x.attempt.Without) > 0 || x.account != nil && x.account.only {
		return
	}
	took := weigh.Took{Series: x.budget.Series(), Samples: x.budget.Samples(), Bytes: x.budget.Bytes(), Seconds: x.calls.get().Seconds()}
	ratios := s.ratios(x.id, e.By == weigh.ByText || e.By == weigh.ByShape)
	ratio := func(estimated, counted int64) float64 { return float64(max(estimated, 1)) / float64(max(counted, 1)) }
	ratios.series.Observe(ratio(e.Series, took.Series))
	if ratios.samples != nil {
		ratios.samples.Observe(ratio(e.Samples, took.Samples))
	}
	x.st.known.Learn(e, took, s.now())
	x.st.known.Sizes.Refresh(e)
}
