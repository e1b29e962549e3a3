package admit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Asker is who wants a place: all that fairness looks at.
type Asker struct {
	// Lane is the name of a lane. One that the gate does not have is its last one.
	Lane string
	// Flow is the hash of whatever is served fairly inside the lane.
	Flow uint64
	// Peer is the address that the places are counted for; empty is nobody's.
	Peer string
	// Arrived is when whoever asks came, in nanoseconds since 1970, wherever he has waited since:
	// it is his place in the flow's queue. 0 is now.
	Arrived int64
	// Began is when it began to wait, at whichever of several doors that was: MaxWait of its lane
	// counts from then. Zero is now.
	Began time.Time
}

// Gate lets at most so many through at once, and chooses fairly who is next.
//
//	place frees -> the lane that has the least of its own share and somebody who may have it
//	            -> its flow that has had the least work -> whoever came first there
//
// A lane may hold more than its share while others leave places idle, but a part of each lane's
// share is never lent (Lane.Keep), so that the lane's next caller is served at once. What is
// borrowed comes back as its holders leave.
//
// A flow's work is the places that it holds, each for as long, of those for which it has waited;
// those that it holds count as if they were to be held for the usual time. A flow that comes, or
// comes back, begins with what each has had on average (lane.tick): a place that frees is next its
// own, however many of another flow wait that has more than that, and it passes nobody for ever.
// Lanes are compared by their work too, each by its share.
//
// Who wants several places waits until all of them are free, and nobody passes whose turn comes
// later, but for what is kept for his lane, and, where it is his address that has not enough left,
// for the own share of another lane (wide.go).
//
// It is safe for concurrent use.
type Gate struct {
	places int
	ofPeer int // places that one peer may hold
	epoch  time.Time

	mu      sync.Mutex
	lanes   []*lane
	held    int
	waiting int // waiters
	waited  time.Duration
	work    float64 // of the lane that was served last
	mean    float64 // nanoseconds that a place is held, of those whose holders waited
	count   uint64
	first   firsts
	peers   map[string]*peer
	spare   *peer // one that was forgotten, for the next
}

// waiter is somebody who waits.
type waiter struct {
	lane       *lane
	flow       *flow
	peer       *peer
	n          int // places
	count      uint64
	arrived    int64
	since      int64
	turned     int64 // since when it has been its turn, but for room at its peer; 0 while it has not
	ready      chan struct{}
	next, prev *waiter
	place      Place    // once it has them
	refused    *Refusal // once it lost its place in the queue to another one
}

// Place is places of a gate that somebody holds. The zero Place is none.
type Place struct {
	lane  *lane
	flow  *flow // nil where nobody waited then
	peer  *peer
	n     int
	since int64 // since epoch; 0 without flow
	first bool  // the lane was First
	took  int64 // since epoch, where it was
}

// Places is how many they are.
func (p *Place) Places() int { return p.n }

// NewGate is a gate of so many places, of which one peer may hold ofPeer. Without lanes there is
// one, of all.
func NewGate(places, ofPeer int, lanes []Lane) *Gate {
	g := &Gate{places: places, ofPeer: ofPeer, epoch: time.Now(), mean: firstMean, peers: map[string]*peer{}}
	g.setLanes(lanes)
	return g
}

// Try takes n places, or as many as such a caller may ever have at once, if nobody waits whose turn
// comes first.
func (g *Gate) Try(a Asker, n int) (Place, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lane(a.Lane)
	n = g.most(l, a.Peer, n)
	if g.waiting == 0 {
		return g.atOnce(l, a, n)
	}
	if l.waiting >= maxLane {
		return Place{}, false // a try sends nobody away
	}
	now := g.now()
	w, _ := g.join(l, a, n, now)
	if w == nil {
		return Place{}, false
	}
	g.dispatch(now)
	if w.place.n == 0 {
		g.part(w, now)
		w.flow.forget()
	}
	return w.place, w.place.n > 0
}

// AtOnce is Try where nobody waits, and else has none without looking whose turn it is: for who
// calls Wait then, which does.
func (g *Gate) AtOnce(a Asker, n int) (Place, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting > 0 {
		return Place{}, false
	}
	l := g.lane(a.Lane)
	return g.atOnce(l, a, g.most(l, a.Peer, n))
}

