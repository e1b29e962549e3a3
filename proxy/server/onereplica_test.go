package server

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// gappyPair is a shard of two replicas that scrape at different moments and were away for a while,
// beside another shard. The heartbeat's newest bucket of five minutes ends four minutes before now.
// Scrapes go on after now: where they end, the last minute has of one what it no longer has of the
// other.
type gappyPair struct {
	t           *testing.T
	now         time.Time
	from, until time.Time
}

func newGappyPair(t *testing.T) gappyPair {
	now := time.Now().Truncate(5 * time.Minute).Add(4 * time.Minute)
	if now.After(time.Now()) {
		now = now.Add(-5 * time.Minute)
	}
	return gappyPair{t, now, now.Add(-60 * time.Minute), now.Add(time.Hour)}
}

// away tells of a scrape whether it falls in a stretch before now.
func (w gappyPair) away(begin, end time.Duration) func(int, time.Time) bool {
	return func(_ int, at time.Time) bool { return at.After(w.now.Add(-begin)) && at.Before(w.now.Add(-end)) }
}

// replica is the URL of one, which does not have the scrapes that are skipped.
func (w gappyPair) replica(name string, phase time.Duration, skip func(int, time.Time) bool) string {
	series := scraped(3, w.from, w.until, phase, skip)
	return promShard(w.t, labels.FromStrings("cluster", "jaguar", "replica", name), series).URL()
}

// config has the two, and the other shard.
func (w gappyPair) config(a, b string) string {
	var others []storedSeries
	for _, s := range scraped(2, w.from, w.until, 5*time.Second, nil) {
		s.lbls = labels.NewBuilder(s.lbls).Set("node", "m"+s.lbls.Get("node")).Labels()
		others = append(others, s)
	}
	c := promShard(w.t, labels.FromStrings("cluster", "jaguar"), others)
	return replicasConfig("    heartbeat: up\n", a, b) + fmt.Sprintf("      - replicas: [{url: %q}]\n", c.URL())
}

// TestOneReplicaForWhatOverlaps: selectors whose windows overlap are read from one replica of a
// shard, whether shards evaluate over them or they are read raw, although one of the windows is
// whole on another replica, which was the last one chosen.
func TestOneReplicaForWhatOverlaps(t *testing.T) {
	w := newGappyPair(t)
	a := w.replica("a", 2*time.Second, w.away(44*time.Minute, 39*time.Minute))
	b := w.replica("b", 9*time.Second, w.away(19*time.Minute, 16*time.Minute))
	now := w.now
	s, base := startProxy(t, t.Context(), w.config(a, b))
	// Over fifty minutes neither is whole, and the one whose samples are taken first answers alone
	// what it is whole over.
	const neither = `sum(last_over_time(requests_total[1m])) - sum(quantile by (node) (0.5, requests_total))` +
		` + 0 * sum(max_over_time(requests_total[50m]))`
	for _, query := range []string{
		`sum(last_over_time(requests_total[1m])) - sum(quantile by (node) (0.5, requests_total))`,
		`sum(quantile by (node) (0.5, requests_total)) - sum(last_over_time(requests_total[1m]))`,
		`quantile by (node) (0.5, requests_total) - quantile by (node) (0.5, last_over_time(requests_total[1m]))`,
		neither,
	} {
		mixed := plans(t, s, "mixed")
		// What is whole on B alone has B chosen, which stays so while it is whole.
		first := url.Values{"query": {"sum(requests_total offset 40m)"}, "time": {stamp(now.Add(-10 * time.Second))}}
		if code, body := ask(t, base, "/api/v1/query", first); code != 200 {
			t.Fatalf("%d %s", code, body)
		}
		code, body := ask(t, base, "/api/v1/query_range", url.Values{
			"query": {query}, "start": {stamp(now.Add(-12 * time.Minute))}, "end": {stamp(now.Add(-10 * time.Second))}, "step": {"10"},
		})
		got, msg := fromJSON(t, body)
		if code != 200 || len(got) == 0 {
			t.Errorf("%s: %d %s", query, code, msg)
		}
		if query == neither && plans(t, s, "mixed") == mixed {
			t.Error("what the base holds whole is read raw too")
		}
		for _, points := range got {
			for at, v := range points {
				if f, err := strconv.ParseFloat(v, 64); err != nil || math.Abs(f) > 1e-6 {
					t.Errorf("%s: %s at %d: its sides are of two replicas", query, v, at)
					break
				}
			}
		}
	}
}

