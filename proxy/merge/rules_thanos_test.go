package merge

import (
	"fmt"
	"strings"
	"testing"
)

// TestThanosPairIsOneRule: a Thanos Query without --query.replica-label lists what both Prometheus
// of a pair evaluate, since its pages of rules and alerts do not read replicaLabels[].
func TestThanosPairIsOneRule(t *testing.T) {
	const at = "2026-10-01T00:00:00Z"
	alert := func(state string) string {
		return fmt.Sprintf(`{"labels":{"alertname":"A","severity":"page","instance":"x"},"annotations":{},"state":%q,"activeAt":%q,"value":"1e+00"}`,
			state, at)
	}
	rule := func(replica, state string) string {
		return fmt.Sprintf(`{"state":%q,"name":"A","query":"up == 0","duration":60,"labels":{"prometheus_replica":%q,"severity":"page"},`+
			`"annotations":{},"alerts":[%s],"health":"ok","evaluationTime":0,"lastEvaluation":%q,"type":"alerting"}`,
			state, replica, alert(state), at)
	}
	src := func(format string, args ...any) []Source {
		strip := NewRelabel(map[string]string{"cluster": "c"}, []string{"prometheus_replica"})
		return []Source{{Name: "thanos", Body: strings.NewReader(fmt.Sprintf(format, args...)), Stamped: true, Relabel: strip}}
	}
	rules := src(`{"status":"success","data":{"groups":[{"name":"g","file":"f","rules":[%s,%s],"interval":30,"limit":0,`+
		`"evaluationTime":0,"lastEvaluation":%q}]}}`, rule("a", "firing"), rule("b", "pending"), at)
	out, _, err := merged(t, "rules", nil, rules, roomy)
	if err != nil || strings.Count(out, `"name":"A"`) != 1 {
		t.Errorf("rules: %v: %s", err, out)
	}
	alerts := src(`{"status":"success","data":{"alerts":[%s,%s]}}`, alert("firing"), alert("pending"))
	out, _, err = merged(t, "alerts", nil, alerts, roomy)
	if err != nil || strings.Count(out, `"alertname":"A"`) != 1 {
		t.Errorf("alerts: %v: %s", err, out)
	}
}
