package admit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/randseed"
)

// mixes is how many random mixes TestMixes runs.
const mixes = 10_000

// mix is a gate with callers of all sorts, and what is watched of it.
type mix struct {
	t     *testing.T
	name  string
	rng   *rand.Rand
	g     *Gate
	lanes []Lane
	wide  int           // the most places that one caller wants
	hold  time.Duration // the longest that one keeps them
	since []stretch     // of each lane
	fail  bool
}

// stretch is a time in which somebody always waits who is kept by nothing of his own.
type stretch struct {
	begun, at time.Time     // zero while there is none; the last look
	held      int           // then
	had       time.Duration // places, each for as long
}

// TestMixes: whatever lanes, flows, addresses, widths, times and cancellations come together, the
// rules of look hold whenever somebody comes or goes, everybody is served or leaves, and nothing
// stays held.
func TestMixes(t *testing.T) {
	seed := randseed.Of(t, 0)
	for i := range mixes {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		synctest.Test(t, func(t *testing.T) { newMix(t, rng, i).run() })
		if t.Failed() {
			t.Fatalf("the mix %d of the seed %d", i, seed)
		}
	}
}

func newMix(t *testing.T, rng *rand.Rand, i int) *mix {
	m := &mix{t: t, name: fmt.Sprint("mix ", i), rng: rng, hold: time.Duration(1+rng.IntN(50)) * time.Millisecond, wide: 1}
	left := 1.0
	for n := range rng.IntN(4) {
		l := Lane{Name: fmt.Sprint(n), Share: left * (0.05 + 0.6*rng.Float64())}
		left -= l.Share
		if rng.IntN(4) == 0 {
			l.Most = 1 + rng.IntN(8)
		}
		l.First = rng.IntN(4) == 0
		l.Keep = []float64{0, 0, 1, 0.8, 0.1, -1}[rng.IntN(6)]
		m.lanes = append(m.lanes, l)
	}
	m.lanes = append(m.lanes, Lane{Name: "default", Share: left})
	places := 1 + rng.IntN(24)
	if rng.IntN(3) > 0 {
		m.wide = 1 + rng.IntN(places)
	}
	m.g = NewGate(places, places-rng.IntN(3)*places/6, m.lanes)
	m.since = make([]stretch, len(m.lanes))
	return m
}

func (m *mix) run() {
	var wg sync.WaitGroup
	crowded := m.rng.IntN(2) == 0 // all come at once
	for i := range 10 + m.rng.IntN(60) {
		a := Asker{Lane: fmt.Sprint(m.rng.IntN(5)), Flow: uint64(m.rng.IntN(5))}
		if m.rng.IntN(3) > 0 {
			a.Peer = fmt.Sprint(m.rng.IntN(4))
		}
		n, hold, at := 1, time.Duration(1+m.rng.Int64N(int64(m.hold))), time.Duration(0)
		if m.wide > 1 && m.rng.IntN(1+i%4) == 0 {
			n = 1 + m.rng.IntN(m.wide)
		}
		if !crowded {
			at = time.Duration(m.rng.Int64N(int64(20 * m.hold)))
		}
		patience := time.Hour
		if m.rng.IntN(5) == 0 {
			patience = time.Duration(1 + m.rng.Int64N(int64(3*m.hold)))
		}
		try, bit := m.rng.IntN(4) == 0, m.rng.IntN(2) == 0
		wg.Go(func() { m.one(a, n, at, hold, patience, try, bit) })
	}
	wg.Wait()
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	if n := len(m.g.first.took); n > 0 {
		m.errorf("%d calls of lanes that are first are remembered", n)
	}
	if m.g.held != 0 || m.g.waiting != 0 || len(m.g.peers) != 0 {
		m.errorf("%d places are held at the end, %d wait, %d peers are remembered", m.g.held, m.g.waiting, len(m.g.peers))
	}
	for _, l := range m.g.lanes {
		if l.held != 0 || l.waiting != 0 || len(l.flows) != 0 || len(l.queued) != 0 {
			m.errorf("the lane %s has %d places at the end, %d waiters, %d flows", l.Name, l.held, l.waiting, len(l.flows))
		}
	}
}

