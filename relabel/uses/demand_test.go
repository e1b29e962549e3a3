package uses

import (
	"flag"
	"fmt"
	rand1 "math/rand"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cortexproject/promqlsmith"
	"github.com/prometheus/prometheus/model/labels"
	engine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

var (
	seed   = flag.Uint64("seed", 1, "of random tests")
	rounds = flag.Int("rounds", 150, "how many random queries each property is tried on")
)

// promqlsmith puts a function of its own into the parser's table when it is loaded. Nothing else
// here may see it.
func init() { delete(parser.Functions, "holt_winters") }

// smith writes queries that nobody here thought of.
func smith(w world, seed int64) func() string {
	sets := make([]labels.Labels, len(w))
	for i, s := range w {
		sets[i] = s.Metric
	}
	var functions []*parser.Function
	for _, name := range sortedKeys(parser.Functions) {
		switch name {
		case "time", "pi", "histogram_quantiles", "start", "end", "range", "step":
		default:
			functions = append(functions, parser.Functions[name])
		}
	}
	s := promqlsmith.New(rand1.New(rand1.NewSource(seed)), sets, promqlsmith.WithMaxDepth(3), promqlsmith.WithEnableVectorMatching(true),
		promqlsmith.WithEnabledFunctions(functions))
	return func() (text string) {
		defer func() {
			if recover() != nil {
				text = "" // it cuts label values, and what is left may be no regular expression
			}
		}()
		if e := s.WalkRangeQuery(); e != nil {
			return e.String()
		}
		return ""
	}
}

// TestLabelsNotNeeded takes away every label that the analysis finds unneeded, from a metric or
// from one job of it, wherever no two series become one: no answer may change. And every series
// that no selector selects.
func TestLabelsNotNeeded(t *testing.T) {
	t.Logf("seed %d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 2))
	checked, answered, series, ties := 0, 0, 0, 0
	for round := range *rounds {
		w := newWorld(rng)
		query := writer{rng}.vector(1 + rng.IntN(3))
		if round%5 == 4 {
			if query = smith(w, int64(*seed)*1_000_000+int64(round))(); query == "" {
				continue
			}
		}
		needs, warning := Needs(query)
		if _, err := promql.ParseExpr(query); err != nil || warning != "" {
			if round%5 == 4 {
				continue
			}
			t.Fatalf("%s does not parse: %v %s", query, err, warning)
		}
		e := engines[rng.IntN(2)]
		before := w.ask(e, query)
		// Which of equal values they choose is excepted, and the last digit of a sum: the engine
		// itself adds in an order that changes.
		if slices.ContainsFunc([]string{"topk", "bottomk", "limitk", "count_values"},
			func(op string) bool { return strings.Contains(query, op) }) {
			tied := false
			for range 8 {
				tied = tied || before.differs(w.shuffled(rng).ask(e, query)) != ""
			}
			if tied {
				ties++
				continue
			}
		}
		compare := func(what string, changed world) {
			t.Helper()
			checked++
			if len(before.series) > 0 {
				answered++
			}
			if d := before.differs(changed.ask(e, query)); d != "" {
				t.Fatalf("round %d: without %s, the answer to\n%s\nchanges: %s\nneeds: %v\nover\n%s", round, what, query, d, show(needs), w)
			}
		}
		type change struct{ metric, label, job string }
		var changes []change
		for _, metric := range []string{"m0", "m1", "m2", "m3", "h_bucket", "target_info"} {
			for _, label := range []string{"a", "b", "c", "d", "job", "le", "version"} {
				if !slices.ContainsFunc(needs, func(n Need) bool { return n.named(metric) && n.Reads(label) }) {
					changes = append(changes, change{metric, label, ""}, change{metric, label, "j0"}, change{metric, label, "j1"})
				}
			}
		}
		// Those of metrics that the query reads show the most, and few are enough of one query.
		rng.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
		slices.SortStableFunc(changes, func(a, b change) int {
			read := func(c change) int { return strings.Count(query, c.metric) }
			return min(read(b), 1) - min(read(a), 1)
		})
		tried := 0
		for _, c := range changes {
			if changed, ok := w.without(c.metric, c.job, c.label); ok && tried < 8 {
				tried++
				compare(c.label+" of "+c.metric+" of job "+c.job, changed)
			}
		}
		used := slices.DeleteFunc(slices.Clone(w), func(s engine.Series) bool {
			return !slices.ContainsFunc(needs, func(n Need) bool { return matches(n.Matchers, s.Metric) })
		})
		if len(used) < len(w) {
			series++
			compare("the series that nothing selects", used)
		}
	}
	t.Logf("%d changes to the series were compared, %d of them under queries that have an answer; series were dropped %d times; %d queries have several right answers", checked, answered, series, ties)
	if checked < *rounds || answered < checked/3 {
		t.Errorf("only %d changes were compared, %d of them with an answer: the queries are too dull to show anything", checked, answered)
	}
}

func show(needs []Need) []string {
	var out []string
	for _, n := range needs {
		text := n.Selector() + " needs " + n.Labels.String()
		if n.Quantile {
			text += ", quantile"
		}
		if n.Absent {
			text += ", absent"
		}
		out = append(out, text)
	}
	return out
}

// TestQuantileBuckets takes buckets away from histograms that only quantiles read: where the
// analysis says so, each answer stays within the bucket that is left around it.
func TestQuantileBuckets(t *testing.T) {
	rng := rand.New(rand.NewPCG(*seed, 5))
	edges := []string{"0.1", "1.0", "10.0", "30.0", "+Inf"}
	checked := 0
	for range *rounds {
		var w world
		for i := range 1 + rng.IntN(3) { // without gaps: the buckets of a histogram come together
			totals, b := make([]float64, 40), fmt.Sprintf("b%d", rng.IntN(2))
			for _, le := range edges {
				s := engine.Series{Metric: labels.FromStrings("__name__", "h_bucket", "job", "j0", "a", fmt.Sprintf("a%d", i), "b", b, "le",
					le)}
				step := float64(rng.IntN(9))
				for at := range totals {
					totals[at] += step * float64(at)
					s.Floats = append(s.Floats, engine.FPoint{T: start.UnixMilli() + int64(at)*30_000, F: totals[at]})
				}
				w = append(w, s)
			}
		}
		w = w.sorted()
		query := writer{rng}.histogram()
		needs, _ := Needs(query)
		if slices.ContainsFunc(needs, func(n Need) bool { return !n.Quantile }) {
			continue
		}
		gone := edges[rng.IntN(3)] // neither the highest finite one nor +Inf
		var bounds []float64
		for _, le := range edges {
			if le != gone && le != "+Inf" {
				f, err := strconv.ParseFloat(le, 64)
				if err != nil {
					t.Fatal(err)
				}
				bounds = append(bounds, f)
			}
		}
		thin := slices.DeleteFunc(slices.Clone(w), func(s engine.Series) bool { return s.Metric.Get("le") == gone })
		before, after := w.ask(engines[0], query), thin.ask(engines[0], query)
		if before.err != nil || after.err != nil || len(before.series) != len(after.series) {
			t.Fatalf("%s without le=%s: %v, %v", query, gone, before, after)
		}
		for key, points := range before.series {
			for i, p := range points {
				q := after.series[key][i].F
				within := near(p.F, q)
				for j, upper := range bounds {
					lower := 0.0
					if j > 0 {
						lower = bounds[j-1]
					}
					within = within || p.F >= lower-1e-9 && p.F <= upper+1e-9 && q >= lower-1e-9 && q <= upper+1e-9
				}
				if checked++; !within {
					t.Fatalf("%s without le=%s: %s was %v and is %v\n%s", query, gone, key, p.F, q, w)
				}
			}
		}
	}
	if checked < *rounds {
		t.Errorf("only %d values were compared", checked)
	}
}
