package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Rules that two jobs of a collector share are written with one $ once, and left out of both where
// they have a variable.
func TestCollectorAnchors(t *testing.T) {
	for regex, want := range map[string]int{"a$$$$": 2, "a": 2, "${env:X}": 0} {
		text := `kind: OpenTelemetryCollector
spec:
  config:
    receivers:
      prometheus:
        config:
          scrape_configs:
          - {job_name: a, metric_relabel_configs: &rules [{source_labels: [x], regex: 'REGEX', target_label: y, replacement: '$${1}'}]}
          - {job_name: b, metric_relabel_configs: *rules}
`
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, []byte(strings.Replace(text, "REGEX", regex, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		o, problems := ReadObjects(path)
		if len(problems) > 0 || len(o.Jobs) != want || len(o.Unread) != 2-want {
			t.Fatalf("%s: %v, %d jobs, %q", regex, problems, len(o.Jobs), o.Unread)
		}
		for _, j := range o.Jobs {
			if c := j.Rules[0].Config; c.Replacement != "${1}" || c.Regex.String() != strings.ReplaceAll(regex, "$$", "$") {
				t.Errorf("job %s: %s %s", j.Name, c.Replacement, c.Regex)
			}
		}
	}
}

// Aliases of aliases, and one within its own anchor, are few nodes that are reached by many ways:
// each is looked at once.
func TestCollectorAliases(t *testing.T) {
	const self = "a: &a [*a, *a, *a, *a, *a, *a, *a, *a]\n"
	const merges = "a: &a {<<: [*a, *a, *a, *a, *a, *a, *a, *a, {b: *a}], x: {metric_relabel_configs: *a}}\nscrape_configs: [*a, *a]\n"
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 12 {
		bomb += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), i)
	}
	deep := strings.Repeat("{d: ", 40) + "{scrape_configs: [{job_name: j, metric_relabel_configs: [{source_labels: [a], regex: b, action: drop}]}]}" + strings.Repeat("}", 40)
	for name, c := range map[string]struct {
		text string
		jobs int
	}{
		"itself":   {"b: " + deep + "\n" + self, 1},
		"a bomb":   {bomb + "b: " + deep + "\n", 1},
		"merges":   {merges, 0},
		"together": {self + "s: &s [{job_name: j}]\nx: {scrape_configs: *s}\ny: {scrape_configs: *s}\n", 1},
	} {
		for where, head := range map[string]string{
			"text":      "kind: ConfigMap\ndata:\n  x: |\n    # job_name metric_relabel_configs\n",
			"collector": "kind: OpenTelemetryCollector\nspec:\n  config:\n    # metric_relabel_configs\n",
			"other":     "kind: VMAgent\nspec:\n  config:\n    # metric_relabel_configs\n",
		} {
			text := head + "    " + strings.ReplaceAll(strings.TrimSuffix(c.text, "\n"), "\n", "\n    ") + "\n"
			o := within(t, text)
			if where == "other" {
				if strings.Contains(c.text, "drop") != (len(o.Unread) == 1) {
					t.Errorf("%s, %s: %q", name, where, o.Unread)
				}
				continue
			}
			if len(o.Jobs) != c.jobs {
				t.Errorf("%s, %s: %d jobs", name, where, len(o.Jobs))
			}
		}
	}
}

// within are the objects of a text, which are read at once.
func within(t *testing.T, text string) *Objects {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan *Objects, 1)
	go func() {
		o, _ := ReadObjects(path)
		read <- o
	}()
	select {
	case o := <-read:
		return o
	case <-time.After(20 * time.Second):
		t.Fatalf("not read within 20 s:\n%s", text)
		return nil
	}
}

