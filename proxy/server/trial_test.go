package server

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/cost"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// justNow is when queries of these tests are about: what is long ago may be evaluated elsewhere.
var justNow = strconv.FormatInt(time.Now().Unix(), 10)

// answerOf is what a shard says to an instant query; NOW in it is justNow.
func answerOf(query, body string) fakeshard.Route {
	body = strings.ReplaceAll(body, "NOW", justNow)
	return fakeshard.Route{Path: "/api/v1/query", Query: query, Script: "header Content-Type application/json; send '" + body + "'"}
}

// TestTriedIsWhole: what was not answered whole, or with nothing in the end, is not said to have
// been tried, whatever shards sent.
func TestTriedIsWhole(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, more string
		form       []string
		set        func(r *rig)
	}{
		{"shards warn", "", []string{"query", tooLong, "time", justNow}, func(r *rig) {
			for i, s := range r.all() {
				must(t, s.Set("", shorter(func(query string) fakeshard.Route {
					return answerOf(query, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"job":"`+strconv.Itoa(i)+`"},"value":[NOW,"1"]}]},"warnings":["a block is missing"]}`)
				})...))
			}
		}},
		{"a shard is silent, and the caller does without it", "", []string{"query", tooLong, "partial_response", "true"}, func(r *rig) {
			must(t, r.all()[0].Set("", shorter(func(query string) fakeshard.Route {
				return fakeshard.Route{Path: "/api/v1/query", Query: query, Script: "reset"}
			})...))
		}},
		{"a bound in shadow would have cut it", "max_series: 1, shadow: [max_series], ", []string{"query", tooLong}, nil},
		{"the answer is empty", "", []string{"query", tooLong}, func(r *rig) {
			for _, s := range r.all() {
				must(t, s.Set("", shorter(func(query string) fakeshard.Route {
					return answerOf(query, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
				})...))
			}
		}},
		{"a number", "", []string{"query", "scalar(rate(up[2d]))"}, nil},
		{"nothing is wrong", "", []string{"query", tooLong, "time", justNow}, func(r *rig) {
			for i, s := range r.all() {
				must(t, s.Set("", shorter(func(query string) fakeshard.Route {
					return answerOf(query, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"job":"`+strconv.Itoa(i)+`"},"value":[NOW,"1"]}]}}`)
				})...))
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := tooLongRig(t, "limits: {"+tc.more+"max_range: 1d}\n")
			if tc.set != nil {
				tc.set(r)
			}
			got := r.asks("/api/v1/query", tc.form...)
			want := tc.name == "nothing is wrong"
			if got.status != 422 || strings.Contains(got.message.Error, "tried") != want ||
				strings.Contains(string(got.body), `"tried":true`) != want {
				t.Errorf("%s", got)
			}
			if n := r.metric("spillway_rewrites_total", "outcome=tried"); n > 0 != want {
				t.Errorf("%v were counted as tried", n)
			}
		})
	}
}

