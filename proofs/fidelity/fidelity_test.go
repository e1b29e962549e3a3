package fidelity

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
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
	update  = flag.Bool("update", false, "write the table of docs/replicas.md")
)

// queries are looked at each 30 s, as a dashboard's range.
var queries = []string{
	"up", "sum(up)", "sum by (job) (up)", "count by (job) (up)", "avg by (job) (up)", "min by (job) (up)", "up == 0", "avg_over_time(up[5m])", "min_over_time(up[2m])", "count_over_time(up[5m])", "changes(up[10m])",
	"requests_total", "sum by (job) (requests_total)", "rate(requests_total[1m])", "rate(requests_total[5m])", "sum by (job) (rate(requests_total[2m]))", "sum(rate(requests_total[5m]))", "increase(requests_total[10m])",
	"irate(requests_total[2m])", "resets(requests_total[10m])", "max by (job) (rate(requests_total[5m]))", "topk(3, rate(requests_total[5m]))", "count(rate(requests_total[1m]))", "delta(requests_total[5m])",
	"temperature", "avg by (job) (temperature)", "max(temperature)", "quantile(0.9, temperature)", "avg_over_time(temperature[5m])", "max_over_time(temperature[10m])", "stddev_over_time(temperature[5m])", "delta(temperature[5m])",
	"deriv(temperature[5m])", "temperature > 70", "count(temperature > 70)", "last_over_time(temperature[5m])", "present_over_time(temperature[2m])", "temperature offset 10m", "temperature - temperature offset 5m",
	"queue", "sum(queue)", "changes(queue[10m])", "max_over_time(queue[5m])", "idelta(queue[2m])", "count_values(\"v\", queue)", "queue > bool 3", "started", "time() - started", "changes(started[15m])", "count(started)",
	"errors_total", "count(errors_total)", "sum by (job) (rate(errors_total[5m]))", "increase(errors_total[10m])", "absent(errors_total{job=\"node\"})", "requests_total unless errors_total", "errors_total / requests_total",
	"flag", "count(flag)", "count_over_time(flag[1m])", "changes(flag[5m])", "absent_over_time(flag{instance=\"10.0.0.3:9100\"}[1m])", "up{job=\"batch\"}", "count(up{job=\"batch\"})", "last_over_time(started{job=\"batch\"}[2m])",
	"scrape_duration_seconds", "max(scrape_duration_seconds)", "count(scrape_duration_seconds > 1)", "max_over_time(sum(up)[10m:30s])", "sum(max_over_time(requests_total[2m])) by (job)",
}

// instants are looked at as a ruler does, at one moment at a time: the newest sample then lies at the edge of what is read.
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
			if len(samples) > 0 {
				out = append(out, storage.NewListSeries(lbls, samples))
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

var engine = promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true, EnableNegativeOffset: true, Parser: parser.NewParser(parser.Options{})})

