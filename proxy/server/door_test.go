package server

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
)

// answered asks with the method, the header lines (name, value, ...) and a client of the test's.
func answered(t *testing.T, c *http.Client, method, target string, head ...string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(head); i += 2 {
		req.Header.Set(head[i], head[i+1])
	}
	resp, err := c.Do(req)
	if err == nil {
		resp.Body.Close()
	}
	return resp, err
}

// TestPagesOfOtherSites: a browser's question before a request of another site's page is answered
// as Prometheus answers it, where the origin is allowed; nothing is asked of the shards.
func TestPagesOfOtherSites(t *testing.T) {
	fake := fakeshard.Start(t, fakeshard.Config{})
	text := fmt.Sprintf("groups: [{name: heron, shards: [{replicas: [{url: %q}]}]}]\n", fake.URL())
	start := func(origin string) string {
		_, base := startProxy(t, t.Context(), text, func(o *Options) { o.CORSOrigin = origin })
		return base
	}
	anyone, some, none := start(".*"), start(`https?://(a|b)\.example`), start("")
	c := newClient(t)
	for _, tc := range []struct {
		base, method, path, origin string
		code                       int
		allowed                    string
	}{
		{anyone, "OPTIONS", "/api/v1/query", "https://x.example", 204, "*"},
		{anyone, "OPTIONS", "/api/v1/label/job/values", "https://x.example", 204, "*"},
		{anyone, "OPTIONS", "/federate", "", 204, ""},
		{anyone, "OPTIONS", "/api/v1/none", "https://x.example", 404, "*"},
		{anyone, "DELETE", "/api/v1/query", "https://x.example", 405, "*"},
		{anyone, "GET", "/api/v1/query?query=up", "https://x.example", 200, "*"},
		{some, "GET", "/api/v1/query?query=up", "https://a.example", 200, "https://a.example"},
		{some, "OPTIONS", "/api/v1/query", "http://b.example", 204, "http://b.example"},
		{some, "GET", "/api/v1/query?query=up", "https://a.example.org", 200, ""},
		{none, "GET", "/api/v1/query?query=up", "https://a.example", 200, ""},
		{none, "OPTIONS", "/api/v1/query", "https://a.example", 405, ""},
	} {
		resp, err := answered(t, c, tc.method, tc.base+tc.path, "Origin", tc.origin)
		if err != nil {
			t.Fatal(err)
		}
		h := resp.Header
		if allowed := h.Get("Access-Control-Allow-Origin"); resp.StatusCode != tc.code || allowed != tc.allowed {
			t.Errorf("%d, allowed %q; want %+v", resp.StatusCode, allowed, tc)
		}
		if tc.base != none && h.Get("Vary") == "" {
			t.Errorf("%s %s: a cache would give one origin's answer to another", tc.method, tc.path)
		}
		methods, allow := h.Get("Access-Control-Allow-Methods"), h.Get("Allow")
		if tc.allowed != "" && tc.code == 204 && (methods != "GET, POST, OPTIONS" || !strings.HasSuffix(allow, ", OPTIONS")) {
			t.Errorf("%s %s: %v", tc.method, tc.path, h)
		}
	}
	_, err := New(Options{Config: &config.Config{}, CORSOrigin: "("})
	if err == nil || !strings.Contains(err.Error(), "--web.cors.origin") {
		t.Errorf("origins that are no expression: %v", err)
	}
}

