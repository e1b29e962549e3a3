package raw

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// tellingCopy answers by matchers. Its series are lines such as `m{instance="a"} 0=1 15=1 30=s`, an
// s being a stale marker.
type tellingCopy struct {
	name   string
	series string
	reads  []string
	fail   string // metric whose read fails
}

func (c *tellingCopy) Name() string { return c.name }

func (c *tellingCopy) Read(_ context.Context, q Query, emit func([]prompb.Label, []prompb.Chunk) error) error {
	c.reads = append(c.reads, fmt.Sprint(q.Matchers))
	if c.fail != "" && strings.Contains(fmt.Sprint(q.Matchers), c.fail) {
		return qerr.New(qerr.ShardFailed, "down")
	}
	for line := range strings.Lines(c.series) {
		name, rest, _ := strings.Cut(line, "{")
		inner, points, _ := strings.Cut(rest, "}")
		lbls := []prompb.Label{{Name: "__name__", Value: strings.TrimSpace(name)}}
		for _, kv := range strings.Split(inner, ",") {
			k, v, _ := strings.Cut(kv, "=")
			lbls = append(lbls, prompb.Label{Name: k, Value: v})
		}
		if !selected(lbls, q.Matchers) {
			continue
		}
		chunk := chunkenc.NewXORChunk()
		app, err := chunk.Appender()
		if err != nil {
			return err
		}
		var first, last int64
		for i, f := range strings.Fields(points) {
			at, text, _ := strings.Cut(f, "=")
			t, _ := strconv.ParseInt(at, 10, 64)
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				v = math.Float64frombits(value.StaleNaN)
			}
			if last = t * 1000; i == 0 {
				first = last
			}
			app.Append(0, last, v)
		}
		if err := emit(lbls, []prompb.Chunk{{Type: prompb.Chunk_XOR, MinTimeMs: first, MaxTimeMs: last, Data: chunk.Bytes()}}); err != nil {
			return err
		}
	}
	return nil
}

