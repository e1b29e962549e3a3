package relabel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/prove"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// Options are what a plan is made of.
type Options struct {
	// Source is what is stored. It is read at least three times: for the inventory, for the uses,
	// and for each round of the proof.
	Source inventory.Source
	// Uses is what is looked at.
	Uses *uses.Set
	// External are labels that servers add on the way out; a matcher on one of them excludes no
	// series. Nil means uses.External.
	External []string
	// Propose are the bounds of what is proposed.
	Propose propose.Options
	// Owner is who answers for the rules.
	Owner string
	// Now is when the inputs were read. There is no clock in here.
	Now time.Time
	// Replay asks every query before and after the rules too, where the source knows samples.
	Replay        bool
	ReplayOptions prove.ReplayOptions
	// Progress is told of long steps: inventory, uses, proof, sample, replay. Total is 0 where it
	// is not known. Nil for nobody.
	Progress func(step string, done, total int64)
}

// Sources that name nothing, and uses of nothing, are refused.
var (
	// ErrNoSeries is a source without any series.
	ErrNoSeries = errors.New("no series are stored there: with nothing to look at, nothing can be proven; is it the right folder or address?")
	// ErrLost is a usage log with losses and nothing beside it.
	ErrLost = errors.New("the usage log lost requests, and nothing else says what is looked at: what only these asked would go; give dashboards and rules (--dashboards, --grafana, --rules), or a --window that begins after the loss")
	// ErrNoUses is a set of uses that selects nothing.
	ErrNoUses = errors.New("no dashboard, rule or query was found that selects anything: everything would be unused; name at least one folder of dashboards or rules, or a usage log")
)

// top is how many metrics of each job stand in a plan.
const top = 20

// Make reads what is stored three times or more: to count it, to see what the uses select of it,
// and to run every proposed rule over every series. A rule that does not pass is refused, with the
// series and uses that show why, and the others are proven again without it, until all pass
// together. Then, if asked, every query is asked before and after, and a rule that touches a query
// with another answer is refused too.
//
// An error means that there is no plan; a plan without rules means that nothing could go.
func Make(ctx context.Context, o Options) (*Plan, error) {
	progress := o.Progress
	if progress == nil {
		progress = func(string, int64, int64) {}
	}
	if o.Source == nil {
		return nil, ErrNoSeries
	}
	if !selectsAnything(o.Uses) {
		return nil, ErrNoUses
	}
	if o.External == nil {
		o.External = uses.External
	}
	o.Propose.External = o.External
	o.Uses = o.Uses.Copy() // what is added here is of this plan
	if err := served(ctx, o); err != nil {
		return nil, err
	}
	if lost := o.Uses.Lost; lost.Requests > 0 && o.Uses.OnlyLogged() {
		return nil, fmt.Errorf("%s: %w", lost, ErrLost)
	}

	inv, err := inventory.Collect(ctx, o.Source, func(series int64) { progress("inventory", series, 0) })
	if err != nil {
		return nil, err
	}
	if inv.Series == 0 {
		return nil, fmt.Errorf("%s: %w", o.Source, ErrNoSeries)
	}
	exempt, err := exempted(o.Propose.Exempt, inv)
	if err != nil {
		return nil, err
	}
	o.Uses.Warnings = append(o.Uses.Warnings, exempt...)
	unrecorded := unrecorded(o.Uses, inv)
	for _, u := range unrecorded {
		o.Uses.Guess(u)
	}
	index := o.Uses.Index(o.External, inv.Known())
	o.Propose.Collisions = propose.NewCollisions(inv, o.Uses, index, o.Propose)
	if err := observe(ctx, o, inv, index, progress); err != nil {
		return nil, err
	}
	m := &maker{o: o, inv: inv, index: index, unrecorded: unrecorded, progress: progress}
	m.rules, m.refused = propose.Propose(inv, o.Uses, index, o.Propose)
	if err := m.prove(ctx); err != nil {
		return nil, err
	}
	if err := m.replay(ctx); err != nil {
		return nil, err
	}
	return m.plan(ctx)
}

// selectsAnything says whether there is one use with one selector.
func selectsAnything(set *uses.Set) bool {
	return set != nil && slices.ContainsFunc(set.Uses, func(u *uses.Use) bool { return len(u.Needs) > 0 })
}

