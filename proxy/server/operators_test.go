package server

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestTenantIsNoOperator: where the admin listener knows its callers by certificates, the one by
// which a tenant is known lets nobody in there, from the moment on that the configuration has it.
func TestTenantIsNoOperator(t *testing.T) {
	ca := newAuthority(t, "ours")
	ca.issue("server")
	operator, research := ca.client(ca.issue("operator")), ca.client(ca.issue("research.lab"))
	fake := fakeshard.Start(t, fakeshard.Config{})
	groups := fmt.Sprintf("groups: [{name: heron, shards: [{replicas: [{url: %q}]}]}]\n", fake.URL())
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	tenants := func(cn string) string { return groups + "tenants: [{name: research, client_cert_cn: " + cn + "}]\n" }
	var admin string
	s, _ := startProxy(t, t.Context(), tenants("research.lab"), func(o *Options) {
		o.AdminListenAddress, o.WebConfigFile, o.ConfigFile = "0.0.0.0:0", ca.webConfig("RequireAndVerifyClientCert"), file
		o.Ready = func(_, a netAddr) { admin = a.String() }
	})
	_, port, err := net.SplitHostPort(admin)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(c *http.Client, path string) (int, string) {
		t.Helper()
		resp, err := c.Get("https://127.0.0.1:" + port + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	check := func(c *http.Client, who string, in bool) {
		t.Helper()
		for _, path := range []string{"/metrics", "/", adminAPI + "queries", "/debug/pprof/cmdline"} {
			code, body := ask(c, path)
			in := in || path == "/metrics" // which the metrics listener gives him too
			if in && code != 200 || !in && (code != 403 || !strings.Contains(body, "research")) {
				t.Errorf("%s of %s: %d %.200s", path, who, code, body)
			}
		}
	}
	check(operator, "the operator", true)
	check(research, "a tenant", false)
	for cn, tenant := range map[string]*http.Client{"operator": operator, "research.lab": research} {
		if err := os.WriteFile(file, []byte(tenants(cn)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Reload(); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*http.Client{operator, research} {
			check(c, "whoever has it once "+cn+" is a tenant", c != tenant)
		}
	}
}
