package emit

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	promrelabel "github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/config"
	"github.com/spillwayproject/spillway/relabel/propose"
)

// Monitor names an object of prometheus-operator.
type Monitor struct {
	// Kind is ServiceMonitor, PodMonitor or ScrapeConfig.
	Kind            string
	Namespace, Name string
}

// String is KIND/NAMESPACE/NAME, which ParseMonitor reads.
func (m Monitor) String() string { return m.Kind + "/" + m.Namespace + "/" + m.Name }

// MonitorOptions say where the rules of a job go.
type MonitorOptions struct {
	// Monitors is the monitor of each job. Jobs that are missing here are taken from their name,
	// where it is one that the operator gives: serviceMonitor/NAMESPACE/NAME/INDEX, podMonitor/…,
	// scrapeConfig/…; or NAMESPACE/NAME, which is the job of a PodMonitor's series; else from
	// Existing.
	Monitors map[string]Monitor
	// Existing are the monitors as they are (`kubectl get servicemonitor -A -o yaml`, or the files
	// of a repository). With them a patch keeps other rules and replaces our earlier ones; without,
	// it is for monitors that have no rule at all and fails on others.
	Existing []*config.Object
	// Endpoints is how many endpoints a monitor is taken to have that is not in Existing; 1.
	Endpoints int
}

// ParseMonitor reads JOB=NAMESPACE/NAME (a ServiceMonitor) or JOB=KIND/NAMESPACE/NAME.
func ParseMonitor(arg string) (job string, m Monitor, err error) {
	i := strings.LastIndex(arg, "=")
	if i <= 0 {
		return "", Monitor{}, fmt.Errorf("%q: write JOB=NAMESPACE/NAME for a ServiceMonitor, JOB=PodMonitor/NAMESPACE/NAME or "+
			"JOB=ScrapeConfig/NAMESPACE/NAME for others", arg)
	}
	parts := strings.Split(arg[i+1:], "/")
	if len(parts) == 2 {
		parts = append([]string{config.ServiceMonitor}, parts...)
	}
	kinds := []string{config.ServiceMonitor, config.PodMonitor, config.ScrapeConfig}
	if len(parts) != 3 || parts[1] == "" || parts[2] == "" {
		return "", Monitor{}, fmt.Errorf("%q: behind the last = stands NAMESPACE/NAME or KIND/NAMESPACE/NAME", arg)
	}
	for _, k := range kinds {
		if strings.EqualFold(k, parts[0]) {
			return arg[:i], Monitor{Kind: k, Namespace: parts[1], Name: parts[2]}, nil
		}
	}
	return "", Monitor{}, fmt.Errorf("%q: the kind %q is none of %s", arg, parts[0], strings.Join(kinds, ", "))
}

// operatorJob is how the operator names jobs.
var operatorJob = regexp.MustCompile(`^(serviceMonitor|podMonitor|scrapeConfig)/([^/]+)/([^/]+)(?:/[0-9]+)?$`)

func monitorOf(job string, o MonitorOptions) (Monitor, error) {
	if m, ok := o.Monitors[job]; ok {
		return m, nil
	}
	if m := operatorJob.FindStringSubmatch(job); m != nil {
		return Monitor{Kind: strings.ToUpper(m[1][:1]) + m[1][1:], Namespace: m[2], Name: m[3]}, nil
	}
	if namespace, name, ok := strings.Cut(job, "/"); ok && namespace != "" && name != "" && !strings.Contains(name, "/") {
		return Monitor{Kind: config.PodMonitor, Namespace: namespace, Name: name}, nil
	}
	found := making(job, o.Existing)
	if len(found) == 1 {
		return found[0], nil
	}
	var names []string
	for _, m := range found {
		names = append(names, m.String())
	}
	switch {
	case len(found) > 1:
		return Monitor{}, fmt.Errorf("job %q: %s make it: say which with --monitor %s=KIND/NAMESPACE/NAME", job, strings.Join(names, " and "), job)
	case len(o.Existing) > 0:
		return Monitor{}, fmt.Errorf("job %q: none of the %d monitors that were given says that it makes it, by its jobLabel, by a Service beside it or by its name: say --monitor %s=NAMESPACE/NAME",
			job, len(o.Existing), job)
	}
	return Monitor{}, fmt.Errorf("job %q: which monitor makes it? Say --monitor %s=NAMESPACE/NAME, or give the monitors with --monitors", job, job)
}

