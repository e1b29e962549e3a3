package dashboards

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/alerts"
)

// facts are what is known of metrics: alerts/metrics.yaml and our recording rules.
type facts struct {
	jobs     map[string]jobFacts
	recorded map[string]bool
}

type jobFacts struct {
	Target  []string
	Common  []string
	Metrics map[string]struct {
		Type   string
		Labels []string
	}
}

// family is a metric as one job exports it.
type family struct {
	// series is the type of the series itself: a bucket of a histogram is a counter.
	series string
	labels []string
	// perNode says that each node has a target of the job.
	perNode bool
}

// eachRule calls f with every rule that the mixin renders, of both scopes.
func eachRule(t testing.TB, f func(r rulefmt.Rule)) {
	t.Helper()
	for _, fsys := range []fs.FS{alerts.Global(), alerts.Shard()} {
		names, err := fs.Glob(fsys, "*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			b, err := fs.ReadFile(fsys, name)
			if err != nil {
				t.Fatal(err)
			}
			var groups rulefmt.RuleGroups
			if err := yaml.Unmarshal(b, &groups); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, g := range groups.Groups {
				for _, r := range g.Rules {
					f(r)
				}
			}
		}
	}
}

func readFacts(t testing.TB) *facts {
	t.Helper()
	b, err := os.ReadFile("../alerts/metrics.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f := &facts{recorded: map[string]bool{}}
	if err := yaml.Unmarshal(b, &f.jobs); err != nil {
		t.Fatal(err)
	}
	eachRule(t, func(r rulefmt.Rule) {
		if r.Record != "" {
			f.recorded[r.Record] = true
		}
	})
	if len(f.jobs) < 10 || len(f.recorded) < 50 {
		t.Fatalf("%d jobs and %d recorded series: these are not all", len(f.jobs), len(f.recorded))
	}
	return f
}

// ofTarget are series that Prometheus makes for each target.
var ofTarget = []string{
	"up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_samples_post_metric_relabeling",
	"scrape_series_added",
}

// find are the families of a series name that the matchers let through.
func (f *facts) find(name string, matchers []*labels.Matcher) []family {
	var out []family
	for job, j := range f.jobs {
		if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return m.Name == "job" && !m.Matches(job) }) {
			continue
		}
		perNode := slices.Contains(j.Target, "node")
		own := slices.Concat(j.Target, j.Common)
		if slices.Contains(ofTarget, name) {
			out = append(out, family{"gauge", own, perNode})
			continue
		}
		if m, ok := j.Metrics[name]; ok {
			out = append(out, family{m.Type, slices.Concat(own, m.Labels), perNode})
			continue
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(name, suffix); ok && j.Metrics[base].Type == "histogram" {
				out = append(out, family{"counter", slices.Concat(own, j.Metrics[base].Labels), perNode})
			}
		}
	}
	return out
}
