package propose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// MaxValueBytes is the longest value of a label by which a slice is taken: longer ones would fill a
// configuration, and are rarely worth it.
const MaxValueBytes = 256

// Propose says what may go, and what may not though somebody would think so. The index must have
// observed every series of the inventory (uses.Index.Observe): needs that select nothing today are
// known only then. Rules are ranked, the one that saves the most series first; those that take a
// label come last, so that a label never goes before a rule has looked at it.
//
// What stands in the plan is what would be proposed with the largest risk, cut at Options.Risk:
// what lies beyond is refused with the risk that it needs.
func Propose(inv *inventory.Inventory, set *uses.Set, index *uses.Index, o Options) ([]Rule, []Refusal) {
	o = o.withDefaults()
	p := newProposer(inv, set, index, o)
	for _, s := range p.all {
		p.names(s)
		p.slices(s)
		p.label(s)
	}
	p.buckets()
	return p.rules()
}

// proposer collects what goes of each metric, and puts metrics with equal shares into one rule.
type proposer struct {
	inv     *inventory.Inventory
	o       Options
	looked  string // what was read, for the evidence
	all     []*stored
	target  map[[2]string]bool
	shares  map[shareKey][]*stored
	errors  map[shareKey]float64
	refused []Refusal
	merging []Refusal // labels without which series become one
	// universe are the names of all metrics of a job, those that no rule may touch among them.
	universe map[string][]string
}

func newProposer(inv *inventory.Inventory, set *uses.Set, index *uses.Index, o Options) *proposer {
	p := &proposer{
		inv: inv, o: o, looked: set.Looked(o.Window), all: survey(inv, set, index, o), target: targetLabels(inv),
		shares: map[shareKey][]*stored{}, errors: map[shareKey]float64{}, universe: map[string][]string{},
	}
	for _, m := range inv.Metrics {
		p.universe[m.Job] = append(p.universe[m.Job], m.Name)
	}
	return p
}

// shareKey is what metrics of one rule have in common.
type shareKey struct {
	job    string
	kind   Kind
	risk   Risk
	label  string
	values string // joined by a byte that is no UTF-8
}

const joiner = "\xff"

func (k shareKey) list() []string {
	if k.kind == Names || k.kind == Label {
		return nil
	}
	return strings.Split(k.values, joiner)
}

// take notes that a share of a metric goes, if that is worth it.
func (p *proposer) take(s *stored, kind Kind, risk Risk, label string, values []string) (shareKey, bool) {
	key := shareKey{job: s.Job, kind: kind, risk: risk, label: label, values: strings.Join(values, joiner)}
	worth := Claim(s.Metric, kind, label, values).Series
	if kind == Label {
		worth = s.Labels[label].Series
	}
	if worth < p.o.MinSaving {
		return key, false
	}
	p.shares[key] = append(p.shares[key], s)
	return key, true
}

// names takes a metric that nothing selects.
func (p *proposer) names(s *stored) {
	if s.exempt || len(s.needs) > 0 {
		return
	}
	if s.recorded { // it saves nothing here, whatever there is of it
		p.refused = append(p.refused, Refusal{
			Kind: Names, Job: s.Job, Metrics: []string{s.Name},
			Reason: "rules record it, and what a ruler writes no relabelling of a scrape sees", Instead: "delete the recording rule, if nobody needs what it records",
		})
		return
	}
	if p.goes(s) {
		p.take(s, Names, Low, "", nil)
		return
	}
	r := Refusal{Kind: Names, Job: s.Job, Metrics: []string{s.Name}, Saves: Claim(s.Metric, Names, "", nil)}
	switch {
	case r.Saves.Series < p.o.MinSaving:
		return
	case s.Job == "":
		r.Reason, r.Instead = "its series have no job, and relabelling rules belong to one", "give the target a job, or drop it where it is scraped"
	case len(s.blind) > 0:
		r.Reason = "a use of this name selects no series of any job today: it may wait for a trouble, or for a job of another name"
		r.Instead = "correct or delete the use, if neither is so"
		for _, e := range s.blind[:min(len(s.blind), maxExamples)] {
			if u := latest([]*uses.Entry{e}); u != nil {
				r.Examples = append(r.Examples, describe(u)+" asks "+e.Selector())
			}
		}
	case s.family != "":
		r.Reason = fmt.Sprintf("it belongs to the native histogram %s, which is used", s.family)
	default:
		r.Reason = "no configuration can hold its name"
	}
	p.refused = append(p.refused, r)
}

