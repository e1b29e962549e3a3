package server

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// halvedNodes is the configuration of two shards that have a half each of the series of 60 nodes.
func halvedNodes(t *testing.T, now time.Time) string {
	all := scraped(60, now.Add(-30*time.Minute), now.Add(-time.Second), 0, nil)
	config := "groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    shards:\n"
	for i := range 2 {
		var held []storedSeries
		for j, s := range all {
			if j/2%2 == i {
				held = append(held, s)
			}
		}
		config += fmt.Sprintf("      - {replicas: [{url: %q}]}\n", promShard(t, labels.EmptyLabels(), held).URL())
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
