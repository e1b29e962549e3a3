package server

import (
	"context"
	"errors"
	"net/url"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/rewrite"
	"github.com/spillwayproject/spillway/proxy/weigh"
)

// A refusal says what to ask instead (package rewrite). Candidates are estimated as requests are,
// and those that are cheap are asked, on the road of all requests, for whoever was refused: in his
// lane and flow, as his tenant, within his bounds. Nothing is looked for while there is other work
// waiting, for rules, nor for what no other text would help against; and what came of it is
// remembered for whoever asks the same again.

const (
	// rewriteTime is how long a refusal is kept back for it.
	rewriteTime = 500 * time.Millisecond
	// cheapSeries and cheapSamples are how many series a candidate selects on the shards, and how
	// many samples these have in its time, at most, for it to be tried: a tenth of what bounds are
	// by default. cheapPart is the part of memory.budget that its answers may take.
	cheapSeries, cheapSamples, cheapPart = 50_000, 5_000_000, 16
	// besidesAtMost is how often shards are asked for labels and counts on the way.
	besidesAtMost = 4
	// roomPart is the part of a bound, in percent, that an estimate may take to fit.
	roomPart = 80
)

// The outcomes of looking for a rewrite, as the metric has them.
const (
	rewriteTried      = "tried"
	rewriteEstimated  = "estimated"
	rewriteRemembered = "remembered"
	rewriteNone       = "none"
	rewriteBusy       = "busy"
)

// rewrites are what is remembered of refusals, and who may have a rewrite looked for.
type rewrites struct {
	known  rewrite.Memory
	flows  rewrite.Flows
	rate   rewrite.Rate
	places chan struct{} // of those that look for one
}

// rewritesAtOnce is how many requests look for a rewrite at once; others are told none. To make and
// estimate candidates takes a processor, of which half are left to what is answered.
func rewritesAtOnce() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// errPressed ends a search when other work has begun to wait.
var errPressed = errors.New("there is other work waiting")

// rewritten is a refusal with what to ask instead, where something is found.
func (x *exchange) rewritten(e *qerr.Error) *qerr.Error {
	if e == nil || e.Kind != qerr.TooExpensive || x.trial != nil || x.said == nil || x.whole == nil || x.client.wrote || x.largePlan ||
		x.s.rewriteTime <= 0 || x.st.cfg.Limits.Rewrites == config.RewritesOff || !rewritable(x.said.ID) ||
		!rewrite.Helps(e.Bound) || x.ofRule() {
		return e
	}
	rs, now, key := &x.s.rewrites, x.s.now(), x.rewriteKey(e)
	planned := x.account != nil && x.account.only // whoever asks for the plan alone is told what can be said without asking
	if p, found, known, ago := rs.known.Get(key, x.said, now); known && !planned {
		if !found {
			x.countRewrite(rewriteNone)
			return e
		}
		x.countRewrite(rewriteRemembered)
		return x.advisedBy(e, &p, ago)
	}
	if x.s.pressed(x.st, x.budget.Held()) {
		x.countRewrite(rewriteBusy)
		return e
	}
	leave, ok := rs.flows.Enter(identity.From(x.whole).Flow, now)
	if !ok {
		x.countRewrite(rewriteBusy)
		return e
	}
	defer leave()
	select {
	case rs.places <- struct{}{}:
		defer func() { <-rs.places }()
	default:
		x.countRewrite(rewriteBusy)
		return e
	}
	if !rs.rate.Enter(now) {
		x.countRewrite(rewriteBusy)
		return e
	}
	if x.out != nil { // what was had of the answer is of no use, and its memory is
		x.out.Close()
	}
	x.budget.Close()
	p, ok, ended := x.propose(e)
	if ended {
		x.countRewrite(rewriteBusy)
		return e
	}
	if ok && !p.Tried && x.tenant.Narrow() { // estimates tell of what others have, too
		ok = false
	}
	if x.whole.Err() == nil && !planned {
		rs.known.Put(key, x.said, p, ok, now)
	}
	switch {
	case !ok:
		x.countRewrite(rewriteNone)
		return e
	case p.Tried:
		x.countRewrite(rewriteTried)
	default:
		x.countRewrite(rewriteEstimated)
	}
	return x.advisedBy(e, &p, 0)
}

