package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReloadOfNewFiles: a reload refuses a file that the configuration newly names and nobody can
// read, which would lock a tenant out or take a server away; one that it has named before may be
// away for a moment.
func TestReloadOfNewFiles(t *testing.T) {
	dir := t.TempDir()
	file, token := filepath.Join(dir, "spillway.yml"), filepath.Join(dir, "token")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(token, "secret-of-grafana")
	r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{1}}}, "tenants: [{name: grafana, bearer_token_file: "+token+"}]\n",
		func(o *Options) { o.ConfigFile = file })
	write(file, strings.Replace(r.config, token, token+"-typo", 1))
	before := r.s.state.Load()
	err := r.s.Reload()
	if err == nil || !strings.Contains(err.Error(), "tenants[0].bearer_token_file: cannot be read: ") || r.s.state.Load() != before {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	write(file, r.config+"strict_parameters: true\n")
	if err := r.s.Reload(); err != nil || r.s.state.Load() == before {
		t.Errorf("a file that was there before: %v", err)
	}
}
