package verify_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/verify"
)

// stored is a folder with a page of job j.
func stored(t testing.TB, page string) inventory.Source {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "j"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "j", "i.prom"), []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	src, err := inventory.Pages(dir)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// TestRulesAreMissing: a used name that a rule records, of which no rule is known, is told first,
// as a plan does; where the configuration takes what stands in the name, that is a warning.
func TestRulesAreMissing(t *testing.T) {
	drops := withRules(t, "- {source_labels: [__name__], regex: read_total|other_total, action: drop}")
	rules := file(t, "r.yaml", "groups: [{name: g, rules: [{record: 'ns:read:rate5m', expr: 'sum by (ns) (rate(kept_total[5m]))'}]}]\n")
	for name, c := range map[string]struct {
		query    string
		rules    []string
		page     string
		missing  string
		findings string
	}{
		"no rules":         {"ns:read_total:rate5m", nil, "", "ns:read_total:rate5m", "warning read_total"},
		"with pages":       {"ns:read_total:rate5m", nil, "read_total 1\nkept_total 1\n", "ns:read_total:rate5m", "warning read_total"},
		"nothing in it":    {"ns:kept_total:rate5m", nil, "read_total 1\n", "ns:kept_total:rate5m", ""},
		"a rule":           {"ns:read:rate5m", []string{rules}, "", "", ""},
		"an exporter's":    {"my:read_total", nil, "# TYPE my:read_total counter\nmy:read_total 1\nread_total 1\n", "", ""},
		"nothing that has": {"sum(kept_total)", nil, "", "", ""},
	} {
		o := verify.Options{Prometheus: []string{drops}, Uses: queries(t, c.query), Rules: c.rules}
		if c.page != "" {
			o.Source = stored(t, c.page)
		}
		r := check(t, o)
		text := textOf(t, r)
		if got := strings.Join(r.Unrecorded, " "); got != c.missing || r.State != verify.OK || r.Uses != len(o.Uses.Uses) {
			t.Errorf("%s: missing %q, want %q\n%s", name, got, c.missing, text)
		}
		if told := strings.HasPrefix(text, "ATTENTION: Rules are missing"); told != (c.missing != "") || told != (len(r.Alarms) == 1) ||
			told != strings.Contains(text, "ok, as far as rules were given") {
			t.Errorf("%s:\n%s", name, text)
		}
		var found []string
		for _, f := range r.Findings {
			if f.Check == verify.CheckLost {
				found = append(found, fmt.Sprint(f.Severity, " read_total"))
				if !strings.Contains(f.Text, "may read what its name says") || !strings.Contains(f.String(), "read_total") {
					t.Errorf("%s: %s", name, f.String())
				}
			}
		}
		if got := strings.Join(found, " "); got != c.findings {
			t.Errorf("%s: %q, want %q\n%s", name, got, c.findings, text)
		}
	}
}

// TestRulesOfServers: the rules that a server behind --scrape shows count as given.
func TestRulesOfServers(t *testing.T) {
	mux := http.NewServeMux()
	for path, data := range map[string]string{
		"label/__name__/values": `["read_total","ns:read_total:rate5m"]`, "metadata": `{}`, "targets": `{}`,
		"rules": `{"groups":[{"name":"g","rules":[{"type":"recording","name":"ns:read_total:rate5m","query":"sum(rate(read_total[5m]))"}]}]}`,
	} {
		mux.HandleFunc("/api/v1/"+path, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"status":"success","data":%s}`, data)
		})
	}
	mux.HandleFunc("/api/v1/series", func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(strings.Trim(r.FormValue("match[]"), `{}"`), `__name__="`)
		fmt.Fprintf(w, `{"status":"success","data":[{"__name__":%q,"job":"j"}]}`, name)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	src, err := inventory.API(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, server.URL, inventory.APIOptions{})
	if err != nil {
		t.Fatal(err)
	}
	set := queries(t, "ns:read_total:rate5m")
	r := check(t, verify.Options{
		Prometheus: []string{withRules(t, "- {source_labels: [__name__], regex: read_total, action: drop}")}, Uses: set, Source: src,
	})
	if len(r.Unrecorded) > 0 || len(r.Alarms) > 0 || r.State != verify.Faulty || len(set.Uses) != 1 {
		t.Errorf("%d uses\n%s", len(set.Uses), textOf(t, r))
	}
}
