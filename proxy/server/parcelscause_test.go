package server

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/plan"
)

// TestParcelsWhateverTheCause: where the state of the servers, and not the query, keeps an
// aggregate from them, it is evaluated in parcels if it is over more than max_series, whatever that
// state is.
func TestParcelsWhateverTheCause(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	held := func(first, n int) (out []storedSeries) {
		for _, s := range scraped(first+n, now.Add(-time.Hour), now.Add(10*time.Minute), 3*time.Second, nil)[2*first:] {
			s.lbls = labels.NewBuilder(s.lbls).Set("instance", s.lbls.Get("node")+":9100").Labels()
			out = append(out, s)
		}
		return out
	}
	foreign := storedSeries{
		lbls:   labels.FromStrings("__name__", "es_health", "job", "es", "cluster", "elsewhere", "instance", "es:9200"),
		points: []point{{t: now.Add(-30 * time.Minute).UnixMilli(), f: 1}},
	}
	shardsOf := func(all ...[]storedSeries) string {
		text := "groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    shards:\n"
		for _, series := range all {
			text += fmt.Sprintf("      - replicas: [{url: %q}]\n", promShard(t, labels.FromStrings("cluster", "jaguar"), series).URL())
		}
		return text
	}
	for cause, config := range map[plan.Cause]string{
		plan.CauseLabels: shardsOf(append(held(0, 60), foreign)),
		plan.CauseSick:   shardsOf(held(0, 35), held(34, 26)),
		plan.CauseNone:   shardsOf(held(0, 35), held(35, 25)),
	} {
		t.Run(string(cause), func(t *testing.T) {
			s, base := startProxy(t, t.Context(), config+"limits: {max_series: 50}\n")
			r := &rig{t: t, s: s}
			mode := plan.ModeParcels
			if cause == plan.CauseNone {
				mode = plan.ModePush
			}
			r.eventually("the servers are known, and what is the matter with them", func() bool {
				ask(t, base, "/api/v1/query", url.Values{"query": {"count(up)"}, "time": {stamp(now)}})
				return r.metric("spillway_query_plans_total", "mode="+string(mode), "cause="+string(cause)) > 0
			})
			for query, want := range map[string]string{
				"count(up)": "60", "count(rate(requests_total[5m]))": "60", `max(count by (job) (up))`: "60",
				`count by (cluster) (up{cluster="jaguar"})`: "60",
			} {
				form := url.Values{"query": {query}, "time": {stamp(now)}}
				code, body := ask(t, base, "/api/v1/query", form)
				if code != 200 || !strings.Contains(string(body), `"`+want+`"`) {
					t.Errorf("%s: %d %.700s, want %s", query, code, body, want)
				}
			}
		})
	}
}
