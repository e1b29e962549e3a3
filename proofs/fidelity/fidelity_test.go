package fidelity

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/spillwayproject/spillway/internal/seamref"
)

var (
	seeds   = flag.Int("fidelity.seeds", 1, "how many worlds are looked at, of three hours each")
	verbose = flag.Bool("fidelity.alerts", false, "print the alerts that are false or lost")
	update  = flag.Bool("update", false, "write the table of docs/fidelity.md")
)

// queries are looked at each 30 s, as a dashboard's range.
var queries = []string{
	"up", "sum(up)", "sum by (job) (up)", "count by (job) (up)", "avg by (job) (up)", "min by (job) (up)", "up == 0",
	"avg_over_time(up[5m])", "min_over_time(up[2m])", "count_over_time(up[5m])", "changes(up[10m])",
	"requests_total", "sum by (job) (requests_total)", "rate(requests_total[1m])", "rate(requests_total[5m])",
	"sum by (job) (rate(requests_total[2m]))", "sum(rate(requests_total[5m]))", "increase(requests_total[10m])",
	"irate(requests_total[2m])", "resets(requests_total[10m])", "max by (job) (rate(requests_total[5m]))",
	"topk(3, rate(requests_total[5m]))", "count(rate(requests_total[1m]))", "delta(requests_total[5m])",
	"temperature", "avg by (job) (temperature)", "max(temperature)", "quantile(0.9, temperature)", "avg_over_time(temperature[5m])",
	"max_over_time(temperature[10m])", "stddev_over_time(temperature[5m])", "delta(temperature[5m])",
	"deriv(temperature[5m])", "temperature > 70", "count(temperature > 70)", "last_over_time(temperature[5m])",
	"present_over_time(temperature[2m])", "temperature offset 10m", "temperature - temperature offset 5m",
	"queue", "sum(queue)", "changes(queue[10m])", "max_over_time(queue[5m])", "idelta(queue[2m])", "count_values(\"v\", queue)",
	"queue > bool 3", "started", "time() - started", "changes(started[15m])", "count(started)",
	"errors_total", "count(errors_total)", "sum by (job) (rate(errors_total[5m]))", "increase(errors_total[10m])",
	"absent(errors_total{job=\"node\"})", "requests_total unless errors_total", "errors_total / requests_total",
	"flag", "count(flag)", "count_over_time(flag[1m])", "changes(flag[5m])", "absent_over_time(flag{instance=\"10.0.0.3:9100\"}[1m])",
	"up{job=\"batch\"}", "count(up{job=\"batch\"})", "last_over_time(started{job=\"batch\"}[2m])",
	"scrape_duration_seconds", "max(scrape_duration_seconds)", "count(scrape_duration_seconds > 1)", "max_over_time(sum(up)[10m:30s])",
	"sum(max_over_time(requests_total[2m])) by (job)",
}

// instants are looked at as a ruler does, at one moment at a time: the newest sample then lies at
// the edge of what is read.
var instants = []string{"up", "sum(up)", "temperature", "queue", "rate(requests_total[1m])", "flag"}

// alert is a rule that is evaluated each 15 s.
type alert struct {
	expr string
	hold int64 // for, in milliseconds
	back int64 // how far back it looks
}

var alerts = []alert{
	{`up{job!="batch"} == 0`, 60_000, 300_000},
	{`up{job!="batch"} == 0`, 300_000, 300_000},
	{`avg_over_time(up{job!="batch"}[10m]) < 0.5`, 0, 600_000},
	{`count by (job) (up{job!="batch"} == 1) < 6`, 120_000, 300_000},
	{`absent(up{job="node"})`, 60_000, 300_000},
	{`temperature{job!="batch"} > 73`, 120_000, 300_000},
	{`sum by (job) (rate(requests_total{job!="batch"}[5m])) < 60`, 120_000, 300_000},
	{`changes(started{job!="batch"}[15m]) > 0`, 0, 900_000},
	{`increase(errors_total{job="node"}[5m]) > 20`, 120_000, 300_000},
	{`absent(requests_total{job="node"})`, 60_000, 300_000},
	{`count(temperature{job!="batch"}) < 17`, 180_000, 300_000},
	{`rate(requests_total{job!="batch"}[2m]) == 0`, 60_000, 300_000},
	{`resets(requests_total{job!="batch"}[15m]) > 1`, 0, 900_000},
	{`max(scrape_duration_seconds{job!="batch"}) > 5`, 300_000, 300_000},
	{`requests_total{job!="batch"} unless temperature`, 60_000, 300_000},
	{`time() - started{job="node"} < 300`, 60_000, 300_000},
}

// view is what one asks: series by the window that is read.
type view func(from, until int64, ms []*labels.Matcher) []storage.Series

type point struct {
	t int64
	f float64
}

