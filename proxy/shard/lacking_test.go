package shard

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// unit carries the number of series in the answers to questions about heartbeats; minuteQuery is
// the question for their minutes.
const (
	unit        = 1 << 30
	minuteQuery = "sum(sum_over_time(up[1m]) + 1073741824)"
)

// scrapes is what one replica makes of a job of so many targets, scraped each 15 s: has tells
// whether it has a target at that time, up whether it reaches it. nil is always.
type scrapes struct {
	targets int
	has, up func(target int, at time.Time) bool
}

// count is what up has in (from, until]: series, and successful scrapes. Each target is scraped at
// a moment of its own.
func (s scrapes) count(from, until time.Time) (series, good int64) {
	for i := range s.targets {
		seen := false
		at := from.Truncate(15 * time.Second).Add(s.phase(i))
		for ; !at.After(until); at = at.Add(15 * time.Second) {
			switch {
			case !at.After(from) || s.has != nil && !s.has(i, at):
			case s.up != nil && !s.up(i, at):
				seen = true
			default:
				seen, good = true, good+1
			}
		}
		if seen {
			series++
		}
	}
	return series, good
}

// last is what a selector finds of each target: the newest sample, unless the target is gone, which
// Prometheus marks at its next scrape.
func (s scrapes) last(until time.Time) (sum int64) {
	for i := range s.targets {
		at := until.Truncate(15 * time.Second).Add(s.phase(i))
		if at.After(until) {
			at = at.Add(-15 * time.Second)
		}
		if s.has != nil && !s.has(i, at) {
			continue
		}
		if sum += unit; s.up == nil || s.up(i, at) {
			sum++
		}
	}
	return sum
}

// phase is when within an interval a target is scraped.
func (s scrapes) phase(target int) time.Duration {
	return time.Duration(target) * 15 * time.Second / time.Duration(s.targets)
}

// scraping is a server that has those jobs, and answers the questions of the heartbeat up as
// Prometheus would.
func scraping(jobs map[string]scrapes) fakeshard.Config {
	return fakeshard.Config{Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
		q := r.Form.Get("query")
		minutes := q == minuteQuery
		if !minutes && !strings.HasPrefix(q, "sum by (job) (sum_over_time(up[") {
			return fakeshard.Answer{}, false
		}
		seconds := func(name string) time.Time {
			f, _ := strconv.ParseFloat(r.Form.Get(name), 64)
			return time.UnixMilli(int64(f * 1000))
		}
		window, kind := time.Minute, "vector"
		switch {
		case minutes:
			kind = "matrix"
		case !strings.HasSuffix(r.Path, "/query"):
			window, kind = trust.Bucket, "matrix"
		}
		var out []string
		add := func(metric string, value func(at time.Time) int64) {
			if kind == "vector" {
				if v := value(seconds("time")); v >= 0 {
					out = append(out, fmt.Sprintf(`{"metric":{%s},"value":[1,"%d"]}`, metric, v))
				}
				return
			}
			var values []string
			for at, last := seconds("start"), seconds("end"); !at.After(last); at = at.Add(window) {
				if v := value(at); v >= 0 {
					values = append(values, fmt.Sprintf(`[%.3f,"%d"]`, float64(at.UnixMilli())/1000, v))
				}
			}
			if len(values) > 0 {
				out = append(out, fmt.Sprintf(`{"metric":{%s},"values":[%s]}`, metric, strings.Join(values, ",")))
			}
		}
		if minutes {
			add("", func(at time.Time) int64 {
				sum := int64(0)
				for _, s := range jobs {
					n, good := s.count(at.Add(-window), at)
					sum += n*unit + good
				}
				return cmp.Or(sum, -1)
			})
		}
		for _, job := range sortedKeys(jobs) {
			if minutes {
				break
			}
			add(fmt.Sprintf(`"job":%q`, job), func(at time.Time) int64 {
				n, good := jobs[job].count(at.Add(-window), at)
				if n == 0 {
					return -1
				}
				return n*unit + good
			})
			if strings.Contains(q, ` or label_replace(sum by (job) (up + 1073741824), "last", "1", "", "")`) {
				add(fmt.Sprintf(`"job":%q,"last":"1"`, job), func(at time.Time) int64 { return cmp.Or(jobs[job].last(at), -1) })
			}
			if strings.Contains(q, ` or label_replace(sum by (job) (sum_over_time(up[5m]) + 1073741824), "last", "5m", "", "")`) {
				add(fmt.Sprintf(`"job":%q,"last":"5m"`, job), func(at time.Time) int64 {
					n, good := jobs[job].count(at.Add(-5*time.Minute), at)
					return cmp.Or(n*unit+good, -1)
				})
			}
		}
		body := fmt.Sprintf(`{"status":"success","data":{"resultType":"%s","result":[%s]}}`, kind, strings.Join(out, ","))
		return fakeshard.Answer{Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}, true
	}}
}

