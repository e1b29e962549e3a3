package server

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/cost"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/weigh"
)

// weighed is a proxy over two real Prometheus APIs of so many nodes each.
func weighed(t *testing.T, nodes int, limits string) (*Server, string, time.Time) {
	t.Helper()
	now := time.Now().Truncate(time.Second)
	config := "groups:\n  - name: jaguar\n    shards:\n"
	for i := range 2 {
		held := scraped(nodes, now.Add(-75*time.Minute), now, 2*time.Second, nil)
		for j := range held {
			held[j].lbls = labels.NewBuilder(held[j].lbls).Set("shard", fmt.Sprint(i)).Labels()
		}
		config += fmt.Sprintf("      - replicas: [{url: %q}]\n", promShard(t, labels.EmptyLabels(), held).URL())
	}
	s, base := startProxy(t, t.Context(), config+limits)
	return s, base, now
}

// sameAnswer compares two answers, of which the second is right and not empty.
func sameAnswer(t *testing.T, query string, got, want []byte) {
	t.Helper()
	a, _ := fromJSON(t, got)
	b, _ := fromJSON(t, want)
	if d := compare(a, b, 1e-12); d != "" || len(b) == 0 {
		t.Errorf("%s: %s (%d series)", query, d, len(b))
	}
}

// oneShard is a configuration of one server, with max_shard_bytes where it is given.
func oneShard(url, bytes string) string {
	config := fmt.Sprintf("groups: [{name: jaguar, shards: [{replicas: [{url: %q}]}]}]\n", url)
	if bytes != "" {
		config += "limits: {max_shard_bytes: " + bytes + "}\n"
	}
	return config
}

func seriesCounts(t *testing.T, s *Server) float64 {
	t.Helper()
	return (&rig{t: t, s: s}).metric("spillway_series_counts_total", "")
}

// TestPieces: a range query that would make a server hold too much is asked in pieces, whose answer
// is that of the whole to the last bit; what fits, or what makes little of each series, is asked as
// it is. Series are counted once.
func TestPieces(t *testing.T) {
	whole, all, now := weighed(t, 100, "")
	small, pieces, _ := weighed(t, 100, "limits: {max_shard_bytes: 400KiB}\n")
	form := url.Values{"start": {stamp(now.Add(-time.Hour))}, "end": {stamp(now)}, "step": {"15"}}
	known := func(s *Server) {
		for _, sh := range s.state.Load().top.Groups[0].Shards {
			(&rig{t: t, s: s}).eventually("the sizes of metrics are known", func() bool {
				n, ok := s.state.Load().known.Sizes.Of(sh, "requests_total")
				return ok && n == 100
			})
		}
	}
	for _, tc := range []struct {
		query  string
		pieces bool
		counts float64
	}{
		{"sum(rate(requests_total[1m]))", true, 4}, // how many there are, and how many of them are native histograms
		{"sum(rate(requests_total[1m]))", true, 0},
		{"max by (node) (rate(requests_total[1m]) + rate(requests_total[2m]))", true, 0},
		{"rate(requests_total[1m])", true, 0},
		{`rate(requests_total{node=~"n1.?"}[1m])`, false, 2}, // few of many
		{`rate(requests_total{node=~"n1.?"}[1m])`, false, 0},
		{`up{node="n7"}`, false, 4}, // as JSON all of them would be too many
	} {
		form.Set("query", tc.query)
		before, asked := plans(t, small, planStretches), seriesCounts(t, small)
		code, got := ask(t, pieces, "/api/v1/query_range", form)
		if code != 200 {
			t.Errorf("%s: %d %s", tc.query, code, got)
			continue
		}
		_, want := ask(t, all, "/api/v1/query_range", form)
		sameAnswer(t, tc.query, got, want)
		if divided := plans(t, small, planStretches) > before; divided != tc.pieces {
			t.Errorf("%s: asked in pieces: %v", tc.query, divided)
		}
		n := seriesCounts(t, small) - asked
		known(small)
		if n != tc.counts {
			t.Errorf("%s: series were counted %v times, want %v", tc.query, n, tc.counts)
		}
	}
	if n := plans(t, whole, planStretches); n != 0 {
		t.Errorf("with the default %v queries were asked in pieces", n)
	}
	// Where all series of a metric are few, nothing is counted.
	known(whole)
	before := seriesCounts(t, whole)
	form.Set("query", `rate(requests_total{node="n3"}[1m])`)
	if code, body := ask(t, all, "/api/v1/query_range", form); code != 200 || seriesCounts(t, whole) != before {
		t.Errorf("%d %.300s; %v series were counted", code, body, seriesCounts(t, whole)-before)
	}
	// Of instant queries it is asked at most whether there are native histograms, once on each
	// shard.
	asked := seriesCounts(t, small)
	for i, query := range []string{
		"sum by (node) (rate(requests_total[5m])) / 2", "sum(up)", "requests_total", "sum by (node) (rate(requests_total[5m])) / 3",
		"up * on (node, shard) up",
	} {
		if code, body := ask(t, pieces, "/api/v1/query", url.Values{"query": {query}, "time": {stamp(now)}}); code != 200 {
			t.Errorf("%s: %d %s", query, code, body)
		}
		if n := seriesCounts(t, small) - asked; i == 0 && n != 2 || i > 0 && n > 0 {
			t.Errorf("%s had series counted %v times", query, n)
		}
		asked = seriesCounts(t, small)
	}
}

