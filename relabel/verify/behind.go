package verify

import (
	"slices"
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
	// of are the jobs through whose rules the series of each label job go.
	of map[string][]*job
}

// newBehind is nil where the stored series come before the rules.
func newBehind(src inventory.Source, of map[string][]*job) *behind {
	if !inventory.BehindRules(src) {
		return nil
	}
	return &behind{map[*job]map[*uses.Entry]bool{}, map[*job]map[string][]*uses.Entry{}, map[[3]string]bool{}, of}
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
	}
	left, ok := b.blind[j][name]
	if !ok {
		name = strings.Clone(name)
		left = slices.Clone(x.For(name))
	} else if len(left) == 0 {
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
		if n.takes[ru][name] || n.ofOthers(name, l) {
			continue
		}
		if have := losses[ru]; have != nil {
			have.join(l)
		} else {
			losses[ru] = l
		}
	}
}

// join adds what is lost of another metric to the same rule.
func (l *loss) join(o *loss) {
	l.all, l.some, l.older, l.stays = l.all || o.all, l.some || o.some, l.older || o.older, l.stays || o.stays
	l.maybe, l.unmentioned, l.always = l.maybe || o.maybe, l.unmentioned || o.unmentioned, l.always || o.always
	l.foreign, l.inf, l.here = l.foreign || o.foreign, l.inf || o.inf, l.here || o.here
	l.quantileBuckets, l.typed = l.quantileBuckets || o.quantileBuckets, l.typed || o.typed
	l.values, l.labels, l.metrics = union(l.values, o.values), union(l.labels, o.labels), union(l.metrics, o.metrics)
}
