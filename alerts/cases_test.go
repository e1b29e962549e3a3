package alerts_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// without are kinds of cases that an alert cannot have, with the reason.
var without = map[string]map[string]string{
	"Watchdog": {
		"near miss": "it always fires: its silence is the signal",
		"no data":   "it needs none",
	},
}

// Every alert has its four kinds of cases, which test that alert and expect of it what their names
// say; every case is about an alert.
func TestEveryAlertHasCases(t *testing.T) {
	have := map[string]map[string]bool{}
	for _, a := range alertsOf(t) {
		have[a.Alert] = map[string]bool{}
	}
	seen := map[string]string{}
	for _, f := range caseFiles(t) {
		for i := range f.Tests {
			c := &f.Tests[i]
			alert, kind := c.subject()
			if first, ok := seen[c.Name]; ok {
				t.Errorf("%s: case %q is there twice, also in %s", f.path, c.Name, first)
			}
			seen[c.Name] = f.path
			switch {
			case alert == "recorded" && len(c.Alerts) == 0:
				continue // a case of recording rules
			case kind == "" || have[alert] == nil:
				t.Errorf("%s: the name of case %q is not <Alert>: %s, for an alert that there is", f.path, c.Name, strings.Join(kinds, "|"))
				continue
			}
			fires, quiet := false, false
			for _, a := range c.Alerts {
				if a.Name == alert {
					fires = fires || len(a.Want) > 0
					quiet = quiet || len(a.Want) == 0
				}
			}
			clusters := map[string]bool{}
			for _, in := range c.Input {
				if l, err := newParser().ParseMetric(in.Series); err == nil {
					clusters[l.Get("cluster")] = true
				}
			}
			delete(clusters, "")
			switch {
			case !fires && !quiet:
				t.Errorf("%s: case %q has no alert_rule_test of %s", f.path, c.Name, alert)
			case kind == "fires" && !fires:
				t.Errorf("%s: case %q expects it nowhere to fire", f.path, c.Name)
			case kind == "near miss" && !quiet:
				t.Errorf("%s: case %q expects it nowhere to be quiet", f.path, c.Name)
			case kind == "two clusters" && len(clusters) < 2 && len(c.ExternalLabels) == 0:
				t.Errorf("%s: case %q has series of %d clusters", f.path, c.Name, len(clusters))
			default:
				have[alert][kind] = true
			}
		}
	}
	for _, alert := range slices.Sorted(maps.Keys(have)) {
		var missing []string
		for _, k := range kinds {
			if reason := without[alert][k]; !have[alert][k] && reason == "" {
				missing = append(missing, k)
			} else if have[alert][k] && reason != "" {
				t.Errorf("%s has a case %q, and is listed as having none", alert, k)
			}
		}
		if len(missing) > 0 {
			t.Errorf("%s lacks cases: %s; write them into a file of alerts/tests, called %q and so on", alert, strings.Join(missing, ", "), alert+": "+missing[0])
		}
	}
}

// sections are the headings of a runbook page, in their order.
var sections = []string{"What it means", "What it breaks", "First three commands", "How to silence"}

var heading = regexp.MustCompile(`(?m)^## (.+)$`)

// Every alert has a runbook page with the four sections, each with something in it, and every page
// is an alert's.
func TestRunbooks(t *testing.T) {
	const dir = "../docs/runbooks"
	pages := map[string]bool{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "README.md" {
			pages[strings.TrimSuffix(e.Name(), ".md")] = true
		}
	}
	seen := map[string]bool{}
	for _, a := range alertsOf(t) {
		if seen[a.Alert] {
			continue
		}
		seen[a.Alert] = true
		if !pages[a.Alert] {
			t.Errorf("%s has no page docs/runbooks/%s.md", a.Alert, a.Alert)
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, a.Alert+".md"))
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		if !strings.HasPrefix(text, "# "+a.Alert+"\n") {
			t.Errorf("docs/runbooks/%s.md does not begin with \"# %s\"", a.Alert, a.Alert)
		}
		var found []string
		at := heading.FindAllStringSubmatchIndex(text, -1)
		for i, m := range at {
			end := len(text)
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			title := strings.TrimSpace(text[m[2]:m[3]])
			for _, s := range sections {
				if !strings.HasPrefix(title, s) {
					continue
				}
				found = append(found, s)
				body := strings.TrimSpace(text[m[1]:end])
				if len(body) < 40 {
					t.Errorf("docs/runbooks/%s.md: %q says next to nothing: %q", a.Alert, s, body)
				}
				if n := commands(body); s == "First three commands" && n < 3 {
					t.Errorf("docs/runbooks/%s.md has %d commands, not three", a.Alert, n)
				}
			}
		}
		if !slices.Equal(found, sections) {
			t.Errorf("docs/runbooks/%s.md has the sections %q, not %q", a.Alert, found, sections)
		}
	}
	for page := range pages {
		if !seen[page] {
			t.Errorf("docs/runbooks/%s.md belongs to no alert", page)
		}
	}
}

