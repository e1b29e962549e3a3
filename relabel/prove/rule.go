package prove

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// rule is a rule with what is seen of it.
type rule struct {
	*propose.Rule
	names, values map[string]bool
	chain         *Chain
	series        int64
	samples       float64
	failed        *propose.Refusal
	bad           map[string]bool // the metrics that fail
}

// compile looks at what can be seen without any series.
func (r *rule) compile() (err error) {
	switch {
	case len(r.Relabel) == 0:
		return errors.New("it has no relabel configs")
	case len(r.Metrics) == 0:
		return errors.New("it names no metrics")
	case (r.Kind == propose.Slice || r.Kind == propose.Buckets) && (r.Label == "" || len(r.Values) == 0):
		return fmt.Errorf("it is about %s and names no label or no values", r.Kind)
	case r.Kind == propose.Buckets && r.Label != model.BucketLabel:
		return fmt.Errorf("it is about buckets and takes values of %s, not of le", r.Label)
	case r.Kind == propose.Label && (r.Label == "" || r.Label == model.MetricNameLabel):
		return errors.New("it takes a label and names none that could go")
	}
	for _, m := range r.Metrics {
		if m == "up" || strings.HasPrefix(m, "scrape_") || m == "ALERTS" || m == "ALERTS_FOR_STATE" {
			return fmt.Errorf("%s never passes metric_relabel_configs: the server itself writes it", m)
		}
	}
	r.chain, err = NewChain(r.Relabel)
	return err
}

func set(list []string) map[string]bool {
	out := make(map[string]bool, len(list))
	for _, s := range list {
		out[s] = true
	}
	return out
}

// plans says whether the rule was planned to do something to the series.
func (c *check) plans(r *rule, metric string, ls labels.Labels) bool {
	if !r.names[metric] {
		return false
	}
	switch r.Kind {
	case propose.Slice:
		return r.values[ls.Get(r.Label)]
	case propose.Buckets:
		return r.values[c.edge(ls.Get(r.Label))]
	case propose.Label:
		return ls.Has(r.Label)
	}
	return true
}

// usedBy names who has a need.
func usedBy(e *uses.Entry) string {
	if len(e.Uses) == 0 {
		return e.Selector()
	}
	text := e.Uses[0].Place()
	if n := len(e.Uses) - 1; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text + " asks for " + e.Selector()
}

// fail keeps the first reason with the first examples of it, and every metric that fails; "" is all
// of them.
func (r *rule) fail(metric, reason string, examples ...string) {
	if r.failed == nil {
		r.failed = &propose.Refusal{Kind: r.Kind, Job: r.Job, Label: r.Label, Reason: reason}
	}
	if r.bad == nil {
		r.bad = map[string]bool{}
	}
	if !r.names[metric] {
		metric = ""
	}
	r.bad[strings.Clone(metric)] = true
	if r.failed.Reason != reason {
		return
	}
	for _, e := range examples {
		if len(r.failed.Examples) < examplesAtMost {
			r.failed.Examples = append(r.failed.Examples, e)
		}
	}
}

// refusal is what became of a rule that failed. It names the metrics that fail, so that the others
// can be tried without them; all of them where the rule as a whole is wrong.
func (r *rule) refusal() propose.Refusal {
	out := *r.failed
	out.Saves = r.Saves
	if out.Metrics = r.Metrics; !r.bad[""] {
		out.Metrics = slices.Sorted(maps.Keys(r.bad))
	}
	return out
}
