package shard

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// hedgeShare is what part of a shard's calls may be asked of a second replica while the first
	// one is silent.
	hedgeShare = 0.05
	// hedgeBurst is how many such calls may be saved up, hedgeReserve how many of them are kept for
	// calls that wait far longer than usual: without it the ordinary stragglers, which are as many
	// as the share, would leave nothing for the moment in which a replica hangs.
	hedgeBurst, hedgeReserve = 6, 3
	// hedgeLearn is how many calls of a class must have been timed before the usual time is
	// believed.
	hedgeLearn = 20
	// hedgeQuantile is the part of calls that is answered within the usual time.
	hedgeQuantile = 0.95
	// hedgeFloor and hedgeCeiling bound the usual time.
	hedgeFloor, hedgeCeiling = 10 * time.Millisecond, 5 * time.Second
	// hedgeFar is how many times the usual time is far too long, at least hedgeFarFloor and at most
	// hedgeCeiling; hedgeBlind stands for it while the usual time is not known.
	hedgeFar      = 4
	hedgeFarFloor = 100 * time.Millisecond
	hedgeBlind    = 2 * time.Second
	// failedLately is how many failures of its replicas a shard may have had, each worth half after
	// failedHalf, for it to be asked twice.
	failedLately = 3
	failedHalf   = 10 * time.Second
)

// errHedged ends the call that lost.
var errHedged = qerr.Wrap(qerr.Canceled, errors.New("hedged"), "another replica of the shard answered first")

// hedger is what a shard has learned about its calls, and what it may spend on asking twice. It
// outlives a reload that leaves the shard's replicas alone.
type hedger struct {
	wake  chan struct{} // holds one token while some replica is to be looked at
	again *retries

	mu       sync.Mutex
	saved    float64 // calls that may be hedged
	spreads  [hedgeClasses]spread
	failures float64 // as of failedAt
	failedAt time.Time
}

func newHedger() *hedger {
	return &hedger{wake: make(chan struct{}, 1), again: newShardRetries(), saved: hedgeReserve}
}

// The classes of endpoints whose times are learned apart.
const (
	hedgeInstant = iota
	hedgeRange
	hedgeSeries // remote read, federate and exemplars: as long as there are series
	hedgeOther
	hedgeClasses
)

func hedgeClass(id endpoint.ID) int {
	switch id.Selects() {
	case endpoint.SelectsComputed:
		if id.Span() == endpoint.SpanInstant {
			return hedgeInstant
		}
		return hedgeRange
	case endpoint.SelectsStored:
		return hedgeSeries
	default:
		return hedgeOther
	}
}

// earn counts one call.
func (h *hedger) earn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.saved = min(hedgeBurst, h.saved+hedgeShare)
}

// spend takes one of the calls that may be hedged, if more than the reserve are there.
func (h *hedger) spend(reserve float64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.saved < reserve+1 {
		return false
	}
	h.saved--
	return true
}

// marks are how long a call of the class usually takes to its header (0: not known yet) and how
// long is far too long.
func (h *hedger) marks(class int) (usual, far time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := &h.spreads[class]
	if d.seen < hedgeLearn {
		return 0, hedgeBlind
	}
	usual = min(max(d.quantile(hedgeQuantile), hedgeFloor), hedgeCeiling)
	return usual, max(min(max(hedgeFar*usual, hedgeFarFloor), hedgeCeiling), usual)
}

func (h *hedger) observe(class int, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spreads[class].observe(took)
}

func (h *hedger) failed(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures = h.failuresAt(now) + 1
	h.failedAt = now
}

func (h *hedger) failuresAt(now time.Time) float64 {
	return h.failures * math.Exp2(-float64(now.Sub(h.failedAt))/float64(failedHalf))
}

// spread is where the times of a class lie: counts by quarters of a doubling from a millisecond to
// a minute. It forgets: once spreadMost calls were seen all counts are halved, so that a change is
// learned within some hundreds of calls.
type spread struct {
	counts [spreadBuckets]float32
	total  float32
	seen   int
}

const (
	spreadBuckets = 64
	spreadMost    = 512
)

func (d *spread) observe(took time.Duration) {
	i := 0
	if ms := float64(took) / float64(time.Millisecond); ms > 1 {
		i = min(int(math.Ceil(4*math.Log2(ms))), spreadBuckets-1)
	}
	d.counts[i]++
	d.total++
	d.seen++
	if d.total >= spreadMost {
		for i := range d.counts {
			d.counts[i] /= 2
		}
		d.total /= 2
	}
}

// quantile is the upper edge of the bucket in which the quantile lies: too large by a fifth at
// most.
func (d *spread) quantile(q float64) time.Duration {
	rank, sum := float32(q)*d.total, float32(0)
	i := 0
	for ; i < spreadBuckets-1; i++ {
		if sum += d.counts[i]; sum >= rank {
			break
		}
	}
	return time.Duration(math.Exp2(float64(i)/4) * float64(time.Millisecond))
}

