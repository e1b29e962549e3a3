package plan

import (
	"math"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/shard"
)

// TestTogether: windows that overlap, one by way of another too, are one, of each shard those of
// the selectors that read it, as far as the shard goes.
func TestTogether(t *testing.T) {
	a, b := &shard.Shard{}, &shard.Shard{}
	of := func(shards ...*shard.Shard) (legs []Leg) {
		for _, s := range shards {
			legs = append(legs, Leg{Shard: s, From: math.MinInt64, Until: math.MaxInt64})
		}
		return legs
	}
	together := &Together{now: time.Now(), reads: []read{
		{window: Window{900, 1000}, legs: of(a, b)},
		{window: Window{700, 950}, legs: of(a)},
		{window: Window{500, 700}, legs: of(a)},
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
		{Leg{Shard: a, From: 800, Until: math.MaxInt64}, Window{900, 1000}, Window{800, 1000}},
		{Leg{Shard: a, From: math.MinInt64, Until: 600}, Window{500, 600}, Window{500, 599}},
	} {
		if got := together.window(tc.leg, tc.of); got != tc.want {
			t.Errorf("%v of %v: %v, want %v", tc.of, tc.leg.From, got, tc.want)
		}
	}
	if !together.Shared(a) || !together.Shared(b) || together.Shared(&shard.Shard{}) || (*Together)(nil).Shared(a) {
		t.Error("who is read by several selectors is wrong")
	}
	if got := (*Together)(nil).window(of(a)[0], Window{1, 2}); got != (Window{1, 2}) {
		t.Errorf("alone it is %v", got)
	}
}

// TestTogetherTakes: of the replicas that are whole one is taken for all, which is the one that has
// answered a part where one has, and none that is to be avoided; the others keep an order.
func TestTogetherTakes(t *testing.T) {
	s := &shard.Shard{}
	a, b, c := &shard.Replica{Shard: s}, &shard.Replica{Shard: s}, &shard.Replica{Shard: s}
	of := func() (*Together, *choice) {
		ch := &choice{order: []*shard.Replica{a, b, c}, whole: 2}
		return &Together{chosen: map[within]*choice{{s, Window{1, 2}}: ch}}, ch
	}
	only := func(r *shard.Replica) func(*shard.Replica) bool { return func(o *shard.Replica) bool { return o == r } }
	together, ch := of()
	if got := together.take(ch, only(a)); got != b || together.take(ch, nil) != b {
		t.Error("the first that is not avoided is not taken for all")
	}
	together, ch = of()
	if together.take(ch, func(*shard.Replica) bool { return true }) != nil {
		t.Error("one is taken that is to be avoided")
	}
	if well := ch.sorted([]*shard.Replica{c, a, b}, only(a)); len(well) != 2 || well[0] != b || well[1] != c {
		t.Errorf("%v", well)
	}
	if well := ch.sorted([]*shard.Replica{c, a}, func(*shard.Replica) bool { return true }); len(well) != 2 || well[0] != a {
		t.Errorf("%v", well)
	}
}
