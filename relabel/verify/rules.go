package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/relabel/config"
)

// judgeRules looks at the rules of a job alone: what is wrong whatever is stored.
func (r *Result) judgeRules(j *job) {
	add := func(cr config.Rule, severity Severity, check, advice, format string, args ...any) {
		if j.remote && check == CheckNeverSeen {
			return // what the server makes itself is sent, too
		}
		r.add(Finding{
			Severity: severity, Check: check, RuleFile: cr.File, RuleLine: cr.Line, Job: j.Name,
			Text: fmt.Sprintf(format, args...), Advice: advice,
		})
	}
	for _, cr := range slices.Concat(j.Rules, j.Target) {
		if cr.Err != nil {
			add(cr, Broken, CheckRefused, "Correct the rule.", "%s", cr.Err)
		}
	}
	for _, cr := range j.Target {
		judgeTarget(cr, add)
	}
	for i, ru := range j.rules {
		c := ru.Config
		if text := longRegex(c); text != "" {
			add(ru.Rule, Doubtful, CheckLong, "", "%s", text)
		}
		for _, l := range c.SourceLabels {
			if strings.HasPrefix(string(l), "__meta_") || l == model.AddressLabel {
				add(ru.Rule, Doubtful, CheckLevel, "Set a label of the target from it in relabel_configs (relabelings), and look at that one here.", "%s "+
					"is gone when metrics are looked at: the rule sees an empty value", l)
			}
		}
		switch c.Action {
		case relabel.Drop:
			r.judgeDrop(ru, add)
		case relabel.Keep:
			add(ru.Rule, Doubtful, CheckKeep, "Prefer rules that drop by name, and hold this one against the uses at every change.", "keep is an "+
				"allow-list for all metrics of the job: whatever it does not name is lost, also what comes with the next version")
		case relabel.LabelDrop, relabel.LabelKeep:
			if !survives(model.MetricNameLabel, "some_metric", ru) {
				add(ru.Rule, Broken, CheckName, "Name __name__ in a labelkeep, and keep it out of a labeldrop.", "%s takes __name__: series without a "+
					"name are not stored", c.Action)
			}
		}
		if t := c.TargetLabel; strings.HasPrefix(t, "__") && t != model.MetricNameLabel && !strings.Contains(t, "$") &&
			c.Replacement != "" && !clearedLater(t, j.rules[i+1:]) {
			add(ru.Rule, Broken, CheckTemporary, "End the list with `action: labeldrop` and `regex: __tmp_.*`.", "label %s stays on the stored series: "+
				"only relabelling of targets takes labels that begin with __ away", t)
		}
	}
}

func longRegex(c *relabel.Config) string {
	if c.Regex.Regexp == nil {
		return ""
	}
	return config.LongRegex(c.Regex.String())
}

// judgeTarget looks at relabel_configs: there is no metric there yet.
func judgeTarget(cr config.Rule, add func(config.Rule, Severity, string, string, string, ...any)) {
	c := cr.Config
	if c == nil || !slices.Contains(c.SourceLabels, model.MetricNameLabel) {
		return
	}
	const advice = "Move the rule to metric_relabel_configs (metricRelabelings)."
	lb := labels.NewBuilder(labels.FromStrings("job", "x"))
	if c.Action == relabel.Keep && !relabel.ProcessBuilder(lb, c) {
		add(cr, Broken, CheckLevel, advice, "the rule looks at __name__ among the labels of the target, which has none: it drops every target")
		return
	}
	add(cr, Doubtful, CheckLevel, advice, "the rule looks at __name__ among the labels of the target, which has none: it sees an empty value, and no metric")
}

func (r *Result) judgeDrop(ru *rule, add func(config.Rule, Severity, string, string, string, ...any)) {
	c := ru.Config
	if len(c.SourceLabels) == 0 {
		if c.Regex.MatchString("") {
			add(ru.Rule, Broken, CheckEverything, "Say which: source_labels: [__name__] and a regex with the names.", "drop without source_labels drops "+
				"every series of the job")
		} else {
			add(ru.Rule, Doubtful, CheckNothing, "Say what it looks at: source_labels.", "drop without source_labels compares its regex with nothing and "+
				"never matches")
		}
		return
	}
	if matchesAny(c) {
		add(ru.Rule, Broken, CheckEverything, "Give it a regex with the names.", "drop %s drops every series of the job", without(c))
		return
	}
	if !ru.known {
		if slices.ContainsFunc(c.SourceLabels, func(l model.LabelName) bool { return isNumeric(string(l)) }) {
			r.unchecked(fmt.Errorf("%s:%d: the regex names more than %d combinations: whether its edges are spelled as Prometheus 3 stores them was not "+
				"looked at; split the rule", ru.File, ru.Line, maxLanguage))
		}
		return
	}
	if ru.words.dots {
		add(ru.Rule, Doubtful, CheckDot, `Write \. for a dot.`,
			"an unescaped . in the regex matches any character: it names %s and matches more", listed(dotted(c, ru.words.words)))
	}
	r.judgeLe(ru, add)
	at := slices.Index(c.SourceLabels, model.MetricNameLabel)
	var never []string
	for _, w := range ru.words.words {
		if values := split(c, w); at >= 0 && values != nil &&
			(values[at] == "up" || strings.HasPrefix(values[at], "scrape_") && !ru.words.open) {
			never = append(never, values[at])
		}
	}
	if len(never) > 0 {
		add(ru.Rule, Doubtful, CheckNeverSeen, "Take them out of the rule.", "%s never pass these rules: the server makes them itself after a "+
			"scrape", listed(never))
	}
}

