package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/plan/raw"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/ui"
)

// What is kept for a page has a bound, and what is beyond it ends its request.
func TestKeptAnswer(t *testing.T) {
	k := &keptAnswer{nowhere: nowhere{http.Header{}}}
	n := 0
	for range 2 * maxKept >> 16 {
		if _, err := k.Write(make([]byte, 1<<16)); err != nil {
			break
		}
		n++
	}
	if !k.over || n != maxKept>>16 || cap(k.body) > 2*maxKept {
		t.Errorf("over %t after %d writes, %d bytes are held", k.over, n, cap(k.body))
	}
	if _, err := k.Write([]byte("x")); err == nil {
		t.Error("more is taken")
	}
}

// What explain on the admin listener refuses itself, and what it hands on from the API.
func TestAdminExplainRefuses(t *testing.T) {
	r := newRig(t, manyShards(1), "")
	for _, c := range []struct {
		query  string
		status int
		says   string
	}{
		{"", 400, "explain needs a query: explain?query=sum(up)"},
		{"query=%20", 400, "explain needs a query"},
		{"query=up&qery=up", 400, `does not know the parameter \"qery\"; it takes query, time, start, end, step, analyze`},
		{"query=up&query=down", 400, "query stands 2 times"},
		{"query=%zz", 400, "percent-encode"},
		{"query=up&analyze=maybe", 400, "analyze takes 1 or 0"},
		{"query=up&start=1", 400, "start, end and step go together"},
		{"query=up&start=1&end=2&step=1&time=3", 400, "start, end and step go together"},
		{"query=up&time=yesterday", 400, "time"},
	} {
		resp, err := r.client.Get(r.admin + adminAPI + "explain?" + c.query)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || !bytes.Contains(body, []byte(c.says)) || !json.Valid(body) ||
			resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("explain?%s: status %d, %s, err %v", c.query, resp.StatusCode, body, err)
		}
	}
	resp, err := r.client.Post(r.admin+adminAPI+"explain?query=up", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET" {
		t.Errorf("POST: status %d, Allow %q", resp.StatusCode, resp.Header.Get("Allow"))
	}
}

// sample is an Explanation with everything in it.
func sample() *plan.Explanation {
	call := &plan.Call{
		Shard: "jaguar[0]", Replica: "jaguar/10.0.0.1:9090", Query: "sum(up)",
		Segments: []raw.Segment{{Slice: "jaguar[0]", Copy: "jaguar/10.0.0.1:9090", From: 1, Until: 2}},
		Series:   1, Samples: 2, Bytes: 3, Seconds: 0.004,
	}
	return &plan.Explanation{
		Query: "sum(up) / 2", Verdict: plan.Exact, Reason: "r",
		Plan: &plan.Node{
			Mode: plan.ModeRaw, Expr: "sum(up) / 2", Why: "it is evaluated here",
			Children: []*plan.Node{{
				Mode: plan.ModePush, Expr: "sum(up)", Why: "sums of disjoint shards add up",
				Calls: []*plan.Call{call},
			}},
		},
	}
}

// The page shows whatever stands in a plan as text, links and posts nowhere but to itself, and
// fetches nothing.
func TestPageEscapes(t *testing.T) {
	const evil = `</textarea></pre><script>alert(1)</script><img src=x onerror="alert(2)">'"&`
	e := &plan.Explanation{Query: evil, Verdict: evil, Reason: evil, Plan: &plan.Node{
		Mode: evil, Expr: evil, Why: evil, Calls: []*plan.Call{{Shard: evil, Replica: evil, Query: evil}},
		Children: []*plan.Node{{Mode: evil, Expr: evil, Why: evil}},
	}}
	w := httptest.NewRecorder()
	writePage(w, homePage, map[string]any{
		"Title": evil, "Version": evil, "Base": evil, "Prefix": "/x", "First": evil, "Range": evil,
		"Moment": evil, "Shown": []shown{
			{
				Query: evil, Plan: e, Rows: []ui.Row{{Series: evil, Value: evil}}, Warnings: []string{evil}, Span: evil,
				Link: "https://x/?q=%3Cscript",
				Plot: ui.Plot([]ui.Line{{Name: evil, Points: []ui.Point{{At: time.Unix(1, 0), Value: 1}}}}, time.Unix(0, 0),
					time.Unix(2, 0),
					time.Second),
			},
			{Query: evil, Problem: evil, PlanError: evil},
			{Query: evil, PlotProblem: evil},
		},
	})
	page := w.Body.String()
	for _, tag := range []string{"<script", "<img", "onerror=\"", "</textarea></pre>"} {
		if strings.Contains(page, tag) {
			t.Errorf("the page has %s: %s", tag, page)
		}
	}
	if n := strings.Count(page, "</textarea>"); n != 1 {
		t.Errorf("%d ends of a textarea", n)
	}
	if !strings.HasSuffix(strings.TrimSpace(page), "</html>") {
		t.Errorf("the page ends in the middle: %s", page)
	}
}

