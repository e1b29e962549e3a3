package uses

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	engine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// world is a small set of series in memory, in the order of their labels.
type world []engine.Series

// start is when the series of a world begin.
var start = time.Unix(1_700_000_000, 0)

// newWorld makes series of m0 to m3, each with one shape of labels for a job, of the histogram
// h_bucket, and of target_info.
func newWorld(rng *rand.Rand) world {
	var w world
	have := map[string]bool{}
	add := func(floats func(i int) float64, pairs ...string) {
		var kept []string
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i+1] != "" {
				kept = append(kept, pairs[i], pairs[i+1])
			}
		}
		ls := labels.FromStrings(kept...)
		if have[ls.String()] {
			return
		}
		have[ls.String()] = true
		s := engine.Series{Metric: ls}
		first, last := 0, 40
		switch rng.IntN(5) { // some end, and some begin
		case 0:
			first = 15 + rng.IntN(10)
		case 1:
			last = 5 + rng.IntN(15)
		}
		for i := first; i < last; i++ {
			if rng.IntN(12) > 0 {
				s.Floats = append(s.Floats, engine.FPoint{T: start.UnixMilli() + int64(i)*30_000, F: floats(i)})
			}
		}
		w = append(w, s)
	}
	counter := func() func(int) float64 {
		step, first := float64(rng.IntN(50)), float64(rng.IntN(1000))
		return func(i int) float64 { return first + step*float64(i) }
	}
	gauge := func() func(int) float64 { return func(int) float64 { return float64(rng.IntN(20)) } }
	value := func(name string, lack int) string {
		if rng.IntN(10) < lack {
			return ""
		}
		return name + fmt.Sprint(rng.IntN(3))
	}
	for m := range 4 {
		for _, job := range []string{"j0", "j1"} {
			lacks := []int{0, 0, 0, 0}
			for i := range lacks {
				lacks[i] = []int{0, 0, 3, 10}[rng.IntN(4)]
			}
			for range 1 + rng.IntN(5) {
				f := gauge()
				if m < 2 {
					f = counter()
				}
				add(f, "__name__", fmt.Sprintf("m%d", m), "job", job, "a", value("a", lacks[0]), "b", value("b", lacks[1]), "c",
					value("c", lacks[2]), "d", value("d", lacks[3]))
			}
		}
	}
	whole := rng.IntN(2) == 0 // else, histograms lack buckets
	for range 1 + rng.IntN(4) {
		a, b, c := value("a", 0), value("b", 3), value("c", 5)
		total := 0.0
		for _, le := range []string{"0.1", "1.0", "10.0", "30.0", "+Inf"} {
			total += float64(rng.IntN(30))
			step := total
			if !whole && rng.IntN(3) > 0 {
				continue
			}
			add(func(i int) float64 { return step * float64(i) }, "__name__", "h_bucket", "job", "j0", "a", a, "b", b, "c", c, "le", le)
		}
	}
	for _, job := range []string{"j0", "j1"} {
		add(func(int) float64 { return 1 }, "__name__", "target_info", "job", job, "instance", "", "version", value("v", 2), "d",
			value("d", 5))
	}
	return w.sorted()
}

func (w world) sorted() world {
	slices.SortFunc(w, func(a, b engine.Series) int { return labels.Compare(a.Metric, b.Metric) })
	return w
}

// shuffled is the world in another order.
func (w world) shuffled(rng *rand.Rand) world {
	out := slices.Clone(w)
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// Querier implements storage.Queryable.
func (w world) Querier(_, _ int64) (storage.Querier, error) { return querier{world: w}, nil }

type querier struct {
	storage.LabelQuerier
	world world
}

func (querier) Close() error { return nil }

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var out selected
	for _, s := range q.world {
		if matches(matchers, s.Metric) {
			out.series = append(out.series, s)
		}
	}
	return &out
}

func matches(matchers []*labels.Matcher, ls labels.Labels) bool {
	return !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(ls.Get(m.Name)) })
}

type selected struct {
	series []engine.Series
	at     engine.Series
}

func (s *selected) Next() bool {
	if len(s.series) == 0 {
		return false
	}
	s.at, s.series = s.series[0], s.series[1:]
	return true
}
func (s *selected) At() storage.Series                { return engine.NewStorageSeries(s.at) }
func (s *selected) Err() error                        { return nil }
func (s *selected) Warnings() annotations.Annotations { return nil }

// engines are Prometheus as it is, and with the names of metrics removed at the end.
var engines = func() (out [2]*engine.Engine) {
	for i := range out {
		out[i] = engine.NewEngine(engine.EngineOpts{
			MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
			EnableDelayedNameRemoval: i == 1, Parser: promql,
			NoStepSubqueryIntervalFn: func(int64) int64 { return 60_000 },
		})
	}
	return out
}()

// answer is what a query gives over a world, or its error.
type answer struct {
	series map[string][]engine.FPoint
	err    error
}

func (w world) ask(e *engine.Engine, query string) answer {
	q, err := e.NewRangeQuery(context.Background(), w, nil, query, start.Add(6*time.Minute), start.Add(18*time.Minute), 4*time.Minute)
	if err != nil {
		return answer{err: err}
	}
	defer q.Close()
	r := q.Exec(context.Background())
	if r.Err != nil {
		return answer{err: r.Err}
	}
	m, err := r.Matrix()
	if err != nil {
		return answer{err: err}
	}
	a := answer{series: map[string][]engine.FPoint{}}
	for _, s := range m {
		a.series[s.Metric.String()] = slices.Clone(s.Floats)
	}
	return a
}

// differs says how two answers differ; "" if they do not. Sums of other order may differ in their
// last digits.
func (a answer) differs(b answer) string {
	if (a.err == nil) != (b.err == nil) {
		return fmt.Sprintf("the error was %v and is %v", a.err, b.err)
	}
	for _, key := range sortedKeys(a.series) {
		other, ok := b.series[key]
		if !ok {
			return "the series " + key + " is gone; there are " + strings.Join(sortedKeys(b.series), " ")
		}
		if len(other) != len(a.series[key]) {
			return fmt.Sprintf("the series %s has %d points instead of %d", key, len(other), len(a.series[key]))
		}
		for i, p := range a.series[key] {
			if o := other[i]; o.T != p.T || !near(o.F, p.F) {
				return fmt.Sprintf("the series %s has %v instead of %v", key, o, p)
			}
		}
	}
	for _, key := range sortedKeys(b.series) {
		if _, ok := a.series[key]; !ok {
			return "the series " + key + " is new"
		}
	}
	return ""
}

func near(a, b float64) bool {
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b))
}

// without is the world with a label taken from all series of a metric, or of one job of it; false
// where two series would be one, or nothing changes.
func (w world) without(metric, job, label string) (world, bool) {
	out, seen, changed := make(world, 0, len(w)), map[string]bool{}, false
	for _, s := range w {
		if s.Metric.Get("__name__") == metric && (job == "" || s.Metric.Get("job") == job) && s.Metric.Has(label) {
			s.Metric = labels.NewBuilder(s.Metric).Del(label).Labels()
			changed = true
		}
		if key := s.Metric.String(); seen[key] {
			return nil, false
		} else {
			seen[key] = true
		}
		out = append(out, s)
	}
	return out.sorted(), changed
}

func (w world) String() string {
	lines := make([]string, len(w))
	for i, s := range w {
		lines[i] = "  " + s.Metric.String()
	}
	slices.SortFunc(lines, cmp.Compare[string])
	return strings.Join(lines, "\n")
}
