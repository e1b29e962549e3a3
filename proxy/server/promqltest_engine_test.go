package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	jsoniter "github.com/json-iterator/go"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/prometheus/prometheus/util/jsonutil"
	"github.com/prometheus/prometheus/util/stats"
)

// proxyEngine is a promql.QueryEngine that asks the proxy over HTTP.
//
// Label sets, timestamps, floats, strings, errors, warnings and infos of its results are read from
// the proxy's answer. Native histograms lose their schema and hints in JSON, so promqltest could
// not compare them: they are compared with those of a reference, Prometheus' own engine over one
// storage that holds everything, and where they are equal the reference's stands in. So the file's
// expectation judges the reference, and equality with it the proxy.
//
// promqltest itself is content with six digits, and with any warning where a file does not speak of
// warnings. So the whole answer is compared with the reference's as well: label sets, times, floats
// bit for bit, or to answerTolerance where sums over series are in the query, errors, warnings and
// infos by their text.
type proxyEngine struct {
	w      *spread
	ref    *promql.Engine
	client *http.Client

	queries, compared int // asked, and compared in every respect
}

var _ promql.QueryEngine = (*proxyEngine)(nil)

func newProxyEngine(t testing.TB, w *spread, ref *promql.Engine) *proxyEngine {
	return &proxyEngine{w: w, ref: ref, client: newClient(t)}
}

// NewInstantQuery implements promql.QueryEngine.
func (e *proxyEngine) NewInstantQuery(_ context.Context, q storage.Queryable, _ promql.QueryOpts, qs string, ts time.Time) (promql.Query,
	error,
) {
	return &proxyQuery{
		e: e, text: qs, path: "/api/v1/query", form: url.Values{"query": {qs}, "time": {stamp(ts)}},
		ref: func(ctx context.Context) (promql.Query, error) { return e.ref.NewInstantQuery(ctx, q, nil, qs, ts) },
	}, nil
}

// NewRangeQuery implements promql.QueryEngine.
func (e *proxyEngine) NewRangeQuery(_ context.Context, q storage.Queryable, _ promql.QueryOpts, qs string, start, end time.Time,
	step time.Duration,
) (promql.Query, error) {
	return &proxyQuery{
		e: e, text: qs, path: "/api/v1/query_range",
		form: url.Values{
			"query": {qs}, "start": {stamp(start)}, "end": {stamp(end)},
			"step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)},
		},
		ref: func(ctx context.Context) (promql.Query, error) {
			return e.ref.NewRangeQuery(ctx, q, nil, qs, start, end, step)
		},
	}, nil
}

type proxyQuery struct {
	e          *proxyEngine
	text, path string
	form       url.Values
	ref        func(context.Context) (promql.Query, error)
}

// Exec implements promql.Query.
func (q *proxyQuery) Exec(ctx context.Context) *promql.Result {
	q.e.queries++
	ref := q.reference(ctx)
	res, err := q.exec(ctx, ref)
	if err != nil {
		res = &promql.Result{Err: err}
	}
	if diff := q.differs(res, ref); diff != "" {
		return &promql.Result{Err: fmt.Errorf("the proxy's answer is not the reference's: %s", diff)}
	}
	return res
}

// Close implements promql.Query.
func (*proxyQuery) Close() {}

// Statement implements promql.Query.
func (*proxyQuery) Statement() parser.Statement { return nil }

// Stats implements promql.Query.
func (*proxyQuery) Stats() *stats.Statistics { return nil }

// Cancel implements promql.Query.
func (*proxyQuery) Cancel() {}

// String implements promql.Query.
func (q *proxyQuery) String() string { return q.text }

// jsonSeries is one element of a vector or a matrix.
type jsonSeries struct {
	Metric     map[string]string
	Value      *jsonPoint
	Histogram  *jsonPoint
	Values     []jsonPoint
	Histograms []jsonPoint
}

