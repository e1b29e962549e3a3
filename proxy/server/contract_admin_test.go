package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
)

// The admin listener: what it serves, under which methods, to whom.
func TestAdminContract(t *testing.T) {
	r := newRig(t, []rigGroup{{"jaguar", false, []int{2, 1}}}, "limits: {max_series: 1234}\n")
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
		header       []string
	}{
		{"GET", "/", 200, "", nil},
		{"GET", "/metrics", 200, "", nil},
		{"GET", "/-/healthy", 200, "", nil},
		{"GET", "/-/ready", 200, "", nil},
		{"GET", "/debug/pprof/", 200, "", nil},
		{"GET", "/debug/pprof/goroutine?debug=1", 200, "", nil},
		{"GET", "/api/spillway/v1/limits", 200, "", nil},
		{"GET", "/api/spillway/v1/shards", 200, "", nil},
		{"GET", "/api/spillway/v1/explain?query=up", 200, "", nil},
		{"GET", "/api/spillway/v1/explain", 400, "", nil},
		{"POST", "/api/spillway/v1/explain?query=up", 405, "GET", nil},
		{"GET", "/-/reload", 405, "POST", nil},
		{"PUT", "/-/reload", 405, "POST", nil},
		{"POST", "/metrics", 405, "GET", nil},
		{"DELETE", "/api/spillway/v1/limits", 405, "GET", nil},
		{"GET", "/api/spillway/v1/queries", 200, "", nil},
		{"GET", "/api/spillway/v1/queries/7", 404, "", nil},
		{"DELETE", "/api/spillway/v1/queries/7", 404, "", nil},
		{"DELETE", "/api/spillway/v1/queries", 400, "", nil},
		{"POST", "/api/spillway/v1/queries", 405, "GET, DELETE", nil},
		{"GET", "/api/spillway/v1/usage", 200, "", nil},
		{"GET", "/api/spillway/v1/usage?by=shoe", 400, "", nil},
		{"POST", "/api/spillway/v1/usage", 405, "GET", nil},
		{"GET", "/api/spillway/v1/cardinality?limit=x", 400, "", nil},
		{"GET", "/api/spillway/v1/cardinality?by=shoe", 400, "", nil},
		{"POST", "/api/spillway/v1/cardinality", 405, "GET", nil},
		{"GET", "/api/v1/query?query=up", 404, "", nil},
		{"GET", "/metrics", 200, "", []string{"Host", "localhost"}},
		{"GET", "/metrics", 200, "", []string{"Host", "[::1]:9091"}},
		{"GET", "/metrics", 403, "", []string{"Host", "evil.example"}},
		{"POST", "/-/reload", 403, "", []string{"Host", "127.0.0.1.evil.example"}},
		{"POST", "/-/reload", 403, "", []string{"Sec-Fetch-Site", "cross-site"}},
		{"POST", "/-/reload", 403, "", []string{"Origin", "http://evil.example"}},
		{"GET", "/debug/pprof/profile?seconds=1", 403, "", []string{"Sec-Fetch-Site", "cross-site"}},
		{"GET", "/debug/pprof/trace?seconds=1", 403, "", []string{"Sec-Fetch-Site", "same-site"}},
		{"GET", "/debug/pprof/heap", 200, "", []string{"Sec-Fetch-Site", "same-origin"}},
		{"GET", "/debug/pprof/trace?seconds=0.01", 200, "", []string{"Sec-Fetch-Site", "none"}},
		{"GET", "/debug/pprof/profile?seconds=3600", 400, "", nil},
		{"GET", "/debug/pprof/trace?seconds=NaN", 400, "", nil},
	} {
		got := r.sendForm(c.method, r.admin+c.path, nil, "", c.header...)
		if got.status != c.status || got.header.Get("Allow") != c.allow {
			t.Errorf("%s %s %v: want %d and Allow %q, got %q and %s", c.method, c.path, c.header, c.status, c.allow,
				got.header.Get("Allow"), got)
		}
	}

	var limits struct {
		Status string
		Data   map[string]any
	}
	if err := json.Unmarshal(r.sendForm("GET", r.admin+"/api/spillway/v1/limits", nil, "").body, &limits); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"timeout", "max_series", "max_samples", "max_response_bytes", "max_range", "metadata_range",
		"max_query_bytes", "unselective", "endpoints",
	} {
		if _, ok := limits.Data[key]; !ok {
			t.Errorf("limits lacks the configuration's key %s: %v", key, limits.Data)
		}
	}
	if limits.Status != "success" || limits.Data["max_series"] != 1234.0 {
		t.Errorf("limits: %v", limits)
	}
	var shards struct {
		Status string
		Data   []struct{ URL, Group, State string }
	}
	if err := json.Unmarshal(r.sendForm("GET", r.admin+"/api/spillway/v1/shards", nil, "").body, &shards); err != nil {
		t.Fatal(err)
	}
	if shards.Status != "success" || len(shards.Data) != 3 {
		t.Fatalf("shards: %v", shards)
	}
	for _, s := range shards.Data {
		if s.Group != "jaguar" || s.State != "up" ||
			!slices.ContainsFunc(r.all(), func(f *fakeshard.Shard) bool { return f.URL() == s.URL }) {
			t.Errorf("shards: %v", s)
		}
	}
}

