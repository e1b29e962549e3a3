package policy

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// maxPointsPerSeries is Prometheus' own bound on the steps of a range query: end - start may be
	// at most 11,000 steps.
	maxPointsPerSeries = 11_000
	// maxSubqueryPoints bounds the steps that one subquery is evaluated at for one request.
	// [31d:15s] is 178,560.
	maxSubqueryPoints = 20 * maxPointsPerSeries
	// maxSubqueryVisits bounds how often, for one series, all steps of the outer query together
	// look at a point of a subquery: about a second of CPU.
	maxSubqueryVisits = 250_000_000
	// maxEffort bounds the same over the whole text, a point weighted by what the function does
	// there: three to five seconds of CPU. mad_over_time(x[1d]) at 2,000 steps takes all of it.
	maxEffort = 1_250_000_000
	// nodeVisits is what one node of the text takes at one step, in visits.
	nodeVisits = 50
	// assumedIntervalMs stands for the time between two samples of a stored series.
	assumedIntervalMs = int64(15 * time.Second / time.Millisecond)
	// defaultSubqueryStepMs stands for a subquery's step where the text has none: Prometheus'
	// default evaluation interval.
	defaultSubqueryStepMs = int64(time.Minute / time.Millisecond)
	// defaultLookbackMs is Prometheus' default lookback.
	defaultLookbackMs = int64(5 * time.Minute / time.Millisecond)
)

// timeOrder rejects a range that ends before it starts, with Prometheus' sentence. In such a range
// of metadata nothing is found, as there.
type timeOrder struct{}

func (timeOrder) Name() string { return "time_order" }

func (timeOrder) Check(q *Query) error {
	r := q.Request
	if backwards(r) && !isMetadata(r.ID) {
		return qerr.Prometheus(`invalid parameter "end": end timestamp must not be before start time`)
	}
	if r.ID.Span() == endpoint.SpanSteps && r.Step > 0 && r.Step < time.Millisecond {
		return qerr.New(qerr.BadData, `invalid parameter "step": %s is finer than Prometheus keeps time; use 1ms or more`, r.Step)
	}
	if r.ID.Span() == endpoint.SpanSteps && r.Step <= 0 {
		return qerr.Prometheus(`invalid parameter "step": zero or negative query resolution step widths are not accepted. Try a positive integer`)
	}
	if r.ReadQuery != nil {
		for i, rq := range r.ReadQuery.Queries {
			if rq != nil && rq.EndTimestampMs < rq.StartTimestampMs {
				return qerr.New(qerr.BadData, "query %d of the remote read request ends before it starts", i)
			}
		}
	}
	return nil
}

// backwards tells whether the request's range ends before it starts.
func backwards(r *endpoint.Request) bool { return r.Start.Set && r.End.Set && r.End.Ms < r.Start.Ms }

// maxPoints refuses range queries with more steps than Prometheus takes.
type maxPoints struct{}

func (maxPoints) Name() string { return BoundMaxPoints }

func (maxPoints) Check(q *Query) error {
	r := q.Request
	if r.ID.Span() != endpoint.SpanSteps {
		return nil
	}
	width := satSub(r.End.Ms, r.Start.Ms)
	steps := width / max(1, ms(r.Step))
	if steps <= maxPointsPerSeries {
		return nil
	}
	least := time.Duration(min((width/maxPointsPerSeries+1000)/1000, int64(maxSeconds))) * time.Second
	return qerr.Refuse(BoundMaxPoints, strconv.Itoa(maxPointsPerSeries), strconv.FormatInt(steps, 10),
		"use step="+model.Duration(least).String()+" or more, or a shorter range",
		"exceeded maximum resolution of 11,000 points per timeseries: %s at a step of %s are %d points", span2text(width), model.Duration(r.Step), steps)
}

// maxSeconds is the longest time.Duration in whole seconds.
const maxSeconds = int64(1<<63-1) / int64(time.Second)

