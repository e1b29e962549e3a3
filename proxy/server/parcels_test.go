package server

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/answer"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// TestParcels: an aggregate over the gaps of both replicas, of more series than max_series, is
// evaluated target by target, and is what it is where all are read at once. What is no such
// aggregate is refused as before.
func TestParcels(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	from, until := now.Add(-75*time.Minute), now.Add(-time.Second)
	away := func(since, back time.Duration) func(int, time.Time) bool {
		return func(_ int, at time.Time) bool { return at.After(now.Add(-since)) && at.Before(now.Add(-back)) }
	}
	held := func(phase time.Duration, skip func(int, time.Time) bool) []storedSeries {
		out := scraped(60, from, until, phase, skip)
		for i := range out {
			b := labels.NewBuilder(out[i].lbls)
			if node := b.Get("node"); node != "n7" { // which has none, as what a rule records
				b.Set("instance", node+":9100")
			}
			out[i].lbls = b.Labels()
		}
		return out
	}
	a := promShard(t, labels.FromStrings("replica", "a"), held(2*time.Second, away(26*time.Minute, 22*time.Minute)))
	b := promShard(t, labels.FromStrings("replica", "b"), held(9*time.Second, away(20*time.Minute, 17*time.Minute)))
	config := replicasConfig("    heartbeat: up\n", a.URL(), b.URL())
	_, all := startProxy(t, t.Context(), config)
	s, small := startProxy(t, t.Context(), config+"limits: {max_series: 25}\n")
	const refused = `"bound":"max_series"`
	for _, tc := range []struct {
		query, refused string
		parcels        bool
	}{
		{"sum(rate(requests_total[30m]))", "", true},
		{"sum(rate(requests_total[30m]))", "", true},                                                       // known to be too many
		{"avg by (job) (requests_total + on (node) count_over_time(requests_total[30m]))", refused, false}, // not by target
		{"avg by (job) (increase(requests_total[30m]))", "", true},
		{"avg by (job) (increase(requests_total[30m]) / on (node, instance) count_over_time(up[30m]))", refused, false}, // which may fail
		{"avg by (job) (increase(requests_total[30m]) and on (node, instance) count_over_time(up[30m]) > 60)", "", true},
		{"sum(requests_total and on (instance) count_over_time(up[30m]))", "", true}, // one side of it is whole
		{"sum by (node) (rate(requests_total[30m]))", refused, false},                // more rows than max_series
		{"min(rate(requests_total[30m])) + max(rate(up[30m]))", "", true},
		{`count by (node) (last_over_time({__name__=~"up|requests_total", node=~"n[1-9]|n1."}[30m]) > 100)`, "", true},
		{`topk(3, sum by (node) (rate(requests_total{node=~"n[12345].?"}[30m]))) > 2`, refused, false}, // more rows than max_series
		{"sum(rate(requests_total[1m]))", "", false},
		{"stddev(rate(requests_total[30m]))", refused, false},
		{"rate(requests_total[30m])", refused, false},
		{"sum(max_over_time(rate(requests_total[1m])[30m:1m]))", "", true},
		{"max_over_time(sum(rate(requests_total[5m]))[30m:1m])", "", true}, // a part of it
		{"sum(rate(requests_total[30m] @ end()))", "", true},
	} {
		first, last := stamp(now.Add(-40*time.Minute)), stamp(now.Add(-10*time.Minute))
		for path, form := range map[string]url.Values{
			"/api/v1/query":       {"time": {last}},
			"/api/v1/query_range": {"start": {first}, "end": {last}, "step": {"60"}},
		} {
			form.Set("query", tc.query)
			before := plans(t, s, string(plan.ModeParcels))
			code, got := ask(t, small, path, form)
			if tc.refused != "" {
				if code != 422 || !strings.Contains(string(got), tc.refused) {
					t.Errorf("%s: %d %.700s, want %s", tc.query, code, got, tc.refused)
				}
				continue
			}
			if code != 200 {
				t.Errorf("%s: %d %.700s", tc.query, code, got)
				continue
			}
			if parcels := plans(t, s, string(plan.ModeParcels)) > before; parcels != tc.parcels && path == "/api/v1/query" {
				t.Errorf("%s: in parcels: %v", tc.query, parcels)
			}
			_, want := ask(t, all, path, form)
			sameAnswer(t, path+": "+tc.query, got, want)
		}
	}
	// What the last bit of a sum of parcels decides is refused, but not where a replica is whole.
	other := promShard(t, labels.EmptyLabels(), scraped(1, from, until, 0, nil))
	two := config + fmt.Sprintf("  - name: other\n    labels: {cluster: other}\n    shards: [{replicas: [{url: %q}]}]\n", other.URL())
	_, small = startProxy(t, t.Context(), two+"limits: {max_series: 25}\n")
	near := `sum(count_over_time(requests_total[30m]) / 7) > max(count_over_time(requests_total[30m]))`
	for i, ago := range []time.Duration{10 * time.Minute, 30 * time.Minute, 10 * time.Minute} {
		code, body := ask(t, small, "/api/v1/query", url.Values{"query": {near}, "time": {stamp(now.Add(-ago))}})
		if want := []int{422, 200, 422}[i]; code != want {
			t.Errorf("%s ago: %d %.500s", ago, code, body)
		}
	}
	if n := s.state.Load().pool.InUse(); n != 0 {
		t.Errorf("%d bytes are still held", n)
	}
}