// jsonPoint is a pair of a time and a value.
type jsonPoint struct {
	t   int64
	raw json.RawMessage
}

func (p *jsonPoint) UnmarshalJSON(b []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(b, &pair); err != nil || len(pair) != 2 {
		return fmt.Errorf("%s is no pair of a time and a value: %w", b, err)
	}
	sec, err := strconv.ParseFloat(string(pair[0]), 64)
	p.t, p.raw = int64(math.Round(sec*1000)), pair[1]
	return err
}

// float is the value as a number; the text is the shortest that gives the same bits again.
func (p *jsonPoint) float() (float64, error) {
	var text string
	if err := json.Unmarshal(p.raw, &text); err != nil {
		return 0, err
	}
	return strconv.ParseFloat(text, 64)
}

func (q *proxyQuery) exec(ctx context.Context, ref *promql.Result) (*promql.Result, error) {
	body, err := q.ask(ctx)
	if err != nil {
		return nil, err
	}
	var env struct {
		Status, ErrorType, Error string
		Warnings, Infos          []string
		Data                     struct {
			ResultType parser.ValueType
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &env); err != nil {
		return nil, fmt.Errorf("the proxy's answer is no JSON: %w: %.300s", err, body)
	}
	if env.Status != "success" {
		return nil, errors.New(env.Error)
	}
	res := &promql.Result{Warnings: annotations.Annotations{}}
	for _, w := range env.Warnings {
		res.Warnings[w] = &annotation{w, annotations.PromQLWarning}
	}
	for _, i := range env.Infos {
		res.Warnings[i] = &annotation{i, annotations.PromQLInfo}
	}
	res.Value, err = q.value(env.Data.ResultType, env.Data.Result, ref)
	return res, err
}

// annotation is a warning or an info as the answer has it, with its position.
type annotation struct {
	text string
	kind error
}

// Error implements error.
func (n *annotation) Error() string { return n.text }

// Unwrap implements error.
func (n *annotation) Unwrap() error { return n.kind }

func (q *proxyQuery) ask(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, q.e.w.base+q.path+"?"+q.form.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := q.e.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

func (*proxyQuery) value(typ parser.ValueType, raw json.RawMessage, reference *promql.Result) (parser.Value, error) {
	switch typ {
	case parser.ValueTypeScalar, parser.ValueTypeString:
		var p jsonPoint
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, err
		}
		if typ == parser.ValueTypeString {
			s := promql.String{T: p.t}
			return s, errors.Join(json.Unmarshal(p.raw, &s.V))
		}
		v, err := p.float()
		return promql.Scalar{T: p.t, V: v}, err
	case parser.ValueTypeVector, parser.ValueTypeMatrix:
	default:
		return nil, fmt.Errorf("a result of type %q", typ)
	}
	var list []jsonSeries
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	ref := histogramsOf(reference)
	vector, matrix := promql.Vector{}, promql.Matrix{}
	for _, s := range list {
		one := promql.Series{Metric: labels.FromMap(s.Metric)}
		values, histograms := s.Values, s.Histograms
		if s.Value != nil {
			values = append(values, *s.Value)
		}
		if s.Histogram != nil {
			histograms = append(histograms, *s.Histogram)
		}
		for i := range values {
			f, err := values[i].float()
			if err != nil {
				return nil, err
			}
			one.Floats = append(one.Floats, promql.FPoint{T: values[i].t, F: f})
		}
		for i := range histograms {
			h, err := ref.histogram(one.Metric, &histograms[i])
			if err != nil {
				return nil, err
			}
			one.Histograms = append(one.Histograms, promql.HPoint{T: histograms[i].t, H: h})
		}
		if typ == parser.ValueTypeMatrix {
			matrix = append(matrix, one)
			continue
		}
		switch {
		case len(one.Floats) == 1 && len(one.Histograms) == 0:
			vector = append(vector, promql.Sample{Metric: one.Metric, T: one.Floats[0].T, F: one.Floats[0].F})
		case len(one.Histograms) == 1 && len(one.Floats) == 0:
			vector = append(vector, promql.Sample{Metric: one.Metric, T: one.Histograms[0].T, H: one.Histograms[0].H})
		default:
			return nil, fmt.Errorf("an element of a vector with %d values and %d histograms", len(one.Floats), len(one.Histograms))
		}
	}
	if typ == parser.ValueTypeMatrix {
		return matrix, nil
	}
	return vector, nil
}

// reference is the reference's answer.
func (q *proxyQuery) reference(ctx context.Context) *promql.Result {
	qry, err := q.ref(ctx)
	if err != nil {
		return &promql.Result{Err: err}
	}
	defer qry.Close()
	res := qry.Exec(ctx)
	// Its points are the query's until Close.
	switch v := res.Value.(type) {
	case promql.Matrix:
		own := make(promql.Matrix, len(v))
		for i, s := range v {
			own[i] = promql.Series{Metric: s.Metric, Floats: slices.Clone(s.Floats)}
			for _, p := range s.Histograms {
				own[i].Histograms = append(own[i].Histograms, promql.HPoint{T: p.T, H: p.H.Copy()})
			}
		}
		res.Value = own
	case promql.Vector:
		res.Value = slices.Clone(v)
	}
	return res
}

// referenceHistograms are the reference's histograms by series and time.
type referenceHistograms map[string]*histogram.FloatHistogram

func pointKey(metric labels.Labels, t int64) string { return fmt.Sprintf("%s@%d", metric, t) }

func histogramsOf(res *promql.Result) referenceHistograms {
	out := referenceHistograms{}
	switch v := res.Value.(type) {
	case promql.Vector:
		for _, s := range v {
			if s.H != nil {
				out[pointKey(s.Metric, s.T)] = s.H
			}
		}
	case promql.Matrix:
		for _, s := range v {
			for _, p := range s.Histograms {
				out[pointKey(s.Metric, p.T)] = p.H
			}
		}
	}
	return out
}

// histogram is the reference's histogram at the place of p, if p is equal to what Prometheus would
// write for it.
func (r referenceHistograms) histogram(metric labels.Labels, p *jsonPoint) (*histogram.FloatHistogram, error) {
	want := r[pointKey(metric, p.t)]
	if want == nil {
		return nil, fmt.Errorf("the proxy answers a histogram for %s at %d, the reference none: %s", metric, p.t, p.raw)
	}
	stream := jsoniter.ConfigCompatibleWithStandardLibrary.BorrowStream(nil)
	defer jsoniter.ConfigCompatibleWithStandardLibrary.ReturnStream(stream)
	jsonutil.MarshalHistogram(want, stream)
	if diff := histogramsDiffer(p.raw, stream.Buffer()); diff != "" {
		return nil, fmt.Errorf("the proxy's histogram for %s at %d is not the reference's: %s: %s, want %s", metric, p.t, diff, p.raw, stream.Buffer())
	}
	return want, nil
}

const (
	// answerTolerance is what floats may differ by, relative: the order of a sum's series is the
	// storage's, and a pushed one is summed in parts.
	answerTolerance = 1e-12
	// varianceTolerance is that of stddev and stdvar.
	varianceTolerance = 1e-9
)

// histogramsDiffer compares two histograms as JSON has them: counts, sums and buckets as numbers.
func histogramsDiffer(a, b []byte) string {
	type form struct {
		Count, Sum string
		Buckets    [][4]any
	}
	var x, y form
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		return err.Error()
	}
	number := func(what, a, b string) string {
		f, err1 := strconv.ParseFloat(a, 64)
		g, err2 := strconv.ParseFloat(b, 64)
		if err1 != nil || err2 != nil {
			return fmt.Sprintf("%s %q or %q is no number", what, a, b)
		}
		if near(f, g, answerTolerance) {
			return ""
		}
		return fmt.Sprintf("%s %s, not %s", what, a, b)
	}
	if d := number("count", x.Count, y.Count); d != "" {
		return d
	}
	if d := number("sum", x.Sum, y.Sum); d != "" {
		return d
	}
	if len(x.Buckets) != len(y.Buckets) {
		return fmt.Sprintf("%d buckets, not %d", len(x.Buckets), len(y.Buckets))
	}
	for i := range x.Buckets {
		for j := range x.Buckets[i] {
			if d := number(fmt.Sprintf("part %d of bucket %d", j, i), fmt.Sprint(x.Buckets[i][j]), fmt.Sprint(y.Buckets[i][j])); d != "" {
				return d
			}
		}
	}
	return ""
}

