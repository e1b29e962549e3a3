package emit

import (
	"bytes"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	promrelabel "github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/relabel/config"
	"github.com/spillwayproject/spillway/relabel/propose"
)

// takes says whether rules drop the series.
func takes(rules []*promrelabel.Config, job, name string, more ...string) bool {
	lb := labels.NewBuilder(labels.FromStrings(append([]string{"__name__", name, "job", job}, more...)...))
	for _, c := range rules {
		copied := *c
		copied.NameValidationScheme = model.UTF8Validation
		if !promrelabel.ProcessBuilder(lb, &copied) {
			return true
		}
	}
	return false
}

// A rule that was proven for one job meets no series of another one, wherever it is put: in an
// entry whose series may have any job it asks for its own.
func TestRulesOfOneJobMeetNoOther(t *testing.T) {
	p := planOf(dropNames("pods", "http_requests_total"))
	for name, c := range map[string]struct{ entry, source string }{
		"its own":      {"", "__name__"},
		"a constant":   {"    relabel_configs: [{target_label: job, replacement: pods}]\n", "__name__"},
		"another":      {"    relabel_configs: [{source_labels: [app], target_label: job}]\n", "job __name__"},
		"honor_labels": {"    honor_labels: true\n", "job __name__"},
		"labelmap":     {"    relabel_configs: [{action: labelmap, regex: __meta_kubernetes_pod_label_(.+)}]\n", "job __name__"},
		"labelmap of metrics": {
			"    metric_relabel_configs:\n      - {action: labelmap, regex: exported_(.+)}\n", "job __name__",
		},
		"labelmap of nodes": {"    relabel_configs: [{action: labelmap, regex: __meta_kubernetes_node_label_(.+)}]\n", "__name__"},
		"lower case":        {"    relabel_configs: [{source_labels: [app], action: lowercase, target_label: job}]\n", "job __name__"},
		"a name of labels":  {"    relabel_configs: [{source_labels: [app], regex: (.+)=(.+), target_label: $1, replacement: $2}]\n", "job __name__"},
		"taken away":        {"    metric_relabel_configs:\n      - {action: labeldrop, regex: job}\n", "job __name__"},
	} {
		merged, _, err := Merge(p, []byte("scrape_configs:\n  - job_name: pods\n"+c.entry))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rules := load(t, string(merged)).ScrapeConfigs[0].MetricRelabelConfigs
		ours := rules[len(rules)-1]
		var source []string
		for _, l := range ours.SourceLabels {
			source = append(source, string(l))
		}
		if got := strings.Join(source, " "); got != c.source {
			t.Errorf("%s: the rule looks at %s, want %s", name, got, c.source)
		}
		if !takes([]*promrelabel.Config{ours}, "pods", "http_requests_total") {
			t.Errorf("%s: the rule takes nothing", name)
		}
		if c.source != "__name__" && takes([]*promrelabel.Config{ours}, "api", "http_requests_total") {
			t.Errorf("%s: the rule takes series of another job", name)
		}
	}
	var out bytes.Buffer
	if err := Prometheus(p, &out); err != nil || !strings.Contains(out.String(), "source_labels: [job, __name__]\n    regex: 'pods;http_requests_total'\n") {
		t.Errorf("rules for whatever place: %v\n%s", err, out.String())
	}
}

// Two Services behind one monitor are two jobs, and endpoints may have one each.
const twoJobs = `kind: ServiceMonitor
metadata: {name: kubelet, namespace: n}
spec:
  endpoints:
    - relabelings: [{targetLabel: job, replacement: cadvisor}]
    - relabelings: [{targetLabel: job, replacement: resource}]
    - honorLabels: true
`

func TestEndpointsOfOtherJobs(t *testing.T) {
	read := func(text string) []*config.Object { return objects(t, text) }
	patched := func(text string, body []byte) (string, []*config.Endpoint) {
		t.Helper()
		var object any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		object, err := patchObject(t, object, body)
		if err != nil {
			t.Fatalf("%v\n%s", err, body)
		}
		out := string(mustYAML(t, object))
		return out, read(out)[0].Endpoints
	}
	configs := func(e *config.Endpoint) (out []*promrelabel.Config) {
		for _, r := range e.Rules {
			out = append(out, r.Config)
		}
		return out
	}
	p := planOf(dropNames("resource", "cpu_total"))
	o := MonitorOptions{Existing: read(twoJobs)}
	patches, err := Patches(p, o)
	if err != nil {
		t.Fatal(err)
	}
	text, endpoints := patched(twoJobs, patches[0].Body)
	if len(endpoints[0].Rules) != 0 {
		t.Errorf("the endpoint of another job has a rule:\n%s", patches[0].Body)
	}
	if got := configs(endpoints[1]); len(got) != 1 || len(got[0].SourceLabels) != 1 || !takes(got, "resource", "cpu_total") {
		t.Errorf("its own endpoint: %v", got)
	}
	if got := configs(endpoints[2]); !takes(got, "resource", "cpu_total") || takes(got, "cadvisor", "cpu_total") {
		t.Errorf("the endpoint whose pages say the job: %v", got)
	}

	// Both jobs have rules now; and the endpoint that has none any more loses those of before.
	both := planOf(dropNames("cadvisor", "other_total"), dropNames("resource", "cpu_total"))
	o.Existing = read(text)
	if patches, err = Patches(both, o); err != nil || len(patches) != 1 {
		t.Fatalf("%d patches, %v", len(patches), err)
	}
	text, endpoints = patched(text, patches[0].Body)
	for i, want := range []string{"cadvisor other_total", "resource cpu_total", "cadvisor other_total|resource cpu_total"} {
		var got []string
		for _, job := range []string{"cadvisor", "resource"} {
			for _, name := range []string{"cpu_total", "other_total"} {
				if endpoints[i].Sole() && endpoints[i].Label != job {
					continue
				}
				if takes(configs(endpoints[i]), job, name) {
					got = append(got, job+" "+name)
				}
			}
		}
		if strings.Join(got, "|") != want {
			t.Errorf("endpoint %d takes %q, want %q\n%s", i, got, want, patches[0].Body)
		}
	}
	o.Existing = read(text)
	if patches, err = Patches(planOf(dropNames("cadvisor", "other_total")), o); err != nil {
		t.Fatal(err)
	}
	if _, endpoints = patched(text, patches[0].Body); len(endpoints[1].Rules) != 0 || len(endpoints[2].Rules) != 1 {
		t.Errorf("rules that the plan no longer has stay:\n%s", patches[0].Body)
	}

	o = MonitorOptions{Existing: read(strings.Split(twoJobs, "    - honorLabels")[0]), Monitors: map[string]Monitor{
		"x": {config.ServiceMonitor, "n", "kubelet"},
	}}
	if _, err := Patches(planOf(dropNames("x", "a")), o); err == nil || !strings.Contains(err.Error(), `"cadvisor" and "resource"`) {
		t.Errorf("a monitor of other jobs: %v", err)
	}
}

