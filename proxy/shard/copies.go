package shard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/thanos"
)

// readCopies reads the targets of a Thanos Query with the labels that tell copies apart, where that
// can tell anything, and notes which stores scrape the same.
func (r *Replica) readCopies(ctx context.Context) error {
	u := r.up
	u.mu.Lock()
	all, names := u.stores.Families(r.terms())
	u.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	held := map[string][]uint64{} // by label set
	sets := map[string][]map[string]string{}
	value := func(get func(string) string) string { // of the labels that tell copies apart
		var b strings.Builder
		for _, n := range names {
			b.WriteString(get(n))
			b.WriteByte(0xff) // in no UTF-8 text
		}
		return b.String()
	}
	for _, f := range all {
		for _, set := range f {
			key := value(func(n string) string { return set[n] })
			sets[key] = append(sets[key], set)
		}
	}
	key := r.newTargetKey()
	for _, n := range names {
		key.own[n] = true
	}
	total := 0
	err := r.eachTargetBy(ctx, r.asStored(&endpoint.Request{ID: endpoint.Query, Query: "up"}), func(series []pair) error {
		get := func(name string) string {
			for _, p := range series {
				if string(p.name) == name {
					return string(p.value)
				}
			}
			return ""
		}
		for _, set := range sets[value(get)] {
			of := true
			for n, v := range set {
				of = of && get(n) == v
			}
			if !of {
				continue
			}
			if total++; total > maxTargets {
				return fmt.Errorf("%s has more than %d targets, of which it is not looked which are scraped twice", r.Name(), maxTargets)
			}
			text := labels.FromMap(set).String()
			held[text] = append(held[text], key.hash(series))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for text := range held {
		slices.Sort(held[text])
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range all {
		for i, a := range f {
			for _, b := range f[:i] {
				x, y := held[labels.FromMap(a).String()], held[labels.FromMap(b).String()]
				if len(x) > 0 && len(y) > 0 {
					both, _ := common(x, y)
					u.stores.Compared(a, b, 2*both >= max(len(x), len(y)))
				}
			}
		}
	}
	return nil
}

// fullest is the set of a Thanos shard's replicas that have all that another one has: no store is
// missing, and none is listed elsewhere of which they have neither that nor a known copy. 0 where
// none is known to be.
func (s *Shard) fullest(now time.Time) uint64 {
	part := s.present(now)
	if part == 0 { // all are doubtful: who is asked nevertheless is to answer, or to say why not
		for _, r := range s.Replicas {
			if _, ok := r.rank(now); ok {
				if _, known := r.storeSets(); known {
					part |= 1 << r.Index
				}
			}
		}
	}
	mask := part
	for _, r := range s.Replicas {
		if part&(1<<r.Index) == 0 {
			continue
		}
		mine, known := r.storeSets()
		if !known {
			return 0
		}
		for _, o := range s.Replicas {
			if o == r || part&(1<<o.Index) == 0 {
				continue
			}
			theirs, known := o.storeSets()
			if !known {
				return 0
			}
			if len(r.lacksOf(mine, theirs)) > 0 {
				mask &^= 1 << r.Index
			}
		}
	}
	for _, r := range s.Replicas { // one that misses a store only where each does
		if sound := mask &^ (1 << r.Index); mask&(1<<r.Index) != 0 && sound != 0 && r.MissingStores() != "" {
			mask = sound
		}
	}
	return mask
}

// storeSets are the label sets of the stores that are listed.
func (r *Replica) storeSets() (out []thanos.Set, known bool) {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return r.up.stores.Sets(), r.up.stores.Listed
}

// lacksOf are those of theirs of which mine has neither the same nor a known copy.
func (r *Replica) lacksOf(mine, theirs []thanos.Set) []thanos.Set {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return r.up.stores.LackedOf(mine, theirs, r.terms())
}

// unlisted says which stores another replica of the shard lists and this one does not; empty where
// there are none, and for a Prometheus.
func (r *Replica) unlisted() string {
	if !r.Thanos() {
		return ""
	}
	mine, known := r.storeSets()
	for _, o := range r.Shard.Replicas {
		theirs, all := o.storeSets()
		if o == r || !known || !all {
			continue
		}
		if lacks := r.lacksOf(mine, theirs); len(lacks) > 0 {
			return fmt.Sprintf("it does not list the %s of %s, which %s does; it is not asked while that one can be", lacks[0].Component, labels.FromMap(lacks[0].Labels), o.host)
		}
	}
	return ""
}