func near(f, g, tolerance float64) bool {
	return f == g || math.IsNaN(f) && math.IsNaN(g) || math.Abs(f-g) <= tolerance*math.Max(math.Abs(f), math.Abs(g))
}

// anySeries are aggregations that choose among series: of equal values, or of all, whichever the
// storage gives first.
var anySeries = regexp.MustCompile(`(?i)\b(topk|bottomk|limitk|limit_ratio)\b`)

// What is no sum over series is compared bit for bit.
var (
	sums     = regexp.MustCompile(`(?i)\b(sum|avg)\b`)
	variance = regexp.MustCompile(`(?i)\bstd(dev|var)\b`)
)

// differs says in what the proxy's answer is not the reference's. Histograms were compared when the
// answer was read.
func (q *proxyQuery) differs(got, want *promql.Result) string {
	if anySeries.MatchString(q.text) {
		return "" // excepted by name; the file's own expectation stands
	}
	q.e.compared++
	if got.Err != nil || want.Err != nil {
		if got.Err == nil || want.Err == nil || got.Err.Error() != want.Err.Error() {
			return fmt.Sprintf("error %v, want %v", got.Err, want.Err)
		}
		return ""
	}
	tolerance := 0.0
	switch {
	case variance.MatchString(q.text):
		tolerance = varianceTolerance
	case sums.MatchString(q.text):
		tolerance = answerTolerance
	}
	gw, gi := got.Warnings.AsStrings("", 0, 0)
	ww, wi := want.Warnings.AsStrings(q.text, 10, 10) // as the API cuts them
	for _, pair := range [][2][]string{{gw, ww}, {gi, wi}} {
		slices.Sort(pair[0])
		slices.Sort(pair[1])
		if !slices.Equal(pair[0], pair[1]) {
			return fmt.Sprintf("warnings or infos %q, want %q", pair[0], pair[1])
		}
	}
	a, b := points(got.Value), points(want.Value)
	for k, v := range b {
		if w, ok := a[k]; !ok {
			return fmt.Sprintf("%s is missing", k)
		} else if !near(w, v, tolerance) {
			return fmt.Sprintf("%s is %v, want %v", k, w, v)
		}
	}
	for k := range a {
		if _, ok := b[k]; !ok {
			return fmt.Sprintf("%s is there", k)
		}
	}
	return ""
}

// points are a value's floats by series and time; a histogram is its count.
func points(v parser.Value) map[string]float64 {
	out := map[string]float64{}
	switch v := v.(type) {
	case promql.Scalar:
		out[fmt.Sprintf("scalar@%d", v.T)] = v.V
	case promql.String:
		out[fmt.Sprintf("string %q@%d", v.V, v.T)] = 0
	case promql.Vector:
		for _, s := range v {
			if out[pointKey(s.Metric, s.T)] = s.F; s.H != nil {
				out[pointKey(s.Metric, s.T)+" histogram"] = s.H.Count
			}
		}
	case promql.Matrix:
		for _, s := range v {
			for _, p := range s.Floats {
				out[pointKey(s.Metric, p.T)] = p.F
			}
			for _, p := range s.Histograms {
				out[pointKey(s.Metric, p.T)+" histogram"] = p.H.Count
			}
		}
	}
	return out
}
