package admit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// waits has an asker wait for a place for which order gets its name; it is given back when done is
// closed.
func waits(t *testing.T, g *Gate, a Asker, n int, name string, order chan<- string) (leave func()) {
	t.Helper()
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		p, err := g.Wait(t.Context(), a, n)
		if err != nil {
			order <- name + ": " + err.Error()
			return
		}
		order <- name
		<-done
		g.Leave(&p, n)
	}()
	synctest.Wait()
	return func() { close(done); <-gone }
}

func take(t *testing.T, g *Gate, a Asker, n int) *Place {
	t.Helper()
	p, ok := g.Try(a, n)
	if !ok {
		t.Fatalf("no place for %+v with %d of %d held", a, g.Held(), g.Places())
	}
	return &p
}

var threeLanes = []Lane{{Name: "oncall", Share: 0.5}, {Name: "batch", Share: 0.125, Most: 4}, {Name: "default", Share: 0.375}}

// TestBorrowing: a lane may hold idle places of others, but half of each lane's share is never
// lent, and max is max.
func TestBorrowing(t *testing.T) {
	g := NewGate(24, 24, threeLanes)
	n := 0
	for ; ; n++ {
		if _, ok := g.Try(Asker{Lane: "unheard of"}, 1); !ok {
			break
		}
	}
	if n != 24-6-1 { // on-call keeps six, batch one
		t.Errorf("the default lane has %d places while all others are idle", n)
	}
	for range 6 {
		take(t, g, Asker{Lane: "oncall"}, 1)
	}
	if _, ok := g.Try(Asker{Lane: "oncall"}, 1); ok {
		t.Error("on-call has what is kept for batch")
	}
	take(t, g, Asker{Lane: "batch"}, 1)
	g = NewGate(24, 24, threeLanes)
	take(t, g, Asker{Lane: "batch"}, 4)
	if _, ok := g.Try(Asker{Lane: "batch"}, 1); ok {
		t.Error("a lane holds more than its most")
	}
	g = NewGate(24, 24, threeLanes)
	if p := take(t, g, Asker{Lane: "oncall"}, 100); p.Places() != 24-1-4 {
		t.Errorf("who wants more than there are has %d", p.Places())
	}
}

// TestKeep: a lane lends what its Keep leaves, all of it or nothing too, and a configuration that
// says something else is in force at once.
func TestKeep(t *testing.T) {
	for _, c := range []struct {
		places      int
		share, keep float64
		left        int // for others while the lane is idle
	}{
		{24, 0.25, 0, 21},
		{24, 0.25, 0.5, 21},
		{24, 0.25, 1, 18},
		{24, 0.25, 0.7, 20},
		{24, 0.25, 0.01, 23}, // one place, where the share is one or more
		{24, 0.25, -1, 24},
		{3, 0.67, 1, 1},
		{2, 0.67, 1, 1},
		{10, 0.3, 1, 7}, // 0.3 * 10 is 3 - 1e-16 with some numbers
		{3, 0.3, 1, 3},
	} {
		lane := Lane{Name: "oncall", Share: c.share, Keep: c.keep}
		for _, later := range []bool{false, true} {
			g := NewGate(c.places, c.places, []Lane{lane, {Name: "default", Share: 0.1}})
			if later {
				g = NewGate(c.places, c.places, nil)
				g.SetLanes([]Lane{lane, {Name: "default", Share: 0.1}})
			}
			n := 0
			for ; ; n++ {
				if _, ok := g.Try(Asker{}, 1); !ok {
					break
				}
			}
			if n != c.left {
				t.Errorf("%+v: others have %d places", c, n)
			}
		}
	}
}

