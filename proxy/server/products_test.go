package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestBuildinfoIsOfOneProduct: beside Prometheus the version of a Thanos Query says nothing, since
// Thanos counts by its own and clients would take 0.42 for an ancient Prometheus; nor does the name
// of somebody's own build beside a number. Where there is nothing else they are answered.
func TestBuildinfoIsOfOneProduct(t *testing.T) {
	thanos := fmt.Sprintf("{url: %q, type: thanos}", fakeThanos(t, "heron").URL())
	version := func(v string) string {
		return fmt.Sprintf("{url: %q}", fakeshard.Start(t, fakeshard.Config{Version: v}).URL())
	}
	for _, tc := range []struct {
		want   string
		shards []string
	}{
		{"3.15.0", []string{thanos, version("3.15.0")}},
		{"3.15.0", []string{version("main-abc"), version("3.15.0"), version("3.16.0-rc.0")}},
		{"main-abc", []string{version("main-abc"), thanos}},
		{"0.42.4", []string{thanos}},
	} {
		text := "groups:\n"
		for i, s := range tc.shards {
			cluster := fmt.Sprint("c", i)
			if s == thanos {
				cluster = "heron"
			}
			text += fmt.Sprintf("  - {name: %s, labels: {cluster: %s}, shards: [{replicas: [%s]}]}\n", cluster, cluster, s)
		}
		_, base := startProxy(t, t.Context(), text)
		want := `"version":"` + tc.want + `"`
		if code, body := got(t, base+"/api/v1/status/buildinfo"); code != 200 || !strings.Contains(string(body), want) {
			t.Errorf("%v: %d %s, want %s", tc.shards, code, body, tc.want)
		}
	}
}

// TestRulesBehindThanos: Thanos writes the external labels of each server on its rules, so that of
// two shards with two replicas each rule stood there four times.
func TestRulesBehindThanos(t *testing.T) {
	rule := func(replica string) string {
		return fmt.Sprintf(`{"name":"g","file":"f.yaml","interval":30,"limit":0,"evaluationTime":0.1,"lastEvaluation":"2026-11-01T00:00:00Z","rules":[`+
			`{"type":"alerting","name":"Down","query":"up == 0","duration":60,"labels":{"cluster":"heron","prometheus_replica":%q,"severity":"page"},"annotations":{},"state":"firing","health":"ok","evaluationTime":0.1,"lastEvaluation":"2026-11-01T00:00:00Z",`+
			`"alerts":[{"labels":{"alertname":"Down","cluster":"heron","prometheus_replica":%q,"severity":"page"},"annotations":{},"state":"firing","activeAt":"2026-11-01T00:00:00Z","value":"0"}]},`+
			`{"type":"recording","name":"a:b","query":"sum(b)","labels":{"cluster":"heron","prometheus_replica":%q},"health":"ok","evaluationTime":0.1,"lastEvaluation":"2026-11-01T00:00:00Z"}]}`, replica, replica, replica)
	}
	fake := fakeThanos(t, "heron", fakeshard.Route{
		Path:   "/api/v1/rules",
		Script: `header Content-Type application/json; send '{"status":"success","data":{"groups":[` + rule("a") + "," + rule("b") + "," + rule("c") + `]}}'`,
	})
	_, base := startProxy(t, t.Context(), fmt.Sprintf("groups: [{name: heron, labels: {cluster: heron}, replica_labels: [prometheus_replica], shards: [{replicas: [{url: %q, type: thanos}]}]}]\n", fake.URL()))
	code, body := got(t, base+"/api/v1/rules")
	text := string(body)
	for what, want := range map[string]int{
		`"name":"Down"`: 1, `"name":"a:b"`: 1, `"alertname":"Down"`: 1, "prometheus_replica": 0, `"cluster":"heron"`: 1,
		`"severity":"page"`: 2,
	} {
		if n := strings.Count(text, what); code != 200 || n != want {
			t.Errorf("%s stands %d times in the answer, want %d: %d %s", what, n, want, code, body)
		}
	}
}

// got is the answer to a GET.
func got(t *testing.T, target string) (code int, body []byte) {
	t.Helper()
	resp, err := http.Get(target)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}
