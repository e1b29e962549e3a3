package uses

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// fakeGrafana answers as Grafana does, with pages.
func fakeGrafana(t *testing.T, dashboards int, denied ...string) *httptest.Server {
	mux := http.NewServeMux()
	number := func(r *http.Request, name string) int {
		n, err := strconv.Atoi(r.URL.Query().Get(name))
		if err != nil {
			t.Errorf("%s: %v", r.URL, err)
		}
		return n
	}
	mux.HandleFunc("/api/search", func(w http.ResponseWriter, r *http.Request) {
		var items []string
		limit, page := number(r, "limit"), number(r, "page")
		for i := (page - 1) * limit; i < min(page*limit, dashboards); i++ {
			items = append(items, fmt.Sprintf(`{"uid": "d%d", "type": "dash-db"}`, i))
		}
		_, _ = fmt.Fprintf(w, "[%s]", strings.Join(items, ","))
	})
	mux.HandleFunc("/api/dashboards/uid/{uid}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `{"meta": {}, "dashboard": {"title": %q, "templating": {"list": [{"name": "v", "type": "custom", "query": "a,b", "allowCustomValue": false}]},
			"panels": [{"title": "P", "targets": [{"expr": "m_%s"}]}, {"title": "L", "libraryPanel": {"uid": "l1", "name": "lib"}}]}}`, r.PathValue("uid"), r.PathValue("uid"))
	})
	mux.HandleFunc("/api/library-elements", func(w http.ResponseWriter, r *http.Request) {
		page := number(r, "page")
		_, _ = fmt.Fprintf(w, `{"result": {"totalCount": 2, "page": %d, "elements": [{"uid": "l%d", "name": "lib", "model": {"title": "Lib", "targets": [{"expr": "lib%d{x=\"$v\"}"}]}}]}}`, page, page-1, page-1)
	})
	mux.HandleFunc("/api/v1/provisioning/alert-rules", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `[{"uid": "r", "title": "Hot", "data": [{"refId": "A", "datasourceUid": "p", "model": {"expr": "temperature > 90"}}, {"refId": "B", "datasourceUid": "__expr__", "model": {"datasource": {"type": "__expr__"}, "expression": "A", "expr": ""}}]}]`)
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, `{"message":"Invalid API key"}`, http.StatusUnauthorized)
			return
		}
		for _, path := range denied {
			if strings.HasPrefix(r.URL.Path, path) {
				http.Error(w, `{"message":"no"}`, http.StatusForbidden)
				return
			}
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server
}

func TestGrafana(t *testing.T) {
	server := fakeGrafana(t, 5)
	client, err := Bearer(server.Client(), server.URL, "secret")
	if err != nil {
		t.Fatal(err)
	}
	for _, pages := range []int{2, 5, 100} {
		set := new(Set)
		g := grafana{client: client, server: server.URL, searchPage: pages, elementPage: 1}
		if err := g.read(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		var want []string
		for i := range 5 {
			want = append(want, fmt.Sprintf("/d/d%d:0 dashboard d%d, panel P | m_d%d | m_d%d all", i, i, i, i))
		}
		for i := range 5 {
			want = append(want, fmt.Sprintf(`/library-panels/l1:0 dashboard d%d, panel Lib | lib1{x="$v"} | lib1{x="a"} all; lib1{x="b"} all`, i))
		}
		want = append(want, `/library-panels/l0:0 library panel lib, panel Lib | lib0{x="$v"} | lib0{x=~".*"} all`, `/alerting/grafana/r/view:0 alert Hot | temperature > 90 | temperature all`)
		got := set.lines("")
		for i := range got {
			got[i] = strings.TrimPrefix(got[i], server.URL)
		}
		expect(t, fmt.Sprint("uses with pages of ", pages), got, want...)
		if len(set.Warnings) > 0 {
			t.Error(set.Warnings)
		}
	}
}

// A dashboard that is stored in a schema which the old API does not know is read where Grafana says
// it is; where that is refused, or is no such place, it is named as not shown, and the others are
// read.
func TestGrafanaElsewhere(t *testing.T) {
	const place = "/apis/dashboard.grafana.app/v2beta1/namespaces/default/dashboards/d1"
	for name, c := range map[string]struct {
		says    string
		denied  []string
		refused string // what is said of d1; empty where it is read
	}{
		"there":           {place, nil, ""},
		"refused":         {place, []string{"/apis/"}, "403"},
		"another server":  {"http://elsewhere.example" + place, nil, "406"},
		"another path":    {"/api/admin/settings", nil, "406"},
		"above":           {"/apis/dashboard.grafana.app/v2/namespaces/../dashboards/d1", nil, "406"},
		"not its path":    {"/apis/dashboard.grafana.app/v2/namespaces/default/dashboards/d1/../../x", nil, "406"},
		"another's board": {"/apis/dashboard.grafana.app/v2/namespaces/default/dashboards/d0", nil, "406"},
	} {
		old := fakeGrafana(t, 2, c.denied...)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/api/dashboards/uid/d1":
				w.WriteHeader(http.StatusNotAcceptable)
				_, _ = fmt.Fprintf(w, `{"message": "dashboard api version not supported, use %s instead"}`, c.says)
			case place:
				if len(c.denied) == 0 {
					_, _ = fmt.Fprint(w, `{"kind": "Dashboard", "apiVersion": "dashboard.grafana.app/v2beta1", "metadata": {"name": "d1"}, "spec": {"title": "two",
						"elements": {"e": {"kind": "Panel", "spec": {"title": "P", "data": {"kind": "QueryGroup", "spec": {"queries": [{"kind": "PanelQuery", "spec": {
						"query": {"kind": "DataQuery", "group": "prometheus", "spec": {"expr": "m_two"}}}}]}}}}}}}`)
					return
				}
				fallthrough
			default:
				old.Config.Handler.ServeHTTP(w, r)
			}
		}))
		t.Cleanup(server.Close)
		client, err := Bearer(nil, server.URL, "secret")
		if err != nil {
			t.Fatal(err)
		}
		set := new(Set)
		if err := Grafana(t.Context(), set, client, server.URL); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := strings.Join(set.lines(""), "\n")
		if !strings.Contains(got, "m_d0 all") {
			t.Errorf("%s: the other dashboard is not read:\n%s", name, got)
		}
		if read := strings.Contains(got, "/d/d1:0 dashboard two, panel P | m_two | m_two all"); read != (c.refused == "") {
			t.Errorf("%s: read is %t:\n%s", name, read, got)
		}
		if c.refused == "" && len(set.Refused) == 0 {
			continue
		}
		if len(set.Refused) != 1 || !strings.Contains(set.Refused[0], "dashboard d1 cannot be read") ||
			!strings.Contains(set.Refused[0], c.refused) {
			t.Errorf("%s: refused are %q", name, set.Refused)
		}
	}
}

func TestGrafanaRefuses(t *testing.T) {
	server := fakeGrafana(t, 1)
	if err := Grafana(t.Context(), new(Set), server.Client(), server.URL); err == nil ||
		!strings.Contains(err.Error(), "is the token right?") {
		t.Error(err)
	}
	server = fakeGrafana(t, 0, "/api/v1/provisioning", "/api/library-elements")
	client, err := Bearer(nil, server.URL, "secret")
	if err != nil {
		t.Fatal(err)
	}
	set := new(Set)
	if err := Grafana(t.Context(), set, client, server.URL+"/"); err != nil {
		t.Error(err)
	}
	if len(set.Warnings) != 3 {
		t.Errorf("%q", set.Warnings)
	}
	if len(set.Refused) != 2 || !strings.Contains(set.Refused[0], "library panels") || !strings.Contains(set.Refused[1], "alert rules") {
		t.Errorf("refused: %q", set.Refused)
	}
	// The library panel that the dashboard shows may not be read: what it uses is not known.
	server = fakeGrafana(t, 1, "/api/library-elements")
	if client, err = Bearer(nil, server.URL, "secret"); err != nil {
		t.Fatal(err)
	}
	if err := Grafana(t.Context(), new(Set), client, server.URL); err == nil || !strings.Contains(err.Error(), "library panel") {
		t.Error(err)
	}
	// Without alerting of its own, or before 9.4, there is nothing to be refused.
	server = fakeGrafana(t, 0)
	handler := server.Config.Handler
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/v1/provisioning") {
			http.NotFound(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})
	if client, err = Bearer(nil, server.URL, "secret"); err != nil {
		t.Fatal(err)
	}
	set = new(Set)
	if err := Grafana(t.Context(), set, client, server.URL); err != nil || len(set.Refused) > 0 ||
		!strings.Contains(strings.Join(set.Warnings, "\n"), "no alert rules of its own") {
		t.Errorf("%v, refused %q, %q", err, set.Refused, set.Warnings)
	}
	// The token goes to no other server.
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the token went to another server")
		}
	}))
	t.Cleanup(other.Close)
	redirect := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	t.Cleanup(redirect.Close)
	if client, err = Bearer(nil, redirect.URL, "secret"); err != nil {
		t.Fatal(err)
	}
	if err := Grafana(t.Context(), new(Set), client, redirect.URL); err == nil || !strings.Contains(err.Error(), "sends on to "+other.URL) {
		t.Errorf("it is not said where it leads: %v", err)
	}
}
