package admit

import (
	"cmp"
	"slices"
	"time"
)

const (
	// maxFlow is how many of one flow wait at most: as many as one address has connections by
	// default. maxLane is how many of a lane do; where it is full, the flow with the most waiters
	// loses its last one to whoever comes.
	maxFlow, maxLane = 3072, 16384
	// usualKeep is the part of a lane's share that others may not use, where it has no Keep.
	usualKeep = 0.5
	// leastNominal is what the need of a lane with next to no share is reckoned by, so that it has
	// a place now and then.
	leastNominal = 0.1
	// owed is for how long, at most, a flow waits for what its longest call was worth.
	owed = 2 * time.Minute
	// overdue is for how many times as long as places are usually held somebody whose turn it is
	// waits for room at his address before that is kept for him, whatever other lanes have.
	overdue = 8
	// firstMean is for how long places are taken to be held before that is known.
	firstMean = float64(100 * time.Millisecond)
)

// Lane is a class of callers, and what it may have of a gate's places: a priority level, as
// Kubernetes' API Priority and Fairness has it.
type Lane struct {
	// Name is unique at a gate.
	Name string
	// Share is the part of the places that is the lane's own, above 0 and up to 1; those of all
	// lanes together are at most 1.
	Share float64
	// Keep is the part of Share that is never lent to other lanes: 0 is half of it, and below 0
	// nothing is kept. Of a Share that comes to a place or more it is one at least. Where lanes
	// would keep all places so, the one that keeps most leaves one.
	Keep float64
	// Most is how many places the lane may hold at most, borrowed ones included; 0 is as many as
	// there are.
	Most int
	// First tells that others get no place while the lane has one that it has taken within a
	// quarter of a second, but for what is kept for them, and for its Share of the time at most.
	First bool
	// MaxWait is how long one of the lane waits at most, at all doors that it enters together; 0 is
	// as long as its context lasts.
	MaxWait time.Duration
}

// lane is a Lane at a gate.
type lane struct {
	Lane
	nominal float64 // places that are its share
	kept    int     // of them, that are never lent
	narrow  int     // of those, for who passes one that is wide: with all of them the lane would lack nothing, and that one wait on
	held    int     // places
	waiting int     // waiters
	waited  time.Duration
	refused int64
	work    float64 // nanoseconds that places were held, in shares of the lane, since somebody waits
	until   int64   // when that was reckoned, since the gate's epoch
	running int     // places held for which somebody waited
	gate    *Gate
	share   float64 // nanoseconds of places that each flow has had on average: what a flow begins with
	shared  int64   // when that was reckoned, since the gate's epoch
	widest  float64 // of its calls of late, in places
	flows   map[uint64]*flow
	queued  []*flow // those with waiters
	awaits  *waiter // for whom none of the lane takes its room, while it or his address lacks what he wants
}

// room tells whether the lane may hold n more places.
func (l *lane) room(n int) bool { return l.Most == 0 || l.held+n <= l.Most }

// worked is the lane's work until now, while somebody waits.
func (l *lane) worked(now int64) float64 {
	return l.work + float64(l.held)/l.nominal*float64(now-l.until)
}

func (l *lane) accrue(now int64) { l.work, l.until = l.worked(now), now }

// need is less the more the lane lacks of its share, if n more places were held for as long as is
// usual. What it has had since somebody waits is part of it: of a share that is no whole number of
// places a lane has one more for a part of the time.
func (l *lane) need(n int, now int64, mean float64) float64 {
	return l.worked(now) + mean*float64(l.held+n)/l.nominal
}

// keep sets what the lane's share comes to at a gate.
func (l *lane) keep(places int) {
	nominal := l.Share * float64(places)
	l.kept = int(nominal*max(cmp.Or(l.Keep, usualKeep), 0) + 1e-9) // 0.3 of 10 is a little less than 3
	if l.kept == 0 && nominal >= 1 && l.Keep >= 0 {
		l.kept = 1
	}
	if l.Most > 0 {
		l.kept = min(l.kept, l.Most)
	}
	l.narrow = min(l.kept, max(1, int(nominal*usualKeep)))
	l.nominal = max(nominal, leastNominal)
}