func (p point) ST() int64                     { return 0 }
func (p point) T() int64                      { return p.t }
func (p point) F() float64                    { return p.f }
func (p point) H() *histogram.Histogram       { return nil }
func (p point) FH() *histogram.FloatHistogram { return nil }
func (p point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample           { return p }

// alone is what one replica holds.
func alone(r *replica) view {
	return func(from, until int64, ms []*labels.Matcher) []storage.Series {
		return spliced(seamref.Rules{Alone: true}, r, r)(from, until, ms)
	}
}

// spliced is what rules make of a base and another one.
func spliced(rules seamref.Rules, base, other *replica) view {
	type window struct {
		key         string
		from, until int64
	}
	known := map[window]storage.Series{} // most queries read the same few windows; nil where there is nothing
	return func(from, until int64, ms []*labels.Matcher) []storage.Series {
		keys := map[string]labels.Labels{}
		for _, r := range []*replica{base, other} {
			for key, s := range r.seen {
				if !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return !m.Matches(s.lbls.Get(m.Name)) }) {
					keys[key] = s.lbls
				}
			}
		}
		var out []storage.Series
		for key, lbls := range keys {
			if s, ok := known[window{key, from, until}]; ok {
				if s != nil {
					out = append(out, s)
				}
				continue
			}
			values := [2]map[int64]float64{{}, {}}
			told := func(r *replica, copy int) []seamref.Sample {
				s := r.seen[key]
				if s == nil {
					return nil
				}
				own := clip(s.samples, from, until)
				for i, x := range s.samples {
					values[copy][x.T] = s.values[i]
				}
				for i := range own {
					own[i].Copy = copy
				}
				var up []seamref.Sample
				if u := r.seen[s.up]; u != nil {
					up = clip(u.samples, from, until)
				}
				return seamref.Tell(lbls.Get("__name__"), own, up)
			}
			a := told(base, 0)
			var b []seamref.Sample
			if base != other {
				b = told(other, 1)
			}
			var samples []chunks.Sample
			for _, s := range rules.Splice(a, b, from, until) {
				f := values[s.Copy][s.T]
				if s.Marker {
					f = math.Float64frombits(value.StaleNaN)
				}
				samples = append(samples, point{s.T, f})
			}
			known[window{key, from, until}] = nil
			if len(samples) > 0 {
				s := storage.NewListSeries(lbls, samples)
				known[window{key, from, until}] = s
				out = append(out, s)
			}
		}
		slices.SortFunc(out, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
		return out
	}
}

func clip(ss []seamref.Sample, from, until int64) []seamref.Sample {
	lo, _ := slices.BinarySearchFunc(ss, from, func(s seamref.Sample, t int64) int { return int(s.T - t) })
	hi, _ := slices.BinarySearchFunc(ss, until+1, func(s seamref.Sample, t int64) int { return int(s.T - t) })
	return slices.Clone(ss[lo:hi])
}

type querier struct {
	*storage.MockQuerier
	v view
}

func (q querier) Close() error { return nil }

// Select implements storage.Querier.
func (q querier) Select(_ context.Context, _ bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	return &set{series: q.v(hints.Start, hints.End, ms), at: -1}
}

type set struct {
	series []storage.Series
	at     int
}

func (s *set) Next() bool                      { s.at++; return s.at < len(s.series) }
func (s *set) At() storage.Series              { return s.series[s.at] }
func (*set) Err() error                        { return nil }
func (*set) Warnings() annotations.Annotations { return nil }

var engine = promql.NewEngine(promql.EngineOpts{
	MaxSamples: 50_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
	EnableAtModifier: true, EnableNegativeOffset: true, Parser: parser.NewParser(parser.Options{}),
})

// asker answers queries: label set by label set, time by time.
type asker interface {
	// ranges is a range query's answer over all of a world that is judged.
	ranges(t testing.TB, expr string, step int64) map[string]map[int64]float64
	// instants is what instant queries answer, minute by minute.
	instants(t testing.TB, expr string) map[string]map[int64]float64
}

// local asks Prometheus' engine over a view.
type local view

func (l local) ranges(t testing.TB, expr string, step int64) map[string]map[int64]float64 {
	t.Helper()
	return ask(t, view(l), expr, step)
}

func (l local) instants(t testing.TB, expr string) map[string]map[int64]float64 {
	t.Helper()
	return askInstants(t, view(l), expr)
}

// The times that are judged: the first and last step of ranges, and the moments of instant queries.
const (
	first, last             = origin + 1200_000, origin + length - 60_000
	firstInstant, instantBy = first + 7_000, int64(61_000)
)

func askInstants(t testing.TB, v view, expr string) map[string]map[int64]float64 {
	t.Helper()
	out := map[string]map[int64]float64{}
	for at := firstInstant; at < last; at += instantBy {
		qry, err := engine.NewInstantQuery(t.Context(), storage.QueryableFunc(func(int64, int64) (storage.Querier,
			error,
		) {
			return querier{v: v}, nil
		}), nil, expr, time.UnixMilli(at))
		if err != nil {
			t.Fatal(err)
		}
		got, err := qry.Exec(t.Context()).Vector()
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		for _, s := range got {
			key := s.Metric.String()
			if out[key] == nil {
				out[key] = map[int64]float64{}
			}
			out[key][at] = s.F
		}
		qry.Close()
	}
	return out
}

