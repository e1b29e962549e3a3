package rewrite

import (
	"iter"
	"slices"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/policy"
)

// way is the candidates of one kind, those that keep most of the question first.
type way = iter.Seq[Candidate]

// ways are what may help against the bound.
func (q *Question) ways() []way {
	switch q.Bound {
	case policy.BoundMaxPoints:
		return []way{q.steps, q.windows, q.resolutions}
	case policy.BoundMaxRange:
		return []way{q.windows, q.ranges}
	case policy.BoundMaxSamples, policy.BoundMaxResponseBytes, policy.BoundMaxShardBytes:
		return []way{q.steps, q.windows, q.resolutions, q.ranges, q.pairs, q.aggregations}
	case policy.BoundMaxSeries:
		return []way{q.aggregations, q.pairs, q.windows}
	case policy.BoundMaxSeriesTouched: // which neither less time nor fewer groups make fewer
		return []way{q.pairs}
	case policy.BoundUnselective:
		return []way{q.metrics, q.pairs}
	}
	return nil
}

// Helps tells whether there is any way to ask for less where the bound has refused.
func Helps(bound string) bool {
	q := Question{Request: &endpoint.Request{}, Bound: bound}
	return q.ways() != nil
}

func textBytes(texts []string) (n int) {
	for _, t := range texts {
		n += len(t)
	}
	return n
}

// windows are the stretches of time that people say, the longest first; steps those of a panel, the
// shortest first.
var (
	windows = []time.Duration{
		180 * day, 90 * day, 60 * day, 31 * day, 30 * day, 14 * day, 7 * day, 3 * day, 2 * day, day, 12 * time.Hour, 6 * time.Hour,
		3 * time.Hour, time.Hour, 30 * time.Minute, 15 * time.Minute, 5 * time.Minute, time.Minute,
	}
	steps = []time.Duration{
		2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute,
		5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour,
		12 * time.Hour, day,
	}
)

const day = 24 * time.Hour

// minSteps is how many steps a panel has at least for a longer step to be of use.
const minSteps = 12

// width is how long the request's own stretch of time is; false where it has none.
func (q *Question) width() (time.Duration, bool) {
	r := q.Request
	if s := r.ID.Span(); s != endpoint.SpanSteps && s != endpoint.SpanRange || !r.Start.Set || !r.End.Set || r.End.Ms <= r.Start.Ms {
		return 0, false
	}
	ms := r.End.Ms - r.Start.Ms
	if ms < 0 || ms > int64(292*365*day/time.Millisecond) {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

// windows are shorter stretches up to the same end, at moments of the longer one.
func (q *Question) windows(yield func(Candidate) bool) {
	width, ok := q.width()
	if !ok || q.Expr != nil && !timeless(q.Expr) {
		return
	}
	for _, d := range windows {
		if r := Shorter(q.Request, d); d < width && d >= q.Request.Step && r != nil && !yield(Candidate{Kind: Window, Request: r}) {
			return
		}
	}
}

// Shorter is the request over no more than the last d of its stretch of time, at moments that it
// has itself; nil where it has none there.
func Shorter(req *endpoint.Request, d time.Duration) *endpoint.Request {
	r := req.Clone()
	start, step := req.End.Ms-d.Milliseconds(), req.Step.Milliseconds()
	if start <= req.Start.Ms {
		return nil
	}
	if step > 0 {
		n := (start - req.Start.Ms + step - 1) / step
		start = req.Start.Ms + n*step
	}
	if start > req.End.Ms {
		return nil
	}
	r.Start = endpoint.At(start)
	return r
}

// steps are longer steps of a range query, whose moments are among those of the shorter ones.
func (q *Question) steps(yield func(Candidate) bool) {
	width, ok := q.width()
	own := q.Request.Step
	if !ok || own <= 0 || q.Request.ID.Span() != endpoint.SpanSteps || q.Expr != nil && !timeless(q.Expr) {
		return
	}
	last := own
	for _, d := range steps {
		d = (d + own - 1) / own * own
		if d <= last || width/d < minSteps {
			continue
		}
		last = d
		r := q.Request.Clone()
		r.Step = d
		if !yield(Candidate{Kind: Step, Request: r}) {
			return
		}
	}
}

// text yields a candidate of another text.
func (q *Question) text(kind Kind, text string, yield func(Candidate) bool) bool {
	if text == "" || text == q.Request.Query || len(text) > 2*MaxText {
		return true
	}
	if _, err := q.Parser.ParseExpr(text); err != nil {
		return true // what cannot be parsed again is no proposal
	}
	r := q.Request.Clone()
	r.Query = text
	return yield(Candidate{Kind: kind, Request: r})
}

// match yields a candidate of other selectors of match[].
func (q *Question) match(kind Kind, selectors []string, yield func(Candidate) bool) bool {
	if len(selectors) == 0 || slices.Equal(selectors, q.Request.Match) || textBytes(selectors) > 2*MaxText {
		return true
	}
	for _, s := range selectors {
		if _, err := q.Parser.ParseMetricSelector(s); err != nil {
			return true
		}
	}
	r := q.Request.Clone()
	r.Match = selectors
	return yield(Candidate{Kind: kind, Request: r})
}
