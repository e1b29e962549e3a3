package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/console"
	"github.com/spillwayproject/spillway/proxy/live"
)

// queries are the live queries, as the admin listener tells them.
func (r *rig) queries() []live.Query {
	r.t.Helper()
	var out struct{ Data []live.Query }
	r.adminAsk(http.MethodGet, "", http.StatusOK, &out)
	return out.Data
}

// adminAsk asks the admin listener for what stands behind queries.
func (r *rig) adminAsk(method, path string, status int, into any) string {
	r.t.Helper()
	req, err := http.NewRequest(method, r.admin+"/api/spillway/v1/queries"+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	got := r.ask(req)
	if got.status != status || got.err != nil {
		r.t.Errorf("%s queries%s: %s, want %d", method, path, got, status)
	}
	if into != nil {
		if err := json.Unmarshal(got.body, into); err != nil {
			r.t.Errorf("%s queries%s: %v: %s", method, path, err, got.body)
		}
	}
	return string(got.body)
}

// TestLiveQueries: what is under way is listed, with who asks and what is done for it.
func TestLiveQueries(t *testing.T) {
	r := newRig(t, manyShards(2), limits(10*patience))
	if got := r.queries(); got == nil || len(got) != 0 {
		t.Errorf("nobody asks, and %v is listed", got)
	}
	for _, s := range r.all() {
		if err := s.Set("", fakeshard.Route{Path: "/api/v1/query_range", Script: "stall"}); err != nil {
			t.Fatal(err)
		}
	}
	long := `up{a!="` + strings.Repeat("b", 1500) + `"}`
	now := time.Now()
	req := r.request(context.Background(), asking{path: "/api/v1/query_range", form: url.Values{
		"query": {long}, "start": {stamp(now.Add(-time.Minute))}, "end": {stamp(now)}, "step": {"15"},
	}})
	req.Header.Set("X-Grafana-User", "ada")
	req.Header.Set("X-Dashboard-Uid", "fleet")
	req.Header.Set("X-Panel-Id", "7")
	c := r.call(req)
	r.eventually("it is asked of the shards", func() bool {
		got := r.queries()
		return len(got) == 1 && got[0].Doing == workAsk.String()
	})
	q := r.queries()[0]
	if q.Endpoint != "query_range" || q.User != "ada" || q.Dashboard != "fleet" || q.Panel != "7" || q.AgeSeconds <= 0 ||
		!q.Deadline.After(q.Started) || q.Started.Before(now.Add(-time.Second)) {
		t.Errorf("%+v", q)
	}
	if len(q.Query) > live.MaxQueryBytes+len("…") || !strings.HasSuffix(q.Query, "…") {
		t.Errorf("the list has a text of %d bytes", len(q.Query))
	}
	var one struct{ Data live.Query }
	if r.adminAsk(http.MethodGet, "/"+q.ID, http.StatusOK, &one); one.Data.Query != long {
		t.Errorf("alone it has the text %.60q", one.Data.Query)
	}
	c.leave(true)
	r.eventually("it is not listed any more", func() bool { return len(r.queries()) == 0 })
	r.adminAsk(http.MethodGet, "/"+q.ID, http.StatusNotFound, nil)
}

// TestLookBesideAttempts: what a query has done is told while it makes its attempts, each of which
// has a budget of its own. It is the race detector that finds what is wrong with it.
func TestLookBesideAttempts(t *testing.T) {
	r := newRig(t, manyShards(1), "")
	req := httptest.NewRequest(http.MethodGet, "/api/v1/query?query=up", http.NoBody)
	x, ctx, leave := r.s.enter(httptest.NewRecorder(), req)
	defer leave()
	for _, step := range []func() error{
		func() error { return x.identify(ctx, req, nil) },
		func() error { return x.understand(ctx, req, nil) },
		func() error { return x.decide(ctx) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				x.look()
			}
		}
	})
	for range 5000 {
		x.beginAttempt()
		if err := x.budget.Hold(1 << 20); err != nil {
			t.Error(err)
		}
		x.out.Close()
		x.budget.Close()
	}
	close(done)
	wg.Wait()
	if got := x.look(); got.HeldBytes != 0 || got.PeakBytes < 1<<20 {
		t.Errorf("at the end it holds %d bytes, and held %d at most", got.HeldBytes, got.PeakBytes)
	}
}

