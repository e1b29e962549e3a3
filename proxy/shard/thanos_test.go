package shard

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

const queryPath = "/api/v1/query"

// store is one line of Thanos' page of stores.
func store(name, lastError string, labelSets string) string {
	if lastError == "" {
		lastError = "null"
	} else {
		lastError = `"` + lastError + `"`
	}
	return fmt.Sprintf(`{"name":%q,"lastCheck":"2026-10-01T00:00:00Z","lastError":%s,"labelSets":[%s],"minTime":0,"maxTime":9223372036854775807}`, name, lastError, labelSets)
}

// page is a script that answers with the data of the page of stores.
func page(sidecars ...string) string {
	return `header Content-Type application/json; send '{"status":"success","data":{"sidecar":[` + strings.Join(sidecars, ",") + `]}}'`
}

const jaguarA = `{"cluster":"jaguar","prometheus_replica":"a"}`

// fakeThanos is a server that looks like a Thanos Query with one healthy store, unless routes say
// otherwise.
func fakeThanos(flags map[string]string, routes ...fakeshard.Route) fakeshard.Config {
	all := map[string]string{
		"query.lookback-delta": "0s", "query.default-evaluation-interval": "1m", "query.timeout": "2m",
		"query.replica-label": "rule_replica",
	}
	maps.Copy(all, flags)
	return fakeshard.Config{
		Version: "0.42.4", Flags: all,
		Routes: append(routes,
			fakeshard.Route{Path: storesPath, Script: page(store("s1", "", jaguarA))},
			fakeshard.Route{Path: "/api/v1/status/config", Script: "status 404; send no"},
			fakeshard.Route{Path: "/api/v1/features", Script: "status 404; send no"}),
		Series: []map[string]string{{"__name__": "up", "cluster": "jaguar", "instance": "a"}},
	}
}

// thanosGroup is a group of one shard whose replicas are of type thanos.
func thanosGroup(urls ...string) config.Group {
	g := group(urls...)
	for i := range g.Shards[0].Replicas {
		g.Shards[0].Replicas[i].Type = config.TypeThanos
	}
	return g
}

