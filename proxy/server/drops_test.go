package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/identity"
)

// droppedPlan is what `spillway relabel plan` writes, in short.
func droppedPlan(made time.Time, metric string) string {
	return fmt.Sprintf(`{"version": 1, "made": %q, "owner": "platform", "rules": [
  {"id": "apiserver/names/1", "kind": "names", "risk": "low", "job": "apiserver", "metrics": [%q]},
  {"id": "fake/slice/1", "kind": "slice", "risk": "medium", "job": "fake", "metrics": ["up"], "label": "instance", "values": ["jaguar-7"]}]}`, made.Format(time.RFC3339), metric)
}

func said(t *testing.T, a *reply) (warnings, infos []string) {
	t.Helper()
	var body struct{ Warnings, Infos []string }
	if err := json.Unmarshal(a.body, &body); err != nil {
		t.Fatalf("%v: %v", a, err)
	}
	return body.Warnings, body.Infos
}

// TestDroppedMetrics: whoever asks for what drop rules take away is told so in the answer, on every
// endpoint that has a place for it; who asks for something else, or for the time before, is not;
// and without drop_rules nothing is said at all.
func TestDroppedMetrics(t *testing.T) {
	made := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, []byte(droppedPlan(made, "gone_total")), 0o600); err != nil {
		t.Fatal(err)
	}
	groups := []rigGroup{{"jaguar", false, []int{1, 1}}}
	with, without := newRig(t, groups, "drop_rules: {plan: "+file+"}\n"), newRig(t, groups, "")

	now := time.Now()
	span := func(kv ...string) url.Values {
		out := url.Values{"start": {stamp(now.Add(-10 * time.Minute))}, "end": {stamp(now)}, "step": {"15"}}
		for i := 0; i < len(kv); i += 2 {
			out.Set(kv[i], kv[i+1])
		}
		return out
	}
	gone := "metric gone_total is dropped since " + made.Format(time.DateOnly) +
		" by rule apiserver/names/1 (owner platform): to have it back, name it in keep.yaml and make the rules again with spillway relabel plan"
	slice := `series of metric up with instance = "jaguar-7" are dropped since ` + made.Format(time.DateOnly) + " by rule fake/slice/1 (owner platform): "
	before := url.Values{"query": {"gone_total"}, "time": {stamp(made.Add(-time.Hour))}}
	count := func(r *rig) float64 { return r.metric("spillway_dropped_metric_queries_total") }
	for _, tc := range []struct {
		name          string
		path          string
		form          url.Values
		warning, info string // how the one there is begins; empty is none
	}{
		{"query", "/api/v1/query", url.Values{"query": {"gone_total"}}, gone, ""},
		{"query within others", "/api/v1/query", url.Values{"query": {`sum(rate(gone_total{code="200"}[5m])) or up`}}, gone, slice},
		{"query_range", "/api/v1/query_range", span("query", `gone_total{cluster="jaguar"}`), gone, ""},
		{"query_exemplars", "/api/v1/query_exemplars", span("query", "gone_total"), gone, ""},
		{"series", "/api/v1/series", span("match[]", "gone_total"), gone, ""},
		{"labels", "/api/v1/labels", span("match[]", "gone_total"), gone, ""},
		{"label_values", "/api/v1/label/instance/values", span("match[]", "gone_total"), gone, ""},
		{"a part of a metric", "/api/v1/query", url.Values{"query": {`up{instance="jaguar-7"}`}}, slice + "to have", ""},
		{"the rest of a metric", "/api/v1/query", url.Values{"query": {`up{instance="jaguar-0"}`}}, "", ""},
		{"a whole metric without a part", "/api/v1/query", url.Values{"query": {`up`}}, "", slice + "this answer goes without it"},
		{"another job", "/api/v1/query", url.Values{"query": {`gone_total{job="fake"}`}}, "", ""},
		{"another metric", "/api/v1/query", url.Values{"query": {`up{instance=~"jaguar-[01]"}`}}, "", ""},
		{"an offset to before", "/api/v1/query", url.Values{"query": {`gone_total offset 2h`}}, "", ""},
		{"before", "/api/v1/query", before, "", ""},
		{"series before", "/api/v1/series", url.Values{
			"match[]": {"gone_total"}, "start": {stamp(made.Add(-3 * time.Hour))},
			"end": {stamp(made.Add(-2 * time.Hour))},
		}, "", ""},
		{"what asks for nothing stored", "/api/v1/format_query", url.Values{"query": {"gone_total"}}, "", ""},
	} {
		had := count(with)
		a, b := with.ask(with.request(t.Context(), asking{path: tc.path, form: tc.form})),
			without.ask(without.request(t.Context(), asking{path: tc.path, form: tc.form}))
		if a.status != 200 || b.status != 200 {
			t.Errorf("%s: %v and %v", tc.name, a, b)
			continue
		}
		warnings, infos := said(t, a)
		one := func(what string, got []string, want string) {
			if len(got) > 1 || want == "" && len(got) > 0 || want != "" && (len(got) == 0 || !strings.HasPrefix(got[0], want)) {
				t.Errorf("%s: the %s are %q, want %q", tc.name, what, got, want)
			}
		}
		one("warnings", warnings, tc.warning)
		one("infos", infos, tc.info)
		if expected := tc.warning+tc.info != ""; expected != (count(with) > had) {
			t.Errorf("%s: the metric went from %v to %v", tc.name, had, count(with))
		}
		if warnings, infos := said(t, b); len(warnings)+len(infos) > 0 {
			t.Errorf("%s without drop_rules: %q %q", tc.name, warnings, infos)
		}
		// What is not about warnings is the same.
		if string(a.message.Data) != string(b.message.Data) && !strings.Contains(string(a.message.Data), "value") {
			t.Errorf("%s: the data are\n%s\nand without drop_rules\n%s", tc.name, a.message.Data, b.message.Data)
		}
	}
	if n := count(without); n != 0 {
		t.Errorf("without drop_rules the metric is %v", n)
	}
	// spillway relabel asks for all that is stored, which is no use of it: it is told nothing, as
	// far as it is believed.
	for _, tc := range []struct {
		path string
		form url.Values
		more string // a header that names somebody
		told bool
	}{
		{"/api/v1/series", span("match[]", "gone_total"), "", false},
		{"/api/v1/label/instance/values", span("match[]", "gone_total"), "", false},
		{"/api/v1/series", span("match[]", "gone_total"), identity.HeaderUser, true},
		{"/api/v1/query", url.Values{"query": {"gone_total"}}, "", true},
	} {
		had := count(with)
		req := with.request(t.Context(), asking{path: tc.path, form: tc.form})
		req.Header.Set("User-Agent", identity.InventoryAgent+"/1.0")
		if tc.more != "" {
			req.Header.Set(tc.more, "ada")
		}
		got := with.ask(req)
		if warnings, _ := said(t, got); got.status != 200 || (len(warnings) > 0) != tc.told || (count(with) > had) != tc.told {
			t.Errorf("%s of an inventory %s: %q, and the metric went from %v to %v", tc.path, tc.more, warnings, had, count(with))
		}
	}
	// Where the answer has no place for a warning, the metric counts all the same.
	for _, a := range []asking{
		{path: "/federate", form: url.Values{"match[]": {"gone_total"}}},
		{
			path: "/api/v1/read", post: true,
			body: readRequest(now.Add(-time.Minute), now, labels.MustNewMatcher(labels.MatchEqual, "__name__", "gone_total")),
		},
	} {
		had := with.metric("spillway_dropped_metric_queries_total", "rule=apiserver/names/1")
		if got := with.ask(with.request(t.Context(), a)); got.status != 200 {
			t.Errorf("%s: %v", a.path, got)
		}
		if n := with.metric("spillway_dropped_metric_queries_total", "rule=apiserver/names/1"); n != had+1 {
			t.Errorf("%s: the metric went from %v to %v", a.path, had, n)
		}
	}
}

