package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/emit"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// Bounds of the page.
const (
	MaxJobs    = 60
	MaxMetrics = 20
	MaxRules   = 400
	MaxNames   = 200
	MaxRefused = 200

	firstNames = 18 // of a rule that are seen at once
)

// view is what the page shows: texts, ready to be escaped.
type view struct {
	Title, Lead, Made, Owner string
	Before, After, Gone      string // series
	GoneShare                string
	KeptWidth, GoneWidth     string
	Tiles                    []tile
	NoRates                  string
	Map                      []cell
	Jobs                     []bar
	Metrics                  []bar
	Kinds                    []bar
	Rules                    []rule
	Refused                  []refusal
	Steps                    []step
	Proven                   string
	Replay                   *replay
	Warnings                 []string
	Alarms                   []string // what stands in red above the headline
	Inputs                   []input
	// MoreJobs and its like say what the page leaves out; empty where it leaves out nothing.
	MoreJobs, MoreMetrics, MoreRules, MoreRefused string
}

// tile is one number of the headline.
type tile struct{ Name, Before, After, Less, Note string }

// bar is a row with a bar: how long it is, and how much of it goes.
type bar struct {
	Name, Under    string
	Kept, Gone     string // widths
	Series, Leaves string
	Share, Uses    string
	Unused         bool
}

type rule struct {
	Rank, ID, Kind, Risk, Title string
	Series, Share, Width        string
	Saves                       []string
	Evidence, LastUse           string
	Quantile                    string
	Metrics, Values             []string
	OtherMetrics                []string // those that are shown on demand
	Others                      string
	MetricCount                 string
	MoreMetrics, MoreValues     string
	Label                       string
	Config                      string
}

type refusal struct {
	Kind, Job, What, Reason, Series string
	Examples, Instead               string
	MoreMetrics                     string
}

type step struct{ Name, What, Checked string }

type replay struct {
	Text  string
	Parts []part
	// Skipped are the queries that were not asked, and why.
	Skipped []string
	// Differences are what a plan never has; it is shown if one has.
	Differences []string
}

type part struct{ Name, Count, Width, X, Class string }

type input struct {
	Name   string
	Values []string
}

func makeView(p *relabel.Plan) (*view, error) {
	v := &view{Title: "Drop rules", Owner: visible(p.Owner)}
	if !p.Made.IsZero() {
		v.Made = p.Made.UTC().Format("2 January 2006, 15:04 UTC")
	}
	for _, a := range p.Alarms {
		v.Alarms = append(v.Alarms, visible(a))
	}
	v.headline(p)
	v.Map = treemap(p)
	v.jobs(p)
	v.metrics(p)
	v.kinds(p)
	for i := range p.Rules {
		if i == MaxRules {
			v.MoreRules = plural(int64(len(p.Rules)-i), "rule that saves less is", "rules that save less are") +
				" in the plan and not on this page."
			break
		}
		r, err := v.rule(p, i)
		if err != nil {
			return nil, err
		}
		v.Rules = append(v.Rules, r)
	}
	v.refused(p)
	v.proof(p)
	for _, w := range p.Warnings {
		v.Warnings = append(v.Warnings, visible(w))
	}
	v.inputs(p)
	return v, nil
}