// rewritable tells whether requests to the endpoint have rewrites: they have a text by which series
// are evaluated or sent.
func rewritable(id endpoint.ID) bool {
	return id.Evaluates() || id.Selects() == endpoint.SelectsStored && id.Decode() != endpoint.DecodeRead
}

func (x *exchange) countRewrite(outcome string) {
	x.s.metrics.rewrites.WithLabelValues(outcome).Inc()
}

// ofRule tells whether nobody reads what is said: a rule is evaluated.
func (x *exchange) ofRule() bool {
	return x.caller.Alert || x.caller.Rule != "" || x.tenant.Source(x.caller) == config.SourceAlerting
}

// rewriteKey tells requests from one another that may be told the same: by whoever sees the same,
// for the same text, over as long a time that ended about as long ago.
func (x *exchange) rewriteKey(e *qerr.Error) uint64 {
	r := x.said.Clone()
	now := x.s.now().UnixMilli()
	age, width := int64(0), int64(0)
	for _, t := range []*endpoint.Time{&r.Time, &r.End} {
		if t.Set {
			age = max(now-t.Ms, 0) / time.Minute.Milliseconds()
		}
	}
	if r.Start.Set && r.End.Set {
		width = r.End.Ms - r.Start.Ms
	}
	r.Time, r.Start, r.End = endpoint.Time{}, endpoint.Time{}, endpoint.Time{}
	return identity.FlowOf(x.st.cfg.Hash, x.tenantName(), x.caller.User, e.Bound, r.Path(), url.Values(r.Values()).Encode(),
		strconv.FormatInt(age, 10), strconv.FormatInt(width, 10), strconv.FormatUint(x.s.deny.Changes(), 10))
}

// advisedBy is the refusal with the proposal, which was found so long ago; others may wait for the
// same answer, so it is another one.
func (x *exchange) advisedBy(e *qerr.Error, p *rewrite.Proposal, ago time.Duration) *qerr.Error {
	out := *e
	out.Rewrite = &qerr.Rewrite{
		Kind: string(p.Kind), And: string(p.And), Path: x.s.opts.RoutePrefix + p.Request.Path(), Parameters: p.Request.Values(),
		Series: p.Cost.Series, Samples: p.Cost.Samples,
	}
	if p.Tried {
		out.Rewrite.Tried, out.Rewrite.Series, out.Rewrite.Samples = true, p.Took.Series, p.Took.Samples
		out.Rewrite.Seconds, out.Rewrite.Ago = p.Took.Time.Seconds(), ago.Truncate(time.Second).Seconds()
	}
	out.Advice = advised(p.Sentence(x.said, ago), e.Advice)
	return &out
}

// advised is the advice with the sentence before what is done now.
func advised(sentence, advice string) string {
	const now = "now: "
	switch rest, at := strings.CutPrefix(advice, now); {
	case advice == "":
		return sentence
	case at:
		return now + sentence + ", or " + rest
	}
	return sentence + ", or " + advice
}

// pressed tells whether there is other work waiting, or hardly memory left beside what the request
// itself holds.
func (s *Server) pressed(st *state, own int64) bool {
	return s.draining.Load() || s.gate.Waiting() > 0 || st.pool.Tight() || st.pool.InUse()-own > st.pool.Limit()/2 || st.top.Crowded()
}

// propose looks for a rewrite, for as long as the refusal may be kept back; ended tells that it was
// given up for other work. A fault there costs nobody the refusal.
func (x *exchange) propose(e *qerr.Error) (p rewrite.Proposal, ok, ended bool) {
	defer func() {
		if fault := recover(); fault != nil {
			_ = x.s.panicked(fault, debug.Stack()) // which is counted and logged
			p, ok, ended = rewrite.Proposal{}, false, false
		}
	}()
	parent := x.whole
	if x.ctx != nil {
		parent = x.ctx
	}
	most := x.s.rewriteTime
	if own := x.said.Timeout; x.ctx == nil && own > 0 { // its deadline was not set yet
		most = min(most, own-x.s.now().Sub(x.began))
	}
	ctx, cancel := context.WithTimeoutCause(parent, most, errors.New("a refusal is kept back no longer"))
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	ctx, room := x.s.room(ctx, "rewrite")
	defer room.End()
	q := rewrite.Question{Request: x.said, Bound: e.Bound, Parser: tree.Parser, Expr: x.saidExpr()}
	scale := x.scale(ctx, e)
	try := func(ctx context.Context, req *endpoint.Request) (rewrite.Took, error) {
		if x.s.pressed(x.st, 0) { // since the search began
			end(errPressed)
			return rewrite.Took{}, errPressed
		}
		return x.try(ctx, req)
	}
	if x.account != nil && x.account.only { // whoever asks for the plan asks no shard
		try = nil
	} else {
		k := &namesKnown{exchange: x, ctx: ctx, scale: scale, left: besidesAtMost}
		q.Pairs, q.Metrics = k.pairs(), k.metricNames()
	}
	p, ok = rewrite.Propose(ctx, q, scale, try)
	return p, ok, errors.Is(context.Cause(ctx), errPressed)
}