// TestNobodyKeepsAll: however much lanes keep, and however few places there are, there is one for
// lanes that keep none.
func TestNobodyKeepsAll(t *testing.T) {
	shares := func(keep float64, of ...float64) (out []Lane) {
		left := 1.0
		for i, s := range of {
			out, left = append(out, Lane{Name: string(rune('a' + i)), Share: s, Keep: keep}), left-s
		}
		return append(out, Lane{Name: "default", Share: max(left, 0)})
	}
	for _, lanes := range [][]Lane{
		shares(1, 0.5, 0.5), shares(1, 1), shares(0, 0.5, 0.5), shares(0, 0.25, 0.25, 0.25, 0.25), shares(1, 0.9, 0.1),
		shares(1, 0.5, 0.25),
	} {
		for _, places := range []int{1, 2, 3, 4, 8, 10, 24, 640} {
			g := NewGate(places, places, lanes)
			late := NewGate(7, 7, nil)
			late.SetLanes(lanes)
			late.SetPlaces(places, places)
			for _, g := range []*Gate{g, late} {
				if _, ok := g.Try(Asker{Lane: "default"}, 1); !ok {
					t.Errorf("%d places, lanes %+v: others have none", places, lanes)
				}
			}
			kept := 0
			for i, l := range g.lanes {
				if kept += l.kept; l.kept != late.lanes[i].kept {
					t.Errorf("%d places, lanes %+v: %s keeps %d, later %d", places, lanes, l.Name, l.kept, late.lanes[i].kept)
				}
			}
			if kept > places {
				t.Errorf("%d places, lanes %+v: %d are kept", places, lanes, kept)
			}
		}
	}
	g := NewGate(8, 8, shares(1, 0.25, 0.75))
	if a, b := g.lanes[0].kept, g.lanes[1].kept; a != 2 || b != 5 {
		t.Errorf("%d and %d are kept, want 2 and 5", a, b)
	}
	g = NewGate(4, 4, shares(1, 0.5, 0.5))
	g.SetLanes(shares(1, 0.5)) // b is no lane any more, and default has places of its own
	take(t, g, Asker{Lane: "a"}, 2)
	take(t, g, Asker{}, 2)
}

// TestAtOnce: where somebody waits AtOnce does not look whose turn it is, which Wait does after it.
func TestAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(2, 2, []Lane{{Name: "oncall", Share: 0.5}, {Name: "default", Share: 0.1}})
		p, ok := g.AtOnce(Asker{}, 7)
		if !ok || p.Places() != 1 { // as many as it may have
			t.Fatalf("%t, %d places", ok, p.Places())
		}
		order := make(chan string, 1)
		leave := waits(t, g, Asker{}, 1, "default", order)
		synctest.Wait()
		before := g.count
		if _, ok := g.AtOnce(Asker{Lane: "oncall"}, 1); ok || g.count != before {
			t.Errorf("a place: %t; %d have waited, before it %d", ok, g.count, before)
		}
		oncall, err := g.Wait(t.Context(), Asker{Lane: "oncall"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		g.Leave(&p, 1)
		g.Leave(&oncall, 1)
		<-order
		leave()
	})
}

// TestNeediestFirst: a place that frees goes to the lane that is furthest below its share, whoever
// came first.
func TestNeediestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(8, 8, []Lane{{Name: "oncall", Share: 0.5}, {Name: "default", Share: 0.5}})
		order := make(chan string, 20)
		all := take(t, g, Asker{}, 6) // two are kept
		take(t, g, Asker{Lane: "oncall"}, 2)
		var leave []func()
		for i := range 4 {
			leave = append(leave, waits(t, g, Asker{}, 1, "default", order))
			leave = append(leave, waits(t, g, Asker{Lane: "oncall"}, 1, "oncall", order))
			_ = i
		}
		g.Leave(all, 1) // 5 and 2 of 4 each
		if got := <-order; got != "oncall" {
			t.Errorf("%s is served", got)
		}
		g.Leave(all, 1)
		if got := <-order; got != "oncall" { // 4 and 3
			t.Errorf("%s is served", got)
		}
		g.Leave(all, 1) // 3 and 4
		if got := <-order; got != "default" {
			t.Errorf("%s is served", got)
		}
		g.Leave(all, 3)
		for range 3 {
			<-order
		}
		for _, f := range leave {
			f()
		}
		for range len(order) {
			<-order
		}
	})
}

// TestLightFlowPassesHeavyOne: inside a lane, whoever has had less work is served first, however
// many of the other wait, and those of one flow in their order.
func TestLightFlowPassesHeavyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, 1, nil)
		order := make(chan string, 1000)
		elephant, mouse := Asker{Flow: 12345}, Asker{Flow: 1 << 60}
		var heavy []func()
		first := take(t, g, elephant, 1)
		for i := range 200 {
			heavy = append(heavy, waits(t, g, elephant, 1, fmt.Sprint(i), order))
		}
		time.Sleep(10 * time.Second)
		g.Leave(first, 1)
		if got := <-order; got != "0" {
			t.Errorf("%s of the elephant is served first", got)
		}
		for i := range 5 {
			light := waits(t, g, mouse, 1, "mouse", order)
			time.Sleep(10 * time.Second)
			heavy[i]()
			if got := <-order; got != "mouse" {
				t.Errorf("%s is served before the mouse", got)
			}
			time.Sleep(100 * time.Millisecond)
			light()
			if got := <-order; got != fmt.Sprint(i+1) {
				t.Errorf("%s of the elephant is served after %d", got, i)
			}
		}
		for _, f := range heavy[5:] {
			f()
		}
	})
}

