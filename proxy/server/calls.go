package server

import (
	"context"
	"errors"
	"io"
	"math/bits"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// A fan-out is done in one of two ways, so that no request waits for a place at a server while it
// keeps another one that somebody else waits for.
//
// Side by side: the answers are read together, one line of each after the other, from when all have
// begun; what one has until then is read ahead (ahead.go), so that a short answer ends by itself.
// Places for all shards are taken before any is asked. A few shards are asked so.
//
// One by one: each answer is read whole by whoever asked for it, and its place given back, whatever
// the others do; so many at a time as a shard, a request and memory.budget bear. What is not
// decoded as it comes is kept in the budget.

const (
	// maxSideBySide is how many answers are read side by side at most: each takes a connection and
	// a scanner's 64 KiB until the last has ended.
	maxSideBySide = 64
	// maxAtOnce is how many calls one request has under way, maxOfShard how many to one shard;
	// maxWaiting is how many more wait for a place.
	maxAtOnce, maxOfShard, maxWaiting = 640, 8, 64
	// callBytes is what a call takes beside its answer: the connection's buffers and what waits for
	// it, by measurement rounded up.
	callBytes = 48 << 10
)

// reading reads an answer, and to its end, as soon as it has begun. i is its place among the
// questions. Several goroutines call it.
type reading func(i int, q *question, src merge.Source) error

// fanout is the calls of one ask.
type fanout struct {
	x         *exchange
	ctx       context.Context
	cancel    context.CancelCauseFunc
	questions []question
	results   []outcome
	waits     *waits
	begins    *beginning // of answers that are read side by side
	slots     taken
	asked     map[seat]int           // how many are asked for the seat
	left      map[seat]*atomic.Int32 // how many may still answer
	holds     map[*shard.Shard]int64 // what each seat is to make the shard's server hold
	needs     map[*shard.Shard]int64 // what all of the request there together are
	read      reading                // nil: side by side
	entered   bool                   // slots has places for all calls
	held      int64                  // of the budget, until close
	readers   chan struct{}          // of those that read
	once      sync.Once
	broken    error // the first that read returned
	kept      keeper
}

// outcome is what came of a call.
type outcome struct {
	resp *shard.Response
	err  error
	src  merge.Source
	body io.ReadCloser
	lost bool // another replica can be asked in place of the one that failed
}

func (x *exchange) newFanout(questions []question, read reading) *fanout {
	f := &fanout{
		x: x, questions: questions, results: make([]outcome, len(questions)), read: read, asked: map[seat]int{},
		left: map[seat]*atomic.Int32{}, holds: map[*shard.Shard]int64{}, needs: map[*shard.Shard]int64{},
		kept: keeper{budget: x.budget, size: admit.NewBudget(nil, admit.Limits{MaxBytes: x.limits.MaxResponseBytes})},
	}
	f.ctx, f.cancel = context.WithCancelCause(x.ctx)
	evaluated := map[*shard.Shard]int64{} // seats
	for i := range questions {
		q := &questions[i]
		at := q.seat()
		if f.left[at] == nil {
			if f.left[at] = new(atomic.Int32); q.evaluates() {
				evaluated[at.shard]++
			}
		}
		f.asked[at]++
		f.left[at].Add(1)
	}
	for s, n := range evaluated { // now: calls that are left go on while a later attempt weighs anew
		f.needs[s] = x.holds(s)
		f.holds[s] = f.needs[s] / n
	}
	if read == nil && !f.few() {
		f.read = f.kept.keep
	}
	if f.read != nil {
		f.readers = make(chan struct{}, maxDecoders)
	} else {
		x.beside = true
	}
	return f
}

// heldOf is what a call is to make its server hold: its part of what the request holds there.
// Copies that answer the same are asked of different servers, and a place is for one call to each
// of them: where each takes places of its own it is a part of them.
func (f *fanout) heldOf(q *question) int64 {
	switch {
	case q.counts:
		return q.holds / int64(f.asked[q.seat()])
	case !q.evaluates():
		return 0
	}
	return f.holds[q.shard] / int64(f.asked[q.seat()])
}

// countedSlack is how much more than max_response_bytes an answer may have that is counted, in
// bytes: it is read up to there, and what it is read by.
const countedSlack = 1 << 20

// options are how much of its server a call needs.
func (f *fanout) options(q *question) shard.CallOptions {
	o := shard.CallOptions{Class: q.class, Held: f.heldOf(q)}
	switch {
	case q.counts:
		o.Needs, o.AtMost = q.needs, true
	case q.evaluates():
		o.Needs = f.needs[q.shard]
	}
	return o
}

// spared is the error of a fan-out that some server would be asked for without memory for it, and
// no other one can answer in its place. All such shards are found before any is asked.
func (f *fanout) spared() (failed error) {
	for i := range f.questions {
		q := &f.questions[i]
		able := q.replicas
		switch {
		case q.replica != nil && len(q.wholes) > 1:
			able = q.wholes
		case q.replica != nil:
			able = []*shard.Replica{q.replica}
		}
		if err := q.shard.Spared(f.ctx, able, f.options(q)); err != nil {
			if lost := f.x.shardError(q.shard, err); failed == nil || !f.x.mayLack(q.shard) {
				failed = lost
			}
		}
	}
	return failed
}

// enter takes the places that are needed before anybody is asked. An answer that can go without a
// shard waits for its place no longer than for its answer.
func (f *fanout) enter() (err error) {
	if err = f.spared(); err != nil {
		return err
	}
	x, short := f.x, f.ctx
	if x.partial {
		var cancel context.CancelFunc
		short, cancel = context.WithTimeout(f.ctx, x.part())
		defer cancel()
	}
	within := func(s *shard.Shard) context.Context {
		if x.mayLack(s) {
			return short
		}
		return f.ctx
	}
	all := short
	for at := range f.asked {
		if !x.mayLack(at.shard) {
			all = f.ctx
		}
	}
	if f.slots, err = x.s.unselective.take(within, f.questions); err != nil || f.read != nil || len(f.questions) < 2 {
		return f.noRoom(err)
	}
	var shards []*shard.Shard
	for at := range f.asked {
		shards = append(shards, at.shard)
	}
	held := int64(len(f.questions)) * callBytes
	if err = x.budget.Hold(held); err == nil {
		f.held = held
		var leave map[*shard.Shard]func()
		if leave, err = x.st.top.EnterAll(all, within, func(s *shard.Shard) int64 { return f.holds[s] }, shards); err == nil {
			f.slots, f.entered = f.slots.with(leave, f.questions), true
			return nil
		}
	}
	f.slots.drop()
	return f.noRoom(err)
}

// noRoom marks the error of a wait for room at a shard as the loss of that shard, where the answer
// can go without it.
func (f *fanout) noRoom(err error) error {
	if e := qerr.From(err); e != nil && len(e.Shards) == 1 {
		for _, q := range f.questions {
			if q.shard.Name() == e.Shards[0] {
				return f.x.shardError(q.shard, err)
			}
		}
	}
	return err
}

// close gives back what the fan-out holds, and ends what is still under way.
func (f *fanout) close() {
	f.cancel(nil)
	f.kept.drop()
	f.x.budget.Drop(f.held)
}

// few tells whether the questions can be asked side by side: one place for each shard is enough.
func (f *fanout) few() bool {
	if len(f.questions) > maxSideBySide {
		return false
	}
	parts := map[*shard.Shard]int{}
	for at := range f.asked {
		if parts[at.shard]++; parts[at.shard] > 1 {
			return false
		}
	}
	return true
}

// run asks everything and returns when each call has failed or begun to answer, or, one by one, has
// been read.
func (f *fanout) run() {
	f.waits = f.x.waitFor(f.ctx, f.questions)
	switch {
	case len(f.questions) == 1:
		f.call(0) // waking a goroutine would be for nothing
	case f.read == nil:
		var wg sync.WaitGroup
		f.begins = newBeginning(f)
		last := len(f.questions) - 1
		for i := range last {
			wg.Go(func() { f.beside(i) })
		}
		f.beside(last)
		wg.Wait()
	default:
		l := newAgenda(f.questions, f.x.width())
		l.walk(f)
		l.wg.Wait()
	}
	f.waits.stop()
}

// width is how many calls a request may have under way at a time: what an eighth of memory.budget
// holds, and a few in any case.
func (x *exchange) width() int {
	return max(maxOfShard, min(maxAtOnce, int(x.st.pool.Limit()/8/callBytes)))
}

// agenda is the questions of a fan-out by the shards that are asked. Each shard is asked maxOfShard
// things at once at most, all of them together width.
type agenda struct {
	width int
	wg    sync.WaitGroup

	mu      sync.Mutex
	turns   []*column // whose turn it is; a column is there as often as it may be asked at once
	walkers int       // goroutines
	waiting int       // those of them that wait for a place
}

// column is what one shard is asked.
type column struct {
	questions []int
	next      int
	begins    int // in which doubling of a millisecond its answers usually begin
}

func newAgenda(questions []question, width int) *agenda {
	by := map[*shard.Shard]*column{}
	var all []*column
	for i, q := range questions {
		l := by[q.shard]
		if l == nil {
			l = &column{}
			by[q.shard] = l
			all = append(all, l)
		}
		l.questions = append(l.questions, i)
	}
	if len(all) > maxWaiting { // requests that come together do not meet at one shard after the other
		at := rand.IntN(len(all))
		all = slices.Concat(all[at:], all[:at])
	}
	// Whoever takes longest is asked first: the last answer comes the sooner.
	for _, l := range all {
		l.begins = bits.Len64(uint64(questions[l.questions[0]].shard.Begins() / time.Millisecond))
	}
	slices.SortStableFunc(all, func(a, b *column) int { return b.begins - a.begins })
	out := &agenda{width: width, walkers: 1}
	for n := range maxOfShard {
		for _, l := range all {
			if len(l.questions) > n {
				out.turns = append(out.turns, l)
			}
		}
	}
	return out
}

// take is the next question, for a walker that goes on to wait for a place; false for one that is
// not needed.
func (l *agenda) take() (of *column, question int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.turns) > 0 && l.waiting < maxWaiting {
		of, l.turns = l.turns[0], l.turns[1:]
		if of.next < len(of.questions) {
			of.next++
			l.waiting++
			return of, of.questions[of.next-1], true
		}
	}
	l.walkers--
	return nil, 0, false
}

