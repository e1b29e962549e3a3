package server

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/answer"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/dropped"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/heap"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/journal"
	"github.com/spillwayproject/spillway/proxy/live"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
	"github.com/spillwayproject/spillway/proxy/tenant"
	"github.com/spillwayproject/spillway/proxy/weigh"
)

// exchange is one request on its way through the rooms. It belongs to the goroutine that serves the
// request.
type exchange struct {
	asker
	decided
	holding

	s       *Server
	st      *state
	ctx     context.Context // with the deadline; nil before there is one
	id      endpoint.ID     // known even where the request was not understood; empty outside the table
	req     *endpoint.Request
	body    *admit.Budget     // what was sent and what is compiled of it, for as long as req has it; nil where that is nothing
	account *account          // what explain tells; nil where nobody asked
	said    *endpoint.Request // req as its caller wrote it, without what a tenant's matchers add
	whole   context.Context   // as ctx, without the deadline; nil before the lane is known
	trial   *trial            // what comes of a rewrite that is tried; nil elsewhere
	inner   bool              // this process asks itself
	page    bool              // and a client by it
	exempt  bool              // and not for what a client has written
	wrong   *qerr.Error       // what the client is told went wrong, once it is known
	// flying is the request that others wait for, and deserted that its own client has left it to
	// them. Another goroutine sees the client leave.
	flying   atomic.Pointer[flight]
	deserted atomic.Bool

	attempt     answer.Attempt // the one that is made now
	uncounted   bool           // it began without statistics, since these gave way before
	spared      []string       // replicas that were not asked since they have no memory left
	replaced    []string       // replicas that failed in this attempt; what they answered before may stay
	gone        nameSet        // shards that were found to fail; several goroutines tell
	lessOf      []string       // those that were counted since the answer has less of them than there is
	late        error          // of the first server that was waited for until the deadline
	calls       shardSeconds
	stored      merge.Notes // what servers said in attempts before of what they read: the raw answer lacks it, too
	watched     *heap.Request
	weighed     atomic.Pointer[admit.Budget]   // what the heap's watch asks how much it holds
	foreseen    atomic.Pointer[weigh.Estimate] // what it is expected to take; nil where it selects nothing
	doing       doing
	before      float64     // byte seconds of the attempts before
	shown       *live.Entry // among the live queries; nil where it is not
	noted       *journal.Slot
	shadowRules []string // names of rules in shadow mode that would refuse it
}

// asker is who asks, and where the answer goes.
type asker struct {
	uid    string // of this request, as the client, the log and the usage log have it
	began  time.Time
	span   trace.Span
	end    context.CancelCauseFunc // ends the request with a cause
	caller identity.Caller
	peer   string // whose address it comes from, see identity.HolderOf
	// alerting tells that the request says, whether or not it may, that it evaluates an alert rule.
	alerting bool
	tenant   *tenant.Tenant // nil where there are none, and for who asks over the admin listener
	lane     string         // the name of it
	client   *clientWriter
	header   http.Header // of the client's request; only content negotiation and attribution look at it
}

// decided is what was decided about the request.
type decided struct {
	limits  config.Limits
	strict  config.Limits // with the bounds that are in shadow
	wall    bool          // it asks what its tenant may see: no bound is in shadow
	shadow  []string      // those of them that would have acted
	dec     *policy.Decision
	stop    context.CancelFunc // of the deadline
	view    *plan.View
	partial bool          // an answer may go without some shard
	chosen  bool          // of all shards, as the request says itself
	drops   dropped.Found // what drop rules have taken away of what it asks for
}

// holding is what one attempt holds and remarks. The next one begins with another.
type holding struct {
	budget    *admit.Budget
	out       *merge.Writer
	warnings  merge.Notes
	infos     merge.Notes
	twice     *notes       // of series that two shards hold
	cut       bool         // the answer was truncated by a bound
	largePlan bool         // what explains it is larger than an answer may be, whatever else is asked
	less      bool         // it has less of some shard than there is, though not nothing
	beside    bool         // answers are read from servers while this one is written
	asked     int          // calls to shards that another attempt would repeat
	reads     atomic.Int64 // of series, likewise
	failing   nameSet      // replicas that failed while series were read, and are not read again; several goroutines tell
	rawHere   string       // why its series are read and evaluated here; empty where they are not
	rawCause  plan.Cause   // likewise, as the metric of plans has it

	heavy     weights      // of the plan, or the piece of it, that shards are asked for now
	inParcels bool         // some of it was evaluated in parcels
	ranHere   atomic.Int64 // nanoseconds that these took to evaluate
}

