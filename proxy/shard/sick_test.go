package shard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// patient is a server whose targets, flags and clock a test changes.
type patient struct {
	mu     sync.Mutex
	series []map[string]string
	flags  map[string]string
	skew   time.Duration
	asked  int // for its targets
}

func (p *patient) set(f func(p *patient)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p)
}

func (p *patient) config() fakeshard.Config {
	return fakeshard.Config{Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		var data any
		switch {
		case strings.HasSuffix(r.Path, "/api/v1/query") && r.Form.Get("query") == "up":
			p.asked++
			type element struct {
				Metric map[string]string `json:"metric"`
				Value  []any             `json:"value"`
			}
			result := []element{}
			for _, s := range p.series {
				result = append(result, element{s, []any{1, "1"}})
			}
			data = map[string]any{"resultType": "vector", "result": result}
		case strings.HasSuffix(r.Path, "/api/v1/status/flags"):
			flags := map[string]string{"query.lookback-delta": "5m", "enable-feature": ""}
			maps.Copy(flags, p.flags)
			data = flags
		case strings.HasSuffix(r.Path, "/api/v1/status/buildinfo"):
			data = map[string]string{"version": "3.15.0"}
		default:
			return fakeshard.Answer{}, false
		}
		body, err := json.Marshal(map[string]any{"status": "success", "data": data})
		if err != nil {
			panic(err)
		}
		return fakeshard.Answer{Status: http.StatusOK, Header: http.Header{
			"Content-Type": {"application/json"}, "Date": {time.Now().Add(p.skew).UTC().Format(http.TimeFormat)},
		}, Body: body}, true
	}}
}

