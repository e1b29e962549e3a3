package prom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// client is one of base that ends with the test. Its time is long: under the race detector, on busy
// processors, 64 MiB take more than ten seconds.
func client(t testing.TB, base, partial string) *Client {
	t.Helper()
	c, err := New(base, &http.Client{Transport: &http.Transport{}, Timeout: 2 * time.Minute}, partial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// served is a client of a server that answers by h.
func served(t testing.TB, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return client(t, srv.URL, "")
}

func TestPrometheus(t *testing.T) {
	shard, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true, RoutePrefix: "/prometheus"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shard.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := shard.Load("load 15s\n  up{job=\"a\"} 0+1x40\n  up{job=\"b\\\"\\n<b>\"} 5x40\n  h {{schema:0 sum:5 count:4 buckets:[1 2 1]}}x40"); err != nil {
		t.Fatal(err)
	}
	c := client(t, shard.URL()+"/", "warn") // Prometheus takes no notice of partial_response
	ctx, at := t.Context(), time.UnixMilli(60_500)
	for _, tc := range []struct {
		name string
		ask  func() (Answer, error)
		want string
	}{
		{
			"vector", func() (Answer, error) { return c.Instant(ctx, `sort(up)`, at) },
			"[] [] 0\n" + `map["__name__":"up" "job":"a"] 60500=4` + "\n" + `map["__name__":"up" "job":"b\"\n<b>"] 60500=5` + "\n",
		},
		{"scalar", func() (Answer, error) { return c.Instant(ctx, "time()", at) }, "[] [] 0\nmap[] 60500=60.5\n"},
		{
			"samples", func() (Answer, error) { return c.Instant(ctx, `up{job="a"}[30s]`, at) },
			"[] [] 0\n" + `map["__name__":"up" "job":"a"] 45000=3 60000=4` + "\n",
		},
		{"matrix", func() (Answer, error) {
			return c.Range(ctx, `up{job="a"}`, time.UnixMilli(1500), time.UnixMilli(62_000), 30*time.Second)
		}, "[] [] 0\n" + `map["__name__":"up" "job":"a"] 1500=0 31500=2 61500=4` + "\n"},
		{"nothing", func() (Answer, error) { return c.Instant(ctx, "none", at) }, "[] [] 0\n"},
		{"histogram", func() (Answer, error) { return c.Instant(ctx, "h", at) }, "[] [] 1\n"},
		{
			"info", func() (Answer, error) { return c.Instant(ctx, `rate(up{job="a"}[1m])`, at) },
			`[] ["PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: \"up\" (1:6)"] 0` + "\n" + `map["job":"a"] 60500=0.06666666666666665` + "\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := tc.ask()
			if got := text(a); err != nil || got != tc.want {
				t.Errorf("%v\n%s\nwant\n%s", err, got, tc.want)
			}
		})
	}
	if v, err := c.Version(ctx); err != nil || v != localprom.Version {
		t.Errorf("version %q, %v", v, err)
	}
	var refused *Refusal
	if _, err := c.Instant(ctx, "sum(", at); !errors.As(err, &refused) || refused.Status != 400 || refused.Type != "bad_data" ||
		!strings.Contains(err.Error(), "parse error") {
		t.Errorf("a query that cannot be read: %v", err)
	}
	if _, err := c.Instant(ctx, `"a text"`, at); err == nil || !strings.Contains(err.Error(), "gives a text") {
		t.Errorf("a text: %v", err)
	}
}

func TestNew(t *testing.T) {
	for base, says := range map[string]string{
		"": "has no URL", "  ": "has no URL", "spillway:9090": "must begin with", "ftp://x": "must begin with",
		"http://": "must begin with", "http://a b": "cannot be read",
		"http://x?y=1": "behind ?", "http://x#y": "behind ?",
	} {
		if _, err := New(base, http.DefaultClient, ""); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want one with %q", base, err, says)
		}
	}
	if _, err := New("http://x", http.DefaultClient, "both"); err == nil || !strings.Contains(err.Error(), "neither") {
		t.Errorf("partialResponse: %v", err)
	}
	if http.DefaultClient.CheckRedirect != nil {
		t.Error("the caller's client was changed")
	}
}

