package prove

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

const (
	// examplesAtMost is how many series a refusal shows.
	examplesAtMost = 3
	// progressEvery is how many series are run between two reports.
	progressEvery = 1 << 16
	// savingTolerance is how far, of the whole, the claimed samples per second may be from those
	// counted: they are summed up in another order.
	savingTolerance = 1e-6
)

// Rules runs every series of the source through the rules of its job, each rule by itself and all
// together in the order of rules, and looks at what that does. The inventory is what the rules were
// made from; index is asked about every series that goes or changes. A rule that does not pass is
// in Proof.Failed, with the first reason that was found; the error is for what kept the proof from
// being made. progress, if not nil, is told how many series were run so far.
//
// A hundred rules over 10 million series take one core less than half a minute, beside what the
// source takes. See BenchmarkRules.
func Rules(ctx context.Context, src inventory.Source, inv *inventory.Inventory, index *uses.Index, rules []propose.Rule,
	progress func(series int64),
) (Proof, error) {
	c, err := newCheck(index, rules)
	if err != nil {
		return Proof{}, err
	}
	c.reserve(inv)
	began := time.Now()
	err = src.Scan(ctx, func(s *inventory.Series) error {
		c.one(s)
		if progress != nil && c.proof.Series%progressEvery == 0 {
			progress(c.proof.Series)
		}
		return nil
	})
	if err != nil {
		return Proof{}, fmt.Errorf("prove the rules: %s: %w", src, err)
	}
	if progress != nil {
		progress(c.proof.Series)
	}
	scanned := time.Since(began)
	began = time.Now()
	if err := c.collisions(ctx, src); err != nil {
		return Proof{}, fmt.Errorf("prove the rules: look for series that become one: %s: %w", src, err)
	}
	collided := time.Since(began)
	c.buckets()
	c.blind()
	c.savings()
	c.proof.Steps = []Step{
		{Name: "exact", Checked: c.proof.Series, Took: scanned}, // uses and twice are looked at in the same scan
		{Name: "collisions", Checked: int64(c.hashed), Took: collided},
		{Name: "uses", Checked: c.asked},
		{Name: "twice", Checked: c.twice},
		{Name: "savings", Checked: int64(len(c.rules))},
	}
	for _, r := range c.rules {
		c.proof.Rules[r.ID] = propose.Save(r.series, r.samples)
		if r.failed != nil {
			c.proof.Failed[r.ID] = r.refusal()
		}
	}
	return c.proof, nil
}

// check is one run of Rules.
type check struct {
	proof Proof
	index *uses.Index
	rules []*rule // in the order given
	jobs  map[string]*job
	names map[string]*name

	asked, twice int64
	hashes       []hash // of the series that could become one with another
	hashed       int
	buf          []byte
	builder      *labels.Builder
	spelled      map[string]string // of buckets' edges
}

// job is one job with its rules.
type job struct {
	name    string
	rules   []*rule
	chain   *Chain  // all of them
	owner   []*rule // of each config of the chain
	metrics map[string]*metric
}

// metric is one metric of one job.
type metric struct {
	*name
	// acting are the rules that were planned to do something to it, or whose configs could.
	acting []*rule
	// mention are, for each of acting that takes a label, the needs that depend on the label.
	mention [][]*uses.Entry
	// taken says of each le whether a rule for buckets takes it; nil for metrics without such rules
	// anywhere.
	taken map[string]bool
}

// name is one metric over all jobs.
type name struct {
	name    string
	planned []*rule
	// entries are the needs that could select it, waiting those that selected nothing so far.
	entries, waiting []*uses.Entry
	// relabelled says that a rule takes one of its labels in some job, bucketed that one takes
	// buckets.
	relabelled, bucketed bool
}