const (
	lackingGauge   = "spillway_shard_replica_lacking_since_timestamp_seconds"
	unreachedGauge = "spillway_shard_replica_unreached_ratio"
	wholeGauge     = "spillway_shard_replica_whole"
)

// gaugesOf are what the registry has of a gauge of replicas, in their order.
func gaugesOf(t *testing.T, reg *prometheus.Registry, name string) []float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []float64
	for _, f := range all {
		for _, m := range f.Metric {
			if f.GetName() == name {
				out = append(out, m.GetGauge().GetValue())
			}
		}
	}
	return out
}

// TestWhatAReplicaLacks: within a minute of a loss the metrics say which replica it is, whether it
// is cut off, and since when; the view says of what. What was away is not cut off when it is back,
// and is whole again for requests as soon as their windows begin two minutes behind its return,
// where the minutes show what it missed, and else once the first full five minutes behind it are
// closed: not before, and not later.
func TestWhatAReplicaLacks(t *testing.T) {
	began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // a bubble's
	from, until := began.Add(27*time.Minute+10*time.Second), began.Add(41*time.Minute+20*time.Second)
	whole := began.Add(50*time.Minute + trust.Grace) // the bucket from 45 to 50 is the first that is full
	within := func(at time.Time) bool { return at.After(from) && at.Before(until) }
	of := func(f func(i int, at time.Time) bool) func(int, time.Time) bool {
		return func(i int, at time.Time) bool { return !within(at) || f(i, at) }
	}
	none := func(int, time.Time) bool { return false }
	odd := func(i int, _ time.Time) bool { return i%2 == 1 }
	for _, tc := range []struct {
		name      string
		node      scrapes // of the first replica, 40 targets; the other one has all
		gpu       scrapes // likewise, of 20
		unreached float64
		minutes   bool // show what it missed: more than half of all targets, or what chance does not explain
		says      string
	}{
		{"cut off from all", scrapes{up: of(none)}, scrapes{up: of(none)}, 1, true, "most of job node (it is cut off now from 100 % of the targets that the other one reaches)"},
		{"cut off from half", scrapes{up: of(odd)}, scrapes{up: of(odd)}, 30. / 59, true, "most of job node (it is cut off now from 51 % of the targets that the other one reaches)"},
		{"cut off from a job", scrapes{}, scrapes{up: of(none)}, 20. / 59, false, "most of job gpu (it is cut off now from 34 % of the targets that the other one reaches)"},
		{"its discovery has half", scrapes{has: of(odd)}, scrapes{}, 0, false, "most of job node"},
		{"it does not scrape", scrapes{has: of(none)}, scrapes{has: of(none)}, 0, true, "most of job node"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dead := func(i int, _ time.Time) bool { return i != 7 } // one target, for everybody
				and := func(a, b func(int, time.Time) bool) func(int, time.Time) bool {
					return func(i int, at time.Time) bool { return (a == nil || a(i, at)) && b(i, at) }
				}
				tc.node.targets, tc.gpu.targets = 40, 20
				tc.node.up = and(tc.node.up, dead)
				b := newBubble(t, scraping(map[string]scrapes{"node": tc.node, "gpu": tc.gpu}),
					scraping(map[string]scrapes{"node": {targets: 40, up: dead}, "gpu": {targets: 20}}))
				g := group(b.urls...)
				g.Heartbeat = "up"
				reg := prometheus.NewRegistry()
				var log syncBuffer
				top := build(t, Options{Dial: b.dial, Registerer: reg, Logger: slog.New(slog.NewTextHandler(&log, nil))}, true, g)
				s := top.Groups[0].Shards[0]
				sound := func(when string) {
					t.Helper()
					since, share, is := gaugesOf(t, reg, lackingGauge), gaugesOf(t, reg, unreachedGauge), gaugesOf(t, reg, wholeGauge)
					if fmt.Sprint(since, share, is) != "[0 0] [0 0] [1 1]" {
						t.Errorf("%s: since %v, unreached %v, whole %v", when, since, share, is)
					}
				}
				time.Sleep(time.Until(from))
				sound("before")
				time.Sleep(time.Minute + 15*time.Second) // and one interval, for the last minute to be one without any
				since, share, is := gaugesOf(t, reg, lackingGauge), gaugesOf(t, reg, unreachedGauge), gaugesOf(t, reg, wholeGauge)
				if at := time.Unix(int64(since[0]), 0); at.Before(from) || at.After(from.Add(40*time.Second)) || since[1] != 0 {
					t.Errorf("since %s, %v, want %s", at.UTC(), since, from)
				}
				if math.Abs(share[0]-tc.unreached) > 0.01 || share[1] != 0 || is[0] != 0 || is[1] != 1 {
					t.Errorf("unreached %v, whole %v; want %g of the first", share, is, tc.unreached)
				}
				time.Sleep(5 * time.Minute) // a bucket of it has closed
				status := top.Status()
				if i := status[0]; !strings.Contains(i.Lacks, tc.says) || !strings.HasPrefix(i.Lacks, s.Replicas[0].Name()+" lacks ") || !strings.Contains(i.Lacks, " scrapes that another one has, since 2000-01-01T00:25:00Z") ||
					!strings.HasPrefix(i.NotWhole(), i.Lacks) || i.Unreached != gaugesOf(t, reg, unreachedGauge)[0] {
					t.Errorf("the view says %q, %q", i.Lacks, i.NotWhole())
				}
				if i := status[1]; i.Lacks != "" || i.Unreached != 0 || !i.Whole {
					t.Errorf("of the other one the view says %+v", i)
				}

				time.Sleep(time.Until(until) + time.Minute + 30*time.Second) // back, and cut off no more, but with a gap
				if since, share := gaugesOf(t, reg, lackingGauge), gaugesOf(t, reg, unreachedGauge); since[0] == 0 ||
					fmt.Sprint(share) != "[0 0]" {
					t.Errorf("back: since %v, unreached %v", since, share)
				}
				wholes := func() (names []string) {
					t.Helper()
					now := time.Now() // a window of five minutes
					all, err := s.Wholes(t.Context(), now.Add(-5*time.Minute).UnixMilli(), now.UnixMilli(), now)
					if err != nil {
						t.Fatal(err)
					}
					for _, r := range all {
						names = append(names, r.Name())
					}
					slices.Sort(names)
					return names
				}
				time.Sleep(time.Until(until) + 4*time.Minute + 59*time.Second)
				if got, want := wholes(), []string{s.Replicas[1].Name()}; !slices.Equal(got, want) {
					t.Errorf("where the window reaches what is missed %v are whole, want %v", got, want)
				}
				time.Sleep(2 * time.Minute)
				if got := wholes(); len(got) == 2 != tc.minutes {
					t.Errorf("two minutes after the window has left it %v are whole", got)
				}
				time.Sleep(time.Until(whole) - time.Second)
				if got := wholes(); len(got) == 2 != tc.minutes {
					t.Errorf("before the first full bucket is closed %v are whole", got)
				}
				time.Sleep(time.Second)
				if got := wholes(); len(got) != 2 {
					t.Errorf("once the first full bucket is closed %v are whole, want both", got)
				}
				time.Sleep(beatEvery + time.Second)
				sound("after")
				now := time.Now()
				if text := s.Shortfalls(now.Add(-40*time.Minute).UnixMilli(), now.UnixMilli(), now); !strings.Contains(text, ", between 2000-01-01T00:25:00Z and 2000-01-01T00:45:00Z, most of job ") || strings.Contains(text, "cut off") {
					t.Errorf("of a window that reaches back it says %q", text)
				}
				if text := s.Shortfalls(now.Add(-5*time.Minute).UnixMilli(), now.UnixMilli(), now); text != "" {
					t.Errorf("of one that does not it says %q", text)
				}
				top.Close()
				begins, ends := strings.Count(log.String(), "a replica is cut off: it does not reach targets"),
					strings.Count(log.String(), "a replica is cut off no more")
				if want := map[bool]int{true: 1}[tc.unreached > 0]; begins != want || ends != want ||
					strings.Contains(log.String(), "goes on to lack") || strings.Contains(log.String(), "lacks nothing any more") {
					t.Errorf("the log says %s", log.String())
				}
				b.close()
			})
		})
	}
}