// more sends another walker where there is something to do for one.
func (l *agenda) more(f *fanout, entered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if entered {
		l.waiting--
	}
	if len(l.turns) > 0 && l.waiting < maxWaiting && l.walkers < l.width {
		l.walkers++
		l.wg.Go(func() { l.walk(f) })
	}
}

// walk asks one question after the other. Who waits for a place sends others on, a few of them: a
// shard without room keeps nobody from the next one, and a thousand questions that wait are no
// thousand goroutines.
func (l *agenda) walk(f *fanout) {
	for {
		of, i, ok := l.take()
		if !ok {
			return
		}
		l.more(f, false)
		f.inTurn(i, func() { l.more(f, true) })
		l.mu.Lock()
		if of.next < len(of.questions) {
			l.turns = append(l.turns, of)
		}
		l.mu.Unlock()
	}
}

// inTurn is call with a place of its own, from the asking to the end of the answer. It calls
// entered when it has got it, or none.
func (f *fanout) inTurn(i int, entered func()) {
	s := f.questions[i].shard
	leave, err := s.Enter(f.waits.ctx[i], f.heldOf(&f.questions[i]))
	entered()
	if err == nil {
		defer leave()
		err = f.x.budget.Hold(callBytes)
	}
	if err != nil {
		f.failed(i, err)
		return
	}
	defer f.x.budget.Drop(callBytes)
	f.call(i)
}

