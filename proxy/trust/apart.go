package trust

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/internal/clip"
)

// Apart is what is known of a group's shard_by, which promises that series which agree on its
// labels are on one shard. Where that is false, joins and aggregations that run on the shards give
// wrong numbers, so no value of the label may be on two shards at a time. Until a value has been
// seen on two, shard_by is believed. Of several labels, one that is disjoint proves it; where none
// is, their combinations may still be, which cannot be read here, and it is believed. It is safe
// for concurrent use.
type Apart struct {
	labels []string
	shards []string // their names, by index

	mu     sync.Mutex
	values map[Server]reading
	state  State
	why    string
	before string // why another one had found it to be false; empty where it had not
}

// reading is what a server had at a time: hashes of the values by label.
type reading struct {
	at time.Time
	of map[string]map[uint64]struct{}
}

// apartAge is how long a reading counts beside a newer one: of another replica of its shard where
// that is longer newer, the server is away, and what it had may be elsewhere by now. Of a shard of
// which nothing newer is known it counts for apartSpan, the time whose values are compared.
const apartAge, apartSpan = 5 * time.Minute, time.Hour

// Server is a replica of a group, by the index of its shard and its own.
type Server struct{ Shard, Replica int }

var apartSeed = maphash.MakeSeed()

// NewApart returns the Apart of a group with these labels in shard_by, whose shards have these
// names.
func NewApart(labels, shards []string) *Apart {
	return &Apart{labels: labels, shards: shards, state: Unchecked, values: map[Server]reading{}}
}

// State tells whether it holds, and why where it is Broken.
func (a *Apart) State() (state State, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state, a.why
}

// Inherit takes over what another one of the same labels has found: what was seen to be false is
// not believed anew until it is checked on all shards.
func (a *Apart) Inherit(was *Apart) {
	state, why := was.State()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state, a.why = state, why
	if state == Broken {
		a.before = why
	}
}

// Compare takes in all values that a server has of each label at now, and tells what was known
// before and what is.
func (a *Apart) Compare(s Server, now time.Time, read map[string][]string) (was, is State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	own := map[string]map[uint64]struct{}{}
	was = a.state
	// What broke it is found anew each time, and what counted no more may count again.
	same := was == Trusted && len(read) > 0 && now.Sub(a.values[s].at) <= apartAge
	for name, values := range read {
		own[name] = make(map[uint64]struct{}, len(values))
		for _, v := range values {
			if v != "" {
				own[name][maphash.String(apartSeed, v)] = struct{}{}
			}
		}
		same = same && len(own[name]) == len(a.values[s].of[name]) && !slices.ContainsFunc(values, func(v string) bool {
			_, ok := a.values[s].of[name][maphash.String(apartSeed, v)]
			return v != "" && !ok
		})
	}
	a.values[s] = reading{now, own}
	if same {
		return was, was
	}
	a.state, a.why = a.judge(read)
	return was, a.state
}

// Stands says that a server which cannot tell its values at now is there and has what it had.
func (a *Apart) Stands(s Server, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r, known := a.values[s]; known {
		a.values[s] = reading{now, r.of}
	}
}

// judge looks for a label none of whose values is on two shards. The caller holds mu. A value that
// is on two is named where it is in what was read just now, else the label alone.
func (a *Apart) judge(read map[string][]string) (State, string) {
	heard := map[int]bool{}
	for s := range a.values {
		heard[s.Shard] = true
	}
	if len(heard) >= len(a.shards) {
		a.before = "" // what is known now is of all of them
	}
	state, why := Trusted, ""
	for _, name := range a.labels {
		one, other, hash, shared := a.shared(name)
		if !shared {
			switch {
			case len(heard) >= len(a.shards):
				return Trusted, ""
			case a.before != "":
				return Broken, a.before
			}
			return Unchecked, ""
		}
		what := "values of " + name
		if i := slices.IndexFunc(read[name], func(v string) bool { return maphash.String(apartSeed, v) == hash }); i >= 0 {
			what = fmt.Sprintf("series with %s=%q", name, clip.Said(read[name][i]))
		}
		state = Broken
		why = fmt.Sprintf("shards %s and %s both hold %s; take %s out of shard_by, or have each of its values scraped by one shard", a.shards[one], a.shards[other], what, name)
	}
	if len(a.labels) > 1 {
		return Unchecked, ""
	}
	return state, why
}

// shared finds two shards that hold the same value of a label, by the readings that count. The
// caller holds mu.
func (a *Apart) shared(name string) (one, other int, hash uint64, shared bool) {
	newest, last := map[int]time.Time{}, time.Time{}
	for s, r := range a.values {
		newest[s.Shard] = later(newest[s.Shard], r.at)
		last = later(last, r.at)
	}
	at := map[uint64]int{}
	for s, r := range a.values {
		if newest[s.Shard].Sub(r.at) > apartAge || last.Sub(r.at) > apartSpan {
			continue
		}
		for h := range r.of[name] {
			if shard, held := at[h]; held && shard != s.Shard {
				return min(shard, s.Shard), max(shard, s.Shard), h, true
			}
			at[h] = s.Shard
		}
	}
	return 0, 0, 0, false
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