// TestWhoGoesOnToLackSomethingIsTold: once it has been so for half an hour, and once when it is
// over; not of one that comes back after as long with a gap.
func TestWhoGoesOnToLackSomethingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		fewer := func(i int, at time.Time) bool {
			return i > 0 || at.Before(start.Add(20*time.Minute)) || at.After(start.Add(70*time.Minute))
		}
		b := newBubble(t, scraping(map[string]scrapes{"gpu": {targets: 4, has: fewer}}), scraping(map[string]scrapes{"gpu": {targets: 4}}))
		g := group(b.urls...)
		g.Heartbeat = "up"
		var log syncBuffer
		top := build(t, Options{Dial: b.dial, Logger: slog.New(slog.NewTextHandler(&log, nil))}, true, g)
		says := func(when time.Duration, on, over int) {
			t.Helper()
			time.Sleep(time.Until(start.Add(when)))
			if a, b := strings.Count(log.String(), "a replica goes on to lack what another one of its shard has"), strings.Count(log.String(), "a replica lacks nothing any more"); a != on || b != over {
				t.Errorf("after %s the log says %s", when, log.String())
			}
		}
		says(50*time.Minute, 0, 0)
		says(52*time.Minute, 1, 0)
		says(75*time.Minute, 1, 0)
		says(82*time.Minute, 1, 1)
		if !strings.Contains(log.String(), "scrapes that another one has, since 2000-01-01T00:20:00Z, most of job gpu") {
			t.Errorf("the log says %s", log.String())
		}
		top.Close()
		b.close()
	})
}