// judgeLe finds buckets that are named as a page writes them (30) and not as Prometheus 3 stores
// them (30.0): since Prometheus 3 the rule drops none of them.
func (r *Result) judgeLe(ru *rule, add func(config.Rule, Severity, string, string, string, ...any)) {
	c := ru.Config
	for at, l := range c.SourceLabels {
		if !isNumeric(string(l)) {
			continue
		}
		var missed []string
		for _, w := range ru.words.words {
			values := split(c, w)
			if values == nil {
				continue
			}
			value, three := values[at], stored(values[at])
			if three == value || value == placeholder {
				continue
			}
			values[at] = three
			if !c.Regex.MatchString(strings.Join(values, c.Separator)) && !slices.Contains(missed, value) {
				missed = append(missed, value)
			}
		}
		if len(missed) == 0 {
			continue
		}
		slices.SortFunc(missed, byNumber)
		add(ru.Rule, Broken, CheckLe, fmt.Sprintf("Write %s, which matches both spellings, and each other edge likewise.", bothSpellings(missed[0])),
			"the list of %s misses what Prometheus 3 stores: %s=%s is stored as %s, and the regex is anchored: since Prometheus 3 the rule takes none of "+
				"these", l, l, listed(missed), listed(asStored(missed)))
	}
}

// bothSpellings is an expression for a value as pages and as Prometheus 3 write it.
func bothSpellings(value string) string {
	if short, ok := strings.CutSuffix(stored(value), ".0"); ok {
		return short + `(\.0)?`
	}
	return "(" + strings.ReplaceAll(value, ".", `\.`) + "|" + strings.ReplaceAll(strings.ReplaceAll(stored(value), ".", `\.`), "+", `\+`) +
		")"
}

func asStored(values []string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = stored(v)
	}
	return out
}

// split takes a word of a rule's language apart into the values of its source labels; nil where the
// number does not fit.
func split(c *relabel.Config, word string) []string {
	if len(c.SourceLabels) == 1 {
		return []string{word}
	}
	if c.Separator == "" {
		return nil
	}
	values := strings.Split(word, c.Separator)
	if len(values) != len(c.SourceLabels) {
		return nil
	}
	return values
}

// dotted are the values with a dot that a list names.
func dotted(c *relabel.Config, words []string) []string {
	var out []string
	for _, w := range words {
		for _, v := range split(c, w) {
			if strings.Contains(v, ".") && !slices.Contains(out, v) {
				out = append(out, v)
			}
		}
	}
	if len(out) == 0 {
		return []string{"a dot"}
	}
	slices.SortFunc(out, byNumber)
	return out
}

// matchesAny tries what no list would name, and nothing at all.
func matchesAny(c *relabel.Config) bool {
	odd := make([]string, len(c.SourceLabels))
	empty := make([]string, len(c.SourceLabels))
	for i := range odd {
		odd[i] = "Zz_9~ no list names this"
	}
	if !slices.Contains(c.SourceLabels, model.MetricNameLabel) {
		return c.Regex.MatchString(strings.Join(odd, c.Separator)) && c.Regex.MatchString(strings.Join(empty, c.Separator))
	}
	for i, l := range c.SourceLabels { // a name is never empty
		if l == model.MetricNameLabel {
			empty[i] = odd[i]
		}
	}
	return c.Regex.MatchString(strings.Join(odd, c.Separator)) && c.Regex.MatchString(strings.Join(empty, c.Separator))
}

func without(c *relabel.Config) string {
	if c.Regex.String() == relabel.DefaultRelabelConfig.Regex.String() {
		return "without a regex"
	}
	return "with a regex that matches everything"
}

// survives asks the relabelling whether a label is left.
func survives(label, value string, rules ...*rule) bool {
	lb := labels.NewBuilder(labels.FromStrings(label, value))
	for _, ru := range rules {
		if !relabel.ProcessBuilder(lb, ru.Config) {
			return false
		}
	}
	return lb.Get(label) != ""
}

// clearedLater says whether a later rule takes the label from every series: a labeldrop or
// labelkeep, or a replacement by nothing that looks at that label alone.
func clearedLater(label string, later []*rule) bool {
	return slices.ContainsFunc(later, func(ru *rule) bool {
		switch c := ru.Config; c.Action {
		case relabel.LabelDrop, relabel.LabelKeep:
			return !survives(label, "x", ru)
		case relabel.Replace:
			alone := len(c.SourceLabels) == 0 || len(c.SourceLabels) == 1 && string(c.SourceLabels[0]) == label
			return alone && c.TargetLabel == label && c.Replacement == "" && !survives(label, "x", ru)
		}
		return false
	})
}