// flow is the flow of that hash, which is remembered while it has waiters, or places for which
// they waited.
func (l *lane) flow(hash uint64) *flow {
	f := l.flows[hash]
	if f == nil {
		if l.flows == nil {
			l.flows = map[uint64]*flow{}
		}
		f = &flow{lane: l, hash: hash}
		l.flows[hash] = f
	}
	return f
}

// tick reckons share until now: to be called before a flow comes or goes, and before running
// changes. It is the virtual time of fair queueing: with it newcomers, however many there are and
// however little each of them has had, come after somebody who has waited for as long as what he
// has had beyond them is worth.
func (l *lane) tick(now int64) {
	if l.running > 0 {
		l.share += float64(l.running) / float64(len(l.flows)) * float64(now-l.shared)
	}
	l.shared = now
}

// least is what a flow counts for at least, however little it has had: half a call less than the
// average, of the widest of late. What it lacks beyond that it could not have, since its address
// had all that it may have, or places were kept for somebody, and newcomers would wait until all
// had got it back.
func (l *lane) least() float64 { return l.share - l.gate.mean*l.widest/2 }

// longest is the flow with the most waiters.
func (l *lane) longest() *flow {
	return slices.MaxFunc(l.queued, func(a, b *flow) int { return cmp.Compare(a.length, b.length) })
}

// head is whose turn it is in the lane, whether there are as many places or not; nil where nobody
// may have any. behind tells that somebody has none only because another lane's wide call of his
// address is ahead.
func (l *lane) head(g *Gate, now int64) (w *waiter, behind bool) {
	var best, wide, lacks turn
	for _, f := range l.queued {
		work := f.due(now, g.mean)
		if best.waiter != nil && (turn{f.first, work}).after(best) {
			continue
		}
		n := f.next(g, now)
		behind = behind || n.behind
		best = best.orBefore(turn{n.may, work})
		wide = wide.orBefore(turn{n.wide, work})
		lacks = lacks.orBefore(turn{n.lacks, work})
	}
	if lacks.waiter != nil && lacks.turned == 0 && !lacks.after(best) {
		lacks.turned = max(now, 1)
	}
	l.awaits = nil
	if wide.waiter == nil || wide.after(best) {
		if best.waiter != nil && !l.room(best.n) {
			l.awaits = best.waiter
		}
		return best.waiter, behind
	}
	beside := wide.n
	if best.waiter != nil {
		beside += best.n
	}
	l.awaits = wide.waiter
	if !l.room(beside) { // none of the lane passes who is as wide
		if best = l.passing(g, wide.waiter, now); best.waiter == nil {
			best = wide
		}
	}
	if l.room(wide.n) {
		before := wide.peer.wide
		wide.peer.wide = wide.waiter
		if before != wide.waiter && best != wide && best.waiter != nil && best.peer == wide.peer {
			return l.head(g, now) // without the one, who would pass
		}
	}
	return best.waiter, behind
}

// passing is whose turn is first of those for whom the lane has room beside x.
func (l *lane) passing(g *Gate, x *waiter, now int64) (best turn) {
	if !l.room(x.n + 1) {
		return best
	}
	for _, f := range l.queued {
		work := f.due(now, g.mean)
		for w := f.first; w != nil && !(turn{w, work}).after(best); w = w.next {
			if w != x && l.room(x.n+w.n) && (w.peer == nil || w.peer.room(g, w) && w.peer.lets(g, w, now)) {
				best = turn{w, work}
				break
			}
		}
	}
	return best
}

// within is whoever is next in the lane of what is kept for it, which somebody who wants more than
// that leaves to those behind him; nil where nobody may have any.
func (l *lane) within(g *Gate, now int64) *waiter {
	head, _ := l.head(g, now)
	var best turn
	for _, f := range l.queued {
		work := f.due(now, g.mean)
		if best.waiter != nil && (turn{f.first, work}).after(best) {
			continue
		}
		if w := f.narrow(g, head, now); w != nil && !(turn{w, work}).after(best) {
			best = turn{w, work}
		}
	}
	return best.waiter
}

// turn is a waiter with the work that his flow has had.
type turn struct {
	*waiter
	work float64
}

// after tells whether the other one's turn is first. Of those who have had as little it is his who
// has had nothing for longer: among many for whom that is the least, by what they wait since, those
// with the longest queues would be first.
func (t turn) after(u turn) bool {
	if u.waiter == nil {
		return false
	}
	return cmp.Or(cmp.Compare(t.work, u.work), cmp.Compare(t.flow.had, u.flow.had), cmp.Compare(t.count, u.count)) > 0
}

