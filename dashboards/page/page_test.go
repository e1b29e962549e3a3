package page

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/spillwayproject/spillway/dashboards"
)

// bundle is as little of one as is needed.
var bundle = fstest.MapFS{
	"index.html":                 {Data: []byte("<html>the page")},
	"page.js":                    {Data: []byte("script")},
	"img/icons/a.svg":            {Data: []byte("<svg/>")},
	"fonts/inter/Inter-A.woff2":  {Data: []byte("font")},
	"../outside/secret-sentence": {Data: []byte("secret")},
}

func must(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// running serves the page and returns its address; it ends with the test.
func running(t *testing.T, o Options) (address string, stop func()) {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan net.Addr, 1)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, "127.0.0.1:0", func(a net.Addr) { ready <- a }) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the page ended with: %v", err)
		}
	}
	t.Cleanup(stop)
	select {
	case a := <-ready:
		return "http://" + a.String(), stop
	case err := <-done:
		ended = true
		cancel()
		t.Fatalf("the page did not start: %v", err)
		return "", nil
	}
}

// client keeps no connections that goleak would see.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}

func do(t *testing.T, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func request(t *testing.T, method, target, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPaths(t *testing.T) {
	address, _ := running(t, Options{Bundle: bundle, Dashboards: dashboards.FS(), API: must(t, "http://127.0.0.1:1")})
	for path, want := range map[string]struct {
		status int
		body   string
	}{
		"/":                                 {200, "the page"},
		"/d/spillway-fleet":                 {200, "the page"},
		"/edit/query":                       {200, "the page"},
		"/api/datasources":                  {200, "[]"},
		"/api/ds/query":                     {404, ""},
		"/public/plugins/x/module.js":       {404, ""},
		"/static/page.js":                   {200, "script"},
		"/public/build/img/icons/a.svg":     {200, "<svg/>"},
		"/public/fonts/inter/Inter-A.woff2": {200, "font"},
		"/dashboards/fleet.json":            {200, `"spillway-fleet"`},
		"/dashboards/none.json":             {404, ""},
		"/static/../page.go":                {404, ""},
		"/elsewhere":                        {404, ""},
		"/api/v2/alerts":                    {404, ""},
	} {
		resp, body := do(t, request(t, "GET", address+path, ""))
		if resp.StatusCode != want.status || !strings.Contains(body, want.body) {
			t.Errorf("%s: %d %.100q, want %d with %q", path, resp.StatusCode, body, want.status, want.body)
		}
	}
	var entries []Entry
	_, body := do(t, request(t, "GET", address+"/dashboards", ""))
	if err := json.Unmarshal([]byte(body), &entries); err != nil || len(entries) != len(dashboards.Names()) {
		t.Fatalf("%d dashboards, want %d: %v", len(entries), len(dashboards.Names()), err)
	}
	for _, e := range entries {
		if e.UID == "" || e.Title == "" || e.Description == "" || len(e.Tags) == 0 {
			t.Errorf("in the list: %+v", e)
		}
	}
}

// What a plugin's front end asks goes to the plugin, and nothing else does.
func TestPlugin(t *testing.T) {
	plugin := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "plugin: %s %s", r.Method, r.URL.Path) })
	address, _ := running(t, Options{Bundle: bundle, Dashboards: dashboards.FS(), API: must(t, "http://127.0.0.1:1"), Plugin: plugin})
	for _, c := range []struct{ method, path, want string }{
		{"GET", "/api/datasources", "plugin: "},
		{"PUT", "/api/datasources/uid/x", "plugin: PUT /api/datasources/uid/x"},
		{"GET", "/api/datasources/uid/x/resources/teams", "plugin: "},
		{"POST", "/api/ds/query", "plugin: POST /api/ds/query"},
		{"GET", "/public/plugins/x/module.js", "plugin: "},
		{"GET", "/d/spillway-fleet", "the page"},
		{"GET", "/api/v1/labels", "does not answer"},
	} {
		if _, body := do(t, request(t, c.method, address+c.path, "")); !strings.Contains(body, c.want) {
			t.Errorf("%s %s: %s", c.method, c.path, body)
		}
	}
	// A web page elsewhere cannot change the settings through a reader's browser.
	r := request(t, "PUT", address+"/api/datasources/uid/x", "{}")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if resp, body := do(t, r); resp.StatusCode != http.StatusForbidden {
		t.Errorf("from elsewhere: %d %s", resp.StatusCode, body)
	}
}

