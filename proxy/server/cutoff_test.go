package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/proxy/config"
)

// cutTenants have all that a file can lose at a line: the key, selectors of it, and what follows.
const cutTenants = `tenants:
  - name: research
    bearer_token_file: a
    may_set: [X-Grafana-User]
    matchers:
      - '{namespace=~"research-.+"}'
      # and of these
      - '{team="a",env!=""}'
      - '{zone="z"}'
    limits: {max_range: 7d}
  - name: everything
    matchers: []
    bearer_token_file: b
  - name: always
    bearer_token_file: c
  - name: last
    bearer_token_file: d
    matchers:
      - '{job="d"}'
      - '{job!="e"}'
# the end
`

// tenantFiles writes the tokens that cutTenants names, beside a configuration file.
func tenantFiles(t *testing.T, file string) {
	t.Helper()
	for _, name := range []string{"a", "b", "c", "d"} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), name), []byte("token-"+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// wider names the first tenant of a configuration that sees more than in the one before.
func wider(before, after *config.Config) string {
	had := map[string]*config.Tenant{}
	for i := range before.Tenants {
		had[before.Tenants[i].Name] = &before.Tenants[i]
	}
	for i := range after.Tenants {
		t := &after.Tenants[i]
		old := had[t.Name]
		if old == nil || old.BearerTokenFile != t.BearerTokenFile {
			return t.Name
		}
		for m := range matchersOf(old.Matchers) {
			if !matchersOf(t.Matchers)[m] {
				return t.Name + ", which lacks " + m
			}
		}
	}
	return ""
}

// TestReloadOfACutFile: wherever a file ends, a reload of what is left shows no tenant more than
// the whole one does, each cut by itself and one after the other, as where the file grows.
func TestReloadOfACutFile(t *testing.T) {
	r, file := reloadable(t)
	tenantFiles(t, file)
	whole := r.config + cutTenants
	writeText(t, file, whole)
	if err := r.s.Reload(); err != nil {
		t.Fatal(err)
	}
	before := r.s.state.Load().cfg
	lines := strings.SplitAfter(whole, "\n")
	took, refused := 0, 0
	reload := func(text string) {
		t.Helper()
		writeText(t, file, text)
		err := r.s.Reload()
		if cfg := r.s.state.Load().cfg; wider(before, cfg) != "" || len(cfg.Tenants) == 0 {
			t.Errorf("%s sees more once the file is\n%s", wider(before, cfg), text)
		}
		if err == nil {
			took++
		} else {
			refused++
		}
	}
	for n := range lines { // each
		reload(strings.Join(lines[:n], ""))
		reload(whole)
	}
	for n := range lines { // it grows
		reload(strings.Join(lines[:n], ""))
	}
	reload(whole)
	for n := range lines { // it shrinks
		reload(strings.Join(lines[:len(lines)-n], ""))
	}
	if took < len(lines)+5 || refused < 20 {
		t.Errorf("%d were taken and %d refused; that is no test", took, refused)
	}
}

// TestReloadThatOpens: what is to be seen by more has to be asked for, and is said.
func TestReloadThatOpens(t *testing.T) {
	r, file := reloadable(t)
	tenantFiles(t, file)
	tenant := func(matchers string) string {
		return r.config + "tenants:\n  - {name: last, bearer_token_file: d}\n  - {name: research, bearer_token_file: a" + matchers + "}\n"
	}
	for _, tc := range []struct {
		matchers string
		refused  string // what is said; empty where it is taken
	}{
		{`, matchers: ['{a="1"}', '{b="2"}']`, ""},
		{``, "tenants[1].matchers: tenant research had matchers and the key is gone"},
		{`, matchers: ['{a="1"}']`, "of the 2 selectors of tenant research 1 are left"},
		{`, matchers: ['{c="1"}']`, "of the 2 selectors"},
		{`, matchers: ['{b="2",a="1"}']`, ""}, // both, in one
		{`, matchers: ['{a="1"}']`, ""},       // a line has no less
		{`, matchers: ['{a="1"}', '{b="2"}']`, ""},
		{`, matchers: ['{a="1"}', '{b=~".*"}']`, ""},
		{``, "matchers: []"},
		{`, matchers: []`, ""},
		{``, ""},
		{`, matchers: ['{a="1"}']`, ""},
		{`, matchers: `, "the key has no value"},
	} {
		writeText(t, file, tenant(tc.matchers))
		err := r.s.Reload()
		if (err != nil) != (tc.refused != "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
			t.Errorf("%s: %v, want %q", tc.matchers, err, tc.refused)
		}
	}
}
