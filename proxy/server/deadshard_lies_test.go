package server

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"

	"github.com/spillwayproject/spillway/proxy/shard"
)

// lies are what a shard can say that is not so and can be seen to be not so. Each changes an honest
// answer: of query and query_range, of lists, of remote read; what it leaves alone is answered
// honestly, and then everything must be there.
var lies = []struct {
	name string
	lie  lie
	// script, where set, is what the server does with every request instead of lying in its answer.
	script string
	// twice tells that it brings series of another shard: they are merged and warned of, or
	// refused, naming both.
	twice bool
	// says is what its own warning says, which then is all that an answer has to say.
	says string
}{
	{name: "random bytes", script: "garbage"},
	{name: "a login page", script: "garbage html"},
	{name: "null", script: "garbage null"},
	{name: "the wrong shape", script: "garbage shape"},
	{name: "an empty body", script: "garbage empty"},
	{name: "100,000 levels", script: "garbage deep"},
	{name: "cut by length", script: "length 1000000; limit 60 close; answer"},
	{name: "cut in a chunk", script: "chunked; limit 60 close; answer"},
	{name: "cut before the last chunk", script: "chunked; answer; truncate"},
	{name: "gzip that ends too soon", script: "gzip cut; answer"},
	{name: "an error with status 200", script: `header Content-Type application/json; send '{"status":"error","errorType":"internal","error":"boom"}'`},
	{name: "a success without data", script: `header Content-Type application/json; send '{"status":"success"}'`},
	{name: "warnings and no data", script: `header Content-Type application/json; send '{"status":"success","warnings":["not all of my stores answered"]}'`},
	{name: "nothing but a warning", says: "not all of my stores answered", lie: func(path string, body []byte) []byte {
		return edit(body, func(env map[string]any) {
			emptied(env)
			env["warnings"] = []any{"not all of my stores answered"}
		})
	}},

	{name: "the wrong result type", lie: onResult(func(data map[string]any, _ []any) []any {
		data["resultType"] = map[string]string{
			"vector": "matrix", "matrix": "vector", "scalar": "string",
			"string": "scalar",
		}[fmt.Sprint(data["resultType"])]
		return nil
	})},
	{name: "a scalar for a vector", lie: onResult(func(data map[string]any, _ []any) []any {
		data["resultType"] = "scalar"
		return []any{json.Number("1"), "1"}
	})},
	{name: "times off the grid", lie: onPoints(func(p []any) []any { return []any{shifted(p[0], 7.25), p[1]} })},
	{name: "times a day ago", lie: onPoints(func(p []any) []any { return []any{shifted(p[0], -86400), p[1]} })},
	{name: "values that are no numbers", lie: onPoints(func(p []any) []any { return []any{p[0], "many"} })},
	{name: "values without quotes", lie: onPoints(func(p []any) []any { return []any{p[0], json.Number("12")} })},
	{name: "points of three parts", lie: onPoints(func(p []any) []any { return []any{p[0], p[1], "1"} })},
	{name: "points that go back in time", lie: onSeries(func(s map[string]any) {
		if v, ok := s["values"].([]any); ok {
			slices.Reverse(v)
		}
	})},
	{name: "every point twice", lie: onSeries(func(s map[string]any) {
		if v, ok := s["values"].([]any); ok {
			var out []any
			for _, p := range v {
				out = append(out, p, p)
			}
			s["values"] = out
		}
	})},
	{name: "a point beyond the end", lie: onSeries(func(s map[string]any) {
		if v, ok := s["values"].([]any); ok && len(v) > 0 {
			p := v[len(v)-1].([]any)
			s["values"] = append(v, []any{shifted(p[0], 30), p[1]})
		}
	})},
	{name: "series without a metric", lie: onSeries(func(s map[string]any) { delete(s, "metric") })},
	{name: "series without a value", lie: onSeries(func(s map[string]any) { delete(s, "value"); delete(s, "values") })},
	{name: "series without points", lie: onSeries(func(s map[string]any) {
		for _, key := range []string{"value", "values"} {
			if s[key] != nil {
				s[key] = []any{}
			}
		}
	})},
	{name: "labels that are numbers", lie: onSeries(func(s map[string]any) { s["metric"] = map[string]any{"job": json.Number("7")} })},
	{name: "series in the wrong order", lie: onLists(func(l []any) []any { l = slices.Clone(l); slices.Reverse(l); return l })},
	{name: "every series twice", lie: onLists(func(l []any) []any { return slices.Concat(l, l) })},
	{name: "the first series twice", lie: onLists(func(l []any) []any { return slices.Concat(l[:min(1, len(l))], l) })},
	{name: "another shard's series", twice: true, lie: func(path string, body []byte) []byte {
		return bytes.ReplaceAll(onFrames(func(f *prompb.ChunkedReadResponse) {
			for _, s := range f.ChunkedSeries {
				for i := range s.Labels {
					if s.Labels[i].Value == "n9" {
						s.Labels[i].Value = "n0"
					}
				}
			}
		})(path, body), []byte(`"n9"`), []byte(`"n0"`))
	}},

	{name: "frames with a wrong checksum", lie: func(path string, body []byte) []byte {
		if strings.HasSuffix(path, "/read") && len(body) > 20 {
			body = slices.Clone(body)
			body[len(body)-3] ^= 0x10
		}
		return body
	}},
	{name: "chunks that are damaged", lie: onFrames(func(f *prompb.ChunkedReadResponse) {
		for _, s := range f.ChunkedSeries {
			for i := range s.Chunks {
				s.Chunks[i].Data = s.Chunks[i].Data[:2]
			}
		}
	})},
	{name: "chunks that end before their last sample", lie: onFrames(func(f *prompb.ChunkedReadResponse) {
		for _, s := range f.ChunkedSeries {
			for i := range s.Chunks {
				binary.BigEndian.PutUint16(s.Chunks[i].Data, 65535)
			}
		}
	})},
	{name: "chunks of an unknown kind", lie: onFrames(func(f *prompb.ChunkedReadResponse) {
		for _, s := range f.ChunkedSeries {
			for i := range s.Chunks {
				s.Chunks[i].Type = 77
			}
		}
	})},
	{name: "frames in the wrong order", lie: onFrames(func(f *prompb.ChunkedReadResponse) { slices.Reverse(f.ChunkedSeries) })},
	{name: "frames twice", lie: onFrames(func(f *prompb.ChunkedReadResponse) {
		f.ChunkedSeries = append(f.ChunkedSeries,
			f.ChunkedSeries...)
	})},
	{name: "series without labels", lie: onFrames(func(f *prompb.ChunkedReadResponse) {
		for _, s := range f.ChunkedSeries {
			s.Labels = nil
		}
	})},
	{name: "labels twice in a series", lie: onFrames(func(f *prompb.ChunkedReadResponse) {
		for _, s := range f.ChunkedSeries {
			s.Labels = append(s.Labels, s.Labels...)
		}
	})},
}

