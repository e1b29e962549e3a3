package soak

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// whole is a database without the scrape_ series, of which the first of a window differ: no rule
// reads them.
type whole struct {
	storage.Appendable
	storage.Queryable
}

func (w whole) Appender(ctx context.Context) storage.Appender {
	return wholeAppender{w.Appendable.Appender(ctx)}
}

type wholeAppender struct{ storage.Appender }

func (w wholeAppender) Append(ref storage.SeriesRef, l labels.Labels, t int64, v float64) (storage.SeriesRef, error) {
	if strings.HasPrefix(l.Get(model.MetricNameLabel), "scrape_") {
		return 0, nil
	}
	return w.Appender.Append(ref, l, t, v)
}

// TestShortcutsChangeNothing: rules whose trees are used again, and that read the store, record
// what they record when every text is parsed and everything is in Prometheus' own database.
func TestShortcutsChangeNothing(t *testing.T) {
	o := Options{Rules: shipped(), Seed: 7, Length: 90 * time.Minute, Cluster: cluster.Options{Nodes: 3, GPUsPerNode: 2}}
	var quick *store
	o.stores = func(s *store) database {
		quick = s
		return s
	}
	a, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true, BlockDuration: 200 * day})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	o.parser = parser.NewParser(parser.Options{})
	o.stores = func(*store) database { return whole{s.DB(), s.DB()} }
	b, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Fired) != len(b.Fired) {
		t.Fatalf("%d alerts fired, and %d the long way", len(a.Fired), len(b.Fired))
	}
	for i, f := range a.Fired {
		if g := b.Fired[i]; !labels.Equal(f.Labels, g.Labels) || !f.From.Equal(g.From) || !f.Until.Equal(g.Until) {
			t.Errorf("fired: %s from %s until %s, and the long way %s from %s until %s", f.Labels, f.From, f.Until, g.Labels, g.From, g.Until)
		}
	}
	q, err := s.DB().Querier(math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	samples := 0
	for name, f := range quick.families {
		set := q.Select(t.Context(), true, nil, labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, name))
		all := map[string]map[int64]uint64{}
		for set.Next() {
			values := map[int64]uint64{}
			for it := set.At().Iterator(nil); it.Next() == chunkenc.ValFloat; {
				at, v := it.At()
				values[at] = math.Float64bits(v)
			}
			all[set.At().Labels().String()] = values
		}
		if err := set.Err(); err != nil {
			t.Fatal(err)
		}
		for _, x := range f.series {
			for i, at := range x.t {
				if v, ok := all[x.lset.String()][at]; !ok || v != math.Float64bits(x.v[i]) {
					t.Fatalf("%s at %d is %v, and the long way %v (there: %v)", x.lset, at, x.v[i], math.Float64frombits(v), ok)
				}
				samples++
			}
		}
	}
	t.Logf("%d samples are equal, %d alerts", samples, len(a.Fired))
}
