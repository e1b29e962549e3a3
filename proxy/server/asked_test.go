package server

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/merge"
)

// An answer of a single shard is passed on only where it is one to what was asked: else it is that
// shard's fault, and says so.
func TestPassedAnswersFit(t *testing.T) {
	t.Parallel()
	r := newRig(t, []rigGroup{{"heron", false, []int{1}}}, limits(ample))
	r.s.lightSeries = 1 << 40 // nothing else is asked
	s := r.all()[0]
	const q = `up{cluster="heron"}`
	instant, rng := url.Values{"query": {q}, "time": {"1700000000"}},
		url.Values{"query": {q}, "start": {"1700000000"}, "end": {"1700000060"}, "step": {"30"}}
	raw := url.Values{"query": {q + "[5m]"}, "time": {"1700000000"}}
	vector := func(sample string) string {
		return `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"up"},"value":` + sample + `}]}}`
	}
	matrix := func(samples string) string {
		return `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"up"},"values":[` + samples + `]}]}}`
	}
	for _, tc := range []struct {
		name, path string
		form       url.Values
		body       string
		right      bool
	}{
		{"a vector", "query", instant, vector(`[1700000000,"1"]`), true},
		{"of 1970", "query", instant, vector(`[1,"1"]`), false},
		{"at 1e400", "query", instant, vector(`[1e400,"1"]`), false},
		{"a matrix for a vector", "query", instant, matrix(`[1700000000,"1"]`), false},
		{"a scalar for a vector", "query", instant, `{"status":"success","data":{"resultType":"scalar","result":[1700000000,"1"]}}`, false},
		{"1_0", "query", instant, vector(`[1700000000,"1_0"]`), false},
		{"0x1p-2", "query", instant, vector(`[1700000000,"0x1p-2"]`), false},
		{
			"an error beside success", "query", instant,
			strings.Replace(vector(`[1700000000,"1"]`), `{"status"`, `{"error":"e","status"`, 1),
			false,
		},
		{"a range", "query_range", rng, matrix(`[1700000000,"1"],[1700000060,"1"]`), true},
		{"beside the grid", "query_range", rng, matrix(`[1700000000,"1"],[1700000031,"1"]`), false},
		{"a vector for a range", "query_range", rng, vector(`[1700000000,"1"]`), false},
		{"samples as stored", "query", raw, matrix(`[1699999701.5,"1"],[1699999990.123,"1"]`), true},
		{"samples of another hour", "query", raw, matrix(`[1699990000,"1"]`), false},
	} {
		if err := s.Set("", fakeshard.Route{
			Path:   "/api/v1/" + tc.path,
			Script: `header Content-Type application/json; send '` + tc.body + `'`,
		}); err != nil {
			t.Fatal(err)
		}
		got := r.ask(r.request(context.Background(), asking{path: "/api/v1/" + tc.path, form: tc.form, post: true}))
		switch {
		case tc.right && got.status != http.StatusOK:
			t.Errorf("%s: %s", tc.name, got)
		case !tc.right && (got.status != http.StatusBadGateway || !strings.Contains(got.message.Error, r.names[s])):
			t.Errorf("%s: want 502 that names %s, got %s", tc.name, r.names[s], got)
		}
	}
}

// The samples of a range or a subquery come as they are stored, within it.
func TestStoredAt(t *testing.T) {
	const at = 1_700_000_000_000
	always := storedAt(nil, at)
	for text, want := range map[string]merge.Grid{
		"up[5m]":                             {Start: at - 300_000, End: at, Step: 1},
		"(up[5m] offset 1h)":                 {Start: at - 3_900_000, End: at - 3_600_000, Step: 1},
		"up[5m] offset -1h":                  {Start: at + 3_300_000, End: at + 3_600_000, Step: 1},
		"up[1s] @ 100 offset 10s":            {Start: 89_000, End: 90_000, Step: 1},
		"up[1s] @ end()":                     {Start: at - 1_000, End: at, Step: 1},
		"sum(up offset 1d)[5m:1m] offset 1h": {Start: at - 3_900_000, End: at - 3_600_000, Step: 1},
		"up[5m:] @ 1000":                     {Start: 700_000, End: 1_000_000, Step: 1},
	} {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := storedAt(expr, at); got != want || got == always {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}