// askInstants is what instant queries answer, minute by minute.
func askInstants(t testing.TB, v view, expr string) map[string]map[int64]float64 {
	t.Helper()
	out := map[string]map[int64]float64{}
	for at := origin + 1200_000 + 7_000; at < origin+length-60_000; at += 61_000 {
		qry, err := engine.NewInstantQuery(t.Context(), storage.QueryableFunc(func(int64, int64) (storage.Querier, error) { return querier{v: v}, nil }), nil, expr, time.UnixMilli(at))
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
	from, until := origin+1200_000, origin+length-60_000
	qry, err := engine.NewRangeQuery(t.Context(), storage.QueryableFunc(func(int64, int64) (storage.Querier, error) { return querier{v: v}, nil }), nil, expr, time.UnixMilli(from), time.UnixMilli(until), time.Duration(step)*time.Millisecond)
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

// score is what is not true in an answer.
type score struct {
	missing, ghosts, wrong  int
	falseAlerts, lostAlerts int
	blind                   int // alerts that are false or lost at a time when nobody looked
}

func (s score) artefacts() int { return s.missing + s.ghosts + s.wrong }

func (s *score) add(o score) {
	s.missing, s.ghosts, s.wrong, s.falseAlerts, s.lostAlerts, s.blind = s.missing+o.missing, s.ghosts+o.ghosts, s.wrong+o.wrong, s.falseAlerts+o.falseAlerts, s.lostAlerts+o.lostAlerts, s.blind+o.blind
}

// truth is what the ideal server answers, query by query and alert by alert.
type truth struct {
	answers []map[string]map[int64]float64
	// near are the answers of the ideal server a moment before and after: what changes just then is nobody's fault.
	near   [][]map[string]map[int64]float64
	firing []map[string][]span
	// blind is when none of those who are judged looked at a target, by instance; under the empty one when at any.
	blind map[string][]span
}

const tolerance = 0.1

// judge counts what differs from the truth in what a view answers.
func (w *truth) judge(t testing.TB, v view) (s score) {
	for i := range w.answers {
		got, want := w.asked(t, v, i), w.answers[i]
		for key, points := range want {
			for at, f := range points {
				g, has := got[key][at]
				switch {
				case !has && !w.excused(i, key, at, nil):
					s.missing++
				case has && !alike(f, g) && !w.excused(i, key, at, &g):
					s.wrong++
				}
			}
		}
		for key, points := range got {
			for at, g := range points {
				if _, has := want[key][at]; !has && !w.excused(i, key, at, &g) {
					s.ghosts++
				}
			}
		}
	}
	for i, a := range alerts {
		got := firing(ask(t, v, a.expr, 15_000), a.hold)
		wrong, lost := quiet(got, w.firing[i]), quiet(w.firing[i], got)
		for i, list := range [][]quietly{wrong, lost} {
			for _, q := range list {
				switch {
				case w.unseen(a, q):
					s.blind++
					continue
				case i == 0:
					s.falseAlerts++
				default:
					s.lostAlerts++
				}
				if *verbose {
					t.Logf("%s for %d s: %s from minute %.1f to %.1f: %s", a.expr, a.hold/1000, q.key, float64(q.from-origin)/60_000, float64(q.until-origin)/60_000, []string{"false", "lost"}[i])
				}
			}
		}
	}
	return s
}

// asked is the answer to a query, or to those of instants behind them.
func (*truth) asked(t testing.TB, v view, query int) map[string]map[int64]float64 {
	if query < len(queries) {
		return ask(t, v, queries[query], 30_000)
	}
	return askInstants(t, v, instants[query-len(queries)])
}

// excused tells whether an interval before or after the truth is what was answered: whoever looks at another moment sees that.
func (w *truth) excused(query int, key string, at int64, got *float64) bool {
	for _, a := range w.near[query] {
		f, has := a[key][at]
		if !has && got == nil || has && got != nil && alike(f, *got) {
			return true
		}
	}
	return false
}

func alike(a, b float64) bool {
	return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= tolerance*max(math.Abs(a), math.Abs(b))+0.05
}

// firing is when each alert of an answer fires.
func firing(answer map[string]map[int64]float64, hold int64) map[string][]span {
	out := map[string][]span{}
	for key, points := range answer {
		var times []int64
		for t := range points {
			times = append(times, t)
		}
		slices.Sort(times)
		for i := 0; i < len(times); {
			j := i
			for j+1 < len(times) && times[j+1]-times[j] <= 15_000 {
				j++
			}
			if from := times[i] + hold; from <= times[j] {
				out[key] = append(out[key], span{from, times[j] + 15_000})
			}
			i = j + 1
		}
	}
	return out
}

// quietly is an alert that fires while others do not.
type quietly struct {
	key string
	span
}

// unseen tells whether nobody looked at what the alert is about, just before or while it fires or does not: then nobody can know.
func (w *truth) unseen(a alert, q quietly) bool {
	_, rest, _ := strings.Cut(q.key, `instance="`)
	instance, _, _ := strings.Cut(rest, `"`)
	return slices.ContainsFunc(w.blind[instance], func(s span) bool { return s.from < q.until && s.until > q.from-a.hold-a.back })
}

// quiet are the alerts that fire for a minute or more while, an interval and a half around, the others do not fire at all.
func quiet(of, others map[string][]span) (list []quietly) {
	for key, spans := range of {
		for _, s := range spans {
			if s.until-s.from < 60_000 {
				continue
			}
			if !slices.ContainsFunc(others[key], func(o span) bool { return o.from < s.until+90_000 && s.from < o.until+90_000 }) {
				list = append(list, quietly{key, s})
			}
		}
	}
	return list
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
	{"without: a marker of a scrape that succeeded stands", seamref.Rules{NoMarkers: true}},
	{"without: markers in what is filled in stand", seamref.Rules{Fillers: true}},
	{"without: nothing is taken close to the base", seamref.Rules{Close: true}},
	{"without: 1.1 intervals at the edges, but 1.5", seamref.Rules{LateEdges: true}},
	{"without: fewer than three samples are never united", seamref.Rules{Unite: true}},
}

// short are how many of the variants are looked at in one world alone: the rules, and none.
const short = 2

// TestFidelity: the rules make of two replicas that fail what is hardly worse than one that never does; each rule is worth its place.
func TestFidelity(t *testing.T) {
	var floor score
	variants := variants
	if *seeds == 1 {
		variants = variants[:short]
	}
	got := make([]score, len(variants))
	for seed := range uint64(*seeds) {
		w := newWorld(seed + 1)
		ideal := &replica{}
		ideal.scrape(w, w.rng, true)
		world := &truth{}
		shifted := func(by int64) *replica {
			r := &replica{seen: map[string]*kept{}}
			for key, s := range ideal.seen {
				c := &kept{lbls: s.lbls, values: s.values, up: s.up, samples: slices.Clone(s.samples)}
				for i := range c.samples {
					c.samples[i].T += by
				}
				r.seen[key] = c
			}
			return r
		}
		late := []*replica{shifted(interval), shifted(-interval)}
		for i := range len(queries) + len(instants) {
			world.answers = append(world.answers, world.asked(t, alone(ideal), i))
			world.near = append(world.near, []map[string]map[int64]float64{world.asked(t, alone(late[0]), i), world.asked(t, alone(late[1]), i)})
		}
		for _, a := range alerts {
			world.firing = append(world.firing, firing(ask(t, alone(ideal), a.expr, 15_000), a.hold))
		}
		for range 3 {
			r := &replica{jitter: 120}
			r.scrape(w, w.rng, false)
			floor.add(world.judge(t, alone(r)))
		}
		pair := w.pair()
		world.blind = blind(w, pair)
		for _, r := range pair {
			r.scrape(w, rand.New(rand.NewPCG(seed, w.rng.Uint64())), false)
		}
		for i, v := range variants {
			got[i].add(world.judge(t, spliced(v.rules, pair[0], pair[1])))
		}
	}
	base := float64(floor.artefacts()) / 3
	var table strings.Builder
	fmt.Fprintf(&table, "| | missing | ghosts | wrong | artefacts | × floor | quiet alerts, false / lost | while nobody looked |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	row := func(name string, s score, n float64) {
		f := func(i int) string { return fmt.Sprintf("%.0f", float64(i)/n) }
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s | %.2f | %s / %s | %s |\n", name, f(s.missing), f(s.ghosts), f(s.wrong), f(s.artefacts()), float64(s.artefacts())/n/base, f(s.falseAlerts), f(s.lostAlerts), f(s.blind))
	}
	row("a replica that never fails (the floor)", floor, 3)
	for i, v := range variants {
		row(v.name, got[i], 1)
	}
	if most := 3.5 * base; float64(got[0].artefacts()) > most {
		t.Errorf("%d artefacts, at most %.0f are allowed: three and a half times the floor", got[0].artefacts(), most)
	}
	if len(got) > 1 && got[1].artefacts() < 2*got[0].artefacts() {
		t.Errorf("one of the pair alone has %d artefacts, and %d are left of them: these worlds show nothing", got[1].artefacts(), got[0].artefacts())
	}
	if got[0].falseAlerts > floor.falseAlerts || got[0].lostAlerts > floor.lostAlerts {
		t.Errorf("%d false alerts and %d lost ones; three replicas that never fail have %d and %d together", got[0].falseAlerts, got[0].lostAlerts, floor.falseAlerts, floor.lostAlerts)
	}
	t.Logf("%d worlds of three hours:\n%s", *seeds, table.String())
	if *update {
		write(t, table.String())
	}
}

// blind is when neither of a pair looked at a target: both are down, or cut off from it.
func blind(w *world, pair [2]*replica) map[string][]span {
	out := map[string][]span{}
	for _, g := range w.targets {
		var away [2][]span
		for i, r := range pair {
			for _, d := range r.down { // and until the first scrape after it
				away[i] = append(away[i], span{d.from - interval, d.until + interval})
			}
			for _, c := range r.cut[g.id] {
				away[i] = append(away[i], span{c.from - interval, c.until + interval})
			}
		}
		for _, a := range away[0] {
			for _, b := range away[1] {
				if both := (span{max(a.from, b.from), min(a.until, b.until)}); both.from < both.until {
					out[g.instance] = append(out[g.instance], both)
					out[""] = append(out[""], both)
				}
			}
		}
	}
	return out
}

// write puts the table into docs/replicas.md.
func write(t testing.TB, table string) {
	t.Helper()
	file := filepath.Join("..", "..", "docs", "replicas.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), "<!-- fidelity -->\n")
	_, after, okay := strings.Cut(rest, "<!-- /fidelity -->\n")
	if !ok || !okay {
		t.Fatalf("%s has no place for the table", file)
	}
	if err := os.WriteFile(file, []byte(before+"<!-- fidelity -->\n"+table+"<!-- /fidelity -->\n"+after), 0o644); err != nil { //nolint:gosec // a page for all to read
		t.Fatal(err)
	}
}