// TestWeighedBefore: what a text was found to weigh is believed for the same steps within ten
// minutes, where it is at most half of the bound, and is remembered of what was asked as it is.
func TestWeighedBefore(t *testing.T) {
	const bound = 400 << 10
	s, base, now := weighed(t, 100, "limits: {max_shard_bytes: 400KiB}\n")
	st := s.state.Load()
	const heavy, few = "sum(rate(requests_total[1m]))", `rate(requests_total{node=~"n1.?"}[1m])`
	key := func(shard int, query string, end time.Time) cost.Key {
		grid := cost.Grid{Steps: 241, Step: 15_000, Interval: 60_000, Lookback: 300_000}
		return cost.WeightKey(st.top.Groups[0].Shards[shard].Key(), query, grid, end.UnixMilli())
	}
	divided := func(query string, end time.Time, step string) bool {
		t.Helper()
		before := plans(t, s, planStretches)
		form := url.Values{"query": {query}, "start": {stamp(end.Add(-time.Hour))}, "end": {stamp(end)}, "step": {step}}
		if code, body := ask(t, base, "/api/v1/query_range", form); code != 200 {
			t.Fatalf("%s: %d %s", query, code, body)
		}
		return plans(t, s, planStretches) > before
	}
	for range 2 { // what is in pieces is weighed again each time
		if !divided(heavy, now, "15") {
			t.Fatal("it weighs too little for this test")
		}
	}
	if _, ok := st.known.Weights.Known(key(0, heavy, now)); ok {
		t.Error("what was asked in pieces is remembered as fit to be asked as it is")
	}
	divided(few, now, "15")
	for i := range 2 {
		if n, ok := st.known.Weights.Known(key(i, few, now)); !ok || n == 0 || n > bound {
			t.Errorf("shard %d was found to hold %d, %t", i, n, ok)
		}
	}
	st.known.Weights.Remember(key(0, heavy, now), bound/2)
	if !divided(heavy, now, "15") {
		t.Error("one shard was weighed, and the other one is taken for it")
	}
	st.known.Weights.Remember(key(1, heavy, now), bound/2)
	if divided(heavy, now, "15") {
		t.Error("it was weighed once more")
	}
	if !divided(heavy, now, "14") || !divided(heavy, now.Add(-11*time.Minute), "15") {
		t.Error("other steps, or those of another time, are taken for these")
	}
	for i := range 2 {
		st.known.Weights.Remember(key(i, heavy, now.Add(-11*time.Minute)), bound/2+1)
	}
	if !divided(heavy, now.Add(-11*time.Minute), "15") {
		t.Error("more than half of the bound is taken for little")
	}
}