// headline is the page's first sentence and numbers.
func (v *view) headline(p *relabel.Plan) {
	stored, gone := p.Stored, p.Dropped
	left := max(stored.Series-gone.Series, 0)
	v.Before, v.After, v.Gone = count(stored.Series), count(left), count(gone.Series)
	v.GoneShare = share(float64(gone.Series), float64(stored.Series))
	v.KeptWidth, v.GoneWidth = percent(float64(left), float64(stored.Series)), percent(float64(gone.Series), float64(stored.Series))
	switch {
	case stored.Series == 0:
		v.Lead = "Nothing is stored, so nothing can go."
	case gone.Series == 0 && len(p.Rules) == 0:
		v.Lead = fmt.Sprintf("Of %s, none can go: all are needed by something, or something stands against every rule that would take them.", plural(stored.Series, "series", "series"))
	case gone.Series == 0:
		v.Lead = fmt.Sprintf("No series goes. %s what nothing needs away from %s.", capital(plural(int64(len(p.Rules)), "rule takes", "rules take")), plural(p.Proof.Changed, "series", "series"))
	default:
		proven := "each proven over every series"
		if why := p.Unproven(); why != "" {
			proven = "each held against every series; " + why
		}
		v.Lead = fmt.Sprintf("No %s needs %s of the %s that are stored. %s them away, "+proven+".",
			uses.Looked(func(kind uses.Kind) bool { return p.Inputs.Uses[string(kind)] > 0 }, ""), count(gone.Series),
			plural(stored.Series, "series", "series"), capital(plural(int64(len(p.Rules)), "rule takes", "rules take")))
		if p.Proof.Changed > 0 {
			v.Lead += fmt.Sprintf(" %s a label that changes no answer.", capital(plural(p.Proof.Changed, "series loses", "series lose")))
		}
	}
	less := func(part, whole float64) string {
		if part <= 0 {
			return "as before"
		}
		return "−" + share(part, whole)
	}
	v.Tiles = []tile{
		{"Series", count(stored.Series), count(left), less(float64(gone.Series), float64(stored.Series)), ""},
		{
			"Memory of the head", size(stored.MemoryBytes), size(max(stored.MemoryBytes-gone.MemoryBytes, 0)),
			less(float64(gone.MemoryBytes), float64(stored.MemoryBytes)), "estimated",
		},
	}
	if stored.SamplesPerSecond > 0 {
		v.Tiles = append(v.Tiles,
			tile{
				"Samples a second", rate(stored.SamplesPerSecond), rate(max(stored.SamplesPerSecond-gone.SamplesPerSecond, 0)),
				less(gone.SamplesPerSecond, stored.SamplesPerSecond), "",
			},
			tile{
				"Disk for a day", size(stored.BytesPerDay), size(max(stored.BytesPerDay-gone.BytesPerDay, 0)),
				less(float64(gone.BytesPerDay), float64(stored.BytesPerDay)), "estimated",
			})
	} else if stored.Series > 0 {
		v.NoRates = "How many samples a second and how much disk that saves is not known: nothing that was read tells how often it is scraped."
	}
}

// capital begins a sentence.
func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// makeBar is a row whose whole bar stands for series, of the longest bar's most.
func makeBar(name string, series, gone, most int64) bar {
	return bar{
		Name: visible(name), Kept: percent(float64(series-gone), float64(most)), Gone: percent(float64(gone), float64(most)),
		Series: count(series), Leaves: count(gone), Share: share(float64(gone), float64(series)),
	}
}

func (v *view) jobs(p *relabel.Plan) {
	jobs := slices.Clone(p.Jobs)
	slices.SortStableFunc(jobs, func(a, b relabel.Job) int {
		return cmp.Or(cmp.Compare(b.Stored.Series, a.Stored.Series), cmp.Compare(a.Job, b.Job))
	})
	for i, j := range jobs {
		if i == MaxJobs {
			v.MoreJobs = plural(int64(len(jobs)-i), "smaller job is", "smaller jobs are") + " in the plan and not on this page."
			break
		}
		b := makeBar(j.Job, j.Stored.Series, j.Dropped.Series, jobs[0].Stored.Series)
		b.Under = plural(int64(j.Metrics), "metric", "metrics")
		v.Jobs = append(v.Jobs, b)
	}
}

func (v *view) metrics(p *relabel.Plan) {
	type metric struct {
		relabel.Metric
		job string
	}
	var all []metric
	for _, j := range p.Jobs {
		for _, m := range j.Top {
			all = append(all, metric{m, j.Job})
		}
	}
	slices.SortFunc(all, func(a, b metric) int {
		return cmp.Or(cmp.Compare(b.Series, a.Series), cmp.Compare(a.Name, b.Name), cmp.Compare(a.job, b.job))
	})
	for i, m := range all {
		if i == MaxMetrics {
			break
		}
		b := makeBar(m.Name, m.Series, m.Dropped, all[0].Series)
		b.Under, b.Uses, b.Unused = visible(m.job), count(int64(m.Uses)), m.Uses == 0
		v.Metrics = append(v.Metrics, b)
	}
	if len(all) > MaxMetrics {
		v.MoreMetrics = "The plan has the largest metrics of every job."
	}
}

