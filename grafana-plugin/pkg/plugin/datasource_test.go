package plugin

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
)

// Settings that cannot be used are the answer of everything, never an error of the protocol.
func TestBrokenSettings(t *testing.T) {
	for _, tc := range []struct {
		url, jsonData, says string
	}{
		{"", "", "has no URL"},
		{"ftp://x", "", "must begin with"},
		{"http://x", "[", "settings"},
		{"http://x", `{"idleBelow":-1,"currency":"x"}`, "idleBelow"},
		{"http://x", `{"access":5}`, "wrong type"},
		{"http://x", `{"tlsAuthWithCACert":true,"serverName":5}`, "wrong type"},
		{"http://x", `{"keepCookies":"a"}`, "keepCookies"},
	} {
		d := open(t, backend.DataSourceInstanceSettings{URL: tc.url, JSONData: []byte(tc.jsonData)})
		r := ask(t, d, `{}`)["A"]
		if r.Error == nil || r.Status != 400 || r.ErrorSource != backend.ErrorSourceDownstream ||
			!strings.Contains(r.Error.Error(), tc.says) {
			t.Errorf("%s %s: %d %v, want one with %q", tc.url, tc.jsonData, r.Status, r.Error, tc.says)
		}
		if h, err := d.CheckHealth(t.Context(), &backend.CheckHealthRequest{}); err != nil || h.Status != backend.HealthStatusError ||
			!strings.Contains(h.Message, tc.says) {
			t.Errorf("%s %s: health %+v, %v", tc.url, tc.jsonData, h, err)
		}
		if status, body, _ := get(t, d, "GET", "teams", ""); status != 400 || !strings.Contains(body, tc.says) {
			t.Errorf("%s %s: resource %d %s", tc.url, tc.jsonData, status, body)
		}
	}
}

// everyCall are the ways in which Grafana calls an instance, each with these headers.
func everyCall(t *testing.T) map[string]func(d *Datasource, p backend.PluginContext, headers map[string]string) {
	ignored := backend.CallResourceResponseSenderFunc(func(*backend.CallResourceResponse) error { return nil })
	return map[string]func(d *Datasource, p backend.PluginContext, headers map[string]string){
		"query": func(d *Datasource, p backend.PluginContext, headers map[string]string) {
			req := queries(`{"queryType":"promql","expr":"up"}`)
			req.PluginContext, req.Headers = p, headers
			if _, err := d.QueryData(t.Context(), req); err != nil {
				t.Error(err)
			}
		},
		"health": func(d *Datasource, p backend.PluginContext, headers map[string]string) {
			if _, err := d.CheckHealth(t.Context(), &backend.CheckHealthRequest{PluginContext: p, Headers: headers}); err != nil {
				t.Error(err)
			}
		},
		"resource": func(d *Datasource, p backend.PluginContext, headers map[string]string) {
			req := &backend.CallResourceRequest{PluginContext: p, Method: "GET", Path: "teams", Headers: map[string][]string{}}
			for k, v := range headers {
				req.Headers[strings.TrimPrefix(k, "http_")] = []string{v}
			}
			if err := d.CallResource(t.Context(), req, ignored); err != nil {
				t.Error(err)
			}
		},
	}
}

// Who asks is told to the proxy as Grafana says it; what a browser could write and what the
// settings do not pass on is not.
func TestHeaders(t *testing.T) {
	var (
		mu  sync.Mutex
		got []http.Header
	)
	h := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		got = append(got, r.Header)
		mu.Unlock()
		if strings.HasSuffix(r.URL.Path, "buildinfo") {
			_, _ = io.WriteString(w, `{"status":"success","data":{"version":"1"}}`)
			return
		}
		_, _ = io.WriteString(w, good)
	}
	user := backend.PluginContext{User: &backend.User{Login: "ada\n\u202e<b>"}}
	secret := map[string]string{
		"http_Authorization": "Bearer t", "http_X-Id-Token": "i", "http_Cookie": "grafana_session=s",
		"http_X-Grafana-User": "eve", "http_X-Forwarded-For": "1.2.3.4", "http_Accept-Encoding": "br",
	}
	sent := map[string]string{"http_X-Dashboard-Uid": "d1", "http_X-Panel-Id": "7"}
	for k, v := range secret {
		sent[k] = v
	}
	asks := everyCall(t)
	for name, do := range asks {
		for _, tc := range []struct {
			jsonData string
			plugin   backend.PluginContext
			want     map[string]string
		}{
			{"", user, map[string]string{
				"X-Dashboard-Uid": "d1", "X-Panel-Id": "7", "X-Grafana-User": "ada<b>", "Authorization": "",
				"X-Id-Token": "", "Cookie": "", "X-Forwarded-For": "", "Accept-Encoding": "gzip",
			}},
			{"", backend.PluginContext{}, map[string]string{"X-Grafana-User": ""}},
			{`{"oauthPassThru":true,"keepCookies":["grafana_session"]}`, user, map[string]string{"Authorization": "Bearer t", "X-Id-Token": "i", "Cookie": "grafana_session=s", "X-Forwarded-For": ""}},
		} {
			got = nil
			do(served(t, tc.jsonData, h), tc.plugin, sent)
			if len(got) == 0 {
				t.Fatalf("%s: nothing was asked", name)
			}
			for _, header := range got {
				for k, v := range tc.want {
					if header.Get(k) != v {
						t.Errorf("%s with %s: %s is %q, want %q", name, tc.jsonData, k, header.Get(k), v)
					}
				}
			}
		}
	}
	// Anybody may call a resource, or the health check, with headers of his own.
	for _, name := range []string{"resource", "health"} {
		got = nil
		asks[name](served(t, "", h), user, map[string]string{
			"http_FromAlert": "true", "http_X-Rule-Uid": "r1", "FromAlert": "true", "X-Rule-Uid": "r1",
		})
		if len(got) == 0 {
			t.Fatalf("%s: nothing was asked", name)
		}
		for _, header := range got {
			if header.Get("Fromalert") != "" || header.Get("X-Rule-Uid") != "" {
				t.Errorf("%s claims to be an alert: %v", name, header)
			}
		}
	}
	// Alerting writes what is no header of a browser's beside those that are.
	for _, prefix := range []string{"http_", ""} {
		got = nil
		asks["query"](served(t, "", h), backend.PluginContext{}, map[string]string{"FromAlert": "true", prefix + "X-Rule-Uid": "r1"})
		if len(got) != 1 || got[0].Get("Fromalert") != "true" || got[0].Get("X-Rule-Uid") != "r1" || got[0].Get("X-Grafana-User") != "" {
			t.Errorf("an alert: %v", got)
		}
	}
}

