package weigh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/cost"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// world is two shards of which nothing is known, whose selectors have so many series, native
// histograms where they are named nat.
type world struct {
	*Scale
	top    *shard.Topology
	shards []*shard.Shard
	series int64
	at     func(moment int64) int64 // how many series there are then, instead
	err    error
	asked  atomic.Int64
	lists  []string // the selectors of which series were to be listed
	holds  int64    // the most that a question was said to make a server hold
}

func newWorld(t testing.TB, series int64, bytes int64) *world {
	t.Helper()
	g := config.Group{Name: "jaguar", Labels: map[string]string{"cluster": "jaguar"}}
	for i := range 2 {
		r := config.Replica{URL: fmt.Sprintf("http://10.0.0.%d:9090", i+1), Type: config.TypePrometheus}
		g.Shards = append(g.Shards, config.Shard{Replicas: []config.Replica{r}})
	}
	top, err := shard.New([]config.Group{g}, shard.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(top.Close)
	w := &world{top: top, shards: top.Groups[0].Shards, series: series}
	w.Scale = &Scale{
		MaxBytes: bytes, MaxRange: 31 * 24 * time.Hour, Light: LightSeries, Interval: time.Minute, Now: 1_800_000_000_000,
		Known: &Known{Sizes: &Sizes{}, Found: &Found{}}, // which knows no shard
		Ask: func(_ context.Context, questions []Question, found func(int, int64)) error {
			w.asked.Add(int64(len(questions)))
			if w.err != nil {
				return w.err
			}
			for i, q := range questions {
				w.lists = append(w.lists, q.Request.Match...)
				w.holds = max(w.holds, q.Holds)
				n := w.series
				if w.at != nil {
					n = w.at(q.Grid.End)
				}
				switch text := q.Request.Query; {
				case strings.Contains(text, "histogram_count") && !strings.Contains(text, "nat"):
					n = 1 // none, and one more
				case strings.Contains(text, "histogram_count"):
					n++
				case strings.Contains(text, `"few"`):
					n /= 100
				}
				if q.Request.ID == endpoint.Series {
					n = min(n, int64(q.Request.Limit))
				}
				found(i, n)
			}
			return nil
		},
	}
	return w
}

// ask weighs a query that all shards are asked for whole.
func (w *world) ask(t *testing.T, text string, steps int, move time.Duration) (int, error) {
	t.Helper()
	return w.leaves(t, text, 1, steps, move)
}

// leaves is ask for a query of several leaves with that text.
func (w *world) leaves(t *testing.T, text string, n, steps int, move time.Duration) (int, error) {
	t.Helper()
	q, p := w.planned(t, text, n, steps, move)
	return w.Pieces(t.Context(), q, p)
}

// planned is such a query and its plan.
func (w *world) planned(t testing.TB, text string, n, steps int, move time.Duration) (plan.Query, *plan.Plan) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Fatal(err)
	}
	end := w.Now - move.Milliseconds()
	grid := merge.Grid{Start: end - int64(steps-1)*15_000, End: end, Step: 15_000}
	q := plan.Query{Text: text, Expr: expr, Grid: grid, Range: steps > 1}
	leaf := &plan.Leaf{Mode: plan.ModePush, Grid: grid, Range: q.Range, Expr: expr}
	for _, s := range w.shards {
		leaf.Parts = append(leaf.Parts, &plan.Part{Shard: s, Query: text, From: grid.Start - 300_000, Until: end})
	}
	p := &plan.Plan{}
	for range n {
		p.Leaves = append(p.Leaves, leaf)
	}
	return q, p
}

