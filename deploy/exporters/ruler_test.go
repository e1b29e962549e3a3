package exporters

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
)

// TestRulersAreWatched: every shard has `up` of both rulers and of both small servers beside them,
// and nothing else of them, under names of jobs that no rule or dashboard about Prometheus reads;
// and the shards' alert that none is left is the one that a small server sends, so that there is
// one page for it.
func TestRulersAreWatched(t *testing.T) {
	c := load(t, 1, 4)
	for i, want := range []string{"ruler", "ruler-prometheus", "ruler", "ruler-prometheus"} {
		l, ok := target(job(t, c, want), rulerPod(i))
		if !ok || l.Get("job") != want || l.Get("prometheus_shard") != "" || l.Get("seen_by") != "1" {
			t.Fatalf("%v is scraped: %v, as %s", rulerPod(i), ok, l)
		}
		if l, ok := sample(job(t, c, want), labels.FromStrings("__name__", "go_goroutines"), l); ok {
			t.Errorf("%s is kept: each shard would have all of the rulers' pages", l)
		}
	}

	alert := labels.FromStrings("alertname", "RulerFailing", "cluster", "jaguar", "reason", "down")
	lb := labels.NewBuilder(alert)
	if !relabel.ProcessBuilder(lb, c.AlertingConfig.AlertRelabelConfigs...) || lb.Get("cluster") != "monitoring" {
		t.Errorf("%s goes out as %s: it is no cluster's, and a small server sends it too", alert, lb.Labels())
	}
}
