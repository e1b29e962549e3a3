package uses

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// remoteWrites reads what a server's configuration, or an object of the operator, sends on: lists
// of what is kept are uses by whoever has it there. What is not narrowed to names is told only,
// since it is all that is stored.
func (a *asker) remoteWrites(n *node) {
	for _, key := range []string{"remote_write", "remoteWrite"} {
		for _, to := range n.list(key) {
			if !to.object() || to.get("url") == nil {
				continue
			}
			kept := false
			for _, rules := range []string{"write_relabel_configs", "writeRelabelConfigs"} {
				for _, r := range to.list(rules) {
					kept = a.remoteKeep(r) || kept
				}
			}
			if !kept {
				a.set.Warnings = append(a.set.Warnings, inFile(a.file, to.line, errors.New("remote write sends on whatever is stored; who reads it there, and what, is not known: what goes here goes there too")).Error())
			}
		}
	}
}

// remoteKeep adds the names that a rule keeps, and tells whether it keeps some by name.
func (a *asker) remoteKeep(r *node) bool {
	from := r.get("source_labels")
	if from == nil {
		from = r.get("sourceLabels")
	}
	named := from != nil && slices.ContainsFunc(from.items, func(l *node) bool { return l.text() == model.MetricNameLabel })
	regex := r.get("regex")
	if !strings.EqualFold(r.text("action"), "keep") || !named || regex == nil {
		return false
	}
	u := &Use{Kind: cmp.Or(a.as, Object), File: a.file, Line: regex.first(), Where: a.title + ", remote write"}
	if len(from.items) > 1 { // the name, with the values of labels: each word can be one
		u.Needs = allWords(regex.word())
		a.set.Add(u)
		return true
	}
	matcher, err := labels.NewMatcher(labels.MatchRegexp, model.MetricNameLabel, regex.word())
	if err != nil {
		return false
	}
	need := Need{Matchers: []*labels.Matcher{matcher}, Labels: All}
	if need.everything() {
		return false
	}
	u.Needs = []Need{need}
	a.set.Add(u)
	return true
}
