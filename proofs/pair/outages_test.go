package pair

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/proxy/server"
	"github.com/spillwayproject/spillway/proxy/server/servertest"
)

const (
	dayTargets, daySeries = 20, 50 // of each target
	dayStep               = 2 * time.Minute
)

// day is a Prometheus that holds a day up to end, but for the outages.
func day(b *testing.B, end time.Time, replica int, away ...outage) *localprom.Shard {
	b.Helper()
	dir := b.TempDir()
	writeDay(b, dir, "requests_total", dayTargets, daySeries, replica, end, away...)
	external := labels.FromStrings("replica", fmt.Sprint(replica))
	p, err := localprom.Start(b.Context(), localprom.Options{DisableWAL: true, Blocks: []string{dir}, ExternalLabels: external})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := p.Close(); err != nil {
			b.Error(err)
		}
	})
	return p
}

// BenchmarkOutages asks range queries of a day of a pair that is whole, and of one of which each
// replica was away for an hour, at different times, in turn. x-whole is the ratio of the medians of
// their times, all queries together, x-whole-worst that of the worst query; x-whole-instant is that
// of instant queries whose windows reach over the day, which are evaluated in parcels. The limit of
// series is a tenth of those that are there, so that nothing can be read series by series.
func BenchmarkOutages(b *testing.B) {
	end := time.Now().Add(-10 * time.Minute).Truncate(dayStep)
	var urls [2]string
	var regs [2]*prometheus.Registry
	for i, away := range [2][2][]outage{{}, {{{20 * time.Hour, 19 * time.Hour}}, {{6 * time.Hour, 5 * time.Hour}}}} {
		var replicas []string
		for r := range 2 {
			replicas = append(replicas, fmt.Sprintf("{url: %q}", day(b, end, r, away[r]...).URL()))
		}
		urls[i], _ = servertest.Start(b, fmt.Sprintf("groups: [{name: jaguar, labels: {cluster: jaguar}, replica_labels: [replica], heartbeat: up, shards: [{replicas: [%s]}]}]\nlimits: {max_series: %d}\n", strings.Join(replicas, ", "), dayTargets*daySeries/10), func(o *server.Options) {
			regs[i] = prometheus.NewRegistry()
			o.Registerer, o.Gatherer = regs[i], regs[i]
		})
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ask := func(base, path, query string) (time.Duration, []byte) {
		form := url.Values{
			"query": {query}, "start": {fmt.Sprint(end.Add(-24 * time.Hour).Unix())}, "end": {fmt.Sprint(end.Unix())},
			"step": {fmt.Sprint(int(dayStep.Seconds()))},
		}
		if path == "/api/v1/query" {
			form = url.Values{"query": {query}, "time": form["end"]}
		}
		began := time.Now()
		resp, err := client.PostForm(base+path, form)
		if err != nil {
			b.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			b.Fatalf("%s: %d %.600s %v", query, resp.StatusCode, body, err)
		}
		return time.Since(began), body
	}
	queries := []string{
		`sum(rate(requests_total[5m]))`, `sum by (instance) (rate(requests_total[5m]))`, `quantile(0.9, sum by (instance) (rate(requests_total[5m])))`, `count(up)`,
		`topk(3, sum by (path) (rate(requests_total[5m])))`, `max by (instance) (requests_total)`,
	}
	medians := func(path, q string) (m [2]time.Duration) {
		var times [2][]time.Duration
		rounds := 9
		if path == "/api/v1/query" { // which take less, and vary more
			rounds = 31
		}
		for range rounds {
			for i, u := range urls {
				took, body := ask(u, path, q)
				want, steps := fmt.Sprintf(`"%d"`, dayTargets), int(24*time.Hour/dayStep)+1
				if q == "count(up)" && strings.Count(string(body), want) != steps {
					b.Errorf("pair %d: %s is not %s at each step: %.300s", i, q, want, body)
				}
				times[i] = append(times[i], took)
			}
		}
		for i := range times {
			slices.Sort(times[i])
			m[i] = times[i][len(times[i])/2]
		}
		b.Logf("%s: %s whole, %s with outages of both", q, m[0].Round(time.Millisecond/10), m[1].Round(time.Millisecond/10))
		return m
	}
	for b.Loop() {
		worst := 0.0
		var all, instant [2]time.Duration
		for _, q := range queries {
			m := medians("/api/v1/query_range", q)
			worst = max(worst, float64(m[1])/float64(m[0]))
			all[0], all[1] = all[0]+m[0], all[1]+m[1]
		}
		for _, q := range []string{
			`sum(increase(requests_total[1d]))`, `avg by (path) (rate(requests_total[1d]))`, `count(count_over_time(requests_total[1d]))`,
		} {
			m := medians("/api/v1/query", q)
			instant[0], instant[1] = instant[0]+m[0], instant[1]+m[1]
		}
		for i, want := range [2]bool{false, true} {
			n := 0.0
			for _, v := range figures(b, regs[i], "spillway_query_plans_total", map[string]string{"mode": "stretches"}) {
				n += v
			}
			if (n > 0) != want {
				b.Errorf("pair %d: %g queries were answered in stretches", i, n)
			}
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(all[1])/float64(all[0]), "x-whole")
		b.ReportMetric(worst, "x-whole-worst")
		b.ReportMetric(float64(instant[1])/float64(instant[0]), "x-whole-instant")
	}
}