// commands counts what a reader can paste: lines of code blocks that are no comments, where a line
// that ends with a backslash goes on; or list items with code in them.
func commands(body string) int {
	n, inside, goesOn := 0, false, false
	for line := range strings.SplitSeq(body, "\n") {
		l := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(l, "```"):
			inside = !inside
		case inside && l != "" && !strings.HasPrefix(l, "#"):
			if !goesOn {
				n++
			}
			goesOn = strings.HasSuffix(l, `\`)
		case !inside && listItem.MatchString(l) && strings.Contains(l, "`"):
			n++
		}
	}
	return n
}

var listItem = regexp.MustCompile(`^(\d+\.|[-*]) `)

// severities is the closed set.
var severities = []string{"auto", "info", "warning", "critical"}

// atOnce are alerts that page without a `for`, with the reason.
var atOnce = map[string]string{
	"NodeARPTableOverflow":     "the counter's increase over minutes is the proof already",
	"PrometheusHACrashLooping": "it counts restarts over an hour",
	"PrometheusOOMLoop":        "it counts restarts over three hours",
}

// What is true of one node or GPU is never critical; every alert keeps its cluster, says enough,
// and names only labels that it has.
func TestAlertsSayEnough(t *testing.T) {
	in := newInference(t)
	label := regexp.MustCompile(`\$labels\.(\w+)`)
	for _, a := range alertsOf(t) {
		has := in.of(a.expr)
		for k := range a.Labels {
			has.add(k)
		}
		if !slices.Contains(severities, a.Labels["severity"]) {
			t.Errorf("%s: severity %q is none of %v", a.where(), a.Labels["severity"], severities)
		}
		if a.Labels["severity"] == "critical" {
			for _, l := range []string{"node", "gpu", "UUID"} {
				if has.names[l] {
					t.Errorf("%s is critical and about one %s: one node's trouble is never a page", a.where(), l)
				}
			}
			if a.For == 0 && atOnce[a.Alert] == "" {
				t.Errorf("%s pages without waiting", a.where())
			}
		}
		if a.scope == "global" && !has.names["cluster"] {
			t.Errorf("%s loses the label cluster; it has %s", a.where(), has)
		}
		for _, k := range []string{"summary", "description", "runbook_url"} {
			if strings.TrimSpace(a.Annotations[k]) == "" {
				t.Errorf("%s has no annotation %s", a.where(), k)
			}
		}
		if d := a.Annotations["description"]; a.Alert != "Watchdog" && !strings.Contains(d, "$value") && !strings.Contains(d, "$labels.") {
			t.Errorf("%s: the description has neither a value nor a label: %s", a.where(), d)
		}
		d := a.Annotations["description"]
		if _, link, ok := strings.Cut(d, "/d/"); !ok || !strings.Contains(link, "var-cluster={{") {
			t.Errorf("%s: the description has no link to a dashboard with its cluster filled in: %s", a.where(), d)
		}
		if u := a.Annotations["runbook_url"]; !strings.HasSuffix(u, "/"+a.Alert+".md") {
			t.Errorf("%s: runbook_url %s is not its page", a.where(), u)
		}
		if strings.Contains(a.Annotations["summary"], "{{") {
			t.Errorf("%s: the summary has a value in it, so that notifications cannot be grouped by it: %s", a.where(), a.Annotations["summary"])
		}
		for k, text := range a.Annotations {
			for _, m := range label.FindAllStringSubmatch(text, -1) {
				if !has.has(m[1]) && (a.scope != "shard" || m[1] != "cluster") {
					t.Errorf("%s: annotation %s shows the label %s, which it does not have; it has %s", a.where(), k, m[1], has)
				}
			}
		}
	}
}
