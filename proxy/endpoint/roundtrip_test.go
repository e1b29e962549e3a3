package endpoint

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// shard is where the tests write to; its path is kept as a prefix.
const shardPrefix = "/team%20a/prometheus"

var shard = &url.URL{Scheme: "http", Host: "shard.example:9090", Path: "/team a/prometheus/", RawPath: shardPrefix + "/"}

// big has caps that a canonical request, three times as long as the client's at worst, does not
// reach.
var big = Options{StrictParameters: true, MaxBodyBytes: 1 << 24, MaxReadBytes: 1 << 24, MaxReadDecodedBytes: 1 << 24}

// sent returns the bytes that go to the shard.
func sent(t testing.TB, req *Request) []byte {
	t.Helper()
	out, err := req.Write(t.Context(), shard)
	if err != nil {
		t.Fatalf("%+v cannot be written: %v", req, err)
	}
	for name := range out.Header {
		if !slices.Contains([]string{"Accept", "User-Agent", "Content-Type", "Content-Encoding", "X-Prometheus-Remote-Read-Version"},
			name) {
			t.Errorf("header %s is not on the allow list", name)
		}
	}
	if (out.Body == nil) != (out.GetBody == nil) {
		t.Error("the body cannot be sent again")
	}
	var b bytes.Buffer
	if err := out.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// received is the request as the shard's server sees it, its prefix taken off.
func received(t testing.TB, raw []byte) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil {
		t.Fatalf("%v in %q", err, raw)
	}
	path, ok := strings.CutPrefix(r.URL.EscapedPath(), shardPrefix)
	if !ok {
		t.Fatalf("path %s lacks the prefix", r.URL.EscapedPath())
	}
	if r.URL, err = url.ParseRequestURI(path + "?" + r.URL.RawQuery); err != nil {
		t.Fatal(err)
	}
	return r
}

// roundTrip holds Parse(Write(r)) == r, and that writing is canonical.
func roundTrip(t testing.TB, req *Request) {
	t.Helper()
	raw := sent(t, req)
	again, err := Parse(received(t, raw), big)
	if err != nil {
		t.Fatalf("%+v was written as %q, which is refused: %v", req, raw, err)
	}
	if len(again.Dropped) > 0 {
		t.Errorf("unknown parameters %q were written", again.Dropped)
	}
	if !again.Equal(req) || !req.Equal(again) {
		t.Fatalf("%+v\nwas written as %q\nand read as %+v", req, raw, again)
	}
	if !bytes.Equal(raw, sent(t, again)) {
		t.Error("equal requests are written differently")
	}
	if clone := req.Clone(); !clone.Equal(req) {
		t.Error("a clone is not equal")
	}
	if got, want := req.encode(Get(req.ID)), req.Values().Encode(); got != want {
		t.Errorf("the parameters are written as %q, want %q", got, want)
	}
}

