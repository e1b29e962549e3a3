package verify

import (
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// behind is what of each job is selected where its rules may be in force.
type behind struct {
	selects map[*job]map[*uses.Entry]bool
	// blind are the needs of each metric that selected none of its series in the job so far.
	blind map[*job]map[string][]*uses.Entry
	// labels are those that each label job has of each metric that some need may be about.
	labels map[[3]string]bool
	// unstored are, of each metric in each job, the labels with the values that a rule lists, where
	// a need asks by the label and no series had the value so far.
	unstored map[*job]map[string]map[[2]string]bool
	// of are the jobs through whose rules the series of each label job go.
	of map[string][]*job
}

// newBehind is nil where the stored series come before the rules.
func newBehind(src inventory.Source, of map[string][]*job) *behind {
	if !inventory.BehindRules(src) {
		return nil
	}
	return &behind{
		map[*job]map[*uses.Entry]bool{},
		map[*job]map[string][]*uses.Entry{},
		map[[3]string]bool{},
		map[*job]map[string]map[[2]string]bool{},
		of,
	}
}

// note notes the labels of a series.
func (b *behind) note(x *uses.Index, label, name string, ls labels.Labels) {
	if b == nil || len(x.For(name)) == 0 {
		return
	}
	ls.Range(func(l labels.Label) {
		if !b.labels[[3]string{label, name, l.Name}] {
			b.labels[[3]string{strings.Clone(label), strings.Clone(name), strings.Clone(l.Name)}] = true
		}
	})
}

// has says whether series of the metric come by the job.
func (b *behind) has(j *job, name string) bool {
	_, ok := b.blind[j][name]
	return ok
}

// others says whether another job than that of the need, which it selects as well, has the metric
// with the label.
func (b *behind) others(n *need, name, label string) bool {
	for job, of := range b.of {
		if b.labels[[3]string{job, name, label}] && !slices.Contains(of, n.job) && matchAll(n.matchers[model.JobLabel], job) {
			return true
		}
	}
	return false
}

// observe notes which needs select a series of the job.
func (b *behind) observe(x *uses.Index, j *job, name string, ls labels.Labels) {
	if b == nil || len(j.rules) == 0 {
		return
	}
	if b.blind[j] == nil {
		b.selects[j], b.blind[j] = map[*uses.Entry]bool{}, map[string][]*uses.Entry{}
		b.unstored[j] = map[string]map[[2]string]bool{}
	}
	left, ok := b.blind[j][name]
	if !ok {
		name = strings.Clone(name)
		left = slices.Clone(x.For(name))
		b.unstored[j][name] = j.lists(name, left)
	}
	if missing := b.unstored[j][name]; len(missing) > 0 {
		ls.Range(func(l labels.Label) { delete(missing, [2]string{l.Name, canonical(l.Name, l.Value)}) })
	}
	if ok && len(left) == 0 {
		return
	}
	b.blind[j][name] = slices.DeleteFunc(left, func(e *uses.Entry) bool {
		selects := x.Selects(e, ls)
		if selects {
			b.selects[j][e] = true
		}
		return selects
	})
}

// behind says where stored series do not show what a rule takes, since it is in force there.
func (n *need) behind(s *seen) {
	if !n.spellingOnly || s.behind == nil {
		return
	}
	n.takes, n.inForce = s.takes, s.behind
	n.elsewhere = !s.behind.selects[n.job][n.Entry]
}

// speaks says whether a rule is about the metric by its name, in full or by an expression. A list
// of what stays is not about what it leaves out.
func (ru *rule) speaks(name string) bool {
	return ru.names()[name] || ru.Config.Action == relabel.Drop && slices.Contains(ru.Config.SourceLabels, model.MetricNameLabel)
}

// ofOthers says whether what a rule takes of made-up series is what other jobs have as far as
// anybody knows: the need selects series there alone and this job has none of the metric, or the
// labels that go are those of other jobs that the need selects; and the rule does not speak of the
// metric.
func (n *need) ofOthers(name string, l *loss) bool {
	theirs := len(l.labels) > 0 &&
		!slices.ContainsFunc(l.labels, func(label string) bool { return !n.inForce.others(n, name, label) })
	if l.rule.speaks(name) {
		l.always = l.always && !theirs
		return false
	}
	return n.elsewhere && !l.here || theirs
}

// judgeBehind makes up the series of one metric as without stored ones, for the rules that take
// nothing of what is stored of it: either they have nothing to take, or it is gone already.
func (n *need) judgeBehind(name string, losses map[*rule]*loss) {
	if n.takes == nil {
		return
	}
	as, made := *n, map[*rule]*loss{}
	as.spellingOnly, as.takes, as.unseen = false, nil, true
	as.judgeName(name, made)
	for ru, l := range made {
		if n.takes[ru][name] {
			continue // see judgeExtended
		}
		if n.ofOthers(name, l) {
			continue
		}
		if have := losses[ru]; have != nil {
			have.join(l)
		} else {
			losses[ru] = l
		}
	}
}

// canonical is a value as Prometheus 3 stores it.
func canonical(label, value string) string {
	if isNumeric(label) {
		return stored(value)
	}
	return value
}

// listing are the values of the source labels of what a rule lists that it drops of a metric.
func (ru *rule) listing(name string) (out [][]string) {
	c := ru.Config
	at := slices.Index(c.SourceLabels, model.MetricNameLabel)
	if c.Action != relabel.Drop || !ru.known || at >= 0 && !ru.names()[name] {
		return nil
	}
	for _, w := range ru.words.words {
		if values := split(c, w); values != nil && (at < 0 || values[at] == name) {
			for i, l := range c.SourceLabels {
				values[i] = canonical(string(l), values[i])
			}
			out = append(out, values)
		}
	}
	return out
}

// lists are the labels of a metric, with values that rules of the job list, on which the needs have
// matchers.
func (j *job) lists(name string, needs []*uses.Entry) map[[2]string]bool {
	asked := map[string]bool{}
	for _, e := range needs {
		for _, m := range e.Matchers {
			asked[m.Name] = m.Name != model.MetricNameLabel && m.Name != model.JobLabel
		}
	}
	out := map[[2]string]bool{}
	for _, ru := range j.rules {
		if !slices.ContainsFunc(ru.Config.SourceLabels, func(l model.LabelName) bool { return asked[string(l)] }) {
			continue
		}
		for _, values := range ru.listing(name) {
			for i, l := range ru.Config.SourceLabels {
				if asked[string(l)] && values[i] != "" {
					out[[2]string{string(l), values[i]}] = true
				}
			}
		}
	}
	return out
}

// judgeExtended looks for values that the need names itself and a rule lists, of which the job has
// none, where the rule takes something else that is stored of the metric: it may have been in force
// for these before it was extended.
func (n *need) judgeExtended(name string, losses map[*rule]*loss) {
	if n.takes == nil || len(n.inForce.unstored[n.job][name]) == 0 {
		return
	}
	for _, ru := range n.job.rules {
		if !n.takes[ru][name] {
			continue
		}
		for _, values := range ru.listing(name) {
			ls, lost := n.unstored(ru, name, values)
			if len(lost) == 0 {
				continue
			}
			if by, taken := n.run(ls); by == ru && len(taken) == 0 {
				if losses[ru] == nil {
					losses[ru] = &loss{rule: ru, some: true, here: true, extended: true, example: ls.String()}
				}
				losses[ru].values = union(losses[ru].values, lost)
			}
		}
	}
}

// unstored is a series with values that a rule lists, and which of them the need names and no
// stored one of the job has; none where the need does not select it.
func (n *need) unstored(ru *rule, name string, values []string) (ls labels.Labels, lost []string) {
	lb := labels.NewBuilder(labels.FromStrings(model.MetricNameLabel, name))
	if len(n.jobs) > 0 {
		lb.Set(model.JobLabel, n.jobs[0])
	}
	for i, l := range ru.Config.SourceLabels {
		label, v := string(l), values[i]
		if label == model.MetricNameLabel {
			continue
		}
		ok := matchAll(n.matchers[label], v)
		if isNumeric(label) {
			ok = slices.ContainsFunc(spellings(v), func(s string) bool { return matchAll(n.matchers[label], s) })
		}
		if !ok || label == model.JobLabel && len(n.jobs) > 0 && !slices.Contains(n.jobs, v) {
			return ls, nil
		}
		lb.Set(label, v)
		if _, names := n.parsed.pinned(n.matchers[label]); names && n.inForce.unstored[n.job][name][[2]string{label, v}] {
			lost = union(lost, []string{label + "=" + strconv.Quote(v)})
		}
	}
	return lb.Labels(), lost
}

// join adds what is lost of another metric to the same rule.
func (l *loss) join(o *loss) {
	l.all, l.some, l.older, l.stays = l.all || o.all, l.some || o.some, l.older || o.older, l.stays || o.stays
	l.maybe, l.unmentioned, l.always = l.maybe || o.maybe, l.unmentioned || o.unmentioned, l.always || o.always
	l.foreign, l.inf, l.here = l.foreign || o.foreign, l.inf || o.inf, l.here || o.here
	l.quantileBuckets, l.typed = l.quantileBuckets || o.quantileBuckets, l.typed || o.typed
	l.values, l.labels, l.metrics = union(l.values, o.values), union(l.labels, o.labels), union(l.metrics, o.metrics)
}
