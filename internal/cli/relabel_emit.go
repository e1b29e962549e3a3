package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spillwayproject/spillway/internal/plainfile"
	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/config"
	"github.com/spillwayproject/spillway/relabel/emit"
	"github.com/spillwayproject/spillway/relabel/report"
)

// emitForm is a form in which rules are written.
type emitForm struct {
	name, words string
	write       func(p *relabel.Plan, w io.Writer, o emitOptions) error
}

// emitOptions are what some forms want to be told.
type emitOptions struct {
	rules                  emit.RuleOptions
	ksmJobs                []string
	monitors, monitorFiles []string
}

const formPrometheus = "prometheus"

var emitForms = []emitForm{
	{
		formPrometheus, "metric_relabel_configs by job",
		func(p *relabel.Plan, w io.Writer, _ emitOptions) error { return emit.Prometheus(p, w) },
	},
	{"servicemonitor", "patches of ServiceMonitors, PodMonitors and ScrapeConfigs", func(p *relabel.Plan, w io.Writer, o emitOptions) error {
		options, err := monitorOptions(o.monitors, o.monitorFiles)
		if err != nil {
			return err
		}
		return emit.ServiceMonitors(p, w, options)
	}},
	{"ksm", "what kube-state-metrics need not make", func(p *relabel.Plan, w io.Writer, o emitOptions) error {
		return emit.KubeStateMetrics(p, w, o.ksmJobs...)
	}},
	{"rules", "the recording rules by which DropRulesNotEffective sees that the rules work", func(p *relabel.Plan, w io.Writer, o emitOptions) error {
		return emit.RecordingRules(p, w, o.rules)
	}},
	{"prometheusrule", "the same as an object of the Prometheus operator", func(p *relabel.Plan, w io.Writer, o emitOptions) error {
		return emit.PrometheusRule(p, w, o.rules)
	}},
}

// relabelEmitCommand writes a plan's rules as configuration.
func relabelEmitCommand(e *Env, parent Clause) func() error {
	c := parent.Command("emit", "Writes a plan's rules as configuration, to standard output or --out.")
	var names, words []string
	for _, f := range emitForms {
		names, words = append(names, f.name), append(words, f.name+": "+f.words)
	}
	format := c.Flag("format", strings.Join(words, "; ")+".").Default(formPrometheus).Enum(names...)
	into := c.Flag("into", "With --format=prometheus: a prometheus.yml into which the rules are merged. The difference is printed; --out, which may be the same file, gets the whole.").PlaceHolder("prometheus.yml").String()
	remove := c.Flag("remove", "With --into: merge though rules of an earlier merge go that are for jobs which the plan does not have, or, of a plan of what a server stores, though most of what they drop is stored again then.").Bool()
	out := c.Flag("out", "Write to this file instead of standard output.").Short('o').PlaceHolder("FILE").String()
	monitors := c.Flag("monitor", "With --format=servicemonitor: where a job's rules go, if its name does not say so; JOB=NAMESPACE/NAME for a ServiceMonitor, JOB=KIND/NAMESPACE/NAME for others; may be given several times.").
		PlaceHolder("JOB=NAMESPACE/NAME").Strings()
	existing := c.Flag("monitors", "With --format=servicemonitor: a file or folder with the monitors as they are, so that their own rules are kept, and with their Services, which say whose job is whose; may be given several times.").PlaceHolder("FILE|DIR").Strings()
	jobs := c.Flag("ksm-job", "With --format=ksm: a job that scrapes kube-state-metrics; those with kube-state-metrics in their name by default; may be given several times.").PlaceHolder("JOB").Strings()
	labels := c.Flag("rule-label", "With --format=rules and prometheusrule: a label of the recorded series, such as cluster=jaguar for a ruler over many clusters; may be given several times.").PlaceHolder("NAME=VALUE").StringMap()
	objectLabels := c.Flag("object-label", "With --format=prometheusrule: a label of the object, by which the operator finds it, such as release=kube-prometheus-stack; may be given several times.").PlaceHolder("NAME=VALUE").StringMap()
	namespace := c.Flag("namespace", "With --format=prometheusrule: its namespace.").String()
	skip := c.Flag("skip-job", "A job whose rules are left out, and taken out of the file of --into where they stand in it; may be given several times.").PlaceHolder("JOB").Strings()
	file := c.Arg("plan", "The plan.").Required().String()
	return func() error {
		p, err := readPlan(*file)
		if err != nil {
			return err
		}
		merge := mergeOptions{file: *into, out: *out, skipped: *skip, remove: *remove}
		planned := *skip
		if *into != "" {
			if *format != formPrometheus {
				return errUsage{fmt.Errorf("--into is for --format=%s", formPrometheus)}
			}
			if merge.text, err = plainfile.Read(*into); err != nil {
				return fmt.Errorf("--into: %w", err)
			}
			planned = merge.skippedOf(p)
		}
		if p, err = p.Without(planned...); err != nil {
			return errUsage{fmt.Errorf("--skip-job: %w", err)}
		}
		for _, warning := range emit.Warnings(p) {
			fmt.Fprintf(e.Stderr, "spillway: %s\n", warning)
		}
		if *into != "" {
			return mergeInto(e, p, merge)
		}
		if len(p.Rules) == 0 {
			fmt.Fprintln(e.Stderr, "spillway: the plan has no rules. "+madeBehindRules)
		}
		form := emitForms[slices.IndexFunc(emitForms, func(f emitForm) bool { return f.name == *format })]
		write := func(w io.Writer) error {
			rules := emit.RuleOptions{Labels: *labels, Namespace: *namespace, ObjectLabels: *objectLabels}
			return form.write(p, w, emitOptions{rules, *jobs, *monitors, *existing})
		}
		if *out == "" {
			return write(e.Stdout)
		}
		return WriteWhole(*out, write)
	}
}

