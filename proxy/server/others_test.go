package server

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
)

// readsOf is a server with what it is asked by remote read, in milliseconds.
type readsOf struct {
	url  string
	mu   sync.Mutex
	asks []*prompb.Query
}

// long counts the reads that are longer.
func (r *readsOf) long(than time.Duration) (long, all int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.asks {
		if q.EndTimestampMs-q.StartTimestampMs > than.Milliseconds() {
			long++
		}
	}
	return long, len(r.asks)
}

func watchReads(t *testing.T, server string) *readsOf {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	r := &readsOf{}
	through := httputil.NewSingleHostReverseProxy(to)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, "/read") {
			body, err := io.ReadAll(req.Body)
			if err != nil {
				t.Error(err)
			}
			req.Body = io.NopCloser(bytes.NewReader(body))
			var asked prompb.ReadRequest
			if plain, err := snappy.Decode(nil, body); err != nil {
				t.Error(err)
			} else if err := asked.Unmarshal(plain); err != nil {
				t.Error(err)
			}
			r.mu.Lock()
			r.asks = append(r.asks, asked.Queries...)
			r.mu.Unlock()
		}
		through.ServeHTTP(w, req)
	}))
	t.Cleanup(front.Close)
	r.url = front.URL
	return r
}

// TestOthersAreReadWhereTheBaseLacks: over gaps of both replicas one is read over the window and
// the other one around the gap of that one, and the answer is what it is where both are read over
// all, as they are without a heartbeat. The servers go on being scraped while they are asked: where
// scrapes end, the last minute has of one replica what it no longer has of the other.
func TestOthersAreReadWhereTheBaseLacks(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	from, until := now.Add(-6*time.Hour), now.Add(-time.Second)
	away := func(since, back time.Duration) func(int, time.Time) bool {
		return func(_ int, at time.Time) bool { return at.After(now.Add(-since)) && at.Before(now.Add(-back)) }
	}
	var all, some [2]*readsOf
	for i, skip := range []func(int, time.Time) bool{away(5*time.Hour, 280*time.Minute), away(2*time.Hour, 90*time.Minute)} {
		held := scraped(30, from, now.Add(time.Hour), time.Duration(2+4*i)*time.Second, skip)
		p := promShard(t, labels.FromStrings("replica", string(rune('a'+i))), held)
		all[i], some[i] = watchReads(t, p.URL()), watchReads(t, p.URL())
	}
	_, known := startProxy(t, t.Context(), replicasConfig("    heartbeat: up\n", some[0].url, some[1].url))
	_, unknown := startProxy(t, t.Context(), replicasConfig("", all[0].url, all[1].url))
	queries := []string{
		"sum(increase(requests_total[330m]))", "rate(requests_total[330m])", "quantile(0.9, count_over_time(requests_total[330m]))",
		"changes(up[330m])",
		"max_over_time(sum(rate(requests_total[5m]))[320m:1m])", "sum(count_over_time(requests_total[300m] offset 30m))",
		"min(resets(requests_total[330m]))",
	}
	for _, query := range queries {
		form := url.Values{"query": {query}, "time": {stamp(until)}}
		code, got := ask(t, known, "/api/v1/query", form)
		_, want := ask(t, unknown, "/api/v1/query", form)
		if code != 200 {
			t.Errorf("%s: %d %.500s", query, code, got)
			continue
		}
		sameAnswer(t, query, got, want)
	}
	const gap = 30*time.Minute + 5*time.Minute + 2*5*time.Minute // the longest, what a bucket adds, and what is around it
	for _, tc := range []struct {
		name        string
		of          [2]*readsOf
		long, short int // for each query
	}{{"with a heartbeat", some, 1, 1}, {"without one", all, 2, 0}} {
		long, n := 0, 0
		for _, r := range tc.of {
			l, k := r.long(gap)
			long, n = long+l, n+k
		}
		if long != tc.long*len(queries) || n-long != tc.short*len(queries) {
			t.Errorf("%s: %d reads over the window and %d over a gap, for %d queries", tc.name, long, n-long, len(queries))
		}
	}
}