// TestSick: what makes a group's servers untrustworthy is seen by the background work, shown in the
// view, the metric and the log, and gone when it is mended.
func TestSick(t *testing.T) {
	lookback := func(p *patient) { p.flags = map[string]string{"query.lookback-delta": "1m"} }
	features := func(p *patient) { p.flags = map[string]string{"enable-feature": "promql-delayed-name-removal"} }
	// The topology: jaguar has two shards of two replicas, ibis and history one of one; ibis'
	// labels are jaguar's but for the cluster, history's are none.
	const a0, a1, b0, b1, ibis, history = 0, 1, 2, 3, 4, 5
	for _, tc := range []struct {
		name    string
		change  func(ps []*patient)
		kind    string
		groups  string // that are sick
		replica string // the host's last number
		says    string
		differs []int // replicas that Differs names
		// relabelled is what is said of the first shard, whose group goes on.
		relabelled string
	}{
		{name: "nothing", change: func([]*patient) {}},
		{
			name: "lookback of one replica", change: func(ps []*patient) { ps[b1].set(lookback) },
			kind: SickEngine, groups: "jaguar", replica: "4", says: "query.lookback-delta is 1m, not 5m", differs: []int{b1},
		},
		{name: "the same lookback in other words", change: func(ps []*patient) {
			ps[b1].set(func(p *patient) { p.flags = map[string]string{"query.lookback-delta": "300s"} })
		}},
		{name: "features of one replica", change: func(ps []*patient) { ps[b1].set(features) }, differs: []int{b1}},
		{
			name: "features of a whole shard", change: func(ps []*patient) { ps[ibis].set(features) },
			kind: SickEngine, groups: "ibis", replica: "5", says: "enable-feature has [promql-delayed-name-removal], not []", differs: []int{ibis},
		},
		{
			name: "a clock behind", change: func(ps []*patient) { ps[a1].set(func(p *patient) { p.skew = -2 * time.Minute }) },
			kind: SickClock, groups: "jaguar", replica: "2", says: "behind ours",
		},
		{
			name: "a clock ahead", change: func(ps []*patient) { ps[a1].set(func(p *patient) { p.skew = 2 * time.Minute }) },
			kind: SickClock, groups: "jaguar", replica: "2", says: "ahead of ours",
		},
		{name: "a clock a little off", change: func(ps []*patient) { ps[a1].set(func(p *patient) { p.skew = 20 * time.Second }) }},
		{
			name: "a replica listed as a shard", change: func(ps []*patient) {
				for _, i := range []int{b0, b1} {
					ps[i].set(func(p *patient) { p.series = ups(0, 10, "c") })
				}
			},
			kind: SickCopy, groups: "jaguar", replica: "3", says: "holds the same targets as 10.0.0.1:9090 of shard 0; these two look like replicas of one shard",
		},
		{
			name: "nearly so", change: func(ps []*patient) {
				for _, i := range []int{b0, b1} {
					ps[i].set(func(p *patient) { p.series = ups(1, 10, "c") })
				}
			},
			kind: SickCopy, groups: "jaguar", replica: "3", says: "holds the same targets",
		},
		{
			name: "a target scraped by two shards", change: func(ps []*patient) {
				for _, i := range []int{b0, b1} {
					ps[i].set(func(p *patient) { p.series = ups(9, 20, "c") })
				}
			},
			kind: SickOverlap, groups: "jaguar", replica: "3",
			says: `1 of its targets are on 10.0.0.1:9090 of shard 0 too, such as {__name__="up", instance="node-9", job="node"}`,
		},
		{
			name: "a shard listed as a replica", change: func(ps []*patient) {
				ps[a1].set(func(p *patient) { p.series = ups(100, 110, "b") })
			},
			kind: SickSplit, groups: "jaguar", replica: "2", says: "listed as a replica of 10.0.0.1:9090, but they hold different targets (10 and 10, 0 in common)",
		},
		{name: "a relabel rule that has reached one replica", change: func(ps []*patient) {
			ps[a1].set(func(p *patient) {
				for _, s := range p.series {
					s["pool"] = "x"
				}
			})
		}, relabelled: "replicas of shard jaguar[0], scrape the same targets and give 10 of them other labels"},
		{name: "one that has reached half of its targets", change: func(ps []*patient) {
			ps[a1].set(func(p *patient) {
				for _, s := range p.series[:5] {
					s["pool"] = "x"
				}
			})
		}, relabelled: "give 5 of them other labels"},
		{
			name: "shards listed as replicas, whose instance names the prober", change: func(ps []*patient) {
				for i, first := range map[int]int{a0: 0, a1: 100} {
					ps[i].set(func(p *patient) {
						p.series = ups(first, first+20, "a")
						for _, s := range p.series {
							s["target"], s["instance"] = s["instance"], "blackbox:9115"
						}
					})
				}
			},
			kind: SickSplit, groups: "jaguar", replica: "2", says: "different targets (20 and 20, 0 in common)",
		},
		{name: "a few addresses that went to other pods", change: func(ps []*patient) {
			ps[a1].set(func(p *patient) {
				for _, s := range p.series[:4] {
					s["pod"] = "new"
				}
			})
		}},
		{name: "a replica that has just begun to scrape", change: func(ps []*patient) {
			ps[a1].set(func(p *patient) { p.series = ups(0, 2, "b") })
		}},
		{
			name: "one that has just begun to scrape others", change: func(ps []*patient) {
				ps[a1].set(func(p *patient) { p.series = append(ups(9, 10, "b"), ups(200, 202, "b")...) })
			},
			kind: SickSplit, groups: "jaguar", replica: "2", says: "different targets (3 and 10, 1 in common)",
		},
		{
			name: "another group's target, with its label", change: func(ps []*patient) {
				ps[history].set(func(p *patient) {
					p.series = append(p.series, map[string]string{
						"__name__": "up", "job": "node", "instance": "node-3",
						"cluster": "jaguar",
					})
				})
			},
			kind: SickOverlap, groups: "jaguar history", replica: "6", says: "1 of its targets are on 10.0.0.1:9090 of group jaguar's shard 0 too, such as",
		},
		{name: "another group's target, without", change: func(ps []*patient) {
			ps[history].set(func(p *patient) { p.series = append(p.series, ups(3, 4, "a")...) })
		}},
		{name: "a target of a group of another label", change: func(ps []*patient) {
			ps[ibis].set(func(p *patient) { p.series = ups(0, 10, "a") })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ps := make([]*patient, 6)
				cfgs := make([]fakeshard.Config, len(ps))
				for i := range ps {
					ps[i] = &patient{}
					cfgs[i] = ps[i].config()
				}
				healthy := func() {
					for i, series := range [][]map[string]string{
						ups(0, 10, "a"), ups(0, 10, "b"), ups(10, 20, "a"), ups(10, 20, "b"),
						ups(20, 30, "a"), ups(40, 50, "a"),
					} {
						ps[i].set(func(p *patient) { p.series, p.flags, p.skew = series, nil, 0 })
					}
				}
				healthy()
				b := newBubble(t, cfgs...)
				g := group(b.urls[:2]...)
				g.Shards = append(g.Shards, group(b.urls[2:4]...).Shards...)
				g2 := group(b.urls[4])
				g2.Name, g2.Labels = "ibis", map[string]string{"cluster": "ibis"}
				g3 := group(b.urls[5])
				g3.Name, g3.Labels = "history", nil
				var log syncBuffer
				reg := prometheus.NewPedanticRegistry()
				top := build(t, Options{Dial: b.dial, Registerer: reg, Logger: slog.New(slog.NewTextHandler(&log, nil))}, true, g, g2, g3)
				if !top.Groups[0].Trusted() || !top.Groups[1].Trusted() || !top.Groups[2].Trusted() {
					t.Fatalf("sick from the beginning: %v %v %v", top.Groups[0].Sick(), top.Groups[1].Sick(), top.Groups[2].Sick())
				}
				check := func(want string) {
					t.Helper()
					var sick []string
					for _, g := range top.Groups {
						if g.Trusted() != (len(g.Sick()) == 0) {
							t.Errorf("%s: trusted %t", g.Name, g.Trusted())
						}
						if g.Trusted() {
							continue
						}
						sick = append(sick, g.Name)
						for _, s := range g.Sick() {
							if s.Kind != tc.kind || !strings.HasSuffix(s.Replica, "/10.0.0."+tc.replica+":9090") ||
								!strings.Contains(s.Text, tc.says) {
								t.Errorf("%s: %+v", g.Name, s)
							}
						}
						if v := gauge(t, reg, "spillway_group_sick", g.Name, tc.kind); v != 1 {
							t.Errorf("the metric says %g", v)
						}
					}
					if got := strings.Join(sick, " "); got != want {
						t.Errorf("sick are %q, want %q", got, want)
					}
					for _, i := range top.Status() {
						hit := want != "" && strings.HasSuffix(i.URL, "10.0.0."+tc.replica+":9090") &&
							slices.Contains(strings.Fields(want), i.Group)
						if (len(i.Sick) > 0) != hit || i.GroupTrusted == slices.Contains(strings.Fields(want), i.Group) {
							t.Errorf("the view says %q of %s, group trusted %t", i.Sick, i.URL, i.GroupTrusted)
						}
					}
				}
				check("")
				tc.change(ps)
				time.Sleep(2*factsEvery + 10*time.Second)
				check(tc.groups)
				n := 0
				for r := range top.replicas() {
					if r.Differs() != slices.Contains(tc.differs, n) {
						t.Errorf("%s differs: %t", r.Name(), r.Differs())
					}
					n++
				}
				text := strings.ReplaceAll(log.String(), `\"`, `"`)
				if tc.groups != "" && (!strings.Contains(text, "do not fit together") || !strings.Contains(text, tc.says)) {
					t.Errorf("the log does not say it:\n%s", text)
				}
				time.Sleep(5 * factsEvery)
				if n := strings.Count(log.String(), "do not fit together"); n != len(strings.Fields(tc.groups)) {
					t.Errorf("said %d times:\n%s", n, log.String())
				}
				first := top.Groups[0].Shards[0]
				seen := time.Now().UnixMilli()
				if got := first.Relabelled(seen, seen); (got != "") != (tc.relabelled != "") || !strings.Contains(got, tc.relabelled) ||
					strings.Count(log.String(), "give the same targets other labels") != min(len(got), 1) {
					t.Errorf("relabelled: %q, want %q; the log:\n%s", got, tc.relabelled, log.String())
				}
				healthy()
				time.Sleep(3*factsEvery + 10*time.Second)
				check("")
				at := time.Now().UnixMilli()
				if got := first.Relabelled(at, at); got != "" {
					t.Errorf("mended: relabelled: %q", got)
				}
				if got := first.Relabelled(seen, at); (got != "") != (tc.relabelled != "") ||
					got != "" && !strings.Contains(got, "(until ") {
					t.Errorf("mended, and looked at over the time in which it was not: %q", got)
				}
				for _, g := range strings.Fields(tc.groups) {
					if v := gauge(t, reg, "spillway_group_sick", g, tc.kind); v != 0 ||
						!strings.Contains(log.String(), "fit together again") {
						t.Errorf("mended: the metric of %s says %g; the log:\n%s", g, v, log.String())
					}
				}
				top.Close()
				b.close()
			})
		})
	}
}

