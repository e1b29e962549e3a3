package endpoint

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

func readBytes(t testing.TB, req *prompb.ReadRequest) []byte {
	t.Helper()
	raw, err := req.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func oneQuery(edit func(*prompb.Query)) *prompb.ReadRequest {
	q := &prompb.Query{StartTimestampMs: 1, EndTimestampMs: 2, Matchers: []*prompb.LabelMatcher{{Name: "a", Value: "b"}}}
	if edit != nil {
		edit(q)
	}
	return &prompb.ReadRequest{Queries: []*prompb.Query{q}}
}

func TestRead(t *testing.T) {
	good := snappy.Encode(nil, readBytes(t, oneQuery(nil)))
	bomb := snappy.Encode(nil, bytes.Repeat([]byte{0x12, 0x00}, 4<<20))
	for _, tc := range []struct {
		name string
		body []byte
		head http.Header
		want qerr.Kind // 0 (Internal) is none
	}{
		{"as Prometheus sends it", good, http.Header{
			"Content-Encoding": {"snappy"}, "Content-Type": {protoType},
			"X-Prometheus-Remote-Read-Version": {readVersion},
		}, 0},
		{"without headers", good, http.Header{}, 0},
		{"streamed type", good, http.Header{"Content-Type": {"application/x-stream-protobuf"}}, 0},
		{"gzip", good, http.Header{"Content-Encoding": {"gzip"}}, qerr.BadData},
		{"JSON", good, http.Header{"Content-Type": {"application/json"}}, qerr.BadData},
		{"form", []byte("query=up"), http.Header{"Content-Type": {formType}}, qerr.BadData},
		{"a later version", good, http.Header{"X-Prometheus-Remote-Read-Version": {"1.0.0"}}, qerr.BadData},
		{"empty", nil, http.Header{}, qerr.BadData},
		{"cut", good[:len(good)-1], http.Header{}, qerr.BadData},
		{"not snappy", []byte("\xff\xff\xff\xff\xff\xff"), http.Header{}, qerr.BadData},
		{"claims 4 GiB", []byte("\xff\xff\xff\xff\x0f"), http.Header{}, qerr.BodyTooLarge},
		{"inflates too far", bomb, http.Header{}, qerr.BodyTooLarge},
		{"no protobuf", snappy.Encode(nil, []byte("hello")), http.Header{}, qerr.BadData},
		{"no queries", snappy.Encode(nil, nil), http.Header{}, qerr.BadData},
		{"too large", bytes.Repeat(good, 1<<20), http.Header{}, qerr.BodyTooLarge},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/api/v1/read?x=1", bytes.NewReader(tc.body))
			r.Header = tc.head
			req, err := Parse(r, Options{})
			if err == nil && tc.want == 0 {
				if !reflect.DeepEqual(req.ReadQuery, oneQuery(nil)) || !reflect.DeepEqual(req.Dropped, []string{"x"}) {
					t.Errorf("got %+v", req)
				}
				roundTrip(t, req)
				return
			}
			if e := qerr.From(err); e == nil || e.Kind != tc.want || e.Message == "" {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestDecodeReadCaps(t *testing.T) {
	queries := func(n int) *prompb.ReadRequest {
		r := &prompb.ReadRequest{}
		for range n {
			r.Queries = append(r.Queries, oneQuery(nil).Queries...)
		}
		return r
	}
	types := func(values ...prompb.ReadRequest_ResponseType) *prompb.ReadRequest {
		r := oneQuery(nil)
		r.AcceptedResponseTypes = values
		return r
	}
	matchers := func(n int, m prompb.LabelMatcher) *prompb.ReadRequest {
		return oneQuery(func(q *prompb.Query) {
			q.Matchers = nil
			for range n {
				q.Matchers = append(q.Matchers, &m)
			}
		})
	}
	hints := func(h prompb.ReadHints) *prompb.ReadRequest {
		return oneQuery(func(q *prompb.Query) { q.Hints = &h })
	}
	a := prompb.LabelMatcher{Type: prompb.LabelMatcher_NRE, Name: "a", Value: "b"}
	for _, tc := range []struct {
		name string
		req  *prompb.ReadRequest
		err  string
	}{
		{"16 queries", queries(16), ""},
		{"17 queries", queries(17), "more than 16 queries"},
		{"128 matchers", matchers(128, a), ""},
		{"129 matchers", matchers(129, a), "more than 128 matchers"},
		{"unknown matcher", matchers(1, prompb.LabelMatcher{Type: 4, Name: "a"}), "unknown type"},
		{"negative matcher", matchers(1, prompb.LabelMatcher{Type: -1, Name: "a"}), "unknown type"},
		{"matcher without name", matchers(1, prompb.LabelMatcher{Value: "x"}), "no name"},
		{"NUL", matchers(1, prompb.LabelMatcher{Name: "a", Value: "\x00"}), "NUL"},
		{"not UTF-8", matchers(1, prompb.LabelMatcher{Name: "\xff"}), "UTF-8"},
		{
			"hints", hints(prompb.ReadHints{
				StepMs: 1, Func: "sum", StartMs: -2, EndMs: 3, Grouping: []string{"a", ""}, By: true,
				RangeMs: 4,
			}),
			"",
		},
		{"256 grouping labels", hints(prompb.ReadHints{Grouping: strings.Split(strings.Repeat("x,", 255)+"x", ",")}), ""},
		{"257 grouping labels", hints(prompb.ReadHints{Grouping: strings.Split(strings.Repeat("x,", 256)+"x", ",")}), "more than 256"},
		{"backwards", oneQuery(func(q *prompb.Query) { q.EndTimestampMs = 0 }), "ends before"},
		{"both types", types(prompb.ReadRequest_STREAMED_XOR_CHUNKS, prompb.ReadRequest_SAMPLES), ""},
		{"only types of the future", types(7), "neither SAMPLES"},
		{"many types", types(make([]prompb.ReadRequest_ResponseType, 17)...), "more than 16"},
	} {
		got, err := decodeRead(readBytes(t, tc.req))
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v", tc.name, err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, tc.req) {
			t.Errorf("%s: %v %v", tc.name, got, err)
		}
	}
}

// FuzzDecodeRead compares with the generated decoder: what we understand, it understands in the
// same way.
func FuzzDecodeRead(f *testing.F) {
	f.Add(readBytes(f, oneQuery(nil)))
	f.Add(readBytes(f, oneQuery(func(q *prompb.Query) {
		q.Hints = &prompb.ReadHints{StepMs: 1, Func: "sum", Grouping: []string{"a"}, By: true}
	})))
	f.Add([]byte{0x10, 0x01, 0x10, 0x00, 0x0a, 0x00})                         // accepted types one by one, an empty query
	f.Add([]byte{0x0a, 0x02, 0x22, 0x00, 0x7d, 1, 2, 3, 4})                   // empty hints, an unknown field
	f.Add([]byte{0x0a, 0x00, 0x12, 0x06, 0x00, 0x80, 0x80, 0x80, 0x80, 0x10}) // packed: 0, and 1<<32, whose low 32 bits are 0
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := decodeRead(raw)
		if err != nil {
			return
		}
		var want prompb.ReadRequest
		if err := want.Unmarshal(raw); err != nil {
			return // it is stricter about unknown fields, which we drop
		}
		keep := want.AcceptedResponseTypes[:0]
		for _, v := range want.AcceptedResponseTypes {
			if v == prompb.ReadRequest_SAMPLES || v == prompb.ReadRequest_STREAMED_XOR_CHUNKS {
				keep = append(keep, v)
			}
		}
		want.AcceptedResponseTypes = keep
		clearUnknown(&want)
		a, b := readBytes(t, got), readBytes(t, &want)
		if !bytes.Equal(a, b) {
			t.Errorf("got  %v\nwant %v", got, &want)
		}
		roundTrip(t, &Request{ID: Read, ReadQuery: got})
	})
}

// clearUnknown forgets the fields that Spillway does not understand.
func clearUnknown(r *prompb.ReadRequest) {
	r.XXX_unrecognized = nil
	for _, q := range r.Queries {
		q.XXX_unrecognized = nil
		for _, m := range q.Matchers {
			m.XXX_unrecognized = nil
		}
		if q.Hints != nil {
			q.Hints.XXX_unrecognized = nil
		}
	}
}
