package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

func TestNegotiate(t *testing.T) {
	for _, c := range []struct {
		accept []string
		want   coding
		must   bool
	}{
		{nil, uncoded, false},
		{[]string{""}, uncoded, false},
		{[]string{"gzip"}, gzipped, false}, // Grafana and every Go client
		{[]string{"gzip, zstd"}, gzipped, false},
		{[]string{"zstd, gzip"}, gzipped, false},
		{[]string{"zstd, gzip;q=0.9"}, zstandard, false},
		{[]string{"zstd"}, zstandard, false},
		{[]string{"gzip, deflate, br, zstd"}, gzipped, false}, // browsers, and Grafana for them, which cannot read zstd
		{[]string{"deflate, br, zstd"}, zstandard, false},
		{[]string{"gzip, deflate"}, gzipped, false},
		{[]string{"deflate"}, uncoded, false},
		{[]string{"br;q=1.0, deflate;q=0.5"}, uncoded, false},
		{[]string{"GZip"}, gzipped, false},
		{[]string{"x-gzip"}, gzipped, false},
		{[]string{"*"}, gzipped, false},
		{[]string{"*;q=0"}, uncoded, false},
		{[]string{"gzip;q=0"}, uncoded, false},
		{[]string{"gzip;q=0, *"}, uncoded, false},
		{[]string{"gzip;q=0.000"}, uncoded, false},
		{[]string{"gzip;q=0.001"}, gzipped, false},
		{[]string{"gzip;q=1.000"}, gzipped, false},
		{[]string{"gzip;q=1.001"}, uncoded, false},
		{[]string{"gzip;q=2"}, uncoded, false},
		{[]string{"gzip;q=0.0001"}, uncoded, false},
		{[]string{"gzip;q=-1"}, uncoded, false},
		{[]string{"gzip;q=high"}, uncoded, false},
		{[]string{"gzip;q="}, uncoded, false},
		{[]string{"gzip;level=9"}, uncoded, false},
		{[]string{"gzip;q=0.5, zstd;q=0.4"}, gzipped, false},
		{[]string{"gzip;q=0.5, zstd;q=0.5"}, gzipped, false},
		{[]string{"gzip;q=0.5, identity"}, uncoded, false},
		{[]string{"gzip, identity"}, gzipped, false},
		{[]string{"gzip;q=0.5, identity;q=0.4"}, gzipped, false},
		{[]string{"identity"}, uncoded, false},
		{[]string{"identity;q=0"}, uncoded, false}, // nothing else is listed: readable is better than none
		{[]string{"identity;q=0, gzip"}, gzipped, true},
		{[]string{"identity;q=0, *"}, gzipped, true},
		{[]string{"gzip, *;q=0"}, gzipped, true},
		{[]string{"zstd;q=0.1, *;q=0"}, zstandard, true},
		{[]string{"zstd, *;q=0, identity;q=0.1"}, zstandard, false},
		{[]string{"identity;q=0, br;q=1, gzip;q=0.5, *;q=0"}, gzipped, true},
		{[]string{" \tgzip \t; \tq=0.3\t,,"}, gzipped, false},
		{[]string{"gzip;Q=0.3"}, gzipped, false},
		{[]string{"gzip; q =0.3"}, uncoded, false},
		{[]string{"gzip", "gzip;q=0"}, uncoded, false},
		{[]string{"deflate", "zstd"}, zstandard, false},
		{[]string{"gzipp, zip, gz"}, uncoded, false},
		{[]string{";q=1, ;, gzip"}, gzipped, false},
		{[]string{"gzip\x00"}, uncoded, false},
		{[]string{strings.Repeat("a,", 8000) + "gzip"}, gzipped, false},
	} {
		got, must := negotiate(c.accept)
		if got != c.want || must != c.must {
			t.Errorf("%.60q: %s (must %v), want %s (must %v)", c.accept, got, must, c.want, c.must)
		}
	}
}

