package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/qerr/qerrtest"
)

var roomy = admit.Limits{MaxSeries: 1 << 20, MaxSamples: 1 << 30, MaxBytes: 1 << 40}

// passed is a whole answer by Pass, or its error.
func passed(t *testing.T, body io.Reader, rl *Relabel, limits admit.Limits) (string, Result, *admit.Budget, error) {
	t.Helper()
	pool := admit.NewPool(256 << 20)
	b := admit.NewBudget(pool, limits)
	var out bytes.Buffer
	w := NewWriter(&out, b)
	err := w.Begin()
	res, perr := Pass(t.Context(), w, Source{Name: "jaguar 127.0.0.1:9090", Body: body, Relabel: rl}, b)
	if err = errors.Join(err, perr); err == nil {
		err = w.Finish(res.Warnings, res.Infos)
	}
	w.Close()
	if held := b.Held(); held != 0 {
		t.Errorf("%d bytes are held after Pass", held)
	}
	b.Close()
	if pool.InUse() != 0 {
		t.Errorf("%d bytes of the pool are in use", pool.InUse())
	}
	return out.String(), res, b, err
}

func envelope(data string) string { return `{"status":"success","data":` + data + `}` }

func TestPass(t *testing.T) {
	jaguar := NewRelabel(map[string]string{"cluster": "jaguar"}, []string{"replica"})
	for _, tc := range []struct {
		name    string
		rl      *Relabel
		in, out string // data; out empty: as in
		samples int64
	}{
		{name: "empty vector", in: `{"resultType":"vector","result":[]}`},
		{name: "empty matrix", in: `{"resultType":"matrix","result":[]}`},
		{name: "vector", in: `{"resultType":"vector","result":[{"metric":{"__name__":"up"},"value":[1435781451.781,"1"]},{"metric":{},"value":[1,"NaN"]}]}`, samples: 2},
		{name: "matrix", in: `{"resultType":"matrix","result":[{"metric":{"a":"b"},"values":[[1,"1"],[2.5,"+Inf"],[-3,"1e-07"]]},{"metric":{},"values":[[0,"1"]]}]}`, samples: 4},
		{name: "scalar", in: `{"resultType":"scalar","result":[4,"2"]}`, samples: 1},
		{name: "string", in: `{"resultType":"string","result":[4.123,"a\"\u003cé"]}`, samples: 1},
		{name: "histogram", in: `{"resultType":"vector","result":[{"metric":{},"histogram":[1,{"count":"1","sum":"2","buckets":[[0,"1","2","1"]]}]}]}`, samples: 1},
		{name: "histograms", in: `{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2"]],"histograms":[[2,{"count":"1","sum":"2"}],[3,{"count":"1","sum":"2"}]]}]}`, samples: 3},
		{name: "stats", in: `{"resultType":"vector","result":[],"stats":{"timings":{"evalTotalTime":0.1},"samples":{"totalQueryableSamples":[1,2]}}}`},
		{name: "result first", in: `{"result":[{"metric":{},"value":[1,"1"]}],"resultType":"vector"}`, samples: 1},
		{
			name: "white space", in: ` { "resultType" : "matrix" , "result" : [ { "metric" : { "a" : "b" } , "values" : [ [ 1 , "1" ] , [2,"2"] ] } ] } `,
			out: `{"resultType":"matrix","result":[{ "metric" : { "a" : "b" } , "values" : [ [ 1 , "1" ] , [2,"2"] ] } ]}`, samples: 2,
		},
		{
			name: "group labels", rl: jaguar, in: `{"resultType":"vector","result":[{"metric":{"__name__":"up","job":"a"},"value":[1,"1"]},{"metric":{},"value":[1,"1"]}]}`,
			out: `{"resultType":"vector","result":[{"metric":{"__name__":"up","cluster":"jaguar","job":"a"},"value":[1,"1"]},{"metric":{"cluster":"jaguar"},"value":[1,"1"]}]}`, samples: 2,
		},
		{
			name: "stored labels removed", rl: jaguar, in: `{"resultType":"matrix","result":[{"metric":{"cluster":"ibis","replica":"r","z":"1"},"values":[[1,"1"]]},{"metric":{"z":"2"},"values":[]}]}`,
			out: `{"resultType":"matrix","result":[{"metric":{"cluster":"jaguar","z":"1"},"values":[[1,"1"]]},{"metric":{"cluster":"jaguar","z":"2"},"values":[]}]}`, samples: 1,
		},
		{
			name: "not sorted, escapes, values first", rl: jaguar,
			in:  `{"resultType":"vector","result":[{"value":[1,"1"],"metric":{"z":"\u0041\n\"","b\u0061" : "é","replica":"x"}}]}`,
			out: `{"resultType":"vector","result":[{"value":[1,"1"],"metric":{"ba":"é","cluster":"jaguar","z":"A\n\""}}]}`, samples: 1,
		},
		{
			name: "names that sort otherwise when escaped", rl: NewRelabel(map[string]string{"A": "new"}, []string{"<"}),
			in:  `{"resultType":"vector","result":[{"metric":{"\n":"1","<":"2","B":"3"},"value":[1,"1"]}]}`,
			out: `{"resultType":"vector","result":[{"metric":{"\n":"1","A":"new","B":"3"},"value":[1,"1"]}]}`, samples: 1,
		},
		{
			name: "only replica labels", rl: NewRelabel(nil, []string{"replica", "zone"}), in: `{"resultType":"vector","result":[{"metric":{"replica":"a","zone":"b"},"value":[1,"1"]}]}`,
			out: `{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}]}`, samples: 1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := tc.out
			if want == "" {
				want = tc.in
			}
			for _, doc := range []string{
				envelope(tc.in), `{"data":` + tc.in + `,"status":"success"}`,
				` {"status" : "success","new":{"a":[]},"data":` + tc.in + "}\n",
			} {
				for _, r := range []io.Reader{strings.NewReader(doc), iotest.OneByteReader(strings.NewReader(doc))} {
					got, _, b, err := passed(t, r, tc.rl, roomy)
					if err != nil {
						t.Fatalf("%s: %v", doc, err)
					}
					if got != envelope(want) {
						t.Fatalf("got  %s\nwant %s", got, envelope(want))
					}
					if b.Samples() != tc.samples || b.Bytes() != int64(len(doc)) {
						t.Errorf("%d samples, %d bytes counted; want %d, %d", b.Samples(), b.Bytes(), tc.samples, len(doc))
					}
				}
			}
		})
	}
}