// TestParcelsOfOneTarget: a target that alone has more series than may be held, as
// kube-state-metrics has, is divided by another label where what is asked allows that.
func TestParcelsOfOneTarget(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	urls := make([]string, 2)
	for i, away := range []time.Duration{26 * time.Minute, 20 * time.Minute} {
		gone := func(_ int, at time.Time) bool {
			return at.After(now.Add(-away)) && at.Before(now.Add(-away+3*time.Minute))
		}
		held := scraped(60, now.Add(-75*time.Minute), now.Add(-time.Second), time.Duration(2+7*i)*time.Second, gone)
		for j := range held {
			b := labels.NewBuilder(held[j].lbls).Set("instance", "ksm:8080").Set("kind", "pod")
			if b.Get("node") == "n7" {
				b.Del("node").Set("phase", "Running") // of no node
			}
			held[j].lbls = b.Labels()
		}
		urls[i] = promShard(t, labels.FromStrings("replica", fmt.Sprint(i)), held).URL()
	}
	config := replicasConfig("    heartbeat: up\n", urls...)
	_, all := startProxy(t, t.Context(), config)
	s, small := startProxy(t, t.Context(), config+"limits: {max_series: 25}\n")
	for _, tc := range []struct {
		query   string
		refused bool
	}{
		{"sum(increase(requests_total[30m]))", false},
		{"avg by (job) (rate(requests_total[30m]))", false},
		{`max by (phase) (max_over_time(requests_total{node!~"n1."}[30m]))`, false},
		{"count(requests_total and on (node, instance) count_over_time(up[30m]) > 60)", false},
		{"count(requests_total and on (instance, kind) count_over_time(up[30m]) > 60)", true}, // by kind, of which there is one
		{"count(max by (instance) (rate(requests_total[30m])))", true},
	} {
		form := url.Values{"query": {tc.query}, "time": {stamp(now.Add(-10 * time.Minute))}}
		code, got := ask(t, small, "/api/v1/query", form)
		if tc.refused {
			if code != 422 || !strings.Contains(string(got), `"bound":"max_series"`) {
				t.Errorf("%s: %d %.500s", tc.query, code, got)
			}
			continue
		}
		if code != 200 {
			t.Errorf("%s: %d %.500s", tc.query, code, got)
			continue
		}
		_, want := ask(t, all, "/api/v1/query", form)
		sameAnswer(t, tc.query, got, want)
	}
	(&rig{t: t, s: s}).eventually("nothing is held", func() bool { return s.state.Load().pool.InUse() == 0 })
}