// FuzzNegotiate holds the choice to what the client said, read a second time in a simpler way.
func FuzzNegotiate(f *testing.F) {
	for _, seed := range []string{
		"", "gzip", "gzip, zstd;q=0.5", "identity;q=0, *;q=0.001", "gzip;q=0, *", "br;q=1, x-gzip ;q=0.3,,",
		"gzip;q=1.0000", "zstd\t;\tq=1.",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		c, must := negotiate([]string{accept})
		// Nothing is chosen that is not named by itself or by a star, or that is refused anywhere.
		clean := strings.NewReplacer(" ", "", "\t", "").Replace(strings.ToLower(accept))
		elements := strings.Split(clean, ",")
		says := func(names ...string) (yes, no bool) {
			for _, e := range elements {
				name, q, weighted := strings.Cut(e, ";q=")
				if !slices.Contains(names, name) {
					continue
				}
				v, err := strconv.ParseFloat(q, 64)
				yes = yes || !weighted || err == nil && v > 0
				no = no || weighted && slices.Contains([]string{"0", "0.", "0.0", "0.00", "0.000"}, q)
			}
			return yes, no
		}
		if must {
			_, plain := says("identity")
			_, all := says("*")
			if !plain && !all || c == uncoded {
				t.Fatalf("%q: %s is said to be a must", accept, c)
			}
		}
		if c == uncoded {
			return
		}
		names := []string{c.String()}
		if c == gzipped {
			names = append(names, "x-gzip")
		}
		yes, no := says(names...)
		if star, _ := says("*"); c == gzipped && !yes {
			yes = star
		}
		if !yes || no && !strings.ContainsAny(accept, " \t") { // blanks inside a name were taken out above and mean another name
			t.Fatalf("%q: %s was chosen", accept, c)
		}
		// Order and repetition do not matter.
		slices.Reverse(elements)
		back, _ := negotiate([]string{strings.Join(elements, ",")})
		twice, _ := negotiate([]string{accept, accept})
		if twice != c || back != c && !strings.ContainsAny(accept, " \t") {
			t.Fatalf("%q: %s, reversed %s, twice %s", accept, c, back, twice)
		}
	})
}

// inflate takes a coding off a body.
func inflate(t testing.TB, name string, body []byte) ([]byte, error) {
	t.Helper()
	switch name {
	case "":
		return body, nil
	case "gzip":
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(z)
	case "zstd":
		z, err := zstd.NewReader(bytes.NewReader(body), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		return io.ReadAll(z)
	}
	t.Fatalf("Content-Encoding %q", name)
	return nil, nil
}

var digits = regexp.MustCompile(`[0-9]+`)

// Every endpoint answers with the same bytes in every coding, and remote read in none.
func TestCodedAnswers(t *testing.T) {
	r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{1, 1}}, {name: "heron", replicas: []int{1}}}, "")
	now := time.Now()
	seen := map[endpoint.ID]bool{}
	for _, a := range slices.Concat(askings(), []asking{
		{name: "format_query", id: endpoint.FormatQuery, path: "/api/v1/format_query", form: url.Values{"query": {"up"}}},
		{name: "parse_query", id: endpoint.ParseQuery, path: "/api/v1/parse_query", form: url.Values{"query": {"up"}}},
		{name: "status_flags", id: endpoint.StatusFlags, path: "/api/v1/status/flags"},
		{name: "status_config", id: endpoint.StatusConfig, path: "/api/v1/status/config"},
		{name: "status_runtimeinfo", id: endpoint.StatusRuntimeinfo, path: "/api/v1/status/runtimeinfo"},
		{name: "openapi", id: endpoint.OpenAPIDocument, path: "/api/v1/openapi.yaml"},
		{name: "notifications", id: endpoint.Notifications, path: "/api/v1/notifications"},
		{name: "status_walreplay", id: endpoint.StatusWALReplay, path: "/api/v1/status/walreplay"},
	}) {
		seen[a.id] = true
		if a.id == endpoint.Query {
			a.form = maps.Clone(a.form)
			a.form.Set("time", stamp(now)) // else each has its own
		}
		plain := r.ask(r.request(t.Context(), a))
		if plain.status != http.StatusOK || plain.err != nil || plain.header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: %s, Vary %q", a.name, plain, plain.header.Get("Vary"))
			continue
		}
		for _, c := range []struct{ accept, want string }{{"gzip;q=1, *;q=0", "gzip"}, {"zstd;q=1, *;q=0", "zstd"}} {
			if a.id == endpoint.Read {
				c.want = plain.header.Get("Content-Encoding")
			}
			req := r.request(t.Context(), a)
			req.Header.Set("Accept-Encoding", c.accept)
			resp, err := r.client.Do(req)
			if err != nil {
				t.Errorf("%s, %s: %v", a.name, c.want, err)
				continue
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			h := resp.Header
			if err != nil || resp.StatusCode != http.StatusOK || h.Get("Content-Encoding") != c.want ||
				h.Get("Content-Type") != plain.header.Get("Content-Type") {
				t.Errorf("%s, %s: %v, status %d, header %v", a.name, c.want, err, resp.StatusCode, h)
				continue
			}
			got, err := inflate(t, strings.TrimPrefix(c.want, plain.header.Get("Content-Encoding")), body)
			if err != nil {
				t.Errorf("%s, %s: %v", a.name, c.want, err)
			}
			if !bytes.Equal(digits.ReplaceAll(got, nil), digits.ReplaceAll(plain.body, nil)) { // the shards' clocks go on
				t.Errorf("%s, %s: %s\nwant %s", a.name, c.want, got, plain.body)
			}
		}
	}
	for _, e := range endpoint.Table {
		if !seen[e.ID] {
			t.Errorf("%s is not tried", e.ID)
		}
	}
	r.idle()
}

