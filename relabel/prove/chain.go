package prove

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
)

const (
	// memoEntries is how many source values are remembered for each config, memoBytes how long they
	// may be: 1 MiB and the map for each config, whatever the data are.
	memoEntries = 4096
	memoBytes   = 256
	// planNames is how many metric names are remembered for each chain.
	planNames = 1 << 16
)

// Chain is metric_relabel_configs that are run over very many series: what Prometheus' relabelling
// decided about source values is remembered, and decided once for each of them. It gives what
// relabel.ProcessBuilder gives for every series, whatever the configs. It is for one goroutine.
type Chain struct {
	steps   []*step
	plans   map[string][]planned // by metric name: the steps that can do something to a series of that name
	builder *labels.Builder
	buf     []byte
}

// planned is a step of a metric's plan. With sure, the name alone says that the series is dropped.
type planned struct {
	index int
	sure  bool
}

// step is one config with what is known of it.
type step struct {
	cfg *relabel.Config
	// known says for joined source values (drop, keep, replace) or for label names (labeldrop,
	// labelkeep) whether the config does anything.
	known map[string]bool
	// byName says that the metric's name alone decides whether it does anything; renames, that it
	// may change the name.
	byName, renames bool
	probe           *labels.Builder

	before, after []labels.Label // scratch of effect
}