// TestPieces: what weighs little is asked at once, and of nobody how many series there are; what
// weighs much in pieces, or not at all. Numbers are asked for once.
func TestPieces(t *testing.T) {
	for _, tc := range []struct {
		query  string
		steps  int
		pieces int // 0: refused
		asked  int // for numbers, of both shards
	}{
		{"sum(up)", 1, 1, 0},
		{"sum by (job) (rate(x_total[5m]))", 1, 1, 4}, // how many there are, and how many of them are native histograms
		{"sum(rate(x_total[5m]))", 241, 6, 4},         // 77 MB of points, twice
		{`sum(rate(x_total{job="few"}[5m]))`, 241, 1, 6},
		{"max_over_time(rate(x_total[5m])[6h:15s])", 1, 0, 2}, // too much as floats
		{"sum(rate(nat[5m]))", 241, 0, 4},
	} {
		w := newWorld(t, 20_000, 32<<20)
		told := map[*shard.Shard]Weight{}
		w.Held = func(s *shard.Shard, w Weight) { told[s] = w }
		for i := range 2 {
			n, err := w.ask(t, tc.query, tc.steps, 0)
			if n != max(tc.pieces, 1) || (err != nil) != (tc.pieces == 0) {
				t.Errorf("%s: %d pieces, %v", tc.query, n, err)
			}
			if err != nil && (qerr.From(err).Kind != qerr.TooExpensive || !strings.Contains(err.Error(), "shard jaguar[0]")) {
				t.Errorf("%s: %v", tc.query, err)
			}
			if err != nil && told[w.shards[0]].Counted <= 32<<20 { // in shadow it is asked all the same
				t.Errorf("%s: %+v is told", tc.query, told[w.shards[0]])
			}
			if asked := int(w.asked.Swap(0)); i == 0 && asked != tc.asked || i == 1 && asked > 0 {
				t.Errorf("%s: time %d: asked %d times", tc.query, i, asked)
			}
		}
	}
}

// TestAskedAgain: numbers stand for ten minutes, weights too; what a server would not tell is the
// request's error, and is not remembered.
func TestAskedAgain(t *testing.T) {
	w := newWorld(t, 2000, 32<<20)
	const query = "sum(rate(x_total[5m]))"
	weigh := func(move time.Duration) int64 {
		t.Helper()
		if n, err := w.ask(t, query, 241, move); n != 1 || err != nil {
			t.Errorf("%d pieces, %v", n, err)
		}
		return w.asked.Swap(0)
	}
	if n := weigh(0); n == 0 {
		t.Error("nobody was asked")
	}
	w.series = 1_000_000 // which nobody knows yet
	if n := weigh(0); n != 0 {
		t.Errorf("asked %d times once more", n)
	}
	if n, err := w.ask(t, query, 241, 21*time.Minute); err == nil && n == 1 {
		t.Error("numbers of now are believed of earlier ones")
	}
	other := newWorld(t, 2000, 32<<20)
	other.err = errors.New("no route to it")
	for range 2 {
		if _, err := other.ask(t, query, 241, 0); !errors.Is(err, other.err) || other.asked.Swap(0) == 0 {
			t.Errorf("%v", err)
		}
	}
	other.err = nil
	if n, err := other.ask(t, query, 241, 0); n != 1 || err != nil {
		t.Errorf("%d pieces, %v", n, err)
	}
}

// TestLeavesAddUp: what each of a query's leaves weighs was little when it was asked alone, and
// together they are too much.
func TestLeavesAddUp(t *testing.T) {
	w := newWorld(t, 2500, 32<<20)
	const query = "sum(rate(x_total[5m]))"
	for _, leaves := range []int{1, 4, 1} {
		if n, err := w.leaves(t, query, leaves, 241, 0); err != nil || (n > 1) != (leaves > 1) {
			t.Errorf("%d leaves: %d pieces, %v", leaves, n, err)
		}
	}
}

// TestTheMostCounts: of numbers at several moments the largest is believed, wherever it stands.
func TestTheMostCounts(t *testing.T) {
	for moment := range countMoments {
		w := newWorld(t, 0, 32<<20)
		var moments []int64
		many := func(at int64) int64 {
			if !slices.Contains(moments, at) {
				moments = append(moments, at)
			}
			if moments[min(moment, len(moments)-1)] == at {
				return 20_000
			}
			return 10
		}
		w.at = many
		if n, err := w.ask(t, "sum(rate(x_total[5m]))", 10*240, 0); n < 2 && err == nil {
			t.Errorf("moment %d: asked at once", moment)
		}
		if len(moments) != countMoments {
			t.Errorf("asked at %v", moments)
		}
	}
}

