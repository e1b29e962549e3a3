package shard

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// valueOf is a value of node on the shard with the hash.
func valueOf(t testing.TB, hash, modulus uint64, nth int) string {
	t.Helper()
	for i := range 10_000 {
		v := fmt.Sprintf("node-%d", i)
		if (trust.Hashmod{Modulus: modulus}).Of(v) == hash {
			if nth == 0 {
				return v
			}
			nth--
		}
	}
	t.Fatalf("no value for %d of %d", hash, modulus)
	return ""
}

// hashed is a group of shards by hash of node, one replica each.
func hashed(urls ...string) config.Group {
	g := config.Group{Name: "jaguar", ShardBy: []string{"node"}, Hashmod: config.Hashmod{Labels: []string{"node"}, Modulus: len(urls)}}
	for i, u := range urls {
		s := group(u).Shards[0]
		s.Hash = config.Hash{N: uint64(i), Set: true}
		g.Shards = append(g.Shards, s)
	}
	return g
}

// believe makes the group believe that all its replicas keep the rule.
func believe(g *Group) {
	for _, s := range g.Shards {
		for _, r := range s.Replicas {
			r.up.health.hashmod = trust.Fact{Promise: s.promised.hashmod, State: trust.Trusted, At: time.Now()}
		}
	}
}

// prune is Prune for any time.
func prune(g *Group, ms []*labels.Matcher) func(*Shard) bool {
	holds, _ := g.Prune(ms, math.MinInt64, math.MaxInt64, time.Now())
	return holds
}

func TestPrune(t *testing.T) {
	const modulus = 4
	top := build(t, Options{}, false, hashed("http://a:1", "http://a:2", "http://a:3", "http://a:4"), group("http://b:1"))
	g := top.Groups[0]
	v := func(hash uint64) string { return valueOf(t, hash, modulus, 0) }
	eq := func(name, value string) *labels.Matcher { return labels.MustNewMatcher(labels.MatchEqual, name, value) }
	re := func(value string) *labels.Matcher { return labels.MustNewMatcher(labels.MatchRegexp, "node", value) }
	cases := []struct {
		name string
		ms   []*labels.Matcher
		want []int // nil: all are asked
	}{
		{"equality", []*labels.Matcher{eq("job", "x"), eq("node", v(2))}, []int{2}},
		{"alternation", []*labels.Matcher{re(v(1) + "|" + v(3))}, []int{1, 3}},
		{"group of alternation", []*labels.Matcher{re("(?:" + v(1) + "|" + v(0) + ")")}, []int{0, 1}},
		{"all remainders", []*labels.Matcher{re(v(0) + "|" + v(1) + "|" + v(2) + "|" + v(3))}, []int{0, 1, 2, 3}},
		{"both of two matchers", []*labels.Matcher{re(v(1) + "|" + v(3)), eq("node", v(3))}, []int{3}},
		{"matchers that exclude each other", []*labels.Matcher{eq("node", v(1)), eq("node", v(3))}, []int{}},
		{"one that prunes beside one that cannot", []*labels.Matcher{re("node-.*"), eq("node", v(0))}, []int{0}},
		{"no matcher", nil, nil},
		{"another label", []*labels.Matcher{eq("instance", v(2))}, nil},
		{"the empty string", []*labels.Matcher{eq("node", "")}, nil},
		{"an alternative that is empty", []*labels.Matcher{re(v(1) + "|")}, nil},
		{"a regular expression", []*labels.Matcher{re("node-[0-9]+")}, nil},
		{"case folded", []*labels.Matcher{re("(?i)" + v(1))}, nil},
		{"a prefix", []*labels.Matcher{re(v(1) + ".*")}, nil},
		{"unequal", []*labels.Matcher{labels.MustNewMatcher(labels.MatchNotEqual, "node", v(1))}, nil},
		{"not one of", []*labels.Matcher{labels.MustNewMatcher(labels.MatchNotRegexp, "node", v(1)+"|"+v(2))}, nil},
	}
	for _, tc := range cases {
		if prune(g, tc.ms) != nil {
			t.Errorf("%s: pruned before anything was checked", tc.name)
		}
	}
	believe(g)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			keep := prune(g, tc.ms)
			if (keep == nil) != (tc.want == nil) {
				t.Fatalf("pruned %t", keep != nil)
			}
			if keep == nil {
				return
			}
			got := []int{}
			for _, s := range g.Shards {
				if keep(s) {
					got = append(got, s.Index)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("asked %v, want %v", got, tc.want)
			}
			if !keep(top.Groups[1].Shards[0]) {
				t.Error("a shard of another group is left out")
			}
		})
	}
	if prune(top.Groups[1], []*labels.Matcher{eq("node", v(1))}) != nil || top.Groups[1].HashmodTrusted() {
		t.Error("a group without hashmod is pruned")
	}
}