// span2text writes a number of milliseconds as a duration; model.Duration would wrap around beyond
// 292 years.
func span2text(width int64) string {
	if width > maxSeconds*1000 {
		return "more than 292y"
	}
	return model.Duration(time.Duration(width) * time.Millisecond).String()
}

// maxRange refuses requests whose own range is longer than the bound. Metadata is narrowed instead.
type maxRange struct{}

func (maxRange) Name() string { return BoundMaxRange }

func (maxRange) Check(q *Query) error {
	r := q.Request
	most := ms(q.Limits.MaxRange)
	switch r.ID.Span() {
	case endpoint.SpanSteps:
		if width := satSub(r.End.Ms, r.Start.Ms); width > most {
			return refuseRange(q, width, "the range of the query is %s", span2text(width))
		}
	case endpoint.SpanRange:
		if isMetadata(r.ID) || !r.Start.Set || inFuture(q) {
			return nil
		}
		// Nothing lies in the future, so a range that ends there is no wider for it.
		if width := satSub(min(r.End.Or(q.NowMs), max(q.NowMs, r.Start.Ms)), r.Start.Ms); width > most {
			return refuseRange(q, width, "the range of the query is %s", span2text(width))
		}
	case endpoint.SpanQueries:
		if r.ReadQuery == nil {
			return nil
		}
		for i, rq := range r.ReadQuery.Queries {
			if rq == nil || lists(rq) {
				continue
			}
			if width := satSub(min(rq.EndTimestampMs, max(q.NowMs, rq.StartTimestampMs)), rq.StartTimestampMs); width > most {
				return refuseRange(q, width, "query %d of the remote read request covers %s", i, span2text(width))
			}
		}
	}
	if back := ms(r.LookbackDelta); back > most {
		return refuseRange(q, back, "lookback_delta is %s", span2text(back))
	}
	return nil
}

// lists tells whether a remote read wants to know which series there are, and no samples: a
// Prometheus that reads here asks so for its own lists of series. It is over all time where its
// client gave no start, and a refusal is no error there but an empty list.
func lists(rq *prompb.Query) bool { return rq.Hints != nil && rq.Hints.Func == "series" }

// boundReads holds the remote reads that list to their newest max_range, as lists are.
func boundReads(q *Query, d *Decision) {
	r := d.Request.ReadQuery
	if r == nil {
		return
	}
	out := *r
	out.Queries = slices.Clone(r.Queries)
	for i, rq := range out.Queries {
		if rq == nil || !lists(rq) {
			continue
		}
		one, hints := *rq, *rq.Hints
		if one.EndTimestampMs > q.NowMs && one.StartTimestampMs <= q.NowMs {
			one.EndTimestampMs = q.NowMs
		}
		from := satSub(one.EndTimestampMs, ms(q.Limits.MaxRange))
		if one.StartTimestampMs >= from {
			continue
		}
		one.StartTimestampMs = from
		hints.StartMs, hints.EndMs = max(hints.StartMs, from), min(hints.EndMs, one.EndTimestampMs)
		one.Hints, out.Queries[i] = &hints, &one
		d.Narrowed, d.Verdict = true, Clamp
	}
	d.Request.ReadQuery = &out
}

func refuseRange(q *Query, seen int64, format string, args ...any) error {
	most := model.Duration(q.Limits.MaxRange).String()
	e := qerr.Refuse(BoundMaxRange, most, span2text(seen), "ask for a shorter range, or several ranges one after another; for good, record what the long range comes to by a rule and ask for that, or raise limits.max_range", format, args...)
	e.Message += " and max_range is " + most
	return e
}

// readSpan is the stretch of time that the queries of a remote read request cover together.
func readSpan(r *endpoint.Request) (start, end int64) {
	if r.ReadQuery == nil {
		return 0, 0
	}
	first := true
	for _, rq := range r.ReadQuery.Queries {
		if rq == nil {
			continue
		}
		if first {
			start, end, first = rq.StartTimestampMs, rq.EndTimestampMs, false
			continue
		}
		start, end = min(start, rq.StartTimestampMs), max(end, rq.EndTimestampMs)
	}
	return start, end
}