// goes says whether a metric that nothing selects can go.
func (p *proposer) goes(s *stored) bool {
	return !s.exempt && !s.recorded && s.Job != "" && len(s.blind) == 0 && s.family == "" &&
		Claim(s.Metric, Names, "", nil).Series >= p.o.MinSaving &&
		!strings.ContainsRune(s.Name, 0) && model.UTF8Validation.IsValidMetricName(s.Name)
}

// maxExamples is how many uses a refusal shows.
const maxExamples = 5

// slices takes series of a used metric by values of a label that all its needs exclude.
func (p *proposer) slices(s *stored) {
	if s.exempt || s.recorded || s.Job == "" || len(s.needs) == 0 || len(s.blind) > 0 || s.family != "" {
		return
	}
	for _, name := range sortedLabels(s.Metric) {
		label := s.Labels[name]
		if label.Values == nil || p.target[[2]string{s.Job, name}] || name == model.BucketLabel && strings.HasSuffix(s.Name, "_bucket") {
			continue
		}
		if slices.ContainsFunc(s.needs, func(e *uses.Entry) bool { return !mentions(e, name) }) {
			continue // this one excludes no value, so that nobody has to try them all
		}
		var values []string
		for value := range label.Values {
			if len(value) <= MaxValueBytes && rejected(s.needs, name, value, p.o) {
				values = append(values, value)
			}
		}
		if label.Series < s.Series && rejected(s.needs, name, "", p.o) {
			values = append(values, "")
		}
		if slices.Sort(values); len(values) > 0 {
			p.take(s, Slice, Medium, name, slices.Compact(values))
		}
	}
}

// targetLabels are the labels, by job, that come from the target rather than from the page. A
// server's own series, up and scrape_…, have no others.
func targetLabels(inv *inventory.Inventory) map[[2]string]bool {
	target := map[[2]string]bool{}
	for _, m := range inv.Metrics {
		target[[2]string{m.Job, model.JobLabel}] = true
		target[[2]string{m.Job, model.InstanceLabel}] = true
		if m.Name == "up" || strings.HasPrefix(m.Name, "scrape_") {
			for label := range m.Labels {
				target[[2]string{m.Job, label}] = true
			}
		}
	}
	return target
}

