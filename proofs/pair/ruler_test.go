package pair

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/realprom"
)

const (
	named = "ProxyReplicaDown"
	// sums is a rule over ten times max_series.
	sums = "job:requests:rate10s"
)

// ruler is a Thanos Ruler that asks Spillway for everything, each second.
type ruler struct{ url string }

// newRuler starts one with ProxyReplicaDown as it is shipped, but that it waits a second and not five minutes, and a rule that sums.
func newRuler(t *testing.T, proxy string) ruler {
	t.Helper()
	path, err := realprom.Find("thanos")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "alerts", "shard", "spillway.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all rulefmt.RuleGroups
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	rules := []rulefmt.Rule{{Record: sums, Expr: "sum by (job) (rate(requests_total[10s]))"}}
	for _, g := range all.Groups {
		for _, r := range g.Rules {
			if r.Alert == named {
				r.For = model.Duration(time.Second)
				rules = append(rules, r)
			}
		}
	}
	if len(rules) != 2 {
		t.Fatalf("there are %d rules called %s", len(rules)-1, named)
	}
	if text, err = yaml.Marshal(rulefmt.RuleGroups{Groups: []rulefmt.RuleGroup{{Name: "pair", Interval: model.Duration(time.Second), Rules: rules}}}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p, at, err := realprom.StartOnPorts(t.Context(), realprom.PortOptions{Path: path, Ports: 2, Args: func(at []string) []string {
		return []string{
			"rule", "--data-dir=" + filepath.Join(dir, "data"), "--rule-file=" + file, "--eval-interval=1s", "--query=" + proxy, `--label=ruler_replica="0"`,
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

// firing are the replicas that firing alerts name.
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
		if a.State == "firing" {
			out = append(out, a.Labels["alertname"]+" "+a.Labels["replica"])
		}
	}
	return out
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
