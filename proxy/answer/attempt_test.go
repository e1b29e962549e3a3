package answer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/spillwayproject/spillway/internal/randseed"
)

var errFailed = errors.New("failed")

// TestNext is the table of what a second attempt is.
func TestNext(t *testing.T) {
	apart, order := &Inexact{Why: "the parts overlap"}, fmt.Errorf("%w: {a}", ErrOrder)
	many, counted := &TooMany{Err: errFailed}, &TooManyCounted{Err: errFailed}
	replica := &LostReplica{Names: []string{"b", "a"}, Err: errFailed}
	shard := &LostShard{Name: "s1", Err: errFailed}
	for _, tc := range []struct {
		name   string
		from   Attempt
		err    error
		at     Case
		to     Attempt
		reason Reason
	}{
		{"any other error ends it", Attempt{}, errFailed, Case{MayLack: anyShard, Shards: 3}, Attempt{}, None},
		{
			"parts that do not fit are computed here",
			Attempt{},
			fmt.Errorf("x: %w", apart),
			Case{Shards: 3},
			Attempt{Raw: "the parts overlap"},
			Apart,
		},
		{"but once", Attempt{Raw: "before"}, apart, Case{Shards: 3}, Attempt{Raw: "before"}, None},
		{"too many series are read in parcels", Attempt{}, fmt.Errorf("x: %w", many), Case{Shards: 3}, Attempt{Parcels: true}, Parcels},
		{"but once", Attempt{Parcels: true}, many, Case{Shards: 3}, Attempt{Parcels: true}, None},
		{"not where all is computed here", Attempt{Raw: "before"}, many, Case{Shards: 3}, Attempt{Raw: "before"}, None},
		{"statistics give way", Attempt{}, fmt.Errorf("x: %w", counted), Case{Shards: 3}, Attempt{NoStats: true}, NoStats},
		{"but once", Attempt{NoStats: true}, counted, Case{Shards: 3}, Attempt{NoStats: true}, None},
		{"not once a byte was sent", Attempt{}, apart, Case{Over: true, Shards: 3}, Attempt{}, None},
		{"series in another order are sorted", Attempt{}, order, Case{}, Attempt{Sorted: true}, Order},
		{"but once", Attempt{Sorted: true}, order, Case{}, Attempt{Sorted: true}, None},
		{
			"replicas that failed are not asked again",
			Attempt{},
			replica,
			Case{},
			Attempt{Avoid: []string{"a", "b"}, After: replica},
			Replica,
		},
		{
			"one more than before",
			Attempt{Avoid: []string{"a"}},
			replica,
			Case{},
			Attempt{Avoid: []string{"a", "b"}, After: replica},
			Replica,
		},
		{
			"none that was asked",
			Attempt{Avoid: []string{"a", "b"}},
			replica,
			Case{MayLack: anyShard, Shards: 3},
			Attempt{Avoid: []string{"a", "b"}},
			None,
		},
		{
			"what was given up stays so",
			Attempt{Raw: "x", Sorted: true, Without: []string{"s2"}},
			replica,
			Case{},
			Attempt{Raw: "x", Sorted: true, Without: []string{"s2"}, Avoid: []string{"a", "b"}, After: replica},
			Replica,
		},
		{"a lost shard is an error", Attempt{}, shard, Case{Shards: 3}, Attempt{}, None},
		{
			"a shard that the caller goes without, beside one that it does not",
			Attempt{},
			shard,
			Case{MayLack: func(name string) bool { return name == "s1" }, Shards: 4, Gone: []string{"s2", "s1"}},
			Attempt{Without: []string{"s1"}},
			Shard,
		},
		{
			"one that it has to have",
			Attempt{},
			shard,
			Case{MayLack: func(name string) bool { return name == "s2" }, Shards: 4},
			Attempt{},
			None,
		},
		{"unless the caller goes without", Attempt{}, shard, Case{MayLack: anyShard, Shards: 3}, Attempt{Without: []string{"s1"}}, Shard},
		{
			"with all that are known to fail",
			Attempt{},
			shard,
			Case{MayLack: anyShard, Shards: 4, Gone: []string{"s3", "s1", "s2"}},
			Attempt{Without: []string{"s1", "s2", "s3"}},
			Shard,
		},
		{
			"an answer without any shard is none",
			Attempt{Without: []string{"s2"}},
			shard,
			Case{MayLack: anyShard, Shards: 2},
			Attempt{Without: []string{"s1", "s2"}},
			None,
		},
		{
			"a shard that is left out cannot be lost",
			Attempt{Without: []string{"s1"}},
			shard,
			Case{MayLack: anyShard, Shards: 3},
			Attempt{Without: []string{"s1"}},
			None,
		},
		{
			"a replica's loss goes before its shard's",
			Attempt{},
			&LostShard{Name: "s1", Err: replica},
			Case{MayLack: anyShard, Shards: 3},
			Attempt{Avoid: []string{"a", "b"}, After: replica},
			Replica,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			was := clone(tc.from)
			to, reason := tc.from.Next(tc.err, tc.at)
			if !reflect.DeepEqual(to, tc.to) || reason != tc.reason {
				t.Errorf("%+v, %q; want %+v, %q", to, reason, tc.to, tc.reason)
			}
			if !reflect.DeepEqual(tc.from, was) {
				t.Errorf("the attempt became %+v", tc.from)
			}
		})
	}
}

