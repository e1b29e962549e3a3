package shard

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// Behind a Thanos Query nothing but labels tells what is a copy of what, and labels do not suffice:
// where only prometheus_replica differs, as the operator writes it for shards as well as for
// replicas, all shards look like copies of each other, and a dead one would be taken to be
// replaced. So copies are those that were seen to scrape the same targets while both were there.

// maxPairs bounds the pairs of label sets that are compared, and with them the memory: 20,000 of
// them take 4 MiB.
const maxPairs = 20_000

// pairKey is the same for both orders.
func pairKey(a, b map[string]string) string {
	x, y := labels.FromMap(a).String(), labels.FromMap(b).String()
	if y < x {
		x, y = y, x
	}
	return x + "\x00" + y
}

// family are label sets of stores that are equal but for the labels that tell copies apart: copies,
// or shards.
type family []map[string]string

// families are those of more than one. The caller holds mu.
func (s *stores) families(replica []string) []family {
	by := map[string]family{}
	for _, i := range s.list {
		if i.err != "" {
			continue
		}
		for _, set := range i.labelSets {
			key := labels.FromMap(stripped(set, replica)).String()
			if !slices.ContainsFunc(by[key], func(o map[string]string) bool { return maps.Equal(o, set) }) {
				by[key] = append(by[key], set)
			}
		}
	}
	var out []family
	pairs := 0
	for _, key := range slices.Sorted(maps.Keys(by)) {
		n := len(by[key])
		if pairs += n * (n - 1) / 2; n > 1 && pairs <= maxPairs {
			out = append(out, by[key])
		}
	}
	return out
}

// copied tells whether both label sets are known to be those of copies. The caller holds mu.
func (s *stores) copied(a, b map[string]string) bool { return s.copies[pairKey(a, b)] }

// readCopies reads the targets of a Thanos Query with the labels that tell copies apart, where that
// can tell anything, and notes which stores scrape the same.
func (r *Replica) readCopies(ctx context.Context) error {
	u := r.up
	u.mu.Lock()
	names := r.replicaNames()
	all := u.thanos.families(names)
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
	if u.thanos.copies == nil || len(u.thanos.copies) > 2*maxPairs {
		u.thanos.copies = map[string]bool{}
	}
	for _, f := range all {
		for i, a := range f {
			for _, b := range f[:i] {
				x, y := held[labels.FromMap(a).String()], held[labels.FromMap(b).String()]
				if len(x) > 0 && len(y) > 0 {
					both, _ := common(x, y)
					u.thanos.copies[pairKey(a, b)] = 2*both >= max(len(x), len(y))
				}
			}
		}
	}
	return nil
}

// asStored asks a Thanos Query for series as its stores have them, each copy by itself.
func (r *Replica) asStored(req *endpoint.Request) builder {
	build := r.thanosBuilder(req.ID, writer(req), true, r.leftOut()) // what stores that are away have is not needed
	return func(ctx context.Context, base *url.URL, timeout time.Duration) (*http.Request, error) {
		out, err := build(ctx, base, timeout)
		if err != nil {
			return nil, err
		}
		q := out.URL.Query()
		q.Set("dedup", "false")
		q.Del("replicaLabels[]")
		out.URL.RawQuery = q.Encode()
		return out, nil
	}
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

// storeSet is one label set that some store of a kind has.
type storeSet struct {
	component string
	set       map[string]string
}

// storeSets are those of the stores that are listed.
func (r *Replica) storeSets() (out []storeSet, known bool) {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	for _, i := range r.up.thanos.list {
		for _, set := range i.labelSets {
			out = append(out, storeSet{i.component, set})
		}
	}
	return out, r.up.thanos.listed
}

// lacksOf are those of theirs of which mine has neither the same nor a known copy.
func (r *Replica) lacksOf(mine, theirs []storeSet) []storeSet {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	names := r.replicaNames()
	return slices.DeleteFunc(slices.Clone(theirs), func(t storeSet) bool {
		return slices.ContainsFunc(mine, func(m storeSet) bool {
			return m.component == t.component &&
				(maps.Equal(m.set, t.set) || sameSlice(m.set, t.set, names) && r.up.thanos.copied(m.set, t.set))
		})
	})
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
			return fmt.Sprintf("it does not list the %s of %s, which %s does; it is not asked while that one can be", lacks[0].component, labels.FromMap(lacks[0].set), o.host)
		}
	}
	return ""
}
