package relabel_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/prove"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// What measures how much is stored is changed by the rules themselves, whatever they drop. No
// answer of it counts as equal, and alerts on it are said first.
func TestWhatMeasuresIsTold(t *testing.T) {
	const alert = "up == 1 unless scrape_samples_post_metric_relabeling > 0"
	for name, c := range map[string]struct {
		rules   string
		alarm   bool
		warning string
	}{
		"an alert": {"- {alert: Half, expr: '" + alert + "'}", true, ""},
		"by a recorded one": {
			"- {record: 'job:stored:sum', expr: 'sum by (job) (scrape_series_added)'}\n- {alert: Half, expr: 'job:stored:sum < 5'}", true, "job:stored:sum",
		},
		"none":              {"- {alert: Half, expr: 'scrape_samples_scraped < 5'}", false, ""},
		"a recorded one":    {"- {record: 'job:stored:sum', expr: 'sum(prometheus_tsdb_head_series)'}", false, "job:stored:sum"},
		"the project's own": {"- {alert: DropRulesNotEffective, expr: '" + alert + "'}", false, ""},
		"the project's jumps": {
			"- {record: 'cluster_job:scrape_series_added:sum1m', expr: 'sum(scrape_series_added)'}\n" +
				"- {alert: PrometheusJobCardinalityJump, expr: 'cluster_job:scrape_series_added:sum1m > 5'}", false, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := new(uses.Set)
			text := "groups:\n- name: g\n  rules:\n  - {alert: Used, expr: 'used_total > 5'}\n  " + strings.ReplaceAll(c.rules, "\n", "\n  ") + "\n"
			if err := uses.Rules(set, write(t, filepath.Join(t.TempDir(), "r.yaml"), text)); err != nil {
				t.Fatal(err)
			}
			p, err := relabel.Make(t.Context(), relabel.Options{
				Source: pages(t, map[string]string{"j/1": "used_total 1\nunused_total 1\n"}), Uses: set, Now: now, Replay: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			if n := p.Proof.Replay.Skipped[prove.Measured]; (n > 0) != (c.alarm || c.warning != "" || strings.Contains(name, "project")) {
				t.Errorf("skipped %v", p.Proof.Replay.Skipped)
			}
			told := strings.Contains(strings.Join(p.Alarms, "\n"), "alert Half")
			if told != c.alarm || strings.Contains(strings.Join(p.Alarms, "\n"), "how much is stored") != c.alarm {
				t.Errorf("alarms %q", p.Alarms)
			}
			warned := strings.Contains(strings.Join(p.Warnings, "\n"), "how much is stored")
			if warned != (c.warning != "") || !strings.Contains(strings.Join(p.Warnings, "\n"), c.warning) {
				t.Errorf("warnings %q", p.Warnings)
			}
		})
	}
}