func newCheck(index *uses.Index, rules []propose.Rule) (*check, error) {
	c := &check{
		index: index, jobs: map[string]*job{}, names: map[string]*name{}, spelled: map[string]string{},
		builder: labels.NewBuilder(labels.EmptyLabels()),
		proof:   Proof{Rules: map[string]propose.Saving{}, Failed: map[string]propose.Refusal{}},
	}
	ids := map[string]bool{}
	for i := range rules {
		r := &rule{Rule: &rules[i], names: set(rules[i].Metrics), values: set(rules[i].Values)}
		if r.ID == "" || ids[r.ID] {
			return nil, fmt.Errorf("prove the rules: two rules are called %q: give each an ID of its own", r.ID)
		}
		ids[r.ID] = true
		c.rules = append(c.rules, r)
		if err := r.compile(); err != nil {
			r.fail("", err.Error())
			continue
		}
		j := c.job(r.Job)
		j.rules = append(j.rules, r)
		for range r.chain.steps {
			j.owner = append(j.owner, r)
		}
		j.chain = newChain(append(j.chain.steps, r.chain.steps...)) // they share what they remember
		for _, m := range r.Metrics {
			n := c.name(m)
			n.planned = append(n.planned, r)
			n.relabelled = n.relabelled || r.Kind == propose.Label
			n.bucketed = n.bucketed || r.Kind == propose.Buckets
		}
	}
	return c, nil
}

func (c *check) job(name string) *job {
	j := c.jobs[name]
	if j == nil {
		name = strings.Clone(name) // series are valid during the call only
		j = &job{name: name, chain: newChain(nil), metrics: map[string]*metric{}}
		c.jobs[name] = j
	}
	return j
}

func (c *check) name(metric string) *name {
	n := c.names[metric]
	if n == nil {
		n = &name{name: strings.Clone(metric)}
		c.names[n.name] = n
	}
	return n
}

func (c *check) metric(j *job, metricName string) *metric {
	m := j.metrics[metricName]
	if m != nil {
		return m
	}
	m = &metric{name: c.name(metricName)}
	n := m.name
	if n.entries == nil && (len(n.planned) > 0 || j.chain.touches(n.name)) {
		n.entries = c.index.For(n.name)
		if len(n.planned) > 0 {
			n.waiting = slices.Clone(n.entries)
		}
	}
	if n.bucketed {
		m.taken = map[string]bool{}
	}
	for _, r := range j.rules {
		if !r.names[n.name] && !r.chain.touches(n.name) {
			continue
		}
		var mention []*uses.Entry
		if r.Kind == propose.Label {
			for _, e := range n.entries {
				if e.Reads(r.Label) {
					mention = append(mention, e)
				}
			}
		}
		m.acting, m.mention = append(m.acting, r), append(m.mention, mention)
	}
	j.metrics[n.name] = m
	return m
}

// one looks at one series.
func (c *check) one(s *inventory.Series) {
	c.proof.Series++
	ls := s.Labels
	j := c.job(ls.Get(model.JobLabel))
	m := c.metric(j, ls.Get(model.MetricNameLabel))
	if len(m.waiting) > 0 {
		m.waiting = slices.DeleteFunc(m.waiting, func(e *uses.Entry) bool { return c.index.Selects(e, ls) })
	}
	if len(m.acting) == 0 {
		if m.relabelled {
			c.remember(ls)
		}
		if m.taken != nil {
			m.take(ls.Get(model.BucketLabel), false)
		}
		return
	}
	var (
		drops   *rule // the first that drops it by itself
		changes *rule
		bucket  bool
	)
	for i, r := range m.acting {
		out, kept, by := r.chain.Apply(ls)
		planned := c.plans(r, m.name.name, ls)
		switch {
		case !kept && (!planned || r.Kind == propose.Label):
			r.fail(m.name.name, "it takes series that it was not planned to take", ls.String())
		case kept && planned && r.Kind != propose.Label:
			r.fail(m.name.name, "it leaves series that it was planned to take", ls.String())
		case kept && planned && !labels.Equal(out, c.without(ls, r.Label)):
			r.fail(m.name.name, "it does not take the label away, or changes more than that: "+out.String(), ls.String())
		case kept && !planned && by >= 0:
			r.fail(m.name.name, "it changes series that it was not planned to change: "+out.String(), ls.String())
		}
		switch {
		case !kept:
			if drops == nil {
				drops = r
			}
			// of a job that loses the whole metric, nothing is left to be wrong
			bucket = bucket || r.Kind == propose.Buckets || r.Kind == propose.Names
			r.series++
			if s.Interval > 0 {
				r.samples += 1 / s.Interval.Seconds()
			}
			c.selects(r, m.name, ls)
		case by >= 0:
			if changes == nil {
				changes = r
			}
			c.depends(r, m.name.name, m.mention[i], ls, out)
		}
	}
	if m.taken != nil {
		m.take(ls.Get(model.BucketLabel), bucket)
	}
	c.together(j, m, ls, drops, changes)
}