// TestKill: a request is ended wherever it is on its road. Its caller is told who did it, the
// shards' work ends, and nothing is left.
func TestKill(t *testing.T) {
	metadata := asking{path: "/api/v1/series", form: url.Values{"match[]": {"up"}}, post: true}
	rawQuery := asking{path: "/api/v1/query", form: url.Values{"query": {"count(info(up))"}}}
	for _, c := range []struct {
		name, at, script string
		ask              asking
	}{
		{name: "waiting for headers", ask: metadata, at: "/api/v1/series", script: "stall"},
		{name: "in the body", ask: metadata, at: "/api/v1/series", script: "limit 30 stall; answer"},
		{name: "raw, waiting for headers", ask: rawQuery, at: "/api/v1/read", script: "stall"},
		{name: "raw, in the body", ask: rawQuery, at: "/api/v1/read", script: "limit 30 stall; answer"},
		{name: "rules", ask: asking{path: "/api/v1/rules"}, at: "/api/v1/rules", script: "stall"},
		{name: "federate", ask: asking{path: "/federate", form: url.Values{"match[]": {"up"}}}, at: "/api/v1/read", script: "stall"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, manyShards(2), limits(10*patience))
			for _, s := range r.all() {
				if err := s.Set("", fakeshard.Route{Path: c.at, Script: c.script}); err != nil {
					t.Fatal(err)
				}
			}
			reply := make(chan *reply, 1)
			go func() { reply <- r.ask(r.request(context.Background(), c.ask)) }()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			for _, s := range r.all() {
				if err := s.WaitSeen(ctx, c.at, 1); err != nil {
					t.Fatal(err)
				}
			}
			q := r.queries()
			if len(q) != 1 {
				t.Fatalf("%d are listed", len(q))
			}
			var killed struct{ Data struct{ Killed []string } }
			r.adminAsk(http.MethodDelete, "/"+q[0].ID, http.StatusOK, &killed)
			if got := killed.Data.Killed; len(got) != 1 || got[0] != q[0].ID {
				t.Errorf("ended are %v", got)
			}
			got := <-reply
			if got.status != http.StatusServiceUnavailable || !strings.Contains(string(got.body), "by hand") || got.err != nil {
				t.Error(got)
			}
			r.idle()
			r.adminAsk(http.MethodDelete, "/"+q[0].ID, http.StatusNotFound, nil)
			if n := r.metric("spillway_queries_killed_total"); n != 1 {
				t.Errorf("%v are counted", n)
			}
			r.audited("action=kill by=DELETE /api/spillway/v1/queries result=ended peer=127.0.0.1 queries=1 ids=" + q[0].ID)
			for _, line := range r.log.atLeast(slog.LevelWarn) {
				t.Errorf("logged: %s", line)
			}
		})
	}
}

// An evaluation is ended in the middle of a function that does not look at the time, and so is what
// waits for its turn.
func TestKillEvaluations(t *testing.T) {
	r := newRig(t, manyShards(1), limits(10*patience))
	hookCalls(t, "deriv", func() { time.Sleep(time.Millisecond) })
	replies := make(chan *reply, 3)
	for i := range 3 {
		long := longQuery("deriv")
		long.form.Set("end", itoa(int64(1000010000-i)))
		req := r.request(context.Background(), long)
		req.Header.Set("X-Grafana-User", "ada")
		go func() { replies <- r.ask(req) }()
	}
	r.eventually("all are listed", func() bool { return len(r.queries()) == 3 })
	r.adminAsk(http.MethodDelete, "?user=ada", http.StatusOK, nil)
	for range 3 {
		if got := <-replies; got.status != http.StatusServiceUnavailable || !strings.Contains(got.message.Error, "by hand") {
			t.Error(got)
		}
	}
	r.idle()
}

// Whoever waits for the answer of one that is ended is told the same; one that waits is ended
// without the others.
func TestKillShared(t *testing.T) {
	a := alikeQuery()
	r := crowdOf(t, 2, a.at, "answer")
	replies := make(chan *reply, 3)
	ask := func() { go func() { replies <- r.ask(r.request(context.Background(), a)) }() }
	ask()
	r.eventually("the first is asked", func() bool {
		q := r.queries()
		return len(q) == 1 && q[0].Doing == workAsk.String()
	})
	leader := r.queries()[0].ID
	ask()
	ask()
	var waiting []string
	r.eventually("two wait", func() bool {
		waiting = nil
		count := 0
		for _, q := range r.queries() {
			if q.Doing == workWait.String() {
				waiting = append(waiting, q.ID)
			}
			count += q.Waiting
		}
		return len(waiting) == 2 && count == 2
	})
	r.adminAsk(http.MethodDelete, "/"+waiting[0], http.StatusOK, nil)
	if got := <-replies; got.status != http.StatusServiceUnavailable {
		t.Error(got)
	}
	if n := len(r.queries()); n != 2 {
		t.Errorf("%d go on, want the other two", n)
	}
	r.adminAsk(http.MethodDelete, "/"+leader, http.StatusOK, nil)
	for range 2 {
		if got := <-replies; got.status != http.StatusServiceUnavailable || !strings.Contains(got.message.Error, "by hand") {
			t.Error(got)
		}
	}
	r.release()
	r.idle()
}