// TestTooMuchForAServer: what pieces do not help is refused before a server evaluates it, in a
// sentence that says where, how much, and what to do.
func TestTooMuchForAServer(t *testing.T) {
	_, base, now := weighed(t, 100, "limits: {max_shard_bytes: 128KiB}\n")
	form := url.Values{"start": {stamp(now.Add(-time.Hour))}, "end": {stamp(now)}, "step": {"15"}}
	absent, leaves := "", []string{}
	for i := range 30 {
		absent += fmt.Sprintf(" or nope_%d", i)
		leaves = append(leaves, fmt.Sprintf("count(requests_total * %d)", i))
	}
	for query, path := range map[string]string{
		"max_over_time(rate(requests_total[1m])[1h:15s])":                             "/api/v1/query",
		"max_over_time(rate(requests_total[1m])[1h:15s])" + absent:                    "/api/v1/query", // as much of one metric
		strings.Join(leaves, " + "):                                                   "/api/v1/query", // each alone is little
		"sum(max_over_time(rate(requests_total[1m])[1h:15s]))":                        "/api/v1/query_range",
		`sum by (n) (label_replace(requests_total, "n", "$1", "node", "n(.*)"))`:      "/api/v1/query_range",
		"sum by (node) (rate(requests_total[1m] @ end()) + rate(requests_total[1m]))": "/api/v1/query_range",
	} {
		form.Set("query", query)
		code, body := ask(t, base, path, form)
		for _, want := range []string{
			`"bound":"max_shard_bytes"`, "a server of shard jaguar[", "max_shard_bytes allows 128KiB", "select fewer series",
		} {
			if code != 422 || !strings.Contains(string(body), want) {
				t.Errorf("%s: %d %s, want %q", query, code, body, want)
			}
		}
	}
	form.Set("query", `max_over_time(rate(requests_total{node="n3"}[1m])[1h:15s])`)
	if code, body := ask(t, base, "/api/v1/query", form); code != 200 {
		t.Errorf("one series of many: %d %s", code, body)
	}
}

// TestManySeriesAreTouched: what selects more series than max_series_touched is refused as soon as
// the shards have said how many they have, however little a server holds of each; what selects few
// of a large metric is counted and answered, and metadata is not looked at.
func TestManySeriesAreTouched(t *testing.T) {
	s, base, now := weighed(t, 100, "limits: {max_series_touched: 150}\n")
	get := func(query string) (int, string) {
		code, body := ask(t, base, "/api/v1/query", url.Values{"query": {query}, "time": {stamp(now)}})
		return code, string(body)
	}
	(&rig{t: t, s: s}).eventually("what selects 200 series is refused", func() bool {
		code, body := get("count(requests_total)")
		return code == 422 && strings.Contains(body, `"bound":"max_series_touched"`) && strings.Contains(body, "would select 200 series for this, all of requests_total")
	})
	counted := seriesCounts(t, s)
	if code, body := get(`count(requests_total{node="n3"})`); code != 200 || !strings.Contains(body, `"2"`) {
		t.Errorf("few of many: %d %s", code, body)
	}
	if n := seriesCounts(t, s) - counted; n > 2 {
		t.Errorf("%v counts of two servers", n)
	}
	form := url.Values{"match[]": {"requests_total"}, "start": {stamp(now.Add(-time.Hour))}, "end": {stamp(now)}}
	if code, body := ask(t, base, "/api/v1/series", form); code != 200 {
		t.Errorf("series: %d %.300s", code, body)
	}
}

// TestCountsAreNobodysOwn: what one caller asks for in a way of its own, another one's number does
// not come of it; nor of a moment at which there was nothing.
func TestCountsAreNobodysOwn(t *testing.T) {
	_, base, now := weighed(t, 100, "limits: {max_shard_bytes: 128KiB}\n")
	form := url.Values{"query": {"max_over_time((requests_total * 2)[5m:1s])"}, "time": {stamp(now)}}
	for _, first := range []url.Values{{"lookback_delta": {"1ms"}}, {"time": {stamp(now.Add(4 * time.Minute))}}} {
		own := url.Values{}
		for k, v := range form {
			own[k] = v
		}
		for k, v := range first {
			own[k] = v
		}
		_, _ = ask(t, base, "/api/v1/query", own)
		if code, body := ask(t, base, "/api/v1/query", form); code != 422 || !strings.Contains(string(body), `"bound":"max_shard_bytes"`) {
			t.Errorf("after %v: %d %.300s", first, code, body)
		}
	}
}

