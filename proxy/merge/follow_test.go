package merge

import (
	"bytes"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/spillwayproject/spillway/proxy/admit"
)

func matrix(grid Grid, series map[string]map[int64]float64) promql.Matrix {
	var m promql.Matrix
	for name, points := range series {
		s := promql.Series{Metric: labels.FromStrings("a", name)}
		for i := range grid.Len() {
			if v, ok := points[grid.Time(i)]; ok {
				s.Floats = append(s.Floats, promql.FPoint{T: grid.Time(i), F: v})
			}
		}
		m = append(m, s)
	}
	return m
}

// TestFollow: pieces in time become one table; a series that is in one piece only has no values in
// the others; memory is given back.
func TestFollow(t *testing.T) {
	budget := admit.NewBudget(admit.NewPool(1<<30), admit.Limits{})
	defer budget.Close()
	table := func(grid Grid, series map[string]map[int64]float64) *Table {
		t.Helper()
		out, err := TableOf(matrix(grid, series), grid, budget)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	a, b, c := Grid{0, 20, 10}, Grid{30, 30, 10}, Grid{40, 50, 10}
	joined, err := Follow(Grid{0, 55, 10}, []*Table{
		table(a, map[string]map[int64]float64{"y": {0: 1, 20: 3}, "x": {10: 7}}), table(b, map[string]map[int64]float64{"y": {30: 4}}),
		table(c, map[string]map[int64]float64{"z": {50: 9}, "y": {40: 5}}),
	}, budget)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := NewWriter(&out, budget)
	if err := w.Begin(); err != nil {
		t.Fatal(err)
	}
	if _, err := NewEncoder(w, 1<<20).Table(joined, true, 0); err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(nil, nil); err != nil {
		t.Fatal(err)
	}
	want := `{"resultType":"matrix","result":[{"metric":{"a":"x"},"values":[[0.010,"7"]]},{"metric":{"a":"y"},"values":[[0,"1"],[0.020,"3"],[0.030,"4"],[0.040,"5"]]},{"metric":{"a":"z"},"values":[[0.050,"9"]]}]}`
	if !bytes.Contains(out.Bytes(), []byte(want)) {
		t.Errorf("got %s", out.String())
	}
	w.Close()
	joined.Close()
	if n := budget.Held(); n != 0 {
		t.Errorf("%d bytes are still held", n)
	}
	for name, tables := range map[string][]*Table{
		"a step is missing": {table(a, nil), table(c, nil)}, "the last ones are": {table(a, nil), table(b, nil)},
		"not in order": {table(b, nil), table(a, nil), table(c, nil)},
	} {
		if _, err := Follow(Grid{0, 50, 10}, tables, budget); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	hist, err := TableOf(promql.Matrix{{
		Metric:     labels.FromStrings("a", "h"),
		Histograms: []promql.HPoint{{T: 30, H: &histogram.FloatHistogram{}}},
	}}, b, budget)
	if err != nil || !hist.Histograms {
		t.Fatalf("%+v, %v", hist, err)
	}
	if joined, err = Follow(Grid{0, 30, 10}, []*Table{table(a, map[string]map[int64]float64{"y": {0: 1}}), hist}, budget); err != nil ||
		!joined.Histograms || len(joined.Series) > 0 {
		t.Errorf("%+v, %v", joined, err)
	}
	joined.Close()
	if n := budget.Held(); n != 0 {
		t.Errorf("%d bytes are still held", n)
	}
}
