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

// TestStatsGiveWay: statistics count the samples of one evaluation, so that all series are read for
// them; where these are more than may be held the shards compute what they can, and the answer says
// that it has none, as Prometheus' web UI asks for them with every query.
func TestStatsGiveWay(t *testing.T) {
	now := time.Now().Truncate(time.Second)
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
	s, small := startProxy(t, t.Context(), config+"limits: {max_series: 25}\n")
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
	if n := s.state.Load().pool.InUse(); n != 0 {
		t.Errorf("%d bytes are still held", n)
	}
}
