package server

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/answer"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// halvedNodes is the configuration of two shards that have a half each of the series of 60 nodes,
// asked through what is before them.
func halvedNodes(t *testing.T, now time.Time, before ...func(url string) string) string {
	all := scraped(60, now.Add(-30*time.Minute), now.Add(-time.Second), 0, nil)
	config := "groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    shards:\n"
	for i := range 2 {
		var held []storedSeries
		for j, s := range all {
			if j/2%2 == i {
				held = append(held, s)
			}
		}
		address := promShard(t, labels.EmptyLabels(), held).URL()
		for _, f := range before {
			address = f(address)
		}
		config += fmt.Sprintf("      - {replicas: [{url: %q}]}\n", address)
	}
	return config
}

// TestStatsGiveWay: statistics count the samples of one evaluation, so that all series are read for
// them; where these are more than may be held the shards compute what they can, and the answer says
// that it has none, as Prometheus' web UI asks for them with every query.
func TestStatsGiveWay(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	s, small := startProxy(t, t.Context(), halvedNodes(t, now)+"limits: {max_series: 25}\n")
	const left = "statistics are left out"
	for _, tc := range []struct {
		query       string
		code        int
		stats, says bool
	}{
		{"sum(rate(requests_total[10m]))", 200, false, true},
		{`sum(rate(requests_total{node=~"n[1-9]"}[10m]))`, 200, true, false},
		{"stddev(rate(requests_total[10m]))", 422, false, false},
		{"time()", 200, true, false},
	} {
		for path, form := range map[string]url.Values{
			"/api/v1/query":       {"time": {stamp(now.Add(-time.Minute))}},
			"/api/v1/query_range": {"start": {stamp(now.Add(-10 * time.Minute))}, "end": {stamp(now.Add(-time.Minute))}, "step": {"60"}},
		} {
			form.Set("query", tc.query)
			_, want := ask(t, small, path, form)
			for _, asked := range []string{"true", "all"} {
				form.Set("stats", asked)
				code, got := ask(t, small, path, form)
				var m struct {
					Data struct {
						Result json.RawMessage
						Stats  json.RawMessage
					}
					Infos []string
				}
				if err := json.Unmarshal(got, &m); err != nil {
					t.Fatal(err)
				}
				if code != tc.code || (m.Data.Stats != nil) != tc.stats || strings.Contains(strings.Join(m.Infos, "\n"), left) != tc.says {
					t.Errorf("%s %s: %d %.700s", path, tc.query, code, got)
				}
				if tc.code == 200 {
					_, result, _ := strings.Cut(string(want), `"result":`)
					if !strings.HasPrefix(result, string(m.Data.Result)) {
						t.Errorf("%s %s: %.300s, want %.300s", path, tc.query, m.Data.Result, result)
					}
				}
			}
		}
	}
	r := &rig{t: t, s: s}
	r.eventually("all memory is given back", func() bool { return r.s.poolNow().InUse() == 0 })
}

// TestStatsGivenUpTeachNothing: what was expected of an answer whose statistics were given up was
// that all series are read, which is not compared with what the shards computed.
func TestStatsGivenUpTeachNothing(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	s, base := startProxy(t, t.Context(), halvedNodes(t, now)+"limits: {max_series: 25}\n")
	r := &rig{t: t, s: s}
	compared := func() float64 { return r.metric("spillway_estimate_ratio", "endpoint=query_range", "of=series") }
	form := url.Values{
		"query": {"sum(rate(requests_total[10m]))"}, "step": {"60"},
		"start": {stamp(now.Add(-10 * time.Minute))}, "end": {stamp(now.Add(-time.Minute))},
	}
	for i, asked := range []string{"", "true", ""} {
		before := compared()
		form.Set("stats", asked)
		if asked == "" {
			form.Del("stats")
		}
		if code, body := ask(t, base, "/api/v1/query_range", form); code != 200 {
			t.Fatalf("%d %s", code, body)
		}
		r.eventually("the request is over", func() bool { return r.metric("spillway_requests_in_flight") == 0 })
		if n := compared() - before; (n == 0) != (asked != "") {
			t.Errorf("request %d, stats %q: compared %v times", i, asked, n)
		}
	}
}

// refreshed asks for the same query again and again, with statistics.
type refreshed struct {
	*rig
	now  time.Time
	sent atomic.Int64 // bytes of shards' answers about series and to parts of the query
}

// newRefreshed starts halvedNodes with more configuration; asking begins once both are known.
func newRefreshed(t *testing.T, more string, change ...func(*Options)) *refreshed {
	r := &refreshed{rig: &rig{t: t, client: newClient(t)}, now: time.Now().Truncate(time.Second)}
	r.config = halvedNodes(t, r.now, func(address string) string {
		to, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		p := httputil.NewSingleHostReverseProxy(to)
		p.ErrorLog = log.New(io.Discard, "", 0) // what is left in the middle
		p.ModifyResponse = func(resp *http.Response) error {
			if path := resp.Request.URL.Path; slices.Contains([]string{"/api/v1/read", "/api/v1/query", "/api/v1/query_range"}, path) {
				resp.Body = &sentBody{resp.Body, &r.sent}
			}
			return nil
		}
		front := httptest.NewServer(p)
		t.Cleanup(front.Close)
		return front.URL
	})
	r.s, r.url = startProxy(t, t.Context(), r.config+more, change...)
	return r
}

