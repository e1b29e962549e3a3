package merge

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
)

// Relabel is what happens to a label set on its way from a shard to the client: labels with the
// names of the group's labels and of its replica labels are removed, whatever their value, and the
// group's labels are set. A Relabel is immutable and safe for concurrent use; nil does nothing.
//
// The caller decides which of a group's labels a result carries. Series, and per-series expressions
// that keep all labels, carry them all; an aggregation carries those it keeps: the one series of
// sum(up) has no labels, in a group with labels as anywhere.
type Relabel struct {
	owned []ownedLabel // sorted by name
}

// ownedLabel is a name that a shard's own label may not have.
type ownedLabel struct {
	name  string
	value string // empty: it is removed and not set
	json  []byte // "name":"value", where it is set
}

// NewRelabel returns the rewriting that removes labels of the names in drop and sets those of set.
// An empty value in set removes the name only.
func NewRelabel(set map[string]string, drop []string) *Relabel {
	r := &Relabel{}
	for name, value := range set {
		l := ownedLabel{name: name, value: value}
		if value != "" {
			l.json = appendQuoted(append(appendQuoted(nil, name), ':'), value)
		}
		r.owned = append(r.owned, l)
	}
	for _, name := range drop {
		if _, ok := set[name]; !ok {
			r.owned = append(r.owned, ownedLabel{name: name})
		}
	}
	slices.SortFunc(r.owned, func(a, b ownedLabel) int { return strings.Compare(a.name, b.name) })
	r.owned = slices.CompactFunc(r.owned, func(a, b ownedLabel) bool { return a.name == b.name })
	return r
}

// Empty tells whether label sets stay as they are.
func (r *Relabel) Empty() bool { return r == nil || len(r.owned) == 0 }

// removes tells whether a stored label of the name is removed.
func (r *Relabel) removes(name []byte) bool {
	if r == nil {
		return false
	}
	for i := range r.owned {
		if n := r.owned[i].name; len(n) == len(name) && n == string(name) {
			return true
		}
	}
	return false
}

// Labels applies r to a label set.
func (r *Relabel) Labels(ls labels.Labels) labels.Labels {
	if r.Empty() {
		return ls
	}
	b := labels.NewBuilder(ls)
	for _, l := range r.owned {
		b.Set(l.name, l.value) // an empty value removes
	}
	return b.Labels()
}

// Strip removes the labels that Labels would remove or set.
func (r *Relabel) Strip(ls labels.Labels) labels.Labels {
	if r.Empty() {
		return ls
	}
	b := labels.NewBuilder(ls)
	for _, l := range r.owned {
		b.Del(l.name)
	}
	return b.Labels()
}
