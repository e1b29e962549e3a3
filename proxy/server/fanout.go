package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// shardSeconds adds up how long calls to shards ran, for the usage log.
type shardSeconds struct {
	mu    sync.Mutex
	total time.Duration
}

func (s *shardSeconds) add(d time.Duration) {
	s.mu.Lock()
	s.total += d
	s.mu.Unlock()
}

// get is the sum.
func (s *shardSeconds) get() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// question is one call of a fan-out.
type question struct {
	shard *shard.Shard
	// replica is asked where set; else one of replicas, in this order, a straggler hedged; else whichever the shard chooses.
	replica  *shard.Replica
	replicas []*shard.Replica
	spare    bool // should replica be found gone, another one can be asked, by a request that starts again
	// wholes are all replicas that could answer: where one fails, what the others of the fan-out answered is kept, and the next one is asked in its place.
	wholes []*shard.Replica
	// part tells questions to one shard apart that are not copies of each other: each needs an answer.
	part        int
	mode        plan.Mode  // of the leaf it is for; empty for none
	call        *plan.Call // of the leaf's node, where it is for one
	from, until int64      // what its selectors read, where it is for a leaf
	req         *endpoint.Request
	relabel     *merge.Relabel
	class       shard.Class
	limit       int
	plain       bool // uncompressed: nothing is gained by gzip where the bytes go straight on
}

// seat is what one of several copies has to answer: a part of a request that a shard is asked.
type seat struct {
	shard *shard.Shard
	part  int
}

func (q *question) seat() seat { return seat{q.shard, q.part} }

// names are the replicas that the question is for; none where the shard chooses.
func (q *question) names() []string {
	if q.replica != nil {
		return []string{q.replica.Name()}
	}
	var out []string
	for _, r := range q.replicas {
		out = append(out, r.Name())
	}
	return out
}

// replies are the open answers of a fan-out. They are closed together.
type replies struct {
	sources []merge.Source
	asked   []question // parallel to sources
	arrived []bool     // likewise: all of the answer is here
	bodies  []io.Closer
	counted []io.ReadCloser // the bodies again, as explain counts them
	cancel  context.CancelFunc
	calls   *shardSeconds

	responses []*shard.Response // parallel to asked
	lost      []lostQuestion    // those that another replica can be asked
}

// close ends what is still being read.
func (r *replies) close() {
	for i, b := range r.bodies {
		_ = b.Close()
		_, took := r.responses[i].Took()
		r.calls.add(took)
	}
	r.cancel()
}

// errSibling is the cause with which the other calls of a fan-out end when one of them failed.
var errSibling = errors.New("another shard failed, so the request did")

