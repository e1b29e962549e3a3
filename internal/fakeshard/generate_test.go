package fakeshard

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
)

func readRequest(t *testing.T, accept prompb.ReadRequest_ResponseType, ms ...*prompb.LabelMatcher) []byte {
	t.Helper()
	req := &prompb.ReadRequest{
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{accept},
		Queries:               []*prompb.Query{{StartTimestampMs: 1755000000000, EndTimestampMs: 1755003600000, Matchers: ms}},
	}
	b, err := req.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return snappy.Encode(nil, b)
}

// Every kind of generated JSON is valid and has exactly the size that was asked for, whatever that
// is, down to the smallest.
func TestGenerate_size(t *testing.T) {
	for kind, sh := range shapes {
		if sh.pad == 0 {
			continue
		}
		s := Start(t, Config{Routes: []Route{
			{Path: "/1", Script: "generate 1 " + kind},
			{Path: "/2", Script: "generate 777B " + kind},
			{Path: "/3", Script: "generate 100kB " + kind},
			{Path: "/4", Script: "generate 100001B " + kind},
		}})
		c := newClient(t)
		for i, want := range []int{len(sh.head) + len(sh.tail), 777, 100_000, 100_001} {
			resp, err := c.Get(s.URL() + "/" + string(rune('1'+i)))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || len(b) != max(want, len(sh.head)+len(sh.tail)) || sh.contentType == jsonType && !json.Valid(b) {
				t.Errorf("%s of %d bytes: got %d, valid: %v, %v: %.100s…%s", kind, want, len(b), json.Valid(b), err, b,
					b[max(0, len(b)-100):])
			}
			if ct := resp.Header.Get("Content-Type"); ct != sh.contentType {
				t.Errorf("%s has type %s", kind, ct)
			}
		}
	}
}

// What generate makes for an endpoint has the shape of the endpoint's answers, and is in the order
// in which Prometheus gives it.
func TestGenerate_shape(t *testing.T) {
	type point [2]any
	type series struct {
		Metric map[string]string
		Value  point
		Values []point
	}
	s := Start(t, Config{Default: "generate 50kB"})
	c := newClient(t)
	for path, check := range map[string]func(data json.RawMessage) (n int, err error){
		"series": func(d json.RawMessage) (int, error) { var v []map[string]string; return lenOf(d, &v) },
		"labels": func(d json.RawMessage) (int, error) {
			var v []string
			n, err := lenOf(d, &v)
			if !slices.IsSorted(v) {
				err = errors.New("not in order")
			}
			return n, err
		},
		"label/job/values": func(d json.RawMessage) (int, error) { var v []string; return lenOf(d, &v) },
		"query?time=1755000000.5": func(d json.RawMessage) (int, error) {
			var v struct{ Result []series }
			err := json.Unmarshal(d, &v)
			for _, s := range v.Result {
				if s.Value[0] != 1755000000.5 || s.Metric["__name__"] == "" {
					err = errors.New("wrong point or metric")
				}
			}
			return len(v.Result), err
		},
		"query_range?start=1755000000&end=1755003600&step=30": func(d json.RawMessage) (int, error) {
			var v struct{ Result []series }
			err := json.Unmarshal(d, &v)
			for _, s := range v.Result {
				if len(s.Values) != 10 || s.Values[0][0] != 1755000000.0 || s.Values[1][0] != 1755000030.0 {
					err = errors.New("wrong points")
				}
			}
			return len(v.Result), err
		},
		"query_exemplars": func(d json.RawMessage) (int, error) {
			var v []struct{ Exemplars []any }
			n, err := lenOf(d, &v)
			if n > 0 && len(v[0].Exemplars) != 1 {
				err = errors.New("no exemplars")
			}
			return n, err
		},
		"metadata": func(d json.RawMessage) (int, error) {
			var v map[string][]map[string]string
			err := json.Unmarshal(d, &v)
			return len(v), err
		},
		"rules": func(d json.RawMessage) (int, error) {
			var v struct{ Groups []struct{ Rules []any } }
			err := json.Unmarshal(d, &v)
			return len(v.Groups), err
		},
		"alerts": func(d json.RawMessage) (int, error) {
			var v struct{ Alerts []any }
			err := json.Unmarshal(d, &v)
			return len(v.Alerts), err
		},
		"targets": func(d json.RawMessage) (int, error) {
			var v struct{ ActiveTargets []any }
			err := json.Unmarshal(d, &v)
			return len(v.ActiveTargets), err
		},
		"scrape_pools": func(d json.RawMessage) (int, error) {
			var v struct{ ScrapePools []string }
			err := json.Unmarshal(d, &v)
			return len(v.ScrapePools), err
		},
		"alertmanagers": func(d json.RawMessage) (int, error) {
			var v struct{ ActiveAlertmanagers []struct{ URL string } }
			err := json.Unmarshal(d, &v)
			return len(v.ActiveAlertmanagers), err
		},
		"targets/metadata": func(d json.RawMessage) (int, error) { var v []struct{ Metric string }; return lenOf(d, &v) },
		"status/tsdb": func(d json.RawMessage) (int, error) {
			var v struct{ SeriesCountByMetricName []any }
			err := json.Unmarshal(d, &v)
			return len(v.SeriesCountByMetricName), err
		},
	} {
		resp, err := c.Get(s.URL() + "/api/v1/" + path)
		if err != nil {
			t.Fatal(err)
		}
		var a struct{ Data json.RawMessage }
		err = json.NewDecoder(resp.Body).Decode(&a)
		resp.Body.Close()
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if n, err := check(a.Data); err != nil || n < 50 {
			t.Errorf("%s: %d entries, %v", path, n, err)
		}
	}
	// DefaultProbe keeps these from the default script, so that they need a route.
	if err := s.Set("", Route{Path: "/api/v1/status/*", Script: "generate 50kB"}, Route{Path: "/api/v1/features", Script: "generate 50kB"},
		Route{Path: "/federate", Script: "generate 50kB"}); err != nil {
		t.Fatal(err)
	}
	for path, part := range map[string]string{
		"/api/v1/status/flags": `"flag.000000000001":"1"`,
		"/api/v1/features":     `"feature_000000000001":true`, "/api/v1/status/config": `"yaml":"global: {}\n# 000000000000\n`,
	} {
		resp, err := c.Get(s.URL() + path)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(b), part) {
			t.Errorf("%s: %.200s, %v", path, b, err)
		}
		resp.Body.Close()
	}
	resp, err := c.Get(s.URL() + "/federate")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	p, err := textparse.New(b, resp.Header.Get("Content-Type"), labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for {
		e, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("federate, entry %d: %v", n, err)
		}
		if e == textparse.EntrySeries {
			n++
		}
	}
	if n < 500 {
		t.Errorf("federate: %d series", n)
	}
}

