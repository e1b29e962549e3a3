package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestGrafanaTokenStays: the token of --grafana.token-file goes to each server that is named, and
// no other that one of them sends the client on to is asked: it is named.
func TestGrafanaTokenStays(t *testing.T) {
	const bearer = "Bearer word"
	var known atomic.Int64
	var leads atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the other server was asked for %s, with Authorization %q", r.URL, r.Header.Get("Authorization"))
	}))
	defer other.Close()
	grafana := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != bearer {
			t.Errorf("Grafana got %s with Authorization %q", r.URL, r.Header.Get("Authorization"))
		}
		known.Add(1)
		switch {
		case leads.Load():
			http.Redirect(w, r, other.URL+r.URL.Path, http.StatusFound)
		case r.URL.Path == "/api/library-elements":
			fmt.Fprint(w, `{"result":{"totalCount":0,"elements":[]}}`)
		default:
			fmt.Fprint(w, `[]`)
		}
	}))
	defer grafana.Close()
	second := httptest.NewServer(grafana.Config.Handler)
	defer second.Close()
	dir := t.TempDir()
	for name, text := range map[string]string{"token": "word\n", "prometheus.yml": "scrape_configs: [{job_name: j}]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	line := []string{
		"relabel", "verify", "--quiet", "--prometheus=" + filepath.Join(dir, "prometheus.yml"),
		"--grafana=" + grafana.URL, "--grafana=" + second.URL + "/", "--grafana.token-file=" + filepath.Join(dir, "token"),
	}
	code := Spillway.Run(t.Context(), t.Context(), line, &b, &b)
	if code != 2 || strings.Count(b.String(), "Grafana shows no dashboards to this token") != 2 {
		t.Fatalf("exit code %d:\n%s", code, &b)
	}
	if known.Load() != 6 {
		t.Errorf("%d requests to Grafana:\n%s", known.Load(), &b)
	}
	leads.Store(true)
	b.Reset()
	code = Spillway.Run(t.Context(), t.Context(), line, &b, &b)
	if code != 2 || !strings.Contains(b.String(), "it sends on to "+other.URL) {
		t.Errorf("exit code %d:\n%s", code, &b)
	}
}