// TestHeartbeatOfASliceThatHasEnded: its servers keep old blocks and have nothing of the heartbeat
// of late, which is no mistake: neither the log nor the view says that it is one.
func TestHeartbeatOfASliceThatHasEnded(t *testing.T) {
	for _, ended := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			retired := scraping(map[string]scrapes{"gpu": {targets: 4, has: func(int, time.Time) bool { return false }}})
			b := newBubble(t, retired, retired)
			g := group(b.urls...)
			if g.Heartbeat = "up"; ended {
				g.Shards[0].Until = config.Moment{Abs: time.Now().Add(-time.Minute), Set: true}
			}
			var log syncBuffer
			top := build(t, Options{Dial: b.dial, Logger: slog.New(slog.NewTextHandler(&log, nil))}, true, g)
			time.Sleep(10 * time.Minute)
			if told := strings.Contains(log.String(), "the heartbeat selects nothing"); told == ended {
				t.Errorf("ended %v: the log says %s", ended, log.String())
			}
			for _, i := range top.Status() {
				if (i.HeartbeatError == "") != ended {
					t.Errorf("ended %v: the view says %q", ended, i.HeartbeatError)
				}
			}
			top.Close()
			b.close()
		})
	}
}

// TestGapsOfBothDoNotHideEachOther: both of a pair miss scrapes within the same five minutes, at
// different times, as when both are restarted one after the other. The one that missed less holds
// no more of what the other one has than that does: where a window reaches into both gaps nobody is
// whole, and where it reaches into one the other one is.
func TestGapsOfBothDoNotHideEachOther(t *testing.T) {
	at := func(minute float64) time.Time {
		return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(minute * float64(time.Minute)))
	}
	away := func(from, until float64) scrapes {
		return scrapes{targets: 40, has: func(_ int, t time.Time) bool { return !t.After(at(from)) || t.After(at(until)) }}
	}
	cut := func(from, until float64, share int) scrapes {
		return scrapes{targets: 40, up: func(i int, t time.Time) bool { return i%share != 0 || !t.After(at(from)) || t.After(at(until)) }}
	}
	type ask struct {
		now, from, until float64 // minutes
		want             string  // who is whole
	}
	for _, tc := range []struct {
		name string
		a, b scrapes
		asks []ask
	}{
		{"restarted one after the other, for longer", away(26, 27), away(28, 29.5), []ask{
			{27.5, 22.5, 27.5, "[1]"},
			{29.9, 24.9, 29.9, "[]"},
			{31, 26, 31, "[]"},
			{31, 27.5, 31, "[0]"},
			{36, 20, 36, "[]"},
			{36, 31, 36, "[0 1]"},
		}},
		{"for as long", away(26, 27), away(28, 29), []ask{{29.9, 24.9, 29.9, "[]"}, {36, 20, 36, "[]"}, {36, 31, 36, "[0 1]"}}},
		{
			"cut off one after the other", cut(26, 26.6, 1), cut(26.7, 60, 2),
			[]ask{{27.2, 22.2, 27.2, "[]"}, {28, 23, 28, "[]"}, {30, 25, 30, "[]"}, {36, 31, 36, "[0]"}, {36, 20, 36, "[]"}},
		},
		{
			"the second a bucket later", away(26, 27), away(31, 32),
			[]ask{{33, 20, 33, "[]"}, {33, 28, 33, "[0]"}, {33, 32.7, 33, "[0]"}, {36, 20, 29, "[1]"}, {36, 30.1, 36, "[0]"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one := func(s scrapes) scrapes { s.targets = 1; return s }
				of := func(s scrapes) fakeshard.Config { return scraping(map[string]scrapes{"node": s, "proxy": one(s)}) }
				b := newBubble(t, of(tc.a), of(tc.b))
				g := group(b.urls...)
				g.Heartbeat = "up"
				top := build(t, Options{Dial: b.dial}, true, g)
				s := top.Groups[0].Shards[0]
				for _, a := range tc.asks {
					time.Sleep(time.Until(at(a.now)))
					all, err := s.Wholes(t.Context(), at(a.from).UnixMilli(), at(a.until).UnixMilli(), time.Now())
					if err != nil {
						t.Fatal(err)
					}
					got := []int{}
					for _, r := range all {
						got = append(got, r.Index)
					}
					slices.Sort(got)
					if fmt.Sprint(got) != a.want {
						t.Errorf("at %g from %g to %g: %v are whole, want %s", a.now, a.from, a.until, got, a.want)
					}
				}
				top.Close()
				b.close()
			})
		})
	}
}