// one is one caller.
func (m *mix) one(a Asker, n int, at, hold, patience time.Duration, try, bit bool) {
	time.Sleep(at)
	p, ok := Place{}, false
	if try {
		p, ok = m.g.Try(a, n)
	}
	if !ok {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		var err error
		if p, err = m.g.Wait(ctx, a, n); err != nil {
			if patience == time.Hour {
				m.errorf("somebody waits for ever: %s", err)
			}
			m.look()
			return
		}
	}
	m.look()
	time.Sleep(hold)
	if bit && p.n > 1 {
		m.g.Leave(&p, 1)
		m.look()
		time.Sleep(hold / 2)
	}
	m.g.Leave(&p, p.n)
	m.look()
}

func (m *mix) errorf(format string, args ...any) {
	if !m.fail {
		m.t.Errorf(m.name+": "+format, args...)
	}
	m.fail = true
}

// look holds the gate to its rules, which are written down here once more.
func (m *mix) look() {
	g := m.g
	g.mu.Lock()
	defer g.mu.Unlock()
	held, reserve := 0, 0
	peers := map[*peer]bool{}
	for _, l := range g.lanes {
		held += l.held
		reserve += max(0, kept(l.Lane, g.places)-l.held)
		if l.Most > 0 && l.held > l.Most {
			m.errorf("the lane %s has %d places, and may have %d", l.Name, l.held, l.Most)
		}
		for _, f := range l.queued {
			for w := f.first; w != nil; w = w.next {
				peers[w.peer] = true
			}
		}
	}
	if held != g.held || held > g.places {
		m.errorf("%d places are held of %d, and %d are counted", held, g.places, g.held)
	}
	if free := g.places - held; free < reserve {
		m.errorf("%d places are free, and %d are kept", free, reserve)
	}
	for _, p := range g.peers {
		if p.held > g.ofPeer {
			m.errorf("one peer has %d places of %d", p.held, g.ofPeer)
		}
	}
	m.idle(reserve)
	m.shares()
}

// kept is how many places of a lane are never lent.
func kept(l Lane, places int) int {
	own := l.Share * float64(places)
	n := int(own / 2)
	if l.Keep != 0 {
		n = int(own*max(l.Keep, 0) + 1e-9)
	}
	if own >= 1 && l.Keep >= 0 {
		n = max(n, 1)
	}
	if l.Most > 0 {
		n = min(n, l.Most)
	}
	return n
}

// idle: no place is free for somebody who waits, unless one who wants several waits for it: for as
// many as are free at once, or for as many of his address; or unless a call of a lane that is first
// has begun a moment ago, and it is no place of what is kept for his own.
func (m *mix) idle(reserve int) {
	g := m.g
	var all []*waiter
	for _, l := range g.lanes {
		for _, f := range l.queued {
			for w := f.first; w != nil; w = w.next {
				all = append(all, w)
			}
		}
	}
	lane := func(w *waiter) bool { return w.lane.Most == 0 || w.lane.held+w.n <= w.lane.Most }
	peer := func(w *waiter) bool {
		own := w.lane != g.lanes[len(g.lanes)-1] && w.lane.held+w.n <= kept(w.lane.Lane, g.places)
		return w.peer == nil || own || w.peer.held+w.n <= g.ofPeer
	}
	free := func(w *waiter) bool {
		own := max(0, kept(w.lane.Lane, g.places)-w.lane.held)
		return g.places-g.held-(reserve-own) >= w.n
	}
	now := g.now()
	first := slices.ContainsFunc(g.first.took, func(took int64) bool { return now <= took+int64(250*time.Millisecond) })
	yields := func(w *waiter) bool {
		return first && !w.lane.First && w.lane.held+w.n > kept(w.lane.Lane, g.places)
	}
	for _, w := range all {
		if !lane(w) || !peer(w) || !free(w) || yields(w) {
			continue
		}
		waited := false
		for _, x := range all {
			if x.n > 1 && lane(x) && x != w {
				waited = waited || peer(x) && (!free(x) || yields(x)) || !peer(x) && x.peer == w.peer
			}
			// None of its lane takes the places of the lane from one who waits for several.
			waited = waited || x.n > 1 && x.lane == w.lane && x != w && x.lane.Most > 0 && x.lane.held+w.n+x.n > x.lane.Most
		}
		if !waited {
			m.errorf("places are free for a waiter of %d in the lane %s (%d of %d held)", w.n, w.lane.Name, g.held, g.places)
		}
	}
}

