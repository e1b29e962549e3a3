package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0 leaves it to internal/randseed")

func newRand(t testing.TB) *rand.Rand {
	seed := randseed.Of(t, *seedFlag)
	return rand.New(rand.NewPCG(seed, 1))
}

// item is one element of a data array, in JSON, with the key that Prometheus sorts by.
type item struct {
	key, json string
}

// split deals items over shards, each with one to three replicas that hold all of the shard's items
// or, where gaps are allowed, together do. Every answer is then written in its own way: order
// (where the endpoint does not sort), white space, order of the envelope's keys, and reads of any
// size.
func split(r *rand.Rand, items []item, sorted bool) []Source {
	var sources []Source
	n := 1 + r.IntN(5)
	shards := make([][]item, n)
	for _, it := range items {
		i := r.IntN(n)
		shards[i] = append(shards[i], it)
	}
	for i, list := range shards {
		replicas := 1 + r.IntN(3)
		have := make([][]item, replicas)
		for _, it := range list {
			sure := r.IntN(replicas)
			for k := range have {
				if k == sure || r.IntN(3) > 0 {
					have[k] = append(have[k], it)
				}
			}
		}
		for k, h := range have {
			if sorted {
				slices.SortFunc(h, func(a, b item) int { return strings.Compare(a.key, b.key) })
				h = slices.CompactFunc(h, func(a, b item) bool { return a.key == b.key })
			} else {
				r.Shuffle(len(h), func(a, b int) { h[a], h[b] = h[b], h[a] })
			}
			sources = append(sources, Source{Name: fmt.Sprintf("s%d r%d", i, k), Shard: fmt.Sprint(i), Body: chunked(r, document(r, h))})
		}
	}
	r.Shuffle(len(sources), func(a, b int) { sources[a], sources[b] = sources[b], sources[a] })
	return sources
}

func document(r *rand.Rand, items []item) string {
	space := func() string { return []string{"", "", "", " ", "\n\t"}[r.IntN(5)] }
	var b strings.Builder
	for i, it := range items {
		if i > 0 {
			b.WriteString("," + space())
		}
		b.WriteString(it.json + space())
	}
	keys := []string{
		`"status":` + space() + `"success"`, `"data"` + space() + `:` + space() + `[` + b.String() + `]`,
		`"new":{"x":[1,2,{}]}`,
	}
	if r.IntN(2) > 0 {
		r.Shuffle(len(keys), func(a, b int) { keys[a], keys[b] = keys[b], keys[a] })
	}
	return space() + `{` + space() + strings.Join(keys, ","+space()) + `}` + space()
}

// chunked returns the text in reads of random size.
func chunked(r *rand.Rand, text string) io.Reader {
	switch r.IntN(4) {
	case 0:
		return strings.NewReader(text)
	case 1:
		return iotest.OneByteReader(strings.NewReader(text))
	case 2:
		return iotest.DataErrReader(iotest.HalfReader(strings.NewReader(text)))
	}
	return &randomReads{rand.New(rand.NewPCG(r.Uint64(), 2)), strings.NewReader(text)}
}

type randomReads struct {
	r *rand.Rand
	s *strings.Reader
}

func (c *randomReads) Read(p []byte) (int, error) { return c.s.Read(p[:min(len(p), 1+c.r.IntN(40))]) }

func randomText(r *rand.Rand) string {
	parts := []string{"a", "b", "job", "_", "é", "😀", "\"", "\\", "<", "\n", "\x01", "0", "zz", "\u2028"}
	var b strings.Builder
	for range 1 + r.IntN(4) {
		b.WriteString(parts[r.IntN(len(parts))])
	}
	return b.String()
}

