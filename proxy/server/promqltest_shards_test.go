package server

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/teststorage"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/proxy/plan/raw"
)

// layout says over which servers promqltest's loads are spread.
type layout struct {
	name                     string
	groups, shards, replicas int
	// gaps are what replicas lose.
	gaps gaps
	// heartbeat gives each server a series by which the proxy sees that it is whole: it misses what
	// the server misses.
	heartbeat bool
}

type gaps int

const (
	noGaps gaps = iota
	// spliceable gaps are anywhere, of one replica of a shard at a time, chosen as
	// promqltest_gaps_test.go says.
	spliceableGaps
	// clockGaps are those of clockDown. The last replica has none.
	clockGaps
)

// clockDown tells whether a server misses the scrape at t: always at the same times, since what the
// proxy has found out about whole replicas outlives a `clear`.
func clockDown(slice, replica int, t int64) bool {
	const minute, period = 60_000, 20 * 60_000
	switch at := ((t+int64(slice)*7*minute)%period + period) % period; replica {
	case 0:
		return at >= 3*minute && at < 9*minute
	case 1:
		return at >= 12*minute+1000 && at < 16*minute
	}
	return false
}

// beatName is the heartbeat's metric. The servers show it to nobody who does not ask for it by
// name, so that no expectation of a file meets it.
const beatName = "spillway_test_heartbeat"

// beatEveryMs is the distance of two heartbeats.
const beatEveryMs = 15_000

// layoutFeatures are the flags of promqltest's own engine (promqltest.NewTestEngine).
var layoutFeatures = []string{
	"promql-experimental-functions", "promql-extended-range-selectors", "promql-binop-fill-modifiers", "promql-delayed-name-removal",
	"use-start-timestamps",
}

// spread is a proxy over running servers whose storages are exchanged at every `clear`: the
// servers, and what the proxy knows of them, stay.
type spread struct {
	layout
	s      *Server
	base   string
	metric func(name string, want ...string) float64
	slices [][]*serverStore // by slice, replica
	seed   uint64

	loads, left int          // samples for servers, and those of them that fell into a gap
	spliced     atomic.Int64 // series that raw put together from several replicas
}

