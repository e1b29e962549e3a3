package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// seen is what stored series have shown.
type seen struct {
	index   *uses.Index
	entries map[*uses.Entry]bool        // select something
	jobs    map[*job]bool               // have series
	stays   map[*job]map[[2]string]bool // name and edge of the buckets that the rules leave
	// takes are the metrics of which each rule takes something that is stored, so that it is not in
	// force where that is: what it takes is all there.
	takes map[*rule]map[string]bool
	// behind are the jobs in which each need selects something, where the rules may be in force;
	// nil elsewhere.
	behind *behind
}

// took notes that a rule takes something of a stored metric.
func (s *seen) took(ru *rule, name string) {
	if s.takes[ru][name] {
		return
	}
	if s.takes[ru] == nil {
		s.takes[ru] = map[string]bool{}
	}
	s.takes[ru][strings.Clone(name)] = true
}

// taken is what one rule takes of one need.
type taken struct {
	entry *uses.Entry
	job   *job
	rule  *rule
	// label is what the series lose; empty where the series go.
	label string
	// guess says that nothing but a label job that no other job has ties the series to this one,
	// which may have series of any, and that the rule does not ask for that job.
	guess bool
	// typed says that the metric is one that a text box in the name was not saved with.
	typed bool
}

// count is how much of it.
type count struct {
	series   int64
	buckets  bool // all of them are buckets, none +Inf
	examples []string
}

func (c *count) add(ls labels.Labels) {
	bucket := ls.Get(labels.BucketLabel)
	c.buckets = (c.series == 0 || c.buckets) && bucket != "" && bucket != "+Inf"
	c.series++
	if len(c.examples) < maxExamples {
		c.examples = append(c.examples, ls.String())
	}
}