func monitorOptions(monitors, files []string) (emit.MonitorOptions, error) {
	o := emit.MonitorOptions{Monitors: map[string]emit.Monitor{}}
	for _, arg := range monitors {
		job, m, err := emit.ParseMonitor(arg)
		if err != nil {
			return o, errUsage{fmt.Errorf("--monitor=%w", err)}
		}
		o.Monitors[job] = m
	}
	existing, problems := config.ReadMonitors(files...)
	if err := errors.Join(problems...); err != nil {
		return o, fmt.Errorf("--monitors: %w", err)
	}
	o.Existing = existing
	return o, nil
}

// mergeOptions say into which file rules are merged, where that is written, whose rules are left
// out, and whether earlier ones may go.
type mergeOptions struct {
	file, out string
	text      []byte // of file
	skipped   []string
	remove    bool
}

// skippedOf are the jobs that are left out of the plan. One that it does not have may be one of
// which the file has rules.
func (o mergeOptions) skippedOf(p *relabel.Plan) []string {
	was, err := emit.OursIn(o.text)
	if err != nil {
		return o.skipped // Merge says it
	}
	return slices.DeleteFunc(slices.Clone(o.skipped), func(job string) bool {
		return slices.Contains(was.Jobs, job) && !slices.Contains(jobNames(p), job)
	})
}

func jobNames(p *relabel.Plan) []string {
	names := make([]string, len(p.Jobs))
	for i, j := range p.Jobs {
		names[i] = j.Job
	}
	return names
}

// madeBehindRules is why a plan may have nothing for what rules drop that are in force.
const madeBehindRules = "A plan that is made of a server where rules are in force does not know what they drop: make it of scraped pages, or leave these rules as they are"

func mergeInto(e *Env, p *relabel.Plan, o mergeOptions) error {
	merged, diff, err := emit.Merge(p, o.text)
	if err != nil {
		return fmt.Errorf("--into=%s: %w", o.file, err)
	}
	if err := bringsBack(e, p, merged, o); err != nil {
		return fmt.Errorf("--into=%s: %w", o.file, err)
	}
	if lines := emit.RemoteWrites(merged); len(lines) > 0 && len(p.Rules) > 0 {
		fmt.Fprintf(e.Stderr, "spillway: --into=%s: remote write in line %d of what is written sends on whatever is stored: what these rules drop is missing there, too; give what is asked there (--rules, --dashboards) when you plan\n",
			o.file, lines[0])
	}
	if o.out != "" {
		if err := WriteWhole(o.out, func(w io.Writer) error { _, err := w.Write(merged); return err }); err != nil {
			return err
		}
	}
	_, err = io.WriteString(e.Stdout, diff)
	return err
}

// bringsBack tells of series that are stored again with the new rules. It refuses where the plan
// does not have the job of an earlier rule, and where these are most of them and it may not have
// known them; one of pages did, but may count other targets.
func bringsBack(e *Env, p *relabel.Plan, merged []byte, o mergeOptions) error {
	was, err := emit.OursIn(o.text, o.skipped...)
	if err != nil {
		return err
	}
	foreign, err := emit.OursIn(o.text, slices.Concat(o.skipped, jobNames(p))...)
	if err != nil {
		return err
	}
	if foreign.Rules > 0 && !o.remove {
		return foreignRules(foreign)
	}
	is, err := emit.OursIn(merged)
	if err != nil {
		return err
	}
	back := fmt.Sprintf("its %d rules of an earlier merge drop %d series, and those %d that take their place %d, each as its own plan counted: what only the former drop is stored again",
		was.Rules, was.Series, is.Rules, is.Series)
	switch {
	case p.Inputs.BehindRules && was.BringsBack(is) && !o.remove:
		return fmt.Errorf("%s. %s; or say --remove", back, madeBehindRules)
	case is.Series < was.Series:
		fmt.Fprintf(e.Stderr, "spillway: --into=%s: %s\n", o.file, back)
	}
	return nil
}

