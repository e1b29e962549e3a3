package cluster

import (
	"errors"
	"fmt"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
)

// relabelling is one job's metric_relabel_configs in a back-fill. A nil one
// keeps everything as it is.
type relabelling struct {
	configs []*relabel.Config
	// picks: no rule changes a label, so that what the first label of a series
	// is can be said before the rules are asked.
	picks   bool
	builder *labels.Builder
	scratch labels.ScratchBuilder
}

// compileRules checks and copies the rules of all jobs: callers may use theirs
// in several back-fills at a time, and checking writes to them.
func (j *job) compileRules() error {
	if j.o.MetricRelabel == nil {
		return nil
	}
	var errs []error
	for i := range j.m.targets {
		name := j.m.targets[i].Job
		if _, ok := j.rules[name]; ok {
			continue
		}
		j.rules[name] = nil
		given := j.o.MetricRelabel(name)
		if len(given) == 0 {
			continue
		}
		r := &relabelling{picks: true, builder: labels.NewBuilder(labels.EmptyLabels()), scratch: labels.NewScratchBuilder(24)}
		for n, c := range given {
			own := *c
			if err := own.Validate(model.UTF8Validation); err != nil {
				errs = append(errs, fmt.Errorf("metric_relabel(%s)[%d]: %w", name, n, err))
			}
			switch own.Action {
			case relabel.Keep, relabel.Drop, relabel.KeepEqual, relabel.DropEqual:
			default:
				r.picks = false
			}
			r.configs = append(r.configs, &own)
		}
		j.rules[name] = r
	}
	return errors.Join(errs...)
}

func (r *relabelling) keepsNames() bool { return r == nil || r.picks }

// apply gives the series the labels it is stored with and reports whether it
// is stored at all.
func (r *relabelling) apply(s *series, extra labels.Labels) bool {
	if r == nil {
		return true
	}
	r.builder.Reset(storedLabels(s, extra, &r.scratch))
	if !relabel.ProcessBuilder(r.builder, r.configs...) {
		return false
	}
	s.stays, s.relabelled = r.builder.Labels(), true
	return !s.stays.IsEmpty()
}
