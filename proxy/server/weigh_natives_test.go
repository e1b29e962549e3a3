package server

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestNativeHistograms: a metric is weighed as what it is. One of native histograms that would take
// little as floats is asked in pieces, or refused, whether the selector names it or not; one of
// floats, which would be too much if they were native histograms, is asked as it is.
func TestNativeHistograms(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	var held []storedSeries
	for n := range 40 {
		nat := storedSeries{lbls: labels.FromStrings("__name__", "nat", "node", fmt.Sprintf("n%d", n))}
		flat := storedSeries{lbls: labels.FromStrings("__name__", "flat", "node", fmt.Sprintf("n%d", n))}
		for at := now.Add(-12 * time.Minute); at.Before(now); at = at.Add(15 * time.Second) {
			i := int64(len(nat.points))
			nat.points = append(nat.points, point{t: at.UnixMilli(), h: tsdbutil.GenerateTestHistogram(i)})
			flat.points = append(flat.points, point{t: at.UnixMilli(), f: float64(i)})
		}
		held = append(held, nat, flat)
	}
	shard := promShard(t, labels.EmptyLabels(), held)
	_, all := startProxy(t, t.Context(), oneShard(shard.URL(), ""))
	s, base := startProxy(t, t.Context(), oneShard(shard.URL(), "2MiB"))
	sh := s.state.Load().top.Groups[0].Shards[0]
	(&rig{t: t, s: s}).eventually("the sizes of metrics are known", func() bool {
		n, ok := s.state.Load().known.Sizes.Of(sh, "nat")
		return ok && n == 40
	})
	form := url.Values{"start": {stamp(now.Add(-5 * time.Minute))}, "end": {stamp(now)}, "step": {"15"}}
	for _, tc := range []struct {
		query  string
		pieces bool
		counts float64
	}{
		{`flat{node=~"n[12]"}`, false, 1},
		{`flat`, false, 0},
		{`sum(nat)`, false, 2},                    // and how many there are: series are read, pieces could not be joined
		{`rate(nat{node=~"n1.?"}[1m])`, false, 1}, // how many series the selector has
		{`histogram_count(nat - nat)`, true, 0},
		{`histogram_quantile(0.9, sum(rate(nat{node=~"n1.?"}[1m])))`, false, 0},
		{`nat{node="n3"}`, false, 1},
		{`sum(flat) / sum(histogram_count(nat{node="n3"}))`, false, 1},
		{`sum(nat) or nope`, false, 2}, // of which there is nothing, now
		{`sum(nat) or nope`, false, 0},
	} {
		form.Set("query", tc.query)
		before, asked := plans(t, s, planStretches), seriesCounts(t, s)
		code, got := ask(t, base, "/api/v1/query_range", form)
		if code != 200 {
			t.Errorf("%s: %d %s", tc.query, code, got)
			continue
		}
		_, want := ask(t, all, "/api/v1/query_range", form)
		sameAnswer(t, tc.query, got, want)
		if divided := plans(t, s, planStretches) > before; divided != tc.pieces {
			t.Errorf("%s: asked in pieces: %v", tc.query, divided)
		}
		if n := seriesCounts(t, s) - asked; n != tc.counts {
			t.Errorf("%s: series were counted %v times, want %v", tc.query, n, tc.counts)
		}
	}
	_, tight := startProxy(t, t.Context(), oneShard(shard.URL(), "256KiB"))
	_, _ = ask(t, tight, "/api/v1/query_range", form) // after which sizes come to be known
	for _, query := range []string{
		`label_replace(nat, "a", "b", "", "")`, `{__name__=~"na.*"}`, `{node=~"n[1-3]"}`, `avg_over_time(nat[2m:5s])`,
	} {
		form.Set("query", query)
		(&rig{t: t, s: s}).eventually(query+" is refused", func() bool {
			code, body := ask(t, tight, "/api/v1/query_range", form)
			return code == 422 && strings.Contains(string(body), `"bound":"max_shard_bytes"`)
		})
	}
	for _, query := range []string{`label_replace(flat, "a", "b", "", "")`, `{__name__=~"fl.*"}`, `avg_over_time(flat[2m:5s])`} {
		form.Set("query", query)
		if code, body := ask(t, tight, "/api/v1/query_range", form); code != 200 {
			t.Errorf("%s: %d %.300s", query, code, body)
		}
	}
}

