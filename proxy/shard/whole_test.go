package shard

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// counts is what a server says to the question for heartbeats: for each job and each bucket end
// (milliseconds; 0 is the last minute) how many series and samples.
type counts func(job string, end int64) (series, samples int64)

// gapped are the counts of a replica that has everything, and of one that lacks the hour from gap
// on.
func gapped(gap time.Time) (full, lacks counts) {
	full = func(_ string, end int64) (int64, int64) {
		if end == 0 {
			return 10, 40
		}
		return 10, 200
	}
	return full, func(job string, end int64) (int64, int64) {
		if end > gap.UnixMilli() && end <= gap.Add(time.Hour).UnixMilli() {
			return 10, 20
		}
		return full(job, end)
	}
}

// beating is a server with two jobs and a heartbeat.
func beating(c counts) fakeshard.Config {
	return fakeshard.Config{Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
		q := r.Form.Get("query")
		if !strings.HasPrefix(q, "sum by (job) (sum_over_time(up[") {
			return fakeshard.Answer{}, false
		}
		var out []string
		for _, job := range []string{"node", "dcgm"} {
			at := func(end, stamp int64) string {
				n, s := c(job, end)
				return fmt.Sprintf(`[%d.000,"%s"]`, stamp/1000, strconv.FormatInt(n<<30+s, 10))
			}
			if strings.HasSuffix(r.Path, "/query") {
				out = append(out, fmt.Sprintf(`{"metric":{"job":"%s"},"value":%s}`, job, at(0, 1000)))
				continue
			}
			lo, _ := strconv.ParseFloat(r.Form.Get("start"), 64)
			hi, _ := strconv.ParseFloat(r.Form.Get("end"), 64)
			var values []string
			for end := int64(lo * 1000); end <= int64(hi*1000); end += trust.Bucket.Milliseconds() {
				if n, _ := c(job, end); n > 0 {
					values = append(values, at(end, end))
				}
			}
			if len(values) > 0 {
				out = append(out, fmt.Sprintf(`{"metric":{"job":"%s"},"values":[%s]}`, job, strings.Join(values, ",")))
			}
		}
		kind := "matrix"
		if strings.HasSuffix(r.Path, "/query") {
			kind = "vector"
		}
		body := fmt.Sprintf(`{"status":"success","data":{"resultType":"%s","result":[%s]}}`, kind, strings.Join(out, ","))
		return fakeshard.Answer{Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}, true
	}}
}

// TestWhole is section 7's rule, with the clock of a bubble: 2000-01-01 00:00 UTC at the start.
func TestWhole(t *testing.T) {
	full := func(_ string, end int64) (int64, int64) {
		if end == 0 {
			return 10, 40
		}
		return 10, 200
	}
	many := func(less int64) counts { // a job of 1,900 targets, two scrapes a minute
		return func(_ string, end int64) (int64, int64) {
			if end == 0 {
				return 1900, 3800
			}
			return 1900, 19000 - less
		}
	}
	lacks := func(series, samples int64, when func(job string, end int64) bool) counts {
		return func(job string, end int64) (int64, int64) {
			n, s := full(job, end)
			if when(job, end) {
				return n - series, s - samples
			}
			return n, s
		}
	}
	at := func(minutesAgo int64) int64 {
		return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() - minutesAgo*60_000
	}
	only := func(job string, ends ...int64) func(string, int64) bool {
		return func(j string, e int64) bool {
			for _, end := range ends {
				if j == job && e == end {
					return true
				}
			}
			return false
		}
	}
	for _, tc := range []struct {
		name        string
		a, b        counts
		noHeartbeat bool
		from, until int64 // minutes ago
		whole       bool
		other       bool // the second replica is the one
	}{
		{name: "equal", a: full, b: full, from: 60, until: 0, whole: true},
		{name: "a few samples apart", a: full, b: lacks(0, 4, only("node", at(20))), from: 60, whole: true},
		{name: "half the series missed a scrape", a: lacks(0, 5, only("node", at(20))), b: full, from: 60, whole: true, other: true},
		{name: "the other one lacks, and that is no matter", a: full, b: lacks(0, 5, only("node", at(20))), from: 60, whole: true},
		{name: "the same, outside the window", a: lacks(0, 5, only("node", at(20))), b: full, from: 10, whole: true},
		{name: "a target that came as the bucket closed", a: lacks(1, 1, only("dcgm", at(20))), b: full, from: 60, whole: true},
		{name: "half of the series less", a: lacks(5, 0, only("dcgm", at(20))), b: full, from: 60, whole: true, other: true},
		{name: "a target less", a: lacks(1, 20, only("dcgm", at(20))), b: full, from: 60, whole: true, other: true},
		{name: "the last minute differs", a: lacks(0, 10, only("node", 0)), b: full, from: 60, whole: true, other: true},
		{
			name: "the last minute differs, but the window is closed", a: lacks(0, 10, only("node", 0)), b: full, from: 60, until: 10,
			whole: true,
		},
		{
			name: "the newest closed bucket speaks for the open one", a: lacks(0, 10, only("node", at(5))), b: full, from: 2, whole: true,
			other: true,
		},
		{
			name: "gaps in different jobs", a: lacks(0, 10, only("dcgm", at(20))), b: lacks(0, 10, only("node", at(20))), from: 60,
			whole: false,
		},
		{
			name: "gaps at different times", a: lacks(0, 10, only("node", at(40))), b: lacks(0, 10, only("node", at(20))), from: 60,
			whole: false,
		},
		{
			name: "the first gap is not in the window", a: lacks(0, 10, only("node", at(40))), b: lacks(0, 10, only("node", at(20))),
			from:  30,
			whole: true,
		},
		{name: "many targets, one sample more or less by chance", a: many(90), b: many(0), from: 60, until: 10, whole: true},
		{name: "of many targets twenty are not scraped", a: many(200), b: many(0), from: 60, until: 10, whole: true, other: true},
		{name: "no heartbeat", a: full, b: full, noHeartbeat: true, from: 60, whole: false},
		{
			name: "a heartbeat that is nowhere", a: func(string, int64) (int64, int64) { return 0, 0 },
			b: func(string, int64) (int64, int64) { return 0, 0 }, from: 60, until: 10, whole: false,
		},
		{name: "more than 31 days", a: full, b: full, from: 32 * 24 * 60, whole: false},
		{name: "31 days", a: full, b: full, from: 31 * 24 * 60, whole: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, beating(tc.a), beating(tc.b))
				g := group(b.urls...)
				g.Heartbeat = "up"
				if tc.noHeartbeat {
					g.Heartbeat = ""
				}
				top := build(t, Options{Dial: b.dial}, false, g)
				now := time.UnixMilli(at(0)).Add(20 * time.Second) // the bucket that ends at at(0) is not closed yet
				r, whole, err := top.Groups[0].Shards[0].Whole(t.Context(), now.UnixMilli()-tc.from*60_000, now.UnixMilli()-tc.until*60_000,
					now)
				want := 0
				if tc.other {
					want = 1
				}
				if err != nil || whole != tc.whole || r.Index != want {
					t.Errorf("whole %t, replica %d, %v", whole, r.Index, err)
				}
				top.Close()
				b.close()
			})
		})
	}
}

