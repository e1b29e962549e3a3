package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
)

// shadowCases are requests that one bound in the way of each refuses, narrows or cuts.
var shadowCases = []struct {
	bound, strict string // the bound, and the limits that have it
	loose         string // the same with room for the request
	path          string
	form          url.Values
}{
	{policy.BoundMaxRange, "max_range: 1h", "max_range: 7d", "/api/v1/query", instantly("max_over_time(up[2d])")},
	{
		policy.BoundMaxRange, "max_range: 1h, metadata_range: 1h", "max_range: 7d, metadata_range: 1h", "/api/v1/series",
		url.Values{"match[]": {"up"}, "start": {"1000000000"}, "end": {"1000086400"}},
	},
	{
		policy.BoundMetadataRange, "metadata_range: 1h", "metadata_range: 31d", "/api/v1/labels",
		url.Values{"match[]": {`{job="fake"}`}, "start": {"1000000000"}, "end": {"1000086400"}},
	},
	{policy.BoundUnselective, "unselective: refuse", "unselective: allow", "/api/v1/query", instantly(`count({le!=""})`)},
	{
		policy.BoundMaxShardBytes, "max_shard_bytes: 1KiB", "max_shard_bytes: 1GiB", "/api/v1/query",
		instantly("max_over_time(abs(up)[1h:15s])"),
	},
	{
		policy.BoundMaxSeriesTouched, "max_series_touched: 1", "max_series_touched: 1000", "/api/v1/query",
		instantly("max_over_time(abs(up)[2h:15s])"),
	},
	{policy.BoundMaxSeries, "max_series: 1", "max_series: 1000", "/api/v1/query", instantly("up")},
	{policy.BoundMaxSeries, "max_series: 1", "max_series: 1000", "/api/v1/query", instantly("quantile(0.5, up)")},
	{
		policy.BoundMaxSeries, "max_series: 1", "max_series: 1000", "/api/v1/series",
		url.Values{"match[]": {"up"}, "start": {"1000000000"}, "end": {"1000000300"}},
	},
	{policy.BoundMaxResponseBytes, "max_response_bytes: 64B", "max_response_bytes: 1MiB", "/api/v1/query", instantly("up")},
}

// instantly is the form of an instant query.
func instantly(query string) url.Values { return url.Values{"query": {query}, "time": {"1000000000"}} }

// TestShadow: what a bound refuses, narrows or cuts is answered, where it is in shadow, as it is
// with room for it; it is counted, and stands in the usage log. Other bounds hold.
func TestShadow(t *testing.T) {
	if !slices.Equal(config.Shadowable, policy.Shadowable) {
		t.Errorf("the configuration knows %v, package policy %v", config.Shadowable, policy.Shadowable)
	}
	left := slices.Clone(policy.Shadowable)
	for _, tc := range shadowCases {
		left = slices.DeleteFunc(left, func(b string) bool { return b == tc.bound })
		t.Run(tc.bound+" "+tc.path, func(t *testing.T) {
			t.Parallel()
			usage := filepath.Join(t.TempDir(), "usage.jsonl")
			ask := func(more string) (*rig, *reply) {
				r := newRig(t, []rigGroup{{"heron", false, []int{1}}, {"jaguar", false, []int{1}}}, more)
				return r, r.ask(r.request(context.Background(), asking{path: tc.path, form: tc.form}))
			}
			_, strict := ask("limits: {" + tc.strict + "}\n")
			if got := strict; got.status == http.StatusOK && got.header.Get("X-Spillway-Verdict") != "clamp" {
				t.Errorf("enforced: %s", got)
			}
			_, loose := ask("limits: {" + tc.loose + "}\n")
			if loose.status != http.StatusOK {
				t.Errorf("with room: %s", loose)
			}
			r, got := ask("limits: {" + tc.strict + ", shadow: [" + tc.bound + "]}\nusage_log: {path: " + usage + "}\n")
			if got.status != http.StatusOK || string(got.body) != string(loose.body) {
				t.Errorf("in shadow: %s, want %s", got, loose)
			}
			r.eventually("it is counted", func() bool { return r.metric("spillway_shadow_requests_total", "bound="+tc.bound) == 1 })
			var line struct {
				Shadow               []string
				Lane, Bound, Verdict string
			}
			r.eventually("the line is written", func() bool {
				data, _ := os.ReadFile(usage) // not there yet, perhaps
				return json.Unmarshal(data, &line) == nil
			})
			if !slices.Equal(line.Shadow, []string{tc.bound}) || line.Lane != "default" || line.Verdict == "refuse" {
				t.Errorf("the line is %+v", line)
			}
			if tc.path == "/api/v1/query" {
				var told struct {
					Spillway struct{ Explain plan.Explanation }
				}
				req := r.request(context.Background(), asking{path: tc.path, form: tc.form})
				req.Header.Set(explainHeader, explainRun)
				got := r.ask(req)
				if err := json.Unmarshal(got.body, &told); err != nil || !slices.Equal(told.Spillway.Explain.Shadow, []string{tc.bound}) {
					t.Errorf("explain tells of %v in shadow: %v, %s", told.Spillway.Explain.Shadow, err, got)
				}
			}
			// The other bounds hold, and one that is not in the way is not told of.
			r, got = ask("limits: {" + tc.strict + ", shadow: [" + strings.Join(slices.DeleteFunc(slices.Clone(policy.Shadowable),
				func(b string) bool { return b == tc.bound }), ", ") + "]}\n")
			if got.status != strict.status || got.header.Get("X-Spillway-Verdict") != strict.header.Get("X-Spillway-Verdict") {
				t.Errorf("with all others in shadow: %s, enforced it was %s", got, strict)
			}
			r.idle()
			if n := r.metric("spillway_shadow_requests_total"); n != 0 {
				t.Errorf("of the others %v are counted", n)
			}
		})
	}
	if len(left) > 0 {
		t.Errorf("without a case: %v", left)
	}
}