// A reload with a broken file answers 4xx with every problem and its path, and changes nothing; a
// good one is in force at once.
func TestReloadContract(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "spillway.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1}}}, "", func(o *Options) { o.ConfigFile = file })
	write(r.config)
	reload := func() *reply { return r.sendForm("POST", r.admin+"/-/reload", nil, "") }
	if got := reload(); got.status != 200 {
		t.Fatalf("the same again: %s", got)
	}
	write(r.config + "limits: {max_series: 0, timeout: nonsense}\nunheard_of: 1\n")
	got := reload()
	if got.status < 400 || got.status > 499 {
		t.Errorf("a broken file: %s", got)
	}
	for _, path := range []string{"limits.max_series", "limits.timeout", "unheard_of"} {
		if !strings.Contains(string(got.body), path) {
			t.Errorf("%s is not named in %s", path, got.body)
		}
	}
	if r.metric("spillway_config_last_reload_successful") != 0 {
		t.Error("the metric says that the reload worked")
	}
	write(r.config + "limits: {max_series: 77}\n")
	if got := reload(); got.status != 200 {
		t.Errorf("a good file: %s", got)
	}
	if got := r.sendForm("GET", r.admin+"/api/spillway/v1/limits", nil, ""); !strings.Contains(string(got.body), `"max_series":77`) {
		t.Errorf("not in force: %s", got.body)
	}
	if got := r.getForm("/api/v1/query", url.Values{"query": {"up"}}); got.status != 200 {
		t.Errorf("after reloading: %s", got)
	}
}

// Secrets of the configuration are in no answer.
func TestConfigSecretsAreStarred(t *testing.T) {
	s := fakeshard.Start(t, fakeshard.Config{})
	text := fmt.Sprintf("groups:\n  - name: g\n    shards:\n      - replicas:\n          - url: %q\n            headers: {X-Scope-OrgID: hunter2}\n"+
		"            http_client: {basic_auth: {username: u, password: hunter3}}\n", strings.Replace(s.URL(), "http://", "http://user:hunter4@", 1))
	if _, err := config.Parse([]byte(text), "."); err != nil {
		text = strings.Replace(text, "user:hunter4@", "", 1) // secrets in the URL are refused
	}
	var admin string
	_, base := startProxy(t, t.Context(), text, func(o *Options) { o.Ready = func(_, a netAddr) { admin = "http://" + a.String() } })
	client := newClient(t)
	for _, target := range []string{
		base + "/api/v1/status/config", base + "/api/v1/status/flags", admin + "/api/spillway/v1/shards",
		admin + "/api/spillway/v1/limits", admin + "/", admin + "/metrics",
	} {
		resp, err := client.Get(target)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("%s: %v %d", target, err, resp.StatusCode)
		}
		if strings.Contains(string(body), "hunter") {
			t.Errorf("%s shows a secret: %s", target, body)
		}
	}
}