// examples are requests made from the table: each row without parameters, with each parameter
// alone, with all, by each method, in URL and in body.
func examples() []string {
	var out []string
	for _, e := range Table {
		path := strings.ReplaceAll(e.Path, "{name}", "job")
		all, needed := url.Values{}, url.Values{}
		for _, p := range e.Params {
			all.Set(p.Name, p.Example)
			if p.Required {
				needed.Set(p.Name, p.Example)
			}
		}
		forms := []url.Values{{}, needed, all}
		for _, p := range e.Params {
			one := url.Values{p.Name: {p.Example}}
			for k, v := range needed {
				one[k] = v
			}
			forms = append(forms, one)
		}
		for _, m := range e.Methods {
			for _, f := range forms {
				q := f.Encode()
				out = append(out, fmt.Sprintf("%s %s?%s HTTP/1.1\r\nHost: x\r\n\r\n", m, path, q))
				if m == http.MethodPost {
					out = append(out, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", path, formType, len(q), q))
				}
			}
		}
	}
	return out
}

func TestExamplesOfTheTable(t *testing.T) {
	parsed := map[ID]bool{}
	for _, raw := range examples() {
		req, err := Parse(readRequest(t, []byte(raw)), Options{StrictParameters: true})
		if err != nil {
			continue // an example without what it needs
		}
		parsed[req.ID] = true
		roundTrip(t, req)
	}
	for _, e := range Table {
		if !parsed[e.ID] && e.ID != Read {
			t.Errorf("no example of %s was understood", e.ID)
		}
		for i := range e.Params {
			p := &e.Params[i]
			if p.Doc == "" || p.Example == "" || p.set == nil || p.get == nil {
				t.Errorf("%s %s is incomplete", e.ID, p.Name)
			}
			var r Request
			if err := r.set(p, []string{p.Example}); err != nil {
				t.Errorf("%s: the example is refused: %v", e.ID, err)
			}
			if got := p.get(&r); len(got) != 1 {
				t.Errorf("%s %s: set is not followed by get: %q", e.ID, p.Name, got)
			}
		}
	}
}

// TestRoundTripBeyondParse writes what Parse makes only from odd requests, and what the rooms
// behind it make.
func TestRoundTripBeyondParse(t *testing.T) {
	long := strings.Repeat("x", 3000)
	for _, req := range []*Request{
		{ID: Query, Query: long, Time: At(-1)},
		{ID: Query, Query: "up", Time: At(minTime.UnixMilli())},
		{ID: Query, Query: "up", Time: At(maxTime.UnixMilli())},
		{ID: QueryRange, Query: "up &+%;#\n\u00e4", Start: At(0), End: At(1), Step: 1001e6},
		{ID: Series, Match: []string{long, "{a=\"\u2028\"}"}, Limit: 1},
		{ID: LabelValues, Label: "job", Match: []string{long}},
		{ID: LabelValues, Label: "U__x_2e_"},
		{ID: LabelValues, Label: "U__"},
		{ID: LabelValues, Label: "9lives"},
		{ID: LabelValues, Label: "a:b"},
		{ID: LabelValues, Label: ".."},
		{ID: LabelValues, Label: "a/b\\c%2f;d?e#f"},
		{ID: LabelValues, Label: "\u00e4\U000FFFFF\U00100000\U0010FFFF_"},
		{ID: LabelValues, Label: strings.Repeat("\U0010FFFF", MaxLabelNameBytes/4)},
	} {
		roundTrip(t, req)
	}
}

func TestLongParametersGoIntoTheBody(t *testing.T) {
	for _, tc := range []struct {
		req  *Request
		want string
	}{
		{&Request{ID: Query, Query: "up"}, "GET"},
		{&Request{ID: Query, Query: strings.Repeat("u", 2040)}, "GET"},
		{&Request{ID: Query, Query: strings.Repeat("u", 2050)}, "POST"},
		{&Request{ID: LabelValues, Label: "job", Match: []string{strings.Repeat("u", 9000)}}, "GET"},
	} {
		out, err := tc.req.Write(t.Context(), shard)
		if err != nil || out.Method != tc.want {
			t.Errorf("%s: %v %v, want %s", tc.req.ID, out.Method, err, tc.want)
		}
	}
}

func TestWriteRefusesWhatParseCannotMake(t *testing.T) {
	for _, req := range []*Request{{}, {ID: "nonsense"}, {ID: LabelValues}, {ID: Read}} {
		if out, err := req.Write(t.Context(), shard); err == nil {
			t.Errorf("%+v was written as %v", req, out.URL)
		}
	}
}

func FuzzRoundTrip(f *testing.F) {
	for _, c := range clientRequests(f) {
		f.Add(c.Raw)
	}
	for _, e := range examples() {
		f.Add([]byte(e))
	}
	f.Add([]byte("GET /api/v1/label/U__a_10ffff_%F4%8F%BF%BF/values HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return
		}
		req, err := Parse(r, Options{})
		if err != nil {
			if req != nil {
				t.Error("a request and an error")
			}
			return
		}
		if rest, _ := io.ReadAll(r.Body); len(rest) > 0 {
			t.Errorf("%d bytes of the body were left", len(rest))
		}
		roundTrip(t, req)
	})
}

// BenchmarkParse is the door's share of a request's price.
func BenchmarkParse(b *testing.B) {
	form := "end=1755003600&query=sum+by+%28node%29+%28rate%28node_cpu_seconds_total%5B5m%5D%29%29&start=1755000000&step=15"
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/api/v1/query_range", strings.NewReader(form))
		r.Header.Set("Content-Type", formType)
		if _, err := Parse(r, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestBaseURLs(t *testing.T) {
	req := &Request{ID: LabelValues, Label: "a/b", Limit: 5}
	for _, tc := range []struct{ base, want string }{
		{"http://10.0.0.1:9090", "http://10.0.0.1:9090/api/v1/label/U__a_2f_b/values?limit=5"},
		{"http://10.0.0.1:9090/", "http://10.0.0.1:9090/api/v1/label/U__a_2f_b/values?limit=5"},
		{"https://[::1]:9090/prometheus/", "https://[::1]:9090/prometheus/api/v1/label/U__a_2f_b/values?limit=5"},
		{"http://h/a%2Fb/c%20d", "http://h/a%2Fb/c%20d/api/v1/label/U__a_2f_b/values?limit=5"},
		{"http://h/?x=1#y", "http://h/api/v1/label/U__a_2f_b/values?limit=5"},
		{"http://user:pass@h", "http://user:pass@h/api/v1/label/U__a_2f_b/values?limit=5"},
	} {
		base, err := url.Parse(tc.base)
		if err != nil {
			t.Fatal(err)
		}
		out, err := req.Write(t.Context(), base)
		if err != nil || out.URL.String() != tc.want {
			t.Errorf("%s: %v %v, want %s", tc.base, out.URL, err, tc.want)
		}
	}
}