// shares: a lane in which somebody waits who is kept by nothing of his own holds its share on
// average, but for a place, once those had time to leave who held its places before.
func (m *mix) shares() {
	if m.wide > 1 {
		return // places that wait for a wide one are idle meanwhile
	}
	g, now := m.g, time.Now()
	first := slices.ContainsFunc(m.lanes, func(l Lane) bool { return l.First })
	for i, l := range g.lanes {
		if first && !l.First {
			continue // which has its share of the time that is left: TestFirstLeavesTime
		}
		waits := false
		for _, f := range l.queued {
			for w := f.first; w != nil; w = w.next {
				waits = waits || (l.Most == 0 || l.held < l.Most) && (w.peer == nil || w.peer.held < g.ofPeer)
			}
		}
		s := &m.since[i]
		if s.had += now.Sub(s.at) * time.Duration(s.held); !waits || s.begun.IsZero() {
			s.begun, s.had = time.Time{}, 0
			if waits {
				s.begun = now
			}
		}
		s.at, s.held = now, l.held
		own := l.Share * float64(g.places)
		if took := now.Sub(s.begun) - m.hold; waits && took > 2*m.hold && s.had.Seconds() < (own-1)*took.Seconds() {
			m.errorf("the lane %s has held %.2f places for %s, and %.2f of %d are its own", l.Name, s.had.Seconds()/took.Seconds(), took, own, g.places)
		}
	}
}

// crowd is callers who ask again as soon as they have had their place.
type crowd struct {
	a       Asker
	seats   int // places that each call takes; 0 is one
	callers int
	each    time.Duration // that a place is held
	after   time.Duration // that they come
	own     float64       // places that are to be theirs once all have come
}