func sortedLabels(m *inventory.Metric) []string {
	names := make([]string, 0, len(m.Labels))
	for name := range m.Labels {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Claim is what a rule of this kind takes of one metric, by the inventory alone. Samples are shared
// out evenly among the metric's series.
func Claim(m *inventory.Metric, kind Kind, label string, values []string) Saving {
	var series int64
	switch kind {
	case Names:
		series = m.Series
	case Slice, Buckets:
		l := m.Labels[label]
		if l == nil {
			return Saving{}
		}
		for _, value := range values {
			switch {
			case kind == Buckets:
				for stored, n := range l.Values {
					if Edge(stored) == value {
						series += n
					}
				}
			case value == "":
				series += m.Series - l.Series
			default:
				series += l.Values[value]
			}
		}
	case Label:
		return Saving{MemoryBytes: labelBytes(m, label)}
	}
	if series == 0 {
		return Saving{}
	}
	return Save(series, m.SamplesPerSecond*float64(series)/float64(m.Series))
}

// Without is the rule without some of its metrics, with its claim counted again; false where none
// is left.
func (r Rule) Without(inv *inventory.Inventory, metrics []string) (Rule, bool, error) {
	var left []*stored
	needless := map[string]bool{}
	for _, name := range metrics {
		needless[name] = true
	}
	for _, name := range r.Metrics {
		if m := inv.Metric(r.Job, name); m != nil && !needless[name] {
			left = append(left, &stored{Metric: m})
		}
	}
	if len(left) == 0 {
		return Rule{}, false, nil
	}
	out := r
	if err := out.fill(left); err != nil {
		return Rule{}, false, err
	}
	return out, true, nil
}

// fill gives a rule its metrics and all that follows from them.
func (r *Rule) fill(of []*stored) error {
	r.Metrics, r.Saves = nil, Saving{}
	for _, s := range of {
		r.Metrics = append(r.Metrics, s.Name)
		r.Saves = r.Saves.Add(Claim(s.Metric, r.Kind, r.Label, r.Values))
	}
	slices.Sort(r.Metrics)
	var err error
	r.Relabel, err = Configs(r.Kind, r.Metrics, r.Label, r.Values)
	return err
}

// rules makes rules of the shares: of names as many for each job as their expressions take, of
// slices and buckets one for each set of values, of labels one for each label.
func (p *proposer) rules() ([]Rule, []Refusal) {
	keys := make([]shareKey, 0, len(p.shares))
	for key := range p.shares {
		slices.SortFunc(p.shares[key], func(a, b *stored) int { return cmp.Compare(a.Name, b.Name) })
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b shareKey) int {
		return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.kind, b.kind), cmp.Compare(a.label, b.label),
			cmp.Compare(p.shares[a][0].Name, p.shares[b][0].Name),
			cmp.Compare(a.risk, b.risk), cmp.Compare(a.values, b.values))
	})
	var rules []Rule
	number, ids := map[string]int{}, map[string]bool{}
	for _, key := range keys {
		for _, part := range p.parts(key) {
			r := Rule{Kind: key.kind, Risk: key.risk, Job: key.job, Label: key.label, Values: key.list(), QuantileError: p.errors[key]}
			prefix := r.Job + "/" + string(r.Kind)
			if r.Kind == Slice || r.Kind == Label {
				prefix += "/" + r.Label
			}
			r.ID = prefix
			for i := 1; r.Kind != Label && i == 1 || ids[r.ID]; i++ { // names of jobs and labels may hold anything, so that IDs could meet
				number[prefix]++
				r.ID = fmt.Sprintf("%s/%d", prefix, number[prefix])
			}
			ids[r.ID] = true
			if err := p.check(&r, part); err != nil {
				p.refused = append(p.refused, refusal(r, err.Error(), "this is an error of the generator: please report it"))
				continue
			}
			r.Evidence = p.evidence(r, part)
			if !p.o.Risk.Accepts(r.Risk) {
				p.refused = append(p.refused, refusal(r, fmt.Sprintf("it needs the risk %s, and %s is accepted", r.Risk, p.o.Risk),
					"--risk "+string(r.Risk)))
				continue
			}
			if r.Kind == Label && p.o.KeepLabels {
				p.refused = append(p.refused, refusal(r, "it saves no series: only a label goes, which no answer depends on", "--labels"))
				continue
			}
			rules = append(rules, r)
		}
	}
	Sort(rules)
	SortRefusals(p.refused)
	return rules, p.merge()
}

// parts are the metrics of a share, cut into rules.
func (p *proposer) parts(key shareKey) [][]*stored {
	of := p.shares[key]
	if key.kind != Names {
		return [][]*stored{of}
	}
	byName := map[string]*stored{}
	names := make([]string, len(of))
	for i, s := range of {
		names[i], byName[s.Name] = s.Name, s
	}
	var parts [][]*stored
	for _, chunk := range chunks(names, MaxRegexBytes, MaxAlternatives) {
		part := make([]*stored, len(chunk))
		for i, name := range chunk {
			part[i] = byName[name]
		}
		parts = append(parts, part)
	}
	return parts
}

// check fills the rule in and holds its expressions against every name of the job.
func (p *proposer) check(r *Rule, part []*stored) error {
	if err := r.fill(part); err != nil {
		return err
	}
	// Each expression by itself makes its own part of the names; that all of them are covered is
	// the sum of their parts.
	for _, chunk := range chunks(r.Metrics, MaxRegexBytes, MaxAlternatives) {
		if err := Exact(factor(chunk), chunk, p.universe[r.Job]); err != nil {
			return err
		}
	}
	return nil
}

