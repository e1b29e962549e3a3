package inventory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/spillwayproject/spillway/loadtest/relabel"
)

// block writes a block with what fill appends.
func block(t testing.TB, dir string, fill func(app storage.Appender)) string {
	t.Helper()
	w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), dir, 24*time.Hour.Milliseconds())
	if err != nil {
		t.Fatal(err)
	}
	app := w.Appender(t.Context())
	fill(app)
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	id, err := w.Flush(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, id.String())
}

func add(t testing.TB, app storage.Appender, ls labels.Labels, ms int64, v float64) {
	t.Helper()
	if _, err := app.Append(0, ls, ms, v); err != nil {
		t.Fatal(err)
	}
}

// TestBlocks: blocks that overlap in series and in time are read as one.
func TestBlocks(t *testing.T) {
	dir := t.TempDir()
	a, b, n := labels.FromStrings("__name__", "a", "job", "j"), labels.FromStrings("Upper", "x", "__name__", "b", "job", "j"),
		labels.FromStrings("__name__", "n")
	one := block(t, dir, func(app storage.Appender) {
		for ms := int64(0); ms <= 600_000; ms += 15_000 {
			add(t, app, a, ms, float64(ms))
		}
		add(t, app, labels.FromStrings("__name__", "early"), 0, 1)
	})
	block(t, dir, func(app storage.Appender) {
		for ms := int64(300_000); ms <= 900_000; ms += 30_000 {
			add(t, app, a, ms, float64(ms))
			if _, err := app.AppendHistogram(0, n, ms, tsdbutil.GenerateTestHistogram(ms), nil); err != nil {
				t.Fatal(err)
			}
		}
		add(t, app, b, 450_000, 1)
	})
	write(t, dir, "lock", "")
	src, err := Blocks(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{Upper="x", __name__="b", job="j"} unknown`, `{__name__="a", job="j"} unknown 30s`, `{__name__="early"} unknown`,
		`{__name__="n"} unknown native 30s`,
	}
	for range 2 {
		sameLines(t, read(t, src), want)
	}
	single, err := Blocks(one)
	if err != nil {
		t.Fatal(err)
	}
	sameLines(t, read(t, single), []string{`{__name__="a", job="j"} unknown 15s`, `{__name__="early"} unknown`})

	got := map[string]string{}
	all := func(labels.Labels) bool { return true }
	err = src.(Sampled).Samples(t.Context(), 500*time.Second, all,
		func(s *Series, floats []promql.FPoint, histograms []promql.HPoint) error {
			text := ""
			for _, p := range floats {
				text += fmt.Sprintf(" %d", p.T/1000)
				if s.Labels.Get("__name__") == "a" && p.F != float64(p.T) {
					t.Errorf("%s has %g at %d", s.Labels, p.F, p.T)
				}
			}
			for _, p := range histograms {
				text += fmt.Sprintf(" h%d", p.T/1000)
				if want := tsdbutil.GenerateTestHistogram(p.T).ToFloat(nil); p.H.Count != want.Count || p.H.Sum != want.Sum {
					t.Errorf("%s has %s at %d", s.Labels, p.H, p.T)
				}
			}
			got[strings.Clone(s.Labels.Get("__name__"))] = text
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a": " 405 420 435 450 465 480 495 510 525 540 555 570 585 600 630 660 690 720 750 780 810 840 870 900",
		"b": " 450", "early": "", "n": " h420 h450 h480 h510 h540 h570 h600 h630 h660 h690 h720 h750 h780 h810 h840 h870 h900",
	} {
		if got[name] != want {
			t.Errorf("%s: got%s, want%s", name, got[name], want)
		}
	}
	if _, there := got["early"]; there {
		t.Error("a series without samples in the window is handed on")
	}
	n2 := 0
	err = src.(Sampled).Samples(t.Context(), time.Hour, func(ls labels.Labels) bool { return ls.Get("__name__") == "b" },
		func(*Series, []promql.FPoint, []promql.HPoint) error { n2++; return nil })
	if err != nil || n2 != 1 {
		t.Errorf("%d series, %v", n2, err)
	}
}

// TestBlocksOfManySeries compares the merge of random overlapping blocks with what was written.
func TestBlocksOfManySeries(t *testing.T) {
	dir := t.TempDir()
	want := map[string]bool{}
	for n := range 4 {
		block(t, dir, func(app storage.Appender) {
			for i := range 300 {
				if i%(n+2) != 0 {
					continue
				}
				ls := labels.FromStrings("__name__", fmt.Sprintf("m%d", i%7), "i", fmt.Sprint(i))
				add(t, app, ls, int64(n)*1000+1, 1)
				want[ls.String()] = true
			}
		})
	}
	src, err := Blocks(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var last labels.Labels
	err = src.Scan(t.Context(), func(s *Series) error {
		if labels.Compare(last, s.Labels) >= 0 {
			t.Errorf("%s comes after %s", s.Labels, last)
		}
		last = s.Labels.Copy()
		got = append(got, s.Labels.String())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	list := make([]string, 0, len(want))
	for s := range want {
		list = append(list, s)
	}
	slices.Sort(got)
	slices.Sort(list)
	sameLines(t, got, list)

	enough := errors.New("enough")
	if err := src.Scan(t.Context(), func(*Series) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	if err := src.Scan(ctx, func(*Series) error { return nil }); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
}

func TestBlocksRefuses(t *testing.T) {
	if _, err := Blocks(t.TempDir()); err == nil || !strings.Contains(err.Error(), "a block is a folder with meta.json") {
		t.Errorf("got %v", err)
	}
	if _, err := Blocks(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a folder that is not there is taken")
	}
	for name, harm := range map[string]func(dir string) error{
		"the index is cut":   func(dir string) error { return os.Truncate(filepath.Join(dir, "index"), 100) },
		"the chunks are cut": func(dir string) error { return os.Truncate(filepath.Join(dir, "chunks", "000001"), 20) },
		"there are no chunks": func(dir string) error {
			return os.RemoveAll(filepath.Join(dir, "chunks"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := block(t, dir, func(app storage.Appender) {
				for i := range int64(100) {
					add(t, app, labels.FromStrings("__name__", "a"), i, math.Sqrt(float64(i)))
				}
			})
			if err := harm(path); err != nil {
				t.Fatal(err)
			}
			src, err := Blocks(dir)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Collect(t.Context(), src, nil); err == nil || !strings.Contains(err.Error(), filepath.Base(path)) {
				t.Errorf("got %v, want an error that names the block", err)
			}
		})
	}
}

// BenchmarkCollectBlocks takes stock of blocks. SPILLWAY_BENCH_BLOCKS names a folder with blocks to
// use; otherwise some are made, with 200,000 series.
func BenchmarkCollectBlocks(b *testing.B) {
	dir := os.Getenv("SPILLWAY_BENCH_BLOCKS")
	if dir == "" {
		dir = b.TempDir()
		if err := relabel.MakeBlocks(b.Context(), dir, relabel.Options{Series: 200_000, Names: 3000, Seed: 1}); err != nil {
			b.Fatal(err)
		}
	}
	src, err := Blocks(dir)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var series int64
	for b.Loop() {
		inv, err := Collect(b.Context(), src, nil)
		if err != nil {
			b.Fatal(err)
		}
		series += inv.Series
	}
	b.ReportMetric(float64(series)/b.Elapsed().Seconds(), "series/s")
}
