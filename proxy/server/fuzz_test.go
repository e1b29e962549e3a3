package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/endpoint/endpointtest"
)

// FuzzServe sends requests of any shape through the whole proxy, over fake shards. Whatever comes:
// no panic, a verdict, a status of the closed set, JSON where it says JSON, nothing held
// afterwards, and on the shards nothing but what the table knows, under its canonical path and
// without a header of the client's.
func FuzzServe(f *testing.F) {
	all, err := endpointtest.Load("../endpoint/testdata/clients")
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range all {
		f.Add(c.Raw)
	}
	for _, e := range endpoint.Table {
		form := url.Values{}
		for _, p := range e.Params {
			form.Add(p.Name, p.Example)
		}
		path := strings.ReplaceAll(e.Path, "{name}", "cluster")
		f.Add([]byte("GET " + path + "?" + form.Encode() + " HTTP/1.1\r\nHost: x\r\nX-Scope-OrgID: a\r\n\r\n"))
		f.Add([]byte("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 4096\r\n\r\n" + form.Encode()))
	}
	now := stamp(time.Now())
	for _, q := range []string{
		`up{cluster="heron"}`, `{cluster=~".*"}`, `sum by (cluster) (rate(up[5m]))`, `up{cluster!="heron"} or up`, `info(up)`,
		`absent(up{cluster="nowhere"})`, `label_replace(up, "cluster", "", "", "")`,
		`up @ 1e9`, `up offset 100y`, `max_over_time(up[1h:1s])`, `{"a.b", cluster=""}`, `histogram_quantiles(up, "cluster", 0.5)`,
		`limit_ratio(0.5, up)`, `up[5m] anchored`,
	} {
		for _, path := range []string{
			"query?time=" + now, "query_range?step=15&start=0&end=600", "query_exemplars?start=" + now,
			"parse_query?", "format_query?",
		} {
			f.Add([]byte("GET /api/v1/" + path + "&query=" + url.QueryEscape(q) + " HTTP/1.1\r\nHost: x\r\n\r\n"))
		}
		f.Add([]byte("GET /api/v1/series?match[]=" + url.QueryEscape(q) + "&limit=0&start=-1e300 HTTP/1.1\r\nHost: x\r\n\r\n"))
		f.Add([]byte("GET /federate?match[]=" + url.QueryEscape(q) + " HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\r\n"))
	}

	r := newRig(f, []rigGroup{{"jaguar", false, []int{2, 1}}, {"heron", false, []int{1}}},
		"limits: {timeout: 5s}\nmemory: {budget: 64MiB}\n")
	handler := r.s.mainHandler()
	ran, checked := 0, map[*fakeshard.Shard]int{}
	asked := func(t testing.TB) { // looks at what the shards were asked since the last time
		for _, s := range r.all() {
			for _, got := range s.Requests() {
				if got.N <= checked[s] {
					continue
				}
				checked[s] = got.N
				if _, _, err := endpoint.Lookup(httptest.NewRequest(got.Method, got.Path, nil)); err != nil &&
					!fakeshard.DefaultProbe(got) {
					t.Errorf("a shard was asked for %s %s", got.Method, got.Path)
				}
				if got.Header.Get("X-Scope-OrgID") != "" || got.Header.Get("Cookie") != "" || got.Header.Get("Authorization") != "" {
					t.Errorf("a header of the client reached a shard: %v", got.Header)
				}
			}
		}
	}
	f.Cleanup(func() { asked(f) })
	statuses := []int{200, 400, 404, 405, 408, 413, 422, 429, 431, 502, 503}
	f.Fuzz(func(t *testing.T, raw []byte) {
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return // net/http answers these itself
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		req = req.WithContext(ctx)
		req.RemoteAddr = "192.0.2.1:1234"
		rec := httptest.NewRecorder()
		aborted := func() (aborted bool) {
			defer func() {
				if p := recover(); p != nil {
					if p != http.ErrAbortHandler {
						panic(p)
					}
					aborted = true
				}
			}()
			handler.ServeHTTP(rec, req)
			return false
		}()
		if ctx.Err() != nil {
			t.Fatalf("took longer than %s", patience)
		}
		var panics dto.Metric
		if err := r.s.metrics.panics.Write(&panics); err != nil || panics.GetCounter().GetValue() != 0 {
			t.Fatalf("a panic: %v %v", err, r.log.atLeast(slog.LevelError))
		}
		if used := r.s.poolNow().InUse(); used != 0 {
			t.Fatalf("%d bytes of memory.budget are still held", used)
		}
		if ran++; ran%256 == 0 {
			asked(t)
		}
		if aborted {
			return // a body that ended early: nobody is there
		}
		if !slices.Contains(statuses, rec.Code) {
			t.Fatalf("status %d: %.300s", rec.Code, rec.Body)
		}
		verdict := rec.Header().Values(verdictHeader)
		if len(verdict) != 1 || !slices.Contains([]string{"pass", "clamp", "refuse"}, verdict[0]) ||
			(rec.Code != 200 && rec.Code != 503) != (verdict[0] == "refuse") {
			t.Fatalf("status %d with the verdict %q: %.300s", rec.Code, verdict, rec.Body)
		}
		if rec.Code >= 500 {
			t.Fatalf("sound shards and a %d: %.300s", rec.Code, rec.Body)
		}
		if strings.HasPrefix(rec.Header().Get("Content-Type"), "application/json") {
			body, err := inflate(t, rec.Header().Get("Content-Encoding"), rec.Body.Bytes())
			if err != nil {
				t.Fatalf("%v: %.300s", err, rec.Body)
			}
			var env struct{ Status, ErrorType, Error string }
			if err := json.Unmarshal(body, &env); err != nil {
				t.Fatalf("no JSON: %v: %.300s", err, body)
			}
			if (rec.Code == 200) != (env.Status == "success") || rec.Code != 200 && (env.ErrorType == "" || env.Error == "") {
				t.Fatalf("status %d and %.300s", rec.Code, body)
			}
		}
	})
}