// kindTitles say what each kind of rule takes away.
var kindTitles = []struct {
	kind        propose.Kind
	name, under string
}{
	{propose.Names, "whole metrics", "nothing uses them"},
	{propose.Slice, "slices of metrics", "values of one label that nothing uses"},
	{propose.Buckets, "buckets of histograms", "edges that nothing asks for"},
	{propose.Label, "labels", "they change no answer"},
}

func (v *view) kinds(p *relabel.Plan) {
	most := int64(1)
	sums, rules := map[propose.Kind]int64{}, map[propose.Kind]int64{}
	for _, r := range p.Rules {
		sums[r.Kind] += r.Saves.Series
		rules[r.Kind]++
		most = max(most, sums[r.Kind])
	}
	for _, k := range kindTitles {
		if rules[k.kind] == 0 {
			continue
		}
		b := makeBar(k.name, sums[k.kind], sums[k.kind], most)
		b.Under, b.Uses = k.under, count(rules[k.kind])
		if k.kind == propose.Label {
			b.Series = "none"
		}
		v.Kinds = append(v.Kinds, b)
	}
}

// rule is one rule with its evidence.
func (v *view) rule(p *relabel.Plan, i int) (rule, error) {
	r := &p.Rules[i]
	most := int64(1)
	for _, other := range p.Rules {
		most = max(most, other.Saves.Series)
	}
	out := rule{
		Rank: strconv.Itoa(i + 1), ID: visible(r.ID), Kind: visible(string(r.Kind)), Risk: visible(string(r.Risk)),
		Title:  title(r, largest(p, r)),
		Series: count(r.Saves.Series), Share: share(float64(r.Saves.Series), float64(p.Stored.Series)),
		Width:    percent(float64(r.Saves.Series), float64(most)),
		Evidence: visible(r.Evidence.Text), LastUse: use(r.Evidence.LastUse), Label: visible(r.Label),
		MetricCount: plural(int64(len(r.Metrics)), "metric", "metrics"),
	}
	if r.Kind == propose.Label {
		out.Series, out.Share = "no series", ""
	}
	if s := r.Saves; s.Series > 0 {
		out.Saves = []string{plural(s.Series, "series", "series"), size(s.MemoryBytes) + " of memory"}
		if s.SamplesPerSecond > 0 {
			out.Saves = append(out.Saves, rate(s.SamplesPerSecond)+" samples a second", size(s.BytesPerDay)+" a day on disk")
		}
	}
	if r.QuantileError > 0 {
		out.Quantile = fmt.Sprintf("What histogram_quantile answers can change: the widest bucket that stays ends at %s times where it begins.", strconv.FormatFloat(r.QuantileError, 'g', 3, 64))
	}
	out.Metrics, out.MoreMetrics = names(r.Metrics)
	if len(out.Metrics) > firstNames+firstNames/3 {
		out.Metrics, out.OtherMetrics = out.Metrics[:firstNames], out.Metrics[firstNames:]
		out.Others = plural(int64(len(r.Metrics)-firstNames), "other", "others")
	}
	out.Values, out.MoreValues = names(r.Values)
	shown := *r
	if shown.Relabel == nil {
		var err error
		if shown.Relabel, err = propose.Configs(r.Kind, r.Metrics, r.Label, r.Values); err != nil {
			return rule{}, fmt.Errorf("rule %s: %w", r.ID, err)
		}
	}
	text, err := emit.Lines(&shown)
	if err != nil {
		return rule{}, fmt.Errorf("rule %s: %w", r.ID, err)
	}
	out.Config = lines(strings.Join(text, "\n"))
	return out, nil
}

