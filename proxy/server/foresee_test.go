package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/usage"
)

// TestForeseen: every request that selects series has an estimate in the usage log. The first of a
// kind is made from what the shards say of themselves, and is not too low; the next one is what the
// answer had.
func TestForeseen(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	shard := promShard(t, labels.EmptyLabels(), scraped(100, now.Add(-30*time.Minute), now, 15*time.Second, nil))
	log := filepath.Join(t.TempDir(), "usage.jsonl")
	s, base := startProxy(t, t.Context(), oneShard(shard.URL(), "")+fmt.Sprintf("usage_log: {path: %q}\n", log))
	r := &rig{t: t, s: s}
	sh := s.state.Load().top.Groups[0].Shards[0]
	from, until := stamp(now.Add(-20*time.Minute)), stamp(now)
	_, _ = ask(t, base, "/api/v1/query", url.Values{"query": {"up"}, "time": {until}})
	r.eventually("the shard is asked how large its metrics are", func() bool {
		n, ok := s.state.Load().known.Sizes.Names(sh).AtMost("requests_total")
		return ok && n == 100
	})
	span := url.Values{"start": {from}, "end": {until}}
	with := func(name string, values ...string) url.Values {
		out := url.Values{name: values}
		for k, v := range span {
			out[k] = v
		}
		return out
	}
	steps := with("query", "sum by (node) (rate(requests_total[1m]))")
	steps.Set("step", "15")
	lines := 1
	for _, tc := range []struct {
		path    string
		form    url.Values
		series  int64 // that the answer has; the estimate at first is not less
		most    int64 // nor more than this
		samples int64
	}{
		{"/api/v1/query", url.Values{"query": {"requests_total"}, "time": {until}}, 100, 100, 100},
		{"/api/v1/query", url.Values{"query": {`requests_total{node="n7"}`}, "time": {until}}, 1, 100, 1},
		{"/api/v1/query", url.Values{"query": {"sum(requests_total)"}, "time": {until}}, 1, 1, 1},
		{"/api/v1/query_range", steps, 100, 100, 100 * 81},
		{"/api/v1/series", with("match[]", "requests_total"), 100, 100, 0},
		{"/api/v1/labels", with("match[]", "requests_total"), 3, 10, 0},
		{"/api/v1/label/node/values", with("match[]", "requests_total"), 100, 100, 0},
		{"/federate?match[]=requests_total", nil, 100, 100, 100},
	} {
		for i := range 2 {
			var code int
			var body []byte
			if tc.form == nil {
				got := (&rig{t: t, s: s, client: http.DefaultClient}).ask(getOf(t, base+tc.path))
				code, body = got.status, got.body
			} else {
				code, body = ask(t, base, tc.path, tc.form)
			}
			lines++
			var text []byte
			r.eventually("the line is written", func() bool {
				text, _ = os.ReadFile(log)
				return strings.Count(string(text), "\n") == lines
			})
			all := strings.Split(strings.TrimSpace(string(text)), "\n")
			var got usage.Record
			if err := json.Unmarshal([]byte(all[len(all)-1]), &got); err != nil || code != 200 {
				t.Fatalf("%s: %d %.300s, %v", tc.path, code, body, err)
			}
			if got.Series != tc.series || got.Samples != tc.samples {
				t.Errorf("%s %v: %d series, %d samples, want %d and %d", tc.path, tc.form, got.Series, got.Samples, tc.series, tc.samples)
			}
			ok := got.EstimatedBy == "sketch" && got.EstimatedSeries >= tc.series && got.EstimatedSeries <= tc.most
			if i > 0 {
				ok = got.EstimatedBy == "text" && got.EstimatedSeries == tc.series && got.EstimatedSamples == tc.samples &&
					float64(got.EstimatedBytes) >= 0.99*float64(got.Bytes) && float64(got.EstimatedBytes) <= 1.01*float64(got.Bytes)
			}
			if !ok || got.EstimatedBytes <= 0 || got.EstimatedShardSeconds <= 0 || got.EstimatedGiBSeconds <= 0 {
				t.Errorf("%s %v, time %d: %s", tc.path, tc.form, i, all[len(all)-1])
			}
		}
	}
	// Another value of the same panel's variable has the shape's estimate.
	_, _ = ask(t, base, "/api/v1/query", url.Values{"query": {`requests_total{node="n8"}`}, "time": {until}})
	lines++
	r.eventually("the line is written", func() bool {
		text, _ := os.ReadFile(log)
		return strings.Count(string(text), "\n") == lines && strings.Contains(string(text), `"estimated_by":"shape","estimated_series":1,"estimated_samples":1,`)
	})
	for _, known := range []string{"yes", "no"} {
		if n := r.metric("spillway_estimate_ratio", "endpoint=query", "of=series", "known="+known); n == 0 {
			t.Errorf("known=%s: no ratio is counted", known)
		}
	}
}