// making are the monitors whose series have the job: those that say so, else those of its name
// whose job is not known.
func making(job string, existing []*config.Object) []Monitor {
	var sure, named []Monitor
	for _, e := range existing {
		m := Monitor{e.Kind, e.Namespace, e.Name}
		says := func(p *config.Endpoint) bool { return !p.Open && p.Label == job }
		open := func(p *config.Endpoint) bool { return p.Open }
		switch {
		case slices.ContainsFunc(e.Endpoints, says):
			sure = append(sure, m)
		case e.Name == job && slices.ContainsFunc(e.Endpoints, open):
			named = append(named, m)
		}
	}
	if len(sure) > 0 {
		return sure
	}
	return named
}

// Patch is what one monitor gets: a JSON patch (RFC 6902), written as YAML with the evidence as
// comments.
type Patch struct {
	Monitor Monitor
	Jobs    []string
	Body    []byte
}

// Patches makes one patch for each monitor, sorted by its first job. Each begins with a test: a
// monitor that was changed meanwhile refuses the patch instead of losing the change.
//
// The rules of a job go to all endpoints of its monitor but those that are known to be of another
// job. Each rule asks for its job, except where an endpoint is known to have no other.
func Patches(p *relabel.Plan, o MonitorOptions) ([]Patch, error) {
	planned, err := byJob(p)
	if err != nil {
		return nil, err
	}
	existing := map[Monitor]*config.Object{}
	for _, e := range o.Existing {
		existing[Monitor{e.Kind, e.Namespace, e.Name}] = e
	}
	byMonitor := map[Monitor][]jobRules{}
	var monitors []Monitor
	var out []Patch
	var problems []error
	for _, j := range planned {
		m, err := monitorOf(j.job, o)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if len(byMonitor[m]) == 0 {
			monitors = append(monitors, m)
		}
		byMonitor[m] = append(byMonitor[m], j)
	}
	for _, m := range monitors {
		endpoints, err := targets(m, existing, o)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		patch, err := makePatch(p, byMonitor[m], m, endpoints)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", m, err))
			continue
		}
		out = append(out, patch)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return out, nil
}

// ServiceMonitors writes the patches of all monitors, of whatever kind, one YAML document each.
// kubectl takes one document at a time: see Patches for them one by one.
func ServiceMonitors(p *relabel.Plan, w io.Writer, o MonitorOptions) error {
	patches, err := Patches(p, o)
	if err != nil {
		return err
	}
	lines := header(p)
	for _, patch := range patches {
		lines = append(lines, "---")
		lines = append(lines, strings.Split(strings.TrimSuffix(string(patch.Body), "\n"), "\n")...)
	}
	return write(w, lines)
}

// target is one endpoint and what it has.
type target struct {
	path string
	list *yaml.Node
	// rules are those of list.
	rules []config.Rule
	// label is the job that all its series have; empty where that is not known.
	label string
}

// takes says whether series of the job may come by.
func (t target) takes(job string) bool { return t.label == "" || t.label == job }

func targets(m Monitor, existing map[Monitor]*config.Object, o MonitorOptions) ([]target, error) {
	if e := existing[m]; e != nil {
		var out []target
		for _, p := range e.Endpoints {
			t := target{path: p.Path, list: p.List, rules: p.Rules}
			if p.Sole() {
				t.label = p.Label
			}
			out = append(out, t)
		}
		if len(out) == 0 {
			return nil, fmt.Errorf("%s has no endpoint (%s:%d)", m, e.File, e.Line)
		}
		return out, nil
	}
	if len(o.Existing) > 0 {
		return nil, fmt.Errorf("%s is not among the monitors that were given: give its file too, or correct its namespace or name", m)
	}
	switch m.Kind {
	case config.ScrapeConfig:
		return []target{{path: "/spec"}}, nil
	case config.ServiceMonitor, config.PodMonitor:
		list := "endpoints"
		if m.Kind == config.PodMonitor {
			list = "podMetricsEndpoints"
		}
		var out []target
		for i := range max(1, o.Endpoints) {
			out = append(out, target{path: fmt.Sprintf("/spec/%s/%d", list, i)})
		}
		return out, nil
	}
	return nil, fmt.Errorf("the kind %q is none of ServiceMonitor, PodMonitor, ScrapeConfig", m.Kind)
}