// syncBuffer is a log that is written and read at once.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// gauge is the value of a metric with these label values.
func gauge(t *testing.T, reg *prometheus.Registry, name string, values ...string) float64 {
	t.Helper()
	for _, f := range gather(t, reg) {
		for _, m := range f.GetMetric() {
			var got []string
			for _, l := range m.GetLabel() {
				got = append(got, l.GetValue())
			}
			if f.GetName() == name && slices.Equal(got, values) {
				return m.GetGauge().GetValue()
			}
		}
	}
	t.Errorf("no metric %s%q", name, values)
	return -1
}

// TestSickIsKept: a server that cannot be asked any more keeps its targets for a while, and a
// question that fails changes nothing.
func TestSickIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &patient{series: ups(0, 10, "a")}, &patient{series: ups(0, 10, "b")}
		bub := newBubble(t, a.config(), b.config())
		g := group(bub.urls[0])
		g.Shards = append(g.Shards, group(bub.urls[1]).Shards...)
		top := build(t, Options{Dial: bub.dial, FactsEvery: 10 * time.Second}, true, g)
		if top.Groups[0].Trusted() {
			t.Fatal("not seen")
		}
		bub.fakes[1].Close()
		time.Sleep(targetsKeep - time.Minute)
		if top.Groups[0].Trusted() {
			t.Error("forgotten at once")
		}
		time.Sleep(2 * time.Minute)
		if !top.Groups[0].Trusted() {
			t.Error("held against a server that is long gone")
		}
		top.Close()
		bub.close()
	})
}

