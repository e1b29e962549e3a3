package fakeshard

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds how long a test waits for what has to happen; nothing is asserted about how fast
// it does.
const patience = 30 * time.Second

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func newClient(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{DisableCompression: true, MaxResponseHeaderBytes: 1 << 20}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get asks for /api/v1/series and reads at most max bytes of the answer.
func get(t *testing.T, c *http.Client, s *Shard, max int64) (resp *http.Response, body []byte, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(soon(t), http.MethodGet, s.URL()+"/api/v1/series", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err = c.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, max))
	return resp, body, err
}

// What each step does, as net/http's client sees it.
func TestSteps_client(t *testing.T) {
	const all = 1 << 20
	var (
		nothing   = func(*testing.T, *http.Response, []byte) {}
		failsWith = func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
		says      = func(part string) func(error) bool {
			return func(err error) bool { return err != nil && strings.Contains(err.Error(), part) }
		}
		healthy = func(t *testing.T, resp *http.Response, body []byte) {
			if resp.StatusCode != 200 || !json.Valid(body) || !bytes.Contains(body, []byte(`"instance":"node-1:9100"`)) {
				t.Errorf("not the healthy answer: %d %s", resp.StatusCode, body)
			}
		}
		text = func(want string) func(*testing.T, *http.Response, []byte) {
			return func(t *testing.T, _ *http.Response, body []byte) {
				if string(body) != want {
					t.Errorf("body %q, want %q", body, want)
				}
			}
		}
		head = func(status int, name, value string) func(*testing.T, *http.Response, []byte) {
			return func(t *testing.T, resp *http.Response, _ []byte) {
				if resp.StatusCode != status || resp.Header.Get(name) != value {
					t.Errorf("got %d %s: %q, want %d %q", resp.StatusCode, name, resp.Header.Get(name), status, value)
				}
			}
		}
		unzipped = func(want string) func(*testing.T, *http.Response, []byte) {
			return func(t *testing.T, resp *http.Response, body []byte) {
				z, err := gzip.NewReader(bytes.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(z)
				if err != nil || !strings.Contains(string(b), want) || resp.Header.Get("Content-Encoding") != "gzip" {
					t.Errorf("unzipped %.100q, %v, want %q", b, err, want)
				}
			}
		}
	)
	for _, tc := range []struct {
		script string
		fails  func(error) bool // nil: must not fail; asked for errors before the head and in the body alike
		check  func(*testing.T, *http.Response, []byte)
		end    End
		conns  int // connections for two such requests, one after the other; 0 means 2

		refused bool // the client refuses the head
	}{
		{script: "", check: healthy, end: Completed, conns: 1},
		{script: "accept", check: healthy, end: Completed, conns: 1},
		{script: "delay 1ms", check: healthy, end: Completed, conns: 1},
		{script: "compute 1ms", check: healthy, end: Completed, conns: 1},
		{script: "chunked; answer", check: healthy, end: Completed, conns: 1},
		{script: "drip 7B/1ns; answer", check: healthy, end: Completed, conns: 1},
		{script: "unframed; answer", check: healthy, end: Completed},
		{script: "header Connection close", check: healthy, end: Completed},
		{script: "status 503", check: head(503, "Content-Length", "0"), end: Completed, conns: 1},
		{script: "status 204", check: text(""), end: Completed, conns: 1},
		{script: "status 429; header Retry-After 3; header A b c; send no", check: head(429, "A", "b c"), end: Completed, conns: 1},
		{script: "error 422 execution too many samples", check: text(`{"error":"too many samples","errorType":"execution","status":"error"}`), end: Completed, conns: 1},
		{script: "send a; send 'b c'", check: text("ab c"), end: Completed, conns: 1},
		{script: "length 3; send abc", check: text("abc"), end: Completed, conns: 1},
		{script: "redirect http://127.0.0.1:1/x 307", check: head(307, "Location", "http://127.0.0.1:1/x"), end: Completed, conns: 1},
		{script: "redirect", check: nothing, end: Completed, conns: 1},
		{script: "flood 100kB; answer", check: healthy, end: Completed, conns: 1},
		{script: "flood 2MiB; answer", fails: says("exceeded"), end: PeerReset},
		{script: "raw \"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nhi\"", check: text("hi"), end: Cut},

		{script: "reset", fails: failsWith(syscall.ECONNRESET), end: Cut},
		{script: "close", fails: failsWith(io.EOF), end: Cut},
		{script: "garbage wire", fails: says("malformed HTTP"), end: Cut, refused: true},
		{script: "flush; reset", fails: failsWith(syscall.ECONNRESET), check: nothing, end: Cut},
		{script: "send abc; close", fails: failsWith(io.ErrUnexpectedEOF), check: text("abc"), end: Cut},
		{script: "send abc; truncate", fails: failsWith(io.ErrUnexpectedEOF), check: text("abc"), end: Cut},
		{script: "truncate", fails: failsWith(io.ErrUnexpectedEOF), check: text(""), end: Cut},
		{script: "answer; truncate", check: healthy, end: Cut},
		{script: "chunked; answer; truncate", fails: failsWith(io.ErrUnexpectedEOF), check: healthy, end: Cut},
		{script: "unframed; send abc; truncate", check: text("abc"), end: Cut}, // nobody can see it: that is the point
		{script: "length 9; send abc", fails: failsWith(io.ErrUnexpectedEOF), check: text("abc"), end: Cut},
		{script: "header Connection close; length 2; send abc", check: text("ab"), end: Cut},
		{script: "badlength; answer", fails: says("bad Content-Length"), end: Cut, refused: true},
		{script: "badchunk", fails: says("invalid byte in chunk length"), check: text(""), end: Cut},
		{script: "limit 5 close; answer", fails: failsWith(io.ErrUnexpectedEOF), check: text(`{"sta`), end: Cut},
		{script: "limit 5 reset; answer", fails: func(err error) bool { return err != nil }, check: nothing, end: Cut},
		{script: "limit 0 close; send abc", fails: failsWith(io.ErrUnexpectedEOF), check: text(""), end: Cut},

		{script: "garbage html", check: head(200, "Content-Type", "text/html; charset=utf-8"), end: Completed, conns: 1},
		{script: "status 502; garbage html", check: head(502, "Content-Type", "text/html; charset=utf-8"), end: Completed, conns: 1},
		{script: "garbage null", check: text("null"), end: Completed, conns: 1},
		{script: "garbage empty", check: text(""), end: Completed, conns: 1},
		{script: "garbage cut", check: text(`{"status":"success","data":[{"__name__":"up","inst`), end: Completed, conns: 1},
		{script: "garbage", check: func(t *testing.T, _ *http.Response, body []byte) {
			if len(body) != 4096 || json.Valid(body) {
				t.Errorf("%d bytes that are JSON or not 4096", len(body))
			}
		}, end: Completed, conns: 1},
		{script: "garbage shape", check: func(t *testing.T, _ *http.Response, body []byte) {
			var list struct{ Data []any }
			if !json.Valid(body) || json.Unmarshal(body, &list) == nil {
				t.Errorf("not valid JSON of the wrong shape: %s", body)
			}
		}, end: Completed, conns: 1},
		{script: "garbage deep", check: func(t *testing.T, _ *http.Response, body []byte) {
			if !bytes.Contains(body, bytes.Repeat([]byte("["), 100_000)) {
				t.Errorf("not deep: %d bytes", len(body))
			}
		}, end: Completed, conns: 1},
		{script: "skew -1h", check: func(t *testing.T, resp *http.Response, _ []byte) {
			at, err := http.ParseTime(resp.Header.Get("Date"))
			if d := time.Since(at); err != nil || d < 55*time.Minute || d > 65*time.Minute {
				t.Errorf("Date is %v old, want an hour (%v)", d, err)
			}
		}, end: Completed, conns: 1},

		{script: "gzip; send abc", check: unzipped("abc"), end: Completed, conns: 1},
		{script: "gzip on; answer", check: unzipped("node-1:9100"), end: Completed, conns: 1},
		{script: "gzip double; send abc", check: unzipped("\x1f\x8b"), end: Completed, conns: 1},
		{script: "gzip bad; send abc", check: text("abc"), end: Completed, conns: 1},
		{script: "gzip cut; send abc", check: func(t *testing.T, _ *http.Response, body []byte) {
			z, err := gzip.NewReader(bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(z); string(b) != "abc" || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %q, %v, want abc and an unexpected end", b, err)
			}
		}, end: Completed, conns: 1},
		{script: "gzip bomb 8MiB", check: func(t *testing.T, _ *http.Response, body []byte) {
			z, err := gzip.NewReader(bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			var answer struct{ Data []json.RawMessage }
			if err := json.NewDecoder(z).Decode(&answer); err != nil || len(answer.Data) != 8 || len(body) > 16<<10 {
				t.Errorf("%d bytes on the wire, %d series, %v; want 8 series in less than 16 KiB", len(body), len(answer.Data), err)
			}
		}, end: Completed, conns: 1},
	} {
		t.Run(tc.script, func(t *testing.T) {
			s := Start(t, Config{Default: tc.script})
			c := newClient(t)
			for range 2 {
				resp, body, err := get(t, c, s, all)
				switch {
				case tc.fails == nil && err != nil:
					t.Fatalf("failed: %v", err)
				case tc.fails != nil && !tc.fails(err):
					t.Fatalf("error %v is not the one wanted", err)
				}
				switch {
				case tc.check == nil && resp != nil:
					t.Fatalf("there was an answer: %d %.100q", resp.StatusCode, body)
				case tc.check != nil && resp == nil:
					t.Fatalf("there was no answer: %v", err)
				case tc.check != nil:
					tc.check(t, resp, body)
				}
				if err := s.WaitIdle(soon(t)); err != nil {
					t.Fatal(err)
				}
			}
			for _, r := range s.Requests() {
				// A client that refuses a head closes at once, with the rest of it unread or on its
				// way: closed and reset are both true. On a busy machine all of it may be out
				// before the client has looked, or the client may be gone before it is cut.
				refused := tc.refused && r.End.PeerLeft()
				if r.End != tc.end && !refused && !(tc.end.PeerLeft() && (r.End.PeerLeft() || r.End == Completed)) {
					t.Errorf("%v, want it %v", r, tc.end)
				}
				if r.Script != MustParse(tc.script).String() {
					t.Errorf("the record says script %q, want %q", r.Script, tc.script)
				}
			}
			if want := max(tc.conns, 1); tc.conns != 0 && s.Accepted() != want {
				t.Errorf("%d connections, want %d", s.Accepted(), want)
			}
		})
	}
}

func TestRoutes(t *testing.T) {
	s := Start(t, Config{
		Prefix:  "/prometheus",
		Default: "send default",
		Routes: []Route{
			{Path: "/api/v1/series", Nth: 2, Script: "send second"},
			{Path: "/api/v1/series", Nth: 4, To: math.MaxInt, Script: "send later"},
			{Path: "/api/v1/label/*/values", Method: http.MethodPost, Script: "status 405"},
			{Path: "/api/v1/query", Query: "up", Script: "send up"},
			{Path: "/api/v1/status/flags", Script: "send flags"},
		},
	})
	c := newClient(t)
	ask := func(method, path string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(soon(t), method, s.URL()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 200 {
			return resp.Status
		}
		return string(b)
	}
	for i, tc := range []struct{ method, path, want string }{
		{"GET", "/api/v1/series", "default"},
		{"POST", "/api/v1/series", "second"},
		{"GET", "/api/v1/series", "default"},
		{"GET", "/api/v1/series", "later"},
		{"GET", "/api/v1/series", "later"},
		{"GET", "/api/v1/label/job/values", "default"},
		{"POST", "/api/v1/label/job/values", "405 Method Not Allowed"},
		{"GET", "/api/v1/query?query=up", "up"},
		{"GET", "/api/v1/query?query=down", "default"},
		{"GET", "/api/v1/query?query=1%2B1&time=4", `{"status":"success","data":{"resultType":"scalar","result":[4,"2"]}}`},
		{"GET", "/api/v1/query?query=count_over_time(up[5m])", "*node-0"},
		{"GET", "/api/v1/status/flags", "flags"},
		{"GET", "/api/v1/status/buildinfo", "*3.15.0"},
		{"GET", "/-/ready", "*Ready"},
	} {
		got := ask(tc.method, tc.path)
		if part, ok := strings.CutPrefix(tc.want, "*"); ok && !strings.Contains(got, part) || !ok && got != tc.want {
			t.Errorf("%d: %s %s = %q, want %q", i, tc.method, tc.path, got, tc.want)
		}
	}
	if n := len(s.RequestsTo("/api/v1/series")); n != 5 {
		t.Errorf("%d requests to series, want 5", n)
	}
	if err := s.Set("status 500", Route{Path: "/api/v1/series", Nth: 1, Script: "send again"}); err != nil {
		t.Fatal(err)
	}
	if a, b := ask("GET", "/api/v1/series"), ask("GET", "/api/v1/series"); a != "again" || b != "500 Internal Server Error" {
		t.Errorf("after Set: %q, %q", a, b)
	}
	if err := s.Set("dely"); err == nil {
		t.Error("Set took a script that cannot be")
	}
	if r, err := c.Get("http://" + s.Addr() + "/api/v1/labels"); err != nil || r.StatusCode != 500 {
		t.Errorf("outside the prefix the default holds: %v, %v", r, err)
	} else {
		r.Body.Close()
	}
}

func TestRecord(t *testing.T) {
	s := Start(t, Config{})
	c := newClient(t)
	resp, err := c.PostForm(s.URL()+"/api/v1/query?timeout=5s&query=b", url.Values{"query": {"a"}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp, err = c.Get(s.URL() + "/api/v1/query?query=%zz;a=b"); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp, err = c.Post(s.URL()+"/api/v1/read", "application/x-protobuf", bytes.NewReader(make([]byte, 1<<20))); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := s.WaitIdle(soon(t)); err != nil {
		t.Fatal(err)
	}
	rs := s.Requests()
	if r := rs[0]; r.N != 1 || r.Conn != 1 || r.Method != "POST" || r.Path != "/api/v1/query" || r.RawQuery != "timeout=5s&query=b" ||
		r.Form.Encode() != "query=a&query=b&timeout=5s" ||
		r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" || string(r.Body) != "query=a" || r.Host != s.Addr() ||
		r.End != Completed || r.Sent == 0 || r.Ended.Before(r.Began) || !r.Left.IsZero() {
		t.Errorf("%+v", r)
	}
	if r := rs[1]; r.Bad == "" {
		t.Errorf("a form that cannot be parsed was not noted: %+v", r)
	}
	if r := rs[2]; len(r.Body) != 64<<10 || r.BodyBytes != 1<<20 {
		t.Errorf("%d bytes kept of %d", len(r.Body), r.BodyBytes)
	} else if _, err := r.ReadRequest(); err == nil {
		t.Error("a remote read was decoded from a body cut short")
	}
}

func TestAccept(t *testing.T) {
	s := Start(t, Config{Accept: []AcceptRoute{
		{Nth: 1, Script: "reset"},
		{Nth: 2, Script: "close"},
		{Nth: 3, Script: "raw \"no HTTP\\r\\n\"; close"},
		{Nth: 4, Script: "delay 1ms"},
	}})
	c := newClient(t)
	c.Transport.(*http.Transport).DisableKeepAlives = true
	for i, ok := range []bool{false, false, false, true, true} {
		if _, _, err := get(t, c, s, 1<<20); (err == nil) != ok {
			t.Errorf("connection %d: %v", i+1, err)
		}
	}
	if s.Seen() != 2 || s.Accepted() != 5 {
		t.Errorf("%d requests on %d connections", s.Seen(), s.Accepted())
	}
}

func TestRelease(t *testing.T) {
	s := Start(t, Config{Default: "wait a; wait b; answer"})
	c := newClient(t)
	done := make(chan error, 1)
	go func() {
		_, _, err := get(t, c, s, 1<<20)
		done <- err
	}()
	s.Release("b") // before anyone waits for it
	s.Release("b")
	if err := s.WaitSeen(soon(t), "", 1); err != nil {
		t.Fatal(err)
	}
	if s.InFlight() != 1 {
		t.Fatal("it did not wait")
	}
	s.Release("a")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Close ends whatever is going on, and says so in the records.
func TestClose(t *testing.T) {
	for _, script := range []string{"stall", "compute 1h", "delay 1h", "wait a", "flush; stall", "generate 10GiB"} {
		t.Run(script, func(t *testing.T) {
			s := Start(t, Config{Default: script})
			c, err := net.Dial("tcp", s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, "GET /api/v1/series HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if err := s.WaitSeen(soon(t), "", 1); err != nil {
				t.Fatal(err)
			}
			s.Close()
			s.Close()
			if r := s.Requests()[0]; r.End != Stopped {
				t.Errorf("%v, want it stopped", r)
			}
			if _, err := net.Dial("tcp", s.Addr()); err == nil {
				t.Error("it still listens")
			}
		})
	}
}

// The waiting methods say what they have waited for in vain.
func TestWaitErrors(t *testing.T) {
	s := Start(t, Config{Default: "stall"})
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /api/v1/series?limit=1 HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitSeen(soon(t), "/api/v1/*", 1); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the test lost patience"))
	for _, tc := range []struct {
		err  error
		want string
	}{
		{s.WaitIdle(over), "the test lost patience; still running: #1 GET /api/v1/series?limit=1: running, 0 bytes sent"},
		{s.WaitSeen(over, "/api/v1/series", 2), `has seen 1 requests to "/api/v1/series", not 2`},
		{s.WaitSent(over, "", 7), "at most 0 bytes"},
		{s.WaitConns(over, 0), "has 1 connections open, not 0"},
	} {
		if tc.err == nil || !strings.Contains(tc.err.Error(), tc.want) {
			t.Errorf("%v, want %q", tc.err, tc.want)
		}
	}
}

// What is no request is refused and not recorded.
func TestNotARequest(t *testing.T) {
	s := Start(t, Config{})
	for request, status := range map[string]string{
		"SSH-2.0-go\r\n\r\n": "400",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n" + strings.Repeat("a", maxBody+1): "413",
	} {
		c, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || !strings.HasPrefix(resp.Status, status) {
			t.Errorf("%v, %v, want %s", resp, err, status)
		} else {
			resp.Body.Close()
		}
		c.Close()
	}
	if s.Seen() != 0 {
		t.Errorf("%v", s.Requests())
	}
}

func TestOldAndBodiless(t *testing.T) {
	s := Start(t, Config{Default: "send abc"})
	for request, want := range map[string]string{
		"GET /api/v1/labels HTTP/1.0\r\n\r\n":                                  "abc",
		"HEAD /api/v1/labels HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n": "",
	} {
		c, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(c)
		if _, body, ok := strings.Cut(string(b), "\r\n\r\n"); err != nil || !ok || body != want {
			t.Errorf("%q: %q, %v", request, b, err)
		}
		c.Close()
	}
}
