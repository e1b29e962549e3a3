package verify_test

import (
	"os"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel/verify"
)

// What we ship agrees with itself: the configuration for exporters takes nothing that our rules and
// dashboards look at, on no shard.
func TestWhatWeShip(t *testing.T) {
	text, err := os.ReadFile("../../deploy/exporters/prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, shard := range []string{"0", "1", "2", "3"} {
		files = append(files, file(t, "prometheus.yml", strings.NewReplacer("${SHARDS}", "4", "${SHARD}", shard).Replace(string(text))))
	}
	r := check(t, verify.Options{
		Prometheus: files, Rules: []string{"../../alerts/global", "../../alerts/shard"},
		Dashboards: []string{"../../dashboards"},
		Skip:       []string{"ruler", "ruler-prometheus"}, // they are there for up alone
	})
	if r.State != verify.OK || len(r.Findings) > 0 || r.Rules == 0 || r.Uses < 500 {
		t.Error(textOf(t, r))
	}
}

// TestJobsLeftOut: what is left out is told, and a name that no configuration has is no "ok".
func TestJobsLeftOut(t *testing.T) {
	conf := file(t, "prometheus.yml", "scrape_configs: [{job_name: a, static_configs: [{targets: [x]}], metric_relabel_configs: [{source_labels: [__name__], regex: .+, action: drop}]}]\n")
	for _, tc := range []struct {
		skip []string
		want verify.State
	}{
		{nil, verify.Faulty},
		{[]string{"a"}, verify.OK},
		{[]string{"a", "b"}, verify.NotChecked},
	} {
		r := check(t, verify.Options{Prometheus: []string{conf}, Rules: []string{"../../alerts/shard"}, Skip: tc.skip})
		if text := textOf(t, r); r.State != tc.want || strings.Contains(text, "the job a is left out") != (tc.skip != nil) {
			t.Errorf("%v: %v\n%.600s", tc.skip, r.State, text)
		}
	}
}