// foreignRules refuses to take out rules of jobs that the plan does not have.
func foreignRules(of emit.Ours) error {
	var names, skip []string
	for _, job := range of.Jobs {
		names, skip = append(names, strconv.Quote(job)), append(skip, "--skip-job="+job)
	}
	jobs := "job"
	if len(names) > 1 {
		jobs = "jobs"
	}
	return fmt.Errorf("its %d rules of an earlier merge for %s %s would go, which the plan does not have: what they drop (%d series) is stored again. "+
		"Give what is stored of them, too, when you plan; or say %s, or --remove",
		of.Rules, jobs, strings.Join(names, ", "), of.Series, strings.Join(skip, " "))
}

// relabelReportCommand writes the page about a plan.
func relabelReportCommand(e *Env, parent Clause) func() error {
	c := parent.Command("report", "Writes a page about a plan: what is stored, what is used, what goes, what it saves.")
	out := c.Flag("out", "The file to write.").Short('o').Default("report.html").String()
	file := c.Arg("plan", "The plan.").Required().String()
	return func() error {
		p, err := readPlan(*file)
		if err != nil {
			return err
		}
		return WriteWhole(*out, func(w io.Writer) error { return report.HTML(p, w) })
	}
}

// relabelDiffCommand compares two plans.
func relabelDiffCommand(e *Env, parent Clause) func() error {
	c := parent.Command("diff", "Compares two plans: which rules came and went and, with --scrape, which series the step from the old one to the new one loses and brings back.")
	stored := storedFlags(c)
	format := c.Flag("format", "text or json.").Default("text").Enum("text", "json")
	quiet := c.Flag("quiet", "Do not say how far it is.").Short('q').Bool()
	older, newer := c.Arg("old", "The plan before.").Required().String(), c.Arg("new", "The plan after.").Required().String()
	return func() error {
		before, err := readPlan(*older)
		if err != nil {
			return err
		}
		after, err := readPlan(*newer)
		if err != nil {
			return err
		}
		client := scrapeClient()
		defer client.CloseIdleConnections()
		src, err := stored.source(e.Ctx, client)
		if err != nil {
			return err
		}
		p := newProgress(e.Stderr, *quiet || src == nil)
		p.at("diff", 0, 0)
		d, err := relabel.Diff(e.Ctx, before, after, src)
		p.end()
		if err != nil {
			return err
		}
		if *format == "json" {
			return writeJSON(e.Stdout, d)
		}
		return writeDifference(e.Stdout, d, src != nil)
	}
}

func writeDifference(w io.Writer, d *relabel.Difference, looked bool) error {
	if err := attention(w, d.Alarms); err != nil {
		return err
	}
	if d.Empty() {
		_, err := fmt.Fprintln(w, "Both plans do the same.")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if looked {
		fmt.Fprintf(t, "Of %d series the new plan drops %d more and %d fewer.\n", d.Series, d.Lost.Series, d.Gained.Series)
	}
	if len(d.Metrics) > 0 {
		fmt.Fprintln(t, "\njob\tmetric\tdropped now\tkept now\tlabels")
	}
	for _, m := range d.Metrics {
		var labels []string
		for _, l := range m.LostLabels {
			labels = append(labels, "-"+l)
		}
		for _, l := range m.GainedLabels {
			labels = append(labels, "+"+l)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\n", m.Job, m.Name, m.Lost, m.Gained, strings.Join(labels, " "))
	}
	if len(d.Rules) > 0 {
		fmt.Fprintln(t, "\nrule\tchange\tmetrics\tvalues")
	}
	for _, r := range d.Rules {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", r.ID, r.Change, signed(r.Added, r.Removed), signed(r.AddedValues, r.RemovedValues))
	}
	return t.Flush()
}

// signed are the first few of what came and went.
func signed(added, removed []string) string {
	const most = 8
	var out []string
	for _, s := range added {
		out = append(out, "+"+s)
	}
	for _, s := range removed {
		out = append(out, "-"+s)
	}
	if len(out) > most {
		out = append(out[:most], fmt.Sprintf("and %d more", len(out)-most))
	}
	return strings.Join(out, " ")
}
