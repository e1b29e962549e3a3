package shard

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// sharing are the shards that have a target in common with a shard, in the order of the
// configuration. All lists of targets are walked together once, in the order of their hashes: with
// many shards nearly no two have anything in common, and comparing each with each would be most of
// what Spillway does when nobody asks it anything.
func (t *Topology) sharing() map[*Shard][]*Shard {
	var w walk
	now := walked{changes: targetChanges.Load()}
	for r := range t.replicas() {
		if known := r.knownTargets(); len(known) > 0 {
			w = append(w, list{known, r.Shard})
			now.known = now.known*31 + uint64(r.Shard.place)<<8 + uint64(r.Index)
		}
	}
	if c := &t.compare; c.sharing != nil && now == c.walked {
		return c.sharing
	}
	pairs := map[[2]*Shard]bool{}
	w.each(func(have []*Shard) {
		for i, a := range have {
			for _, b := range have[i+1:] {
				pairs[[2]*Shard{a, b}] = true
			}
		}
	})
	out := map[*Shard][]*Shard{}
	for p := range pairs {
		out[p[0]], out[p[1]] = append(out[p[0]], p[1]), append(out[p[1]], p[0])
	}
	for _, s := range out {
		slices.SortFunc(s, func(a, b *Shard) int { return cmp.Compare(a.place, b.place) })
	}
	t.compare.sharing, t.compare.walked = out, now
	return out
}

// targetChanges counts how often a server was found to scrape other targets than before, in
// whichever topology.
var targetChanges atomic.Uint64

// walked tells what sharing was found from: whose targets were known, and as of which change.
type walked struct{ changes, known uint64 }

// list is what is left of the sorted targets of one of the shard's replicas.
type list struct {
	left  []uint64
	shard *Shard
}

// walk is a heap of lists by their first hash. None is empty.
type walk []list

// each calls f for every hash that several shards have, with those shards, each once, in the order
// of the configuration. f must not keep them.
func (w walk) each(f func([]*Shard)) {
	for i := len(w)/2 - 1; i >= 0; i-- {
		w.sink(i)
	}
	var have []*Shard
	for len(w) > 1 {
		hash := w[0].left[0]
		have = have[:0]
		for len(w) > 0 && w[0].left[0] == hash {
			have = append(have, w[0].shard)
			if w[0].left = w[0].left[1:]; len(w[0].left) == 0 {
				last := len(w) - 1
				w[0], w[last] = w[last], list{}
				w = w[:last]
			}
			w.sink(0)
		}
		if len(have) < 2 {
			continue
		}
		slices.SortFunc(have, func(a, b *Shard) int { return cmp.Compare(a.place, b.place) })
		if have = slices.Compact(have); len(have) > 1 {
			f(have)
		}
	}
}

// sink puts the list at i where it belongs below.
func (w walk) sink(i int) {
	for {
		least := i
		for _, c := range [...]int{2*i + 1, 2*i + 2} {
			if c < len(w) && w[c].left[0] < w[least].left[0] {
				least = c
			}
		}
		if least == i {
			return
		}
		w[i], w[least] = w[least], w[i]
		i = least
	}
}
