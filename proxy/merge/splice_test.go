package merge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/qerr/qerrtest"
)

// matrixOf and vectorOf are answers of series as JSON.
func matrixOf(series ...string) string {
	return envelope(`{"resultType":"matrix","result":[` + strings.Join(series, ",") + `]}`)
}

func vectorOf(series ...string) string {
	return envelope(`{"resultType":"vector","result":[` + strings.Join(series, ",") + `]}`)
}

// shardsOf are sources of bodies, with no relabelling.
func shardsOf(docs ...string) []Source {
	var shards []Source
	for i, doc := range docs {
		shards = append(shards, Source{Name: fmt.Sprintf("s%d", i), Body: strings.NewReader(doc)})
	}
	return shards
}

func spliced(t testing.TB, limit int, shards []Source) (string, Result, error) {
	t.Helper()
	return merged(t, "splice", map[string]string{"limit": fmt.Sprint(limit)}, shards, roomy)
}

func TestSplice(t *testing.T) {
	const (
		v1 = `,"values":[[1,"1"],[2.5,"NaN"]]}`
		v2 = `,"values":[[1,"1e-07"]],"histograms":[[2,{"count":"1","sum":"2","buckets":[[0,"1","2","1"]]}]]}`
		v3 = `,"histogram":[1,{"count":"1","sum":"2"}]}`
		v4 = `,"value":[1435781451.781,"1"]}`
	)
	jaguar, ibis := NewRelabel(map[string]string{"cluster": "jaguar"}, []string{"replica"}),
		NewRelabel(map[string]string{"cluster": "ibis"}, []string{"replica"})
	for _, tc := range []struct {
		name  string
		in    []string
		rl    []*Relabel
		limit int
		want  string
		cut   bool
	}{
		{name: "one shard", in: []string{matrixOf(`{"metric":{"a":"1"}` + v1)}, want: matrixOf(`{"metric":{"a":"1"}` + v1)},
		{name: "nothing", in: []string{matrixOf(), matrixOf()}, want: matrixOf()},
		{name: "nothing of either type", in: []string{vectorOf(), matrixOf()}, want: vectorOf()},
		{name: "empty of another type", in: []string{vectorOf(), matrixOf(`{"metric":{}` + v1)}, want: matrixOf(`{"metric":{}` + v1)},
		{
			name: "by labels",
			in: []string{
				matrixOf(`{"metric":{"a":"1"}`+v1, `{"metric":{"a":"1","b":"2","c":"3"}`+v2),
				matrixOf(`{"metric":{}`+v2, `{"metric":{"a":"1","b":"2"}`+v1, `{"metric":{"b":"1"}`+v1),
			},
			want: matrixOf(`{"metric":{}`+v2, `{"metric":{"a":"1"}`+v1, `{"metric":{"a":"1","b":"2"}`+v1,
				`{"metric":{"a":"1","b":"2","c":"3"}`+v2, `{"metric":{"b":"1"}`+v1),
		},
		{
			name: "a name that is the beginning of another, bytes below a quote",
			in: []string{
				matrixOf(`{"metric":{"a":"x\u0000"}`+v1, `{"metric":{"a":"x!"}`+v1, `{"metric":{"a b":"1"}`+v1),
				matrixOf(`{"metric":{"a":"x"}`+v1, `{"metric":{"a":"x\u0001"}`+v1, `{"metric":{"a":"x "}`+v1),
			},
			want: matrixOf(`{"metric":{"a":"x"}`+v1, `{"metric":{"a":"x\u0000"}`+v1, `{"metric":{"a":"x\u0001"}`+v1,
				`{"metric":{"a":"x "}`+v1, `{"metric":{"a":"x!"}`+v1, `{"metric":{"a b":"1"}`+v1),
		},
		{
			name: "the same set in two groups", rl: []*Relabel{jaguar, ibis},
			in: []string{
				matrixOf(`{"metric":{"a":"1"}`+v1, `{"metric":{"z":"1"}`+v1),
				matrixOf(`{"metric":{"a":"1","cluster":"x"}`+v1, `{"metric":{"z":"1"}`+v2),
			},
			want: matrixOf(`{"metric":{"a":"1","cluster":"ibis"}`+v1, `{"metric":{"a":"1","cluster":"jaguar"}`+v1,
				`{"metric":{"cluster":"ibis","z":"1"}`+v2, `{"metric":{"cluster":"jaguar","z":"1"}`+v1),
		},
		{
			name: "in the order as written", rl: []*Relabel{jaguar, jaguar},
			in: []string{
				matrixOf(`{"metric":{"a":"1","replica":"x"}` + v1),
				matrixOf(`{"metric":{"a":"1","b":"1"}`+v1, `{"metric":{"replica":"a"}`+v1),
			},
			want: matrixOf(`{"metric":{"a":"1","b":"1","cluster":"jaguar"}`+v1, `{"metric":{"a":"1","cluster":"jaguar"}`+v1,
				`{"metric":{"cluster":"jaguar"}`+v1),
		},
		{
			name: "spelled otherwise", in: []string{` {"data" : {"stats":{"x":[1]}, "resultType" : "matrix" , "result" : [ { "metric" : { "b" : "2","\u0061" : "1" } , "values" : [ [ 1 , "1" ] ] } ] , "analysis" : {} } , "status":"success"} `, matrixOf(`{"metric":{"a":"0"}` + v1)},
			want: matrixOf(`{"metric":{"a":"0"}`+v1, `{"metric":{"a":"1","b":"2"} , "values" : [ [ 1 , "1" ] ] }`),
		},
		{
			name: "vectors", in: []string{
				vectorOf(`{"metric":{"b":"1"}`+v4, `{"metric":{"a":"1"}`+v3), vectorOf(),
				vectorOf(`{"metric":{"a":"2"}` + v4),
			},
			want: vectorOf(`{"metric":{"b":"1"}`+v4, `{"metric":{"a":"1"}`+v3, `{"metric":{"a":"2"}`+v4),
		},
		{
			name: "limit", limit: 2, cut: true, in: []string{
				matrixOf(`{"metric":{"a":"1"}`+v1, `{"metric":{"a":"4"}`+v1),
				matrixOf(`{"metric":{"a":"2"}`+v1, `{"metric":{"a":"3"}`+v1),
			},
			want: matrixOf(`{"metric":{"a":"1"}`+v1, `{"metric":{"a":"2"}`+v1),
		},
		{
			name: "at the limit", limit: 2, in: []string{matrixOf(`{"metric":{"a":"1"}` + v1), matrixOf(`{"metric":{"a":"2"}` + v1)},
			want: matrixOf(`{"metric":{"a":"1"}`+v1, `{"metric":{"a":"2"}`+v1),
		},
		{name: "limit of a vector", limit: 1, cut: true, in: []string{
			vectorOf(`{"metric":{"a":"1"}` + v4),
			vectorOf(`{"metric":{"a":"2"}` + v4),
		}, want: vectorOf(`{"metric":{"a":"1"}` + v4)},
		{
			name: "a shard's own limit", cut: true,
			in: []string{strings.Replace(matrixOf(), `{`, `{"warnings":["results truncated due to limit"],`, 1)}, want: matrixOf(),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, slow := range []bool{false, true} {
				shards := shardsOf(tc.in...)
				for i := range shards {
					if slow {
						shards[i].Body = iotest.OneByteReader(shards[i].Body)
					}
					if tc.rl != nil {
						shards[i].Relabel = tc.rl[i]
					}
				}
				got, res, err := spliced(t, tc.limit, shards)
				if err != nil || got != tc.want {
					t.Fatalf("%v\ngot  %s\nwant %s", err, got, tc.want)
				}
				if res.Truncated != tc.cut || res.Series != strings.Count(tc.want, `"metric"`) {
					t.Errorf("got %+v", res)
				}
			}
		})
	}
}