func TestPageShowsPlan(t *testing.T) {
	w := httptest.NewRecorder()
	writePage(w, homePage, map[string]any{
		"Title": "", "Version": "", "Base": "", "Prefix": "/pre", "First": "",
		"Shown": []shown{{Query: "sum(up) / 2", Plan: sample()}},
	})
	page := w.Body.String()
	for _, want := range []string{
		`action="/pre/graph"`, `<b class="mode">raw</b> <code>sum(up) / 2</code>`, `<b class="mode">push</b> <code>sum(up)</code>`,
		"sums of disjoint shards add up",
		"jaguar[0] at jaguar/10.0.0.1:9090: <code>sum(up)</code>", `<p class="exact">exact: r</p>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s: %s", want, page)
		}
	}
	if w.Header().Get("Content-Security-Policy") == "" || strings.Contains(page, "http://") || strings.Contains(page, "https://") {
		t.Errorf("the page reaches elsewhere: %v %s", w.Header(), page)
	}
}

// The page at / has the box, at /graph it is filled; with and without a route prefix; a query that
// cannot be answered is still shown, with the reason. Without a query nobody is asked, and nobody
// for one that is refused.
func TestPageExplains(t *testing.T) {
	for _, prefix := range []string{"", "/spill/way"} {
		r := newRig(t, manyShards(1), "", func(o *Options) { o.RoutePrefix = prefix })
		page := func(path string) string {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+prefix+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			a := r.ask(req)
			if a.status != http.StatusOK || a.header.Get("Content-Type") != "text/html; charset=utf-8" {
				t.Errorf("%s: %s", path, a)
			}
			return string(a.body)
		}
		if p := page("/"); !strings.Contains(p, `action="`+prefix+`/graph"`) || !strings.Contains(p, `name="g0.expr"`) {
			t.Errorf("the box is missing: %s", p)
		}
		unasked := func() {
			t.Helper()
			for _, sh := range r.all() {
				for _, path := range []string{"/api/v1/query", "/api/v1/query_range", "/api/v1/read"} {
					if n := len(sh.RequestsTo(path)); n > 0 {
						t.Errorf("the page asked a shard %d times for %s", n, path)
					}
				}
			}
		}
		unasked()
		page("/graph?g0.expr=" + url.QueryEscape(`{le!=""}`))
		unasked()
		full := page("/graph?g0.expr=" + url.QueryEscape(` up{cluster="jaguar"} `) + "&g0.tab=1&g1.expr=" + url.QueryEscape(`{le!=""}`))
		for _, want := range []string{
			`spellcheck="false"> up{cluster=&#34;jaguar&#34;} </textarea>`, `<p class="exact">exact</p>`, `<b class="mode">pass</b> <code>up{cluster=&#34;jaguar&#34;}</code>`,
			"<pre>{le!=&#34;&#34;}</pre>", `<p class="refused">refused: the selector {le!=&#34;&#34;} names no metric`,
		} {
			if !strings.Contains(full, want) {
				t.Errorf("the page lacks %s: %s", want, full)
			}
		}
		broken := page("/graph?g0.expr=" + url.QueryEscape("sum(<b>") + "&g0.tab=1")
		for _, want := range []string{`spellcheck="false">sum(&lt;b&gt;</textarea>`, "<pre>sum(&lt;b&gt;</pre>", `class="refused"`} {
			if !strings.Contains(broken, want) {
				t.Errorf("the page lacks %s: %s", want, broken)
			}
		}
	}
}

// explainWorld is a proxy over real servers: jaguar with two shards, heron with one.
func explainWorld(t *testing.T) *rig {
	now := time.Now().Truncate(time.Second)
	from, until := now.Add(-20*time.Minute), now
	var urls []any
	for i := range 3 {
		data := scraped(5, from, until, time.Duration(i)*time.Second, nil)
		for j := range data {
			b := labels.NewBuilder(data[j].lbls)
			b.Set("node", fmt.Sprintf("%d-%s", i, data[j].lbls.Get("node")))
			data[j].lbls = b.Labels()
		}
		urls = append(urls, promShard(t, labels.EmptyLabels(), data).URL())
	}
	r := &rig{t: t, client: newClient(t)}
	r.s, r.url = startProxy(t, t.Context(), fmt.Sprintf(`groups:
  - {name: jaguar, labels: {cluster: jaguar}, shards: [{replicas: [{url: %q}]}, {replicas: [{url: %q}]}]}
  - {name: heron, labels: {cluster: heron}, shards: [{replicas: [{url: %q}]}]}
`, urls...), func(o *Options) {
		o.Ready = func(_, admin netAddr) { r.admin = "http://" + admin.String() }
	})
	return r
}

