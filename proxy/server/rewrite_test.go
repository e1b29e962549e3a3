package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// tooLong is a query whose range is longer than max_range, refused before any shard is asked; a
// rewrite of it is tried.
const tooLong = "rate(up[2d])"

func tooLongRig(t testing.TB, more string) *rig {
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}}, more)
	r.s.rewriteTime = patience
	r.asks("/api/v1/query", "query", "up") // it is known how much there is of it
	// An answer is read before it is counted and learned from.
	r.eventually("it is counted", func() bool {
		return r.metric("spillway_requests_total") == 1 && r.metric("spillway_requests_in_flight") == 0
	})
	return r
}

// queried are the queries that the shards were asked by clients' requests.
func (r *rig) queried() (n int) {
	for _, s := range r.all() {
		for _, path := range []string{"/api/v1/query", "/api/v1/query_range", "/api/v1/labels", "/api/v1/series"} {
			n += len(askedOf(s, path))
		}
	}
	return n
}

// TestRewriteIsTried: a refusal's rewrite was asked of the shards, for its caller, and the sentence
// says so; nobody else's counters know of it.
func TestRewriteIsTried(t *testing.T) {
	t.Parallel()
	r := tooLongRig(t, "limits: {max_range: 1d}\n")
	before, requests := r.queried(), r.metric("spillway_requests_total")
	got := r.asks("/api/v1/query", "query", tooLong)
	rewritten := strings.Contains(got.message.Error, "max_range is 1d; try rate(up[") && strings.Contains(got.message.Error, "(tried: ")
	if got.status != 422 || !rewritten || !strings.Contains(string(got.body), `"rewrite":{"kind":"range","path":"/api/v1/query","parameters":{`) {
		t.Errorf("%s", got)
	}
	tried := 0
	for _, s := range r.all() {
		for _, rec := range s.RequestsTo("/api/v1/query") {
			if strings.HasPrefix(rec.Form.Get("query"), "rate(up[") {
				tried++
			}
		}
	}
	if tried != 2 || r.queried() == before {
		t.Errorf("a rewrite was asked of two shards %d times", tried)
	}
	if n := r.metric("spillway_requests_total") - requests; n != 1 {
		t.Errorf("%v requests were counted", n)
	}
	if n := r.metric("spillway_rewrites_total", "outcome=tried"); n != 1 {
		t.Errorf("%v rewrites were counted as tried", n)
	}
	r.idle()
}

// TestRewriteEndsWithItsCaller: who leaves while a rewrite is tried ends the trial, on the shards
// too.
func TestRewriteEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	soonest(t, 5*time.Second, func() time.Duration { return trialEnds(t) })
}

// trialEnds is how long after its caller has left the shards have ended a trial.
func trialEnds(t *testing.T) time.Duration {
	r := tooLongRig(t, "limits: {max_range: 1d}\n")
	for _, s := range r.all() { // but for what Spillway itself wants to know
		must(t, s.Set("", fakeshard.Route{Path: "/api/v1/query", Script: "stall"}))
	}
	before := r.queried()
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan *reply, 1)
	go func() { left <- r.ask(r.request(ctx, asking{path: "/api/v1/query"}, "query", tooLong)) }()
	r.eventually("the trial is under way", func() bool { return r.queried() > before })
	began := time.Now()
	cancel()
	<-left
	r.eventually("the shards have ended it", func() bool {
		for _, s := range r.all() {
			for _, rec := range s.RequestsTo("/api/v1/query") {
				if strings.HasPrefix(rec.Form.Get("query"), "rate(up[") && rec.Ended.IsZero() {
					return false
				}
			}
		}
		return true
	})
	took := time.Since(began)
	r.eventually("it is counted as cancelled", func() bool { return r.metric("spillway_cancellations_total") == 1 })
	r.idle()
	return took
}

// TestRewriteGivesUp: where shards do not answer, the refusal comes without a rewrite, and not
// later than it may.
func TestRewriteGivesUp(t *testing.T) {
	t.Parallel()
	r := tooLongRig(t, "limits: {max_range: 1d}\n")
	r.s.rewriteTime = rewriteTime
	for _, s := range r.all() {
		if err := s.Set("stall"); err != nil {
			t.Fatal(err)
		}
	}
	got := r.asks("/api/v1/query", "query", tooLong)
	if got.status != 422 || strings.Contains(got.message.Error, "try ") || !strings.Contains(got.message.Error, "ask for a shorter range") {
		t.Errorf("%s", got)
	}
	if n := r.metric("spillway_rewrites_total", "outcome=none"); n != 1 {
		t.Errorf("%v were counted as none", n)
	}
	r.idle()
}

