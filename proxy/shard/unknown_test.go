package shard

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// gaps are servers of which the first has everything and the others lack an hour that begins eight
// hours before the bubble's seventeenth minute, so that nobody has looked at it yet.
type gaps struct {
	*bubble
	s   *Shard
	gap time.Time
	// is says what the first server does from now on.
	is   atomic.Int32
	wait atomic.Int32    // how many seconds it asks to be left alone for
	tail [2]atomic.Int64 // by how many nanoseconds each is late with its last minute
	stop func()
}

// What the first server of gaps does.
const (
	answers int32 = iota
	refusesAll
	dead
	asksToWait
)

func newGaps(t *testing.T, replicas int, heartbeat string) *gaps {
	t.Helper()
	g := &gaps{gap: time.Now().Add(17 * time.Minute).Add(-8 * time.Hour).Truncate(trust.Bucket)}
	g.wait.Store(30)
	full, lacks := gapped(g.gap)
	cfgs := make([]fakeshard.Config, replicas)
	for i := range cfgs {
		if cfgs[i] = beating(lacks); i == 0 {
			cfgs[i] = beating(full)
		}
		answer := cfgs[i].Answer
		cfgs[i].Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
			if i < len(g.tail) && strings.HasSuffix(r.Path, "/query") {
				time.Sleep(time.Duration(g.tail[i].Load()))
			}
			a, ok := answer(r)
			if no := g.is.Load(); i == 0 && no != answers && strings.HasPrefix(r.Path, "/api/v1/query") {
				header := http.Header{"Content-Type": {"text/plain"}}
				a, ok = fakeshard.Answer{Status: http.StatusServiceUnavailable, Header: header, Body: []byte("no")}, true
				if no == asksToWait {
					header.Set("Retry-After", strconv.Itoa(int(g.wait.Load())))
				}
			}
			return a, ok
		}
	}
	b := newBubble(t, cfgs...)
	g.bubble = b
	c := group(b.urls...)
	c.Heartbeat = heartbeat
	top := build(t, Options{Dial: b.dial}, true, c)
	g.s = top.Groups[0].Shards[0]
	g.stop = func() { top.Close(); b.close() }
	time.Sleep(17*time.Minute + 2*time.Second)
	return g
}

// open opens the breakers of the replicas.
func (g *gaps) open(replicas ...int) {
	for _, i := range replicas {
		for range breakerFailures {
			g.s.Replicas[i].up.breaker.failure(time.Now())
		}
	}
}

// late makes each late with its last minute by so much.
func (g *gaps) late(by time.Duration) {
	for i := range g.tail {
		g.tail[i].Store(int64(by))
	}
}

// asked is how often the first server was asked whether it answers.
func (g *gaps) asked() (n int) { return g.askedOf(0) }

// askedOf is how often the server was asked about its last minute, or whether it answers.
func (g *gaps) askedOf(server int) (n int) {
	question := "count(up)"
	if g.s.Group.Heartbeat != "" {
		question = "sum by"
	}
	for _, r := range g.fakes[server].RequestsTo("/api/v1/query") {
		if strings.HasPrefix(r.Form.Get("query"), question) {
			n++
		}
	}
	return n
}

// over is the time around the gap.
func (g *gaps) over() (from, until int64) {
	return g.gap.Add(-time.Hour).UnixMilli(), g.gap.Add(2 * time.Hour).UnixMilli()
}

// ordered is Ordered over a time, with the order's numbers.
func (g *gaps) ordered(ctx context.Context, from, until int64) (order []int, whole int, err error) {
	replicas, whole, err := g.s.Ordered(ctx, from, until, time.Now())
	for _, r := range replicas {
		order = append(order, r.Index)
	}
	return order, whole, err
}

// TestOpenBreakersHideNoGap: one caller has opened the breaker of the replica that has everything.
// Whoever asks about a time of which nothing is known is not answered from another one for that.
func TestOpenBreakersHideNoGap(t *testing.T) {
	for _, tc := range []struct {
		name      string
		replicas  int
		heartbeat string
		is        func(t *testing.T, g *gaps)
	}{
		{"a pair", 2, "up", wholeIsTheFirst},
		{"three", 3, "up", wholeIsTheFirst},
		{"who lacks what", 2, "up", func(t *testing.T, g *gaps) {
			from, until := g.over()
			lacks, known := g.s.Lacks(t.Context(), from, until, time.Now())
			if !known || len(lacks) != 2 || len(lacks[0].Spans) != 0 || len(lacks[1].Spans) == 0 {
				t.Errorf("%v, %t", lacks, known)
			}
		}},
		{"whether the other one has all", 2, "up", func(t *testing.T, g *gaps) {
			from, until := g.over()
			if covers, known := g.s.Covers(t.Context(), g.s.Replicas[1:], g.s.Replicas[:1], from, until, time.Now()); covers || !known {
				t.Errorf("covers %t, known %t", covers, known)
			}
		}},
		{"more than 31 days", 2, "up", func(t *testing.T, g *gaps) {
			allAreRead(t, g, g.gap.Add(-32*24*time.Hour).UnixMilli())
		}},
		{"no heartbeat", 2, "", func(t *testing.T, g *gaps) { allAreRead(t, g, g.gap.UnixMilli()) }},
		{"no heartbeat, who lacks what", 2, "", func(t *testing.T, g *gaps) {
			from, until := g.over()
			if lacks, known := g.s.Lacks(t.Context(), from, until, time.Now()); known {
				t.Errorf("%v is known", lacks)
			}
		}},
		{"different targets", 2, "up", func(t *testing.T, g *gaps) {
			g.s.split.Store(true)
			allAreRead(t, g, g.gap.UnixMilli())
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGaps(t, tc.replicas, tc.heartbeat)
				g.open(0)
				g.s.base.Store(1)
				began := time.Now()
				tc.is(t, g)
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %s", took)
				}
				if state := g.s.Replicas[0].up.breaker.current(time.Now()); state != Closed {
					t.Errorf("its breaker is %s", state)
				}
				g.stop()
			})
		})
	}
}