// judgeStored runs every stored series through the rules of its job.
func (r *Result) judgeStored(ctx context.Context, o Options, jobs []*job, set *uses.Set, facts *facts) (*seen, error) {
	known, present := facts.labels, facts.jobs
	of := assign(distinct(jobs), present)
	s := &scan{
		seen: &seen{
			index:   set.Index(o.External, func(metric, label string) bool { return known[[2]string{metric, label}] }),
			entries: map[*uses.Entry]bool{}, jobs: map[*job]bool{}, stays: map[*job]map[[2]string]bool{},
			takes: map[*rule]map[string]bool{}, behind: newBehind(o.Source, of),
		},
		of:     of,
		losses: map[taken]*count{}, merged: map[taken]*count{}, more: map[taken]*count{}, hashes: map[*job]map[uint64]struct{}{},
		names: map[string]bool{}, recorded: set.Recorded(),
	}
	err := o.Source.Scan(ctx, func(series *inventory.Series) error {
		if r.Series++; r.Series%seriesPerCtx == 0 {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if o.Progress != nil {
				o.Progress(r.Series)
			}
		}
		s.series(series.Labels)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for name := range s.names {
		blind := map[*uses.Entry]bool{}
		for _, e := range s.index.Blind(name) {
			blind[e] = true
		}
		for _, e := range s.index.For(name) {
			if !blind[e] {
				s.entries[e] = true
			}
		}
	}
	s.tell(r)
	for _, name := range sortedNames(present) {
		if !slices.ContainsFunc(s.of[name], func(j *job) bool { return !j.remote }) {
			r.Warnings = append(r.Warnings, fmt.Sprintf("job %q has stored series and no rules here: they were taken to stay", name))
		}
	}
	return s.seen, nil
}

// facts are which stored metric has which label, which jobs there are, and what names tell.
type facts struct {
	labels  map[[2]string]bool
	jobs    map[string]bool
	scraped uses.Scraped
}

// readFacts reads them; of no source they are empty.
func readFacts(ctx context.Context, src inventory.Source) (*facts, error) {
	f := &facts{labels: map[[2]string]bool{}, jobs: map[string]bool{}}
	if src == nil {
		return f, nil
	}
	err := src.Scan(ctx, func(s *inventory.Series) error {
		name := s.Labels.Get(model.MetricNameLabel)
		f.scraped.Add(name, s.Type)
		s.Labels.Range(func(l labels.Label) {
			if key := [2]string{name, l.Name}; !f.labels[key] {
				f.labels[[2]string{strings.Clone(name), strings.Clone(l.Name)}] = true
			}
		})
		if job := s.Labels.Get(model.JobLabel); !f.jobs[job] {
			f.jobs[strings.Clone(job)] = true
		}
		return nil
	})
	return f, err
}

// assign says whose rules the series of a label job go through. A monitor whose service nobody
// gave, and has no stored series under its own names, gets those that nobody else has: its rules
// name what they take, and what they take of others is at worst a finding too many. So does a job
// that lets its series have any label, honor_labels for one, beside those of its own label.
func assign(jobs []*job, present map[string]bool) map[string][]*job {
	of := map[string][]*job{}
	var homeless []*job
	for _, j := range jobs {
		found := false
		for _, name := range j.names {
			if present[name] && !slices.Contains(of[name], j) {
				of[name] = append(of[name], j)
				found = true
			}
		}
		if j.open && (!found || j.why != "") {
			homeless = append(homeless, j)
		}
	}
	for name := range present {
		if len(of[name]) == 0 {
			of[name] = homeless
		}
		for _, j := range jobs {
			if j.remote {
				of[name] = append(slices.Clone(of[name]), j)
			}
		}
	}
	return of
}

type scan struct {
	*seen
	of                   map[string][]*job
	losses, merged, more map[taken]*count
	hashes               map[*job]map[uint64]struct{}
	names                map[string]bool
	recorded             map[string]bool
	guess                bool // the series at hand has none of the job's own labels job
}

func (s *scan) series(ls labels.Labels) {
	name := ls.Get(model.MetricNameLabel)
	if !s.names[name] {
		s.names[strings.Clone(name)] = true
	}
	s.index.Observe(ls)
	label := ls.Get(model.JobLabel)
	s.behind.note(s.index, label, name, ls)
	for _, j := range s.of[label] {
		s.jobs[j] = s.jobs[j] || !neverSeen(name)
		s.behind.observe(s.index, j, name, ls)
		if j.neverScraped(name, s.recorded) {
			continue
		}
		s.guess = j.why != "" && !slices.Contains(j.labels, label)
		out, kept, by := j.chain.Apply(ls)
		if kept {
			s.leaves(j, name, out)
		}
		if by < 0 {
			continue
		}
		if !kept {
			s.took(j.rules[by], name)
			s.dropped(j, j.rules[by], name, ls)
			continue
		}
		s.changed(j, name, ls, out)
	}
}

// guesses says whether what the rule takes of the series at hand is a guess: see taken.
func (s *scan) guesses(j *job, ru *rule, ls labels.Labels) bool {
	return s.guess && !j.asksForOther(ru, ls.Get(model.MetricNameLabel), ls.Get(model.JobLabel))
}

// leaves notes a bucket, or a quantile, that is still there after the rules.
func (s *scan) leaves(j *job, name string, out labels.Labels) {
	edge := out.Get(labels.BucketLabel)
	if edge == "" {
		edge = out.Get(model.QuantileLabel)
	}
	if edge == "" || len(j.rules) == 0 || s.stays[j][[2]string{name, edge}] {
		return
	}
	if s.stays[j] == nil {
		s.stays[j] = map[[2]string]bool{}
	}
	s.stays[j][[2]string{strings.Clone(name), strings.Clone(edge)}] = true
}

// changed is a series that loses a label, or has another value there.
func (s *scan) changed(j *job, name string, ls, out labels.Labels) {
	var first *rule
	ls.Range(func(l labels.Label) {
		if out.Get(l.Name) == l.Value {
			return
		}
		ru := j.taker(ls, l.Name)
		s.took(ru, name)
		if first == nil {
			first = ru
		}
		for _, e := range s.index.For(name) {
			if e.Reads(l.Name) && s.index.Selects(e, ls) {
				counted(s.losses, taken{e, j, ru, strings.Clone(l.Name), s.guesses(j, ru, ls), onlyTyped(e, name)}).add(ls)
			}
		}
	})
	if first == nil {
		return // labels came, none went: what was apart stays apart
	}
	if s.hashes[j] == nil {
		s.hashes[j] = map[uint64]struct{}{}
	}
	h := out.Hash()
	if _, again := s.hashes[j][h]; again {
		counted(s.merged, taken{job: j, rule: first, guess: s.guesses(j, first, ls)}).add(ls)
	}
	s.hashes[j][h] = struct{}{}
}

// neverScraped says whether series of this name are recorded, by a rule that was given or, as their
// colon says, by another one: a rule of a scraped job cannot take them. It can where the job keeps
// the labels of another server, and a name that a rule of the job spells out was meant.
func (j *job) neverScraped(name string, recorded map[string]bool) bool {
	if j.remote {
		return false
	}
	if neverSeen(name) {
		return true
	}
	if j.Honors {
		return false
	}
	if recorded[name] {
		return true
	}
	if !strings.Contains(name, ":") {
		return false
	}
	_, named := slices.BinarySearch(j.ruleNames(), name)
	return !named
}

// neverSeen are the series that the server makes itself.
func neverSeen(name string) bool {
	switch name {
	case "up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_samples_post_metric_relabeling", "scrape_series_added",
		"scrape_timeout_seconds",
		"scrape_sample_limit", "scrape_body_size_bytes", "ALERTS", "ALERTS_FOR_STATE":
		return true
	}
	return false
}

func (s *scan) dropped(j *job, ru *rule, name string, ls labels.Labels) {
	for _, e := range s.index.For(name) {
		if s.index.Selects(e, ls) {
			counted(s.losses, taken{entry: e, job: j, rule: ru, guess: s.guesses(j, ru, ls), typed: onlyTyped(e, name)}).add(ls)
		}
	}
	if !ru.known || !ru.words.dots || ru.words.open {
		return
	}
	values := make([]string, len(ru.Config.SourceLabels))
	for i, l := range ru.Config.SourceLabels {
		values[i] = ls.Get(string(l))
	}
	if _, named := slices.BinarySearch(ru.words.words, strings.Join(values, ru.Config.Separator)); !named {
		counted(s.more, taken{job: j, rule: ru, guess: s.guesses(j, ru, ls)}).add(ls)
	}
}

// onlyTyped says whether a need is about a metric only where somebody types its name, or a part of
// it, into a text box that was saved with another text.
func onlyTyped(e *uses.Entry, name string) bool {
	return e.Saved != nil && !slices.Contains(e.Saved, name)
}

func counted(m map[taken]*count, key taken) *count {
	if m[key] == nil {
		m[key] = &count{}
	}
	return m[key]
}

// tell makes the findings. Their order comes later.
func (s *scan) tell(r *Result) {
	for t, c := range s.losses {
		surely := t
		if surely.typed = false; t.typed && s.losses[surely] != nil {
			continue // it is told of what the box was saved with
		}
		f := t.finding(CheckLost, c)
		selector := t.entry.Selector()
		switch {
		case t.label != "":
			f.Text = fmt.Sprintf("needs label %s of %s, which the rule takes from %d stored series, such as %s", t.label, selector, c.series, c.examples[0])
			f.Advice = "Leave the label where this query needs it, or change the query."
		case t.entry.Quantile && c.buckets:
			f.Severity = Doubtful
			f.Text = fmt.Sprintf("works out quantiles of %s with fewer buckets: the rule takes %d stored series, such as %s", selector, c.series, c.examples[0])
			f.Advice = "Its answers change within the width of a bucket."
		default:
			f.Text = fmt.Sprintf("loses %d stored series of %s, such as %s", c.series, selector, c.examples[0])
			f.Advice = "Take them out of the rule, or remove the query if nobody needs it."
		}
		t.doubt(&f)
		if t.typed {
			doubtTyped(&f, "")
		}
		r.remotely(t.job, &f)
		if t.entry.Absent {
			f.Text += "; the query asks for what is absent, and would find that"
		}
		r.tellUses(f, t.entry)
	}
	for t, c := range s.merged {
		f := t.finding(CheckMerged, c)
		f.Text = fmt.Sprintf("%d stored series become equal to another one without their label, such as %s: one of them is stored, and no error is seen "+
			"anywhere", c.series, c.examples[0])
		f.Advice = "Sum them up by a recording rule or at the agent instead."
		t.doubt(&f)
		r.remotely(t.job, &f)
		r.add(f)
	}
	for t, c := range s.more {
		f := t.finding(CheckDot, c)
		f.Text = fmt.Sprintf("an unescaped . in the regex takes %d stored series that it does not name, such as %s", c.series, c.examples[0])
		f.Advice = `Write \. for a dot.`
		t.doubt(&f)
		r.remotely(t.job, &f)
		r.add(f)
	}
}

// doubt makes a warning of a finding about series that may have come by another way.
func (t taken) doubt(f *Finding) {
	if t.guess {
		f.Severity = Doubtful
		f.Text = "may lose something, if series whose label job no other job here has come from this one, as they may, since " + t.job.why + ": it " + f.Text
	}
}

func (t taken) finding(check string, c *count) Finding {
	return Finding{
		Severity: Broken, Check: check, RuleFile: t.rule.File, RuleLine: t.rule.Line, Job: t.job.Name, Series: c.series,
		Examples: c.examples,
	}
}