// What is small, and what went wrong, is sent as it is; with its length.
func TestUncodedAnswers(t *testing.T) {
	r := newRig(t, manyShards(1), "")
	for _, c := range []struct {
		name, path string
		status     int
	}{
		{"a small answer", "/api/v1/query?query=1", http.StatusOK},
		{"a refusal", "/api/v1/query_range?query=up&start=0&end=100000&step=1", http.StatusUnprocessableEntity},
		{"a wrong request", "/api/v1/query?query=" + url.QueryEscape("sum("), http.StatusBadRequest},
		{"no such path", "/api/v1/nope", http.StatusNotFound},
	} {
		for _, accept := range []string{"gzip", "zstd"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept-Encoding", accept)
			a := r.ask(req)
			if a.status != c.status || a.header.Get("Content-Encoding") != "" ||
				a.header.Get("Content-Length") != strconv.FormatInt(a.size, 10) || a.message.Status == "" {
				t.Errorf("%s, %s: %s, header %v", c.name, accept, a, a.header)
			}
		}
	}
	// HEAD is no method of the API, and its answer has no body to compress.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, r.url+"/api/v1/query?query=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Content-Encoding") != "" {
		t.Errorf("HEAD: status %d, header %v", resp.StatusCode, resp.Header)
	}
}

// Whatever is written, in whatever pieces, comes out as it was, also from a coder that was used
// before and left in the middle.
func TestCodersAreExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(randseed.Of(t, testSeed), 3))
	s := &Server{}
	s.state.Store(&state{pool: admit.NewPool(1 << 30)})
	for i := range 24 {
		body := matrixJSON(1 + rng.IntN(1<<19))
		if i%3 == 0 { // noise does not get smaller
			for j := range body {
				body[j] = byte(rng.Uint32())
			}
		}
		accept := []string{"gzip", "zstd"}[i%2]
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/api/v1/query", nil)
		r.Header.Set("Accept-Encoding", accept)
		c := s.coded(w, r)
		c.Header().Set("Content-Type", "application/json")
		whole := rng.IntN(4) > 0
		for rest := body; len(rest) > 0; {
			n := min(1+rng.IntN(200_000), len(rest))
			if m, err := c.Write(rest[:n]); m != n || err != nil {
				t.Fatal(m, err)
			}
			if rest = rest[n:]; rng.IntN(10) == 0 {
				if err := http.NewResponseController(c).Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if whole {
			if err := c.end(); err != nil {
				t.Fatal(err)
			}
		}
		c.release()
		got, err := inflate(t, accept, w.Body.Bytes())
		if whole && (err != nil || !bytes.Equal(got, body)) {
			t.Errorf("%s: %d bytes of %d, err %v", accept, len(got), len(body), err)
		}
		if !whole && err == nil && w.Body.Len() > 0 { // of nothing there is no beginning either
			t.Errorf("%s: an answer without its end looks whole", accept)
		}
	}
}

// An answer that is cut off in the middle never looks whole: not to HTTP, and not to who takes the
// coding off what arrived.
func TestCodedAnswerIsCut(t *testing.T) {
	for _, accept := range []string{"gzip", "zstd"} {
		t.Run(accept, func(t *testing.T) {
			r := newRig(t, manyShards(1), "limits: {timeout: 20s, max_response_bytes: 64MiB}\n")
			// More than is held back, then a connection that breaks.
			if err := r.shards["jaguar"][0][0].Set("",
				fakeshard.Route{Path: "/api/v1/query", Script: "limit 6MiB reset; generate 12MiB"}); err != nil {
				t.Fatal(err)
			}
			req := r.request(t.Context(), asking{path: "/api/v1/query", form: url.Values{"query": {"up"}}})
			req.Header.Set("Accept-Encoding", accept)
			resp, err := r.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Encoding") != accept {
				t.Fatalf("status %d, header %v: the answer was to be begun", resp.StatusCode, resp.Header)
			}
			body, err := io.ReadAll(resp.Body)
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("the client read to the end: %v", err)
			}
			got, err := inflate(t, accept, body)
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%d bytes inflate to %d, err %v", len(body), len(got), err)
			}
			r.idle()
		})
	}
}

