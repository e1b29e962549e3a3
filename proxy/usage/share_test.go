package usage

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// records are those of all files of a log.
func records(t *testing.T, path string) []Record {
	t.Helper()
	parts, err := Parts(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []Record
	for _, part := range parts {
		out = append(out, read(t, part)...)
	}
	return out
}

// TestLongLinesHaveAShare: who sends long texts fills no log with them: beyond its share each
// request has a short line, which says whether another one has what is missing. Ordinary lines are
// whole, however many there are.
func TestLongLinesHaveAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "usage.jsonl")
		m := NewMetrics(nil)
		l := openLog(t, Options{Path: path, MaxSize: 1 << 20, MaxFiles: 32, Metrics: m}) // a share is 512 KiB
		ask := func(caller uint64, query string, metrics ...string) {
			l.Write(&Record{Caller: caller, Endpoint: "query", Facts: Facts{Query: query, Metrics: metrics}, Samples: 1})
			synctest.Wait()
		}
		ask(1, "honest")
		long, metric := strings.Repeat("x", MaxQueryBytes), strings.Repeat("m", 60<<10)
		const flood = 500
		for i := range flood { // 34 MiB, which would have pushed out what is honest
			ask(2, fmt.Sprintf("%d + %s", i, long), metric)
		}
		for range flood {
			ask(2, "0 + "+long, metric)
			ask(2, "something short", "short")
		}
		ask(3, "another's + "+long, metric)
		closeLog(t, l)
		got := map[string]int{}
		for _, r := range records(t, path) {
			cut := strings.Join(r.Cut, " ")
			if (cut != "") != (len(r.Metrics) == 0) && r.Query != "honest" || cut != "" && len(r.Query) > shortQuery+len(CutMark) {
				t.Errorf("cut %q: %d names, %d bytes of text", cut, len(r.Metrics), len(r.Query))
			}
			got[fmt.Sprintf("%s: %s", strings.Trim(r.Query, "0123456789 +x…"), cut)]++
			if r.V != 1 || r.Endpoint != "" && r.Samples != 1 {
				t.Errorf("%+v", r)
			}
		}
		unlisted := got[": grouping le matchers metrics"]
		if got["honest: "] != 1 || got["something short: "] != flood || got["another's: "] != 1 || got[": repeat"] != flood ||
			unlisted < flood-20 || unlisted+got[": "] != flood {
			t.Errorf("lines: %v", got)
		}
		if n := int(testutil.ToFloat64(m.shortened)); n != unlisted+flood || testutil.ToFloat64(m.dropped) != 0 {
			t.Errorf("%d were shortened, %v dropped", n, testutil.ToFloat64(m.dropped))
		}
	})
}

// TestRepeatsSayNothingNew: only a line with the same lists, and that counts as the same use, may
// point to another one.
func TestRepeatsSayNothingNew(t *testing.T) {
	var s shares
	const long = OrdinaryLine + 10
	now := time.Unix(7200, 0)
	first := Record{
		Caller: 1, Endpoint: "series", Verdict: "pass",
		Facts: Facts{Query: "a…", Metrics: []string{"a", "b"}, Matchers: []string{"c"}, Cut: []string{"metrics"}},
	}
	if got := s.take(&first, long, 10, now); got != whole {
		t.Errorf("got %v", got)
	}
	again := first
	again.User, again.ID = "ada", "x"
	if got := s.take(&again, long, 10, now); got != repeated {
		t.Errorf("a repeat: %v", got)
	}
	for name, change := range map[string]func(*Record){
		"verdict":  func(r *Record) { r.Verdict = "refuse" },
		"endpoint": func(r *Record) { r.Endpoint = "query" },
		"purpose":  func(r *Record) { r.Purpose = Inventory },
		"query":    func(r *Record) { r.Query = "b…" },
		"metrics":  func(r *Record) { r.Metrics = []string{"a"} },
		"moved":    func(r *Record) { r.Metrics, r.Matchers = []string{"a"}, []string{"b", "c"} },
		"grouping": func(r *Record) { r.Grouping = []string{"c"} },
		"cut":      func(r *Record) { r.Cut = nil },
		"nameless": func(r *Record) { r.Nameless = true },
	} {
		r := first
		change(&r)
		s.bytes[1] = 10
		if got := s.take(&r, long, 10, now); got != whole {
			t.Errorf("%s: %v", name, got)
		}
	}
	s.forget()
	s.bytes[1] = 10
	if got := s.take(&first, long, 10, now); got != whole {
		t.Errorf("a repeat of what may be lost: %v", got)
	}
	if got := s.take(&Record{Caller: 1}, long, 10, now); got != unlisted {
		t.Errorf("something new beyond twice the share: %v", got)
	}
	if got := s.take(&Record{Caller: 1}, OrdinaryLine, 10, now); got != whole {
		t.Errorf("an ordinary line: %v", got)
	}
	if got := s.take(&Record{}, 1<<20, 10, now); got != whole {
		t.Errorf("nobody's: %v", got)
	}
	for i := range 2 * maxCallers { // together they have one share
		s.take(&Record{Caller: uint64(i) + 200}, long, 10, now)
	}
	if len(s.bytes) > maxCallers+1 {
		t.Errorf("%d callers are remembered", len(s.bytes))
	}
	if got := s.take(&first, long, 10, now.Add(time.Hour)); got != whole || len(s.bytes) != 1 {
		t.Errorf("an hour later: %v, %d callers", got, len(s.bytes))
	}
}
