package scenario

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const good = `{"status":"success","data":[{"__name__":"a_bucket","le":"1"}],"warnings":["cut"]}`

// TestOutcomes: every way in which a request can end has its own word in the table.
func TestOutcomes(t *testing.T) {
	for _, tc := range []struct {
		name    string
		serve   http.HandlerFunc
		outcome string
		ok      bool
	}{
		{"useful", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, good) }, "200", true},
		{
			"empty", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"status":"success","data":[]}`) },
			"200, but success without a single series", false,
		},
		{"too many", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, "429", false},
		{"hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no answer in 200ms", false},
		{"stalls", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, good[:20])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "no answer in 200ms", false},
		{"breaks", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, good[:20])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, "connection lost", false},
		{"huge", func(w http.ResponseWriter, _ *http.Request) {
			mib := strings.Repeat("x", 1<<20)
			for range maxParsed>>20 + 1 {
				fmt.Fprint(w, mib)
			}
		}, "200", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = r.ParseForm() // net/http sees that a client has left only when the body is read
				tc.serve(w, r)
			}))
			defer srv.Close()
			patience := time.Minute
			if tc.outcome == "no answer in 200ms" {
				patience = 200 * time.Millisecond
			}
			s := callers{
				asks: Killer.Asks, targets: []target{{url: srv.URL, gone: make(chan struct{})}}, callers: 2,
				duration: time.Millisecond, patience: patience, began: time.Now(),
			}
			replies := s.run(t.Context())
			if len(replies) < 2 {
				t.Fatalf("%d replies of 2 callers", len(replies))
			}
			for _, r := range replies {
				if r.Outcome != tc.outcome || r.OK != tc.ok {
					t.Errorf("outcome %q, ok %t; want %q, %t", r.Outcome, r.OK, tc.outcome, tc.ok)
				}
				if tc.name == "useful" && (r.Found.Series != 1 || len(r.Found.Warnings) != 1 || !r.Parsed) {
					t.Errorf("found %+v", r.Found)
				}
				if tc.name == "huge" && (r.Bytes != maxParsed+1<<20 || r.Parsed) {
					t.Errorf("%d bytes, parsed %t", r.Bytes, r.Parsed)
				}
			}
		})
	}
}

// TestStormAsksInTurn: both methods, with and without a limit, with the same parameters in URL and
// body.
func TestStormAsksInTurn(t *testing.T) {
	var seen [4]atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/series" || r.FormValue("match[]") != `{le!=""}` || r.Method == http.MethodPost && r.URL.RawQuery != "" {
			t.Errorf("asked %s %s", r.Method, r.URL)
		}
		i := 0
		if r.Method == http.MethodPost {
			i++
		}
		if r.FormValue("limit") == "40000" {
			i += 2
		}
		seen[i].Add(1)
		fmt.Fprint(w, good)
	}))
	defer srv.Close()
	callers{
		asks: Killer.Asks, targets: []target{{url: srv.URL, gone: make(chan struct{})}}, callers: 4, duration: time.Millisecond,
		patience: time.Minute, began: time.Now(),
	}.run(t.Context())
	for i := range seen {
		if seen[i].Load() == 0 {
			t.Errorf("nobody asked %s", Killer.Asks[i].Name)
		}
	}
}

// TestStormEnds: without a target left, and with its context, a storm is over long before its time.
func TestStormEnds(t *testing.T) {
	gone := make(chan struct{})
	close(gone)
	s := callers{
		asks: Killer.Asks, targets: []target{{url: "http://127.0.0.1:1", gone: gone}}, callers: 2, duration: time.Hour,
		patience: time.Hour, began: time.Now(),
	}
	if replies := s.run(t.Context()); len(replies) != 0 {
		t.Errorf("%d requests to a server that is gone", len(replies))
	}
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		<-r.Context().Done()
	}))
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	s.targets = []target{{url: srv.URL, gone: make(chan struct{})}}
	done := make(chan []Reply)
	go func() { done <- s.run(ctx) }()
	cancel()
	for _, r := range <-done {
		if r.Outcome != "the test ended" {
			t.Errorf("outcome %q", r.Outcome)
		}
	}
}

func TestCheckBuckets(t *testing.T) {
	for _, tc := range []struct{ body, err string }{
		{good, ""},
		{`{"status":"success","data":[{"__name__":"a"}]}`, "no label le"},
		{`{"status":"success","data":[]}`, "without a single series"},
		{`{"status":"success"}`, "without a single series"},
		{`{"status":"error","error":"too much"}`, "too much"},
		{`<html>`, "not a Prometheus answer"},
		{``, "not a Prometheus answer"},
	} {
		_, err := checkBuckets([]byte(tc.body))
		if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: %v", tc.body, err)
		}
	}
}

// FuzzCheckBuckets: no answer is both of use and empty, and none makes it panic.
func FuzzCheckBuckets(f *testing.F) {
	for _, s := range []string{
		good, `{"status":"success","data":[{"le":null}]}`, `{"status":"success","data":{}}`, `[]`,
		`{"data":[{"le":{}}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		found, err := checkBuckets(body)
		if err == nil && found.Series < 1 {
			t.Errorf("%q: of use without a series", body)
		}
	})
}