// together looks at the rules of the job one after the other, as Prometheus runs them.
func (c *check) together(j *job, m *metric, ls labels.Labels, drops, changes *rule) {
	out, kept, by := j.chain.Apply(ls)
	switch {
	case kept && drops != nil:
		drops.fail(m.name.name, "the rules above it change series so that it does not take them", ls.String())
	case !kept && drops == nil:
		j.owner[by].fail(m.name.name, "after the rules above it, it takes series that it was not planned to take", ls.String())
	case kept && by >= 0 && changes == nil:
		j.owner[by].fail(m.name.name, "after the rules above it, it changes series that it was not planned to change: "+out.String(), ls.String())
	}
	if !kept {
		c.proof.Dropped++
		return
	}
	if by >= 0 {
		c.proof.Changed++
		c.twice++
		if again, still, by2 := j.chain.Apply(out); !still || by2 >= 0 {
			j.owner[max(by2, 0)].fail(m.name.name, fmt.Sprintf("run twice it does more than run once: %s becomes %s", out, shown(again, still)), ls.String())
		}
	}
	if by >= 0 || m.relabelled {
		c.remember(out)
	}
}

func shown(ls labels.Labels, kept bool) string {
	if !kept {
		return "nothing"
	}
	return ls.String()
}

// edge is propose.Edge, remembered.
func (c *check) edge(le string) string {
	out, ok := c.spelled[le]
	if !ok {
		if len(c.spelled) >= memoEntries {
			clear(c.spelled)
		}
		le = strings.Clone(le)
		out = propose.Edge(le)
		c.spelled[le] = out
	}
	return out
}

// without is the series without a label.
func (c *check) without(ls labels.Labels, label string) labels.Labels {
	c.builder.Reset(ls)
	return c.builder.Del(label).Labels()
}

// selects: nothing that a use selects goes, but buckets that only quantiles are made of, where a
// rule says so.
func (c *check) selects(r *rule, of *name, ls labels.Labels) {
	if r.bad[of.name] {
		return // one reason for a metric is enough
	}
	for _, e := range of.entries {
		if e.Quantile && r.Kind == propose.Buckets && r.QuantileError > 0 {
			continue
		}
		c.asked++
		if c.index.Selects(e, ls) {
			r.fail(of.name, "it takes series that are used: "+usedBy(e), ls.String())
			return
		}
	}
}

// depends: no use that selects the series, with the label or without it, looks at the label.
func (c *check) depends(r *rule, metric string, mention []*uses.Entry, before, after labels.Labels) {
	if r.bad[metric] {
		return
	}
	for _, e := range mention {
		c.asked++
		if c.index.Selects(e, before) || c.index.Selects(e, after) {
			r.fail(metric, fmt.Sprintf("its label %s is used: %s", r.Label, usedBy(e)), before.String())
			return
		}
	}
}

// blind: a need that could be about the metric and selects no series of it waits for something. It
// keeps the metric whole.
func (c *check) blind() {
	for _, r := range c.rules {
		for _, m := range r.Metrics {
			n := c.names[m]
			if n == nil {
				continue // the rule was refused before any series was looked at
			}
			for _, e := range propose.Waiting(n.waiting) {
				r.fail(m, fmt.Sprintf("%s is asked for series that are not there now: %s", m, usedBy(e)))
			}
		}
	}
}

// savings are what the rules claim. Of names the inventory knows the samples; of values of a label
// it shares those of the metric out evenly, and what was counted here is the better number.
func (c *check) savings() {
	for _, r := range c.rules {
		if r.series != r.Saves.Series {
			r.fail("", fmt.Sprintf("it claims to save %d series, and takes %d", r.Saves.Series, r.series))
		}
		if r.Kind == propose.Names && math.Abs(r.samples-r.Saves.SamplesPerSecond) > savingTolerance*max(r.samples,
			r.Saves.SamplesPerSecond) {
			r.fail("", fmt.Sprintf("it claims to save %g samples a second, and takes %g", r.Saves.SamplesPerSecond, r.samples))
		}
	}
}
