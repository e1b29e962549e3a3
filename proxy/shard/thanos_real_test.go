package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// realThanos is a Thanos Query over sidecars of real Prometheus servers: two slices, the second
// held by a pair.
type realThanos struct {
	query   *realprom.ThanosServer
	servers []*realprom.Server // slice 0, slice 1 replica a, slice 1 replica b
	end     time.Time
}

func startRealThanos(t *testing.T, args ...string) *realThanos {
	t.Helper()
	if _, err := realprom.Find("thanos"); err != nil {
		t.Skipf("skipped: %v", err)
	}
	x := &realThanos{end: time.Now().Add(-30 * time.Second).Truncate(15 * time.Second)}
	var stores []string
	for i, ext := range []labels.Labels{
		labels.FromStrings("cluster", "jaguar", "slice", "0", "prometheus_replica", "a"),
		labels.FromStrings("cluster", "jaguar", "slice", "1", "prometheus_replica", "a"),
		labels.FromStrings("cluster", "jaguar", "slice", "1", "prometheus_replica", "b"),
	} {
		slice := min(i, 1)
		dir := t.TempDir()
		func() {
			p, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true, BlockDuration: 24 * time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if err := p.LoadAt(fmt.Sprintf("load 15s\n  up{job=\"node\",node=\"n%d\"} 1x120\n  work_total{job=\"node\",node=\"n%d\"} 0+%dx120\n", slice, slice, slice+1), x.end.Add(-30*time.Minute)); err != nil {
				t.Fatal(err)
			}
			if err := p.DB().Snapshot(dir, true); err != nil {
				t.Fatal(err)
			}
		}()
		srv := realpromtest.Start(t, realprom.Options{Blocks: []string{dir}, ExternalLabels: ext, Config: "global: {scrape_interval: 15s}"})
		x.servers = append(x.servers, srv)
		stores = append(stores, realpromtest.Sidecar(t, srv.URL(), "--prometheus.get_config_interval=1s").GRPC())
	}
	x.query = realpromtest.ThanosQuery(t, stores, append([]string{"--query.timeout=8s"}, args...)...)
	return x
}

// eventually asks until it is so; a real server's health checks are seconds apart.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	defer func() { t.Logf("%s: after %s", what, time.Since(began).Round(100*time.Millisecond)) }()
	for deadline := time.After(time.Minute); !so(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not after a minute", what)
		}
	}
}

