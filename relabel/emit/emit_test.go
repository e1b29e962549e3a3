package emit

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	promconfig "github.com/prometheus/prometheus/config"
	promrelabel "github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// dropNames is a rule as the planner makes them.
func dropNames(job string, names ...string) propose.Rule {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = regexp.QuoteMeta(n)
	}
	return propose.Rule{
		ID: job + "/names/1", Kind: propose.Names, Risk: propose.Low, Job: job, Metrics: names,
		Saves:    propose.Saving{Series: 1234, SamplesPerSecond: 41.1333, BytesPerDay: 6_041_000, MemoryBytes: 5_054_464},
		Evidence: propose.Evidence{Text: "Nothing has used them for 30 days."},
		Relabel:  []*promrelabel.Config{cfg(promrelabel.Drop, strings.Join(quoted, "|"), "__name__")},
	}
}

func dropBuckets(job, name string, les ...string) propose.Rule {
	r := dropNames(job, name)
	r.ID, r.Kind, r.Risk, r.Label, r.Values, r.QuantileError = job+"/buckets/1", propose.Buckets, propose.High, "le", les, 2.5
	alternatives := make([]string, len(les))
	for i, le := range les {
		alternatives[i] = strings.TrimSuffix(regexp.QuoteMeta(le), `\.0`)
		if strings.HasSuffix(le, ".0") {
			alternatives[i] += `(\.0)?`
		}
	}
	r.Relabel = []*promrelabel.Config{cfg(promrelabel.Drop, regexp.QuoteMeta(name)+";("+strings.Join(alternatives, "|")+")", "__name__",
		"le")}
	r.Evidence.LastUse = &uses.Use{
		Kind: uses.Logged, Where: "ada, dashboard gpu-overview, panel 7", Owner: "ada",
		Last: time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC),
	}
	return r
}

func takeLabel(job, name, label string) propose.Rule {
	r := dropNames(job, name)
	r.ID, r.Kind, r.Risk, r.Label = job+"/label/1", propose.Label, propose.Medium, label
	c := cfg(promrelabel.Replace, regexp.QuoteMeta(name), "__name__")
	c.TargetLabel, c.Replacement = label, ""
	r.Relabel = []*promrelabel.Config{c}
	return r
}

func cfg(action promrelabel.Action, regex string, source ...model.LabelName) *promrelabel.Config {
	c := promrelabel.DefaultRelabelConfig
	c.Action, c.SourceLabels, c.Regex = action, source, promrelabel.MustNewRegexp(regex)
	return &c
}

func planOf(rules ...propose.Rule) *relabel.Plan {
	p := &relabel.Plan{Version: relabel.Version, Made: time.Date(2026, 11, 21, 22, 0, 0, 0, time.UTC), Owner: "observability", Rules: rules}
	p.Stored.Series, p.Dropped.Series = 10_000, 6_543
	for _, j := range Jobs(p) {
		p.Jobs = append(p.Jobs, relabel.Job{Job: j, Stored: propose.Saving{Series: 1000}, Dropped: propose.Saving{Series: 500}})
	}
	return p
}

// load reads a prometheus.yml as the server does.
func load(t testing.TB, text string) *promconfig.Config {
	t.Helper()
	c, err := promconfig.Load(text, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("Prometheus does not load it: %v\n%s", err, clip(text))
	}
	return c
}

func clip(s string) string {
	if len(s) > 4000 {
		return s[:4000] + "…"
	}
	return s
}

// asFile makes a prometheus.yml of the documents that Prometheus wrote.
func asFile(t testing.TB, text string) string {
	t.Helper()
	var out strings.Builder
	out.WriteString("scrape_configs:\n")
	for i, doc := range strings.Split(text, "---\n")[1:] {
		fmt.Fprintf(&out, "  - job_name: job%d\n", i)
		for line := range strings.Lines(doc) {
			out.WriteString("    " + line)
		}
	}
	return out.String()
}