// observe shows every series to the index, which learns what every need selects, and to what
// watches for labels that cannot go.
func observe(ctx context.Context, o Options, inv *inventory.Inventory, index *uses.Index, progress func(string, int64, int64)) error {
	var done int64
	err := o.Source.Scan(ctx, func(s *inventory.Series) error {
		index.Observe(s.Labels)
		o.Propose.Collisions.Observe(s.Labels)
		if done++; done%progressEvery == 0 {
			progress("uses", done, inv.Series)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if done != inv.Series {
		return fmt.Errorf("%s had %d series when they were counted and %d when they were looked at again: a plan is made of something that holds still; write the pages to a folder first", o.Source,
			inv.Series, done)
	}
	progress("uses", done, inv.Series)
	return nil
}

// progressEvery is after how many series progress is told.
const progressEvery = 1 << 14

// maker takes rules through their proofs.
type maker struct {
	o        Options
	inv      *inventory.Inventory
	index    *uses.Index
	progress func(string, int64, int64)
	rules    []propose.Rule
	refused  []propose.Refusal
	proof    prove.Proof

	unrecorded []uses.Unrecorded
}

// prove runs the rules over every series until all that are left pass together. Each round takes at
// least one metric out, so it ends.
func (m *maker) prove(ctx context.Context) error {
	for {
		proof, err := prove.Rules(ctx, m.o.Source, m.inv, m.index, m.rules,
			func(series int64) { m.progress("proof", series, m.inv.Series) })
		if err != nil {
			return err
		}
		m.proof = proof
		if len(proof.Failed) == 0 {
			for i, r := range m.rules {
				if r.Kind != propose.Label {
					m.rules[i].Saves = proof.Rules[r.ID] // counted, where the inventory could share samples out evenly only
				}
			}
			return nil
		}
		known := 0
		for _, r := range m.rules {
			if _, failed := proof.Failed[r.ID]; failed {
				known++
			}
		}
		if known == 0 {
			return fmt.Errorf("the proof refuses rules that are not in the plan (%d of them): this is an error of the program, please report it", len(proof.Failed))
		}
		left := m.rules[:0:0]
		for _, r := range m.rules {
			refusal, failed := proof.Failed[r.ID]
			if !failed {
				left = append(left, r)
				continue
			}
			shrunk, ok, err := m.refuse(r, refusal)
			if err != nil {
				return err
			}
			if ok {
				left = append(left, shrunk)
			}
		}
		m.rules = left
		propose.Sort(m.rules)
	}
}

// refuse notes a refusal, and returns the rule without the metrics that it is about, where it is
// about some of them only.
func (m *maker) refuse(r propose.Rule, refusal propose.Refusal) (propose.Rule, bool, error) {
	refusal.Kind, refusal.Job, refusal.Label = r.Kind, r.Job, r.Label
	about := slices.DeleteFunc(slices.Clone(refusal.Metrics), func(name string) bool { return !slices.Contains(r.Metrics, name) })
	if len(about) == 0 {
		about = r.Metrics
	}
	refusal.Metrics, refusal.Saves = about, propose.Saving{}
	for _, name := range about {
		if metric := m.inv.Metric(r.Job, name); metric != nil {
			refusal.Saves = refusal.Saves.Add(propose.Claim(metric, r.Kind, r.Label, r.Values))
		}
	}
	if refusal.Instead != "" && r.Kind == propose.Label { // written out for the metric, by what it is
		metric := m.inv.Metric(r.Job, about[0])
		refusal.Instead = propose.Aggregate(r.Job, about[0], metric.Type, r.Label)
	}
	m.refused = append(m.refused, refusal)
	return r.Without(m.inv, about)
}

// replay asks the queries before and after. A difference says which query it is, not which rule;
// all rules that touch what the query selects are refused then.
func (m *maker) replay(ctx context.Context) error {
	sampled, ok := m.o.Source.(inventory.Sampled)
	if !m.o.Replay || !ok {
		return nil
	}
	options := m.o.ReplayOptions
	if options.External == nil {
		options.External = m.o.External
	}
	if options.Progress == nil {
		options.Progress = func(done, total int64) { m.progress("replay", done, total) }
	}
	for {
		m.progress("sample", 0, 0) // its loading takes longer than its questions
		replay, err := prove.Play(ctx, sampled, m.o.Uses, m.rules, options)
		if err != nil {
			return err
		}
		m.proof.Replay = replay
		if replay == nil || len(replay.Differences) == 0 {
			return nil
		}
		blamed := map[string]prove.Difference{}
		for _, d := range slices.Backward(replay.Differences) { // the first difference of a rule is the one that is shown
			for _, r := range m.rules {
				if touches(r, d.Query) {
					blamed[r.ID] = d
				}
			}
		}
		if len(blamed) == 0 {
			d := replay.Differences[0]
			return fmt.Errorf("the answer of %s changes, and no rule of the plan touches what it selects; nothing is proven then.\nquery: %s\nbefore: %s\nafter: %s", d.Where, d.Query, d.Before, d.After)
		}
		left := m.rules[:0:0]
		for _, r := range m.rules {
			d, out := blamed[r.ID]
			if !out {
				left = append(left, r)
				continue
			}
			if _, _, err := m.refuse(r, propose.Refusal{
				Metrics: r.Metrics, Reason: "an answer changes in the replay: " + d.Where,
				Examples: []string{"query: " + d.Query, "before: " + d.Before, "after: " + d.After},
			}); err != nil {
				return err
			}
		}
		m.rules = left
		// What the others do together is another matter without them.
		if err := m.prove(ctx); err != nil {
			return err
		}
	}
}

// touches says whether the query can select something of the rule's metrics. What does not parse
// touches all that it names.
func touches(r propose.Rule, query string) bool {
	needs, _ := uses.Needs(query)
	for _, need := range needs {
		for _, name := range r.Metrics {
			if selectsName(need, name, r.Job) {
				return true
			}
		}
	}
	return false
}

// selectsName says whether the need's matchers on the name and the job let the metric pass.
func selectsName(need uses.Need, name, job string) bool {
	for _, matcher := range need.Matchers {
		if matcher.Name == "__name__" && !matcher.Matches(name) || matcher.Name == "job" && !matcher.Matches(job) {
			return false
		}
	}
	return true
}

// plan writes down what passed.
func (m *maker) plan(ctx context.Context) (*Plan, error) {
	p := &Plan{
		Version: Version, Made: m.o.Now.UTC(), Owner: m.o.Owner,
		Inputs: m.inputs(),
		Stored: propose.Save(m.inv.Series, m.inv.SamplesPerSecond),
		Rules:  m.rules, Refused: m.refused, Proof: m.proof,
		Warnings: append(append(slices.Clone(m.o.Uses.Warnings), m.index.Unread()...), m.warnings()...),
	}
	propose.SortRefusals(p.Refused)
	dropped, err := m.dropped(ctx)
	if err != nil {
		return nil, err
	}
	p.Elsewhere = elsewhere(m.inv, m.rules, dropped)
	p.Warnings = append(p.Warnings, heldByNameless(m.inv, m.index, dropped, m.o.Propose.Exempt)...)
	jobs := map[string]*Job{}
	for _, metric := range m.inv.Metrics { // sorted by job, then by name
		job := jobs[metric.Job]
		if job == nil {
			job = &Job{Job: metric.Job}
			jobs[metric.Job] = job
			p.Jobs = append(p.Jobs, Job{Job: metric.Job})
		}
		job.Metrics++
		job.Stored = job.Stored.Add(propose.Save(metric.Series, metric.SamplesPerSecond))
		goes := dropped[key{metric.Job, metric.Name}]
		job.Dropped = job.Dropped.Add(goes)
		job.Top = append(job.Top, Metric{
			Name: metric.Name, Series: metric.Series, Dropped: goes.Series,
			Uses: propose.Users(m.index, metric, m.o.External),
		})
	}
	for i := range p.Jobs {
		job := jobs[p.Jobs[i].Job]
		slices.SortStableFunc(job.Top, func(a, b Metric) int {
			if a.Series != b.Series {
				return int(min(max(b.Series-a.Series, -1), 1))
			}
			return strings.Compare(a.Name, b.Name)
		})
		job.Top = slices.Clone(job.Top[:min(len(job.Top), top)])
		p.Jobs[i] = *job
		p.Dropped = p.Dropped.Add(job.Dropped)
	}
	if p.Dropped.Series != m.proof.Dropped {
		return nil, fmt.Errorf("the proof saw %d series go and the plan adds up to %d: this is an error of the program, please report it", m.proof.Dropped, p.Dropped.Series)
	}
	p.Alarms = alarms(m.o.Uses, m.inv, m.proof, p.Stored, p.Dropped)
	if text := rulesAreMissing(m.unrecorded); text != "" {
		p.Alarms = slices.Insert(p.Alarms, 0, text)
	}
	for _, u := range m.unrecorded {
		p.Unrecorded = append(p.Unrecorded, u.Name)
	}
	p.normalise()
	return p, nil
}

// key is one metric of one job.
type key struct{ job, name string }

// dropped counts what goes of each metric. Where one rule takes series of a metric, that is the
// rule's claim, which the proof has counted. Where several do, series that two of them take are
// counted once, which takes one more look at these metrics.
func (m *maker) dropped(ctx context.Context) (map[key]propose.Saving, error) {
	out := map[key]propose.Saving{}
	several := map[key]bool{}
	byJob := map[string][]propose.Rule{}
	for _, r := range m.rules {
		if r.Kind == propose.Label {
			continue
		}
		byJob[r.Job] = append(byJob[r.Job], r)
		for _, name := range r.Metrics {
			k := key{r.Job, name}
			if _, twice := out[k]; twice {
				several[k] = true
			}
			out[k] = propose.Claim(m.inv.Metric(r.Job, name), r.Kind, r.Label, r.Values)
		}
	}
	if len(several) == 0 {
		return out, nil
	}
	chains, err := chains(m.rules)
	if err != nil {
		return nil, err
	}
	counts := map[key]int64{}
	samples := map[key]float64{}
	err = m.o.Source.Scan(ctx, func(s *inventory.Series) error {
		k := key{s.Labels.Get("job"), s.Labels.Get("__name__")}
		if !several[k] {
			return nil
		}
		if _, kept, _ := chains[k.job].Apply(s.Labels); !kept {
			counts[k]++
			if s.Interval > 0 {
				samples[k] += 1 / s.Interval.Seconds()
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for k := range several {
		out[k] = propose.Save(counts[k], samples[k])
	}
	return out, nil
}

// inputs says what was read.
func (m *maker) inputs() Inputs {
	in := Inputs{
		Sources: m.inv.Sources, BehindRules: inventory.BehindRules(m.o.Source), Uses: map[string]int{},
		Lost: m.o.Uses.Lost.Requests, Unrendered: len(m.o.Uses.Unrendered), Risk: string(m.o.Propose.Risk),
	}
	if in.Risk == "" {
		in.Risk = string(propose.Medium)
	}
	if m.o.Propose.Window > 0 {
		in.Window = m.o.Propose.Window.String()
	}
	if set := m.o.Uses; set.To.After(set.From) {
		in.From, in.To = set.From.UTC(), set.To.UTC()
		in.Covered = in.To.Sub(in.From).Round(time.Second).String()
	}
	for _, u := range m.o.Uses.Uses {
		in.Uses[string(u.Kind)]++
	}
	return in
}

// warnings names uses that keep everything, since people wonder then why nothing goes, and
// autoscalers' metrics of outside that are not known.
func (m *maker) warnings() []string {
	var out []string
	for _, u := range m.o.Uses.Uses {
		for _, need := range u.Needs {
			if selectsName(need, "\x00no name of anything", "\x00no job of anything") {
				out = append(out, fmt.Sprintf("%s selects series of every metric, and keeps them all: %s", u.Where, u.Query))
				break
			}
		}
	}
	out = append(out, keptNothing(m.o.Uses, m.index, m.inv)...)
	if text := unknownNames(m.o.Uses, m.inv); text != "" {
		out = append(out, text)
	}
	_, scaled := scaledByUnknown(m.o.Uses, m.inv)
	out = append(out, scaled...)
	if _, text := measuring(m.o.Uses); text != "" && len(m.rules) > 0 {
		out = append(out, text)
	}
	if _, ok := m.o.Source.(inventory.Sampled); m.o.Replay && !ok {
		out = append(out, fmt.Sprintf("there was no replay: %s has no samples to ask queries of", m.o.Source))
	}
	return out
}