// TestAgainstThanos holds what this package takes for granted of a Thanos Query against the real
// one: what it says about itself, that it does as it is told, and that no store goes missing
// unnoticed.
func TestAgainstThanos(t *testing.T) {
	x := startRealThanos(t)
	g := thanosGroup(x.query.URL())
	prom := group(x.servers[0].URL())
	prom.Name, prom.Labels, prom.ReplicaLabels = "other", map[string]string{"cluster": "jaguar", "slice": "0"},
		[]string{"prometheus_replica"}
	top := build(t, Options{}, true, g, prom)
	s := top.Groups[0].Shards[0]
	r := s.Replicas[0]
	eventually(t, "all stores listed", func() bool {
		missing, err := r.look(t.Context(), time.Now(), time.Now())
		return err == nil && missing == ""
	})
	r.examine(t.Context())
	if r.State() != Up || !r.LabelsAgree() || !r.StoresGroupLabels() || r.Clean() || s.fullest(time.Now()) != 1 || r.Version() == "" {
		t.Errorf("state %s, agree %t, stores group labels %t, clean %t, version %q, misconfigured %q", r.State(), r.LabelsAgree(), r.StoresGroupLabels(), r.Clean(), r.Version(), r.misconfigured())
	}
	if e := r.Engine(); e.Lookback != "5m" || e.EvaluationInterval != "1m" || r.up.health.thanos.Timeout != 8*time.Second ||
		len(r.up.health.thanos.Static) != 3 || len(top.EngineDifferences(r)) > 0 {
		t.Errorf("engine %+v, differs %q", e, top.EngineDifferences(r))
	}
	if v := top.LowestVersion(); !strings.HasPrefix(v, "3.") {
		t.Errorf("lowest version %s", v)
	}
	if problems, err := CheckOnline(t.Context(), &config.Config{Groups: []config.Group{g}}); err != nil || len(problems) > 0 {
		t.Errorf("check: %v, %v", problems, err)
	}

	from, to := endpoint.At(x.end.Add(-20*time.Minute).UnixMilli()), endpoint.At(x.end.UnixMilli())
	instant := func(q string) *endpoint.Request { return &endpoint.Request{ID: endpoint.Query, Query: q, Time: to} }
	for _, tc := range []struct {
		name string
		req  *endpoint.Request
		want string // in the answer; its spaces are newlines between what must stand there
		not  string
	}{
		{"sum", instant(`sum by (cluster) (up)`), `"cluster":"jaguar" "2"`, "prometheus_replica"},
		{"rate", instant(`rate(work_total[5m])`), `"slice":"0" "slice":"1"`, "prometheus_replica"},
		{"long text", instant(`up` + strings.Repeat(" ", 3000)), `"slice":"0" "slice":"1"`, "prometheus_replica"},
		{"range", &endpoint.Request{
			ID: endpoint.QueryRange, Query: "count(up)", Start: from, End: to, Step: time.Minute,
			LookbackDelta: 5 * time.Minute,
		}, `"2"`, `"3"`},
		{"series", &endpoint.Request{ID: endpoint.Series, Match: []string{"up"}, Start: from, End: to}, `"n0" "n1"`, "prometheus_replica"},
		{
			"series, limited", &endpoint.Request{ID: endpoint.Series, Match: []string{"up"}, Start: from, End: to, Limit: 1},
			`"n0" truncated`,
			`"n1"`,
		},
		{"labels", &endpoint.Request{ID: endpoint.Labels, Start: from, End: to}, `"__name__" "cluster" "node" "prometheus_replica"`, ""},
		{
			"values", &endpoint.Request{ID: endpoint.LabelValues, Label: "node", Match: []string{"up"}, Start: from, End: to},
			`["n0","n1"]`,
			"",
		},
		{"buildinfo", &endpoint.Request{ID: endpoint.StatusBuildinfo}, `"version"`, ""},
		{"rules", &endpoint.Request{ID: endpoint.Rules}, `"groups"`, ""},
		{"targets", &endpoint.Request{ID: endpoint.Targets}, `"activeTargets"`, ""},
		{"exemplars", &endpoint.Request{ID: endpoint.QueryExemplars, Query: "up", Start: from, End: to}, `"data"`, ""},
		{"metadata", &endpoint.Request{ID: endpoint.Metadata}, `"success"`, ""},
	} {
		raw, err := readAll(t.Context(), r, tc.req, CallOptions{})
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		for _, want := range strings.Fields(tc.want) {
			if !strings.Contains(string(raw), want) {
				t.Errorf("%s: %s lacks %s", tc.name, raw, want)
			}
		}
		if tc.not != "" && strings.Contains(string(raw), tc.not) {
			t.Errorf("%s: %s has %s", tc.name, raw, tc.not)
		}
	}
	for _, tc := range []struct {
		req  *endpoint.Request
		kind string
		says string
	}{
		{instant(`no_such_function(up)`), "too_expensive", "does not understand the query"},
		{instant(`up * on (job) up`), "too_expensive", "matching"},
		{&endpoint.Request{ID: endpoint.Read}, "too_expensive", "no series"},
	} {
		if _, err := readAll(t.Context(), r, tc.req, CallOptions{}); kindOf(err) != tc.kind || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.req.Query, err)
		}
	}

	// A replica of the pair dies. Thanos would complain of it at first, and then leave it out; it
	// is told not to ask it, and its copy stands for it from the first answer on.
	everything := instant(`count(up)`)
	x.servers[2].Kill()
	ask := func(o CallOptions) (text, partial string, err error) {
		resp, err := s.Do(t.Context(), everything, o)
		if err != nil {
			return "", "", err
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		return string(raw), resp.Partial, err
	}
	for _, o := range []CallOptions{{}, {Partial: true}} {
		if text, partial, err := ask(o); err != nil || partial != "" || !strings.Contains(text, `"2"`) {
			t.Errorf("right after one of a pair died, partial %t: %s, %q, %v", o.Partial, text, partial, err)
		}
	}
	eventually(t, "whole by its copy", func() bool {
		text, partial, err := ask(CallOptions{})
		return err == nil && partial == "" && strings.Contains(text, `"2"`)
	})
	if _, known := healthOfStores(t, x.query.URL()); known != 3 {
		t.Errorf("Thanos lists %d stores", known)
	}

	// The only holder of a slice dies. Whatever Thanos knows of it, no answer without it passes for
	// whole.
	x.servers[0].Kill()
	silent := false
	eventually(t, "left out in silence by Thanos", func() bool {
		if text, partial, err := ask(CallOptions{}); err == nil {
			t.Fatalf("a whole answer without slice 0: %s, %q", text, partial)
		} else if kindOf(err) != "shard_failed" {
			t.Fatalf("without slice 0: %v", err)
		}
		bare, _ := healthOfStores(t, x.query.URL())
		silent = slices.Contains(bare, "Not ready")
		return silent && r.MissingStores() != ""
	})
	text, partial, err := ask(CallOptions{Partial: true})
	if err != nil || !strings.Contains(partial, "Not ready") || !strings.Contains(text, `"1"`) {
		t.Errorf("partial: %s, %q, %v", text, partial, err)
	}
	// This is what must not be taken for an answer: partial_response=false, 200, no warning.
	raw, err := pageOf(t.Context(), r, "/api/v1/query",
		url.Values{"query": {"count(up)"}, "partial_response": {"false"}, "time": {fmt.Sprint(x.end.Unix())}})
	if err != nil || !strings.Contains(string(raw), `"1"`) || strings.Contains(string(raw), "warnings") {
		t.Errorf("this Thanos does not leave stores out in silence any more, so look whether the check of its stores is still needed: %s, %v", raw, err)
	}
}

// healthOfStores reads Thanos' page of stores without the code under test: the errors, and how many
// stores there are.
func healthOfStores(t *testing.T, base string) (errs []string, n int) {
	t.Helper()
	top := build(t, Options{}, false, group(base))
	raw, err := pageOf(context.Background(), top.Groups[0].Shards[0].Replicas[0], "/api/v1/stores", nil)
	if err != nil {
		t.Fatal(err)
	}
	var page struct {
		Data map[string][]struct {
			LastError any `json:"lastError"`
		} `json:"data"`
	}
	if err := json.Unmarshal(raw, &page); err != nil {
		t.Fatal(err)
	}
	for _, list := range page.Data {
		for _, s := range list {
			n++
			if s.LastError != nil {
				parts := strings.Split(fmt.Sprint(s.LastError), "desc = ")
				errs = append(errs, parts[len(parts)-1])
			}
		}
	}
	return errs, n
}
