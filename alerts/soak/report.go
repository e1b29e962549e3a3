package soak

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// Report is what a soak found.
type Report struct {
	Options     Options
	From, Until time.Time
	// Fired is every alert of the severities that fired in [From, Until), by time; some since
	// before.
	Fired []*Fired
	// Missed are the alerts that an incident had to raise and did not.
	Missed []Miss
	// Took is machine time in all; Scraping and Evaluating are what its parts took, several of
	// which run at once.
	Took, Scraping, Evaluating time.Duration
	// Samples is how many were scraped.
	Samples int

	plan      *plan
	model     *cluster.Model
	incidents []*Incident
	groups    []spent
}

// Miss is an alert that did not come.
type Miss struct {
	Alert string
	Of    *Incident
}

// spent is the time that a group's evaluations took.
type spent struct {
	group string
	took  time.Duration
}

// judge holds what fired against what was staged.
func (r *Report) judge(j *judge) {
	// Prometheus gives the alerts of one rule in any order.
	slices.SortFunc(j.fired, func(a, b *Fired) int {
		return cmp.Or(a.From.Compare(b.From), labels.Compare(a.Labels, b.Labels))
	})
	j.explain()
	for _, f := range j.fired {
		if f.Until.After(r.From) {
			r.Fired = append(r.Fired, f)
		}
	}
	for _, i := range r.incidents {
		for _, name := range i.sort.want {
			if _, ok := i.found[name]; !ok {
				r.Missed = append(r.Missed, Miss{name, i})
			}
		}
	}
}

// False are the alerts of a severity that nothing explains.
func (r *Report) False(severity string) []*Fired {
	var out []*Fired
	for _, f := range r.Fired {
		if f.By == nil && f.Severity() == severity {
			out = append(out, f)
		}
	}
	return out
}

// NodeDays is how many nodes times days were judged.
func (r *Report) NodeDays() float64 {
	return float64(r.Options.Cluster.Nodes) * r.Until.Sub(r.From).Hours() / 24
}

// most is how many lines of one sort a report has.
const most = 40

// String is the report as text.
func (r *Report) String() string {
	var b strings.Builder
	rules := 0
	for _, g := range r.plan.groups {
		rules += len(g.rules)
	}
	fmt.Fprintf(&b, "%d nodes, %.1f days, seed %d: %.0f node-days in %s, %.1f a minute (scraping %s, rules %s); %d samples, %d rules in %d groups\n", r.Options.Cluster.Nodes, r.Until.Sub(r.From).Hours()/24, r.Options.Seed, r.NodeDays(), r.Took.Round(time.Second), r.NodeDays()/r.Took.Minutes(),
		r.Scraping.Round(time.Second), r.Evaluating.Round(time.Second), r.Samples, rules, len(r.plan.groups))
	fmt.Fprintf(&b, "%d incidents; %d alerts fired; false: %d auto (%.2f in 1,000 node-days), %d critical; missed: %d\n\n",
		len(r.incidents), len(r.Fired), len(r.False("auto")), 1000*float64(len(r.False("auto")))/r.NodeDays(), len(r.False("critical")),
		len(r.Missed))
	r.found(&b)
	for _, severity := range r.Options.Severities {
		for n, f := range r.False(severity) {
			if n == most {
				fmt.Fprintf(&b, "… and more\n")
				break
			}
			fmt.Fprintf(&b, "false %s at %s for %s: %s%s\n", severity, moment(f.From), f.Until.Sub(f.From), f.Labels, r.near(f))
		}
	}
	for n, m := range r.Missed {
		if n == most {
			fmt.Fprintf(&b, "… and more\n")
			break
		}
		fmt.Fprintf(&b, "missed %s: %s of %s from %s until %s\n", m.Alert, m.Of.Name, m.Of.Target, moment(m.Of.From), moment(m.Of.Until))
	}
	return b.String()
}

// rebooted are the reboots of the alert's node that the model has drawn shortly before it or during
// it.
func (r *Report) rebooted(f *Fired) []cluster.Trouble {
	node := f.Labels.Get("node")
	if node == "" {
		return nil
	}
	return r.model.Troubles(cluster.NodeDown, node, f.From.Add(-15*time.Minute), f.Until)
}

// near tells what was staged on the same node within a day, for who looks for the reason.
func (r *Report) near(f *Fired) string {
	var b strings.Builder
	for _, x := range r.rebooted(f) {
		fmt.Fprintf(&b, "\n    reboot from %s, %s", moment(x.From), x.Until.Sub(x.From).Round(time.Second))
	}
	for _, i := range r.incidents {
		same := i.sort.on == aShare || i.node() == f.Labels.Get("node") || f.Labels.Get("node") == ""
		if same && i.From.Before(f.Until) && i.end().After(f.From.Add(-day)) {
			fmt.Fprintf(&b, "\n    %s of %s from %s until %s", i.Name, i.Target, moment(i.From), moment(i.Until))
		}
	}
	return b.String()
}

// found writes the table of sorts: how many were staged, and when their alerts came.
func (r *Report) found(b *strings.Builder) {
	fmt.Fprintf(b, "%-32s %-28s %6s %6s %9s %9s %9s\n", "incident", "alert", "staged", "found", "first", "median", "last")
	for k := range catalogue {
		s := &catalogue[k]
		staged := 0
		took := map[string][]time.Duration{}
		for _, i := range r.incidents {
			if i.sort != s {
				continue
			}
			staged++
			for name, d := range i.found {
				took[name] = append(took[name], d)
			}
		}
		if staged == 0 {
			continue
		}
		for _, name := range s.want {
			t := took[name]
			slices.Sort(t)
			if len(t) == 0 {
				fmt.Fprintf(b, "%-32s %-28s %6d %6d\n", s.name, name, staged, 0)
				continue
			}
			fmt.Fprintf(b, "%-32s %-28s %6d %6d %9s %9s %9s\n", s.name, name, staged, len(t),
				seconds(t[0]), seconds(t[len(t)/2]), seconds(t[len(t)-1]))
		}
		if len(s.want) == 0 {
			fmt.Fprintf(b, "%-32s %-28s %6d\n", s.name, "none", staged)
		}
	}
	b.WriteString("\n")
}

// moment is a time as reports name it.
func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func seconds(d time.Duration) string { return d.Round(time.Second).String() }

// Spent is the time that each group took, the longest first.
func (r *Report) Spent() string {
	var b strings.Builder
	slices.SortFunc(r.groups, func(a, c spent) int { return cmp.Compare(c.took, a.took) })
	for _, g := range r.groups {
		fmt.Fprintf(&b, "%9s %s\n", g.took.Round(time.Millisecond), g.group)
	}
	return b.String()
}
