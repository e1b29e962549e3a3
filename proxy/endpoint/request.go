package endpoint

import (
	"time"

	"github.com/prometheus/prometheus/prompb"
)

// Time is an instant in milliseconds since the Unix epoch, as Prometheus keeps it, or absent.
type Time struct {
	// Ms is the instant; meaningless unless Set.
	Ms int64
	// Set tells whether the client gave it.
	Set bool
}

// At is a Time that is set.
func At(ms int64) Time { return Time{Ms: ms, Set: true} }

// Or returns the instant in milliseconds, or def where it is absent.
func (t Time) Or(def int64) int64 {
	if t.Set {
		return t.Ms
	}
	return def
}

// Request is one call of the API, typed: what Parse understood of a client's request and what Write
// sends to a shard. Nothing else of a client's request (path, query string, body, headers) ever
// reaches a shard. Fields that an endpoint does not take are zero.
type Request struct {
	// ID is the endpoint.
	ID ID
	// Label is the label name of label_values, decoded (U__ escaping undone), and of
	// search_label_values, as it is.
	Label string
	// Query is the PromQL text of query, query_range, query_exemplars, format_query and
	// parse_query, as the client sent it.
	Query string
	// Match holds the match[] selectors of series, labels, label_values, federate (and match_target
	// of targets_metadata, one), as sent.
	Match []string
	// Time is the evaluation time of query.
	Time Time
	// Start and End bound series, labels, label_values, query_range and query_exemplars.
	Start, End Time
	// Step is the resolution of query_range, whole milliseconds; > 0 there.
	Step time.Duration
	// Timeout is the client's own bound; 0 is none. It can only lower Spillway's.
	Timeout time.Duration
	// LookbackDelta is lookback_delta of query and query_range; 0 is the server's default.
	LookbackDelta time.Duration
	// Limit is limit of query, query_range, series, labels, label_values, metadata,
	// targets_metadata (and limit_per_metric is LimitPerMetric); 0 is none. Of the search endpoints
	// it is above zero.
	Limit int
	// LimitPerMetric belongs to metadata; 0 is none.
	LimitPerMetric int
	// Stats is stats of query and query_range: empty, or what the client wrote, such as all.
	Stats string
	// PartialResponse is Thanos' partial_response: nil where the client did not choose.
	PartialResponse *bool
	// Metric is metric of metadata and targets_metadata; empty is all.
	Metric string
	// Filters are the remaining single-valued or repeated filters of rules, alerts, targets and
	// status/tsdb (type, rule_name[], rule_group[], file[], match[] of rules, exclude_alerts,
	// state, scrapePool, group_limit, group_next_token, limit), and what the search endpoints are
	// told about texts and order, by parameter name, values in the order sent; nil where none.
	Filters map[string][]string
	// ReadQuery is the decoded body of read.
	ReadQuery *prompb.ReadRequest
	// Dropped are the names of unknown parameters that Parse dropped, sorted, at most 16. Write
	// never sends them, and they take no part in equality.
	Dropped []string
}

// Clone returns a copy whose slices and maps can be changed without touching r. ReadQuery is
// shared: nobody changes it.
func (r *Request) Clone() *Request {
	c := *r
	c.Match = append([]string(nil), r.Match...)
	c.Dropped = append([]string(nil), r.Dropped...)
	if r.Filters != nil {
		c.Filters = make(map[string][]string, len(r.Filters))
		for k, v := range r.Filters {
			c.Filters[k] = append([]string(nil), v...)
		}
	}
	if r.PartialResponse != nil {
		v := *r.PartialResponse
		c.PartialResponse = &v
	}
	return &c
}
