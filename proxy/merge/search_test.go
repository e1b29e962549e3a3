package merge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/strutil"
	apiv1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// theirs is a search put together of Prometheus' own filters, as its API does.
type theirs []storage.Filter

// Accept implements storage.Filter.
func (t theirs) Accept(value string) (found bool, best float64) {
	for _, f := range t {
		if ok, score := f.Accept(value); ok {
			found, best = true, max(best, score)
		}
	}
	return found, best
}

type either [2]storage.Filter

// Accept implements storage.Filter.
func (e either) Accept(value string) (bool, float64) {
	if ok, score := e[0].Accept(value); ok || e[1] == nil {
		return ok, score
	}
	return e[1].Accept(value)
}

func theirFilter(s *Search) storage.Filter {
	var out theirs
	for _, term := range s.Terms {
		if s.AnyCase {
			term = strings.ToLower(term)
		}
		switch {
		case !s.JaroWinkler:
			out = append(out, apiv1.NewSubsequenceFilter(term, float64(s.Threshold)/100))
		case s.Threshold > 0:
			out = append(out, either{apiv1.NewSubstringFilter(term), apiv1.NewFuzzyFilter(term, float64(s.Threshold)/100)})
		default:
			out = append(out, either{apiv1.NewSubstringFilter(term)})
		}
	}
	return out
}

func likely(rng *rand.Rand) string {
	words := []string{"node", "cpu", "Seconds", "_", "_", "total", "gpu", "größe", "ß", "http", "a", "b", "<&>", "日本", ".", "0"}
	var b strings.Builder
	for range 1 + rng.IntN(5) {
		b.WriteString(words[rng.IntN(len(words))])
	}
	return b.String()
}

func randomSearch(rng *rand.Rand) *Search {
	s := &Search{JaroWinkler: rng.IntN(2) == 0, AnyCase: rng.IntN(2) == 0, Threshold: []int{0, 0, 30, 60, 90, 100}[rng.IntN(6)]}
	for range rng.IntN(4) {
		t := likely(rng)
		s.Terms = append(s.Terms, t[:1+rng.IntN(len(t))])
	}
	if rng.IntN(3) == 0 {
		s.Descending = true
	} else {
		s.ByScore = len(s.Terms) > 0 && rng.IntN(2) == 0
	}
	return s
}

// TestSearchFindsWhatPrometheusFinds: the same values with the same scores, to the bit.
func TestSearchFindsWhatPrometheusFinds(t *testing.T) {
	rng := rand.New(rand.NewPCG(randseed.Of(t, 0), 1))
	found := 0
	for range 5000 {
		s := randomSearch(rng)
		if len(s.Terms) == 0 {
			continue
		}
		score, want := s.scorer(), theirFilter(s)
		for range 20 {
			v := likely(rng)
			folded := v
			if s.AnyCase {
				folded = strings.ToLower(v)
			}
			ok, n := score(v)
			if wantOK, wantN := want.Accept(folded); ok != wantOK || ok && n != wantN {
				t.Fatalf("%+v in %q: %v %v, want %v %v", s, v, ok, n, wantOK, wantN)
			}
			if ok {
				found++
			}
		}
	}
	if found < 1000 {
		t.Errorf("only %d were found", found)
	}
}

// TestMostLike: what is said to be the most that a value can be like is never less than it is, also
// where both are about the same letters in another order.
func TestMostLike(t *testing.T) {
	rng := rand.New(rand.NewPCG(randseed.Of(t, 0), 3))
	text := func() string {
		b := make([]byte, 1+rng.IntN(40))
		for i := range b {
			b[i] = "abcdefghij"[rng.IntN(1+rng.IntN(10))]
		}
		return string(b)
	}
	skipped := 0
	for range 50_000 {
		term, value := text(), text()
		is, most := strutil.NewJaroWinklerMatcher(term).Score(value), counted(term).mostLike(value)
		if is > most {
			t.Fatalf("%q is like %q by %v, at most %v is said", value, term, is, most)
		}
		if most < 0.7 {
			skipped++
		}
	}
	if skipped < 1000 {
		t.Errorf("only %d of 50,000 need no scoring at 70", skipped)
	}
}

// TestScoringLooks: the scoring of long texts is looked at every few milliseconds, and ends with
// the error of who looks.
func TestScoringLooks(t *testing.T) {
	f := NewFinds(t.Context(), &Search{Terms: []string{strings.Repeat("ab", 128)}, JaroWinkler: true, Threshold: 50}, 10, nil)
	looks, no := 0, errors.New("enough")
	f.Look = func() error {
		if looks++; looks == 3 {
			return no
		}
		return nil
	}
	n := 0
	if err := f.List(&unending{n: &n}); !errors.Is(err, no) || looks != 3 {
		t.Errorf("%d looks, %d values: %v", looks, n, err)
	}
}