// beside is call for an answer that is read side by side with the others.
func (f *fanout) beside(i int) {
	f.call(i)
	f.begins.one(&f.results[i])
}

// call asks one question, and reads its answer where that is not for later.
func (f *fanout) call(i int) {
	x, q, r := f.x, f.questions[i], &f.results[i]
	o := f.options(&q)
	o.MaxBytes, o.Plain, o.Spare = x.limits.MaxResponseBytes, q.plain, f.asked[q.seat()] > 1 || q.spare
	if q.counts && q.req.ID.Decode() == endpoint.DecodeLabelSets { // what is too long is many
		o.MaxBytes, o.Computes = o.MaxBytes+countedSlack, true
	}
	o.Partial, o.Hold, o.Entered = x.mayLack(q.shard), f.kept.hold, f.entered || f.read != nil && len(f.questions) > 1
	ctx := f.waits.ctx[i]
	var resp *shard.Response
	err := qerr.Guard(func() (err error) {
		switch {
		case q.replica != nil:
			resp, err = q.replica.Do(ctx, q.req, o)
		case len(q.replicas) > 0:
			resp, err = q.shard.Hedged(ctx, q.replicas, q.req, o)
		default:
			resp, err = q.shard.Do(ctx, q.req, o)
		}
		return err
	})
	if err != nil {
		f.failed(i, slow(q, err))
		return
	}
	if !f.waits.over(i, true) { // it began too late, and is cut
		_ = resp.Body.Close()
		<-ctx.Done()
		f.failed(i, slow(q, context.Cause(ctx)))
		return
	}
	r.resp = resp
	r.body = x.account.body(f.slots.until(q.shard, resp.Body))
	r.src = merge.Source{
		Name: resp.Replica.Name(), Shard: q.shard.Name(), Body: r.body, Cancel: func() { f.cancel(errSibling) },
		Relabel: q.relabel, Stamped: q.shard.Thanos(), Asked: q.asked, Limit: q.limit,
	}
	if f.read == nil {
		return
	}
	err = f.take(i)
	_ = r.body.Close() // it was read to its end, or is not wanted any more
	_, took := resp.Took()
	x.calls.add(took)
	if err != nil {
		f.once.Do(func() {
			if !errors.Is(context.Cause(f.ctx), errSibling) { // else it only follows from another call's failure
				f.broken = err
			}
			f.cancel(errSibling)
		})
	}
}