// TestNativesOfWhatIsRefused: it is not asked whether series are native histograms where they are
// too much as floats, in however many pieces the query is asked.
func TestNativesOfWhatIsRefused(t *testing.T) {
	for _, tc := range []struct {
		query  string
		steps  int
		refuse bool
	}{
		{`sum(rate(x_bucket[5m]))`, 1000, true},                               // 32 pieces of 32 steps
		{`sum(rate(x_bucket[5m]))`, 100, false},                               // four steps are little enough
		{`max_over_time(rate(x_bucket[5m])[3d:1m])`, 1, true},                 // there are no pieces
		{`max_over_time(sum(rate(x_bucket[5m]))[1h:1m] @ end())`, 1000, true}, // nor here
		// A join is taken to meet other series at each step, until it is known how many it can
		// meet.
		{`sum(rate(x_bucket{job="few"}[5m]) * on (pod) group_left (zone) label_replace(info{job="few"} == 1, "zone", "$1", "node", "(.)-.+"))`, 1000, false},
	} {
		w := newWorld(t, 200_000, 220<<20)
		ask, natives := w.Ask, 0
		w.Ask = func(ctx context.Context, questions []Question, found func(int, int64)) error {
			for _, q := range questions {
				if strings.Contains(q.Request.Query, "histogram_count") {
					natives++
				}
			}
			if strings.HasPrefix(questions[0].Request.Query, "max(count by (pod)") {
				for i := range questions {
					found(i, 1) // each pod has one
				}
				return nil
			}
			return ask(ctx, questions, found)
		}
		_, err := w.ask(t, tc.query, tc.steps, 0)
		if refused := err != nil; refused != tc.refuse || refused == (natives > 0) {
			t.Errorf("%s at %d steps: %v; natives were asked for %d times", tc.query, tc.steps, err, natives)
		}
	}
}