func TestSpliceTwice(t *testing.T) {
	const v = `,"values":[[1,"1"]]}`
	const one = `,"value":[1,"1"]}`
	jaguar := NewRelabel(map[string]string{"cluster": "jaguar"}, []string{"replica"})
	other := NewRelabel(map[string]string{"cluster": "jaguar"}, []string{"prometheus_replica"})
	for _, tc := range []struct {
		name string
		in   []string
		rl   []*Relabel
		want string // in the error
	}{
		{
			"matrix",
			[]string{matrixOf(`{"metric":{"a":"1"}` + v), matrixOf(`{"metric":{}`+v, `{"metric":{"a":"1"}`+v)},
			nil,
			"shards s0 and s1",
		},
		{
			"matrix, spelled otherwise",
			[]string{matrixOf(`{"metric":{"a":"1"}` + v), matrixOf(`{"metric":{"\u0061" : "1"}` + v)},
			nil,
			"shards s0 and s1",
		},
		{"matrix of three", []string{
			matrixOf(`{"metric":{"a":"1"}` + v), matrixOf(`{"metric":{"a":"0"}` + v),
			matrixOf(`{"metric":{"a":"1"}` + v),
		}, nil, "shards s0 and s2"},
		{
			"relabelled",
			[]string{matrixOf(`{"metric":{"a":"1"}` + v), matrixOf(`{"metric":{"a":"1"}` + v)},
			[]*Relabel{jaguar, jaguar},
			"shards s0 and s1",
		},
		{
			"not next to each other",
			[]string{
				matrixOf(`{"metric":{"a":"1","replica":"x"}` + v),
				matrixOf(`{"metric":{"a":"1","b":"1"}`+v, `{"metric":{"a":"1","replica":"y"}`+v),
			},
			[]*Relabel{jaguar, jaguar},
			"shards s0 and s1",
		},
		{"other names", []string{
			matrixOf(`{"metric":{"a":"1","replica":"x"}` + v),
			matrixOf(`{"metric":{"a":"1","prometheus_replica":"x"}` + v),
		}, []*Relabel{jaguar, other}, "shards s0 and s1"},
		{
			"one shard",
			[]string{matrixOf(`{"metric":{"a":"1","replica":"x"}`+v, `{"metric":{"a":"1","replica":"y"}`+v)},
			[]*Relabel{jaguar},
			"shard s0: {",
		},
		{
			"one shard, one with nothing to remove",
			[]string{vectorOf(`{"metric":{"a":"1","replica":"x"}`+one, `{"metric":{"a":"1"}`+one)},
			[]*Relabel{jaguar},
			"shard s0: {",
		},
		{
			"vectors",
			[]string{vectorOf(`{"metric":{"a":"1"}` + one), vectorOf(`{"metric":{}`+one, `{"metric":{"a":"1"}`+one)},
			nil,
			"shards s0 and s1",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			shards := shardsOf(tc.in...)
			for i := range tc.rl {
				shards[i].Relabel = tc.rl[i]
			}
			if _, _, err := spliced(t, 0, shards); !errors.Is(err, ErrTwice) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want ErrTwice with %q", err, tc.want)
			}
		})
	}
}