// largest is the metric of a rule by which people know it: the largest one of its job's largest, or
// else the first.
func largest(p *relabel.Plan, r *propose.Rule) string {
	for _, j := range p.Jobs {
		if j.Job != r.Job {
			continue
		}
		for _, m := range j.Top { // the largest first
			if slices.Contains(r.Metrics, m.Name) {
				return m.Name
			}
		}
	}
	return r.Metrics[0]
}

// title says in a line what a rule takes; known is the metric of it that is named.
func title(r *propose.Rule, known string) string {
	some := func(list []string, most int) string {
		shown := make([]string, 0, most)
		for _, s := range list[:min(len(list), most)] {
			if s == "" {
				s = `""`
			}
			shown = append(shown, clip(visible(s), 60))
		}
		text := strings.Join(shown, ", ")
		if more := len(list) - most; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		return text
	}
	of := clip(visible(known), 100)
	if more := int64(len(r.Metrics) - 1); more > 0 {
		of += " and " + plural(more, "other metric", "other metrics")
	}
	switch r.Kind {
	case propose.Names:
		return of
	case propose.Slice:
		if len(r.Values) == 0 { // as in a refusal
			return fmt.Sprintf("values of %s of %s", visible(r.Label), of)
		}
		return fmt.Sprintf("%s where %s is %s", of, visible(r.Label), some(r.Values, 3))
	case propose.Buckets:
		if len(r.Values) == 0 {
			return "buckets of " + of
		}
		return fmt.Sprintf("%s of %s", plural(int64(len(r.Values)), "bucket", "buckets"), of)
	case propose.Label:
		return fmt.Sprintf("label %s of %s", visible(r.Label), of)
	}
	return of
}

// names are at most MaxNames of a list, and a word on the rest.
func names(list []string) (shown []string, more string) {
	for i, s := range list {
		if i == MaxNames {
			return shown, fmt.Sprintf("and %s more, which the plan lists", count(int64(len(list)-i)))
		}
		if s == "" {
			s = `""`
		}
		shown = append(shown, visible(s))
	}
	return shown, ""
}

// use names a use for people; empty for none.
func use(u *uses.Use) string {
	if u == nil {
		return ""
	}
	text := visible(u.Where)
	if u.File != "" {
		at := visible(u.File)
		if u.Line > 0 {
			at += ":" + strconv.Itoa(u.Line)
		}
		text += " (" + at + ")"
	}
	if !u.Last.IsZero() {
		text += ", last on " + u.Last.UTC().Format(time.DateOnly)
	}
	if u.Count > 1 {
		text += ", " + count(u.Count) + " times"
	}
	if u.Owner != "" {
		text += ", by " + visible(u.Owner)
	}
	return text
}

func (v *view) refused(p *relabel.Plan) {
	for i, r := range p.Refused {
		if i == MaxRefused {
			v.MoreRefused = plural(int64(len(p.Refused)-i), "more is", "more are") + " in the plan and not on this page."
			break
		}
		out := refusal{
			Kind: visible(string(r.Kind)), Job: visible(r.Job), Reason: visible(r.Reason), Instead: lines(r.Instead),
		}
		about := &propose.Rule{Kind: r.Kind, Job: r.Job, Metrics: r.Metrics, Label: r.Label}
		if len(r.Metrics) > 0 {
			out.What = title(about, largest(p, about))
		}
		if r.Saves.Series > 0 {
			out.Series = plural(r.Saves.Series, "series", "series")
		}
		shown := r.Examples[:min(len(r.Examples), 20)]
		all := make([]string, len(shown))
		for k, s := range shown {
			all[k] = visible(s)
		}
		out.Examples = strings.Join(all, "\n")
		if len(r.Metrics) > 1 {
			list, more := names(r.Metrics)
			out.MoreMetrics = strings.Join(list, ", ")
			if more != "" {
				out.MoreMetrics += " " + more
			}
		}
		v.Refused = append(v.Refused, out)
	}
}