func TestPrometheus(t *testing.T) {
	p := planOf(takeLabel("etcd", "etcd_debugging_x", "shard"),
		dropBuckets("apiserver", "apiserver_request_sli_duration_seconds_bucket", "0.15", "30.0"),
		dropNames("apiserver", "a_total", "b_total"),
		dropNames("etcd", "x"))
	var out bytes.Buffer
	if err := Prometheus(p, &out); err != nil {
		t.Fatal(err)
	}
	want := "# Drop rules of the plan of 2026-11-21T22:00:00Z, written by `spillway relabel emit`.\n" + `# They drop 6543 of 10000 series, each with a proof that no known use changes beyond the risk that stands above it.
# Owner: observability.
# They go last in each list, behind the rules that the job has: they were proven for what comes out of those.
---
# job: apiserver
# 500 of 1000 series go.
metric_relabel_configs:
  # spillway: begin apiserver/buckets/1 SUM
  # buckets, risk high: 2 buckets, 1 metric. Nothing has used them for 30 days.
  # Saves 1234 series, 5.05 MB of memory, 41.1 samples/s, 6.04 MB a day on disk.
  # Last use: 2026-11-03, ada, dashboard gpu-overview, panel 7.
  # Neighbouring buckets that stay differ by a factor of up to 2.5.
  # Owner: observability.
  - source_labels: [job, __name__, le]
    regex: 'apiserver;(?:apiserver_request_sli_duration_seconds_bucket;(0\.15|30(\.0)?))'
    action: drop
  # spillway: end apiserver/buckets/1
  # spillway: begin apiserver/names/1 SUM
  # names, risk low: 2 metrics. Nothing has used them for 30 days.
  # Saves 1234 series, 5.05 MB of memory, 41.1 samples/s, 6.04 MB a day on disk.
  # Last use: none found.
  # Owner: observability.
  - source_labels: [job, __name__]
    regex: 'apiserver;(?:a_total|b_total)'
    action: drop
  # spillway: end apiserver/names/1
---
# job: etcd
# 500 of 1000 series go.
metric_relabel_configs:
  # spillway: begin etcd/names/1 SUM
  # names, risk low: 1 metric. Nothing has used them for 30 days.
  # Saves 1234 series, 5.05 MB of memory, 41.1 samples/s, 6.04 MB a day on disk.
  # Last use: none found.
  # Owner: observability.
  - source_labels: [job, __name__]
    regex: 'etcd;x'
    action: drop
  # spillway: end etcd/names/1
  # spillway: begin etcd/label/1 SUM
  # label, risk medium: label shard of 1 metric. Nothing has used them for 30 days.
  # Saves 1234 series, 5.05 MB of memory, 41.1 samples/s, 6.04 MB a day on disk.
  # Last use: none found.
  # Owner: observability.
  - source_labels: [job, __name__]
    regex: 'etcd;etcd_debugging_x'
    target_label: shard
    replacement: ''
    action: replace
  # spillway: end etcd/label/1
`
	got := regexp.MustCompile(`(begin \S+) [0-9a-f]{16}`).ReplaceAllString(out.String(), "$1 SUM")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	c := load(t, asFile(t, out.String()))
	if !equalConfigs(c.ScrapeConfigs[0].MetricRelabelConfigs, append(asked(t, &p.Rules[1]), asked(t, &p.Rules[2])...)) {
		t.Errorf("Prometheus reads %+v", c.ScrapeConfigs[0].MetricRelabelConfigs)
	}
	var again bytes.Buffer
	if err := Prometheus(p, &again); err != nil || again.String() != out.String() {
		t.Errorf("other bytes the second time (%v)", err)
	}
}

// asked are the rule's configs with its job in front.
func asked(t testing.TB, r *propose.Rule) []*promrelabel.Config {
	t.Helper()
	configs, err := forJob(r)
	if err != nil {
		t.Fatal(err)
	}
	return configs
}