func anyShard(string) bool { return true }

func clone(a Attempt) Attempt {
	a.Without, a.Avoid = slices.Clone(a.Without), slices.Clone(a.Avoid)
	return a
}

// TestNextEnds: whatever fails, there are at most as many attempts as there are shards and
// replicas, and four more; and nothing that was given up is taken back.
func TestNextEnds(t *testing.T) {
	rng := rand.New(rand.NewPCG(randseed.Of(t, 0), 3))
	const shards, replicas = 4, 6
	name := func(kind string, n int) string { return fmt.Sprint(kind, rng.IntN(n)) }
	longest := 0
	for range 2000 {
		c := Case{Shards: shards}
		if rng.IntN(2) == 0 {
			c.MayLack = anyShard
		}
		a := Attempt{}
		for n := 1; ; n++ {
			var err error
			switch rng.IntN(6) {
			case 5:
				err = &TooManyCounted{Err: errFailed}
			case 4:
				err = &TooMany{Err: errFailed}
			case 0:
				err = &Inexact{Why: "apart"}
			case 1:
				err = ErrOrder
			case 2:
				err = &LostReplica{Names: []string{name("r", replicas)}, Err: errFailed}
			default:
				err = &LostShard{Name: name("s", shards), Err: errFailed}
				c.Gone = append(c.Gone, name("s", shards))
			}
			next, reason := a.Next(err, c)
			if reason == None {
				longest = max(longest, n)
				break
			}
			if n > shards+replicas+4 {
				t.Fatalf("attempt %d: %+v", n, next)
			}
			gaveUp := next.Raw != a.Raw || next.Sorted != a.Sorted || next.Parcels != a.Parcels ||
				next.NoStats != a.NoStats ||
				len(next.Avoid) > len(a.Avoid) || len(next.Without) > len(a.Without)
			kept := (a.Raw == "" || next.Raw == a.Raw) && (!a.Sorted || next.Sorted) && (!a.Parcels || next.Parcels) &&
				(!a.NoStats || next.NoStats) &&
				!slices.ContainsFunc(a.Avoid, func(s string) bool { return !next.Avoids(s) }) &&
				!slices.ContainsFunc(a.Without, func(s string) bool { return !next.LeavesOut(s) })
			if !gaveUp || !kept {
				t.Fatalf("after %+v (%s) came %+v", a, reason, next)
			}
			a = next
		}
	}
	if longest < 4 {
		t.Errorf("at most %d attempts were made: nothing was tried", longest)
	}
}