// TestNativesThatCome: that nothing is selected of a large metric, and so no native histograms, is
// believed for ten minutes, however long the window.
func TestNativesThatCome(t *testing.T) {
	w := sized(t, 200_000)
	told := `{"data":{"headStats":{"numSeries":2000000,"minTime":0},"seriesCountByMetricName":[{"name":"nat","value":200000}]}}`
	learn := func() {
		for _, s := range w.shards {
			if err := w.Known.Sizes.Names(s).Learn(strings.NewReader(told), time.UnixMilli(w.Now), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	learn()
	w.MaxBytes, w.series = 160<<20, 0
	const query = `sum(rate(nat{job="new"}[5m]))`
	if _, err := w.ask(t, query, 960, 0); err != nil {
		t.Fatal(err)
	}
	w.series = 50_000
	w.Now += 11 * time.Minute.Milliseconds()
	learn() // or it would be asked for
	if _, err := w.ask(t, query, 960, 0); err == nil {
		t.Error("50,000 native histograms of four hours were sent for as if they were floats")
	}
}

// TestNativesOfMany: whether there are native histograms is asked at one moment, by selecting the
// series once, over an hour or what a query reads, if that is more; of more series than
// maxAskedByName over what it reads, if that is less. At several moments it is only where all that
// is read would be too long.
func TestNativesOfMany(t *testing.T) {
	for _, tc := range []struct {
		query   string
		series  int64
		steps   int
		bytes   int64
		moments int
		stretch string
	}{
		{`sum by (le) (rate({__name__=~".+_bucket"}[5m]))`, 200_000, 1, 1 << 29, 1, "5m"},
		{`sum by (le) (rate(x_bucket{job=~".+x"}[5m]))`, 200_000, 1, 1 << 29, 1, "5m"},
		{`sum by (le) (rate(x_bucket{job=~".+x"}[5m]))`, 200_000, 21, 1 << 30, 1, "1h"},
		{`sum by (le) (rate(x_bucket[5m]))`, 50_000, 1, 1 << 28, 1, "1h"},
		{`sum by (le) (rate(x_bucket[5m]))`, 200_000, 1000, 8 << 30, 1, "4h39m37s"}, // four hours, or all that share the number
		{`sum by (le) (rate(x_bucket[5m]))`, 200_000, 3000, 32 << 30, countMoments, "1h"},
	} {
		w := newWorld(t, tc.series, tc.bytes)
		ask, texts := w.Ask, map[string]int{}
		w.Ask = func(ctx context.Context, questions []Question, found func(int, int64)) error {
			for _, q := range questions {
				if strings.Contains(q.Request.Query, "histogram_count") && q.Part.Shard == w.shards[0] {
					texts[q.Request.Query] += q.Grid.Len()
				}
			}
			return ask(ctx, questions, found)
		}
		if _, err := w.ask(t, tc.query, tc.steps, 0); err != nil {
			t.Errorf("%s: %v", tc.query, err)
		}
		if len(texts) != 1 {
			t.Errorf("%s over %d series: %d questions for native histograms, want one: %v", tc.query, tc.series, len(texts), texts)
		}
		for text, n := range texts {
			if n != tc.moments || strings.Count(text, "{") != 1 || !strings.Contains(text, "["+tc.stretch+"]") {
				t.Errorf("%s over %d series: asked %s at %d moments, want %d, over %s", tc.query, tc.series, text, n, tc.moments, tc.stretch)
			}
		}
	}
	// What is there at the end is found.
	w := newWorld(t, 200_000, 32<<20)
	if _, err := w.ask(t, `sum by (le) (rate({__name__=~"nat.+"}[5m]))`, 1, 0); err == nil {
		t.Error("200,000 native histograms were sent for as if they were floats")
	}
}

// TestHeldIsTold: whoever asks how wide a call is learns what each shard would hold of the query,
// the first time and where that is known from before; of what is too light to be looked at nothing.
func TestHeldIsTold(t *testing.T) {
	w := newWorld(t, 20_000, 1<<30)
	told := map[*shard.Shard]int64{}
	w.Held = func(s *shard.Shard, w Weight) { told[s] = w.Counted + w.Uncounted }
	if _, err := w.ask(t, "sum(up)", 1, 0); err != nil || len(told) > 0 {
		t.Errorf("%v is told of little, %v", told, err)
	}
	for i := range 2 {
		clear(told)
		if _, err := w.leaves(t, "sum(rate(x_total[5m]))", 2, 241, 0); err != nil {
			t.Fatal(err)
		}
		for _, s := range w.shards { // 20,000 series of 241 points of 16 bytes, in two leaves
			if told[s] < 2*77_000_000 || told[s] > 1<<30 {
				t.Errorf("time %d: %s is to hold %d bytes", i, s.Name(), told[s])
			}
		}
	}
}

// TestHeldOfPieces: of a query that is asked in pieces it is told what one of them makes a server
// hold, which is within the bound.
func TestHeldOfPieces(t *testing.T) {
	w := newWorld(t, 20_000, 32<<20)
	told := map[*shard.Shard]int64{}
	w.Held = func(s *shard.Shard, w Weight) { told[s] = w.Counted + w.Uncounted }
	for i := range 2 {
		clear(told)
		if n, err := w.ask(t, "sum(rate(x_total[5m]))", 241, 0); n != 6 || err != nil {
			t.Fatal(n, err)
		}
		for _, s := range w.shards { // 41 of 241 steps
			if told[s] < 32<<20/2 || told[s] > 32<<20 {
				t.Errorf("time %d: a piece makes %s hold %d bytes", i, s.Name(), told[s])
			}
		}
	}
}

// TestFewOfALargeMetric: who selects few series of a large metric is not taken for one who selects
// all of them: what is not counted is told as an upper bound, and where that is much it is counted,
// once, unless the server will not.
func TestFewOfALargeMetric(t *testing.T) {
	const query = `sum(rate(x_total{job="few"}[5m]))` // one of a hundred, 16 bytes for each step
	for _, c := range []struct {
		size, steps int
		refused     error
		counted     bool
		asked       int64 // of both shards, and whether they are native histograms
		most        int64 // bytes
	}{
		{5_000, 720, nil, false, 2, 128 << 20},
		{20_000, 720, nil, true, 4, 4 << 20},
		{40_000, 720, nil, true, 4, 8 << 20},
		{45_000, 720, nil, true, 4, 8 << 20}, // all of them would be too much
		{40_000, 720, qerr.New(qerr.TooExpensive, "too many samples"), false, 4, 512 << 20},
	} {
		w := sized(t, c.size)
		told := map[*shard.Shard]Weight{}
		w.Held = func(s *shard.Shard, w Weight) { told[s] = w }
		w.err = c.refused
		for i := range 2 {
			clear(told)
			n, err := w.ask(t, query, c.steps, 0)
			if asked := w.asked.Swap(0); n != 1 || err != nil || i == 0 && asked != c.asked || i == 1 && c.refused == nil && asked != 0 {
				t.Errorf("%d series: time %d: %d pieces, %v; asked %d times", c.size, i, n, err, asked)
			}
			for _, s := range w.shards {
				held := told[s]
				if counted := held.Uncounted == 0; counted != c.counted || held.Counted+held.Uncounted > c.most || held == (Weight{}) {
					t.Errorf("%d series: time %d: %s is told %+v", c.size, i, s.Name(), held)
				}
			}
		}
	}
}

// TestCountForTheWidthAlone: what keeps series from being counted for a call's width alone is no
// reason to fail; the bound is told then. Who selects nothing is told as counted, also when he asks
// again.
func TestCountForTheWidthAlone(t *testing.T) {
	for _, err := range []error{qerr.New(qerr.Overloaded, "no room"), qerr.New(qerr.ShardFailed, "broken"), nil} {
		w := sized(t, 40_000)
		told := map[*shard.Shard]Weight{}
		w.Held = func(s *shard.Shard, w Weight) { told[s] = w }
		ask := w.Ask
		w.Ask = func(ctx context.Context, questions []Question, found func(int, int64)) error {
			if strings.Contains(questions[0].Request.Query, "histogram_count") {
				return ask(ctx, questions, found)
			}
			for i := range questions {
				found(i, 0)
			}
			return err
		}
		for i := range 2 {
			clear(told)
			if n, got := w.ask(t, `sum(rate(x_total{job="none"}[5m]))`, 720, 0); n != 1 || got != nil {
				t.Errorf("%v: time %d: %d pieces, %v", err, i, n, got)
			}
			for _, s := range w.shards {
				if held, counted := told[s], err == nil; held.Uncounted == 0 != counted || held == (Weight{}) {
					t.Errorf("%v: time %d: %s is told %+v", err, i, s.Name(), held)
				}
			}
		}
	}
}

// sized is a world whose shards say that x_total has so many series.
func sized(t testing.TB, sizes ...int) *world {
	t.Helper()
	w := newWorld(t, int64(sizes[0]), 512<<20)
	tell(t, w, sizes...)
	return w
}

// tell has the shards of a world say that x_total has so many series, and all metrics two million.
func tell(t testing.TB, w *world, sizes ...int) {
	t.Helper()
	w.Known.Sizes = NewSizes(t.Context(), w.top, nil, func() time.Time { return time.UnixMilli(w.Now) }, slog.New(slog.DiscardHandler))
	for i, s := range w.shards {
		told := fmt.Sprintf(`{"data":{"headStats":{"numSeries":2000000,"minTime":0},"seriesCountByMetricName":[{"name":"x_total","value":%d}]}}`, sizes[i%len(sizes)])
		if err := w.Known.Sizes.Names(s).Learn(strings.NewReader(told), time.UnixMilli(w.Now), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPieceOfWhatIsNotCounted: of a query that is asked in pieces because of one shard, it is what
// a piece makes the others hold, too, that they are told.
func TestPieceOfWhatIsNotCounted(t *testing.T) {
	w := sized(t, 200_000, 40_000)
	told := map[*shard.Shard]Weight{}
	w.Held = func(s *shard.Shard, w Weight) { told[s] = w }
	n, err := w.ask(t, "sum(rate(x_total[5m]))", 720, 0)
	if err != nil || n < 4 {
		t.Fatal(n, err)
	}
	if held, most := told[w.shards[1]], int64(1<<30)/int64(n); held.Counted != 0 || held.Uncounted == 0 || held.Uncounted > most {
		t.Errorf("a piece of %d makes the other one hold %+v, want at most %d", n, held, most)
	}
}

// TestAllThatAreSilentAreGivenUp: of several shards whose numbers others have asked for and not
// got, all that the request can go without are given up at once, also those after one that it
// needs: each of them would cost one more attempt, and its wait.
func TestAllThatAreSilentAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silent, needed = 4, 1
		w := &Scale{Known: &Known{Found: &Found{}}, Patience: func() time.Duration { return time.Second }}
		keys, by := make([]cost.Key, silent), map[cost.Key]selected{}
		for i := range keys {
			keys[i] = cost.KeyOf(fmt.Sprint(i), "count", "up", 0, 1)
			by[keys[i]] = selected{part: &plan.Part{Shard: &shard.Shard{Index: i}}}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var other sync.WaitGroup
		other.Go(func() {
			_, _ = w.Known.Counts.Find(ctx, "", keys, func([]cost.Key, func(int, int64)) error {
				<-ctx.Done()
				return ctx.Err()
			})
		})
		synctest.Wait()
		var told []int
		w.GiveUp = func(s *shard.Shard) error {
			if told = append(told, s.Index); s.Index == needed {
				return nil
			}
			return fmt.Errorf("without %d", s.Index)
		}
		began := time.Now()
		_, err := w.find(ctx, keys, by, func([]cost.Key, func(int, int64)) error { return errors.New("others ask") })
		if slices.Sort(told); err == nil || !strings.HasPrefix(err.Error(), "without ") || !slices.Equal(told, []int{0, 1, 2, 3}) {
			t.Errorf("%v: told of %v", err, told)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %s", took)
		}
		cancel()
		other.Wait()
	})
}
