package ui

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

var from, until = time.Unix(1_700_000_000, 0), time.Unix(1_700_003_600, 0)

func line(name string, values ...float64) Line {
	l := Line{Name: name}
	for i, v := range values {
		l.Points = append(l.Points, Point{from.Add(time.Duration(i) * time.Minute), v})
	}
	return l
}

// wellFormed fails where a drawing is no XML: a browser would show half of it.
func wellFormed(t *testing.T, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
	}
}

func TestPlotLeavesGaps(t *testing.T) {
	nan := math.NaN()
	svg := string(Plot([]Line{line(`up{a="<b>"}`, 1, 2, nan, 3, 4, nan, 5, nan, math.Inf(1))}, from, until, time.Minute))
	wellFormed(t, svg)
	if strings.Contains(svg, "<b>") {
		t.Errorf("a label is not escaped: %s", svg)
	}
	if n := strings.Count(svg, "<polyline"); n != 2 {
		t.Errorf("%d stretches, want the two between gaps", n)
	}
	if n := strings.Count(svg, "<circle"); n != 1 {
		t.Errorf("%d points that stand alone, want one", n)
	}
	for _, bad := range []string{"NaN", "Inf"} {
		if strings.Contains(svg, bad) {
			t.Errorf("%s is drawn: %s", bad, svg)
		}
	}
	l := line("x", 1, 2)
	l.Points = append(l.Points, Point{from.Add(10 * time.Minute), 3}, Point{from.Add(11 * time.Minute), 3})
	if n := strings.Count(string(Plot([]Line{l}, from, until, time.Minute)), "<polyline"); n != 2 {
		t.Errorf("points ten minutes apart are joined")
	}
}

func TestPlotIsBounded(t *testing.T) {
	var lines []Line
	for i := range 3 * MaxLines {
		lines = append(lines, line(fmt.Sprint(i), make([]float64, 5*MaxPoints)...))
	}
	svg := string(Plot(lines, from, until, time.Minute))
	wellFormed(t, svg)
	if n := strings.Count(svg, "<polyline"); n != MaxLines {
		t.Errorf("%d lines, want %d", n, MaxLines)
	}
	if n := strings.Count(svg, ","); n > MaxLines*MaxPoints+100 {
		t.Errorf("%d points", n)
	}
	if !strings.Contains(svg, "and more, which are not drawn") {
		t.Error("what is left out is not said")
	}
}

// Whatever the values are, the axis has a few round numbers that span them.
func TestTicks(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   string
	}{
		{[]float64{0, 1}, "0 0.2 0.4 0.6 0.8 1"},
		{[]float64{0, 97}, "0 20 40 60 80 100"},
		{[]float64{-3, 3}, "-4 -2 0 2 4"},
		{[]float64{1e9, 5e9}, "1G 2G 3G 4G 5G"},
		{[]float64{12345}, "11k 11.5k 12k 12.5k 13k 13.5k 14k"},
		{[]float64{1000.1, 1000.2}, "1000.1 1000.12 1000.14 1000.16 1000.18 1000.2"},
		{[]float64{0.0001, 0.0005}, "0.0001 0.0002 0.0003 0.0004 0.0005"},
		{nil, "0 0.2 0.4 0.6 0.8 1"},
		{[]float64{0}, "0 0.2 0.4 0.6 0.8 1"},
	} {
		low, high := bounds([]Line{line("", c.values...)})
		ticks, digits := niceTicks(low, high)
		var got []string
		for _, v := range ticks {
			got = append(got, short(v, digits))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v: %s, want %s", c.values, strings.Join(got, " "), c.want)
		}
	}
	for _, v := range [][]float64{
		{-math.MaxFloat64, math.MaxFloat64},
		{math.SmallestNonzeroFloat64},
		{1e308, 1.1e308},
		{5e-324, 1e-323},
		{math.MaxFloat64},
	} {
		wellFormed(t, string(Plot([]Line{line("", v...)}, from, from, 0)))
	}
}

func TestRead(t *testing.T) {
	for body, want := range map[string]string{
		`{"data":{"resultType":"vector","result":[{"metric":{"__name__":"up","a":"\""},"value":[1,"1"]}]}}`: `[{up{a="\""} 1}] 0`,
		`{"data":{"result":[{"metric":{},"values":[[1,"1"],[2,"NaN"]]}],"resultType":"matrix"}}`:            `[{{} NaN at 00:00:02, the last of 2}] 0`,

		`{"data":{"resultType":"scalar","result":[1,"+Inf"]}}`: `[{ +Inf}] 0`,
		`{"data":{"resultType":"string","result":[1,"x"]}}`:    `[{ x}] 0`,
		`{"data":{"resultType":"vector","result":[]}}`:         `[] 0`,

		`{"data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{"count":"3","sum":"4.5","buckets":[[0,"1","2","3"]]}]}]},"infos":[]}`: `[{{} a histogram of 3 observations that add up to 4.5}] 0`,
	} {
		a, err := Read([]byte(body))
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		rows, more := a.Rows()
		if got := fmt.Sprint(rows, " ", more); strings.ReplaceAll(got, "  ", " ") != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	for _, body := range []string{"", "{}", `{"data":{"resultType":"vector","result":{}}}`, `{"data":{"resultType":"none"}}`, `{"data":{"resultType":"matrix","result":[{"values":[["x"]]}]}}`} {
		if _, err := Read([]byte(body)); err == nil {
			t.Errorf("%s is read", body)
		}
	}
	many := `{"data":{"resultType":"vector","result":[` + strings.Repeat(`{"metric":{},"value":[1,"1"]},`, MaxRows+4) +
		`{"metric":{},"value":[1,"1"]}]}}`
	a, err := Read([]byte(many))
	if err != nil {
		t.Fatal(err)
	}
	if rows, more := a.Rows(); len(rows) != MaxRows || more != 5 {
		t.Errorf("%d rows and %d more", len(rows), more)
	}
}

func FuzzPlot(f *testing.F) {
	f.Add([]byte(`{"data":{"result":[{"metric":{"<":"&"},"values":[[1,"1"],[2,"NaN"],[3,"1e308"]]}],"resultType":"matrix"}}`))
	f.Add([]byte(`{"data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{"count":"3","sum":"4.5","buckets":[[0,"1","2","3"]]}]}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := Read(body)
		if err != nil {
			return
		}
		a.Rows()
		svg := string(Plot(a.Lines(), from, until, time.Second))
		if strings.Contains(svg, "NaN") && !strings.Contains(string(body), "NaN") {
			t.Errorf("NaN in %s", svg)
		}
	})
}
