package relabel

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/proxy/usage"
	"github.com/spillwayproject/spillway/relabel/inventory"
)

var small = Options{Series: 30_000, Names: 300, Jobs: 9, Seed: 7, BlockSeries: 8000, Dashboards: 12, Lines: 2000, Queries: 300}

// TestBlocks reads the blocks back: as many series, names and jobs as asked for, in the proportions
// that the package promises, in several blocks that share no series.
func TestBlocks(t *testing.T) {
	dir := t.TempDir()
	if err := MakeBlocks(t.Context(), dir, small); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < 3 {
		t.Fatalf("%d blocks, %v", len(entries), err)
	}
	src, err := inventory.Blocks(dir)
	if err != nil {
		t.Fatal(err)
	}
	inv, err := inventory.Collect(t.Context(), src, nil)
	if err != nil {
		t.Fatal(err)
	}
	names, jobs := map[string]int64{}, map[string]int64{}
	var buckets int64
	for _, m := range inv.Metrics {
		names[m.Name] += m.Series
		jobs[m.Job] += m.Series
		le := m.Labels[model.BucketLabel]
		if (le != nil) != strings.HasSuffix(m.Name, "_bucket") {
			t.Errorf("%s: le %v", m.Name, le)
		}
		if le == nil {
			continue
		}
		buckets += m.Series
		if le.Distinct < 12 || le.Distinct > 30 || le.Values["+Inf"] == 0 || le.Series != m.Series {
			t.Errorf("%s: le %+v", m.Name, le)
		}
		family := strings.TrimSuffix(m.Name, "_bucket")
		for _, suffix := range []string{"_sum", "_count"} {
			if one := inv.Metric(m.Job, family+suffix); one == nil || one.Series*le.Distinct != m.Series {
				t.Errorf("%s%s does not fit its buckets", family, suffix)
			}
		}
	}
	if inv.Series != int64(small.Series) || len(names) != small.Names || len(jobs) != small.Jobs {
		t.Errorf("%d series, %d names, %d jobs", inv.Series, len(names), len(jobs))
	}
	if share := float64(buckets) / float64(inv.Series); share < 0.35 || share > 0.55 {
		t.Errorf("%.0f %% are buckets", 100*share)
	}
	if want := float64(small.Series) / 30; inv.SamplesPerSecond < want*0.999 || inv.SamplesPerSecond > want*1.001 {
		t.Errorf("%g samples a second", inv.SamplesPerSecond)
	}
	sizes := slices.Sorted(maps.Values(names))
	if most := sizes[len(sizes)-1]; most < 10*sizes[len(sizes)/2] {
		t.Errorf("the largest metric has %d series, the middle one %d", most, sizes[len(sizes)/2])
	}
}

// TestEqualOptionsEqualBytes: but for another seed.
func TestEqualOptionsEqualBytes(t *testing.T) {
	make1 := func(o Options) map[string]string {
		dir := t.TempDir()
		if err := MakeBlocks(t.Context(), dir, o); err != nil {
			t.Fatal(err)
		}
		if err := MakeUses(dir, o); err != nil {
			t.Fatal(err)
		}
		files := map[string]string{}
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			files[strings.TrimPrefix(path, dir)] = string(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	o := small
	o.Series, o.Names = 4000, 100
	a, b := make1(o), make1(o)
	if !maps.Equal(a, b) {
		t.Error("equal options write different files")
	}
	o.Seed++
	if maps.Equal(a, make1(o)) {
		t.Error("the seed changes nothing")
	}
}

// TestUses: the log is as package usage writes it, and what is looked at is about a tenth of the
// metrics, all of them there.
func TestUses(t *testing.T) {
	o := small
	o.Now = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	dir := t.TempDir()
	if err := MakeUses(dir, o); err != nil {
		t.Fatal(err)
	}
	full, err := o.complete()
	if err != nil {
		t.Fatal(err)
	}
	c, err := newCluster(full)
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]bool{}
	for _, m := range c.metrics {
		stored[m.name] = true
	}
	text, err := os.ReadFile(filepath.Join(dir, "usage.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	p := parser.NewParser(parser.Options{})
	used, queries := map[string]bool{}, map[string]bool{}
	n := 0
	var last time.Time
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); n++ {
		var rec usage.Record
		dec := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&rec); err != nil {
			t.Fatal(err)
		}
		expr, err := p.ParseExpr(rec.Query)
		if err != nil {
			t.Fatal(err)
		}
		if rec.V != usage.Version || rec.Time.Before(last) || rec.User == "" || fmt.Sprint(usage.Describe(expr)) != fmt.Sprint(rec.Facts) {
			t.Fatalf("line %d: %s", n+1, lines.Text())
		}
		last = rec.Time
		queries[rec.Query] = true
		for _, m := range rec.Metrics {
			used[m] = true
		}
	}
	if n != o.Lines || !last.Equal(o.Now) || len(queries) < o.Queries/3 {
		t.Errorf("%d lines until %s, %d different queries", n, last, len(queries))
	}
	for m := range used {
		if !stored[m] {
			t.Errorf("%s is looked at and not stored", m)
		}
	}
	if share := float64(len(used)) / float64(len(stored)); share < 0.04 || share > 0.2 {
		t.Errorf("%.0f %% are looked at", 100*share)
	}
	files, err := filepath.Glob(filepath.Join(dir, "dashboards", "*.json"))
	if err != nil || len(files) != o.Dashboards {
		t.Errorf("%d dashboards, %v", len(files), err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			UID    string `json:"uid"`
			Panels []struct {
				Targets []struct {
					Expr string `json:"expr"`
				} `json:"targets"`
			} `json:"panels"`
		}
		if err := json.Unmarshal(text, &d); err != nil || d.UID == "" || len(d.Panels) != panels {
			t.Fatalf("%s: %v", f, err)
		}
		for _, one := range d.Panels {
			if _, err := p.ParseExpr(one.Targets[0].Expr); err != nil {
				t.Errorf("%s: %v", f, err)
			}
		}
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Names: 5}, {Jobs: 2}, {Series: 10}, {Lines: -1}, {Dashboards: -1}, {BlockSeries: -1}, {UsedEvery: -1}} {
		if err := MakeBlocks(t.Context(), t.TempDir(), o); err == nil {
			t.Errorf("%+v is taken", o)
		}
		if err := MakeUses(t.TempDir(), o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// TestMeasure runs the command on little, and says what it took.
func TestMeasure(t *testing.T) {
	all, err := Measure(t.Context(), MeasureOptions{
		Program: realpromtest.Spillway(t), Sizes: []int{3000, 6000},
		Options: Options{Names: 100, Jobs: 9, Lines: 500, Dashboards: 3, Queries: 50}, Dir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range all {
		if m.Series != 3000*(i+1) || m.Took <= 0 || m.CPU <= 0 || m.PeakBytes < 1<<20 || m.Rules == 0 || m.Dropped == 0 || m.Blocks == 0 {
			t.Errorf("%+v", m)
		}
	}
	var table strings.Builder
	if err := WriteTable(&table, all); err != nil || !strings.Contains(table.String(), "At 6000 series") ||
		strings.Contains(table.String(), "NOT") {
		t.Errorf("%v\n%s", err, &table)
	}
}

func TestMain(m *testing.M) { realpromtest.Main(m) }
