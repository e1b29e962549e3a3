package verify

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
)

// byValue goes through the values that rules name which drop whatever metric has them, or metrics
// that cannot be listed, where the need lets them through and names none itself.
func (n *need) byValue(name string, fixed []string, losses map[*rule]*loss) {
	for _, ru := range n.job.rules {
		c := ru.Config
		at := slices.Index(c.SourceLabels, model.MetricNameLabel)
		if c.Action != relabel.Drop || !ru.known || len(c.SourceLabels) == 0 || len(c.SourceLabels) == 1 && at == 0 ||
			at >= 0 && (ru.words.exact() || ru.names()[name]) {
			continue // the last is for listedByRules
		}
		told := map[string]bool{}
		for _, w := range ru.words.words {
			values := split(c, w)
			if values == nil {
				continue
			}
			if at >= 0 {
				values[at] = name
			}
			ls, open := n.valued(ru, name, values, fixed)
			if open == "" || told[ls.String()] {
				continue
			}
			if by, taken := n.run(ls); by != ru || len(taken) > 0 {
				continue
			}
			l := n.of(losses, ru)
			if n.mentions(open) {
				l.maybe = true
			} else {
				l.unmentioned = true
			}
			l.example = ls.String()
			l.values = union(l.values, []string{open + "=" + strconv.Quote(ls.Get(open))})
			if told[l.example] = true; len(told) == maxListed {
				break
			}
		}
	}
}

// valued is a series with values that a rule names; open is a label of which the need names no
// value, empty where there is none such or the need does not select the series.
func (n *need) valued(ru *rule, name string, values, fixed []string) (ls labels.Labels, open string) {
	lb := labels.NewBuilder(labels.FromStrings(model.MetricNameLabel, name))
	if len(n.jobs) > 0 {
		lb.Set(model.JobLabel, n.jobs[0])
	}
	for i, l := range ru.Config.SourceLabels {
		label := string(l)
		if label == model.MetricNameLabel {
			continue
		}
		if label == model.JobLabel && len(n.jobs) > 0 && !slices.Contains(n.jobs, values[i]) || !matchAll(n.matchers[label], values[i]) {
			if values[i] = n.inPlace(ru, values, i, label); values[i] == "" {
				return ls, ""
			}
		} else if values[i] != "" && !slices.Contains(fixed, label) && !n.external[label] {
			open = label
		}
		lb.Set(label, values[i])
	}
	return lb.Labels(), open
}

// inPlace is a value of the need's own that the rule takes in the place of one that it names, where
// it takes others than those; empty where there is none.
func (n *need) inPlace(ru *rule, values []string, i int, label string) string {
	if !ru.words.open && !ru.words.dots {
		return ""
	}
	words, ok := n.parsed.pinned(n.matchers[label])
	if label == model.JobLabel && len(n.jobs) > 0 {
		words, ok = n.jobs, true
	}
	if !ok {
		words = []string{n.parsed.witness(n.matchers[label])}
	}
	tried := slices.Clone(values)
	for _, w := range words {
		if tried[i] = w; ru.Config.Regex.MatchString(strings.Join(tried, ru.Config.Separator)) {
			return w
		}
	}
	return ""
}

// unmentioned are needs that lose something to a rule by a label of which they say nothing.
type unmentioned struct {
	rule            *rule
	job             *job
	values          []string
	places, example string
	queries         int
}

// onlyUnmentioned says whether nothing goes but by a label of which the need says nothing.
func (l *loss) onlyUnmentioned() bool {
	return l.unmentioned && !l.all && !l.some && !l.older && !l.maybe && !l.inf && len(l.labels)+len(l.metrics) == 0
}

// noteUnmentioned remembers such a loss for one finding of the rule: nearly every query says
// nothing of most labels.
func (r *Result) noteUnmentioned(n *need, l *loss) {
	if n.stranger || n.Whole {
		return
	}
	at := slices.IndexFunc(r.unmentioned, func(u *unmentioned) bool { return u.rule == l.rule && u.job == n.job })
	if at < 0 {
		at = len(r.unmentioned)
		r.unmentioned = append(r.unmentioned, &unmentioned{rule: l.rule, job: n.job, example: l.example})
	}
	u := r.unmentioned[at]
	u.values = union(u.values, l.values)
	if u.queries += len(n.Uses); u.queries == len(n.Uses) {
		u.places = n.Selector() + " of " + n.Uses[0].Place()
	}
}

// tellUnmentioned makes one finding for each rule.
func (r *Result) tellUnmentioned() {
	for _, u := range r.unmentioned {
		slices.Sort(u.values)
		f := Finding{
			Severity: Doubtful, Check: CheckLost, RuleFile: u.rule.File, RuleLine: u.rule.Line, Job: u.job.Name,
			Text:     fmt.Sprintf("may lose %s of what %s without a word of that label: the first is %s", listed(u.values), selectors(u.queries), u.places),
			Advice:   "Give --scrape to know: the stored series decide. Name the metrics in the rule.",
			Examples: []string{u.example},
		}
		r.remotely(u.job, &f)
		r.add(f)
	}
}

func selectors(n int) string {
	if n == 1 {
		return "one query selects"
	}
	return fmt.Sprintf("%d queries select", n)
}