// TestWideIsNotPassed: who wants several places waits until they are free, and nobody whose turn is
// later keeps taking them.
func TestWideIsNotPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(4, 4, nil)
		order := make(chan string, 10)
		narrow := take(t, g, Asker{Flow: 1}, 4)
		wide := waits(t, g, Asker{Flow: 2}, 3, "wide", order)
		later := waits(t, g, Asker{Flow: 3}, 1, "later", order)
		g.Leave(narrow, 2)
		synctest.Wait()
		if len(order) > 0 {
			t.Errorf("%s takes places that another one waits for", <-order)
		}
		if _, ok := g.Try(Asker{Flow: 3}, 1); ok {
			t.Error("a try passes")
		}
		g.Leave(narrow, 1)
		if got := <-order; got != "wide" {
			t.Error(got)
		}
		g.Leave(narrow, 1)
		if got := <-order; got != "later" {
			t.Error(got)
		}
		wide()
		later()
		if g.Held() != 0 {
			t.Errorf("%d places are held at the end", g.Held())
		}
	})
}

// TestPeerThatHasEnough: one peer has its part at most, and those of it that wait keep nobody else,
// in their own queue or another one.
func TestPeerThatHasEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(6, 5, nil)
		order := make(chan string, 10)
		hog := take(t, g, Asker{Peer: "hog", Flow: 1}, 5)
		first := waits(t, g, Asker{Peer: "hog", Flow: 1}, 1, "hog", order)
		other := waits(t, g, Asker{Peer: "other", Flow: 1}, 1, "other", order)
		if got := <-order; got != "other" {
			t.Error(got)
		}
		other()
		if p, ok := g.Try(Asker{Peer: "third", Flow: 1}, 1); !ok {
			t.Error("a try is kept by a peer that may not have more")
		} else {
			g.Leave(&p, 1)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := g.Wait(ctx, Asker{Peer: "hog", Flow: 7}, 1)
		var r *Refusal
		if !errors.As(err, &r) || r.Why != PeerFull || r.Most != 5 || r.Others != 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %#v", err)
		}
		// Who wants several is not passed by his own peer.
		wide := waits(t, g, Asker{Peer: "hog", Flow: 2}, 4, "wide", order)
		narrow := waits(t, g, Asker{Peer: "hog", Flow: 3}, 1, "narrow", order)
		g.Leave(hog, 1)
		if got := <-order; got != "hog" {
			t.Error(got)
		}
		first()
		g.Leave(hog, 2)
		synctest.Wait()
		if len(order) > 0 {
			t.Errorf("%s passes", <-order)
		}
		g.Leave(hog, 1)
		<-order
		g.Leave(hog, 1)
		<-order
		wide()
		narrow()
		if g.Held() != 0 || g.Peers() != 0 {
			t.Errorf("%d places are held, %d peers are remembered", g.Held(), g.Peers())
		}
	})
}

// TestOneAddressOfAllLanes: the address that fills the last lane, as Grafana's does, still has the
// places that are kept for another one of its lanes, and those do not count against it.
func TestOneAddressOfAllLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(24, 20, []Lane{{Name: "rules", Share: 0.2}, {Name: "default", Share: 0.8}})
		order := make(chan string, 10)
		grafana := func(lane string) Asker { return Asker{Peer: "grafana", Lane: lane} }
		walls := take(t, g, grafana("default"), 20)
		more := waits(t, g, grafana("default"), 1, "dashboard", order)
		first, second := take(t, g, grafana("rules"), 1), take(t, g, grafana("rules"), 1)
		third := waits(t, g, grafana("rules"), 1, "third rule", order) // 2 are kept: this one is of all
		g.Leave(first, 1)
		if got := <-order; got != "third rule" {
			t.Error(got)
		}
		third()
		g.Leave(walls, 1)
		if got := <-order; got != "dashboard" {
			t.Error(got)
		}
		g.Leave(walls, 19)
		g.Leave(second, 1)
		more()
		if g.Held() != 0 || g.Peers() != 0 {
			t.Errorf("%d places are held at the end, %d peers are remembered", g.Held(), g.Peers())
		}
	})
}