// An alert is evaluated on whole answers, whatever the settings and the proxy's are.
func TestAlertsOnWholeAnswers(t *testing.T) {
	var mu sync.Mutex
	got := map[string]bool{}
	h := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		got[r.FormValue("partial_response")] = true
		mu.Unlock()
		_, _ = io.WriteString(w, good)
	}
	ask := everyCall(t)["query"]
	for jsonData, panel := range map[string]string{"": "", `{"partialResponse":"warn"}`: "true", `{"partialResponse":"abort"}`: "false"} {
		for headers, want := range map[string]string{"": panel, "FromAlert": "false", "http_FromAlert": "false"} {
			clear(got)
			ask(served(t, jsonData, h), backend.PluginContext{}, map[string]string{headers: "true"})
			if len(got) != 1 || !got[want] {
				t.Errorf("settings %s, header %q: partial_response %v, want %q", jsonData, headers, got, want)
			}
		}
	}
}

// Settings of HTTP are Grafana's own.
func TestHTTPSettings(t *testing.T) {
	var got *http.Request
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		_, _ = io.WriteString(w, good)
	}))
	defer srv.Close()
	d := open(t, backend.DataSourceInstanceSettings{
		URL: srv.URL, BasicAuthEnabled: true, BasicAuthUser: "u", JSONData: []byte(`{"tlsSkipVerify":true,"httpHeaderName1":"X-Scope-OrgID","timeout":0}`),
		DecryptedSecureJSONData: map[string]string{"basicAuthPassword": "p", "httpHeaderValue1": "team"},
	})
	if r := ask(t, d, `{"queryType":"promql","expr":"up"}`)["A"]; r.Error != nil {
		t.Fatal(r.Error)
	}
	if u, p, ok := got.BasicAuth(); !ok || u != "u" || p != "p" || got.Header.Get("X-Scope-OrgID") != "team" {
		t.Errorf("%v", got.Header)
	}
	d = open(t, backend.DataSourceInstanceSettings{URL: srv.URL})
	if r := ask(t, d, `{"queryType":"promql","expr":"up"}`)["A"]; r.Error == nil || r.Status != 502 ||
		!strings.Contains(r.Error.Error(), "certificate") {
		t.Errorf("a certificate that nobody knows: %d %v", r.Status, r.Error)
	}
}

// The back end reads no environment, no files and no flags, and starts nothing: the catalog's rule,
// and everything comes from the settings. main may ask who its parent is, and end.
func TestImports(t *testing.T) {
	never := map[string]bool{
		"os/exec": true, "syscall": true, "io/ioutil": true, "flag": true, "path/filepath": true, "unsafe": true,
		"plugin": true, "net/rpc": true,
	}
	dirs := []string{"..", "../model", "../parent", "../prom", "../experiments", "."}
	files := 0
	for _, dir := range dirs {
		list, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range list {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			files++
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range f.Imports {
				if path := strings.Trim(i.Path.Value, `"`); never[path] || path == "os" && filepath.Base(file) != "main.go" {
					t.Errorf("%s imports %s", file, path)
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := s.X.(*ast.Ident); ok && x.Name == "os" && s.Sel.Name != "Exit" && s.Sel.Name != "Getppid" {
						t.Errorf("%s uses os.%s", file, s.Sel.Name)
					}
				}
				return true
			})
		}
	}
	if files < 20 {
		t.Errorf("%d files: the test reads the wrong place", files)
	}
}
