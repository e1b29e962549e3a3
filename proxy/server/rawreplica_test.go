package server

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/shard"
)

// readFails is in front of a server: while so is set, reads of series have an error after a while.
type readFails struct {
	so    atomic.Bool
	after time.Duration
	slow  bool // it answers then
	reads atomic.Int64
}

func (f *readFails) before(t *testing.T, server string) string {
	return before(t, server, func(r *http.Request) bool {
		if !f.so.Load() || !strings.HasSuffix(r.URL.Path, "/read") {
			return false
		}
		f.reads.Add(1)
		select {
		case <-time.After(f.after):
		case <-r.Context().Done():
		}
		return !f.slow
	})
}

// TestReadOfWhoLacksNothing: series that are read are of nobody who is known to lack some of them,
// though the one that has them fails or is slow, and is still there: the query is refused until it
// answers or has gone. Where one lacks nothing its samples are the answer; where nobody is known to
// be whole the answer has what is left, and says so.
func TestReadOfWhoLacksNothing(t *testing.T) {
	const lack, missing = "lack some of what it has", "what only it has is missing"
	for name, tc := range map[string]struct {
		a, b     [2]int // minutes since and until which each was away
		failing  string
		after    time.Duration
		beat     bool
		says     string // an error, or a warning
		complete bool
	}{
		"the whole one fails":               {failing: "a", b: [2]int{44, 39}, beat: true, says: lack},
		"the whole one is slow and fails":   {failing: "a", b: [2]int{44, 39}, beat: true, says: lack, after: 6 * time.Second},
		"the one with the gap fails":        {failing: "b", b: [2]int{44, 39}, beat: true, complete: true},
		"either is whole, and one fails":    {failing: "a", beat: true, complete: true},
		"the base of two gaps fails":        {failing: "a", a: [2]int{19, 14}, b: [2]int{44, 39}, beat: true, says: missing},
		"the other one of two gaps fails":   {failing: "b", a: [2]int{19, 14}, b: [2]int{44, 39}, beat: true, says: missing},
		"nothing is known, and one fails":   {failing: "a", b: [2]int{60, 10}, says: missing},
		"nothing is known, and one is slow": {failing: "a", b: [2]int{60, 10}, says: missing, after: 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newGappyPair(t)
			away := func(of [2]int) func(int, time.Time) bool {
				return w.away(time.Duration(of[0])*time.Minute, time.Duration(of[1])*time.Minute)
			}
			fails := map[string]*readFails{"a": {after: tc.after}, "b": {after: tc.after}}
			a := fails["a"].before(t, w.replica("a", 2*time.Second, away(tc.a)))
			b := fails["b"].before(t, w.replica("b", 9*time.Second, away(tc.b)))
			config := w.config(a, b)
			if !tc.beat {
				config = strings.Replace(config, "    heartbeat: up\n", "", 1)
			}
			_, base := startProxy(t, t.Context(), config)
			get := func() (int, string) {
				code, body := ask(t, base, "/api/v1/query", url.Values{
					"query": {"sum(count_over_time(requests_total[50m]))"}, "time": {stamp(w.now.Add(-10 * time.Second))},
					"stats": {"all"}, "timeout": {"25s"},
				})
				return code, string(body)
			}
			code, all := get()
			if code != 200 || !strings.Contains(all, `,"1000"]`) || strings.Contains(all, `"warnings"`) {
				t.Fatalf("while both answer: %d %s", code, all)
			}
			fails[tc.failing].so.Store(true)
			code, got := get()
			if tc.complete != (code == 200 && strings.Contains(got, `,"1000"]`) && !strings.Contains(got, `"warnings"`)) ||
				!strings.Contains(got, tc.says) || (tc.says == lack) == (code == 200) {
				t.Errorf("while %s fails: %d %s", tc.failing, code, got)
			}
		})
	}
}