// TestLookbackIsWeighed: what looks back for a month is as much for a server as a range of a month,
// also right after the same text was weighed with the servers' own lookback.
func TestLookbackIsWeighed(t *testing.T) {
	_, base, now := weighed(t, 100, "limits: {max_shard_bytes: 128KiB}\n")
	for _, tc := range []struct {
		query, lookback string
		code            int
	}{
		{"count(requests_total)", "", 200},
		{"count(requests_total)", "31d", 422},
		{"count(requests_total)", "6m", 200},
		{"count(last_over_time(requests_total[31d]))", "", 422},
	} {
		form := url.Values{"query": {tc.query}, "time": {stamp(now)}}
		if tc.lookback != "" {
			form.Set("lookback_delta", tc.lookback)
		}
		code, body := ask(t, base, "/api/v1/query", form)
		if code != tc.code || code == 422 && !strings.Contains(string(body), `"bound":"max_shard_bytes"`) {
			t.Errorf("%+v: %d %.300s", tc, code, body)
		}
	}
}

// TestCountingFails: a shard that cannot be asked for a number is one that cannot be asked; one
// that refuses to count is asked the query itself, which it refuses or answers as it will.
func TestCountingFails(t *testing.T) {
	for _, tc := range []struct {
		script string
		nth    int
		want   string
	}{
		{"error 422 execution 'query processing would load too many samples into memory'", 1, `"status":"success"`}, // all of the metric
		{"error 422 execution 'query processing would load too many samples into memory'", 0, "would load too many samples"},
		{"reset", 1, `"status":"success"`}, // asked once more
		{"reset", 0, "broke the connection"},
		{"garbage shape", 0, "of the wrong shape"},
	} {
		bad := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{
			Path: "/api/v1/query_range", Nth: tc.nth,
			Script: tc.script,
		}}})
		_, base := startProxy(t, t.Context(), oneShard(bad.URL(), ""))
		now := time.Now()
		code, body := ask(t, base, "/api/v1/query_range", url.Values{
			"query": {"rate(up[5m])"}, "start": {stamp(now.Add(-time.Hour))}, "end": {stamp(now)}, "step": {"15"},
		})
		if !strings.Contains(string(body), tc.want) {
			t.Errorf("%s: %d %.500s, want %s", tc.script, code, body, tc.want)
		}
	}
}

// TestSizesAreNotWaitedFor: a server that does not say how large its metrics are, whatever it does
// instead, holds nobody up, is asked once, and has its series counted.
func TestSizesAreNotWaitedFor(t *testing.T) {
	for _, script := range []string{
		"stall", "flush; stall", "status 500", "status 404", "garbage shape", "send '{'; stall", "generate 3MiB",
		`send '{"status":"success","data":{}}'`,
	} {
		mute := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/api/v1/status/tsdb", Script: script}}})
		s, base := startProxy(t, t.Context(), oneShard(mute.URL(), ""))
		asked := func() (n int) {
			for _, r := range mute.Requests() {
				if r.Path == "/api/v1/status/tsdb" {
					n++
				}
			}
			return n
		}
		ended := func() bool {
			return slices.ContainsFunc(mute.Requests(), func(r fakeshard.Record) bool {
				return r.Path == "/api/v1/status/tsdb" && !r.Ended.IsZero()
			})
		}
		now := time.Now()
		for i, query := range []string{"rate(up[5m])", "rate(node_load1[5m])"} {
			began := time.Now()
			code, body := ask(t, base, "/api/v1/query_range", url.Values{
				"query": {query}, "start": {stamp(now.Add(-time.Hour))}, "end": {stamp(now)}, "step": {"15"},
			})
			waited := strings.Contains(script, "stall") && (ended() || time.Since(began) >= weigh.SizesPatience)
			if code != 200 || waited {
				t.Errorf("%s: %s: %d, and the question for sizes was waited for (%t): %.300s", script, query, code, waited, body)
			}
			if n := seriesCounts(t, s); n != float64(i+1) {
				t.Errorf("%s: %s: series were counted %v times, want %d", script, query, n, i+1)
			}
			(&rig{t: t, s: s}).eventually("the shard is asked for sizes", func() bool { return asked() > 0 })
		}
		if n := asked(); n != 1 {
			t.Errorf("%s: asked for sizes %d times", script, n)
		}
		if n, ok := s.state.Load().known.Sizes.Of(s.state.Load().top.Groups[0].Shards[0], "up"); ok {
			t.Errorf("%s: up is taken to have %d series", script, n)
		}
	}
}