func TestPassNotes(t *testing.T) {
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf(`"w%d"`, i)
	}
	doc := `{"warnings":["a","a","b\u0000\n c","results truncated due to limit","` + strings.Repeat("é", 4000) + `",` + strings.Join(many, ",") + `],"infos":["i<"],"status":"success","data":{"resultType":"vector","result":[]}}`
	got, res, _, err := passed(t, strings.NewReader(doc), nil, roomy)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Warnings) != 32 || res.Warnings[0] != "a" || res.Warnings[1] != "b   c" || len(res.Warnings[2]) > 1024 ||
		!strings.HasSuffix(res.Warnings[2], "é") && !strings.HasSuffix(res.Warnings[2], "…") {
		t.Errorf("warnings %q", res.Warnings)
	}
	if !res.Truncated {
		t.Error("the shard's truncation is not told")
	}
	if !strings.Contains(got, `"infos":["i\u003c"]`) || !json.Valid([]byte(got)) {
		t.Errorf("got %s", got)
	}
}

func TestPassErrors(t *testing.T) {
	series := func(metric string) string {
		return envelope(`{"resultType":"vector","result":[{"metric":{"a":"1"},"value":[1,"1"]},{"metric":` + metric + `,"value":[1,"1"]}]}`)
	}
	rl := NewRelabel(map[string]string{"cluster": "jaguar"}, []string{"replica"})
	for _, tc := range []struct {
		name, doc string
		kind      ScanKind
	}{
		{"login page", "<html>", Garbage},
		{"empty body", "", Truncated},
		{"no status", `{"data":{"resultType":"vector","result":[]}}`, WrongShape},
		{"odd status", `{"status":"ok","data":{"resultType":"vector","result":[]}}`, WrongShape},
		{"no data", `{"status":"success"}`, WrongShape},
		{"null data", `{"status":"success","data":null}`, WrongShape},
		{"array", `[]`, WrongShape},
		{"data of labels", envelope(`["a"]`), WrongShape},
		{"no result", envelope(`{"resultType":"vector"}`), WrongShape},
		{"no resultType", envelope(`{"result":[]}`), WrongShape},
		{"odd resultType", envelope(`{"resultType":"tensor","result":[]}`), WrongShape},
		{"vector called matrix", envelope(`{"resultType":"matrix","result":[{"metric":{},"value":[1,"1"]}]}`), WrongShape},
		{"scalar called vector", envelope(`{"resultType":"vector","result":[1,"1"]}`), WrongShape},
		{"mixed", envelope(`{"resultType":"matrix","result":[{"metric":{},"value":[1,"1"]},{"metric":{},"values":[[1,"1"]]}]}`), WrongShape},
		{"result twice", envelope(`{"resultType":"vector","result":[],"result":[]}`), WrongShape},
		{"data twice", `{"status":"success","data":{"resultType":"vector","result":[]},"data":{"resultType":"vector","result":[]}}`, WrongShape},
		{"partial by its own word", `{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[]}}`, WrongShape},
		{"partial, said last", `{"status":"success","data":{"resultType":"vector","result":[]},"isPartial":true}`, WrongShape},
		{"number as label", series(`{"b":1}`), WrongShape},
		{"label twice", series(`{"b":"1","b":"2"}`), WrongShape},
		{"label twice, apart", series(`{"b":"1","a":"1","b":"2"}`), WrongShape},
		{"array as metric", series(`[]`), WrongShape},
		{"metric cut", envelope(`{"resultType":"vector","result":[{"metric":{"a":"1"`)[:70], Truncated},
		{"sample of three", envelope(`{"resultType":"vector","result":[{"metric":{},"value":[1,"1",2]}]}`), Garbage},
		{"sample of number", envelope(`{"resultType":"vector","result":[{"metric":{},"value":[1,1]}]}`), WrongShape},
		{"sample without metric", envelope(`{"resultType":"vector","result":[{"value":[1,"1"]}]}`), WrongShape},
		{"histogram as value", envelope(`{"resultType":"vector","result":[{"metric":{},"value":[1,{}]}]}`), WrongShape},
		{"element is a string", envelope(`{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]},"a"]}`), WrongShape},
		{"truncated in values", `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"1"],[2,`, Truncated},
		{"cut between series", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}`, Truncated},
		{"two documents", envelope(`{"resultType":"vector","result":[]}`) + `{}`, Garbage},
		{"deep stats", envelope(`{"resultType":"vector","result":[],"stats":` + strings.Repeat("[", 100)), OverBound},
		{"leading zero", envelope(`{"resultType":"matrix","result":[{"metric":{},"values":[[01,"1"]]}]}` + strings.Repeat(" ", 100)), Garbage},
		{"control character", envelope(`{"resultType":"matrix","result":[{"metric":{},"values":[[1,"` + "\n" + `"]]}]}` + strings.Repeat(" ", 100)), Garbage},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, _, err := passed(t, strings.NewReader(tc.doc), rl, roomy)
			var scan *ScanError
			var e *qerr.Error
			if !errors.As(err, &scan) || scan.Kind != tc.kind {
				t.Fatalf("got %v, want it %s", err, tc.kind)
			}
			if !errors.As(err, &e) || e.Kind != qerr.ShardFailed || !strings.Contains(e.Message, "jaguar 127.0.0.1:9090") ||
				!reflect.DeepEqual(e.Shards, []string{"jaguar 127.0.0.1:9090"}) {
				t.Errorf("not the shard's fault: %+v", e)
			}
			if strings.Contains(e.Message, "html") {
				t.Errorf("the shard's bytes are in the public sentence: %s", e.Message)
			}
		})
	}
}

// TestPassNotPartial: a server that always says whether it is partial has answered where it is not.
func TestPassNotPartial(t *testing.T) {
	for _, said := range []string{"false", "null", `"no"`} {
		doc := `{"status":"success","isPartial":` + said + `,"data":{"resultType":"vector","result":[]}}`
		if _, _, _, err := passed(t, strings.NewReader(doc), nil, roomy); err != nil {
			t.Errorf("isPartial %s: %v", said, err)
		}
	}
}

func TestPassErrorObject(t *testing.T) {
	_, _, _, err := passed(t, strings.NewReader(`{"status":"error","errorType":"execution","error":"too many samples"}`), nil, roomy)
	var up *UpstreamError
	if !errors.As(err, &up) || up.Type != "execution" || up.Message != "too many samples" {
		t.Errorf("got %v", err)
	}
}

func TestPassBounds(t *testing.T) {
	doc := envelope(`{"resultType":"matrix","result":[{"metric":{"a":"1"},"values":[[1,"1"],[2,"1"]]},{"metric":{"a":"2"},"values":[[1,"1"],[2,"1"]]}]}`)
	for bound, limits := range map[string]admit.Limits{
		"max_series":         {MaxSeries: 1, MaxSamples: 100, MaxBytes: 1000},
		"max_samples":        {MaxSeries: 10, MaxSamples: 3, MaxBytes: 1000},
		"max_response_bytes": {MaxSeries: 10, MaxSamples: 100, MaxBytes: 50},
	} {
		_, _, _, err := passed(t, strings.NewReader(doc), nil, limits)
		qerrtest.Refused(t, err, qerr.TooExpensive, bound)
	}
	if _, _, _, err := passed(t, strings.NewReader(doc), nil,
		admit.Limits{MaxSeries: 2, MaxSamples: 4, MaxBytes: int64(len(doc))}); err != nil {
		t.Errorf("at the bounds: %v", err)
	}
}

func TestPassLabelCollision(t *testing.T) {
	rl := NewRelabel(map[string]string{"cluster": "jaguar"}, []string{"replica"})
	vector := func(metrics ...string) string {
		var b strings.Builder
		for i, m := range metrics {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"metric":%s,"value":[1,"1"]}`, m)
		}
		return envelope(`{"resultType":"vector","result":[` + b.String() + `]}`)
	}
	for _, tc := range []struct {
		name    string
		metrics []string
		words   []string // in the message; none: no collision
	}{
		{"replicas", []string{`{"a":"1","replica":"x"}`, `{"a":"1","replica":"y"}`}, []string{`"replica":"x"`, `"replica":"y"`, `"a":"1"`}},
		{"with and without", []string{`{"a":"1"}`, `{"a":"2"}`, `{"a":"1","replica":"y"}`}, []string{"none of them", `"replica":"y"`}},
		{"without and with", []string{`{"a":"1","cluster":"y"}`, `{"a":"1"}`}, []string{"none of them", `"cluster":"y"`}},
		{"spelled otherwise", []string{`{"a":"A","replica":"x"}`, `{"replica":"y","a" : "\u0041"}`}, []string{`"replica":"x"`}},
		{"distinct", []string{`{"a":"1","replica":"x"}`, `{"a":"2","replica":"x"}`, `{"a":"3"}`}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, _, err := passed(t, strings.NewReader(vector(tc.metrics...)), rl, roomy)
			if tc.words == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			qerrtest.Refused(t, err, qerr.TooExpensive, "label_collision")
			for _, w := range tc.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%s lacks %s", err, w)
				}
			}
		})
	}
}