// lines is what a server that holds the values answers.
func lines(s *Search, values []string, limit int) string {
	hints := &storage.SearchHints{Limit: limit + 1}
	if len(s.Terms) > 0 {
		hints.Filter = foldCase{s, theirFilter(s)}
	}
	switch {
	case s.ByScore:
		hints.OrderBy = storage.OrderByScoreDesc
	case s.Descending:
		hints.OrderBy = storage.OrderByValueDesc
	}
	all := storage.ApplySearchHints(values, hints)
	var b strings.Builder
	more := len(all) > limit
	all = all[:min(limit, len(all))]
	for i := 0; i == 0 || len(all) > 0; i++ {
		batch := all[:min(3, len(all))]
		all = all[len(batch):]
		b.WriteString(`{"results":[`)
		for j, one := range batch {
			if j > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"name":%s,"new":[1,{"a":null}]}`, marshal(one.Value))
		}
		b.WriteString("]}\n")
	}
	fmt.Fprintf(&b, "{\"status\":\"success\",\"has_more\":%v,\"cursor\":\"x\"}\n", more)
	return b.String()
}

type foldCase struct {
	s *Search
	f storage.Filter
}

// Accept implements storage.Filter.
func (f foldCase) Accept(v string) (bool, float64) {
	if f.s.AnyCase {
		v = strings.ToLower(v)
	}
	return f.f.Accept(v)
}

// TestSearchOverSplits: what is found in a list is found in its parts, some of which search
// themselves and some only list; in the same order, each once, with the same has_more.
func TestSearchOverSplits(t *testing.T) {
	rng := rand.New(rand.NewPCG(randseed.Of(t, 0), 2))
	pool := admit.NewPool(64 << 20)
	for range 2000 {
		s, limit := randomSearch(rng), 1+rng.IntN(8)
		var all []string
		parts := make([][]string, 1+rng.IntN(4))
		for range rng.IntN(40) {
			v := likely(rng)
			all = append(all, v)
			for range 1 + rng.IntN(2) {
				p := rng.IntN(len(parts))
				parts[p] = append(parts[p], v)
			}
		}
		slices.Sort(all)
		all = slices.Compact(all)
		budget := admit.NewBudget(pool, admit.Limits{MaxSeries: 1000, MaxBytes: 1 << 20})
		write := func(f *Finds) string {
			t.Helper()
			if _, err := f.Sort(); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			w := NewWriter(&out, budget)
			defer w.Close()
			if err := f.Write(w, SearchAnswer{Batch: 3, Key: "name", Scores: true}, []string{"so"}); err != nil {
				t.Fatal(err)
			}
			f.Close()
			return out.String()
		}
		one := NewFinds(t.Context(), s, limit, budget)
		if err := one.Add(all...); err != nil {
			t.Fatal(err)
		}
		many := NewFinds(t.Context(), s, limit, budget)
		for _, p := range parts {
			slices.Sort(p)
			p = slices.Compact(p)
			var err error
			if rng.IntN(2) == 0 {
				err = many.Shard(Source{Name: "a", Body: strings.NewReader(lines(s, p, limit)), Limit: limit}, false)
			} else {
				err = many.List(FixedStrings(p))
			}
			if err != nil {
				t.Fatalf("%+v in %q: %v", s, p, err)
			}
		}
		want, got := write(one), write(many)
		if want != got {
			t.Fatalf("%+v, limit %d, in %q:\n%s\nwant\n%s", s, limit, parts, got, want)
		}
		budget.Close()
	}
	if n := pool.InUse(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// TestSearchAnswersThatAreNone: what a shard may send, and what becomes of it.
func TestSearchAnswersThatAreNone(t *testing.T) {
	const ok = `{"status":"success","has_more":false}` + "\n"
	for _, c := range []struct {
		name, body string
		want       string // in the error; empty for none
		other      bool
	}{
		{name: "empty", body: `{"results":[]}` + "\n" + ok},
		{name: "null", body: `{"results":null,"warnings":null}` + ok},
		{name: "no batch", body: ok},
		{name: "no newline at the end", body: `{"results":[{"name":"ab"}]}` + strings.TrimSpace(ok)},
		{name: "cut", body: `{"results":[{"name":"ab"}]}` + "\n", want: "truncated"},
		{name: "cut in a line", body: `{"results":[{"name":"a`, want: "truncated"},
		{name: "nothing", body: "", want: "truncated"},
		{name: "error line", body: `{"results":[]}{"status":"error","errorType":"internal","error":"disk"}`, want: "type internal"},
		{name: "more behind the end", body: ok + ok, want: "not JSON"},
		{name: "no object", body: `[]`, want: "wrong shape"},
		{name: "results no list", body: `{"results":{}}` + ok, want: "wrong shape"},
		{name: "a result without a name", body: `{"results":[{"score":1}]}` + ok, want: "wrong shape"},
		{name: "a number for a name", body: `{"results":[{"name":1}]}` + ok, want: "wrong shape"},
		{name: "has_more no bool", body: `{"status":"success","has_more":1}`, want: "not JSON"},
		{name: "what is not looked for", body: `{"results":[{"name":"xx"}]}` + ok, other: true},
		{name: "out of order", body: `{"results":[{"name":"ab"},{"name":"aa"}]}` + ok, other: true},
		{name: "twice", body: `{"results":[{"name":"ab"}]}{"results":[{"name":"ab"}]}` + ok, other: true},
	} {
		budget := admit.NewBudget(admit.NewPool(64<<20), admit.Limits{MaxSeries: 10, MaxBytes: 1 << 20})
		f := NewFinds(t.Context(), &Search{Terms: []string{"a"}}, 5, budget)
		err := f.Shard(Source{Name: "s", Body: strings.NewReader(c.body)}, false)
		switch {
		case c.other:
			if !errors.Is(err, ErrOtherSearch) {
				t.Errorf("%s: %v", c.name, err)
			}
		case c.want == "":
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		default:
			var e *qerr.Error
			if !errors.As(err, &e) || e.Kind != qerr.ShardFailed || !slices.Equal(e.Shards, []string{"s"}) ||
				!strings.Contains(e.Message, c.want) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		f.Close()
		budget.Close()
	}
}

// TestSearchIsBounded: whoever sends more than was asked for is cut there, and memory and whoever
// waits bound the rest.
func TestSearchIsBounded(t *testing.T) {
	var many strings.Builder
	many.WriteString(`{"results":[`)
	for i := range 5000 {
		if i > 0 {
			many.WriteByte(',')
		}
		fmt.Fprintf(&many, `{"name":"a%06d"}`, i)
	}
	many.WriteString("]}\n" + `{"status":"success","has_more":false}` + "\n")
	plain := &Search{Terms: []string{"a"}}
	f := NewFinds(t.Context(), plain, 10, admit.NewBudget(admit.NewPool(64<<20), admit.Limits{MaxBytes: 1 << 20}))
	if err := f.Shard(Source{Body: strings.NewReader(many.String()), Limit: 10}, false); err != nil {
		t.Fatal(err)
	}
	if n, _ := f.Sort(); n != 10 || !f.More() || !f.Short() {
		t.Errorf("%d, more %v, short %v", n, f.More(), f.Short())
	}
	pool := admit.NewPool(256 << 10)
	budget := admit.NewBudget(pool, admit.Limits{MaxBytes: 1 << 20})
	f = NewFinds(t.Context(), plain, 1<<20, budget)
	err := f.Shard(Source{Body: strings.NewReader(many.String())}, false)
	if e := qerr.From(err); err == nil || e.Kind != qerr.Overloaded {
		t.Errorf("without memory: %v", err)
	}
	f.Close()
	if budget.Close(); pool.InUse() != 0 {
		t.Errorf("%d bytes are left", pool.InUse())
	}
	left, cancel := context.WithCancelCause(t.Context())
	cancel(qerr.ErrClientLeft)
	f = NewFinds(left, &Search{Terms: []string{strings.Repeat("ab", 128)}, JaroWinkler: true, Threshold: 50}, 10, nil)
	n := 0
	if err := f.List(&unending{n: &n}); !errors.Is(err, qerr.ErrClientLeft) || n > 1000 {
		t.Errorf("after %d values: %v", n, err)
	}
}

// unending is a list without an end.
type unending struct {
	fixedStrings
	n *int
}

// Next implements Strings.
func (e *unending) Next() bool {
	*e.n++
	e.buf = fmt.Appendf(e.buf[:0], "ab%060d", *e.n)
	return *e.n < 1e6
}

// TestDescribe: what servers say about a metric is joined, the least first.
func TestDescribe(t *testing.T) {
	f := NewFinds(t.Context(), &Search{}, 10, nil)
	if err := f.Shard(Source{Body: strings.NewReader(`{"results":[{"name":"a","type":"gauge","help":"h"},{"name":"b"},{"name":"c"}]}` +
		`{"status":"success","has_more":false}`)}, false); err != nil {
		t.Fatal(err)
	}
	doc := `{"status":"success","data":{"a":[{"type":"counter","help":"x","unit":""}],"b":[{"type":"gauge","help":"<b>","unit":"s"},{"type":"counter","help":"","unit":""}],"z":[]}}`
	if err := f.Describe([]Source{{Name: "s", Body: strings.NewReader(doc)}}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := NewWriter(&out, nil)
	defer w.Close()
	if err := f.Write(w, SearchAnswer{Batch: 100, Key: "name"}, nil); err != nil {
		t.Fatal(err)
	}
	const want = `{"results":[{"name":"a","type":"counter","help":"x"},{"name":"b","type":"counter"},{"name":"c"}]}` + "\n" +
		`{"status":"success","has_more":false}` + "\n"
	if out.String() != want {
		t.Errorf("%s, want %s", out.String(), want)
	}
}
