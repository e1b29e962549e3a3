package policy

import (
	"math"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// Check is one rule that a request must keep. A check is a pure function of the query: it asks
// nobody, keeps nothing and edits nothing.
type Check interface {
	// Name is the check's name in logs and tests; where the check refuses by a bound it is the
	// bound's name.
	Name() string
	// Check returns nil, or a *qerr.Error: BadData for what Prometheus itself would reject,
	// TooExpensive for what a bound refuses.
	Check(q *Query) error
}

// Query is a request on its way through the checks: what the client asked, the bounds it is held
// to, and what the checks so far have read out of it.
type Query struct {
	// Request is what the client asked. It is never changed.
	Request *endpoint.Request
	// Limits are the bounds of the endpoint.
	Limits Limits
	// NowMs is the proxy's clock in milliseconds, read once.
	NowMs int64

	// Expr is the parsed Request.Query, from the check "syntax" on; nil where the endpoint has no
	// query text.
	Expr parser.Expr
	// Selectors are the series selectors of the request in the order of the text: those of Expr, of
	// match[], or of the remote read queries.
	Selectors []Selector

	group   func(label string) bool
	known   *Known    // what was compiled before
	regexps []string  // the regular expressions in matchers, from the check "query_shape" on
	tokens  int       // of the texts, likewise
	sizes   regexSize // what they cost, from the check "regex_cost" on
	reach   *walker   // what Expr reads, from the check "syntax" on, where the endpoint evaluates it
	making  *maker    // what Expr makes, from the check "label_bytes" on; nil where that is nothing
}

// Selector is one series selector and what it was found to be.
type Selector struct {
	// Matchers are the matchers as the client wrote them, those on group and replica labels
	// included.
	Matchers []*labels.Matcher
	// Class is judged after matchers on group and replica labels are taken out.
	Class Class
}

// isMetadata tells whether the endpoint is answered bounded instead of being refused.
func isMetadata(id endpoint.ID) bool { return id.Class() == endpoint.ClassMetadata }

// reads tells whether the endpoint computes from stored samples or sends them, so that its
// selectors are refused where they are not bounded.
func reads(id endpoint.ID) bool {
	s := id.Selects()
	return s == endpoint.SelectsComputed || s == endpoint.SelectsStored
}

// selectsByQuery tells whether the endpoint selects series by the query text.
func selectsByQuery(id endpoint.ID) bool { return id.Class() == endpoint.ClassQuery }

// matchTexts are the selectors that a shard would have to parse.
func matchTexts(r *endpoint.Request) []string {
	if more := r.Filters["match[]"]; len(more) > 0 {
		return append(append([]string(nil), r.Match...), more...)
	}
	return r.Match
}

// satAdd is a + b, held at the ends of int64 where it would wrap around.
func satAdd(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// satSub is a - b, held at the ends of int64 where it would wrap around.
func satSub(a, b int64) int64 {
	if b == math.MinInt64 {
		return satAdd(satAdd(a, math.MaxInt64), 1)
	}
	return satAdd(a, -b)
}

// satMul is a * b for a, b >= 0, held at the end of int64.
func satMul(a, b int64) int64 {
	if a != 0 && b > math.MaxInt64/a {
		return math.MaxInt64
	}
	return a * b
}

// ms is a duration in whole milliseconds.
func ms(d time.Duration) int64 { return int64(d / time.Millisecond) }