func TestThanosIsTold(t *testing.T) {
	fake := fakeshard.Start(t, fakeThanos(nil))
	top := build(t, Options{}, true, thanosGroup(fake.URL()))
	r := top.Groups[0].Shards[0].Replicas[0]
	yes := true
	long := strings.Repeat(" ", 3000)
	common := url.Values{"dedup": {"true"}, "replicaLabels[]": {"prometheus_replica", "rule_replica"}}
	query := url.Values{"max_source_resolution": {"0s"}, "engine": {"prometheus"}}
	for _, tc := range []struct {
		name    string
		req     *endpoint.Request
		partial bool
		method  string
		want    []url.Values // together, besides what the request itself says
		says    string       // partial_response
	}{
		{"query", &endpoint.Request{ID: endpoint.Query, Query: "up"}, false, "GET", []url.Values{common, query}, "false"},
		{
			"the client's own is taken out", &endpoint.Request{ID: endpoint.Query, Query: "up", PartialResponse: &yes}, false, "GET",
			[]url.Values{common, query},
			"false",
		},
		{
			"by POST too", &endpoint.Request{ID: endpoint.Query, Query: "up" + long, PartialResponse: &yes}, false, "POST",
			[]url.Values{common, query},
			"false",
		},
		{"partial", &endpoint.Request{
			ID: endpoint.QueryRange, Query: "up", Start: endpoint.At(0), End: endpoint.At(60_000),
			Step: time.Minute,
		}, true, "GET", []url.Values{common, query}, "true"},
		{"partial by POST", &endpoint.Request{ID: endpoint.Query, Query: "up" + long}, true, "POST", []url.Values{common, query}, "true"},
		{
			"series are never partial", &endpoint.Request{ID: endpoint.Series, Match: []string{"up"}}, true, "GET",
			[]url.Values{common},
			"false",
		},
		{"labels", &endpoint.Request{ID: endpoint.Labels}, true, "GET", []url.Values{common}, "false"},
		{"values", &endpoint.Request{ID: endpoint.LabelValues, Label: "job"}, true, "GET", []url.Values{common}, "false"},
		{"rules follow its flags", &endpoint.Request{ID: endpoint.Rules}, false, "GET", nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := readAll(context.Background(), r, tc.req, CallOptions{Partial: tc.partial}); err != nil {
				t.Fatal(err)
			}
			all := fake.RequestsTo(tc.req.Path())
			got := all[len(all)-1]
			if got.Method != tc.method || !slices.Equal(got.Form["partial_response"], nonEmpty(tc.says)) {
				t.Errorf("%s with partial_response %q, want %s with %q", got.Method, got.Form["partial_response"], tc.method, tc.says)
			}
			for _, want := range tc.want {
				for name, values := range want {
					if !slices.Equal(got.Form[name], values) {
						t.Errorf("%s is %q, want %q", name, got.Form[name], values)
					}
				}
			}
			if tc.want == nil && got.RawQuery != "" {
				t.Errorf("sent %s", got.RawQuery)
			}
			if tc.req.Query != "" && got.Form.Get("query") != tc.req.Query {
				t.Errorf("the query is %q", got.Form.Get("query"))
			}
		})
	}
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// TestThanosLabelNames: a Thanos Query reads a label's name in the path as it is, where Prometheus
// undoes U__. What cannot be in a path is refused, and is not taken for a label without values; so
// is what one before 0.40 does not take for a name.
func TestThanosLabelNames(t *testing.T) {
	old := fakeThanos(nil, fakeshard.Route{Path: "/api/v1/label/k8s.pod/values", Script: `error 400 bad_data 'invalid label name: "k8s.pod"'`})
	old.Prefix = "/x"
	fake := fakeshard.Start(t, old)
	s := build(t, Options{}, false, thanosGroup(fake.URL())).Groups[0].Shards[0]
	targets := func() (out []string) {
		for _, r := range fake.Requests() {
			if path, _, _ := strings.Cut(r.Target, "?"); strings.Contains(path, "/label/") {
				out = append(out, path)
			}
		}
		return out
	}
	for _, tc := range []struct{ name, sent, says string }{
		{"job", "job", ""},
		{"http.method", "http.method", ""},
		{"größe in %", "", "cannot be asked for"},
		{"größe in #", "gr%C3%B6%C3%9Fe%20in%20%23", ""},
		{"U__http_2e_method", "U__http_2e_method", ""},
		{"a/b", "", `cannot be asked for the values of the label "a/b"`},
		{`a\b`, "", "cannot be asked for"},
		{"..", "", "cannot be asked for"},
		{"k8s.pod", "k8s.pod", "does not take the name"},
	} {
		before := len(targets())
		_, err := ask(context.Background(), s, &endpoint.Request{ID: endpoint.LabelValues, Label: tc.name})
		kind := "ok"
		if tc.says != "" {
			kind = "shard_failed"
		}
		if kindOf(err) != kind || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want %s", tc.name, err, kind)
		}
		var want []string
		if tc.sent != "" {
			want = []string{"/x/api/v1/label/" + tc.sent + "/values"}
		}
		if got := targets()[before:]; !slices.Equal(got, want) {
			t.Errorf("%s: %q were sent, want %q", tc.name, got, want)
		}
	}
}

// TestThanosErrors: what its statuses mean, and which of them are tried on another replica.
func TestThanosErrors(t *testing.T) {
	up := &endpoint.Request{ID: endpoint.Query, Query: "up"}
	for _, tc := range []struct {
		name, script string
		req          *endpoint.Request
		kind, bound  string
		says         string
		second       bool // the other replica is asked
	}{
		{"a dead store", `error 422 execution 'expanding series: proxy Series(): rpc error: code = Aborted desc = connection refused'`, up, "ok", "", "", true},
		{"a hung store", `error 422 execution 'expanding series: context deadline exceeded'`, up, "ok", "", "", true},
		{"a dead store, values", `error 422 execution 'proxy LabelValues(): fetch label values from store'`, &endpoint.Request{ID: endpoint.LabelValues, Label: "job"}, "ok", "", "", true},
		{"the query's own fault", `error 422 execution 'found duplicate series for the match group'`, up, "too_expensive", "", "found duplicate series", false},
		{"a function that it lacks", `error 400 bad_data 'unknown function with name "fill"'`, up, "too_expensive", "", "unknown function", false},
		{"a selector that is none", `error 400 bad_data 'invalid parameter'`, seriesRequest, "bad_data", "", "invalid parameter", false},
		{"its timeout", `error 503 timeout 'query timed out'`, up, "timeout", "", "query timed out", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := fakeshard.Start(t, fakeThanos(nil, fakeshard.Route{Path: tc.req.Path(), Nth: 1, To: 1000, Script: tc.script}))
			b := fakeshard.Start(t, fakeThanos(nil))
			top := build(t, Options{}, false, thanosGroup(a.URL(), b.URL()))
			_, err := ask(context.Background(), top.Groups[0].Shards[0], tc.req)
			if kindOf(err) != tc.kind {
				t.Fatalf("got %v, want %s", err, tc.kind)
			}
			if err != nil && (qerr.From(err).Bound != tc.bound || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("got %+v", qerr.From(err))
			}
			if asked := len(b.RequestsTo(tc.req.Path())) > 0; asked != tc.second {
				t.Errorf("the second replica was asked: %t", asked)
			}
		})
	}
}