// ask sends all questions at once and returns when every shard has begun to answer. A replica that fails while another one of its shard answers is left
// out; a shard without an answer is an error, which the request may survive where it accepts partial answers.
func (x *exchange) ask(questions []question) (*replies, error) {
	questions = slices.DeleteFunc(questions, func(q question) bool { return x.lost[q.shard.Name()] || q.replica != nil && x.avoid[q.replica.Name()] })
	x.asked += len(questions)
	slots, err := x.s.unselective.take(x.ctx, questions)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(x.ctx)
	r := &replies{cancel: func() { cancel(nil) }, calls: &x.calls}
	type result struct {
		resp *shard.Response
		err  error
		lost bool // another replica can be asked in place of the one that failed
	}
	results := make([]result, len(questions))
	asked, left := map[seat]int{}, map[seat]*atomic.Int32{} // how many are asked for the seat, and how many may still answer
	for _, q := range questions {
		at := q.seat()
		if left[at] == nil {
			left[at] = new(atomic.Int32)
		}
		asked[at]++
		left[at].Add(1)
	}
	waits := x.waitFor(ctx, questions)
	var wg sync.WaitGroup
	for i, q := range questions {
		spare := asked[q.seat()] > 1 || q.spare
		call := func() {
			ctx := waits.ctx[i]
			o := shard.CallOptions{MaxBytes: x.limits.MaxResponseBytes, Class: q.class, Plain: q.plain, Spare: spare, Partial: x.partial}
			switch {
			case q.replica != nil:
				results[i].resp, results[i].err = q.replica.Do(ctx, q.req, o)
			case len(q.replicas) > 0:
				results[i].resp, results[i].err = q.shard.Hedged(ctx, q.replicas, q.req, o)
			default:
				results[i].resp, results[i].err = q.shard.Do(ctx, q.req, o)
			}
			results[i].err = slow(q, results[i].err)
			err := results[i].err
			waits.over(i, err == nil)
			if err == nil {
				return
			}
			if results[i].lost = x.replaceable(q, err); results[i].lost {
				return
			}
			if k := qerr.From(err).Kind; k != qerr.ShardFailed && k != qerr.Timeout || left[q.seat()].Add(-1) == 0 && !x.partial {
				cancel(errSibling) // a bound, the request's own end, or nobody who answers for the shard: no other answer is needed any more
			}
		}
		if i == len(questions)-1 {
			call() // waking a goroutine for the last one, often the only one, would be for nothing
		} else {
			wg.Go(call)
		}
	}
	wg.Wait()
	waits.stop()
	answered := map[seat]bool{}
	var failed error
	for i, q := range questions {
		if resp := results[i].resp; resp != nil {
			answered[q.seat()] = true
			r.arrived = append(r.arrived, resp.Arrived())
			r.responses = append(r.responses, resp)
			b := x.account.body(slots.until(q.shard, resp.Body))
			r.counted = append(r.counted, b)
			r.bodies = append(r.bodies, b)
			r.sources = append(r.sources, merge.Source{
				Name: resp.Replica.Name(), Shard: q.shard.Name(), Body: b, Cancel: func() { cancel(errSibling) }, Relabel: q.relabel, Limit: q.limit,
			})
			r.asked = append(r.asked, q)
			if resp.Partial != "" {
				x.warnings.Add("partial answer: shard " + q.shard.Name() + ": " + resp.Partial)
				x.s.metrics.partial.WithLabelValues(string(x.req.ID)).Inc()
			}
			if q.call != nil {
				q.call.Replica = resp.Replica.Name()
			}
			if q.mode != "" && x.s.observeCall != nil { // it is for a leaf
				x.s.observeCall(q.mode, q.shard.Name(), resp.Replica.Name(), q.req.Query)
			}
		}
	}
	slots.begun()
	for i, q := range questions {
		if err := results[i].err; err != nil && answered[q.seat()] && qerr.From(err).Kind == qerr.Timeout {
			x.wasLate(err)
		}
		if results[i].lost {
			r.lost = append(r.lost, lostQuestion{q, q.names(), results[i].err})
			continue
		}
		if err := results[i].err; err != nil && !answered[q.seat()] {
			lost := x.shardError(q.shard, err) // noted, also where another one's error is the answer
			if failed == nil || errors.Is(failed, errSibling) {
				failed = lost
				if names := q.names(); len(names) > 0 && qerr.From(err).Kind == qerr.ShardFailed && x.others(q.shard, names...) {
					failed = &lostReplica{names: names, err: err}
				}
			}
		}
	}
	if failed != nil {
		r.close()
		var silent []string
		for i, q := range questions { // the first one to be late ended the wait for the others
			if err := results[i].err; err != nil && !answered[q.seat()] && (errors.Is(err, errSibling) || qerr.From(err).Kind == qerr.Timeout) {
				silent = append(silent, q.shard.Name())
			}
		}
		return nil, alsoSilent(failed, silent)
	}
	return r, nil
}

// maxSilent is how many further shards a sentence names that had not answered either.
const maxSilent = 5

