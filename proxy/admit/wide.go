package admit

import "slices"

// Who wants several places is wide: he waits until all of them are free at once. What he waits for
// nobody takes whose turn is later, so that he has his turn, with two exceptions, which are such
// that he still has it:
//
//   - What is kept for a lane is for its next caller. One that wants more than what is left of it
//     leaves it to the narrower ones behind him, as long as he finds room beside them once other
//     lanes have given back what they borrowed (beside).
//   - Where he waits for places of his address, those of that address in other lanes go on within
//     the shares of these lanes, as long as he finds room beside them once those of his own lane
//     have left (lets). One Grafana asks in all of its lanes, and its dashboards are not to stop
//     its on-call people. Of several such ones he is waited for first who is within the share of
//     his lane.
//
// Whose turn it has been in his lane for long, without room at his address each time that places
// of it came back (they were another lane's, which lacks them most then), is waited for like one
// within the share of his lane, and though his address has all that it may have (overdue).
//
// In his own lane those of his address pass whose turn is earlier, of users who have had less; and
// while somebody of another address is first there, for whom places of the gate are kept, one that
// wants fewer may pass him who is not yet waited for.

// peer is an address that holds a place or waits for one.
type peer struct {
	name string
	held int // places, but those that are kept for a lane
	by   []heldIn
	refs int     // places held, and waiters
	wide *waiter // whose several places are waited for: no other waiter of the peer passes
}

// heldIn is what a peer holds of a lane's places.
type heldIn struct {
	lane    *lane
	counted int // as its share of all places
	own     int // of what is kept for the lane
}

// in finds what the peer holds of a lane's places; -1 where it holds none.
func (p *peer) in(l *lane) int {
	return slices.IndexFunc(p.by, func(b heldIn) bool { return b.lane == l })
}

// take adds n places of a lane, of what is kept for it or not.
func (p *peer) take(l *lane, n int, own bool) {
	i := p.in(l)
	if i < 0 {
		i, p.by = len(p.by), append(p.by, heldIn{lane: l})
	}
	if own {
		p.by[i].own += n
		return
	}
	p.by[i].counted += n
	p.held += n
}

// leave takes n places of a lane away: first those that count, whichever of its calls has ended, so
// that the others have what is kept for the lane.
func (p *peer) leave(l *lane, n int) {
	i := p.in(l)
	counted := min(n, p.by[i].counted)
	p.held -= counted
	p.by[i].counted -= counted
	p.by[i].own -= n - counted
	if p.by[i].counted+p.by[i].own == 0 {
		last := len(p.by) - 1
		p.by[i], p.by[last] = p.by[last], heldIn{}
		p.by = p.by[:last]
	}
}

// room tells whether the peer may hold as many places more as the waiter wants.
func (p *peer) room(g *Gate, w *waiter) bool { return p.held+w.n <= g.ofPeer || g.own(w.lane, w.n) }

// keeps tells whether places are kept for somebody of the peer who wants several. Who waits for
// room in his lane too keeps none: what others have of it, or what is left for one of another
// address whose turn is first there.
func (p *peer) keeps() bool {
	if p.wide == nil {
		return false
	}
	l, n := p.wide.lane, p.wide.n
	if l.awaits != nil && l.awaits != p.wide {
		n += l.awaits.n
	}
	return l.room(n)
}

// mayKeep tells whether places are kept for the waiter, or are to be when it is his turn in his
// lane: for one of the peer at a time, of several lanes' for one that is within his lane's share,
// or overdue, before any other, and else for whoever has waited longest. A peer that has all it may
// have keeps none, but for one that is overdue, and in a lane in which one that passed would leave
// it no room.
func (p *peer) mayKeep(g *Gate, w *waiter, now int64) bool {
	late := w.overdue(g, now)
	switch x, prior := p.wide, late || w.within(); {
	case x == w:
		return true
	case !p.keeps():
	case x.lane == w.lane:
		return false
	case x.prior(g, now) != prior:
		if !prior {
			return false
		}
	case x.count < w.count:
		return false
	}
	return late || p.held < g.ofPeer || w.lane.Most > 0
}

// lets tells whether the waiter, who has room at his peer, passes nobody of it for whom places are
// kept, or may. Those of the same lane do whose turn comes first: others of the address who have
// had less. What is kept for a lane does not count for the peer. Of the share of another lane
// there is as much as leaves room for the wide one: places beyond a lane's share come back, and
// nobody gets one of them before he has had his turn.
func (p *peer) lets(g *Gate, w *waiter, now int64) bool {
	x := p.wide
	switch {
	case !p.keeps() || x == w:
		return true
	case x.lane == w.lane:
		return x.flow != w.flow && !w.turn(now, g.mean).after(x.turn(now, g.mean))
	case g.own(w.lane, w.n), w.count < x.count && !x.prior(g, now):
		return true
	case !w.within():
		return false
	}
	others := 0
	for _, b := range p.by {
		if b.lane != x.lane {
			others += min(b.counted, max(0, int(b.lane.nominal)-b.own))
		}
	}
	return others+w.n+x.n <= g.ofPeer
}

// within tells whether the lane holds no more than its share with what the waiter wants. Such a one
// does not wait for those of other lanes that have waited longer: beside a wall of calls of its
// address a lane that asks now and then would never have its share.
func (w *waiter) within() bool { return float64(w.lane.held+w.n) <= w.lane.nominal }

// overdue tells whether it has been the waiter's turn in his lane for long. Who wants more than his
// lane's share is never.
func (w *waiter) overdue(g *Gate, now int64) bool {
	return w.turned > 0 && float64(now-w.turned) > overdue*g.mean && (w.n == 1 || float64(w.n) <= w.lane.nominal)
}

// prior tells whether the waiter is waited for before others of his address.
func (w *waiter) prior(g *Gate, now int64) bool { return w.within() || w.overdue(g, now) }

// beside tells whether the head of a lane, nil for none, who wants more than is left of what is
// kept for it, has room beside w once other lanes have given back what they borrowed.
func (g *Gate) beside(head, w *waiter) bool {
	if head == nil || head == w {
		return true
	}
	l := head.lane
	if p := head.peer; p != nil && p == w.peer && !g.own(l, w.n) && p.held+w.n+head.n > g.ofPeer {
		return false
	}
	return l.held+w.n+head.n <= g.open(l) && l.room(w.n+head.n)
}

// open is how many places a lane can have at most: what is kept for others is not for it.
func (g *Gate) open(l *lane) int {
	free := g.places
	for _, m := range g.lanes {
		if m != l {
			free -= m.kept
		}
	}
	return free
}

// peer is the peer of that name, who is remembered while he has refs; nil for nobody.
func (g *Gate) peer(name string) *peer {
	if name == "" {
		return nil
	}
	p := g.peers[name]
	if p == nil {
		if p = g.spare; p != nil {
			g.spare = nil
		} else {
			p = &peer{}
		}
		p.name = name
		g.peers[name] = p
	}
	return p
}

func (g *Gate) unref(p *peer, n int) {
	if p.refs -= n; p.refs == 0 {
		delete(g.peers, p.name)
		g.spare = p
	}
}
