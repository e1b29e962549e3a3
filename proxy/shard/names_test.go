package shard

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// named is a group of one server with names.
func named(url string, patterns ...string) config.Group {
	g := group(url)
	g.Name, g.Names = "rules", patterns
	return g
}

func trustNames(g *Group) {
	for _, s := range g.Shards {
		for _, r := range s.Replicas {
			r.up.health.names = trust.Fact{Promise: s.promised.names, State: trust.Trusted, At: time.Now()}
		}
	}
}

// TestNamesPrune: the group is left out only where the matchers give its names one by one and it
// has none of them.
func TestNamesPrune(t *testing.T) {
	top := build(t, Options{}, false, named("http://a:1", "cluster:.+", "ALERTS", "a|b"), group("http://b:1"))
	g := top.Groups[0]
	m := func(kind labels.MatchType, value string) *labels.Matcher {
		return labels.MustNewMatcher(kind, model.MetricNameLabel, value)
	}
	node := labels.MustNewMatcher(labels.MatchEqual, "node", "x")
	cases := []struct {
		name string
		ms   []*labels.Matcher
		out  bool
	}{
		{"another name", []*labels.Matcher{node, m(labels.MatchEqual, "up")}, true},
		{"its name", []*labels.Matcher{m(labels.MatchEqual, "cluster:cpu:sum")}, false},
		{"an alternative of a pattern", []*labels.Matcher{m(labels.MatchEqual, "b")}, false},
		{"a part of its name", []*labels.Matcher{m(labels.MatchEqual, "cluster:")}, true},
		{"more than its name", []*labels.Matcher{m(labels.MatchEqual, "ALERTS_FOR_STATE")}, true},
		{"other names", []*labels.Matcher{m(labels.MatchRegexp, "up|down")}, true},
		{"another name and one of its own", []*labels.Matcher{m(labels.MatchRegexp, "up|ALERTS")}, false},
		{"a pattern", []*labels.Matcher{m(labels.MatchRegexp, "kube_.+")}, false},
		{"a pattern beside another name", []*labels.Matcher{m(labels.MatchRegexp, "kube_.+"), m(labels.MatchEqual, "kube_x")}, true},
		{"any but a name", []*labels.Matcher{m(labels.MatchNotEqual, "ALERTS")}, false},
		{"not one of", []*labels.Matcher{m(labels.MatchNotRegexp, "ALERTS|up")}, false},
		{"a name or none", []*labels.Matcher{m(labels.MatchRegexp, "up|")}, false},
		{"no name", []*labels.Matcher{m(labels.MatchEqual, "")}, false},
		{"another label", []*labels.Matcher{node}, false},
		{"nothing", nil, false},
	}
	for _, tc := range cases {
		if prune(g, tc.ms) != nil {
			t.Errorf("%s: left out before anything was checked", tc.name)
		}
	}
	trustNames(g)
	for _, tc := range cases {
		holds := prune(g, tc.ms)
		if out := holds != nil && !holds(g.Shards[0]); out != tc.out {
			t.Errorf("%s: left out %t", tc.name, out)
		}
		if holds != nil && !holds(top.Groups[1].Shards[0]) {
			t.Errorf("%s: a shard of another group is left out", tc.name)
		}
	}
	if prune(top.Groups[1], cases[0].ms) != nil || top.Groups[1].NamesTrusted() {
		t.Error("a group without names is left out")
	}
}

// TestNamesLoseNothing: whatever matcher selects a series of the group, the group is asked.
func TestNamesLoseNothing(t *testing.T) {
	seed := randseed.Of(t, 0)
	rnd := rand.New(rand.NewPCG(seed, 3))
	words := []string{"a", "b", "ab", "a:b", "A", "é", "a.", "[ab]+", "(?i)b", "b?", "a|b", "a:.*", "", ".+b"}
	left := 0
	for range 300 {
		var patterns []string
		for range 1 + rnd.IntN(3) {
			p := words[rnd.IntN(len(words))]
			if f, err := labels.NewFastRegexMatcher(p); err == nil && !f.MatchString("") {
				patterns = append(patterns, p)
			}
		}
		if len(patterns) == 0 {
			continue
		}
		g := build(t, Options{}, false, named("http://a:1", patterns...)).Groups[0]
		trustNames(g)
		for range 20 {
			m, err := labels.NewMatcher(labels.MatchType(rnd.IntN(4)), model.MetricNameLabel,
				words[rnd.IntN(len(words))]+[]string{"", "|ab", "|a:b"}[rnd.IntN(3)])
			if err != nil {
				continue
			}
			holds := prune(g, []*labels.Matcher{m})
			if holds == nil || holds(g.Shards[0]) {
				continue
			}
			left++
			for _, name := range []string{"a", "b", "ab", "aab", "a:b", "a:bb", "A", "B", "é", "ax", "a|b", "ba", ""} {
				if m.Matches(name) && (name == "" || g.Names.Has(name)) {
					t.Fatalf("seed %d: %s selects %q, which the group of %q may have and is not asked for", seed, m, name, patterns)
				}
			}
		}
	}
	if left < 100 {
		t.Errorf("seed %d: only %d matchers left the group out", seed, left)
	}
}