// TestSickShardsAreLeftAlone: a shard that is not well is not asked how large its metrics are, and
// is asked soon after.
func TestSickShardsAreLeftAlone(t *testing.T) {
	sick := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/-/ready", Script: "status 503"}}})
	s, _ := startProxy(t, t.Context(), oneShard(sick.URL(), ""))
	sh := s.state.Load().top.Groups[0].Shards[0]
	(&rig{t: t, s: s}).eventually("the shard is known not to be well", func() bool { return !sh.Sound() })
	sizes := s.state.Load().known.Sizes
	if _, ok := sizes.Of(sh, "up"); ok {
		t.Error("up has a size that nobody told")
	}
	soon := time.Now().Add(cost.NamesAge / 2)
	(&rig{t: t, s: s}).eventually("it is put off", func() bool { return sizes.Names(sh).Due(soon) })
	for _, r := range sick.Requests() {
		if r.Path == "/api/v1/status/tsdb" {
			t.Error("the shard was asked")
		}
	}
}

// TestChosenInJoins: what a join meets that is chosen anew at each step is counted by the labels
// that it looks at. Where these tell it apart, the join is asked as it is.
func TestChosenInJoins(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	shard := promShard(t, labels.EmptyLabels(), scraped(100, now.Add(-75*time.Minute), now, 2*time.Second, nil))
	_, all := startProxy(t, t.Context(), oneShard(shard.URL(), ""))
	s, base := startProxy(t, t.Context(), oneShard(shard.URL(), "3MiB"))
	const named = `label_replace(topk by (%s) (1, requests_total), "n", "$1", "node", "(.*)")`
	copied := func(by string) string {
		return "max(requests_total * on (" + by + ") group_left (n) " + fmt.Sprintf(named, by) + ")"
	}
	chosen := "max(requests_total * on (job, node) group_left () topk by (job, node) (1, requests_total))"
	form := url.Values{"start": {stamp(now.Add(-time.Hour))}, "end": {stamp(now)}, "step": {"15"}}
	form.Set("query", "rate(nope[1m])")
	_, _ = ask(t, base, "/api/v1/query_range", form)
	(&rig{t: t, s: s}).eventually("the sizes of metrics are known", func() bool {
		_, ok := s.state.Load().known.Sizes.Of(s.state.Load().top.Groups[0].Shards[0], "up")
		return ok
	})
	for _, tc := range []struct {
		query  string
		counts float64
		code   int
		pieces bool
	}{
		{chosen, 3, 200, false}, // series, those alike, and native histograms
		{chosen, 0, 200, false},
		{strings.ReplaceAll(chosen, "job, node", "job"), 1, 200, true},
		{copied("job"), 0, 422, false},
		{copied("node"), 1, 200, false},
		{"max(topk by (job) (1, up) * ignoring (node) group_right () requests_total)", 3, 200, true},
	} {
		form.Set("query", tc.query)
		before, asked := plans(t, s, planStretches), seriesCounts(t, s)
		code, got := ask(t, base, "/api/v1/query_range", form)
		if n := seriesCounts(t, s) - asked; code != tc.code || n != tc.counts {
			t.Errorf("%s: %d %.300s; counted %v times, want %v", tc.query, code, got, n, tc.counts)
		}
		if pieces := plans(t, s, planStretches) > before; pieces != tc.pieces {
			t.Errorf("%s: asked in pieces: %v", tc.query, pieces)
		}
		if code != 200 {
			continue
		}
		_, want := ask(t, all, "/api/v1/query_range", form)
		sameAnswer(t, tc.query, got, want)
	}
}

