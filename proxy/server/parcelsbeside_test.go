package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
)

// renamed are the series of requests_total by another name and with more before their node, each
// sample of which is this.
func renamed(held []storedSeries, name, before string, value float64) (out []storedSeries) {
	for _, s := range held {
		if s.lbls.Get("__name__") != "requests_total" {
			continue
		}
		b := labels.NewBuilder(s.lbls).Set("__name__", name).Set("node", before+s.lbls.Get("node"))
		own := storedSeries{lbls: b.Labels(), points: slices.Clone(s.points)}
		for i := range own.points {
			own.points[i].f = value
		}
		out = append(out, own)
	}
	return byInstance(out)
}

// toldApart are the series of these names of 30 nodes on one of a pair, beside up: 1000 on the
// first replica, 2000 on the second.
func toldApart(now time.Time, replica int, names ...string) (out []storedSeries) {
	held := heldByOneOf(now, 30, replica)
	for _, name := range names {
		out = append(out, renamed(held, name, "", 1000*float64(replica+1))...)
	}
	for _, s := range held {
		if s.lbls.Get("__name__") == "up" {
			out = append(out, s)
		}
	}
	return out
}

// TestParcelsBesideParcels: two parts of a query that are evaluated in parcels are read of the same
// copies, though one fails between them.
func TestParcelsBesideParcels(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	var urls [2]string
	var fail, failed atomic.Bool
	for i := range 2 {
		server := promShard(t, labels.FromStrings("replica", fmt.Sprint(i)), toldApart(now, i, "requests_total", "other_total")).URL()
		urls[i] = before(t, server, func(r *http.Request) bool {
			if i == 1 || !fail.Load() || !strings.HasSuffix(r.URL.Path, "/read") {
				return false
			}
			other := slices.ContainsFunc(readAsked(t, r).Matchers, func(m *prompb.LabelMatcher) bool { return m.Value == "other_total" })
			failed.Store(failed.Load() || other)
			return other
		})
	}
	s, base := startProxy(t, t.Context(), replicasConfig("    heartbeat: up\n", urls[:]...))
	s.parcel = 7
	const query = "sum(last_over_time(requests_total[60m])) / sum(last_over_time(other_total[60m]))"
	for _, fails := range []bool{false, true} {
		fail.Store(fails)
		code, body := ask(t, base, "/api/v1/query", url.Values{"query": {query}, "time": {stamp(now.Add(-10 * time.Minute))}})
		if code != 200 || !strings.Contains(string(body), `,"1"]`) {
			t.Errorf("the first replica fails %v: its sides are of two replicas: %d %s", fails, code, body)
		}
	}
	if !failed.Load() {
		t.Error("none has failed")
	}
}

// TestParcelsOfTwoSelectors: where a server without a copy does not say which targets one of two
// selectors has, the query fails: what only that selector has would be in no parcel.
func TestParcelsOfTwoSelectors(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	var urls [2]string
	for i := range 2 {
		urls[i] = promShard(t, labels.FromStrings("replica", fmt.Sprint(i)), heldByOneOf(now, 10, i)).URL()
	}
	whole := scraped(10, now.Add(-75*time.Minute), now.Add(-time.Second), 5*time.Second, nil)
	others := append(renamed(whole, "other_total", "o", 1), renamed(whole[:3], "requests_total", "q", 1)...)
	var fails atomic.Int32 // so often
	alone := before(t, promShard(t, labels.EmptyLabels(), others).URL(), func(r *http.Request) bool {
		other := strings.Contains(r.URL.RawQuery+string(body(t, r)), "other_total")
		return other && strings.HasSuffix(r.URL.Path, "/label/instance/values") && fails.Add(-1) >= 0
	})
	config := replicasConfig("    heartbeat: up\n    shard_by: [instance]\n", urls[:]...) +
		fmt.Sprintf("      - replicas: [{url: %q}]\n", alone)
	s, base := startProxy(t, t.Context(), config)
	s.parcel = 7
	const query = "count(last_over_time(requests_total[60m]) or last_over_time(other_total[60m]))"
	count := func() (int, string) {
		t.Helper()
		code, body := ask(t, base, "/api/v1/query", url.Values{"query": {query}, "time": {stamp(now.Add(-10 * time.Minute))}})
		return code, string(body)
	}
	_, want := count()
	if !strings.Contains(want, `"21"`) {
		t.Fatalf("without a failure it is %s", want)
	}
	for _, n := range []int32{1, 100} {
		fails.Store(n)
		if code, got := count(); code == 200 && got != want {
			t.Errorf("it fails %d times: %d %s, want %s or an error", n, code, got, want)
		}
		if fails.Load() == n {
			t.Error("it has not failed")
		}
	}
}

// TestParcelsOfOneBase: all parcels have the samples of one replica wherever it has any, though
// other requests choose the other one meanwhile.
func TestParcelsOfOneBase(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	var urls [2]string
	for i := range 2 {
		urls[i] = promShard(t, labels.FromStrings("replica", fmt.Sprint(i)), toldApart(now, i, "requests_total")).URL()
	}
	s, base := startProxy(t, t.Context(), replicasConfig("    heartbeat: up\n", urls[:]...))
	s.parcel = 1
	get := func(query string, before time.Duration) (int, []byte) {
		return ask(t, base, "/api/v1/query", url.Values{"query": {query}, "time": {stamp(now.Add(-before))}})
	}
	var over atomic.Bool
	var others sync.WaitGroup
	others.Go(func() {
		for i := 0; !over.Load(); i++ { // of one minute in which one of them alone is whole
			_, _ = get("sum(max_over_time(requests_total[1m]))", []time.Duration{25 * time.Minute, 19 * time.Minute}[i%2])
		}
	})
	for range 20 {
		code, body := get("sum(last_over_time(requests_total[60m]))", 10*time.Minute)
		if got := string(body); code != 200 || !strings.Contains(got, `"30000"`) && !strings.Contains(got, `"60000"`) {
			t.Errorf("it is of both: %d %s", code, got)
			break
		}
	}
	over.Store(true)
	others.Wait()
}