func lenOf[T any](d json.RawMessage, v *[]T) (int, error) {
	err := json.Unmarshal(d, v)
	return len(*v), err
}

// Generated remote read chunks are read by Prometheus' own reader: many series in order, or one
// series that goes on in time.
func TestGenerate_chunks(t *testing.T) {
	for _, kind := range []string{"", " longchunks"} {
		s := Start(t, Config{Routes: []Route{{Path: "/api/v1/read", Script: "generate 1MiB" + kind}}})
		resp, err := newClient(t).Post(s.URL()+"/api/v1/read", "application/x-protobuf",
			bytes.NewReader(readRequest(t, prompb.ReadRequest_STREAMED_XOR_CHUNKS,
				&prompb.LabelMatcher{Name: "__name__", Value: "http_requests_total"})))
		if err != nil {
			t.Fatal(err)
		}
		if ct := resp.Header.Get("Content-Type"); ct != streamedType {
			t.Fatalf("type %s", ct)
		}
		r := remote.NewChunkedReader(resp.Body, 1<<20, nil)
		frames, lastInstance, lastTime := 0, "", int64(0)
		for ; ; frames++ {
			var m prompb.ChunkedReadResponse
			err := r.NextProto(&m)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("frame %d: %v", frames, err)
			}
			cs := m.ChunkedSeries[0]
			if cs.Labels[0].Value != "http_requests_total" || cs.Chunks[0].MinTimeMs < 1755000000000 {
				t.Fatalf("frame %d is not what was asked for: %v", frames, m.String())
			}
			if kind == "" && cs.Labels[1].Value <= lastInstance || kind != "" && cs.Chunks[0].MinTimeMs <= lastTime {
				t.Fatalf("frame %d is out of order", frames)
			}
			lastInstance, lastTime = cs.Labels[1].Value, cs.Chunks[0].MaxTimeMs
		}
		resp.Body.Close()
		if frames < 1000 {
			t.Errorf("%d frames", frames)
		}
		if err := s.WaitIdle(soon(t)); err != nil {
			t.Fatal(err)
		}
		if n := s.Requests()[0].Sent; n < 1<<20 || n > 1<<20+4096 {
			t.Errorf("%d bytes sent for 1MiB", n)
		}
	}
}

// A large body costs the shard no memory to speak of.
func TestGenerate_memory(t *testing.T) {
	s := Start(t, Config{Default: "generate 256MiB"})
	resp, err := newClient(t).PostForm(s.URL()+"/api/v1/series", url.Values{})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n, err := io.Copy(io.Discard, resp.Body)
	runtime.ReadMemStats(&after)
	if err != nil || n != 256<<20 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20 {
		t.Errorf("%d bytes allocated for a body of %d", grown, n)
	}
}

func BenchmarkGenerate(b *testing.B) {
	s, err := New(Config{Default: "generate 64MiB"})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	b.SetBytes(64 << 20)
	for b.Loop() {
		resp, err := http.Get(s.URL() + "/api/v1/series")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
	}
}
