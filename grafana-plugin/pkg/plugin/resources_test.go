package plugin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
)

func TestResources(t *testing.T) {
	d := setup(t)
	for _, tc := range []struct{ path, params, want string }{
		{"teams", "", `["t"]`},
		{"teams", "cluster=nowhere", `[]`},
		{"/clusters", "experiment=e&cluster=full&cluster=idle&cluster=", `["full","idle"]`},
		{"namespaces", "team=t&cluster=full", `["ml"]`},
		{"nodes", "experiment=e&cluster=full", `["n"]`},
		{"nodes", "experiment=.%2B", `[]`},
		{"experiments", "cluster=full", `[{"name":"e","team":"t","cluster":"full","namespace":"ml","state":""}]`},
		{"experiments", "cluster=full&q=E&limit=1", `[{"name":"e","team":"t","cluster":"full","namespace":"ml","state":""}]`},
		{"experiments", "cluster=full&q=x", `[]`},
		{"experiments", "cluster=idle", `[{"name":"e","team":"t","cluster":"idle","namespace":"ml","state":"ended"}]`},
	} {
		if status, body, _ := get(t, d, "GET", tc.path, tc.params); status != 200 || body != tc.want {
			t.Errorf("%s?%s: %d %s, want %s", tc.path, tc.params, status, body, tc.want)
		}
	}
	if _, body, _ := get(t, d, "GET", "health", ""); !strings.Contains(body, `"findings":[{"missing":"`) ||
		!strings.Contains(body, `"clusters":["no-pods"]`) {
		t.Errorf("health: %s", body)
	}
	for _, tc := range []struct {
		method, path, params string
		status               int
		says                 string
	}{
		{"GET", "", "", 404, "there are clusters, experiments, health, namespaces, nodes, teams"},
		{"GET", "../teams", "", 404, "no such resource"},
		{"GET", "teams/", "", 404, "no such resource"},
		{"GET", "//teams", "", 404, "no such resource"},
		{"GET", "api/v1/query", "query=up", 404, "no such resource"},
		{"POST", "teams", "", 405, "GET"},
		{"GET", "experiments", "limit=x", 400, "limit"},
		{"GET", "experiments", "limit=-1", 400, "limit"},
		{"GET", "experiments", "days=x", 400, "days"},
		{"GET", "teams", "days=0", 400, "days"},
		{"GET", "teams", "days=31", 400, "days"},
		{"GET", "experiments", "q=%zz", 400, "cannot be read"},
		{"GET", "teams", strings.Repeat("team=x&", model.MaxNames+1), 400, "names are more than"},
		{"GET", "teams", "cluster=" + strings.Repeat("x", model.MaxNameBytes+1), 400, "at most"},
	} {
		status, body, headers := get(t, d, tc.method, tc.path, tc.params)
		if status != tc.status || !strings.Contains(body, tc.says) || !strings.HasPrefix(body, `{"message":"`) {
			t.Errorf("%s %s?%.40s: %d %s, want %d with %q", tc.method, tc.path, tc.params, status, body, tc.status, tc.says)
		}
		if status == 405 && headers["Allow"][0] != "GET" {
			t.Errorf("Allow: %q", headers["Allow"])
		}
	}
	refusing := served(t, "", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who?", http.StatusUnauthorized) })
	if status, body, _ := get(t, refusing, "GET", "teams", ""); status != 502 || !strings.Contains(body, "credentials") {
		t.Errorf("a proxy's 401: %d %s", status, body)
	}
}

// Who can show warnings gets what is missing from a list with it.
func TestListsWithWarnings(t *testing.T) {
	d := served(t, "", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]},"warnings":["A shard is away."],"infos":["Slow."]}`)
	})
	for _, path := range []string{"experiments", "teams", "clusters", "namespaces", "nodes"} {
		if status, body, _ := get(t, d, "GET", path, ""); status != 200 || body != `[]` {
			t.Errorf("%s: %d %s", path, status, body)
		}
		if status, body, _ := get(t, d, "GET", path, "warnings=1"); status != 200 || body != `{"list":[],"warnings":["A shard is away."]}` {
			t.Errorf("%s with warnings: %d %s", path, status, body)
		}
	}
	if _, body, _ := get(t, setup(t), "GET", "teams", "warnings=1"); body != `{"list":["t"],"warnings":[]}` {
		t.Errorf("without one: %s", body)
	}
}

// A limit is one of names, of which each stands once for each cluster, namespace and team; rows are
// limited by the datasource alone.
func TestExperimentsByName(t *testing.T) {
	text := "load 1m\n"
	for i := range 150 {
		text += fmt.Sprintf("  experiment:pods:count{cluster=\"c-%d\", namespace=\"n\", experiment=\"e-%02d\", team=\"t\", phase=\"Running\"} 1x100\n", i%5, i/5)
	}
	for _, c := range []struct {
		settings, params string
		rows, names      int
	}{
		{"", "limit=20", 100, 20},
		{"", "", 150, 30},
		{`{"maxRows":42}`, "limit=20", 42, 9},
		{`{"maxRows":42}`, "limit=5", 25, 5},
	} {
		status, body, _ := get(t, loaded(t, text, c.settings), "GET", "experiments", c.params)
		var list []found
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, e := range list {
			names[e.Name] = true
		}
		if status != 200 || len(list) != c.rows || len(names) != c.names {
			t.Errorf("%s?%s: %d, %d rows of %d names, want %d of %d", c.settings, c.params, status, len(list), len(names), c.rows, c.names)
		}
	}
}

// What nobody asked to leave out is told. Without a limit the list has one name more than a query
// may choose, so that all of them are refused, and not taken for the newest.
func TestExperimentsThatAreNotListed(t *testing.T) {
	text := "load 1m\n"
	for i := range 130 {
		text += fmt.Sprintf("  experiment:pods:count{cluster=\"c\", namespace=\"n\", experiment=\"e-%03d\", team=\"t\", phase=\"Running\"} 1x100\n", i)
	}
	for _, c := range []struct {
		settings, params string
		names            int
		says             string
	}{
		{"", "", model.MaxNames + 1, "29 experiments are not listed"},
		{"", "limit=20", 20, ""},
		{"", "limit=200", 130, ""},
		{`{"maxRows":42}`, "limit=200", 42, "88 experiments are not listed"},
		{"", "q=e-00", 10, ""},
	} {
		_, body, _ := get(t, loaded(t, text, c.settings), "GET", "experiments", c.params+"&warnings=1")
		var got struct {
			List     []found
			Warnings []string
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		said := strings.Join(got.Warnings, "\n")
		if len(got.List) != c.names || !strings.Contains(said, c.says) || c.says == "" && said != "" {
			t.Errorf("%s?%s: %d names, %q; want %d, %q", c.settings, c.params, len(got.List), said, c.names, c.says)
		}
	}
}

// What can be compared is as old as a month, and can be chosen as long.
func TestListedForAMonth(t *testing.T) {
	d := setup(t)
	d.now = func() time.Time { return until.Add(20 * 24 * time.Hour) }
	for path, want := range map[string]string{
		"teams": `["t"]`, "clusters": `["idle"]`, "namespaces": `["ml"]`,
		"experiments": `[{"name":"e","team":"t","cluster":"idle","namespace":"ml","state":"ended"}]`,
	} {
		for days, want := range map[string]string{"": `[]`, "&days=7": `[]`, "&days=30": want} {
			if status, body, _ := get(t, d, "GET", path, "cluster=idle"+days); status != 200 || body != want {
				t.Errorf("%s of 20 days ago%s: %d %s, want %s", path, days, status, body, want)
			}
		}
	}
}

// Teams, clusters and namespaces are listed as long as their experiments are.
func TestListedForAWeek(t *testing.T) {
	d := setup(t)
	d.now = func() time.Time { return until.Add(3 * 24 * time.Hour) }
	for path, want := range map[string]string{
		"teams": `["t"]`, "clusters": `["idle"]`, "namespaces": `["ml"]`,
		"experiments": `[{"name":"e","team":"t","cluster":"idle","namespace":"ml","state":"ended"}]`,
	} {
		if status, body, _ := get(t, d, "GET", path, "cluster=idle"); status != 200 || body != want {
			t.Errorf("%s: %d %s, want %s", path, status, body, want)
		}
	}
}