func TestRefusesWhatPrometheusWould(t *testing.T) {
	labeldrop := cfg(promrelabel.LabelDrop, "pod", "__name__")
	noRegex := cfg(promrelabel.Drop, "x", "__name__")
	noRegex.Regex = promrelabel.Regexp{}
	noTarget := cfg(promrelabel.Replace, "x", "__name__")
	for want, c := range map[string]*promrelabel.Config{
		"labeldrop action requires only 'regex'": labeldrop,
		"drop has no regex":                      noRegex,
		"requires 'target_label'":                noTarget,
		"is not UTF-8":                           cfg(promrelabel.Drop, "ab", "a\xffb"),
		"the rule is empty":                      nil,
	} {
		r := dropNames("apiserver", "x")
		r.Relabel = []*promrelabel.Config{c}
		var out bytes.Buffer
		err := Prometheus(planOf(r), &out)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "apiserver/names/1") {
			t.Errorf("want %q, got %v", want, err)
		}
		if out.Len() > 0 {
			t.Errorf("%s: something was written", want)
		}
	}
	twice := planOf(dropNames("a", "x"), dropNames("a", "y"))
	nothing := planOf(propose.Rule{ID: "a/names/1", Job: "a"})
	for want, p := range map[string]*relabel.Plan{"in the plan twice": twice, "says nothing that Prometheus could apply": nothing} {
		if err := Prometheus(p, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

var hostile = []string{
	"plain", "with 'quotes' and \"more\"", "line\nend", "cr\rlf\r\n", "tab\there", "# comment", "- dash", "a: b", "{x}", "[y]", "*alias",
	"&anchor", "!tag", "%dir", "@at", "`tick`", "|", ">", "?",
	"", " ", "  lead", "trail  ", "null", "~", "yes", "on", "1", "0x1f", "1e3", ".inf", "2026-11-21", "\u2028", "\u0085", "\ufeff",
	"\x00\x01", "日本語", "🙂", "a.b*c+d(e)[f]{g}^h$i|j\\k", "$1", "${x}", "{{ .x }}", "---", "...", "\u202eright to left",
	strings.Repeat("long_name_", 12_000),
}

// Whatever names hold, what Prometheus reads is what was planned, and drops exactly these names.
func TestHostileNames(t *testing.T) {
	var rules []propose.Rule
	for i, name := range hostile {
		r := dropNames(name, name)
		r.ID = fmt.Sprintf("%s/names/%d", name, i)
		r.Evidence.Text, r.Evidence.LastUse = name, &uses.Use{Where: name, Owner: name, File: name}
		if len(name) > 1000 { // in the rule only
			r.ID, r.Job, r.Evidence = "long/names/1", "long", propose.Evidence{}
		}
		rules = append(rules, r)
	}
	p := planOf(rules...)
	p.Owner = "a\nb: c"
	var out bytes.Buffer
	if err := Prometheus(p, &out); err != nil {
		t.Fatal(err)
	}
	byJobName, err := byJob(p)
	if err != nil {
		t.Fatal(err)
	}
	text := asFileHostile(t, out.String())
	c := load(t, text)
	if len(c.ScrapeConfigs) != len(rules) {
		t.Fatalf("%d jobs of %d", len(c.ScrapeConfigs), len(rules))
	}
	for i, j := range byJobName {
		if got := c.ScrapeConfigs[i].MetricRelabelConfigs; !equalConfigs(got, asked(t, j.rules[0])) {
			t.Errorf("%q reads %+v", clip(j.job), got)
			continue
		}
		for _, other := range append(hostile, "plainx", "xplain") {
			dropped := takes(c.ScrapeConfigs[i].MetricRelabelConfigs, j.job, other)
			if name := j.rules[0].Metrics[0]; dropped != (name == other) {
				t.Errorf("the rule for %q on %q: dropped is %v", clip(name), clip(other), dropped)
			}
		}
	}
}

// asFileHostile cuts at documents as a YAML reader does, since --- may stand inside a comment's
// text.
func asFileHostile(t testing.TB, text string) string {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(text))
	n := 0
	for d.Decode(new(yaml.Node)) == nil {
		n++
	}
	var out strings.Builder
	out.WriteString("scrape_configs:\n")
	i := 0
	for line := range strings.Lines(text) {
		if line == "---\n" {
			fmt.Fprintf(&out, "  - job_name: job%d\n", i)
			i++
			continue
		}
		if i > 0 {
			out.WriteString("    " + line)
		}
	}
	if i != n {
		t.Fatalf("%d documents, %d marks", n, i)
	}
	return out.String()
}

func FuzzScalar(f *testing.F) {
	for _, s := range hostile[:len(hostile)-1] {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text, err := scalar(s)
		if err != nil {
			return
		}
		doc := "a: " + text + "\nb: [" + text + "]\nc: x # " + comment(s) + "\n"
		var loose struct {
			A string
			B []string
			C string
		}
		if err := yaml.Unmarshal([]byte(doc), &loose); err != nil {
			t.Fatalf("%q: %v\n%s", s, err, doc)
		}
		if loose.A != s || len(loose.B) != 1 || loose.B[0] != s || loose.C != "x" {
			t.Fatalf("%q reads as %+v", s, loose)
		}
	})
}

func FuzzPrometheus(f *testing.F) {
	for _, s := range hostile[:len(hostile)-1] {
		f.Add(s, "le", "30", "where "+s)
	}
	f.Fuzz(func(t *testing.T, name, label, value, where string) {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return // no regex holds it
		}
		r := dropNames("j", name)
		r.Relabel = []*promrelabel.Config{cfg(promrelabel.Drop, regexp.QuoteMeta(name)+";"+regexp.QuoteMeta(value), "__name__",
			model.LabelName(label))}
		r.Evidence.LastUse = &uses.Use{Where: where}
		p := planOf(r)
		var out bytes.Buffer
		if err := Prometheus(p, &out); err != nil {
			return
		}
		c := load(t, asFileHostile(t, out.String()))
		if !equalConfigs(c.ScrapeConfigs[0].MetricRelabelConfigs, asked(t, &r)) {
			t.Fatalf("%q %q %q reads %+v", name, label, value, c.ScrapeConfigs[0].MetricRelabelConfigs)
		}
		merged, _, err := Merge(p, []byte("scrape_configs:\n- job_name: j\n"))
		if err != nil {
			t.Fatal(err)
		}
		if back, _, err := Merge(planOf(), merged); err != nil || string(back) != "scrape_configs:\n- job_name: j\n" {
			t.Fatalf("%v: %q", err, back)
		}
	})
}

func TestWarnings(t *testing.T) {
	long := dropNames("a", strings.Repeat("x", 1100))
	long.ID = "a/names/2"
	var many []string
	for range 101 {
		many = append(many, fmt.Sprintf("m%d", rand.IntN(100)))
	}
	wide := dropNames("a", many...)
	ok := dropNames("b", many[:100]...)
	got := Warnings(planOf(long, wide, ok))
	if len(got) != 2 || !strings.Contains(got[0], "1100 bytes") || !strings.Contains(got[1], "101 alternatives") {
		t.Errorf("%q", got)
	}
}
