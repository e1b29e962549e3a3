package server

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// ward is a group of four shards, the last of which has something that makes its results worth
// nothing to others while its series are still good: another lookback, a wrong clock, targets that
// another one has. It stands behind a scripted server that can begin and end to be sick.
type ward struct {
	t      *testing.T
	now    time.Time
	s      *Server
	url    string
	admin  string
	config string
	target atomic.Pointer[string]                                 // who speaks for the fourth
	change atomic.Pointer[func(path string, a *fakeshard.Answer)] // what is done to its answers
}

// patients are the series of some nodes as a server with the phase scrapes them, behind by so much.
func (w *ward) patients(nodes []int, phase, behind time.Duration) (out []storedSeries) {
	for _, n := range nodes {
		for v, l := range []labels.Labels{
			labels.FromStrings("__name__", "up", "job", "node", "node", fmt.Sprintf("n%d", n)),
			labels.FromStrings("__name__", "requests_total", "job", "api", "node", fmt.Sprintf("n%d", n), "code", "200"),
			labels.FromStrings("__name__", "requests_total", "job", "api", "node", fmt.Sprintf("n%d", n), "code", "500"),
		} {
			one := storedSeries{lbls: l}
			// Samples of the next minutes are there already: nobody scrapes while the test runs.
			for at := w.now.Add(-40*time.Minute + phase +
				time.Duration(n)*900*time.Millisecond); at.Before(w.now.Add(20*time.Minute - behind)); at = at.Add(15 * time.Second) {
				if n == 9 && at.After(w.now.Add(-13*time.Minute)) && at.Before(w.now.Add(-10*time.Minute)) {
					continue // a lookback of a minute does not reach over this
				}
				f := 1.0
				if v > 0 {
					f = math.Floor(at.Sub(w.now.Add(-time.Hour)).Seconds() * float64(n+v))
				}
				one.points = append(one.points, point{t: at.UnixMilli(), f: f})
			}
			out = append(out, one)
		}
	}
	return out
}