// modes are the modes of a plan, of a node and then of those below it.
func modes(n *plan.Node) string {
	if n == nil {
		return "none"
	}
	out := string(n.Mode)
	for i, c := range n.Children {
		out += string("( "[min(i, 1)]) + modes(c)
	}
	if len(n.Children) > 0 {
		out += ")"
	}
	return out
}

// The header, the admin resource and ExplainQuery tell of one plan; what it tells of a run is what
// the servers answered.
func TestExplain(t *testing.T) {
	r := explainWorld(t)
	now := time.Now()
	for _, c := range []struct{ query, modes string }{
		{`rate(requests_total{cluster="heron"}[5m])`, "pass"},
		{`rate(requests_total{cluster="jaguar"}[5m])`, "splice"},
		{`sum by (job) (rate(requests_total[5m]))`, "push"},
		{`quantile(0.5, rate(requests_total{cluster="jaguar"}[5m])) / sum(up)`, "raw(splice push)"},
	} {
		for _, window := range []url.Values{
			{"time": {stamp(now)}},
			{"start": {stamp(now.Add(-10 * time.Minute))}, "end": {stamp(now)}, "step": {"30"}},
		} {
			form := maps.Clone(window)
			form.Set("query", c.query)
			path := "/api/v1/query"
			if form.Has("step") {
				path = "/api/v1/query_range"
			}
			name := path + " " + c.query
			var planned, admin, ran struct {
				Status   string
				Data     *plan.Explanation
				Warnings []string
			}
			var answer struct {
				Data     struct{ Result []json.RawMessage }
				Spillway struct{ Explain *plan.Explanation }
			}
			for _, ask := range []struct {
				target, header string
				into           any
			}{
				{r.url + path, explainPlan, &planned},
				{r.url + path, explainRun, &answer},
				{r.admin + adminAPI + "explain", "", &admin},
				{r.admin + adminAPI + "explain?analyze=1&", "", &ran},
			} {
				sep := "?"
				if strings.HasSuffix(ask.target, "&") {
					sep = ""
				}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, ask.target+sep+form.Encode(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if ask.header != "" {
					req.Header.Set(explainHeader, ask.header)
				}
				a := r.ask(req)
				if err := json.Unmarshal(a.body, ask.into); err != nil || a.status != http.StatusOK {
					t.Fatalf("%s: %s, %v", name, a, err)
				}
			}
			for what, e := range map[string]*plan.Explanation{
				"plan": planned.Data, "answer": answer.Spillway.Explain, "admin": admin.Data,
				"analyze": ran.Data,
			} {
				if e == nil || e.Query != c.query || e.Verdict != plan.Exact || e.Reason != "" || modes(e.Plan) != c.modes ||
					e.Plan.Why == "" {
					t.Fatalf("%s, %s: %s", name, what, asJSON(e))
				}
			}
			for _, e := range []*plan.Explanation{planned.Data, admin.Data} { // the second may have learned of an answer
				if e.Estimate == nil || e.Estimate.Series < 1 || e.Estimate.Selected < 1 || e.Estimate.Held < 1 {
					t.Errorf("%s: the estimate is %s", name, asJSON(e))
				}
			}
			planned.Data.Estimate, admin.Data.Estimate = nil, nil
			if got, want := asJSON(admin.Data), asJSON(planned.Data); got != want {
				t.Errorf("%s: the admin listener says %s, the main one %s", name, got, want)
			}
			for what, e := range map[string]*plan.Explanation{"answer": answer.Spillway.Explain, "analyze": ran.Data} {
				var series int64
				var calls func(*plan.Node)
				calls = func(n *plan.Node) {
					for _, call := range n.Calls {
						series += call.Series
						if call.Bytes <= 0 || call.Seconds <= 0 || call.Series <= 0 || call.Samples <= 0 || len(call.Segments) == 0 ||
							call.Replica == "" {
							t.Errorf("%s, %s: a call without its numbers: %s", name, what, asJSON(call))
						}
					}
					for _, child := range n.Children {
						calls(child)
					}
				}
				calls(e.Plan)
				if c.modes == "pass" || c.modes == "splice" {
					if want := int64(len(answer.Data.Result)); series != want {
						t.Errorf("%s, %s: %d series, the answer has %d", name, what, series, want)
					}
				}
			}
		}
	}
	// The plan alone asks nobody; a refused one is told as such.
	r.eventually("all answers are counted", func() bool { return r.metric("spillway_requests_in_flight") == 0 })
	before := r.metric("spillway_samples_total")
	e, err := r.s.ask(httptest.NewRequest(http.MethodGet, "/", nil), Question{Query: `{le!=""}`}, true)
	if err != nil || e.Verdict != plan.Refused || !strings.Contains(e.Reason, "names no metric") || e.Plan != nil {
		t.Errorf("%s, %v", asJSON(e), err)
	}
	if after := r.metric("spillway_samples_total"); after != before {
		t.Errorf("a plan read %v samples", after-before)
	}
	if _, err = r.s.ask(httptest.NewRequest(http.MethodGet, "/", nil), Question{Query: `sum(`}, true); qerr.From(err).Kind != qerr.BadData {
		t.Errorf("%v", err)
	}
}

// Without listening, a server explains and leaves nothing behind.
func TestExplainQuery(t *testing.T) {
	p := promShard(t, labels.EmptyLabels(), scraped(2, time.Now().Add(-10*time.Minute), time.Now(), 0, nil))
	cfg, err := config.Parse(fmt.Appendf(nil, "groups: [{name: a, shards: [{replicas: [{url: %q}]}]}]", p.URL()), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, analyze := range []bool{false, true} {
		e, err := s.ExplainQuery(t.Context(), Question{Query: "up", Analyze: analyze})
		if err != nil || modes(e.Plan) != "pass" || analyze && e.Plan.Calls[0].Series != 2 {
			t.Errorf("%s, %v", asJSON(e), err)
		}
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := s.ExplainQuery(gone, Question{Query: "up"}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the caller left: %v", err)
	}
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// docs/explain.md has every field by its name in JSON, and none that is not there.
func TestExplainDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/explain.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	seen := map[reflect.Type]bool{}
	var fields func(reflect.Type)
	fields = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			f := typ.Field(i)
			if !f.IsExported() {
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				name = f.Name
			}
			want = append(want, fmt.Sprintf("%s.%s", strings.ToLower(typ.Name()), name))
			fields(f.Type)
		}
	}
	fields(reflect.TypeFor[plan.Explanation]())
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+\\.[A-Za-z]+)` \\|").FindAllSubmatch(text, -1) {
		got = append(got, string(m[1]))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("docs/explain.md has %q, the types have %q", got, want)
	}
}

// An error is told in the words that a client reads, with its advice once.
func TestPublicly(t *testing.T) {
	for _, c := range []struct {
		err  *qerr.Error
		want string
	}{
		{&qerr.Error{Kind: qerr.TooExpensive, Message: "too much", Advice: "ask for less"}, "too much; ask for less"},
		{&qerr.Error{Kind: qerr.TooExpensive, Message: "too much; ask for less", Advice: "ask for less"}, "too much; ask for less"},
	} {
		if got := publicly(fmt.Errorf("x: %w", c.err)); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	if got := publicly(errors.New("a secret")); strings.Contains(got, "secret") {
		t.Errorf("a private cause is shown: %s", got)
	}
}

// TestExplainIsBounded: a plan shows a long text once for all shards; what it takes is held in the
// budget and kept within max_response_bytes, the answer of a run like the plan alone.
func TestExplainIsBounded(t *testing.T) {
	const shards = 12
	query := `sum(up{job!="` + strings.Repeat("<", 30_000) + `"})`
	for _, c := range []struct{ name, settings, header, bound string }{
		{"once", "", explainPlan, ""},
		{"once in a run", "", explainRun, ""},
		{"refused", "limits: {max_series_touched: 1}\n", explainPlan, ""},
		{"too large", "limits: {max_response_bytes: 64KiB}\n", explainPlan, policy.BoundMaxResponseBytes},
		{"too large in a run", "limits: {max_response_bytes: 64KiB}\n", explainRun, policy.BoundMaxResponseBytes},
		{"no memory", "memory: {budget: 192KiB}\n", explainPlan, "memory.budget"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, manyShards(shards), c.settings)
			req := r.request(t.Context(), asking{path: "/api/v1/query", form: url.Values{"query": {query}}, post: true})
			req.Header.Set(explainHeader, c.header)
			got := r.ask(req)
			if c.bound != "" {
				if got.status == 200 || got.message.Spillway.Bound != c.bound {
					t.Errorf("want the bound %s: %.500s", c.bound, got.body)
				}
				return
			}
			if n := bytes.Count(got.body, []byte("<<<<")); got.status != 200 || n == 0 || len(got.body) > 6*len(query) {
				t.Errorf("status %d, %d bytes, %d of them <<<<: %.500s", got.status, len(got.body), n, got.body)
			}
		})
	}
}
