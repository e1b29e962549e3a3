package raw

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// fakeCopy is a copy with series in text: "a{x=1}: 0 15 30" is a series with samples at these
// seconds, whose values are their times.
type fakeCopy struct {
	name   string
	series []string
	err    error // after the series
	frames int   // chunks are sent in so many frames; 0 is one
	damage bool
}

func (c *fakeCopy) Name() string { return c.name }

func (c *fakeCopy) Read(_ context.Context, q Query, emit func([]prompb.Label, []prompb.Chunk) error) error {
	for _, text := range c.series {
		lbls, chunks := parseSeries(text)
		if c.damage {
			chunks[0].Data = chunks[0].Data[:3]
		}
		for _, part := range split(chunks, max(1, c.frames)) {
			if err := emit(lbls, part); err != nil {
				return err
			}
		}
	}
	return c.err
}

func split(chunks []prompb.Chunk, n int) [][]prompb.Chunk {
	var out [][]prompb.Chunk
	for i := range n {
		if a, b := i*len(chunks)/n, (i+1)*len(chunks)/n; a < b {
			out = append(out, chunks[a:b])
		}
	}
	return out
}

func parseSeries(text string) (lbls []prompb.Label, chunks []prompb.Chunk) {
	head, times, _ := strings.Cut(text, ": ")
	name, rest, _ := strings.Cut(strings.TrimSuffix(head, "}"), "{")
	lbls = append(lbls, prompb.Label{Name: "__name__", Value: name})
	for _, kv := range strings.Split(rest, ",") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			lbls = append(lbls, prompb.Label{Name: k, Value: v})
		}
	}
	for _, f := range strings.Fields(times) { // a chunk for each sample
		var sec int64
		fmt.Sscan(f, &sec)
		c := chunkenc.NewXORChunk()
		app, _ := c.Appender()
		app.Append(0, sec*1000, float64(sec))
		chunks = append(chunks, prompb.Chunk{Type: prompb.Chunk_XOR, MinTimeMs: sec * 1000, MaxTimeMs: sec * 1000, Data: c.Bytes()})
	}
	return lbls, chunks
}

type countingMeter struct {
	sync.Mutex
	series     int
	held, most int64
}

func (m *countingMeter) AddSeries(n int) error {
	m.Lock()
	defer m.Unlock()
	m.series += n
	return nil
}

func (m *countingMeter) Hold(n int64) error {
	m.Lock()
	defer m.Unlock()
	if m.most > 0 && m.held+n > m.most {
		return qerr.New(qerr.Overloaded, "no room")
	}
	m.held += n
	return nil
}

func (m *countingMeter) Drop(n int64) {
	m.Lock()
	defer m.Unlock()
	m.held -= n
}

func slice(name string, from, until int64, copies ...Copy) *Slice {
	return &Slice{
		Name: name, Labels: labels.FromStrings("cluster", "jaguar"), Drop: []string{"cluster", "replica"}, From: from,
		Until: until, Copies: copies,
	}
}

