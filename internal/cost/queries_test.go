package cost

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// all are the queries of a bill.
func (q queries) all() []query {
	return []query{
		q.namespaces, q.running, q.requests, q.allocated, q.podLabels, q.namespaceLabels, q.active,
		q.nodeLabels, q.capacity, q.allocatable, q.ready, q.seen, q.reservations, q.devices, q.cards,
		q.claimants, q.claims, q.cuts, q.shares, q.again,
		q.workNames, q.work, q.cores, q.memory,
	}
}

// TestExported: every metric and every label that a bill reads is exported with the flags and files
// of deploy/exporters.
func TestExported(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	ksm, dcgm := read("../../deploy/exporters/kube-state-metrics.flags"), read("../../deploy/exporters/dcgm-counters.csv")
	n := Names{}.withDefaults()
	p := parser.NewParser(parser.Options{})
	seen := map[string]bool{}
	for _, q := range n.queries().all() {
		expr, err := p.ParseExpr(q.text("3600000ms", oneOf("namespace", []string{"a", "b-c"})))
		if err != nil {
			t.Fatalf("%s: %v", q.name, err)
		}
		for _, selector := range parser.ExtractSelectors(expr) {
			for _, m := range selector {
				if m.Name == model.MetricNameLabel {
					seen[m.Value] = true
				}
			}
		}
	}
	for _, metric := range sortedKeys(seen) {
		switch {
		case strings.HasPrefix(metric, "kube_") && strings.Contains(ksm, "--metric-allowlist=^"+metric+"$\n"):
		case strings.HasPrefix(metric, "DCGM_") && strings.Contains(dcgm, "\n"+metric+","):
		default:
			t.Errorf("%s is not exported by what deploy/exporters sets up", metric)
		}
	}
	if len(seen) != 11 {
		t.Errorf("%d metrics are read: %v", len(seen), sortedKeys(seen))
	}
	// Labels of Kubernetes become labels of Prometheus with _ for all that is no letter or digit.
	allowed := map[string]string{}
	for _, kind := range regexp.MustCompile(`(nodes|namespaces|pods)=\[([^]]*)\]`).FindAllStringSubmatch(ksm, -1) {
		for l := range strings.SplitSeq(kind[2], ",") {
			allowed[kind[1]] += " label_" + strings.ToLower(regexp.MustCompile(`([a-z0-9])([A-Z])`).ReplaceAllString(
				regexp.MustCompile(`[^a-zA-Z0-9]`).ReplaceAllString(l, "_"), "${1}_${2}")) + " "
		}
	}
	for kind, want := range map[string][]string{
		"nodes": append([]string{n.ModelLabel}, n.ClassLabels...), "namespaces": n.TeamLabels, "pods": n.ExperimentLabels,
	} {
		for _, l := range want {
			if !strings.Contains(allowed[kind], " "+l+" ") {
				t.Errorf("the label %s of %s is not exported: %s", l, kind, allowed[kind])
			}
		}
	}
}

// TestLabelsOfTheRules: what is an experiment or a team here is one on the dashboards too.
func TestLabelsOfTheRules(t *testing.T) {
	text, err := os.ReadFile("../../jsonnet/config.libsonnet")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string][]string{"experimentLabels": DefaultExperimentLabels, "teamLabels": DefaultTeamLabels} {
		m := regexp.MustCompile(key + `: \[([^]]*)\]`).FindStringSubmatch(string(text))
		if m == nil {
			t.Fatalf("jsonnet/config.libsonnet has no %s", key)
		}
		if got := strings.NewReplacer("'", "", " ", "", "\n", "").Replace(m[1]); strings.TrimSuffix(got, ",") != strings.Join(want, ",") {
			t.Errorf("%s are %s in jsonnet/config.libsonnet and %v here", key, got, want)
		}
	}
	if !strings.Contains(string(text), "taint: '"+(Names{}).withDefaults().ReservationTaint+"'") {
		t.Error("reservation.taint of jsonnet/config.libsonnet is not the key of the taint here")
	}
	if !strings.Contains(string(text), "unassignedTeam: '"+Unassigned+"'") {
		t.Errorf("what is nobody's is not called %s in jsonnet/config.libsonnet", Unassigned)
	}
}
