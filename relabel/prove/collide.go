package prove

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/relabel/inventory"
)

// hash is of a series. Equal series have equal hashes; that unequal ones do not is looked at in a
// second scan, so that nothing depends on it.
type hash [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// pendingAtMost is how many series the second scan holds while it looks for those that they become
// one with.
const pendingAtMost = 1 << 16

// reserve makes room for the hashes, whose number the inventory knows.
func (c *check) reserve(inv *inventory.Inventory) {
	if inv == nil {
		return
	}
	var n int64
	for _, m := range inv.Metrics {
		if of := c.names[m.Name]; of != nil && of.relabelled {
			n += m.Series
		}
	}
	c.hashes = make([]hash, 0, n)
}

func (c *check) hash(ls labels.Labels) hash {
	c.buf = ls.Bytes(c.buf)
	return hash{maphash.Bytes(seeds[0], c.buf), maphash.Bytes(seeds[1], c.buf)}
}

func (c *check) remember(ls labels.Labels) { c.hashes = append(c.hashes, c.hash(ls)) }

func compareHashes(a, b hash) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }

// collisions: no two series become one. Where two have the same hash, the source is read again for
// their labels.
func (c *check) collisions(ctx context.Context, src inventory.Source) error {
	c.hashed = len(c.hashes)
	slices.SortFunc(c.hashes, compareHashes)
	twice := c.hashes[:0]
	for i := 1; i < len(c.hashes); i++ {
		// What is written is behind what is read.
		if h := c.hashes[i]; h == c.hashes[i-1] && (len(twice) == 0 || twice[len(twice)-1] != h) {
			twice = append(twice, h)
		}
	}
	defer func() { c.hashes = nil }()
	if len(twice) == 0 {
		return nil
	}
	type first struct {
		before, after labels.Labels
		changed       []*rule
	}
	pending, full := map[hash]first{}, false
	found := map[*rule]*collision{}
	var series int64
	err := src.Scan(ctx, func(s *inventory.Series) error {
		series++
		j := c.job(s.Labels.Get(model.JobLabel))
		m := c.metric(j, s.Labels.Get(model.MetricNameLabel))
		if len(m.acting) == 0 && !m.relabelled {
			return nil
		}
		after, kept, _ := j.chain.Apply(s.Labels)
		if !kept {
			return nil
		}
		h := c.hash(after)
		if _, ok := slices.BinarySearchFunc(twice, h, compareHashes); !ok {
			return nil
		}
		var changed []*rule
		for _, r := range m.acting {
			if _, kept, by := r.chain.Apply(s.Labels); kept && by >= 0 {
				changed = append(changed, r)
				if found[r] == nil {
					found[r] = &collision{names: map[string]bool{}}
				}
				found[r].series++
				found[r].names[m.name.name] = true
			}
		}
		other, ok := pending[h]
		if !ok {
			if len(pending) < pendingAtMost {
				pending[h] = first{s.Labels.Copy(), after.Copy(), changed}
			} else {
				full = true
			}
			return nil
		}
		if labels.Equal(other.before, s.Labels) || !labels.Equal(other.after, after) {
			return nil // the source has it twice, or only the hashes are equal
		}
		for _, r := range append(slices.Clone(changed), other.changed...) {
			found[r].shown(other.before, s.Labels, after)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if series != c.proof.Series {
		return fmt.Errorf("it had %d series at first and %d now: a proof needs something that holds still, such as pages in a folder", c.proof.Series, series)
	}
	for _, r := range c.rules {
		if f := found[r]; f != nil && (len(f.examples) > 0 || full) {
			r.collides(f)
		}
	}
	return nil
}

// collision is what is known of series that a rule makes one.
type collision struct {
	series   int64           // that lose the label and have the same labels as another one then
	names    map[string]bool // of these metrics
	examples []string
}

func (f *collision) shown(a, b, after labels.Labels) {
	if text := fmt.Sprintf("%s and %s become %s", a, b, after); len(f.examples) < examplesAtMost && !slices.Contains(f.examples, text) {
		f.examples = append(f.examples, text)
	}
}

// collides notes it: the server says nothing when it happens.
func (r *rule) collides(f *collision) {
	names := slices.Sorted(maps.Keys(f.names))
	metric := names[0]
	if len(names) > 1 {
		metric = fmt.Sprintf("%s and %d more", metric, len(names)-1)
	}
	first := r.failed == nil
	reason := fmt.Sprintf("without %s, %d series of %s become one with another: the server would keep one of them, and say nothing", r.Label, f.series, metric)
	for _, name := range names {
		r.fail(name, reason)
	}
	if first {
		r.failed.Examples = f.examples
		r.failed.Instead = fmt.Sprintf("record what is needed (record: %s:without_%s:sum, expr: sum without (%s) (%s); of counters the rate), "+
			"or aggregate at the agent before the server sees it", names[0], r.Label, r.Label, names[0])
	}
}