// failsNow stands before a server. From when fails is set it says 503 to instant and range queries
// of requests_total as it is now, and after the first of these to everything, where all is; from
// when lists is set to all that lists series and labels.
type failsNow struct {
	fails, failed, all, lists atomic.Bool
}

func (f *failsNow) before(t *testing.T, server string) string {
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	through := httputil.NewSingleHostReverseProxy(to)
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked := string(body(t, r)) + r.URL.RawQuery
		ofNow := strings.Contains(asked, "requests_total") && !strings.Contains(asked, "offset") &&
			!strings.Contains(asked, "[50m]") && strings.Contains(r.URL.Path, "/query")
		if ofNow && f.fails.Load() {
			time.Sleep(300 * time.Millisecond) // what else is asked has been answered by now
			f.failed.Store(true)
		}
		listed := strings.HasSuffix(r.URL.Path, "/series") || strings.Contains(r.URL.Path, "/label")
		if f.failed.Load() && (ofNow || f.all.Load()) || listed && f.lists.Load() {
			http.Error(rw, "busy", http.StatusServiceUnavailable)
			return
		}
		through.ServeHTTP(rw, r)
	}))
	t.Cleanup(front.Close)
	return front.URL
}

// TestReplacedWhereWhole: where a replica fails for one part of a query, its copy is not asked for
// another part over a time of which the copy lacks some; and where the copy is whole, the query is
// answered though the replica fails for all that comes after, also what is read raw.
func TestReplacedWhereWhole(t *testing.T) {
	const parts = `sum(count_over_time(requests_total[10m] offset 37m)) + 0 * sum(requests_total)`
	for name, tc := range map[string]struct {
		query      string
		gap, falls bool
	}{
		"the copy lacks some":         {parts, true, false},
		"it falls":                    {parts, false, true},
		"it falls, and some is raw":   {parts + ` + 0 * sum(quantile by (node) (0.5, requests_total offset 40m))`, false, true},
		"it fails, and some is raw":   {parts + ` + 0 * sum(quantile by (node) (0.5, requests_total offset 40m))`, false, false},
		"it fails, and now is raw":    {parts + ` + 0 * sum(quantile by (node) (0.5, requests_total))`, false, false},
		"it falls, and all are apart": {parts + ` + 0 * sum(quantile by (node) (0.5, requests_total offset 20m))`, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGappyPair(t)
			var skip func(int, time.Time) bool
			if tc.gap {
				skip = w.away(44*time.Minute, 39*time.Minute)
			}
			var a failsNow
			a.all.Store(tc.falls)
			b := w.replica("b", 9*time.Second, skip)
			_, base := startProxy(t, t.Context(), w.config(a.before(t, w.replica("a", 2*time.Second, nil)), b))
			value := func() string {
				t.Helper()
				code, body := ask(t, base, "/api/v1/query", url.Values{"query": {tc.query}, "time": {stamp(w.now.Add(-10 * time.Second))}})
				got, msg := fromJSON(t, body)
				if code != 200 || len(got) != 1 {
					t.Fatalf("%d %s", code, msg)
				}
				for _, points := range got {
					for _, v := range points {
						return v
					}
				}
				return ""
			}
			want := value()
			a.fails.Store(true)
			if got := value(); got != want || !a.failed.Load() {
				t.Errorf("where A fails (%v) it is %s, else %s", a.failed.Load(), got, want)
			}
		})
	}
}

// TestOnlyWholeReplicaFails: where the one replica that is whole fails for a part, and is still
// there, the other one's samples are not taken for the whole: the query is refused until it answers
// or has gone.
func TestOnlyWholeReplicaFails(t *testing.T) {
	w := newGappyPair(t)
	var a failsNow
	b := w.replica("b", 9*time.Second, w.away(44*time.Minute, 39*time.Minute))
	_, base := startProxy(t, t.Context(), w.config(a.before(t, w.replica("a", 2*time.Second, nil)), b))
	get := func() (int, string) {
		const query = `sum(count_over_time(requests_total[50m])) + 0 * sum(requests_total)`
		code, body := ask(t, base, "/api/v1/query", url.Values{"query": {query}, "time": {stamp(w.now.Add(-10 * time.Second))}})
		return code, string(body)
	}
	if code, body := get(); code != 200 || !strings.Contains(body, `,"1000"]`) {
		t.Fatalf("%d %s", code, body)
	}
	a.fails.Store(true)
	if code, body := get(); code == 200 || !strings.Contains(body, "lack some of what it has") {
		t.Errorf("where A fails (%v): %d %s", a.failed.Load(), code, body)
	}
}