// TestThanosWithoutStores: an answer is one only if all stores are there afterwards; a partial one
// is allowed by request, and then flagged.
func TestThanosWithoutStores(t *testing.T) {
	up := &endpoint.Request{ID: endpoint.Query, Query: "up"}
	noStore := fakeshard.Route{Path: queryPath, Script: `header Content-Type application/json; header Cache-Control no-store; send '{"status":"success","data":{"resultType":"vector","result":[]},"warnings":["receive series from Addr"]}'`}
	for _, tc := range []struct {
		name    string
		routes  []fakeshard.Route
		req     *endpoint.Request
		partial string // what Response.Partial says; empty: whole
		kind    string // without Partial
	}{
		{"all there", nil, up, "", "ok"},
		{
			"one is down",
			[]fakeshard.Route{{Path: storesPath, Script: page(store("s1", "", jaguarA),
				store("s2", "rpc error: code = Unknown desc = Not ready", `{"cluster":"jaguar","slice":"2"}`))}},
			up, "sidecar s2 (Not ready)",
			"shard_failed",
		},
		{
			"one is down, about itself",
			[]fakeshard.Route{{Path: storesPath, Script: page(store("s2", "Not ready", jaguarA))}},
			&endpoint.Request{ID: endpoint.StatusBuildinfo}, "", "ok",
		},
		{
			"one is down, series",
			[]fakeshard.Route{{Path: storesPath, Script: page(store("s2", "Not ready", jaguarA))}},
			seriesRequest, "s2",
			"shard_failed",
		},
		{
			"its copy is there, as far as labels tell",
			[]fakeshard.Route{{
				Path:   storesPath,
				Script: page(store("s1", "", jaguarA), store("s2", "Not ready", `{"cluster":"jaguar","prometheus_replica":"b"}`)),
			}},
			up,
			"whether s1 is a copy of it is not known", "shard_failed",
		},
		{"it says so itself", []fakeshard.Route{noStore}, up, "could not read all of its stores", "shard_failed"},
		{"the page hangs", []fakeshard.Route{{Path: storesPath, Script: "stall"}}, up, "-", "timeout"},
		{"the page is broken", []fakeshard.Route{{Path: storesPath, Script: "status 500; send no"}}, up, "-", "shard_failed"},
		{"the page makes no sense", []fakeshard.Route{{Path: storesPath, Script: `header Content-Type application/json; send '{"status":"success","data":[1]}'`}}, up, "-", "shard_failed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fake := fakeshard.Start(t, fakeThanos(nil, tc.routes...))
			top := build(t, Options{}, false, thanosGroup(fake.URL()))
			s := top.Groups[0].Shards[0]
			limit := patience
			if tc.kind == "timeout" {
				limit = 2 * time.Second
			}
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			if _, err := ask(ctx, s, tc.req); kindOf(err) != tc.kind || err != nil && !strings.Contains(err.Error(), "jaguar/") {
				t.Errorf("got %v, want %s", err, tc.kind)
			} else if LacksStores(err) != (tc.partial != "" && tc.partial != "-") {
				t.Errorf("%v lacks stores: %t", err, LacksStores(err))
			}
			if tc.partial == "-" {
				return
			}
			resp, err := s.Do(ctx, tc.req, CallOptions{Partial: true})
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if !strings.Contains(resp.Partial, tc.partial) || (tc.partial == "") != (resp.Partial == "") {
				t.Errorf("partial %q, want %q", resp.Partial, tc.partial)
			}
			if _, err := io.ReadAll(resp.Body); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestThanosLate: an answer at the end of its time is none; an empty one shortly before is not
// believed.
func TestThanosLate(t *testing.T) {
	const empty = `header Content-Type application/json; send '{"status":"success","data":{"resultType":"vector","result":[],"analysis":{}}}'`
	for _, tc := range []struct {
		name    string
		after   string
		script  string
		flag    string // query.timeout
		request time.Duration
		kind    string
	}{
		{"in time", "5s", "answer", "2m", 20 * time.Second, "ok"},
		{"empty and in time", "5s", empty, "2m", 20 * time.Second, "ok"},
		{"late", "18500ms", "answer", "2m", 20 * time.Second, "ok"},
		{"empty and late", "18500ms", empty, "2m", 20 * time.Second, "timeout"},
		{"over the time that it was given", "19600ms", "answer", "2m", 20 * time.Second, "timeout"},
		{"late by its own timeout", "2s", "answer", "2s", 20 * time.Second, "timeout"},
		{"empty and late by its own timeout", "1900ms", empty, "2s", 20 * time.Second, "timeout"},
		{"empty, gzip", "1900ms", "gzip on; " + empty, "2s", 20 * time.Second, "timeout"},
		{"no deadline", "115s", empty, "2m", 0, "timeout"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, fakeThanos(map[string]string{"query.timeout": tc.flag},
					fakeshard.Route{Path: queryPath, Script: "delay " + tc.after + "; " + tc.script}))
				defer b.close()
				top := build(t, Options{Dial: b.dial}, true, thanosGroup(b.urls...))
				defer top.Close()
				ctx := t.Context()
				if tc.request > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.request)
					defer cancel()
				}
				raw, err := readAll(ctx, top.Groups[0].Shards[0].Replicas[0], &endpoint.Request{ID: endpoint.Query, Query: "up"},
					CallOptions{})
				if kindOf(err) != tc.kind {
					t.Errorf("got %v, want %s", err, tc.kind)
				}
				if err == nil && (!bytes.HasPrefix(raw, []byte(`{"status":"success","data":{`)) ||
					!bytes.HasSuffix(bytes.TrimSpace(raw), []byte("}"))) {
					t.Errorf("got %s", raw)
				}
			})
		})
	}
}

