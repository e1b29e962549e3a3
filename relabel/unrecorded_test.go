package relabel_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// recorded is the page of a job, with series that a rule records and some of an exporter that has
// colons in its names.
const recorded = `
# TYPE made_of_bytes gauge
made_of_bytes 1
# TYPE read_in_full_total counter
read_in_full_total 1
# TYPE unused gauge
unused 1
# TYPE server:tokens_used gauge
server:tokens_used 1
ns:made_of_bytes:sum 1
`

// TestRulesAreMissing: a used name that a rule records, of which no rule is known, is said first;
// nothing is called proven then, and the metrics in its name stay.
func TestRulesAreMissing(t *testing.T) {
	const pyrra = "apiVersion: pyrra.dev/v1alpha1\nkind: ServiceLevelObjective\nmetadata: {name: n}\nspec: {indicator: {ratio: {errors: {metric: 'read_in_full_total{a=\"b\"}'}}}}\n"
	const rules = "groups: [{name: g, rules: [{record: 'ns:made_of_bytes:sum', expr: 'sum by (ns) (read_in_full_total)'}]}]\n"
	keep := func(match string) func(*uses.Set) error {
		return func(set *uses.Set) error {
			return uses.Keep(set, write(t, filepath.Join(t.TempDir(), "keep.yaml"), "- {match: '"+match+"', owner: o, reason: r}\n"), now)
		}
	}
	given := func(text string) func(*uses.Set) error {
		return func(set *uses.Set) error {
			return uses.Rules(set, write(t, filepath.Join(t.TempDir(), "r.yaml"), text))
		}
	}
	for name, test := range map[string]struct {
		query string
		add   func(*uses.Set) error
		want  string // what is missing
		goes  string
	}{
		"no rules":             {"sum(ns:made_of_bytes:sum)", nil, "ns:made_of_bytes:sum", "read_in_full_total unused"},
		"a list of names":      {`sum({__name__=~"a:made_of:b|ns:made_of_bytes:sum"})`, nil, "a:made_of:b ns:made_of_bytes:sum", "read_in_full_total unused"},
		"a rule":               {"sum(ns:made_of_bytes:sum)", given(rules), "", "made_of_bytes unused"},
		"not stored":           {"sum(ns:read_in_full:rate5m)", nil, "ns:read_in_full:rate5m", "made_of_bytes unused"},
		"of a rule":            {"up", given("groups: [{name: g, rules: [{alert: A, expr: 'ns:made_of_bytes:sum > 1'}]}]\n"), "ns:made_of_bytes:sum", "read_in_full_total unused"},
		"kept":                 {"sum(ns:made_of_bytes:sum)", keep("ns:*"), "", "made_of_bytes read_in_full_total unused"},
		"all kept":             {"sum(ns:made_of_bytes:sum)", keep(`{job="x"}`), "ns:made_of_bytes:sum", "read_in_full_total unused"},
		"an exporter's":        {"sum(server:tokens_used) + sum(vllm:tokens_used)", nil, "", "made_of_bytes read_in_full_total unused"},
		"no Windows":           {"sum(:windows_memory_total:sum) + sum(ns:windows_cpu_total:sum_rate)", nil, "", "made_of_bytes read_in_full_total unused"},
		"this tool's own":      {"drop_rules:expected_ratio", nil, "", "made_of_bytes read_in_full_total unused"},
		"a host":               {`up{instance="my_host:9090"}`, nil, "", "made_of_bytes read_in_full_total unused"},
		"no form of names":     {"a:b", nil, "", "made_of_bytes read_in_full_total unused"},
		"an objective":         {"read_in_full:burnrate5m", given(pyrra), "", "made_of_bytes unused"},
		"without an objective": {"read_in_full:burnrate5m", nil, "read_in_full:burnrate5m", "made_of_bytes unused"},
	} {
		set := queries(test.query)
		if test.add != nil {
			if err := test.add(set); err != nil {
				t.Fatal(err)
			}
		}
		src := pages(t, map[string]string{"j/1": recorded})
		p := plan(t, src, set, func(o *relabel.Options) { o.Propose.Risk = propose.Low })
		if got := strings.Join(p.Unrecorded, " "); got != test.want {
			t.Errorf("%s: missing %q, want %q", name, got, test.want)
		}
		said := strings.Contains(strings.Join(p.Alarms, "\n"), "Rules are missing, so that nothing here is proven")
		if said != (test.want != "") || (p.Unproven() != "") != said {
			t.Errorf("%s: alarms %q, unproven %q", name, p.Alarms, p.Unproven())
		}
		d, err := relabel.Diff(t.Context(), p, p, nil)
		if err != nil || strings.Join(d.Unrecorded, " ") != test.want || !slices.Equal(d.Alarms, p.Alarms) {
			t.Errorf("%s: the difference says %q of %q, %v", name, d.Alarms, d.Unrecorded, err)
		}
		var gone []string
		for _, r := range p.Rules {
			gone = append(gone, r.Metrics...)
		}
		slices.Sort(gone)
		if got := strings.Join(gone, " "); got != test.goes {
			t.Errorf("%s: %q goes, want %q", name, got, test.goes)
		}
	}
}