// TestAReplicaFailsBetweenParcels: all parcels are read again without it, so that the answer is
// what the other one has; a sum over parcels of which some are of both would be nobody's.
func TestAReplicaFailsBetweenParcels(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	urls := make([]string, 2)
	var reads [2]atomic.Int64
	var fails atomic.Pointer[func(replica int, read int64) bool]
	for i, away := range []time.Duration{26 * time.Minute, 20 * time.Minute} {
		gone := func(_ int, at time.Time) bool {
			return at.After(now.Add(-away)) && at.Before(now.Add(-away+3*time.Minute))
		}
		held := scraped(60, now.Add(-75*time.Minute), now.Add(-time.Second), time.Duration(2+7*i)*time.Second, gone)
		for j := range held {
			b := labels.NewBuilder(held[j].lbls)
			held[j].lbls = b.Set("instance", b.Get("node")+":9100").Labels()
		}
		server, err := url.Parse(promShard(t, labels.FromStrings("replica", fmt.Sprint(i)), held).URL())
		if err != nil {
			t.Fatal(err)
		}
		through := httputil.NewSingleHostReverseProxy(server)
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			read := strings.HasSuffix(r.URL.Path, "/read")
			if read && (*fails.Load())(i, reads[i].Add(1)) || strings.HasSuffix(r.URL.Path, "/labels") {
				http.Error(w, "no disk", http.StatusInternalServerError)
				return
			}
			through.ServeHTTP(w, r)
		}))
		t.Cleanup(front.Close)
		urls[i] = front.URL
	}
	never := func(int, int64) bool { return false }
	fails.Store(&never)
	config := replicasConfig("    heartbeat: up\n", urls...)
	form := url.Values{"query": {"sum(count_over_time(requests_total[30m]))"}, "time": {stamp(now.Add(-10 * time.Minute))}}
	_, alone := startProxy(t, t.Context(), replicasConfig("", urls[0]))
	_, of1 := ask(t, alone, "/api/v1/query", form)
	_, both := startProxy(t, t.Context(), config)
	_, of2 := ask(t, both, "/api/v1/query", form)
	if bytes.Equal(of1, of2) {
		t.Fatalf("the replicas have nothing that the other one lacks: %s", of1)
	}
	for _, tc := range []struct {
		name  string
		after int64 // of its reads
		read  bool  // the next read fails; else it is not asked any more, for what others asked of it
		want  []byte
	}{
		{"the first read", 0, true, of1},
		{"the second read", 1, true, of1},
		{"the fourth read", 3, true, of1},
		{"none", 1 << 40, true, of2},
		{"not asked after the second", 1, false, of1},
		{"not asked after the fourth", 3, false, of1},
	} {
		s, base := startProxy(t, t.Context(), config+"limits: {max_series: 25}\n")
		s.parcel = 7
		sh := s.state.Load().top.Groups[0].Shards[0]
		var out atomic.Int64 // its reads until it came not to be asked
		f := func(replica int, read int64) bool {
			if !tc.read && replica == 0 && read == tc.after+1 {
				for reads[1].Load() < read || sh.Replicas[1].InFlight() > 0 {
					time.Sleep(time.Millisecond)
				}
				for well, err := sh.Well(); len(well) > 1 || err != nil; well, err = sh.Well() {
					if resp, err := sh.Replicas[1].Do(t.Context(), &endpoint.Request{ID: endpoint.Labels},
						shard.CallOptions{}); err == nil {
						_ = resp.Body.Close()
					}
				}
				out.Store(reads[1].Load())
			}
			for !tc.read && replica == 0 && read > tc.after && out.Load() == 0 { // of the other parcel that is made
				time.Sleep(time.Millisecond)
			}
			return tc.read && replica == 1 && read > tc.after
		}
		fails.Store(&f)
		reads[0].Store(0)
		reads[1].Store(0)
		code, got := ask(t, base, "/api/v1/query", form)
		if code != 200 {
			t.Errorf("%s: %d %s", tc.name, code, got)
			continue
		}
		if !tc.read && reads[1].Load() >= 60/7 {
			tc.want = of2 // on a busy machine it is asked again by then, so that all parcels are of both
		}
		got, said := notRead(got)
		sameAnswer(t, tc.name, got, tc.want)
		// One that is not asked says nothing, unless it may be asked again by then.
		if failed := tc.read && tc.after < 60; said != failed && tc.read {
			t.Errorf("%s: it says that something is missing: %t", tc.name, said)
		}
		if n := reads[0].Load(); tc.read && n < 60/7 {
			t.Errorf("%s: %d reads, so it was not in parcels", tc.name, n)
		}
		(&rig{t: t, s: s}).eventually("nothing is held", func() bool { return s.state.Load().pool.InUse() == 0 })
	}
}