func TestSpliceErrors(t *testing.T) {
	const v = `,"values":[[1,"1"]]}`
	const one = `,"value":[1,"1"]}`
	good := matrixOf(`{"metric":{"a":"1"}` + v)
	rl := NewRelabel(nil, []string{"replica"})
	for _, tc := range []struct {
		name, doc string
		kind      ScanKind
	}{
		{"login page", "<html>", Garbage},
		{"empty body", "", Truncated},
		{"no data", `{"status":"success"}`, WrongShape},
		{"null data", `{"status":"success","data":null}`, WrongShape},
		{"no status", `{"data":{"resultType":"matrix","result":[]}}`, WrongShape},
		{"no result", envelope(`{"resultType":"matrix"}`), WrongShape},
		{"result twice", envelope(`{"resultType":"matrix","result":[],"result":[]}`), WrongShape},
		{"resultType twice", envelope(`{"resultType":"matrix","result":[],"resultType":"matrix"}`), WrongShape},
		{"data twice", `{"status":"success","data":{"resultType":"matrix","result":[]},"data":{}}`, WrongShape},
		{"result first", envelope(`{"result":[],"resultType":"matrix"}`), WrongShape},
		{"scalar", envelope(`{"resultType":"scalar","result":[1,"1"]}`), WrongShape},
		{"string", envelope(`{"resultType":"string","result":[1,"1"]}`), WrongShape},
		{"odd type", envelope(`{"resultType":"tensor","result":[]}`), WrongShape},
		{"another type", vectorOf(`{"metric":{}` + one), WrongShape},
		{"vector called matrix", matrixOf(`{"metric":{}` + one), WrongShape},
		{"histogram of a vector", matrixOf(`{"metric":{},"histogram":[1,{}]}`), WrongShape},
		{"values first", matrixOf(`{"values":[[1,"1"]],"metric":{}}`), WrongShape},
		{"no metric", matrixOf(`{}`), WrongShape},
		{"metric twice", matrixOf(`{"metric":{},"metric":{}` + v), WrongShape},
		{"array as metric", matrixOf(`{"metric":[]` + v), WrongShape},
		{"number as label", matrixOf(`{"metric":{"a":1}` + v), WrongShape},
		{"label twice", matrixOf(`{"metric":{"a":"1","a":"2"}` + v), WrongShape},
		{"series is a string", matrixOf(`"a"`), WrongShape},
		{"point of numbers", matrixOf(`{"metric":{"z":"1"},"values":[[1,1]]}`), WrongShape},
		{"out of order", matrixOf(`{"metric":{"b":"1"}`+v, `{"metric":{"a":"1"}`+v), OutOfOrder},
		{"a longer one first", matrixOf(`{"metric":{"b":"1","c":"1"}`+v, `{"metric":{"b":"1"}`+v), OutOfOrder},
		{"twice in one", matrixOf(`{"metric":{"b":"1"}`+v, `{"metric":{"b":"1"}`+v), OutOfOrder},
		{"cut in values", good[:len(good)-8], Truncated},
		{"cut behind a series", good[:len(good)-3], Truncated},
		{"cut behind the result", good[:len(good)-1], Truncated},
		{"two documents", good + `{}`, Garbage},
		{"deep", matrixOf(`{"metric":{},"new":` + strings.Repeat("[", 100)), OverBound},
		{"deep stats", envelope(`{"stats":` + strings.Repeat("[", 100)), OverBound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, slow := range []bool{false, true} {
				shards := shardsOf(matrixOf(`{"metric":{"A":"1"}`+v, `{"metric":{"y":"1"}`+v), tc.doc)
				for i := range shards {
					shards[i].Relabel = rl
					if slow {
						shards[i].Body = iotest.OneByteReader(shards[i].Body)
					}
				}
				_, _, err := spliced(t, 0, shards)
				var scan *ScanError
				if !errors.As(err, &scan) || scan.Kind != tc.kind {
					t.Fatalf("got %v, want it %s", err, tc.kind)
				}
				if e := qerr.From(err); e.Kind != qerr.ShardFailed || !slices.Equal(e.Shards, []string{"s1"}) {
					t.Errorf("not the shard's fault: %+v", e)
				}
			}
		})
	}
	unsorted := shardsOf(matrixOf(`{"metric":{"b":"1"}`+v, `{"metric":{"a":"1"}`+v))
	unsorted[0].Asked = &Asked{Type: "matrix", Grid: Grid{Start: 1000, End: 1000}, Unsorted: true}
	if _, _, err := spliced(t, 0, unsorted); !errors.Is(err, ErrReordered) {
		t.Errorf("of a server that does not sort: %v, want ErrReordered", err)
	}
	_, _, err := spliced(t, 0, shardsOf(vectorOf(`{"metric":{}`+one, `{"metric":{}`+one), vectorOf()))
	var scan *ScanError
	if !errors.As(err, &scan) || scan.Kind != WrongShape {
		t.Errorf("a vector that holds a set twice: %v", err)
	}
	var up *UpstreamError
	if _, _, err = spliced(t, 0, shardsOf(good, `{"status":"error","errorType":"execution","error":"no"}`)); !errors.As(err, &up) {
		t.Errorf("an error object: %v", err)
	}
	if _, _, err = spliced(t, 0, nil); qerr.From(err).Kind != qerr.Internal {
		t.Errorf("no shards: %v", err)
	}
	gone, leave := context.WithCancelCause(t.Context())
	leave(qerr.ErrClientLeft)
	w := NewWriter(io.Discard, nil)
	defer w.Close()
	if _, err = Splice(gone, w, 0, shardsOf(good), nil); qerr.From(err).Kind != qerr.Canceled {
		t.Errorf("a client that left: %v", err)
	}
}