// TestHealthWithoutAPassword: those who ask for health have none, whatever the web configuration
// says; everything else asks for one.
func TestHealthWithoutAPassword(t *testing.T) {
	fake := fakeshard.Start(t, fakeshard.Config{})
	web := filepath.Join(t.TempDir(), "web.yml")
	if err := os.WriteFile(web, []byte("basic_auth_users: {ada: "+passwordTest+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("groups: [{name: heron, shards: [{replicas: [{url: %q}]}]}]\n", fake.URL())
	_, base := startProxy(t, t.Context(), text, func(o *Options) { o.WebConfigFile = web })
	c := newClient(t)
	for path, want := range map[string]int{
		"/-/healthy": 200, "/-/ready": 200, "/-/healthy?x=1": 200,
		"/": 401, "/api/v1/query?query=up": 401, "/-/healthy/": 401, "//-/healthy": 401, "/-/%68ealthy": 401, "/-/reload": 401,
	} {
		resp, err := answered(t, c, http.MethodGet, base+path)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
	for password, want := range map[string]int{"test": 200, "wrong": 401} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/-/healthy", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("ada", password)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("with the password %s: %d, want %d", password, resp.StatusCode, want)
		}
	}
}

// TestAdminStaysGuarded: the web configuration is read anew for each connection and request. Where
// somebody takes away what it asks of callers, an admin listener beyond loopback, which would not
// start like that, lets nobody in.
func TestAdminStaysGuarded(t *testing.T) {
	ca := newAuthority(t, "ours")
	ca.issue("server")
	cert := ca.issue("client")
	fake := fakeshard.Start(t, fakeshard.Config{})
	text := fmt.Sprintf("groups: [{name: heron, shards: [{replicas: [{url: %q}]}]}]\n", fake.URL())
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	ada := func(r *http.Request) { r.SetBasicAuth("ada", "test") }
	guarded, open := read(ca.webConfig("RequireAndVerifyClientCert")), read(ca.webConfig(""))
	for name, tc := range map[string]struct {
		web, without string
		in           func(*http.Request) // the right one
		client       *http.Client
		scheme       string
	}{
		"certificates": {guarded, open, func(*http.Request) {}, ca.client(cert), "https://"},
		"passwords":    {"basic_auth_users: {ada: " + passwordTest + "}\n", "http_server_config: {}\n", ada, newClient(t), "http://"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "web.yml")
			write := func(text string) {
				t.Helper()
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(tc.web)
			var admin string
			startProxy(t, t.Context(), text, func(o *Options) {
				o.AdminListenAddress, o.WebConfigFile = "0.0.0.0:0", file
				o.Ready = func(_, a netAddr) { admin = a.String() }
			})
			_, port, err := net.SplitHostPort(admin)
			if err != nil {
				t.Fatal(err)
			}
			target := tc.scheme + "127.0.0.1:" + port + "/metrics"
			stranger := ca.client()
			status := func(c *http.Client, in func(*http.Request)) int {
				t.Helper()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
				if err != nil {
					t.Fatal(err)
				}
				if in != nil {
					in(req)
				}
				resp, err := c.Do(req)
				if err != nil {
					return 0
				}
				defer resp.Body.Close()
				return resp.StatusCode
			}
			if code := status(tc.client, tc.in); code != 200 {
				t.Fatalf("who may come in: %d", code)
			}
			write(tc.without)
			stranger.CloseIdleConnections()
			if code := status(stranger, nil); code != http.StatusServiceUnavailable {
				t.Errorf("once nobody is asked who it is: %d, want 503", code)
			}
			if code := status(stranger, func(r *http.Request) { r.SetBasicAuth("eve", "x") }); code != http.StatusServiceUnavailable {
				t.Errorf("with a password of nobody: %d, want 503", code)
			}
			write(tc.web)
			tc.client.CloseIdleConnections()
			if code := status(tc.client, tc.in); code != 200 {
				t.Errorf("once it is back: %d", code)
			}
			if code := status(stranger, nil); code == 200 {
				t.Error("a connection from in between is let in")
			}
		})
	}
}

// TestFeaturesOfOldServers: a server that does not tell its features has none that are known.
func TestFeaturesOfOldServers(t *testing.T) {
	old := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/api/v1/features", Script: "status 404; send no"}}})
	recent := fakeshard.Start(t, fakeshard.Config{})
	group := "  - {name: %s, labels: {cluster: %[1]s}, shards: [{replicas: [{url: %q}]}]}\n"
	_, base := startProxy(t, t.Context(), "groups:\n"+fmt.Sprintf(group, "heron", old.URL())+fmt.Sprintf(group, "jaguar", recent.URL()))
	if code, body := got(t, base+"/api/v1/features"); code != 200 || !strings.Contains(string(body), `"data":{}`) {
		t.Errorf("%d %s", code, body)
	}
}
