package verify_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/uses"
	"github.com/spillwayproject/spillway/relabel/verify"
)

func file(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// withRules is a prometheus.yml whose job has these rules, the first of them in line 4.
func withRules(t testing.TB, rules string) string {
	t.Helper()
	return file(t, "prometheus.yml", "scrape_configs:\n  - job_name: j\n    metric_relabel_configs:\n"+indent(rules, "      "))
}

func indent(text, by string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		b.WriteString(by + line)
	}
	return b.String()
}

func queries(t testing.TB, texts ...string) *uses.Set {
	t.Helper()
	set := new(uses.Set)
	for i, q := range texts {
		set.Add(&uses.Use{Kind: uses.Listed, File: "q.promql", Line: i + 1, Query: q})
	}
	return set
}

// One look at each trap: what is found, how bad it is, and where.
func TestTraps(t *testing.T) {
	for name, c := range map[string]struct {
		rules    string
		check    string
		severity verify.Severity
		line     int
		text     string
	}{
		"6 integer le":             {"- {source_labels: [__name__, le], regex: 'h_bucket;(1|5|10)', action: drop}", verify.CheckLe, verify.Broken, 4, "le=1, 5, 10 is stored as 1.0, 5.0, 10.0"},
		"6 le with a useless zero": {"- {source_labels: [__name__, le], regex: 'h_bucket;0\\.50', action: drop}", verify.CheckLe, verify.Broken, 4, "le=0.50 is stored as 0.5"},
		"6 a million":              {"- {source_labels: [le, __name__], regex: '1000000;h_bucket', action: drop}", verify.CheckLe, verify.Broken, 4, "stored as 1e+06"},
		"6 any name":               {"- {source_labels: [__name__, le], regex: '.*_bucket;30', action: drop}", verify.CheckLe, verify.Broken, 4, "30 is stored as 30.0"},
		"6 quantiles":              {"- {source_labels: [__name__, quantile], regex: 's;1', action: drop}", verify.CheckLe, verify.Broken, 4, "quantile=1"},
		"7 unescaped dot":          {"- {source_labels: [__name__, code], regex: 'm;2.0', action: drop}", verify.CheckDot, verify.Doubtful, 4, "names 2.0"},
		"drop without a regex": {
			"- {source_labels: [__name__], action: drop}", verify.CheckEverything, verify.Broken, 4,
			"without a regex drops every series",
		},
		"drop of everything":         {"- {source_labels: [__name__, pod], regex: '.+;.*', action: Drop}", verify.CheckEverything, verify.Broken, 4, "matches everything"},
		"drop without source labels": {"- {action: drop}", verify.CheckEverything, verify.Broken, 4, "without source_labels"},
		"drop of nothing":            {"- {regex: up, action: drop}", verify.CheckNothing, verify.Doubtful, 4, "never matches"},
		"10 keep":                    {"- {source_labels: [__name__], regex: 'a|b', action: keep}", verify.CheckKeep, verify.Doubtful, 4, "allow-list"},
		"11 labelkeep": {
			"- {regex: 'job|instance', action: labelkeep}", verify.CheckName, verify.Broken, 4,
			"takes __name__",
		},
		"11 labeldrop":                 {"- {regex: '__.*', action: labeldrop}", verify.CheckName, verify.Broken, 4, "takes __name__"},
		"9 temporary label":            {"- {source_labels: [a], target_label: __tmp_x}\n- {regex: __tmp_y, action: labeldrop}", verify.CheckTemporary, verify.Broken, 4, "__tmp_x stays"},
		"labeldrop with source_labels": {"- {source_labels: [__name__], regex: pod, action: labeldrop}", verify.CheckRefused, verify.Broken, 4, "never at a value"},
		"no action": {
			"- {source_labels: [__name__], regex: go_.*}", verify.CheckRefused, verify.Broken, 4,
			"Was `action: drop` meant?",
		},
		"16 casing":      {"- {sourceLabels: [__name__], regex: go_.*, action: drop}", verify.CheckRefused, verify.Broken, 4, "the field is source_labels"},
		"unknown field":  {"- {source_labels: [__name__], regexp: go_.*, action: drop}", verify.CheckRefused, verify.Broken, 4, "no field regexp"},
		"bad regex":      {"- {source_labels: [__name__], regex: 'a(', action: drop}", verify.CheckRefused, verify.Broken, 4, "missing closing"},
		"null in quotes": {"- {source_labels: [__name__], regex: 'null', action: drop}", verify.CheckRefused, verify.Broken, 4, "(?:null)"},
		"12 up":          {"- {source_labels: [__name__], regex: 'up|a', action: drop}", verify.CheckNeverSeen, verify.Doubtful, 4, "up never pass"},
		"long": {
			"- {source_labels: [__name__], regex: '" + strings.Repeat("a|", 100) + "b', action: drop}",
			verify.CheckLong, verify.Doubtful, 4, "101 alternatives",
		},
		"meta labels": {"- {source_labels: [__meta_kubernetes_pod_name], regex: x, action: drop}", verify.CheckLevel, verify.Doubtful, 4, "__meta_kubernetes_pod_name is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			path := withRules(t, c.rules)
			r := check(t, verify.Options{Prometheus: []string{path}})
			got := find(r, c.check, path, c.line)
			if len(got) != 1 || got[0].Severity != c.severity || !strings.Contains(got[0].String(), c.text) || len(r.Findings) != 1 {
				t.Fatalf("%s", textOf(t, r))
			}
			if want := map[bool]verify.State{true: verify.Faulty, false: verify.OK}[c.severity == verify.Broken]; r.State != want {
				t.Errorf("state %q", r.State)
			}
		})
	}
}

