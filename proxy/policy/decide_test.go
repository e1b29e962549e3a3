package policy

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// now is the clock of all tests: 2026-10-01T12:00:00Z.
var now = time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)

// testLimits are what holds where a file says nothing.
func testLimits() Limits { return Limits(config.Default().LimitsFor(endpoint.Query)) }

func testGroup(label string) bool { return label == "cluster" || label == "prometheus_replica" }

// ago is the instant d before now.
func ago(d time.Duration) endpoint.Time { return endpoint.At(now.Add(-d).UnixMilli()) }

// refusal returns the error as *qerr.Error and fails if there is none.
func refusal(t *testing.T, err error) *qerr.Error {
	t.Helper()
	var e *qerr.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a *qerr.Error", err)
	}
	return e
}

const hour, day = time.Hour, 24 * time.Hour

func TestMetadata(t *testing.T) {
	series := func(match string) *endpoint.Request {
		return &endpoint.Request{ID: endpoint.Series, Match: []string{match}}
	}
	with := func(r *endpoint.Request, start, end endpoint.Time) *endpoint.Request {
		r.Start, r.End = start, end
		return r
	}
	far := 9999 * hour
	for _, tc := range []struct {
		name        string
		req         *endpoint.Request
		class       Class
		from, until time.Duration // before now
		verdict     Verdict
		narrowed    bool
		limit       int
		perShard    int
	}{
		{"the incident", series(`{le!=""}`), Unselective, 55 * time.Minute, 0, Clamp, false, 50000, 1000},
		{
			"the incident with a range", with(series(`{le!=""}`), ago(6*hour), ago(0)), Unselective, 55 * time.Minute, 0, Clamp, true,
			50000,
			1000,
		},
		{
			"last week's pods", with(series(`{namespace="a"}`), ago(8*day), ago(7*day)), Other, 7*day + 55*time.Minute, 7 * day, Clamp,
			true,
			50000, 50000,
		},
		{
			"a narrow range is kept", with(series(`{namespace="a"}`), ago(10*time.Minute), ago(0)), Other, 10 * time.Minute, 0, Pass, false,
			50000, 50000,
		},
		{"named without a range", series(`up`), Named, 55 * time.Minute, 0, Clamp, false, 50000, 50000},
		{"named with a range", with(series(`up{a!=""}`), ago(30*day), ago(0)), Named, 30 * day, 0, Pass, false, 50000, 50000},
		{"named beyond max_range", with(series(`up`), ago(60*day), ago(day)), Named, 32 * day, day, Clamp, true, 50000, 50000},
		{"promtool, named", with(series(`up`), ago(far), ago(-far)), Named, 31 * day, 0, Clamp, true, 50000, 50000},
		{"promtool, other", with(series(`{job="a"}`), ago(far), ago(-far)), Other, 55 * time.Minute, 0, Clamp, true, 50000, 50000},
		{
			"Grafana's end is in the next minute", with(series(`up`), ago(hour), ago(-time.Minute)), Named, hour, -time.Minute, Pass, false,
			50000, 50000,
		},
		{"alternation of names", with(series(`{__name__=~"a|b"}`), ago(day), ago(0)), Named, day, 0, Pass, false, 50000, 50000},
		{"strictest class rules", with(&endpoint.Request{ID: endpoint.Series, Match: []string{"up", `{le!=""}`, `{__name__!=""}`}},
			ago(day), ago(0)), Unselective, 55 * time.Minute, 0, Clamp, true, 50000, 1000},
		{"series of a group", series(`{cluster="jaguar"}`), Unselective, 55 * time.Minute, 0, Clamp, false, 50000, 1000},
		{
			"values in a group", &endpoint.Request{ID: endpoint.LabelValues, Label: "job", Match: []string{`{cluster="jaguar"}`}}, Other,
			55 * time.Minute, 0, Clamp, false, 50000, 50000,
		},
		{
			"no match[]", with(&endpoint.Request{ID: endpoint.Labels, Limit: 40000}, ago(hour), ago(-time.Minute)), Other, 55 * time.Minute,
			0,
			Clamp, true, 40000, 40000,
		},
		{
			"a limit beyond ours", with(&endpoint.Request{ID: endpoint.Labels, Limit: 400000}, ago(time.Minute), ago(0)), Other,
			time.Minute,
			0, Pass, false, 50000, 50000,
		},
		{
			"a limit below the shard's", &endpoint.Request{ID: endpoint.LabelValues, Match: []string{`{a=~".+"}`}, Limit: 7}, Unselective,
			55 * time.Minute, 0, Clamp, false, 7, 7,
		},
		{
			"future as a whole", with(series(`{a="b"}`), ago(-hour), ago(-far)), Other, -hour, -hour - 55*time.Minute, Pass, false, 50000,
			50000,
		},
		{"start only, in the future", with(series(`up`), ago(-hour), endpoint.Time{}), Named, -hour, -hour, Pass, false, 50000, 50000},
		{"end only", with(series(`up`), endpoint.Time{}, ago(day)), Named, day + 55*time.Minute, day, Clamp, false, 50000, 50000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := tc.req.Clone()
			d, err := Decide(tc.req, testLimits(), testGroup, now)
			if err != nil {
				t.Fatal(err)
			}
			if d.Class != tc.class || d.Verdict != tc.verdict || d.Narrowed != tc.narrowed || d.Limit != tc.limit ||
				d.PerShardLimit != tc.perShard {
				t.Errorf("got class %s, verdict %s, narrowed %t, limit %d, per shard %d", d.Class, d.Verdict, d.Narrowed, d.Limit, d.PerShardLimit)
			}
			if from, until := now.Sub(time.UnixMilli(d.Start)), now.Sub(time.UnixMilli(d.End)); from != tc.from || until != tc.until {
				t.Errorf("window [now-%s, now-%s], want [now-%s, now-%s]", from, until, tc.from, tc.until)
			}
			if (len(d.Warnings) > 0) != tc.narrowed {
				t.Errorf("warnings %q", d.Warnings)
			}
			if said := strings.Contains(d.Searched, "no start"); said == tc.req.Start.Set || said != (d.Searched != "") ||
				said && strings.Contains(d.Searched, "name a metric") == (tc.class == Named) {
				t.Errorf("searched %q", d.Searched)
			}
			if d.Unselective != (tc.class == Unselective) {
				t.Errorf("needs a slot: %t", d.Unselective)
			}
			r := d.Request
			if r.Start != endpoint.At(d.Start) || r.End != endpoint.At(d.End) || r.Limit != d.PerShardLimit || r.Timeout != 25*time.Second {
				t.Errorf("request %+v", r)
			}
			if tc.req.Start != before.Start || tc.req.End != before.End || tc.req.Limit != before.Limit ||
				tc.req.Timeout != before.Timeout {
				t.Error("the client's request was changed")
			}
		})
	}
}