// edit decodes an envelope, changes it and encodes it again.
func edit(body []byte, f func(env map[string]any)) []byte {
	var env map[string]any
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if dec.Decode(&env) != nil {
		return body // no JSON: remote read, federate
	}
	f(env)
	out, err := json.Marshal(env)
	if err != nil {
		panic(err)
	}
	return out
}

// emptied takes everything out of the data.
func emptied(env map[string]any) {
	switch d := env["data"].(type) {
	case []any:
		env["data"] = []any{}
	case map[string]any:
		for key, v := range d {
			if _, ok := v.([]any); ok {
				d[key] = []any{}
			}
		}
	}
}

// onResult changes the result of query and query_range.
func onResult(f func(data map[string]any, result []any) []any) lie {
	return func(path string, body []byte) []byte {
		if !strings.HasSuffix(path, "/query") && !strings.HasSuffix(path, "/query_range") {
			return body
		}
		return edit(body, func(env map[string]any) {
			data, _ := env["data"].(map[string]any)
			result, _ := data["result"].([]any)
			if len(result) == 0 {
				return
			}
			if out := f(data, result); out != nil {
				data["result"] = out
			}
		})
	}
}

// onSeries changes each series of a vector or matrix.
func onSeries(f func(s map[string]any)) lie {
	return onResult(func(_ map[string]any, result []any) []any {
		for _, s := range result {
			if s, ok := s.(map[string]any); ok {
				f(s)
			}
		}
		return nil
	})
}

