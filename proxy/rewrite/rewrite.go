package rewrite

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/policy"
)

// Kind is the way in which a candidate asks for less.
type Kind string

// The kinds, in the order of what they keep of the question.
const (
	// Step looks at fewer moments: of the request, or of a subquery.
	Step Kind = "step"
	// Window asks for the end of the stretch of time alone.
	Window Kind = "window"
	// Range looks back less far at each moment, [1h] instead of [1d].
	Range Kind = "range"
	// Matcher asks for the series that have one value of a label.
	Matcher Kind = "matcher"
	// Aggregation asks for fewer series, put together or chosen.
	Aggregation Kind = "aggregation"
	// Metric asks for one metric instead of all.
	Metric Kind = "metric"
)

// Kinds are all of them.
func Kinds() []Kind { return []Kind{Step, Window, Range, Matcher, Aggregation, Metric} }

const (
	// MaxText is how long a text may be, in bytes: of a longer one, each candidate would take long
	// to make.
	MaxText = 4 << 10
	// MaxCandidates is how many candidates are estimated for one request, at most.
	MaxCandidates = 128
	// MaxTries is how many of them are tried.
	MaxTries = 4
	// shownText is how much of a text a sentence repeats.
	shownText = 300
)

// Question is what was refused, and what may be told to whoever asked.
type Question struct {
	// Request is what the caller asked for, as he wrote it; it is not changed.
	Request *endpoint.Request
	// Expr is its query, parsed; nil where there is none, or it was refused before it was parsed.
	Expr parser.Expr
	// Bound is what refused it.
	Bound string
	// Parser parses what Expr was parsed of.
	Parser parser.Parser
	// Metrics are names of metrics, those that keep most of the question first. This and Pairs are
	// asked for when it is their turn; nil is none.
	Metrics iter.Seq[string]
	// Pairs are matchers that keep a part of the series, those that keep most first.
	Pairs iter.Seq[Pair]
}

// Pair is a label and a value.
type Pair struct{ Label, Value string }

// Candidate is a request that asks for less.
type Candidate struct {
	// Kind is the way; And is the second one where one alone was not enough, else empty.
	Kind, And Kind
	Request   *endpoint.Request
}

// Cost is what a candidate is expected to take: series and samples that shards send, the bytes of
// both, and the bytes that shards hold.
type Cost struct {
	Series, Samples, Bytes, Held int64
	// Cheap tells that it costs so little that it can be tried; AtMost that what shards send may be
	// far less, since nobody knows how many groups an aggregation has.
	Cheap, AtMost bool
}

// Estimator says what a request is expected to take, and whether that fits its bounds with room to
// spare. The cost is zero where the request's text or times are refused.
type Estimator interface {
	Estimate(req *endpoint.Request) (c Cost, fits bool)
}

// Took is what came of a request that was tried.
type Took struct {
	// Series and Samples are what shards sent, and Time how long it took.
	Series, Samples int64
	Time            time.Duration
	// Whole tells that nothing is missing in the answer, by what it says itself: it was not cut,
	// goes without no shard and has no warnings.
	Whole bool
	// Results are the series of the answer itself.
	Results int64
}

// answers tells whether that can be said to have been tried.
func (t *Took) answers() bool { return t.Whole && t.Results > 0 }

// Try asks a candidate. An error is that it was refused, or did not end in time.
type Try func(ctx context.Context, req *endpoint.Request) (Took, error)

// Proposal is what to ask instead.
type Proposal struct {
	Candidate
	// Cost is its estimate, Took what it took where it was Tried.
	Cost  Cost
	Tried bool
	Took  Took
}

// Propose looks for what to ask instead; false where nothing was found. try may be nil: then
// nothing is tried.
func Propose(ctx context.Context, q Question, by Estimator, try Try) (Proposal, bool) {
	if ctx.Err() != nil || !q.parsed() {
		return Proposal{}, false
	}
	s := search{q: &q, by: by, try: try, tries: MaxTries, left: MaxCandidates}
	ways := q.ways()
	if len(ways) == 0 {
		return Proposal{}, false
	}
	s.refused, _ = by.Estimate(q.Request)
	s.refused.Cheap, s.refused.AtMost = false, false
	for _, way := range ways {
		if p, ok := s.along(ctx, way, ""); ok {
			return p, true
		}
		if s.over(ctx) {
			return Proposal{}, false
		}
	}
	if p, ok := s.hoped(ctx); ok || s.over(ctx) {
		return p, ok
	}
	for _, c := range s.nearest() { // one way is not enough
		second, ok := q.after(c)
		if !ok {
			continue
		}
		for _, way := range second.ways() {
			if p, ok := s.along(ctx, way, c.Kind); ok {
				return p, true
			}
			if s.over(ctx) {
				return Proposal{}, false
			}
		}
	}
	return Proposal{}, false
}

// parsed parses the query where nobody has; false where it cannot be, or is too long.
func (q *Question) parsed() bool {
	if q.Request == nil || len(q.Request.Query) > MaxText || textBytes(q.Request.Match) > MaxText {
		return false
	}
	if q.Expr == nil && q.Request.Query != "" {
		e, err := q.Parser.ParseExpr(q.Request.Query)
		if err != nil {
			return false
		}
		q.Expr = e
	}
	return true
}

