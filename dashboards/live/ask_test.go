package live

import (
	"math"
	"strings"
	"testing"
)

func answer(t *testing.T, data string) *Answer {
	t.Helper()
	a, err := readAnswer([]byte(`{"status":"success","data":` + data + `,"infos":["fixed"]}`))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestReadAnswer(t *testing.T) {
	a := answer(t, `{"resultType":"matrix","result":[{"metric":{"b":"2"},"values":[[1.5,"NaN"]]},{"metric":{"a":"1"},"values":[[1,"NaN"],[2,"3"]]}]}`)
	if len(a.Series) != 2 || a.Series[0].Labels["a"] != "1" || a.Series[0].Points[1] != (Point{2000, 3}) ||
		!math.IsNaN(a.Series[1].Points[0].V) || a.Series[1].Points[0].T != 1500 {
		t.Errorf("%+v", a)
	}
	if a.OnlyNaN() || a.Empty() || len(a.Notes) != 1 {
		t.Errorf("only NaN %v, empty %v, notes %q", a.OnlyNaN(), a.Empty(), a.Notes)
	}
	if a := answer(t, `{"resultType":"vector","result":[{"metric":{},"value":[1,"NaN"]}]}`); !a.OnlyNaN() {
		t.Error("NaN is taken for a number")
	}
	if a := answer(t, `{"resultType":"scalar","result":[1,"4"]}`); a.Series[0].Points[0].V != 4 {
		t.Errorf("%+v", a)
	}
	if a := answer(t, `["x"]`); a.Empty() || a.OnlyNaN() || a.Values[0] != "x" {
		t.Errorf("%+v", a)
	}
	if _, err := readAnswer([]byte(`{"status":"error","error":"too much"}`)); err == nil || !strings.Contains(err.Error(), "too much") {
		t.Errorf("an error is read as %v", err)
	}
}

func TestDiffers(t *testing.T) {
	base := `{"resultType":"matrix","result":[{"metric":{"a":"1"},"values":[[1,"1"],[2,"NaN"]]},{"metric":{"a":"2"},"values":[[1,"5"]]}]}`
	for other, want := range map[string]string{
		base: "",
		`{"resultType":"matrix","result":[{"metric":{"a":"2"},"values":[[1,"5"]]},{"metric":{"a":"1"},"values":[[1,"1.0000000000001"],[2,"NaN"]]}]}`: "",
		`{"resultType":"matrix","result":[{"metric":{"a":"2"},"values":[[1,"5"]]},{"metric":{"a":"1"},"values":[[1,"1.001"],[2,"NaN"]]}]}`:           `{a="1",} at 00:00:01 is 1, and 1.001`,
		`{"resultType":"matrix","result":[{"metric":{"a":"2"},"values":[[1,"5"]]},{"metric":{"a":"1"},"values":[[1,"1"],[2,"2"]]}]}`:                 `is NaN, and 2`,
		`{"resultType":"matrix","result":[{"metric":{"a":"2"},"values":[[1,"5"]]},{"metric":{"a":"1"},"values":[[1,"1"],[3,"NaN"]]}]}`:               `at 00:00:03`,
		`{"resultType":"matrix","result":[{"metric":{"a":"2"},"values":[[1,"5"]]},{"metric":{"a":"1"},"values":[[1,"1"]]}]}`:                         `2 points, and 1`,
		`{"resultType":"matrix","result":[{"metric":{"a":"2"},"values":[[1,"5"]]}]}`:                                                                 `{a="1",} is missing`,
		`["x"]`: "values",
	} {
		got := answer(t, base).Differs(answer(t, other), 1e-12)
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", other, got, want)
		}
	}
	if got := answer(t, `{"resultType":"vector","result":[]}`).Differs(answer(t, base), 0); !strings.Contains(got, "too much") {
		t.Errorf("a series more: %q", got)
	}
}

// TestOutside: each point, and each lack of one, must be that of some other answer at that moment.
func TestOutside(t *testing.T) {
	one := answer(t, `{"resultType":"matrix","result":[{"metric":{"a":"1"},"values":[[1,"1"],[2,"NaN"]]}]}`)
	two := answer(t, `{"resultType":"matrix","result":[{"metric":{"a":"1"},"values":[[1,"5"],[3,"6"]]}]}`)
	for text, want := range map[string]string{
		`[{"metric":{"a":"1"},"values":[[1,"5"],[2,"NaN"],[3,"6"]]}]`: "",
		`[]`: `{a="1",} at 00:00:01`,
		`[{"metric":{"a":"1"},"values":[[1,"1"]]}]`:                                         "",
		`[{"metric":{"a":"1"},"values":[[1,"2"]]}]`:                                         `at 00:00:01 is 2`,
		`[{"metric":{"a":"1"},"values":[[1,"1"],[4,"1"]]}]`:                                 `at 00:00:04 is 1`,
		`[{"metric":{"a":"1"},"values":[[1,"1"]]},{"metric":{"a":"2"},"values":[[1,"1"]]}]`: `{a="2",} at 00:00:01`,
	} {
		got := answer(t, `{"resultType":"matrix","result":`+text+`}`).outside([]*Answer{one, two})
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestDiffer: ties of topk are equal whichever was taken, and other values are not.
func TestDiffer(t *testing.T) {
	a := answer(t, `{"resultType":"vector","result":[{"metric":{"a":"1"},"value":[1,"7"]}]}`)
	b := answer(t, `{"resultType":"vector","result":[{"metric":{"a":"2"},"value":[1,"7"]}]}`)
	c := answer(t, `{"resultType":"vector","result":[{"metric":{"a":"2"},"value":[1,"8"]}]}`)
	if diff := differ(a, b, "topk(1, up)", true); diff != "" {
		t.Errorf("a tie: %s", diff)
	}
	for expr, x := range map[string]*Answer{"topk(1, up)": c, "max(up)": b} {
		if differ(a, x, expr, true) == "" {
			t.Errorf("%s: %+v and %+v are taken for equal", expr, a, x)
		}
	}
	for expr, want := range map[string]float64{"sum(up)": 1e-12, "stddev(up) + sum(up)": 1e-9, "max(up)": 0} {
		if got, _ := tolerance(expr); got != want {
			t.Errorf("%s: tolerance %v, want %v", expr, got, want)
		}
	}
}