// TestPruneWithoutAShard: a value whose hash no shard of the group has is asked for on all of them,
// beside others too; what is on the others is not.
func TestPruneWithoutAShard(t *testing.T) {
	cfg := hashed("http://a:1", "http://a:2")
	cfg.Hashmod.Modulus = 3
	g := build(t, Options{}, false, cfg).Groups[0]
	believe(g)
	pruned := func(values ...string) func(*Shard) bool {
		return prune(g, []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "node", strings.Join(values, "|"))})
	}
	held, away := valueOf(t, 1, 3, 0), valueOf(t, 2, 3, 0)
	if pruned(away) != nil || pruned(held, away) != nil {
		t.Error("a value that no shard is known to hold is asked for on some of them, or none")
	}
	if keep := pruned(held); keep == nil || keep(g.Shards[0]) || !keep(g.Shards[1]) {
		t.Error("a value that one shard holds is not asked for there alone")
	}
}

// TestPruneLosesNothing: whatever matcher selects a series, the shard that the series hashes to is
// asked.
func TestPruneLosesNothing(t *testing.T) {
	seed := randseed.Of(t, 0)
	rnd := rand.New(rand.NewPCG(seed, 2))
	top := build(t, Options{}, false, hashed("http://a:1", "http://a:2", "http://a:3"))
	g := top.Groups[0]
	believe(g)
	pruned := 0
	for range 3000 {
		var alternatives []string
		for range 1 + rnd.IntN(3) {
			alternatives = append(alternatives,
				[]string{"a", "b", "ab", "node-1", "node-2", "", "A", "é", "a.", "[ab]", "(?i)b", "b?", "a|b"}[rnd.IntN(13)])
		}
		m, err := labels.NewMatcher(labels.MatchType(rnd.IntN(4)), "node", strings.Join(alternatives, "|"))
		if err != nil {
			continue
		}
		keep := prune(g, []*labels.Matcher{m})
		if keep == nil {
			continue
		}
		pruned++
		for _, v := range []string{"a", "b", "ab", "node-1", "node-2", "A", "B", "é", "ax", "a|b", "", "ba"} {
			s := g.Shards[g.Hashmod.Of(v)]
			if m.Matches(v) && (v == "" || !keep(s)) {
				t.Fatalf("seed %d: %s selects node=%q of shard %d, which is not asked", seed, m, v, s.Index)
			}
		}
	}
	if pruned < 100 {
		t.Errorf("seed %d: only %d of 3000 matchers pruned anything", seed, pruned)
	}
}

