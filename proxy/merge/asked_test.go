package merge

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// both passes an answer by Pass and by Splice; the error is that of either, which must be of one
// mind about scan errors.
func both(t *testing.T, doc string, asked *Asked, slow bool) error {
	t.Helper()
	reader := func() io.Reader {
		if slow {
			return iotest.OneByteReader(strings.NewReader(doc))
		}
		return strings.NewReader(doc)
	}
	var errs []error
	for _, f := range []func(*Writer, Source, *admit.Budget) error{
		func(w *Writer, src Source, b *admit.Budget) error { _, err := Pass(t.Context(), w, src, b); return err },
		func(w *Writer, src Source, b *admit.Budget) error {
			_, err := Splice(t.Context(), w, 0, []Source{src}, b)
			return err
		},
	} {
		if asked.Type != "vector" && asked.Type != "matrix" && len(errs) > 0 {
			break // Splice is not for those
		}
		pool := admit.NewPool(256 << 20)
		b := admit.NewBudget(pool, roomy)
		w := NewWriter(&bytes.Buffer{}, b)
		errs = append(errs, f(w, Source{Name: "jaguar 127.0.0.1:9090", Body: reader(), Asked: asked}, b))
		w.Close()
		b.Close()
		if pool.InUse() != 0 {
			t.Errorf("%d bytes of the pool are in use", pool.InUse())
		}
	}
	if len(errs) > 1 && (errs[0] == nil) != (errs[1] == nil) {
		t.Errorf("Pass says %v, Splice %v", errs[0], errs[1])
	}
	return errs[0]
}