// TestTargetsAfterReload: what a server scrapes is known after a reload until it is read anew, for
// as long as it would have been before, and only under the labels that it is known by.
func TestTargetsAfterReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &patient{series: ups(0, 10, "a")}, &patient{series: ups(0, 10, "b")}
		var busy atomic.Bool
		mute := b.config()
		answer := mute.Answer
		mute.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
			if busy.Load() && strings.HasSuffix(r.Path, "/api/v1/query") && r.Form.Get("query") == "up" {
				return fakeshard.Answer{Status: http.StatusServiceUnavailable, Body: []byte("busy")}, true
			}
			return answer(r)
		}
		bub := newBubble(t, a.config(), mute)
		g := group(bub.urls[0])
		g.Shards = append(g.Shards, group(bub.urls[1]).Shards...)
		o := Options{Dial: bub.dial, FactsEvery: 10 * time.Second}
		old := build(t, o, true, g)
		if s := old.Groups[0].Sick(); len(s) != 1 || s[0].Kind != SickCopy {
			t.Fatalf("%v", s)
		}
		busy.Store(true)
		reload := func(g config.Group) *Topology {
			t.Helper()
			top, err := New([]config.Group{g}, o, old)
			if err != nil {
				t.Fatal(err)
			}
			top.Start(context.Background())
			if err := top.WaitFirstProbe(context.Background()); err != nil {
				t.Fatal(err)
			}
			return top
		}
		time.Sleep(targetsKeep - time.Minute)
		same := reload(g)
		if same.Groups[0].Trusted() {
			t.Error("a reload makes the group trusted though nothing new is known")
		}
		for _, change := range []func(*config.Group){
			func(g *config.Group) { g.Labels = map[string]string{"cluster": "other"} },
			func(g *config.Group) { g.ReplicaLabels = []string{"instance"} },
		} {
			other := g
			change(&other)
			top := reload(other)
			if known := top.Groups[0].Shards[1].Replicas[0].knownTargets(); known != nil {
				t.Errorf("%d targets are known by other labels", len(known))
			}
			top.Close()
		}
		time.Sleep(2 * time.Minute)
		if !same.Groups[0].Trusted() {
			t.Error("held against a server whose targets nobody has read for long")
		}
		same.Close()
		old.Close()
		bub.close()
	})
}

