package plan

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/shard"
)

// TestTogether: windows that overlap, one by way of another too, are one, of each shard those of
// the selectors that read it, as far as the shard goes.
func TestTogether(t *testing.T) {
	a, b, c, d := &shard.Shard{}, &shard.Shard{}, &shard.Shard{}, &shard.Shard{}
	of := func(shards ...*shard.Shard) (legs []Leg) {
		for _, s := range shards {
			legs = append(legs, Leg{Shard: s, From: math.MinInt64, Until: math.MaxInt64})
		}
		return legs
	}
	together := &Together{now: time.Now(), reads: []read{
		{window: Window{900, 1000}, legs: of(a, b, c, d)},
		{window: Window{700, 950}, legs: of(a, c, d)},
		{window: Window{500, 700}, legs: of(a, c, d)},
		{window: Window{100, 200}, legs: of(a, b)},
	}}
	for _, tc := range []struct {
		leg      Leg
		of, want Window
	}{
		{of(a)[0], Window{900, 1000}, Window{500, 1000}},
		{of(a)[0], Window{500, 700}, Window{500, 1000}},
		{of(a)[0], Window{100, 200}, Window{100, 200}},
		{of(a)[0], Window{150, 600}, Window{100, 1000}},
		{of(b)[0], Window{900, 1000}, Window{900, 1000}},
		{Leg{Shard: c, From: 800, Until: math.MaxInt64}, Window{900, 1000}, Window{800, 1000}},
		{Leg{Shard: d, From: math.MinInt64, Until: 600}, Window{500, 600}, Window{500, 599}},
	} {
		if got := together.window(tc.leg, tc.of); got != tc.want {
			t.Errorf("%v of %v: %v, want %v", tc.of, tc.leg.From, got, tc.want)
		}
	}
	for _, tc := range []struct {
		a, b Window
		want bool
	}{
		{Window{500, 520}, Window{990, 1000}, false}, // by way of another
		{Window{100, 200}, Window{500, 700}, true},
		{Window{250, 300}, Window{310, 320}, true},
		{Window{250, 300}, Window{300, 320}, false},
	} {
		if got := together.Apart(a, tc.a, tc.b); got != tc.want || (*Together)(nil).Apart(a, tc.a, tc.b) != (tc.want || tc.a.From == 500) {
			t.Errorf("%v and %v are apart: %v", tc.a, tc.b, got)
		}
	}
	if got := (*Together)(nil).window(of(a)[0], Window{1, 2}); got != (Window{1, 2}) {
		t.Errorf("alone it is %v", got)
	}
}

// TestTogetherTakes: of the replicas that are whole one is taken for all, which is the one that has
// answered a part of what overlaps where one has, and none that is to be avoided; the others keep
// an order.
func TestTogetherTakes(t *testing.T) {
	s := &shard.Shard{}
	a, b, c := &shard.Replica{Shard: s}, &shard.Replica{Shard: s}, &shard.Replica{Shard: s}
	none := []*shard.Replica(nil)
	wholes := []*shard.Replica{a, b}
	only := func(r *shard.Replica) func(*shard.Replica) bool { return func(o *shard.Replica) bool { return o == r } }
	all := func(*shard.Replica) bool { return true }
	made := func(over Window) *choice { return &choice{over: over, order: []*shard.Replica{a, b, c}, whole: 2} }
	together, ch := &Together{}, made(Window{1, 2})
	if got := together.take(ch, wholes, s, only(a)); got != b || together.take(ch, wholes, s, nil) != b {
		t.Error("the first that is not avoided is not taken for all")
	}
	ch = made(Window{1, 2})
	if together.take(ch, wholes, s, all) != nil || together.take(ch, none, s, nil) != nil {
		t.Error("one is taken that is to be avoided, or of none")
	}
	together.answered = append(together.answered, answer{within{s, Window{2, 9}}, b})
	if together.take(ch, wholes, s, nil) != b || together.take(made(Window{10, 11}), wholes, s, nil) != a {
		t.Error("who has answered a part is not taken for what is read together with it alone")
	}
	together.answered = nil
	if together.take(ch, wholes, s, nil) != b {
		t.Error("it is not taken for what is read afterwards")
	}
	if well := ch.sorted([]*shard.Replica{c, a, b}, only(a)); len(well) != 2 || well[0] != b || well[1] != c {
		t.Errorf("%v", well)
	}
	if well := ch.sorted([]*shard.Replica{c, a}, all); len(well) != 2 || well[0] != a {
		t.Errorf("%v", well)
	}
	back := &shard.Replica{Shard: s} // which could not be asked when the choice was made
	if well := ch.sorted([]*shard.Replica{back, c, a}, nil); well[0] != a || well[1] != c || well[2] != back {
		t.Errorf("the base is another one in the middle of a request: %v", well)
	}
}

// TestTogetherMixed: a replica that was read for one selector and failed for another is told, of
// its own shard, in whichever order that came; one that failed for all is not.
func TestTogetherMixed(t *testing.T) {
	failed := errors.New("it failed")
	for _, tc := range []struct {
		name string
		came func(*Together)
		want string
	}{
		{"nothing", func(*Together) {}, ""},
		{"failed for all", func(g *Together) {
			g.Failed("s", "a", failed)
			g.Used("s", []string{"b"}, nil)
			g.Failed("s", "a", failed)
			g.Used("s", []string{"b"}, nil)
		}, ""},
		{"failed, then read", func(g *Together) { g.Failed("s", "a", failed); g.Used("s", []string{"a"}, nil) }, "a"},
		{"read, then failed", func(g *Together) { g.Used("s", []string{"a"}, nil); g.Failed("s", "a", failed) }, "a"},
		{"of two copies one fails", func(g *Together) {
			g.Used("s", []string{"a", "b"}, nil)
			g.Used("s", []string{"a"}, []string{"b"})
		}, "b"},
		{"of another shard", func(g *Together) { g.Used("s", []string{"a"}, nil); g.Failed("t", "a", failed) }, ""},
	} {
		g := &Together{}
		tc.came(g)
		if got, err := g.Mixed(); got != tc.want || (err != nil) != (tc.want != "") {
			t.Errorf("%s: %q, %v", tc.name, got, err)
		}
	}
	if got, err := (*Together)(nil).Mixed(); got != "" || err != nil {
		t.Error("what is read alone is mixed")
	}
}
