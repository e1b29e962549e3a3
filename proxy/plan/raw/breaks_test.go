package raw

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

func legsOf(s *Slice) func(context.Context, int64, int64, []*labels.Matcher) ([]Leg, error) {
	return func(_ context.Context, _, _ int64, ms []*labels.Matcher) ([]Leg, error) {
		return []Leg{{Slice: s, Matchers: ms}}, nil
	}
}

// TestCopiesThatBreakOff: what a copy sent before it failed is in no answer, and its room is given
// back once.
func TestCopiesThatBreakOff(t *testing.T) {
	down := qerr.New(qerr.ShardFailed, "down")
	const want = `{__name__="m", cluster="jaguar", n="1"}: 7 22 37`
	a := &fakeCopy{name: "a", series: []string{"m{n=1}: 0 15 30", "only_a{n=1}: 0 15 30"}, err: down}
	b := &fakeCopy{name: "b", series: []string{"m{n=1}: 5 20", "only_b{n=1}: 5 20"}, err: down}
	c := &fakeCopy{name: "c", series: []string{"m{n=1}: 7 22 37"}}
	alone := &countingMeter{}
	q := &Queryable{Meter: alone, Legs: legsOf(slice("s", math.MinInt64, math.MaxInt64, c))}
	if got, err := fetchText(t, q, 0, 40); err != nil || got != want {
		t.Fatalf("%v %q", err, got)
	}
	for _, lacking := range [][]Stretch{nil, {{10_000, 20_000}}} {
		for _, copies := range [][]Copy{{a, c}, {a, b, c}, {b, c, a}} {
			s := slice("s", math.MinInt64, math.MaxInt64, copies...)
			s.Lacking, s.Known = lacking, len(lacking) > 0
			meter := &countingMeter{}
			used := map[string]bool{}
			q := &Queryable{Meter: meter, Legs: legsOf(s), Used: func(_ string, names, _ []string) {
				for _, name := range names {
					used[name] = true
				}
			}}
			got, err := fetchText(t, q, 0, 40)
			if err != nil || got != want || meter.held != alone.held || len(used) != 1 || !used["c"] {
				t.Errorf("%d copies, lacking %v: %v %q of %v, held %d, want %d", len(copies), lacking, err, got, used, meter.held, alone.held)
			}
		}
	}
}

// every15 are samples 15 s apart, in seconds.
func every15(phase, from, until int64, v float64) (out []point) {
	for t := from + phase; t < until; t += 15 {
		out = append(out, point{t * 1000, v})
	}
	return out
}

// readText are the samples of m.
func readText(t *testing.T, s *Slice, from, until int64) string {
	t.Helper()
	q := &Queryable{Meter: &countingMeter{}, Legs: legsOf(s)}
	m := labels.MustNewMatcher(labels.MatchEqual, "__name__", "m")
	got, err := q.Series(t.Context(), from*1000, until*1000, nil, []*labels.Matcher{m})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, one := range got {
		it := one.Iterator(nil)
		for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
			if typ == chunkenc.ValFloat {
				ts, v := it.At()
				fmt.Fprintf(&out, " %d=%v", ts/1000, v)
			} else {
				ts, h := it.AtFloatHistogram(nil)
				fmt.Fprintf(&out, " %d=%v", ts/1000, h.Count)
			}
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
	}
	return out.String()
}

// TestMarkerBehindAStretch: a series that ends on both replicas just behind a stretch, while its
// target lives on, and is back an hour later, in another chunk, has ended.
func TestMarkerBehindAStretch(t *testing.T) {
	for _, after := range []int64{1, 5, 14} { // the stretch ends so long before the marker
		build := func() []Copy {
			var cs []Copy
			for i, name := range []string{"a", "b"} {
				ph := int64(5 * i)
				m := every15(ph, 0, 3015, 1)
				m = append(m, point{(3015 + ph) * 1000, stale})
				if len(m) != 202 {
					t.Fatal(len(m))
				}
				m = append(m, every15(ph, 7200, 9000, 1)...)
				if i == 0 { // the base's gap that the stretch is about
					var kept []point
					for _, p := range m {
						if p.t < 1800_000 || p.t >= 2400_000 {
							kept = append(kept, p)
						}
					}
					m = kept
				}
				perChnk := 202
				if i == 0 {
					perChnk = 162 // up to the marker
				}
				cs = append(cs, &heldCopy{name: name, perChnk: perChnk, series: map[string][]point{"m": m, "up": every15(ph, 0, 9000, 1)}})
			}
			return cs
		}
		s := slice("s", math.MinInt64, math.MaxInt64, build()...)
		want := strings.Replace(readText(t, s, 0, 9000), " 3020=NaN", "", 1) // the other's marker behind the base's
		s.Lacking = []Stretch{{1500_000, (3015 - after) * 1000}}
		got := readText(t, s, 0, 9000)
		if got != want || !strings.Contains(got, " 3015=NaN") {
			t.Errorf("the stretch ends %d s before the marker:\n got %s\nwant %s", after, got, want)
		}
	}
}

