package raw

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// point is a sample of a heldCopy at a time in milliseconds.
type point struct {
	t int64
	v float64
}

var stale = math.Float64frombits(value.StaleNaN)

// heldCopy holds series and answers as a server does: with the chunks that reach into the window,
// whole.
type heldCopy struct {
	name    string
	perChnk int // samples
	series  map[string][]point
	err     error

	mu    sync.Mutex
	asked []string // the windows, in seconds, and up: where it was that
}

func (c *heldCopy) Name() string { return c.name }

func (c *heldCopy) Read(_ context.Context, q Query, emit func([]prompb.Label, []prompb.Chunk) error) error {
	of := ""
	if strings.Contains(fmt.Sprint(q.Matchers), "up") {
		of = "up:"
	}
	c.mu.Lock()
	c.asked = append(c.asked, fmt.Sprintf("%s%d-%d", of, q.From/1000, q.Until/1000))
	c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	var names []string
	for name := range c.series {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		lbls := []prompb.Label{{Name: "__name__", Value: name}, {Name: "instance", Value: "a"}, {Name: "job", Value: "j"}}
		if !selected(lbls, q.Matchers) {
			continue
		}
		var chunks []prompb.Chunk
		for some := range slices.Chunk(c.series[name], c.perChnk) {
			if some[len(some)-1].t < q.From || some[0].t > q.Until {
				continue
			}
			chk := chunkenc.NewXORChunk()
			app, err := chk.Appender()
			if err != nil {
				return err
			}
			for _, p := range some {
				app.Append(0, p.t, p.v)
			}
			first, last := some[0].t, some[len(some)-1].t
			chunks = append(chunks, prompb.Chunk{Type: prompb.Chunk_XOR, MinTimeMs: first, MaxTimeMs: last, Data: chk.Bytes()})
		}
		if len(chunks) == 0 {
			continue
		}
		if err := emit(lbls, chunks); err != nil {
			return err
		}
	}
	return nil
}

// cut is a stretch in seconds in which a copy has nothing, with the marker that its server may have
// written when it stopped, and for up what it may have found instead.
type cut struct {
	from, until int64
	marker      bool
	failed      bool // it was cut off from its targets
}

// scraped is what a copy has of a series: a sample each 15 s, with a little jitter, but in its
// cuts.
func scraped(rng *rand.Rand, name string, phase, until int64, cuts []cut) []point {
	var out []point
	was := -1
	for at := phase; at <= until; at += 15 {
		t := at*1000 + rng.Int64N(300)
		in := slices.IndexFunc(cuts, func(c cut) bool { return c.from <= at && at < c.until })
		switch {
		case in < 0 && name == "up":
			out = append(out, point{t, 1})
		case in < 0:
			out = append(out, point{t, float64(t)})
		case cuts[in].failed && name == "up":
			out = append(out, point{t, 0})
		case in != was && (cuts[in].failed || cuts[in].marker):
			out = append(out, point{t, stale})
		}
		was = in
	}
	return out
}