// TestRulesOfServers: what a server says that it evaluates is used, and recorded; one that shows no
// rules is told of.
func TestRulesOfServers(t *testing.T) {
	const groups = `{"groups":[{"name":"g","rules":[
		{"type":"recording","name":"ns:made_of_bytes:sum","query":"sum by (ns) (read_in_full_total)","labels":{"a":"b"}},
		{"type":"alerting","name":"A","query":"alerted > 0","annotations":{"summary":"{{ query \"annotated\" }}"}}]}]}`
	const sum, all = "ns:made_of_bytes:sum", "alerted annotated read_in_full_total"
	for name, test := range map[string]struct {
		rules, missing, warning, goes string
	}{
		"rules":    {`{"status":"success","data":` + groups + `}`, "", "", "made_of_bytes"},
		"none":     {`{"status":"success","data":{"groups":[]}}`, sum, "", all},
		"no API":   {"", sum, "rules: rules answers 404 Not Found", all},
		"in part":  {`{"status":"success","data":` + groups + `,"warnings":["a"]}`, sum, "may not be whole", all},
		"no rules": {`{"status":"success","data":{"groups":"x"}}`, sum, "its rules cannot be read", all},
	} {
		names := []string{"alerted", "annotated", "made_of_bytes", sum, "read_in_full_total"}
		mux := http.NewServeMux()
		answer := func(path, text string) {
			mux.HandleFunc("/api/v1/"+path, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
		}
		answer("label/__name__/values", `{"status":"success","data":["`+strings.Join(names, `","`)+`"]}`)
		answer("metadata", `{"status":"success","data":{}}`)
		answer("targets", `{"status":"success","data":{}}`)
		mux.HandleFunc("/api/v1/series", func(w http.ResponseWriter, r *http.Request) {
			name := strings.Trim(r.FormValue("match[]"), `{}"`)
			name = strings.TrimPrefix(name, `__name__="`)
			fmt.Fprintf(w, `{"status":"success","data":[{"__name__":%q,"job":"j"}]}`, name)
		})
		if test.rules != "" {
			answer("rules", test.rules)
		}
		server := httptest.NewServer(mux)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		src, err := inventory.API(client, server.URL, inventory.APIOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p := plan(t, inventory.Join(src, pages(t, map[string]string{"k/1": "other 1\n"})), queries("sum(ns:made_of_bytes:sum)"))
		server.Close()
		var gone []string
		for _, r := range p.Rules {
			if r.Job == "j" {
				gone = append(gone, r.Metrics...)
			}
		}
		slices.Sort(gone)
		if got := strings.Join(gone, " "); got != test.goes || strings.Join(p.Unrecorded, " ") != test.missing {
			t.Errorf("%s: %q goes, missing %q", name, got, p.Unrecorded)
		}
		said := strings.Join(p.Warnings, "\n")
		if test.warning == "" && strings.Contains(said, "rules") || !strings.Contains(said, test.warning) {
			t.Errorf("%s: warnings %q", name, p.Warnings)
		}
		alarms := strings.Join(p.Alarms, "\n")
		if strings.Contains(alarms, "Not shown, and not looked at: ") != (test.warning != "") || !strings.Contains(alarms, test.warning) ||
			strings.Contains(alarms, "No rule was looked at") != (name != "rules") {
			t.Errorf("%s: alarms %q", name, p.Alarms)
		}
	}
}