// TestReadOfBothThatFail: where all whole replicas of a shard fail, it is lost: an answer that may
// go without it does, and nobody is read twice.
func TestReadOfBothThatFail(t *testing.T) {
	w := newGappyPair(t)
	var a, b readFails
	first, second := a.before(t, w.replica("a", 2*time.Second, nil)), b.before(t, w.replica("b", 9*time.Second, nil))
	_, base := startProxy(t, t.Context(), w.config(first, second))
	get := func(partial string) (int, string) {
		code, body := ask(t, base, "/api/v1/query", url.Values{
			"query": {"sum(count_over_time(requests_total[50m]))"}, "time": {stamp(w.now.Add(-10 * time.Second))}, "stats": {"all"},
			"partial_response": {partial},
		})
		return code, string(body)
	}
	if code, body := get("false"); code != 200 || !strings.Contains(body, `,"1000"]`) {
		t.Fatalf("while both answer: %d %s", code, body)
	}
	a.so.Store(true)
	b.so.Store(true)
	code, body := get("true")
	if code != 200 || !strings.Contains(body, `,"400"]`) || !strings.Contains(body, "partial answer: shard jaguar[0]") {
		t.Errorf("in part: %d %s", code, body)
	}
	if n := max(a.reads.Load(), b.reads.Load()); n > 1 {
		t.Errorf("a was read %d times, b %d", a.reads.Load(), b.reads.Load())
	}
}

// TestPartialWithoutTheWholeOne: again and again the only whole replica fails, and the answer may
// go without its shard: it does each time, and what another replica has whole is still had of it.
func TestPartialWithoutTheWholeOne(t *testing.T) {
	w := newGappyPair(t)
	var a readFails
	_, base := startProxy(t, t.Context(), w.config(a.before(t, w.replica("a", 2*time.Second, nil)),
		w.replica("b", 9*time.Second, w.away(44*time.Minute, 39*time.Minute))))
	get := func(window string) (int, string) {
		code, body := ask(t, base, "/api/v1/query", url.Values{
			"query": {"sum(count_over_time(requests_total[" + window + "]))"}, "time": {stamp(w.now.Add(-10 * time.Second))},
			"stats": {"all"}, "partial_response": {"true"},
		})
		return code, string(body)
	}
	if code, body := get("50m"); code != 200 || !strings.Contains(body, `,"1000"]`) {
		t.Fatalf("while both answer: %d %s", code, body)
	}
	a.so.Store(true)
	for i := range 4 { // a fifth failure in a row opens its breaker
		code, body := get("50m")
		if code != 200 || !strings.Contains(body, `,"400"]`) || !strings.Contains(body, "partial answer: shard jaguar[0]") {
			t.Errorf("%d: %d %s", i, code, body)
		}
	}
	if code, body := get("20m"); code != 200 || !strings.Contains(body, `,"400"]`) || strings.Contains(body, "warnings") {
		t.Errorf("where B is whole: %d %s", code, body)
	}
}

// TestWhoFailsReadsIsLeftOut: of a pair without a heartbeat one answers small questions at once and
// reads of series with an error after a while. It is asked once whether it is well; when it has
// failed too often again it is no longer read while its breaker is open, and the answer says so.
func TestWhoFailsReadsIsLeftOut(t *testing.T) {
	t.Parallel()
	w := newGappyPair(t)
	b := readFails{after: 200 * time.Millisecond}
	config := w.config(w.replica("a", 2*time.Second, nil), b.before(t, w.replica("b", 9*time.Second, nil)))
	s, base := startProxy(t, t.Context(), strings.Replace(config, "    heartbeat: up\n", "", 1))
	get := func() string {
		code, body := ask(t, base, "/api/v1/query", url.Values{
			"query": {"sum(count_over_time(requests_total[50m]))"}, "time": {stamp(w.now.Add(-10 * time.Second))}, "timeout": {"25s"},
		})
		if code != 200 || !strings.Contains(string(body), `,"1000"]`) {
			t.Fatalf("%d %s", code, body)
		}
		return string(body)
	}
	if got := get(); strings.Contains(got, `"warnings"`) {
		t.Fatalf("while both answer: %s", got)
	}
	b.so.Store(true)
	open := func() bool { return s.state.Load().top.Status()[1].Breaker == shard.Open }
	left := 0
	for range 40 {
		was, reads := open(), b.reads.Load()
		got := get()
		if !strings.Contains(got, "what only it has is missing") {
			t.Fatalf("nothing is said of it: %s", got)
		}
		if was && open() {
			if left++; b.reads.Load() > reads {
				t.Error("it is read while its breaker is open")
			}
		}
	}
	if left < 5 { // else it was the whole time
		t.Errorf("it was left out of %d answers, and read for %d", left, b.reads.Load())
	}
}

