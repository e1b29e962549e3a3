package pair

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	mixin "github.com/spillwayproject/spillway/jsonnet"
)

const (
	named = "ProxyReplicaDown"
	// sums is a rule over ten times max_series.
	sums = "job:requests:rate30s"
	// nodes is up of each target as it was read by remote read, ticks is there at each evaluation.
	nodes, ticks = "pair:nodes:up", "pair:ticks:one"
	// scale divides every duration of the alerts: five minutes are five seconds.
	scale = 60
)

// ruler evaluates rules, each second.
type ruler struct{ url string }

// proxyAlerts are the alerts about Spillway as they are shipped, in compressed time.
func proxyAlerts(t *testing.T) (all rulefmt.RuleGroups) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.json")
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"timeScale": %d, "evaluationInterval": "1m"}`, scale), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := mixin.Render(mixin.Options{Config: file})
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(files["alerts/shard/spillway.yaml"], &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func writeRules(t *testing.T, groups ...rulefmt.RuleGroup) string {
	t.Helper()
	text, err := yaml.Marshal(rulefmt.RuleGroups{Groups: groups})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// newRuler starts a Thanos Ruler that asks Spillway for everything: ProxyReplicaDown, over
// Spillway's page as the pair scrapes it, and a rule that sums.
func newRuler(t *testing.T, proxy string, alerts rulefmt.RuleGroups) ruler {
	t.Helper()
	path, err := realprom.Find("thanos")
	if err != nil {
		t.Fatal(err)
	}
	rules := []rulefmt.Rule{{Record: sums, Expr: "sum by (job) (rate(requests_total[30s]))"}}
	for _, g := range alerts.Groups {
		for _, r := range g.Rules {
			if r.Alert == named {
				rules = append(rules, r)
			}
		}
	}
	if len(rules) != 2 {
		t.Fatalf("there are %d rules called %s", len(rules)-1, named)
	}
	file := writeRules(t, rulefmt.RuleGroup{Name: "pair", Interval: model.Duration(time.Second), Rules: rules})
	dir := t.TempDir()
	p, at, err := realprom.StartOnPorts(t.Context(), realprom.PortOptions{Path: path, Ports: 2, Args: func(at []string) []string {
		return []string{
			"rule", "--data-dir=" + dir, "--rule-file=" + file, "--eval-interval=1s", "--query=" + proxy, `--label=ruler_replica="0"`,
			"--http-grace-period=1s", "--grpc-grace-period=1s", "--http-address=" + at[0], "--grpc-address=" + at[1],
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return ruler{"http://" + at[0]}
}

// newWatch starts a Prometheus that scrapes Spillway's page itself and evaluates all alerts about
// Spillway, as the one does that watches the servers; and a rule whose series it fetches from
// Spillway by remote read.
func newWatch(t *testing.T, proxy, page string, alerts rulefmt.RuleGroups) ruler {
	t.Helper()
	own := []rulefmt.Rule{{Record: nodes, Expr: `up{job="node"}`}, {Record: ticks, Expr: `vector(1)`}}
	groups := append(alerts.Groups, rulefmt.RuleGroup{Name: "pair", Rules: own})
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s, external_labels: {cluster: jaguar}}\nrule_files: [%q]\nscrape_configs:\n  - {job_name: spillway, static_configs: [{targets: [%q]}]}\n"+
		"remote_read: [{url: %q, read_recent: true, filter_external_labels: false, required_matchers: {job: node}}]\n", writeRules(t, groups...), page, proxy+"/api/v1/read")
	return ruler{realpromtest.Start(t, realprom.Options{Config: config}).URL()}
}

// vector is the value of each series of an instant query, by a label.
func (r ruler) vector(t *testing.T, query string, by model.LabelName) map[string]float64 {
	t.Helper()
	var got struct{ Data struct{ Result model.Vector } }
	if err := json.Unmarshal([]byte(r.get(t, "/api/v1/query?"+url.Values{"query": {query}}.Encode())), &got); err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, s := range got.Data.Result {
		out[string(s.Metric[by])] += float64(s.Value)
	}
	return out
}

func (r ruler) get(t *testing.T, path string) string {
	t.Helper()
	resp, err := http.Get(r.url + path)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %.300s %v", path, resp.StatusCode, body, err)
	}
	return string(body)
}

// firing are the firing alerts that name a replica, with it.
func (r ruler) firing(t *testing.T) (out []string) {
	t.Helper()
	var got struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	if err := json.Unmarshal([]byte(r.get(t, "/api/v1/alerts")), &got); err != nil {
		t.Fatal(err)
	}
	for _, a := range got.Data.Alerts {
		if a.State == "firing" && a.Labels["replica"] != "" {
			out = append(out, a.Labels["alertname"]+" "+a.Labels["replica"])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// counts are how often rules were evaluated, and how often that failed or came with a warning.
func (r ruler) counts(t *testing.T) (evaluations, failures float64) {
	t.Helper()
	seen := 0
	for line := range strings.Lines(r.get(t, "/metrics")) {
		name, rest, _ := strings.Cut(line, "{")
		_, value, found := strings.Cut(rest, "} ")
		var v float64
		if _, err := fmt.Sscan(value, &v); !found || err != nil {
			continue
		}
		switch name {
		case "prometheus_rule_evaluations_total":
			evaluations += v
			seen++
		case "prometheus_rule_evaluation_failures_total", "thanos_rule_evaluation_with_warnings_total":
			failures += v
			seen++
		}
	}
	if seen < 2 {
		t.Fatalf("the ruler's page has %d of the counters", seen)
	}
	return evaluations, failures
}