// alsoSilent adds to the error of a server that had not answered by the deadline which shards had not either, so that not only one of many is looked at.
func alsoSilent(err error, shards []string) error {
	var late *qerr.Error
	slices.Sort(shards)
	if shards = slices.Compact(shards); len(shards) < 2 || !errors.As(err, &late) || late.Kind != qerr.Timeout || len(late.Shards) != 1 {
		return err
	}
	e := *late // its private cause goes along
	names, more := shards, ""
	if len(names) > maxSilent {
		names, more = names[:maxSilent], fmt.Sprintf(" and %d more", len(shards)-maxSilent)
	}
	e.Message += fmt.Sprintf(" (silent were %d shards: %s%s)", len(shards), strings.Join(names, ", "), more)
	var lost *lostShard
	if errors.As(err, &lost) {
		return &lostShard{name: lost.name, err: &e}
	}
	return &e
}

// shardLost tells whether an error is the loss of a shard: it failed, was too late, or, for an answer that can go without it, had no room in time. A shard that
// hangs fills its own slots.
func (x *exchange) shardLost(err error) bool {
	switch e := qerr.From(err); e.Kind {
	case qerr.ShardFailed, qerr.Timeout:
		return true
	case qerr.Overloaded:
		return x.partial && len(e.Shards) > 0
	}
	return false
}

// shardError marks err as the loss of one shard where a partial answer could go on without it.
func (x *exchange) shardError(s *shard.Shard, err error) error {
	if x.ctx.Err() == nil && !errors.Is(err, errSibling) && x.shardLost(err) {
		x.gone.add(s.Name())
		return &lostShard{name: s.Name(), err: err}
	}
	return err
}

// bodyError is shardError for what a merge found while reading.
func (x *exchange) bodyError(r *replies, err error) error {
	if err == nil || x.ctx.Err() != nil {
		return err
	}
	var e *qerr.Error
	if !errors.As(err, &e) || e.Kind != qerr.ShardFailed && e.Kind != qerr.Timeout || len(e.Shards) != 1 {
		return err
	}
	for i, s := range r.sources {
		if s.Name == e.Shards[0] {
			q := r.asked[i]
			if others := x.others(q.shard, s.Name); others && !x.avoid[s.Name] {
				return &lostReplica{names: []string{s.Name}, err: err}
			}
			return &lostShard{name: q.shard.Name(), err: err}
		}
	}
	return err
}

// others tells whether the shard has a replica, apart from the named ones, that was not given up yet and can be asked.
func (x *exchange) others(s *shard.Shard, names ...string) bool {
	usable, err := s.Usable()
	return err == nil && slices.ContainsFunc(usable, func(r *shard.Replica) bool { return !slices.Contains(names, r.Name()) && !x.avoid[r.Name()] })
}

// lostReplica marks the failure of replicas of a shard that has another.
type lostReplica struct {
	names []string
	err   error
}

func (e *lostReplica) Error() string { return e.err.Error() }
func (e *lostReplica) Unwrap() error { return e.err }

// copies are the replicas of the shard that must be asked so that nothing in the window is missed: one of those that are known to be whole, else all that can
// be asked, so that what one missed is had from another. none, with no error, leaves the choice to the shard.
func (x *exchange) copies(s *shard.Shard, from, until int64) (replicas []*shard.Replica, whole bool, err error) {
	if len(s.Replicas) == 1 {
		return nil, false, nil
	}
	sound, err := x.sound(s)
	if err != nil {
		return nil, false, err
	}
	wholes, err := s.Wholes(x.ctx, from, until, x.view.Now())
	if err != nil {
		return nil, false, err
	}
	wholes = slices.DeleteFunc(slices.Clone(wholes), func(r *shard.Replica) bool { return !slices.Contains(sound, r) })
	if len(wholes) > 0 {
		return wholes, true, nil
	}
	return sound, false, nil
}