// matrixDoc is an answer to query_range of so many series and points, as Prometheus writes it.
func matrixDoc(series, points int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"status":"success","data":{"resultType":"matrix","result":[`)
	for i := range series {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"metric":{"__name__":"container_cpu_usage_seconds_total","container":"main","id":"/kubepods/burstable/pod%08x","instance":"10.0.%d.%d:10250","namespace":"research-%d","node":"gpu-%d","pod":"train-%d"},"values":[`,
			i*7919, i/256%256, i%256, i%17, i%500, i)
		for j := range points {
			if j > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `[%d.%03d,"%d.%d"]`, 1700000000+30*j, 781, i*j, (i+j)%1000+1)
		}
		b.WriteString(`]}`)
	}
	b.WriteString(`]}}`)
	return b.Bytes()
}

func TestPassLarge(t *testing.T) {
	doc := matrixDoc(300, 200)
	got, res, b, err := passed(t, bytes.NewReader(doc), nil, roomy)
	if err != nil || got != string(doc) {
		t.Fatalf("a large answer changed; %v", err)
	}
	if b.Samples() != 300*200 || b.Series() != 300 || res.Series != 300 {
		t.Errorf("%d samples, %d series", b.Samples(), b.Series())
	}
	rl := NewRelabel(map[string]string{"cluster": "jaguar"}, []string{"replica"})
	got, _, _, err = passed(t, iotest.HalfReader(bytes.NewReader(doc)), rl, roomy)
	want := strings.ReplaceAll(string(doc), `"container":"main"`, `"cluster":"jaguar","container":"main"`)
	if err != nil || got != want {
		t.Fatalf("a large relabelled answer is wrong; %v", err)
	}
}

