package thanos

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
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

// Family are label sets of stores that are equal but for the labels that tell copies apart: copies,
// or shards.
type Family []map[string]string

// Families are those of more than one, of stores that are well, and the labels that tell copies
// apart.
func (s *Stores) Families(t Terms) (out []Family, names []string) {
	names = t.names()
	by := map[string]Family{}
	for _, i := range s.List {
		if i.Err != "" {
			continue
		}
		for _, set := range i.LabelSets {
			key := labels.FromMap(stripped(set, names)).String()
			if !slices.ContainsFunc(by[key], func(o map[string]string) bool { return maps.Equal(o, set) }) {
				by[key] = append(by[key], set)
			}
		}
	}
	pairs := 0
	for _, key := range slices.Sorted(maps.Keys(by)) {
		n := len(by[key])
		if pairs += n * (n - 1) / 2; n > 1 && pairs <= maxPairs {
			out = append(out, by[key])
		}
	}
	return out, names
}

// Compared notes whether two label sets were seen to be those of copies.
func (s *Stores) Compared(a, b map[string]string, are bool) {
	if s.copies == nil || len(s.copies) > 2*maxPairs {
		s.copies = map[string]bool{}
	}
	s.copies[pairKey(a, b)] = are
}

// Copied tells whether both label sets are known to be those of copies, and whether they were
// compared.
func (s *Stores) Copied(a, b map[string]string) (are, compared bool) {
	are, compared = s.copies[pairKey(a, b)]
	return are, compared
}

// copied tells whether both label sets are known to be those of copies.
func (s *Stores) copied(a, b map[string]string) bool { return s.copies[pairKey(a, b)] }

// madeGood tells whether each label set of the store is served by a healthy one of its kind that is
// a copy of it; one with the very same labels is where it came after then.
func (s *Stores) madeGood(list []Store, gone Store, names []string, then time.Time) bool {
	if len(gone.LabelSets) == 0 {
		return !then.IsZero() // one that had no series when it was well; of one that never was nobody knows
	}
	for _, set := range gone.LabelSets {
		if !slices.ContainsFunc(list, func(i Store) bool {
			if i.Err != "" || i.Component != gone.Component || i.Name == gone.Name {
				return false
			}
			later := !then.IsZero() && s.seen[i.Name].first.After(then)
			return slices.ContainsFunc(i.LabelSets, func(other map[string]string) bool {
				if maps.Equal(set, other) {
					return later
				}
				return sameSlice(set, other, names) && s.copied(set, other)
			})
		}) {
			return false
		}
	}
	return true
}

// whetherCopied tells of a store that is missing whether a healthy one may be its copy and that is
// not known.
func (s *Stores) whetherCopied(list []Store, gone Store, names []string) string {
	for _, set := range gone.LabelSets {
		for _, i := range list {
			for _, other := range i.LabelSets {
				if _, known := s.Copied(set, other); i.Err == "" && i.Component == gone.Component && !known &&
					!maps.Equal(set, other) && sameSlice(set, other, names) {
					return "; whether " + i.Name + " is a copy of it is not known, since both were not seen to scrape the same"
				}
			}
		}
	}
	return ""
}

// Set is one label set that some store of a kind has.
type Set struct {
	Component string
	Labels    map[string]string
}

// Sets are those of the stores that are listed.
func (s *Stores) Sets() (out []Set) {
	for _, i := range s.List {
		for _, set := range i.LabelSets {
			out = append(out, Set{i.Component, set})
		}
	}
	return out
}

// LackedOf are those of another server's sets of which mine has neither the same nor a known copy.
func (s *Stores) LackedOf(mine, theirs []Set, t Terms) []Set {
	names := t.names()
	return slices.DeleteFunc(slices.Clone(theirs), func(o Set) bool {
		return slices.ContainsFunc(mine, func(m Set) bool {
			return m.Component == o.Component &&
				(maps.Equal(m.Labels, o.Labels) || sameSlice(m.Labels, o.Labels, names) && s.copied(m.Labels, o.Labels))
		})
	})
}

// sameSlice tells whether two label sets are equal but for the labels that tell copies apart.
func sameSlice(a, b map[string]string, names []string) bool {
	return maps.Equal(stripped(a, names), stripped(b, names))
}

// stripped is a label set without the labels that tell copies apart.
func stripped(set map[string]string, names []string) map[string]string {
	out := maps.Clone(set)
	for _, name := range names {
		delete(out, name)
	}
	return out
}
