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
// Label sets, timestamps, floats, strings, errors, warnings and infos of its results are read from the proxy's answer. Native histograms lose their schema
// and hints in JSON, so promqltest could not compare them: they are compared with those of a reference, Prometheus' own engine over one storage that holds
// everything, and where they are equal the reference's stands in. So the file's expectation judges the reference, and equality with it the proxy.
type proxyEngine struct {
	w      *spread
	ref    *promql.Engine
	client *http.Client
}

var _ promql.QueryEngine = (*proxyEngine)(nil)

func newProxyEngine(t testing.TB, w *spread, ref *promql.Engine) *proxyEngine {
	return &proxyEngine{w: w, ref: ref, client: newClient(t)}
}

// NewInstantQuery implements promql.QueryEngine.
func (e *proxyEngine) NewInstantQuery(_ context.Context, q storage.Queryable, _ promql.QueryOpts, qs string, ts time.Time) (promql.Query, error) {
	return &proxyQuery{
		e: e, text: qs, path: "/api/v1/query", form: url.Values{"query": {qs}, "time": {stamp(ts)}},
		ref: func(ctx context.Context) (promql.Query, error) { return e.ref.NewInstantQuery(ctx, q, nil, qs, ts) },
	}, nil
}

// NewRangeQuery implements promql.QueryEngine.
func (e *proxyEngine) NewRangeQuery(_ context.Context, q storage.Queryable, _ promql.QueryOpts, qs string, start, end time.Time, step time.Duration) (promql.Query, error) {
	return &proxyQuery{
		e: e, text: qs, path: "/api/v1/query_range",
		form: url.Values{"query": {qs}, "start": {stamp(start)}, "end": {stamp(end)}, "step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)}},
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
	res, err := q.exec(ctx)
	if err != nil {
		return &promql.Result{Err: err}
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

func (q *proxyQuery) exec(ctx context.Context) (*promql.Result, error) {
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
	res.Value, err = q.value(ctx, env.Data.ResultType, env.Data.Result)
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

func (q *proxyQuery) value(ctx context.Context, typ parser.ValueType, raw json.RawMessage) (parser.Value, error) {
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
	ref := &referenceOf{q: q}
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
			h, err := ref.histogram(ctx, one.Metric, &histograms[i])
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

// referenceOf is the reference's answer to a query, computed where a histogram has to be compared.
type referenceOf struct {
	q      *proxyQuery
	points map[string]*histogram.FloatHistogram
}

func pointKey(metric labels.Labels, t int64) string { return fmt.Sprintf("%s@%d", metric, t) }

// histogram is the reference's histogram at the place of p, if p is equal to what Prometheus would write for it.
func (r *referenceOf) histogram(ctx context.Context, metric labels.Labels, p *jsonPoint) (*histogram.FloatHistogram, error) {
	if r.points == nil {
		if err := r.evaluate(ctx); err != nil {
			return nil, err
		}
	}
	want := r.points[pointKey(metric, p.t)]
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

func (r *referenceOf) evaluate(ctx context.Context) error {
	r.points = map[string]*histogram.FloatHistogram{}
	q, err := r.q.ref(ctx)
	if err != nil {
		return fmt.Errorf("the reference: %w", err)
	}
	defer q.Close()
	res := q.Exec(ctx)
	if res.Err != nil {
		return fmt.Errorf("the reference: %w", res.Err)
	}
	switch v := res.Value.(type) {
	case promql.Vector:
		for _, s := range v {
			if s.H != nil {
				r.points[pointKey(s.Metric, s.T)] = s.H.Copy()
			}
		}
	case promql.Matrix:
		for _, s := range v {
			for _, p := range s.Histograms {
				r.points[pointKey(s.Metric, p.T)] = p.H.Copy()
			}
		}
	}
	return nil
}

// histogramTolerance is what a sum that was pushed may differ by, relative.
const histogramTolerance = 1e-12

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
		if f == g || math.IsNaN(f) && math.IsNaN(g) || math.Abs(f-g) <= histogramTolerance*math.Max(math.Abs(f), math.Abs(g)) {
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