// TestFastPoints holds the fast way against the slow: every document is read whole, and byte by
// byte, which never is fast.
func TestFastPoints(t *testing.T) {
	times := []string{
		"0", "1", "12345678", "123456789", "1700000000", "1700000000.1", "1700000000.12", "1700000000.123", "1700000000.1234",
		"170000000000000", "1234567890123456", "12345678901234567890", "-1", "-1700000000.5", "0.5", "00", "01", "0700000000.123", "1e5",
		"1700000000.", "1.12345678", "1700000000,", "1700000000x123", "",
	}
	values := []string{
		"", "1", "1234567", "12345678", "1.23456789012345", "-1.234567890123456e-300", strings.Repeat("x", 23),
		strings.Repeat("x", 24), strings.Repeat("x", 25), strings.Repeat("x", 100), `\n`, `a\"b`, "\n", "é", `1" `, `1"`, "NaN",
	}
	pad := strings.Repeat(" ", 200)
	for _, ts := range times {
		for _, v := range values {
			for _, form := range []string{`[%s,"%s"]`, `[%s, "%s"]`, `[ %s,"%s" ]`, `[%s,"%s"],[1,"1"]`, `[1700000000.123,"1"],[%s,"%s"],[1700000000.123,"2"]`, `[%s,"%s"] ,[1,"1"]`, `[%s,"%s"],`, `[%s,"%s"`, `[%s,"%s",]`} {
				doc := envelope(`{"resultType":"matrix","result":[{"metric":{},"values":[`+fmt.Sprintf(form, ts, v)+`]}]}`) + pad
				fast, _, a, err := passed(t, strings.NewReader(doc), nil, roomy)
				slow, _, b, slowErr := passed(t, iotest.OneByteReader(strings.NewReader(doc)), nil, roomy)
				if (err == nil) != (slowErr == nil) || err == nil && (fast != slow || a.Samples() != b.Samples()) {
					t.Fatalf("%s\nfast: %v %s\nslow: %v %s", doc, err, fast, slowErr, slow)
				}
				if err == nil && !json.Valid([]byte(doc)) {
					t.Fatalf("takes %s", doc)
				}
			}
		}
	}
}