// ask is a range query's answer, by label set and time.
func ask(t testing.TB, v view, expr string, step int64) map[string]map[int64]float64 {
	t.Helper()
	qry, err := engine.NewRangeQuery(t.Context(), storage.QueryableFunc(func(int64, int64) (storage.Querier, error) {
		return querier{v: v},
			nil
	}), nil, expr, time.UnixMilli(first), time.UnixMilli(last), time.Duration(step)*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer qry.Close()
	res := qry.Exec(t.Context())
	m, err := res.Matrix()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	out := map[string]map[int64]float64{}
	for _, s := range m {
		points := map[int64]float64{}
		for _, p := range s.Floats {
			points[p.T] = p.F
		}
		out[s.Metric.String()] = points
	}
	return out
}

// variants are the rules, and the rules without each of them.
var variants = []struct {
	name  string
	rules seamref.Rules
}{
	{"the rules", seamref.Rules{}},
	{"one of the pair alone", seamref.Rules{Alone: true}},
	{"without: `up` of who is cut off says nothing", seamref.Rules{Dead: true}},
	{"without: a marker stands only where nobody goes on", seamref.Rules{Markers: true}},
	{"without: nobody goes on who has nothing after a marker", seamref.Rules{Before: true}},
	{"without: a marker of a scrape that succeeded stands", seamref.Rules{NoMarkers: true}},
	{"without: markers in what is filled in stand", seamref.Rules{Fillers: true}},
	{"without: nothing is taken close to the base", seamref.Rules{Close: true}},
	{"without: 1.1 intervals at the edges, but 1.5", seamref.Rules{LateEdges: true}},
	{"without: fewer than three samples are never united", seamref.Rules{Unite: true}},
}

// short are how many of the variants are looked at in one world alone: the rules, and none.
const short = 2

// TestFidelity: the rules make of two replicas that fail what is hardly worse than one that never
// does; each rule is worth its place.
func TestFidelity(t *testing.T) {
	var floor score
	variants := variants
	if *seeds == 1 {
		variants = variants[:short]
	}
	got := make([]score, len(variants))
	for seed := range uint64(*seeds) {
		st := stage(t, seed, 1)
		floor.add(st.floor(t))
		for i, v := range variants {
			got[i].add(st.judge(t, local(st.spliced(v.rules))))
		}
	}
	rows := []row{{"a replica that never fails (the floor)", floor, 3}}
	for i, v := range variants {
		rows = append(rows, row{v.name, got[i], 1})
	}
	table, base := tabled(rows), rows[0].mean()
	if most := 3.5 * base; float64(got[0].artefacts()) > most {
		t.Errorf("%d artefacts, at most %.0f are allowed: three and a half times the floor", got[0].artefacts(), most)
	}
	if len(got) > 1 && got[1].artefacts() < 2*got[0].artefacts() {
		t.Errorf("one of the pair alone has %d artefacts, and %d are left of them: these worlds show nothing", got[1].artefacts(), got[0].artefacts())
	}
	if got[0].falseAlerts+got[0].lostAlerts > 0 {
		t.Errorf("%d false alerts and %d lost ones, which no replica that never fails has: -fidelity.alerts prints them", got[0].falseAlerts, got[0].lostAlerts)
	}
	for i := short; i < len(variants) && *seeds >= 10; i++ {
		if s := got[i]; s.artefacts() <= got[0].artefacts() && s.falseAlerts+s.lostAlerts == 0 {
			t.Errorf("%s: %d artefacts, and no alert that is false or lost; with it there are %d artefacts", variants[i].name, s.artefacts(), got[0].artefacts())
		}
	}
	t.Logf("%d worlds of three hours:\n%s", *seeds, table)
	if *update {
		write(t, "fidelity", table)
	}
}

// row is one of a table: a score over so many who have it.
type row struct {
	name string
	score
	of float64
}

func (r row) mean() float64 { return float64(r.artefacts()) / r.of }

// tabled writes rows; the first is the floor.
func tabled(rows []row) string {
	var table strings.Builder
	fmt.Fprintf(&table, "| | missing | ghosts | wrong | artefacts | × floor | quiet alerts, false / lost | on one that never fails too | while nobody looked |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range rows {
		f := func(i int) string { return fmt.Sprintf("%.0f", float64(i)/r.of) }
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s | %.2f | %s / %s | %s | %s |\n", r.name, f(r.missing), f(r.ghosts), f(r.wrong), f(r.artefacts()), r.mean()/rows[0].mean(), f(r.falseAlerts), f(r.lostAlerts), f(r.phase), f(r.blind))
	}
	return table.String()
}

// write puts a table into its place in docs/fidelity.md.
func write(t testing.TB, place, table string) {
	t.Helper()
	file := filepath.Join("..", "..", "docs", "fidelity.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+place+" -->\n", "<!-- /"+place+" -->\n"
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, okay := strings.Cut(rest, end)
	if !ok || !okay {
		t.Fatalf("%s has no place for the table", file)
	}
	if err := os.WriteFile(file, []byte(before+begin+table+end+after), 0o644); err != nil { //nolint:gosec // a page for all to read
		t.Fatal(err)
	}
}