// TestRewriteKeepsTheTimeout: the request's own timeout= ends the search too, where what refused it
// stood before its deadline was set.
func TestRewriteKeepsTheTimeout(t *testing.T) {
	t.Parallel()
	r := tooLongRig(t, "limits: {max_range: 1d}\n")
	for _, s := range r.all() {
		must(t, s.Set("", fakeshard.Route{Path: "/api/v1/query", Script: "stall"}))
	}
	began := time.Now()
	got := r.asks("/api/v1/query", "query", tooLong, "timeout", "300ms")
	tries := 0
	for _, rec := range r.all()[0].RequestsTo("/api/v1/query") {
		if strings.HasPrefix(rec.Form.Get("query"), "rate(up[") {
			tries++
		}
	}
	if took := time.Since(began); got.status != 422 || took > patience/2 || tries > 1 { // each would take as long
		t.Errorf("%d tries after %s: %s", tries, took, got)
	}
	r.idle()
}

// TestNoRewriteUnderPressure: while there is other work waiting, or little memory left, a refusal
// says what it always said, and no shard is asked.
func TestNoRewriteUnderPressure(t *testing.T) {
	t.Parallel()
	r := tooLongRig(t, "limits: {max_range: 1d}\nmemory: {budget: 64MiB}\n")
	pool := r.s.poolNow()
	b := admit.NewBudget(pool, admit.Limits{MaxSeries: 1, MaxSamples: 1, MaxBytes: 1})
	another := admit.NewBudget(pool, admit.Limits{MaxSeries: 1, MaxSamples: 1, MaxBytes: 1})
	hold := func() {
		for _, b := range []*admit.Budget{b, another} {
			if err := b.Hold(20 << 20); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tc := range []struct {
		name       string
		begin, end func()
	}{
		{"memory is half full", hold, func() { b.Close(); another.Close() }},
		{"memory is tight", func() { pool.Tighten(qerr.New(qerr.Overloaded, "full")) }, func() { pool.Tighten(nil) }},
		{"others look for one", func() {
			for range cap(r.s.rewrites.places) {
				r.s.rewrites.places <- struct{}{}
			}
		}, func() {
			for range cap(r.s.rewrites.places) {
				<-r.s.rewrites.places
			}
		}},
		{"it stops", func() { r.s.draining.Store(true) }, func() { r.s.draining.Store(false) }},
	} {
		before, busy := r.queried(), r.metric("spillway_rewrites_total", "outcome=busy")
		tc.begin()
		got := r.asks("/api/v1/query", "query", tooLong)
		tc.end()
		if got.status != 422 || strings.Contains(got.message.Error, "try ") || strings.Contains(string(got.body), "rewrite") {
			t.Errorf("%s: %s", tc.name, got)
		}
		if n := r.queried() - before; n != 0 {
			t.Errorf("%s: %d queries were asked of shards", tc.name, n)
		}
		if n := r.metric("spillway_rewrites_total", "outcome=busy") - busy; n != 1 {
			t.Errorf("%s: %v were counted as busy", tc.name, n)
		}
	}
	if got := r.asks("/api/v1/query", "query", tooLong); !strings.Contains(got.message.Error, "(tried: ") {
		t.Errorf("afterwards: %s", got)
	}
}

// TestSearchEndsUnderPressure: what begins to wait while a rewrite is looked for ends the search
// before the next trial, and that nothing was found then is not remembered.
func TestSearchEndsUnderPressure(t *testing.T) {
	t.Parallel()
	r := tooLongRig(t, "limits: {max_range: 1d}\n")
	for _, s := range r.all() { // each trial is in vain, after a while
		must(t, s.Set("", shorter(func(query string) fakeshard.Route {
			return fakeshard.Route{Path: "/api/v1/query", Query: query, Script: "delay 200ms; status 422"}
		})...))
	}
	tried := func() (n int) {
		for _, s := range r.all() {
			for _, rec := range s.RequestsTo("/api/v1/query") {
				if strings.HasPrefix(rec.Form.Get("query"), "rate(up[") {
					n++
				}
			}
		}
		return n
	}
	told := make(chan *reply, 1)
	go func() { told <- r.asks("/api/v1/query", "query", tooLong) }()
	r.eventually("the first trial is under way", func() bool { return tried() > 0 })
	r.s.draining.Store(true)
	got := <-told
	r.s.draining.Store(false)
	if n := tried(); got.status != 422 || n > 2 {
		t.Errorf("%d queries were asked of two shards: %s", n, got)
	}
	counted := func(outcome string) float64 { return r.metric("spillway_rewrites_total", "outcome="+outcome) }
	if busy, none := counted("busy"), counted("none"); busy != 1 || none != 0 {
		t.Errorf("%v were counted as busy, %v as none", busy, none)
	}
	for _, s := range r.all() {
		must(t, s.Set(""))
	}
	if got := r.asks("/api/v1/query", "query", tooLong); !strings.Contains(got.message.Error, "(tried: ") {
		t.Errorf("afterwards: %s", got)
	}
}

// TestNoRewriteWhileCallsWait: the same while a call waits for a place at a shard.
func TestNoRewriteWhileCallsWait(t *testing.T) {
	t.Parallel()
	r := tooLongRig(t, "limits: {max_range: 1d, replica_calls: 1, read_slots: 1}\n")
	r.s.rewriteTime = rewriteTime
	for _, s := range r.all() {
		if err := s.Set("stall"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan *reply, 6)
	waiting := []string{"up", "up + 0", "up + 1", "up + 2", "up + 3", "up + 4"}
	for _, q := range waiting {
		go func() { ended <- r.ask(r.request(ctx, asking{path: "/api/v1/query"}, "query", q)) }()
	}
	crowded := r.s.state.Load().top.Crowded
	for tries := 0; ; tries++ { // now and then all of them are between two doors
		r.eventually("a call waits", crowded)
		busy := r.metric("spillway_rewrites_total", "outcome=busy")
		got := r.asks("/api/v1/query", "query", tooLong)
		counted := r.metric("spillway_rewrites_total", "outcome=busy") - busy
		if got.status == 422 && !strings.Contains(got.message.Error, "try ") && counted == 1 {
			break
		}
		if tries == 5 {
			t.Errorf("%s", got)
			break
		}
	}
	cancel()
	for range waiting {
		<-ended
	}
	r.idle()
}

// TestNoRewriteOfOthers: what no other text helps against has no rewrite, and nothing is looked
// for.
func TestNoRewriteOfOthers(t *testing.T) {
	t.Parallel()
	r := tooLongRig(t, `deny: [{name: wall, reason: no, query: "sum(up)"}]
limits: {max_query_bytes: 1KiB, max_range: 1d}
`)
	before := r.queried()
	for _, query := range []string{
		"sum(up)", "sum(up", "up + " + strings.Repeat("0", 2000), strings.Repeat("(", 300) + "up" + strings.Repeat(")", 300),
	} {
		if got := r.asks("/api/v1/query", "query", query); got.status < 400 || strings.Contains(string(got.body), "rewrite") {
			t.Errorf("%.40s: %s", query, got)
		}
	}
	if n, m := r.queried()-before, r.metric("spillway_rewrites_total"); n != 0 || m != 0 {
		t.Errorf("%d queries were asked of shards, %v rewrites looked for", n, m)
	}
	// What a rule refuses is not proposed either.
	r = tooLongRig(t, `deny: [{name: wall, reason: no, selector: up}]
limits: {max_range: 1d}
`)
	before = r.queried()
	if got := r.asks("/api/v1/query", "query", tooLong); strings.Contains(got.message.Error, "try ") || r.queried() != before {
		t.Errorf("a denied query is proposed: %s", got)
	}
}

// TestRewritesAndRules: what is looked for and tried in a refusal's place is no hit of a rule, and
// a rule against what was found ends its being told.
func TestRewritesAndRules(t *testing.T) {
	t.Parallel()
	r := tooLongRig(t, "deny: [{name: ups, reason: to see, selector: up, shadow: true}]\nlimits: {max_range: 1d}\n")
	got := r.asks("/api/v1/query", "query", tooLong)
	if !strings.Contains(got.message.Error, "(tried: ") {
		t.Fatalf("%s", got)
	}
	if n, m := r.ruled()["ups"].Hits, r.metric("spillway_denied_requests_total"); n > 1 || m > 1 {
		t.Errorf("one request is %d hits, and %v by the metric", n, m)
	}
	if got := r.asks("/api/v1/query", "query", tooLong); !strings.Contains(got.message.Error, "try rate(up[") {
		t.Errorf("what was found is not remembered: %s", got)
	}
	r.adminRule(http.MethodPost, "", `{"name": "wall", "reason": "no", "selector": "up", "for": "1h"}`, 200)
	if got := r.asks("/api/v1/query", "query", tooLong); strings.Contains(got.message.Error, "try rate(up[") {
		t.Errorf("a query is proposed that a rule refuses by now: %s", got)
	}
}

// TestNoRewriteOfLists: what lists names, values or series is refused with what it always said, and
// nothing is looked for: a list says nothing of series by which a trial could be judged.
func TestNoRewriteOfLists(t *testing.T) {
	t.Parallel()
	r := tooLongRig(t, "limits: {max_response_bytes: 1KiB}\n")
	for _, s := range r.all() { // by what a shard sends it is refused
		must(t, s.Set("generate 64KiB"))
	}
	before := r.metric("spillway_rewrites_total")
	for _, path := range []string{"/api/v1/series", "/api/v1/labels", "/api/v1/label/job/values", "/api/v1/search/metric_names"} {
		got := r.asks(path, "match[]", `{job!=""}`)
		if got.status != 422 || strings.Contains(string(got.body), "try ") || strings.Contains(string(got.body), `"rewrite"`) {
			t.Errorf("%s: %s", path, got)
		}
	}
	if n := r.metric("spillway_rewrites_total") - before; n != 0 {
		t.Errorf("%v were looked for", n)
	}
	for id, want := range map[endpoint.ID]bool{
		endpoint.Query: true, endpoint.QueryRange: true, endpoint.QueryExemplars: true, endpoint.Federate: true, endpoint.Read: false,
		endpoint.Series: false, endpoint.Labels: false, endpoint.LabelValues: false, endpoint.FormatQuery: false,
	} {
		if rewritable(id) != want {
			t.Errorf("%s: %t", id, !want)
		}
	}
}

// TestRewritesLeakNothing: neither what a tenant's matchers are nor what others have stands in a
// rewrite, and what he is told to ask he may ask.
func TestRewritesLeakNothing(t *testing.T) {
	t.Parallel()
	w := newTenantWorld(t, "max_series: 3") // he sees four of each
	w.s.rewriteTime = patience
	now := time.Now()
	window := func(d time.Duration, step string, query string) url.Values {
		return url.Values{"start": {stamp(now.Add(-d))}, "end": {stamp(now)}, "step": {step}, "query": {query}}
	}
	at := func(query string) url.Values { return url.Values{"query": {query}} }
	warm := w.ask("all", http.MethodGet, "/api/v1/query", at(`count({__name__=~".+",shard=~"s.*"})`), nil)
	if warm.status != 200 {
		t.Fatal(warm)
	}
	(&rig{t: t, s: w.s}).eventually("shards have told of what they have", func() bool {
		st := w.s.state.Load()
		for _, g := range st.top.Groups {
			for _, sh := range g.Shards {
				if _, ok := st.known.Sizes.Of(sh, "requests_total"); !ok {
					return false
				}
			}
		}
		return true
	})
	rewritten := 0
	for _, tc := range []struct {
		path string
		form url.Values
	}{
		{"/api/v1/query", at(`{__name__!=""}`)},
		{"/api/v1/query", at(`count({path!=""})`)},
		{"/api/v1/query", at(`topk(3, count by (__name__) ({__name__=~".+"}))`)},
		{"/api/v1/query", at(`rate(requests_total[3h])`)},
		{"/api/v1/query", at(`sum by (namespace) (rate(requests_total[2d]))`)},
		{"/api/v1/query_range", window(6*time.Hour, "60", `requests_total`)},
		{"/api/v1/query_range", window(2*time.Hour, "0.5", `sum(up)`)},
		{"/api/v1/query", at(`requests_total`)}, // by now his matchers are in it
		{"/api/v1/query", at(`requests_total{path!="x"} * 2`)},
		{"/api/v1/query", at(`quantile(0.5, requests_total)`)},
		{"/federate", url.Values{"match[]": {`{path!=""}`}}},
	} {
		got := w.ask("research", http.MethodGet, tc.path, tc.form, nil)
		if got.status != 422 {
			t.Errorf("%v is not refused: %s", tc.form, got)
			continue
		}
		text := string(got.body)
		if strings.Contains(text, canary) || strings.Contains(text, `=~\\\"research-`) || strings.Contains(text, "research-.+") {
			t.Errorf("%v: %s", tc.form, text)
		}
		if strings.Contains(text, `"rewrite"`) {
			rewritten++
		}
		if strings.Contains(text, "estimated at") { // which tells of all series of a shard
			t.Errorf("%v: %s", tc.form, text)
		}
	}
	// Nor is he told what was only estimated, where he asks for the plan alone.
	target := w.url + "/api/v1/query?" + at("rate(requests_total[3h])").Encode()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer token-of-research")
	req.Header.Set(explainHeader, explainPlan)
	got := (&rig{t: t, client: w.client}).ask(req)
	if text := string(got.body); strings.Contains(text, "try ") || !strings.Contains(text, "max_range is 2h") {
		t.Errorf("%s", got)
	}
	if rewritten < 6 {
		t.Errorf("only %d have a rewrite", rewritten)
	}
}

// BenchmarkRefusal is what a refusal takes that has no rewrite, or for which there is no time now:
// none of it is to be dearer for rewrites.
func BenchmarkRefusal(b *testing.B) {
	r := tooLongRig(b, `deny: [{name: wall, reason: no, query: "sum(up)"}]
limits: {max_range: 1d}
`)
	for _, tc := range []struct {
		name, query     string
		pressed, afresh bool
	}{
		{"deny rule", "sum(up)", false, false},
		{"syntax", "sum(up", false, false},
		{"bound while others wait", tooLong, true, false},
		{"bound remembered", tooLong, false, false},
		{"bound, searched and tried", tooLong, false, true},
		{"bound, searched in vain", strings.Repeat("rate(up[2d]) + ", 250) + "absent(up)", false, true},
	} {
		b.Run(tc.name, func(b *testing.B) {
			if tc.pressed {
				r.s.poolNow().Tighten(qerr.New(qerr.Overloaded, "full"))
				defer r.s.poolNow().Tighten(nil)
			}
			form := url.Values{"query": {tc.query}}.Encode()
			b.ReportAllocs()
			for b.Loop() {
				if tc.afresh { // nothing is remembered, nor counted
					r.s.rewrites = rewrites{places: r.s.rewrites.places}
				}
				req := httptest.NewRequest(http.MethodGet, "/api/v1/query?"+form, nil)
				if client, qe := r.s.road(httptest.NewRecorder(), req, nil); qe == nil {
					b.Fatal("it is not refused")
				} else {
					qe.WriteTo(client)
				}
			}
		})
	}
}

// TestExplainTriesNothing: whoever asks for the plan alone is told a rewrite that is estimated, and
// no shard is asked.
func TestExplainTriesNothing(t *testing.T) {
	t.Parallel()
	r := tooLongRig(t, "limits: {max_range: 1d}\n")
	before := r.queried()
	req := r.request(context.Background(), asking{path: "/api/v1/query"}, "query", tooLong)
	req.Header.Set(explainHeader, explainPlan)
	got := r.ask(req)
	if !strings.Contains(string(got.body), "try rate(up[") || !strings.Contains(string(got.body), "(estimated at ") {
		t.Errorf("%s", got)
	}
	if n := r.queried() - before; n != 0 {
		t.Errorf("%d queries were asked of shards", n)
	}
}

// TestAdvised: what to try stands before what is done now.
func TestAdvised(t *testing.T) {
	for advice, want := range map[string]string{
		"": "try x", "use step=2s": "try x, or use step=2s",
		"now: add a matcher; for good: record it": "now: try x, or add a matcher; for good: record it",
	} {
		if got := advised("try x", advice); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for text, want := range map[string]int64{
		"at least 61": 61, "about 8.5KiB": 8704, "more than 1024": 1024, "2d": 2, "": 0, "{le!=\"\"}": 0, "99999999999999999999": 0,
	} {
		if got := seenIn(text); got != want {
			t.Errorf("%q is %d, want %d", text, got, want)
		}
	}
}
