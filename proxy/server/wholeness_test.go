package server

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/internal/localprom"
)

// promShard is a real Prometheus API over series that are given as they are stored.
func promShard(t testing.TB, external labels.Labels, series []storedSeries) *localprom.Shard {
	t.Helper()
	return promShardWith(t, localprom.Options{ExternalLabels: external}, series)
}

// promShardWith is one with options.
func promShardWith(t testing.TB, o localprom.Options, series []storedSeries) *localprom.Shard {
	t.Helper()
	o.DisableWAL, o.Features = true, []string{"promql-experimental-functions"}
	p, err := localprom.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := p.Append(func(app storage.Appender) error {
		for _, s := range series {
			for _, pt := range s.points {
				var err error
				if pt.h != nil {
					_, err = app.AppendHistogram(0, s.lbls, pt.t, pt.h, nil)
				} else {
					_, err = app.Append(0, s.lbls, pt.t, pt.f)
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// scraped are up and a counter of so many nodes, as a replica with the phase has them, without the
// samples for which skip is true.
func scraped(nodes int, from, until time.Time, phase time.Duration, skip func(node int, at time.Time) bool) []storedSeries {
	var out []storedSeries
	for n := range nodes {
		up := storedSeries{lbls: labels.FromStrings("__name__", "up", "job", "node", "node", fmt.Sprintf("n%d", n))}
		c := storedSeries{lbls: labels.FromStrings("__name__", "requests_total", "job", "node", "node", fmt.Sprintf("n%d", n))}
		for at := from.Add(phase); at.Before(until); at = at.Add(15 * time.Second) {
			if skip != nil && skip(n, at) {
				continue
			}
			up.points = append(up.points, point{t: at.UnixMilli(), f: 1})
			c.points = append(c.points, point{t: at.UnixMilli(), f: float64(at.UnixMilli()-from.UnixMilli()) * float64(n+1) / 1000})
		}
		out = append(out, up, c)
	}
	return out
}

// plans is how many queries were answered in the mode.
func plans(t testing.TB, s *Server, mode string) float64 {
	t.Helper()
	r := &rig{t: t, s: s}
	return r.metric("spillway_query_plans_total", "mode="+mode)
}

func replicasConfig(heartbeat string, urls ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    replica_labels: [replica]\n%s    shards:\n      - replicas:\n", heartbeat)
	for _, u := range urls {
		fmt.Fprintf(&b, "          - {url: %q}\n", u)
	}
	return b.String()
}

// Of two replicas one that lacks nothing is asked for the whole answer. Where each lacks something
// at its time, the steps are divided between them; where both do at one time, or without a
// heartbeat, their samples are spliced. A gap is in no answer.
func TestWholeReplicasPass(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	from, until := now.Add(-50*time.Minute), now.Add(-time.Second)
	gap := func(_ int, at time.Time) bool {
		return at.After(now.Add(-26*time.Minute)) && at.Before(now.Add(-22*time.Minute))
	}
	one := func(_ int, at time.Time) bool {
		return at.After(now.Add(-26*time.Minute)) && at.Before(now.Add(-26*time.Minute+14*time.Second))
	}
	later := func(_ int, at time.Time) bool {
		return at.After(now.Add(-16*time.Minute)) && at.Before(now.Add(-14*time.Minute))
	}
	node := func(n int, at time.Time) bool { return n == 2 && gap(n, at) }
	for _, c := range []struct {
		name, heartbeat string
		skip, other     func(int, time.Time) bool // what each of the two lacks
		mode            string
		failed          bool // what is skipped was tried, and failed
	}{
		{"whole", "    heartbeat: up\n", nil, nil, "pass", false},
		{
			"one scrape of one target less", "    heartbeat: up\n", func(n int, at time.Time) bool { return n == 0 && one(n, at) }, nil,
			"pass", false,
		},
		{"one scrape of the server less", "    heartbeat: up\n", one, nil, "pass", false},
		{"a gap of the server", "    heartbeat: up\n", gap, nil, "pass", false},
		{"a gap of one target", "    heartbeat: up\n", node, nil, "pass", false},
		{"the server does not reach its targets", "    heartbeat: up\n", gap, nil, "pass", true},
		{"the server does not reach one target", "    heartbeat: up\n", node, nil, "pass", true},
		{"gaps at different times", "    heartbeat: up\n", gap, later, "stretches", false},
		{"the other way round", "    heartbeat: up\n", later, gap, "stretches", false},
		{"no heartbeat", "", nil, nil, "raw", false},
		{"a heartbeat that nobody has", "    heartbeat: nothing_like_this\n", nil, nil, "raw", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			held := scraped(5, from, until, 2*time.Second, c.skip)
			if c.failed { // up of every scrape is there, 0 where it failed
				for i, s := range scraped(5, from, until, 2*time.Second, nil) {
					if s.lbls.Get("__name__") != "up" {
						continue
					}
					for j := range s.points {
						if c.skip(i/2, time.UnixMilli(s.points[j].t)) {
							s.points[j].f = 0
						}
					}
					held[i] = s
				}
			}
			a := promShard(t, labels.FromStrings("cluster", "jaguar", "replica", "a"), held)
			b := promShard(t, labels.FromStrings("cluster", "jaguar", "replica", "b"), scraped(5, from, until, 9*time.Second, c.other))
			s, base := startProxy(t, t.Context(), replicasConfig(c.heartbeat, a.URL(), b.URL()))
			start, end := now.Add(-30*time.Minute), now.Add(-12*time.Minute)
			form := url.Values{"start": {stamp(start)}, "end": {stamp(end)}, "step": {"30"}}
			for _, expr := range []string{`count(count_over_time(up[40s]))`, `sum by (node) (rate(requests_total{cluster="jaguar"}[2m]))`, `requests_total{node="n2"}`} {
				form.Set("query", expr)
				before := plans(t, s, c.mode)
				code, body := ask(t, base, "/api/v1/query_range", form)
				got, msg := fromJSON(t, body)
				if code != 200 {
					t.Fatalf("%s: %d %s", expr, code, msg)
				}
				if plans(t, s, c.mode) != before+1 {
					t.Errorf("%s is not answered in mode %s", expr, c.mode)
				}
				if c.mode == "pass" { // byte for byte one replica's own
					var direct [2]valuesAt
					for i, u := range []string{a.URL(), b.URL()} {
						_, body := ask(t, u, "/api/v1/query_range",
							url.Values{
								"query": {strings.ReplaceAll(expr, `{cluster="jaguar"}`, "")}, "start": form["start"],
								"end": form["end"], "step": form["step"],
							})
						direct[i], _ = fromJSON(t, body)
						if strings.HasPrefix(expr, "requests_total{") {
							for k, v := range direct[i] {
								delete(direct[i], k)
								direct[i][strings.Replace(k, `{__name__="requests_total", `,
									`{__name__="requests_total", cluster="jaguar", `, 1)] = v
							}
						}
					}
					if d0, d1 := compare(got, direct[0], 0), compare(got, direct[1], 0); d0 != "" && d1 != "" {
						t.Errorf("%s: neither replica's answer: %s; %s", expr, d0, d1)
					}
				}
				for key, points := range got {
					if len(points) != 37 {
						t.Errorf("%s: %s has %d of 37 points", expr, key, len(points))
					}
					if strings.HasPrefix(expr, "count(") {
						for at, v := range points {
							if v != "5" {
								t.Errorf("%s at %d: %s of 5 targets", expr, at, v)
							}
						}
					}
				}
			}
		})
	}
}

// The open bucket counts while the replica lacked nothing over the last minute: a dashboard's range
// that ends now is passed, to the other one where one has stopped scraping.
func TestWholeUntilNow(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	for _, c := range []struct {
		name string
		skip func(int, time.Time) bool
		mode string
	}{
		{"both go on", nil, "pass"},
		{"one stopped three minutes ago", func(_ int, at time.Time) bool { return at.After(now.Add(-3 * time.Minute)) }, "pass"},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Samples of the next minutes are there already: nobody scrapes while the test runs.
			from, until := now.Add(-40*time.Minute), now.Add(5*time.Minute)
			a := promShard(t, labels.FromStrings("replica", "a"), scraped(5, from, until, 2*time.Second, c.skip))
			b := promShard(t, labels.FromStrings("replica", "b"), scraped(5, from, until, 9*time.Second, nil))
			s, base := startProxy(t, t.Context(), replicasConfig("    heartbeat: up\n", a.URL(), b.URL()))
			before := plans(t, s, c.mode)
			code, body := ask(t, base, "/api/v1/query", url.Values{"query": {`count(up)`}})
			got, msg := fromJSON(t, body)
			if code != 200 || plans(t, s, c.mode) != before+1 {
				t.Errorf("%d %s: not in mode %s", code, msg, c.mode)
			}
			for _, points := range got {
				for _, v := range points {
					if v != "5" {
						t.Errorf("count(up) is %s", v)
					}
				}
			}
		})
	}
}

// Of two whole replicas the one that is read fails: the other one answers, in every mode and
// without a warning, before any probe has noticed.
func TestWholeReplicaFails(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	from, until := now.Add(-40*time.Minute), now.Add(-time.Second)
	for _, partial := range []string{"", "partial_response: warn\n"} {
		for _, expr := range []string{`count(up)`, `count by (c) (label_replace(up, "c", "$1", "cluster", "(.*)"))`} {
			t.Run(expr+partial, func(t *testing.T) {
				a := promShard(t, labels.FromStrings("replica", "a"), scraped(5, from, until, 2*time.Second, nil))
				b := promShard(t, labels.FromStrings("replica", "b"), scraped(5, from, until, 9*time.Second, nil))
				_, base := startProxy(t, t.Context(), replicasConfig("    heartbeat: up\n", a.URL(), b.URL())+partial)
				form := url.Values{"query": {expr}, "time": {stamp(now.Add(-15 * time.Minute))}}
				code, body := ask(t, base, "/api/v1/query", form)
				want, msg := fromJSON(t, body)
				if code != 200 || len(want) != 1 {
					t.Fatalf("%d %s", code, msg)
				}
				if err := a.Close(); err != nil { // the first listed is the base
					t.Fatal(err)
				}
				for range 3 {
					code, body = ask(t, base, "/api/v1/query", form)
					got, msg := fromJSON(t, body)
					if code != 200 {
						t.Fatalf("without the base: %d %s", code, msg)
					}
					if diff := compare(got, want, 0); diff != "" || strings.Contains(string(body), "warnings") {
						t.Errorf("without the base: %s: %s", diff, body)
					}
				}
			})
		}
	}
}

// external keeps what TestUndeclaredExternalLabels expects together.
type external struct {
	name, group string
	labels      labels.Labels
	state, says string
}

// A server with an external label that its group does not name, or with another value, is not
// asked: the answer names it, and the view says what to do.
func TestUndeclaredExternalLabels(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	data := scraped(2, now.Add(-10*time.Minute), now, time.Second, nil)
	for _, c := range []external{
		{"declared", "labels: {cluster: jaguar}, replica_labels: [replica]", labels.FromStrings("cluster", "jaguar", "replica", "a"), "up", ""},
		{"none", "labels: {cluster: jaguar}, replica_labels: [replica]", labels.EmptyLabels(), "up", ""},
		{"undeclared", "labels: {cluster: jaguar}, replica_labels: [replica]", labels.FromStrings("cluster", "jaguar", "region", "eu"), "misconfigured", `region: "eu"`},
		{"contradicts", "labels: {cluster: jaguar}", labels.FromStrings("cluster", "ibis"), "misconfigured", "ibis"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := promShard(t, c.labels, data)
			s, base := startProxy(t, t.Context(), fmt.Sprintf("groups: [{name: g, %s, shards: [{replicas: [{url: %q}]}]}]\n", c.group, p.URL()))
			info := s.state.Load().top.Status()[0]
			if string(info.State) != c.state || c.says != "" && !strings.Contains(strings.Join(info.Do, "\n"), c.says) {
				t.Errorf("state %s, advice %q; want %s and %q", info.State, info.Do, c.state, c.says)
			}
			for _, path := range []string{
				"/api/v1/query?query=up", "/api/v1/series?match[]=up", "/api/v1/labels",
				"/api/v1/label/job/values", "/federate?match[]=up", "/api/v1/metadata", "/api/v1/rules",
			} {
				path, q, _ := strings.Cut(path, "?")
				form, err := url.ParseQuery(q)
				if err != nil {
					t.Fatal(err)
				}
				r := &rig{t: t, s: s, url: base, client: newClient(t)}
				got := r.ask(r.request(context.Background(), asking{path: path, form: form}))
				switch {
				case c.state == "up" && got.status != 200:
					t.Errorf("%s: %s", path, got)
				case c.state != "up" && (got.status != 502 || !strings.Contains(string(got.body), strings.TrimPrefix(p.URL(), "http://"))):
					t.Errorf("%s: want 502 naming the server, got %s", path, got)
				}
			}
		})
	}
}

// The shards' own evaluation interval is the step of a subquery without one, on every road; their
// lookback reaches as far back as they look.
func TestEngineSettingsOfShards(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	boundary := now.Add(-20 * time.Minute)
	rfc := boundary.UTC().Format(time.RFC3339)
	start := func(series []storedSeries) *localprom.Shard {
		p, err := localprom.Start(t.Context(),
			localprom.Options{DisableWAL: true, Config: "global: {evaluation_interval: 20s}\n", LookbackDelta: 15 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.Close(); err != nil {
				t.Error(err)
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
			t.Fatal(err)
		}
		return p
	}
	at := func(v float64, ago ...time.Duration) []storedSeries {
		s := storedSeries{lbls: labels.FromStrings("__name__", "m")}
		for _, d := range ago {
			s.points = append(s.points, point{t: boundary.Add(-d).UnixMilli(), f: v})
		}
		return []storedSeries{s}
	}
	// The younger server has a sample before its beginning that is not its own; the older one's
	// last sample counts.
	a, b := start(at(1, 5*time.Minute, time.Minute)), start(at(2, 2*time.Minute))
	s, base := startProxy(t, t.Context(), fmt.Sprintf("groups:\n  - name: g\n    shards:\n      - {until: %s, replicas: [{url: %q}]}\n      - {from: %s, replicas: [{url: %q}]}\n", rfc, a.URL(), rfc, b.URL()))
	for _, c := range []struct{ expr, want, mode string }{
		{`m`, "1", "raw"},
		{`count_over_time(m[2m:])`, "6", "raw"},
		{`count_over_time(m[2m:] @ ` + stamp(boundary.Add(-time.Minute)) + `)`, "6", "pass"},
	} {
		before := plans(t, s, c.mode)
		code, body := ask(t, base, "/api/v1/query", url.Values{"query": {c.expr}, "time": {stamp(boundary.Add(12 * time.Minute))}})
		got, msg := fromJSON(t, body)
		if code != 200 || len(got) != 1 || plans(t, s, c.mode) != before+1 {
			t.Errorf("%s: %d %s %v, in mode %s?", c.expr, code, msg, got, c.mode)
		}
		for _, points := range got {
			for _, v := range points {
				if v != c.want {
					t.Errorf("%s: %s, want %s", c.expr, v, c.want)
				}
			}
		}
	}
}

// TestWindowsByTheServersLookback: what a selector reads is reckoned with the lookback of the
// servers. After two restarts, one after the other, a replica is whole for what looks back for less
// than the time since.
func TestWindowsByTheServersLookback(t *testing.T) {
	for _, tc := range []struct {
		lookback time.Duration
		whole    bool
	}{{30 * time.Second, true}, {5 * time.Minute, false}} {
		now := time.Now().Truncate(time.Second)
		var urls []string
		for i, away := range []time.Duration{255 * time.Second, 150 * time.Second} {
			gone := func(_ int, at time.Time) bool {
				return at.After(now.Add(-away)) && at.Before(now.Add(-away+40*time.Second))
			}
			held := scraped(60, now.Add(-30*time.Minute), now.Add(time.Minute), time.Duration(1+4*i)*time.Second, gone)
			o := localprom.Options{ExternalLabels: labels.FromStrings("replica", fmt.Sprint(i)), LookbackDelta: tc.lookback}
			urls = append(urls, promShardWith(t, o, held).URL())
		}
		_, base := startProxy(t, t.Context(), replicasConfig("    heartbeat: up\n", urls...)+"limits: {max_series: 25}\n")
		for _, query := range []string{"count(topk by (node) (1, requests_total))", "stddev(requests_total)"} {
			code, body := ask(t, base, "/api/v1/query", url.Values{"query": {query}, "time": {stamp(now)}})
			if (code == 200) != tc.whole {
				t.Errorf("%s, looking back for %s: %d %.300s", query, tc.lookback, code, body)
			}
		}
	}
}