// What Services beside a monitor say is no proof: the cluster may have more of them.
func TestMonitorsAskForTheirJob(t *testing.T) {
	service := "\n---\nkind: Service\nmetadata: {name: %, namespace: n, labels: {app: x}}\n"
	named := func(name string) string { return strings.Replace(service, "%", name, 1) }
	head := "kind: ServiceMonitor\nmetadata: {name: api, namespace: n}\nspec:\n  endpoints: [{port: web}]\n"
	selector := "  selector: {matchLabels: {app: x}}\n"
	for name, c := range map[string]struct{ text, source string }{
		"nothing beside":   {head, "[job, __name__]"},
		"one Service":      {head + selector + named("api"), "[job, __name__]"},
		"two Services":     {head + selector + named("api") + named("web"), "[job, __name__]"},
		"jobLabel":         {head + "  jobLabel: app\n  selector: {matchLabels: {app: api}}\n", "[__name__]"},
		"constant":         {strings.Replace(head, "port: web", "relabelings: [{targetLabel: job, replacement: api}]", 1), "[__name__]"},
		"a ScrapeConfig":   {"kind: ScrapeConfig\nmetadata: {name: api, namespace: n}\nspec: {jobName: api}\n", "[__name__]"},
		"pages of a SD":    {"kind: ScrapeConfig\nmetadata: {name: api, namespace: n}\nspec: {jobName: api, httpSDConfigs: [{url: x}]}\n", "[job, __name__]"},
		"labels of a pod":  {strings.Replace(head, "port: web", "relabelings: [{action: labelmap, regex: __meta_kubernetes_pod_label_(.+)}]", 1), "[job, __name__]"},
		"of a static list": {"kind: ScrapeConfig\nmetadata: {name: api, namespace: n}\nspec: {jobName: api, staticConfigs: [{targets: [a]}, {targets: [b], labels: {job: b}}]}\n", "[job, __name__]"},
	} {
		patches, err := Patches(planOf(dropNames("api", "http_requests_total")), MonitorOptions{Existing: objects(t, c.text)})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.Contains(string(patches[0].Body), "sourceLabels: "+c.source+"\n") {
			t.Errorf("%s: want %s\n%s", name, c.source, patches[0].Body)
		}
	}
	patches, err := Patches(planOf(dropNames("n/pods", "x")), MonitorOptions{})
	if err != nil || !strings.Contains(string(patches[0].Body), "sourceLabels: [job, __name__]\n      regex: '(?:n/pods;x)(?P<spillway_") {
		t.Errorf("a monitor that nobody gave: %v\n%s", err, patches)
	}
}

// Whatever characters jobs, names and values hold, what reads the same when it is joined is the
// same series.
func TestForJobMeansTheJob(t *testing.T) {
	jobs := []string{"a", "a;b", "a.b", "axb", "a;b;c", "#", "b", "", "a;b;c;30", "a|b", "a,b@#"}
	names := []string{"c", "b", "c;30", "b;c", "x|y", "a", "h_bucket"}
	values := []string{"30.0", "30", "c", "c;30.0", "", "b"}
	for _, r := range []propose.Rule{
		{Kind: propose.Names, Metrics: []string{"c"}},
		{Kind: propose.Names, Metrics: []string{"b", "x|y"}},
		{Kind: propose.Names, Metrics: []string{"c;30", "b;c"}},
		{Kind: propose.Slice, Metrics: []string{"c"}, Label: "v", Values: []string{"c", "b"}},
		{Kind: propose.Buckets, Metrics: []string{"h_bucket", "c"}, Label: "v", Values: []string{"30.0"}},
		{Kind: propose.Slice, Metrics: []string{"x|y", "c"}, Label: "v", Values: []string{"c;30.0"}},
	} {
		for _, job := range jobs[:len(jobs)-4] {
			var err error
			if r.Relabel, err = propose.Configs(r.Kind, r.Metrics, r.Label, r.Values); err != nil {
				t.Fatal(err)
			}
			r.Job = job
			guarded, err := forJob(&r)
			if err != nil {
				t.Fatalf("%q of %+v: %v", job, r, err)
			}
			for _, other := range jobs {
				for _, name := range names {
					for _, v := range values {
						want := other == job && takes(r.Relabel, other, name, "v", v)
						if got := takes(guarded, other, name, "v", v); got != want {
							t.Errorf("%s for job %q takes job %q, name %q, v %q: %v, want %v", guarded[0].Regex, job, other, name, v, got, want)
						}
					}
				}
			}
		}
	}
}