// saidExpr is the caller's query without what is added to it; nil where it was refused before it
// was parsed.
func (x *exchange) saidExpr() parser.Expr {
	if x.dec == nil || x.dec.Expr == nil || !x.tenant.Narrow() {
		if x.dec == nil {
			return nil
		}
		return x.dec.Expr
	}
	var known tree.Regexps
	known.KnowAll(x.dec.Expr)
	e, err := known.Parse(tree.Parser, x.said.Query)
	if err != nil {
		return nil
	}
	return e
}

// scale estimates candidates as requests of the exchange's caller are.
type scale struct {
	x   *exchange
	ctx context.Context
	// of says of an estimate what the bound that refused looks at, and most what that may be for a
	// candidate to fit; nil where its decision alone tells.
	of   func(*weigh.Estimate) int64
	most int64
	// counted are the series of selectors, by their text, that were counted for this request.
	counted map[string]int64
	// atMost tells that the last estimate is one of how many groups there may be.
	atMost bool
}

// scaleOf is one for whatever its caller asks.
func (x *exchange) scaleOf(ctx context.Context) *scale { return &scale{x: x, ctx: ctx} }

// scale is one for what the refusal says. Where that saw more than was estimated, all estimates are
// taken to be wrong by as much.
func (x *exchange) scale(ctx context.Context, e *qerr.Error) *scale {
	s := x.scaleOf(ctx)
	limit := int64(0)
	switch e.Bound {
	case policy.BoundMaxSeries:
		s.of, limit = func(e *weigh.Estimate) int64 { return e.Series }, int64(x.limits.MaxSeries)
	case policy.BoundMaxSeriesTouched:
		s.of, limit = func(e *weigh.Estimate) int64 { return e.Selected }, int64(x.limits.MaxSeriesTouched)
	case policy.BoundMaxSamples:
		s.of, limit = func(e *weigh.Estimate) int64 { return e.Samples }, x.limits.MaxSamples
	case policy.BoundMaxResponseBytes:
		s.of, limit = func(e *weigh.Estimate) int64 { return e.Bytes }, x.limits.MaxResponseBytes
	}
	if s.of == nil {
		return s
	}
	s.most = limit / 100 * roomPart
	if limit < 100 {
		s.most = max(limit*roomPart/100, 1)
	}
	refused, _ := s.estimate(x.said)
	if refused == nil {
		return s
	}
	seen := float64(max(seenIn(e.Seen), limit+1))
	s.most = max(min(s.most, int64(float64(s.most)*float64(max(s.of(refused), 1))/seen)), 1)
	return s
}

var seenNumber = regexp.MustCompile(`([0-9]+(?:\.[0-9]+)?)([KMG]iB)?`)