func TestSpliceBounds(t *testing.T) {
	docs := []string{
		matrixOf(`{"metric":{"a":"1"},"values":[[1,"1"],[2,"1"]]}`),
		matrixOf(`{"metric":{"a":"2"},"values":[[1,"1"],[2,"1"]]}`),
	}
	size := int64(len(docs[0]) + len(docs[1]))
	for bound, limits := range map[string]admit.Limits{
		"max_series":         {MaxSeries: 1, MaxSamples: 100, MaxBytes: 1000},
		"max_samples":        {MaxSeries: 10, MaxSamples: 3, MaxBytes: 1000},
		"max_response_bytes": {MaxSeries: 10, MaxSamples: 100, MaxBytes: size - 1},
	} {
		_, _, err := merged(t, "splice", nil, shardsOf(docs...), limits)
		qerrtest.Refused(t, err, qerr.TooExpensive, bound)
	}
	if _, _, err := merged(t, "splice", nil, shardsOf(docs...), admit.Limits{MaxSeries: 2, MaxSamples: 4, MaxBytes: size}); err != nil {
		t.Errorf("at the bounds: %v", err)
	}
}

// TestSpliceWaits: nothing is written before every shard has sent its first series.
func TestSpliceWaits(t *testing.T) {
	w := NewWriter(io.Discard, nil)
	defer w.Close()
	if err := w.Begin(); err != nil {
		t.Fatal(err)
	}
	begun := w.Len()
	big := string(gridDoc(hour, 0, 300, valueKinds[2].next))
	asked := 0
	shards := shardsOf(big, matrixOf(`{"metric":{"a":"1"},"values":[[1,"1"]]}`))
	shards[1].Body = &looker{shards[1].Body, func() {
		if asked++; asked < 80 && w.Len() != begun { // less than its first labels
			t.Error("written before the second shard began")
		}
	}}
	if _, err := Splice(t.Context(), w, 0, shards, nil); err != nil {
		t.Fatal(err)
	}
	if asked < 80 || w.Len() < int64(len(big)) {
		t.Errorf("%d reads, %d bytes", asked, w.Len())
	}
}