// NewChain checks the configs as Prometheus does when it loads them. They are not changed, and must
// not be later.
func NewChain(configs []*relabel.Config) (*Chain, error) {
	var errs []error
	c := newChain(nil)
	for i, cfg := range configs {
		s, err := newStep(cfg)
		if err != nil {
			errs = append(errs, fmt.Errorf("metric_relabel_configs[%d]: %w", i, err))
			continue
		}
		c.steps = append(c.steps, s)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return c, nil
}

func newChain(steps []*step) *Chain {
	return &Chain{steps: steps, plans: map[string][]planned{}, builder: labels.NewBuilder(labels.EmptyLabels())}
}

func newStep(cfg *relabel.Config) (*step, error) {
	if cfg == nil {
		return nil, errors.New("empty: write an action, or take the line out")
	}
	own := *cfg
	if err := own.Validate(model.UTF8Validation); err != nil {
		return nil, err
	}
	s := &step{cfg: &own, known: map[string]bool{}, probe: labels.NewBuilder(labels.EmptyLabels())}
	onlyName := len(own.SourceLabels) == 1 && own.SourceLabels[0] == model.MetricNameLabel
	needsRegex := true
	switch own.Action {
	case relabel.Drop, relabel.Keep:
		s.byName = onlyName
	case relabel.Replace:
		s.byName = onlyName
		s.renames = own.TargetLabel == model.MetricNameLabel || strings.Contains(own.TargetLabel, "$")
	case relabel.HashMod, relabel.Lowercase, relabel.Uppercase:
		s.renames = own.TargetLabel == model.MetricNameLabel
		needsRegex = false
	case relabel.LabelMap, relabel.LabelDrop, relabel.LabelKeep:
		s.renames = true
	case relabel.DropEqual, relabel.KeepEqual:
		needsRegex = false
	default:
		return nil, fmt.Errorf("unknown action %q: Prometheus knows the actions in lower case", own.Action)
	}
	if needsRegex && own.Regex.Regexp == nil {
		return nil, fmt.Errorf("%s without a regex: only configs that were read from YAML have the default one", own.Action)
	}
	if (own.Action == relabel.LabelDrop || own.Action == relabel.LabelKeep) && !s.takes(model.MetricNameLabel) {
		s.renames = false
	}
	return s, nil
}

// Apply gives the series as it is stored behind the configs, and false where it is not. by is the
// index of the config that dropped it, or of the first one that changed it; -1 where it stays what
// it is. The answer holds memory of ls.
func (c *Chain) Apply(ls labels.Labels) (out labels.Labels, kept bool, by int) {
	by = -1
	plan := c.plan(ls.Get(model.MetricNameLabel))
	if len(plan) == 0 {
		return ls, true, -1
	}
	if plan[0].sure {
		return labels.EmptyLabels(), false, plan[0].index
	}
	lb := c.builder
	lb.Reset(ls)
	for _, p := range plan {
		if p.sure {
			return labels.EmptyLabels(), false, p.index
		}
		i, s := p.index, c.steps[p.index]
		switch s.cfg.Action {
		case relabel.Drop, relabel.Keep:
			if s.drops(c, lb) {
				return labels.EmptyLabels(), false, i
			}
			continue
		case relabel.DropEqual, relabel.KeepEqual:
			if !relabel.ProcessBuilder(lb, s.cfg) {
				return labels.EmptyLabels(), false, i
			}
			continue
		case relabel.Replace:
			if !s.matches(c, lb) {
				continue
			}
		case relabel.LabelDrop, relabel.LabelKeep:
			if !s.takesAny(lb) {
				continue
			}
		}
		if s.run(lb, by < 0) && by < 0 {
			by = i
		}
	}
	if by < 0 {
		return ls, true, -1
	}
	if out = lb.Labels(); labels.Equal(out, ls) {
		return ls, true, -1 // what one config made, another one took back
	}
	return out, true, by
}

// plan is the configs that the metric's name does not rule out. A config that may change the name
// ends what the name says about those after it.
func (c *Chain) plan(name string) []planned {
	if plan, ok := c.plans[name]; ok {
		return plan
	}
	plan := []planned{}
	named := true
	for i, s := range c.steps {
		if named && s.byName {
			if !s.actsOn(name) {
				continue
			}
			if s.cfg.Action != relabel.Replace {
				plan = append(plan, planned{i, true})
				break // nothing comes after a drop
			}
		}
		plan = append(plan, planned{index: i})
		named = named && !s.renames
	}
	if len(c.plans) >= planNames {
		clear(c.plans)
	}
	c.plans[strings.Clone(name)] = plan
	return plan
}

// touches says whether any config can do anything to series of that name.
func (c *Chain) touches(name string) bool { return len(c.plan(name)) > 0 }

// actsOn asks the relabelling itself about a series that has nothing but its name: all that a
// config with byName looks at.
func (s *step) actsOn(name string) bool {
	if s.cfg.Action == relabel.Replace {
		return s.cfg.Regex.MatchString(name)
	}
	s.probe.Reset(labels.EmptyLabels())
	s.probe.Set(model.MetricNameLabel, name)
	return !relabel.ProcessBuilder(s.probe, s.cfg)
}

// drops is for drop and keep.
func (s *step) drops(c *Chain, lb *labels.Builder) bool {
	key := s.source(c, lb)
	if v, ok := s.known[string(key)]; ok {
		return v
	}
	return s.remember(key, !relabel.ProcessBuilder(lb, s.cfg))
}

// matches is for replace: where the regular expression does not match, it does nothing.
func (s *step) matches(c *Chain, lb *labels.Builder) bool {
	key := s.source(c, lb)
	if v, ok := s.known[string(key)]; ok {
		return v
	}
	return s.remember(key, s.cfg.Regex.MatchString(string(key)))
}

// source joins the values of the source labels.
func (s *step) source(c *Chain, lb *labels.Builder) []byte {
	c.buf = c.buf[:0]
	for i, name := range s.cfg.SourceLabels {
		if i > 0 {
			c.buf = append(c.buf, s.cfg.Separator...)
		}
		c.buf = append(c.buf, lb.Get(string(name))...)
	}
	return c.buf
}

func (s *step) remember(key []byte, v bool) bool {
	if len(key) > memoBytes {
		return v
	}
	if len(s.known) >= memoEntries {
		clear(s.known)
	}
	s.known[string(key)] = v
	return v
}

// takes says whether labeldrop or labelkeep takes a label of that name away, which the relabelling
// itself says.
func (s *step) takes(name string) bool {
	if v, ok := s.known[name]; ok {
		return v
	}
	s.probe.Reset(labels.EmptyLabels())
	s.probe.Set(name, "x")
	relabel.ProcessBuilder(s.probe, s.cfg)
	return s.remember([]byte(name), s.probe.Get(name) == "")
}

func (s *step) takesAny(lb *labels.Builder) bool {
	found := false
	lb.Range(func(l labels.Label) { found = found || s.takes(l.Name) })
	return found
}

// run has Prometheus change the labels. The builder stays the same one over the whole chain:
// labelmap depends on the order in which labels were set. The answer is whether anything changed,
// where that is asked.
func (s *step) run(lb *labels.Builder, ask bool) bool {
	if !ask {
		relabel.ProcessBuilder(lb, s.cfg)
		return false
	}
	s.before = list(lb, s.before[:0])
	relabel.ProcessBuilder(lb, s.cfg)
	s.after = list(lb, s.after[:0])
	return !slices.Equal(s.before, s.after)
}

// list is what the builder holds, sorted: Builder.Labels would sort what it holds itself.
func list(lb *labels.Builder, into []labels.Label) []labels.Label {
	lb.Range(func(l labels.Label) { into = append(into, l) })
	slices.SortFunc(into, func(a, b labels.Label) int { return strings.Compare(a.Name, b.Name) })
	return into
}
