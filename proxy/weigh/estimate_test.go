package weigh

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/cost"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/plan"
)

// sketched is two shards that told how large their metrics are.
func sketched(t testing.TB) *world {
	t.Helper()
	w := newWorld(t, 0, 32<<20)
	w.Known.Learned = &cost.Learned{}
	w.Known.Sizes = NewSizes(t.Context(), w.top, nil, time.Now, slog.New(slog.DiscardHandler))
	for _, sh := range w.shards {
		told := fmt.Sprintf(`{"data":{"headStats":{"numSeries":90000,"minTime":%d},"seriesCountByMetricName":[{"name":"x_total","value":20000},{"name":"up","value":70}],
			"seriesCountByLabelValuePair":[{"name":"job=a","value":700}],"labelValueCountByLabelName":[{"name":"job","value":4}]}}`, w.Now-7_200_000)
		if err := w.Known.Sizes.Names(sh).Learn(strings.NewReader(told), time.Now(), 0); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// panel is a query over the last hour, of so many steps.
func (w *world) panel(t testing.TB, text string, steps int64) *Asked {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Fatal(err)
	}
	id := endpoint.Query
	if steps > 1 {
		id = endpoint.QueryRange
	}
	return &Asked{
		Request: &endpoint.Request{ID: id, Query: text}, Expr: expr, Selectors: parser.ExtractSelectors(expr),
		From: w.Now - 3_600_000, Until: w.Now,
		Grid: cost.Grid{Steps: steps, Step: 15_000, Interval: 60_000}, View: plan.NewView(w.top, time.UnixMilli(w.Now)),
	}
}

// TestEstimate: without an answer it is what shards say of themselves, or a guess, and with one
// what that showed, of the same text or of one that differs in the values of labels alone.
func TestEstimate(t *testing.T) {
	w := sketched(t)
	check := func(text string, steps int64, by Basis, series, samples int64) *Estimate {
		t.Helper()
		e := w.Known.Estimate(w.panel(t, text, steps))
		if e == nil {
			if by != "" {
				t.Errorf("%s: no estimate", text)
			}
			return nil
		}
		if e.By != by || e.Series != series || e.Samples != samples || e.Bytes < samples ||
			e.Held <= 0 || e.Seconds <= 0 || e.GiBSeconds() <= 0 {
			t.Errorf("%s: by %s %d series, %d samples, want by %s %d, %d; all: %+v", text, e.By, e.Series, e.Samples, by, series, samples, e)
		}
		return e
	}
	check("1", 1, "", 0, 0)
	check("x_total", 1, BySketch, 40_000, 40_000)
	check("x_total", 241, BySketch, 40_000, 40_000*241)
	check(`x_total{job="a"}`, 1, BySketch, 1400, 1400)
	check("sum by (job) (x_total)", 1, BySketch, 8, 16) // of each of two shards
	check("sum(rate(x_total[5m]))", 241, BySketch, 1, 482)
	check("up offset 4h", 1, BySketch, 140, 140) // its window is the caller's to say
	old := w.panel(t, "up", 1)
	old.From -= 30 * 86_400_000
	if e := w.Known.Estimate(old); e.By != ByGuess {
		t.Errorf("of a time before the head the estimate is by %s", e.By)
	}
	first := check(`sum by (pod) (rate(x_total{node="a"}[5m]))`, 10, BySketch, 40_000, 800_000)
	if raw := first.Fetched(); raw.Series != first.Selected || raw.Samples != max(first.Read, first.Samples) || raw == first {
		t.Errorf("fetched: %+v", raw)
	}
	now := time.UnixMilli(w.Now)
	w.Known.Learn(first, Took{Series: 7, Samples: 63, Bytes: 5000, Seconds: 3}, now)
	known := check(`sum by (pod) (rate(x_total{node="a"}[5m]))`, 10, ByText, 7, 63)
	if known.Bytes != 5000 || known.Seconds < 2.999 || known.Seconds > 3.001 || known.Fetched() != known {
		t.Errorf("%+v", known)
	}
	check(`sum by (pod) (rate(x_total{node="a"}[5m]))`, 20, ByText, 7, 126)
	check(`sum by (pod) (rate(x_total{node="b"}[5m]))`, 10, ByShape, 7, 63)
	check(`sum by (pod) (rate(x_total{nodes="b"}[5m]))`, 10, BySketch, 40_000, 800_000)
	other := w.panel(t, `sum by (pod) (rate(x_total{node="a"}[5m]))`, 10)
	if other.Tenant = "other"; w.Known.Estimate(other).By != BySketch {
		t.Error("one tenant's answers tell of another one's")
	}
	// An answer that has a selector's series tells of all that select them.
	w.Known.Learn(check(`rate(x_total{job="a"}[5m])`, 1, BySketch, 1400, 1400), Took{Series: 30, Samples: 30, Bytes: 1}, now)
	if e := check(`-x_total{job="a"}`, 1, BySketch, 30, 30); e.Selected != 30 {
		t.Errorf("%+v", e)
	}
	// Not of those of another tenant.
	for _, text := range []string{`-x_total{job="a"}`, `-x_total{job="b"}`} {
		other := w.panel(t, text, 1)
		if other.Tenant = "other"; w.Known.Estimate(other).Selected == 30 {
			t.Errorf("%s: one tenant's answers tell of another one's selector", text)
		}
	}
	// So does a count.
	w.Scale.learn(w.counted(t, `x_total{pod="p"}`, 11, 22), numbers{})
	check(`x_total{pod="p"} + 1`, 1, BySketch, 33, 33)
	// Nothing at all is an answer too.
	w.Known.Learn(check(`x_total{code="9"}`, 1, BySketch, 40_000, 40_000), Took{Bytes: 60}, now)
	if e := w.Known.Estimate(w.panel(t, `x_total{code="9"}`, 1)); e.By != ByText || e.Series != 0 || e.Samples != 0 || e.Held != 0 {
		t.Errorf("of nothing: %+v", e)
	}
}

// TestKnownTextsTeachTheirShape: what a panel with a large value shows, again and again, holds for
// another value however many small ones were asked since it was first.
func TestKnownTextsTeachTheirShape(t *testing.T) {
	for _, form := range []string{`x_total{namespace=%q}`, `sum by (pod) (rate(x_total{namespace=%q}[5m]))`} {
		w := sketched(t)
		now := time.UnixMilli(w.Now)
		answers := func(value string, series int64) *Estimate {
			e := w.Known.Estimate(w.panel(t, fmt.Sprintf(form, value), 1))
			w.Known.Learn(e, Took{Series: series, Samples: series, Bytes: 1}, now)
			return e
		}
		answers("big", 10_000)
		for i := range 3 * 24 {
			now = now.Add(time.Hour)
			answers("big", 10_000)
			answers("small"+fmt.Sprint(i), 10)
		}
		if e := answers("big2", 10_000); e.By != ByShape || e.Series < 9_000 || e.Selected < 9_000 {
			t.Errorf("%s: by %s %d series of %d", form, e.By, e.Series, e.Selected)
		}
	}
}

// TestPairsProtectNobody: a pair that had few series when its shard told may have many by now; what
// servers are protected by is the metric's number, and a count where that is too much.
func TestPairsProtectNobody(t *testing.T) {
	w := sketched(t)
	w.series = 20_000
	const query = `sum(rate(x_total{job="a"}[5m]))`
	if e := w.Known.Estimate(w.panel(t, query, 241)); e.Selected != 1400 {
		t.Fatalf("%d series are expected", e.Selected)
	}
	if n, err := w.ask(t, query, 241, 0); n < 2 || err != nil || w.asked.Load() == 0 {
		t.Errorf("it is asked in %d pieces, %v, after %d questions", n, err, w.asked.Load())
	}
}

// counted are the loads of a selector, whose series have been counted on each shard.
func (w *world) counted(t *testing.T, text string, n ...int64) (loads []*load) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &plan.Leaf{Expr: expr}
	for i, sh := range w.shards {
		part := &plan.Part{Shard: sh, From: w.Now - 60_000, Until: w.Now}
		leaf.Parts = append(leaf.Parts, part)
		l := &load{leaf: leaf, part: part, reads: w.reads(plan.Query{}, leaf, part)}
		w.Known.Counts.Remember(w.ofSelector(&l.reads[0]).key, n[i])
		loads = append(loads, l)
	}
	return loads
}