// shared has crowds at the gate for an hour after the last has come, and compares what they held in
// that time with what was theirs.
func shared(t *testing.T, g *Gate, crowds []crowd) {
	t.Helper()
	last := time.Duration(0)
	for _, c := range crowds {
		last = max(last, c.after)
	}
	from := time.Now().Add(last + time.Minute)
	ctx, cancel := context.WithDeadline(t.Context(), from.Add(time.Hour))
	defer cancel()
	var mu sync.Mutex
	worked := make([]time.Duration, len(crowds))
	var wg sync.WaitGroup
	for i, c := range crowds {
		for range c.callers {
			wg.Go(func() {
				time.Sleep(c.after)
				for ctx.Err() == nil {
					p, err := g.Wait(ctx, c.a, max(c.seats, 1))
					if err != nil {
						return
					}
					n := p.Places()
					time.Sleep(c.each)
					g.Leave(&p, n)
					mu.Lock()
					if time.Now().After(from) {
						worked[i] += c.each * time.Duration(n)
					}
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	for i, c := range crowds {
		if got := worked[i].Hours(); got < c.own*0.95 || got > c.own*1.05 {
			t.Errorf("%+v has held %.2f places, and %.2f are its own", c.a, got, c.own)
		}
	}
}

// TestWorkIsShared: flows that always have somebody waiting hold as much as one another, and lanes
// their share, however long their calls are, whatever anybody has had before, and also where a
// share is no whole number of places.
func TestWorkIsShared(t *testing.T) {
	half := []Lane{{Name: "a", Share: 0.5}, {Name: "default", Share: 0.5}}
	for _, c := range []struct {
		name   string
		places int
		ofPeer int
		lanes  []Lane
		crowds []crowd
	}{
		{"long and short calls", 20, 20, []Lane{{Name: "a", Share: 0.25}, {Name: "default", Share: 0.75}}, []crowd{
			{a: Asker{Flow: 1}, callers: 200, each: time.Second, own: 7.5},
			{a: Asker{Flow: 2}, callers: 50, each: 10 * time.Second, own: 7.5},
			{a: Asker{Lane: "a"}, callers: 50, each: 3 * time.Second, own: 5},
		}},
		{"a place and a half", 3, 3, half, []crowd{
			{a: Asker{Lane: "a"}, callers: 20, each: time.Second, own: 1.5},
			{a: Asker{}, callers: 20, each: time.Second, own: 1.5},
		}},
		{"wide and narrow calls", 24, 24, nil, []crowd{
			{a: Asker{Flow: 1}, callers: 100, each: time.Second, own: 12},
			{a: Asker{Flow: 2}, callers: 50, each: time.Second, seats: 4, own: 12},
		}},
		{"wide calls of a lane, narrow ones of another", 24, 24, half, []crowd{
			{a: Asker{Lane: "a"}, callers: 100, each: time.Second, own: 12},
			{a: Asker{}, callers: 50, each: time.Second, seats: 6, own: 12},
		}},
		{"next to nothing", 4, 4, []Lane{{Name: "a", Share: 0.05}, {Name: "default", Share: 0.95}}, []crowd{
			{a: Asker{Lane: "a"}, callers: 20, each: time.Second, own: 0.2},
			{a: Asker{}, callers: 20, each: time.Second, own: 3.8},
		}},
		{"a flow that was there before", 4, 4, nil, []crowd{
			{a: Asker{Flow: 1}, callers: 20, each: time.Second, own: 2},
			{a: Asker{Flow: 2}, callers: 20, each: time.Second, own: 2, after: 3 * time.Hour},
		}},
		{"a lane that was there before", 4, 4, half, []crowd{
			{a: Asker{Lane: "a"}, callers: 20, each: time.Second, own: 2},
			{a: Asker{}, callers: 20, each: time.Second, own: 2, after: 3 * time.Hour},
		}},
		{"a lane whose only address had enough", 12, 4, half, []crowd{
			{a: Asker{Lane: "a", Peer: "x", Flow: 1}, callers: 20, each: time.Second, own: 3},
			{a: Asker{Lane: "default", Peer: "y"}, callers: 20, each: time.Second, own: 3},
			{a: Asker{Lane: "default", Peer: "z"}, callers: 20, each: time.Second, own: 3},
			{a: Asker{Lane: "a", Peer: "v", Flow: 2}, callers: 20, each: time.Second, own: 3, after: 3 * time.Hour},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { shared(t, NewGate(c.places, c.ofPeer, c.lanes), c.crowds) })
		})
	}
}

// TestBurst: places that are free at the same moment do not all go to whoever came first.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(12, 12, nil)
		all := take(t, g, Asker{}, 12)
		order := make(chan string, 30)
		var leave []func()
		for i := range 24 {
			name := "first"
			if i >= 12 {
				name = "second"
			}
			leave = append(leave, waits(t, g, Asker{Flow: uint64(i / 12)}, 1, name, order))
		}
		g.Leave(all, 12)
		n := map[string]int{}
		for range 12 {
			n[<-order]++
		}
		if n["first"] != 6 || n["second"] != 6 {
			t.Errorf("of twelve places %v", n)
		}
		for _, f := range leave[:6] {
			f()
		}
		for _, f := range leave[12:18] {
			f()
		}
		for range 12 {
			<-order
		}
		for _, f := range append(leave[6:12], leave[18:]...) {
			f()
		}
	})
}

// TestNewcomerWaitsForOneCall: with ten thousand heavy calls queued by a few flows, light calls of
// others wait until one heavy call ends, and no longer, again and again.
func TestNewcomerWaitsForOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(24, 20, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 10_000 {
			wg.Go(func() {
				p, err := g.Wait(ctx, Asker{Flow: uint64(i % 4), Peer: fmt.Sprint("heavy ", i%2)}, 1)
				if err == nil {
					time.Sleep(time.Duration(1000+i%500) * time.Millisecond)
					g.Leave(&p, 1)
				}
			})
		}
		synctest.Wait()
		var longest time.Duration
		var light sync.WaitGroup
		for i := range 10 {
			light.Go(func() {
				for range 20 {
					began := time.Now()
					p, err := g.Wait(ctx, Asker{Flow: uint64(100 + i), Peer: fmt.Sprint("light ", i)}, 1)
					if err != nil {
						t.Error(err)
						return
					}
					g.mu.Lock()
					longest = max(longest, time.Since(began))
					g.mu.Unlock()
					time.Sleep(50 * time.Millisecond)
					g.Leave(&p, 1)
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		light.Wait()
		if longest > 1500*time.Millisecond { // one service of the longest heavy call
			t.Errorf("a light call waited %s", longest)
		}
		cancel()
		wg.Wait()
	})
}

// TestInventedIdentities: one caller who has queued ten thousand heavy calls under a thousand names
// takes nothing from ten others: the 99th percentile of their light calls, waits included, is at
// most 1.2 times what it is without him, in one lane and beside a lane of theirs.
func TestInventedIdentities(t *testing.T) {
	for name, lanes := range map[string][]Lane{
		"one lane":         nil,
		"their own":        {{Name: "oncall", Share: 0.2}, {Name: "default", Share: 0.8}},
		"a small lane":     {{Name: "oncall", Share: 0.05}, {Name: "default", Share: 0.95}},
		"whoever is heavy": {{Name: "heavy", Share: 0.5}, {Name: "default", Share: 0.5}},
	} {
		for _, width := range []int{1, 10} {
			t.Run(fmt.Sprintf("%s, %d wide", name, width), func(t *testing.T) {
				alone, beside := p99BesideHeavy(t, lanes, 0, width), p99BesideHeavy(t, lanes, 10_000, width)
				if t.Logf("%s alone, %s beside ten thousand", alone, beside); beside > alone*12/10 {
					t.Errorf("light calls take %s, and %s alone", beside, alone)
				}
			})
		}
	}
}

// p99BesideHeavy is what light calls of ten callers take, beside so many heavy ones of one caller,
// each so wide, that wait when they begin.
func p99BesideHeavy(t *testing.T, lanes []Lane, heavy, width int) (p99 time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(24, 20, lanes)
		ctx, cancel := context.WithCancel(t.Context())
		var wg, light sync.WaitGroup
		for i := range heavy {
			wg.Go(func() {
				p, err := g.Wait(ctx, Asker{Lane: "heavy", Flow: uint64(i % 1000), Peer: "heavy"}, width)
				if err == nil {
					time.Sleep(time.Duration(1000+i%500) * time.Millisecond)
					g.Leave(&p, p.Places())
				}
			})
		}
		synctest.Wait()
		var mu sync.Mutex
		var took []time.Duration
		for i := range 10 {
			light.Go(func() {
				rng := rand.New(rand.NewPCG(1, uint64(i)))
				time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
				for range 200 {
					began := time.Now()
					p, err := g.Wait(ctx, Asker{Lane: "oncall", Flow: uint64(10_000 + i), Peer: fmt.Sprint("light ", i)}, 1)
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(50 * time.Millisecond)
					g.Leave(&p, 1)
					mu.Lock()
					took = append(took, time.Since(began))
					mu.Unlock()
					time.Sleep(time.Duration(400+rng.IntN(300)) * time.Millisecond)
				}
			})
		}
		light.Wait()
		if n, _ := g.Waiting(); heavy > 0 && n < 1000 {
			t.Errorf("at the end %d wait: there was nobody beside them", n)
		}
		cancel()
		wg.Wait()
		slices.Sort(took)
		p99 = took[len(took)*99/100]
	})
	return p99
}
