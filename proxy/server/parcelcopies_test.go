package server

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
)

// heldByOneOf are the series of one of a pair, each of which was away for three minutes.
func heldByOneOf(now time.Time, n, replica int) []storedSeries {
	away := []time.Duration{26 * time.Minute, 20 * time.Minute}[replica]
	gone := func(_ int, at time.Time) bool {
		return at.After(now.Add(-away)) && at.Before(now.Add(-away+3*time.Minute))
	}
	return byInstance(scraped(n, now.Add(-75*time.Minute), now.Add(-time.Second), time.Duration(2+7*replica)*time.Second, gone))
}

// byInstance gives each node an instance.
func byInstance(held []storedSeries) []storedSeries {
	for i := range held {
		b := labels.NewBuilder(held[i].lbls)
		held[i].lbls = b.Set("instance", b.Get("node")+":9100").Labels()
	}
	return held
}

// before is what stands before a server: fails tells which requests fail.
func before(t *testing.T, server string, fails func(r *http.Request) bool) string {
	t.Helper()
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	through := httputil.NewSingleHostReverseProxy(to)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fails(r) {
			http.Error(w, "no disk", http.StatusInternalServerError)
			return
		}
		through.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	return front.URL
}

// TestParcelsOfWhoDoesNotSayItsTargets: a replica that does not say which targets it has is not
// read for those of the other one: what it alone has would be in no parcel.
func TestParcelsOfWhoDoesNotSayItsTargets(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	var servers, urls [2]string
	var fail atomic.Int32
	for i := range 2 {
		held := heldByOneOf(now, 60, i)
		if i == 1 { // pods that lived in the other's gap
			for _, s := range byInstance(scraped(9, now.Add(-26*time.Minute), now.Add(-24*time.Minute), 9*time.Second, nil)) {
				b := labels.NewBuilder(s.lbls)
				s.lbls = b.Set("instance", "pod-"+b.Get("instance")).Set("node", "pod-"+b.Get("node")).Labels()
				held = append(held, s)
			}
		}
		servers[i] = promShard(t, labels.FromStrings("replica", fmt.Sprint(i)), held).URL()
		urls[i] = before(t, servers[i], func(r *http.Request) bool {
			return strings.HasSuffix(r.URL.Path, "/label/instance/values") && int(fail.Load()) == i
		})
	}
	config := replicasConfig("    heartbeat: up\n", urls[:]...)
	form := url.Values{"query": {"count(count_over_time(requests_total[60m]))"}, "time": {stamp(now.Add(-10 * time.Minute))}}
	count := func(config string) string {
		_, base := startProxy(t, t.Context(), config)
		code, body := ask(t, base, "/api/v1/query", form)
		if code != 200 {
			t.Errorf("%d %.500s", code, body)
		}
		return string(body)
	}
	small := config + "limits: {max_series: 25}\n"
	fail.Store(-1)
	if got, want := count(small), count(config); got != want || !strings.Contains(got, `"69"`) {
		t.Errorf("both say it: %s, want %s", got, want)
	}
	fail.Store(0)
	if got := count(small); !strings.Contains(got, `"69"`) {
		t.Errorf("who lacks the pods does not say it: %s", got)
	}
	fail.Store(1)
	one, said := notRead([]byte(count(small)))
	if got, want := string(one), count(replicasConfig("", servers[0])); got != want || !said {
		t.Errorf("who has the pods does not say it: %s, want what the other one has alone: %s", got, want)
	}
}