// stepMeanings say what each step of a proof has shown.
var stepMeanings = map[string]string{
	"exact":      "Every rule was run over every series, by Prometheus' own code: it takes what was planned and nothing else.",
	"collisions": "No two series become one.",
	"uses":       "Every use selects the same series as before.",
	"twice":      "The rules take nothing more when they are applied again.",
	"savings":    "What the rules take, counted series by series, is what they claim.",
	"replay":     "Queries were asked before and after, and the answers compared.",
}

func (v *view) proof(p *relabel.Plan) {
	pr := p.Proof
	v.Proven = fmt.Sprintf("%s were run through the rules: %s, %s.", capital(plural(pr.Series, "series", "series")),
		plural(pr.Dropped, "goes", "go"), plural(pr.Changed, "loses a label", "lose a label"))
	for _, s := range pr.Steps {
		v.Steps = append(v.Steps, step{
			Name: visible(s.Name), What: cmp.Or(stepMeanings[s.Name], visible(s.Name)),
			Checked: count(s.Checked),
		})
	}
	r := pr.Replay
	if r == nil {
		return
	}
	out := &replay{Text: fmt.Sprintf("A sample of %s was loaded into two storages, with the rules (%s left) and without, and %s of each.",
		plural(r.Series, "series", "series"), count(r.After), plural(r.Queries, "query was asked", "queries were asked"))}
	if r.Parts > 0 {
		out.Text += fmt.Sprintf(" %s in it with a part of their series only.", capital(plural(r.Parts, "target is", "targets are")))
	}
	at := 0.0
	for _, kind := range []struct {
		name, class string
		n           int64
	}{
		{"equal answers", "equal", r.Equal},
		{"equal but for the order of additions", "rounded", r.Rounded},
		{"within the error that a rule states", "within", r.Within},
		{"empty before and after", "empty", r.Empty},
		{"failed before and after alike", "failed", r.Failed},
		{"different", "different", r.Different},
	} {
		if kind.n == 0 && kind.class != "equal" {
			continue
		}
		total := max(float64(r.Queries), 1)
		out.Parts = append(out.Parts, part{
			Name: kind.name, Class: kind.class, Count: count(kind.n), X: percent(at, total),
			Width: percent(float64(kind.n), total),
		})
		at += float64(kind.n)
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Skipped)) {
		out.Skipped = append(out.Skipped, plural(r.Skipped[reason], "use was", "uses were")+" not asked: "+visible(reason))
	}
	for _, d := range r.Differences {
		out.Differences = append(out.Differences,
			visible(d.Where)+"\n"+visible(d.Query)+"\nbefore: "+clip(visible(d.Before), 500)+"\nafter:  "+clip(visible(d.After), 500))
	}
	v.Replay = out
}

func (v *view) inputs(p *relabel.Plan) {
	in := p.Inputs
	add := func(name string, values ...string) {
		values = slices.DeleteFunc(values, func(s string) bool { return s == "" })
		for i := range values {
			values[i] = visible(values[i])
		}
		if len(values) > 0 {
			v.Inputs = append(v.Inputs, input{name, values})
		}
	}
	add("stored", slices.Clone(in.Sources)...)
	var used []string
	for _, kind := range slices.Sorted(maps.Keys(in.Uses)) {
		word := map[string]string{
			string(uses.Dashboard): "dashboard queries", string(uses.Rule): "rules", string(uses.Autoscaler): "autoscaler queries",
			string(uses.Logged): "logged queries",
			string(uses.Object): "queries of other documents", string(uses.Listed): "queries of files", string(uses.Kept): "names to keep",
		}[kind]
		used = append(used, count(int64(in.Uses[kind]))+" "+cmp.Or(word, kind))
	}
	add("used", strings.Join(used, ", "))
	if in.Covered != "" {
		text := in.Covered + " of logged queries"
		if !in.From.IsZero() && !in.To.IsZero() {
			text += ", from " + in.From.UTC().Format(time.DateOnly) + " to " + in.To.UTC().Format(time.DateOnly)
		}
		if in.Window != "" {
			text += "; " + in.Window + " were asked for"
		}
		add("covered", text)
	}
	add("risk", in.Risk)
}
