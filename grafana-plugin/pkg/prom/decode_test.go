package prom

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
)

func TestDecode(t *testing.T) {
	none := map[string]string{}
	for _, tc := range []struct {
		name, text string
		want       Answer
	}{
		{
			"vector", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"pod":"a","node":"n"},"value":[1712345678.9,"1.5"]},{"metric":{},"value":[2,"NaN"]}]}}`,
			Answer{Series: []Series{
				{map[string]string{"pod": "a", "node": "n"}, []Point{{1712345678900, 1.5}}},
				{none, []Point{{2000, math.NaN()}}},
			}},
		},
		{
			"matrix", `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"b"},"values":[[1.001,"+Inf"],[2.001,"-Inf"],[3,"1e+300"],[4,"-0"]]}]}}`,
			Answer{Series: []Series{{
				map[string]string{"a": "b"},
				[]Point{{1001, math.Inf(1)}, {2001, math.Inf(-1)}, {3000, 1e300}, {4000, math.Copysign(0, -1)}},
			}}},
		},
		{
			"result before its type", `{"data":{"result":[{"value":[1,"2"],"metric":{"a":"b"}}],"resultType":"vector"},"status":"success"}`,
			Answer{Series: []Series{{map[string]string{"a": "b"}, []Point{{1000, 2}}}}},
		},
		{"scalar", `{"status":"success","data":{"resultType":"scalar","result":[1.5,"7"]}}`, Answer{Series: []Series{{none, []Point{{1500, 7}}}}}},
		{"empty", `{"status":"success","data":{"resultType":"vector","result":[]}}`, Answer{}},
		{"null", `{"status":"success","data":{"resultType":"vector","result":null},"warnings":null}`, Answer{}},
		{
			"warnings", `{"status":"success","data":{"resultType":"vector","result":[]},"warnings":["w1","w2"],"infos":["i"]}`,
			Answer{Warnings: []string{"w1", "w2"}, Infos: []string{"i"}},
		},
		{
			"histograms", `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"1"},"histograms":[[1,{"count":"3","sum":"2","buckets":[[0,"1","2","3"]]}]]},` +
				`{"metric":{"a":"2"},"values":[[1,"1"]],"histograms":[[2,{"count":"3","sum":"2"}]]},{"metric":{"a":"3"},"values":[]}]}}`,
			Answer{Series: []Series{{map[string]string{"a": "2"}, []Point{{1000, 1}}}}, Histograms: 2},
		},
		{
			"unknown members", `{"status":"success","isPartial":false,"data":{"stats":{"x":[1,{}]},"resultType":"vector","result":[{"metric":{},"value":[1,"1"],"x":[{}]}]},"spillway":{"explain":{"plan":[1]}}}` + " \n",
			Answer{Series: []Series{{none, []Point{{1000, 1}}}}},
		},
		{
			"hostile labels", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"<b>\"\\\n\u202e\ud83d\ude00"},"value":[1,"1"]}]}}`,
			Answer{Series: []Series{{map[string]string{"a": "<b>\"\\\n\u202e😀"}, []Point{{1000, 1}}}}},
		},
		{"too large a number is infinite", `{"status":"success","data":{"result":[{"value":[1,"-1e999"]}]}}`, Answer{Series: []Series{{none, []Point{{1000, math.Inf(-1)}}}}}},
	} {
		for _, r := range []struct {
			how string
			r   io.Reader
		}{{"whole", strings.NewReader(tc.text)}, {"by bytes", iotest.OneByteReader(strings.NewReader(tc.text))}} {
			t.Run(tc.name+" "+r.how, func(t *testing.T) {
				b, err := decode(r.r)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := text(b.answer), text(tc.want); got != want || b.status != "success" || !b.data {
					t.Errorf("got\n%s\nwant\n%s\nstatus %q, data %t", got, want, b.status, b.data)
				}
			})
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	whole := `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[1,"2"]}]},"warnings":["w"]}`
	for i := range whole {
		if _, err := decode(strings.NewReader(whole[:i])); err == nil {
			t.Errorf("cut after %d bytes: no error", i)
		}
	}
	broken := errors.New("reset")
	if _, err := decode(io.MultiReader(strings.NewReader(whole[:60]), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("the connection's error is %v", err)
	}
	if _, err := decode(io.MultiReader(strings.NewReader(whole), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("the connection's error after the last brace is %v", err)
	}
	for _, tc := range []struct{ text, says string }{
		{`[]`, "no object"},
		{`"x"`, "no object"},
		{`null`, "no object"},
		{whole + whole, "stands behind"},
		{whole + "x", "stands behind"},
		{whole + "\x00", "stands behind"},
		{`{"data":{"result":[1,"2","3"]}}`, "neither"},
		{`{"data":{"result":[1]}}`, "a time and a value"},
		{`{"data":{"result":["1"]}}`, "neither"},
		{`{"data":{"result":[true]}}`, "neither"},
		{`{"data":{"result":[{"value":[1]}]}}`, "a time and a value"},
		{`{"data":{"result":[{"value":[1,"1",2]}]}}`, "more than a time and a value"},
		{`{"data":{"result":[{"value":[1,2]}]}}`, "no text"},
		{`{"data":{"result":[{"value":[1,"abc"]}]}}`, "no number"},
		{`{"data":{"result":[{"value":[1e30,"1"]}]}}`, "outside"},
		{`{"data":{"result":[{"value":["1","1"]}]}}`, "none of the Prometheus API"},
		{`{"data":{"result":[{"metric":{"a":1},"value":[1,"1"]}]}}`, "none of the Prometheus API"},
		{`{"data":` + strings.Repeat(`{"x":`, 20_000), "depth"},
		{`{"status":"success" "data":{}}`, "none of the Prometheus API"},
	} {
		if _, err := decode(strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%.60s: %v, want one with %q", tc.text, err, tc.says)
		}
	}
}

// text is an answer in which NaN equals NaN and -0 is not 0.
func text(a Answer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q %q %d\n", a.Warnings, a.Infos, a.Histograms)
	for _, s := range a.Series {
		fmt.Fprintf(&b, "%q", s.Labels)
		for _, p := range s.Points {
			fmt.Fprintf(&b, " %d=%s", p.T, strconv.FormatFloat(p.V, 'g', -1, 64))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// plain decodes by encoding/json alone what it understands; false means that it does not say.
func plain(raw []byte) (Answer, bool) {
	var top struct {
		Status string
		Data   struct{ Result []map[string]json.RawMessage }
	}
	if !json.Valid(raw) || json.Unmarshal(raw, &top) != nil || bytes.Contains(raw, []byte(`\u`)) {
		return Answer{}, false // escapes of half characters are replaced differently
	}
	// Only what is written as servers write it: each member once, in this spelling.
	for _, member := range []string{"status", "data", "result", "metric", "value", "values", "histogram", "warnings", "infos"} {
		if n := bytes.Count(bytes.ToLower(raw), []byte(`"`+member)); n > 1 || n != bytes.Count(raw, []byte(`"`+member)) {
			return Answer{}, false
		}
	}
	var a Answer
	for _, el := range top.Data.Result {
		s := Series{Labels: map[string]string{}}
		if m, ok := el["metric"]; ok && json.Unmarshal(m, &s.Labels) != nil {
			return Answer{}, false
		}
		var pairs [][]any
		if v, ok := el["value"]; ok {
			var pair []any
			if json.Unmarshal(v, &pair) != nil {
				return Answer{}, false
			}
			pairs = append(pairs, pair)
		}
		if v, ok := el["values"]; ok && json.Unmarshal(v, &pairs) != nil {
			return Answer{}, false
		}
		for _, p := range pairs {
			if len(p) != 2 {
				return Answer{}, false
			}
			at, isTime := p[0].(float64)
			v, isText := p[1].(string)
			f, err := strconv.ParseFloat(v, 64)
			if !isTime || !isText || err != nil || math.Abs(at) > 1e12 {
				return Answer{}, false
			}
			s.Points = append(s.Points, Point{int64(math.Round(at * 1000)), f})
		}
		if s.Labels == nil {
			s.Labels = map[string]string{}
		}
		if len(s.Points) > 0 {
			a.Series = append(a.Series, s)
		}
	}
	return a, true
}

// FuzzDecode holds that nothing panics, that what is taken is within the bounds that are promised,
// that how the bytes come in does not matter, and that encoding/json reads the same.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[1.5,"2"]}]}}`,
		`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"b"},"values":[[1,"2"],[2.25,"NaN"]]}]},"warnings":["w"],"infos":["i"]}`,
		`{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{"count":"1"}]}]}}`,
		`{"status":"error","errorType":"execution","error":"too much","spillway":{"bound":"max_series","value":"5","seen":"6","advice":"less"}}`,
		`{"data":{"result":[{"metric":null,"values":[[-1e3,"0x1p-2"]]}]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := decode(bytes.NewReader(raw))
		slow, slowErr := decode(iotest.HalfReader(bytes.NewReader(raw)))
		if (err == nil) != (slowErr == nil) || text(got.answer) != text(slow.answer) {
			t.Fatalf("at once: %v %s; in parts: %v %s", err, text(got.answer), slowErr, text(slow.answer))
		}
		want, known := plain(raw)
		if err != nil {
			if known && len(want.Series) > 0 {
				t.Fatalf("encoding/json reads it: %v", err)
			}
			return
		}
		for _, s := range got.answer.Series {
			if len(s.Points) == 0 || s.Labels == nil {
				t.Fatalf("a series without points or labels: %+v", s)
			}
			for _, p := range s.Points {
				if p.T < -maxMillis || p.T > maxMillis {
					t.Fatalf("time %d", p.T)
				}
			}
		}
		if known && text(Answer{Series: got.answer.Series}) != text(want) {
			t.Fatalf("got\n%s\nencoding/json\n%s", text(got.answer), text(want))
		}
	})
}

// Series behind those that are asked for are counted, wherever the answer goes on.
func TestDecodeFirst(t *testing.T) {
	const in = `{"status":"success","data":{"resultType":"vector","result":[` +
		`{"metric":{"a":"1"},"value":[1,"1"]},{"metric":{"a":"2"},"histogram":[1,{}]},{"metric":{"a":"3"},"value":[1,"3"]},` +
		`{"metric":{"a":"4"},"value":[1,"4"]},{"metric":{"a":"5"},"value":[1,"5"]}]},"warnings":["w"]}`
	for most, want := range map[int][3]int{0: {4, 0, 1}, 1: {1, 4, 0}, 2: {2, 2, 1}, 4: {4, 0, 1}, 9: {4, 0, 1}} {
		got, err := decodeFirst(strings.NewReader(in), most)
		a := got.answer
		if n := [3]int{len(a.Series), a.Left, a.Histograms}; err != nil || n != want || len(a.Warnings) != 1 {
			t.Errorf("the first %d: %v, %v, want %v", most, n, err, want)
		}
	}
}

// An answer's samples cost 16 bytes each, and a little while the slice grows.
func TestDecodeAllocations(t *testing.T) {
	const points = 5000
	var b strings.Builder
	b.WriteString(`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"b"},"values":[[0,"0"]`)
	for i := 1; i < points; i++ {
		fmt.Fprintf(&b, `,[%d.123,"%d.5"]`, 1712345678+i, i)
	}
	b.WriteString(`]}]}}`)
	got, err := decode(strings.NewReader(b.String()))
	if err != nil || len(got.answer.Series) != 1 || !reflect.DeepEqual(got.answer.Series[0].Points[7], Point{1712345685123, 7.5}) ||
		len(got.answer.Series[0].Points) != points {
		t.Fatalf("%v %v", got, err)
	}
	if n := testing.AllocsPerRun(10, func() { _, _ = decode(strings.NewReader(b.String())) }); n > 100 {
		t.Errorf("%v allocations for %d samples", n, points)
	}
}

func BenchmarkDecode(b *testing.B) {
	var text strings.Builder
	text.WriteString(`{"status":"success","data":{"resultType":"vector","result":[`)
	for i := range 4000 {
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, `{"metric":{"cluster":"jaguar","namespace":"research","node":"node-%05d","pod":"llm-7b-worker-%d","gpu":"%d"},"value":[1712345678.123,"%d"]}`, i/8, i/8, i%8, i%100)
	}
	text.WriteString(`]}}`)
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decode(strings.NewReader(text.String())); err != nil {
			b.Fatal(err)
		}
	}
}