// Wait takes n places, or as many as such a caller may ever have at once, as soon as it is its
// turn. The error is a *Refusal where there is no room for one more to wait, or when ctx ends,
// which it wraps then.
func (g *Gate) Wait(ctx context.Context, a Asker, n int) (Place, error) {
	g.mu.Lock()
	l := g.lane(a.Lane)
	most, left := l.MaxWait, l.MaxWait
	if most > 0 && !a.Began.IsZero() {
		left = max(most-time.Since(a.Began), 0)
	}
	n = g.most(l, a.Peer, n)
	if g.waiting == 0 {
		if p, ok := g.atOnce(l, a, n); ok {
			g.mu.Unlock()
			return p, nil
		}
	}
	w, refused := g.join(l, a, n, g.now())
	if w == nil {
		l.refused++
		g.mu.Unlock()
		return Place{}, refused
	}
	g.dispatch(g.now())
	has := w.place.n > 0
	g.mu.Unlock()
	if has {
		return w.place, nil
	}
	if most > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, left, errMaxWait)
		defer cancel()
	}
	select {
	case <-w.ready:
		return w.given()
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-w.ready: // both at once
		return w.given()
	default:
	}
	now := g.now()
	g.tick(now)
	r := g.refusal(w, now)
	g.part(w, now)
	w.flow.forget()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) { // else it was not refused, it left
		l.refused++
	}
	r.Others, r.err = g.waiting, context.Cause(ctx)
	if errors.Is(r.err, errMaxWait) {
		r.MaxWait = most
	}
	g.dispatch(now) // it may have kept others waiting
	return Place{}, r
}

// Leave gives n places of p back, at most as many as it has.
func (g *Gate) Leave(p *Place, n int) {
	n = min(n, p.n)
	if n == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var now int64
	if g.waiting > 0 || p.flow != nil {
		now = g.now()
	}
	if p.flow != nil {
		p.lane.tick(now)
		p.flow.owe(float64(n) * float64(now-p.since))
		p.flow.accrue(now)
		p.flow.run(-n)
		p.flow.forget()
		g.mean += (float64(now-p.since) - g.mean) / 16
	}
	if g.waiting > 0 {
		p.lane.accrue(now)
	}
	if p.n -= n; p.n == 0 && p.first {
		g.reckonFirst(g.now())
		g.first.leave(p.took)
	}
	p.lane.held -= n
	g.held -= n
	if p.peer != nil {
		p.peer.leave(p.lane, n)
		g.unref(p.peer, n)
	}
	if g.waiting > 0 {
		g.dispatch(now)
	}
}

// Places is how many places there are, OfPeer how many of them one peer may have.
func (g *Gate) Places() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.places
}

// OfPeer is how many places one peer may have.
func (g *Gate) OfPeer() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ofPeer
}

// SetPlaces changes how many places there are, and how many of them one peer may have. Nobody loses
// one: where more are held than there are now, nobody else gets one until enough have come back.
func (g *Gate) SetPlaces(places, ofPeer int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.places, g.ofPeer = places, ofPeer
	g.keep()
	g.clamp()
	g.dispatch(g.now())
}

// Held is how many places are held.
func (g *Gate) Held() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

// Waiting is how many wait, and how long all have waited so far who wait no more.
func (g *Gate) Waiting() (n int, waited time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting, g.waited
}

// Peers is how many peers hold a place or wait for one.
func (g *Gate) Peers() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.peers)
}

// tick reckons what flows have on average until now, in all lanes.
func (g *Gate) tick(now int64) {
	for _, l := range g.lanes {
		l.tick(now)
	}
}

func (g *Gate) now() int64 { return int64(time.Since(g.epoch)) }

// atOnce takes n places where nobody waits, if there are as many for the asker. No clock is read.
func (g *Gate) atOnce(l *lane, a Asker, n int) (Place, bool) {
	if !g.fits(l, n) || !l.room(n) || g.yields(l, n) {
		return Place{}, false
	}
	p := g.peer(a.Peer)
	if p != nil && p.held+n > g.ofPeer && !g.own(l, n) {
		return Place{}, false // it holds some, and is not new
	}
	return g.take(l, p, n), true
}

// take hands n places out.
func (g *Gate) take(l *lane, p *peer, n int) Place {
	if p != nil {
		p.take(l, n, g.own(l, n))
		p.refs += n
	}
	g.held += n
	l.held += n
	out := Place{lane: l, peer: p, n: n}
	if l.First {
		out.first, out.took = true, g.now()
		g.reckonFirst(out.took)
		g.first.took = append(g.first.took, out.took)
	}
	return out
}