func TestRequest(t *testing.T) {
	var got *http.Request
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		got = r
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	}))
	defer srv.Close()
	ctx := WithHeaders(t.Context(), http.Header{
		"X-Dashboard-Uid": {"d1"}, "X-Panel-Id": {"7"}, "X-Grafana-User": {"ada"},
		"Content-Type": {"text/html"}, "Accept": {"text/html"},
	})
	for _, tc := range []struct {
		partial, path, form string
		ask                 func(*Client) error
	}{
		{
			"", "/p/api/v1/query", "query=up&time=1.5",
			func(c *Client) error { _, err := c.Instant(ctx, "up", time.UnixMilli(1500)); return err },
		},
		{"warn", "/p/api/v1/query", "partial_response=true&query=up&time=1712345678.123", func(c *Client) error { _, err := c.Instant(ctx, "up", time.UnixMilli(1712345678123)); return err }},
		{
			"abort", "/p/api/v1/query_range", "end=120&partial_response=false&query=" + url.QueryEscape(`a{b="ü+&"}`) + "&start=60&step=15",
			func(c *Client) error {
				_, err := c.Range(ctx, `a{b="ü+&"}`, time.Unix(60, 0), time.Unix(120, 0), 15*time.Second)
				return err
			},
		},
		{
			"warn", "/p/api/v1/query", "partial_response=false&query=up&time=1",
			func(c *Client) error { _, err := c.Instant(WithWhole(ctx), "up", time.Unix(1, 0)); return err },
		},
		{
			"", "/p/api/v1/query_range", "end=2&partial_response=false&query=up&start=1&step=1",
			func(c *Client) error {
				_, err := c.Range(WithWhole(ctx), "up", time.Unix(1, 0), time.Unix(2, 0), time.Second)
				return err
			},
		},
	} {
		if err := tc.ask(client(t, srv.URL+"/p", tc.partial)); err != nil {
			t.Fatal(err)
		}
		if got.Method != "POST" || got.URL.String() != tc.path || got.PostForm.Encode() != tc.form {
			t.Errorf("%s %s %s, want POST %s %s", got.Method, got.URL, got.PostForm.Encode(), tc.path, tc.form)
		}
		for k, v := range map[string]string{
			"X-Dashboard-Uid": "d1", "X-Panel-Id": "7", "X-Grafana-User": "ada", "Content-Type": "application/x-www-form-urlencoded",
			"Accept": "application/json",
		} {
			if got.Header.Get(k) != v {
				t.Errorf("%s: %s is %q, want %q", tc.path, k, got.Header.Get(k), v)
			}
		}
	}
	if _, err := client(t, srv.URL, "").Instant(WithHeaders(t.Context(), nil), "up", time.Unix(1, 0)); err != nil ||
		got.Header.Get("X-Panel-Id") != "" {
		t.Errorf("without headers: %v, %v", err, got.Header)
	}
}

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer http.HandlerFunc
		want   Refusal
		says   string
	}{
		{
			"a bound of the proxy", func(w http.ResponseWriter, _ *http.Request) {
				qerr.Refuse("max_series", "50000", "81234", "add a label matcher", "the query selects more series than max_series allows").WriteTo(w)
			},
			Refusal{Status: 422, Type: "execution", Message: "the query selects more series than max_series allows", Bound: "max_series", Value: "50000", Seen: "81234", Advice: "add a label matcher"},
			"the proxy answered 422 Unprocessable Entity: the query selects more series than max_series allows (bound max_series, value 50000, seen 81234). add a label matcher",
		},
		{"no room", func(w http.ResponseWriter, _ *http.Request) {
			qerr.Overload("max_concurrency", "20", 1500*time.Millisecond, "try again", "all slots are taken").WriteTo(w)
		}, Refusal{
			Status: 429, Type: "too_many_requests", Message: "all slots are taken", Bound: "max_concurrency", Value: "20",
			Advice: "try again", RetryAfter: 2 * time.Second,
		}, "429"},
		{
			"a shard", func(w http.ResponseWriter, _ *http.Request) { qerr.New(qerr.ShardFailed, "shard a failed").WriteTo(w) },
			Refusal{Status: 502, Type: "internal", Message: "shard a failed"},
			"the proxy answered 502 Bad Gateway: shard a failed",
		},
		{"an error with status 200", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"status":"error","errorType":"execution","error":"no"}`)
		}, Refusal{Status: 200, Type: "execution", Message: "no"}, ": no"},
		{"no JSON", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT")
			http.Error(w, "<h1>Bad\x00\n  Gateway\u202e</h1>", http.StatusBadGateway)
		}, Refusal{Status: 502, Message: "<h1>Bad Gateway </h1>"}, "502 Bad Gateway: <h1>"},
		{
			"no word", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
			Refusal{Status: 503, Message: "without a word"},
			"503",
		},
		{
			"no permission", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who?", http.StatusUnauthorized) },
			Refusal{Status: 401, Message: "who?", Advice: "Check the datasource's credentials and headers"},
			"who?. Check",
		},
		{
			"another API", func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) },
			Refusal{Status: 404, Message: "404 page not found", Advice: "Check the datasource's URL: the API is looked for at /api/v1 behind it"},
			"/api/v1",
		},
		{
			"a long text", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, strings.Repeat("ü", 1000), 500) },
			Refusal{Status: 500, Message: strings.Repeat("ü", 100) + "…"},
			"500",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := served(t, tc.answer).Instant(t.Context(), "up", time.Unix(1, 0))
			var r *Refusal
			if !errors.As(err, &r) || *r != tc.want {
				t.Fatalf("got %+v (%v), want %+v", r, err, tc.want)
			}
			if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%q lacks %q", err, tc.says)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	const good = `{"status":"success","data":{"resultType":"vector","result":[]}}`
	for _, tc := range []struct {
		name   string
		answer http.HandlerFunc
		status int
		says   string
	}{
		{"a page to log in", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, "\n<!DOCTYPE html><title>Sign in</title>")
		}, 502, "no Prometheus API but text/html: <!DOCTYPE html><title>Sign in</title>; a page to log in"},
		{
			"text", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "OK") }, 502,
			"but text/plain: OK; check the datasource's URL",
		},
		{"brotli", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			_, _ = io.WriteString(w, "\x0b\x02")
		}, 502, `encoded as "br"`},
		{
			"other JSON", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"message":"hello"}`) }, 502,
			"has no result",
		},
		{"no result", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"status":"success","data":{}}`)
		}, 502, "has no result"},
		{"nothing", func(http.ResponseWriter, *http.Request) {}, 502, "no object"},
		{"breaks off", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, good[:40]) }, 502, "breaks off"},
		{"too short for its length", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, good)
		}, 502, "unexpected EOF"},
		{"connection cut", func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				conn.Close()
			}
		}, 502, "cannot be asked"},
		{"another host", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://user:secret@login.example.org/in?back=1", http.StatusTemporaryRedirect)
		}, 502, "redirects to https://login.example.org/in, and other hosts are not asked"},
		{
			"another method", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, 502,
			"does not survive",
		},
		{"no end", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusPermanentRedirect)
		}, 502, "no end"},
		{"too large", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, good[:len(good)-1]+`,"x":"`)
			part := strings.Repeat("x", 1<<20)
			for range 96 {
				if _, err := io.WriteString(w, part); err != nil {
					return
				}
			}
			t.Error("all of it was read")
		}, 502, "more than 64 MiB"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := served(t, tc.answer)
			_, err := c.Instant(t.Context(), "up", time.Unix(1, 0))
			var f *Failure
			if !errors.As(err, &f) || f.Status != tc.status || !strings.Contains(err.Error(), tc.says) ||
				strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want a failure %d with %q", err, tc.status, tc.says)
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		l.Close()
		c := client(t, "http://user:secret@"+addr, "")
		for name, ask := range map[string]func() error{
			"instant": func() error { _, err := c.Instant(t.Context(), "up", time.Unix(1, 0)); return err },
			"version": func() error { _, err := c.Version(t.Context()); return err },
		} {
			err := ask()
			var f *Failure
			if !errors.As(err, &f) || f.Status != 502 || !strings.Contains(err.Error(), addr) ||
				!strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestRedirectOnTheHost(t *testing.T) {
	c := served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/query" {
			http.Redirect(w, r, "/real/query", http.StatusTemporaryRedirect)
			return
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"q":%q},"value":[1,"1"]}]}}`, r.PostFormValue("query"))
	})
	a, err := c.Instant(t.Context(), "up", time.Unix(1, 0))
	if err != nil || len(a.Series) != 1 || a.Series[0].Labels["q"] != "up" {
		t.Errorf("%v, %v", a, err)
	}
}

func TestVersion(t *testing.T) {
	for _, tc := range []struct{ answer, want, says string }{
		{`{"status":"success","data":{"version":"3.15.0","features":{"a":"b"}}}`, "3.15.0", ""},
		{`{"status":"success","data":{}}`, "", ""},
		{`<html>`, "", "no Prometheus API"},
		{`{"status":"error"}`, "", "no Prometheus API"},
	} {
		got, err := served(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != "GET" || r.URL.Path != "/api/v1/status/buildinfo" {
				t.Errorf("%s %s", r.Method, r.URL)
			}
			_, _ = io.WriteString(w, tc.answer)
		}).Version(t.Context())
		if got != tc.want || (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %q, %v", tc.answer, got, err)
		}
	}
	var r *Refusal
	if _, err := served(t, func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) }).Version(t.Context()); !errors.As(err,
		&r) || r.Status != 404 {
		t.Errorf("not there: %v", err)
	}
}

// A query that is given up, or whose time is over, ends at the server too, before or while it
// answers; nothing of it is left (see TestMain).
func TestLeaving(t *testing.T) {
	over := errors.New("the panel was closed")
	givenUp := func(err error) bool { // and no fault of the proxy
		var f *Failure
		return !errors.As(err, &f) && strings.HasPrefix(err.Error(), "the query was given up: ")
	}
	for _, tc := range []struct {
		name  string
		begun bool // an answer had begun
		leave func(ctx context.Context, within time.Duration) (context.Context, func())
		check func(error) bool
	}{
		{"before the answer", false, func(ctx context.Context, _ time.Duration) (context.Context, func()) {
			ctx, cancel := context.WithCancelCause(ctx)
			return ctx, func() { cancel(over) }
		}, func(err error) bool { return errors.Is(err, over) && givenUp(err) }},
		{"in the answer", true, func(ctx context.Context, _ time.Duration) (context.Context, func()) {
			ctx, cancel := context.WithCancel(ctx)
			return ctx, cancel
		}, func(err error) bool { return errors.Is(err, context.Canceled) && givenUp(err) }},
		{"deadline before the answer", false, func(ctx context.Context, within time.Duration) (context.Context, func()) {
			ctx, cancel := context.WithTimeout(ctx, within)
			return ctx, func() { _ = cancel }
		}, func(err error) bool { var f *Failure; return errors.As(err, &f) && f.Status == 504 }},
		{"deadline in the answer", true, func(ctx context.Context, within time.Duration) (context.Context, func()) {
			ctx, cancel := context.WithTimeout(ctx, within)
			return ctx, func() { _ = cancel }
		}, func(err error) bool { var f *Failure; return errors.As(err, &f) && f.Status == 504 }},
	} {
		once := func(t *testing.T, within time.Duration) (asked bool) {
			var running atomic.Int32
			came, gone := make(chan struct{}), make(chan struct{})
			c := served(t, func(w http.ResponseWriter, r *http.Request) {
				running.Add(1)
				_, _ = io.ReadAll(r.Body) // only then the server sees a client leave
				if tc.begun {
					_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[`)
					_ = http.NewResponseController(w).Flush()
				}
				close(came)
				<-r.Context().Done()
				running.Add(-1)
				close(gone)
			})
			ctx, leave := tc.leave(t.Context(), within)
			done := make(chan error, 1)
			go func() {
				_, err := c.Instant(ctx, "up", time.Unix(1, 0))
				done <- err
			}()
			select {
			case <-came:
			case err := <-done:
				if done <- err; !tc.check(err) {
					t.Errorf("before it was asked: %v", err)
				}
				select {
				case <-came:
				default:
					return false
				}
			}
			leave()
			if err := <-done; !tc.check(err) {
				t.Errorf("%v", err)
			}
			<-gone
			if n := running.Load(); n != 0 {
				t.Errorf("%d requests are left", n)
			}
			return true
		}
		t.Run(tc.name, func(t *testing.T) {
			within := 50 * time.Millisecond
			for !once(t, within) { // the time was over before anything was asked
				if within *= 2; within > 10*time.Second {
					t.Fatal("nothing is ever asked")
				}
			}
		})
	}
}