// seenIn is the first number in what a refusal has seen, in bytes where it says so; 0 where there
// is none.
func seenIn(text string) int64 {
	m := seenNumber.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil || n > 1e15 {
		return 0
	}
	return int64(n * float64(map[string]int{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[m[2]]))
}

// estimate is what a request of the caller's is expected to take; the error is why it would be
// refused before, and there is an estimate beside errHeavy.
func (s *scale) estimate(req *endpoint.Request) (*weigh.Estimate, error) {
	s.atMost = false
	x := s.x
	y := &exchange{s: x.s, st: x.st, id: req.ID, req: req, asker: x.asker, exempt: true}
	y.body = admit.NewBudget(x.st.pool, admit.Limits{}).By(identity.From(s.ctx).Peer) // of what is read for the estimate alone
	defer y.body.Close()
	y.limits, y.wall = x.tenant.Bound(x.st.cfg.LimitsFor(req.ID)), true // what is in shadow still is too much to propose
	now := x.s.now()
	var err error
	y.dec, err = y.bound(s.ctx, y.lookingBack(req), now)
	if err == nil && !x.exempt && x.s.deny.Any() {
		if f := y.denied(now, false); f.Rule != nil {
			err = deniedBy(f, now)
		}
	}
	said := y.dec
	if err == nil && x.tenant.Narrow() {
		err = y.narrow(now)
	}
	if err != nil {
		return nil, err
	}
	y.view = plan.NewView(x.st.top, now).Narrow(x.s.walls.reads(x.tenant, req.ID))
	a := y.weighable()
	if a == nil {
		return nil, errors.New("it selects nothing")
	}
	a.Counted = s.countedOf(said.Selectors, a.Selectors)
	e := x.st.known.Estimate(a)
	if e == nil {
		return nil, errors.New("it selects nothing")
	}
	if !req.ID.Evaluates() {
		return e, nil
	}
	y.ctx = s.ctx
	p, err := y.view.Query(s.ctx, y.question())
	switch {
	case err != nil:
		return nil, err
	case p.Refused != nil:
		return nil, p.Refused
	case p.Raw:
		e = e.Fetched()
	default:
		s.atMost = (e.By == weigh.BySketch || e.By == weigh.ByGuess) && tree.Aggregates(y.dec.Expr)
	}
	if !p.Raw && !y.bearable(a, e) {
		err = errHeavy
	}
	return e, err
}

// countedOf says what was counted of selectors, which a tenant's matchers may have been added to
// since; nil where nothing was counted.
func (s *scale) countedOf(said, asked [][]*labels.Matcher) func([]*labels.Matcher) (int64, bool) {
	if len(s.counted) == 0 || len(said) != len(asked) {
		return nil
	}
	by := make(map[string]int64, len(said))
	for i, ms := range said {
		if n, ok := s.counted[sortedSelector(ms)]; ok {
			by[sortedSelector(asked[i])] = n
		}
	}
	return func(ms []*labels.Matcher) (int64, bool) {
		n, ok := by[sortedSelector(ms)]
		return n, ok
	}
}

// errHeavy tells that shards would hold too much for it.
var errHeavy = errors.New("shards would hold too much")

// bearable tells whether shards may hold what they would for it, each as much as another: a range
// query is asked in pieces of time where that is enough.
func (x *exchange) bearable(a *weigh.Asked, e *weigh.Estimate) bool {
	most := x.limits.MaxShardBytes / 100 * roomPart * int64(max(e.Shards(), 1))
	// What makes little of each series is weighed where that is much all the same.
	if e.Held <= most || e.Held <= e.Selected*weigh.LightSeries && e.Selected*weigh.StoredBytes <= max(most, weigh.SomeBytes) {
		return true
	}
	if pieces := min(a.Grid.Steps, plan.MaxPieces); pieces > 1 {
		piece := *a
		piece.Grid.Steps = (a.Grid.Steps + pieces - 1) / pieces
		if p := x.st.known.Estimate(&piece); p == nil || p.Held <= most {
			return true
		}
	}
	return false
}

// Estimate implements rewrite.Estimator.
func (s *scale) Estimate(req *endpoint.Request) (rewrite.Cost, bool) {
	e, err := s.estimate(req)
	if e == nil {
		return rewrite.Cost{}, false
	}
	l := s.x.tenant.Bound(s.x.st.cfg.LimitsFor(req.ID))
	c := rewrite.Cost{Series: e.Series, Samples: e.Samples, Bytes: e.Bytes, Held: e.Held}
	c.Cheap = !e.Unknown && e.Selected <= cheapSeries && e.Read <= cheapSamples &&
		max(e.Bytes, 0) <= s.x.st.pool.Limit()/cheapPart
	c.AtMost = err == nil && s.atMost && !e.Unknown
	// What nobody knows anything of is not proposed either, but where answers showed what is sent.
	blind := e.Unknown && e.By == weigh.ByGuess
	fits := err == nil && !blind && (s.of == nil || s.of(e) <= s.most)
	return c, fits && roomFor(e.Series, int64(l.MaxSeries)) && roomFor(e.Selected, int64(l.MaxSeriesTouched)) &&
		roomFor(e.Samples, l.MaxSamples) && roomFor(e.Bytes, l.MaxResponseBytes)
}

// roomFor tells whether an estimate leaves room below a bound.
func roomFor(n, limit int64) bool {
	return float64(n) <= float64(limit)*roomPart/100 || n <= 1 && limit >= 1
}
