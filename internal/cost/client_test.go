package cost

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// testClient is a client that leaves no connection behind.
func testClient(t testing.TB, url string) *Client {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	c, err := NewClient(url, &http.Client{Transport: tr, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	c.Log = t.Logf
	return c
}

const oneSeries = `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"b"},"values":[[1700000000.999,"2"],[1700003600.999,"3.5"]]}]}}`

// TestAsk: what is repeated, what is halved, what ends the bill. The answers of the server are
// given one after the other.
func TestAsk(t *testing.T) {
	type reply struct {
		status     int
		body       string
		retryAfter string
	}
	busy := reply{429, `{"status":"error","errorType":"too_many_requests","error":"the queue is full"}`, "0"}
	for _, c := range []struct {
		name    string
		replies []reply
		asked   int
		refused bool   // the query is to be halved
		want    string // in the error; empty: it succeeds
	}{
		{"success", []reply{{200, oneSeries, ""}}, 1, false, ""},
		{"busy, then success", []reply{busy, {503, "down", "1"}, {200, oneSeries, ""}}, 3, false, ""},
		{"a gateway, then success", []reply{{502, "<html>", "1"}, {504, "", "1"}, {200, oneSeries, ""}}, 3, false, ""},
		{
			"always busy",
			[]reply{{429, "", "1"}, {429, "", "1"}, {429, "", "1"}, {429, "", "1"}, {429, "", "1"}, {429, "full", "1"}},
			6,
			true, "6 attempts: .* 429 Too Many Requests: full",
		},
		{"too much", []reply{{422, `{"status":"error","errorType":"execution","error":"max_series"}`, ""}}, 1, true, "422 .*: max_series$"},
		{"bad query", []reply{{400, `{"status":"error","errorType":"bad_data","error":"parse\nerror \u001b[31m"}`, ""}}, 1, false, `400 Bad Request: parse error \[31m$`},
		{"no credentials", []reply{{401, "who?", ""}}, 1, false, "401 Unauthorized: who[?]"},
		{"warning", []reply{{200, `{"status":"success","warnings":["shard ibis is missing"],"data":{"resultType":"matrix","result":[]}}`, ""}}, 1, false, "whole answers only: shard ibis is missing"},
		{"a page", []reply{{200, "<html>log in</html>", ""}}, 1, false, "did not answer as a Prometheus API does"},
		{"a vector", []reply{{200, `{"status":"success","data":{"resultType":"vector","result":[]}}`, ""}}, 1, false, `a "vector" where a matrix was asked for`},
		{"an error with 200", []reply{{200, `{"status":"error","errorType":"timeout","error":"slow"}`, ""}}, 1, false, "answered 200 and timeout: slow"},
		{"a histogram for a number", []reply{{200, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,2]]}]}}`, ""}}, 1, false, "the value of a sample"},
		{"cut off, then success", []reply{{200, oneSeries[:60], ""}, {200, oneSeries, ""}}, 2, false, ""},
		{"too large", []reply{{200, `{"status":"success","data":{"result":[{"metric":{"a":"` + strings.Repeat("x", maxAnswerBytes) + `"}}]}}`, ""}}, 1, true, "larger than 64 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := 0
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				reply := c.replies[min(asked, len(c.replies)-1)]
				asked++
				if r.Method != http.MethodPost || r.URL.Path != "/prom/api/v1/query_range" || r.FormValue("query") != "x" ||
					r.FormValue("start") != "1700000000.999" ||
					r.FormValue("step") != "3600.000" || r.FormValue("partial_response") != "false" {
					t.Errorf("asked %s %s %v", r.Method, r.URL, r.Form)
				}
				if reply.retryAfter != "" {
					w.Header().Set("Retry-After", reply.retryAfter)
				}
				w.WriteHeader(reply.status)
				_, _ = w.Write([]byte(reply.body))
			}))
			defer srv.Close()
			client := testClient(t, srv.URL+"/prom/")
			client.wait = func(context.Context, time.Duration) error { return nil }
			out, err := client.rangeQuery(t.Context(), "x", 1700000000999, 1700003600999, hourMillis)
			var no *refusal
			if asked != c.asked || errors.As(err, &no) != c.refused {
				t.Errorf("asked %d times, not %d; refused is %v: %v", asked, c.asked, errors.As(err, &no), err)
			}
			if c.want == "" {
				if err != nil || len(out) != 1 || !slices.Equal(out[0].Values, []pair{{1700000000999, 2}, {1700003600999, 3.5}}) {
					t.Errorf("%v, %v", out, err)
				}
			} else if err == nil || !regexp.MustCompile(c.want).MatchString(err.Error()) {
				t.Errorf("%v, not %s", err, c.want)
			}
		})
	}
}

// TestNobodyListens: a wrong address ends at once and by name; a server that goes away later is
// waited for, and then the query is not halved.
func TestNobodyListens(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(oneSeries)) }))
	gone := httptest.NewServer(nil)
	gone.Close()
	pauses := 0
	client := func(url string) *Client {
		c := testClient(t, url)
		c.wait = func(context.Context, time.Duration) error { pauses++; return nil }
		return c
	}
	if _, err := client(gone.URL).samples(t.Context(), "x", 1000); err == nil || pauses > 0 ||
		!strings.Contains(err.Error(), "--url="+gone.URL+" cannot be reached") {
		t.Errorf("after %d pauses: %v", pauses, err)
	}
	if _, err := client("http://nothing.invalid").samples(t.Context(), "x", 1000); err == nil || pauses > 0 ||
		!strings.Contains(err.Error(), "--url=http://nothing.invalid cannot be reached") {
		t.Errorf("after %d pauses: %v", pauses, err)
	}
	c := client(srv.URL)
	if _, err := c.samples(t.Context(), "x", 1000); err != nil {
		t.Fatal(err)
	}
	srv.Close()
	var no *refusal
	if _, err := c.samples(t.Context(), "x", 1000); err == nil || errors.As(err, &no) || pauses != attempts-1 ||
		!strings.Contains(err.Error(), "6 attempts") {
		t.Errorf("after %d pauses: %v", pauses, err)
	}
}

// TestPauses: pauses grow, a server's own wish goes before them, and the end of the context ends
// them.
func TestPauses(t *testing.T) {
	var after string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer srv.Close()
	c := testClient(t, srv.URL)
	var pauses []time.Duration
	c.wait = func(_ context.Context, d time.Duration) error {
		pauses = append(pauses, d)
		return nil
	}
	_, _ = c.samples(t.Context(), "x", 1000)
	for i, d := range pauses {
		if least := min(firstPause<<i, maxPause); d < least || d > least*3/2 {
			t.Errorf("pause %d is %s, not %s to %s", i, d, least, least*3/2)
		}
	}
	pauses, after = nil, "7"
	_, _ = c.samples(t.Context(), "x", 1000)
	if len(pauses) != attempts-1 || pauses[0] != 7*time.Second {
		t.Errorf("the pauses are %v, the server wished 7 s", pauses)
	}
	pauses, after = nil, "86400"
	_, _ = c.samples(t.Context(), "x", 1000)
	if pauses[0] != maxRetryAfter {
		t.Errorf("a server that wishes a day gets %s", pauses[0])
	}
	c.wait = nil
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	c.Log = func(string, ...any) { cancel(cause) } // it is told before the pause
	if _, err := c.samples(ctx, "x", 1000); !errors.Is(err, cause) || !strings.Contains(err.Error(), "503") {
		t.Errorf("cancelled in a pause: %v", err)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for h, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, " 5 ": 5 * time.Second, "-1": 0, "soon": 0, "99999999999": 1e6 * time.Second,
		"Sun, 01 Nov 2026 00:00:30 GMT": 30 * time.Second, "Sat, 31 Oct 2026 00:00:30 GMT": 0,
	} {
		if got := retryAfter(h, now); got != want {
			t.Errorf("Retry-After: %q is %s, not %s", h, got, want)
		}
	}
}

func TestNewClient(t *testing.T) {
	for _, u := range []string{"", "127.0.0.1:9090", "ftp://a", "http://", "http://a?b=c", "http://a#b", "http://[::1"} {
		if _, err := NewClient(u, nil); err == nil {
			t.Errorf("%q is taken for a URL", u)
		}
	}
}