// TestScrapes: what a copy says of its scrapes decides about its stale markers, and about what it
// writes of each scrape; it is read once, and only where that matters.
func TestScrapes(t *testing.T) {
	const other = `up{instance=a,job=j} 8=1 23=1 38=1 53=1 68=1
m{instance=a,job=j} 8=1 23=1 38=1 53=1 68=1
scrape_duration_seconds{instance=a,job=j} 8=1 23=1 38=1 53=1 68=1`
	for _, tc := range []struct {
		name, base, metric, want string
		fail                     string
		reads                    int // of the base
	}{
		{
			name: "cut off", metric: "m", reads: 2, want: "0 15 b23 b38 b53 b68",
			base: "up{instance=a,job=j} 0=1 15=1 30=0 45=0 60=0 75=0\nm{instance=a,job=j} 0=1 15=1 30=s",
		},
		{
			name: "the target writes it no more", metric: "m", reads: 2, want: "0 15 30s b38 b53 b68",
			base: "up{instance=a,job=j} 0=1 15=1 30=1 45=1 60=1 75=1\nm{instance=a,job=j} 0=1 15=1 30=s",
		},
		{
			name: "of another target up is 1", metric: "m", reads: 2, want: "0 15 b23 b38 b53 b68",
			base: "up{instance=b,job=j} 0=1 15=1 30=1 45=1\nm{instance=a,job=j} 0=1 15=1 30=s",
		},
		{
			name: "two targets could be meant", metric: "m", reads: 2, want: "0 15 b23 b38 b53 b68",
			base: "up{instance=a,job=j} 0=1 15=1 30=1 45=1\nup{instance=a,job=j,pod=x} 0=1 15=1 30=1\nm{instance=a,job=j,pod=x} 0=1 15=1 30=s",
		},
		{
			name: "up cannot be read", metric: "m", reads: 2, want: "0 15 b23 b38 b53 b68", fail: "up",
			base: "up{instance=a,job=j} 0=1 15=1 30=1 45=1\nm{instance=a,job=j} 0=1 15=1 30=s",
		},
		{
			name: "no marker, nothing to know", metric: "m", reads: 1, want: "0 15 30 45 60 75",
			base: "m{instance=a,job=j} 0=1 15=1 30=1 45=1 60=1 75=1",
		},
		{
			name: "up itself", metric: "up", reads: 1, want: "0 15 b23 b38 b53 b68",
			base: "up{instance=a,job=j} 0=1 15=1 30=0 45=0 60=0 75=0",
		},
		{
			name: "what is written of each scrape", metric: "scrape_duration_seconds", reads: 2, want: "0 15 b23 b38 b53 b68",
			base: "up{instance=a,job=j} 0=1 15=1 30=0 45=0 60=0 75=0\nscrape_duration_seconds{instance=a,job=j} 0=1 15=1 30=9 45=9 60=9 75=9",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := &tellingCopy{name: "a", series: tc.base, fail: tc.fail}, &tellingCopy{name: "b", series: other}
			if strings.Contains(tc.base, "pod=x") {
				b.series = strings.ReplaceAll(other, "j}", "j,pod=x}")
			}
			m := labels.MustNewMatcher(labels.MatchEqual, "__name__", tc.metric)
			meter := &countingMeter{}
			q := &Queryable{Meter: meter, Legs: func(context.Context, int64, int64, []*labels.Matcher) ([]Leg, error) {
				return []Leg{{
					Slice:    &Slice{Name: "s", From: math.MinInt64, Until: math.MaxInt64, Copies: []Copy{a, b}},
					Matchers: []*labels.Matcher{m},
				}}, nil
			}}
			before := meter.held
			got, err := q.fetch(t.Context(), 0, 75_000, nil, []*labels.Matcher{m})
			if err != nil || len(got) != 1 {
				t.Fatalf("%d series, %v", len(got), err)
			}
			var out []string
			for _, p := range got[0].parts {
				one := &series{parts: []part{p}}
				for it := one.Iterator(nil); it.Next() != chunkenc.ValNone; {
					at, v := it.At()
					mark := map[string]string{"a": "", "b": "b"}[p.Copy]
					out = append(out, fmt.Sprintf("%s%d", mark, at/1000))
					if value.IsStaleNaN(v) {
						out[len(out)-1] += "s"
					}
				}
			}
			if s := strings.Join(out, " "); s != tc.want {
				t.Errorf("got  %s\nwant %s", s, tc.want)
			}
			if len(a.reads) != tc.reads {
				t.Errorf("the base was read %d times: %q", len(a.reads), a.reads)
			}
			if before != 0 || meter.held <= 0 {
				t.Errorf("%d bytes are charged", meter.held)
			}
		})
	}
}

// TestScrapesKeepBounds: where up does not fit into the budget the select is refused, and what was
// held of it is given back.
func TestScrapesKeepBounds(t *testing.T) {
	text := "up{instance=a,job=j} 0=1 15=1 30=1\nm{instance=a,job=j} 0=1 15=1 30=s"
	a, b := &tellingCopy{name: "a", series: text}, &tellingCopy{name: "b", series: "m{instance=a,job=j} 8=1 23=1 38=1"}
	m := labels.MustNewMatcher(labels.MatchEqual, "__name__", "m")
	meter := &countingMeter{most: 1000}
	q := &Queryable{Meter: meter, Legs: func(context.Context, int64, int64, []*labels.Matcher) ([]Leg, error) {
		return []Leg{{
			Slice:    &Slice{Name: "s", From: math.MinInt64, Until: math.MaxInt64, Copies: []Copy{a, b}},
			Matchers: []*labels.Matcher{m},
		}}, nil
	}}
	_, err := q.fetch(t.Context(), 0, 75_000, nil, []*labels.Matcher{m})
	var e *qerr.Error
	if !errors.As(err, &e) || e.Kind != qerr.Overloaded {
		t.Errorf("%v", err)
	}
}
