package policy

import (
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Limits are the bounds of one endpoint. All are finite and greater than zero; zero never means
// unlimited. The fields are those of the configuration's Limits, so that one converts to the other.
type Limits struct {
	// Timeout bounds the whole request.
	Timeout time.Duration
	// MaxSeries bounds the series, names or values that are held or returned.
	MaxSeries int
	// MaxSeriesTouched bounds the series that all shards together select, as estimated.
	MaxSeriesTouched int
	// MaxSamples bounds the samples that are held.
	MaxSamples int64
	// MaxResponseBytes bounds what is read from shards and what is returned.
	MaxResponseBytes int64
	// MaxShardBytes bounds what one server is made to hold, as estimated.
	MaxShardBytes int64
	// MaxRange bounds the stretch of time that is asked for.
	MaxRange time.Duration
	// MetadataRange is the stretch of time in which metadata is looked up where no metric is named.
	MetadataRange time.Duration
	// MaxQueryBytes bounds a query text, and the part of match[] outside string literals.
	MaxQueryBytes int64
	// Unselective is "refuse" or "allow": whether selectors that select nothing in particular are
	// refused in query, query_range, query_exemplars, federate and read, and lists of what they
	// select are cut at UnselectiveSeriesPerShard. Anything but "allow" refuses.
	Unselective string
}

// Verdict is what was decided about a request, and the value of the header X-Spillway-Verdict.
type Verdict string

// The verdicts.
const (
	// Pass is a request that is answered as asked.
	Pass Verdict = "pass"
	// Clamp is a request that is answered within narrower bounds than it asked for.
	Clamp Verdict = "clamp"
	// Refuse is a request that is not answered.
	Refuse Verdict = "refuse"
)

// Window is a stretch of time in milliseconds, both ends inclusive.
type Window struct{ Start, End int64 }

// UnselectiveSeriesPerShard is the most series that a metadata request with an unselective selector
// asks one shard for, unless Limits.Unselective is "allow".
const UnselectiveSeriesPerShard = 1000

// Decision is what becomes of a request.
type Decision struct {
	// Verdict is Pass, Clamp or Refuse. The server raises Pass to Clamp when it cuts an answer.
	Verdict Verdict
	// Request is what to ask of the shards: a new value with window, limit and timeout set, never
	// the client's own. Selectors are untouched.
	Request *endpoint.Request
	// Expr is the parsed query of query, query_range, query_exemplars, format_query and
	// parse_query, not preprocessed.
	Expr parser.Expr
	// Selectors are the matchers of match[], of Expr's selectors or of the remote read queries, in
	// the order of the text, as the client wrote them.
	Selectors [][]*labels.Matcher
	// OfInfo tells for each of Selectors whether it is the second argument of info(), which says
	// what labels are wanted of series that are joined; nil where none is.
	OfInfo []bool
	// Classes are the classes of Selectors, one for each.
	Classes []Class
	// Class is the strictest of Classes: Other for metadata without match[], Named where there is
	// nothing to select.
	Class Class
	// Windows are what each of Expr's selectors reads, in the order of the text; the same as
	// Selectors for query and query_range, else nil.
	Windows []Window
	// Made is what Expr makes of each series of each of its selectors, in the order of the text;
	// nil where it makes nothing of any. Whoever evaluates Expr charges it by Making.
	Made []Made
	// Heavy tells why a part of Expr must not run on shards, which may have more series than are
	// evaluated here: what it makes of each is too much. It is empty for a part that they may
	// evaluate; Heavy is nil where they may evaluate all parts.
	Heavy func(parser.Expr) string
	// Start and End bound, in milliseconds and inclusive, the samples that can take part: the
	// metadata window, or for queries the least and the latest instant that a selector reads,
	// ranges, offsets, @, subqueries and lookback included. Both are 0 where nothing is selected.
	Start, End int64
	// Narrowed tells that the client gave a start and the answer begins later.
	Narrowed bool
	// Searched says which time a list without a start is looked up in, and how to look further
	// back. It belongs in an answer that is empty, or that is about a metric that was named; empty
	// where there is nothing to say.
	Searched string
	// Unselective tells that the request needs one of the slots for unselective metadata calls.
	Unselective bool
	// PerShardLimit is limit for each shard: > 0 for series, labels and label_values, else the
	// client's own, 0 being none.
	PerShardLimit int
	// Limit is where the merged answer is cut: > 0 for series, labels and label_values, else the
	// client's own, 0 being none.
	Limit int
	// Constant tells that the expression selects nothing, so that it is evaluated without a shard.
	Constant bool
	// Empty tells that the answer is known to be empty, so that no shard is asked.
	Empty bool
	// Warnings belong in the answer.
	Warnings []string
	// Deadline is how long the request may take, the least of the client's timeout and ours; > 0.
	Deadline time.Duration
}

// Decide judges a request under the bounds l. The function group tells whether a label name is a
// group's or a replica's label, so that a matcher on it selects no series; now is the proxy's
// clock. The error, where there is one, is a *qerr.Error and comes with a decision whose Verdict is
// Refuse. Decide is a pure function: it does no I/O, keeps nothing, and leaves the request as it
// is.
func Decide(req *endpoint.Request, l Limits, group func(label string) bool, now time.Time) (*Decision, error) {
	return DecideKnown(req, l, group, now, &Known{})
}

// Known is what decisions about one request, or about texts that are made of it, share.
type Known struct {
	// Regexps are the regular expressions that were compiled.
	Regexps tree.Regexps
	// Once are regular expressions that the caller has not written, such as those of a tenant's
	// matchers in each of its selectors: they count once, however often they stand there.
	Once []string
	// Read, where set, is called once, before the first text is parsed, which compiles its regular
	// expressions. An error is what is decided. It may block.
	Read func(Effort) error
}

// Effort is what it takes to read the texts of a request, as they are written.
type Effort struct {
	// Parts is how many parts the regular expressions come to that are compiled, 0 where there are
	// none.
	Parts int
	// Tokens are those of the texts, those outside braces counted twice: they are what an
	// expression is made of. Texts too short to matter have none.
	Tokens int
}

// DecideKnown is Decide for a text whose regular expressions are known from another one. known has
// those of this one afterwards, too.
func DecideKnown(req *endpoint.Request, l Limits, group func(label string) bool, now time.Time, known *Known) (*Decision, error) {
	if group == nil {
		group = func(string) bool { return false }
	}
	q := &Query{Request: req, Limits: l, NowMs: now.UnixMilli(), group: group, known: known}
	for _, c := range checks {
		if err := c.Check(q); err != nil {
			return &Decision{Verdict: Refuse, Request: req.Clone(), Expr: q.Expr, Deadline: max(l.Timeout, time.Millisecond)}, err
		}
	}
	d := &Decision{Verdict: Pass, Request: req.Clone(), Expr: q.Expr, Limit: req.Limit, PerShardLimit: req.Limit, Deadline: l.Timeout}
	if req.Timeout > 0 && req.Timeout < d.Deadline {
		d.Deadline = req.Timeout
	}
	d.Request.Timeout = d.Deadline
	d.Selectors, d.Classes = slices.Grow(d.Selectors, len(q.Selectors)), slices.Grow(d.Classes, len(q.Selectors))
	for _, s := range q.Selectors {
		d.Selectors = append(d.Selectors, s.Matchers)
		d.Classes = append(d.Classes, s.Class)
		d.Class = max(d.Class, s.Class)
	}
	switch {
	case isMetadata(req.ID):
		boundMetadata(q, d)
	case req.ID.HasQuery():
		d.Constant = !selects(q.Expr)
		if q.reach != nil {
			d.Start, d.End = span(q.reach.windows)
			d.Windows = slices.Grow(d.Windows, len(q.reach.windows))
			for _, w := range q.reach.windows {
				d.Windows = append(d.Windows, Window{w.start, w.end})
			}
			if len(q.reach.info) > 0 {
				for _, w := range q.reach.windows {
					d.OfInfo = append(d.OfInfo, q.reach.info[w.selector])
				}
			}
		}
		if q.making != nil && !d.Constant {
			d.Made, d.Heavy = q.making.each, heavy(q)
		}
		if req.ID.Decode() == endpoint.DecodeExemplars {
			boundExemplars(q, d)
		}
	case req.ID.Span() == endpoint.SpanQueries:
		boundReads(q, d)
		d.Start, d.End = readSpan(d.Request)
	case req.ID.Span() == endpoint.SpanRecent:
		d.Start, d.End = satSub(q.NowMs, defaultLookbackMs), q.NowMs
	}
	return d, nil
}

// limitsSet refuses to work with bounds that are not set.
type limitsSet struct{}

func (limitsSet) Name() string { return "limits" }

func (limitsSet) Check(q *Query) error {
	l := q.Limits
	bytes := min(l.MaxResponseBytes, l.MaxShardBytes, l.MaxQueryBytes)
	series := min(l.MaxSeries, l.MaxSeriesTouched)
	if l.Timeout <= 0 || series <= 0 || l.MaxSamples <= 0 || bytes <= 0 || min(l.MaxRange, l.MetadataRange) < time.Millisecond {
		return qerr.New(qerr.Internal, "a bound of %s is not set; this is a fault of Spillway, and nothing is answered without bounds", q.Request.ID)
	}
	return nil
}