// TestOnlyWholeReplicaFailsToList: likewise for lists of series, of labels and of their values,
// which would lack what was only there while the other one was away.
func TestOnlyWholeReplicaFailsToList(t *testing.T) {
	w := newGappyPair(t)
	var a failsNow
	b := w.replica("b", 9*time.Second, w.away(44*time.Minute, 39*time.Minute))
	config := w.config(a.before(t, w.replica("a", 2*time.Second, nil)), b)
	since := func(ago time.Duration) url.Values {
		return url.Values{"start": {stamp(w.now.Add(-ago))}, "end": {stamp(w.now)}, "match[]": {"requests_total"}}
	}
	for path, id := range map[string]string{
		"/api/v1/series": "series", "/api/v1/labels": "labels", "/api/v1/label/node/values": "label_values",
	} {
		a.lists.Store(false)
		s, base := startProxy(t, t.Context(), config) // with all retries that it may make
		r := &rig{t: t, s: s}
		if code, body := ask(t, base, path, since(50*time.Minute)); code != 200 {
			t.Fatalf("%s: %d %s", path, code, body)
		}
		a.lists.Store(true)
		code, body := ask(t, base, path, since(50*time.Minute))
		if code != 502 || !strings.Contains(string(body), "lack some of what it has") {
			t.Errorf("%s where A fails: %d %s", path, code, body)
		}
		some := since(50 * time.Minute)
		some.Set("partial_response", "true")
		if code, body := ask(t, base, path, some); code != 200 || !strings.Contains(string(body), "lack some of what it has") ||
			strings.HasSuffix(path, "values") && !strings.Contains(string(body), `"n0"`) {
			t.Errorf("%s, in part: %d %s", path, code, body)
		}
		if got := r.metric("spillway_partial_answers_total", "endpoint="+id); got != 1 {
			t.Errorf("%s: %g shards are counted of which a part was missing, want 1", path, got)
		}
		if code, body := ask(t, base, path, since(20*time.Minute)); code != 200 {
			t.Errorf("%s in a time of which B has all: %d %s", path, code, body)
		}
		compared := func() float64 { return r.metric("spillway_estimate_ratio", "endpoint="+id, "of=series") }
		r.eventually("whole answers were compared with what was expected", func() bool { return compared() >= 2 })
		if got := compared(); got != 2 {
			t.Errorf("%s: %g answers were compared with what was expected, want the two that were whole", path, got)
		}
	}
}

// TestOnlyWholeReplicaFailsToFind: whether a group has any series at all, by which the values of
// its own labels are listed, is known as soon as somebody has one; that the other one has none says
// nothing.
func TestOnlyWholeReplicaFailsToFind(t *testing.T) {
	w := newGappyPair(t)
	var a failsNow
	a.lists.Store(true)
	b := w.replica("b", 9*time.Second, w.away(44*time.Minute, 39*time.Minute))
	config := w.config(a.before(t, w.replica("a", 2*time.Second, nil)), b)
	get := func(partial, match string) (int, string) {
		t.Helper()
		s, base := startProxy(t, t.Context(), config) // with all retries that it may make
		from := w.now.Add(-50 * time.Minute)
		(&rig{t: t, s: s}).eventually("A is known to be whole, and B not", func() bool {
			whole, err := s.state.Load().top.Groups[0].Shards[0].Wholes(t.Context(), from.UnixMilli(), w.now.UnixMilli(), time.Now())
			return err == nil && len(whole) == 1
		})
		form := url.Values{"start": {stamp(from)}, "end": {stamp(w.now)}, "match[]": {match}}
		if partial != "" {
			form.Set("partial_response", partial)
		}
		code, body := ask(t, base, "/api/v1/label/cluster/values", form)
		return code, string(body)
	}
	for _, partial := range []string{"", "true"} {
		code, body := get(partial, "requests_total")
		if code != 200 || !strings.Contains(body, `"jaguar"`) || strings.Contains(body, "warnings") {
			t.Errorf("B has some, partial_response=%q: %d %s", partial, code, body)
		}
	}
	if code, body := get("", "gone_total"); code != 502 || !strings.Contains(body, "lack some of what it has") {
		t.Errorf("B has none: %d %s", code, body)
	}
	if code, body := get("true", "gone_total"); code != 200 || !strings.Contains(body, "lack some of what it has") {
		t.Errorf("B has none, in part: %d %s", code, body)
	}
}

