package exporters

import (
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/deploy/ruler"
)

// TestRulersAreWatched: every shard has `up` of both rulers and of both small servers beside them,
// under the names that these have there, and nothing else of them; and the shards' alert that none
// is left is the one that a small server sends, so that there is one page for it.
func TestRulersAreWatched(t *testing.T) {
	text, err := ruler.File("prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Scrapes []struct {
			Job    string `yaml:"job_name"`
			Static []struct {
				Targets []string
				Labels  map[string]string
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	var want []string // job, instance, shard
	for _, sc := range doc.Scrapes {
		if sc.Job != "thanos-rule" && sc.Job != "prometheus" {
			continue
		}
		for _, at := range sc.Static[0].Targets {
			want = append(want, sc.Job+" "+at+" "+sc.Static[0].Labels["prometheus_shard"])
		}
	}
	c := load(t, 1, 4)
	var got []string
	for i := range 4 {
		l, ok := target(job(t, c, "ruler"), rulerPod(i))
		if !ok {
			t.Fatalf("%v is not scraped", rulerPod(i))
		}
		got = append(got, l.Get("job")+" "+l.Get("instance")+" "+l.Get("prometheus_shard"))
		if l, ok := sample(job(t, c, "ruler"), labels.FromStrings("__name__", "go_goroutines"), l); ok {
			t.Errorf("%s is kept: each shard would have all of the rulers' pages", l)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) != 4 || !slices.Equal(got, want) {
		t.Errorf("shards scrape %q, the small servers %q", got, want)
	}

	for _, alert := range []labels.Labels{
		labels.FromStrings("alertname", "RulerFailing", "cluster", "jaguar", "reason", "down"),
		labels.FromStrings("alertname", "PrometheusHAPairDown", "cluster", "jaguar", "prometheus_shard", "rules"),
	} {
		lb := labels.NewBuilder(alert)
		if !relabel.ProcessBuilder(lb, c.AlertingConfig.AlertRelabelConfigs...) || lb.Get("cluster") != "monitoring" {
			t.Errorf("%s goes out as %s: it is no cluster's, and a small server sends it too", alert, lb.Labels())
		}
	}
}
