package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestSpliceRandom deals the series of one answer to shards at random: the bytes of a matrix are
// always those of the whole answer, in any order of the shards and however they are read; those of
// a vector but for the order of its series.
func TestSpliceRandom(t *testing.T) {
	r := newRand(t)
	reordered := 0
	for round := range 400 {
		matrix := r.IntN(2) == 0
		sets := map[string]labels.Labels{}
		for range r.IntN(40) {
			m := map[string]string{}
			for range r.IntN(4) {
				m[randomText(r)] = randomText(r)
			}
			ls := labels.FromMap(m)
			sets[ls.String()] = ls
		}
		var sorted []labels.Labels
		for _, ls := range sets {
			sorted = append(sorted, ls)
		}
		slices.SortFunc(sorted, labels.Compare)
		n := 1 + r.IntN(5)
		// With group labels the same set may stand in every shard; its order is that of the shards
		// then.
		groups := r.IntN(2) == 0
		relabels := make([]*Relabel, n)
		for i := range relabels {
			if groups {
				relabels[i] = NewRelabel(map[string]string{"mm": fmt.Sprint(i)}, []string{"not there"})
			}
		}
		type element struct {
			labels labels.Labels // as written
			json   string
		}
		parts := make([][]string, n)
		ends := make([]labels.Labels, n)
		var all []element
		turned := false // setting labels changes the order of a shard
		for _, ls := range sorted {
			first, last := r.IntN(n), 0
			if last = first; groups && r.IntN(3) == 0 {
				last = n - 1
			}
			for i := first; i <= last; i++ {
				var points []string
				for j := range r.IntN(5) {
					points = append(points, string(appendPoint(nil, int64(j)*1234, r.NormFloat64())))
				}
				values := `,"values":[` + strings.Join(points, ",") + `]}`
				switch {
				case matrix && r.IntN(4) == 0:
					values = `,"histograms":[[1,{"count":"1","sum":"2"}]]}`
				case !matrix && r.IntN(4) == 0:
					values = `,"histogram":[1,{"count":"1","sum":"2"}]}`
				case !matrix:
					values = `,"value":` + string(appendPoint(nil, 1234, r.NormFloat64())) + `}`
				}
				parts[i] = append(parts[i], `{"metric":`+string(AppendLabels(nil, ls))+values)
				written := relabels[i].Labels(ls)
				all = append(all, element{written, `{"metric":` + string(AppendLabels(nil, written)) + values})
				turned = turned || matrix && len(parts[i]) > 1 && labels.Compare(ends[i], written) > 0
				ends[i] = written
			}
		}
		slices.SortFunc(all, func(a, b element) int { return labels.Compare(a.labels, b.labels) })
		var want []string
		for _, e := range all {
			want = append(want, e.json)
		}
		if turned {
			reordered++
		}
		form := vectorOf
		if matrix {
			form = matrixOf
		}
		for range 4 {
			var shards []Source
			for i, part := range parts {
				shards = append(shards, Source{Name: fmt.Sprint(i), Body: chunked(r, form(part...)), Relabel: relabels[i]})
			}
			if !groups {
				r.Shuffle(n, func(i, j int) { shards[i], shards[j] = shards[j], shards[i] })
			}
			limit := 0
			if r.IntN(3) == 0 {
				limit = 1 + r.IntN(40)
			}
			got, res, err := spliced(t, limit, shards)
			whole := limit == 0 || limit >= len(want)
			if turned && (whole || err != nil) {
				if !errors.Is(err, ErrReordered) {
					t.Fatalf("round %d: got %v, want ErrReordered", round, err)
				}
				continue
			}
			if err != nil || res.Truncated == whole {
				t.Fatalf("round %d: limit %d of %d: %+v, %v", round, limit, len(want), res, err)
			}
			switch {
			case matrix && whole && got != form(want...):
				t.Fatalf("round %d:\ngot  %s\nwant %s", round, got, form(want...))
			case matrix && !whole && !turned && got != form(want[:limit]...):
				t.Fatalf("round %d: limit %d:\ngot  %s\nwant %s", round, limit, got, form(want[:limit]...))
			case !matrix && whole && !slices.Equal(elements(t, got), sortedStrings(want)):
				t.Fatalf("round %d:\ngot  %s\nwant %s", round, got, form(want...))
			}
		}
	}
	if reordered == 0 || reordered > 200 {
		t.Errorf("%d of 400 answers were reordered", reordered)
	}
}