// TestKillAsksWhom: nothing is ended by a request that names nobody, or by one that a page of
// another site sends.
func TestKillAsksWhom(t *testing.T) {
	r := newRig(t, manyShards(1), limits(10*patience))
	for path, want := range map[string]string{
		"":                              "which ones?",
		"?usr=ada":                      "takes tenant, user and dashboard",
		"?user=":                        "takes tenant, user and dashboard",
		"?user=a&user=b":                "takes tenant, user and dashboard",
		"/0123?user=ada":                "takes tenant, user and dashboard",
		"/" + strings.Repeat("x", 5000): "",
	} {
		status := http.StatusBadRequest
		if want == "" {
			status, want = http.StatusNotFound, "is under way"
		}
		if body := r.adminAsk(http.MethodDelete, path, status, nil); !strings.Contains(body, want) || len(body) > 1000 {
			t.Errorf("DELETE queries%.40s: %.300s, want %q", path, body, want)
		}
	}
	for _, path := range []string{"", "/0123"} {
		r.adminAsk(http.MethodPost, path, http.StatusMethodNotAllowed, nil)
	}
	r.adminAsk(http.MethodDelete, "?user=nobody", http.StatusOK, nil)
	req, err := http.NewRequest(http.MethodDelete, r.admin+"/api/spillway/v1/queries?user=ada", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	if got := r.ask(req); got.status != http.StatusForbidden {
		t.Error(got)
	}
	if got := r.get(fmt.Sprint(r.url, "/api/spillway/v1/queries")); got.status != http.StatusNotFound {
		t.Errorf("the main listener: %s", got)
	}
}

// TestWorkReads: each work has words that follow "still being" in the error of a deadline.
func TestWorkReads(t *testing.T) {
	for w := workPlan; w <= workWrite; w++ {
		if text := w.String(); text == "" || strings.HasSuffix(text, ".") {
			t.Errorf("%d is %q", w, text)
		}
	}
}

// The page of the admin listener shows what is under way, whatever its callers write into it.
func TestConsoleShowsLiveQueries(t *testing.T) {
	r := newRig(t, manyShards(1), limits(10*patience))
	page := func() string { return string(r.get(r.admin + "/").body) }
	if text := page(); !strings.Contains(text, "Nothing is asked now") || !strings.Contains(text, "Nothing was asked") {
		t.Errorf("nobody asks: %s", text)
	}
	hostile := `up{a!="<img src=x onerror=alert(1)>` + strings.Repeat("y", 2000) + `"}`
	s := r.all()[0]
	if err := s.Set("", fakeshard.Route{Path: "/api/v1/query", Query: hostile, Script: "wait go; answer"}); err != nil {
		t.Fatal(err)
	}
	replies := make(chan *reply, console.MaxRows+1)
	for i := range console.MaxRows + 1 {
		form := url.Values{"query": {hostile}, "time": {itoa(int64(1795000000 + i))}}
		req := r.request(context.Background(), asking{path: "/api/v1/query", form: form})
		req.Header.Set("X-Grafana-User", "<b>ada</b>")
		go func() { replies <- r.ask(req) }()
	}
	r.eventually("all are listed", func() bool { return len(r.queries()) == console.MaxRows+1 })
	text := ""
	r.eventually("the page is of now", func() bool { text = page(); return strings.Contains(text, "Under way <span class=\"quiet\">21<") })
	if strings.Count(text, "asked of the shards") < 1 || !strings.Contains(text, "and 1 more") ||
		strings.Count(text, "&lt;b&gt;ada&lt;/b&gt;") != console.MaxRows {
		t.Errorf("%s", text)
	}
	if strings.Contains(text, "<img") || strings.Contains(text, "<b>ada") || len(text) > 40<<10 {
		t.Errorf("%d bytes: %s", len(text), text)
	}
	r.release()
	for range console.MaxRows + 1 {
		<-replies
	}
	r.eventually("what was asked stands among what took most", func() bool {
		return strings.Contains(page(), ">up{a!=&#34;&lt;img")
	})
	r.idle()
}

// TestPagesAreSeen: what the page behind a link asks for whoever looks at it is a request like any
// other: it is listed, can be ended, is counted to whoever asks, and is shown where it fails.
func TestPagesAreSeen(t *testing.T) {
	t.Parallel()
	r := newRig(t, manyShards(1), limits(ample))
	s := r.all()[0]
	if err := s.Set("", fakeshard.Route{Path: "/api/v1/query", Query: "up", Script: "wait go; answer"}); err != nil {
		t.Fatal(err)
	}
	open := func() chan string {
		page := make(chan string, 1)
		go func() { page <- string(r.get(r.url + "/graph?g0.expr=up").body) }()
		return page
	}
	var page chan string
	r.eventually("it is listed, and ended", func() bool { // the page itself waits for some seconds only
		if page == nil {
			page = open()
		}
		for _, q := range r.queries() {
			if q.Query != "up" || q.Endpoint != "query" {
				t.Errorf("listed is %+v", q)
			}
			req, err := http.NewRequest(http.MethodDelete, r.admin+adminAPI+"queries/"+q.ID, nil)
			if err != nil {
				t.Error(err)
				return true
			}
			if r.ask(req).status == http.StatusOK {
				text := <-page
				page = nil
				return strings.Contains(text, "has ended this request by hand")
			}
		}
		select {
		case <-page:
			page = nil
		default:
		}
		return false
	})
	if got := string(r.get(r.admin + adminAPI + "usage?by=query").body); !strings.Contains(got, `"name":"up"`) {
		t.Errorf("it is counted to nobody: %s", got)
	}
	if got := string(r.get(r.admin + "/refusals").body); !strings.Contains(got, "<code>query up</code>") {
		t.Errorf("the console does not show that it was ended: %s", got)
	}
	s.Release("go")
	r.idle()
}