// makePatch writes the patch of one monitor with the rules of its jobs.
func makePatch(p *relabel.Plan, of []jobRules, m Monitor, endpoints []target) (Patch, error) {
	out := Patch{Monitor: m}
	for _, j := range of {
		if !slices.ContainsFunc(endpoints, func(e target) bool { return e.takes(j.job) }) {
			var labels []string
			for _, e := range endpoints {
				labels = append(labels, strconv.Quote(e.label))
			}
			return Patch{}, fmt.Errorf("none of its endpoints has series of job %q: they are of %s", j.job, strings.Join(slices.Compact(labels), " and "))
		}
		out.Jobs = append(out.Jobs, j.job)
	}
	lines := []string{
		"# " + comment(fmt.Sprintf("%s of job %s.", m, strings.Join(out.Jobs, " and "))),
		"# " + comment(fmt.Sprintf("kubectl -n %s patch %s %s --type json --patch-file FILE", m.Namespace, strings.ToLower(m.Kind), m.Name)),
	}
	// kubectl takes the first document of a file that has several, whatever its command names.
	name, err := scalar(m.Name)
	if err != nil {
		return Patch{}, err
	}
	lines = append(lines, "- op: test", "  path: /metadata/name", "  value: "+name)
	for _, e := range endpoints {
		others, err := withoutOurs(e)
		if err != nil {
			return Patch{}, err
		}
		ours, err := rulesAt(e, of, p.Owner)
		if err != nil {
			return Patch{}, err
		}
		if len(ours) == 0 && len(others) == len(e.rules) {
			continue // of another job, and has nothing of ours
		}
		path, err := scalar(e.path + "/metricRelabelings")
		if err != nil {
			return Patch{}, err
		}
		lines = append(lines, "- op: test", "  path: "+path)
		if e.list == nil {
			lines = append(lines, "  value: null")
		} else {
			lines = append(lines, "  value:")
			text, err := elements(e.list.Content)
			if err != nil {
				return Patch{}, err
			}
			lines = append(lines, text...)
		}
		own, err := elements(others)
		if err != nil {
			return Patch{}, err
		}
		lines = append(lines, "- op: add", "  path: "+path)
		if all := slices.Concat(own, indented(ours)); len(all) > 0 {
			lines = append(append(lines, "  value:"), all...)
		} else {
			lines = append(lines, "  value: []")
		}
	}
	out.Body = []byte(strings.Join(lines, "\n") + "\n")
	return out, nil
}

// rulesAt are the lines of our rules for one endpoint.
func rulesAt(e target, of []jobRules, owner string) ([]string, error) {
	var out []string
	for _, j := range of {
		if !e.takes(j.job) {
			continue
		}
		lines, err := monitorRules(j.rules, owner, e.label == j.job)
		if err != nil {
			return nil, err
		}
		out = append(out, lines...)
	}
	return out, nil
}

// elements writes existing rules as they were, without their comments, inside a patch.
func elements(list []*yaml.Node) ([]string, error) {
	var out []string
	for _, n := range list {
		text, err := element(n)
		if err != nil {
			return nil, err
		}
		out = append(out, indented(text)...)
	}
	return out, nil
}

func indented(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = "    " + l
	}
	return out
}

// element writes one existing rule as it was, without its comments.
func element(n *yaml.Node) ([]string, error) {
	var value any
	if err := n.Decode(&value); err != nil {
		return nil, fmt.Errorf("line %d: %w", n.Line, err)
	}
	text, err := yaml.Marshal([]any{value})
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", n.Line, err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), nil
}