// TestShadowOfShared: whoever is given the answer to an identical request is counted like the one
// that asked for it.
func TestShadowOfShared(t *testing.T) {
	r := newRig(t, manyShards(2), "limits: {max_series: 1, shadow: [max_series]}\n")
	for _, s := range r.all() {
		if err := s.Set("", fakeshard.Route{Path: "/api/v1/query", Query: "up", Script: "wait go; answer"}); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			got := r.ask(r.request(context.Background(), asking{path: "/api/v1/query", form: instantly("up")}))
			if got.status != http.StatusOK {
				t.Error(got)
			}
		})
	}
	r.boarded(3)
	r.release()
	wg.Wait()
	r.eventually("all are counted", func() bool { return r.metric("spillway_shadow_requests_total", "bound=max_series") == 3 })
	if n := r.metric("spillway_shared_answers_total"); n != 2 {
		t.Errorf("%v were given another one's answer", n)
	}
}

// TestShadowOfPieces: a bound that is passed for a moment alone, in one of several pieces of time,
// counts.
func TestShadowOfPieces(t *testing.T) {
	b := admit.NewBudget(nil, admit.Limits{MaxSeries: 100, Told: 1})
	if err := b.AddSeries(2); err != nil {
		t.Fatal(err)
	}
	b.DropSeries(2)
	if !b.OverTold() || b.Series() != 0 {
		t.Errorf("%v, %d series", b.OverTold(), b.Series())
	}
}

// TestNoShadowOnWalls: which metrics a tenant has had lately, and may see the metadata of, does not
// depend on what is in shadow.
func TestNoShadowOnWalls(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("red-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, manyShards(1), "limits: {metadata_range: 1h, shadow: [metadata_range, max_range]}\n"+
		"tenants: [{name: red, bearer_token_file: "+filepath.Join(dir, "token")+", matchers: ['{job=\"fake\"}']}]\n")
	req := r.request(context.Background(), asking{path: "/api/v1/metadata"})
	req.Header.Set("Authorization", "Bearer red-token")
	if got := r.ask(req); got.status != http.StatusOK {
		t.Fatal(got)
	}
	asked := 0
	for _, rec := range r.all()[0].RequestsTo("/api/v1/label/__name__/values") {
		start, _ := strconv.ParseFloat(rec.Form.Get("start"), 64) // 0: the prober
		if back := time.Since(time.UnixMilli(int64(start * 1000))); start > 0 && back > 2*time.Hour {
			t.Errorf("it is looked %s back", back)
		}
		if start > 0 {
			asked++
		}
	}
	if asked == 0 {
		t.Error("the shard was not asked which metrics the tenant has")
	}
}

// TestShadowKeepsSpillway: with everything in shadow, what keeps Spillway itself alive is enforced.
func TestShadowKeepsSpillway(t *testing.T) {
	all := "limits: {shadow: [" + strings.Join(policy.Shadowable, ", ") + "]}\nmemory: {budget: 8MiB}\n"
	r := newRig(t, manyShards(2), all)
	for _, s := range r.all() {
		if err := s.Set("", fakeshard.Route{Path: "/api/v1/series", Script: "generate 100MiB"}); err != nil {
			t.Fatal(err)
		}
	}
	for bound, a := range map[string]asking{
		policy.BoundMemoryBudget: {path: "/api/v1/series", form: url.Values{"match[]": {"up"}}},
		policy.BoundQueryShape:   {path: "/api/v1/query", form: instantly(strings.Repeat("(", 300) + "up" + strings.Repeat(")", 300))},
		policy.BoundQueryLeaves:  {path: "/api/v1/query", form: instantly(terms(70))},
	} {
		got := r.ask(r.request(context.Background(), a))
		if got.status == http.StatusOK || got.message.Spillway.Bound != bound {
			t.Errorf("%s: %s", bound, got)
		}
	}
}
