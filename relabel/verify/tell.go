package verify

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spillwayproject/spillway/relabel/uses"
)

// tell makes the findings of a loss, one for each use.
func (n *need) tell(r *Result, l *loss) {
	f := Finding{Severity: Broken, Check: CheckLost, RuleFile: l.rule.File, RuleLine: l.rule.Line, Job: n.job.Name}
	slices.Sort(l.values)
	if l.example != "" {
		f.Examples = []string{l.example}
	}
	selector := n.Selector()
	exact := n.named(l.rule)
	elsewhere := n.elsewhere && !l.here
	switch {
	case len(l.metrics) > 0:
		f.Severity = Doubtful
		f.Text = fmt.Sprintf("may lose metrics of %s, such as %s", selector, listed(l.metrics))
		f.Advice = "Give --scrape to know: the stored series decide."
	case len(l.labels) > 0 && n.stranger && n.job.why != "" && !exact:
		// which labels the pages of other jobs have, which may come through this one, nobody knows:
		// every rule on labels would be told for every query
		return
	case len(l.labels) > 0:
		slices.Sort(l.labels)
		f.Text = fmt.Sprintf("needs label %s of %s, which the rule takes away", listed(l.labels), selector)
		f.Advice = "Leave the label where this query needs it, or change the query."
		if !l.always {
			f.Severity = Doubtful
		}
	case l.older && !l.some:
		edges := slices.DeleteFunc(slices.Clone(l.values),
			func(v string) bool { label, _, _ := strings.Cut(v, "="); return !isNumeric(label) })
		f.Text = fmt.Sprintf("needs the bucket %s of %s, which the rule takes wherever the edge is stored without .0, as Prometheus before 3 does: the "+
			"query finds nothing then, and an alert on it stays silent", listed(edges), selector)
		f.Advice = "Take this edge out of the list."
		if l.stays {
			f.Severity = Doubtful
			f.Text = fmt.Sprintf("would need the bucket %s of %s on a server that stores the edge without .0, as Prometheus before 3 does, and there the rule takes it; in what --scrape shows the edge has .0, and stays",
				listed(edges), selector)
			f.Advice = "Take this edge out of the list before such a server has the rule."
		}
	case l.all || l.some:
		what := "all series"
		if len(l.values) > 0 && !l.all {
			what = listed(l.values)
		}
		f.Text = fmt.Sprintf("loses %s of %s", what, selector)
		f.Advice = "Take it out of the rule, or remove the query if nobody needs it."
		if l.extended {
			f.Severity = Doubtful
			f.Text += ", if this job has it: none of its stored series does, as where the rule is in force for that"
		} else if elsewhere || n.wide && n.others || n.anyJob && n.others && !exact {
			f.Severity = Doubtful
			f.Text += " in this job, if it has them"
		}
	case l.inf:
		f.Text = fmt.Sprintf("loses the bucket le=\"+Inf\" of %s: quantiles of the histogram become NaN", selector)
		f.Advice = "Take +Inf out of the list."
	case l.quantileBuckets:
		f.Severity = Doubtful
		f.Text = fmt.Sprintf("works out quantiles of %s with fewer buckets (without %s)", selector, listed(l.values))
		f.Advice = "Its answers change within the width of a bucket."
	default:
		f.Severity = Doubtful
		what := "series of some label values"
		if len(l.values) > 0 {
			what = listed(l.values)
		}
		f.Text = fmt.Sprintf("may lose %s of %s, such as %s", what, selector, l.example)
		f.Advice = "Give --scrape to know: the stored series decide."
	}
	if elsewhere && n.takes != nil && f.Severity == Broken {
		f.Severity = Doubtful
		f.Text += ", if this job has it"
	}
	n.doubt(&f, l)
	r.remotely(n.job, &f)
	if n.Absent {
		f.Text += "; the query asks for what is absent, and would find that"
	}
	r.tellUses(f, n.Entry)
}

// doubtTyped makes a warning of a loss of what nobody may ever type.
func doubtTyped(f *Finding, example string) {
	if f.Severity != Broken {
		return
	}
	f.Severity = Doubtful
	f.Text = "may lose what people type into a text box in the name, as it was not saved: it " + f.Text
	if example != "" && !strings.Contains(f.Text, example) {
		f.Text += ", such as " + example
	}
	f.Advice = "Take it out of the rule if somebody types that."
}