// BenchmarkEstimate prints what an estimate takes of two shards that have told.
func BenchmarkEstimate(b *testing.B) {
	w := sketched(b)
	const panel = `histogram_quantile(0.99, sum by (le) (rate(x_total{job="a",node=~"a|b|c"}[5m]))) / on () group_left () sum(up{job="a"})`
	a := w.panel(b, panel, 241)
	b.ReportAllocs()
	for b.Loop() {
		w.Known.Estimate(a)
	}
}

// TestHeldByEachShard: a shard holds as large a part as it has of the series; where nothing is
// known of one it is a guess, and stays one however often answers show what is sent, until a
// selector's series are known.
func TestHeldByEachShard(t *testing.T) {
	w := sketched(t)
	told := fmt.Sprintf(`{"data":{"headStats":{"numSeries":90000,"minTime":%d},"seriesCountByMetricName":[{"name":"x_total","value":60000},{"name":"up","value":70}]}}`,
		w.Now-7_200_000)
	if err := w.Known.Sizes.Names(w.shards[0]).Learn(strings.NewReader(told), time.Now(), 0); err != nil {
		t.Fatal(err)
	}
	const text = "sum(rate(x_total[5m]))"
	e := w.Known.Estimate(w.panel(t, text, 100))
	if a, b := e.HeldBy(w.shards[0]), e.HeldBy(w.shards[1]); e.Guessed || a+b != e.Held || a != 3*b || e.HeldBy(nil) != 0 {
		t.Errorf("%d and %d of %d bytes, guessed: %t", a, b, e.Held, e.Guessed)
	}
	old := w.panel(t, text, 100)
	old.From, old.Until = w.Now-90*86_400_000, w.Now-89*86_400_000 // before what the sketches tell of
	if e = w.Known.Estimate(old); e.By != ByGuess || !e.Guessed {
		t.Fatalf("by %s, guessed: %t", e.By, e.Guessed)
	}
	w.Known.Learn(e, Took{Series: 1, Samples: 100, Bytes: 3000}, time.UnixMilli(w.Now))
	if e = w.Known.Estimate(old); e.By != ByText || !e.Guessed {
		t.Errorf("by %s, guessed: %t", e.By, e.Guessed)
	}
	all := w.panel(t, "x_total", 1)
	all.From, all.Until = old.From, old.Until
	w.Known.Learn(w.Known.Estimate(all), Took{Series: 5000, Samples: 5000, Bytes: 3000}, time.UnixMilli(w.Now))
	if e = w.Known.Estimate(old); e.Guessed {
		t.Error("a selector whose series are known is guessed")
	}
}

// TestCounted: what was counted for a request is what a selector is estimated to have there, and
// nowhere else.
func TestCounted(t *testing.T) {
	w := sketched(t)
	a := w.panel(t, `x_total{namespace="a"}`, 1)
	before := w.Known.Estimate(a)
	a.Counted = func(ms []*labels.Matcher) (int64, bool) { return 17, len(ms) == 2 }
	if e := w.Known.Estimate(a); e.Selected != 17 || before.Selected <= 17 || e.Shards() != before.Shards() || e.Shards() == 0 {
		t.Errorf("%d series of %d shards are estimated, before %d", e.Selected, e.Shards(), before.Selected)
	}
	a.Counted = nil
	if e := w.Known.Estimate(a); e.Selected != before.Selected {
		t.Errorf("%d series are estimated for everybody, before %d", e.Selected, before.Selected)
	}
}