func TestNothingToFind(t *testing.T) {
	path := withRules(t, `
- {source_labels: [__name__, le], regex: 'h_bucket;(0\.5|1(\.0)?|1e\+06)', action: drop}
- {source_labels: [a, b], target_label: __tmp_x}
- {source_labels: [__tmp_x], regex: 'c;d', action: drop}
- {regex: __tmp_.*, action: labeldrop}
- {regex: '(job|instance|__.*|a|b)', action: labelkeep}
- {source_labels: [__name__], regex: '(?:null)', action: drop}
`)
	if r := check(t, verify.Options{Prometheus: []string{path}}); r.State != verify.OK || len(r.Findings) > 0 {
		t.Error(textOf(t, r))
	}
}

// Trap 2 of the fields: rules among those for targets.
func TestWrongLevel(t *testing.T) {
	path := file(t, "prometheus.yml", `scrape_configs:
  - job_name: j
    relabel_configs:
      - {source_labels: [__name__], regex: go_.*, action: drop}
      - {source_labels: [__name__], regex: go_.*, action: keep}
      - {source_labels: [__address__], target_label: instance}
`)
	r := check(t, verify.Options{Prometheus: []string{path}})
	drop, keep := find(r, verify.CheckLevel, path, 4), find(r, verify.CheckLevel, path, 5)
	if len(r.Findings) != 2 || len(drop) != 1 || drop[0].Severity != verify.Doubtful || len(keep) != 1 ||
		keep[0].Severity != verify.Broken {
		t.Error(textOf(t, r))
	}
}

// Trap 18: rules of one job on several servers.
func TestServersDiffer(t *testing.T) {
	const a = "- {source_labels: [__name__], regex: a, action: drop}"
	const b = "- {source_labels: [__name__], regex: b, action: drop}"
	one, same, other, fewer, more := withRules(t, a+"\n"+b), withRules(t, "# the same\n"+a+"\n"+b),
		withRules(t, a+"\n"+strings.Replace(b, "b,", "c,", 1)), withRules(t, a), withRules(t, a+"\n"+b+"\n"+a)
	for path, want := range map[string]string{
		same: "", other: "rule 2 of job j differs from " + one + ":5",
		fewer: "job j lacks the rule of " + one + ":5", more: "rule 3 of job j is missing in " + one,
	} {
		r := check(t, verify.Options{Prometheus: []string{one, path}})
		switch {
		case want == "" && len(r.Findings) > 0:
			t.Error(textOf(t, r))
		case want != "" && (len(r.Findings) != 1 || r.Findings[0].Check != verify.CheckDiffers || r.Findings[0].File != path ||
			!strings.Contains(r.Findings[0].Text, want) || r.State != verify.Faulty):
			t.Errorf("want %q:\n%s", want, textOf(t, r))
		}
	}
}

