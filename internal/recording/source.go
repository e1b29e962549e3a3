package recording

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Without are the rule files but those of these names.
func Without(files fs.FS, names ...string) fs.FS { return without{files, names} }

type without struct {
	fs.FS
	names []string
}

var _ fs.GlobFS = without{}

// Glob implements fs.GlobFS, which is how rule files are found.
func (w without) Glob(pattern string) ([]string, error) {
	found, err := fs.Glob(w.FS, pattern)
	return slices.DeleteFunc(found, func(n string) bool { return slices.Contains(w.names, n) }), err
}

// FromEngine asks an engine of this process.
func FromEngine(engine promql.QueryEngine, q storage.Queryable) Range {
	return func(ctx context.Context, expr string, from, until time.Time, step time.Duration) (promql.Matrix, error) {
		query, err := engine.NewRangeQuery(ctx, q, nil, expr, from, until, step)
		if err != nil {
			return nil, err
		}
		defer query.Close()
		res := query.Exec(ctx)
		if res.Err != nil {
			return nil, res.Err
		}
		m, err := res.Matrix()
		if err != nil {
			return nil, err
		}
		// The engine takes its memory back at Close.
		out := make(promql.Matrix, len(m))
		for i, s := range m {
			out[i] = promql.Series{Metric: s.Metric, Floats: slices.Clone(s.Floats)}
			for _, h := range s.Histograms {
				out[i].Histograms = append(out[i].Histograms, promql.HPoint{T: h.T, H: h.H.Copy()})
			}
		}
		return out, nil
	}
}

// Remote is a server that speaks Prometheus' API.
type Remote struct{ api promv1.API }

// NewRemote is the server at url, asked through client.
func NewRemote(client api.Client) Remote { return Remote{promv1.NewAPI(client)} }

// Range is a Range. An answer with warnings is an error: it may be a part of the whole.
func (r Remote) Range(ctx context.Context, expr string, from, until time.Time, step time.Duration) (promql.Matrix, error) {
	v, warnings, err := r.api.QueryRange(ctx, expr, promv1.Range{Start: from, End: until, Step: step})
	if err == nil {
		err = noWarnings(warnings)
	}
	if err != nil {
		return nil, err
	}
	m, ok := v.(model.Matrix)
	if !ok {
		return nil, fmt.Errorf("the answer is a %s, not a matrix", v.Type())
	}
	out := make(promql.Matrix, len(m))
	for i, s := range m {
		if len(s.Histograms) > 0 {
			return nil, fmt.Errorf("%s has native histograms, which are not carried here", s.Metric)
		}
		out[i].Metric = fromMetric(s.Metric)
		out[i].Floats = make([]promql.FPoint, len(s.Values))
		for n, p := range s.Values {
			out[i].Floats[n] = promql.FPoint{T: int64(p.Timestamp), F: float64(p.Value)}
		}
	}
	return out, nil
}

var _ rules.QueryFunc = Remote{}.Instant

// Instant answers a rule that is evaluated as time goes by, as rules.QueryFunc. An answer with
// warnings is an error. A server rounds the time that it is given to milliseconds, and an engine
// cuts what is below: so that samples are those of the engine, and of Fill, it is cut here.
func (r Remote) Instant(ctx context.Context, expr string, t time.Time) (promql.Vector, error) {
	v, warnings, err := r.api.Query(ctx, expr, t.Truncate(time.Millisecond))
	if err == nil {
		err = noWarnings(warnings)
	}
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case model.Vector:
		out := make(promql.Vector, len(v))
		for i, s := range v {
			if s.Histogram != nil {
				return nil, fmt.Errorf("%s is a native histogram, which is not carried here", s.Metric)
			}
			out[i] = promql.Sample{Metric: fromMetric(s.Metric), T: int64(s.Timestamp), F: float64(s.Value)}
		}
		return out, nil
	case *model.Scalar:
		return promql.Vector{{T: int64(v.Timestamp), F: float64(v.Value)}}, nil
	}
	return nil, fmt.Errorf("the answer is a %s, neither vector nor scalar", v.Type())
}

func noWarnings(warnings []string) error {
	if len(warnings) == 0 {
		return nil
	}
	return fmt.Errorf("the answer has warnings, so it may be a part only: %q", warnings)
}

func fromMetric(m model.Metric) labels.Labels {
	b := labels.NewScratchBuilder(len(m))
	for k, v := range m {
		b.Add(string(k), string(v))
	}
	b.Sort()
	return b.Labels()
}
