package server

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// readFails is in front of a server: while so is set, reads of series have an error after a while.
type readFails struct {
	so    atomic.Bool
	after time.Duration
}

func (f *readFails) before(t *testing.T, server string) string {
	return before(t, server, func(r *http.Request) bool {
		if !f.so.Load() || !strings.HasSuffix(r.URL.Path, "/read") {
			return false
		}
		select {
		case <-time.After(f.after):
		case <-r.Context().Done():
		}
		return true
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

// notRead takes the warning off an answer that what only a failed replica has is missing, and tells
// whether it had one.
func notRead(body []byte) (rest []byte, had bool) {
	rest = regexp.MustCompile(`,"warnings":\["[^"]*: what only it has is missing"\]`).ReplaceAll(body, nil)
	return rest, len(rest) < len(body)
}
