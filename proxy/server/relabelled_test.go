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
		"different targets":  {"", "other-", "", "40", "different targets: if"},
	} {
		t.Run(name, func(t *testing.T) {
			a := replica("a", targets("", "", 2*time.Second))
			b := replica("b", targets(tc.prefix, tc.pool, 9*time.Second))
			s, base := startProxy(t, t.Context(), replicasConfig(tc.heartbeat, a, b))
			r := &rig{t: t, s: s}
			r.eventually("the servers are compared", func() bool {
				st, done := s.peek()
				defer done()
				at := time.Now().UnixMilli()
				for _, sh := range st.top.Groups[0].Shards {
					if (sh.Relabelled(at, at) != "") != (tc.pool != "") || sh.Split(at, at) != (tc.prefix != "") || !sh.Compared() {
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

// TestRelabelledFromNowOn: of the time before the rule began to be rolled out the replicas fill
// each other's holes as ever, and nothing is said.
func TestRelabelledFromNowOn(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	const begun = 10 * time.Minute // ago, which is before it can be seen
	replica := func(name, pool string, phase, hole time.Duration) string {
		series := scraped(20, now.Add(-time.Hour), now.Add(-begun), phase, func(_ int, at time.Time) bool {
			return now.Sub(at) < hole && now.Sub(at) > hole-15*time.Minute
		})
		for _, s := range scraped(20, now.Add(-begun), now.Add(time.Hour), phase, nil) {
			s.lbls = labels.NewBuilder(s.lbls).Set("pool", pool).Labels()
			series = append(series, s)
		}
		for i, s := range series {
			series[i].lbls = labels.NewBuilder(s.lbls).Set("instance", s.lbls.Get("node")+":9100").Labels()
		}
		return promShard(t, labels.FromStrings("cluster", "jaguar", "replica", name), series).URL()
	}
	a, b := replica("a", "x", 2*time.Second, 50*time.Minute), replica("b", "y", 9*time.Second, 30*time.Minute)
	s, base := startProxy(t, t.Context(), replicasConfig("", a, b))
	r := &rig{t: t, s: s}
	r.eventually("the servers are compared", func() bool {
		st, done := s.peek()
		defer done()
		at := time.Now().UnixMilli()
		return st.top.Groups[0].Shards[0].Relabelled(at, at) != ""
	})
	for ago, warned := range map[time.Duration]bool{0: true, 20 * time.Minute: false, 40 * time.Minute: false} {
		code, answer := ask(t, base, "/api/v1/query", url.Values{"query": {"count(up)"}, "time": {stamp(now.Add(-ago))}})
		if body := string(answer); code != 200 || !strings.Contains(body, `"20"`) || strings.Contains(body, `"warnings"`) != warned {
			t.Errorf("%s ago: %d %s, warned of it %t", ago, code, body, warned)
		}
	}
}

// TestRelabelledUnseen: of replicas that label the same targets differently one is read alone.
// Where each was away at another time, who would not see the warning is refused.
func TestRelabelledUnseen(t *testing.T) {
	w := newGappyPair(t)
	replica := func(name, pool string, phase time.Duration, skip func(int, time.Time) bool) string {
		series := scraped(20, w.from, w.until, phase, skip)
		for i, s := range series {
			series[i].lbls = labels.NewBuilder(s.lbls).Set("instance", s.lbls.Get("node")+":9100").Set("pool", pool).Labels()
		}
		return promShard(t, labels.FromStrings("cluster", "jaguar", "replica", name), series).URL()
	}
	s, base := startProxy(t, t.Context(), replicasConfig("    heartbeat: up\n",
		replica("a", "x", 2*time.Second, w.away(19*time.Minute, 14*time.Minute)),
		replica("b", "y", 9*time.Second, w.away(44*time.Minute, 39*time.Minute))))
	(&rig{t: t, s: s}).eventually("the servers are compared", func() bool {
		st, done := s.peek()
		defer done()
		at := time.Now().UnixMilli()
		return st.top.Groups[0].Shards[0].Relabelled(at, at) != ""
	})
	for _, tc := range []struct {
		window, partial string
		refused         bool
	}{{"50m", "", false}, {"50m", "false", true}, {"9m", "false", false}} {
		q := url.Values{"query": {"count(count_over_time(up[" + tc.window + "]))"}, "time": {stamp(w.now.Add(-10 * time.Second))}}
		if tc.partial != "" {
			q.Set("partial_response", tc.partial)
		}
		code, answer := ask(t, base, "/api/v1/query", q)
		body := string(answer)
		if tc.refused != (code != 200 && strings.Contains(body, "each lacks some of what another one has")) ||
			!tc.refused && !strings.Contains(body, `"20"`) {
			t.Errorf("%s, partial_response=%s: %d %s", tc.window, tc.partial, code, body)
		}
	}
}

// TestRelabelledAloneFails: the replica that is read alone while the other one labels its targets
// differently fails: then that other one is.
func TestRelabelledAloneFails(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	replica := func(name, pool string, phase time.Duration) string {
		series := scraped(20, now.Add(-time.Hour), now.Add(time.Hour), phase, nil)
		for i, s := range series {
			series[i].lbls = labels.NewBuilder(s.lbls).Set("instance", s.lbls.Get("node")+":9100").Set("pool", pool).Labels()
		}
		return promShard(t, labels.FromStrings("cluster", "jaguar", "replica", name), series).URL()
	}
	var fails [2]readFails
	a, b := fails[0].before(t, replica("a", "x", 2*time.Second)), fails[1].before(t, replica("b", "y", 9*time.Second))
	s, base := startProxy(t, t.Context(), replicasConfig("", a, b))
	(&rig{t: t, s: s}).eventually("the servers are compared", func() bool {
		st, done := s.peek()
		defer done()
		at := time.Now().UnixMilli()
		return st.top.Groups[0].Shards[0].Relabelled(at, at) != ""
	})
	for i := range fails {
		fails[i].so.Store(true)
		code, answer := ask(t, base, "/api/v1/query", url.Values{"query": {"count(up)"}, "time": {stamp(now)}})
		body := string(answer)
		if code != 200 || !strings.Contains(body, `"20"`) || !strings.Contains(body, "what only it has is missing") {
			t.Errorf("replica %d fails: %d %s", i, code, body)
		}
		fails[i].so.Store(false)
	}
}
