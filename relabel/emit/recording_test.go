package emit

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/propose"
)

func TestKubeStateMetrics(t *testing.T) {
	names := dropNames("kube-state-metrics", "kube_pod_tolerations", "kube_pod_info", "go_goroutines", "kube_state_metrics_list_total",
		"kube_odd,name")
	part := dropBuckets("kube-state-metrics", "kube_used", "1.0")
	other := dropNames("node", "kube_elsewhere")
	p := planOf(names, part, other)
	var out bytes.Buffer
	if err := KubeStateMetrics(p, &out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	d := yaml.NewDecoder(&out)
	var args struct{ Args []string }
	var values struct {
		MetricDenylist []string `yaml:"metricDenylist"`
	}
	if err := d.Decode(&args); err != nil {
		t.Fatal(err)
	}
	if err := d.Decode(&values); err != nil {
		t.Fatal(err)
	}
	const want = "--metric-denylist=^kube_pod_info$,^kube_pod_tolerations$"
	if len(args.Args) != 1 || args.Args[0] != want || "--metric-denylist="+strings.Join(values.MetricDenylist, ",") != want {
		t.Errorf("%v %v\n%s", args, values, text)
	}
	// As kube-state-metrics does: each is searched in the name.
	for name, denied := range map[string]bool{
		"kube_pod_info": true, "kube_pod_info_x": false, "x_kube_pod_info": false,
		"kube_pod_tolerations": true,
	} {
		got := false
		for _, d := range values.MetricDenylist {
			got = got || regexp.MustCompile(d).MatchString(name)
		}
		if got != denied {
			t.Errorf("%s: denied is %v", name, got)
		}
	}
	// Two jobs that scrape it: only what both drop.
	second := dropNames("ksm-2", "kube_pod_info")
	out.Reset()
	if err := KubeStateMetrics(planOf(names, second), &out, "kube-state-metrics", "ksm-2"); err != nil ||
		!strings.Contains(out.String(), "denylist=^kube_pod_info$'") {
		t.Errorf("%v\n%s", err, out.String())
	}
	for want, p := range map[string]*relabel.Plan{"say which one scrapes it": planOf(other), "nothing to deny": planOf(part)} {
		if err := KubeStateMetrics(p, &out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestRecordingRules(t *testing.T) {
	p := planOf(dropNames("kubelet", "x"), dropNames("odd\n\"job'", "x"), takeLabel("labels-only", "x", "pod"), dropNames("tiny", "x"))
	for i := range p.Jobs {
		switch p.Jobs[i].Job {
		case "kubelet":
			p.Jobs[i].Stored.Series, p.Jobs[i].Dropped.Series = 3, 2
		case "labels-only":
			p.Jobs[i].Dropped.Series = 0
		case "tiny":
			p.Jobs[i].Stored.Series, p.Jobs[i].Dropped.Series = 1_000_000, 1
		}
	}
	p.Jobs = append(p.Jobs, relabel.Job{Job: "no-rules", Stored: propose.Saving{Series: 10}})
	var out bytes.Buffer
	if err := RecordingRules(p, &out, RuleOptions{Labels: map[string]string{"cluster": "jaguar", "on": "yes"}}); err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(out.Bytes(), false, model.UTF8Validation, parser.NewParser(parser.Options{}),
		slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatalf("%v\n%s", errs, out.String())
	}
	rules := groups.Groups[0].Rules
	if len(groups.Groups) != 1 || groups.Groups[0].Name != "drop_rules" || len(rules) != 2 {
		t.Fatalf("%s", out.String())
	}
	for i, want := range []string{`vector(0.6666) {cluster="jaguar", job="kubelet", on="yes"}`, `vector(0.5) {cluster="jaguar", job="odd\n\"job'", on="yes"}`} {
		ls := model.LabelSet{}
		for k, v := range rules[i].Labels {
			ls[model.LabelName(k)] = model.LabelValue(v)
		}
		if got := rules[i].Expr + " " + ls.String(); got != want || rules[i].Record != "drop_rules:expected_ratio" {
			t.Errorf("%s, want %s", got, want)
		}
	}
	out.Reset()
	if err := PrometheusRule(p, &out, RuleOptions{Namespace: "monitoring", ObjectLabels: map[string]string{"release": "on"}}); err != nil {
		t.Fatal(err)
	}
	var object struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct {
			Name, Namespace string
			Labels          map[string]string
		}
		Spec rulefmt.RuleGroups
	}
	if err := yaml.Unmarshal(out.Bytes(), &object); err != nil || object.Kind != "PrometheusRule" || object.Metadata.Name != "drop-rules" ||
		object.Metadata.Labels["release"] != "on" || len(object.Spec.Groups[0].Rules) != 2 {
		t.Errorf("%v %+v\n%s", err, object, out.String())
	}
	for _, name := range []string{"job", "__name__", "a-b", ""} {
		if err := RecordingRules(p, new(bytes.Buffer), RuleOptions{Labels: map[string]string{name: "x"}}); err == nil {
			t.Errorf("label %q was accepted", name)
		}
	}
	p.Jobs[0].Dropped.Series = 1 << 40
	if err := RecordingRules(p, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "does not add up") {
		t.Error(err)
	}
	if err := RecordingRules(planOf(), &out); err != nil || !strings.Contains(out.String(), "rules: []") {
		t.Errorf("no rules: %v", err)
	}
}

// The alert DropRulesNotEffective, as it is shipped, on what we record: it fires under 0.8 of the
// ratio and at no more.
func TestAlertSeesIt(t *testing.T) {
	promtool, err := realprom.Find("promtool")
	if err != nil {
		t.Skipf("not judged by promtool: %v", err)
	}
	p := planOf(dropNames("kubelet", "x"), dropNames("etcd", "x"), dropNames("node", "x"))
	for i := range p.Jobs {
		p.Jobs[i].Stored.Series, p.Jobs[i].Dropped.Series = 1000, 500
	}
	var rules bytes.Buffer
	if err := RecordingRules(p, &rules, RuleOptions{Labels: map[string]string{"cluster": "jaguar"}}); err != nil {
		t.Fatal(err)
	}
	alert, err := filepath.Abs("../../alerts/global/relabel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	series := ""
	for job, left := range map[string]int{"kubelet": 601, "etcd": 599, "node": 500} { // 39.9 %, 40.1 % and 50 % go, of 50 % planned
		series += fmt.Sprintf("      - {series: 'scrape_samples_scraped{cluster=\"jaguar\",job=%q}', values: '1000x120'}\n      - {series: 'scrape_samples_post_metric_relabeling{cluster=\"jaguar\",job=%q}', values: '%dx120'}\n", job, job, left)
	}
	test := `rule_files: [rules.yaml, ` + alert + `]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
` + series + `    promql_expr_test:
      - expr: count(ALERTS{alertname="DropRulesNotEffective",alertstate="firing"})
        eval_time: 90m
        exp_samples: [{labels: '{}', value: 1}]
      - expr: count(ALERTS{alertname="DropRulesNotEffective",alertstate="firing",job="kubelet",cluster="jaguar"})
        eval_time: 90m
        exp_samples: [{labels: '{}', value: 1}]
      - expr: drop_rules:expected_ratio{job="node"}
        eval_time: 90m
        exp_samples: [{labels: 'drop_rules:expected_ratio{cluster="jaguar",job="node"}', value: 0.5}]
`
	for name, text := range map[string]string{"rules.yaml": rules.String(), "test.yaml": test} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(promtool, "test", "rules", filepath.Join(dir, "test.yaml")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, rules.String())
	}
}
