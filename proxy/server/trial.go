package server

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/rewrite"
)

// trial is a candidate that is tried: for whom, within which bounds beside its own, and what came
// of it.
type trial struct {
	caller identity.Caller
	limits config.Limits
	took   rewrite.Took
	// countedSeries and countedSamples came of counting, before it was asked.
	countedSeries, countedSamples int64
	cut                           bool // only a bound, or its limit=, keeps its answer from being whole
}

// trialSlack is how much longer a trial may take by its own deadline: the time for which the
// refusal is kept back has to end first.
const trialSlack = 200 * time.Millisecond

// try asks a candidate for whoever asks. It ends with ctx.
func (x *exchange) try(ctx context.Context, req *endpoint.Request) (rewrite.Took, error) {
	w := &witness{nowhere: nowhere{http.Header{}}}
	t, err := x.tryInto(ctx, req, w)
	if err != nil {
		return rewrite.Took{}, err
	}
	t.took.Results = w.results(req.ID)
	t.took.Whole = t.took.Whole && !w.warned
	return t.took, nil
}

// tryInto is try with somebody who takes the answer.
func (x *exchange) tryInto(ctx context.Context, req *endpoint.Request, into http.ResponseWriter) (*trial, error) {
	own := req.Clone()
	if until, ok := ctx.Deadline(); ok {
		if left := time.Until(until) + trialSlack; own.Timeout == 0 || left < own.Timeout {
			own.Timeout = max(left, time.Millisecond).Round(time.Millisecond)
		}
	}
	t := &trial{caller: x.caller, limits: x.strict}
	from := (&http.Request{Header: http.Header{}}).WithContext(identity.With(ctx, identity.From(x.whole)))
	if _, qe := x.s.road(into, from, &inner{req: own, tenant: x.tenant, operator: x.exempt, trial: t}); qe != nil {
		return nil, qe
	}
	return t, nil
}

// bound are the bounds of a trial: its own, those of whoever was refused, and what is cheap,
// whichever is least.
func (t *trial) bound(own config.Limits, pool int64) config.Limits {
	own.MaxSeries = min(own.MaxSeries, t.limits.MaxSeries, cheapSeries)
	own.MaxSeriesTouched = min(own.MaxSeriesTouched, t.limits.MaxSeriesTouched)
	own.MaxSamples = min(own.MaxSamples, t.limits.MaxSamples, cheapSamples)
	own.MaxResponseBytes = min(own.MaxResponseBytes, t.limits.MaxResponseBytes, max(pool/cheapPart, 1))
	own.MaxShardBytes = min(own.MaxShardBytes, t.limits.MaxShardBytes)
	own.MaxRange = min(own.MaxRange, t.limits.MaxRange)
	own.Timeout = min(own.Timeout, t.limits.Timeout)
	return own
}

// finishTrial is finish for a candidate that was tried. It is part of the request that was refused:
// what it took is its caller's, and neither the usage log nor the counters of requests know of it,
// since nobody looks at what it asks for.
func (s *Server) finishTrial(x *exchange, failed bool) {
	t := x.trial
	t.took = rewrite.Took{
		Series: x.budget.Series() - t.countedSeries, Samples: x.budget.Samples() - t.countedSamples, Time: s.now().Sub(x.began),
	}
	lacking := failed || len(x.attempt.Without) > 0 || x.twice.any()
	t.cut = !lacking && x.verdict() == policy.Clamp
	t.took.Whole = !lacking && x.verdict() == policy.Pass && len(x.warnings.List()) == 0
	s.attribute(x, nil)
}

// witness is an http.ResponseWriter that keeps nothing of an answer, and knows how many series it
// has, and whether it warns. What it looks for cannot stand in a string of JSON, where quotes are
// escaped.
type witness struct {
	nowhere
	tail   []byte // of what came, shorter than the longest of what is looked for
	series int64
	bytes  int64
	warned bool
}

var (
	witnessSeries = [][]byte{[]byte(`"metric":{`), []byte(`"seriesLabels":{`)}
	witnessWarned = []byte(`"warnings":[`)
)

// Write implements io.Writer.
func (w *witness) Write(p []byte) (int, error) {
	w.bytes += int64(len(p))
	text := slices.Concat(w.tail, p)
	seen := func(what []byte) int64 { // what was seen in the tail already is not seen again
		return int64(bytes.Count(text, what) - bytes.Count(w.tail, what))
	}
	for _, what := range witnessSeries {
		w.series += seen(what)
	}
	w.warned = w.warned || seen(witnessWarned) > 0
	w.tail = append(w.tail[:0], text[max(0, len(text)-len(witnessSeries[1])+1):]...)
	return len(p), nil
}

// results are how many series the answer has; of federate, which is text, whether it has any.
func (w *witness) results(id endpoint.ID) int64 {
	if !id.JSON() {
		return min(w.bytes, 1)
	}
	return w.series
}
