package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/identity"
)

// wire is a connection to the proxy over which a test says exactly what it wants.
type wire struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func (r *rig) wire() *wire {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return &wire{r.t, conn, bufio.NewReader(conn)}
}

// say writes text; the proxy may have closed the connection already.
func (w *wire) say(text string) { _, _ = io.WriteString(w.Conn, text) }

// hear reads one answer: its status and body. 0 is a connection that was closed without one.
func (w *wire) hear(method string) (int, http.Header, string) {
	w.t.Helper()
	_ = w.SetReadDeadline(time.Now().Add(patience))
	for {
		resp, err := http.ReadResponse(w.r, &http.Request{Method: method})
		if err != nil {
			return 0, nil, err.Error()
		}
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode == http.StatusContinue {
			continue
		}
		if err != nil {
			return resp.StatusCode, resp.Header, err.Error()
		}
		return resp.StatusCode, resp.Header, string(body)
	}
}

// closed tells whether the proxy closes the connection soon.
func (w *wire) closed() bool {
	_ = w.SetReadDeadline(time.Now().Add(patience))
	_, err := w.r.ReadByte()
	return err != nil && !isTimeout(err)
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

// hostile is a rig with one shard and much patience with clients, but for what change takes away: a
// busy machine's clients are slow as well.
func hostile(t testing.TB, change ...func(*Options)) *rig {
	return newRig(t, []rigGroup{{"heron", false, []int{1}}}, limits(ample), append([]func(*Options){func(o *Options) {
		o.HeaderTimeout, o.BodyTimeout, o.IdleTimeout = 10*patience, 10*patience, 10*patience
	}}, change...)...)
}

// asked are the requests that came to shards for clients: all but the proxy's own questions.
func (r *rig) asked() []string {
	var out []string
	for _, s := range r.all() {
		for _, rec := range s.Requests() {
			own := strings.HasPrefix(rec.Path, "/-/") || strings.HasPrefix(rec.Path, "/api/v1/status/") || rec.Path == "/api/v1/features" ||
				rec.Path == "/api/v1/label/cluster/values" || rec.Path == "/metrics" || ownQuestion(rec)
			if !own {
				out = append(out, rec.Method+" "+rec.Path)
			}
		}
	}
	return out
}

// What is not exactly a path of the table with one of its methods never reaches a shard, and is
// never redirected.
func TestPathsNeverReachShards(t *testing.T) {
	t.Parallel()
	r := hostile(t)
	paths := []string{
		"//api/v1/query", "/api//v1/query", "/api/v1//query", "/api/v1/query/", "/api/v1/query//", "/./api/v1/query", "/api/./v1/query",
		"/api/v1/../v1/query",
		"/api/v1/x/../query", "/../api/v1/query", "/%2e/api/v1/query", "/api/%2e%2e/api/v1/query", "/api%2Fv1%2Fquery", "/api/v1%2Fquery",
		"/api/v1/%71uery",
		"/api/v1/query%00", "/api/v1/query;x", "/api/v1/query;/", "/api/v1;/query", "/API/v1/query", "/api/V1/query", "/api/v1/Query",
		"/api/v1/query.", "/api/v1/query%20",
		"/api/v1/query%2F", "/api%252Fv1%252Fquery", "/api/v1/query%3Fquery=up", "/api/v1\\query", "/api/v1/%5cquery",
		"/api/v1/admin/tsdb/delete_series", "/api/v1/admin/tsdb/snapshot", "/api/v1/admin/tsdb/clean_tombstones", "/-/quit", "/-/reload",
		"/-/healthy/", "/-/ready/x",
		"/debug/pprof/", "/debug/pprof/heap", "/metrics", "/api/v1/write", "/api/v1/otlp/v1/metrics", "/api/v1/scrape_pools/config",
		"/api/v1/notifications/live", "/api/v1/status/other", "/api/v2/query",
		"/api/v1/label//values", "/api/v1/label/a/b/values", "/api/v1/label/a%2Fb/values", "/api/v1/label/../query/values",
		"/api/v1/label/%2e%2e/values", "/api/v1/label/a;b/values",
		"/api/v1/label/a%00b/values", "/api/v1/label/a%0d%0ab/values", "/api/v1/label/name/values/", "/api/v1/label/name",
		"/api/v1/labels/", "/federate/", "/federate/x", "/api/v1/read/",
		"http://127.0.0.1:1/api/v1/query", "http://other.example/api/v1/query?query=up", "*", "/api/v1/query#x", "/api", "/api/v1",
		"/graph/../api/v1/admin/tsdb/snapshot", "/prometheus/api/v1/query",
	}
	for _, p := range paths {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"} {
			w := r.wire()
			w.say(method + " " + p + "?query=up HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			code, h, body := w.hear(method)
			_ = w.Close()
			if p == "*" && method == "OPTIONS" {
				continue // net/http answers it by itself, with nothing
			}
			if code != 404 && code != 400 && code != 405 {
				t.Errorf("%s %s: status %d, location %q, %.120s", method, p, code, h.Get("Location"), body)
			}
		}
	}
	if got := r.asked(); len(got) > 0 {
		t.Errorf("shards were asked: %q", got)
	}
}

// A wrong method is 405 with what is allowed, and no header changes that.
func TestMethods(t *testing.T) {
	t.Parallel()
	r := hostile(t)
	for _, a := range askings() {
		for _, method := range []string{"FOO", "TRACE", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "HEAD"} {
			w := r.wire()
			w.say(method + " " + a.path + " HTTP/1.1\r\nHost: x\r\nX-HTTP-Method-Override: GET\r\nConnection: close\r\n\r\n")
			code, h, body := w.hear(method)
			_ = w.Close()
			if method == "CONNECT" && code == 404 {
				continue // its target is not a path
			}
			if code != 405 || h.Get("Allow") == "" {
				t.Errorf("%s %s: status %d, Allow %q, %.120s", method, a.path, code, h.Get("Allow"), body)
			}
		}
	}
	if got := r.asked(); len(got) > 0 {
		t.Errorf("shards were asked: %q", got)
	}
}

// Requests that are not well-formed, or too much, have the status that says so, and reach no shard.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	r := hostile(t)
	get := func(headers string) string {
		return "GET /api/v1/query?query=up HTTP/1.1\r\n" + headers + "Connection: close\r\n\r\n"
	}
	post := func(headers, body string) string {
		return "POST /api/v1/query HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers + "\r\n" + body
	}
	const form = "Content-Type: application/x-www-form-urlencoded\r\n"
	long := strings.Repeat("a", 300<<10)
	for _, tc := range []struct {
		name, text string
		want       []int // 0: the connection is closed
	}{
		{"no Host", get(""), []int{400}},
		{"two Hosts", get("Host: a\r\nHost: b\r\n"), []int{400}},
		{"Host with a blank", get("Host: a b\r\n"), []int{400}},
		{"header name with a blank", get("Host: x\r\nX Y: z\r\n"), []int{400}},
		{"header with NUL", get("Host: x\r\nX-Y: a\x00b\r\n"), []int{400}},
		{"header with a bare CR", get("Host: x\r\nX-Y: a\rb\r\n"), []int{400}},
		{"65 fields", get("Host: x\r\n" + strings.Repeat("A: b\r\n", 70)), []int{431}},
		{"100,000 fields", get("Host: x\r\n" + strings.Repeat("A: b\r\n", 100_000)), []int{431, 0}},
		{"a header of 20 KiB", get("Host: x\r\nX-Y: " + strings.Repeat("a", 20<<10) + "\r\n"), []int{431}},
		{
			"a URL of 300 KiB", "GET /api/v1/query?query=" + strings.Repeat("a", 300<<10) +
				" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
			[]int{431},
		},
		{"no HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n", []int{400}},
		{"HTTP/2 by itself", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{400, 404, 405, 505}},
		{"HTTP/3.0", "GET /api/v1/query?query=up HTTP/3.0\r\nHost: x\r\n\r\n", []int{400, 505}},
		{"two lengths", post(form+"Content-Length: 8\r\nContent-Length: 9\r\n", "query=up"), []int{400}},
		{"a length that is no number", post(form+"Content-Length: 0x8\r\n", "query=up"), []int{400}},
		{"a negative length", post(form+"Content-Length: -8\r\n", "query=up"), []int{400}},
		{"an unknown transfer encoding", post(form+"Transfer-Encoding: gzip, chunked\r\n", "8\r\nquery=up\r\n0\r\n\r\n"), []int{400, 501}},
		{"a chunk without size", post(form+"Transfer-Encoding: chunked\r\n", "x\r\nquery=up\r\n0\r\n\r\n"), []int{400}},
		{"a chunk of a huge size", post(form+"Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\nquery=up\r\n0\r\n\r\n"), []int{400}},
		{"a declared body over the cap", post(form+fmt.Sprintf("Content-Length: %d\r\n", len(long)), long), []int{413}},
		{
			"a chunked body over the cap",
			post(form+"Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(long), long)),
			[]int{413},
		},
		{"multipart", post("Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 58\r\n", "--b\r\nContent-Disposition: form-data; name=query\r\n\r\nup\r\n--b--\r\n"), []int{400}},
		{"gzip form", post(form+"Content-Encoding: gzip\r\nContent-Length: 8\r\n", "query=up"), []int{400}},
		{"other charset", post("Content-Type: application/x-www-form-urlencoded; charset=utf-16\r\nContent-Length: 8\r\n", "query=up"), []int{400}},
		{"the same parameter twice", post(form+"Content-Length: 17\r\n", "query=up&query=uq"), []int{400}},
		{"the same parameter in URL and body", "POST /api/v1/query?query=a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + form + "Content-Length: 7\r\n\r\nquery=b", []int{400}},
		{"semicolons", "GET /api/v1/query?query=up;query=evil HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", []int{400}},
		{"a bad percent", "GET /api/v1/query?query=%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", []int{400}},
		{"10,001 parameters", post(form+"Content-Length: 30003\r\n", strings.Repeat("a=&", 10_001)), []int{400}},
		{"GET with a body", "GET /api/v1/query HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + form + "Content-Length: 8\r\n\r\nquery=up", []int{400}},
		{"1,000 match[]", "POST /api/v1/series HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + form + "Content-Length: 14000\r\n\r\n" + matches1000(), []int{400}},
		{"100 kB of minus signs", post(form+"Content-Length: 100006\r\n", "query="+strings.Repeat("-", 100_000)), []int{422}},
	} {
		w := r.wire()
		w.say(tc.text)
		code, _, body := w.hear("POST")
		_ = w.Close()
		if !slices.Contains(tc.want, code) {
			t.Errorf("%s: status %d, want one of %v: %.200s", tc.name, code, tc.want, body)
		}
	}
	if got := r.asked(); len(got) > 0 {
		t.Errorf("shards were asked: %q", got)
	}
	r.idle()
}

func matches1000() string {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "match[]=up%04d&", i)
	}
	return b.String()[:14_000]
}

// Whatever a client sends, a shard gets the headers of an allow list with values that Spillway
// made, and its own Host.
func TestHeadersAreNeverForwarded(t *testing.T) {
	t.Parallel()
	r := hostile(t)
	const evil = "evil-value"
	names := []string{
		"X-Scope-OrgID", "X_Scope_OrgID", "x-scope-orgid", "Authorization", "Cookie", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host",
		"X-Forwarded-Proto", "X-Real-Ip",
		"X-Forwarded-User", "X-Webauth-User", "X-HTTP-Method-Override", "X-Original-Url", "X-Rewrite-Url", "Range", "If-None-Match",
		"If-Modified-Since", "Te", "Trailer",
		"X-Grafana-User", "X-Dashboard-Uid", "X-Panel-Id", "X-Rule-Uid", "Accept-Language", "Accept-Charset", "Referer", "Origin",
		"User-Agent", "Accept", "Accept-Encoding",
		"Proxy-Authorization", "Proxy-Connection", "Keep-Alive", "Thanos-Tenant", "Baggage", "Tracestate", "Sec-Fetch-Site",
		identity.HeaderVia,
	}
	for _, a := range askings() {
		req := r.request(context.Background(), a)
		for _, n := range names {
			if a.body != nil && n == "Accept-Encoding" {
				continue
			}
			req.Header[n] = []string{evil}
		}
		req.Header["Connection"] = []string{"X-Scope-OrgID, Authorization, Accept-Encoding"}
		req.Host = "evil-value.example"
		got := r.ask(req)
		if strings.Contains(a.form.Get("query")+a.form.Get("match[]"), "jaguar") {
			continue // a cluster that this rig has not: answered, empty, by nobody
		}
		if a.name != "federate" && got.status != 200 {
			t.Errorf("%s: %s", a.name, got)
		}
	}
	allowed := []string{
		"Accept", "Accept-Encoding", "User-Agent", "Content-Type", "Content-Encoding", "Content-Length",
		"X-Prometheus-Remote-Read-Version", "Traceparent", identity.HeaderVia,
	}
	n := 0
	for _, s := range r.all() {
		for _, rec := range s.Requests() {
			n++
			if rec.Host != s.Addr() {
				t.Errorf("%s: Host %q", rec.String(), rec.Host)
			}
			for name, values := range rec.Header {
				if !slices.Contains(allowed, name) || strings.Contains(strings.Join(values, " "), evil) {
					t.Errorf("%s: header %s: %q", rec.String(), name, values)
				}
			}
		}
	}
	if n < 8 {
		t.Errorf("only %d requests came to the shard", n)
	}
}

// A body that does not come to its end is 408 in time, and never a question to a shard.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	r := hostile(t, func(o *Options) { o.BodyTimeout = time.Second })
	var wg sync.WaitGroup
	for name, text := range map[string]string{
		"declared": "POST /api/v1/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nquery=u",
		"chunked":  "POST /api/v1/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nquery=u\r\n",
		"none":     "POST /api/v1/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\n",
		"read":     "POST /api/v1/read HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Encoding: snappy\r\nContent-Length: 100\r\n\r\nabc",
	} {
		wg.Go(func() {
			soonest(t, 9*time.Second, func() time.Duration { // without the option it were 10 s
				w := r.wire()
				began := time.Now()
				w.say(text)
				code, _, body := w.hear("POST")
				took := time.Since(began)
				if code != 408 || !strings.Contains(body, "bad_data") {
					t.Errorf("%s: status %d: %s", name, code, body)
				}
				if !w.closed() {
					t.Errorf("%s: the connection goes on after half a request", name)
				}
				return took
			})
		})
	}
	wg.Wait()
	if got := r.asked(); len(got) > 0 {
		t.Errorf("shards were asked: %q", got)
	}
	r.idle()
}

// A head that never ends, and a connection on which nothing is asked, are closed in time.
func TestSlowHeads(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Options){
		"nothing": func(o *Options) { o.HeaderTimeout = time.Second },
		"drops":   func(o *Options) { o.HeaderTimeout = time.Second },
		"idle":    func(o *Options) { o.IdleTimeout = time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := hostile(t, change)
			w := r.wire()
			var drops sync.WaitGroup
			switch name {
			case "idle":
				w.say("GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
				if code, _, _ := w.hear("GET"); code != 200 {
					t.Fatalf("status %d", code)
				}
			case "drops":
				w.say("GET /api/v1/query?query=up HTTP/1.1\r\nHost: x\r\nX-A: ")
				drops.Go(func() { // until the proxy closes
					for err := error(nil); err == nil; time.Sleep(100 * time.Millisecond) {
						_, err = io.WriteString(w.Conn, "a")
					}
				})
			}
			code, _, text := w.hear("GET")
			if code != 0 && code != 400 && code != 408 || strings.Contains(text, "i/o timeout") {
				t.Errorf("status %d, %s", code, text)
			}
			_ = w.Close()
			drops.Wait()
		})
	}
}