// TestWholeChoosesAmongThree: of three replicas, one that lost a scrape is not chosen.
func TestWholeChoosesAmongThree(t *testing.T) {
	full := func(string, int64) (int64, int64) { return 10, 200 }
	gap := func(string, int64) (int64, int64) { return 10, 190 }
	a, b, c := fakeshard.Start(t, beating(gap)), fakeshard.Start(t, beating(full)), fakeshard.Start(t, beating(full))
	g := group(a.URL(), b.URL(), c.URL())
	g.Heartbeat = "up"
	top := build(t, Options{}, false, g)
	now := time.Now()
	r, whole, err := top.Groups[0].Shards[0].Whole(context.Background(), now.UnixMilli()-3600_000, now.UnixMilli(), now)
	if err != nil || !whole || r.Index != 1 {
		t.Errorf("%v, whole %t, %v", r.Name(), whole, err)
	}
}

// TestWholeIsCached: the background work keeps the last hour and the last minute known, so that a
// request asks nothing; of a replica that stops answering it is not whole, and the other one is.
func TestWholeIsCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := func(string, int64) (int64, int64) { return 10, 200 }
		var silent atomic.Bool
		cfg := beating(full)
		answer := cfg.Answer
		cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
			if silent.Load() && strings.Contains(r.Form.Get("query"), "sum_over_time") {
				return fakeshard.Answer{Status: 500, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte("no")}, true
			}
			return answer(r)
		}
		b := newBubble(t, beating(full), cfg)
		g := group(b.urls...)
		g.Heartbeat = "up"
		top := build(t, Options{Dial: b.dial}, true, g)
		s := top.Groups[0].Shards[0]
		time.Sleep(7 * time.Minute)
		synctest.Wait()
		seen := b.count(0, "/api/v1/query_range")
		now := time.Now()
		if _, whole, err := s.Whole(t.Context(), now.UnixMilli()-50*60_000, now.UnixMilli(), now); err != nil || !whole {
			t.Errorf("whole %t, %v", whole, err)
		}
		if n := b.count(0, "/api/v1/query_range"); n != seen {
			t.Errorf("the request asked %d times", n-seen)
		}
		if i := top.Status()[1]; !i.Whole || i.HeartbeatError != "" {
			t.Errorf("status %+v", i)
		}
		silent.Store(true)
		time.Sleep(trust.Fresh + beatEvery + time.Second)
		now = time.Now()
		if r, whole, err := s.Whole(t.Context(), now.UnixMilli()-10*60_000, now.UnixMilli(), now); err != nil || !whole || r.Index != 0 ||
			s.Alone() != r {
			t.Errorf("whole %t, %v", whole, err)
		}
		if i := top.Status(); i[1].Whole || i[1].HeartbeatError == "" || !i[0].Whole || i[0].HeartbeatError != "" {
			t.Errorf("status %+v", i)
		}
		silent.Store(false)
		time.Sleep(trust.Pause + 2*beatEvery)
		if i := top.Status(); !i[1].Whole || i[1].HeartbeatError != "" || s.Alone() != nil {
			t.Errorf("status %+v", i)
		}
		top.Close()
		b.close()
	})
}