// looker looks before each byte that it reads.
type looker struct {
	r    io.Reader
	look func()
}

func (l *looker) Read(p []byte) (int, error) {
	l.look()
	return l.r.Read(p[:1])
}

// TestSpliceStopsOthers: where one shard is wrong from the start, the others, which may never
// answer, are told.
func TestSpliceStopsOthers(t *testing.T) {
	hung, end := io.Pipe()
	shards := []Source{
		{Name: "hung", Body: hung, Cancel: func() { _ = end.CloseWithError(context.Canceled) }},
		{Name: "lying", Body: strings.NewReader("<html>")},
	}
	_, _, err := spliced(t, 0, shards)
	if e := qerr.From(err); !slices.Equal(e.Shards, []string{"lying"}) {
		t.Errorf("got %v", err)
	}
}

// TestSpliceReordered: setting labels may change the order of a shard's series. That is an error
// while nothing has gone to the client.
func TestSpliceReordered(t *testing.T) {
	rl := NewRelabel(map[string]string{"b": "1"}, nil)
	series := []string{`{"metric":{"a":"1"},"values":[[1,"1"]]}`, `{"metric":{"a":"1","aa":"1"},"values":[[1,"1"]]}`}
	shards := shardsOf(matrixOf(series...), matrixOf())
	shards[0].Relabel, shards[1].Relabel = rl, rl
	if _, _, err := spliced(t, 0, shards); !errors.Is(err, ErrReordered) {
		t.Errorf("got %v, want ErrReordered", err)
	}
	shards = shardsOf(matrixOf(series...))
	shards[0].Relabel = rl
	var out bytes.Buffer
	w := NewWriter(&out, nil)
	defer w.Close()
	if err := errors.Join(w.Begin(), w.commit()); err != nil {
		t.Fatal(err)
	}
	res, err := Splice(t.Context(), w, 0, shards, nil)
	if err = errors.Join(err, w.Finish(res.Warnings, res.Infos)); err != nil || strings.Count(out.String(), `"b":"1"`) != 2 {
		t.Errorf("once committed: %v, %s", err, out.String())
	}
}

// TestSpliceAllocates measures that allocations do not grow with the answer, but for the table of
// label sets.
func TestSpliceAllocates(t *testing.T) {
	pool := admit.NewPool(1 << 30)
	allocs := func(series int, rl *Relabel) float64 {
		docs := dealt(hour, 4, series, valueKinds[0].next)
		return testing.AllocsPerRun(3, func() {
			b := admit.NewBudget(pool, roomy)
			w := NewWriter(io.Discard, b)
			shards := shardsOf()
			for _, doc := range docs {
				shards = append(shards, Source{Name: "a", Body: bytes.NewReader(doc), Relabel: rl})
			}
			if _, err := Splice(t.Context(), w, 0, shards, b); err != nil {
				t.Fatal(err)
			}
			w.Close()
			b.Close()
		})
	}
	for _, rl := range []*Relabel{nil, NewRelabel(map[string]string{"cluster": "jaguar"}, nil)} {
		small, large := allocs(40, rl), allocs(2000, rl)
		if large > small+60 {
			t.Errorf("%v allocations for 40 series, %v for 2,000", small, large)
		}
	}
}