// doubt says where a loss is one only if something is so that nobody knows here.
func (n *need) doubt(f *Finding, l *loss) {
	if l.typed {
		doubtTyped(f, l.example)
	}
	anyEndpoint := len(n.matchers["metrics_path"])+len(n.matchers["endpoint"]) == 0
	if f.Severity == Broken && (l.all || l.foreign) && anyEndpoint && n.job.keptBeside(n.names) {
		f.Severity = Doubtful
		f.Text += " in this endpoint; another one of the monitor keeps all that it has of the name"
	}
	if f.Severity == Broken && n.job.Honors &&
		!slices.ContainsFunc(n.names, func(name string) bool { return !strings.Contains(name, ":") }) {
		f.Severity = Doubtful
		f.Text += ", if this job scrapes them from another server: they have the name of recorded series"
	}
	if n.stranger && f.Severity == Broken && !l.foreign {
		f.Severity = Doubtful
		condition := "the series of this monitor have that job"
		f.Advice = "Give the monitor's Service in the same folder, or say --job=NAMESPACE/NAME=JOB."
		if n.job.why != "" {
			condition = "series of this job have that label job, which is not known, since " + n.job.why
			f.Advice = "Give --scrape to know: the stored series decide."
		}
		f.Text = "may lose what it asks for, if " + condition + ": it " + f.Text
	}
}

// remotely marks what is lost only for who asks the server that is written to. Nobody knows here
// who does.
func (r *Result) remotely(j *job, f *Finding) {
	if j.remote {
		f.remote = fmt.Sprintf("%s:%d: %s", j.File, j.Line, j.Name)
	}
}

// tellRemotes makes one note for each server that is written to of all that is lost there: most
// fleets send aggregates alone, and ask their own servers for the rest.
func (r *Result) tellRemotes() {
	var names []string
	lost, by := map[string][]string{}, map[[2]string][]string{} // the rules by server and place
	for _, f := range r.Findings {
		if f.remote == "" {
			continue
		}
		if lost[f.remote] == nil {
			names = append(names, f.remote)
		}
		where := strings.TrimSpace(fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Where))
		if !slices.Contains(lost[f.remote], where) {
			lost[f.remote] = append(lost[f.remote], where)
		}
		at := [2]string{f.remote, where}
		by[at] = union(by[at], []string{fmt.Sprintf("%s:%d", f.RuleFile, f.RuleLine)})
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return f.remote != "" })
	for _, name := range names {
		of := lost[name]
		const shown = 10
		var examples []string
		for _, where := range of[:min(shown, len(of))] {
			examples = append(examples, where+" [rule "+strings.Join(by[[2]string{name, where}], ", ")+"]")
		}
		such := strings.Join(examples, "; ")
		if len(of) > shown {
			such += "; and others"
		}
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s does not send all that is selected at %s, such as %s. They lose it where they are asked of the server that is written to: "+
			"verify its rules by themselves, with what is asked there", name, places(len(of)), such))
	}
}

// named says whether the rule names a metric of the need in full.
func (n *need) named(ru *rule) bool {
	return slices.ContainsFunc(n.names, func(name string) bool { return ru.names()[name] })
}

// tellUses adds a finding for each use of a need.
func (r *Result) tellUses(f Finding, e *uses.Entry) {
	if e.Whole {
		r.tellPicked(f, e)
		return
	}
	for _, u := range e.Uses {
		f := f
		f.File, f.Line, f.Where, f.Query = u.File, u.Line, u.Where, u.Query
		if u.Guessed {
			f.Severity = Doubtful
			f.Text = "may read what its name says: it " + f.Text
			f.Advice = "Give the rule (--rules), which says what it reads."
		}
		if u.Kind == uses.Kept {
			f.Advice = "Take it out of the rule: it is to be kept"
			if u.Owner != "" {
				f.Advice += " for " + u.Owner
			}
			if u.Reason != "" {
				f.Advice += " (" + u.Reason + ")"
			}
			f.Advice += "."
		}
		r.add(f)
	}
}

// tellPicked adds one finding for all uses of a need of which a log has some values alone: whether
// others are asked for nobody knows.
func (r *Result) tellPicked(f Finding, e *uses.Entry) {
	u := slices.MaxFunc(e.Uses, func(a, b *uses.Use) int { return a.Last.Compare(b.Last) })
	f.File, f.Line, f.Where, f.Query = u.File, u.Line, u.Where, u.Query
	f.Severity, f.picked = Doubtful, e.Uses
	f.Text = "may lose what is asked for with other values than those in the log, which somebody picked: it " + f.Text
	f.Advice = "Take it out of the rule, or write down what is asked for (a dashboard, a rule, --queries)."
	r.add(f)
}

// withoutPicked leaves out what tellPicked told where the rule takes what such a use asked for:
// that is told as an error.
func withoutPicked(all []Finding) []Finding {
	key := func(f *Finding, file, where, query string) [6]string {
		return [6]string{f.RuleFile, strconv.Itoa(f.RuleLine), f.Job, file, where, query}
	}
	lost := map[[6]string]bool{}
	for i := range all {
		if f := &all[i]; f.Severity == Broken && f.Check == CheckLost {
			lost[key(f, f.File, f.Where, f.Query)] = true
		}
	}
	return slices.DeleteFunc(all, func(f Finding) bool {
		return slices.ContainsFunc(f.picked, func(u *uses.Use) bool { return lost[key(&f, u.File, u.Where, u.Query)] })
	})
}

func places(n int) string {
	if n == 1 {
		return "one place"
	}
	return fmt.Sprintf("%d places", n)
}