// The time that the settings give is a bound without a deadline of the caller.
func TestTimeout(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		<-r.Context().Done()
	}))
	defer srv.Close()
	c, err := New(srv.URL, &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Millisecond}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var f *Failure
	if _, err := c.Instant(t.Context(), "up", time.Unix(1, 0)); !errors.As(err, &f) || f.Status != 504 ||
		!strings.Contains(err.Error(), "raise the datasource's timeout") {
		t.Errorf("%v", err)
	}
}

// What to do about an answer that is no sentence of the API's, by its status.
func TestAdvice(t *testing.T) {
	for status, want := range map[int]string{
		401: "credentials and headers", 403: "credentials and headers", 407: "credentials and headers", 404: "URL", 405: "URL", 500: "",
		503: "",
	} {
		_, err := served(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", status) }).Instant(t.Context(), "up",
			time.Unix(1, 0))
		var r *Refusal
		if !errors.As(err, &r) || r.Status != status || (r.Advice == "") != (want == "") || !strings.Contains(r.Advice, want) {
			t.Errorf("%d: %v, advice %q, want one with %q", status, err, r.Advice, want)
		}
	}
}

// Of an error that has no end only the beginning is read.
func TestLongRefusal(t *testing.T) {
	ended := make(chan bool, 1)
	c := served(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		part := strings.Repeat("x", 1<<20)
		for range 96 {
			if _, err := io.WriteString(w, part); err != nil {
				ended <- false
				return
			}
		}
		ended <- true
	})
	_, err := c.Instant(t.Context(), "up", time.Unix(1, 0))
	if err == nil || len(err.Error()) > 300 {
		t.Errorf("%.400v", err)
	}
	if <-ended {
		t.Error("all of it was read")
	}
}

// A redirect away from TLS would send the credentials in the clear.
func TestRedirectFromTLS(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+r.Host+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	c, err := New(srv.URL, srv.Client(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var f *Failure
	if _, err := c.Instant(t.Context(), "up", time.Unix(1, 0)); !errors.As(err, &f) || f.Status != 502 ||
		!strings.Contains(err.Error(), "redirects to http://") ||
		!strings.Contains(err.Error(), "another scheme is not asked; write the right URL into the datasource's settings") {
		t.Errorf("%v", err)
	}
}
