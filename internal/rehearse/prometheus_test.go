package rehearse

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/alerts"
	"github.com/spillwayproject/spillway/dashboards"
	"github.com/spillwayproject/spillway/dashboards/live"
	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/internal/recording"
	"github.com/spillwayproject/spillway/loadtest/cluster"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/usage"
)

var genuine = flag.Bool("genuine", false, "rehearse from a Prometheus of an older version too, which takes minutes to build")

// What Prometheus 3.15 can already have of 4.0, as docs/upgrade.md lists it.
var (
	fourFlags  = []string{"--enable-feature=promql-delayed-name-removal"}
	fourConfig = "global: {scrape_native_histograms: true}\nstorage: {tsdb: {chunk_encoding: {floats: xor2}}}\n"
)

// beside is an hour of series that are there beside those of a small cluster and of what the
// mixin's rules record of it.
const beside = `load 30s
  reqs_total{job="a", code="200"} 0+1x120
  errs_total{job="a", code="500"} 0+2x120
  twin_total{job="a", code="200"} 0+3x120
  read_seconds_bucket{le="1"} 0+1x120
  read_seconds_bucket{le="+Inf"} 0+2x120
  write_seconds_bucket{le="1"} 0+3x120
  write_seconds_bucket{le="+Inf"} 0+4x120
  native{job="api"} {{schema:0 sum:4 count:4 buckets:[1 2 1]}}+{{schema:0 sum:2 count:2 buckets:[0 1 1]}}x120
  sinking_seconds_bucket{le="1"} 50x120
  sinking_seconds_bucket{le="2"} 30x120
  sinking_seconds_bucket{le="+Inf"} 60x120
`