// hedgeMetrics are those of this file.
type hedgeMetrics struct {
	hedged *prometheus.CounterVec
	wins   *prometheus.CounterVec
}

func newHedgeMetrics() hedgeMetrics {
	return hedgeMetrics{
		hedged: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_shard_hedged_total", Help: "Calls that another replica of the shard was asked as well, because this one took longer than usual to begin its answer.",
		}, replicaLabels),
		wins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_shard_hedge_wins_total", Help: "Calls to this replica that another one, asked later, answered first.",
		}, replicaLabels),
	}
}

// Hedged asks the first of replicas, copies that are equal for the request (see Wholes), for an
// answer. Where that one is silent for longer than such calls usually take, the next one is asked
// as well and the first that sends its header is taken; the other call is ended with its connection
// and counts neither for nor against its server. At most one call in twenty of a shard is asked
// twice, none while retries are used up or the shard is sick: a replica of it is down, its breaker
// is not closed, it lags, or several calls have failed lately. An unselective request is never
// asked twice. Once, if time is left, the next replica is asked after a failure of the server,
// never after its verdict on the request, as Do has it; with one replica alone the rules of Do for
// one replica hold.
//
// A replica that loses three calls, none in between being as quick as usual, or is silent on a call
// and then on a question of ours, is asked only after the others of its shard for a while, so that
// a server which hangs makes a few requests wait and not every one. Errors are those of Do.
func (s *Shard) Hedged(ctx context.Context, replicas []*Replica, req *endpoint.Request, o CallOptions) (*Response, error) {
	if len(replicas) == 0 {
		return nil, qerr.New(qerr.Internal, "Spillway asked no replica of shard %s", s.Name())
	}
	heavy := s.heavy(&o) != ""
	if heavy {
		replicas = easiest(replicas, time.Now())
		if e := replicas[0].shed(ctx, &o); e != nil { // nobody else has memory either
			return nil, e
		}
	}
	for _, r := range replicas[:min(2, len(replicas))] {
		if err := r.admit(ctx); err != nil {
			return nil, err
		}
	}
	s.hedge.earn()
	if len(replicas) == 1 {
		return s.alone(ctx, replicas[0], req, o)
	}
	leave := func() {}
	if !o.Entered { // one place is enough for both calls
		var err error
		if leave, err = s.Enter(ctx, o.Held); err != nil {
			return nil, err
		}
		o.Entered = true
	}
	// Who waited for a place may have waited because the first of them hangs: what was learned of
	// it meanwhile counts.
	now := time.Now()
	if heavy {
		replicas = easiest(replicas, now)
	}
	if a, b := replicas[0], replicas[1]; b.doubt(now) < a.doubt(now) && (!heavy || b.strain() <= a.strain()) {
		replicas = []*Replica{b, a}
	}
	h := &race{s: s, ctx: ctx, req: req, o: o, heavy: heavy, results: make(chan *runner, 2), class: hedgeClass(req.ID)}
	if o.Computes {
		h.class = hedgeInstant
	}
	resp, err := h.run(replicas[0], replicas[1])
	if err != nil {
		leave()
		return nil, err
	}
	resp.Body.(*body).call.thenLeave(leave)
	return resp, nil
}

// race is one request to two replicas, of which the second is asked only when there is a reason. No
// call outlives the answer's body.
type race struct {
	s       *Shard
	ctx     context.Context
	req     *endpoint.Request
	o       CallOptions
	heavy   bool // a copy with memory is preferred
	class   int
	results chan *runner // of both at most: sending never waits

	mu      sync.Mutex
	decided bool
	runners []*runner
	calls   sync.WaitGroup
	winner  atomic.Pointer[runner]
}

// runner is one of the two calls.
type runner struct {
	r      *Replica
	cancel context.CancelCauseFunc
	began  chan time.Time // when it had passed its gate
	resp   *Response
	err    error
}

// won notes that the first call answered before any other one.
func (h *race) won(n *runner, usual time.Duration) {
	took, _ := n.resp.Took()
	h.s.hedge.observe(h.class, took)
	if usual == 0 || took <= usual {
		n.r.up.lag.lost.Store(0)
	}
	h.s.base.Store(int32(n.r.Index))
}