// sentBody counts what is read of a body.
type sentBody struct {
	io.ReadCloser
	sent *atomic.Int64
}

func (b *sentBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.sent.Add(int64(n))
	return n, err
}

// form is the query over the minutes until now.
func (r *refreshed) form(minutes int) url.Values {
	return url.Values{
		"query": {"sum(rate(requests_total[10m]))"}, "step": {"60"}, "stats": {"true"},
		"start": {stamp(r.now.Add(-time.Duration(minutes+1) * time.Minute))}, "end": {stamp(r.now.Add(-time.Minute))},
	}
}

// refresh asks for the query over the minutes until now, and returns how many bytes shards sent for
// it, and whether it has statistics and not an info that it has none.
func (r *refreshed) refresh(minutes int, change ...func(url.Values)) (sent int64, stats bool) {
	r.t.Helper()
	form := r.form(minutes)
	for _, f := range change {
		f(form)
	}
	before := r.sent.Load()
	code, body := ask(r.t, r.url, "/api/v1/query_range", form)
	r.idle()
	stats = strings.Contains(string(body), `"stats":`)
	if left := strings.Contains(string(body), "statistics are left out"); code != 200 || form.Has("stats") && stats == left {
		r.t.Fatalf("%s: %d %.700s", form.Encode(), code, body)
	}
	return r.sent.Load() - before, stats
}

// expires makes what is remembered expire.
func (r *refreshed) expires() {
	r.s.uncounted.mu.Lock()
	defer r.s.uncounted.mu.Unlock()
	for form, f := range r.s.uncounted.seen {
		f.until = f.until.Add(-inexactTime)
		r.s.uncounted.seen[form] = f
	}
}

// TestStatsThatGaveWay: a query whose statistics gave way is not read for them again at each
// refresh, but some minutes later.
func TestStatsThatGaveWay(t *testing.T) {
	r := newRefreshed(t, "limits: {max_series: 25}\n")
	without := func(form url.Values) { form.Del("stats") }
	longer := func(form url.Values) { // the text alone is more than is remembered of others
		form.Set("query", form.Get("query")+" # "+strings.Repeat("x", maxInexactBytes))
	}
	little, _ := r.refresh(10, without)
	if r.refresh(10, func(form url.Values) { form.Set("query", `up{node="n1"}`) }); len(r.s.uncounted.seen) > 0 {
		t.Error("what has its statistics is remembered")
	}
	for _, tc := range []struct {
		name    string
		minutes int
		change  func(url.Values)
		much    bool
	}{
		{"first", 10, nil, true},
		{"refresh", 10, nil, false},
		{"refresh, later", 10, func(form url.Values) {
			form.Set("start", stamp(r.now.Add(-10*time.Minute)))
			form.Set("end", stamp(r.now))
		}, false},
		{"all of them", 10, func(form url.Values) { form.Set("stats", "all") }, false},
		{"another range", 9, nil, true},
		{"another lookback", 10, func(form url.Values) { form.Set("lookback_delta", "1m") }, true},
		{"a long one", 10, longer, true},
		{"a long one, refresh", 10, longer, false},
		{"expired", 10, func(url.Values) { r.expires() }, true},
		{"refresh after that", 10, nil, false},
	} {
		if tc.change == nil {
			tc.change = func(url.Values) {}
		}
		sent, stats := r.refresh(tc.minutes, tc.change)
		if stats || (sent > 4*little) != tc.much {
			t.Errorf("%s: shards sent %d bytes, without statistics %d; has statistics: %v", tc.name, sent, little, stats)
		}
	}
	for form := range r.s.uncounted.seen {
		if len(form) > 64 {
			t.Errorf("%d bytes are remembered of a query", len(form))
		}
	}
}

