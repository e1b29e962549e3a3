package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/qerr/qerrtest"
)

// table decodes a body. After Close nothing may be held, whatever happened; check sees the table
// before.
func table(t testing.TB, body io.Reader, rl *Relabel, grid Grid, limits admit.Limits, check func(*Table, *admit.Budget)) (Result, error) {
	t.Helper()
	pool := admit.NewPool(256 << 20)
	b := admit.NewBudget(pool, limits)
	tab, res, err := DecodeTable(t.Context(), Source{Name: "jaguar 127.0.0.1:9090", Body: body, Relabel: rl}, grid, b)
	if (tab == nil) != (err != nil) {
		t.Fatalf("table %v with error %v", tab, err)
	}
	if err == nil && check != nil {
		check(tab, b)
	}
	tab.Close()
	tab.Close()
	if held := b.Held(); held != 0 {
		t.Errorf("%d bytes are held after Close", held)
	}
	b.Close()
	if pool.InUse() != 0 {
		t.Errorf("%d bytes of the pool are in use", pool.InUse())
	}
	return res, err
}

// shown writes a table as text: one line for each series, a dot for a step without a sample.
func shown(tab *Table) string {
	var b strings.Builder
	for _, s := range tab.Series {
		b.WriteString(s.Labels.String())
		for _, v := range s.Values {
			if isStale(v) {
				b.WriteString(" .")
				continue
			}
			b.WriteByte(' ')
			b.WriteString(strconv.FormatFloat(v, 'g', -1, 64))
			if bits := math.Float64bits(v); math.IsNaN(v) && bits != math.Float64bits(math.NaN()) {
				fmt.Fprintf(&b, "(%x)", bits)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

var (
	four   = Grid{Start: 1_700_000_000_000, End: 1_700_000_090_000, Step: 30_000}
	early  = Grid{Start: 0, End: 2000, Step: 500}
	moment = Grid{Start: 1_435_781_451_781, End: 1_435_781_451_781}
)

func TestGrid(t *testing.T) {
	for _, tc := range []struct {
		g    Grid
		n    int
		last int64
	}{
		{four, 4, four.End},
		{moment, 1, moment.Start},
		{Grid{Start: 5, End: 5, Step: 1}, 1, 5},
		{Grid{Start: 0, End: 100, Step: 0}, 1, 0},
		{Grid{Start: 0, End: 99, Step: 50}, 2, 50},
		{Grid{Start: -1000, End: 1000, Step: 500}, 5, 1000},
		{Grid{Start: math.MinInt64, End: math.MaxInt64, Step: math.MaxInt64}, 3, math.MaxInt64 - 1},
	} {
		if n := tc.g.Len(); n != tc.n || tc.g.Time(n-1) != tc.last {
			t.Errorf("%+v: %d steps, the last at %d", tc.g, n, tc.g.Time(n-1))
		}
		for i := range tc.n {
			if tc.g.index(tc.g.Time(i)) != i {
				t.Errorf("%+v: step %d is found at %d", tc.g, i, tc.g.index(tc.g.Time(i)))
			}
		}
		if tc.g.Start > math.MinInt64 && tc.g.index(tc.g.Start-1) != -1 || tc.g.index(tc.last+1) != -1 {
			t.Errorf("%+v: a time beside it is found", tc.g)
		}
	}
}

func TestDecodeTable(t *testing.T) {
	jaguar := NewRelabel(map[string]string{"cluster": "jaguar"}, []string{"replica"})
	for _, tc := range []struct {
		name string
		in   string // data
		grid Grid
		rl   *Relabel
		want string
	}{
		{name: "empty vector", in: `{"resultType":"vector","result":[]}`, grid: moment},
		{name: "empty matrix", in: `{"resultType":"matrix","result":[]}`, grid: four},
		{
			name: "vector, sorted here", grid: moment,
			in:   `{"resultType":"vector","result":[{"metric":{"b":"1"},"value":[1435781451.781,"NaN"]},{"metric":{},"value":[1435781451.781,"-1.5"]},{"metric":{"a":"1"},"value":[1435781451.781,"+Inf"]}]}`,
			want: "{} -1.5\n{a=\"1\"} +Inf\n{b=\"1\"} NaN\n",
		},
		{
			name: "whole series", grid: four, want: "{a=\"1\"} 1 2 3 4\n{a=\"2\"} 5 6 7 8\n{a=\"3\"} 9 10 11 12\n",
			in: `{"resultType":"matrix","result":[{"metric":{"a":"1"},"values":[[1700000000,"1"],[1700000030,"2"],[1700000060,"3"],[1700000090,"4"]]},` +
				`{"metric":{"a":"2"},"values":[[1700000000,"5"],[1700000030,"6"],[1700000060,"7"],[1700000090,"8"]]},{"metric":{"a":"3"},"values":[[1700000000,"9"],[1700000030,"10"],[1700000060,"11"],[1700000090,"12"]]}]}`,
		},
		{
			name: "gaps", grid: four, want: "{a=\"1\"} . 2 . 4\n{a=\"2\"} 5 . . .\n{a=\"3\"} . . . 12\n{a=\"4\"} . . 1 .\n",
			in: `{"resultType":"matrix","result":[{"metric":{"a":"1"},"values":[[1700000030,"2"],[1700000090,"4"]]},{"metric":{"a":"2"},"values":[[1700000000,"5"]]},` +
				`{"metric":{"a":"3"},"values":[[1700000090,"12"]]},{"metric":{"a":"4"},"values":[[1700000060.000,"1"]]}]}`,
		},
		{
			name: "early times", grid: early, want: "{a=\"1\"} 1 2 3 4 5\n{a=\"2\"} . 2 . . 5\n",
			in: `{"resultType":"matrix","result":[{"metric":{"a":"1"},"values":[[0,"1"],[0.5,"2"],[1,"3"],[1.5,"4"],[2,"5"]]},{"metric":{"a":"2"},"values":[[0.5,"2"],[2.0,"5"]]}]}`,
		},
		{
			name: "a matrix of one step", grid: moment, want: "{} 1\n",
			in: `{"resultType":"matrix","result":[{"metric":{},"values":[[1435781451.781,"1"]]}]}`,
		},
		{
			name: "any order of keys, stats, white space, escapes", grid: four, want: "{ba=\"A\\n\"} 1 . . .\n",
			in: ` { "stats" : {"samples":[1]} , "result" : [ { "values" : [ [ 1.7e9 , "\u0031" ] ] , "new" : {} , "metric" : { "b\u0061" : "\u0041\n" , "empty" : "" } } ] , "resultType" : "matrix" , "analysis" : null } `,
		},
		{
			name: "relabelled", grid: moment, rl: jaguar, want: "{__name__=\"up\", cluster=\"jaguar\", z=\"1\"} 1\n{cluster=\"jaguar\"} 2\n{cluster=\"jaguar\", job=\"\\\"\"} 4\n{a=\"1\", cluster=\"jaguar\"} 3\n",
			in: `{"resultType":"vector","result":[{"metric":{"__name__":"up","cluster":"ibis","replica":"1","z":"1"},"value":[1435781451.781,"1"]},{"metric":{},"value":[1435781451.781,"2"]},` +
				`{"metric":{"a":"1"},"value":[1435781451.781,"3"]},{"metric":{"replica":"x","job":"\""},"value":[1435781451.781,"4"]}]}`,
		},
		{
			name: "numbers", grid: four, want: "{} 1e+300 -0 0.06666666666666667 9.007199254740994e+15\n",
			in: `{"resultType":"matrix","result":[{"metric":{},"values":[[1700000000,"1e300"],[1700000030,"-0"],[1700000060,"0.06666666666666667"],[1700000090,"9007199254740993.0000000000000000000000000001"]]}]}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := strings.Split(tc.want, "\n")
			slices.Sort(want)
			for _, doc := range []string{
				envelope(tc.in), `{"data":` + tc.in + `,"status":"success"}` + strings.Repeat(" ", 100),
				` {"status" : "success","new":{"a":[]},"data":` + tc.in + "}\n",
			} {
				for _, r := range []io.Reader{strings.NewReader(doc), iotest.OneByteReader(strings.NewReader(doc))} {
					res, err := table(t, r, tc.rl, tc.grid, roomy, func(tab *Table, b *admit.Budget) {
						got := strings.Split(shown(tab), "\n")
						slices.Sort(got)
						if !slices.Equal(got, want) || tab.Histograms {
							t.Errorf("%s\ngot  %q\nwant %q", doc, got, want)
						}
						if !slices.IsSortedFunc(tab.Series, func(a, b TableSeries) int { return labels.Compare(a.Labels, b.Labels) }) {
							t.Errorf("not sorted: %s", shown(tab))
						}
						samples := int64(0)
						for _, s := range tab.Series {
							for _, v := range s.Values {
								if !isStale(v) {
									samples++
								}
							}
						}
						if b.Samples() != samples || b.Bytes() != int64(len(doc)) || b.Series() != 0 {
							t.Errorf("%d samples, %d bytes, %d series counted; want %d, %d, 0", b.Samples(), b.Bytes(), b.Series(), samples, len(doc))
						}
					})
					if err != nil || res.Series != strings.Count(tc.want, "\n") {
						t.Fatalf("%s: %d series, %v", doc, res.Series, err)
					}
				}
			}
		})
	}
}

func TestDecodeTableNotes(t *testing.T) {
	res, err := table(t, strings.NewReader(`{"warnings":["a","results truncated due to limit"],"infos":["i"],"status":"success","data":{"resultType":"vector","result":[]}}`), nil, moment, roomy, nil)
	if err != nil || !res.Truncated || !slices.Equal(res.Warnings, []string{"a"}) || !slices.Equal(res.Infos, []string{"i"}) {
		t.Errorf("got %+v, %v", res, err)
	}
}

func TestDecodeTableHistograms(t *testing.T) {
	for name, doc := range map[string]string{
		"vector":      `{"resultType":"vector","result":[{"metric":{"a":"1"},"value":[1435781451.781,"1"]},{"metric":{},"histogram":[1435781451.781,{"count":"1","sum":"2"}]}]}`,
		"matrix":      `{"resultType":"matrix","result":[{"metric":{"a":"1"},"values":[[1435781451.781,"1"]],"histograms":[[1435781451.781,{"count":"1","sum":"2"}]]}]}`,
		"then broken": `{"resultType":"vector","result":[{"metric":{},"histogram":[}`,
	} {
		_, err := table(t, strings.NewReader(envelope(doc)), nil, moment, roomy, func(tab *Table, b *admit.Budget) {
			if !tab.Histograms || len(tab.Series) != 0 || b.Held() != 0 {
				t.Errorf("%s: %+v, %d bytes held", name, tab, b.Held())
			}
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDecodeTableErrors(t *testing.T) {
	matrix := func(values string) string {
		return envelope(`{"resultType":"matrix","result":[{"metric":{"a":"1"},"values":[` + values + `]}]}`)
	}
	vector := func(series ...string) string {
		return envelope(`{"resultType":"vector","result":[` + strings.Join(series, ",") + `]}`)
	}
	for _, tc := range []struct {
		name, doc string
		grid      Grid
		kind      ScanKind
	}{
		{"login page", "<html>", four, Garbage},
		{"empty body", "", four, Truncated},
		{"no data", `{"status":"success"}`, four, WrongShape},
		{"null data", `{"status":"success","data":null}`, four, WrongShape},
		{"scalar", envelope(`{"resultType":"scalar","result":[1,"2"]}`), moment, WrongShape},
		{"string", envelope(`{"resultType":"string","result":[1,"2"]}`), moment, WrongShape},
		{"scalar, type behind", envelope(`{"result":[1,"2"],"resultType":"scalar"}`), moment, WrongShape},
		{"odd resultType", envelope(`{"resultType":"tensor","result":[]}`), four, WrongShape},
		{"no resultType", envelope(`{"result":[]}`), four, WrongShape},
		{"no result", envelope(`{"resultType":"matrix"}`), four, WrongShape},
		{"result twice", envelope(`{"resultType":"matrix","result":[],"result":[]}`), four, WrongShape},
		{"vector called matrix", envelope(`{"resultType":"matrix","result":[{"metric":{},"value":[1435781451.781,"1"]}]}`), moment, WrongShape},
		{"matrix called vector", envelope(`{"result":[{"metric":{},"values":[[1435781451.781,"1"]]}],"resultType":"vector"}`), moment, WrongShape},
		{"mixed", envelope(`{"resultType":"matrix","result":[{"metric":{},"value":[1435781451.781,"1"]},{"metric":{"a":"1"},"values":[[1435781451.781,"1"]]}]}`), moment, WrongShape},
		{"vector for a range", vector(`{"metric":{},"value":[1700000000,"1"]}`), four, WrongShape},
		{"off the grid", matrix(`[1700000000,"1"],[1700000029,"1"]`), four, WrongShape},
		{"off by a millisecond", matrix(`[1700000000.001,"1"]`), four, WrongShape},
		{"off by less", matrix(`[1700000000.0001,"1"]`), four, WrongShape},
		{"before", matrix(`[1699999970,"1"]`), four, WrongShape},
		{"behind", matrix(`[1700000120,"1"]`), four, WrongShape},
		{"another instant", vector(`{"metric":{},"value":[1435781451.782,"1"]}`), moment, WrongShape},
		{"a step twice", matrix(`[1700000000,"1"],[1700000000,"1"]`), four, WrongShape},
		{"time falls", matrix(`[1700000030,"1"],[1700000000,"1"]`), four, WrongShape},
		{"more than the grid", matrix(`[1700000000,"1"],[1700000030,"1"],[1700000060,"1"],[1700000090,"1"],[1700000090,"1"]`), four, WrongShape},
		{"no number", matrix(`[1700000000,"one"]`), four, WrongShape},
		{"out of range", matrix(`[1700000000,"1e999"]`), four, WrongShape},
		{"empty number", matrix(`[1700000000,""]`), four, WrongShape},
		{"number for a string", matrix(`[1700000000,1]`), four, WrongShape},
		{"string for a time", matrix(`["1700000000","1"]`), four, WrongShape},
		{"point of one", matrix(`[1700000000]`), four, Garbage},
		{"point of three", matrix(`[1700000000,"1",2]`), four, Garbage},
		{"point is an object", matrix(`{}`), four, WrongShape},
		{"leading zero", matrix(`[01700000000,"1"]`), four, Garbage},
		{"no metric", vector(`{"value":[1435781451.781,"1"]}`), moment, WrongShape},
		{"metric twice", vector(`{"metric":{},"metric":{},"value":[1435781451.781,"1"]}`), moment, WrongShape},
		{"value twice", vector(`{"metric":{},"value":[1435781451.781,"1"],"value":[1435781451.781,"1"]}`), moment, WrongShape},
		{"no value", vector(`{"metric":{}}`), moment, WrongShape},
		{"no values", envelope(`{"resultType":"matrix","result":[{"metric":{}}]}`), four, WrongShape},
		{"no point", matrix(``), four, WrongShape},
		{"no histogram", envelope(`{"resultType":"matrix","result":[{"metric":{},"histograms":[]}]}`), four, WrongShape},
		{"two points for one", vector(`{"metric":{},"value":[1435781451.781,"1"],[1435781451.781,"1"]}`), moment, Garbage},
		{"label twice", vector(`{"metric":{"a":"1","a":"1"},"value":[1435781451.781,"1"]}`), moment, WrongShape},
		{"number as label", vector(`{"metric":{"a":1},"value":[1435781451.781,"1"]}`), moment, WrongShape},
		{"array as metric", vector(`{"metric":[],"value":[1435781451.781,"1"]}`), moment, WrongShape},
		{"series twice", vector(`{"metric":{"a":"1"},"value":[1435781451.781,"1"]}`, `{"metric":{"b":"1"},"value":[1435781451.781,"1"]}`,
			`{"metric":{"a":"1"},"value":[1435781451.781,"1"]}`), moment, WrongShape},
		{"series twice, spelled otherwise", vector(`{"metric":{"a":"1"},"value":[1435781451.781,"1"]}`, `{"metric":{"a":"\u0031","b":""},"value":[1435781451.781,"1"]}`), moment, WrongShape},
		{"series is a string", vector(`"a"`), moment, WrongShape},
		{"cut", matrix(`[1700000000,"1"],[1700000030,"1"]`)[:110], four, Truncated},
		{"cut behind", vector()[:len(vector())-1], moment, Truncated},
		{"two documents", vector() + `{}`, moment, Garbage},
		{"deep", vector(`{"metric":{},"new":` + strings.Repeat("[", 100)), moment, OverBound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, pad := range []string{"", strings.Repeat(" ", 100)} {
				_, err := table(t, strings.NewReader(tc.doc+pad), NewRelabel(map[string]string{"cluster": "jaguar"}, nil), tc.grid, roomy,
					nil)
				var scan *ScanError
				if !errors.As(err, &scan) || scan.Kind != tc.kind {
					t.Fatalf("got %v, want it %s", err, tc.kind)
				}
				if e := qerr.From(err); e.Kind != qerr.ShardFailed || !strings.Contains(e.Message, "jaguar 127.0.0.1:9090") {
					t.Errorf("not the shard's fault: %+v", e)
				}
			}
		})
	}
}

func TestDecodeTableOtherErrors(t *testing.T) {
	rl := NewRelabel(map[string]string{"cluster": "jaguar"}, []string{"replica"})
	for name, series := range map[string]string{
		"plain":   `{"metric":{"a":"1","replica":"x"},"value":[1435781451.781,"1"]},{"metric":{"a":"1","replica":"y"},"value":[1435781451.781,"1"]}`,
		"escapes": `{"metric":{"a":"\u0031","replica":"x"},"value":[1435781451.781,"1"]},{"metric":{"a":"1"},"value":[1435781451.781,"1"]}`,
	} {
		if _, err := table(t, strings.NewReader(envelope(`{"resultType":"vector","result":[`+series+`]}`)), rl, moment, roomy,
			nil); !errors.Is(err, ErrTwice) {
			t.Errorf("%s: got %v, want ErrTwice", name, err)
		}
	}
	var up *UpstreamError
	if _, err := table(t, strings.NewReader(`{"status":"error","errorType":"execution","error":"no"}`), nil, moment, roomy, nil); !errors.As(err, &up) {
		t.Errorf("got %v", err)
	}
	doc := string(gridDoc(four, 0, 50, valueKinds[0].next))
	_, err := table(t, strings.NewReader(doc), nil, four, admit.Limits{MaxSamples: 199, MaxBytes: 1 << 20}, nil)
	qerrtest.Refused(t, err, qerr.TooExpensive, "max_samples")
	_, err = table(t, strings.NewReader(doc), nil, four, admit.Limits{MaxSamples: 200, MaxBytes: int64(len(doc)) - 1}, nil)
	qerrtest.Refused(t, err, qerr.TooExpensive, "max_response_bytes")
	if _, err = table(t, strings.NewReader(doc), nil, four, admit.Limits{MaxSamples: 200, MaxBytes: int64(len(doc))}, nil); err != nil {
		t.Errorf("at the bounds: %v", err)
	}
	if _, err = table(t, strings.NewReader(doc), nil, Grid{Start: 0, End: math.MaxInt64, Step: 1}, roomy,
		nil); qerr.From(err).Kind != qerr.Internal {
		t.Errorf("an endless grid: %v", err)
	}
}

// TestFastTablePoints holds the fast way against the slow: every document is read whole, and byte
// by byte, which never is fast.
func TestFastTablePoints(t *testing.T) {
	times := []string{
		"0", "1", "12345678", "123456789", "1700000000", "1700000000.1", "1700000000.120", "1700000000.123",
		"1700000000.1230000", "999999999999.9990000", "170000000000000.1230000", "123456789012345", "-1", "-1700000000.5", "0.5", "0.001",
		"00", "01", "0700000000.123", "1e5", "1700000000.", "1.12345678", "1700000000,", "1700000000x123", "",
	}
	zeros, digits := strings.Repeat("0", 40), strings.Repeat("1234567890", 4)
	values := append([]string{
		zeros[:8], zeros[:31], zeros[:32], "-" + zeros[:31] + "." + zeros[:23], "-" + zeros[:31] + "." + zeros[:24],
		zeros[:30] + "1." + zeros[:22] + "1", digits[:19], digits[:24], "0." + digits[:23], zeros[:31] + "." + digits[:23], "-" + digits,
		`1\u0030`, " 1", "1 ", `1"`,
	}, numberSeeds...)
	for _, at := range times {
		ms, ok := rationalMillis(at)
		if !ok {
			ms = 0
		}
		for _, v := range values {
			for _, form := range []string{`[%s,"%s"]`, `[%s, "%s"]`, `[%s,"%s"],`, `[%s,"%s"`, `[%s,"%s",]`} {
				for _, pad := range []string{"", strings.Repeat(" ", 200)} {
					doc := envelope(`{"resultType":"matrix","result":[{"metric":{},"values":[`+fmt.Sprintf(form, at, v)+`]}]}`) + pad
					var fast, slow string
					grid := Grid{Start: ms, End: ms}
					_, err := table(t, strings.NewReader(doc), nil, grid, roomy, func(tab *Table, _ *admit.Budget) { fast = shown(tab) })
					_, slowErr := table(t, iotest.OneByteReader(strings.NewReader(doc)), nil, grid, roomy,
						func(tab *Table, _ *admit.Budget) { slow = shown(tab) })
					if (err == nil) != (slowErr == nil) || fast != slow {
						t.Fatalf("%s\nfast: %v %s\nslow: %v %s", doc, err, fast, slowErr, slow)
					}
				}
			}
		}
	}
}

// answerOf is a random answer on a grid in random spelling. It returns the series as well, as
// encoding/json will understand them.
func answerOf(r *rand.Rand, grid Grid, n int) string {
	space := func() string { return []string{"", "", "", "", "", " ", "\n\t"}[r.IntN(7)] }
	plain := r.IntN(2) == 0
	text := func(s string) string {
		if plain {
			return string(AppendText(nil, s))
		}
		return jsonText(r, s)
	}
	var series []string
	seen := map[string]bool{}
	for range n {
		m := map[string]string{}
		for range r.IntN(5) {
			m[randomText(r)] = randomText(r)
		}
		ls := labels.FromMap(m).String()
		if seen[ls] {
			continue
		}
		seen[ls] = true
		var pairs []string
		for _, name := range slices.Sorted(func(yield func(string) bool) {
			for name := range m {
				if !yield(name) {
					return
				}
			}
		}) {
			pairs = append(pairs, text(name)+":"+text(m[name]))
		}
		if !plain {
			r.Shuffle(len(pairs), func(a, b int) { pairs[a], pairs[b] = pairs[b], pairs[a] })
		}
		var points []string
		for i := range grid.Len() {
			if grid.Len() > 1 && r.IntN(4) == 0 && (len(points) > 0 || i < grid.Len()-1) {
				continue
			}
			value := [...]string{
				"0", "1", "-3", "NaN", "+Inf", "-Inf", strconv.Itoa(r.IntN(1e6)), strconv.FormatFloat(r.NormFloat64()*1e3, 'f', -1, 64),
				strconv.FormatFloat(math.Float64frombits(r.Uint64()), 'g', -1, 64), strconv.FormatFloat(r.Float64(), 'f', -1, 64),
			}[r.IntN(10)]
			at := string(AppendTimestamp(nil, grid.Time(i)))
			if !plain && r.IntN(5) == 0 && strings.Contains(at, ".") {
				at += "00"
			}
			if plain {
				points = append(points, "["+at+`,"`+value+`"]`)
			} else {
				points = append(points, "["+space()+at+space()+","+text(value)+space()+"]"+space())
			}
		}
		members := []string{`"metric":{` + strings.Join(pairs, ","+space()) + `}`}
		switch {
		case grid.Len() == 1:
			members = append(members, `"value":`+points[0])
		default:
			members = append(members, `"values":[`+strings.Join(points, ",")+`]`)
		}
		if !plain && r.IntN(3) == 0 {
			slices.Reverse(members)
		}
		series = append(series, "{"+strings.Join(members, ",")+"}")
	}
	resultType := `"resultType":"matrix"`
	if grid.Len() == 1 {
		resultType = `"resultType":"vector"`
	}
	parts := []string{resultType, `"result":[` + strings.Join(series, ","+space()) + `]`}
	if r.IntN(3) == 0 {
		slices.Reverse(parts)
	}
	return envelope("{" + strings.Join(parts, ",") + "}")
}

// understood is what encoding/json and strconv make of an answer, in the form of shown, its lines
// sorted. ok is false where it is no such answer: two series of one label set, a time that is not
// on the grid or does not increase, and so on.
func understood(doc []byte, grid Grid, rl *Relabel) (lines []string, ok bool) {
	type object = map[string]json.RawMessage // not structs, whose keys encoding/json finds in any case
	var a, data object
	var result []object
	if json.Unmarshal(doc, &a) != nil || json.Unmarshal(a["data"], &data) != nil || json.Unmarshal(data["result"], &result) != nil {
		return nil, false
	}
	seen := map[string]bool{}
	for _, s := range result {
		var metric map[string]string
		var points []json.RawMessage
		if json.Unmarshal(s["metric"], &metric) != nil || s["values"] != nil && json.Unmarshal(s["values"], &points) != nil {
			return nil, false
		}
		if s["value"] != nil {
			points = append(points, s["value"])
		}
		tab := Table{Series: []TableSeries{{Labels: rl.Labels(labels.FromMap(metric).WithoutEmpty()), Values: make([]float64, grid.Len())}}}
		values := tab.Series[0].Values
		for i := range values {
			values[i] = stale
		}
		last := -1
		for _, raw := range points {
			var point []json.RawMessage
			var text string
			if json.Unmarshal(raw, &point) != nil || len(point) != 2 || json.Unmarshal(point[1], &text) != nil {
				return nil, false
			}
			ms, ok := rationalMillis(string(point[0]))
			i := 0
			for ; i < grid.Len() && grid.Time(i) != ms; i++ { // slow and sure
			}
			v, err := strconv.ParseFloat(text, 64)
			if !ok || i == grid.Len() || i <= last || err != nil {
				return nil, false
			}
			last, values[i] = i, v
		}
		if last < 0 {
			return nil, false
		}
		ls := tab.Series[0].Labels.String()
		if seen[ls] {
			return nil, false
		}
		seen[ls] = true
		lines = append(lines, strings.TrimSuffix(shown(&tab), "\n"))
	}
	slices.Sort(lines)
	return lines, true
}

func linesOf(tab *Table) []string {
	text := strings.TrimSuffix(shown(tab), "\n")
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return lines
}

// TestDecodeTableRandom compares with encoding/json over random answers in random spelling, read in
// pieces of random size.
func TestDecodeTableRandom(t *testing.T) {
	r := newRand(t)
	for round := range 600 {
		grid := []Grid{
			four, early, moment, hour,
			{Start: 1_700_000_000_123, End: 1_700_000_004_000, Step: 7},
			{Start: -5000, End: 5000, Step: 2500},
		}[r.IntN(6)]
		n := r.IntN(40)
		if grid.Len() > 20 {
			n = r.IntN(5)
		}
		var rl *Relabel
		if r.IntN(3) == 0 {
			rl = NewRelabel(map[string]string{"cluster": "jaguar", "a": "z"}, nil)
		}
		doc := answerOf(r, grid, n)
		want, ok := understood([]byte(doc), grid, rl)
		if !ok && rl == nil {
			t.Fatalf("round %d: the test's own answer is wrong: %s", round, doc)
		}
		_, err := table(t, chunked(r, doc), rl, grid, roomy, func(tab *Table, _ *admit.Budget) {
			if got := linesOf(tab); !slices.Equal(got, want) {
				t.Errorf("round %d: %s\ngot  %q\nwant %q", round, doc, got, want)
			}
		})
		if ok != (err == nil) || err != nil && !errors.Is(err, ErrTwice) {
			t.Fatalf("round %d: %v\n%s", round, err, doc)
		}
	}
}

// FuzzDecodeTable: what is taken is JSON and means what encoding/json says, however it is read;
// what is not is a typed error.
func FuzzDecodeTable(f *testing.F) {
	seeds(f)
	r := rand.New(rand.NewPCG(1, 1))
	for range 8 {
		f.Add([]byte(answerOf(r, early, 3)))
		f.Add([]byte(answerOf(r, Grid{}, 3)))
	}
	rl := NewRelabel(map[string]string{"cluster": "jaguar"}, []string{"replica"})
	f.Fuzz(func(t *testing.T, doc []byte) {
		limits := admit.Limits{MaxSeries: 1000, MaxSamples: 100000, MaxBytes: 1 << 20}
		for _, grid := range []Grid{{}, early} {
			for _, rl := range []*Relabel{nil, rl} {
				var got, slow []string
				histograms := false
				_, err := table(t, bytes.NewReader(doc), rl, grid, limits,
					func(tab *Table, _ *admit.Budget) { got, histograms = linesOf(tab), tab.Histograms })
				_, slowErr := table(t, iotest.OneByteReader(bytes.NewReader(doc)), rl, grid, limits,
					func(tab *Table, _ *admit.Budget) { slow = linesOf(tab) })
				if (err == nil) != (slowErr == nil) || !slices.Equal(got, slow) {
					t.Fatalf("reading byte by byte changes the table: %v %v\n%q\n%q", err, slowErr, got, slow)
				}
				var e *qerr.Error
				if err != nil {
					if !errors.As(err, &e) && !errors.Is(err, ErrTwice) {
						t.Fatalf("untyped error %v", err)
					}
					continue
				}
				if histograms {
					continue // the rest was not read
				}
				if want, ok := understood(doc, grid, rl); !ok || !slices.Equal(got, want) {
					t.Fatalf("got %q, want %q %t", got, want, ok)
				}
			}
		}
	})
}
