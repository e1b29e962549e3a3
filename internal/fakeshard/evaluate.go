package fakeshard

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"go.opentelemetry.io/otel/trace"
)

// EngineTrace is the trace in which the spans of the shards' engines are: Prometheus' engine takes
// the process' tracer, which is the test's own.
var EngineTrace = trace.TraceID{1}

// evaluate runs an expression over the shard's series, each of which has the value 1 at all times,
// with Prometheus' own engine: a proxy that leaves work to shards gets from this one what it would
// get from a real one.
func (s *Shard) evaluate(text string, times []float64, step time.Duration, asRange bool) Answer {
	e := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1e6, Timeout: 10 * time.Second, EnableAtModifier: true, EnableNegativeOffset: true, Parser: syntax,
	})
	// The engine's spans belong to no request of the test: they would look like the proxy's own.
	ctx := trace.ContextWithSpanContext(context.Background(),
		trace.NewSpanContext(trace.SpanContextConfig{TraceID: EngineTrace, SpanID: trace.SpanID{1}}))
	ms := func(t float64) time.Time { return time.UnixMilli(int64(t*1000 + 0.5)) }
	var (
		q   promql.Query
		err error
	)
	if asRange {
		q, err = e.NewRangeQuery(ctx, constant{s.series}, nil, text, ms(times[0]), ms(times[len(times)-1]), step)
	} else {
		q, err = e.NewInstantQuery(ctx, constant{s.series}, nil, text, ms(times[0]))
	}
	if err != nil {
		return errorAnswer(http.StatusBadRequest, "bad_data", err.Error())
	}
	defer q.Close()
	res := q.Exec(ctx)
	if res.Err != nil {
		return errorAnswer(http.StatusUnprocessableEntity, "execution", res.Err.Error())
	}
	switch v := res.Value.(type) { // an empty one is a list too
	case promql.Vector:
		if v == nil {
			return resultAnswer(string(v.Type()), promql.Vector{})
		}
	case promql.Matrix:
		if v == nil {
			return resultAnswer(string(v.Type()), promql.Matrix{})
		}
	}
	return resultAnswer(string(res.Value.Type()), res.Value)
}

var syntax = parser.NewParser(parser.Options{EnableExperimentalFunctions: true})

// constant is a storage whose series always have the value 1.
type constant struct{ series []map[string]string }

// Querier implements storage.Queryable.
func (c constant) Querier(int64, int64) (storage.Querier, error) {
	return constantQuerier{storage.NoopQuerier(), c.series}, nil
}

type constantQuerier struct {
	storage.Querier
	series []map[string]string
}

// Select implements storage.Querier.
func (q constantQuerier) Select(_ context.Context, _ bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	var samples []chunks.Sample
	for t := hints.Start; t <= hints.End && len(samples) < maxHealthyPoints; t += healthyStepMs {
		samples = append(samples, one(t))
	}
	set := &constantSet{at: -1}
	for _, lbls := range q.series {
		if matches(lbls, ms) {
			set.series = append(set.series, storage.NewListSeries(labels.FromMap(lbls), samples))
		}
	}
	return set
}

type constantSet struct {
	series []storage.Series
	at     int
}

func (s *constantSet) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *constantSet) At() storage.Series                { return s.series[s.at] }
func (s *constantSet) Err() error                        { return nil }
func (s *constantSet) Warnings() annotations.Annotations { return nil }

// one is a sample of value 1 at its time in milliseconds.
type one int64

// T implements chunks.Sample, as the other methods do.
func (o one) T() int64                    { return int64(o) }
func (one) ST() int64                     { return 0 }
func (one) F() float64                    { return 1 }
func (one) H() *histogram.Histogram       { return nil }
func (one) FH() *histogram.FloatHistogram { return nil }
func (one) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (o one) Copy() chunks.Sample         { return o }
