package server

import (
	"context"
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/console"
)

// TestConsoleSaysWhy: who was refused finds by the id of the answer what was in the way, marked in
// the query, as a page and as JSON; mistakes and answers are not there.
func TestConsoleSaysWhy(t *testing.T) {
	t.Parallel()
	r := newRig(t, manyShards(2), limits(ample))
	const query = `count(up) / sum(rate({__name__=~".+"}[5m]))`
	for _, q := range []string{query, query, "up", "sum("} {
		req := r.request(context.Background(), asking{path: "/api/v1/query", form: url.Values{"query": {q}}})
		req.Header.Set("X-Dashboard-Uid", "wall")
		req.Header.Set("X-Panel-Id", "7")
		got := r.ask(req)
		if id := got.header.Get("X-Spillway-Request-Id"); q == query {
			page := string(r.get(r.admin + "/refusals/" + id).body)
			if !strings.Contains(page, `count(up) / sum(rate(<mark>{__name__=~&#34;.&#43;&#34;}</mark>[5m]))`) || !strings.Contains(page, "names no metric") {
				t.Errorf("%d, the page of %q: %s", got.status, id, page)
			}
		}
	}
	var told struct{ Data []console.Refusal }
	if err := json.Unmarshal(r.get(r.admin+adminAPI+"refusals").body, &told); err != nil {
		t.Fatal(err)
	}
	if len(told.Data) != 1 || told.Data[0].Count != 2 ||
		told.Data[0].Bound != "unselective" || told.Data[0].Panel != "7" || told.Data[0].Query != query {
		t.Errorf("what was refused: %+v", told.Data)
	}
	if page := string(r.get(r.admin + "/panel?uid=wall&panel=7").body); !strings.Contains(page, "unselective") {
		t.Errorf("the panel's page: %s", page)
	}
	page := string(r.get(r.admin + "/explain?query=" + url.QueryEscape("sum(up)")).body)
	if !strings.Contains(page, "exact") || strings.Count(page, `class="call"`) != 2 {
		t.Errorf("the tree: %s", page)
	}
	if page := string(r.get(r.admin + "/explain?query=" + url.QueryEscape("sum(")).body); !strings.Contains(page, `class="bad"`) {
		t.Errorf("a mistake: %s", page)
	}
	r.eventually("a glance was taken", func() bool {
		return strings.Contains(string(r.get(r.admin+adminAPI+"glances").body), `"lanes":[{"name":"default"`)
	})
}

// TestMarked: whatever else a query holds, what is marked is the selector that was refused, and all
// of it that is so.
func TestMarked(t *testing.T) {
	t.Parallel()
	r := newRig(t, manyShards(1), limits(ample))
	for query, want := range map[string]string{
		`sum(rate({__name__=~".+",job!="x"}[5m]))`:                       `sum(rate([{__name__=~".+",job!="x"}][5m]))`,
		`sum(a)+sum(metric)+sum(series)+sum({__name__=~".+"} offset 5m)`: `sum(a)+sum(metric)+sum(series)+sum([{__name__=~".+"} offset 5m])`,
		`count({le!=""}) / count({ le != "" })`:                          `count([{le!=""}]) / count([{ le != "" }])`,
	} {
		got := r.ask(r.request(context.Background(), asking{path: "/api/v1/query", form: url.Values{"query": {query}}}))
		page := string(r.get(r.admin + "/refusals/" + got.header.Get("X-Spillway-Request-Id")).body)
		page = html.UnescapeString(strings.NewReplacer("<mark>", "[", "</mark>", "]").Replace(page))
		if !strings.Contains(page, "<pre>"+want+"</pre>") {
			t.Errorf("%s: %s", query, page)
		}
	}
}

// TestRefusalsHaveLinks: where the console is reached in a browser, each refusal ends with a link
// to its own page, also where several requests have waited for one answer; mistakes have none.
func TestRefusalsHaveLinks(t *testing.T) {
	t.Parallel()
	r := newRig(t, manyShards(1), limits(ample), func(o *Options) { o.ConsoleURL = "https://admin.example.com/" })
	ask := func(q string) *reply {
		return r.ask(r.request(context.Background(), asking{path: "/api/v1/query", form: url.Values{"query": {q}}}))
	}
	replies := make(chan *reply, 8)
	for range cap(replies) {
		go func() { replies <- ask(`sum(rate({__name__=~".+"}[5m]))`) }()
	}
	for range cap(replies) {
		got := <-replies
		var b struct {
			Error    string
			Spillway struct{ Link string }
		}
		if err := json.Unmarshal(got.body, &b); err != nil {
			t.Fatal(err)
		}
		id := got.header.Get("X-Spillway-Request-Id")
		if link := "https://admin.example.com/refusals/" + id; !strings.HasSuffix(b.Error, " – "+link) || b.Spillway.Link != link {
			t.Errorf("%s was told: %s", id, got.body)
		}
		if page := r.get(r.admin + "/refusals/" + id); page.status != http.StatusOK {
			t.Errorf("the page of %s: %d", id, page.status)
		}
	}
	if got := ask("sum("); strings.Contains(string(got.body), "admin.example.com") {
		t.Errorf("a mistake: %s", got.body)
	}
	for _, bad := range []string{"admin", "ftp://a/", "https://u:p@a/", "https://a/?b=c", "https:///x", "https://a/x"} {
		if err := checkConsoleURL(bad); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestConsoleKills: the page's form ends a request, but not from a page of another site.
func TestConsoleKills(t *testing.T) {
	t.Parallel()
	r := newRig(t, manyShards(1), limits(10*patience))
	if err := r.all()[0].Set("", fakeshard.Route{Path: "/api/v1/query", Query: "up", Script: "wait go; answer"}); err != nil {
		t.Fatal(err)
	}
	answered := make(chan *reply, 1)
	go func() {
		answered <- r.ask(r.request(context.Background(), asking{path: "/api/v1/query", form: url.Values{"query": {"up"}}}))
	}()
	r.eventually("it is under way", func() bool { return len(r.queries()) == 1 })
	post := func(site string) int {
		t.Helper()
		form := url.Values{"id": {r.queries()[0].ID}}
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, r.admin+"/kill", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", site)
		return r.ask(req).status
	}
	if got := post("cross-site"); got != http.StatusForbidden || len(r.queries()) != 1 {
		t.Errorf("from another site: %d", got)
	}
	if got := post("same-origin"); got != http.StatusSeeOther { // back to the page
		t.Errorf("from the page: %d", got)
	}
	if got := <-answered; got.status != http.StatusServiceUnavailable {
		t.Errorf("it was answered with %d: %s", got.status, got.body)
	}
	r.release()
	r.idle()
}