func sortedStrings(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

// elements are the series of an answer as sent, sorted.
func elements(t testing.TB, doc string) []string {
	t.Helper()
	var a struct {
		Data struct{ Result []json.RawMessage }
	}
	if err := json.Unmarshal([]byte(doc), &a); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, raw := range a.Data.Result {
		list = append(list, string(raw))
	}
	return sortedStrings(list)
}

// FuzzSplice splices two documents: what it takes is JSON, what it writes are the series of both,
// relabelled, a matrix in order of labels; and how they are read changes nothing.
func FuzzSplice(f *testing.F) {
	for _, doc := range []string{
		matrixOf(), vectorOf(), matrixOf(`{"metric":{"a":"1"},"values":[[1,"2"],[3.5,"4"]],"histograms":[[5,{"count":"1"}]]}`),
		matrixOf(`{"metric":{"a":"0"},"values":[[1,"2"]]}`, `{"metric":{"a":"1","b":"\u0000"},"values":[]}`), vectorOf(`{"metric":{"a":"b","replica":"1"},"value":[1,"2"]}`, `{"metric":{"z":"b"},"histogram":[5,{}]}`),
		` {"data":{"resultType":"matrix","result":[ {"metric" : {"b":"1","a":"2"} , "values":[]}],"stats":{}},"status":"success","warnings":["results truncated due to limit"]}`,
		`{"status":"error","errorType":"bad_data","error":"no"}`,
	} {
		f.Add([]byte(doc), []byte(matrixOf(`{"metric":{"a":"3"},"values":[[1,"2"]]}`)), 0)
		f.Add([]byte(vectorOf(`{"metric":{"b":"2","replica":"1"},"value":[1,"2"]}`)), []byte(doc), 1)
	}
	rl := NewRelabel(map[string]string{"cluster": "jaguar"}, []string{"replica"})
	f.Fuzz(func(t *testing.T, one, two []byte, limit int) {
		limits := admit.Limits{MaxSeries: 1000, MaxSamples: 100000, MaxBytes: 1 << 20}
		args := map[string]string{"limit": fmt.Sprint(limit)}
		for _, rl := range []*Relabel{nil, rl} {
			got, res, err := merged(t, "splice", args, []Source{
				{Name: "a", Body: bytes.NewReader(one), Relabel: rl},
				{Name: "b", Body: bytes.NewReader(two), Relabel: rl},
			}, limits)
			slow, _, slowErr := merged(t, "splice", args, []Source{
				{Name: "a", Body: iotest.OneByteReader(bytes.NewReader(one)), Relabel: rl},
				{Name: "b", Body: iotest.OneByteReader(bytes.NewReader(two)), Relabel: rl},
			}, limits)
			if (err == nil) != (slowErr == nil) || got != slow && err == nil {
				t.Fatalf("reading byte by byte changes the answer: %v %v\n%s\n%s", err, slowErr, got, slow)
			}
			var e *qerr.Error
			if err != nil {
				if !errors.As(err, &e) && !errors.Is(err, ErrTwice) && !errors.Is(err, ErrReordered) {
					t.Fatalf("untyped error %v", err)
				}
				continue
			}
			if res.Truncated && limit > 0 {
				continue // the rest was not read
			}
			if !json.Valid(one) || !json.Valid(two) {
				t.Fatalf("takes %q and %q", one, two)
			}
			resultType, series := seriesOf(t, []byte(got), nil)
			_, a := seriesOf(t, one, rl)
			_, b := seriesOf(t, two, rl)
			if len(series) != len(a)+len(b) || res.Series != len(series) {
				t.Fatalf("%d series of %d and %d, %d counted: %s", len(series), len(a), len(b), res.Series, got)
			}
			if resultType == "matrix" && !slices.IsSortedFunc(series,
				func(x, y aSeries) int { return labels.Compare(x.labels, y.labels) }) {
				t.Fatalf("not sorted: %s", got)
			}
			if x, y := texts(series), texts(append(a, b...)); !slices.Equal(x, y) {
				t.Fatalf("got  %q\nwant %q", x, y)
			}
		}
	})
}

// aSeries is a series as encoding/json understands it: its labels, and the rest.
type aSeries struct {
	labels labels.Labels
	rest   string
}

func texts(list []aSeries) []string {
	var out []string
	for _, s := range list {
		out = append(out, s.labels.String()+s.rest)
	}
	return sortedStrings(out)
}

// seriesOf reads an answer in a way of its own.
func seriesOf(t *testing.T, doc []byte, rl *Relabel) (resultType string, series []aSeries) {
	t.Helper()
	type object = map[string]json.RawMessage
	var a, d object
	var result []object
	for _, err := range []error{
		json.Unmarshal(doc, &a), json.Unmarshal(a["data"], &d), json.Unmarshal(d["resultType"], &resultType),
		json.Unmarshal(d["result"], &result),
	} {
		if err != nil {
			t.Fatalf("%v: %s", err, doc)
		}
	}
	for _, o := range result {
		var m map[string]string
		if err := json.Unmarshal(o["metric"], &m); err != nil {
			t.Fatalf("%v: %s", err, doc)
		}
		delete(o, "metric")
		rest := map[string]any{}
		for name, raw := range o {
			var v any
			dec := json.NewDecoder(bytes.NewReader(raw))
			dec.UseNumber()
			if err := dec.Decode(&v); err != nil {
				t.Fatal(err)
			}
			rest[name] = v
		}
		b, err := json.Marshal(rest)
		if err != nil {
			t.Fatal(err)
		}
		series = append(series, aSeries{rl.Labels(labels.FromMap(m)), string(b)})
	}
	return resultType, series
}