// TestParcelsOfOneShard: where hashmod says that one shard has all series of a parcel, the others
// were not lost.
func TestParcelsOfOneShard(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	var b strings.Builder
	b.WriteString("groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    replica_labels: [replica]\n" + "    heartbeat: up\n" +
		"    hashmod: {labels: [instance], modulus: 2}\n    shards:\n")
	for shard := range 2 {
		fmt.Fprintf(&b, "      - hash: %d\n        replicas:\n", shard)
		for i := range 2 {
			var own []storedSeries
			for _, s := range heldByOneOf(now, 40, i) {
				if h := md5.Sum([]byte(s.lbls.Get("instance"))); binary.BigEndian.Uint64(h[8:])%2 == uint64(shard) {
					own = append(own, s)
				}
			}
			fmt.Fprintf(&b, "          - {url: %q}\n", promShard(t, labels.FromStrings("replica", fmt.Sprint(i)), own).URL())
		}
	}
	form := url.Values{"query": {"sum(count_over_time(requests_total[60m]))"}, "time": {stamp(now.Add(-10 * time.Minute))}}
	_, all := startProxy(t, t.Context(), b.String())
	_, want := ask(t, all, "/api/v1/query", form)
	for _, parcel := range []int{7, 2, 1} {
		s, small := startProxy(t, t.Context(), b.String()+"limits: {max_series: 25}\n")
		s.parcel = parcel
		r := &rig{t: t, s: s}
		r.eventually("the shards are seen to keep to hashmod", func() bool { return s.state.Load().top.Groups[0].HashmodTrusted() })
		code, got := ask(t, small, "/api/v1/query", form)
		if code != 200 {
			t.Errorf("parcels of %d: %d %.500s", parcel, code, got)
			continue
		}
		sameAnswer(t, fmt.Sprintf("parcels of %d", parcel), got, want)
	}
}

// body is what comes with the request, which still has it.
func body(t *testing.T, r *http.Request) []byte {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	return b
}

// readAsked is what a remote read asks for.
func readAsked(t *testing.T, r *http.Request) *prompb.Query {
	var asked prompb.ReadRequest
	if plain, err := snappy.Decode(nil, body(t, r)); err != nil || asked.Unmarshal(plain) != nil || len(asked.Queries) != 1 {
		t.Error("not a read request")
		return &prompb.Query{}
	}
	return asked.Queries[0]
}

// TestOneStretchOfAParcelFails: a parcel of which the other replica was not read in one of several
// stretches is not of both.
func TestOneStretchOfAParcelFails(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	in := func(at time.Time, since, back int) bool {
		return at.After(now.Add(-time.Duration(since)*time.Minute)) && at.Before(now.Add(-time.Duration(back)*time.Minute))
	}
	gaps := []func(int, time.Time) bool{
		func(_ int, at time.Time) bool { return in(at, 300, 280) || in(at, 180, 165) },
		func(_ int, at time.Time) bool { return in(at, 240, 230) || in(at, 90, 75) },
	}
	var urls [2]string
	var left atomic.Int32 // reads of a second stretch until one fails
	for i := range 2 {
		held := byInstance(scraped(30, now.Add(-6*time.Hour), now.Add(-time.Second), time.Duration(2+4*i)*time.Second, gaps[i]))
		server := promShard(t, labels.FromStrings("replica", fmt.Sprint(i)), held)
		urls[i] = before(t, server.URL(), func(r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/read") {
				return false
			}
			q := readAsked(t, r)
			short, late := q.EndTimestampMs-q.StartTimestampMs < time.Hour.Milliseconds(), now.UnixMilli()-q.StartTimestampMs
			return short && late < (200*time.Minute).Milliseconds() && left.Add(-1) == 0
		})
	}
	form := url.Values{"query": {"sum(count_over_time(requests_total[330m]))"}, "time": {stamp(now.Add(-time.Second))}}
	get := func(config string, parcel int) (int, []byte) {
		s, base := startProxy(t, t.Context(), config)
		s.parcel = parcel
		return ask(t, base, "/api/v1/query", form)
	}
	config := replicasConfig("    heartbeat: up\n", urls[:]...)
	_, both := get(config, 0)
	_, a := get(replicasConfig("", urls[0]), 0)
	_, b := get(replicasConfig("", urls[1]), 0)
	if bytes.Equal(a, b) || bytes.Equal(a, both) {
		t.Fatalf("the replicas have the same: %s", a)
	}
	for n := range int32(5) {
		left.Store(n)
		code, got := get(config+"limits: {max_series: 25}\n", 7)
		rest, said := notRead(got)
		if one := bytes.Equal(rest, a) || bytes.Equal(rest, b); code != 200 || one != said || !one && !bytes.Equal(got, both) {
			t.Errorf("read %d of a second stretch fails: %d %s, of both %s, of one %s and %s", n, code, got, both, a, b)
		}
	}
}
