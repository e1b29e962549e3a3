package server

import (
	"net/http"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/plan"
)

// TestLearntOfOneTenant: that a query is too much for one tenant's bounds, so that it is made in
// parcels, is no other tenant's affair, whose bounds it fits. Who has learnt it knows it the next
// time.
func TestLearntOfOneTenant(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	from, until := now.Add(-75*time.Minute), now.Add(-time.Second)
	away := func(since, back time.Duration) func(int, time.Time) bool {
		return func(_ int, at time.Time) bool { return at.After(now.Add(-since)) && at.Before(now.Add(-back)) }
	}
	held := func(phase time.Duration, skip func(int, time.Time) bool) []storedSeries {
		out := scraped(60, from, until, phase, skip)
		for i := range out {
			b := labels.NewBuilder(out[i].lbls)
			out[i].lbls = b.Set("instance", b.Get("node")+":9100").Labels()
		}
		return out
	}
	a := promShard(t, labels.FromStrings("replica", "a"), held(2*time.Second, away(26*time.Minute, 22*time.Minute)))
	b := promShard(t, labels.FromStrings("replica", "b"), held(9*time.Second, away(20*time.Minute, 17*time.Minute)))
	dir := t.TempDir()
	for _, name := range []string{"small", "large"} {
		writeText(t, filepath.Join(dir, name), "token-of-"+name)
	}
	s, base := startProxy(t, t.Context(), replicasConfig("    heartbeat: up\n", a.URL(), b.URL())+
		"tenants:\n  - {name: small, bearer_token_file: "+dir+"/small, limits: {max_series: 25}}\n"+
		"  - {name: large, bearer_token_file: "+dir+"/large}\n")
	r := &rig{t: t, s: s, url: base, client: newClient(t)}
	form := url.Values{"query": {"sum(rate(requests_total[30m]))"}, "time": {stamp(now.Add(-10 * time.Minute))}}
	var same string
	for _, tc := range []struct {
		tenant      string
		plans, raws float64
	}{
		{"small", 1, 1}, // it is too much, and is planned again
		{"large", 0, 1},
		{"small", 1, 0}, // which is known
		{"large", 0, 1},
	} {
		parcels, raws := plans(t, s, string(plan.ModeParcels)), plans(t, s, string(plan.ModeRaw))
		req := r.request(t.Context(), asking{path: "/api/v1/query", form: form})
		req.Header.Set("Authorization", "Bearer token-of-"+tc.tenant)
		got := r.ask(req)
		if got.status != http.StatusOK || same != "" && string(got.message.Data) != same {
			t.Errorf("%s: %s\nwant %s", tc.tenant, got, same)
		}
		same = string(got.message.Data)
		parcels, raws = plans(t, s, string(plan.ModeParcels))-parcels, plans(t, s, string(plan.ModeRaw))-raws
		if parcels != tc.plans || raws != tc.raws {
			t.Errorf("%s: %v plans in parcels, %v raw, want %v and %v", tc.tenant, parcels, raws, tc.plans, tc.raws)
		}
	}
}
