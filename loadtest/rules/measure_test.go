package rules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	prommodel "github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/loadtest/bench"
	"github.com/spillwayproject/spillway/proxy/config"
)

func TestMain(m *testing.M) { realpromtest.Main(m) }

// page is what a ruler says, in the form of its /metrics.
func page(t *testing.T, seen map[string]*history, text string) {
	t.Helper()
	p := expfmt.NewTextParser(prommodel.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	read(families, seen)
}

func TestRead(t *testing.T) {
	seen := map[string]*history{}
	const group = `{rule_group="/tmp/x/gpu.yaml;gpu",strategy="abort"} `
	rest := "prometheus_rule_group_interval_seconds" + group + "60\nprometheus_rule_group_rules" + group +
		"7\nprometheus_rule_evaluation_failures_total" + group + "2\nprometheus_rule_group_iterations_missed_total" + group + "1\n"
	for _, e := range []struct{ at, took string }{
		{"0", "0"},
		{"100", "3"},
		{"100", "3"},
		{"160", "0.5"},
		{"220", "0.25"},
		{"280", "0.75"},
		{"280", "0.75"},
	} {
		page(t, seen, "prometheus_rule_group_last_evaluation_timestamp_seconds"+group+e.at+"\nprometheus_rule_group_last_duration_seconds"+group+e.took+"\n"+rest)
	}
	g := seen["gpu.yaml;gpu"].group("gpu.yaml;gpu")
	want := Group{
		File: "gpu.yaml", Name: "gpu", Rules: 7, Interval: time.Minute, First: 3 * time.Second, Typical: 500 * time.Millisecond,
		Max:  750 * time.Millisecond,
		Seen: 4, Failures: 2, Missed: 1,
	}
	if g != want {
		t.Errorf("got  %+v\nwant %+v", g, want)
	}
}

// TestSlowest: of the servers that evaluate the same group the figures are the slowest one's.
func TestSlowest(t *testing.T) {
	h := func(failures int, took ...time.Duration) map[string]*history {
		return map[string]*history{"/x/a.yaml;a": {took: took, interval: time.Minute, rules: 2, failures: failures, missed: 1}}
	}
	got := slowest([]map[string]*history{
		h(1, time.Second, 2*time.Second), h(0, time.Second, 5*time.Second), h(2), h(0, time.Second, 3*time.Second),
	})
	want := Group{
		File: "a.yaml", Name: "a", Shard: true, Rules: 2, Interval: time.Minute,
		First: time.Second, Typical: 5 * time.Second, Max: 5 * time.Second, Seen: 2, Failures: 3, Missed: 4,
	}
	if len(got) != 1 || got[0] != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestSound: figures of a proxy that does not trust its servers, or does not say so, are none.
func TestSound(t *testing.T) {
	for _, c := range []struct{ name, page, want string }{
		{"all fit together", `spillway_group_sick{group="jaguar",kind="clock"} 0` + "\n" + `spillway_group_sick{group="recorded",kind="clock"} 0`, ""},
		{"one does not", `spillway_group_sick{group="jaguar",kind="clock"} 0` + "\n" + `spillway_group_sick{group="jaguar",kind="overlap"} 1`, `(group "jaguar", kind "overlap")`},
		{"not the first", `spillway_group_sick{group="jaguar",kind="clock"} 0` + "\n" + `spillway_group_sick{group="recorded",kind="engine"} 1`, `group "recorded"`},
		{"names that a server does not keep to", `spillway_group_sick{group="jaguar",kind="clock"} 0` + "\n# TYPE spillway_shard_names_trusted gauge\n" + `spillway_shard_names_trusted{group="recorded"} 0`, "names_trusted is 0"},
		{"silence", `spillway_panics_total 0`, "spillway_group_sick"},
	} {
		t.Run(c.name, func(t *testing.T) {
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, "# TYPE spillway_group_sick gauge\n%s\n", c.page)
			}))
			defer proxy.Close()
			err := sound(t.Context(), proxy.URL)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want an error with %q", err, c.want)
			}
		})
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	defer gone.Close()
	if err := sound(t.Context(), gone.URL); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("no page: %v", err)
	}
}