// TestHeldByParcel: what a parcel holds in a budget is given back whole, whatever was given back
// before.
func TestHeldByParcel(t *testing.T) {
	budget := admit.NewBudget(admit.NewPool(1<<20), admit.Limits{})
	defer budget.Close()
	if err := budget.Hold(100); err != nil {
		t.Fatal(err)
	}
	h := &heldBy{Budget: budget}
	for _, n := range []int64{5000, 70_000} {
		if err := h.Hold(n); err != nil {
			t.Fatal(err)
		}
	}
	h.Drop(2000)
	if err := h.Hold(1 << 30); err == nil || budget.Held() != 73_100 {
		t.Errorf("%v; %d bytes are held", err, budget.Held())
	}
	if h.drop(); budget.Held() != 100 {
		t.Errorf("%d bytes are held after the parcel, want the 100 of before", budget.Held())
	}
	counted := &heldBy{Budget: admit.NewBudget(nil, admit.Limits{MaxSeries: 3})}
	for i, n := range []int{2, 1, 1} {
		if err := counted.AddSeries(n); (err == nil) != (i < 2) {
			t.Errorf("%d more: %v", n, err)
		}
	}
	if n := counted.series(); n != 4 {
		t.Errorf("%d series, want 4", n)
	}
	if counted.drop(); counted.Series() != 0 {
		t.Errorf("%d series are still counted", counted.Series())
	}
}

// TestInParcels: a target with many series makes the parcels before it small, not those behind it,
// and none is left out or read twice.
func TestInParcels(t *testing.T) {
	var values []string
	for i := range 100 {
		values = append(values, fmt.Sprintf("%03d", i))
	}
	for _, tc := range []struct {
		name             string
		large, series    int // which target has how many
		most             int
		parcels, tooMany int // those that were added, and those of too many series
		beside           int
		refused, fails   bool
		divides          bool
	}{
		{name: "even", series: 1, most: 20, parcels: 5, beside: 1},
		{name: "even, two at a time", series: 1, most: 20, beside: 2},
		{name: "first", large: 0, series: 20, most: 20, parcels: 10, tooMany: 4, beside: 1},
		{name: "in the middle", large: 50, series: 20, most: 20, parcels: 10, tooMany: 5, beside: 1},
		{name: "in the middle, two at a time", large: 50, series: 20, most: 20, beside: 2},
		{name: "more than fit", large: 50, series: 21, most: 20, refused: true, beside: 2},
		{name: "one that is divided", large: 50, series: 21, most: 20, divides: true, beside: 2},
		{name: "another error", large: 50, series: 21, most: 20, fails: true, beside: 2},
	} {
		var mu sync.Mutex
		added, held, none := map[string]bool{}, 0, 0
		parcels, tooMany := 0, 0
		p := &parcelling{values: values, size: tc.most, most: tc.most, room: 20, beside: tc.beside}
		err := p.run(func(some []string, alone bool) (int, bool, error) {
			series := len(some)
			if slices.Contains(some, values[tc.large]) {
				series += tc.series - 1
			}
			mu.Lock()
			held += series
			now := held
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
			defer mu.Unlock()
			held -= series
			if now > 20 && !(tc.divides && alone && len(some) == 1) {
				tooMany++
				return series, !tc.fails, errors.New("too many")
			}
			if len(some) == 0 {
				none++
				return 0, false, nil
			}
			for _, v := range some {
				if added[v] {
					t.Errorf("%s: %s twice", tc.name, v)
				}
				added[v] = true
			}
			parcels++
			return series, false, nil
		})
		if (err != nil) != (tc.refused || tc.fails) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if p.beside != tc.beside && tc.series <= 1 || tc.divides && p.beside != 2 {
			t.Errorf("%s: %d beside each other at the end", tc.name, p.beside)
		}
		if err == nil && (len(added) != len(values) || none != 1) {
			t.Errorf("%s: added %d of %d, and %d times those of no value", tc.name, len(added), len(values), none)
		}
		if err == nil && tc.beside == 1 && (parcels != tc.parcels || tooMany != tc.tooMany) {
			t.Errorf("%s: %d parcels, %d of too many, want %d and %d", tc.name, parcels, tooMany, tc.parcels, tc.tooMany)
		}
	}
}