func (w *ward) server(o localprom.Options, series []storedSeries) string {
	w.t.Helper()
	o.DisableWAL = true
	p, err := localprom.Start(w.t.Context(), o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := p.Close(); err != nil {
			w.t.Error(err)
		}
	})
	if err := p.Append(func(app storage.Appender) error {
		for _, s := range series {
			for _, pt := range s.points {
				if _, err := app.Append(0, s.lbls, pt.t, pt.f); err != nil {
					return err
				}
			}
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return p.URL()
}

// diseases are what the fourth may have. Its nodes are 9 to 11; those of the first are 0 to 2.
var diseases = []struct {
	name string
	kind string
	says []string // in the sentences about it
	// data is what it stores; other, where set, is a server that speaks for it once it is sick, and
	// answers with what they have together.
	data    func(w *ward) []storedSeries
	other   func(w *ward) []storedSeries
	options localprom.Options
	change  func(path string, a *fakeshard.Answer)
	// held is what one Prometheus with everything would hold of it, one for each copy of what two
	// servers hold.
	held  func(w *ward) [][]storedSeries
	twice bool
}{
	{
		name: "another lookback", kind: shard.SickEngine, says: []string{"lookback"},
		options: localprom.Options{LookbackDelta: time.Minute},
		data:    func(w *ward) []storedSeries { return w.patients([]int{9, 10, 11}, 0, 0) },
		held:    func(w *ward) [][]storedSeries { return [][]storedSeries{w.patients([]int{9, 10, 11}, 0, 0)} },
	},
	{
		name: "another lookback after a restart", kind: shard.SickEngine, says: []string{"lookback"},
		data: func(w *ward) []storedSeries { return w.patients([]int{9, 10, 11}, 0, 0) },
		held: func(w *ward) [][]storedSeries { return [][]storedSeries{w.patients([]int{9, 10, 11}, 0, 0)} },
		change: func(path string, a *fakeshard.Answer) {
			if strings.HasSuffix(path, "/status/flags") {
				a.Body = []byte(strings.Replace(string(a.Body), `"query.lookback-delta":"5m"`, `"query.lookback-delta":"1m"`, 1))
			}
		},
	},
	{
		name: "a clock two minutes behind", kind: shard.SickClock, says: []string{"clock", "behind", "NTP"},
		data: func(w *ward) []storedSeries { return w.patients([]int{9, 10, 11}, 0, 2*time.Minute) },
		held: func(w *ward) [][]storedSeries {
			return [][]storedSeries{w.patients([]int{9, 10, 11}, 0, 2*time.Minute)}
		},
		change: func(_ string, a *fakeshard.Answer) {
			a.Header.Set("Date", time.Now().Add(-2*time.Minute).UTC().Format(http.TimeFormat))
		},
	},
	{
		name: "a clock two minutes ahead", kind: shard.SickClock, says: []string{"clock", "ahead"},
		data: func(w *ward) []storedSeries { return w.patients([]int{9, 10, 11}, 0, -2*time.Minute) },
		held: func(w *ward) [][]storedSeries {
			return [][]storedSeries{w.patients([]int{9, 10, 11}, 0, -2*time.Minute)}
		},
		change: func(_ string, a *fakeshard.Answer) {
			a.Header.Set("Date", time.Now().Add(2*time.Minute).UTC().Format(http.TimeFormat))
		},
	},
	{
		name: "a replica listed as a shard", kind: shard.SickCopy, says: []string{"same targets", "replicas"}, twice: true,
		data:  func(w *ward) []storedSeries { return w.patients([]int{9, 10, 11}, 0, 0) },
		other: func(w *ward) []storedSeries { return w.patients([]int{0, 1, 2}, 7*time.Second, 0) },
		held: func(w *ward) [][]storedSeries {
			return [][]storedSeries{w.patients([]int{0, 1, 2}, 0, 0), w.patients([]int{0, 1, 2}, 7*time.Second, 0)}
		},
	},
	{
		name: "a target scraped by two shards", kind: shard.SickOverlap, says: []string{"targets", "on one shard only"}, twice: true,
		data:  func(w *ward) []storedSeries { return w.patients([]int{9, 10, 11}, 0, 0) },
		other: func(w *ward) []storedSeries { return w.patients([]int{1, 9, 10, 11}, 7*time.Second, 0) },
		held: func(w *ward) [][]storedSeries {
			own := w.patients([]int{9, 10, 11}, 7*time.Second, 0)
			return [][]storedSeries{
				slices.Concat(own, w.patients([]int{0, 1, 2}, 0, 0)),
				slices.Concat(own, w.patients([]int{0, 2}, 0, 0), w.patients([]int{1}, 7*time.Second, 0)),
			}
		},
	},
}

// TestSickShards: each disease is in `check config --online` and in `shards` with the server's name
// and what to do; from the refresh that sees it on the group's queries are evaluated from series
// and are exact, and when it is over the shards compute again.
func TestSickShards(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	var well []string // the first three, which all share
	for i := range 3 {
		w := &ward{t: t, now: now}
		well = append(well, w.server(localprom.Options{}, w.patients([]int{3 * i, 3*i + 1, 3*i + 2}, 0, 0)))
	}
	for _, d := range diseases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			w := &ward{t: t, now: now}
			fourth := w.server(d.options, d.data(w))
			w.target.Store(&fourth)
			front := fakeshard.Start(t, fakeshard.Config{Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
				a := forward(*w.target.Load(), r)
				if f := w.change.Load(); f != nil {
					(*f)(r.Path, &a)
				}
				return a, true
			}})
			w.config = (&quartet{}).config(append(slices.Clone(well), front.URL()))
			w.s, w.url = startProxy(t, t.Context(), w.config, func(o *Options) {
				// oftener, and reading them is all that the machine does
				o.shards = shard.Options{FactsEvery: time.Second, ProbeInterval: time.Second}
				o.Ready = func(_, admin netAddr) { w.admin = "http://" + admin.String() }
			})
			becomes := d.change != nil || d.other != nil
			if becomes {
				w.isWell()
				if d.change != nil {
					w.change.Store(&d.change)
				} else {
					other := w.server(localprom.Options{}, d.other(w))
					w.target.Store(&other)
				}
			}
			w.isSick(d.kind, d.says, front.Addr())
			var references []string
			for _, held := range d.held(w) {
				all := slices.Concat(w.patients([]int{3, 4, 5, 6, 7, 8}, 0, 0), held)
				if !d.twice {
					all = slices.Concat(all, w.patients([]int{0, 1, 2}, 0, 0))
				}
				references = append(references, w.server(localprom.Options{ExternalLabels: labels.EmptyLabels()}, clustered(all)))
			}
			w.isExact(references, d.twice)
			if becomes {
				w.target.Store(&fourth)
				w.change.Store(nil)
				w.isWell()
			}
		})
	}
}

// clustered are the series with the group's label.
func clustered(in []storedSeries) []storedSeries {
	var out []storedSeries
	for _, s := range in {
		out = append(out, storedSeries{lbls: labels.NewBuilder(s.lbls).Set("cluster", "jaguar").Labels(), points: s.points})
	}
	return out
}

func (w *ward) rig() *rig { return &rig{t: w.t, s: w.s, url: w.url, client: newClient(w.t)} }

// shards is the admin view.
func (w *ward) shards() []shard.Info {
	w.t.Helper()
	resp, err := http.Get(w.admin + "/api/spillway/v1/shards")
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var env struct {
		Status string
		Data   []shard.Info
	}
	if err := json.NewDecoder(resp.Body).Decode(&env); err != nil || env.Status != "success" {
		w.t.Fatalf("shards: %v, status %q", err, env.Status)
	}
	return env.Data
}