const (
	verdictHeader = identity.HeaderVerdict
	kindHeader    = "Content-Type"
	lengthHeader  = "Content-Length"
)

// held is how many bytes of memory.budget the request holds now: for what was sent with it, for
// what it reads and makes, and of what its caller has not taken yet. Any goroutine may ask, once it
// was understood.
func (x *exchange) held() int64 {
	return x.body.Held() + x.weighed.Load().Held() + x.client.keeps.Load().Held()
}

// peak is the most that the request has held, in bytes, with the most that was kept for a slow
// caller, which may have been at another time.
func (x *exchange) peak() int64 {
	return x.body.Peak() + x.weighed.Load().Peak() + x.client.keeps.Load().Peak()
}

// ours tells whether this process asks itself, and nobody by a page or the admin API.
func (x *exchange) ours() bool { return x.inner && !x.page }

// close gives back what the request held.
func (x *exchange) close() {
	x.s.live.Leave(x.shown)
	x.watched.Leave()
	if x.out != nil {
		x.out.Close()
	}
	x.budget.Close()
	x.body.Close()
	if x.stop != nil {
		x.stop()
	}
	x.s.journal.Leave(x.noted)
}

// lastWord is the error of a request that makes no further attempt.
func (x *exchange) lastWord(err error) error {
	if x.late != nil && qerr.From(err).Kind == qerr.Timeout {
		return x.late
	}
	// It went on in drops until no time was left for its copy, or was not waited for as long as a
	// server may pause, and no copy had it either: that is the deadline's end.
	if qerr.TimedOut(x.ctx) && shard.Stalled(err) || shard.HurriedStall(err) {
		late := *qerr.From(err)
		late.Kind = qerr.Timeout
		return &late
	}
	return err
}

// nextAttempt tells whether the request begins again, as answer.Attempt.Next has it and as far as
// the budget for asking again allows, and sees to what the reason entails.
func (x *exchange) nextAttempt(err error) bool {
	if qerr.From(err).Kind == qerr.Timeout {
		x.wasLate(err)
	}
	query, now := x.dec.Request.Query, x.s.now()
	in := answer.Case{
		Over: x.ctx.Err() != nil || x.client.wrote, MayLack: x.mayLackNamed, Shards: x.shards(), Gone: x.gone.sorted(),
	}
	next, reason := x.attempt.Next(err, in)
	switch reason {
	case answer.Apart:
		x.s.metrics.inexact.Inc()
		// In parcels it can be exact where a replica is whole; and what a server says of a store
		// behind it it has to be able to say the next time, too.
		if !x.inParcels && len(x.stored.List()) == 0 {
			x.s.inexacts.put(x.learnt(x.form()), next.Raw, now)
		}
	case answer.Parcels:
		if x.trial != nil { // the bounds are those of a trial, and others are not to be asked in parcels for them
			return false
		}
		x.s.parcelled.put(x.learnt(query), "too many series", now)
	case answer.Order:
		x.s.reordered.put(x.learnt(query), err.Error(), now)
	case answer.Replica:
		if s := x.shardOf(next.After); s == nil || !shard.Free(err) && !x.mayAskAgain(s, x.repeated()) {
			x.askedInVain(x.shardOf(x.attempt.After), err) // what was asked again before has not helped
			return s != nil && x.goWithout(s, next.After.Err, in)
		}
		for _, name := range next.After.Names {
			if r := x.st.top.Replica(name); r != nil && len(r.Shard.Replicas) > 1 {
				r.Gone(x.ctx) // it is known then for what is planned again
			}
		}
	default:
		if x.ctx.Err() == nil && !x.client.wrote {
			x.askedInVain(x.shardOf(x.attempt.After), err)
		}
		switch reason {
		case answer.None:
			return false
		case answer.NoStats:
			x.gaveWay(err)
		}
		x.countLost(len(next.Without) - len(x.attempt.Without))
	}
	x.restart(next)
	return true
}

// goWithout tells whether the request begins again without the shard, whose replicas failed and may
// not be replaced.
func (x *exchange) goWithout(s *shard.Shard, err error, in answer.Case) bool {
	next, reason := x.attempt.Next(&answer.LostShard{Name: s.Name(), Err: err}, in)
	if reason != answer.Shard {
		return false
	}
	x.countLost(len(next.Without) - len(x.attempt.Without))
	x.restart(next)
	return true
}

// countLost counts shards that the answer goes without.
func (x *exchange) countLost(n int) {
	x.s.metrics.partial.WithLabelValues(string(x.req.ID)).Add(float64(n))
}