// TestDroppedAskings: with a plan that touches nothing of theirs, all requests are answered as
// without one.
func TestDroppedAskings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, []byte(droppedPlan(time.Now().Add(24*time.Hour), "up")), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{1}}, {name: "heron", replicas: []int{1}}},
		"drop_rules: {plan: ["+file+"]}\n")
	for _, a := range askings() {
		got := r.ask(r.request(t.Context(), a))
		if got.status != 200 || slices.ContainsFunc(got.message.Warnings, func(w string) bool { return strings.Contains(w, "dropped") }) {
			t.Errorf("%s: %v", a.name, got)
		}
	}
	if n := r.metric("spillway_dropped_metric_queries_total"); n != 0 {
		t.Errorf("the metric is %v for rules that begin tomorrow", n)
	}
}

// TestDroppedReload: a plan that was made anew is read at a reload, whether or not the
// configuration changed, and one that is none leaves everything as it was.
func TestDroppedReload(t *testing.T) {
	dir := t.TempDir()
	file, plan := filepath.Join(dir, "spillway.yaml"), filepath.Join(dir, "plan.json")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	made := time.Now().Add(-time.Hour)
	write(plan, droppedPlan(made, "first_total"))
	r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{1}}}, "drop_rules: {plan: "+plan+"}\n",
		func(o *Options) { o.ConfigFile = file })
	write(file, r.config)
	is := func(metric string) bool {
		a := r.ask(r.request(t.Context(), asking{id: endpoint.Query, path: "/api/v1/query", form: url.Values{"query": {metric}}}))
		return a.status == 200 && len(a.message.Warnings) == 1 && strings.HasPrefix(a.message.Warnings[0], "metric "+metric+" is dropped")
	}
	expect := func(when string, first, second bool) {
		t.Helper()
		if a, b := is("first_total"), is("second_total"); a != first || b != second {
			t.Errorf("%s: first %v, second %v", when, a, b)
		}
	}
	expect("at the start", true, false)
	write(plan, droppedPlan(made, "second_total"))
	expect("before the reload", true, false)
	if err := r.s.Reload(); err != nil {
		t.Fatal(err)
	}
	expect("after the reload", false, true)
	loaded := r.s.state.Load()
	if err := r.s.Reload(); err != nil || r.s.state.Load() != loaded {
		t.Errorf("nothing has changed: %v", err)
	}
	write(plan, "{\n")
	if err := r.s.Reload(); err == nil || !strings.Contains(err.Error(), "drop_rules.plan: "+plan+": line 2: not JSON") {
		t.Errorf("a broken plan: %v", err)
	}
	if n := r.metric("spillway_config_last_reload_successful"); n != 0 {
		t.Errorf("spillway_config_last_reload_successful is %v", n)
	}
	expect("with a broken plan", false, true)
	write(file, strings.Replace(r.config, "drop_rules", "# drop_rules", 1))
	if err := r.s.Reload(); err != nil {
		t.Fatal(err)
	}
	expect("without a plan", false, false)
}