// online is what `check config --online` prints.
func (w *ward) online() string {
	w.t.Helper()
	cfg, err := config.Parse([]byte(w.config), w.t.TempDir())
	if err != nil {
		w.t.Fatal(err)
	}
	problems, err := shard.CheckOnline(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	var lines []string
	for _, p := range problems {
		lines = append(lines, fmt.Sprint(p))
	}
	return strings.Join(lines, "\n")
}

// pushes tells whether the shards compute an aggregation of the group.
func (w *ward) pushes() bool {
	w.t.Helper()
	raw := plans(w.t, w.s, "raw")
	if code, body := ask(w.t, w.url, "/api/v1/query",
		url.Values{"query": {`sum(up{cluster="jaguar"})`}, "time": {stamp(w.now.Add(-5 * time.Minute))}}); code != 200 {
		w.t.Fatalf("sum(up): %d %s", code, body)
	}
	return plans(w.t, w.s, "raw") == raw
}

func (w *ward) isWell() {
	w.t.Helper()
	w.rig().eventually("the group is trusted", func() bool {
		return !slices.ContainsFunc(w.shards(), func(i shard.Info) bool { return !i.GroupTrusted || len(i.Sick) > 0 })
	})
	if !w.pushes() {
		w.t.Error("the group is well, and its shards do not compute")
	}
	if text := w.online(); text != "" {
		w.t.Errorf("check config --online of a group that is well: %s", text)
	}
	if n := w.rig().metric("spillway_group_sick", "group=jaguar"); n != 0 {
		w.t.Errorf("spillway_group_sick is %v", n)
	}
}

// isSick waits for the refresh and checks what is said of it.
func (w *ward) isSick(kind string, says []string, addr string) {
	w.t.Helper()
	w.rig().eventually("the group is sick", func() bool { return !w.shards()[0].GroupTrusted })
	var sentences []string
	for _, i := range w.shards() {
		if i.GroupTrusted {
			w.t.Errorf("%s is of a group that is trusted", i.URL)
		}
		sentences = append(sentences, i.Sick...)
		if len(i.Sick) > 0 && !strings.Contains(i.URL, addr) {
			w.t.Errorf("%s is called sick: %q; it is %s", i.URL, i.Sick, addr)
		}
	}
	view, check := strings.Join(sentences, "\n"), w.online()
	for _, s := range says {
		if !strings.Contains(view, s) || !strings.Contains(check, s) {
			w.t.Errorf("%q is not in both, shards: %q, check config --online: %q", s, view, check)
		}
	}
	if !strings.Contains(check, addr) || !strings.Contains(check, "groups[0].shards[3].replicas[0]") {
		w.t.Errorf("check config --online does not say where: %s", check)
	}
	if w.rig().metric("spillway_group_sick", "group=jaguar", "kind="+kind) != 1 {
		w.t.Errorf("spillway_group_sick{kind=%q} is not 1", kind)
	}
	if w.pushes() {
		w.t.Error("the group is sick, and its shards still compute")
	}
}

// isExact compares with references, each of which holds one of the copies of what two servers hold:
// an answer must be one of theirs, as a whole series comes from one copy where neither has a gap.
// Where there are copies, it must say so, and be counted.
func (w *ward) isExact(references []string, twice bool) {
	w.t.Helper()
	before := w.rig().metric("spillway_duplicate_series_total")
	for _, expr := range []string{
		`up`, `sum(up)`, `count by (job) (up)`, `rate(requests_total[2m])`, `max(rate(requests_total[2m]))`,
		`sum by (code) (rate(requests_total[5m]))`, `topk(2, requests_total)`,
		`count_over_time(up[5m])`, `avg(up)`, `up{node="n9"}`, `min(requests_total) by (node)`,
	} {
		for _, path := range []string{"/api/v1/query", "/api/v1/query_range"} {
			form := url.Values{"query": {expr}, "time": {stamp(w.now.Add(-11 * time.Minute))}}
			if strings.HasSuffix(path, "_range") {
				form = url.Values{
					"query": {expr}, "start": {stamp(w.now.Add(-20 * time.Minute))},
					"end": {stamp(w.now.Add(-3 * time.Minute))}, "step": {"30"},
				}
			}
			code, body := ask(w.t, w.url, path, form)
			got, msg := fromJSON(w.t, body)
			if code != 200 {
				w.t.Errorf("%s: %d %s", expr, code, msg)
				continue
			}
			var diffs []string
			for _, ref := range references {
				_, body := ask(w.t, ref, path, form)
				want, _ := fromJSON(w.t, body)
				diff := compare(got, want, 1e-12)
				if diff == "" {
					diffs = nil
					break
				}
				diffs = append(diffs, diff)
			}
			if diffs != nil {
				w.t.Errorf("%s %s: %s", path, expr, strings.Join(diffs, "; or "))
			}
			warned := strings.Contains(string(body), "held by two shards")
			if hits := !strings.Contains(expr, "n9"); warned != (twice && hits) {
				w.t.Errorf("%s %s: warned of duplicates: %v; %.200s", path, expr, warned, body[max(0, len(body)-200):])
			}
		}
	}
	if n := w.rig().metric("spillway_duplicate_series_total") - before; (n > 0) != twice {
		w.t.Errorf("spillway_duplicate_series_total went up by %v", n)
	}
}
