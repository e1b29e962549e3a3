package alertmanager

import (
	"maps"
	"net/http/httptest"
	"slices"
	"testing"
	"time"
)

// TestOtherThingsAreTold: what looks alike and is another thing is not held back.
func TestOtherThingsAreTold(t *testing.T) {
	alert := func(name, severity, cluster string, more ...string) map[string]string {
		return ls(append([]string{"alertname", name, "severity", severity, "cluster", cluster}, more...)...)
	}
	shardDown := alert("ProxyShardDown", "critical", "main", "group", "main", "shard", "0")
	pairDown := alert("PrometheusHAPairDown", "critical", "main", "prometheus_shard", "prometheus-5")
	teamsDown := alert("PrometheusHAPairDown", "critical", "jaguar", "prometheus_shard", "team-x")
	smallDown := alert("PrometheusHAPairDown", "critical", "monitoring", "prometheus_shard", "rules")
	unseen := alert("FleetUnseen", "critical", "jaguar")
	jobGone := alert("ScrapeJobGone", "critical", "jaguar", "job", "kube-state-metrics")
	burnPeople := alert("ProxyErrorBudgetBurn", "critical", "monitoring", "role", "people", "objective", "latency", "long", "1h")
	burnPeopleSlow := alert("ProxyErrorBudgetBurn", "warning", "monitoring", "role", "people", "objective", "latency", "long", "1d")
	burnRules := alert("ProxyErrorBudgetBurn", "warning", "monitoring", "role", "rules", "objective", "latency", "long", "1d")
	ownRules := alert("PrometheusRuleFailures", "warning", "main", "job", "prometheus", "instance", "p5:9090")
	rulersRules := alert("PrometheusRuleFailures", "warning", "main", "job", "thanos-rule", "instance", "ruler-0:10902")
	ruler := func(severity, reason string) map[string]string {
		return alert("RulerFailing", severity, "monitoring", "reason", reason)
	}
	proxyDown := alert("ProxyDown", "critical", "monitoring", "role", "rules")
	for _, c := range []struct {
		name   string
		alerts []map[string]string
		want   map[string][]string
	}{
		{"a shard that Spillway cannot ask, and another pair that is down", []map[string]string{shardDown, pairDown}, map[string][]string{
			"critical": {"PrometheusHAPairDown main", "ProxyShardDown main"},
		}},
		{
			"a shard that Spillway cannot ask, and rules of a Prometheus, which do not ask Spillway",
			[]map[string]string{shardDown, ownRules, rulersRules},
			map[string][]string{"critical": {"ProxyShardDown main"}, "warning": {"PrometheusRuleFailures main"}},
		},
		{"a Prometheus of a team is no shard", []map[string]string{teamsDown, unseen}, map[string][]string{
			"critical": {"FleetUnseen jaguar", "PrometheusHAPairDown jaguar"},
		}},
		{"nor is it why a job is gone", []map[string]string{teamsDown, jobGone}, map[string][]string{
			"critical": {"PrometheusHAPairDown jaguar", "ScrapeJobGone jaguar"},
		}},
		{"the budget of people's Spillway is not that of the rulers'", []map[string]string{burnPeople, burnPeopleSlow, burnRules}, map[string][]string{
			"critical": {"ProxyErrorBudgetBurn monitoring"}, "warning": {"ProxyErrorBudgetBurn monitoring"},
		}},
		{
			"nothing hides a ruler that is stuck",
			[]map[string]string{proxyDown, ruler("critical", "rules"), ruler("critical", "stuck")},
			map[string][]string{"critical": {"ProxyDown monitoring", "RulerFailing monitoring"}},
		},
		{
			"nor one whose clock is wrong, whose writes fail",
			[]map[string]string{shardDown, ruler("critical", "clock"), ruler("warning", "writing")},
			map[string][]string{"critical": {"ProxyShardDown main", "RulerFailing monitoring"}, "warning": {"RulerFailing monitoring"}},
		},
		{"that no ruler is left is one page", []map[string]string{ruler("critical", "down"), smallDown}, map[string][]string{
			"critical": {"RulerFailing monitoring"},
		}},
		{"small servers alone are another", []map[string]string{ruler("critical", "writing"), smallDown}, map[string][]string{
			"critical": {"PrometheusHAPairDown monitoring", "RulerFailing monitoring"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			told(t, c.alerts, c.want)
		})
	}
}

// told posts alerts to an Alertmanager with the deployed routes, a Watchdog among them, and holds
// which receivers it tells of which.
func told(t *testing.T, alerts []map[string]string, of map[string][]string) {
	t.Helper()
	h := &hook{seen: map[string]map[string]int{}}
	receiver := httptest.NewServer(h)
	defer receiver.Close()
	conf, err := Rehearsal(Config, receiver.URL, 150) // the longest group_wait becomes 2 s, the shortest 200 ms
	if err != nil {
		t.Fatal(err)
	}
	srv, err := Start(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	}()
	watchdog := ls("alertname", "Watchdog", "severity", "info")
	if err := post(t.Context(), srv.URL(), append(alerts, watchdog)...); err != nil {
		t.Fatal(err)
	}
	want := maps.Clone(of)
	want["deadmansswitch"] = []string{"Watchdog"}
	deadline := time.Now().Add(time.Minute)
	for !maps.EqualFunc(h.snapshot(), want, slices.Equal[[]string]) && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	// All are there. Whatever else comes would come in another round of every group: the switch,
	// which is told every group_interval (400 ms here), counts them, and info, which waits longest,
	// has waited 2 s.
	beats := h.count("deadmansswitch", "Watchdog")
	for h.count("deadmansswitch", "Watchdog") < beats+6 && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	if got := h.snapshot(); !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("told:\n%v\nwant:\n%v", got, want)
	}
	if got := h.count("deadmansswitch", "Watchdog"); got < beats+6 {
		t.Errorf("the dead man's switch was told %d times only: it must be told again and again", got)
	}
}
