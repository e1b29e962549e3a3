package rewrite

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/policy"
)

// TestMemory: what was found is told again of the same window at another moment, for a while, what
// was not for a shorter one; and it is bounded.
func TestMemory(t *testing.T) {
	var m Memory
	now := time.Unix(1_790_000_000, 0)
	was := asked(t, policy.BoundMaxPoints, "up", 6*time.Hour, 15*time.Second).Request
	found := Shorter(was, 3*time.Hour)
	found.Step = time.Minute
	both := Candidate{Kind: Window, And: Step, Request: found}
	m.Put(1, was, Proposal{Candidate: both, Tried: true, Took: Took{Series: 3, Samples: 9}}, true, now)
	m.Put(2, was, Proposal{}, false, now)

	later := was.Clone()
	later.Start.Ms += 20_000
	later.End.Ms += 20_000
	p, ok, known, ago := m.Get(1, later, now.Add(20*time.Second))
	r := p.Request
	if !ok || !known || ago != 20*time.Second || r.End != later.End || r.Step != time.Minute || (r.Start.Ms-later.Start.Ms)%15_000 != 0 {
		t.Fatalf("%v %v %v %s", r, ok, known, ago)
	}
	const want = "try the last 3h of this range with step=1m (tried 20s ago: 3 series, 9 samples in 1ms)"
	if got := p.Sentence(later, ago); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, ok, known, _ := m.Get(2, later, now.Add(NothingFor-1)); ok || !known {
		t.Error("that nothing was found is not known")
	}
	if _, _, known, _ := m.Get(2, later, now.Add(NothingFor)); known {
		t.Error("that nothing was found is known for too long")
	}
	if _, _, known, _ := m.Get(1, later, now.Add(FoundFor)); known {
		t.Error("what was found is known for too long")
	}
	if _, _, known, _ := m.Get(3, later, now); known {
		t.Error("what nobody asked is known")
	}
	for i := range uint64(3 * MaxRemembered) {
		m.Put(i, was, Proposal{}, false, now.Add(time.Duration(i)))
	}
	if _, _, known, _ := m.Get(3*MaxRemembered-1, was, now.Add(time.Second)); len(m.by) > MaxRemembered || !known {
		t.Errorf("%d are remembered, the last one: %v", len(m.by), known)
	}
	if _, _, known, _ := m.Get(5, was, now.Add(time.Second)); known {
		t.Error("one of the oldest is remembered")
	}
}

// TestMemoryKeepsNoRequest: what is kept of a proposal has texts of its own, and nothing else of
// the request, whose body they may be a part of; and what is over is kept no longer.
func TestMemoryKeepsNoRequest(t *testing.T) {
	var m Memory
	now := time.Unix(1_790_000_000, 0)
	body := "query=" + strings.Repeat("x", 1<<20)
	was := &endpoint.Request{
		ID: endpoint.Federate, Match: []string{body[6:16], "up"}, Query: body[6:20],
		Filters: map[string][]string{"a": {body}}, Dropped: []string{body},
	}
	found := was.Clone()
	m.Put(1, was, Proposal{Candidate: Candidate{Kind: Matcher, Request: found}, Tried: true}, true, now)
	p, ok, _, _ := m.Get(1, was, now)
	if r := p.Request; !ok || !slices.Equal(r.Match, found.Match) || r.Query != found.Query || p.Kind != Matcher || !p.Tried {
		t.Fatalf("%v %v", p, ok)
	}
	kept := m.by[1]
	if kept.p.Request != nil {
		t.Error("the request is kept")
	}
	for _, text := range append(slices.Clone(kept.match), kept.query) {
		for _, of := range append(slices.Clone(found.Match), found.Query) {
			if unsafe.StringData(text) == unsafe.StringData(of) {
				t.Errorf("%s keeps the body that it is a part of", text)
			}
		}
	}
	if m.Get(1, was, now.Add(FoundFor)); len(m.by) != 0 {
		t.Error("what is over is kept when it is asked for")
	}
	for i := range uint64(10) {
		m.Put(i, was, Proposal{}, false, now)
	}
	if m.Put(99, was, Proposal{}, false, now.Add(FoundFor)); len(m.by) != 1 {
		t.Errorf("%d are kept, of which one is not over", len(m.by))
	}
}

// TestRate: all flows together have so many looked for within a minute, and as many in the next.
func TestRate(t *testing.T) {
	var r Rate
	now := time.Unix(1_790_000_000, 0)
	for range 2 {
		n := 0
		for range 2 * AllSearches {
			if r.Enter(now) {
				n++
			}
		}
		if n != AllSearches || r.Enter(now.Add(FlowTime-1)) {
			t.Errorf("%d within a minute, want %d", n, AllSearches)
		}
		now = now.Add(FlowTime)
	}
}

// TestFlows: a flow has a rewrite looked for so often within a minute, and not more than two at
// once; others are not kept from it; and it is bounded.
func TestFlows(t *testing.T) {
	var f Flows
	now := time.Unix(1_790_000_000, 0)
	a, ok := f.Enter(1, now)
	b, also := f.Enter(1, now)
	if _, third := f.Enter(1, now); !ok || !also || third {
		t.Fatal("not two at once")
	}
	if c, other := f.Enter(2, now); !other {
		t.Error("another flow has to wait")
	} else {
		c()
	}
	a()
	b()
	n := 2
	for range 2 * FlowSearches {
		if leave, ok := f.Enter(1, now); ok {
			leave()
			n++
		}
	}
	if n != FlowSearches {
		t.Errorf("%d within a minute, want %d", n, FlowSearches)
	}
	if leave, ok := f.Enter(1, now.Add(FlowTime)); !ok {
		t.Error("not again after a minute")
	} else {
		leave()
	}
	entered := 0
	for i := range uint64(3 * MaxFlows) {
		if leave, ok := f.Enter(100+i, now.Add(FlowTime)); ok {
			entered++
			leave()
		}
	}
	if len(f.by) > MaxFlows || entered < MaxFlows-2 {
		t.Errorf("%d flows are counted, %d had their turn", len(f.by), entered)
	}
	if leave, ok := f.Enter(9, now.Add(3*FlowTime)); !ok {
		t.Error("no other flow is let in later")
	} else {
		leave()
	}
}