// own tells whether n more places of the lane are of those that are kept for it: they do not count
// for a peer, or one address from which all lanes are asked, such as Grafana's, would keep its own
// alerts waiting. The last lane is anybody's and has none in this sense.
func (g *Gate) own(l *lane, n int) bool {
	return l != g.lanes[len(g.lanes)-1] && l.held+n <= l.kept
}

// most is how many places such a caller can have at once, n at most and one at least: more would
// never be free for him.
func (g *Gate) most(l *lane, peer string, n int) int {
	if n <= 1 {
		return 1
	}
	n = min(n, g.open(l))
	if l.Most > 0 {
		n = min(n, l.Most)
	}
	if peer != "" {
		n = min(n, g.ofPeer)
	}
	return max(1, n)
}

// fits tells whether n more places are free for the lane: what is kept for others is not.
func (g *Gate) fits(l *lane, n int) bool {
	free := g.places - g.held - n
	if free < 0 {
		return false
	}
	if l.held+n <= l.kept {
		return true
	}
	for _, m := range g.lanes {
		if m != l && m.held < m.kept {
			free -= m.kept - m.held
		}
	}
	return free >= 0
}

// join puts a waiter in its queue, or says that there is no room.
func (g *Gate) join(l *lane, a Asker, n int, now int64) (*waiter, *Refusal) {
	l.tick(now)
	f := l.flow(a.Flow)
	if f.length >= maxFlow {
		return nil, &Refusal{Why: FlowFull, Most: maxFlow, Wants: n, Others: g.waiting}
	}
	if l.waiting >= maxLane {
		longest := l.longest()
		if longest == f || longest.length == 1 {
			f.forget()
			return nil, &Refusal{Why: FlowFull, Most: f.length, Wants: n, Others: g.waiting}
		}
		w := longest.last
		w.refused = &Refusal{Why: FlowFull, Most: longest.length, Wants: w.n, Others: g.waiting}
		g.part(w, now)
		longest.forget()
		l.refused++
		close(w.ready)
	}
	g.count++
	w := &waiter{lane: l, flow: f, peer: g.peer(a.Peer), n: n, count: g.count, arrived: a.Arrived, since: now, ready: make(chan struct{})}
	if w.arrived == 0 {
		w.arrived = time.Now().UnixNano()
	}
	if w.peer != nil {
		w.peer.refs++
	}
	g.reckonFirst(now)
	if g.waiting == 0 {
		for _, m := range g.lanes {
			m.work, m.until = g.work, now
		}
	}
	if l.waiting == 0 { // it has saved nothing up, but owes what it has had beside those who wait
		l.accrue(now)
		l.work = max(l.work, g.work)
	}
	f.push(w, now)
	l.waiting++
	g.waiting++
	return w, nil
}

// given is what became of who waits no more.
func (w *waiter) given() (Place, error) {
	if w.refused != nil {
		return Place{}, w.refused
	}
	return w.place, nil
}

// part takes a waiter out.
func (g *Gate) part(w *waiter, now int64) {
	w.lane.tick(now)
	w.flow.remove(w)
	if w.lane.awaits == w {
		w.lane.awaits = nil
	}
	g.reckonFirst(now)
	w.lane.waiting--
	g.waiting--
	w.lane.waited += time.Duration(now - w.since)
	g.waited += time.Duration(now - w.since)
	if w.peer != nil {
		if w.peer.wide == w {
			w.peer.wide = nil
		}
		g.unref(w.peer, 1)
	}
}

// dispatch lets in whoever's turn it is.
func (g *Gate) dispatch(now int64) {
	g.tick(now)
	g.reckonFirst(now)
	defer g.rouse(now)
	for g.waiting > 0 {
		w := g.due(now)
		if w == nil {
			return
		}
		w.flow.accrue(now)
		w.lane.accrue(now)
		w.lane.tick(now)
		w.flow.run(w.n)
		w.flow.had = now
		w.place = g.take(w.lane, w.peer, w.n)
		w.place.flow, w.place.since = w.flow, now
		g.part(w, now)
		close(w.ready)
	}
}

// due is who is let in next; nil where nobody can be.
func (g *Gate) due(now int64) *waiter {
	if w := g.next(now); w != nil && g.fits(w.lane, w.n) && !g.yields(w.lane, w.n) {
		g.work = max(g.work, w.lane.worked(now))
		return w
	}
	return g.within(now) // takes nothing that anybody else waits for
}

