package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/vitals"
)

// TestServersWithoutMemory: while one server has no memory left, what is heavy there is refused
// with 503 where it needs that server, goes without it where it may, and everything else is
// answered as ever. The server is sent no heavy query.
func TestServersWithoutMemory(t *testing.T) {
	const wide, light = "max_over_time(abs(up)[1h:15s])", "sum(up)"
	full := fakeshard.Start(t, fakeshard.Config{Metrics: map[string]float64{
		"go_gc_gomemlimit_bytes": 3 << 30, "go_gc_heap_live_bytes": 2.8 * (1 << 30),
	}})
	r := newRig(t, []rigGroup{{"heron", false, []int{1}}, {"jaguar", false, []int{1}}}, "limits: {max_shard_bytes: 100KiB, shard_budget: 100KiB}\n",
		func(o *Options) { o.Config.Groups[1].Shards[0].Replicas[0].URL = full.URL() })
	noMemory(r)
	sent := func() (n int) {
		for _, rec := range full.RequestsTo("/api/v1/query") {
			if strings.Contains(rec.Form.Get("query"), "[1h:15s]") {
				n++
			}
		}
		return n
	}
	for _, tc := range []struct {
		name, query, partial string
		status               int
		warned               bool
	}{
		{"wide", wide, "false", qerr.Unavailable.Status(), false},
		{"wide, of the other group", strings.Replace(wide, "up", `up{cluster="heron"}`, 1), "false", 200, false},
		{"wide, and may go without", wide, "true", 200, true},
		{"light", light, "false", 200, false},
		{"light, of the server", `sum(up{cluster="jaguar"})`, "false", 200, false},
	} {
		got := r.ask(r.request(t.Context(), asking{path: "/api/v1/query"}, "query", tc.query, "partial_response", tc.partial))
		if warned := len(got.message.Warnings) > 0; got.status != tc.status || warned != tc.warned {
			t.Errorf("%s: %d, %q", tc.name, got.status, got)
		}
		if n, _ := strconv.Atoi(got.header.Get("Retry-After")); tc.status != 200 && (n < 10 || n > 20) {
			t.Errorf("%s: come again in %q", tc.name, got.header.Get("Retry-After"))
		}
	}
	if n := sent(); n != 0 {
		t.Errorf("%d wide queries were sent to the server without memory", n)
	}
	r.idle()
}

// frontOf is what stands before a server: it answers for its own metrics, by which it holds so many
// hundredths of its limit, and counts what else is asked of the path.
func frontOf(t *testing.T, server string, percent *atomic.Int64, path string, asked *atomic.Int64) string {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	through := httputil.NewSingleHostReverseProxy(to)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			fmt.Fprintf(w, "go_gc_gomemlimit_bytes 100000000\ngo_gc_heap_live_bytes %d\ngo_memstats_sys_bytes 1\n"+
				"go_memstats_heap_sys_bytes 1\nprometheus_ready 1\n", percent.Load()*1000000)
			return
		}
		if r.URL.Path == path {
			asked.Add(1)
		}
		through.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	return front.URL
}

// TestNoGapsForLackOfMemory: where the replica that has all, or one of two that have it together,
// has no memory left, the other one's part of it is no answer.
func TestNoGapsForLackOfMemory(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	from, until := now.Add(-50*time.Minute), now.Add(-time.Second)
	low, high := now.Add(-26*time.Minute), now.Add(-22*time.Minute)
	gap := func(lost string) func(string, time.Time) bool {
		return func(job string, at time.Time) bool { return job == lost && at.After(low) && at.Before(high) }
	}
	for _, tc := range []struct {
		name            string
		lacksA, lacksB  func(string, time.Time) bool
		sickA, sickB    int64
		series, queried int // the status
	}{
		{"both are well", nil, gap("node"), 50, 50, 200, 200},
		{"the whole one is sick", nil, gap("node"), 95, 50, 503, 503},
		{"the other one is sick", nil, gap("node"), 50, 95, 200, 200},
		{"both are whole, and one is sick", nil, nil, 95, 50, 200, 200},
		{"both are whole, and the other one is sick", nil, nil, 50, 95, 200, 200},
		{"neither is whole, and one is sick", gap("gpu"), gap("node"), 95, 50, 503, 200}, // what is read as it was stored is never heavy
		{"neither is whole, and both are well", gap("gpu"), gap("node"), 50, 50, 200, 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var percent, asked [2]atomic.Int64
			percent[0].Store(tc.sickA)
			percent[1].Store(tc.sickB)
			var urls []string
			for i, lacks := range []func(string, time.Time) bool{tc.lacksA, tc.lacksB} {
				series := twoJobs(from, until, time.Duration(2+7*i)*time.Second, lacks)
				held := promShard(t, labels.FromStrings("replica", fmt.Sprint(i)), series)
				urls = append(urls, frontOf(t, held.URL(), &percent[i], "/api/v1/series", &asked[i]))
			}
			pair := replicasConfig("    heartbeat: up\n", urls...)
			s, base := startProxy(t, t.Context(), pair+"limits: {max_shard_bytes: 400KiB, shard_budget: 400KiB}\n")
			r := &rig{t: t, s: s}
			replicas := s.state.Load().top.Groups[0].Shards[0].Replicas
			r.eventually("their memory is known", func() bool {
				a, b := replicas[0].Vitals(), replicas[1].Vitals()
				return a.State != vitals.Unknown && b.State != vitals.Unknown
			})
			code, body := ask(t, base, "/api/v1/series", url.Values{
				"match[]": {`{job!=""}`}, "start": {stamp(low.Add(time.Minute))}, "end": {stamp(high.Add(-time.Minute))},
			})
			if code != tc.series || code == 200 && (!strings.Contains(string(body), `"node"`) || !strings.Contains(string(body), `"gpu"`)) {
				t.Errorf("series: %d %s", code, body)
			}
			for i := range asked {
				if n := asked[i].Load(); percent[i].Load() > 90 && n > 0 {
					t.Errorf("replica %d was asked for all of its series %d times", i, n)
				}
			}
			code, body = ask(t, base, "/api/v1/query", url.Values{
				"query": {`sum(max_over_time(abs(up)[20m:1s]))`}, "time": {stamp(now.Add(-18 * time.Minute))},
			})
			if code != tc.queried {
				t.Errorf("query: %d %s", code, body)
			}
		})
	}
}