// TestStretchesAreWoven: what is read of the other copies in the stretches alone that the base
// lacks something in makes the same of all series as all that they hold.
func TestStretchesAreWoven(t *testing.T) {
	rng := rand.New(rand.NewPCG(randseed.Of(t, 0), 3))
	const end = 6 * 3600
	filled, fewer := 0, 0
	for n := range 300 {
		var cuts []cut
		for at := rng.Int64N(3000); at < end && len(cuts) < 1+n%4; at += 300 + rng.Int64N(9000) {
			c := cut{from: at, until: at + 30 + rng.Int64N(2000), marker: rng.IntN(2) == 0, failed: rng.IntN(3) == 0}
			at = c.until
			cuts = append(cuts, c)
		}
		copies := make([]Copy, 2+n%2)
		for i := range copies {
			c := &heldCopy{name: string(rune('a' + i)), perChnk: 3 + rng.IntN(118), series: map[string][]point{}}
			for _, name := range []string{"up", "m", "scrape_samples_scraped", "of_a", "of_others"} {
				own := cuts
				if i > 0 {
					own = nil
				}
				if i == 1 && len(copies) == 3 { // the third fills what the second leaves open
					mid := (cuts[0].from + cuts[0].until) / 2
					own = []cut{{from: mid, until: mid + 100}}
				}
				if name == "of_a" && i > 0 || name == "of_others" && i == 0 {
					continue
				}
				c.series[name] = scraped(rng, name, int64(5*i), end, own)
			}
			if i > 0 { // of this one the base has nothing anywhere: it is asked about it where it lacks something
				c.series["of_others"] = slices.DeleteFunc(c.series["of_others"], func(p point) bool {
					return !slices.ContainsFunc(cuts, func(c cut) bool { return c.from*1000 <= p.t && p.t < c.until*1000 })
				})
			}
			copies[i] = c
		}
		var lacking []Stretch
		for _, c := range cuts {
			s := Stretch{max(0, c.from-300) * 1000, (c.until + 300) * 1000}
			if k := len(lacking); k > 0 && lacking[k-1].Until >= s.From {
				lacking[k-1].Until = s.Until
				continue
			}
			lacking = append(lacking, s)
		}
		read := func(lacking []Stretch) (string, int64) {
			meter, samples := &countingMeter{}, int64(0)
			var mu sync.Mutex
			s := slice("s", math.MinInt64, math.MaxInt64, copies...)
			s.Lacking = lacking
			legs := func(context.Context, int64, int64, []*labels.Matcher) ([]Leg, error) { return []Leg{{Slice: s}}, nil }
			q := &Queryable{Meter: meter, Legs: legs, Read: func(f Fetched) {
				mu.Lock()
				defer mu.Unlock()
				samples += f.Samples
			}}
			got, err := q.Series(t.Context(), 0, end*1000, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			for _, one := range got {
				fmt.Fprintf(&out, "%s:", one.Labels())
				it := one.Iterator(nil)
				for it.Next() != chunkenc.ValNone {
					ts, v := it.At()
					fmt.Fprintf(&out, " %d=%x", ts, math.Float64bits(v))
				}
				if it.Err() != nil {
					t.Fatal(it.Err())
				}
				out.WriteByte('\n')
			}
			return out.String(), samples
		}
		whole, all := read(nil)
		got, some := read(lacking)
		if got != whole {
			t.Fatalf("%d: cuts %v, lacking %v\ngot  %s\nwant %s", n, cuts, lacking, got, whole)
		}
		if strings.Contains(whole, "of_others") {
			filled++
		}
		if some < all*3/4 {
			fewer++
		}
	}
	if filled < 250 || fewer < 150 {
		t.Errorf("%d of 300 had something filled, %d read less than three quarters", filled, fewer)
	}
}

// TestStretchesAreAsked: the base is asked for the window, the others for the stretches, up too;
// where the base fails the others are asked for all.
func TestStretchesAreAsked(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	cuts := []cut{{from: 3600, until: 4000, marker: true}, {from: 9000, until: 9100}}
	lacking := []Stretch{{3_300_000, 4_300_000}, {8_700_000, 9_400_000}}
	for _, tc := range []struct {
		name     string
		fails    int // which copy
		a, b     string
		segments string
		bad      bool
		again    bool
	}{
		{
			"both answer", -1, "[0-20000 up:3300-4300]", "[3300-4300 8700-9400 up:3300-4300]",
			"a 0-3585, b 3605-3995, a 4005-8985, b 9005-9095, a 9105-20000", false, true,
		},
		{"the base fails", 0, "[0-20000]", "[3300-4300 8700-9400 0-20000]", "b 0-20000", false, true},
		{"and may not be asked again", 0, "[0-20000]", "[3300-4300 8700-9400]", "", true, false},
		{"the other fails", 1, "[0-20000]", "[3300-4300]", "a 0-20000", false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			held := func(name string, phase int64, cuts []cut) *heldCopy {
				c := &heldCopy{name: name, perChnk: 120, series: map[string][]point{}}
				for _, metric := range []string{"m", "up"} {
					c.series[metric] = scraped(rng, metric, phase, 20_000, cuts)
				}
				return c
			}
			a, b := held("a", 0, cuts), held("b", 5, nil)
			if tc.fails >= 0 {
				[]*heldCopy{a, b}[tc.fails].err = qerr.New(qerr.ShardFailed, "down")
			}
			s := slice("s", math.MinInt64, math.MaxInt64, a, b)
			s.Lacking = lacking
			meter := &countingMeter{}
			var segments []string
			q := &Queryable{
				Meter: meter, Legs: func(_ context.Context, _, _ int64, ms []*labels.Matcher) ([]Leg, error) {
					return []Leg{{Slice: s, Matchers: ms}}, nil
				},
				Again: func(_, _ string, _ error) bool { return tc.again },
				Observe: func(o Selected) {
					for _, of := range o.Series {
						for _, seg := range of {
							segments = append(segments, fmt.Sprintf("%s %d-%d", seg.Copy, seg.From/1000, seg.Until/1000))
						}
					}
				},
			}
			m := labels.MustNewMatcher(labels.MatchEqual, "__name__", "m")
			_, err := q.Series(t.Context(), 0, 20_000_000, nil, []*labels.Matcher{m})
			if (err != nil) != tc.bad {
				t.Fatal(err)
			}
			if tc.bad && meter.held != 0 {
				t.Errorf("%d bytes are held after it failed", meter.held)
			}
			if got := fmt.Sprint(a.asked); got != tc.a {
				t.Errorf("a was asked %s, want %s", got, tc.a)
			}
			if got := fmt.Sprint(b.asked); got != tc.b {
				t.Errorf("b was asked %s, want %s", got, tc.b)
			}
			if got := strings.Join(segments, ", "); got != tc.segments {
				t.Errorf("segments %s, want %s", got, tc.segments)
			}
		})
	}
}
