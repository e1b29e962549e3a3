package config

import (
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestPrometheus(t *testing.T) {
	jobs, include, err := Prometheus("etc/prometheus.yml", []byte(`x-common: &common
  metric_relabel_configs:
    - {source_labels: [__name__], regex: a, action: drop}
rules: &rules
  - {regex: pod, action: LabelDrop}
scrape_config_files: [more/*.yml, /abs/*.yml]
scrape_configs:
  - <<: *common
    job_name: merged
    kubernetes_sd_configs: [{role: pod}]
  - job_name: aliased
    metric_relabel_configs: *rules
  - {job_name: flow, relabel_configs: [{source_labels: [x], target_label: job}]}
  - job_name: honest
    honor_labels: true
    metric_relabel_configs:
  - job_name: renamed
    relabel_configs: [{target_label: job, replacement: other}]
  - job_name: static
    static_configs: [{targets: [a], labels: {job: one}}, {targets: [b], labels: {job: two}}, {targets: [c], labels: {job: one}}]
  - job_name: mixed
    static_configs: [{targets: [a], labels: {job: one}}]
    dns_sd_configs: [{names: [b]}]
  - {job_name: files, file_sd_configs: [{files: [a]}]}
  - job_name: pages
    honor_labels: true
    relabel_configs: [{target_label: job, replacement: other}]
  - job_name: mapped
    relabel_configs: [{action: labelmap, regex: __meta_kubernetes_node_label_(.+)}, {action: labelmap, regex: __meta_kubernetes_pod_label_(.+)}]
  - job_name: nodes
    relabel_configs: [{action: labelmap, regex: __meta_kubernetes_node_label_(.+)}]
  - {job_name: without, metric_relabel_configs: [{action: labelkeep, regex: __name__|instance}]}
  - job_name: settled
    honor_labels: true
    metric_relabel_configs: [{target_label: job, replacement: other}]
`))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(include, " "); got != "etc/more/*.yml /abs/*.yml" {
		t.Errorf("include %q", got)
	}
	var got []string
	for _, j := range jobs {
		text := fmt.Sprintf("%s:%d %s open=%v", j.Name, j.Line, strings.Join(j.Labels, ","), j.Open)
		if j.Own != "" {
			text += " " + j.Own
		}
		if j.Sole() != (len(j.Labels) == 1 && j.Own == "" && !j.Open) {
			t.Errorf("%s: sole is %v", text, j.Sole())
		}
		for _, r := range j.Rules {
			text += fmt.Sprintf(" %s:%d %s %s", r.File, r.Line, r.Config.Action, r.Config.Regex)
		}
		got = append(got, text)
	}
	want := "merged:8 merged open=false etc/prometheus.yml:3 drop a|aliased:11 aliased open=false etc/prometheus.yml:5 labeldrop pod|flow:13 flow " +
		"open=true|honest:14 honest open=false honor_labels|renamed:17 other open=false|" +
		"static:19 one,two open=false|mixed:21 mixed,one open=false|files:24 files open=false file_sd_configs|pages:25 other open=false honor_labels|mapped:28 mapped open=false labelmap|nodes:30 nodes open=false|" +
		"without:32 without open=true etc/prometheus.yml:32 labelkeep __name__|instance|settled:33 other open=false etc/prometheus.yml:35 replace (.*)"
	if strings.Join(got, "|") != want {
		t.Errorf("%q", got)
	}
}

func TestMonitors(t *testing.T) {
	objects, err := Monitors("m.yaml", []byte(`{"kind":"List","items":[{"kind":"ServiceMonitor","metadata":{"name":"a","namespace":"n"},"spec":{"endpoints":[{},{"metricRelabelings":null,"relabelings":[{"targetLabel":"x","replacement":""}]}]}}]}
---
# nothing
---
kind: ScrapeConfig
metadata: {name: s}
spec: {metricRelabelings: [{sourceLabels: [a], regex: 5, action: Keep}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objects {
		for _, e := range o.Endpoints {
			got = append(got, fmt.Sprintf("%s %s %s %d %d %v", o.Kind, e.Name, e.Path, len(e.Rules), len(e.Target), e.List != nil))
		}
	}
	want := "ServiceMonitor serviceMonitor/n/a/0 /spec/endpoints/0 0 0 false|ServiceMonitor serviceMonitor/n/a/1 /spec/endpoints/1 0 1 false|ScrapeConfig " +
		"scrapeConfig//s /spec 1 0 true"
	if strings.Join(got, "|") != want {
		t.Errorf("%q", got)
	}
	if c := objects[1].Endpoints[0].Rules[0]; c.Err != nil || c.Config.Action != "keep" || c.Config.Regex.String() != "5" || c.Line != 7 {
		t.Errorf("%+v", c)
	}
}

func TestRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"":                    "empty",
		"a: [":                "no YAML",
		"kind: PodMonitor\n":  "give it as a monitor",
		"- a\n":               "neither scrape_configs",
		"scrape_configs: 7\n": "no list",
		"scrape_configs: [{scheme: x}, 7, {job_name: j, relabel_configs: {}}]\n":      "p.yml:1: this element of scrape_configs has no job_name",
		"scrape_configs:\n- job_name: j\n  metric_relabel_configs: yes\n":             "p.yml:3: this is no list of rules",
		"a: &a\n  <<: *a\nscrape_configs:\n- <<: *a\n  metric_relabel_configs: [x]\n": "",
	} {
		_, _, err := Prometheus("p.yml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"":                     "no ServiceMonitor",
		"kind: ServiceMonitor": "no name or no spec",
		"kind: ServiceMonitor\nmetadata: {name: x}\nspec: {endpoints: 7}\n": "no list endpoints",
		"kind: PodMonitor\nmetadata: {name: x}\nspec: {podMetricsEndpoints: [{metric_relabel_configs: []}]}\n": "m.yml:3: the field is " +
			"called metricRelabelings here",
		"kind: ScrapeConfig\nmetadata: {name: x}\nspec:\n  metricRelabelings: {}\n":                                         "m.yml:4: this is no list of rules",
		"kind: List\nitems: [{kind: PodMonitor, metadata: {name: x}, spec: {podMetricsEndpoints: [{relabelConfigs: []}]}}]": "relabelings",
	} {
		_, err := Monitors("m.yml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What Prometheus does not accept is told with its reason, and the rules around it are read.
func TestRules(t *testing.T) {
	for text, want := range map[string]string{
		"{regex: a, action: drop}":                               "",
		"{source_labels: [a], target_label: b}":                  "",
		"{sourceLabels: [a], action: drop}":                      "the field is source_labels",
		"{source_labels: [a], regex: b}":                         "Was `action: drop` meant?",
		"{source_labels: [a], regex: b, action: labeldrop}":      "action replace with target_label",
		"{source_labels: [a], action: hashmod, target_label: b}": "non-zero modulus",
		"{source_labels: [a], regex: '(', action: drop}":         "missing closing",
		"{source_labels: [a], regex: '~', action: drop}":         "write (?:~)",
		"{source_labels: [a], regex: null, action: drop}":        "",
		"{source_labels: a, action: drop}":                       "cannot be read",
		"{source_labels: [a], action: explode}":                  "unknown relabel action",
		"{if: '{a=\"b\"}', action: drop}":                        "no field if",
		"7":                                                      "no mapping",
	} {
		var list yaml.Node
		if err := yaml.Unmarshal([]byte("- "+text+"\n- {regex: pod, action: labeldrop}\n"), &list); err != nil {
			t.Fatal(err)
		}
		got, err := rules("f", list.Content[0], snake)
		if err != nil || len(got) != 2 || got[1].Err != nil || got[1].Config == nil || got[1].Line != 2 {
			t.Fatalf("%s: %v %+v", text, err, got)
		}
		if e := got[0].Err; (e == nil) != (want == "") || e != nil && !strings.Contains(e.Error(), want) ||
			(got[0].Config == nil) != (want != "") {
			t.Errorf("%s: %v, want %q", text, e, want)
		}
	}
}

func TestLongRegex(t *testing.T) {
	for regex, want := range map[string]string{
		"a|b": "", strings.Repeat("x", 1025): "1025 bytes", strings.Repeat("a|", 100) + "a": "101 " +
			"alternatives", strings.Repeat(`a\|`, 120): "", "[" + strings.Repeat("|", 200) + "]": "",
		"[]|" + strings.Repeat("|", 200) + "]": "",
		strings.Repeat("a|", 99) + "a":         "",
	} {
		if got := LongRegex(regex); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%.20q: %q", regex, got)
		}
	}
}

func FuzzPrometheus(f *testing.F) {
	f.Add("scrape_configs:\n- job_name: a\n  metric_relabel_configs:\n  - {source_labels: [x], regex: '(a|b)', action: drop}\n")
	f.Add("a: &a\n  <<: *a\nscrape_configs: [*a, {<<: [*a, {job_name: x}]}]\nscrape_config_files: [x, {}]\n")
	f.Fuzz(func(t *testing.T, text string) {
		jobs, _, err := Prometheus("f", []byte(text))
		if err != nil {
			return
		}
		for _, j := range jobs {
			for _, r := range append(j.Rules, j.Target...) {
				if (r.Err == nil) == (r.Config == nil) || r.Line < 1 {
					t.Fatalf("%+v", r)
				}
			}
		}
	})
}

func FuzzMonitors(f *testing.F) {
	f.Add("kind: ServiceMonitor\nmetadata: {name: a}\nspec: {endpoints: [{metricRelabelings: [{sourceLabels: [x], action: Drop}]}]}\n")
	f.Add("kind: List\nitems: [{kind: ScrapeConfig, metadata: {name: x}, spec: {relabelings: [{}]}}]\n---\n{}\n")
	f.Fuzz(func(t *testing.T, text string) {
		objects, err := Monitors("f", []byte(text))
		if err != nil {
			return
		}
		for _, o := range objects {
			for _, e := range o.Endpoints {
				if e.Path == "" || e.Line < 1 || len(e.Rules) > 0 && len(e.List.Content) != len(e.Rules) {
					t.Fatalf("%+v", e)
				}
			}
		}
	})
}