// What shards choose by a hash is on another shard.
func TestShardsAreNoDifference(t *testing.T) {
	shard := func(n int) string {
		return withRules(t, fmt.Sprintf("- {source_labels: [node], modulus: 4, target_label: __tmp_hash, action: hashmod}\n- {source_labels: [__tmp_hash], regex: %d, action: keep}\n- {regex: __tmp_.+, action: labeldrop}", n))
	}
	files := []string{shard(0), shard(1), shard(2), shard(3)}
	for _, src := range []inventory.Source{nil, series(t, "m node=a", "m node=b", "m node=c", "m node=d")} {
		if r := check(t, verify.Options{Prometheus: files, Uses: queries(t, "sum(m)"), Source: src}); r.State != verify.OK ||
			len(r.Findings) > 0 {
			t.Error(textOf(t, r))
		}
	}
}

// Judged from uses alone.
func TestNeedsWithoutStoredSeries(t *testing.T) {
	for name, c := range map[string]struct {
		rules, query string
		severity     verify.Severity // empty where nothing is found
		text         string
	}{
		"the name":                   {"- {source_labels: [__name__], regex: 'a|b', action: drop}", `sum(rate(a[5m]))`, verify.Broken, "loses all series of a"},
		"by a wildcard":              {"- {source_labels: [__name__], regex: 'a_.*', action: drop}", `a_total`, verify.Broken, "loses all series"},
		"another name":               {"- {source_labels: [__name__], regex: 'a|b', action: drop}", `aa + ab`, "", ""},
		"another job":                {"- {source_labels: [__name__], regex: 'a|b', action: drop}", `a{job="k"}`, "", ""},
		"names of a nameless one":    {"- {source_labels: [__name__], regex: 'a|b', action: drop}", `count({__name__=~"a.*",job="j"})`, verify.Broken, "loses all series"},
		"not in a keep":              {"- {source_labels: [__name__], regex: 'b|c', action: keep}", `a`, verify.Broken, "loses all series"},
		"one value that it names":    {"- {source_labels: [__name__, code], regex: 'a;(200|201)', action: drop}", `a{code="200"}`, verify.Broken, "loses all series"},
		"one of two values":          {"- {source_labels: [__name__, code], regex: 'a;(200|201)', action: drop}", `a{code=~"200|500"}`, verify.Broken, `loses code="200"`},
		"other values":               {"- {source_labels: [__name__, code], regex: 'a;(200|201)', action: drop}", `a{code=~"5.."}`, "", ""},
		"any value":                  {"- {source_labels: [__name__, code], regex: 'a;(200|201)', action: drop}", `a`, verify.Doubtful, `may lose code="200", code="201" of a`},
		"those without a label":      {"- {source_labels: [__name__, pod, namespace], regex: 'a;;', action: drop}", `sum(a)`, verify.Doubtful, "may lose"},
		"needs the label":            {"- {source_labels: [__name__, pod, namespace], regex: 'a;;', action: drop}", `sum(a{pod!=""})`, "", ""},
		"names it as absent":         {"- {source_labels: [__name__, pod, namespace], regex: 'a;;', action: drop}", `sum(a{pod="",namespace=""})`, verify.Broken, "loses all series"},
		"a bucket, both spellings":   {`- {source_labels: [__name__, le], regex: 'h_bucket;30(\.0)?', action: drop}`, `h_bucket{le="30"}`, verify.Broken, "loses all series"},
		"a bucket, new spelling":     {`- {source_labels: [__name__, le], regex: 'h_bucket;30\.0', action: drop}`, `h_bucket{le=~"30(\\.0)?"}`, verify.Broken, `loses le="30.0"`},
		"another bucket":             {`- {source_labels: [__name__, le], regex: 'h_bucket;30(\.0)?', action: drop}`, `h_bucket{le="60"}`, "", ""},
		"a metric called x":          {`- {source_labels: [__name__, code], regex: 'x;5', action: drop}`, `x{code="5"}`, verify.Broken, "loses all series"},
		"a separator in a value":     {`- {source_labels: [__name__, code], regex: 'x;5;6', action: drop}`, `x{code="5;6"}`, verify.Broken, "loses all series"},
		"+Inf":                       {`- {source_labels: [__name__, le], regex: 'h_bucket;\+Inf', action: drop}`, `histogram_quantile(0.9, sum by (le) (rate(h_bucket[5m])))`, verify.Broken, "become NaN"},
		"fewer buckets":              {`- {source_labels: [__name__, le], regex: 'h_bucket;0\.5', action: drop}`, `histogram_quantile(0.9, sum by (le) (rate(h_bucket[5m])))`, verify.Doubtful, "fewer buckets"},
		"2 absent":                   {"- {source_labels: [__name__], regex: 'a', action: drop}", `absent(a)`, verify.Broken, "asks for what is absent"},
		"a label that goes":          {"- {regex: pod, action: labeldrop}", `sum by (pod) (a)`, verify.Broken, "needs label pod"},
		"a label that nobody reads":  {"- {regex: pod, action: labeldrop}", `sum by (node) (a)`, "", ""},
		"a label of a bare selector": {"- {regex: pod, action: labeldrop}", `a > 0`, "", ""},
		"a label of one metric":      {"- {source_labels: [__name__], regex: a, target_label: pod, replacement: ''}", `sum by (pod) (a)`, verify.Broken, "needs label pod"},
		"an external label":          {"- {source_labels: [__name__, cluster], regex: 'a;', action: drop}", `a{cluster="x"}`, verify.Broken, "loses all series"},
		"a long class":               {"- {source_labels: [__name__, pod], regex: 'a;', action: drop}", `a{pod=~"[a-z]{5}-[0-9]+"}`, "", ""},
		"a variable that is kept":    {"- {source_labels: [__name__], regex: b, action: drop}", `a{pod=~".*"}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := check(t, verify.Options{Prometheus: []string{withRules(t, c.rules)}, Uses: queries(t, c.query)})
			var got []verify.Finding
			for _, f := range r.Findings {
				if f.Check == verify.CheckLost {
					got = append(got, f)
				}
			}
			if c.severity == "" {
				if len(got) > 0 {
					t.Error(textOf(t, r))
				}
				return
			}
			if len(got) != 1 || got[0].Severity != c.severity || !strings.Contains(got[0].Text, c.text) || got[0].File != "q.promql" ||
				got[0].Line != 1 || got[0].RuleLine != 4 {
				t.Error(textOf(t, r))
			}
		})
	}
}

func TestMonitors(t *testing.T) {
	const text = `apiVersion: v1
kind: List
items:
  - apiVersion: monitoring.coreos.com/v1
    kind: ServiceMonitor
    metadata: {name: kube-apiserver, namespace: monitoring}
    spec:
      endpoints:
        - port: https
          metricRelabelings:
            - sourceLabels: [__name__, le]
              regex: apiserver_request_sli_duration_seconds_bucket;(15|25|30|50)
              action: drop
        - port: other
          metricRelabelings:
            - source_labels: [__name__]
              regex: a
              action: Drop
  - kind: ConfigMap
    metadata: {name: x}
---
{"kind": "PodMonitor", "metadata": {"name": "p", "namespace": "n"}, "spec": {"podMetricsEndpoints": [{"metricRelabelings": [{"regex": "pod", "action": "labeldrop"}]}]}}
---
kind: ScrapeConfig
metadata: {name: s, namespace: n}
spec:
  metricRelabelings:
    - {sourceLabels: [__name__], action: drop}
`
	path := file(t, "monitors.yaml", text)
	r := check(t, verify.Options{Monitors: []string{path}, Rules: []string{"testdata/rules"}})
	for check, line := range map[string]int{verify.CheckLe: 11, verify.CheckRefused: 16, verify.CheckEverything: 28} {
		if got := find(r, check, path, line); len(got) != 1 || got[0].Severity != verify.Broken {
			t.Errorf("%s:\n%s", check, textOf(t, r))
		}
	}
	if got := find(r, verify.CheckRefused, path, 16); len(got) == 1 &&
		!strings.Contains(got[0].Text, "in a monitor the field is sourceLabels") {
		t.Errorf("%s", got[0].Text)
	}
	found := false
	for _, f := range find(r, verify.CheckLost, "testdata/rules/burnrate.yaml", 8) {
		found = found || f.RuleLine == 11 && f.Severity == verify.Broken
	}
	if !found || r.Jobs != 4 {
		t.Errorf("F1 in a monitor:\n%s", textOf(t, r))
	}
}

func TestKept(t *testing.T) {
	keep := file(t, "keep.yaml", "- {match: seasonal_total, owner: ada, reason: the yearly bill, expires: 2027-01-01}\n")
	r := check(t, verify.Options{Prometheus: []string{withRules(t, "- {source_labels: [__name__], regex: 'seasonal_.*', action: drop}")}, Keep: []string{keep}})
	if len(r.Findings) != 1 || r.Findings[0].File != keep ||
		!strings.Contains(r.Findings[0].Advice, "to be kept for ada (the yearly bill)") {
		t.Error(textOf(t, r))
	}
}

// Not checked is neither right nor wrong.
func TestCouldNotCheck(t *testing.T) {
	good := withRules(t, "- {source_labels: [__name__], regex: a, action: drop}")
	for name, o := range map[string]verify.Options{
		"no such file":       {Prometheus: []string{good, filepath.Join(t.TempDir(), "none.yml")}},
		"no YAML":            {Prometheus: []string{good, file(t, "x.yml", "a: [")}},
		"not a config":       {Prometheus: []string{good, file(t, "x.yml", "a: b")}},
		"rules not a list":   {Prometheus: []string{good, file(t, "x.yml", "scrape_configs:\n- job_name: k\n  metric_relabel_configs: {a: b}\n")}},
		"a monitor":          {Prometheus: []string{good, file(t, "x.yml", "kind: ServiceMonitor\n")}},
		"no monitor":         {Prometheus: []string{good}, Monitors: []string{good}},
		"misspelt list":      {Monitors: []string{file(t, "m.yml", "kind: ScrapeConfig\nmetadata: {name: x}\nspec:\n  metric_relabel_configs: []\n")}},
		"missing job files":  {Prometheus: []string{file(t, "x.yml", "scrape_config_files: ['jobs/*.yml']\n")}},
		"unreadable rules":   {Prometheus: []string{good}, Rules: []string{file(t, "r.yml", "groups: [\n")}},
		"missing dashboards": {Prometheus: []string{good}, Dashboards: []string{filepath.Join(t.TempDir(), "none")}},
	} {
		t.Run(name, func(t *testing.T) {
			r := check(t, o)
			if r.State != verify.NotChecked || len(r.Unchecked) == 0 || !strings.Contains(textOf(t, r), "could not check: ") {
				t.Errorf("%q\n%s", r.State, textOf(t, r))
			}
		})
	}
	var names []string
	for i := range 2500 {
		names = append(names, fmt.Sprintf("h%d_bucket", i))
	}
	wide := withRules(t, "- {source_labels: [__name__, le], regex: '("+strings.Join(names, "|")+");(1|2|3|4|5|6|7|8|9|10)', action: drop}")
	if r := check(t, verify.Options{Prometheus: []string{wide}}); r.State != verify.NotChecked ||
		!strings.Contains(textOf(t, r), "more than 20000 combinations") {
		t.Errorf("a list too long to look at: %.300s", textOf(t, r))
	}
	if _, err := verify.Check(context.Background(), verify.Options{}); err == nil {
		t.Error("nothing to check is no result")
	}
	both := check(t, verify.Options{Prometheus: []string{good, "none.yml"}, Uses: queries(t, "a")})
	if both.State != verify.Faulty || len(both.Unchecked) != 1 {
		t.Errorf("%s", textOf(t, both))
	}
}

// TestNotShown: a source that did not show what it has leaves a hole, and what the set of uses
// lacks besides is said first.
func TestNotShown(t *testing.T) {
	good := withRules(t, "- {source_labels: [__name__], regex: a, action: drop}")
	set := queries(t, "b")
	set.Refused, set.Warnings = []string{"http://grafana: no rules"}, []string{"http://grafana: no rules; export them"}
	r := check(t, verify.Options{Prometheus: []string{good}, Uses: set})
	if r.State != verify.NotChecked || !slices.Contains(r.Unchecked, "http://grafana: no rules; what only it uses was not looked at") {
		t.Errorf("%q, unchecked %q", r.State, r.Unchecked)
	}
	set = queries(t, "b")
	set.Unrendered, set.Lost.Requests = []string{"rules: templates are in it"}, 3
	r = check(t, verify.Options{Prometheus: []string{good}, Uses: set})
	said := strings.Join(r.Alarms, "\n")
	if r.State != verify.OK || !strings.Contains(said, "Not rendered, and not read: rules: templates are in it") || !strings.Contains(said, "3 requests") {
		t.Errorf("%q, alarms %q", r.State, r.Alarms)
	}
	if text := textOf(t, r); !strings.Contains(text, "\nok, as far as uses were read: ") {
		t.Errorf("%s", text)
	}
}

// TestRulesNotShown: where no rules were given, those of a server that does not show them are a
// hole; else it may have none.
func TestRulesNotShown(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/rules":
			http.Error(w, "forbidden", http.StatusForbidden)
		case "/api/v1/metadata":
			fmt.Fprint(w, `{"status":"success","data":{}}`)
		default:
			fmt.Fprint(w, `{"status":"success","data":[]}`)
		}
	}))
	defer api.Close()
	good := withRules(t, "- {source_labels: [__name__], regex: a, action: drop}")
	rules := file(t, "r.yml", "groups: [{name: g, rules: [{alert: A, expr: b > 1}]}]\n")
	for want, given := range map[verify.State][]string{verify.NotChecked: nil, verify.OK: {rules}} {
		src, err := inventory.Open(t.Context(), "api+"+api.URL, inventory.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r := check(t, verify.Options{Prometheus: []string{good}, Uses: queries(t, "b"), Rules: given, Source: src})
		if r.State != want {
			t.Errorf("with rules %q: %s", given, textOf(t, r))
		}
	}
}

func TestJobFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"prometheus.yml": "scrape_config_files: ['jobs/*.yml']\nscrape_configs: []\n",
		"jobs/a.yml":     "scrape_configs:\n  - job_name: j\n    metric_relabel_configs:\n      - {source_labels: [__name__], action: drop}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := check(t, verify.Options{Prometheus: []string{filepath.Join(dir, "prometheus.yml")}})
	if len(find(r, verify.CheckEverything, filepath.Join(dir, "jobs/a.yml"), 4)) != 1 {
		t.Error(textOf(t, r))
	}
}

func TestText(t *testing.T) {
	f := verify.Finding{
		Severity: verify.Broken, File: "a.yaml", Line: 3, Where: "alert X", Text: "loses\nb", Advice: "Do c.",
		RuleFile: "p.yml", RuleLine: 7, Job: "j",
	}
	if got, want := f.String(), "a.yaml:3: error: alert X: loses b [rule p.yml:7, job j]. Do c."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	f = verify.Finding{Severity: verify.Doubtful, Where: "ada, panel 7", Text: "x", RuleFile: "p.yml", RuleLine: 7, Job: "j"}
	if got, want := fmt.Sprint(&f), "ada, panel 7: warning: x [rule p.yml:7, job j]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestRulesOfOtherJobs: where series may have any label job, a rule that asks for one takes those
// of that job, whatever the entry's own is.
func TestRulesOfOtherJobs(t *testing.T) {
	const (
		drop  = "{%s: [job, __name__], regex: 'api;a', action: drop}"
		blank = "{%s: [job, __name__], regex: 'api;a', %s: shard, replacement: ''}"
		by    = "sum by (shard) (a)"
	)
	servers := map[string]string{
		"from another label": "    relabel_configs: [{source_labels: [app], target_label: job}]\n",
		"any label":          "    relabel_configs: [{action: labelmap, regex: __meta_kubernetes_pod_label_(.+)}]\n",
		"honor_labels":       "    honor_labels: true\n",
		"its own":            "",
	}
	const service = "kind: Service\nmetadata: {name: pods, namespace: n, labels: {app: x}}\n---\n"
	monitors := map[string]string{
		"no service": "", "a service beside": service, "a label of their own": "-",
	}
	for name, c := range map[string]struct {
		rule, query, text string
	}{
		"any job":            {drop, "sum(rate(a[5m])) == 0", `loses job="api" of a`},
		"that job":           {drop, `a{job="api"}`, `loses all series of a{job="api"}`},
		"that and its own":   {drop, `a{job=~"api|pods"}`, `loses job="api" of a`},
		"each":               {drop, `a{job=~".+"}`, `loses job="api" of a`},
		"its own alone":      {drop, `a{job="pods"}`, ""},
		"another metric":     {drop, `b{job="api"}`, ""},
		"a label":            {blank, by, "needs label shard of a"},
		"a label of that":    {blank, `sum by (shard) (a{job="api"})`, `needs label shard of a{job="api"}`},
		"a label of its own": {blank, `sum by (shard) (a{job="pods"})`, ""},
	} {
		look := func(where string, o verify.Options, closed bool) {
			o.Uses = queries(t, c.query)
			r := check(t, o)
			want := c.text
			if closed {
				want = ""
			}
			switch {
			case want == "" && len(r.Findings) == 0:
			case want == "" || len(r.Findings) != 1 || r.Findings[0].Severity != verify.Broken ||
				!strings.Contains(r.Findings[0].Text, want):
				t.Errorf("%s, %s: want %q\n%s", name, where, want, textOf(t, r))
			}
		}
		rule := strings.NewReplacer("{%s", "{source_labels", "%s:", "target_label:").Replace(c.rule)
		for where, fields := range servers {
			text := "scrape_configs:\n  - job_name: pods\n    kubernetes_sd_configs: [{role: pod}]\n" + fields +
				"    metric_relabel_configs:\n      - " + rule + "\n"
			look(where, verify.Options{Prometheus: []string{file(t, "prometheus.yml", text)}}, fields == "")
		}
		rule = strings.NewReplacer("{%s", "{sourceLabels", "%s:", "targetLabel:").Replace(c.rule)
		for where, before := range monitors {
			own := ""
			if before == "-" {
				before, own = service, "      honorLabels: true\n"
			}
			text := before + "kind: ServiceMonitor\nmetadata: {name: pods, namespace: n}\nspec:\n  selector: {matchLabels: {app: x}}\n" +
				"  endpoints:\n    - port: a\n" + own + "      metricRelabelings:\n        - " + rule + "\n"
			look(where, verify.Options{Monitors: []string{file(t, "m.yaml", text)}}, false)
			// --job says that it is none but this one, unless its pages bring their own.
			told := map[string]string{"n/pods": "pods"}
			look(where+", told", verify.Options{Monitors: []string{file(t, "m.yaml", text)}, Jobs: told}, own == "")
		}
	}
}

// TestStoredOfOtherJobs: what such a rule takes of stored series is known; once it is in force
// there are none, and what the query asks for is made up.
func TestStoredOfOtherJobs(t *testing.T) {
	const jobs = "scrape_configs:\n  - job_name: pods\n    honor_labels: true\n    metric_relabel_configs:\n" +
		"      - {source_labels: [%s__name__], regex: '%sa', action: drop}\n  - job_name: web\n"
	for name, c := range map[string]struct {
		rule     [2]any
		stored   []string
		severity verify.Severity
		text     string
	}{
		"before":            {[2]any{"job, ", "api;"}, []string{"a job=api", "b job=pods"}, verify.Broken, "loses 1 stored series of a"},
		"in force":          {[2]any{"job, ", "api;"}, []string{"b job=api", "b job=pods"}, verify.Broken, `loses job="api" of a`},
		"for whatever job":  {[2]any{"", ""}, []string{"a job=api", "b job=pods"}, verify.Doubtful, "loses 1 stored series of a"},
		"of another server": {[2]any{"job, ", "api;"}, []string{"a job=web", "b job=pods"}, "", ""},
	} {
		config, asks := file(t, "prometheus.yml", fmt.Sprintf(jobs, c.rule[:]...)), queries(t, "sum(rate(a[5m])) == 0")
		r := check(t, verify.Options{Prometheus: []string{config}, Uses: asks, Source: series(t, c.stored...)})
		if len(r.Findings) != map[bool]int{true: 1}[c.text != ""] ||
			c.text != "" && (r.Findings[0].Severity != c.severity || !strings.Contains(r.Findings[0].Text, c.text)) {
			t.Errorf("%s: %s", name, textOf(t, r))
		}
	}
}