// TestEngineAfterReload: a server whose query engine differs is known after a reload, though a new
// server hangs and none is compared yet.
func TestEngineAfterReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := &patient{series: ups(0, 10, "a")}, &patient{series: ups(0, 10, "b")}, &patient{series: ups(20, 30, "c")}
		b.flags = map[string]string{"enable-feature": "promql-delayed-name-removal"}
		bub := newBubble(t, a.config(), b.config(), c.config())
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == "10.0.0.9:9090" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return bub.dial(ctx, network, addr)
		}
		two := func(second ...string) config.Group {
			g := group(bub.urls[0], bub.urls[1])
			g.Shards = append(g.Shards, group(second...).Shards...)
			return g
		}
		o := Options{Dial: dial, FactsEvery: 10 * time.Second}
		old := build(t, o, true, two(bub.urls[2]))
		if !old.Groups[0].Shards[0].Replicas[1].Differs() {
			t.Fatal("not seen")
		}
		top, err := New([]config.Group{two(bub.urls[2], "http://10.0.0.9:9090")}, o, old)
		if err != nil {
			t.Fatal(err)
		}
		for r := range top.replicas() {
			if want := r.Name() == old.Groups[0].Shards[0].Replicas[1].Name(); r.Differs() != want {
				t.Errorf("%s differs: %t", r.Name(), r.Differs())
			}
		}
		top.Close()
		old.Close()
		bub.close()
	})
}

// TestOverlapInTime: shards that answer for different times may scrape the same.
func TestOverlapInTime(t *testing.T) {
	a, b := &patient{series: ups(0, 10, "a")}, &patient{series: ups(0, 10, "b")}
	fa, fb := fakeshard.Start(t, a.config()), fakeshard.Start(t, b.config())
	moment := config.Moment{Abs: time.Now().Add(-24 * time.Hour), Set: true}
	g := group(fa.URL())
	g.Shards = append(g.Shards, group(fb.URL()).Shards...)
	g.Shards[0].Until, g.Shards[1].From = moment, moment
	top := build(t, Options{}, false, g)
	top.Refresh(context.Background())
	if !top.Groups[0].Trusted() {
		t.Errorf("%v", top.Groups[0].Sick())
	}
	g.Shards[0].Until.Abs = moment.Abs.Add(time.Minute)
	top = build(t, Options{}, false, g)
	top.Refresh(context.Background())
	if s := top.Groups[0].Sick(); len(s) != 1 || s[0].Kind != SickCopy {
		t.Errorf("%v", s)
	}
}