func refusal(r Rule, reason, instead string) Refusal {
	return Refusal{Kind: r.Kind, Job: r.Job, Metrics: r.Metrics, Label: r.Label, Reason: reason, Instead: instead, Saves: r.Saves}
}

// merge puts refusals of one job with the same reason and examples together, and of labels those of
// the same label: there, what to do instead is written out for the metric that would save most.
func (p *proposer) merge() []Refusal {
	var out []Refusal
	at := map[string]int{}
	SortRefusals(p.merging)
	for _, r := range p.merging {
		key := strings.Join([]string{r.Job, r.Label}, joiner)
		i, ok := at[key]
		if !ok {
			at[key] = len(out)
			out = append(out, r)
			continue
		}
		out[i].Metrics = append(out[i].Metrics, r.Metrics...)
		out[i].Saves = out[i].Saves.Add(r.Saves)
		if len(out[i].Examples) < maxExamples {
			out[i].Examples = append(out[i].Examples, r.Examples...)
		}
	}
	for i := range out {
		slices.Sort(out[i].Metrics)
	}
	for _, r := range p.refused {
		if r.Kind != Names {
			out = append(out, r)
			continue
		}
		key := strings.Join(append([]string{r.Job, r.Reason}, r.Examples...), joiner)
		if i, ok := at[key]; ok {
			out[i].Metrics = append(out[i].Metrics, r.Metrics...)
			out[i].Saves = out[i].Saves.Add(r.Saves)
			continue
		}
		at[key] = len(out)
		out = append(out, r)
	}
	SortRefusals(out)
	return out
}

// Sort ranks rules: labels after all that drops series, then by series saved, then by ID.
func Sort(rules []Rule) {
	last := func(r Rule) int {
		if r.Kind == Label {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(rules, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(last(a), last(b)), cmp.Compare(b.Saves.Series, a.Saves.Series), cmp.Compare(a.ID, b.ID))
	})
}

// SortRefusals sorts by what would have been saved, then by place.
func SortRefusals(refused []Refusal) {
	slices.SortStableFunc(refused, func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(b.Saves.Series, a.Saves.Series), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Label, b.Label),
			slices.Compare(a.Metrics, b.Metrics), cmp.Compare(a.Reason, b.Reason))
	})
}

// evidence says why nothing needs what goes.
func (p *proposer) evidence(r Rule, part []*stored) Evidence {
	metrics := fmt.Sprintf("these %d metrics", len(r.Metrics))
	if len(r.Metrics) == 1 {
		metrics = r.Metrics[0]
	}
	if r.Kind == Names {
		return Evidence{Text: fmt.Sprintf("No %s selects %s of this job.", p.looked, metrics)}
	}
	var needs []*uses.Entry
	seen := map[*uses.Use]bool{}
	for _, s := range part {
		needs = append(needs, s.needs...)
	}
	for _, e := range needs {
		for _, u := range e.Uses {
			seen[u] = true
		}
	}
	who := "the only use"
	verb := "excludes"
	if len(seen) != 1 {
		who, verb = fmt.Sprintf("all %d uses", len(seen)), "exclude"
	}
	e := Evidence{LastUse: latest(needs)}
	switch r.Kind {
	case Slice:
		subject := metrics
		if len(r.Metrics) > 1 {
			subject = fmt.Sprintf("Each of these %d metrics", len(r.Metrics))
		}
		e.Text = fmt.Sprintf("%s is used, and %s %s %d of the values of %s.", subject, who, verb, len(r.Values), r.Label)
	case Buckets:
		e.Text = fmt.Sprintf("No use selects these %d buckets of %s by le.", len(r.Values), metrics)
		if r.Risk == High {
			e.Text = fmt.Sprintf("Nothing but histogram_quantile reads these %d buckets of %s; without them its answers change within buckets of at most %.3g times their lower edge.",
				len(r.Values), metrics, max(r.QuantileError, 1))
		}
	case Label:
		// New series may be equal but for the label; the server merges them without a word.
		e.Text = fmt.Sprintf("No answer of %s depends on %s of %s, and it tells no two series of today apart: verify again when new ones come.", who, r.Label, metrics)
	}
	return e
}
