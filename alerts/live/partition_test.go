package live

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/proxy/server"
	"github.com/spillwayproject/spillway/proxy/server/servertest"
)

// side is what stands between one Prometheus and its targets: it answers for them, or lets the
// connection hang as a network does that drops packets.
type side struct {
	lost atomic.Pointer[func(target int) bool]
	end  chan struct{}
	srv  *httptest.Server
}

const (
	sideTargets = 20
	deadTarget  = sideTargets - 1 // for everybody
)

func targetName(i int) string { return fmt.Sprintf("t%02d.test:80", i) }

func newSide(t *testing.T) *side {
	s := &side{end: make(chan struct{})}
	s.cut(func(int) bool { return false })
	began := time.Now()
	s.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSuffix(r.URL.Hostname(), ".test"), "t"))
		if err != nil {
			http.Error(w, "no such target", http.StatusNotFound)
			return
		}
		if n == deadTarget || (*s.lost.Load())(n) {
			select {
			case <-r.Context().Done():
			case <-s.end:
			}
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, "# TYPE requests_total counter\nrequests_total %g\n", float64(n+1)*time.Since(began).Seconds())
	}))
	t.Cleanup(func() {
		close(s.end)
		s.srv.Close()
	})
	return s
}

// cut loses the targets for which f is true from now on.
func (s *side) cut(f func(int) bool) { s.lost.Store(&f) }

// sidedProxy is Spillway over both, and the registry of its metrics.
func sidedProxy(t *testing.T, urls ...string) (string, *prometheus.Registry) {
	t.Helper()
	text := "groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    replica_labels: [replica]\n    heartbeat: up\n    shards:\n      - replicas:\n"
	for _, u := range urls {
		text += fmt.Sprintf("          - {url: %q}\n", u)
	}
	reg := prometheus.NewRegistry()
	u, _ := servertest.Start(t, text, func(o *server.Options) { o.Registerer, o.Gatherer = reg, reg })
	return u, reg
}

// asker asks the proxy.
type asker struct {
	url    string
	client *http.Client
}

func (a asker) ask(ctx context.Context, path string, form url.Values, result any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+path+"?"+form.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Warnings      []string
		Data          struct{ Result json.RawMessage }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" || len(answer.Warnings) > 0 {
		return fmt.Errorf("%s: %s %q", form.Get("query"), answer.Error, answer.Warnings)
	}
	return json.Unmarshal(answer.Data.Result, result)
}

func (a asker) instant(ctx context.Context, query string, at time.Time) (model.Vector, error) {
	var v model.Vector
	return v, a.ask(ctx, "/api/v1/query", url.Values{"query": {query}, "time": {fmt.Sprintf("%.3f", float64(at.UnixMilli())/1000)}}, &v)
}

// series asks a range query with a step of a second.
func (a asker) series(ctx context.Context, query string, from, until time.Time) (model.Matrix, error) {
	var m model.Matrix
	return m, a.ask(ctx, "/api/v1/query_range", url.Values{
		"query": {query}, "start": {strconv.FormatInt(from.Unix(), 10)},
		"end": {strconv.FormatInt(until.Unix(), 10)}, "step": {"1"},
	}, &m)
}

// instances are those of a vector, sorted.
func instances(v model.Vector) []string {
	out := []string{}
	for _, s := range v {
		out = append(out, string(s.Metric["instance"]))
	}
	slices.Sort(out)
	return out
}

// untrue is what is wrong with what the proxy says of the targets now; empty where nothing is.
func (a asker) untrue(ctx context.Context) (string, error) {
	now := time.Now()
	down, err := a.instant(ctx, `up{job="node"} == 0`, now)
	if err != nil {
		return "", err
	}
	if got, want := instances(down), []string{targetName(deadTarget)}; !slices.Equal(got, want) {
		return fmt.Sprintf("up == 0 is %v", got), nil
	}
	for query, want := range map[string]model.SampleValue{
		`count(up{job="node"})`: sideTargets, `sum(up{job="node"})`: sideTargets - 1,
		`count(rate(requests_total[15s]) > 0)`: sideTargets - 1,
	} {
		got, err := a.instant(ctx, query, now)
		if err != nil {
			return "", err
		}
		if len(got) != 1 || got[0].Value != want {
			return fmt.Sprintf("%s is %v", query, got), nil
		}
	}
	return "", nil
}