// TestSplitIsNotWhole: replicas that scrape different targets agree by their sums, and are whole
// all the same only if they scrape the same.
func TestSplitIsNotWhole(t *testing.T) {
	full := func(string, int64) (int64, int64) { return 10, 200 }
	start := func(p *patient) string {
		beat, facts := beating(full), p.config()
		return fakeshard.Start(t, fakeshard.Config{Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
			if a, ok := beat.Answer(r); ok {
				return a, ok
			}
			return facts.Answer(r)
		}}).URL()
	}
	a, b := &patient{series: ups(0, 10, "a")}, &patient{series: ups(10, 20, "b")}
	g := group(start(a), start(b))
	g.Heartbeat = "up"
	top := build(t, Options{}, false, g)
	s := top.Groups[0].Shards[0]
	wholes := func() int {
		t.Helper()
		now := time.Now()
		rs, err := s.Wholes(context.Background(), now.Add(-time.Hour).UnixMilli(), now.UnixMilli(), now)
		if err != nil {
			t.Fatal(err)
		}
		if r, whole, err := s.Whole(context.Background(), now.Add(-time.Hour).UnixMilli(), now.UnixMilli(), now); err != nil ||
			whole != (len(rs) > 0) || whole && r != rs[0] {
			t.Errorf("Whole says %s, %t, %v; Wholes %v", r.Name(), whole, err, rs)
		}
		return len(rs)
	}
	if n := wholes(); n != 2 {
		t.Errorf("before they were compared: %d", n)
	}
	top.Refresh(context.Background())
	if n := wholes(); n != 0 {
		t.Errorf("%d whole replicas of a shard whose replicas scrape different targets", n)
	}
	after, err := New([]config.Group{g}, Options{}, top)
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	past := time.Now().Add(-25 * time.Hour) // long before it was seen
	rs, err := after.Groups[0].Shards[0].Wholes(context.Background(), past.Add(-time.Hour).UnixMilli(), past.UnixMilli(), time.Now())
	if err != nil || len(rs) != 0 {
		t.Errorf("after a reload, before they are compared: %v, %v", rs, err)
	}
	b.set(func(p *patient) { p.series = ups(0, 10, "b") })
	top.Refresh(context.Background())
	if n := wholes(); n != 0 {
		t.Errorf("mended, and the window has the time before: %d", n)
	}
	if lacks, known := s.Lacks(context.Background(), time.Now().Add(-time.Hour).UnixMilli(), time.Now().UnixMilli(), time.Now()); known {
		t.Errorf("and what they lack is known: %v", lacks)
	}
	s.labelling = &labelling{} // long ago
	if n := wholes(); n != 2 {
		t.Errorf("mended: %d", n)
	}
	// The one that served last comes first, and one that is not well is not among them.
	s.base.Store(1)
	now := time.Now()
	if rs, err := s.Wholes(context.Background(), now.Add(-time.Hour).UnixMilli(), now.UnixMilli(), now); err != nil || len(rs) != 2 ||
		rs[0].Index != 1 {
		t.Errorf("%v, %v", rs, err)
	}
	s.setBehind(s.Replicas[1], true)
	if rs, err := s.Wholes(context.Background(), now.Add(-time.Hour).UnixMilli(), now.UnixMilli(), now); err != nil || len(rs) != 1 ||
		rs[0].Index != 0 {
		t.Errorf("%v, %v", rs, err)
	}
}

// TestSickAgainstPrometheus: Prometheus' own API answers the questions. Two servers, listed as
// shards, one of whose targets is scraped by both; the second has another lookback. CheckOnline
// says the same.
func TestSickAgainstPrometheus(t *testing.T) {
	now := time.Now()
	start := func(from, until int, lookback time.Duration) string {
		p, err := localprom.Start(context.Background(),
			localprom.Options{DisableWAL: true, ExternalLabels: labels.FromStrings("cluster", "jaguar"), LookbackDelta: lookback})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		var b strings.Builder
		b.WriteString("load 15s\n")
		for i := from; i < until; i++ {
			fmt.Fprintf(&b, "  up{job=\"node\",instance=\"node-%d\"} 1 1 1 1 1\n", i)
		}
		if err := p.LoadAt(b.String(), now.Add(-time.Minute)); err != nil {
			t.Fatal(err)
		}
		return p.URL()
	}
	g := group(start(0, 10, 0))
	g.Shards = append(g.Shards, group(start(9, 20, time.Minute)).Shards...)
	reg := prometheus.NewRegistry()
	top := build(t, Options{Registerer: reg}, false, g)
	top.Refresh(context.Background())
	sick := top.Groups[0].Sick()
	if len(sick) != 2 || sick[0].Kind != SickEngine || sick[1].Kind != SickOverlap || !strings.Contains(sick[1].Text, `such as {__name__="up", instance="node-9", job="node"}`) {
		t.Fatalf("%+v", sick)
	}
	problems, err := CheckOnline(context.Background(), &config.Config{Groups: []config.Group{g}})
	if err != nil || len(problems) != len(sick) {
		t.Fatalf("%v, %v", problems, err)
	}
	for i, p := range problems {
		if p.Path != "groups[0].shards[1].replicas[0]" || p.Message != sick[i].Replica+": "+sick[i].Text {
			t.Errorf("CheckOnline says %s, the group %+v", p, sick[i])
		}
	}
	if n, err := testutil.GatherAndCount(reg, "spillway_shard_hedged_total"); err != nil || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
}