// TestHashmodCheck: each outcome of asking a server for its values, in the status, the log and the
// check of a configuration.
func TestHashmodCheck(t *testing.T) {
	good, good2, bad := valueOf(t, 0, 2, 0), valueOf(t, 0, 2, 1), valueOf(t, 1, 2, 0)
	answer := func(rest string) string {
		return `header Content-Type application/json; send '{"status":"success",` + rest + `}'`
	}
	for _, tc := range []struct {
		name, script string
		state        trust.State
		says         string
		clean        bool // nothing for check config --online
	}{
		{"all belong", answer(`"data":["` + good + `","` + good2 + `"]`), trust.Trusted, "", true},
		{"none", answer(`"data":[]`), trust.Trusted, "", true},
		{"one does not", answer(`"data":["` + good + `","` + bad + `"]`), trust.Broken, bad, false},
		{"cut", answer(`"data":["` + good + `"],"warnings":["results truncated due to limit"]`), trust.Unchecked, "truncated", false},
		{"not served", "status 404; send no", trust.Unchecked, "status 404", false},
		{"another shape", answer(`"data":{"a":1}`), trust.Unchecked, "makes no sense", false},
		{"no data", `header Content-Type application/json; send '{"status":"success"}'`, trust.Unchecked, "makes no sense", false},
		{"null", answer(`"data":null`), trust.Unchecked, "makes no sense", false},
		{"too many", "generate 9MiB values", trust.Unchecked, "more than", false},
		{"fails", "status 500; send no", trust.Unchecked, "have not been read yet", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			a := fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: "/api/v1/label/node/values", Script: tc.script}}})
			b := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{"__name__": "up", "node": bad}}})
			reg := prometheus.NewRegistry()
			cfg := hashed(a.URL(), b.URL())
			cfg.ShardBy = []string{"node"}
			top := build(t, Options{Registerer: reg, Logger: slog.New(slog.NewTextHandler(&log, nil))}, true, cfg)
			g := top.Groups[0]
			awaitExamined(t, g)
			if state, why := g.Shards[0].Replicas[0].Hashmod(); state != tc.state || !strings.Contains(why, tc.says) ||
				(tc.state == trust.Trusted) != (why == "") {
				t.Errorf("state %s, %q", state, why)
			}
			if state, why := g.Shards[1].Replicas[0].Hashmod(); state != trust.Trusted {
				t.Errorf("the other shard: %s, %q", state, why)
			}
			if g.HashmodTrusted() != (tc.state == trust.Trusted) {
				t.Errorf("trusted %t", g.HashmodTrusted())
			}
			if key := g.ShardKey(); (len(key) == 0) != (tc.state == trust.Broken) { // what is not known yet stands as promised
				t.Errorf("shard key %q", key)
			}
			if keep := prune(g, []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "node",
				good)}); (keep != nil) != (tc.state == trust.Trusted) {
				t.Errorf("pruned %t", keep != nil)
			}
			i := top.Status()[0]
			if i.Hashmod != tc.state || !strings.Contains(i.HashmodError, tc.says) {
				t.Errorf("status %+v", i)
			}
			if tc.state == trust.Broken && (!strings.Contains(log.String(), bad) || !strings.Contains(log.String(), "level=ERROR")) {
				t.Errorf("the log does not name the value:\n%s", log.String())
			}
			want := 0.0
			if tc.state == trust.Trusted {
				want = 1
			}
			found := false
			for _, mf := range gather(t, reg) {
				if mf.GetName() == "spillway_shard_hashmod_trusted" {
					found = true
					if got := mf.Metric[0].GetGauge().GetValue(); len(mf.Metric) != 1 || got != want {
						t.Errorf("metric %v", mf)
					}
				}
			}
			if !found {
				t.Error("no metric")
			}
			problems, err := CheckOnline(context.Background(), &config.Config{Groups: []config.Group{cfg}})
			if err != nil {
				t.Fatal(err)
			}
			named := slices.ContainsFunc(problems, func(p config.Problem) bool {
				return p.Path == "groups[0].shards[0].hash" && strings.Contains(p.Message, tc.says)
			})
			if named == tc.clean {
				t.Errorf("check config --online: %v", problems)
			}
		})
	}
}

// awaitExamined waits until what the group's servers are has been read: the first probe does that.
func awaitExamined(t *testing.T, g *Group) {
	t.Helper()
	for _, s := range g.Shards {
		for _, r := range s.Replicas {
			if !r.asked() {
				t.Fatalf("%s was probed and not examined", r.Name())
			}
		}
	}
}