// TestParcelsOfValues: a parcel has so many values, or as many as are short enough together; what
// it selects is those and no others.
func TestParcelsOfValues(t *testing.T) {
	long := strings.Repeat("x", parcelBytes/2)
	for _, tc := range []struct {
		values []string
		most   int
		want   int
	}{
		{[]string{"a", "b", "c"}, 2, 2},
		{[]string{"a", "b", "c"}, 3, 3},
		{[]string{"a"}, 200, 1},
		{[]string{long, long, "c"}, 200, 2},
		{[]string{long + long + "x", "b"}, 200, 1},
	} {
		if n := fitting(tc.values, tc.most); n != tc.want {
			t.Errorf("%d of %.20q at %d, want %d", n, tc.values, tc.most, tc.want)
		}
	}
	values := []string{"10.0.0.1:9100", "[::1]:9100", "a|b", "é\n"}
	for n := 1; n <= len(values); n++ {
		m := matcherOf("instance", values[:n])
		for i, v := range append(values, "10a0b0c1:9100", "a", "") {
			if m.Matches(v) != (i < n) {
				t.Errorf("%s selects %q: %v", m, v, m.Matches(v))
			}
		}
	}
}

// TestParcelsAreReadOnce: a sum and a count of the same series are of one read.
func TestParcelsAreReadOnce(t *testing.T) {
	var got []storage.SelectHints
	want := storage.SelectHints{Start: 1, End: 2, Step: 3, Range: 4}
	only := labels.MustNewMatcher(labels.MatchEqual, "instance", "a")
	q, err := parcelQueryable{storage.QueryableFunc(func(int64, int64) (storage.Querier, error) {
		return &storage.MockQuerier{SelectMockFunction: func(_ bool, h *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
			if len(ms) != 2 || ms[1] != only {
				t.Errorf("selected by %v", ms)
			}
			got = append(got, *h)
			return storage.EmptySeriesSet()
		}}, nil
	}), []*labels.Matcher{only}}.Querier(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	up := labels.MustNewMatcher(labels.MatchEqual, "__name__", "up")
	for _, f := range []string{"sum", "count"} {
		hints := want
		hints.Func, hints.By, hints.Grouping = f, true, []string{f}
		q.Select(t.Context(), false, &hints, up)
	}
	if !reflect.DeepEqual(got, []storage.SelectHints{want, want}) {
		t.Errorf("asked for %+v", got)
	}
}

// TestFooting: a copy that is read for some parcels and not for others is lost, whichever was made
// first, and one that failed for a part of a parcel; what is read of other shards does not matter.
// Results are counted once.
func TestFooting(t *testing.T) {
	var f footing
	for _, tc := range []struct {
		shard        string
		used, failed []string
		lost         string
	}{
		{"s", []string{"a", "b"}, nil, ""},
		{"s", []string{"b", "a"}, nil, ""},
		{"s", []string{"a", "b", "c"}, nil, "c"},
		{"s", []string{"a"}, nil, "b"},
		{"s", []string{"a", "b"}, []string{"b"}, "b"},
		{"t", []string{"d"}, []string{"e"}, ""},
		{"t", []string{"d"}, nil, ""},
		{"t", []string{"d", "e"}, nil, "e"},
	} {
		own := &readCopies{}
		own.note(tc.shard, tc.used, tc.failed)
		err, lost := f.settle(own), (*answer.LostReplica)(nil)
		if tc.lost == "" && err != nil || tc.lost != "" && (!errors.As(err, &lost) || len(lost.Names) != 1 || lost.Names[0] != tc.lost) {
			t.Errorf("%s of %s, failed %s: %v", tc.used, tc.shard, tc.failed, err)
		}
	}
	row := func(node string) *merge.Table {
		return &merge.Table{Series: []merge.TableSeries{{Labels: labels.FromStrings("node", node)}}}
	}
	for i, node := range []string{"a", "b", "a", "b", "c"} {
		if err := f.rows(row(node), 2); (err == nil) != (i < 4) || f.full != (i == 4) {
			t.Errorf("row %d: %v, full: %v", i, err, f.full)
		}
	}
}