// TestUnselectiveListsWhole: where unselective requests are allowed, lists of what nothing in
// particular selects have the endpoint's own bound, and still wait for a slot.
func TestUnselectiveListsWhole(t *testing.T) {
	for word, want := range map[string]int{"refuse": UnselectiveSeriesPerShard, "allow": 10000, "": UnselectiveSeriesPerShard} {
		l := testLimits()
		l.Unselective, l.MaxSeries = word, 10000
		req := &endpoint.Request{ID: endpoint.Series, Match: []string{`{namespace!="",__name__!~"^container_.*"}`}}
		d, err := Decide(req, l, testGroup, now)
		if err != nil || d.PerShardLimit != want || d.Request.Limit != want || d.Limit != 10000 || !d.Unselective || d.Verdict != Clamp {
			t.Errorf("%q: %v; %d from each shard, want %d: %+v", word, err, d.PerShardLimit, want, d)
		}
	}
}

// TestReadOfSeries: a remote read that wants no samples, as a Prometheus sends for its own list of
// series, is held to the newest max_range as lists are; any other one is refused beyond it.
func TestReadOfSeries(t *testing.T) {
	for name, tc := range map[string]struct {
		hints      *prompb.ReadHints
		start, end int64
		from, to   endpoint.Time // neither: refused
	}{
		"series of all time":       {&prompb.ReadHints{Func: "series"}, math.MinInt64, math.MaxInt64, ago(31 * day), ago(0)},
		"series of last year":      {&prompb.ReadHints{Func: "series"}, 0, ago(300 * day).Ms, ago(331 * day), ago(300 * day)},
		"series of a narrow range": {&prompb.ReadHints{Func: "series"}, ago(hour).Ms, ago(0).Ms, ago(hour), ago(0)},
		"samples":                  {&prompb.ReadHints{Func: "rate"}, math.MinInt64, math.MaxInt64, endpoint.Time{}, endpoint.Time{}},
		"no hints":                 {nil, math.MinInt64, math.MaxInt64, endpoint.Time{}, endpoint.Time{}},
	} {
		q := &prompb.Query{
			StartTimestampMs: tc.start, EndTimestampMs: tc.end, Hints: tc.hints,
			Matchers: []*prompb.LabelMatcher{{Name: "__name__", Value: "up"}},
		}
		req := &endpoint.Request{ID: endpoint.Read, ReadQuery: &prompb.ReadRequest{Queries: []*prompb.Query{q}}}
		d, err := Decide(req, testLimits(), testGroup, now)
		switch {
		case !tc.from.Set:
			if err == nil {
				t.Errorf("%s: not refused", name)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		default:
			got := d.Request.ReadQuery.Queries[0]
			if got.StartTimestampMs != tc.from.Ms || got.EndTimestampMs != tc.to.Ms || d.Start != tc.from.Ms || d.End != tc.to.Ms {
				t.Errorf("%s: %d to %d, want %d to %d", name, got.StartTimestampMs, got.EndTimestampMs, tc.from.Ms, tc.to.Ms)
			}
			if narrowed := tc.start != tc.from.Ms; narrowed != (d.Verdict == Clamp) || narrowed != d.Narrowed {
				t.Errorf("%s: verdict %s, narrowed %t", name, d.Verdict, d.Narrowed)
			}
		}
		if q.StartTimestampMs != tc.start || q.EndTimestampMs != tc.end {
			t.Errorf("%s: the client's request was changed", name)
		}
	}
}