func TestErr(t *testing.T) {
	ok := Group{
		File: "a.yaml", Name: "a", Interval: time.Minute, First: 50 * time.Second, Typical: time.Second, Max: 19 * time.Second,
		Seen: 3,
	}
	over, cold, failed, unseen := ok, ok, ok, ok
	over.Name, over.Max = "over", 21*time.Second
	cold.Name, cold.Max, cold.Typical = "cold", 0, 0 // it alone was seen
	failed.Name, failed.Failures = "failed", 1
	unseen.Name, unseen.Seen = "unseen", 0
	if err := (&Result{Groups: []Group{ok}}).Err(); err != nil {
		t.Error(err)
	}
	err := (&Result{Groups: []Group{ok, over, cold, failed, unseen}}).Err()
	for _, want := range []string{
		"a.yaml: over takes 35 %", "a.yaml: cold takes 83 %", "a.yaml: failed: 1 evaluations",
		"a.yaml: unseen was not evaluated",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	var b bytes.Buffer
	if err := (&Result{Nodes: 7500, Groups: []Group{ok, over}}).WriteMarkdown(&b); err != nil ||
		strings.Index(b.String(), "| over |") > strings.Index(b.String(), "| a.yaml | a |") {
		t.Errorf("%v: the dearest is not first:\n%s", err, b.String())
	}
}

func TestValidate(t *testing.T) {
	err := Options{Servers: bench.Servers{Nodes: 1, Shards: 100, Interval: time.Hour}, Run: time.Second, Past: -1}.Validate()
	for _, want := range []string{
		"spillway binary", "no rule files", "nodes: 1 ", "shards: 100 ", "run: 1s", "past: -1ns",
		"interval: 1h",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// TestSpread: groups of up to a minute are evaluated more seldom, and told with their own interval.
func TestSpread(t *testing.T) {
	o := Options{Spread: 3, Files: map[string][]byte{"a.yaml": []byte(`groups:
  - {name: quick, interval: 30s, rules: [{record: "a:b:c", expr: up}]}
  - {name: default, rules: [{record: "a:b:d", expr: up, labels: {x: "y: 'z'"}}]}
  - {name: slow, interval: 5m, rules: [{alert: A, expr: up == 0, for: 10m}]}
`)}, ShardFiles: map[string][]byte{"a.yaml": []byte(`groups: [{name: quick, interval: 10s, rules: [{record: "a:b:c", expr: up}]}]`)}}
	files, shardFiles, told, err := o.spread()
	if err != nil {
		t.Fatal(err)
	}
	at := func(text []byte) (out []string) {
		groups, errs := rulefmt.Parse(text, false, prommodel.UTF8Validation, parser.NewParser(parser.Options{}),
			slog.New(slog.DiscardHandler))
		if errs != nil {
			t.Fatal(errs)
		}
		for _, g := range groups.Groups {
			out = append(out, g.Name+" "+g.Interval.String())
		}
		return out
	}
	if got := fmt.Sprint(at(files["a.yaml"]), at(shardFiles["a.yaml"])); got != "[quick 1m30s default 3m slow 5m] [quick 30s]" {
		t.Error(got)
	}
	for _, c := range []struct {
		g    Group
		want time.Duration
	}{
		{Group{File: "a.yaml", Name: "quick", Interval: 90 * time.Second}, 30 * time.Second},
		{Group{File: "a.yaml", Name: "quick", Shard: true, Interval: 30 * time.Second}, 10 * time.Second},
		{Group{File: "a.yaml", Name: "default", Interval: 3 * time.Minute}, time.Minute},
		{Group{File: "a.yaml", Name: "slow", Interval: 5 * time.Minute}, 5 * time.Minute},
		{Group{File: "b.yaml", Name: "slow", Interval: time.Second}, time.Second},
	} {
		if told.restore(&c.g); c.g.Interval != c.want {
			t.Errorf("%+v, want %s", c.g, c.want)
		}
	}
	o.Files["a.yaml"] = []byte("groups: [{name: x, interval: often}]")
	if _, _, _, err := o.spread(); err == nil || !strings.Contains(err.Error(), "a.yaml") || !strings.Contains(err.Error(), "x") {
		t.Errorf("an interval that is none: %v", err)
	}
}

// TestMeasure: the real thing, small: recorded series are found by the rules over them, a failing
// rule is counted.
func TestMeasure(t *testing.T) {
	binary := realpromtest.Spillway(t)
	rules := `groups:
  - name: nodes
    interval: 2s
    rules:
      - {record: "cluster:nodes:count", expr: 'count by (cluster) (kube_node_info)'}
      - {record: "cluster:gpus:count", expr: 'count by (cluster) (DCGM_FI_DEV_GPU_TEMP)'}
      - {record: "cluster:hottest:max", expr: 'max by (cluster) (node:gpu_temp_celsius:max)'}
  - name: wrong
    interval: 2s
    rules: [{record: "x:y:z", expr: 'label_replace(up, "job", "", "instance", ".*") * on (cluster) group_left () kube_node_info'}]
`
	shard := `groups: [{name: hottest, interval: 2s, rules: [{record: "node:gpu_temp_celsius:max", expr: 'max by (cluster, node) (DCGM_FI_DEV_GPU_TEMP)'}]}]`
	finds := func(server, name string, until time.Time) error {
		at := fmt.Sprintf("%s/api/v1/query?query=%s&time=%d", server, url.QueryEscape(name), until.Unix())
		body, err := bench.Get(t.Context(), http.DefaultClient, at)
		if err == nil && !strings.Contains(string(body), "__name__") {
			err = fmt.Errorf("%s finds nothing: %s", at, body)
		}
		return err
	}
	r, err := Measure(t.Context(), Options{
		Servers: bench.Servers{Spillway: binary, Nodes: 12, Shards: 2, Interval: 30 * time.Second, Dir: t.TempDir(), Say: t.Logf},
		Files:   map[string][]byte{"test.yaml": []byte(rules)}, Past: 10 * time.Minute, Run: 14 * time.Second, Spread: 2,
		ShardFiles: map[string][]byte{"shard.yaml": []byte(shard)},
		Then: func(_ context.Context, groups []config.Group, until time.Time) error {
			var errs []error
			for _, s := range groups[0].Shards {
				errs = append(errs, finds(s.Replicas[0].URL, "node:gpu_temp_celsius:max", until),
					finds(s.Replicas[0].URL, `iptables_rule_bytes_total{traffic="internet-out"}`, until))
			}
			return errors.Join(errs...)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Groups) != 3 || r.Series < 12*300 || len(r.ShardSeries) != 2 || r.ProxyPeakRSS == 0 {
		t.Fatalf("%+v", r)
	}
	nodes, wrong := r.Groups[0], r.Groups[1]
	if nodes.Name != "nodes" || nodes.Rules != 3 || nodes.Interval != 2*time.Second || nodes.Seen < 2 || nodes.Failures != 0 ||
		nodes.First <= 0 {
		t.Errorf("%+v", nodes)
	}
	if g := r.Groups[2]; g.Name != "hottest" || !g.Shard || g.Seen < 2 || g.Failures != 0 || g.First <= 0 {
		t.Errorf("%+v", g)
	}
	if wrong.Failures == 0 || r.Err() == nil {
		t.Errorf("a rule that cannot be evaluated was not counted: %+v", wrong)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Error(err)
	}
}