// histCopy has histograms in chunks of those times, in seconds.
type histCopy struct {
	name   string
	chunks [][]int64
}

func (c *histCopy) Name() string { return c.name }
func (c *histCopy) Read(_ context.Context, q Query, emit func([]prompb.Label, []prompb.Chunk) error) error {
	var chunks []prompb.Chunk
	for _, ts := range c.chunks {
		var kept []int64
		for _, s := range ts { // as a server does: cut at the window
			if s*1000 >= q.From && s*1000 <= q.Until {
				kept = append(kept, s)
			}
		}
		if len(kept) == 0 {
			continue
		}
		chk := chunkenc.NewFloatHistogramChunk()
		app, _ := chk.Appender()
		for _, s := range kept {
			h := tsdbutil.GenerateTestFloatHistogram(1)
			h.CounterResetHint = histogram.GaugeType
			h.Count = float64(s)
			_, _, app2, err := app.AppendFloatHistogram(nil, 0, s*1000, h, false)
			if err != nil {
				return err
			}
			app = app2
		}
		first, last := kept[0]*1000, kept[len(kept)-1]*1000
		chunks = append(chunks, prompb.Chunk{Type: prompb.Chunk_FLOAT_HISTOGRAM, MinTimeMs: first, MaxTimeMs: last, Data: chk.Bytes()})
	}
	if len(chunks) == 0 {
		return nil
	}
	return emit([]prompb.Label{{Name: "__name__", Value: "m"}}, chunks)
}

// TestHistogramsAtTheWindowsEdge: histograms are read from before the window, also where a chunk of
// the base ends there; what lies before it is no edge.
func TestHistogramsAtTheWindowsEdge(t *testing.T) {
	var early, late, other []int64
	for s := int64(700); s < 4000; s += 60 {
		switch {
		case s < 880:
			early = append(early, s)
		case s < 1300 || s > 1900:
			late = append(late, s)
		}
		other = append(other, s+10)
	}
	s := slice("s", math.MinInt64, math.MaxInt64, &histCopy{"a", [][]int64{early, late}}, &histCopy{"b", [][]int64{other}})
	want := readText(t, s, 1005, 4000)
	s.Lacking = []Stretch{{1005_000, 2200_000}}
	if got := readText(t, s, 1005, 4000); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// tardyCopy takes its time.
type tardyCopy struct {
	*heldCopy
	d time.Duration
}

func (c *tardyCopy) Read(ctx context.Context, q Query, emit func([]prompb.Label, []prompb.Chunk) error) error {
	select {
	case <-time.After(c.d):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return c.heldCopy.Read(ctx, q, emit)
}

// TestStretchesAreWaitedFor: a copy that is read in stretches is waited for, however long they
// take.
func TestStretchesAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var base []point
		var lacking []Stretch
		for _, p := range every15(0, 0, 36000, 1) {
			if p.t%6000_000 >= 600_000 {
				base = append(base, p)
			}
		}
		for at := int64(0); at < 36000; at += 6000 {
			lacking = append(lacking, Stretch{max(0, at-300) * 1000, (at + 900) * 1000})
		}
		a := &tardyCopy{&heldCopy{name: "a", perChnk: 120, series: map[string][]point{"m": base}}, 100 * time.Millisecond}
		other := every15(5, 0, 36000, 1)
		b := &tardyCopy{&heldCopy{name: "b", perChnk: 120, series: map[string][]point{"m": other}}, 350 * time.Millisecond}
		read := func(lacking []Stretch) int {
			s := slice("s", math.MinInt64, math.MaxInt64, a, b)
			s.Lacking, s.Known = lacking, len(lacking) > 0
			q := &Queryable{Meter: &countingMeter{}, SparePatience: 300 * time.Millisecond, Legs: legsOf(s)}
			got, err := q.Series(t.Context(), 0, 36000_000, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for it := got[0].Iterator(nil); it.Next() != 0; {
				n++
			}
			return n
		}
		want, got := read(nil), read(lacking)
		if got != want {
			t.Errorf("%d samples, want %d; the base has %d", got, want, len(base))
		}
	})
}
