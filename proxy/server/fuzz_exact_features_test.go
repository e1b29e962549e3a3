package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/internal/localprom"
)

// exactFeatures are switched on in every shard: the generators write all that they allow.
var exactFeatures = []string{"promql-experimental-functions", "promql-extended-range-selectors", "promql-binop-fill-modifiers"}

// exactEngine is what differs between the engines of worlds. All shards of one have the same.
type exactEngine struct {
	delayed bool // metric names are dropped at the end of a query only
	units   bool // __type__ and __unit__ go with the name, and series have them
	starts  bool // samples have start timestamps, and the engine uses them
}

// draw chooses the settings, with random numbers of its own: the data of a seed's world stays what
// it was.
func (w *exactWorld) draw() {
	rng := rand.New(rand.NewPCG(w.seed, 28))
	for _, f := range []struct {
		on   *bool
		name string
	}{{&w.engine.delayed, "delayed name removal"}, {&w.engine.units, "type and unit labels"}, {&w.engine.starts, "start timestamps"}} {
		if *f.on = rng.Float64() < 0.2; *f.on {
			w.trait("%s", f.name)
		}
	}
}

// features are the values of --enable-feature.
func (e exactEngine) features() []string {
	out := slices.Clone(exactFeatures)
	if e.delayed {
		out = append(out, "promql-delayed-name-removal")
	}
	if e.units {
		out = append(out, "type-and-unit-labels")
	}
	if e.starts {
		out = append(out, "use-start-timestamps")
	}
	return out
}

// typed adds type and unit to what a target exposes. A metric of several types is several metrics.
func (m *exactMetric) typed(b *labels.Builder, node int) {
	kind := map[string]string{
		"gauge": "gauge", "counter": "counter", "bucket": "histogram", "exponential": "histogram",
		"custom": "histogram", "mixed": "unknown", "info": "info",
	}[m.kind]
	switch m.name {
	case "up": // the server writes it itself
		return
	case "special":
		kind = []string{"gauge", "counter"}[node%2]
	case "node_memory_free_bytes":
		b.Set("__unit__", "bytes")
	case "gpu_temperature":
		b.Set("__unit__", []string{"celsius", "kelvin"}[node%2])
	case "http_seconds_bucket", "http_seconds_count", "rpc_seconds", "batch_seconds":
		b.Set("__unit__", "seconds")
	}
	b.Set("__type__", kind)
}

// began is the start timestamp of what a target counts, at a time in seconds from the world's
// beginning; 0 is none, as of every fourth target.
func (w *exactWorld) began(m *exactMetric, d *exactData, at float64) int64 {
	if !w.engine.starts || d.node%4 == 3 || !slices.Contains([]string{"counter", "bucket", "exponential", "custom"}, m.kind) {
		return 0
	}
	since := -60.0
	for _, r := range d.resets {
		if r <= at {
			since = r
		}
	}
	return w.start.UnixMilli() + int64(since*1000)
}

// shared adds the series that belong to no target alone: what becomes equal on several shards once
// a label or the name is gone, and what lacks the label by which shards may be told apart.
func (w *exactWorld) shared(s *exactShard, r *exactReplica, t *exactTarget) {
	first := s.nodes[0].id
	add := func(value func(at float64) float64, pairs ...string) {
		lbls := labels.FromStrings(pairs...)
		r.series = append(r.series, storedSeries{
			lbls:   lbls,
			points: t.run(w, func(at float64) (point, bool) { return point{f: value(at)}, true }),
		})
	}
	id, tier := fmt.Sprint(first), []string{"gold", "tin"}[first%2]
	add(func(at float64) float64 { return float64(int(at/100)) + float64(first) }, "__name__", "quota", "pool", "p"+id, "tier", tier)
	// Each shard's has another name, and but for it they are equal.
	add(func(at float64) float64 { return at/1000 + float64(first)/10 }, "__name__", "limit_"+id, "tier", "gold")
	if w.engine.units { // the same of its type and unit
		add(func(at float64) float64 { return float64(first) + at/700 }, "__name__", "bound", "tier", "gold", "__type__",
			[]string{"gauge", "counter"}[first%2], "__unit__", "u"+id)
	}
	for _, n := range s.nodes {
		add(func(float64) float64 { return float64(n.id%7+1) / 10 }, "__name__", "capacity", "node", n.name)
	}
	add(func(float64) float64 { return float64(first%5+1) / 10 }, "__name__", "capacity", "pool", "p"+id)
}

// exactServer serves what a replica stores, until the test ends.
func exactServer(t testing.TB, r *exactReplica, e exactEngine) *localprom.Shard {
	t.Helper()
	o := localprom.Options{DisableWAL: true, ExternalLabels: r.external, Features: e.features(), BlockDuration: 24 * time.Hour}
	if e.starts {
		db := emptyStorage(t)
		t.Cleanup(func() { // after the server that reads it
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		if err := r.stamped(db.AppenderV2(context.Background())); err != nil {
			t.Fatal(err)
		}
		o.Read = db
	}
	p, err := localprom.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	if e.starts {
		return p
	}
	if err := p.Append(func(app storage.Appender) error {
		for _, s := range r.series {
			ref := storage.SeriesRef(0)
			for _, pt := range s.points {
				var err error
				if pt.h != nil {
					ref, err = app.AppendHistogram(ref, s.lbls, pt.t, pt.h, nil)
				} else {
					ref, err = app.Append(ref, s.lbls, pt.t, pt.f)
				}
				if err != nil {
					return fmt.Errorf("%s at %d: %w", s.lbls, pt.t, err)
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// stamped appends what the replica stores, with start timestamps.
func (r *exactReplica) stamped(app storage.AppenderV2) error {
	for _, s := range r.series {
		ref := storage.SeriesRef(0)
		for _, pt := range s.points {
			var h *histogram.Histogram
			if pt.h != nil {
				h = pt.h.Copy() // an appender may keep and change what it is given
			}
			var err error
			if ref, err = app.Append(ref, s.lbls, pt.st, pt.t, pt.f, h, nil, storage.AppendV2Options{}); err != nil {
				return errors.Join(fmt.Errorf("%s at %d: %w", s.lbls, pt.t, err), app.Rollback())
			}
		}
	}
	return app.Commit()
}