// The mark of our rules in a monitor: a group at the end of the regex that matches the empty
// string, so that the rule means what it meant.
var markGroup = regexp.MustCompile(`^\(\?:(.*)\)\(\?P<spillway_([0-9a-f]{16})>\)$`)

// monitorRules writes our rules for a monitor, each with its evidence and its mark; sole says that
// only series of their job come by.
func monitorRules(rules []*propose.Rule, owner string, sole bool) ([]string, error) {
	var out []string
	for _, r := range rules {
		out = append(out, "# "+comment(r.ID))
		out = append(out, evidence(r, owner)...)
		configs, err := placed(r, sole)
		if err != nil {
			return nil, err
		}
		for _, c := range configs {
			m, err := marked(c)
			if err != nil {
				return nil, fmt.Errorf("rule %s: %w", r.ID, err)
			}
			lines, err := configLines(m, operatorSpelling)
			if err != nil {
				return nil, fmt.Errorf("rule %s: %w", r.ID, err)
			}
			check, err := configLines(m, prometheusSpelling)
			if err != nil {
				return nil, fmt.Errorf("rule %s: %w", r.ID, err)
			}
			if err := readBack(check, []*promrelabel.Config{m}); err != nil {
				return nil, fmt.Errorf("rule %s: %w", r.ID, err)
			}
			out = append(out, lines...)
		}
	}
	return out, nil
}

// marked puts our mark into a rule. An empty replacement becomes the mark's group, which is empty:
// an operator whose field knows no difference between empty and missing leaves it out, and
// Prometheus then takes $1, which would put the metric's name there.
func marked(c *promrelabel.Config) (*promrelabel.Config, error) {
	lines, err := configLines(c, operatorSpelling)
	if err != nil {
		return nil, err
	}
	sum := checksum(lines)
	copied := *c
	if copied.Regex, err = promrelabel.NewRegexp("(?:" + pattern(c) + ")(?P<spillway_" + sum + ">)"); err != nil {
		return nil, fmt.Errorf("the regex cannot be marked: %w", err)
	}
	if copied.Replacement == "" {
		copied.Replacement = "${spillway_" + sum + "}"
	}
	return &copied, nil
}

// unmark takes our mark off a rule; ok says that it has one.
func unmark(c *promrelabel.Config) (plain *promrelabel.Config, sum string, ok bool, err error) {
	m := markGroup.FindStringSubmatch(pattern(c))
	if m == nil {
		return nil, "", false, nil
	}
	copied := *c
	if copied.Regex, err = promrelabel.NewRegexp(m[1]); err != nil {
		return nil, m[2], true, fmt.Errorf("the regex inside the mark is none: %w", err)
	}
	if copied.Replacement == "${spillway_"+m[2]+"}" {
		copied.Replacement = ""
	}
	return &copied, m[2], true, nil
}

// withoutOurs gives the rules that are not ours. Ours go behind all of them, as in Merge.
func withoutOurs(e target) (others []*yaml.Node, err error) {
	var problems []error
	for i, r := range e.rules {
		n := e.list.Content[i]
		if r.Err != nil {
			problems = append(problems, fmt.Errorf("%s:%d: %w: correct it first", r.File, r.Line, r.Err))
			continue
		}
		plain, sum, ok, err := unmark(r.Config)
		if !ok {
			others = append(others, n)
			continue
		}
		var lines []string
		if err == nil {
			lines, err = configLines(plain, operatorSpelling)
		}
		if err != nil || checksum(lines) != sum {
			problems = append(problems, fmt.Errorf("%s:%d: this rule of ours was changed by hand: undo the change, or take the group (?P<spillway_…>) out "+
				"of its regex to keep it as yours", r.File, r.Line))
		}
	}
	return others, errors.Join(problems...)
}

// Jobs are the jobs of the plan that have rules, sorted: each needs a monitor.
func Jobs(p *relabel.Plan) []string {
	seen := map[string]bool{}
	for i := range p.Rules {
		seen[p.Rules[i].Job] = true
	}
	return slices.Sorted(maps.Keys(seen))
}