// What a collector takes from elsewhere when it starts is named; the jobs beside it are read.
func TestCollectorIncludes(t *testing.T) {
	const (
		job   = "{job_name: j, metric_relabel_configs: [{source_labels: [__name__], regex: a_m, action: drop}]}"
		where = "receivers:\n  prometheus/x:\n    config:\n      scrape_configs:"
	)
	for name, c := range map[string]struct {
		text   string
		jobs   int
		unread string // what each has, in order
	}{
		"an element":               {where + "\n      - ${file:/conf/job.yaml}\n      - " + job + "\n", 1, "${file:/conf/job.yaml}"},
		"an element without name":  {where + "\n      - " + job + "\n      - {metric_relabel_configs: []}\n", 1, "no job_name"},
		"all elements":             {where + "\n      - ${env:A}\n      - '${env:B}'\n", 0, "${env:A} ${env:B}"},
		"the list":                 {where + " ${file:/conf/jobs.yaml}\n", 0, "scrape_configs ${file:/conf/jobs.yaml}"},
		"the configuration":        {"receivers:\n  prometheus:\n    config: ${file:/conf/p.yaml}\n", 0, "config ${file:/conf/p.yaml}"},
		"the receiver":             {"receivers:\n  prometheus: ${file:/conf/p.yaml}\n", 0, "prometheus ${file:/conf/p.yaml}"},
		"all receivers":            {"receivers: ${file:/conf/receivers.yaml}\n", 0, "receivers ${file:/conf/receivers.yaml}"},
		"no variable":              {where + " $${x}\n", 0, ""},
		"of another receiver":      {"receivers:\n  otlp:\n    config: ${file:/conf/p.yaml}\n", 0, ""},
		"no receivers":             {"config: ${x}\nprometheus: {config: '${x}'}\n# receivers\n", 0, ""},
		"receivers of alerts":      {"receivers:\n- name: x\n  webhook_configs: [{url: '${URL}'}]\n", 0, ""},
		"the second document":      {"x: 1\n---\n" + where + "\n      - " + job + "\n", 1, ""},
		"in each of two documents": {where + "\n      - " + job + "\n---\n" + where + " ${env:X}\n", 1, "${env:X}"},
	} {
		for kind, head := range map[string]string{
			"a text":      "kind: ConfigMap\ndata:\n  x: |\n",
			"a collector": "kind: OpenTelemetryCollector\nspec:\n  config:\n",
			"its text":    "kind: OpenTelemetryCollector\nspec:\n  config: |\n",
		} {
			if kind == "a collector" && strings.Contains(c.text, "---") {
				continue
			}
			o := within(t, head+"    "+strings.ReplaceAll(strings.TrimSuffix(c.text, "\n"), "\n", "\n    ")+"\n")
			got := strings.Join(o.Unread, "\n")
			if len(o.Jobs) != c.jobs || (c.unread == "") != (got == "") {
				t.Errorf("%s, %s: %d jobs, %q", name, kind, len(o.Jobs), o.Unread)
			}
			for _, what := range strings.Fields(c.unread) {
				_, after, found := strings.Cut(got, what)
				if got = after; !found {
					t.Errorf("%s, %s: %q lacks %s", name, kind, o.Unread, what)
				}
			}
		}
	}
}

// In a folder, files that have nothing but a variable where scrape configs would be are read, too.
func TestCollectorIncludesInFolder(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "kind: OpenTelemetryCollector\nspec:\n  config:\n    receivers:\n      prometheus:\n        config: ${file:/conf/p.yaml}\n",
		"b.yaml": "kind: Service\nmetadata: {name: b}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o, problems := ReadObjects(dir)
	if len(problems) > 0 || len(o.Unread) != 1 || !strings.HasPrefix(o.Unread[0], filepath.Join(dir, "a.yaml:6:")) {
		t.Errorf("%v, %q", problems, o.Unread)
	}
}

// A job's name and the label job of its targets are as the collector hands them on; what a variable
// says of them is not known.
func TestCollectorJobs(t *testing.T) {
	const drop = ", metric_relabel_configs: [{source_labels: [__name__], regex: a_m, action: drop}]}"
	for job, want := range map[string]string{
		`{job_name: a$$b`: "a$b: a$b",
		`{job_name: a, static_configs: [{targets: [x], labels: {job: 'b$$'}}]`: "a: b$",
		`{job_name: a, static_configs: [{targets: ['${env:HOST}:9100']}]`:      "a: a",
		`{job_name: '${env:JOB}'`: "${env:JOB}: ?",
		`{job_name: '${env:JOB}', static_configs: [{targets: [x], labels: {job: b}}]`:                                   "${env:JOB}: b",
		`{job_name: '${env:JOB}', static_configs: [{targets: [x], labels: {job: b}}, {targets: [y]}]`:                   "${env:JOB}: b ?",
		`{job_name: a, static_configs: [{targets: [x], labels: {job: '${env:JOB}'}}, {targets: [y]}]`:                   "a: a ?",
		`{job_name: a, static_configs: [{targets: [x], labels: '${file:l.yaml}'}]`:                                      "a: a ?",
		`{job_name: a, static_configs: ['${file:t.yaml}']`:                                                              "a: a ?",
		`{job_name: a, static_configs: '${file:t.yaml}'`:                                                                "a: a ?",
		`{job_name: a, honor_labels: '${env:HONOR}'`:                                                                    "a: a ?",
		`{job_name: '${env:JOB}', relabel_configs: [{target_label: job, replacement: c}]`:                               "${env:JOB}: c",
		`{job_name: '${env:JOB}', dns_sd_configs: [{}], static_configs: [{targets: [x], labels: {job: b}}]`:             "${env:JOB}: b ?",
		`{job_name: '${env:JOB}', honor_labels: '${env:HONOR}', relabel_configs: [{target_label: job, replacement: c}]`: "${env:JOB}: c ?",
	} {
		o := within(t, "kind: OpenTelemetryCollector\nspec:\n  config:\n    receivers:\n      prometheus:\n        config:\n          scrape_configs:\n          - "+
			job+drop+"\n")
		if len(o.Jobs) != 1 {
			t.Errorf("%s: %d jobs, %q", job, len(o.Jobs), o.Unread)
			continue
		}
		j := o.Jobs[0]
		got := j.Name + ": " + strings.Join(j.Labels, " ")
		if j.Own != "" || j.Open {
			got = strings.TrimSuffix(got, " ") + " ?"
		}
		if len(j.Labels) > 0 && j.Label != j.Labels[0] || len(j.Labels) == 0 && j.Label != "" || got != want {
			t.Errorf("%s: %s, label %q, own %q", job, got, j.Label, j.Own)
		}
	}
}
