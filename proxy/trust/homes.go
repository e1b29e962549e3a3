package trust

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/clip"
)

// Homes are metrics that shards of a group have alone: every series of the group that has a name of
// a shard's Names is on that shard, in its time, and on no other one.
type Homes struct{ of []home }

type home struct {
	shard int // its place in the group
	names *Names
}

// NewHomes are those of a group's shards, in order, each with its Names or nil; nil where all are.
func NewHomes(shards []*Names) *Homes {
	h := &Homes{}
	for i, n := range shards {
		if n != nil {
			h.of = append(h.of, home{i, n})
		}
	}
	if len(h.of) == 0 {
		return nil
	}
	return h
}

// Hold are the shards that can hold series which match ms, while others keep to the homes: each
// name that the matchers select, given one by one, is of one shard of those whose time covers all
// that is asked about. They are none where the matchers exclude each other. known is false where
// some name has no such shard, or two, and where names are not given one by one, or may be missing.
func (h *Homes) Hold(ms []*labels.Matcher, covers func(shard int) bool) (shards []int, known bool) {
	for _, m := range ms {
		if m.Name != model.MetricNameLabel || m.Matches("") {
			continue
		}
		values := finite(m)
		if len(values) == 0 || len(values) > maxPruneValues {
			continue
		}
		if shards, known = h.homes(values, ms, covers); known {
			return shards, true
		}
	}
	return nil, false
}

// homes are the shards of those names that all matchers select.
func (h *Homes) homes(names []string, ms []*labels.Matcher, covers func(shard int) bool) (shards []int, known bool) {
	for _, name := range names {
		excludes := func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel && !m.Matches(name) }
		if slices.ContainsFunc(ms, excludes) {
			continue
		}
		at := -1
		for _, o := range h.of {
			switch {
			case !o.names.Has(name) || !covers(o.shard):
			case at >= 0:
				return nil, false
			default:
				at = o.shard
			}
		}
		if at < 0 {
			return nil, false
		}
		if !slices.Contains(shards, at) {
			shards = append(shards, at)
		}
	}
	return shards, true
}

// Others are the shards whose names a server of the shard must not have.
func (h *Homes) Others(shard int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, o := range h.of {
			if o.shard != shard && !yield(o.shard) {
				return
			}
		}
	}
}

// Promise is what a server of the shard has to keep, as far as it does not depend on time; see
// Fact. It is empty where there is nothing.
func (h *Homes) Promise(shard int) string {
	var sb strings.Builder
	for _, o := range h.of {
		if o.shard != shard {
			fmt.Fprintf(&sb, "%d %s\n", o.shard, o.names.Promise())
		}
	}
	if sb.Len() == 0 {
		return ""
	}
	return Digest(sb.String())
}

// Wrong says why a metric name breaks it on a server that is of none of those shards, which have
// these names; empty where not.
func (h *Homes) Wrong(shards []int, called func(shard int) string) func(name string) string {
	return func(name string) string {
		for _, o := range h.of {
			if !slices.Contains(shards, o.shard) {
				continue
			}
			if p := o.names.pattern(name); p != "" {
				return fmt.Sprintf("it holds the metric %s, and the pattern %q says that shard %s alone has it; write that pattern narrower",
					clip.Said(name), clip.Text(p, 80), called(o.shard))
			}
		}
		return ""
	}
}