// TestThanosLabels: what its stores announce decides whether it may be asked, and whether the text
// of a query means there what it means here.
func TestThanosLabels(t *testing.T) {
	for _, tc := range []struct {
		name   string
		script string // the page
		series []map[string]string
		state  State
		agree  bool
		stores bool
		says   string
		note   string
	}{
		{"all announce it", page(store("s1", "", jaguarA), store("s2", "", `{"cluster":"jaguar","slice":"2"},{"cluster":"jaguar","slice":"3"}`)), nil, Up, true, true, "", ""},
		{"no stores", page(), nil, Up, true, true, "", ""},
		{
			"one does not", page(store("s1", "", jaguarA), store("s2", "", `{"slice":"2"}`)), nil, Up, true, false, "",
			`its store s2 does not announce cluster="jaguar"`,
		},
		{
			"one has another value", page(store("s1", "", jaguarA), store("s2", "", `{"cluster":"ibis"}`)), nil, Misconfigured, true, false,
			`store s2 has series with cluster="ibis"`, "",
		},
		{
			"series with another value", page(store("s1", "", jaguarA)),
			[]map[string]string{{"__name__": "up", "cluster": "ibis"}},
			Up, false,
			false, "", "",
		},
		{"not a Thanos Query", "status 404; send no", nil, Misconfigured, true, false, "not of a query frontend", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := fakeThanos(nil, fakeshard.Route{Path: storesPath, Script: tc.script})
			if tc.series != nil {
				cfg.Series = tc.series
			}
			var log bytes.Buffer
			g := thanosGroup(fakeshard.Start(t, cfg).URL())
			top := build(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, true, g)
			r := top.Groups[0].Shards[0].Replicas[0]
			if r.State() != tc.state || r.LabelsAgree() != tc.agree || r.StoresGroupLabels() != tc.stores || r.Clean() {
				t.Errorf("state %s, agree %t, stores %t, clean %t", r.State(), r.LabelsAgree(), r.StoresGroupLabels(), r.Clean())
			}
			if !strings.Contains(strings.Join(r.misconfigured(), "; "), tc.says) ||
				!strings.Contains(strings.ReplaceAll(log.String(), `\"`, `"`), tc.says) {
				t.Errorf("%q, log %s", r.misconfigured(), log.String())
			}
			if i := top.Status()[0]; i.Type != config.TypeThanos || i.State != tc.state || !strings.Contains(i.Note, tc.note) ||
				(tc.note == "") != (i.Note == "") {
				t.Errorf("status %+v", i)
			}
			problems, err := CheckOnline(context.Background(), &config.Config{Groups: []config.Group{g}})
			if err != nil || (len(problems) > 0) != (tc.says != "" || tc.note != "") ||
				len(problems) > 0 && !strings.Contains(problems.Error(), cmp.Or(tc.says, tc.note)) {
				t.Errorf("check config --online: %v, %v", problems, err)
			}
		})
	}
}