// TestWideOfAFullLane: who waits for several places and for room in his lane too keeps nobody of
// his address from another lane's.
func TestWideOfAFullLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(12, 6, []Lane{{Name: "a", Share: 0.2, Most: 3}, {Name: "default", Share: 0.5}})
		order := make(chan string, 10)
		mine, other := take(t, g, Asker{Peer: "p"}, 6), take(t, g, Asker{Lane: "a", Peer: "q"}, 1)
		wide := waits(t, g, Asker{Lane: "a", Peer: "p", Flow: 1}, 2, "wide", order)
		g.Leave(mine, 1) // the wide one's address has room for one, so that his turn is marked
		g.SetLanes([]Lane{{Name: "a", Share: 0.2, Most: 2}, {Name: "default", Share: 0.5}})
		narrow := waits(t, g, Asker{Peer: "p", Flow: 2}, 1, "narrow", order)
		if got := <-order; got != "narrow" {
			t.Error(got)
		}
		g.Leave(mine, 5)
		g.Leave(other, 1)
		if got := <-order; got != "wide" {
			t.Error(got)
		}
		narrow()
		wide()
		if g.Held() != 0 || g.Peers() != 0 {
			t.Errorf("%d places are held at the end", g.Held())
		}
	})
}

// TestFullQueue: one flow has so many waiters and no more, and is told so; another one still has
// room to wait, where the whole lane is full at the cost of the flow with the most waiters.
func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, 1, nil)
		p := take(t, g, Asker{}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		refused, order := make(chan error, maxLane+10), make(chan string, 1)
		full := func(flow uint64, most int) {
			t.Helper()
			var r *Refusal
			_, err := g.Wait(ctx, Asker{Flow: flow}, 1)
			if !errors.As(err, &r) || r.Why != FlowFull || r.Most != most || errors.Unwrap(err) != nil {
				t.Errorf("got %v", err)
			}
			if _, ok := g.Try(Asker{Flow: flow}, 1); ok {
				t.Error("a place in a full gate")
			}
		}
		for i := range maxLane {
			if i == maxFlow {
				synctest.Wait()
				full(0, maxFlow)
			}
			go func() {
				_, err := g.Wait(ctx, Asker{Flow: uint64(i / maxFlow)}, 1)
				refused <- err
			}()
		}
		synctest.Wait()
		if n, _ := g.Waiting(); n != maxLane || len(refused) > 0 {
			t.Errorf("%d wait", n)
		}
		mouse := waits(t, g, Asker{Flow: 99}, 1, "mouse", order)
		var r *Refusal
		if err := <-refused; !errors.As(err, &r) || r.Why != FlowFull || r.Most != maxFlow {
			t.Errorf("whoever has to go is told %v", err)
		}
		if n, _ := g.Waiting(); n != maxLane {
			t.Errorf("%d wait", n)
		}
		cancel()
		for range maxLane - 1 {
			if err := <-refused; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		}
		g.Leave(p, 1)
		if got := <-order; got != "mouse" {
			t.Error(got)
		}
		mouse()
		if n, _ := g.Waiting(); n != 0 || g.Held() != 0 || len(g.lanes[0].flows) != 0 {
			t.Errorf("%d wait, %d hold a place, %d flows are remembered", n, g.Held(), len(g.lanes[0].flows))
		}
		if l := g.Lanes()[0]; l.Refused != 2 { // whose flow was full, and who made room for the mouse
			t.Errorf("%d were refused", l.Refused)
		}
	})
}

// TestSetLanes: a reload moves nobody: who holds a place keeps it, who waits is served by the new
// shares, and a lane that is gone goes when the last one leaves it.
func TestSetLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(4, 4, []Lane{{Name: "old", Share: 0.5}, {Name: "default", Share: 0.5}})
		order := make(chan string, 10)
		a, b := take(t, g, Asker{Lane: "old"}, 3), take(t, g, Asker{}, 1)
		old := waits(t, g, Asker{Lane: "old"}, 1, "old", order)
		g.SetLanes([]Lane{{Name: "new", Share: 0.5}, {Name: "default", Share: 0.5}})
		if n, _ := g.Waiting(); n != 1 || g.Held() != 4 {
			t.Errorf("%d wait, %d places are held", n, g.Held())
		}
		g.Leave(a, 1)
		synctest.Wait()
		if len(order) > 0 { // one is kept for the new lane
			t.Error("the lane that is gone has a place of another one")
		}
		newcomer := take(t, g, Asker{Lane: "new"}, 1)
		g.Leave(newcomer, 1)
		g.Leave(a, 2)
		if got := <-order; got != "old" {
			t.Error(got)
		}
		old()
		g.Leave(b, 1)
		g.SetLanes([]Lane{{Name: "new", Share: 0.5}, {Name: "default", Share: 0.5}})
		if lanes := g.Lanes(); len(lanes) != 2 || lanes[0].Name != "new" {
			t.Errorf("%+v", lanes)
		}
		// Where more is to be kept than is free, the first place that frees is for whom it is kept.
		all := take(t, g, Asker{Lane: "new"}, 3)
		one := take(t, g, Asker{}, 1)
		g.SetLanes([]Lane{{Name: "x", Share: 0.3}, {Name: "y", Share: 0.3}, {Name: "default", Share: 0.4}})
		wide := waits(t, g, Asker{}, 4, "wide", order)
		y := waits(t, g, Asker{Lane: "y"}, 1, "y", order)
		g.Leave(all, 1)
		if got := <-order; got != "y" {
			t.Error(got)
		}
		y()
		g.SetLanes([]Lane{{Name: "x", Share: 0.9}, {Name: "default", Share: 0.1}}) // three of four at most
		g.Leave(all, 2)
		g.Leave(one, 1)
		if got := <-order; got != "wide" {
			t.Error(got)
		}
		wide()
		g = NewGate(3, 3, nil)
		take(t, g, Asker{}, 2)
		g.SetLanes([]Lane{{Name: "x", Share: 0.4}, {Name: "y", Share: 0.4}, {Name: "default", Share: 0.2}})
		take(t, g, Asker{Lane: "y"}, 1)
	})
}

