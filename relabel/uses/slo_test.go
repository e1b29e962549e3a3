package uses

import (
	"slices"
	"testing"
)

// Objectives of Grafana's SLO app name their metrics alone.
func TestGrafanaSLO(t *testing.T) {
	set := new(Set)
	dir := folder(t, "slo.json", `{"slos": [
{"name": "x", "query": {"type": "ratio", "ratio": {"successMetric": {"prometheusMetric": "a_m"}, "totalMetric": {"prometheusMetric": "b_m"}}}},
{"name": "y", "query": {"type": "ratio", "ratio": {"successMetric": "c_m{code=\"200\"}", "totalMetric": "c_m"}}},
{"query": {"type": "freeform", "freeform": {"query": "sum(d_m)"}}}]}`)
	if err := Rules(set, dir); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range set.Uses {
		for i := range u.Needs {
			got = append(got, u.Needs[i].Selector())
		}
	}
	slices.Sort(got)
	named := func(metric string) string { return `{__name__=~"` + metric + `(_bucket|_count|_sum)?"}` }
	if want := []string{`c_m{code="200"}`, "d_m", named("a_m"), named("b_m"), named("c_m")}; !slices.Equal(got, want) {
		t.Errorf("%q, %q", got, set.Warnings)
	}
}