// written is where the blocks of such a past are.
func written(t *testing.T) []string {
	t.Helper()
	began := time.Now()
	dir, own := t.TempDir(), t.TempDir()
	end := at.Add(5 * time.Minute)
	m, err := cluster.New(cluster.Options{Nodes: 2, Start: end.Add(-20 * 24 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	start, set := end.Add(-100*time.Minute), labels.FromStrings("cluster", "main")
	if _, err := m.Backfill(t.Context(), dir, cluster.BackfillOptions{
		From: start, Until: end, Interval: 30 * time.Second, ExternalTargetLabels: set, BlockRange: 24 * time.Hour,
	}); err != nil {
		t.Fatal(err)
	}
	for _, rules := range []recording.Options{{Rules: alerts.Shard(), Labels: set}, {Rules: alerts.Global()}} {
		s, err := localprom.Start(t.Context(), localprom.Options{Blocks: []string{dir}, DisableWAL: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = recording.Blocks(t.Context(), dir, rules, s.Engine(), s.Storage(), start, end)
		if err = errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	s, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true, BlockDuration: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	err = s.LoadAt(beside, end.Add(-50*time.Minute))
	if err = errors.Join(err, s.DB().Snapshot(own, true), s.Close()); err != nil {
		t.Fatal(err)
	}
	t.Logf("the past was written in %s", time.Since(began).Round(time.Millisecond))
	return []string{dir, own}
}

// dashboardLines are lines of a usage log for what all dashboards ask.
func dashboardLines(t *testing.T, url string) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, name := range dashboards.Names() {
		d, err := dashboards.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		v, err := live.Look(t.Context(), live.NewSource("before", url), d, at.Add(-30*time.Minute), at, "$__all")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		asked, err := v.Questions()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, a := range asked {
			rec := usage.Record{Time: at, Dashboard: name, Panel: a.Where, Endpoint: string(endpoint.Query)}
			rec.Query = a.Question.Expr
			switch {
			case a.Label != "":
				rec.Endpoint, rec.RangeSeconds = string(endpoint.Series), 1800
			case a.Step > 0:
				rec.Endpoint, rec.RangeSeconds, rec.StepSeconds = string(endpoint.QueryRange), a.To.Sub(a.From).Seconds(), a.Step.Seconds()
			}
			out.Write(rec.Line())
		}
	}
	return out.Bytes()
}

// known is what is known of a query: how its answer changes, and what the first difference is
// before and after; an empty kind is no change, of an answer with series, or of the refusal before
// on both sides. Where only says so, one way to ask it shows it.
type known struct {
	kind          Kind
	before, after string
	only          endpoint.ID
}

func (k known) at(e endpoint.ID) bool { return k.kind != "" && (k.only == "" || k.only == e) }

// answered is what a server says to a question, once.
func answered(t *testing.T, p *realprom.Server, q *Question) answer {
	t.Helper()
	s := side(t, p.URL())
	if err := s.probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s.ask(t.Context(), q, at, 16<<20)
}

// rehearsed asks two servers what all dashboards and the mixin's rules ask, hundreds of other
// queries, and each known query at one time and over a range, and holds what is told of changes to
// what is known: all of them, with their first difference, and nothing else.
func rehearsed(t *testing.T, before, after *realprom.Server, by string, all map[string]known) *Report {
	t.Helper()
	qs := NewQuestions()
	lines := dashboardLines(t, before.URL())
	if n := bytes.Count(lines, []byte("\n")); n < 300 {
		t.Errorf("only %d queries of dashboards", n)
	}
	for query := range all {
		for _, e := range []endpoint.ID{endpoint.Query, endpoint.QueryRange} {
			rec := usage.Record{Time: at, Endpoint: string(e), Rule: "known", Facts: usage.Facts{Query: query}}
			if e == endpoint.QueryRange {
				rec.RangeSeconds, rec.StepSeconds = 600, 60
			}
			lines = append(lines, rec.Line()...)
		}
	}
	if err := qs.read(t.Context(), bytes.NewReader(lines), time.Time{}); err != nil {
		t.Fatal(err)
	}
	for _, q := range qs.by {
		k, ok := all[q.Query]
		if !ok {
			continue
		}
		a, b := answered(t, before, q), answered(t, after, q)
		alike := k.kind == "" && k.before != "" && strings.Contains(a.say(), k.before) && strings.Contains(b.say(), k.before)
		if len(a.data)+len(b.data) == 0 && !alike { // which would be no change whatever is asked
			t.Errorf("%s: %s, and %s", q.say(), a.say(), b.say())
		}
	}
	for expr, name := range mixinRules(t) {
		qs.Rule(expr, name)
	}
	began := time.Now()
	r, err := Run(t.Context(), qs, Options{From: side(t, before.URL()), To: side(t, after.URL()), At: at})
	if err != nil {
		t.Fatal(err)
	}
	// All known ones have an answer.
	mixin := r.Asked - 2*len(all)
	t.Logf("%s: %d questions in %s: %d changes, %d ties, %d refused alike; of %d of dashboards and rules %d have series", by, r.Asked,
		time.Since(began).Round(time.Millisecond), len(r.Changes), r.Ties, r.Refused, mixin, mixin-r.Empty)
	if r.Asked < 700 || mixin-r.Empty < 500 || len(r.Failures) > 0 {
		t.Errorf("%+v", r)
	}
	found := map[string]bool{}
	for _, c := range r.Changes {
		k := all[c.Question.Query]
		if c.Kind != k.kind || !k.at(c.Question.Endpoint) || !strings.Contains(c.Before, k.before) || !strings.Contains(c.After, k.after) {
			t.Errorf("%s\n  %s before: %s\n  after: %s\n  known is %+v", c.Question.say(), c.Kind, c.Before, c.After, k)
		}
		found[fmt.Sprint(c.Question.Endpoint, " ", c.Question.Query)] = true
	}
	for _, query := range slices.Sorted(maps.Keys(all)) {
		for _, e := range []endpoint.ID{endpoint.Query, endpoint.QueryRange} {
			if want := all[query].at(e); found[fmt.Sprint(e, " ", query)] != want {
				t.Errorf("%s %s: told %t, want %t", e, query, !want, want)
			}
		}
	}
	return r
}

// TestFlagsOfFour: of two real Prometheus 3.15 over the same blocks, one of which has what 4.0 will
// have, each query is told whose answer needs a metric's name after it was dropped, and none of the
// dashboards and rules.
func TestFlagsOfFour(t *testing.T) {
	o := realprom.Options{Blocks: written(t), Config: "global: {}\n", Flags: []string{"--storage.tsdb.retention.time=90d"}}
	before := realpromtest.Start(t, o)
	o.Config, o.Flags = fourConfig, append(o.Flags, fourFlags...)
	after := realpromtest.Start(t, o)
	const collide = "execution: vector cannot contain metrics with the same labelset"
	r := rehearsed(t, before, after, "flags of 4.0", map[string]known{
		// The name was gone, and is there until the end.
		`sum by (__name__) (rate({__name__=~"(reqs|errs)_total"}[5m]))`: {
			Refused, "an answer of 1 series", collide, "",
		},
		`topk by (__name__) (1, rate({__name__=~"(reqs|errs)_total"}[5m]))`: {
			Answer, "no such series (1 in all, after 2)", `code="200"`, "",
		},
		`(reqs_total * 2) and on (__name__) reqs_total`: {
			Answer, "no such series (0", `{code="200", job="a"}`, "",
		},
		`changes(reqs_total[5m]) unless on (__name__) reqs_total`: {
			Answer, `{code="200", job="a"}`, "no such series (0", "",
		},
		`count_values by (__name__) ("v", reqs_total * 0)`: {
			Answer, "no such series (1", `{__name__="reqs_total", v="0"}`, "",
		},
		`label_join(abs(reqs_total), "metric", "", "__name__")`: {
			Answer, "no such series (1", `metric="reqs_total"`, "",
		},
		`label_replace(rate(reqs_total[5m]), "metric", "$1", "__name__", "(.+)")`: {
			Answer, "no such series (1", `metric="reqs_total"`, "",
		},
		`label_replace(rate(reqs_total[5m]), "__name__", "rate_$1", "__name__", "(.+)")`: {
			Answer, "no such series (1", `{__name__="rate_reqs_total"`, "",
		},
		`count(count_over_time({__name__=~"reqs_total|twin_total"}[5m]) > 1)`: {
			Refused, collide, "an answer of 1 series", "",
		},
		`sum({__name__=~"reqs_total|twin_total"} > bool 1)`: {
			Refused, collide, "an answer of 1 series", "",
		},
		`max(histogram_quantile(0.9, rate({__name__=~"(read|write)_seconds_bucket"}[5m])))`: {
			Refused, collide, "an answer of 1 series", "",
		},
		// The same with and without.
		`rate({__name__=~"reqs_total|twin_total"}[5m])`:                      {before: collide},
		`sum without (code) (rate({__name__=~"(reqs|errs)_total"}[5m]))`:     {},
		`sum by (__name__, job) (increase(reqs_total[5m]))`:                  {},
		`max by (__name__) (reqs_total > bool 1)`:                            {},
		`reqs_total * 2 or twin_total * 2`:                                   {},
		`rate(reqs_total[5m]) / on (job) group_left () rate(errs_total[5m])`: {},
		`histogram_quantile(0.9, rate(native[5m]))`:                          {},
		`max_over_time(rate(reqs_total[5m])[10m:1m])`:                        {},
		`last_over_time(reqs_total[5m])`:                                     {},
		`time() - timestamp(reqs_total)`:                                     {},
	})
	if !strings.HasSuffix(r.From, "(Prometheus 3.15.0)") || !strings.HasSuffix(r.To, "(Prometheus 3.15.0 with promql-delayed-name-removal)") {
		t.Errorf("the report is from %s to %s", r.From, r.To)
	}
}

// TestGenuineVersions: of a real Prometheus 3.9 and a 3.15 over the same blocks the queries are
// told that a changelog between them says something about, and none of the dashboards and rules.
func TestGenuineVersions(t *testing.T) {
	if !*genuine {
		t.Skip("Prometheus 3.9, which takes minutes to build: make test-full runs it, by -genuine")
	}
	if out, err := exec.Command("../../tools/build.sh", "old-prometheus").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	o := realprom.Options{Blocks: written(t), Config: "global: {}\n", Flags: []string{"--storage.tsdb.retention.time=90d"}}
	after := realpromtest.Start(t, o)
	o.Program = "prometheus-3.9"
	before := realpromtest.Start(t, o)
	rehearsed(t, before, after, "3.9 to 3.15", map[string]known{
		// 3.14 (#19033, #19093), 3.15 (#19187): what was refused, or broke, is answered.
		`rate(reqs_total[4m+1m])`: {Refused, "duration expression is not enabled", "an answer of 1 series", ""},
		`first_over_time(reqs_total[5m])`: {
			Refused, `function "first_over_time" is not enabled`, "an answer of 1 series", "",
		},
		`quantile_over_time(scalar(reqs_total * 0 + 0.5), reqs_total[5m:1m] @ end())`: {
			Refused, "index out of range", "an answer of 1 series", "",
		},
		// 3.10 (#15578), 3.12 (#18498): an info says more, a warning is new.
		`histogram_quantile(0.7, sinking_seconds_bucket)`: {
			Notes, "fixed for monotonicity", "from buckets 2 to 2, with a max diff of 20", "",
		},
		`sort(reqs_total)`: {
			Notes, "no such warning", "sort is ineffective for range queries", endpoint.QueryRange,
		},
		`rate(native[5m])`:                       {},
		`last_over_time(abs(reqs_total)[5m:1m])`: {},
	})
}