// jsonText spells a string in one of the ways JSON has.
func jsonText(r *rand.Rand, s string) string {
	switch r.IntN(3) {
	case 0:
		return string(AppendString(nil, s))
	case 1:
		return string(AppendText(nil, s))
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		if c > 0xffff {
			b.WriteRune(c)
		} else {
			fmt.Fprintf(&b, `\u%04x`, c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// TestSplittingChangesNothing splits one random set over shards and replicas in many ways: the
// merged bytes are always those of the set itself.
func TestSplittingChangesNothing(t *testing.T) {
	r := newRand(t)
	for round := range 60 {
		var texts []string
		for range r.IntN(60) {
			texts = append(texts, randomText(r))
		}
		slices.Sort(texts)
		texts = slices.Compact(texts)
		var series []labels.Labels
		for range r.IntN(60) {
			m := map[string]string{}
			for range r.IntN(4) {
				m[randomText(r)] = randomText(r)
			}
			series = append(series, labels.FromMap(m))
		}
		slices.SortFunc(series, labels.Compare)
		series = slices.CompactFunc(series, labels.Equal)
		limit := 0
		if r.IntN(2) > 0 {
			limit = 1 + r.IntN(40)
		}
		args := map[string]string{"limit": fmt.Sprint(limit)}
		wantStrings, wantSeries := `[`, `[`
		for i, s := range texts {
			if limit == 0 || i < limit {
				wantStrings += comma(i) + string(AppendText(nil, s))
			}
		}
		for i, s := range series {
			if limit == 0 || i < limit {
				wantSeries += comma(i) + string(AppendLabels(nil, s))
			}
		}
		for range 8 {
			var items []item
			for _, s := range texts {
				items = append(items, item{s, jsonText(r, s)})
			}
			got, res, err := merged(t, "values", args, split(r, items, true), roomy)
			if want := envelope(wantStrings + `]`); err != nil || got != want || res.Truncated != (limit > 0 && len(texts) > limit) {
				t.Fatalf("round %d: strings: %v\ngot  %s\nwant %s", round, err, got, want)
			}
			items = nil
			for _, ls := range series {
				var parts []string
				ls.Range(func(l labels.Label) { parts = append(parts, jsonText(r, l.Name)+":"+jsonText(r, l.Value)) })
				r.Shuffle(len(parts), func(a, b int) { parts[a], parts[b] = parts[b], parts[a] })
				items = append(items, item{"", "{" + strings.Join(parts, ",") + "}"})
			}
			got, res, err = merged(t, "series", args, split(r, items, false), roomy)
			if want := envelope(wantSeries + `]`); err != nil || got != want || res.Truncated != (limit > 0 && len(series) > limit) {
				t.Fatalf("round %d: series: %v\ngot  %s\nwant %s", round, err, got, want)
			}
		}
	}
}

func comma(i int) string {
	if i > 0 {
		return ","
	}
	return ""
}

// seeds are documents of each kind for the fuzz targets.
func seeds(f *testing.F) {
	for _, s := range scanSeeds {
		f.Add([]byte(s))
	}
	for _, s := range []string{
		`{"status":"success","data":["a","b"],"warnings":["w"],"infos":[]}`,
		`{"status":"success","data":[{"__name__":"up","job":"a"},{}]}`,
		`{"status":"success","data":{"up":[{"type":"gauge","help":"h","unit":""}]}}`,
		`{"status":"success","data":{"groups":[{"name":"g","file":"f","rules":[{"name":"r","query":"up","labels":{},"health":"ok","type":"recording"},{"state":"firing","name":"r","alerts":[{"labels":{"a":"b"},"state":"firing"}],"type":"alerting"}]}]}}`,
		`{"status":"success","data":{"alerts":[{"labels":{"a":"b"},"annotations":{},"state":"firing","activeAt":"2026-10-01T00:00:00Z","value":"1e+00"}]}}`,
		`{"status":"success","data":{"activeTargets":[{"labels":{"a":"b"},"health":"up"}],"droppedTargets":[],"droppedTargetCounts":{"n":3}}}`,
		`{"status":"success","data":[{"target":{"a":"b"},"metric":"up","type":"gauge"}]}`,
		`{"status":"success","data":[{"seriesLabels":{"a":"b"},"exemplars":[{"labels":{"t":"1"},"value":"1","timestamp":1.5}]}]}`,
		`{"status":"success","data":{"headStats":{"numSeries":1},"seriesCountByMetricName":[{"name":"a","value":1}]}}`,
		`{"status":"success","data":{"min":1,"max":2,"current":1}}`,
		`{"status":"success","data":{"version":"3.15.0"}}`,
		`{"status":"success","data":{"api":{"x":true}}}`,
		`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"b"},"values":[[1,"2"],[3.5,"4"]],"histograms":[[5,{"count":"1"}]]}],"stats":{}}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b","replica":"1"},"value":[1,"2"]},{"metric":{"a":"b"},"histogram":[5,{}]}]}}`,
		`{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`,
		`{"status":"error","errorType":"bad_data","error":"no"}`,
	} {
		f.Add([]byte(s))
	}
}

// FuzzMerge gives one document, twice, to every merge: each answers valid JSON or a typed error,
// holds nothing in the end, and takes nothing that encoding/json would not.
func FuzzMerge(f *testing.F) {
	seeds(f)
	rl := NewRelabel(map[string]string{"cluster": "jaguar"}, []string{"replica"})
	f.Fuzz(func(t *testing.T, doc []byte) {
		for endpoint := range mergers {
			if endpoint == "pass" {
				continue
			}
			shards := []Source{
				{Name: "a", Body: bytes.NewReader(doc), Relabel: rl},
				{Name: "b", Body: iotest.OneByteReader(bytes.NewReader(doc))},
			}
			_, _, err := merged(t, endpoint, nil, shards, admit.Limits{MaxSeries: 1000, MaxSamples: 1000, MaxBytes: 1 << 20})
			var e *qerr.Error
			switch {
			case err == nil && !json.Valid(doc):
				t.Errorf("%s takes %q", endpoint, doc)
			case err != nil && !errors.As(err, &e) && !errors.Is(err, ErrTwice) && !errors.Is(err, ErrReordered):
				t.Errorf("%s: untyped error %v", endpoint, err)
			}
		}
	})
}

// FuzzPass checks pass-through: what it takes is JSON, what it writes means the same but for
// relabelling, however it is read.
func FuzzPass(f *testing.F) {
	seeds(f)
	rl := NewRelabel(map[string]string{"cluster": "jaguar"}, []string{"replica"})
	f.Fuzz(func(t *testing.T, doc []byte) {
		for _, rl := range []*Relabel{nil, rl} {
			limits := admit.Limits{MaxSeries: 1000, MaxSamples: 100000, MaxBytes: 1 << 20}
			got, _, err := merged(t, "pass", nil, []Source{{Name: "a", Body: bytes.NewReader(doc), Relabel: rl}}, limits)
			slow, _, slowErr := merged(t, "pass", nil, []Source{{Name: "a", Body: iotest.OneByteReader(bytes.NewReader(doc)), Relabel: rl}},
				limits)
			if (err == nil) != (slowErr == nil) || err == nil && got != slow {
				t.Fatalf("reading byte by byte changes the answer: %v %v\n%s\n%s", err, slowErr, got, slow)
			}
			var e *qerr.Error
			if err != nil {
				if !errors.As(err, &e) {
					t.Fatalf("untyped error %v", err)
				}
				continue
			}
			if !json.Valid(doc) {
				t.Fatalf("takes %q", doc)
			}
			a, b := data(t, doc, rl), data(t, []byte(got), nil)
			if !bytes.Equal(a, b) {
				t.Fatalf("got %s, want %s", b, a)
			}
		}
	})
}

// data is the data value of an answer as encoding/json understands it, relabelled in a way of its
// own.
func data(t *testing.T, doc []byte, rl *Relabel) []byte {
	t.Helper()
	var v struct{ Data map[string]any }
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var all map[string]any
	if err := dec.Decode(&all); err != nil {
		t.Fatal(err)
	}
	v.Data, _ = all["data"].(map[string]any)
	if result, ok := v.Data["result"].([]any); ok && rl != nil {
		for _, one := range result {
			series, ok := one.(map[string]any)
			if !ok {
				continue
			}
			metric := series["metric"].(map[string]any)
			delete(metric, "replica")
			metric["cluster"] = "jaguar"
		}
	}
	b, err := json.Marshal(v.Data)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