// TestADayForgetsNoMinutes: a question about a day asks for the newest buckets too, once what is
// known of them is in doubt; it asks for their minutes then, without which nobody would be whole.
func TestADayForgetsNoMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		away := func(from, until time.Duration) scrapes {
			return scrapes{targets: 40, has: func(_ int, at time.Time) bool {
				return at.Sub(start) <= from || at.Sub(start) > until
			}}
		}
		first, second := away(26*time.Minute, 27*time.Minute), away(31*time.Minute, 32*time.Minute)
		b := newBubble(t, scraping(map[string]scrapes{"node": first}), scraping(map[string]scrapes{"node": second}))
		g := group(b.urls...)
		g.Heartbeat = "up"
		top := build(t, Options{Dial: b.dial}, false, g)
		s := top.Groups[0].Shards[0]
		time.Sleep(32*time.Minute + 10*time.Second)
		for range 100 {
			time.Sleep(time.Second)
			now := time.Now()
			for _, window := range []time.Duration{24 * time.Hour, 5 * time.Second} {
				all, err := s.Wholes(t.Context(), now.Add(-window).UnixMilli(), now.UnixMilli(), now)
				if err != nil {
					t.Fatal(err)
				}
				if window < time.Minute && !slices.Contains(all, s.Replicas[0]) {
					t.Errorf("%s after the start %d are whole, and not the first", now.Sub(start), len(all))
				}
			}
		}
		top.Close()
		b.close()
	})
}

// TestOldGapsOfBothDoNotHideEachOther: of a long window only those minutes are asked for that may
// tell something.
func TestOldGapsOfBothDoNotHideEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		away := func(from, until time.Duration) scrapes {
			return scrapes{targets: 40, has: func(_ int, at time.Time) bool {
				d := at.Sub(start)
				return d < from || d >= until
			}}
		}
		const gap = 6*time.Hour + 26*time.Minute
		for _, tc := range []struct {
			name  string
			other scrapes
			whole int // how many replicas are
			asked int // how often for minutes: once for those since the newest closed bucket, and once for the hour before
		}{
			{"both", away(gap+2*time.Minute, gap+3*time.Minute+30*time.Second), 0, 3},
			{"at times far from each other", away(gap+2*time.Hour, gap+2*time.Hour+time.Minute), 0, 2},
			{"one", scrapes{targets: 40}, 1, 2},
		} {
			b := newBubble(t, scraping(map[string]scrapes{"node": away(gap, gap+time.Minute)}),
				scraping(map[string]scrapes{"node": tc.other}))
			g := group(b.urls...)
			g.Heartbeat = "up"
			top := build(t, Options{Dial: b.dial}, false, g)
			now := start.Add(12 * time.Hour)
			all, err := top.Groups[0].Shards[0].Wholes(t.Context(), start.Add(time.Hour).UnixMilli(), now.UnixMilli(), now)
			if err != nil || len(all) != tc.whole {
				t.Errorf("%s: %d are whole, %v; want %d", tc.name, len(all), err, tc.whole)
			}
			asked := 0
			for _, r := range b.fakes[0].Requests() {
				if r.Form.Get("query") == minuteQuery {
					asked++
				}
			}
			if asked != tc.asked {
				t.Errorf("%s: minutes are asked for %d times, want %d", tc.name, asked, tc.asked)
			}
			top.Close()
			b.close()
		}
	})
}