// TestThanosEngine: it is compared with Prometheus servers in what both say, and is never what they
// are compared with.
func TestThanosEngine(t *testing.T) {
	start := func(cfg fakeshard.Config) string { return fakeshard.Start(t, cfg).URL() }
	own := fakeThanos(map[string]string{"query.lookback-delta": "10m0s", "enable-feature": "promql-experimental-functions,promql-x"})
	parses := fakeThanos(map[string]string{"enable-feature": "promql-at-modifier,promql-duration-expr,promql-experimental-functions"})
	groups := []config.Group{
		thanosGroup(start(fakeThanos(nil))), thanosGroup(start(fakeThanos(nil))), group(start(fakeshard.Config{})),
		thanosGroup(start(own)), thanosGroup(start(parses)),
	}
	for i := range groups {
		groups[i].Name = fmt.Sprint("g", i)
	}
	top := build(t, Options{}, true, groups...)
	if top.Lookback() != 5*time.Minute || top.LowestVersion() != "3.15.0" {
		t.Errorf("lookback %s, version %s", top.Lookback(), top.LowestVersion())
	}
	for i, want := range []string{"", "", "", "query.lookback-delta is 10m, not 5m; enable-feature has [promql-x], not []", ""} {
		if got := strings.Join(top.EngineDifferences(top.Groups[i].Shards[0].Replicas[0]), "; "); got != want {
			t.Errorf("group %d differs: %q, want %q", i, got, want)
		}
	}
	alone := build(t, Options{}, true, groups[0])
	if alone.Lookback() != 5*time.Minute || alone.EvaluationInterval() != time.Minute || alone.LowestVersion() != "" {
		t.Errorf("alone: %s, %s, %q", alone.Lookback(), alone.EvaluationInterval(), alone.LowestVersion())
	}
}

// TestThanosLacks: what it does not serve is refused without asking it.
func TestThanosLacks(t *testing.T) {
	fake := fakeshard.Start(t, fakeThanos(nil))
	s := build(t, Options{}, false, thanosGroup(fake.URL())).Groups[0].Shards[0]
	for _, e := range endpoint.Table {
		if s.Serves(e.ID) {
			continue
		}
		_, err := s.Do(context.Background(), &endpoint.Request{ID: e.ID}, CallOptions{})
		want := "shard_failed"
		if e.ID == endpoint.Read || e.ID == endpoint.Federate {
			want = "too_expensive"
		}
		if kindOf(err) != want || !strings.Contains(err.Error(), "Thanos Query") {
			t.Errorf("%s: %v", e.ID, err)
		}
	}
	if n := len(fake.Requests()); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if sentence := strings.Replace(qerr.From(ErrNoRaw(s)).Message, "jaguar[0]", "jaguar-history[0]",
		1); !strings.Contains(strings.Join(strings.Fields(string(page)), " "), "*"+sentence+"*") {
		t.Errorf("docs/configuration.md does not quote %q", sentence)
	}
	if e := qerr.From(ErrNoRaw(s)); e.Kind.Status() != 422 || e.Bound != "thanos_raw" || e.Advice == "" {
		t.Errorf("%+v", e)
	}
}