// TestPiecesKeepTheirWidth: each piece of a query is as wide as it weighs itself, not as the whole
// or as the last one that was weighed.
func TestPiecesKeepTheirWidth(t *testing.T) {
	const bound = 400 << 10
	s, _, now := weighed(t, 100, "limits: {max_shard_bytes: 400KiB}\n")
	s.lightSeries = 1 // all is looked at
	st := s.state.Load()
	const text = "sum(rate(requests_total[1m]))"
	expr, err := tree.Parser.ParseExpr(text)
	if err != nil {
		t.Fatal(err)
	}
	req := &endpoint.Request{ID: endpoint.QueryRange, Query: text, Timeout: time.Minute, Step: 15 * time.Second}
	req.Start, req.End = endpoint.At(now.Add(-time.Hour).UnixMilli()), endpoint.At(now.UnixMilli())
	x := &exchange{
		s: s, st: st, ctx: t.Context(), req: req, decided: decided{
			dec: &policy.Decision{
				Request: req, Expr: expr, Selectors: parser.ExtractSelectors(expr),
				Windows: []policy.Window{{Start: req.Start.Ms - 60_000, End: req.End.Ms}},
			},
			limits: st.cfg.Limits.Limits, strict: st.cfg.Limits.Limits, view: plan.NewView(st.top, now),
		},
	}
	x.beginAttempt()
	defer x.budget.Close()
	whole := x.question()
	out, err := x.planPieces([]plan.Query{whole, whole.Divide(24)[0]}, nil) // the last one is a light one
	if err != nil || len(out) < 3 {
		t.Fatal(len(out), err)
	}
	last := len(out) - 1
	for _, shard := range st.top.Groups[0].Shards {
		for i, p := range out[:last] {
			if n := p.heavy[shard].Counted; n < bound/2 || n > bound {
				t.Errorf("piece %d of %d makes %s hold %d bytes", i, last, shard.Name(), n)
			}
		}
		if n := out[last].heavy[shard].Counted; n <= 0 || n > bound/3 {
			t.Errorf("the light one makes %s hold %d bytes", shard.Name(), n)
		}
	}
}

// TestListsOfMany: where a server says that it has so many series that to count them would be too
// much, it lists them, as if they had been counted; a list that is longer than an answer may be is
// too much for the query, which is not sent.
func TestListsOfMany(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	shard := promShard(t, labels.EmptyLabels(), scraped(100, now.Add(-20*time.Minute), now, 15*time.Second, nil))
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token-of-research"), 0o600); err != nil {
		t.Fatal(err)
	}
	const short = "{max_shard_bytes: 128KiB, max_response_bytes: 4KiB}"
	for _, tc := range []struct {
		name, limits, query string
		code                int
		words               string // of the refusal
	}{
		{"few", "{max_shard_bytes: 128KiB}", `count({node=~"n[1-3]"})`, 200, ""},
		{"more than a server may hold of", "{max_shard_bytes: 32KiB}", `count({node=~"n.+"})`, 422, "series that it selects there"},
		{"a long list", short, `count({node=~"n.+"})`, 422, "since the series are more than the"},
		// Who sees a part is not told how much others have.
		{"a long list of a tenant", short, `count({node=~"n.+"})`, 422, "its series are more than the"},
	} {
		text := strings.TrimSuffix(oneShard(shard.URL(), ""), "\n") + "\nlimits: " + tc.limits + "\n"
		ofTenant := strings.HasSuffix(tc.name, "tenant")
		if ofTenant {
			text += "tenants: [{name: research, bearer_token_file: " + token + ", matchers: ['{node=~\"n.*\"}']}]\n"
		}
		s, base := startProxy(t, t.Context(), text)
		top := s.state.Load()
		told := fmt.Sprintf(`{"data":{"headStats":{"numSeries":2000000,"minTime":%d},"seriesCountByMetricName":[{"name":"up","value":7}]}}`,
			now.Add(-2*time.Hour).UnixMilli())
		sizes := top.known.Sizes.Names(top.top.Groups[0].Shards[0])
		if err := sizes.Learn(strings.NewReader(told), time.Now(), 0); err != nil {
			t.Fatal(err)
		}
		w := &tenantWorld{t: t, s: s, url: base, client: newClient(t)}
		got := w.ask("research", http.MethodPost, "/api/v1/query", url.Values{"query": {tc.query}, "time": {stamp(now)}}, nil)
		if text := string(got.body); got.status != tc.code || got.status == 422 && (!strings.Contains(text, `"bound":"max_shard_bytes"`) ||
			!strings.Contains(text, tc.words) || strings.Contains(text, "hold up to") == ofTenant && strings.HasPrefix(tc.name, "a long")) {
			t.Errorf("%s: %s", tc.name, text)
		}
		if n := seriesCounts(t, s); n != 1 && strings.HasPrefix(tc.name, "a long") {
			t.Errorf("%s: it was asked for %v numbers, want one", tc.name, n)
		}
	}
}