// TestHashmodOverTime: a value that appears later turns pruning off at the next refresh, its going
// away on. Who goes on answering queries and tells its values no more is not believed for ever.
func TestHashmodOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, bad := valueOf(t, 0, 2, 0), valueOf(t, 1, 2, 0)
		values := func(v string) string {
			return `header Content-Type application/json; send '{"status":"success","data":["` + v + `"]}'`
		}
		b := newBubble(t, fakeshard.Config{Routes: []fakeshard.Route{
			{Path: "/api/v1/label/node/values", Nth: 1, To: 2, Script: values(good)},
			{Path: "/api/v1/label/node/values", Nth: 3, Script: values(bad)},
			{Path: "/api/v1/label/node/values", Nth: 4, Script: values(good)},
			{Path: "/api/v1/label/node/values", Nth: 5, To: 1000, Script: "stall"},
		}})
		cfg := hashed(b.urls[0])
		cfg.Hashmod.Modulus = 2
		var log bytes.Buffer
		top := build(t, Options{Dial: b.dial, Logger: slog.New(slog.NewTextHandler(&log, nil))}, false, cfg)
		top.Start(t.Context())
		defer b.close()
		defer top.Close()
		g := top.Groups[0]
		var seen []string
		for range 50 {
			time.Sleep(5 * time.Second)
			synctest.Wait()
			state, _ := g.Shards[0].Replicas[0].Hashmod()
			if s := fmt.Sprint(state, " ", g.HashmodTrusted()); len(seen) == 0 || seen[len(seen)-1] != s {
				seen = append(seen, s)
			}
		}
		if want := []string{"trusted true", "broken false", "trusted true", "unchecked false"}; !slices.Equal(seen, want) {
			t.Errorf("got %q, want %q", seen, want)
		}
		pruned := func() bool {
			return prune(g, []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "node", good)}) != nil
		}
		if _, why := g.Shards[0].Replicas[0].Hashmod(); pruned() || !strings.Contains(why, "could not be read since") {
			t.Errorf("pruned %t, %q", pruned(), why)
		}
		if told := strings.Count(log.String(), "could not be read since"); told != 1 {
			t.Errorf("told %d times:\n%s", told, log.String())
		}
	})
}

// TestHashmodOfADeadServer: who answers nothing cannot add to an answer, and is believed to have
// what it told last, so that the other shards are asked for theirs alone. Once it is back it is not
// believed before it has told its values anew.
func TestHashmodOfADeadServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := valueOf(t, 0, 2, 0)
		values := `header Content-Type application/json; send '{"status":"success","data":["` + good + `"]}'`
		b := newBubble(t, fakeshard.Config{Routes: []fakeshard.Route{
			{Path: "/api/v1/label/node/values", Nth: 1, Script: values},
			{Path: "/api/v1/label/node/values", Nth: 2, To: 3, Script: "delay 4s; " + values},
		}})
		var dead atomic.Bool
		var conns []net.Conn // one at a time: a probe asks one thing after the other
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dead.Load() {
				return nil, syscall.ECONNREFUSED
			}
			c, err := b.dial(ctx, network, addr)
			conns = append(conns, c)
			return c, err
		}
		cfg := hashed(b.urls[0])
		cfg.Hashmod.Modulus = 2
		top := build(t, Options{Dial: dial}, false, cfg)
		top.Start(t.Context())
		defer b.close()
		defer top.Close()
		g := top.Groups[0]
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !g.HashmodTrusted() {
			t.Fatal("not trusted to begin with")
		}
		dead.Store(true)
		for _, c := range conns {
			_ = c.Close()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if r := g.Shards[0].Replicas[0]; !g.HashmodTrusted() {
			_, why := r.Hashmod()
			t.Errorf("a server that answers nothing is no longer believed: %s", why)
		}
		dead.Store(false)
		var seen []string
		for range 200 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			r := g.Shards[0].Replicas[0]
			if _, asked := r.rank(time.Now()); !asked {
				continue
			}
			if s := fmt.Sprint(r.State(), " ", g.HashmodTrusted()); len(seen) == 0 || seen[len(seen)-1] != s {
				seen = append(seen, s)
			}
		}
		if want := []string{"up false", "up true"}; !slices.Equal(seen, want) {
			t.Errorf("once it is back: %q, want %q", seen, want)
		}
	})
}

// TestHashmodAfterReload: what was found for one number says nothing for another.
func TestHashmodAfterReload(t *testing.T) {
	fake := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{"__name__": "up", "node": valueOf(t, 0, 2, 0)}}})
	cfg := hashed(fake.URL())
	cfg.Hashmod.Modulus = 2
	old := build(t, Options{}, true, cfg)
	if state, why := old.Groups[0].Shards[0].Replicas[0].Hashmod(); state != trust.Trusted {
		t.Fatalf("%s, %s", state, why)
	}
	cfg = hashed(fake.URL())
	cfg.Hashmod.Modulus = 2
	cfg.Shards[0].Hash.N = 1
	top, err := New([]config.Group{cfg}, Options{}, old)
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	if state, _ := top.Groups[0].Shards[0].Replicas[0].Hashmod(); state != trust.Unchecked {
		t.Errorf("after the reload: %s", state)
	}
}