// orBefore is the other turn, if that is one and not after this one.
func (t turn) orBefore(u turn) turn {
	if u.waiter == nil || u.after(t) {
		return t
	}
	return u
}

// flow is what is served fairly in a lane: its waiters, in their order, and what it has had.
type flow struct {
	lane        *lane
	hash        uint64
	at          int // its place among the lane's queued
	first, last *waiter
	length      int
	running     int     // places held for which somebody waited
	widest      int     // of its calls of late, in places
	had         int64   // when it had its last place, or began to wait
	owes        float64 // the lane's share up to which what a long call of it was is remembered
	work        float64 // nanoseconds that places were held
	until       int64   // when work was reckoned, since the gate's epoch
}

func (f *flow) worked(now int64) float64 { return f.work + float64(f.running)*float64(now-f.until) }

// due is by what its turn comes: what it has had, and what its places come to if they are held for
// as long as is usual. The lane has been ticked.
func (f *flow) due(now int64, mean float64) float64 {
	return max(f.worked(now), f.lane.least()) + float64(f.running)*mean
}

// turn is the waiter's, now.
func (w *waiter) turn(now int64, mean float64) turn { return turn{w, w.flow.due(now, mean)} }

// accrue reckons the flow's work until now. What it is beyond the lane's average is remembered up
// to what its calls are worth: a flow that is always queued uses what others leave idle, and that
// is nothing that it owes to those who come later.
func (f *flow) accrue(now int64) {
	f.lane.tick(now)
	most := max(f.lane.share+f.lane.gate.mean*float64(1+f.widest), f.owes)
	f.work, f.until = min(max(f.worked(now), f.lane.least()), most), now
}

// owe remembers a call that ends, of so many nanoseconds of places: up to what a flow has in owed
// on average, so that a rule set is not without a place for longer because of one call that hung.
func (f *flow) owe(call float64) {
	all := float64(f.lane.running) / float64(len(f.lane.flows))
	f.owes = max(f.owes, f.lane.share+min(call, all*float64(owed)))
}

// run counts n more of the flow's places, or fewer.
func (f *flow) run(n int) {
	f.running += n
	f.lane.running += n
	if n > 0 {
		f.widest = max(n, f.widest/2)
		f.lane.widest = max(float64(n), f.lane.widest*15/16)
	}
}

// forget forgets a flow that has nothing.
func (f *flow) forget() {
	if f.length == 0 && f.running == 0 {
		delete(f.lane.flows, f.hash)
	}
}

// nexts is who is next in a flow.
type nexts struct {
	may    *waiter // the first whose peer may have as many places as it wants
	lacks  *waiter // the first before it whose peer may not have as many
	wide   *waiter // the first of those for whom places may be kept
	behind bool    // one before it, or any, is kept by one of another lane alone
}

// next is who is next in the flow.
func (f *flow) next(g *Gate, now int64) (n nexts) {
	for w := f.first; w != nil; w = w.next {
		p := w.peer
		if p == nil {
			n.may = w
			return n
		}
		room := p.room(g, w)
		if room && p.lets(g, w, now) {
			n.may = w
			return n
		}
		n.behind = n.behind || room
		if !room && n.lacks == nil {
			n.lacks = w
		}
		if !room && n.wide == nil && (w.n > 1 || w.overdue(g, now)) && p.mayKeep(g, w, now) {
			n.wide = w
		}
	}
	return n
}

// narrow is the first waiter who may have what is kept for the lane, whose turn is the head's.
func (f *flow) narrow(g *Gate, head *waiter, now int64) *waiter {
	l := f.lane
	free := min(l.kept-l.held, g.places-g.held)
	for w := f.first; w != nil; w = w.next {
		passes := head != nil && head.n > 1 && w != head
		if w.n > free || passes && l.held+w.n > l.narrow {
			continue
		}
		if l.room(w.n) && (w.peer == nil || w.peer.room(g, w) && w.peer.lets(g, w, now)) && g.beside(head, w) {
			return w
		}
	}
	return nil
}