// TestAsked: what a shard answers is the answer to what it was asked, or the shard's fault.
func TestAsked(t *testing.T) {
	const at = 1700000000781
	now := Grid{Start: at, End: at}
	steps := Grid{Start: at, End: at + 5*30000, Step: 30000}
	stored := Grid{Start: at - 300000, End: at, Step: 1}
	instant := func(samples ...string) string {
		for i, s := range samples {
			samples[i] = fmt.Sprintf(`{"metric":{"i":"%d"},%s}`, i, s)
		}
		return `{"resultType":"vector","result":[` + strings.Join(samples, ",") + `]}`
	}
	matrix := func(series ...string) string {
		for i, s := range series {
			series[i] = strings.Replace(s, `"value":`, `"values":[`, 1) + "]"
		}
		return strings.Replace(instant(series...), "vector", "matrix", 1)
	}
	const v = `"value":[1700000000.781,"1"]`
	const row = `"value":[1700000000.781,"1"],[1700000030.781,"1.5"],[1700000090.781,"2"]` // one step without a sample
	for _, tc := range []struct {
		name, kind string
		grid       Grid
		data       string
		wrong      string // in the reason; empty: it is right
	}{
		{"a vector", "vector", now, instant(v, v, v), ""},
		{"an empty vector", "vector", now, instant(), ""},
		{"a histogram", "vector", now, instant(`"histogram":[1700000000.781,{"count":"1","sum":"1"}]`), ""},
		{"white space", "vector", now, instant(`"value": [ 1700000000.781 , "1" ] `), ""},
		{"a time spelled otherwise", "vector", now, instant(`"value":[1.700000000781e9,"1"]`), ""},
		{"a matrix for a vector", "vector", now, matrix(v), "a matrix, and a vector was asked for"},
		{"an empty matrix for a vector", "vector", now, matrix(), "a matrix, and a vector was asked for"},
		{"a scalar for a vector", "vector", now, `{"resultType":"scalar","result":[1700000000.781,"1"]}`, "a scalar, and a vector was asked for"},
		{"1970", "vector", now, instant(v, `"value":[1,"1"]`), "at 1 s, at which nothing was asked"},
		{"1e400", "vector", now, instant(v, v, `"value":[1e400,"1"]`), "at 1e400 s, at which nothing was asked"},
		{
			"a millisecond late", "vector", now, instant(v, v, `"value":[1700000000.782,"1"]`),
			"at 1700000000.782 s, at which nothing was asked",
		},
		{"less than one late", "vector", now, instant(v, v, `"value":[1700000000.7811,"1"]`), "nothing was asked"},
		{"a histogram of 1970", "vector", now, instant(`"histogram":[1,{"count":"1","sum":"1"}]`), "nothing was asked"},
		{"a second value", "vector", now, instant(v, v+`,[1700000000.781,"1"]`), "a key"},
		{"a scalar", "scalar", now, `{"resultType":"scalar","result":[1700000000.781,"-Inf"]}`, ""},
		{"a scalar of 1970", "scalar", now, `{"resultType":"scalar","result":[1,"1"]}`, "nothing was asked"},
		{"a scalar that is a word", "scalar", now, `{"resultType":"scalar","result":[1700000000.781,"one"]}`, "a scalar that is no number"},
		{"a scalar named behind", "scalar", now, `{"result":[1700000000.781,"1_0"],"resultType":"scalar"}`, "a scalar that is no number"},
		{"a string", "string", now, `{"resultType":"string","result":[1700000000.781,"one"]}`, ""},
		{"a range", "matrix", steps, matrix(row, row, row), ""},
		{"the last step", "matrix", steps, matrix(row, `"value":[1700000150.781,"1"]`), ""},
		{
			"beyond the last step", "matrix", steps, matrix(row, row, `"value":[1700000180.781,"1"]`),
			"at 1700000180.781 s, at which nothing was asked",
		},
		{
			"between steps", "matrix", steps, matrix(row, row, `"value":[1700000000.781,"1"],[1700000031.781,"1"]`),
			"at 1700000031.781 s, at which nothing was asked",
		},
		{
			"a step twice", "matrix", steps, matrix(row, row, `"value":[1700000000.781,"1"],[1700000000.781,"1"]`),
			"behind one that is as late or later",
		},
		{
			"a step back", "matrix", steps, matrix(row, row, `"value":[1700000030.781,"1"],[1700000000.781,"1"]`),
			"behind one that is as late or later",
		},
		{
			"histograms between steps", "matrix", steps,
			strings.Replace(matrix(`"value":[1700000001,{"count":"1","sum":"1"}]`), "values", "histograms", 1), "nothing was asked",
		},
		{"a vector for a range", "matrix", steps, instant(v), "a vector, and a matrix was asked for"},
		{"as stored", "matrix", stored, matrix(`"value":[1699999700.781,"1"],[1699999999.999,"1"],[1700000000.781,"1"]`, `"value":[1699999801,"1"]`), ""},
		{"stored before", "matrix", stored, matrix(`"value":[1699999700.78,"1"]`), "nothing was asked"},
		{"stored after", "matrix", stored, matrix(v, `"value":[1700000000.782,"1"]`), "nothing was asked"},
		{"an underscore", "matrix", steps, matrix(row, row, `"value":[1700000000.781,"1_0"]`), `the value of a sample is "1_0"`},
		{"hexadecimal", "vector", now, instant(v, `"value":[1700000000.781,"0x1p-2"]`), `the value of a sample is "0x1p-2"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, slow := range []bool{false, true} {
				for _, pad := range []string{"", strings.Repeat(" ", 200)} { // near the end of what was read each point is read alone
					err := both(t, envelope(tc.data)+pad, &Asked{Type: tc.kind, Grid: tc.grid}, slow)
					if tc.wrong == "" {
						if err != nil {
							t.Fatal(err)
						}
						continue
					}
					var scan *ScanError
					if !errors.As(err, &scan) || !strings.Contains(scan.Reason, tc.wrong) {
						t.Fatalf("got %v, want %s", err, tc.wrong)
					}
					if e := qerr.From(err); e.Kind != qerr.ShardFailed || !strings.Contains(e.Message, "jaguar 127.0.0.1:9090") {
						t.Errorf("not the shard's fault: %v", e)
					}
				}
			}
		})
	}
}

// TestErrorBesideSuccess: an answer that says both is neither.
func TestErrorBesideSuccess(t *testing.T) {
	const data = `"data":{"resultType":"vector","result":[]}`
	for _, doc := range []string{
		`{"status":"success",` + data + `,"error":"e"}`,
		`{"errorType":"execution","status":"success",` + data + `}`,
	} {
		_, _, _, err := passed(t, strings.NewReader(doc), nil, roomy)
		var scan *ScanError
		if !errors.As(err, &scan) || scan.Kind != WrongShape {
			t.Errorf("%s: %v", doc, err)
		}
	}
	if _, _, _, err := passed(t, strings.NewReader(`{"status":"success",`+data+`,"error":"","errorType":null}`), nil, roomy); err != nil {
		t.Error(err)
	}
}

// TestIsNumber: every value that Prometheus writes is taken, whatever its length and wherever its
// point is, by the fast way as by the slow one; what else Go, or somebody, takes for a number is
// not.
func TestIsNumber(t *testing.T) {
	var right []string
	r := rand.New(rand.NewPCG(randseed.Of(t, 0), 1))
	for range 2000 {
		f := (r.Float64() - 0.5) * []float64{1, 10, 1e3, 1e9, 1e20}[r.IntN(5)]
		right = append(right, strconv.FormatFloat(f, 'f', -1, 64), strconv.FormatFloat(f, 'e', -1, 64),
			strconv.FormatInt(r.Int64()>>r.IntN(63), 10))
	}
	right = append(right, "0", "-0", "NaN", "+Inf", "-Inf", "1e-07", "1e+21", "1.7976931348623157e+308", "5e-324", "0.000001", "12345678",
		"1234567.8", "12345678.12345678", strings.Repeat("9", 308))
	wrong := []string{
		"", "-", ".", "-.", "1_0", "0x1p-2", "0x10", "1.2.3", "1..2", "1./2", "1/2", "1,5", "+1", "--1", "1-", " 1", "1 ", "Inf", "inf",
		"nan", "-NaN", "infinity", "1e", "1e+", "e5", "1e5.0", "1e400",
		"12345678.1234567.1", strings.Repeat("9", 310), "1\\u0030", "١", "1234567é", "12345678/", "1.234567_8",
	}
	passes := func(text string) bool {
		doc := envelope(`{"resultType":"matrix","result":[{"metric":{},"values":[[1700000000,"` + text + `"],[1700000001,"2"]]}]}`)
		_, _, _, err := passed(t, strings.NewReader(doc+strings.Repeat(" ", 200)), nil, roomy)
		_, _, _, slow := passed(t, strings.NewReader(strings.Replace(doc, "[[", "[ [ ", 1)), nil, roomy)
		if (err == nil) != (slow == nil) {
			t.Errorf("%q: the fast way says %v, the slow one %v", text, err, slow)
		}
		return err == nil
	}
	for _, text := range right {
		if !isNumber([]byte(text)) || !passes(text) {
			t.Errorf("%q is refused", text)
		}
	}
	for _, text := range wrong {
		if isNumber([]byte(text)) || passes(text) {
			t.Errorf("%q is taken for a number", text)
		}
	}
}
