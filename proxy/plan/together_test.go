package plan

import (
	"errors"
	"math"
	"slices"
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
}

// TestTogetherCopies: where none is whole the same copies are read for all, in one order: what has
// come back meanwhile is not read, and what has gone has failed.
func TestTogetherCopies(t *testing.T) {
	s := &shard.Shard{Group: &shard.Group{}}
	a, b, c, back := &shard.Replica{Shard: s}, &shard.Replica{Shard: s}, &shard.Replica{Shard: s}, &shard.Replica{Shard: s}
	list := func(rs ...*shard.Replica) []*shard.Replica { return rs }
	only := func(r *shard.Replica) func(*shard.Replica) bool { return func(o *shard.Replica) bool { return o == r } }
	all := func(*shard.Replica) bool { return true }
	for _, tc := range []struct {
		name  string
		well  []*shard.Replica
		avoid func(*shard.Replica) bool
		want  []*shard.Replica
		then  []*shard.Replica // are well when another selector is read
		last  []*shard.Replica // are read for it
		lost  bool
	}{
		{"the same", list(c, a, b), nil, list(a, b, c), list(b, c, a), list(a, b, c), false},
		{"one is to be avoided", list(c, a, b), only(a), list(b, c), list(a, b, c), list(b, c), false},
		{"all are", list(c, a), all, list(a, c), list(a, c), list(a, c), false},
		{"one has come back before", list(back, c, a), nil, list(a, c, back), list(back, a, c), list(a, c, back), false},
		{"one has come back since", list(c, a), nil, list(a, c), list(back, c, a), list(a, c), false},
		{"the first has gone", list(a, b), nil, list(a, b), list(b, c), list(b), true},
		{"all have gone", list(a, b), nil, list(a, b), list(c), list(c), true},
	} {
		g, ch := &Together{}, &choice{order: list(a, b, c)}
		if got := g.sorted(ch, tc.well, tc.avoid); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %d copies are read, want %d, or in another order", tc.name, len(got), len(tc.want))
		}
		g.Used(s.Name(), []string{a.Name()}, nil)
		if got := g.sorted(ch, tc.then, tc.avoid); !slices.Equal(got, tc.last) {
			t.Errorf("%s: %d copies are read then, want %d, or in another order", tc.name, len(got), len(tc.last))
		}
		if got := g.sorted(ch, append(list(back), tc.then...), tc.avoid); !slices.Equal(got, tc.last) {
			t.Errorf("%s: %d copies are read at last, want %d, or in another order", tc.name, len(got), len(tc.last))
		}
		if _, err := g.Mixed(); (err != nil) != tc.lost {
			t.Errorf("%s: mixed is %v", tc.name, err)
		}
		if got := (*Together)(nil).sorted(&choice{order: ch.order}, tc.well, tc.avoid); !slices.Equal(got, tc.want) {
			t.Errorf("%s: read alone it is %d copies, or in another order", tc.name, len(got))
		}
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