// newSpread starts the servers and the proxy.
func newSpread(t *testing.T, l layout, seed uint64) *spread {
	t.Helper()
	w := &spread{layout: l, seed: seed}
	var cfg strings.Builder
	cfg.WriteString("groups:\n")
	for g := range l.groups {
		fmt.Fprintf(&cfg, "  - name: g%d\n    replica_labels: [prometheus_replica]\n", g)
		if l.heartbeat {
			fmt.Fprintf(&cfg, "    heartbeat: %s\n", beatName)
		}
		cfg.WriteString("    shards:\n")
		for range l.shards {
			cfg.WriteString("      - replicas:\n")
			var replicas []*serverStore
			for r := range l.replicas {
				slice := len(w.slices)
				store := &serverStore{beats: l.heartbeat, down: func(t int64) bool { return l.gaps == clockGaps && clockDown(slice, r, t) }}
				o := localprom.Options{DisableWAL: true, Read: store, Features: layoutFeatures}
				if l.replicas > 1 {
					o.ExternalLabels = labels.FromStrings("prometheus_replica", string(rune('a'+r)))
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
				fmt.Fprintf(&cfg, "          - {url: %q}\n", p.URL())
				replicas = append(replicas, store)
			}
			w.slices = append(w.slices, replicas)
		}
	}
	// The files' ranges, selectors and steps are their own; Prometheus' 11,000 points stay.
	cfg.WriteString("limits: {unselective: allow, max_range: 10000d, max_query_bytes: 1MiB, timeout: 1m}\n")
	w.s, w.base = startProxy(t, t.Context(), cfg.String())
	w.s.observe = func(sel raw.Selected) {
		for _, segments := range sel.Series {
			if len(segments) > 1 {
				w.spliced.Add(1)
			}
		}
	}
	r := &rig{t: t, s: w.s}
	w.metric = r.metric
	r.eventually("every server's facts are read", func() bool {
		for _, g := range w.s.state.Load().top.Groups {
			for _, sh := range g.Shards {
				for _, p := range sh.Replicas {
					if !p.Engine().Known || p.Engine().Features == nil || !p.Clean() {
						return false
					}
				}
			}
		}
		return true
	})
	return w
}

// open is promqltest's newStorage: empty storages for all servers and for the reference. name tells
// the places of a file apart, so that the same ones have the same gaps whatever runs before; p is
// what the file does there, where gaps are chosen by it.
func (w *spread) open(t testing.TB, name string, p *preview) storage.Storage {
	t.Helper()
	l := &loaded{w: w, whole: emptyStorage(t)}
	for i, replicas := range w.slices {
		down := func(r int, t int64) bool { return replicas[r].down(t) }
		if w.gaps == spliceableGaps {
			h := fnv.New64a()
			fmt.Fprintf(h, "%s %d", name, i)
			down = chooseGaps(p, rand.New(rand.NewPCG(w.seed, h.Sum64())), func(ls labels.Labels) bool { return w.sliceOf(ls) == i }).down
		}
		l.down = append(l.down, down)
		for _, r := range replicas {
			db := emptyStorage(t)
			l.dbs = append(l.dbs, db)
			r.swap(db)
		}
	}
	return l
}

// sliceOf is the slice that holds a series.
func (w *spread) sliceOf(ls labels.Labels) int { return int(ls.Hash() % uint64(len(w.slices))) }

// emptyStorage is a storage as promqltest.RunBuiltinTests opens it: chunks that keep start
// timestamps.
func emptyStorage(t testing.TB) *teststorage.TestStorage {
	t.Helper()
	db, err := teststorage.NewWithError(func(o *tsdb.Options) {
		o.EnableSTStorage = true
		o.FloatChunkEncoding = chunkenc.EncXOR2
		o.EnableHistogramSTEncoding = true
		o.WALSegmentSize = -1 // hundreds of them are opened: what is not needed is left out
		o.StripeSize = 1 << 9
		o.HeadChunksWriteBufferSize = chunks.MinWriteBufferSize
	})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// loaded is what promqltest holds between two `clear`s: it writes every load to the reference and
// to the servers.
type loaded struct {
	w     *spread
	whole *teststorage.TestStorage // everything, for the reference
	dbs   []*teststorage.TestStorage
	down  []func(replica int, t int64) bool // by slice
}

var _ storage.Storage = (*loaded)(nil)

// Querier reads the whole.
func (l *loaded) Querier(mint, maxt int64) (storage.Querier, error) {
	return l.whole.Querier(mint, maxt)
}

// ChunkQuerier reads the whole.
func (l *loaded) ChunkQuerier(mint, maxt int64) (storage.ChunkQuerier, error) {
	return l.whole.ChunkQuerier(mint, maxt)
}

// Appender is not used by promqltest.
func (*loaded) Appender(context.Context) storage.Appender {
	panic("promqltest appends with AppenderV2")
}

// AppenderV2 collects a load.
func (l *loaded) AppenderV2(context.Context) storage.AppenderV2 { return &spreader{l: l} }

// StartTime is the whole's.
func (l *loaded) StartTime() (int64, error) { return l.whole.StartTime() }

// Close takes the storages from the servers and closes them.
func (l *loaded) Close() error {
	for _, replicas := range l.w.slices {
		for _, r := range replicas {
			r.swap(nil)
		}
	}
	errs := []error{l.whole.Close()}
	for _, db := range l.dbs {
		errs = append(errs, db.Close())
	}
	return errors.Join(errs...)
}

// loadedSample is one sample of a load, with its start timestamp.
type loadedSample struct {
	ls    labels.Labels
	st, t int64
	f     float64
	h     *histogram.Histogram
	fh    *histogram.FloatHistogram
}

func (s *loadedSample) append(app storage.AppenderV2) error {
	h, fh := s.h, s.fh // an appender may keep and change what it is given
	if h != nil {
		h = h.Copy()
	}
	if fh != nil {
		fh = fh.Copy()
	}
	_, err := app.Append(0, s.ls, s.st, s.t, s.f, h, fh, storage.AppendV2Options{})
	return err
}

// stale tells whether the sample is a staleness marker.
func (s *loadedSample) stale() bool {
	return s.h == nil && s.fh == nil && value.IsStaleNaN(s.f) || s.h != nil && value.IsStaleNaN(s.h.Sum) ||
		s.fh != nil && value.IsStaleNaN(s.fh.Sum)
}

// collector is an appender that keeps what it is given.
type collector struct{ samples []loadedSample }

// Append implements storage.AppenderV2.
func (c *collector) Append(_ storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram,
	fh *histogram.FloatHistogram, _ storage.AppendV2Options,
) (storage.SeriesRef, error) {
	c.samples = append(c.samples, loadedSample{ls, st, t, v, h, fh})
	return 0, nil
}

// Rollback implements storage.AppenderV2.
func (c *collector) Rollback() error {
	c.samples = nil
	return nil
}

// spreader is the appender of one load.
type spreader struct {
	collector
	l *loaded
}

// Commit writes the load: all of it to the reference, to each replica its slice's part without what
// falls into its gaps.
func (s *spreader) Commit() error {
	if err := commit(s.l.whole, s.samples, func(*loadedSample) bool { return true }); err != nil {
		return err
	}
	w, n := s.l.w, 0
	for i := range w.slices {
		for r := range w.slices[i] {
			err := commit(s.l.dbs[n], s.samples, func(x *loadedSample) bool {
				if w.sliceOf(x.ls) != i {
					return false
				}
				w.loads++
				if s.l.down[i](r, x.t) {
					w.left++
					return false
				}
				return true
			})
			if err != nil {
				return err
			}
			n++
		}
	}
	return nil
}

func commit(db *teststorage.TestStorage, samples []loadedSample, keep func(*loadedSample) bool) error {
	app := db.AppenderV2(context.Background())
	for i := range samples {
		if !keep(&samples[i]) {
			continue
		}
		if err := samples[i].append(app); err != nil {
			return errors.Join(err, app.Rollback())
		}
	}
	return app.Commit()
}

// serverStore is what one server reads: a storage that is exchanged while the server runs, at first
// none.
type serverStore struct {
	beats bool               // it has the heartbeat
	down  func(t int64) bool // which scrapes the heartbeat missed
	mu    sync.Mutex
	held  *heldStorage
}

var _ storage.SampleAndChunkQueryable = (*serverStore)(nil)

// heldStorage counts who reads it: a TSDB must not be closed before.
type heldStorage struct {
	storage.Storage
	readers sync.WaitGroup
}

// swap puts another storage in place, nil for an empty one, and returns when nobody reads the last
// one any more.
func (s *serverStore) swap(next *teststorage.TestStorage) {
	var held *heldStorage
	if next != nil {
		held = &heldStorage{Storage: next}
	}
	s.mu.Lock()
	last := s.held
	s.held = held
	s.mu.Unlock()
	if last != nil {
		last.readers.Wait()
	}
}

func (s *serverStore) hold() *heldStorage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != nil {
		s.held.readers.Add(1)
	}
	return s.held
}

// Querier implements storage.Queryable.
func (s *serverStore) Querier(mint, maxt int64) (storage.Querier, error) {
	held := s.hold()
	if held == nil {
		return &serverQuerier{Querier: storage.NoopQuerier(), s: s, mint: mint, maxt: maxt, done: func() {}}, nil
	}
	q, err := held.Querier(mint, maxt)
	if err != nil {
		held.readers.Done()
		return nil, err
	}
	return &serverQuerier{Querier: q, s: s, mint: mint, maxt: maxt, done: sync.OnceFunc(held.readers.Done)}, nil
}

// ChunkQuerier implements storage.ChunkQueryable.
func (s *serverStore) ChunkQuerier(mint, maxt int64) (storage.ChunkQuerier, error) {
	held := s.hold()
	if held == nil {
		return storage.NoopChunkedQuerier(), nil
	}
	q, err := held.ChunkQuerier(mint, maxt)
	if err != nil {
		held.readers.Done()
		return nil, err
	}
	return &serverChunkQuerier{ChunkQuerier: q, done: sync.OnceFunc(held.readers.Done)}, nil
}

type serverChunkQuerier struct {
	storage.ChunkQuerier
	done func()
}

// Close implements storage.ChunkQuerier.
func (q *serverChunkQuerier) Close() error {
	defer q.done()
	return q.ChunkQuerier.Close()
}

type serverQuerier struct {
	storage.Querier
	s          *serverStore
	mint, maxt int64
	done       func()
}

// Close implements storage.Querier.
func (q *serverQuerier) Close() error {
	defer q.done()
	return q.Querier.Close()
}

// Select implements storage.Querier. The heartbeat is there for whoever asks for it by name, at all
// times.
func (q *serverQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	if q.s.beats {
		for _, m := range ms {
			if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual && m.Value == beatName {
				return &listSet{series: []storage.Series{q.s.beat(q.mint, q.maxt)}, at: -1}
			}
		}
	}
	return q.Querier.Select(ctx, sorted, hints, ms...)
}

// beat is the heartbeat's series.
func (s *serverStore) beat(mint, maxt int64) storage.Series {
	var samples []chunks.Sample
	for t := (mint + beatEveryMs - 1) / beatEveryMs * beatEveryMs; t <= maxt; t += beatEveryMs {
		if !s.down(t) {
			samples = append(samples, point{t: t, f: 1})
		}
	}
	return storage.NewListSeries(labels.FromStrings(model.MetricNameLabel, beatName, "job", "j"), samples)
}