// A client that leaves ends the work for it also where a coder stands between.
func TestClientLeavesCodedAnswer(t *testing.T) {
	for _, accept := range []string{"gzip", "zstd"} {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, RST %v", accept, reset), func(t *testing.T) {
				r := newRig(t, manyShards(1), "limits: {timeout: 25s, max_response_bytes: 1GiB, max_series: 1000000000, max_samples: 2000000000}\nmemory: {budget: 64MiB}\n")
				if err := r.shards["jaguar"][0][0].Set("", fakeshard.Route{Path: "/api/v1/query", Script: "generate 900MiB"}); err != nil {
					t.Fatal(err)
				}
				req := r.request(context.Background(), asking{path: "/api/v1/query", form: url.Values{"query": {"up"}}})
				req.Header.Set("Accept-Encoding", accept)
				c := r.call(req)
				head := make([]byte, 4<<10) // more of it and a fast machine is at the answer's end: it shrinks a thousand times
				if _, err := io.ReadFull(c.conn, head); err != nil {
					t.Fatal(err)
				}
				if !bytes.Contains(head, []byte("Content-Encoding: "+accept)) {
					t.Errorf("not compressed: %.500q", head)
				}
				r.leaves(c, reset, "/api/v1/query")
			})
		}
	}
}

// Where memory.budget has no room for a coder the answer goes out as it is.
func TestNoRoomForCoder(t *testing.T) {
	s := &Server{}
	st := &state{pool: admit.NewPool(coderBytes + 1<<16)}
	s.state.Store(st)
	answer := bytes.Repeat([]byte("spill"), 1000)
	serve := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/api/v1/query", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		c := s.coded(w, r)
		defer c.release()
		c.Header().Set("Content-Type", "application/json")
		c.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		if _, err := c.Write(answer); err != nil {
			t.Fatal(err)
		}
		if err := c.end(); err != nil {
			t.Fatal(err)
		}
		return w
	}
	if w := serve(); w.Header().Get("Content-Encoding") != "gzip" || w.Header().Get("Content-Length") != "" {
		t.Errorf("with room: %v", w.Header())
	}
	other := admit.NewBudget(st.pool, admit.Limits{})
	if err := other.Hold(1 << 17); err != nil {
		t.Fatal(err)
	}
	if w := serve(); w.Header().Get("Content-Encoding") != "" || w.Header().Get("Content-Length") != "5000" ||
		!bytes.Equal(w.Body.Bytes(), answer) {
		t.Errorf("without room: %v", w.Header())
	}
	other.Close()
	if n := st.pool.InUse(); n != 0 {
		t.Errorf("%d bytes were not given back", n)
	}
}

// A coder at work holds no more than is taken from the budget for it.
func TestCoderBytes(t *testing.T) {
	body := matrixJSON(1 << 19)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for _, c := range []coding{gzipped, zstandard} {
		const n = 4
		var keep [n]coder
		before := heap()
		for i := range keep {
			keep[i] = coders[c].New().(coder)
			keep[i].Reset(io.Discard)
			if _, err := keep[i].Write(body); err != nil {
				t.Fatal(err)
			}
		}
		each := int64(heap()-before) / n
		runtime.KeepAlive(keep)
		t.Logf("%s holds %d KiB", c, each>>10)
		if each > coderBytes {
			t.Errorf("%s holds %d bytes, more than coderBytes", c, each)
		}
	}
}

// matrixJSON is about n bytes of an answer as a dashboard gets it.
func matrixJSON(n int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	b.WriteString(`{"status":"success","data":{"resultType":"matrix","result":[`)
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, `{"metric":{"__name__":"node_cpu_seconds_total","cluster":"jaguar","cpu":"%d","instance":"10.0.%d.%d:9100","mode":"idle"},"values":[`, i%64, i/256, i%256)
		v := rng.Float64() * 1e6
		for j := range 120 {
			if j > 0 {
				b.WriteByte(',')
			}
			v += rng.Float64() * 30
			fmt.Fprintf(&b, `[%d,"%.2f"]`, 1755000000+j*30, v)
		}
		b.WriteString(`]},`)
	}
	return b.Bytes()
}

// BenchmarkCoders shows what a megabyte of JSON costs in each coding, and what is left of it.
func BenchmarkCoders(b *testing.B) {
	body := matrixJSON(1 << 21)
	for _, c := range []coding{gzipped, zstandard} {
		b.Run(c.String(), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			var sent counted
			for b.Loop() {
				sent = 0
				z := coders[c].Get().(coder)
				z.Reset(&sent)
				for p := range slices.Chunk(body, 64<<10) {
					if _, err := z.Write(p); err != nil {
						b.Fatal(err)
					}
				}
				if err := z.Close(); err != nil {
					b.Fatal(err)
				}
				z.Reset(nil)
				coders[c].Put(z)
			}
			b.ReportMetric(float64(sent)/float64(len(body)), "sent/byte")
		})
	}
}

type counted int64

// Write implements io.Writer.
func (c *counted) Write(p []byte) (int, error) {
	*c += counted(len(p))
	return len(p), nil
}
