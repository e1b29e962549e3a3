package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestSizesOfThen: how large a metric is now is not taken for how large it was before the time that
// the server tells of; nor is a window in which there was nothing for another one, nor a series
// that is sampled seldom for none.
func TestSizesOfThen(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	var held []storedSeries
	for n := range 100 {
		node := fmt.Sprintf("n%d", n)
		gone := storedSeries{lbls: labels.FromStrings("__name__", "gone", "node", node)}
		for at := now.Add(-280 * time.Minute); at.Before(now.Add(-225 * time.Minute)); at = at.Add(15 * time.Second) {
			gone.points = append(gone.points, point{t: at.UnixMilli(), f: float64(n)})
		}
		seldom := storedSeries{lbls: labels.FromStrings("__name__", "seldom", "node", node)}
		// at no time within 5m of those that are counted at
		for at := now.Add(-102*time.Minute - 30*time.Second); at.Before(now); at = at.Add(25 * time.Minute) {
			seldom.points = append(seldom.points, point{t: at.UnixMilli(), f: float64(n)})
		}
		held = append(held, gone, seldom)
	}
	shard := promShard(t, labels.EmptyLabels(), held)
	for _, tc := range []struct {
		told   time.Duration // how far back the server's sizes reach
		from   time.Duration
		query  string
		empty  time.Duration // the same from then on is asked before, and has nothing
		pieces bool
	}{
		{5 * time.Hour, 270 * time.Minute, "stddev(gone)", 0, false}, // its size is believed
		{30 * time.Minute, 270 * time.Minute, "stddev(gone)", 0, true},
		{30 * time.Minute, 270 * time.Minute, "stddev(gone)", 54 * time.Minute, true},
		{30 * time.Minute, 270 * time.Minute, "stddev(gone)", 145 * time.Minute, true}, // which is counted together with it
		{time.Minute, 40 * time.Minute, "stddev(max_over_time(seldom[30m]))", 0, true},
		{30 * time.Minute, 10 * time.Minute, "stddev(gone offset 225m)", 0, true},
		{30 * time.Minute, 10 * time.Minute, "stddev(gone offset 225m) or sum(nope)", 0, true},
		{30 * time.Minute, 10 * time.Minute, "sum(nope) or stddev(gone offset 225m) or sum(nope offset 25d)", 0, true},
	} {
		s, base := startProxy(t, t.Context(), oneShard(shard.URL(), "512KiB"))
		sizes := s.state.Load().known.Sizes.Names(s.state.Load().top.Groups[0].Shards[0])
		told := fmt.Sprintf(`{"data":{"headStats":{"numSeries":2,"minTime":%d},"seriesCountByMetricName":[{"name":"gone","value":1}]}}`,
			now.Add(-tc.told).UnixMilli())
		if err := sizes.Learn(strings.NewReader(told), time.Now(), 0); err != nil {
			t.Fatal(err)
		}
		end := now.Add(-10 * time.Minute)
		form := url.Values{"query": {tc.query}, "end": {stamp(end)}, "step": {fmt.Sprint((tc.from / 1500).Seconds())}}
		if tc.empty > 0 {
			form.Set("start", stamp(end.Add(-tc.empty)))
			if code, body := ask(t, base, "/api/v1/query_range", form); code != 200 || !strings.Contains(string(body), `"result":[]`) {
				t.Fatalf("%d %.300s", code, body)
			}
		}
		before := plans(t, s, planStretches)
		form.Set("start", stamp(end.Add(-tc.from)))
		if code, body := ask(t, base, "/api/v1/query_range", form); code != 200 || strings.Contains(string(body), `"result":[]`) {
			t.Errorf("%+v: %d %.300s", tc, code, body)
		}
		if pieces := plans(t, s, planStretches) > before; pieces != tc.pieces {
			t.Errorf("%+v: asked in pieces: %v", tc, pieces)
		}
	}
}

// TestMomentsOfLongWindows: a server is not asked to count over a window of days, of which it would
// hold what it knows of every chunk, but at moments of it.
func TestMomentsOfLongWindows(t *testing.T) {
	shard := fakeshard.Start(t, fakeshard.Config{})
	s, base := startProxy(t, t.Context(), oneShard(shard.URL(), ""))
	now := time.Now()
	if code, body := ask(t, base, "/api/v1/query_range", url.Values{
		"query": {"rate(up[5m])"}, "start": {stamp(now.Add(-20 * 24 * time.Hour))}, "end": {stamp(now)}, "step": {"3600"},
	}); code != 200 {
		t.Fatalf("%d %.300s", code, body)
	}
	const countMoments = 5
	moments := map[string]bool{}
	for _, r := range shard.Requests() {
		if strings.HasPrefix(r.Form.Get("query"), "count(") {
			if r.Path != "/api/v1/query" {
				t.Errorf("asked to count by %s %v", r.Path, r.Form)
			}
			moments[r.Form.Get("time")] = true
		}
	}
	if len(moments) != countMoments || seriesCounts(t, s) != countMoments {
		t.Errorf("asked at %v; counted %v times", moments, seriesCounts(t, s))
	}
}

// TestEachMomentIsToBeCounted: the numbers of several moments are no copies of each other. Where
// one cannot be asked for, another one does not stand for it.
func TestEachMomentIsToBeCounted(t *testing.T) {
	for _, nth := range []int{1, 2, 5} { // of the five moments
		var counts atomic.Int64
		bad := fakeshard.Start(t, fakeshard.Config{Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
			if !strings.HasPrefix(r.Form.Get("query"), "count(") || counts.Add(1) != int64(nth) {
				return fakeshard.Answer{}, false
			}
			return fakeshard.Answer{Status: 500, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte("out of cheese")}, true
		}})
		_, base := startProxy(t, t.Context(), oneShard(bad.URL(), ""))
		now := time.Now()
		if code, body := ask(t, base, "/api/v1/query_range", url.Values{
			"query": {"rate(up[5m])"}, "start": {stamp(now.Add(-20 * 24 * time.Hour))}, "end": {stamp(now)}, "step": {"3600"},
		}); code != http.StatusBadGateway {
			t.Errorf("the count of moment %d failed: %d %.300s", nth, code, body)
		}
	}
}
