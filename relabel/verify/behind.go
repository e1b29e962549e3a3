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
	// stored are the labels of each metric, in whatever job.
	stored map[[2]string]bool
}

// newBehind is nil where the stored series come before the rules.
func newBehind(src inventory.Source, stored map[[2]string]bool) *behind {
	if !inventory.BehindRules(src) {
		return nil
	}
	return &behind{map[*job]map[*uses.Entry]bool{}, map[*job]map[string][]*uses.Entry{}, stored}
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
	n.takes, n.stored = s.takes, s.behind.stored
	n.elsewhere = !s.behind.selects[n.job][n.Entry]
}

// speaks says whether a rule is about the metric by its name, in full or by an expression. A list
// of what stays is not about what it leaves out.
func (ru *rule) speaks(name string) bool {
	return ru.names()[name] || ru.Config.Action == relabel.Drop && slices.Contains(ru.Config.SourceLabels, model.MetricNameLabel)
}

// ofOthers says whether what a rule takes of made-up series is what other jobs have as far as
// anybody knows: the need selects series there alone, or the labels that go are those of other jobs
// alone, and the rule does not speak of the metric.
func (n *need) ofOthers(name string, l *loss) bool {
	theirs := len(l.labels) > 0 &&
		!slices.ContainsFunc(l.labels, func(label string) bool { return !n.stored[[2]string{name, label}] })
	if l.rule.speaks(name) {
		l.always = l.always && !theirs
		return false
	}
	return n.elsewhere || theirs
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
	l.foreign, l.inf = l.foreign || o.foreign, l.inf || o.inf
	l.quantileBuckets, l.typed = l.quantileBuckets || o.quantileBuckets, l.typed || o.typed
	l.values, l.labels, l.metrics = union(l.values, o.values), union(l.labels, o.labels), union(l.metrics, o.metrics)
}
