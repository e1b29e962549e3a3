package server

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// TestRelabelRollout: while a relabel rule has reached one replica of a pair, each target is
// counted once: by whichever replica is whole, or by one alone where none is known to be, which the
// answer says. Replicas that have different targets altogether are put together, with a word of
// that.
func TestRelabelRollout(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	targets := func(prefix, pool string, phase time.Duration) []storedSeries {
		out := scraped(20, now.Add(-time.Hour), now.Add(time.Hour), phase, nil)
		for i, s := range out {
			b := labels.NewBuilder(s.lbls).Set("instance", prefix+s.lbls.Get("node")+":9100").Del("node")
			if pool != "" {
				b.Set("pool", pool)
			}
			out[i].lbls = b.Labels()
		}
		return out
	}
	replica := func(name string, series []storedSeries) string {
		return promShard(t, labels.FromStrings("cluster", "jaguar", "replica", name), series).URL()
	}
	for name, tc := range map[string]struct {
		heartbeat, prefix, pool string
		count, warning          string
	}{
		"known by heartbeat": {"    heartbeat: up\n", "", "x", "20", ""},
		"not known":          {"", "", "x", "20", "alone is read, and what it lacks is not filled"},
		"the same":           {"", "", "", "20", ""},
		"different targets":  {"", "other-", "", "40", "have different targets"},
	} {
		t.Run(name, func(t *testing.T) {
			a := replica("a", targets("", "", 2*time.Second))
			b := replica("b", targets(tc.prefix, tc.pool, 9*time.Second))
			s, base := startProxy(t, t.Context(), replicasConfig(tc.heartbeat, a, b))
			r := &rig{t: t, s: s}
			r.eventually("the servers are compared", func() bool {
				st, done := s.peek()
				defer done()
				for _, sh := range st.top.Groups[0].Shards {
					if (sh.Relabelled() != "") != (tc.pool != "") || sh.Split() != (tc.prefix != "") || !sh.Compared() {
						return false
					}
				}
				return true
			})
			for _, query := range []string{"count(up)", "count(rate(requests_total[5m]))", "count(up) + 0 * quantile(0.5, up)"} {
				code, answer := ask(t, base, "/api/v1/query", url.Values{"query": {query}, "time": {stamp(now)}})
				body := string(answer)
				if code != 200 || !strings.Contains(body, `"`+tc.count+`"`) {
					t.Errorf("%s: %d %s, want %s", query, code, body, tc.count)
				}
				if is := strings.Contains(body, `"warnings"`); is != (tc.warning != "") || !strings.Contains(body, tc.warning) {
					t.Errorf("%s: %s, want the warning %q", query, body, tc.warning)
				}
			}
		})
	}
}