// take reads an answer.
func (f *fanout) take(i int) (err error) {
	f.readers <- struct{}{} // whoever is there reads, and waits for nobody but its server
	defer func() {
		<-f.readers
		if v := recover(); v != nil {
			err = f.x.s.panicked(v, debug.Stack())
		}
	}()
	return f.read(i, &f.questions[i], f.results[i].src)
}

// failed takes note of a call without an answer, and ends the others where the request cannot go
// on.
func (f *fanout) failed(i int, err error) {
	f.results[i].err = err
	f.slots.failed(f.questions[i].shard)
	f.waits.over(i, false)
	if f.results[i].lost = f.x.replaceable(f.questions[i], err); f.results[i].lost {
		return
	}
	at := f.questions[i].seat()
	none := f.left[at].Add(-1) == 0 || shard.Shed(err) // see unanswered
	if k := qerr.From(err).Kind; k != qerr.ShardFailed && k != qerr.Timeout || none && !f.x.mayLack(at.shard) {
		f.cancel(errSibling) // a bound, the request's own end, or nobody who answers for the shard: no other answer is needed any more
	}
}

// keeper keeps answers whole until they are read side by side.
type keeper struct {
	budget *admit.Budget
	size   *admit.Budget // counts against max_response_bytes what is kept

	mu   sync.Mutex
	held int64
	kept map[int]*keptBody
}

// keptBody is an answer, with what ended it.
type keptBody struct {
	pieces [][]byte
	err    error
}

const (
	firstPiece = 4 << 10
	mostPiece  = 256 << 10
)

// keep implements reading. An answer that breaks is found to be broken by whoever reads what was
// kept.
func (k *keeper) keep(i int, _ *question, src merge.Source) error {
	b := &keptBody{}
	k.mu.Lock()
	if k.kept == nil {
		k.kept = map[int]*keptBody{}
	}
	k.kept[i] = b
	k.mu.Unlock()
	for size := firstPiece; b.err == nil; size = min(2*size, mostPiece) {
		if err := k.hold(int64(size)); err != nil {
			return err
		}
		n := b.fill(src.Body, size, func() bool { return false })
		if err := k.size.AddBytes(int64(n)); err != nil {
			return err
		}
	}
	return nil
}

// hold holds so many bytes of the budget until drop.
func (k *keeper) hold(n int64) error {
	if err := k.budget.Hold(n); err != nil {
		return err
	}
	k.mu.Lock()
	k.held += n
	k.mu.Unlock()
	return nil
}

// fill reads one more piece, until it is full or enough is true, and tells how much that was.
func (b *keptBody) fill(body io.Reader, size int, enough func() bool) int {
	piece, n := make([]byte, size), 0
	for n < size && b.err == nil && !enough() {
		var m int
		m, b.err = body.Read(piece[n:])
		n += m
	}
	b.pieces = append(b.pieces, piece[:n])
	return n
}

// of is the answer to the i-th question as it was kept; nil where it was not.
func (k *keeper) of(i int) io.Reader {
	if b := k.kept[i]; b != nil {
		return b
	}
	return nil
}

func (k *keeper) drop() {
	k.budget.Drop(k.held)
	k.held, k.kept = 0, nil
}

// Read implements io.Reader.
func (b *keptBody) Read(p []byte) (int, error) {
	for len(b.pieces) > 0 {
		if n := copy(p, b.pieces[0]); n > 0 || len(p) == 0 {
			b.pieces[0] = b.pieces[0][n:]
			return n, nil
		}
		b.pieces = b.pieces[1:]
	}
	return 0, b.err
}