// TestNativesByNameOrSelector: whether a metric is one of native histograms is asked once for all
// of it, or, where it is large, for what a query selects; of a window before the sizes that a
// server tells are of, whatever these are.
func TestNativesByNameOrSelector(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	var held []storedSeries
	for n := range 40 {
		nat := storedSeries{lbls: labels.FromStrings("__name__", "nat", "node", fmt.Sprintf("n%d", n))}
		for _, end := range []time.Time{now.Add(-30 * time.Hour), now} {
			for at := end.Add(-6 * time.Minute); at.Before(end); at = at.Add(15 * time.Second) {
				nat.points = append(nat.points, point{t: at.UnixMilli(), h: tsdbutil.GenerateTestHistogram(int64(len(nat.points)))})
			}
		}
		held = append(held, nat)
	}
	shard := promShard(t, labels.EmptyLabels(), held)
	for _, tc := range []struct {
		sizes   string // of nat, as the server tells
		back    time.Duration
		queries []string
		counts  []float64
		pieces  bool
	}{
		{"40", 0, []string{`sum(nat{node="n1"})`, `sum(nat{node="n2"})`}, []float64{2, 1}, false}, // and how many there are of each
		{"200000", 0, []string{`sum(nat{node="n1"})`, `sum(nat{node="n2"})`}, []float64{2, 2}, false},
		{"1", 0, []string{`sum(nat)`}, []float64{0}, false}, // which is believed
		// It has no head, and says nothing: the metric is counted, and asked about, once.
		{"", 0, []string{`sum(nat{node="n1"})`, `sum(nat{node="n2"})`}, []float64{3, 1}, false},
		{"1", 30 * time.Hour, []string{`sum(histogram_sum(nat))`}, []float64{2}, true},
	} {
		s, base := startProxy(t, t.Context(), oneShard(shard.URL(), "1MiB"))
		sizes := s.state.Load().known.Sizes.Names(s.state.Load().top.Groups[0].Shards[0])
		told := fmt.Sprintf(`{"data":{"headStats":{"numSeries":40,"minTime":%d},"seriesCountByMetricName":[{"name":"nat","value":%s}]}}`,
			now.Add(-2*time.Hour).UnixMilli(), tc.sizes)
		if tc.sizes == "" {
			told = `{"data":{"headStats":{"numSeries":0},"seriesCountByMetricName":[]}}`
		}
		if err := sizes.Learn(strings.NewReader(told), time.Now(), 0); err != nil {
			t.Fatal(err)
		}
		end := now.Add(-tc.back)
		for i, query := range tc.queries {
			asked, before := seriesCounts(t, s), plans(t, s, planStretches)
			code, body := ask(t, base, "/api/v1/query_range",
				url.Values{"query": {query}, "start": {stamp(end.Add(-5 * time.Minute))}, "end": {stamp(end)}, "step": {"10"}})
			if n := seriesCounts(t, s) - asked; code != 200 || n != tc.counts[i] {
				t.Errorf("%s series, %s ago: %s: counted %v times, want %v: %d %.300s", tc.sizes, tc.back, query, n, tc.counts[i], code, body)
			}
			if pieces := plans(t, s, planStretches) > before; pieces != tc.pieces {
				t.Errorf("%s series, %s ago: %s: asked in pieces: %v", tc.sizes, tc.back, query, pieces)
			}
		}
	}
}

// TestNativesAreNotKnown: a server that cannot be asked for native histograms is asked the query.
func TestNativesAreNotKnown(t *testing.T) {
	old := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{
		{Path: "/api/v1/query", Nth: 1, Script: `error 400 bad_data 'unknown function with name "histogram_count"'`},
	}})
	s, base := startProxy(t, t.Context(), oneShard(old.URL(), "1MiB"))
	sizes := s.state.Load().known.Sizes.Names(s.state.Load().top.Groups[0].Shards[0])
	if err := sizes.Learn(strings.NewReader(`{"data":{"seriesCountByMetricName":[{"name":"up","value":2}]}}`), time.Now(), 0); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	code, body := ask(t, base, "/api/v1/query_range",
		url.Values{"query": {"up"}, "start": {stamp(now.Add(-time.Hour))}, "end": {stamp(now)}, "step": {"15"}})
	if n := seriesCounts(t, s); code != 200 || n != 1 {
		t.Errorf("%d %.300s; series were counted %v times", code, body, n)
	}
}