// wrongSteps are the steps of range queries at which they do not say what was true, from the first
// at which every target was scraped.
func (a asker) wrongSteps(ctx context.Context, from, until time.Time) ([]string, error) {
	var out []string
	for query, want := range map[string]model.SampleValue{
		`up{job="node"}`:                                   1, // but of the one that is dead
		`count(up{job="node"})`:                            sideTargets,
		`sum(up{job="node"})`:                              sideTargets - 1,
		`count(up{job="node"} == 0)`:                       1,
		`max(changes(up{job="node"}[2m]))`:                 0,
		`count(rate(requests_total{job="node"}[15s]) > 0)`: sideTargets - 1,
	} {
		m, err := a.series(ctx, query, from, until)
		if err != nil {
			return nil, err
		}
		if n := map[bool]int{true: sideTargets, false: 1}[strings.HasPrefix(query, "up")]; len(m) != n {
			out = append(out, fmt.Sprintf("%s has %d series, not %d", query, len(m), n))
		}
		for _, s := range m {
			v := want
			if string(s.Metric["instance"]) == targetName(deadTarget) {
				v = 0
			}
			if n := int(until.Unix()-from.Unix()) + 1; len(s.Values) != n {
				out = append(out, fmt.Sprintf("%s: %s has %d of %d steps", query, s.Metric, len(s.Values), n))
			}
			for _, p := range s.Values {
				if p.Value != v {
					out = append(out, fmt.Sprintf("%s: %s at +%ds is %s, not %s", query, s.Metric, p.Timestamp.Unix()-from.Unix(), p.Value,
						v))
				}
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// TestTroublesPartition: two real Prometheus servers scrape the same targets; one of them is cut
// off from all of them, then from half, and then the other one. Through the proxy up, what is
// computed from it and an alert on it say what is true of the targets: while it lasts, from when
// the metrics say who is cut off; afterwards; and of all times in range queries. The metrics say so
// within a minute.
func TestTroublesPartition(t *testing.T) {
	calm, cut, between, hold := 14*time.Second, 28*time.Second, 18*time.Second, 30*time.Second
	if *all {
		cut, between, hold = 65*time.Second, 18*time.Second, time.Minute
	}
	var sides [2]*side
	var urls []string
	for i := range sides {
		sides[i] = newSide(t)
		var names []string
		for n := range sideTargets {
			names = append(names, targetName(n))
		}
		s := realpromtest.Start(t, realprom.Options{Config: fmt.Sprintf("global: {scrape_interval: 2s, scrape_timeout: 2s, external_labels: {cluster: jaguar, replica: %s}}\nscrape_configs:\n  - job_name: node\n    proxy_url: %q\n    static_configs: [{targets: [%s]}]\n",
			replicaName(i), sides[i].srv.URL, strings.Join(names, ", "))})
		urls = append(urls, s.URL())
	}
	began := time.Now().Add(5 * time.Second).Truncate(time.Second)
	proxy, reg := sidedProxy(t, urls...)
	a := asker{proxy, &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(a.client.CloseIdleConnections)
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(`up{job="node"} == 0`)
	if err != nil {
		t.Fatal(err)
	}
	alert := rules.NewAlertingRule("TargetDown", expr, hold, 0, labels.EmptyLabels(), labels.EmptyLabels(), labels.EmptyLabels(), "", false,
		slog.New(slog.DiscardHandler))
	query := func(ctx context.Context, q string, at time.Time) (promql.Vector, error) {
		v, err := a.instant(ctx, q, at)
		var out promql.Vector
		for _, s := range v {
			b := labels.NewBuilder(labels.EmptyLabels())
			for n, v := range s.Metric {
				b.Set(string(n), string(v))
			}
			out = append(out, promql.Sample{T: at.UnixMilli(), F: float64(s.Value), Metric: b.Labels()})
		}
		return out, err
	}
	unreached := func() (out [2]float64) {
		mfs, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range mfs {
			if f.GetName() != "spillway_shard_replica_unreached_ratio" {
				continue
			}
			for _, m := range f.Metric {
				for _, l := range m.Label {
					if i := slices.IndexFunc(urls, func(u string) bool { return u == "http://"+l.GetValue() }); i >= 0 {
						out[i] = m.GetGauge().GetValue()
					}
				}
			}
		}
		return out
	}
	// watch looks on for so long. whose is who is cut off, -1 nobody; share of what.
	watch := func(what string, d time.Duration, whose int, share float64) {
		t.Helper()
		start := time.Now()
		told, lies, last := time.Duration(-1), 0, time.Duration(0)
		for {
			at := time.Since(start)
			if at >= d && (whose < 0 || told >= 0) || at > d+time.Minute {
				break
			}
			if u := unreached(); told < 0 && whose >= 0 && u[whose] > 0 {
				told = at
			} else if told >= 0 && (whose < 0 || u[1-whose] > 0) {
				t.Errorf("%s: %.1f s: the metrics say that the other one is cut off: %v", what, at.Seconds(), u)
			}
			wrong, err := a.untrue(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if wrong != "" {
				lies, last = lies+1, time.Since(start)
				if whose < 0 || told >= 0 {
					t.Errorf("%s: %.1f s: %s", what, at.Seconds(), wrong)
				}
			}
			if _, err := alert.Eval(t.Context(), 0, time.Now(), query, nil, 0); err != nil {
				t.Fatal(err)
			}
			for _, al := range alert.ActiveAlerts() {
				if i := al.Labels.Get("instance"); al.State == rules.StateFiring && i != targetName(deadTarget) {
					t.Errorf("%s: the alert fires for %s", what, i)
				}
			}
			time.Sleep(500 * time.Millisecond)
		}
		if whose < 0 {
			t.Logf("%s: %d untrue answers", what, lies)
			return
		}
		if told < 0 || told > time.Minute {
			t.Errorf("%s: the metrics said so after %s", what, told)
		}
		t.Logf("%s: the metrics said so after %.1f s; %d untrue answers before, the last after %.1f s", what, told.Seconds(), lies, last.Seconds())
		if u := unreached(); u[whose] < share-0.05 || u[whose] > share+0.05 {
			t.Errorf("%s: at its end the metrics say %v, want %g", what, u, share)
		}
		until := time.Now().Add(-3 * time.Second)
		wrongs, err := a.wrongSteps(t.Context(), began.Add(15*time.Second), until)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range wrongs {
			if i < 10 {
				t.Errorf("%s, looking back: %s", what, w)
			}
		}
		t.Logf("%s: %d steps of range queries are untrue, looking back", what, len(wrongs))
	}
	time.Sleep(time.Until(began.Add(15 * time.Second)))
	watch("calm", calm, -1, 0)
	sides[0].cut(func(int) bool { return true })
	watch("the first is cut off from all", cut, 0, 1)
	sides[0].cut(func(int) bool { return false })
	watch("it is back", between, -1, 0)
	if *all {
		sides[0].cut(func(n int) bool { return n%2 == 0 })
		watch("it is cut off from half", cut, 0, 10./19)
		sides[0].cut(func(int) bool { return false })
		watch("it is back again", between, -1, 0)
		sides[1].cut(func(n int) bool { return n%2 == 0 }) // who missed less until now
		watch("the second is cut off from half", cut, 1, 10./19)
		sides[1].cut(func(int) bool { return false })
		watch("it is back too", calm, -1, 0)
	} else {
		t.Log("one that is cut off from half, and then the other one, are looked at with -live.all, for three minutes more")
	}
	firing := 0
	for _, al := range alert.ActiveAlerts() {
		if al.State == rules.StateFiring && al.Labels.Get("instance") == targetName(deadTarget) {
			firing++
		}
	}
	if firing != 1 {
		t.Errorf("the alert fires %d times for the target that is dead", firing)
	}
}