// TestStatsOfOthersStay: statistics that gave way under one tenant's bounds do not under another's,
// nor under those of another configuration.
func TestStatsOfOthersStay(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "spillway.yaml")
	tenants := ""
	for name, most := range map[string]int{"red": 25, "blue": 25, "wide": 100} {
		writeText(t, filepath.Join(dir, name), "token-of-"+name)
		tenants += fmt.Sprintf("  - {name: %s, bearer_token_file: %q, limits: {max_series: %d}}\n", name, filepath.Join(dir, name), most)
	}
	r := newRefreshed(t, "tenants:\n"+tenants, func(o *Options) { o.ConfigFile = file })
	w := &tenantWorld{t: t, s: r.s, url: r.url, client: r.client}
	form := url.Values{"query": {"sum(rate(requests_total[10m]))"}, "stats": {"true"}, "time": {stamp(r.now.Add(-time.Minute))}}
	asks := func(who string, stats, much bool) {
		t.Helper()
		before := r.sent.Load()
		got := w.ask(who, http.MethodGet, "/api/v1/query", form, nil)
		r.idle()
		sent := r.sent.Load() - before
		if got.status != 200 || strings.Contains(string(got.body), `"stats":`) != stats || (sent > 2000) != much {
			t.Errorf("%s: %d bytes were sent: %s", who, sent, got)
		}
	}
	asks("red", false, true)
	asks("red", false, false)
	asks("wide", true, true)
	asks("blue", false, true) // what is remembered of red's could tell that red has asked
	asks("blue", false, false)
	asks("red", false, false)
	writeText(t, file, r.config+"tenants:\n"+strings.ReplaceAll(tenants, "max_series: 25", "max_series: 99"))
	if err := r.s.Reload(); err != nil {
		t.Fatal(err)
	}
	asks("red", true, true)
}

// TestStatsGiveWayToMemory: statistics that gave way since others held memory.budget are there once
// these have gone.
func TestStatsGiveWayToMemory(t *testing.T) {
	r := newRefreshed(t, "limits: {max_series: 200}\n")
	form := r.form(10)
	form.Set("query", `sum({job="node"})`) // of 120 series, and shards send one each
	form.Set("step", "2")
	pool := r.s.poolNow()
	limit := pool.Limit()
	asks := func() (stats, left bool) { // or it is refused where not even what is left of it has room
		_, body := ask(t, r.url, "/api/v1/query_range", form)
		r.idle()
		return strings.Contains(string(body), `"stats":`), strings.Contains(string(body), "statistics are left out")
	}
	left := false
	for n := int64(32); n > 0 && !left; n-- {
		pool.SetLimit(n << 16)
		_, left = asks()
	}
	pool.SetLimit(limit)
	if !left {
		t.Fatal("they never gave way; that is no test")
	}
	if stats, _ := asks(); !stats {
		t.Error("they are left out though there is room")
	}
}

// TestStatsNotReadTeach: where no series are read for statistics that gave way before, what was
// expected is compared with what the answer took.
func TestStatsNotReadTeach(t *testing.T) {
	r := newRefreshed(t, "limits: {max_series: 25}\n")
	for i := range 3 {
		before := r.metric("spillway_estimate_ratio", "endpoint=query_range", "of=series")
		r.refresh(10)
		if n := r.metric("spillway_estimate_ratio", "endpoint=query_range", "of=series") - before; (n > 0) != (i > 0) {
			t.Errorf("request %d: compared %v times", i, n)
		}
	}
}

// TestStatsOfTrials: a trial of a rewrite is asked as it is written, whatever gave way before.
func TestStatsOfTrials(t *testing.T) {
	s, _ := startProxy(t, t.Context(), halvedNodes(t, time.Now()))
	for _, of := range []*trial{nil, {}} {
		x := &exchange{s: s, st: s.state.Load(), trial: of}
		x.dec = &policy.Decision{Request: &endpoint.Request{ID: endpoint.Query, Query: "up", Stats: "true"}}
		x.gaveWay(&answer.TooManyCounted{Err: &qerr.Error{Bound: policy.BoundMaxSeries}})
		if x.leaveStats(); x.attempt.NoStats != (of == nil) {
			t.Errorf("a trial: %t, without statistics: %t", of != nil, x.attempt.NoStats)
		}
	}
}

// TestStatsOfOneServer: where one server answers for all what gave way before, as where none was
// whole then, the answer does not have the statistics that it says are left out.
func TestStatsOfOneServer(t *testing.T) {
	r := newRig(t, manyShards(1), limits(ample))
	at := time.Now().Truncate(time.Second)
	form := []string{"query", "up", "time", stamp(at), "stats", "true"}
	for _, gave := range []bool{false, true} {
		if gave {
			x := &exchange{s: r.s, st: r.s.state.Load()}
			x.limits = x.st.cfg.LimitsFor(endpoint.Query)
			x.dec = &policy.Decision{Request: &endpoint.Request{
				ID: endpoint.Query, Query: "up", Time: endpoint.At(at.UnixMilli()), Stats: "true", LookbackDelta: x.lookback(),
			}}
			x.gaveWay(&qerr.Error{Bound: policy.BoundMaxSeries})
		}
		got := r.asks("/api/v1/query", form...)
		asked := r.all()[0].RequestsTo("/api/v1/query")
		if left := strings.Contains(string(got.body), "statistics are left out"); got.status != 200 || left != gave ||
			asked[len(asked)-1].Form.Get("query") != "up" || (asked[len(asked)-1].Form.Get("stats") == "") != gave {
			t.Errorf("gave way: %t, asked %q: %s", gave, asked[len(asked)-1].Form, got)
		}
	}
}