// TestDecodeTargets: what the hand-written reader makes of an answer.
func TestDecodeTargets(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for _, tc := range []struct {
		in   string
		want string // sets, joined; or the beginning of an error after "! "
	}{
		{`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"up","a":"b"},"value":[1,"1"]},{"metric":{"__name__":"down"},"value":[1,"1"]}]}}`, `{__name__="up", a="b"}`},
		{` { "data" : { "result" : [ { "value" : [ 1 , "1" ] , "metric" : { "a" : "" , "__name__" : "up" } } ] , "resultType" : "vector" } , "warnings" : [ "a\"]" ] } `, `{__name__="up", a=""}`},
		{`{"data":{"resultType":"vector","result":[{"metric":{"__name__":"up","a":"\u00e9\n\\","b":"\\\\"}}]}}`, `{__name__="up", a="é\n\\", b="\\\\"}`},
		{`{"data":{"resultType":"vector","result":[{"metric":{"__name__":"up","a":"` + long + `"}},{"metric":{"__name__":"up"}}]}}`, `{__name__="up", a="` + long + `"}{__name__="up"}`},
		{`{"data":{"resultType":"vector","result":[]}}`, ""},
		{`{"data":{"resultType":"matrix","result":[]}}`, "! it is no vector"},
		{`{"status":"success","data":{"resultType":"vector"}}`, "! it has no result"},
		{`{"status":"success","data":{"resultType":"vector","result":null}}`, "! 'n' where '[' is due"},
		{`{"status":"success"}`, "! it is no vector"},
		{`{"data":{"result":{}}}`, "! '{' where '[' is due"},
		{`{"data":{"resultType":"vector","result":[{"metric":{"__name__":"up"}}`, "! unexpected EOF"},
		{`{"data":{"resultType":"vector","result":[{"metric":{"__name__":"up`, "! unexpected EOF"},
		{`{"data":{"resultType":"vector","result":[{"metric":{"__name__":1}}]}}`, `! '1' where '"' is due`},
		{`{"a":` + strings.Repeat("[", 200) + `}`, "! values are nested"},
		{`{"a":}`, "! '}' where a value is due"},
		{"", "! unexpected EOF"},
	} {
		got := ""
		err := decodeTargets(strings.NewReader(tc.in), func(set []pair) error {
			got += text(set)
			return nil
		})
		if err != nil {
			got = "! " + err.Error()
		}
		if got != tc.want && (err == nil || !strings.HasPrefix(got, tc.want)) {
			t.Errorf("%.200s:\ngot  %.200s\nwant %.200s", tc.in, got, tc.want)
		}
	}
}

func text(set []pair) string {
	m := map[string]string{}
	for _, p := range set {
		m[string(p.name)] = string(p.value)
	}
	return labels.FromMap(m).String()
}

