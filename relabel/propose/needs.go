package propose

import (
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// stored is one metric of one job with what is known of its needs.
type stored struct {
	*inventory.Metric
	// needs are those that could select series of it: of its name, and no matcher on job that
	// excludes it.
	needs []*uses.Entry
	// blind are needs of the name that select nothing today.
	blind []*uses.Entry
	// family is the native histogram that it belongs to while that is used; empty otherwise.
	family string
	exempt bool
	// recorded says that a ruler makes it: no relabelling of a scrape sees it.
	recorded bool
}

// survey finds the needs of each metric that rules may touch at all.
func survey(inv *inventory.Inventory, set *uses.Set, index *uses.Index, o Options) []*stored {
	recorded := set.Recorded()
	native := map[[2]string]bool{}
	for _, m := range inv.Metrics {
		if m.Native {
			native[[2]string{m.Job, m.Name}] = true
		}
	}
	var all []*stored
	for _, m := range inv.Metrics {
		if untouchable(m.Name) {
			continue
		}
		// A colon is for names that rules record, and for nothing else: a ruler whose rules nobody
		// gave wrote it.
		s := &stored{Metric: m, blind: Waiting(index.Blind(m.Name)), exempt: slices.Contains(o.Exempt, m.Job), recorded: recorded[m.Name] ||
			strings.Contains(m.Name, ":")}
		s.needs = applying(index.For(m.Name), m.Job, o)
		base := m.Name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if cut, ok := strings.CutSuffix(m.Name, suffix); ok && native[[2]string{m.Job, cut}] {
				base = cut
			}
		}
		if native[[2]string{m.Job, base}] {
			for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
				if len(applying(index.For(base+suffix), m.Job, o)) > 0 {
					s.family = base
				}
			}
		}
		all = append(all, s)
	}
	return all
}

// untouchable are series that never pass metric_relabel_configs: the server makes them itself.
func untouchable(name string) bool {
	return name == "up" || strings.HasPrefix(name, "scrape_") || name == "ALERTS" || name == "ALERTS_FOR_STATE"
}

// applying are the entries whose matchers on job, if any, let the job pass. No other label excludes
// a whole metric: what a label's values are may change with the next trouble, what its job is may
// not.
func applying(entries []*uses.Entry, job string, o Options) []*uses.Entry {
	var out []*uses.Entry
	for _, e := range entries {
		if !rejects(e, model.JobLabel, job, o) {
			out = append(out, e)
		}
	}
	return out
}

// Waiting are those of blind needs that name a metric. One without a name, `{job="node"}`, is about
// whatever that job has, and has nothing of this metric to wait for.
func Waiting(entries []*uses.Entry) []*uses.Entry {
	var out []*uses.Entry
	for _, e := range entries {
		if slices.ContainsFunc(e.Matchers, func(m *labels.Matcher) bool {
			return m.Name == model.MetricNameLabel && !m.Matches("") &&
				!(m.Type == labels.MatchRegexp && (m.Value == ".+" || m.Value == ".*"))
		}) {
			out = append(out, e)
		}
	}
	return out
}

// rejects says whether one of the need's matchers excludes series with this value of a label that
// the metric is known to have.
func rejects(e *uses.Entry, label, value string, o Options) bool {
	if slices.Contains(o.External, label) {
		return false
	}
	for _, m := range e.Matchers {
		if m.Name != label {
			continue
		}
		if !slices.ContainsFunc(spellings(label, value), m.Matches) {
			return true
		}
	}
	return false
}

// mentions says whether the need has a matcher on the label.
func mentions(e *uses.Entry, label string) bool {
	return slices.ContainsFunc(e.Matchers, func(m *labels.Matcher) bool { return m.Name == label })
}

// rejected says whether all needs exclude the value.
func rejected(needs []*uses.Entry, label, value string, o Options) bool {
	for _, e := range needs {
		if !rejects(e, label, value, o) {
			return false
		}
	}
	return true
}

// spellings are the forms in which versions of Prometheus store a value: 30 and 30.0 of le and
// quantile. A query is written for either.
func spellings(label, value string) []string {
	if label != model.BucketLabel && label != model.QuantileLabel {
		return []string{value}
	}
	out := []string{value}
	if normal := Edge(value); normal != value {
		out = append(out, normal)
	}
	if bare, ok := strings.CutSuffix(Edge(value), ".0"); ok && bare != value {
		out = append(out, bare)
	}
	return out
}

// Edge spells a bucket's edge as Prometheus 3 stores it: 30.0 for 30. What is no number stays as it
// is.
func Edge(le string) string {
	f, err := strconv.ParseFloat(le, 64)
	if err != nil {
		return le
	}
	switch text := strconv.FormatFloat(f, 'g', -1, 64); {
	case text == "NaN", strings.HasSuffix(text, "Inf"), strings.ContainsAny(text, "e."):
		return text
	default:
		return text + ".0"
	}
}

// latest is the use that was seen last; the first by kind and place of those without a date.
func latest(needs []*uses.Entry) *uses.Use {
	var last *uses.Use
	for _, e := range needs {
		for _, u := range e.Uses {
			if last == nil || u.Last.After(last.Last) || u.Last.Equal(last.Last) && describe(u) < describe(last) {
				last = u
			}
		}
	}
	return last
}

// describe names a use for people.
func describe(u *uses.Use) string {
	text := u.Where
	if text == "" {
		text = string(u.Kind)
	}
	if u.File != "" {
		text += " (" + u.File
		if u.Line > 0 {
			text += ":" + strconv.Itoa(u.Line)
		}
		text += ")"
	}
	return text
}

// Users is how many uses could select series of the metric, in its job.
func Users(index *uses.Index, m *inventory.Metric, external []string) int {
	seen := map[*uses.Use]bool{}
	for _, e := range applying(index.For(m.Name), m.Job, Options{External: external}.withDefaults()) {
		for _, u := range e.Uses {
			seen[u] = true
		}
	}
	return len(seen)
}
