package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/stats"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/qerr/qerrtest"
)

// fromPrometheus is the answer that Prometheus' own codec writes.
func fromPrometheus(t *testing.T, data any) string {
	t.Helper()
	b, err := v1.JSONCodec{}.Encode(&v1.Response{Status: "success", Data: data})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func encoded(t *testing.T, v parser.Value) string {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out, nil)
	defer w.Close()
	if err := w.Begin(); err != nil {
		t.Fatal(err)
	}
	e := NewEncoder(w, 1<<30)
	var err error
	switch v := v.(type) {
	case promql.Vector:
		err = e.Vector(v)
	case promql.Matrix:
		err = e.Matrix(v)
	case promql.Scalar:
		err = e.Scalar(v)
	case promql.String:
		err = e.String(v)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(nil, nil); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

var (
	oddFloats = []float64{
		0, math.Copysign(0, -1), 1, -1.5, math.NaN(), math.Inf(1), math.Inf(-1), 1e21, 1e20, 123456789.125, 1e-6, 9.9e-7,
		1e-9, -1e-10, math.MaxFloat64, math.SmallestNonzeroFloat64, 0.1, 1e100, 1e-100,
	}
	oddTimes = []int64{0, 1, 10, 100, 999, 1000, 1435781451781, -1, -1001, -999, 1 << 50, 1700000000000, 1700000000010, 1700000000100}
	oddTexts = []string{
		"", "up", "a\"b\\c", "<&>", "é😀", "\u2028\u2029", "\x00\x01\x1f\x7f", "\n\r\t\b\f", "\xff", "\xc3(",
		"a\xed\xa0\x80",
	}
)

func randomLabels(r *rand.Rand) labels.Labels {
	m := map[string]string{}
	for range r.IntN(4) {
		m[oddTexts[r.IntN(len(oddTexts))]+"x"] = oddTexts[r.IntN(len(oddTexts))]
	}
	return labels.FromMap(m)
}

func randomHistogram(r *rand.Rand) *histogram.FloatHistogram {
	h := &histogram.FloatHistogram{
		Schema: int32(r.IntN(9) - 3), Count: oddFloats[r.IntN(len(oddFloats))],
		Sum: oddFloats[r.IntN(len(oddFloats))], ZeroThreshold: 0.001, ZeroCount: float64(r.IntN(2)),
	}
	h.PositiveSpans = []histogram.Span{{Offset: int32(r.IntN(5) - 2), Length: 3}}
	h.PositiveBuckets = []float64{1, 0, 2.5}
	h.NegativeSpans = []histogram.Span{{Offset: 1, Length: 1}, {Offset: 2, Length: 1}}
	h.NegativeBuckets = []float64{3, float64(r.IntN(2))}
	switch r.IntN(6) {
	case 0:
		h = &histogram.FloatHistogram{Count: 1, Sum: 2}
	case 1:
		h = &histogram.FloatHistogram{
			Schema: histogram.CustomBucketsSchema, Count: 5, Sum: 1, CustomValues: []float64{-1, 0.5, 1},
			PositiveSpans: []histogram.Span{{Offset: 0, Length: 4}}, PositiveBuckets: []float64{1, 1, 1, 2},
		}
	}
	return h
}

// TestEncoderIsPrometheus compares bytes with Prometheus' own codec.
func TestEncoderIsPrometheus(t *testing.T) {
	r := newRand(t)
	check := func(v parser.Value) {
		t.Helper()
		want := fromPrometheus(t, &v1.QueryData{ResultType: v.Type(), Result: v})
		if got := encoded(t, v); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
	check(promql.Vector{})
	check(promql.Matrix{})
	for _, f := range oddFloats {
		for _, ts := range oddTimes {
			check(promql.Vector{{T: ts, F: f}})
			if !math.IsNaN(f) && !math.IsInf(f, 0) {
				check(promql.Scalar{T: ts, V: f})
			}
		}
	}
	for _, s := range oddTexts {
		check(promql.String{T: oddTimes[r.IntN(len(oddTimes))], V: s})
	}
	for range 500 {
		var v promql.Vector
		var m promql.Matrix
		for range r.IntN(5) {
			s := promql.Sample{Metric: randomLabels(r), T: oddTimes[r.IntN(len(oddTimes))], F: oddFloats[r.IntN(len(oddFloats))]}
			if r.IntN(3) == 0 {
				s.H = randomHistogram(r)
			}
			v = append(v, s)
			series := promql.Series{Metric: randomLabels(r)}
			for range r.IntN(4) {
				series.Floats = append(series.Floats, promql.FPoint{T: oddTimes[r.IntN(len(oddTimes))], F: r.NormFloat64()})
			}
			for range r.IntN(3) {
				series.Histograms = append(series.Histograms, promql.HPoint{T: oddTimes[r.IntN(len(oddTimes))], H: randomHistogram(r)})
			}
			m = append(m, series)
		}
		if v != nil {
			check(v)
			check(m)
		}
	}
}

func TestEncoderBound(t *testing.T) {
	m := promql.Matrix{{Metric: labels.FromStrings("a", "b"), Floats: make([]promql.FPoint, 100000)}}
	var out counter
	qerrtest.Refused(t, NewEncoder(&out, 100<<10).Matrix(m), qerr.TooExpensive, "max_response_bytes")
	if out.n > 100<<10 {
		t.Errorf("%d bytes were written", out.n)
	}
	qerrtest.Refused(t, NewEncoder(&out, 10).Vector(promql.Vector{{}}), qerr.TooExpensive, "max_response_bytes")
}

// TestTextIsPrometheus compares lists, series and notes with Prometheus' own codec: names and
// values in lists are escaped otherwise than labels.
func TestTextIsPrometheus(t *testing.T) {
	list := `[`
	for i, s := range oddTexts {
		list += comma(i) + string(AppendText(nil, s))
	}
	if got, want := envelope(list+`]`), fromPrometheus(t, oddTexts); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r := newRand(t)
	series := `[`
	var sets []labels.Labels
	for i := range 50 {
		sets = append(sets, randomLabels(r))
		series += comma(i) + string(AppendLabels(nil, sets[i]))
	}
	if got, want := envelope(series+`]`), fromPrometheus(t, sets); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var out bytes.Buffer
	w := NewWriter(&out, nil)
	defer w.Close()
	if err := errors.Join(w.Begin(), writeData(w, []string{}), w.Finish([]string{"a<b", "c"}, []string{"d"})); err != nil {
		t.Fatal(err)
	}
	b, err := v1.JSONCodec{}.Encode(&v1.Response{Status: "success", Data: []string{}, Warnings: []string{"a<b", "c"}, Infos: []string{"d"}})
	if err != nil || out.String() != string(b) {
		t.Errorf("got %s, want %s, %v", out.String(), b, err)
	}
}

// TestPassOfPrometheus passes what Prometheus writes, unchanged and relabelled.
func TestPassOfPrometheus(t *testing.T) {
	r := newRand(t)
	rl := NewRelabel(map[string]string{"cluster": "jaguar", "upx": "new"}, []string{"<&>x"})
	for range 300 {
		var v, relabelled promql.Vector
		seen := map[string]bool{}
		for i := range r.IntN(6) {
			s := promql.Sample{
				Metric: labels.NewBuilder(randomLabels(r)).Set("id", string(rune('a'+i))).Labels(), T: 1700000000123,
				F: r.NormFloat64(),
			}
			if !utf8.Valid(AppendLabels(nil, s.Metric)) || seen[s.Metric.String()] {
				continue // invalid UTF-8 is U+FFFD once decoded, bytes that Prometheus would not have written
			}
			seen[s.Metric.String()] = true
			v = append(v, s)
			s.Metric = rl.Labels(s.Metric)
			relabelled = append(relabelled, s)
		}
		if v == nil {
			continue
		}
		in := encoded(t, v)
		got, _, _, err := passed(t, strings.NewReader(in), nil, roomy)
		if err != nil || got != in {
			t.Fatalf("got %s, want %s, %v", got, in, err)
		}
		got, _, _, err = passed(t, strings.NewReader(in), rl, roomy)
		if want := encoded(t, relabelled); err != nil || got != want {
			t.Fatalf("got %s, want %s, %v", got, want, err)
		}
	}
}

// TestStatsOfPrometheus compares the stats object with that of Prometheus' own codec, as values:
// small floats are spelled 1e-7 here and 1e-07 there.
func TestStatsOfPrometheus(t *testing.T) {
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1000, Timeout: time.Minute, EnablePerStepStats: true})
	defer func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	}()
	nothing := storage.QueryableFunc(func(int64, int64) (storage.Querier, error) { return storage.NoopQuerier(), nil })
	q, err := engine.NewRangeQuery(t.Context(), nothing, promql.NewPrometheusQueryOpts(true, time.Minute), "up + 1", time.UnixMilli(1000),
		time.UnixMilli(5000), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if res := q.Exec(t.Context()); res.Err != nil {
		t.Fatal(res.Err)
	}
	qs := stats.NewQueryStats(q.Stats())
	want := fromPrometheus(t, &v1.QueryData{ResultType: parser.ValueTypeMatrix, Result: promql.Matrix{}, Stats: qs})
	var out bytes.Buffer
	e := NewEncoder(&out, 1<<20)
	e.Stats = qs
	if err := e.Matrix(promql.Matrix{}); err != nil {
		t.Fatal(err)
	}
	var a, b any
	if err := errors.Join(json.Unmarshal([]byte(envelope(out.String())), &a), json.Unmarshal([]byte(want), &b)); err != nil ||
		!reflect.DeepEqual(a, b) {
		t.Errorf("got  %s\nwant %s, %v", out.String(), want, err)
	}
	if got, _, _, err := passed(t, strings.NewReader(want), nil, roomy); err != nil || got != want {
		t.Errorf("passed: %s %v", got, err)
	}
}