func getOf(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// TestForeseenOfEach: what selects series is compared with its estimate, and nothing else is.
func TestForeseenOfEach(t *testing.T) {
	r := newRig(t, []rigGroup{{"heron", false, []int{1}}}, limits(ample))
	for _, a := range askings() {
		n := func() float64 { return r.metric("spillway_estimate_ratio", "endpoint="+string(a.id), "of=series") }
		before := n()
		if got := r.ask(r.request(t.Context(), a)); got.status != 200 {
			t.Fatalf("%s: %s", a.name, got)
		}
		r.idle()
		if compared := n() > before; compared != (a.id.Selects() != endpoint.SelectsNothing) {
			t.Errorf("%s: it is compared with an estimate: %v", a.name, compared)
		}
	}
}

// TestForeseenOfATenant: a tenant that sees a part is not told what is expected, since shards tell
// of all that they have; one that sees everything is.
func TestForeseenOfATenant(t *testing.T) {
	w := newTenantWorld(t)
	for who, all := range map[string]bool{"research": false, "all": true} {
		for _, header := range []string{explainRun, explainPlan} {
			req := getOf(t, w.url+"/api/v1/query?query=sum(requests_total)")
			req.Header.Set("Authorization", "Bearer token-of-"+who)
			req.Header.Set(explainHeader, header)
			got := (&rig{t: t, client: w.client}).ask(req)
			text := string(got.body)
			if got.status != 200 || !strings.Contains(text, `"verdict"`) || strings.Contains(text, `"estimate"`) != all {
				t.Errorf("as %s, %s: %s", who, header, got)
			}
		}
	}
}

// TestSizesOutliveReloads: a shard that told how large its metrics are is not asked again since the
// configuration was read anew.
func TestSizesOutliveReloads(t *testing.T) {
	told := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{
		Path:   "/api/v1/status/tsdb",
		Script: `send '{"status":"success","data":{"seriesCountByMetricName":[{"name":"up","value":2}]}}'`,
	}}})
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	s, base := startProxy(t, t.Context(), oneShard(told.URL(), ""), func(o *Options) { o.ConfigFile = file })
	known := func() bool {
		st := s.state.Load()
		n, ok := st.known.Sizes.Names(st.top.Groups[0].Shards[0]).AtMost("up")
		return ok && n == 2
	}
	_, _ = ask(t, base, "/api/v1/query", url.Values{"query": {"up"}})
	(&rig{t: t, s: s}).eventually("the shard told", known)
	for i := range 3 {
		if err := os.WriteFile(file, fmt.Appendf(nil, "%slimits: {max_range: %dh}\n", oneShard(told.URL(), ""), i+20), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Reload(); err != nil || !known() {
			t.Fatalf("after a reload (%v) nothing is known", err)
		}
		_, _ = ask(t, base, "/api/v1/query", url.Values{"query": {"up"}})
	}
	s.state.Load().known.Sizes.Close() // waits for what is asked
	n := 0
	for _, r := range told.Requests() {
		if r.Path == "/api/v1/status/tsdb" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("it was asked %d times", n)
	}
}
