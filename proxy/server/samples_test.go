package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// someSeries are series of floats or of native histograms; a few have none.
func someSeries(t *testing.T, r *rand.Rand, series, samples int) []storage.Series {
	var out []storage.Series
	for i := range series {
		ls := labels.FromStrings("__name__", "m", "i", fmt.Sprint(i), "job", "node")
		n := samples
		if r.IntN(10) == 0 {
			n = 0
		}
		var c chunkenc.Chunk = chunkenc.NewXORChunk()
		if i%5 == 4 {
			c = chunkenc.NewFloatHistogramChunk()
		}
		app, err := c.Appender()
		if err != nil {
			t.Fatal(err)
		}
		h := tsdbutil.GenerateTestFloatHistogram(3)
		for j := range n {
			if i%5 != 4 {
				app.Append(0, int64(j)*15000, math.Float64frombits(r.Uint64()))
			} else if _, _, app, err = app.AppendFloatHistogram(nil, 0, int64(j)*15000, h, true); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, &storage.SeriesEntry{
			Lset:             ls,
			SampleIteratorFn: func(chunkenc.Iterator) chunkenc.Iterator { return c.Iterator(nil) },
		})
	}
	return out
}

// TestSamplesAsPrometheusWritesThem: byte for byte what Prometheus' own encoder makes of the same
// series, for no, one and several queries.
func TestSamplesAsPrometheusWritesThem(t *testing.T) {
	r := rand.New(rand.NewPCG(randseed.Of(t, 0), 1))
	for queries := range 4 {
		x := &exchange{ctx: t.Context(), holding: holding{budget: admit.NewBudget(admit.NewPool(1<<30),
			admit.Limits{MaxSeries: 1e6, MaxSamples: 1e9, MaxBytes: 1 << 40})}}
		w := samplesWriter{x: x}
		want := prompb.ReadResponse{}
		for range queries {
			list := someSeries(t, r, r.IntN(40), 1+r.IntN(100))
			if err := w.result(&seriesSet{ctx: x.ctx, list: list, until: 900_000}); err != nil {
				t.Fatal(err)
			}
			res, _, err := remote.ToQueryResult(&seriesSet{ctx: x.ctx, list: list, until: 900_000}, 0)
			if err != nil {
				t.Fatal(err)
			}
			want.Results = append(want.Results, res)
		}
		rec := httptest.NewRecorder()
		if err := remote.EncodeReadResponse(&want, rec); err != nil {
			t.Fatal(err)
		}
		plain, err := snappy.Decode(nil, rec.Body.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(w.data, plain) {
			t.Errorf("%d queries: %d bytes, Prometheus' encoder writes %d others", queries, len(w.data), len(plain))
		}
		if held, really := x.budget.Held(), int64(cap(w.data)+snappy.MaxEncodedLen(len(w.data))); held < really-4096 {
			t.Errorf("%d queries: %d bytes are charged, %d held", queries, held, really)
		}
		x.budget.Close()
	}
}

// TestSamplesAreBounded: the error is that of the bound that was reached, or the cause of the
// request's end.
func TestSamplesAreBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	list := someSeries(t, r, 200, 100)
	for _, c := range []struct {
		bound string
		pool  int64
		most  int64
	}{{"memory.budget", 64 << 10, 1e9}, {"max_samples", 1 << 30, 1000}} {
		x := &exchange{ctx: t.Context(), holding: holding{budget: admit.NewBudget(admit.NewPool(c.pool), admit.Limits{MaxSamples: c.most})}}
		err := (&samplesWriter{x: x}).result(&seriesSet{ctx: x.ctx, list: list, until: math.MaxInt64})
		if e := qerr.From(err); e == nil || e.Bound != c.bound {
			t.Errorf("%v, want a refusal by %s", err, c.bound)
		}
		x.budget.Close()
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(qerr.ErrClientLeft)
	x := &exchange{ctx: ctx, holding: holding{budget: admit.NewBudget(admit.NewPool(1<<30), admit.Limits{MaxSamples: 1e9})}}
	if err := (&samplesWriter{x: x}).result(&seriesSet{ctx: ctx, list: list, until: math.MaxInt64}); !errors.Is(err, qerr.ErrClientLeft) {
		t.Errorf("the client left: %v", err)
	}
}