func fetchText(t *testing.T, q *Queryable, from, until int64) (string, error) {
	t.Helper()
	got, err := q.Series(t.Context(), from*1000, until*1000, nil, nil)
	if err != nil {
		return "", err
	}
	var out []string
	for _, s := range got {
		line := s.Labels().String() + ":"
		it := s.Iterator(nil)
		for it.Next() != chunkenc.ValNone {
			ts, v := it.At()
			if float64(ts) != v*1000 {
				t.Errorf("%s: value %v at %d", s.Labels(), v, ts)
			}
			line += fmt.Sprintf(" %d", ts/1000)
		}
		if it.Err() != nil {
			return "", it.Err()
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n"), nil
}

func TestSeries(t *testing.T) {
	const forever = math.MaxInt64
	down := qerr.New(qerr.ShardFailed, "down")
	for _, tc := range []struct {
		name   string
		slices []*Slice
		want   string
		bad    string // of the error
	}{
		{
			"group labels replace stored ones",
			[]*Slice{slice("s", math.MinInt64, forever,
				&fakeCopy{name: "a", series: []string{"up{cluster=x,node=1}: 0 15", "up{node=2,replica=b}: 0 15"}})},
			`{__name__="up", cluster="jaguar", node="1"}: 0 15` + "\n" + `{__name__="up", cluster="jaguar", node="2"}: 0 15`, "",
		},
		{
			"a series in several frames is one",
			[]*Slice{slice("s", math.MinInt64, forever, &fakeCopy{name: "a", series: []string{"up{node=1}: 0 15 30 45"}, frames: 3})},
			`{__name__="up", cluster="jaguar", node="1"}: 0 15 30 45`, "",
		},
		{"two that become equal are refused", []*Slice{slice("s", math.MinInt64, forever,
			&fakeCopy{name: "a", series: []string{"up{cluster=x}: 0", "up{replica=b}: 0"}})}, "", "label_collision"},
		{"the samples outside the slice are dropped", []*Slice{slice("s", 15_000, 45_000,
			&fakeCopy{name: "a", series: []string{"up{}: 0 15 30 45 60"}})}, `{__name__="up", cluster="jaguar"}: 15 30`, ""},
		{"a slice outside the window is not asked", []*Slice{slice("s", 100_000, forever, &fakeCopy{name: "a", err: down})}, "", ""},
		{"slices follow each other", []*Slice{
			slice("new", 30_000, forever, &fakeCopy{name: "a", series: []string{"up{}: 15 30 45"}}),
			slice("old", math.MinInt64, 30_000, &fakeCopy{name: "b", series: []string{"up{}: 0 15 30 45"}}),
		}, `{__name__="up", cluster="jaguar"}: 0 15 30 45`, ""},
		{"of slices that overlap in time the later one supplies from its start", []*Slice{
			slice("new", 30_000, forever, &fakeCopy{name: "a", series: []string{"up{}: 31 46"}}),
			slice("old", math.MinInt64, forever, &fakeCopy{name: "b", series: []string{"up{}: 0 15 30 45 60"}}),
		}, `{__name__="up", cluster="jaguar"}: 0 15 31 46`, ""},
		{"the same series on two slices of one time is merged as copies are", []*Slice{
			slice("s1", math.MinInt64, forever, &fakeCopy{name: "a", series: []string{"m{}: 0 15 60 75"}}),
			slice("s2", math.MinInt64, forever, &fakeCopy{name: "b", series: []string{"m{}: 7 22 37 52 67"}}),
		}, `{__name__="m", cluster="jaguar"}: 0 15 37 52 60 75`, ""},
		{
			"a copy that fails is left out",
			[]*Slice{slice("s", math.MinInt64, forever, &fakeCopy{name: "a", series: []string{"up{}: 0 15"}, err: down},
				&fakeCopy{name: "b", series: []string{"up{}: 1 16 31"}})},
			`{__name__="up", cluster="jaguar"}: 1 16 31`, "",
		},
		{
			"gaps are filled from the other copy",
			[]*Slice{slice("s", math.MinInt64, forever, &fakeCopy{name: "a", series: []string{"m{}: 0 15 60 75"}},
				&fakeCopy{name: "b", series: []string{"m{}: 7 22 37 52 67", "x{}: 1"}})},
			`{__name__="m", cluster="jaguar"}: 0 15 37 52 60 75` + "\n" + `{__name__="x", cluster="jaguar"}: 1`, "",
		},
		{"all copies failed", []*Slice{slice("s", math.MinInt64, forever, &fakeCopy{name: "a", err: down},
			&fakeCopy{name: "b", err: down})}, "", "down"},
		{"damaged chunks are an error", []*Slice{slice("s", math.MinInt64, forever,
			&fakeCopy{name: "a", series: []string{"up{}: 0"}, damage: true},
			&fakeCopy{name: "b", series: []string{"up{}: 0"}, damage: true})}, "", "cannot be decoded"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			meter := &countingMeter{}
			q := &Queryable{Meter: meter, Legs: func(context.Context, int64, int64, []*labels.Matcher) ([]Leg, error) {
				var legs []Leg
				for _, s := range tc.slices {
					legs = append(legs, Leg{Slice: s})
				}
				return legs, nil
			}}
			got, err := fetchText(t, q, 0, 90)
			if tc.bad != "" {
				var e *qerr.Error
				if err == nil || !strings.Contains(err.Error(), tc.bad) && !(errors.As(err, &e) && e.Bound == tc.bad) {
					t.Fatalf("got %q, %v; want an error with %q", got, err, tc.bad)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("%v\ngot  %s\nwant %s", err, got, tc.want)
			}
		})
	}
}

func TestNoRoomIsARefusal(t *testing.T) {
	meter := &countingMeter{most: 400}
	s := slice("s", math.MinInt64, math.MaxInt64, &fakeCopy{name: "a", series: []string{"up{node=1}: 0 15 30", "up{node=2}: 0 15 30"}},
		&fakeCopy{name: "b", series: []string{"up{}: 0"}})
	q := &Queryable{Meter: meter, Legs: func(context.Context, int64, int64, []*labels.Matcher) ([]Leg, error) {
		return []Leg{{Slice: s}},
			nil
	}}
	_, err := fetchText(t, q, 0, 90)
	if e := qerr.From(err); err == nil || e.Kind != qerr.Overloaded {
		t.Errorf("got %v", err)
	}
}

func TestALostSliceIsForTheCallerToDecide(t *testing.T) {
	s := slice("jaguar[0]", math.MinInt64, math.MaxInt64, &fakeCopy{name: "a", err: qerr.New(qerr.ShardFailed, "down")})
	var lost []string
	q := &Queryable{
		Meter: &countingMeter{},
		Legs:  func(context.Context, int64, int64, []*labels.Matcher) ([]Leg, error) { return []Leg{{Slice: s}}, nil },
		Lost:  func(name string, err error) error { lost = append(lost, name); return nil },
	}
	if got, err := fetchText(t, q, 0, 90); got != "" || err != nil || len(lost) != 1 || lost[0] != "jaguar[0]" {
		t.Errorf("%q %v %v", got, err, lost)
	}
}

// Seeking lands where walking would.
func TestSeek(t *testing.T) {
	s := slice("s", math.MinInt64, math.MaxInt64, &fakeCopy{name: "a", series: []string{"up{}: 0 15 60 75 90"}},
		&fakeCopy{name: "b", series: []string{"up{}: 7 22 37 52 67 82"}})
	q := &Queryable{
		Meter: &countingMeter{},
		Legs:  func(context.Context, int64, int64, []*labels.Matcher) ([]Leg, error) { return []Leg{{Slice: s}}, nil },
	}
	got, err := q.Series(t.Context(), 0, 90_000, nil, nil)
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	var times []int64
	it := got[0].Iterator(nil)
	for it.Next() != chunkenc.ValNone {
		times = append(times, it.AtT())
	}
	for at := int64(-1000); at < 100_000; at += 500 {
		it = got[0].Iterator(it)
		want := int64(-1)
		for _, ts := range times {
			if ts >= at {
				want = ts
				break
			}
		}
		typ := it.Seek(at)
		if (typ == chunkenc.ValNone) != (want < 0) || typ != chunkenc.ValNone && it.AtT() != want {
			t.Fatalf("Seek(%d) = %v at %d, want %d", at, typ, it.AtT(), want)
		}
		if typ == chunkenc.ValNone {
			continue
		}
		if again := it.Seek(at); again != typ || it.AtT() != want {
			t.Fatalf("a second Seek(%d) moved", at)
		}
		if it.Next() != chunkenc.ValNone && it.AtT() <= want {
			t.Fatalf("Next after Seek(%d) went to %d", at, it.AtT())
		}
	}
}

// TestCutChunksNameTheirCopy: a chunk that ends before its samples do, and looks sound from
// outside, is the failure of the copy that sent it.
func TestCutChunksNameTheirCopy(t *testing.T) {
	whole := chunkenc.NewXORChunk()
	app, err := whole.Appender()
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(40) {
		app.Append(0, i*15_000, float64(i*i))
	}
	c := prompb.Chunk{Type: prompb.Chunk_XOR, MinTimeMs: math.MinInt64, MaxTimeMs: math.MaxInt64, Data: whole.Bytes()[:whole.NumSamples()]}
	if err := checkChunk(&c); err != nil {
		t.Fatalf("it is seen from outside: %v", err)
	}
	s := &series{parts: []part{{Segment{"s", "s (10.0.0.1:9090)", math.MinInt64, math.MaxInt64}, []prompb.Chunk{c}}}}
	it := s.Iterator(nil)
	for it.Next() != chunkenc.ValNone {
		continue
	}
	var e *qerr.Error
	if err := it.Err(); !errors.As(err, &e) || e.Kind != qerr.ShardFailed || !slices.Equal(e.Shards, []string{"s (10.0.0.1:9090)"}) {
		t.Errorf("%+v", err)
	}
	c.Data = append([]byte{0xff, 0xff}, c.Data[2:]...)
	if err := checkChunk(&c); err == nil || !strings.Contains(err.Error(), "65535 samples") {
		t.Errorf("a chunk that says more than it can hold: %v", err)
	}
}

var _ storage.Queryable = (*Queryable)(nil)

// FuzzStamps holds the splice to its promise that damaged data is an error, never a crash.
func FuzzStamps(f *testing.F) {
	_, chunks := parseSeries("up{}: 0 15 30")
	f.Add(byte(prompb.Chunk_XOR), chunks[0].Data)
	f.Add(byte(prompb.Chunk_HISTOGRAM), []byte{0, 1, 2, 3})
	f.Add(byte(prompb.Chunk_FLOAT_HISTOGRAM), []byte{0, 1, 200, 3, 9, 9, 9, 9})
	f.Fuzz(func(t *testing.T, typ byte, data []byte) {
		if len(data) > 4096 {
			return
		}
		c := prompb.Chunk{Type: prompb.Chunk_Encoding(typ), MinTimeMs: math.MinInt64, MaxTimeMs: math.MaxInt64, Data: data}
		if checkChunk(&c) == nil {
			_, _ = stamps([]prompb.Chunk{c}, math.MinInt64, math.MaxInt64, 0, false, nil)
		}
	})
}

// What real histograms announce passes; what a few hostile bytes announce does not.
// One sample is one, whatever a chunk says beside it of counter resets.
func TestSamplesOfChunks(t *testing.T) {
	h := tsdbutil.GenerateTestHistogram(1)
	for _, hint := range []histogram.CounterResetHint{histogram.UnknownCounterReset, histogram.CounterReset, histogram.GaugeType} {
		h.CounterResetHint = hint
		f := h.ToFloat(nil)
		for encoding, c := range map[prompb.Chunk_Encoding]chunkenc.Chunk{
			prompb.Chunk_HISTOGRAM: chunkenc.NewHistogramChunk(), prompb.Chunk_FLOAT_HISTOGRAM: chunkenc.NewFloatHistogramChunk(),
			prompb.Chunk_HISTOGRAM_ST: chunkenc.NewHistogramSTChunk(), prompb.Chunk_FLOAT_HISTOGRAM_ST: chunkenc.NewFloatHistogramSTChunk(),
		} {
			chunks := []prompb.Chunk{{Type: encoding, Data: c.Bytes()}}
			if err := checkChunk(&chunks[0]); err != nil {
				t.Errorf("%s, %v, empty: %v", encoding, hint, err)
			}
			app, err := c.Appender()
			if err != nil {
				t.Fatal(err)
			}
			if encoding == prompb.Chunk_FLOAT_HISTOGRAM || encoding == prompb.Chunk_FLOAT_HISTOGRAM_ST {
				_, _, _, err = app.AppendFloatHistogram(nil, 500, 1000, f, false)
			} else {
				_, _, _, err = app.AppendHistogram(nil, 500, 1000, h, false)
			}
			if err != nil {
				t.Fatal(err)
			}
			chunks[0].Data = c.Bytes()
			_, samples, native, err := measured(nil, chunks)
			if n := count(chunks); samples != 1 || n != 1 || !native || err != nil {
				t.Errorf("%s, %v: one sample counts %d, and %d, %v", encoding, hint, samples, n, err)
			}
		}
	}
	header := []byte{0xc0, 0, 0} // of a gauge, and no sample
	if err := checkChunk(&prompb.Chunk{Type: prompb.Chunk_HISTOGRAM_ST, Data: header}); err != nil {
		t.Errorf("a chunk without samples has no layout: %v", err)
	}
}

func TestCheckChunk(t *testing.T) {
	for i, h := range []*histogram.Histogram{
		tsdbutil.GenerateTestHistogram(1), tsdbutil.GenerateTestCustomBucketsHistogram(7),
		{
			Schema: 8, Count: 3, PositiveSpans: []histogram.Span{{Offset: -200, Length: 3}}, PositiveBuckets: []int64{1, 0, 0},
			ZeroThreshold: 0.37,
		},
	} {
		c := chunkenc.NewHistogramChunk()
		app, err := c.Appender()
		if err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := app.AppendHistogram(nil, 0, 1000, h, false); err != nil {
			t.Fatal(err)
		}
		if err := checkChunk(&prompb.Chunk{Type: prompb.Chunk_HISTOGRAM, Data: c.Bytes()}); err != nil {
			t.Errorf("histogram %d: %v", i, err)
		}
	}
	hostile := []byte("\t\x01\xc8\x03ݰ?\xd0\xdcz\xb8h2\x12\x10\xf1n_3*\abc'C\x8eU\xf4P}3֓P\x89`\x00\t))")
	for _, bad := range []prompb.Chunk{
		{Type: prompb.Chunk_HISTOGRAM_ST, Data: hostile},
		{Type: prompb.Chunk_HISTOGRAM, Data: hostile},
		{Type: prompb.Chunk_UNKNOWN, Data: hostile},
		{Type: prompb.Chunk_XOR, Data: []byte{1}},
		{Type: prompb.Chunk_XOR, Data: make([]byte, maxChunkBytes+1)},
	} {
		if checkChunk(&bad) == nil {
			t.Errorf("%v with %d bytes passed", bad.Type, len(bad.Data))
		}
	}
}