func wholeIsTheFirst(t *testing.T, g *gaps) {
	t.Helper()
	from, until := g.over()
	if order, whole, err := g.ordered(t.Context(), from, until); err != nil || whole != 1 || order[0] != 0 {
		t.Errorf("%d of %v are whole: %v", whole, order, err)
	}
}

// allAreRead tells that no replica is whole from then on, and each is read.
func allAreRead(t *testing.T, g *gaps, from int64) {
	t.Helper()
	order, whole, err := g.ordered(t.Context(), from, time.Now().UnixMilli())
	well, _ := g.s.Well()
	if err != nil || whole != 0 || len(well) != len(g.s.Replicas) {
		t.Errorf("%d of %v are whole, %d are read: %v", whole, order, len(well), err)
	}
}

// TestOpenBreakersCostNothing: where the other replica is known to lack nothing, the one whose
// breaker is open is not asked. One that is dead, or says that it cannot, leaves the other one to
// answer at once, also over a time of which nothing is known; one that is silent is waited for
// once.
func TestOpenBreakersCostNothing(t *testing.T) {
	for _, tc := range []struct {
		name  string
		is    int32
		late  time.Duration
		known bool // that nobody lacks anything
		most  time.Duration
		asked int // the first one, of its last minute
	}{
		{name: "known", known: true},
		{name: "dead", is: dead},
		{name: "says that it cannot", is: refusesAll, asked: 1},
		{name: "silent", late: time.Minute, most: wholeWait, asked: 1},
	} {
		for _, heartbeat := range []string{"up", ""} {
			t.Run(tc.name+", heartbeat "+heartbeat, func(t *testing.T) {
				if tc.known && heartbeat == "" {
					return
				}
				synctest.Test(t, func(t *testing.T) {
					g := newGaps(t, 2, heartbeat)
					from, until := g.over()
					if tc.known {
						from, until = time.Now().Add(-30*time.Minute).UnixMilli(), time.Now().UnixMilli()
					}
					if g.is.Store(tc.is); tc.is == dead {
						g.fakes[0].Close()
					}
					g.tail[0].Store(int64(tc.late))
					g.open(0)
					asked, began := g.asked(), time.Now()
					for range 3 {
						order, whole, err := g.ordered(t.Context(), from, until)
						if err != nil || whole != 1 || order[0] != 1 {
							t.Errorf("%d of %v are whole: %v", whole, order, err)
						}
					}
					if took := time.Since(began); took > tc.most {
						t.Errorf("it took %s", took)
					}
					if n := g.asked() - asked; n != tc.asked {
						t.Errorf("it was asked %d times", n)
					}
					g.tail[0].Store(0)
					g.stop()
				})
			})
		}
	}
}

// TestOpenBreakersHideNoStore: of two Thanos Queries the one whose breaker is open has a store that
// the other one does not have. It is asked all the same.
func TestOpenBreakersHideNoStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		more := page(store("s1", "", jaguarA), store("s2", "", `{"cluster":"jaguar","slice":"2"}`))
		b := newBubble(t, fakeThanos(nil, fakeshard.Route{Path: storesPath, Script: more}), fakeThanos(nil))
		top := build(t, Options{Dial: b.dial}, true, thanosGroup(b.urls...))
		s := top.Groups[0].Shards[0]
		time.Sleep(time.Minute)
		for _, open := range []bool{false, true} {
			for range breakerFailures {
				if open {
					s.Replicas[0].up.breaker.failure(time.Now())
				}
			}
			now := time.Now()
			wholes, err := s.Wholes(t.Context(), now.UnixMilli(), now.UnixMilli(), now)
			if err != nil || len(wholes) != 1 || wholes[0].Index != 0 {
				t.Errorf("open %t: %d are whole, %v", open, len(wholes), err)
			}
		}
		top.Close()
		b.close()
	})
}