// FuzzDecodeTargets: whatever a server sends, the reader returns; where encoding/json finds a
// vector of label sets, it finds the same.
func FuzzDecodeTargets(f *testing.F) {
	for _, seed := range []string{
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"up","a":"b"},"value":[1,"1"]},{"metric":{"__name__":"down"}}]}}`,
		`{"data":{"result":[{"value":[],"metric":{"__name__":"up"}}],"resultType":"vector"},"warnings":["a"]}`,
		`{"status":"success","data":{"resultType":"matrix","result":[]}}`, `{"data":{"result":{}}}`, `{"data":null}`, `[`, ``, `{"data":{"result":[{"metric":{"__name__":1}}]}}`,
		`{"data":{"resultType":"vector","result":[{"metric":{"__name__":"up","a":"\ud800\"\\"}}]}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var got []string
		err := decodeTargets(strings.NewReader(in), func(set []pair) error {
			got = append(got, text(set))
			return nil
		})
		want, ok := targetsByJSON(in)
		if !ok {
			return // the reader is content with more
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	})
}

// targetsByJSON is decodeTargets by encoding/json; false where the text is no vector, or where
// names appear twice or in another spelling, in which the two may differ.
func targetsByJSON(in string) (out []string, ok bool) {
	if !utf8.ValidString(in) || !json.Valid([]byte(in)) {
		return nil, false
	}
	member := func(raw json.RawMessage, name string) (json.RawMessage, bool) {
		var m map[string]json.RawMessage
		if raw == nil || json.Unmarshal(raw, &m) != nil || m == nil || strings.Count(in, `"`+name+`"`) > 1 && name != "metric" {
			return nil, false
		}
		return m[name], m[name] != nil
	}
	if strings.Contains(in, `\`) {
		return nil, false // escapes in names
	}
	data, ok := member(json.RawMessage(in), "data")
	if !ok {
		return nil, false
	}
	kind, ok := member(data, "resultType")
	if !ok || string(kind) != `"vector"` {
		return nil, false
	}
	result, ok := member(data, "result")
	var elements []json.RawMessage
	if !ok || json.Unmarshal(result, &elements) != nil || elements == nil || strings.Count(in, `"metric"`) != len(elements) {
		return nil, false
	}
	for _, e := range elements {
		metric, ok := member(e, "metric")
		var set map[string]string
		if !ok || json.Unmarshal(metric, &set) != nil || set == nil || strings.Count(string(metric), ":") != len(set) ||
			strings.Contains(string(metric), "null") {
			return nil, false
		}
		if set["__name__"] == "up" {
			out = append(out, labels.FromMap(set).String())
		}
	}
	return out, true
}

// BenchmarkReadTargets is what one refresh costs for a server with ten thousand targets.
func BenchmarkReadTargets(b *testing.B) {
	var body bytes.Buffer
	body.WriteString(`{"status":"success","data":{"resultType":"vector","result":[`)
	for i := range 10_000 {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"metric":{"__name__":"up","cluster":"jaguar","instance":"10.2.%d.%d:9100","job":"kubernetes-pods","namespace":"monitoring","node":"gpu-%d","pod":"node-exporter-%d","container":"node-exporter"},"value":[1794000000.123,"1"]}`,
			i/256, i%256, i, i)
	}
	body.WriteString(`]}}`)
	r, _ := one(b, fakeshard.Config{}, Options{})
	key := r.newTargetKey()
	b.SetBytes(int64(body.Len()))
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		if err := decodeTargets(bytes.NewReader(body.Bytes()), func(set []pair) error { key.hash(set); n++; return nil }); err != nil ||
			n != 10_000 {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkHedged is what the race costs beside Do where nothing is slow.
func BenchmarkHedged(b *testing.B) {
	for _, way := range []string{"Do", "Hedged"} {
		b.Run(way, func(b *testing.B) {
			x, y := fakeshard.Start(b, fakeshard.Config{}), fakeshard.Start(b, fakeshard.Config{})
			s := build(b, Options{}, false, group(x.URL(), y.URL())).Groups[0].Shards[0]
			req := &endpoint.Request{ID: endpoint.Query, Query: "1+1", Time: endpoint.At(4000)}
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if way == "Do" {
					_, err = ask(context.Background(), s, req)
				} else {
					_, _, err = hedged(context.Background(), s, s.Replicas, req, CallOptions{})
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