// shorter are scripts for all that may be asked instead of tooLong.
func shorter(script func(query string) fakeshard.Route) (out []fakeshard.Route) {
	for _, d := range []string{"1d", "12h", "6h", "3h", "1h", "30m", "15m", "5m"} {
		out = append(out, script("rate(up["+d+"])"))
	}
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWitness: it knows what an answer has, however it is cut into writes, and is not misled by
// what stands in strings.
func TestWitness(t *testing.T) {
	const hostile = `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"\"metric\":{\"warnings\":["},"values":[[1,"2"]]},{"metric":{},"values":[]}]}`
	for _, tc := range []struct {
		id     endpoint.ID
		text   string
		series int64
		warned bool
	}{
		{endpoint.QueryRange, hostile + "}", 2, false},
		{endpoint.QueryRange, hostile + `,"warnings":["x"]}`, 2, true},
		{endpoint.Query, `{"status":"success","data":{"resultType":"vector","result":[]}}`, 0, false},
		{endpoint.Query, `{"status":"success","data":{"resultType":"scalar","result":[1,"NaN"]}}`, 0, false},
		{endpoint.QueryExemplars, `{"status":"success","data":[{"seriesLabels":{},"exemplars":[]}]}`, 1, false},
		{endpoint.Federate, "", 0, false},
		{endpoint.Federate, "# TYPE up gauge", 1, false},
	} {
		for size := 1; size <= len(tc.text)+1; size++ {
			w := &witness{nowhere: nowhere{http.Header{}}}
			for text := tc.text; text != ""; {
				n := min(size, len(text))
				if _, err := w.Write([]byte(text[:n])); err != nil {
					t.Fatal(err)
				}
				text = text[n:]
			}
			if got := w.results(tc.id); got != tc.series || w.warned != tc.warned {
				t.Fatalf("%s in writes of %d: %d series, warned: %t", tc.text, size, got, w.warned)
			}
		}
	}
}

// TestTrialBounds: a trial has the least of its own bounds, of those of whoever was refused, and of
// what is cheap.
func TestTrialBounds(t *testing.T) {
	large := config.Limits{
		Timeout: time.Hour, MaxSeries: 1 << 30, MaxSeriesTouched: 1 << 30, MaxSamples: 1 << 40, MaxResponseBytes: 1 << 40,
		MaxShardBytes: 1 << 40, MaxRange: time.Hour,
	}
	small := config.Limits{
		Timeout: time.Second, MaxSeries: 2, MaxSeriesTouched: 9, MaxSamples: 3, MaxResponseBytes: 4, MaxShardBytes: 5,
		MaxRange: time.Minute,
	}
	for name, got := range map[string]config.Limits{
		"its own": (&trial{limits: large}).bound(small, 1<<40), "of who was refused": (&trial{limits: small}).bound(large, 1<<40),
	} {
		if got != small {
			t.Errorf("%s: %+v", name, got)
		}
	}
	got := (&trial{limits: large}).bound(large, 160<<20)
	if got.MaxSeries != cheapSeries || got.MaxSamples != cheapSamples || got.MaxResponseBytes != 10<<20 {
		t.Errorf("what is cheap: %+v", got)
	}
}

// TestTrialIsHeldToItsBounds: a candidate that turns out to be dearer than its estimate is ended by
// what is cheap, though the caller may ask for more.
func TestTrialIsHeldToItsBounds(t *testing.T) {
	t.Parallel()
	r := tooLongRig(t, "limits: {max_range: 1d, max_response_bytes: 64MiB}\nmemory: {budget: 16MiB}\n")
	for _, s := range r.all() { // 1 MiB is a sixteenth of the budget
		must(t, s.Set("", shorter(func(query string) fakeshard.Route {
			return fakeshard.Route{Path: "/api/v1/query", Query: query, Script: "generate 2MiB vector"}
		})...))
	}
	got := r.asks("/api/v1/query", "query", tooLong)
	if got.status != 422 || strings.Contains(got.message.Error, "tried") {
		t.Errorf("%s", got)
	}
	r.idle()
}

// TestLabelsOfManyAreNotAsked: of a selector with so many series that they would not be tried, no
// labels are looked up and nothing is counted.
func TestLabelsOfManyAreNotAsked(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		series int
		asked  bool
	}{{900_000, false}, {900, true}} {
		r := tooLongRig(t, "limits: {max_series: 1}\n")
		st := r.s.state.Load()
		for _, g := range st.top.Groups {
			for _, sh := range g.Shards {
				told := fmt.Sprintf(`{"data":{"headStats":{"numSeries":1000000,"minTime":1},"seriesCountByMetricName":[{"name":"many","value":%d}]}}`, tc.series)
				must(t, st.known.Sizes.Names(sh).Learn(strings.NewReader(told), time.Now(), 0))
			}
		}
		for _, s := range r.all() {
			must(t, s.Set("", answerOf("many", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"job":"a"},"value":[NOW,"1"]},{"metric":{"job":"b"},"value":[NOW,"1"]}]}}`)))
		}
		if got := r.asks("/api/v1/query", "query", "many", "time", justNow); got.status != 422 {
			t.Errorf("%s", got)
		}
		labels := 0
		for _, s := range r.all() {
			for _, rec := range s.RequestsTo("/api/v1/labels") {
				if strings.Contains(rec.Form.Get("match[]"), "many") {
					labels++
				}
			}
		}
		if labels > 0 != tc.asked {
			t.Errorf("of %d series labels were asked for %d times", tc.series, labels)
		}
	}
}

// TestRewriteIsRemembered: whoever asks for the same again is told the same, and how long ago that
// was; no shard is asked, also where nothing was found.
func TestRewriteIsRemembered(t *testing.T) {
	t.Parallel()
	r := tooLongRig(t, "limits: {max_range: 1d}\n")
	first := r.asks("/api/v1/query", "query", tooLong)
	nothing := r.asks("/api/v1/query", "query", "absent_over_time(up[2d])")
	if !strings.Contains(first.message.Error, "(tried: ") || strings.Contains(nothing.message.Error, "try ") {
		t.Fatalf("%s %s", first, nothing)
	}
	before := r.queried()
	for range 3 {
		got := r.asks("/api/v1/query", "query", tooLong)
		if !strings.Contains(got.message.Error, "try rate(up[") || !strings.Contains(got.message.Error, "(tried") {
			t.Errorf("%s", got)
		}
		if got := r.asks("/api/v1/query", "query", "absent_over_time(up[2d])"); got.message.Error != nothing.message.Error {
			t.Errorf("%s", got)
		}
	}
	if n := r.queried() - before; n != 0 {
		t.Errorf("%d queries were asked of shards", n)
	}
	if n := r.metric("spillway_rewrites_total", "outcome=remembered"); n != 3 {
		t.Errorf("%v were counted as remembered", n)
	}
}

// TestNoRewriteForRules: of what evaluates a rule nobody reads the sentence, and nothing is tried.
func TestNoRewriteForRules(t *testing.T) {
	t.Parallel()
	r := tooLongRig(t, "limits: {max_range: 1d}\n")
	before := r.queried()
	for _, header := range []string{"Fromalert: true", "X-Rule-Uid: abc"} {
		name, value, _ := strings.Cut(header, ": ")
		req := r.request(t.Context(), asking{path: "/api/v1/query"}, "query", tooLong)
		req.Header.Set(name, value)
		if got := r.ask(req); got.status != 422 || strings.Contains(got.message.Error, "try ") {
			t.Errorf("%s: %s", header, got)
		}
	}
	if n := r.queried() - before; n != 0 {
		t.Errorf("%d queries were asked of shards", n)
	}
}

// TestRewritesOff: where the configuration says so nothing is looked for.
func TestRewritesOff(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{"try": true, "off": false} {
		r := tooLongRig(t, "limits: {max_range: 1d, rewrites: "+value+"}\n")
		before := r.queried()
		got := r.asks("/api/v1/query", "query", tooLong)
		if tried := r.queried() > before; got.status != 422 || strings.Contains(got.message.Error, "try ") != want || tried != want {
			t.Errorf("%s: %s", value, got)
		}
	}
}

// TestRewritesOfOneFlow: one address has not many of them looked for, whatever it asks, and however
// many users it says it is.
func TestRewritesOfOneFlow(t *testing.T) {
	t.Parallel()
	r := tooLongRig(t, "limits: {max_range: 1d}\n")
	busy := 0
	for i := range 40 {
		req := r.request(t.Context(), asking{path: "/api/v1/query"}, "query", tooLong+" + "+strings.Repeat("0", i+1))
		req.Header.Set("X-Grafana-User", strings.Repeat("u", i+1))
		if got := r.ask(req); got.status != 422 {
			t.Fatalf("%s", got)
		} else if !strings.Contains(got.message.Error, "try ") {
			busy++
		}
	}
	if n := r.metric("spillway_rewrites_total", "outcome=busy"); n != 10 || busy != 10 {
		t.Errorf("%d of 40 had none, %v were counted as busy, want 10", busy, n)
	}
}

// TestRefusalsTeachNothing: neither a refused query nor what is tried and counted for it changes
// what anything is estimated to take.
func TestRefusalsTeachNothing(t *testing.T) {
	t.Parallel()
	r := tooLongRig(t, "limits: {max_range: 1d, max_series: 1}\n")
	st := r.s.state.Load()
	estimates := func() (out []int64) {
		for _, q := range []string{
			"up", `up{job="fake"}`, `up{cluster="jaguar"}`, "rate(up[1d])", "rate(up[12h])",
			"topk(10, up)", `up{instance="jaguar-0"}`,
		} {
			x := &exchange{s: r.s, st: st, said: &endpoint.Request{ID: endpoint.Query, Query: q}}
			e, err := x.scaleOf(t.Context()).estimate(x.said)
			if e == nil {
				t.Fatal(q, err)
			}
			out = append(out, e.Selected, e.Series, e.Bytes)
		}
		return out
	}
	before, compared := estimates(), r.metric("spillway_estimate_ratio")
	for _, q := range []string{tooLong, "rate(up[2d]) * 2", "up", "up * 2"} {
		if got := r.asks("/api/v1/query", "query", q); got.status != 422 {
			t.Fatalf("%s", got)
		}
	}
	if n := r.metric("spillway_rewrites_total"); n == 0 {
		t.Fatal("nothing was looked for")
	}
	after := estimates()
	for i := range before {
		if after[i] != before[i] {
			t.Errorf("estimates were %v and are %v", before, after)
			break
		}
	}
	r.eventually("no request is in flight", func() bool { return r.metric("spillway_requests_in_flight") == 0 })
	if n := r.metric("spillway_estimate_ratio"); n != compared {
		t.Errorf("%v trials were compared with their estimates", n-compared)
	}
}

// TestCountsForTrialsTeachNothing: nor does what is counted to weigh a candidate that is tried
// teach how many series its selector has, or others of the same shape.
func TestCountsForTrialsTeachNothing(t *testing.T) {
	t.Parallel()
	s, base, now := weighed(t, 100, "limits: {max_range: 50m, max_shard_bytes: 400KiB}\n")
	s.rewriteTime, s.lightSeries = patience, 1 // all is looked at
	known := &s.state.Load().known
	const asked, alike = `requests_total{node=~"n1.?"}`, `requests_total{node=~"n2.?"}`
	learned := func() (out []cost.Shown) {
		for _, text := range []string{asked, alike} {
			ms, err := tree.Parser.ParseMetricSelector(text)
			must(t, err)
			for _, shape := range []bool{false, true} {
				shown, _ := known.Learned.Look(cost.PrintOfSelector("", ms, shape))
				out = append(out, shown)
			}
		}
		return out
	}
	ask := func(selector string, over time.Duration) (int, []byte) {
		return ask(t, base, "/api/v1/query_range", url.Values{
			"query": {"sum(rate(" + selector + "[1m]))"}, "start": {stamp(now.Add(-over))}, "end": {stamp(now)}, "step": {"15"},
		})
	}
	if code, body := ask(`up{node="n1"}`, time.Minute); code != 200 { // then a shard is asked what it has
		t.Fatalf("%d %s", code, body)
	}
	(&rig{t: t, s: s}).eventually("the sizes of metrics are known", func() bool {
		return !slices.ContainsFunc(s.state.Load().top.Groups[0].Shards, func(sh *shard.Shard) bool {
			_, ok := known.Sizes.Of(sh, "requests_total")
			return !ok
		})
	})
	before, counted := learned(), seriesCounts(t, s)
	if code, body := ask(asked, time.Hour); code != 422 || !strings.Contains(string(body), "(tried: ") || seriesCounts(t, s) == counted {
		t.Fatalf("%v were counted: %d %s", seriesCounts(t, s)-counted, code, body)
	}
	tried := regexp.MustCompile(`\(tried( [0-9]+s ago)?: 1 series, 242 samples in `) // of 121 steps
	if code, body := ask(asked, time.Hour); !tried.Match(body) {
		t.Errorf("%d %s", code, body)
	}
	if after := learned(); !slices.Equal(after, before) {
		t.Errorf("what was learned was %v and is %v", before, after)
	}
	if code, body := ask(alike, 40*time.Minute); code != 200 { // of what is no trial it is learned
		t.Errorf("%d %s", code, body)
	}
	if after := learned(); slices.Equal(after, before) {
		t.Errorf("nothing was learned of a request: %v", after)
	}
}

// TestUnknownSizesAreNotTried: where a shard has told nothing of itself and no answer has shown how
// much there is, no estimate is believed: nothing is tried, nor proposed.
func TestUnknownSizesAreNotTried(t *testing.T) {
	t.Parallel()
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}}, "limits: {max_range: 1d}\n")
	r.s.rewriteTime = patience
	for _, s := range r.all() {
		must(t, s.Set("", fakeshard.Route{Path: "/api/v1/status/tsdb", Script: "status 404"}))
	}
	r.asks("/api/v1/query", "query", "up")
	for _, tc := range []struct {
		query string
		tried bool
	}{
		{"rate(another_metric[2d])", false}, {"rate(up[2d]) / rate(another_metric[2d])", false}, {tooLong, true},
	} {
		before := r.queried()
		got := r.asks("/api/v1/query", "query", tc.query)
		if got.status != 422 || strings.Contains(got.message.Error, "try ") != tc.tried {
			t.Errorf("%s: %s", tc.query, got)
		}
		if n := r.queried() - before; n > 0 != tc.tried {
			t.Errorf("%s: %d queries were asked of shards", tc.query, n)
		}
	}
	r.idle()
}

// TestRewriteFaults: a fault while a rewrite is looked for is counted, and costs nobody the
// refusal.
func TestRewriteFaults(t *testing.T) {
	t.Parallel()
	r := tooLongRig(t, "limits: {max_range: 1d}\n")
	x := &exchange{s: r.s} // which has no context
	if _, ok, _ := x.propose(&qerr.Error{Bound: policy.BoundMaxRange}); ok || r.metric("spillway_panics_total") != 1 {
		t.Errorf("%v, %v faults were counted", ok, r.metric("spillway_panics_total"))
	}
}

// TestRewriteBelowAPrefix: what is to be asked stands where the API does.
func TestRewriteBelowAPrefix(t *testing.T) {
	t.Parallel()
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}}, "limits: {max_range: 1d}\n",
		func(o *Options) { o.RoutePrefix, o.RewriteTime = "/at", patience })
	r.asks("/at/api/v1/query", "query", "up")
	got := r.asks("/at/api/v1/query", "query", tooLong)
	if !strings.Contains(string(got.body), `"path":"/at/api/v1/query"`) {
		t.Errorf("%s", got)
	}
}

// TestRewriteIsOnTheConsole: the page that says why a request was refused, and its JSON, have the
// rewrite, ready to be sent.
func TestRewriteIsOnTheConsole(t *testing.T) {
	t.Parallel()
	r := tooLongRig(t, "limits: {max_range: 1d}\n")
	got := r.asks("/api/v1/query", "query", tooLong)
	for _, path := range []string{"/refusals/" + got.header.Get("X-Spillway-Request-Id"), "/api/spillway/v1/refusals"} {
		resp, err := r.client.Get(r.admin + path)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		must(t, resp.Body.Close())
		if want := "/api/v1/query?query=" + url.QueryEscape("rate(up[1d])"); !strings.Contains(string(body), want) {
			t.Errorf("%s lacks %s: %s", path, want, body)
		}
	}
}
