package server

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/proxy/answer"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
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
		{"min(rate(requests_total[30m])) + max(rate(up[30m]))", "", false},
		{`count by (node) (last_over_time({__name__=~"up|requests_total", node=~"n[1-9]|n1."}[30m]) > 100)`, "", true},
		{`topk(3, sum by (node) (rate(requests_total{node=~"n[12345].?"}[30m]))) > 2`, refused, false}, // more rows than max_series
		{"sum(rate(requests_total[1m]))", "", false},
		{"stddev(rate(requests_total[30m]))", refused, false},
		{"rate(requests_total[30m])", refused, false},
		{"sum(max_over_time(rate(requests_total[1m])[30m:1m]))", "", true},
		{"max_over_time(sum(rate(requests_total[5m]))[30m:1m])", "", false}, // a part of it
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

// TestHeldByParcel: what a parcel holds in a budget is given back whole, whatever was given back
// before.
func TestHeldByParcel(t *testing.T) {
	budget := merge.NewBudget(merge.NewPool(1<<20), merge.Limits{})
	defer budget.Close()
	if err := budget.Hold(100); err != nil {
		t.Fatal(err)
	}
	h := &heldBy{Budget: budget, uses: 1}
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
	twice := &heldBy{Budget: merge.NewBudget(nil, merge.Limits{MaxSeries: 3}), uses: 2}
	for i, n := range []int{3, 3, 1} { // and another one
		if err := twice.AddSeries(n); (err == nil) != (i < 2) {
			t.Errorf("use %d: %v", i, err)
		}
	}
	if n := twice.Series(); n != 4 {
		t.Errorf("%d series, want 4", n)
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
		m := matcherOf(values[:n])
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
	}), only}.Querier(0, 1)
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

// TestFooting: a copy that is not read any more for a later parcel is lost; one that comes back
// changes nothing; results are counted once.
func TestFooting(t *testing.T) {
	f := footing{now: map[string]bool{"a": true, "b": true}}
	if err := f.settle(); err != nil {
		t.Error(err)
	}
	f.now = map[string]bool{"a": true, "b": true, "c": true}
	if err := f.settle(); err != nil {
		t.Error(err)
	}
	f.now = map[string]bool{"a": true}
	var lost *answer.LostReplica
	if err := f.settle(); !errors.As(err, &lost) || len(lost.Names) != 1 || lost.Names[0] != "b" {
		t.Errorf("%v", err)
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