// TestPlanGoesWithItsEntry: a change that takes a plan away together with its entry, as that of a
// ConfigMap that holds both, is loaded by the watch of the files.
func TestPlanGoesWithItsEntry(t *testing.T) {
	dir := t.TempDir()
	file, plan := filepath.Join(dir, "spillway.yaml"), filepath.Join(dir, "plan.json")
	if err := os.WriteFile(plan, []byte(droppedPlan(time.Now().Add(-time.Hour), "first_total")), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{1}}}, "drop_rules: {plan: "+plan+"}\n",
		func(o *Options) { o.ConfigFile, o.ReloadInterval = file, 20*time.Millisecond })
	without := strings.Replace(r.config, "drop_rules", "# drop_rules", 1)
	if err := errors.Join(os.WriteFile(file, []byte(without), 0o600), os.Remove(plan)); err != nil {
		t.Fatal(err)
	}
	r.eventually("the configuration without a plan is loaded", func() bool { return len(r.s.plans()) == 0 })
}

// TestPlanKeepsNoShardAway: servers that discovery finds are asked although the plan of drop rules
// is away, and what it said is still said.
func TestPlanKeepsNoShardAway(t *testing.T) {
	dir := t.TempDir()
	targets, plan := filepath.Join(dir, "shards.yml"), filepath.Join(dir, "plan.json")
	writeText(t, plan, droppedPlan(time.Now().Add(-time.Hour), "first_total"))
	one, two := fakeshard.Start(t, fakeshard.Config{}), fakeshard.Start(t, fakeshard.Config{})
	move := func(s *fakeshard.Shard) {
		writeText(t, targets, fmt.Sprintf("- {targets: [%q], labels: {__spillway_shard__: s0}}\n", s.Addr()))
	}
	move(one)
	s, _ := startProxy(t, t.Context(), "groups:\n  - name: jaguar\n    shards_from: {files: ["+targets+"], keep: 1ms, refresh_interval: 200ms}\n"+
		"drop_rules: {plan: "+plan+"}\n"+limits(ample))
	if err := os.Remove(plan); err != nil {
		t.Fatal(err)
	}
	move(two)
	(&rig{t: t, s: s}).eventually("the new server is asked", func() bool {
		return strings.Contains(s.state.Load().top.Groups[0].Shards[0].Replicas[0].URL(), two.Addr())
	})
	if n := len(s.plans()); n != 1 {
		t.Errorf("%d plans are in force", n)
	}
}