func (h *race) run(first, other *Replica) (*Response, error) {
	s, hedge := h.s, h.s.hedge
	usual, far := hedge.marks(h.class)
	one := h.launch(first, true)
	var two, failed *runner
	var began time.Time
	next := far // when to look at the call again, since it began
	if usual > 0 && usual < far {
		next = usual
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case began = <-one.began:
			timer.Reset(next - time.Since(began))
		case now := <-timer.C:
			if began.IsZero() || two != nil {
				continue // it still waits for its gate: that is ours, not the server's
			}
			reserve := 0.0
			if next < far {
				reserve = hedgeReserve
			}
			switch {
			case h.o.Class != Unselective && !(h.heavy && other.strain() > 0) && s.calm(now) && hedge.spend(reserve) && s.mayRetry(1):
				first.count(s.hedgedMetrics().hedged)
				two = h.launch(other, true)
			case next < far:
				next = far
				timer.Reset(far - time.Since(began))
			default:
				first.up.silent(false)
				s.suspect(first, lagAfter)
			}
		case n := <-h.results:
			now := time.Now()
			if n.err == nil {
				switch {
				case n == one:
					h.won(one, usual)
				case failed == one:
					s.base.Store(int32(other.Index))
				default:
					h.lost(one, n, now.Sub(began))
				}
				h.decide(n)
				return n.resp, nil
			}
			if h.ctx.Err() != nil || verdict(n.err) || isHeld(n.err) {
				if failed != nil && endedByAnother(h.ctx) { // to ask this one's copy helped nobody
					s.Wasted(failed.err)
				}
				h.decide(nil)
				return nil, n.err
			}
			if retryable(n.err) && !clientStatus(n.err) && !refusedAlone(n.err) { // one that refuses does not fail
				hedge.failed(now)
			}
			switch {
			case failed != nil: // both have failed now
				h.decide(nil)
				s.Wasted(n.err)
				return nil, both(one.err, two.err)
			case two != nil: // the other one is under way
				failed = n
				if n == one {
					first.count(s.hedgedMetrics().failover)
				}
			case retryable(n.err) && s.MayFailOver(n.err):
				failed = n
				first.count(s.hedgedMetrics().failover)
				two = h.launch(other, false)
			default:
				h.decide(nil)
				return nil, n.err
			}
		}
	}
}

func (s *Shard) hedgedMetrics() *metrics { return s.topology.metrics }

// endedByAnother tells whether a request ended because of another shard, not by its client or its
// deadline.
func endedByAnother(ctx context.Context) bool {
	if ctx.Err() == nil {
		return false
	}
	kind := qerr.From(context.Cause(ctx)).Kind
	return kind != qerr.Canceled && kind != qerr.Timeout
}

// launch starts a call; its outcome comes over results unless the race is decided before.
func (h *race) launch(r *Replica, failover bool) *runner {
	ctx, cancel := context.WithCancelCause(h.ctx)
	n := &runner{r: r, cancel: cancel, began: make(chan time.Time, 1)}
	h.runners = append(h.runners, n)
	t := try{CallOptions: h.o, failover: failover, began: func(at time.Time) { n.began <- at }, ended: func() { h.over(n) }}
	_, t.trial = r.up.breaker.allow(time.Now())
	h.calls.Go(func() {
		n.err = qerr.Guard(func() (err error) {
			n.resp, err = r.careful(ctx, h.req, r.writer(h.req), t)
			return err
		})
		if n.err != nil {
			cancel(errCallEnded)
		}
		h.mu.Lock()
		late := h.decided
		if !late {
			h.results <- n
		}
		h.mu.Unlock()
		if late && n.resp != nil {
			_ = n.resp.Body.Close()
		}
	})
	return n
}

// decide ends all calls but the winner's. Where there is none, they have ended when it returns;
// else when the winner's has.
func (h *race) decide(winner *runner) {
	h.mu.Lock()
	h.decided = true
	h.mu.Unlock()
	h.winner.Store(winner)
	for _, n := range h.runners {
		if n != winner {
			n.cancel(errHedged)
		}
	}
	select {
	case n := <-h.results: // a second answer, in the same moment
		if n.resp != nil {
			_ = n.resp.Body.Close()
		}
	default:
	}
	if winner == nil {
		h.calls.Wait()
	}
}

// over is called at the end of each call, the winner's when its body was read or closed: by then
// the other one was cancelled long ago.
func (h *race) over(n *runner) {
	n.cancel(errCallEnded)
	if h.winner.Load() == n {
		h.calls.Wait()
	}
}

// lost is a call that the replica asked second answered first. Its own time is no measure of how
// long such calls take; how long the first one was waited for at least is.
func (h *race) lost(first, second *runner, waited time.Duration) {
	s := h.s
	s.hedge.observe(h.class, waited)
	first.r.count(s.hedgedMetrics().wins)
	// By a wide margin: in the time that the second one took the first one, asked before, could
	// have answered twice.
	took, _ := second.resp.Took()
	wide := waited >= 2*took
	if wide && first.r.up.silent(true) >= lagAfter && s.setBehind(first.r, false) {
		s.base.Store(int32(second.r.Index))
	}
	s.suspect(first.r, lagAfter)
}

// verdict tells what a server says about the request itself: its copy would say the same.
func verdict(err error) bool {
	var status *StatusError
	k := qerr.From(err).Kind
	return (k == qerr.BadData || k == qerr.TooExpensive) && errors.As(err, &status) && status.Code < http.StatusInternalServerError
}

// calm tells whether nothing is wrong with the shard, so that a second question costs nobody dear.
func (s *Shard) calm(now time.Time) bool {
	for _, r := range s.Replicas {
		if rank, ok := r.rank(now); !ok || rank > 0 {
			return false
		}
	}
	s.hedge.mu.Lock()
	defer s.hedge.mu.Unlock()
	return s.hedge.failuresAt(now) <= failedLately
}