// TestFullest: of Thanos Queries one is asked that has all that any lists; over the same stores, or
// known copies of them, they are as whole as each other.
func TestFullest(t *testing.T) {
	url := func(sets ...string) string {
		var lines []string
		for i, s := range sets {
			lines = append(lines, store(fmt.Sprint("s", i), "", s))
		}
		return fakeshard.Start(t, fakeThanos(nil, fakeshard.Route{Path: storesPath, Script: page(lines...)})).URL()
	}
	a, b, c := jaguarA, `{"cluster":"jaguar","prometheus_replica":"b"}`, `{"cluster":"jaguar","slice":"2"}`
	for _, tc := range []struct {
		name   string
		g      config.Group
		copies bool // a and b are
		want   []int
		says   string // of the first replica
	}{
		{"equal, in another order", thanosGroup(url(a, b), url(b, a)), false, []int{0, 1}, ""},
		{"each lacks one of the other", thanosGroup(url(a), url(b)), false, nil, "it does not list the sidecar"},
		{"each has a copy of what the other has", thanosGroup(url(a), url(b)), true, []int{0, 1}, ""},
		{"one was restarted while a store was away", thanosGroup(url(a), url(a, c)), false, []int{1}, `it does not list the sidecar of {cluster="jaguar", slice="2"}`},
		{"of three", thanosGroup(url(a, c), url(a), url(c, a)), false, []int{0, 2}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			top := build(t, Options{}, true, tc.g)
			s := top.Groups[0].Shards[0]
			for _, r := range s.Replicas {
				r.up.mu.Lock()
				r.up.stores.Compared(map[string]string{"cluster": "jaguar", "prometheus_replica": "a"},
					map[string]string{"cluster": "jaguar", "prometheus_replica": "b"}, tc.copies)
				r.up.mu.Unlock()
			}
			now := time.Now()
			wholes, err := s.Wholes(t.Context(), now.Add(-time.Hour).UnixMilli(), now.UnixMilli(), now)
			var got []int
			for _, r := range wholes {
				got = append(got, r.Index)
			}
			slices.Sort(got)
			if err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("whole are %v, %v; want %v", got, err, tc.want)
			}
			if note := s.Replicas[0].unlisted(); !strings.Contains(note, tc.says) || (note == "") != (tc.says == "") {
				t.Errorf("it says %q, want %q", note, tc.says)
			}
			problems, err := CheckOnline(context.Background(), &config.Config{Groups: []config.Group{tc.g}})
			if err != nil || (len(problems) > 0) == (len(tc.want) == len(s.Replicas)) && !tc.copies {
				t.Errorf("check config --online: %v, %v", problems, err)
			}
		})
	}
}

// TestCopies: stores that scrape the same targets are copies, those that scrape others are not,
// whatever their labels look like; what was seen holds while one is away.
func TestCopies(t *testing.T) {
	set := func(replica string) map[string]string {
		return map[string]string{"cluster": "jaguar", "prometheus_replica": replica}
	}
	var lines []string
	for _, r := range []string{"k8s-0", "k8s-1", "k8s-shard-1-0", "rules"} {
		lines = append(lines, store(r, "", fmt.Sprintf(`{"cluster":"jaguar","prometheus_replica":%q}`, r)))
	}
	cfg := fakeThanos(nil, fakeshard.Route{Path: storesPath, Script: page(lines...)})
	var down atomic.Bool
	asked := atomic.Int32{}
	cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
		if r.Form.Get("query") != "up" || r.Form.Get("dedup") != "false" {
			return fakeshard.Answer{}, false
		}
		asked.Add(1)
		var out []string
		for _, of := range []struct{ replica, targets string }{{"k8s-0", "abc"}, {"k8s-1", "bcd"}, {"k8s-shard-1-0", "xyz"}} {
			if down.Load() && of.replica == "k8s-1" {
				continue
			}
			for _, i := range of.targets {
				out = append(out, fmt.Sprintf(`{"metric":{"__name__":"up","cluster":"jaguar","instance":"%c","prometheus_replica":%q},"value":[1,"1"]}`, i, of.replica))
			}
		}
		return fakeshard.Answer{Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(out, ",") + `]}}`)}, true
	}
	fake := fakeshard.Start(t, cfg)
	top := build(t, Options{}, true, thanosGroup(fake.URL()))
	r := top.Groups[0].Shards[0].Replicas[0]
	for range 2 {
		top.Refresh(t.Context())
		r.up.mu.Lock()
		for _, tc := range []struct {
			a, b        string
			are, unseen bool
		}{
			{"k8s-0", "k8s-1", true, false},
			{"k8s-0", "k8s-shard-1-0", false, false},
			{"k8s-1", "k8s-shard-1-0", false, false},
			{"k8s-0", "rules", false, true},
		} {
			if are, seen := r.up.stores.Copied(set(tc.b), set(tc.a)); are != tc.are || seen == tc.unseen {
				t.Errorf("%s and %s are copies: %t, seen: %t", tc.a, tc.b, are, seen)
			}
		}
		r.up.mu.Unlock()
		down.Store(true)
	}
	if asked.Load() < 2 {
		t.Errorf("it was asked %d times", asked.Load())
	}
	for _, q := range fake.RequestsTo(queryPath) {
		if q.Form.Get("dedup") == "false" && (len(q.Form["replicaLabels[]"]) > 0 || q.Form.Get("partial_response") != "true") {
			t.Errorf("it was asked %v", q.Form)
		}
	}
}