// sound are the replicas of the shard to ask where all of them are: at least one, or an error. Those that failed this request are left out, and of the
// others those that are known to be unwell, unless nobody else is left.
func (x *exchange) sound(s *shard.Shard) ([]*shard.Replica, error) {
	avoided := func(r *shard.Replica) bool { return x.avoid[r.Name()] }
	well, err := s.Well()
	if err != nil {
		return nil, err
	}
	if well = slices.DeleteFunc(well, avoided); len(well) > 0 {
		return well, nil
	}
	usable, err := s.Usable()
	if err != nil {
		return nil, err
	}
	if usable = slices.DeleteFunc(usable, avoided); len(usable) > 0 {
		return usable, nil
	}
	return nil, qerr.New(qerr.ShardFailed, "shard %s has no replica left that can be asked: %s failed", s.Name(), strings.Join(slices.Sorted(maps.Keys(x.avoid)), ", "))
}

// askCopies is the question for each of the copies that have to answer it; none where the answer goes without the shard.
func (x *exchange) askCopies(q question, from, until int64) ([]question, error) {
	replicas, whole, err := x.copies(q.shard, from, until)
	if err != nil {
		if err = x.shardError(q.shard, err); x.lost[q.shard.Name()] {
			return nil, nil
		}
		return nil, err
	}
	if len(replicas) == 0 || whole {
		q.replicas = replicas
		return []question{q}, nil
	}
	out := make([]question, len(replicas))
	for i, r := range replicas {
		out[i] = q
		out[i].replica = r
	}
	return out, nil
}

// target is a group with the selectors that are sent to its shards.
type target struct {
	group *shard.Group
	// sent are the selectors without matchers on the group's labels; none where the client sent none.
	sent [][]*labels.Matcher
	// all tells that one of them selects everything.
	all bool
}

// targets are the groups that can hold what the request selects.
func (x *exchange) targets() []target {
	var out []target
	for _, g := range x.st.top.Groups {
		t := target{group: g}
		if len(x.dec.Selectors) == 0 {
			t.all = true
		}
		for _, ms := range x.dec.Selectors {
			if sent, ok := plan.Strip(g, ms); ok {
				t.sent = append(t.sent, sent)
				t.all = t.all || len(sent) == 0
			}
		}
		if t.all || len(t.sent) > 0 {
			out = append(out, t)
		}
	}
	return out
}

// match is the texts of match[] for the target. Where one selector selects everything, names and values need none.
func (t target) match(fill bool) []string {
	if t.all && !fill {
		return nil
	}
	if t.all {
		return []string{plan.Selector(plan.Filled(nil))}
	}
	out := make([]string, len(t.sent))
	for i, ms := range t.sent {
		out[i] = plan.Selector(plan.Filled(ms))
	}
	return out
}

// window is the part of the request's window that the shard answers for; false where there is none.
func (x *exchange) window(s *shard.Shard) (from, until int64, ok bool) {
	f, u := s.Span(x.view.Now())
	from, until = max(x.dec.Start, f), x.dec.End
	if u != maxTime {
		until = min(until, u-1)
	}
	return from, until, from <= until && f < u
}

// metadataQuestions are the calls for series, labels or label values to one group's shards. id and limit may differ from the client's: values of a group's
// own label only ask whether there is a series at all.
func (x *exchange) metadataQuestions(t target, id endpoint.ID, limit int) ([]question, error) {
	var out []question
	relabel := merge.NewRelabel(t.group.Labels.Map(), plan.Owned(t.group))
	class := shard.Light
	if x.dec.Unselective {
		class = shard.Unselective
	}
	for _, s := range t.group.Shards {
		from, until, ok := x.window(s)
		if !ok {
			continue
		}
		req := x.dec.Request.Clone()
		req.ID, req.PartialResponse = id, nil
		if id != endpoint.LabelValues {
			req.Label = ""
		}
		req.Match = t.match(id == endpoint.Series)
		req.Start, req.End, req.Limit = endpoint.At(from), endpoint.At(until), limit
		// A server allocates more than a megabyte to compress an answer. These come many at a time, are bounded, and are the ones that must not raise it.
		q := question{shard: s, req: req, relabel: relabel, class: class, limit: limit, plain: x.dec.Unselective}
		asked, err := x.askCopies(q, from, until)
		if err != nil {
			return nil, err
		}
		out = append(out, asked...)
	}
	return out, nil
}
