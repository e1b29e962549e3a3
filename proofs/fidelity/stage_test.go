package fidelity

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/internal/seamref"
)

// staged is a world with those who look at it, and what it is judged by.
type staged struct {
	truth
	never []asker       // three replicas that never fail
	pairs [][2]*replica // two that do, shard by shard
}

// stage makes the world of a seed, whose targets are divided among so many shards. Each shard has a
// pair with outages of its own.
func stage(t testing.TB, seed uint64, shards int) *staged {
	t.Helper()
	w := newWorld(seed + 1)
	ideal := &replica{}
	ideal.scrape(w, w.rng, true)
	st := &staged{truth: truth{blind: map[string][]span{}}}
	shifted := func(by int64) *replica {
		r := &replica{seen: map[string]*kept{}}
		for key, s := range ideal.seen {
			c := &kept{lbls: s.lbls, values: s.values, up: s.up, samples: slices.Clone(s.samples)}
			for i := range c.samples {
				c.samples[i].T += by
			}
			r.seen[key] = c
		}
		return r
	}
	exact, late, early := local(alone(ideal)), local(alone(shifted(interval))), local(alone(shifted(-interval)))
	for i := range len(queries) + len(instants) {
		st.answers = append(st.answers, st.asked(t, exact, i))
		st.near = append(st.near, []map[string]map[int64]float64{st.asked(t, late, i), st.asked(t, early, i)})
	}
	for _, a := range alerts {
		st.firing = append(st.firing, firing(exact.ranges(t, a.expr, 15_000), a.hold))
	}
	for range 3 {
		r := &replica{jitter: 120}
		r.scrape(w, w.rng, false)
		st.never = append(st.never, local(alone(r)))
	}
	for _, v := range st.never {
		st.steady = append(st.steady, st.differing(t, v))
	}
	twins := [2][]view{} // the pairs, had they not failed
	for n := range shards {
		shard := &world{rng: w.rng}
		for _, g := range w.targets {
			if g.id%shards == n {
				shard.targets = append(shard.targets, g)
			}
		}
		pair := shard.pair()
		for instance, spans := range blind(shard, pair) {
			st.blind[instance] = append(st.blind[instance], spans...)
		}
		for i, r := range pair {
			rng := rand.New(rand.NewPCG(seed, w.rng.Uint64()))
			r.scrape(shard, rng, false)
			twin := &replica{jitter: r.jitter, phases: r.phases}
			twin.scrape(shard, rng, false)
			twins[i] = append(twins[i], alone(twin))
		}
		st.pairs = append(st.pairs, pair)
	}
	for _, v := range twins {
		st.steady = append(st.steady, st.differing(t, local(together(v))))
	}
	return st
}

// floor is what replicas that never fail get wrong. Nobody is a witness of his own, and all of them
// looked.
func (st *staged) floor(t testing.TB) (sum score) {
	t.Helper()
	all, away := st.steady, st.blind
	defer func() { st.steady, st.blind = all, away }()
	st.blind = nil
	for i, v := range st.never {
		st.steady = slices.Delete(slices.Clone(all[:len(st.never)]), i, i+1)
		sum.add(st.judge(t, v))
	}
	return sum
}

// spliced is what rules make of the pairs.
func (st *staged) spliced(rules seamref.Rules) view {
	var views []view
	for _, p := range st.pairs {
		views = append(views, spliced(rules, p[0], p[1]))
	}
	return together(views)
}

// together is what shards hold between them.
func together(views []view) view {
	return func(from, until int64, ms []*labels.Matcher) (out []storage.Series) {
		for _, v := range views {
			out = append(out, v(from, until, ms)...)
		}
		slices.SortFunc(out, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
		return out
	}
}
