package policy

import (
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// allowUnselective is the value of Limits.Unselective that switches the check off.
const allowUnselective = "allow"

// unselective refuses selectors that select nothing in particular where the answer cannot be
// bounded without being wrong. Metadata is bounded instead.
type unselective struct{}

func (unselective) Name() string { return BoundUnselective }

func (unselective) Check(q *Query) error {
	id := q.Request.ID
	if q.Limits.Unselective == allowUnselective || !reads(id) {
		return nil
	}
	if inFuture(q) {
		return nil // known to be empty, whatever it selects
	}
	for _, s := range q.Selectors {
		if s.Class != Unselective {
			continue
		}
		text := SelectorText(s.Matchers)
		advice := "name a metric: " + namedText(s.Matchers) + `, or give a label a value, such as job="…"`
		return qerr.Refuse(BoundUnselective, "refuse", text, advice,
			"the selector %s names no metric and selects nothing in particular, so every shard would have to read all its series", text)
	}
	return nil
}

// maxSelectorBytes is how much of a selector an error repeats.
const maxSelectorBytes = 256

// SelectorText writes the matchers as a selector, as sentences about it have it.
func SelectorText(matchers []*labels.Matcher) string {
	return "{" + clip.Text(join(matchers, maxSelectorBytes), maxSelectorBytes) + "}"
}

// namedText is the same selector with a place for the metric's name and without what was there
// instead of one.
func namedText(matchers []*labels.Matcher) string {
	kept := make([]*labels.Matcher, 0, len(matchers))
	for _, m := range matchers {
		if m.Name != model.MetricNameLabel {
			kept = append(kept, m)
		}
	}
	if len(kept) == 0 {
		return `{__name__="…"}`
	}
	return `{__name__="…", ` + clip.Text(join(kept, maxSelectorBytes), maxSelectorBytes) + "}"
}

// join writes matchers until the text is longer than most.
func join(matchers []*labels.Matcher, most int) string {
	var b strings.Builder
	for i, m := range matchers {
		if i > 0 {
			b.WriteString(", ")
		}
		if b.WriteString(m.String()); b.Len() > most {
			break
		}
	}
	return b.String()
}