// What the proxy says comes back as it is, and it learns nothing of the browser but what describes
// the body.
func TestForward(t *testing.T) {
	var got *http.Request
	var form string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, form = r, string(b)
		w.Header().Set("X-Spillway-Verdict", "refuse")
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"status":"error"}`)
	}))
	defer api.Close()
	address, _ := running(t, Options{Bundle: bundle, Dashboards: dashboards.FS(), API: must(t, api.URL+"/behind")})
	r := request(t, "POST", address+"/api/v1/query?a=b", "query=up")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Cookie", "session=1")
	r.Header.Set("Authorization", "Bearer browser")
	r.Header.Set("X-Grafana-User", "somebody")
	resp, body := do(t, r)
	if resp.StatusCode != http.StatusUnprocessableEntity || body != `{"status":"error"}` ||
		resp.Header.Get("X-Spillway-Verdict") != "refuse" {
		t.Errorf("came back: %d %s %v", resp.StatusCode, body, resp.Header)
	}
	if got.Method != "POST" || got.URL.Path != "/behind/api/v1/query" || got.URL.RawQuery != "a=b" || form != "query=up" {
		t.Errorf("went on: %s %s %s", got.Method, got.URL, form)
	}
	for _, name := range []string{"Cookie", "Authorization", "X-Grafana-User", "X-Forwarded-For"} {
		if v := got.Header.Get(name); v != "" {
			t.Errorf("%s: %s went on", name, v)
		}
	}
	if resp, _ := do(t, request(t, "DELETE", address+"/api/v1/series", "")); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("DELETE: %d", resp.StatusCode)
	}
}

// A proxy that is not there is said as Prometheus would say it, so that the panels show it.
func TestNoAPI(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().String()
	l.Close()
	address, _ := running(t, Options{Bundle: bundle, Dashboards: dashboards.FS(), API: must(t, "http://"+free)})
	resp, body := do(t, request(t, "GET", address+"/api/v1/labels", ""))
	var answer struct{ Status, ErrorType, Error string }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || resp.StatusCode != http.StatusBadGateway || answer.Status != "error" ||
		!strings.Contains(answer.Error, free) {
		t.Errorf("%d %s (%v)", resp.StatusCode, body, err)
	}
}

// A reader that leaves ends its query at the proxy.
func TestReaderLeaves(t *testing.T) {
	arrived, left := make(chan struct{}), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(left)
	}))
	defer api.Close()
	address, _ := running(t, Options{Bundle: bundle, Dashboards: dashboards.FS(), API: must(t, api.URL)})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	r := request(t, "GET", address+"/api/v1/query", "").WithContext(ctx)
	if resp, err := client.Do(r); err == nil {
		resp.Body.Close()
		t.Error("it was answered")
	}
	select {
	case <-left:
	case <-time.After(10 * time.Second):
		t.Error("the query went on at the proxy")
	}
}

// Names of other machines are refused, so that no page elsewhere reads through this one; so are
// addresses beyond loopback.
func TestLoopbackAlone(t *testing.T) {
	address, _ := running(t, Options{Bundle: bundle, Dashboards: dashboards.FS(), API: must(t, "http://127.0.0.1:1")})
	for host, want := range map[string]int{
		"localhost": 200, "localhost:3300": 200, "127.0.0.1:1": 200, "[::1]:1": 200,
		"metrics.example": 403, "10.0.0.1:3300": 403, "localhost.example": 403,
	} {
		r := request(t, "GET", address+"/dashboards", "")
		r.Host = host
		if resp, _ := do(t, r); resp.StatusCode != want {
			t.Errorf("host %s: %d, want %d", host, resp.StatusCode, want)
		}
	}
	r := request(t, "POST", address+"/api/v1/query", "query=up")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if resp, _ := do(t, r); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a form of another site: %d", resp.StatusCode)
	}
	s, err := New(Options{Bundle: bundle, Dashboards: dashboards.FS(), API: must(t, "http://127.0.0.1:1")})
	if err != nil {
		t.Fatal(err)
	}
	for listen, want := range map[string]string{
		"0.0.0.0:0": "not on loopback", ":0": "not on loopback", "192.0.2.1:0": "not on loopback",
		"nonsense": "write it like",
	} {
		if err := s.Run(t.Context(), listen, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("listen on %s: %v", listen, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	sound := Options{Bundle: bundle, Dashboards: dashboards.FS(), API: must(t, "http://127.0.0.1:1")}
	for want, change := range map[string]func(*Options){
		"not bundled":          func(o *Options) { o.Bundle = fstest.MapFS{} },
		"write it like http":   func(o *Options) { o.API = must(t, "127.0.0.1") },
		`the API's address is`: func(o *Options) { o.API = nil },
		"dashboard a.json":     func(o *Options) { o.Dashboards = fstest.MapFS{"a.json": {Data: []byte("{")}} },
		"must be set": func(o *Options) {
			o.Dashboards = fstest.MapFS{"a.json": {Data: []byte(`{"uid":"a"}`)}, "b.json": {Data: []byte(`{"uid":"a"}`)}}
		},
	} {
		o := sound
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

// A folder's dashboards may be rendered again while they are looked at.
func TestListIsFresh(t *testing.T) {
	folder := fstest.MapFS{"a.json": {Data: []byte(`{"uid":"a","title":"A"}`)}}
	address, _ := running(t, Options{Bundle: bundle, Dashboards: fs.FS(folder), API: must(t, "http://127.0.0.1:1")})
	folder["a.json"] = &fstest.MapFile{Data: []byte(`{"uid":"a","title":"Anew"}`)}
	if _, body := do(t, request(t, "GET", address+"/dashboards", "")); !strings.Contains(body, "Anew") {
		t.Errorf("the list: %s", body)
	}
	folder["a.json"] = &fstest.MapFile{Data: []byte(`{`)}
	if resp, body := do(t, request(t, "GET", address+"/dashboards", "")); resp.StatusCode != http.StatusInternalServerError ||
		!strings.Contains(body, "a.json") {
		t.Errorf("a broken file: %d %s", resp.StatusCode, body)
	}
}
