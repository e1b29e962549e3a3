package server

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestRulesWithTemplates: the label of an alerting rule may be a template, which has a value in
// each of its alerts and none in the rule. Such a rule is nobody's, whatever a tenant's matchers
// make of the template's text; its alerts are whose they say.
func TestRulesWithTemplates(t *testing.T) {
	const at = `"lastEvaluation":"2026-01-01T00:00:00Z","evaluationTime":0`
	alert := func(ns string) string {
		return `{"labels":{"alertname":"Each","namespace":"` + ns + `"},"annotations":{},"state":"firing",` +
			`"activeAt":"2026-01-01T00:00:00Z","value":"1"}`
	}
	rule := func(name, ns string, alerts ...string) string {
		return `{"state":"firing","name":"` + name + `","query":"x","duration":0,"keepFiringFor":0,"labels":{"namespace":"` + ns +
			`"},"annotations":{},"alerts":[` +
			strings.Join(alerts, ",") + `],"health":"ok","type":"alerting",` + at + `}`
	}
	rules := strings.Join([]string{
		rule("Each", "{{ $labels.namespace }}", alert("research"), alert("infra-dns")),
		rule("Part", "x-{{ $value }}"), rule("Mine", "research"), rule("Theirs", "infra-dns"), rule("Brace", "{research}"),
	}, ",")
	fake := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{
		{Path: "/api/v1/rules", Script: `send '{"status":"success","data":{"groups":[{"name":"g","file":"f","interval":60,"limit":0,` +
			at + `,"rules":[` + rules + `]}]}}'`},
		{Path: "/api/v1/alerts", Script: `send '{"status":"success","data":{"alerts":[` +
			alert("research") + "," + alert("infra-dns") + `]}}'`},
	}})
	dir := t.TempDir()
	text := fmt.Sprintf("groups: [{name: heron, labels: {cluster: heron}, shards: [{replicas: [{url: %q}]}]}]\ntenants:\n", fake.URL())
	for name, matchers := range map[string]string{
		"negative": `['{namespace!~"infra-.*"}']`, "broad": `['{namespace=~".+"}']`, "other": `['{cluster="heron"}']`, "all": "",
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("  - {name: %s, bearer_token_file: %s", name, file)
		if matchers != "" {
			text += ", matchers: " + matchers
		}
		text += "}\n"
	}
	_, base := startProxy(t, t.Context(), text)
	ask := func(who, path string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+who)
		resp, err := newClient(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s of %s: %d %v %s", path, who, resp.StatusCode, err, body)
		}
		return string(body)
	}
	for who, want := range map[string]string{
		"negative": "Mine Brace", "broad": "Mine Theirs Brace", "all": "Each Part Mine Theirs Brace",
		"other": "Each Part Mine Theirs Brace", // no template stands in the label that it is kept to
	} {
		var has []string
		body := ask(who, "/api/v1/rules")
		for _, name := range []string{"Each", "Part", "Mine", "Theirs", "Brace"} {
			if strings.Contains(body, `"name":"`+name+`"`) {
				has = append(has, name)
			}
		}
		if got := strings.Join(has, " "); got != want {
			t.Errorf("%s sees the rules %s, want %s", who, got, want)
		}
		alerts := ask(who, "/api/v1/alerts")
		if !strings.Contains(alerts, `"research"`) || strings.Contains(alerts, "infra-dns") == (who == "negative") {
			t.Errorf("%s sees the alerts %s", who, alerts)
		}
	}
}
