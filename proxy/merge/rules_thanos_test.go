package merge

import (
	"strings"
	"testing"
)

// TestThanosPairIsOneRule: a Thanos Query without --query.replica-label lists what both Prometheus
// of a pair evaluate, since its pages of rules and alerts do not read replicaLabels[].
func TestThanosPairIsOneRule(t *testing.T) {
	rule := func(replica, state string) string {
		return `{"state":"` + state + `","name":"A","query":"up == 0","duration":60,"labels":{"prometheus_replica":"` + replica + `","severity":"page"},"annotations":{},"alerts":[{"labels":{"alertname":"A","severity":"page","instance":"x"},"annotations":{},"state":"` + state + `","activeAt":"2026-10-01T00:00:00Z","value":"1e+00"}],"health":"ok","evaluationTime":0,"lastEvaluation":"2026-10-01T00:00:00Z","type":"alerting"}`
	}
	src := func(body string) []Source {
		return []Source{{Name: "thanos", Body: strings.NewReader(body), Stamped: true, Relabel: NewRelabel(map[string]string{"cluster": "c"}, []string{"prometheus_replica"})}}
	}
	out, _, err := merged(t, "rules", nil, src(`{"status":"success","data":{"groups":[{"name":"g","file":"f","rules":[`+rule("a", "firing")+","+rule("b", "pending")+`],"interval":30,"limit":0,"evaluationTime":0,"lastEvaluation":"2026-10-01T00:00:00Z"}]}}`), roomy)
	if err != nil || strings.Count(out, `"name":"A"`) != 1 {
		t.Errorf("rules: %v: %s", err, out)
	}
	alert := func(state string) string {
		return `{"labels":{"alertname":"A","severity":"page","instance":"x"},"annotations":{},"state":"` + state + `","activeAt":"2026-10-01T00:00:00Z","value":"1e+00"}`
	}
	out, _, err = merged(t, "alerts", nil, src(`{"status":"success","data":{"alerts":[`+alert("firing")+","+alert("pending")+`]}}`), roomy)
	if err != nil || strings.Count(out, `"alertname":"A"`) != 1 {
		t.Errorf("alerts: %v: %s", err, out)
	}
}