func (f *flow) push(w *waiter, now int64) {
	if f.length == 0 { // who wanted nothing for a while has saved nothing up, and owes nothing
		f.work, f.until, f.had = f.lane.share, now, now
		f.at = len(f.lane.queued)
		f.lane.queued = append(f.lane.queued, f)
	}
	w.prev = f.last
	for w.prev != nil && w.prev.arrived > w.arrived { // who has come back from another door keeps his turn
		w.prev, w.next = w.prev.prev, w.prev
	}
	if w.prev != nil {
		w.prev.next = w
	} else {
		f.first = w
	}
	if w.next != nil {
		w.next.prev = w
	} else {
		f.last = w
	}
	f.length++
}

func (f *flow) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		f.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		f.last = w.prev
	}
	w.next, w.prev = nil, nil
	if f.length--; f.length == 0 {
		l := f.lane
		last := len(l.queued) - 1
		l.queued[f.at] = l.queued[last]
		l.queued[f.at].at = f.at
		l.queued[last] = nil
		l.queued = l.queued[:last]
	}
}

// SetLanes changes the lanes. Nobody loses a place, nor one in a queue: lanes that keep their name
// keep who is in them, and one that is gone lives on without a share while anybody is.
func (g *Gate) SetLanes(lanes []Lane) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.setLanes(lanes)
	g.clamp()
	g.dispatch(g.now())
}

func (g *Gate) setLanes(lanes []Lane) {
	if len(lanes) == 0 {
		lanes = []Lane{{Name: "default", Share: 1}}
	}
	before := g.lanes
	g.lanes = make([]*lane, 0, len(lanes))
	for _, c := range lanes {
		i := slices.IndexFunc(before, func(l *lane) bool { return l.Name == c.Name })
		l := &lane{gate: g}
		if i >= 0 {
			l = before[i]
		}
		l.Lane = c
		g.lanes = append(g.lanes, l)
	}
	last := len(g.lanes) - 1
	for _, l := range before {
		if !slices.Contains(g.lanes, l) && (l.held > 0 || l.waiting > 0) {
			l.Share, l.Most, l.First = 0, 0, false
			g.lanes = slices.Insert(g.lanes, last, l)
			last++
		}
	}
	g.keep()
	g.first.set(g.lanes)
}

// keep sets what the lanes' shares come to. Where together they would keep all places, the one that
// keeps most leaves one to those that keep none, who would have none for ever.
func (g *Gate) keep() {
	all, most := 0, g.lanes[0]
	for _, l := range g.lanes {
		l.keep(g.places)
		if all += l.kept; l.kept >= most.kept {
			most = l
		}
	}
	if all >= g.places && most.kept > 0 && slices.ContainsFunc(g.lanes, func(l *lane) bool { return l.kept == 0 }) {
		most.kept--
		most.narrow = min(most.narrow, most.kept)
	}
}

// clamp has nobody wait for more places than he can have.
func (g *Gate) clamp() {
	for _, l := range g.lanes {
		for _, f := range l.queued {
			for w := f.first; w != nil; w = w.next {
				peer := ""
				if w.peer != nil {
					peer = w.peer.name
				}
				w.n = g.most(l, peer, w.n)
			}
		}
	}
}

// lane is the lane of that name, or else the last one.
func (g *Gate) lane(name string) *lane {
	for _, l := range g.lanes {
		if l.Name == name {
			return l
		}
	}
	return g.lanes[len(g.lanes)-1]
}

// Unlent is how many places are the own of the lane of that name, where it lends nothing of its
// share; 0 where it lends, and for the last lane.
func (g *Gate) Unlent(name string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.lane(name); l.Keep >= 1 && l != g.lanes[len(g.lanes)-1] {
		return l.kept
	}
	return 0
}

// LaneState is a lane at one gate.
type LaneState struct {
	// Name is the lane's.
	Name string
	// Held is how many places it holds, Waiting how many calls wait.
	Held, Waiting int
	// Waited is how long those have waited, all together, who wait no more.
	Waited time.Duration
	// Refused is how many found no place, or no room to wait.
	Refused int64
}

// MaxWaiting is how many can wait in a lane at a gate.
const MaxWaiting = maxLane

// Lanes is how the lanes are, in their order.
func (g *Gate) Lanes() []LaneState {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]LaneState, len(g.lanes))
	for i, l := range g.lanes {
		out[i] = LaneState{Name: l.Name, Held: l.held, Waiting: l.waiting, Waited: l.waited, Refused: l.refused}
	}
	return out
}