// TestNamesCheck: each outcome of asking a server for its metrics, in the status, the log, the
// metric and the check of a configuration.
func TestNamesCheck(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		state        trust.State
		says         string
	}{
		{"all match", `header Content-Type application/json; send '{"status":"success","data":["ALERTS","cluster:x"]}'`, trust.Trusted, ""},
		{"none", `header Content-Type application/json; send '{"status":"success","data":[]}'`, trust.Trusted, ""},
		{"one does not", `header Content-Type application/json; send '{"status":"success","data":["ALERTS","kube_x"]}'`, trust.Broken, "kube_x"},
		{"cut", `header Content-Type application/json; send '{"status":"success","data":["ALERTS"],"warnings":["results truncated due to limit"]}'`, trust.Unchecked, "truncated"},
		{"not served", "status 404; send no", trust.Unchecked, "status 404"},
		{"no data", `header Content-Type application/json; send '{"status":"success"}'`, trust.Unchecked, "makes no sense"},
		{"null", `header Content-Type application/json; send '{"status":"success","data":null}'`, trust.Unchecked, "makes no sense"},
		{"too many", "generate 9MiB values", trust.Unchecked, "more than"},
		{"fails", "status 500; send no", trust.Unchecked, "have not been read yet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			a := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/api/v1/label/__name__/values", Script: tc.script}}})
			reg := prometheus.NewRegistry()
			cfg := named(a.URL(), "ALERTS", "cluster:.+")
			top := build(t, Options{Registerer: reg, Logger: slog.New(slog.NewTextHandler(&log, nil))}, true, cfg)
			g := top.Groups[0]
			awaitExamined(t, g)
			if state, why := g.Shards[0].Replicas[0].Names(); state != tc.state || !strings.Contains(why, tc.says) ||
				(tc.state == trust.Trusted) != (why == "") {
				t.Errorf("state %s, %q", state, why)
			}
			if g.NamesTrusted() != (tc.state == trust.Trusted) {
				t.Errorf("trusted %t", g.NamesTrusted())
			}
			if i := top.Status()[0]; i.Names != tc.state || !strings.Contains(i.NamesError, tc.says) || i.Hashmod != "" {
				t.Errorf("status %+v", i)
			}
			if tc.state == trust.Broken && (!strings.Contains(log.String(), tc.says) || !strings.Contains(log.String(), "level=ERROR")) {
				t.Errorf("the log does not name the metric:\n%s", log.String())
			}
			want, got := 0.0, -1.0
			if tc.state == trust.Trusted {
				want = 1
			}
			for _, mf := range gather(t, reg) {
				if mf.GetName() == "spillway_shard_names_trusted" {
					got = mf.Metric[0].GetGauge().GetValue()
				}
			}
			if got != want {
				t.Errorf("metric %v, want %v", got, want)
			}
			problems, err := CheckOnline(context.Background(), &config.Config{Groups: []config.Group{cfg}})
			if err != nil {
				t.Fatal(err)
			}
			told := slices.ContainsFunc(problems, func(p config.Problem) bool {
				return p.Path == "groups[0].names" && strings.Contains(p.Message, tc.says)
			})
			if told == (tc.state == trust.Trusted) {
				t.Errorf("check config --online: %v", problems)
			}
		})
	}
}

// TestNamesOverTime: a metric that appears later ends it at the next refresh, its going away brings
// it back; who goes on answering queries and tells its names no more is not believed for ever.
func TestNamesOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		values := func(v string) string {
			return `header Content-Type application/json; send '{"status":"success","data":["` + v + `"]}'`
		}
		const path = "/api/v1/label/__name__/values"
		b := newBubble(t, fakeshard.Config{Routes: []fakeshard.Route{
			{Path: path, Nth: 1, To: 2, Script: values("ALERTS")},
			{Path: path, Nth: 3, Script: values("kube_x")},
			{Path: path, Nth: 4, Script: values("ALERTS")},
			{Path: path, Nth: 5, To: 1000, Script: "stall"},
		}})
		top := build(t, Options{Dial: b.dial}, false, named(b.urls[0], "ALERTS"))
		top.Start(t.Context())
		defer b.close()
		defer top.Close()
		var seen []string
		for range 50 {
			time.Sleep(5 * time.Second)
			synctest.Wait()
			state, _ := top.Groups[0].Shards[0].Replicas[0].Names()
			if s := fmt.Sprint(state, " ", top.Groups[0].NamesTrusted()); len(seen) == 0 || seen[len(seen)-1] != s {
				seen = append(seen, s)
			}
		}
		if want := []string{"trusted true", "broken false", "trusted true", "unchecked false"}; !slices.Equal(seen, want) {
			t.Errorf("got %q, want %q", seen, want)
		}
	})
}

// TestNamesAfterReload: what was found for some patterns says nothing for others, nor what was
// found of a stretch of time for a longer one.
func TestNamesAfterReload(t *testing.T) {
	fake := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{"__name__": "ALERTS"}}})
	old := build(t, Options{}, true, named(fake.URL(), "ALERTS"))
	if state, why := old.Groups[0].Shards[0].Replicas[0].Names(); state != trust.Trusted {
		t.Fatalf("%s: %s", state, why)
	}
	next, err := New([]config.Group{named(fake.URL(), "up")}, Options{}, old)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if state, _ := next.Groups[0].Shards[0].Replicas[0].Names(); state != trust.Unchecked || next.Groups[0].NamesTrusted() {
		t.Errorf("other patterns are %s", state)
	}
	longer := named(fake.URL(), "ALERTS")
	same, err := New([]config.Group{longer}, Options{}, old)
	if err != nil {
		t.Fatal(err)
	}
	defer same.Close()
	if state, why := same.Groups[0].Shards[0].Replicas[0].Names(); state != trust.Trusted {
		t.Errorf("the same patterns are %s: %s", state, why)
	}
	longer.From = config.Moment{Rel: -time.Hour, Set: true}
	moved, err := New([]config.Group{longer}, Options{}, same)
	if err != nil {
		t.Fatal(err)
	}
	defer moved.Close()
	if state, _ := moved.Groups[0].Shards[0].Replicas[0].Names(); state != trust.Unchecked {
		t.Errorf("the same patterns for another time are %s", state)
	}
}
