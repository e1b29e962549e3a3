package server

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestTenantIsNoOperator: where the admin listener knows its callers by certificates, the one by
// which a tenant is known lets nobody in there, from the moment on that the configuration has it.
// Nor does it when the tenant is gone, or known by something else: it is still whose it was.
func TestTenantIsNoOperator(t *testing.T) {
	ca := newAuthority(t, "ours")
	ca.issue("server")
	operator, research, lab := ca.client(ca.issue("operator")), ca.client(ca.issue("research.lab")), ca.client(ca.issue("lab"))
	fake := fakeshard.Start(t, fakeshard.Config{})
	groups := fmt.Sprintf("groups: [{name: heron, shards: [{replicas: [{url: %q}]}]}]\n", fake.URL())
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	writeText(t, filepath.Join(filepath.Dir(file), "its.token"), "secret-of-the-tenant")
	tenants := func(of string) string { return groups + "tenants: [" + of + "]\n" }
	var admin string
	s, _ := startProxy(t, t.Context(), tenants("{name: research, client_cert_cn: research.lab}"), func(o *Options) {
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
	check(lab, "nobody's tenant yet", true)
	for _, tc := range []struct{ what, tenants string }{
		{"is known by another name", "{name: research, client_cert_cn: lab}"},
		{"is known by a token", "{name: research, bearer_token_file: its.token}"},
		{"is gone", "{name: other, bearer_token_file: its.token}"},
	} {
		writeText(t, file, tenants(tc.tenants))
		if err := s.Reload(); err != nil {
			t.Fatal(err)
		}
		check(operator, "the operator, once the tenant "+tc.what, true)
		check(research, "research.lab, once the tenant "+tc.what, false)
		check(lab, "lab, once the tenant "+tc.what, false)
	}
}
