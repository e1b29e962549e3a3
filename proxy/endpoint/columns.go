package endpoint

import (
	"slices"
	"time"
)

// Selects tells what a request does with the stored series that it names. That is the work of a
// shard, and it decides what a bound may do: what is listed can be narrowed; what is computed, or
// sent as it is stored, can only be refused.
type Selects string

// What is done with series.
const (
	// SelectsNothing is for endpoints that look at no stored series, or only at text.
	SelectsNothing Selects = "nothing"
	// SelectsComputed evaluates an expression over their samples.
	SelectsComputed Selects = "computed"
	// SelectsStored sends what is stored of them: samples or exemplars.
	SelectsStored Selects = "stored"
	// SelectsListed lists them, or their names and values, from the index.
	SelectsListed Selects = "listed"
)

// Span tells how a request says which time it looks at.
type Span string

// The ways to say it.
const (
	// SpanNone is for endpoints that look at no time.
	SpanNone Span = "none"
	// SpanInstant is one instant, Request.Time; now where absent.
	SpanInstant Span = "instant"
	// SpanSteps is from Request.Start to Request.End, both given, at every Request.Step.
	SpanSteps Span = "steps"
	// SpanRange is from Request.Start to Request.End, of which either may be absent.
	SpanRange Span = "range"
	// SpanQueries is a range for each query of Request.ReadQuery.
	SpanQueries Span = "queries"
	// SpanRecent is the lookback before now; the request has no say in it.
	SpanRecent Span = "recent"
)

// Whole tells whether the endpoint answers about the servers or all that they hold.
func (id ID) Whole() bool { return id.row().Whole }

// Limits are an endpoint's own limits where the configuration overrides nothing; zero is the
// ceiling of all. They are lower than that where an endpoint's honest use is smaller than a
// query's: metadata is asked while someone types, status pages are small, and nobody waits 25
// seconds for either.
type Limits struct {
	// Timeout is the deadline of the whole request.
	Timeout time.Duration
	// MaxSeries is how many series, names or values it may return.
	MaxSeries int
	// MaxResponseBytes is how many bytes shards may send and the answer may have.
	MaxResponseBytes int64
}

// nobody is the row of IDs that are in no row.
var nobody = Endpoint{Class: ClassLocal, Decode: DecodeNone, Merge: MergeNone, Selects: SelectsNothing, Span: SpanNone}

func (id ID) row() *Endpoint {
	if e := byID[id]; e != nil {
		return e
	}
	return &nobody
}

// Class is what the endpoint costs a shard.
func (id ID) Class() Class { return id.row().Class }

// Decode is the shape of a shard's answer.
func (id ID) Decode() Decode { return id.row().Decode }

// Selects is what the endpoint makes of stored series.
func (id ID) Selects() Selects { return id.row().Selects }

// Span is how a request to the endpoint says which time it looks at.
func (id ID) Span() Span { return id.row().Span }

// Blames is the parameter that Prometheus names before what is wrong with a text; empty where it
// names none.
func (id ID) Blames() string { return id.row().Blames }

// Inventory tells whether spillway relabel asks the endpoint to take stock of what is stored and
// scraped.
func (id ID) Inventory() bool { return id.row().Inventory }

// Limits are the endpoint's own limits.
func (id ID) Limits() Limits { return id.row().Limits }

// Evaluates tells whether the answer is the value of an expression.
func (id ID) Evaluates() bool { return id.row().Selects == SelectsComputed }

// HasQuery tells whether a request has a PromQL text, evaluated or not.
func (id ID) HasQuery() bool { return id.row().promql }

// Requires tells whether a request must have the parameter.
func (id ID) Requires(param string) bool {
	for _, p := range id.row().Params {
		if p.Name == param {
			return p.Required
		}
	}
	return false
}

// Partial tells whether a request can choose what happens when a shard fails (partial_response).
func (id ID) Partial() bool {
	return slices.ContainsFunc(id.row().Params, func(p Param) bool { return p.Name == partialName })
}

// JSON tells whether the answer is JSON as the API of Prometheus has it, with a place for warnings.
// It is so for all that have no protocol of their own.
func (id ID) JSON() bool {
	d := id.row().Decode
	return d != DecodeRead && d != DecodeExposition
}