// onPoints changes each point.
func onPoints(f func(p []any) []any) lie {
	return onSeries(func(s map[string]any) {
		if p, ok := s["value"].([]any); ok {
			s["value"] = f(p)
		}
		if list, ok := s["values"].([]any); ok {
			for i := range list {
				list[i] = f(list[i].([]any))
			}
		}
	})
}

// onLists changes the list of an answer, whatever it is of.
func onLists(f func(l []any) []any) lie {
	result := onResult(func(_ map[string]any, l []any) []any { return f(l) })
	return func(path string, body []byte) []byte {
		body = result(path, body)
		return edit(body, func(env map[string]any) {
			if l, ok := env["data"].([]any); ok {
				env["data"] = f(l)
			}
		})
	}
}

func shifted(t any, by float64) json.Number {
	f, err := t.(json.Number).Float64()
	if err != nil {
		panic(err)
	}
	return json.Number(fmt.Sprintf("%.3f", f+by))
}

// onFrames changes the frames of a streamed remote read; their checksums are right again
// afterwards.
func onFrames(f func(*prompb.ChunkedReadResponse)) lie {
	return func(path string, body []byte) []byte {
		if !strings.HasSuffix(path, "/read") {
			return body
		}
		var out bytes.Buffer
		w := remote.NewChunkedWriter(&out, noFlush{})
		r := remote.NewChunkedReader(bytes.NewReader(body), 8<<20, nil)
		for {
			var frame prompb.ChunkedReadResponse
			if err := r.NextProto(&frame); err == io.EOF {
				return out.Bytes()
			} else if err != nil {
				panic(err)
			}
			f(&frame)
			data, err := frame.Marshal()
			if err != nil {
				panic(err)
			}
			if _, err := w.Write(data); err != nil {
				panic(err)
			}
		}
	}
}

type noFlush struct{}

// Flush implements http.Flusher.
func (noFlush) Flush() {}

// TestOneOfFourShardsLies: what can be seen to be a lie is the failure of that shard, never a wrong
// or a shorter answer without a word.
func TestOneOfFourShardsLies(t *testing.T) {
	q := newQuartet(t)
	q.has = q.sound(t, q.four(t))
	for _, l := range lies {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			f := q.withFourth(t, shard.Options{DialTimeout: ample, ProgressTimeout: ample}, ample)
			f.warm(t)
			if l.script != "" {
				if err := f.liar.Set(l.script); err != nil {
					t.Fatal(err)
				}
			}
			if l.lie != nil {
				f.lie.Store(&l.lie)
			}
			sum := f.judge(t, l.name, f.inquiries(), atOnce, func(in inquiry, got *reply) bool {
				warnings := strings.Join(got.message.Warnings, "\n")
				switch {
				case l.says != "" && got.status == 200 && strings.Contains(warnings, l.says):
					return f.same(in, got, f.lacks[in.name])
				case l.twice && got.status == 200:
					return strings.Contains(warnings, "held by two shards") || in.exact || !strings.HasPrefix(in.name, "query")
				case l.twice && got.status == 422:
					return strings.Contains(got.message.Error, "jaguar[0]") && strings.Contains(got.message.Error, "jaguar[3]")
				}
				return false
			})
			t.Logf("%s: %d answers lack the shard and say so, %d errors name it, %d were whole", l.name, sum.partial, sum.refused, sum.whole)
			if l.script != "" && (sum.partial < 15 || sum.refused < 15) {
				t.Errorf("%s did not reach enough requests: %+v", l.name, sum)
			}
		})
	}
}