// next is whose turn it is by the need of the lanes, whether there are as many places or not. Whom
// a lane awaits decides who may go on in others, those before it too: where that is somebody else
// now, they are looked at again.
func (g *Gate) next(now int64) *waiter {
	first, news := g.heads(now)
	if news {
		first, _ = g.heads(now)
	}
	return first
}

// heads looks at the heads of all lanes; first is who needs it most of them, and news is whether a
// lane awaits somebody else than before.
func (g *Gate) heads(now int64) (first *waiter, news bool) {
	var least float64
	for _, l := range g.lanes {
		if l.waiting == 0 {
			continue
		}
		before := l.awaits
		w, behind := l.head(g, now)
		news = news || l.awaits != before
		switch {
		case w != nil && w.n == 1 && g.yields(l, 1): // one that is wide keeps its turn: nobody passes it but of what is kept
			l.accrue(now) // what it lacks for that it gets back of a second, or others would wait while it does
			l.work = max(l.work, g.work-float64(g.places)/l.nominal*firstCredit)
		case w != nil && l.room(w.n) && (w.peer == nil || w.peer.room(g, w)):
			if need := l.need(w.n, now, g.mean); first == nil || need < least {
				first, least = w, need
			}
		case w != nil || !behind: // what it does not have is nobody else's doing
			l.accrue(now)
			l.work = max(l.work, g.work)
		}
	}
	return first, news
}

// within is who is let in, by the need of the lanes, of what is kept for his lane.
func (g *Gate) within(now int64) (next *waiter) {
	var least float64
	for _, l := range g.lanes {
		if l.waiting == 0 || l.held >= l.kept || g.held >= g.places {
			continue
		}
		if w := l.within(g, now); w != nil {
			if need := l.need(w.n, now, g.mean); next == nil || need < least {
				next, least = w, need
			}
		}
	}
	return next
}

// Why is why somebody found no place.
type Why uint8

// The reasons, and what Refusal.Most is with each.
const (
	// AllHeld: of the places that are not kept for others, so many, not enough are left.
	AllHeld Why = iota
	// PeerFull: of as many as the peer may hold not enough are left.
	PeerFull
	// LaneFull: of as many as the lane may hold not enough are left.
	LaneFull
	// FlowFull: so many of the flow wait already that one more may not.
	FlowFull
)

// Refusal is the error of who found no place.
type Refusal struct {
	// Why is what was in the way when it gave up, and Most the number that goes with it.
	Why  Why
	Most int
	// Wants is how many places it wanted, and Held how many are held of those that Most is about.
	Wants, Held int
	// Ahead is how many somebody wants whose turn it is, and for whom what is free is kept, at the
	// gate or, with PeerFull, of what the peer may hold; 0 where there is nobody.
	Ahead int
	// Others is how many others wait.
	Others int
	// MaxWait is the lane's, where that ended the wait; else 0.
	MaxWait time.Duration

	err error
}

// errMaxWait ends the wait of who has waited for as long as his lane does.
var errMaxWait = errors.New("as long as its lane waits")

// Error implements error.
func (r *Refusal) Error() string {
	if r.err == nil {
		return fmt.Sprintf("%d wait there already", r.Most)
	}
	return fmt.Sprintf("no place in time: %s", r.err)
}

// Unwrap is what ended the wait; nil where there was none.
func (r *Refusal) Unwrap() error { return r.err }

// refusal is why the waiter has no place now.
func (g *Gate) refusal(w *waiter, now int64) *Refusal {
	switch {
	case w.peer != nil && !w.peer.room(g, w):
		return &Refusal{Why: PeerFull, Most: g.ofPeer, Wants: w.n, Held: w.peer.held}
	case !w.lane.room(w.n):
		return &Refusal{Why: LaneFull, Most: w.lane.Most, Wants: w.n, Held: w.lane.held}
	case w.peer != nil && !w.peer.lets(g, w, now):
		return &Refusal{Why: PeerFull, Most: g.ofPeer, Wants: w.n, Held: w.peer.held, Ahead: w.peer.wide.n}
	}
	r := &Refusal{Why: AllHeld, Most: g.places, Wants: w.n, Held: g.held}
	for _, l := range g.lanes {
		if l != w.lane {
			r.Most -= max(0, l.kept-l.held)
		}
	}
	head, _ := w.lane.head(g, now)
	for _, ahead := range []*waiter{head, g.next(now)} { // the head may have to wait for its address or lane, and is not first then
		if r.Ahead == 0 && ahead != nil && ahead != w && ahead.n > 1 {
			r.Ahead = ahead.n
		}
	}
	return r
}