// over tells whether the search has to end: where all tries were in vain no estimate is believed.
func (s *search) over(ctx context.Context) bool {
	return ctx.Err() != nil || s.left <= 0 || s.try != nil && s.tries == 0
}

// search is one run of Propose.
type search struct {
	q           *Question
	by          Estimator
	try         Try
	tries, left int
	refused     Cost        // of what was refused, as far as it has one
	near        []Candidate // of the first ways, which do not fit
	hopes       []hope      // what may fit
}

// hope is a candidate that may fit, by an estimate that is an upper bound.
type hope struct {
	Candidate
	cost Cost
}

// maxHopes is how many of these are tried, the least ones, where nothing fits.
const maxHopes = 2

func (s *search) hopeFor(c Candidate, cost Cost) {
	if cost.AtMost && cost.Cheap && !s.heavier(cost) {
		s.hopes = append(s.hopes, hope{c, cost})
	}
}

// hoped is what came of hopes, if anything did.
func (s *search) hoped(ctx context.Context) (Proposal, bool) {
	slices.SortStableFunc(s.hopes, func(a, b hope) int { return cmp.Compare(a.cost.Series, b.cost.Series) })
	for _, h := range s.hopes[:min(len(s.hopes), maxHopes)] {
		if s.try == nil || s.tries == 0 || ctx.Err() != nil {
			break
		}
		s.tries--
		if took, err := s.try(ctx, h.Request); err == nil && took.answers() {
			return Proposal{Candidate: h.Candidate, Cost: h.cost, Tried: true, Took: took}, true
		}
	}
	return Proposal{}, false
}

// near is of how many ways what did not fit is asked for less in a second one.
const near = 3

// nearest are candidates that no text or time keeps from being asked, and that are still too much:
// of each way one in the middle and the last one.
func (s *search) nearest() (out []Candidate) {
	by := map[Kind][]Candidate{}
	var kinds []Kind
	for _, c := range s.near {
		if by[c.Kind] == nil {
			kinds = append(kinds, c.Kind)
		}
		by[c.Kind] = append(by[c.Kind], c)
	}
	for _, k := range kinds[:min(len(kinds), near)] {
		all := by[k]
		out = append(out, all[len(all)/2])
		if len(all) > 1 {
			out = append(out, all[len(all)-1])
		}
	}
	s.near = nil
	return out
}

// after is the question of a candidate, which is to have fewer series; false where it has none.
func (q *Question) after(c Candidate) (*Question, bool) {
	next := *q
	next.Request, next.Bound = c.Request, policy.BoundMaxSeries
	if c.Request.Query != q.Request.Query {
		next.Expr = nil
	}
	return &next, next.parsed()
}

// along is the first candidate of one way that fits: one that was tried where any can be, or else
// the one that keeps most. Where an estimate was found out to be wrong, no other one of the way is
// believed. first is the way that led to this one; empty where none did.
func (s *search) along(ctx context.Context, way way, first Kind) (out Proposal, found bool) {
	var failed Cost // of the last one that was tried in vain
	wrong := false
	for c := range way {
		if first != "" {
			if c.Kind == first {
				continue // which was looked through
			}
			c.Kind, c.And = first, c.Kind
		}
		if s.over(ctx) {
			break
		}
		s.left--
		cost, fits := s.by.Estimate(c.Request)
		if !fits && first == "" {
			s.hopeFor(c, cost)
		}
		if !fits && cost != (Cost{}) && first == "" && c.Kind != Matcher && c.Kind != Aggregation {
			s.near = append(s.near, c)
		}
		if !fits || s.heavier(cost) || failed != (Cost{}) && !smaller(cost, failed) {
			continue
		}
		if s.try == nil || !cost.Cheap {
			if !found && !wrong {
				out, found = Proposal{Candidate: c, Cost: cost}, true
			}
			continue
		}
		s.tries--
		took, err := s.try(ctx, c.Request)
		if err == nil && took.answers() {
			return Proposal{Candidate: c, Cost: cost, Tried: true, Took: took}, true
		}
		if err != nil || !took.Whole {
			wrong, found = true, false
			if c.Kind != Metric { // each is another part there, no smaller one
				failed = cost
			}
		}
	}
	return out, found && ctx.Err() == nil
}

// smaller tells whether the cost is clearly less than that of what did not fit.
func smaller(c, failed Cost) bool {
	return 4*c.Series <= 3*failed.Series || 2*c.Samples <= failed.Samples || 2*c.Held <= failed.Held
}

// heavier tells whether the cost, as far as the bound looks at it, is more than that of what was
// refused, if that has any.
func (s *search) heavier(c Cost) bool {
	r := s.refused
	if r == (Cost{}) {
		return false
	}
	switch s.q.Bound {
	case policy.BoundMaxSeries:
		return c.Series > r.Series
	case policy.BoundMaxSamples:
		return c.Samples > r.Samples
	case policy.BoundMaxResponseBytes:
		return c.Bytes > r.Bytes
	case policy.BoundMaxShardBytes:
		return c.Held > r.Held
	}
	return false
}