// TestGuardedByWhoIsWhole: whether a series lacks the label that tells shards apart is asked of a
// replica that is whole over the time, whichever was chosen last: another one was away while there
// was such a series.
func TestGuardedByWhoIsWhole(t *testing.T) {
	w := newGappyPair(t)
	one := func(shard string, i int) string {
		skip := [2]func(int, time.Time) bool{w.away(44*time.Minute, 39*time.Minute), w.away(19*time.Minute, 16*time.Minute)}[i]
		var held []storedSeries
		for _, s := range byInstance(scraped(3, w.from, w.until, time.Duration(2+7*i)*time.Second, skip)) {
			b := labels.NewBuilder(s.lbls)
			b.Set("instance", shard+b.Get("instance")).Set("node", shard+b.Get("node"))
			held = append(held, storedSeries{b.Labels(), s.points})
		}
		if i == 1 { // a pod that lived in the other one's gap
			for _, s := range scraped(1, w.now.Add(-43*time.Minute), w.now.Add(-40*time.Minute), 9*time.Second, nil) {
				if s.lbls.Get("__name__") == "requests_total" {
					held = append(held, storedSeries{labels.NewBuilder(s.lbls).Set("node", "pod"+shard).Labels(), s.points})
				}
			}
		}
		return promShard(t, labels.FromStrings("cluster", "jaguar", "replica", strconv.Itoa(i)), held).URL()
	}
	config := replicasConfig("    heartbeat: up\n    shard_by: [instance]\n", one("a", 0), one("a", 1)) +
		fmt.Sprintf("      - replicas: [{url: %q}, {url: %q}]\n", one("b", 0), one("b", 1))
	_, base := startProxy(t, t.Context(), config)
	const by = `count(count by (instance) (count_over_time(requests_total[10m] offset 37m)))`
	for _, query := range []string{by, by + ` + 0 * count(max_over_time(requests_total[5m] offset 15m))`} {
		code, body := ask(t, base, "/api/v1/query", url.Values{"query": {query}, "time": {stamp(w.now.Add(-10 * time.Second))}})
		if code != 200 || !strings.Contains(string(body), `,"7"]`) { // six nodes, and who has none
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
}

// TestQuestionsOfLaterPieces: what was planned before a replica failed is asked of another one, and
// is an error where there is none: an answer that lacks the shard would look whole.
func TestQuestionsOfLaterPieces(t *testing.T) {
	r := newRig(t, []rigGroup{{"jaguar", false, []int{2}}}, "")
	st := r.s.state.Load()
	sh := st.top.Groups[0].Shards[0]
	a, b := sh.Replicas[0], sh.Replicas[1]
	leaf := func() *plan.Leaf {
		return &plan.Leaf{Parts: []*plan.Part{{Shard: sh, Replicas: []*shard.Replica{a, b}, Query: "up"}}}
	}
	x := &exchange{s: r.s, st: st, ctx: t.Context()}
	x.dec = &policy.Decision{Request: &endpoint.Request{ID: endpoint.Query}}
	x.attempt = x.attempt.Avoiding(a.Name())
	for _, alone := range []bool{false, true} {
		for _, q := range x.questions([]*plan.Leaf{leaf(), leaf()}, alone) {
			if q.replica != b || slices.Contains(q.wholes, a) {
				t.Errorf("alone %v: it is asked of %v, or else of %v", alone, q.replica, q.wholes)
			}
		}
	}
	x.attempt = x.attempt.Avoiding(b.Name())
	if _, err := x.parts(&plan.Plan{Leaves: []*plan.Leaf{leaf(), leaf()}, Raw: true}); err == nil {
		t.Error("nobody is asked, and that is no error")
	}
}
