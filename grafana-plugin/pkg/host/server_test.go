package host

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// grafana serves one datasource over url.
func grafana(t *testing.T, h *Host, i backend.DataSourceInstanceSettings) *httptest.Server {
	t.Helper()
	s, err := NewServer(ServerOptions{
		Host: h, Instance: i, User: backend.User{Login: "ada"},
		Files: fstest.MapFS{
			"module.js": {Data: []byte("define([])")}, "plugin.json": {Data: []byte("{}")},
			"gpx_x_linux_amd64": {Data: []byte("ELF")}, "img/logo.svg": {Data: []byte("<svg/>")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return web
}

func do(t *testing.T, c *http.Client, method, url, body string, headers ...string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Header
}

// panel is the body of a query as a browser sends it.
func panel(uid, query string) string {
	now := time.Now()
	return fmt.Sprintf(`{"queries":[{"refId":"A","datasource":{"uid":%q,"type":%q},"intervalMs":15000,"maxDataPoints":500,%s}],"from":"%d","to":"%d"}`,
		uid, PluginID, query, now.Add(-time.Hour).UnixMilli(), now.UnixMilli())
}

// TestOverHTTP goes the whole way: a browser's request, the plugin's program, its request to the
// API.
func TestOverHTTP(t *testing.T) {
	h := start(t)
	api := fakeshard.Start(t, fakeshard.Config{})
	i := at(api.URL(), `{"httpHeaderName1":"X-Scope"}`)
	i.DecryptedSecureJSONData = map[string]string{"httpHeaderValue1": "secret-scope"}
	web, c := grafana(t, h, i), client(t)

	status, body, _ := do(t, c, http.MethodPost, web.URL+"/api/ds/query", panel("x", `"queryType":"promql","expr":"up"`),
		"X-Dashboard-Uid", "dash", "X-Panel-Id", "7", "X-Forwarded-For", "10.0.0.9", "Cookie", "session=1")
	var answer struct {
		Results map[string]struct {
			Status int
			Frames []struct {
				Schema struct {
					RefID string
					Meta  struct{ ExecutedQueryString string }
				}
				Data struct{ Values [][]float64 }
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	a := answer.Results["A"]
	if a.Status != 200 || len(a.Frames) != 2 || a.Frames[0].Schema.RefID != "A" || a.Frames[0].Schema.Meta.ExecutedQueryString != "up" ||
		len(a.Frames[0].Data.Values) != 2 {
		t.Errorf("the answer: %s", body)
	}
	sent := api.RequestsTo("/api/v1/query_range")
	if len(sent) != 1 {
		t.Fatalf("the API saw %d requests", len(sent))
	}
	for name, want := range map[string]string{
		"X-Dashboard-Uid": "dash", "X-Panel-Id": "7", "X-Grafana-User": "ada", "X-Scope": "secret-scope", "Cookie": "",
		"X-Forwarded-For": "",
	} {
		if got := sent[0].Header.Get(name); got != want {
			t.Errorf("the API got the header %s: %q, want %q", name, got, want)
		}
	}

	status, body, _ = do(t, c, http.MethodGet, web.URL+"/api/datasources/uid/x", "")
	if status != 200 || strings.Contains(body, "secret-scope") || !strings.Contains(body, `"secureJsonFields":{"httpHeaderValue1":true}`) {
		t.Errorf("the datasource: %d %s", status, body)
	}
	// Settings that are changed count at once; secrets that are not sent stay.
	other := fakeshard.Start(t, fakeshard.Config{})
	status, body, _ = do(t, c, http.MethodPut, web.URL+"/api/datasources/uid/x", fmt.Sprintf(`{"name":"Other","url":%q,"jsonData":{"httpHeaderName1":"X-Scope"}}`, other.URL()))
	if status != 200 || strings.Contains(body, "secret-scope") {
		t.Errorf("PUT: %d %s", status, body)
	}
	if status, body, _ = do(t, c, http.MethodPost, web.URL+"/api/ds/query", panel("x", `"queryType":"promql","expr":"up"`)); status != 200 {
		t.Errorf("with new settings: %d %s", status, body)
	}
	if sent := other.RequestsTo("/api/v1/query_range"); len(sent) != 1 || sent[0].Header.Get("X-Scope") != "secret-scope" {
		t.Errorf("with new settings the API saw %v", sent)
	}
}

func TestServerRefuses(t *testing.T) {
	h := start(t)
	web, c := grafana(t, h, at(closed(t), "")), client(t)
	for what, r := range map[string]struct {
		method, path, body string
		status             int
		want               string
	}{
		"no JSON":            {"POST", "/api/ds/query", "up", 400, "bad request data"},
		"no time":            {"POST", "/api/ds/query", `{"queries":[{"refId":"A"}],"from":"now-1h","to":"now"}`, 400, "milliseconds since 1970"},
		"no queries":         {"POST", "/api/ds/query", `{"queries":[],"from":"1","to":"2"}`, 400, "No queries found"},
		"another datasource": {"POST", "/api/ds/query", panel("y", `"queryType":"promql","expr":"up"`), 404, "Data source not found"},
		"an error of a query": {
			"POST", "/api/ds/query", panel("x", `"queryType":"promql","expr":"up"`), 400,
			`"errorSource":"downstream"`,
		},
		"health of another":    {"GET", "/api/datasources/uid/y/health", "", 404, "not found"},
		"bad health":           {"GET", "/api/datasources/uid/x/health", "", 400, `"status":"ERROR"`},
		"resource of another":  {"GET", "/api/datasources/uid/y/resources/teams", "", 404, "not found"},
		"an unknown resource":  {"GET", "/api/datasources/uid/x/resources/secrets", "", 404, ""},
		"settings, no JSON":    {"PUT", "/api/datasources/uid/x", "x", 400, "bad request data"},
		"too large":            {"POST", "/api/ds/query", `{"from":"` + strings.Repeat("1", maxBody) + `"}`, 400, "too large"},
		"the program":          {"GET", "/public/plugins/" + PluginID + "/gpx_x_linux_amd64", "", 404, "not found"},
		"the list of files":    {"GET", "/public/plugins/" + PluginID + "/", "", 404, "not found"},
		"a list of a folder's": {"GET", "/public/plugins/" + PluginID + "/img/", "", 404, "not found"},
		"another plugin":       {"GET", "/public/plugins/other/module.js", "", 404, ""},
		"module.js":            {"GET", "/public/plugins/" + PluginID + "/module.js", "", 200, "define"},
		"a picture":            {"GET", "/public/plugins/" + PluginID + "/img/logo.svg", "", 200, "<svg/>"},
		"the list":             {"GET", "/api/datasources", "", 200, `"uid":"x"`},
		"users":                {"GET", "/api/users", "", 404, ""},
	} {
		t.Run(what, func(t *testing.T) {
			status, body, _ := do(t, c, r.method, web.URL+r.path, r.body)
			if status != r.status || !strings.Contains(body, r.want) {
				t.Errorf("%d %.300s; want %d with %q", status, body, r.status, r.want)
			}
		})
	}
	for _, o := range []ServerOptions{{}, {Host: h}, {Instance: at("http://x", "")}} {
		if _, err := NewServer(o); err == nil {
			t.Errorf("a server of %+v", o)
		}
	}
}

// TestBrowserLeaves: a browser that closes its tab ends its query at the API.
func TestBrowserLeaves(t *testing.T) {
	h := start(t)
	api := fakeshard.Start(t, fakeshard.Config{Default: "stall"})
	web, c := grafana(t, h, at(api.URL(), "")), client(t)
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, web.URL+"/api/ds/query",
		bytes.NewReader([]byte(panel("x", `"queryType":"promql","expr":"up"`))))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		resp, err := c.Do(r)
		if err == nil {
			resp.Body.Close()
		}
		ended <- err
	}()
	eventually(t, "the query is at the API", func() bool { return api.InFlight() == 1 })
	leave()
	if err := <-ended; err == nil {
		t.Error("it was answered")
	}
	wait, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := api.WaitIdle(wait); err != nil {
		t.Error(err)
	}
	if all := api.Requests(); len(all) != 1 || !all[0].End.PeerLeft() {
		t.Errorf("%v", all)
	}
}