// TestSetPlaces: a gate that becomes smaller takes nothing away and gives nothing until enough has
// come back; who waits for more than there is then waits for what there is; one that becomes larger
// lets in who waits.
func TestSetPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(4, 4, threeLanes)
		order := make(chan string, 10)
		held := take(t, g, Asker{}, 2)
		more := take(t, g, Asker{Lane: threeLanes[0].Name}, 1)
		wide := waits(t, g, Asker{}, 4, "wide", order)
		g.SetPlaces(2, 2)
		if g.Held() != 3 || g.Places() != 2 || g.OfPeer() != 2 {
			t.Errorf("%d of %d places are held, %d of one peer", g.Held(), g.Places(), g.OfPeer())
		}
		g.Leave(more, 1)
		g.Leave(held, 1)
		synctest.Wait()
		if len(order) > 0 {
			t.Error("somebody has a place of one that is held")
		}
		g.Leave(held, 1)
		if got := <-order; got != "wide" || g.Held() > 2 {
			t.Errorf("%s, %d places are held", got, g.Held())
		}
		one := waits(t, g, Asker{Lane: threeLanes[0].Name}, 1, "one", order)
		two := waits(t, g, Asker{Lane: threeLanes[0].Name}, 1, "two", order)
		g.SetPlaces(8, 8)
		synctest.Wait()
		if len(order) != 2 {
			t.Errorf("%d have a place of eight, want both", len(order))
		}
		wide()
		one()
		two()
		if g.Held() != 0 {
			t.Errorf("%d places are held at the end", g.Held())
		}
	})
}

// TestMaxWait: who has waited for as long as his lane does is told so, long before his deadline;
// who is served before is served, and another lane's waits on.
func TestMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, 1, []Lane{{Name: "oncall", Share: 0.1}, {Name: "default", Share: 0.9, MaxWait: 6 * time.Second}})
		order := make(chan string, 2)
		p := take(t, g, Asker{}, 1)
		oncall := waits(t, g, Asker{Lane: "oncall"}, 1, "oncall", order)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		var r *Refusal
		_, err := g.Wait(ctx, Asker{}, 1)
		if !errors.As(err, &r) || r.MaxWait != 6*time.Second || time.Since(began) != 6*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if l := g.Lanes(); l[1].Refused != 1 || l[0].Waiting != 1 {
			t.Errorf("%+v", l)
		}
		g.Leave(p, 1)
		if got := <-order; got != "oncall" {
			t.Error(got)
		}
		oncall()
	})
}

// BenchmarkGate is a place taken and given back where nobody waits.
func BenchmarkGate(b *testing.B) {
	for _, c := range []struct {
		name  string
		lanes []Lane
		peer  string
	}{{"nobody", nil, ""}, {"one lane", nil, "192.0.2.1"}, {"three lanes", threeLanes, "192.0.2.1"}} {
		b.Run(c.name, func(b *testing.B) {
			g := NewGate(24, 20, c.lanes)
			a := Asker{Flow: 0x9e3779b97f4a7c15, Peer: c.peer, Lane: "default"}
			b.ReportAllocs()
			for b.Loop() {
				p, ok := g.Try(a, 1)
				if !ok {
					b.Fatal("no place")
				}
				g.Leave(&p, 1)
			}
		})
	}
}