// TestOneCallersFailuresLeaveNobodyOut: of a pair without a heartbeat one was away, and the other
// one fails at what one caller reads, again and again. Whoever would not see that a replica is left
// out is answered from both.
func TestOneCallersFailuresLeaveNobodyOut(t *testing.T) {
	t.Parallel()
	w := newGappyPair(t)
	var b readFails
	a := w.replica("a", 2*time.Second, w.away(40*time.Minute, 20*time.Minute))
	config := w.config(a, b.before(t, w.replica("b", 9*time.Second, nil)))
	s, base := startProxy(t, t.Context(), strings.Replace(config, "    heartbeat: up\n", "", 1))
	get := func(partial string) (int, string) {
		code, body := ask(t, base, "/api/v1/query", url.Values{
			"query": {"sum(count_over_time(requests_total[50m]))"}, "time": {stamp(w.now.Add(-10 * time.Second))}, "timeout": {"25s"},
			"partial_response": {partial},
		})
		return code, string(body)
	}
	for i := range 3 {
		if code, body := get("false"); code != 200 || !strings.Contains(body, `,"1000"]`) {
			t.Errorf("a rule, after %d times that somebody's reads have failed: %d %s", i, code, body)
		}
		b.so.Store(true)
		for range 20 {
			if _, _ = get("true"); s.state.Load().top.Status()[1].Breaker == shard.Open {
				break
			}
		}
		b.so.Store(false)
	}
}

// TestReadOfASlowFiller: a window that is hardly longer than the gaps is read of both everywhere;
// one that takes longer than five seconds is waited for there too, since it is known to be needed.
func TestReadOfASlowFiller(t *testing.T) {
	t.Parallel()
	w := newGappyPair(t)
	b := readFails{after: 7 * time.Second, slow: true}
	_, base := startProxy(t, t.Context(), w.config(w.replica("a", 2*time.Second, w.away(19*time.Minute, 17*time.Minute)),
		b.before(t, w.replica("b", 9*time.Second, w.away(15*time.Minute, 13*time.Minute)))))
	get := func() (int, string) {
		code, body := ask(t, base, "/api/v1/query", url.Values{
			"query": {"sum(count_over_time(requests_total[9m]))"}, "time": {stamp(w.now.Add(-11 * time.Minute))}, "timeout": {"25s"},
		})
		return code, string(body)
	}
	code, all := get()
	if code != 200 || !strings.Contains(all, `,"180"]`) {
		t.Fatalf("while both are fast: %d %s", code, all)
	}
	b.so.Store(true)
	if code, got := get(); code != 200 || got != all || b.reads.Load() != 1 {
		t.Errorf("while B is slow, which was read %d times: %d %s, want %s", b.reads.Load(), code, got, all)
	}
}

// TestFillersFailTogether: the replicas that fill the gaps of two shards fail, one after the other.
// The answer is of the others and names both, and the others are read once for it.
func TestFillersFailTogether(t *testing.T) {
	t.Parallel()
	w := newGappyPair(t)
	var bases [2]atomic.Int64
	var fillers [2]readFails
	replica := func(i int, name string, phase time.Duration, skip func(int, time.Time) bool) string {
		series := scraped(3, w.from, w.until, phase, skip)
		for k, s := range series {
			series[k].lbls = labels.NewBuilder(s.lbls).Set("node", fmt.Sprint(i)+s.lbls.Get("node")).Labels()
		}
		return promShard(t, labels.FromStrings("cluster", "jaguar", "replica", name), series).URL()
	}
	var shards [2][2]string
	for i := range shards {
		fillers[i].after = time.Duration(1+2*i) * time.Second
		shards[i] = [2]string{
			before(t, replica(i, "a", 2*time.Second, w.away(19*time.Minute, 14*time.Minute)), func(r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "/read") {
					bases[i].Add(1)
				}
				return false
			}),
			fillers[i].before(t, replica(i, "b", 9*time.Second, w.away(44*time.Minute, 39*time.Minute))),
		}
	}
	_, base := startProxy(t, t.Context(), replicasConfig("    heartbeat: up\n", shards[0][:]...)+
		fmt.Sprintf("      - replicas: [{url: %q}, {url: %q}]\n", shards[1][0], shards[1][1]))
	get := func() string {
		code, body := ask(t, base, "/api/v1/query", url.Values{
			"query": {"sum(count_over_time(requests_total[50m]))"}, "time": {stamp(w.now.Add(-10 * time.Second))}, "stats": {"all"},
		})
		if code != 200 {
			t.Fatalf("%d %s", code, body)
		}
		return string(body)
	}
	if got := get(); !strings.Contains(got, `,"1200"]`) || strings.Contains(got, "warnings") {
		t.Fatalf("while all answer: %s", got)
	}
	for i := range fillers {
		fillers[i].so.Store(true)
		bases[i].Store(0)
	}
	if got := get(); strings.Count(got, "what only it has is missing") != 2 {
		t.Errorf("while both fail: %s", got)
	}
	for i := range bases {
		if n := bases[i].Load(); n != 1 {
			t.Errorf("the replica of shard %d that is left was read %d times", i, n)
		}
	}
}

