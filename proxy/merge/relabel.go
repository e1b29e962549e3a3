package merge

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
)

// Relabel is what happens to a label set on its way from a shard to the client: labels with the names of the group's labels and of its replica labels are
// removed, whatever their value, and the group's labels are set. A Relabel is immutable and safe for concurrent use; nil does nothing.
//
// The caller decides which of a group's labels a result carries. Series, and per-series expressions that keep all labels, carry them all; an aggregation
// carries those it keeps: the one series of sum(up) has no labels, in a group with labels as anywhere.
type Relabel struct {
	set  []setLabel // sorted by name
	drop []string   // names removed and not set, sorted
}

type setLabel struct {
	name, value string
	json        []byte // "name":"value"
}

// NewRelabel returns the rewriting that removes labels of the names in drop and sets those of set. An empty value in set removes the name only.
func NewRelabel(set map[string]string, drop []string) *Relabel {
	r := &Relabel{}
	r.drop = append(r.drop, drop...)
	for name, value := range set {
		if value == "" {
			r.drop = append(r.drop, name)
			continue
		}
		json := append(appendQuoted(nil, name), ':')
		r.set = append(r.set, setLabel{name, value, appendQuoted(json, value)})
	}
	slices.SortFunc(r.set, func(a, b setLabel) int { return strings.Compare(a.name, b.name) })
	slices.Sort(r.drop)
	r.drop = slices.DeleteFunc(slices.Compact(r.drop), func(name string) bool { return set[name] != "" })
	return r
}

// Empty tells whether label sets stay as they are.
func (r *Relabel) Empty() bool { return r == nil || len(r.set) == 0 && len(r.drop) == 0 }

// dropped tells whether labels of the name are removed and not set.
func (r *Relabel) dropped(name []byte) bool {
	for _, d := range r.drop {
		if len(d) == len(name) && d == string(name) {
			return true
		}
	}
	return false
}

// isSet tells whether the name is one of the labels set.
func (r *Relabel) isSet(name []byte) bool {
	for i := range r.set {
		if n := r.set[i].name; len(n) == len(name) && n == string(name) {
			return true
		}
	}
	return false
}

// removes tells whether a stored label of the name is removed.
func (r *Relabel) removes(name []byte) bool {
	return r != nil && (r.isSet(name) || r.dropped(name))
}

// Labels applies r to a label set.
func (r *Relabel) Labels(ls labels.Labels) labels.Labels {
	if r.Empty() {
		return ls
	}
	b := labels.NewBuilder(ls)
	b.Del(r.drop...)
	for _, l := range r.set {
		b.Set(l.name, l.value)
	}
	return b.Labels()
}