// loseEjected leaves out the shards that are known to fail, at once, where the caller accepts that:
// each request would find out anew otherwise, at the price of most of its time. Those whose
// breakers alone are open are asked before whether they are well. Where no shard would be left, all
// are asked.
func (x *exchange) loseEjected() {
	var gone []string
	var failing []*shard.Shard
	for _, g := range x.st.top.Groups {
		for _, s := range g.Shards {
			switch ejected := s.Ejected(); {
			case !ejected && !s.Failing() || !x.mayLack(s) || !x.concerns(s):
			case ejected:
				gone = append(gone, s.Name())
			default:
				failing = append(failing, s)
			}
		}
	}
	gone = append(gone, x.notWell(failing)...)
	if len(gone) == x.shards() {
		return
	}
	x.attempt = x.attempt.Leaving(gone...)
	x.countLost(len(gone))
}

// notWell are the names of those shards that do not say that they are well again, all asked at
// once.
func (x *exchange) notWell(failing []*shard.Shard) (names []string) {
	well := make([]bool, len(failing))
	var all sync.WaitGroup
	for i, s := range failing {
		all.Go(func() { well[i] = s.WellAgain(x.ctx) })
	}
	all.Wait()
	for i, s := range failing {
		if !well[i] {
			names = append(names, s.Name())
		}
	}
	return names
}

// mayLack tells whether the answer may go without the shard: what the request says holds for all,
// else what is configured for its group.
func (x *exchange) mayLack(s *shard.Shard) bool {
	return x.partial && (x.chosen || x.st.lacks[s.Group.Name])
}

// noPart is what a server is told of partial_response: that its answer must lack nothing, where
// that holds for this one whatever is configured. A Prometheus does not know the parameter; a
// Spillway that is asked as one may be configured to leave out what fails. nil: nothing.
func (x *exchange) noPart() *bool {
	said := x.dec.Request.PartialResponse
	if x.trial == nil && (said == nil && !x.alerting || said != nil && *said) {
		return nil
	}
	return new(bool)
}

func (x *exchange) mayLackNamed(name string) bool {
	if x.chosen || !x.partial {
		return x.partial
	}
	s := x.st.top.Shard(name)
	return s != nil && x.mayLack(s)
}

// concerns tells whether the shard can hold what the request selects. What selects nothing, such as
// rules, concerns all of which the caller may know.
func (x *exchange) concerns(s *shard.Shard) bool {
	if c := x.req.ID.Class(); c != endpoint.ClassQuery && c != endpoint.ClassMetadata {
		return x.mayKnow(s.Group)
	}
	for _, ms := range x.dec.Selectors {
		if slices.ContainsFunc(x.view.Legs(ms, x.dec.Start, x.dec.End), func(l plan.Leg) bool { return l.Shard == s }) {
			return true
		}
	}
	return len(x.dec.Selectors) == 0 && !x.id.Evaluates() && x.mayKnow(s.Group)
}

// wasLate remembers the first server that used up the request's time: should there be none left for
// the others, it is to be named, not they.
func (x *exchange) wasLate(err error) {
	if x.late == nil {
		x.late = err
	}
}

// commit sets the headers; it runs before the first byte of an answer.
func (x *exchange) commit(size int64) {
	x.doing.set(workWrite)
	h := x.client.Header()
	if h.Get(kindHeader) == "" {
		h.Set(kindHeader, "application/json")
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set(verdictHeader, string(x.verdict()))
	if size >= 0 {
		h.Set(lengthHeader, strconv.FormatInt(size, 10))
	} else if x.beside && x.client.behind == nil {
		x.client.spools(x.ctx, x.st.pool, x.s.panicked)
	}
}

func (x *exchange) verdict() policy.Verdict {
	if x.dec == nil {
		return policy.Refuse
	}
	if x.cut {
		return policy.Clamp
	}
	return x.dec.Verdict
}

// finishJSON ends an answer that was begun with out.Begin.
func (x *exchange) finishJSON() error {
	_, span := x.s.room(x.ctx, "write")
	defer span.End()
	return x.out.Finish(x.warnings.List(), x.infos.List())
}

func (x *exchange) context() context.Context {
	if x.ctx == nil {
		return context.Background()
	}
	return x.ctx
}

func deadlineError(d, ours time.Duration) *qerr.Error {
	e := qerr.Wrap(qerr.Timeout, context.DeadlineExceeded, "the request did not finish within its %s", d)
	e.Bound, e.Value, e.Seen = policy.BoundTimeout, d.String(), "more than "+d.String()
	if d >= ours {
		e.Advice = "shorten the range, select fewer series, or use a recording rule"
	} else {
		e.Advice = "give it more time (timeout=), up to " + ours.String()
	}
	return e
}