// Connections over the cap have spare ones, which tell about health and nothing else; beyond these
// one waits until another closes.
func TestConnectionCap(t *testing.T) {
	t.Parallel()
	const most = 4
	r := hostile(t, func(o *Options) { o.MaxConnections, o.MaxPerAddress = most, most })
	var held []*wire
	for range most {
		w := r.wire()
		w.say("GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
		if code, _, _ := w.hear("GET"); code != 200 {
			t.Fatalf("status %d", code)
		}
		held = append(held, w)
	}
	for path, want := range map[string]int{"/-/healthy": 200, "/-/ready": 200, "/api/v1/query?query=up": 503, "/": 503} {
		w := r.wire()
		w.say("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")
		code, _, body := w.hear("GET")
		if code != want || want == 503 && !strings.Contains(body, "as many client connections as it takes (4,") {
			t.Errorf("%s over the cap: %d %s, want %d", path, code, body, want)
		}
		_ = w.Close()
	}
	r.eventually("the spare connections are closed", func() bool { return r.metric("spillway_connections", "listener=main") == most })
	var spare []*wire
	for range spareConnections {
		spare = append(spare, r.wire())
	}
	r.eventually("all spare connections are taken", func() bool { return r.metric("spillway_connections", "listener=main") > most })
	next := r.wire()
	next.say("GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
	if code, _, body := next.hear("GET"); code != 200 { // once those that ask nothing are closed
		t.Errorf("health behind spare connections that ask nothing: %d %s", code, body)
	}
	for _, w := range spare {
		_ = w.Close()
	}
	_ = next.Close()
	r.eventually("the spare connections are closed again", func() bool { return r.metric("spillway_connections", "listener=main") == most })
	_ = held[0].Close()
	r.eventually("a place is free", func() bool { return r.metric("spillway_connections", "listener=main") < most })
	w := r.wire()
	w.say("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if code, _, body := w.hear("GET"); code != 200 {
		t.Errorf("after one has closed: %d %s", code, body)
	}
	if n := r.metric("spillway_connections_waiting_total", "listener=main"); n < 1 {
		t.Error("waiting was not counted")
	}
}

// One address that has as many connections as one may have is told so, is told about health all the
// same, and takes none of the others' places.
func TestConnectionsOfOneAddress(t *testing.T) {
	t.Parallel()
	r := hostile(t, func(o *Options) { o.MaxConnections, o.MaxPerAddress = 6, 3 })
	speak := func(w *wire, path string) (int, string) {
		w.say("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")
		code, _, body := w.hear("GET")
		return code, body
	}
	var held []*wire
	for range 3 {
		held = append(held, r.wire())
		if code, body := speak(held[len(held)-1], "/-/ready"); code != 200 {
			t.Fatalf("status %d: %s", code, body)
		}
	}
	for path, want := range map[string]int{"/-/healthy": 200, "/api/v1/query?query=up": 503} {
		w := r.wire()
		if code, body := speak(w, path); code != want || want == 503 && !strings.Contains(body, "of one address 3") {
			t.Errorf("%s over the share: %d %s, want %d", path, code, body, want)
		}
		_ = w.Close()
	}
	r.eventually("the spare connections are closed", func() bool { return r.metric("spillway_connections", "listener=main") == 3 })
	var silent []*wire
	for range spareConnections + 4 { // the last ones are closed at once
		silent = append(silent, r.wire())
	}
	if n := r.metric("spillway_connections", "listener=main"); n > 3+spareConnections {
		t.Errorf("%v connections", n)
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	other, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Skipf("this machine has no second address on its loopback interface: %v", err)
	}
	defer other.Close()
	_, _ = io.WriteString(other, "GET /api/v1/status/buildinfo HTTP/1.1\r\nHost: x\r\n\r\n")
	_ = other.SetReadDeadline(time.Now().Add(patience))
	resp, err := http.ReadResponse(bufio.NewReader(other), nil)
	if err != nil {
		t.Fatalf("another address is not answered: %v", err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("another address is answered with %d", resp.StatusCode)
	}
	for _, w := range append(silent, held...) {
		_ = w.Close()
	}
	if n := r.metric("spillway_connections_over_share_total", "listener=main"); n < 2+spareConnections {
		t.Errorf("%v over the share were counted", n)
	}
	r.eventually("all of them are gone", func() bool { return r.metric("spillway_connections", "listener=main") <= 1 })
	w := r.wire()
	if code, body := speak(w, "/"); code != 200 {
		t.Errorf("after they have gone: %d %s", code, body)
	}
}

// Requests in odd forms that are right all the same.
func TestOddRequests(t *testing.T) {
	t.Parallel()
	r := hostile(t)
	const q = "query=up%7Bcluster%3D%22heron%22%7D"
	for name, text := range map[string]string{
		"Expect: 100-continue":   "POST /api/v1/query HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 35\r\n\r\n" + q,
		"Upgrade":                "GET /api/v1/query?" + q + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"Upgrade to h2c":         "GET /api/v1/query?" + q + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
		"a folded header":        "GET /api/v1/query?" + q + " HTTP/1.1\r\nHost: x\r\nX-Y: a\r\n b\r\n\r\n",
		"Range":                  "GET /api/v1/query?" + q + " HTTP/1.1\r\nHost: x\r\nRange: bytes=0-1\r\n\r\n",
		"HTTP/1.0":               "GET /api/v1/query?" + q + " HTTP/1.0\r\nHost: x\r\n\r\n",
		"chunked with extension": "POST /api/v1/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n23;a=b\r\n" + q + "\r\n0\r\nX-Trailer: y\r\n\r\n",
		"everything in the URL":  "POST /api/v1/query?" + q + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n",
		"odd encodings":          "GET /api/v1/query?" + q + " HTTP/1.1\r\nHost: x\r\nAccept-Encoding: identity;q=0, br;q=1, gzip;q=0.5, *;q=0\r\n\r\n",
		"timeout of ten years":   "GET /api/v1/query?" + q + "&timeout=10y&limit=2147483647&lookback_delta=5m&dedup=false&nonsense=1 HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		w := r.wire()
		w.say(text)
		code, h, body := w.hear("GET")
		_ = w.Close()
		if code != 200 || h.Get("Upgrade") != "" || h.Get("Content-Range") != "" {
			t.Errorf("%s: status %d, header %v: %.200s", name, code, h, body)
		}
		if h.Get("Content-Encoding") == "" && !strings.Contains(body, `"heron-0"`) {
			t.Errorf("%s: %.200s", name, body)
		}
	}
	for _, s := range r.all() {
		for _, rec := range s.RequestsTo("/api/v1/query") {
			if v := rec.Form.Get("timeout"); v != "" {
				if d, err := time.ParseDuration(v); err != nil || d >= ample {
					t.Errorf("a shard was given the timeout %q, more than there is", v)
				}
			}
		}
	}
}

// Where a length stands beside chunks the chunks count, as in net/http, and what follows them is a
// request of its own: nothing is read twice or skipped.
func TestLengthBesideChunks(t *testing.T) {
	t.Parallel()
	r := hostile(t)
	w := r.wire()
	w.say("POST /api/v1/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" +
		"8\r\nquery=up\r\n0\r\n\r\nGET /api/v1/admin/tsdb/snapshot HTTP/1.1\r\nHost: x\r\n\r\n")
	code, _, body := w.hear("POST")
	if code != 200 || !strings.Contains(body, `"heron-0"`) {
		t.Errorf("status %d: %s", code, body)
	}
	if code, _, _ := w.hear("GET"); code != 404 {
		t.Errorf("the second request was answered with %d", code)
	}
	if got := r.asked(); !slices.Equal(got, []string{"GET /api/v1/query"}) {
		t.Errorf("the shard was asked %q", got)
	}
}

// A client that reads nothing of a large answer is given up by the request's deadline, and its
// shards with it; one that reads slowly gets everything.
func TestSlowReaders(t *testing.T) {
	t.Parallel()
	r := newRig(t, []rigGroup{{"heron", false, []int{1}}}, limits(ample))
	s := r.all()[0]
	if err := s.Set("", fakeshard.Route{Path: "/api/v1/query", Script: "generate 4MiB"}); err != nil {
		t.Fatal(err)
	}
	form := url.Values{"query": {`up{cluster="heron"}`}}
	ask := func(w *wire, timeout string) {
		form.Set("timeout", timeout)
		w.say("GET /api/v1/query?" + form.Encode() + " HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	var wg sync.WaitGroup
	wg.Go(func() { // reads 4 MiB in pieces, within the deadline
		w := r.wire()
		ask(w, "1m")
		resp, err := http.ReadResponse(w.r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		n := 0
		for {
			k, err := io.CopyN(io.Discard, resp.Body, 64<<10)
			n += int(k)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Errorf("after %d bytes: %v", n, err)
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		if n < 4<<20 {
			t.Errorf("got %d bytes", n)
		}
	})
	wg.Wait()
	if err := s.Set("", fakeshard.Route{Path: "/api/v1/query", Script: "generate 10GiB"}); err != nil {
		t.Fatal(err)
	}
	w := r.wire()
	_ = w.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	ask(w, "3s")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.WaitSeen(ctx, "/api/v1/query", 2); err != nil {
		t.Fatal(err)
	}
	r.idle()
	for _, line := range r.log.atLeast(slog.LevelError) {
		t.Errorf("logged: %s", line)
	}
}
