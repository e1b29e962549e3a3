package verify

import (
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
)

// metricNames are the names that the need can mean: its own where they can be listed, else those of
// the rules that its matchers let through.
func (n *need) metricNames() []string {
	ms := n.matchers[model.MetricNameLabel]
	if words, ok := n.parsed.pinned(ms); ok {
		return words
	}
	names := n.job.ruleNames()
	for _, m := range ms {
		if prefix := m.Prefix(); m.Type == labels.MatchRegexp && prefix != "" { // there may be thousands of queries, and of names
			from, _ := slices.BinarySearch(names, prefix)
			names = names[from:]
			to := 0
			for to < len(names) && strings.HasPrefix(names[to], prefix) {
				to++
			}
			names = names[:to]
		}
	}
	var out []string
	for _, name := range names {
		if matchAll(ms, name) {
			out = append(out, name)
		}
	}
	return out
}

// ruleNames are the metrics that the job's rules name in full, sorted.
func (j *job) ruleNames() []string {
	if j.named == nil {
		j.named = []string{}
		for _, ru := range j.rules {
			for name := range ru.names() {
				j.named = append(j.named, name)
			}
		}
		slices.Sort(j.named)
		j.named = slices.Compact(j.named)
	}
	return j.named
}

// names are the metrics that the rule names in full.
func (ru *rule) names() map[string]bool {
	if ru.named != nil {
		return ru.named
	}
	ru.named = map[string]bool{}
	at := slices.Index(ru.Config.SourceLabels, model.MetricNameLabel)
	if at < 0 || !ru.known {
		return ru.named
	}
	for _, w := range ru.words.words {
		values := split(ru.Config, w)
		switch {
		case values == nil:
			ru.odd = true
		case values[at] != "" && (values[at] != placeholder || !ru.words.open):
			ru.named[values[at]] = true
		}
	}
	return ru.named
}

// jobs are the labels job for which the rule asks beside the name of the metric, or whatever that
// is.
func (ru *rule) jobs(name string) []string {
	if ru.asks == nil {
		ru.asks = map[string][]string{}
		of := slices.Index(ru.Config.SourceLabels, model.JobLabel)
		at := slices.Index(ru.Config.SourceLabels, model.MetricNameLabel)
		if of < 0 || !ru.known {
			return nil
		}
		for _, w := range ru.words.words {
			values := split(ru.Config, w)
			if values == nil || values[of] == "" || values[of] == placeholder && ru.words.open {
				continue
			}
			metric := ""
			if at >= 0 {
				metric = values[at]
			}
			ru.asks[metric] = union(ru.asks[metric], values[of:of+1])
		}
	}
	if slices.Contains(ru.Config.SourceLabels, model.MetricNameLabel) {
		return ru.asks[name]
	}
	return ru.asks[""]
}

// jobsOf are the values of the label job for which series of the metric are made up: the job's own
// and, where series may have any, those for which its rules ask; only those that the need lets
// through. pinned are those that the need names, if ok.
func (n *need) jobsOf(name string, pinned []string, ok bool) ([]string, bool) {
	var asked []string
	if n.job.foreign {
		for _, ru := range n.job.rules {
			asked = union(asked, ru.jobs(name))
		}
	}
	ms := n.matchers[model.JobLabel]
	asked = slices.DeleteFunc(asked, func(v string) bool { return !matchAll(ms, v) })
	switch {
	case len(n.jobs) > 0:
		return union(slices.Clone(n.jobs), asked), true
	case len(n.job.labels) > 0 && n.job.why == "":
		return asked, true
	case ok || len(asked) == 0:
		return pinned, ok
	}
	if v := n.parsed.witness(ms); v != "" {
		asked = union(asked, []string{v})
	}
	return asked, true
}

// foreign says whether the rule asks for the job of a made-up series, and that is none of the
// entry's own.
func (n *need) foreign(ru *rule, name string, combination map[string]string) bool {
	v := combination[model.JobLabel]
	return v != "" && n.job.asksForOther(ru, name, v)
}

// asksForOther says whether the rule asks for series of this label job, which is none of the
// entry's own.
func (j *job) asksForOther(ru *rule, name, label string) bool {
	return j.foreign && !slices.Contains(j.labels, label) && slices.Contains(ru.jobs(name), label)
}

// touches says whether a rule can do anything to series of that name, as far as the name tells.
func (j *job) touches(name string) bool {
	if v, ok := j.touched[name]; ok {
		return v
	}
	v := slices.ContainsFunc(j.rules, func(ru *rule) bool { return ru.touches(name) })
	if j.touched == nil {
		j.touched = map[string]bool{}
	}
	j.touched[name] = v
	return v
}

func (ru *rule) touches(name string) bool {
	c := ru.Config
	alone := len(c.SourceLabels) == 1 && c.SourceLabels[0] == model.MetricNameLabel
	switch {
	case alone && (c.Action == relabel.Drop || c.Action == relabel.Replace):
		return c.Regex.MatchString(name)
	case alone && c.Action == relabel.Keep:
		return !c.Regex.MatchString(name)
	case (c.Action == relabel.Drop || c.Action == relabel.Replace) && slices.Contains(c.SourceLabels, model.MetricNameLabel) &&
		ru.known && ru.words.exact() && c.Separator != "":
		return ru.names()[name] || ru.odd
	}
	return true
}

// taker is the rule that takes the label from a series, or changes it. What it is for one series of
// a metric it is taken to be for all.
func (j *job) taker(ls labels.Labels, label string) *rule {
	name := ls.Get(model.MetricNameLabel)
	if ru, ok := j.takers[[2]string{name, label}]; ok {
		return ru
	}
	lb, was := labels.NewBuilder(ls), ls.Get(label)
	var taker *rule
	for _, ru := range j.rules {
		relabel.ProcessBuilder(lb, ru.Config)
		if taker = ru; lb.Get(label) != was {
			break
		}
	}
	if j.takers == nil {
		j.takers = map[[2]string]*rule{}
	}
	j.takers[[2]string{strings.Clone(name), strings.Clone(label)}] = taker
	return taker
}
