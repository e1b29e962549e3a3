package soak

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// whole is a database without the scrape_ series, of which the first of a window differ: no rule
// reads them.
type whole struct {
	storage.Appendable
	storage.Queryable
}

func (w whole) scraper() storage.Appendable { return w }

func (w whole) Querier(mint, maxt int64) (storage.Querier, error) {
	q, err := w.Queryable.Querier(mint, maxt)
	return inOrderQuerier{q}, err
}

// inOrderQuerier gives series in the order of labels, as the store does: sums depend on it.
type inOrderQuerier struct{ storage.Querier }

func (q inOrderQuerier) Select(ctx context.Context, _ bool, h *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	return q.Querier.Select(ctx, true, h, ms...)
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
	o.parser = func() parser.Parser { return parser.NewParser(parser.Options{}) }
	o.workers, o.window = 1, time.Hour
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
		f.settle()
		for _, x := range f.series {
			for _, p := range x.points {
				if v, ok := all[x.lset.String()][p.t]; !ok || v != math.Float64bits(p.v) {
					t.Fatalf("%s at %d is %v, and the long way %v (there: %v)", x.lset, p.t, p.v, math.Float64frombits(v), ok)
				}
				samples++
			}
		}
	}
	t.Logf("%d samples are equal, %d alerts", samples, len(a.Fired))
}

// TestStoreFindsWhatIsThere: what is read is what was written and not forgotten, in the order of
// labels, whether series come, go or come back under a reference that is still held.
func TestStoreFindsWhatIsThere(t *testing.T) {
	rnd := rand.New(rand.NewPCG(randseed.Of(t, *seed), 2))
	s := newStore(map[string]time.Duration{"a": 0})
	keep := (lookback + 2*time.Minute).Milliseconds()
	type held struct {
		ref    storage.SeriesRef
		lset   labels.Labels
		points []point
	}
	var series []*held
	for n := range 40 {
		series = append(series, &held{lset: labels.FromStrings("__name__", "a", "x", strconv.Itoa(n), "odd", strconv.Itoa(n%2))})
	}
	scraper := s.scraper()
	matchers := []*labels.Matcher{
		labels.MustNewMatcher(labels.MatchEqual, "__name__", "a"), labels.MustNewMatcher(labels.MatchEqual, "odd", "1"),
	}
	back, seen := 0, 0
	for now := int64(1_000_000); now < 20_000_000; now += 60_000 {
		app := scraper.Appender(t.Context())
		for n, h := range series {
			if now/600_000%3 == int64(n%3) || rnd.IntN(3) == 0 { // some are away for ten minutes at least
				continue
			}
			if h.ref > 0 && len(h.points) == 0 {
				back++
			}
			var err error
			if h.ref, err = app.Append(h.ref, h.lset, now, rnd.Float64()); err != nil {
				t.Fatal(err)
			}
			x := s.families["a"].find(h.lset)
			h.points = append(h.points, x.points[len(x.points)-1])
		}
		from, until := now-rnd.Int64N(keep-120_000), now-rnd.Int64N(60_000)
		q, err := s.Querier(from, until)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string][]point{}
		for n, h := range series {
			for _, p := range h.points {
				if n%2 == 1 && p.t >= from && p.t <= until {
					want[h.lset.String()] = append(want[h.lset.String()], p)
				}
			}
		}
		set := q.Select(t.Context(), false, nil, matchers...)
		last := labels.EmptyLabels()
		for set.Next() {
			x := set.At()
			if labels.Compare(last, x.Labels()) >= 0 {
				t.Fatalf("%s comes after %s", x.Labels(), last)
			}
			last = x.Labels()
			var got []point
			for it := x.Iterator(nil); it.Next() == chunkenc.ValFloat; seen++ {
				at, v := it.At()
				got = append(got, point{at, v})
			}
			if !slices.Equal(got, want[last.String()]) {
				t.Fatalf("%s from %d to %d is %v, want %v", last, from, until, got, want[last.String()])
			}
			delete(want, last.String())
		}
		if len(want) > 0 {
			t.Fatalf("%d series are missing from %d to %d", len(want), from, until)
		}
		if rnd.IntN(4) == 0 {
			s.forget(time.UnixMilli(now))
			for _, h := range series {
				h.points = slices.DeleteFunc(h.points, func(p point) bool { return p.t < now-keep })
			}
		}
	}
	if back == 0 || seen == 0 {
		t.Errorf("%d series came back, %d samples were read: the test looks at nothing", back, seen)
	}
}