// TestUnreadUnseen: who would not see a warning is refused where the one that is left is known to
// lack some.
func TestUnreadUnseen(t *testing.T) {
	w := newGappyPair(t)
	var b readFails
	_, base := startProxy(t, t.Context(), w.config(w.replica("a", 2*time.Second, w.away(19*time.Minute, 14*time.Minute)),
		b.before(t, w.replica("b", 9*time.Second, w.away(44*time.Minute, 39*time.Minute)))))
	get := func(rule, partial string) (int, string) {
		q := url.Values{
			"query": {"sum(count_over_time(requests_total[50m]))"}, "time": {stamp(w.now.Add(-10 * time.Second))}, "stats": {"all"},
		}
		if partial != "" {
			q.Set("partial_response", partial)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/v1/query?"+q.Encode(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if rule != "" {
			req.Header.Set("X-Rule-Uid", rule)
		}
		resp, err := newClient(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	if code, body := get("r1", ""); code != 200 || !strings.Contains(body, `,"1000"]`) {
		t.Fatalf("while both answer: %d %s", code, body)
	}
	b.so.Store(true)
	if code, body := get("r1", ""); code == 200 || !strings.Contains(body, "lack some of what it has") {
		t.Errorf("an alert rule: %d %s", code, body)
	}
	if code, body := get("", "false"); code == 200 || !strings.Contains(body, "lack some of what it has") {
		t.Errorf("a ruler, which says that it must lack nothing: %d %s", code, body)
	}
	if code, body := get("", ""); code != 200 || !strings.Contains(body, "what only it has is missing") {
		t.Errorf("a dashboard: %d %s", code, body)
	}
}

// notRead takes the warning off an answer that what only a failed replica has is missing, and tells
// whether it had one.
func notRead(body []byte) (rest []byte, had bool) {
	rest = regexp.MustCompile(`,"warnings":\["[^"]*: what only it has is missing"\]`).ReplaceAll(body, nil)
	return rest, len(rest) < len(body)
}

// TestListsOfTwoGaps: where each replica may lack series that the other one has, both are asked for
// a list. One that fails is named in the answer, but where the other one lacks nothing; it is each
// time, also by who is known to fail.
func TestListsOfTwoGaps(t *testing.T) {
	t.Parallel()
	w := newGappyPair(t)
	var fails atomic.Value // the end of the path that fails
	fails.Store("-")
	b := before(t, w.replica("b", 9*time.Second, w.away(44*time.Minute, 39*time.Minute)),
		func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, fails.Load().(string)) })
	_, base := startProxy(t, t.Context(), w.config(w.replica("a", 2*time.Second, w.away(19*time.Minute, 14*time.Minute)), b))
	for _, path := range []string{"/api/v1/series", "/api/v1/labels", "/api/v1/label/job/values"} {
		get := func(since time.Duration) string {
			code, body := ask(t, base, path, url.Values{
				"match[]": {"requests_total"}, "start": {stamp(w.now.Add(-since))}, "end": {stamp(w.now.Add(-10 * time.Second))},
			})
			if code != 200 {
				t.Errorf("%s: %d %s", path, code, body)
			}
			return string(body)
		}
		all := get(50 * time.Minute)
		if !strings.Contains(all, `"job`) && !strings.Contains(all, `"data":["`) || strings.Contains(all, "warnings") {
			t.Fatalf("%s: while both answer: %s", path, all)
		}
		fails.Store(path[len("/api/v1"):])
		for range 2 {
			if got := get(50 * time.Minute); !strings.Contains(got, "what only it has is missing") {
				t.Errorf("%s: while b fails: %s", path, got)
			}
		}
		if got := get(10 * time.Minute); strings.Contains(got, "warnings") {
			t.Errorf("%s: where a lacks nothing: %s", path, got)
		}
		fails.Store("-")
	}
}
