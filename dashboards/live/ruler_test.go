package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/dashboards"
	"github.com/spillwayproject/spillway/deploy/alertmanager"
	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
)

// soon bounds the wait for one step of TestScrapedRuler. A step takes as long as its counters need
// to be scraped a few times, and Alertmanager to give up a notification, which is ten seconds.
const soon = time.Minute

// calmAs is what panels of Elsewhere show while all is well; the others are empty.
var calmAs = map[string]string{
	"alerts: Alerts in Alertmanager":               "zero",
	"alerts: Alerts that the ruler could not send": "zero",
	"alerts: Evaluations of the ruler":             "more",
	"alerts: Groups whose evaluation fails":        "zero",
}

// TestScrapedRuler: a real ruler, a real Alertmanager and the proxy, scraped. While all is well the
// panels about them say so, no panel takes the Watchdog for an alert, and no annotation is there;
// with the troubles of Elsewhere staged each of its panels shows its own, and the annotations say
// what began.
func TestScrapedRuler(t *testing.T) {
	r := startScraped(t)
	alone := func(context.Context) {}
	r.until(t, "the ruler, Alertmanager and the proxy are scraped and well", alone, func() string {
		for _, at := range slices.Sorted(maps.Keys(Elsewhere)) {
			want := calmAs[at]
			if want == "" {
				want = "none"
			}
			if got := r.shows(t, at); got != want {
				return fmt.Sprintf("%s shows %s, want %s", at, got, want)
			}
		}
		return ""
	})
	const watchdog = `count(ALERTS{alertname="Watchdog", alertstate="firing"} and on () (count(ALERTS{alertstate="firing"}) == 4))`
	if a, err := r.source.Ask(t.Context(), Question{Expr: watchdog, To: time.Now()}); err != nil || amount(a) != "more" {
		t.Fatalf("four Watchdogs and nothing else should fire: %+v, %v", a, err)
	}
	asks := func(q dashboards.Query) bool { return q.Panel != nil && strings.Contains(q.Expr, "ALERTS") }
	names := slices.DeleteFunc(dashboards.Names(), func(name string) bool { return !slices.ContainsFunc(load(t, name).Queries(), asks) })
	if len(names) < 2 {
		t.Fatalf("only %q have panels about alerts", names)
	}
	for _, name := range names {
		for _, q := range r.questions(t, name) {
			if !strings.Contains(q.Question.Expr, "ALERTS") && q.Annotation == nil {
				continue
			}
			if a := ask(t, r.source, q); a != nil && amount(a) == "more" {
				t.Errorf("%s: %s shows something where nothing but the Watchdog fires: %+v\n%s", name, q.Where, a.Series, q.Question.Expr)
			}
		}
	}

	r.stage(t)
	const last = "alerts: Alerts that the ruler could not send"
	r.until(t, "each panel shows its trouble", r.misuse, func() string {
		for _, at := range slices.Sorted(maps.Keys(Elsewhere)) {
			if at == last {
				continue
			}
			if got := r.shows(t, at); got != "more" {
				return fmt.Sprintf("%s shows %s with its trouble too: %s", at, got, Elsewhere[at])
			}
		}
		return ""
	})
	began := 0
	for _, q := range r.questions(t, "fleet") {
		if q.Annotation == nil {
			continue
		}
		began++
		if a := ask(t, r.source, q); a != nil && amount(a) != "more" {
			t.Errorf("annotation %s is not there where it should be: %+v\n%s", q.Where, a.Series, q.Question.Expr)
		}
	}
	if began != 3 {
		t.Errorf("%d annotations of the dashboard fleet were looked at, not those of pages, deploys and remediation", began)
	}
	if got := r.shows(t, last); got != "zero" {
		t.Errorf("%s shows %s before Alertmanager is gone", last, got)
	}
	if err := r.manager.Stop(); err != nil {
		t.Error(err)
	}
	r.until(t, "alerts are dropped", alone, func() string {
		if got := r.shows(t, last); got != "more" {
			return fmt.Sprintf("%s shows %s without an Alertmanager", last, got)
		}
		return ""
	})
}

// scrapedRuler is what TestScrapedRuler starts.
type scrapedRuler struct {
	source  Source // the Prometheus that scrapes
	abused  Source // the proxy of stage
	manager *alertmanager.Server
	hook    *httptest.Server // the receiver of notifications
	spill   string           // the program
	dir     string
	targets string // the file of discovery
	at      []target
	front   []*httptest.Server // of the Prometheus, for the proxy of stage
	staged  atomic.Bool
}

// target is a group of Prometheus' discovery by files.
type target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// watch has a server scraped, under the labels that deploy/ruler gives it.
func (r *scrapedRuler) watch(t *testing.T, job, address string) {
	t.Helper()
	r.at = append(r.at, target{[]string{address}, map[string]string{"job": job, "cluster": "monitoring"}})
	text, err := json.Marshal(r.at)
	if err != nil {
		t.Fatal(err)
	}
	next := r.targets + ".next" // Prometheus reads whole files only
	if err := errors.Join(os.WriteFile(next, text, 0o600), os.Rename(next, r.targets)); err != nil {
		t.Fatal(err)
	}
}

// write writes a file of the test.
func (r *scrapedRuler) write(t *testing.T, name string, content any) string {
	t.Helper()
	text, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// program starts one that listens on two ports, until the test ends.
func program(t *testing.T, path string, args func(at []string) []string) []string {
	t.Helper()
	p, at, err := realprom.StartOnPorts(t.Context(), realprom.PortOptions{Path: path, Ports: 2, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return at
}

// spillway starts the proxy and has it scraped.
func (r *scrapedRuler) spillway(t *testing.T, config string) (url string) {
	t.Helper()
	at := program(t, r.spill, func(at []string) []string {
		return []string{"proxy", "--config.file=" + config, "--web.listen-address=" + at[0], "--web.admin-listen-address=" + at[1]}
	})
	r.watch(t, "spillway", at[1])
	return "http://" + at[0]
}

// site is a page with what the rules are about.
func (r *scrapedRuler) site(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	fmt.Fprint(w, "cluster:nodes:count 3\nstaged{part=\"a\"} 1\n")
	generation := 3
	if r.staged.Load() {
		generation = 4
		fmt.Fprint(w, "staged{part=\"b\"} 1\n")
	}
	fmt.Fprintf(w, "kube_deployment_status_observed_generation{namespace=\"web\",deployment=\"shop\"} %d\n", generation)
}

func startScraped(t *testing.T) *scrapedRuler {
	t.Helper()
	thanos, err := realprom.Find("thanos")
	if err != nil {
		t.Fatal(err)
	}
	r := &scrapedRuler{spill: realpromtest.Spillway(t), dir: t.TempDir()}
	r.targets = filepath.Join(r.dir, "targets.json")
	serve := func(h http.HandlerFunc) *httptest.Server {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s
	}
	page := serve(r.site)
	r.hook = serve(func(http.ResponseWriter, *http.Request) {})
	conf, err := alertmanager.Rehearsal(alertmanager.Config, r.hook.URL, timeScale)
	if err != nil {
		t.Fatal(err)
	}
	if r.manager, err = alertmanager.Start(t.Context(), conf); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.manager.Stop(); err != nil {
			t.Error(err)
		}
	})
	r.watch(t, "alertmanager", strings.TrimPrefix(r.manager.URL(), "http://"))
	type m = map[string]any
	alert := func(name, expr, severity string) m {
		return m{"alert": name, "expr": expr, "labels": m{"severity": severity, "cluster": big}}
	}
	// What Prometheus evaluates by itself: a Watchdog of every severity that somebody may have
	// given it, a page, and work for the remediation controller.
	var own []m
	for _, severity := range []string{"critical", "warning", "auto", "info"} {
		own = append(own, alert("Watchdog", "vector(1)", severity))
	}
	const twice = "count(staged) > 1"
	own = append(own, alert("StagedPage", twice, "critical"), alert("StagedRepair", twice, "auto"))
	rules := r.write(t, "own.yaml", m{"groups": []m{{"name": "own", "rules": own}}})
	prom, err := realprom.Start(t.Context(),
		realprom.Options{Flags: []string{"--web.enable-remote-write-receiver"}, Config: string(marshal(t, m{
			"global":     m{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
			"rule_files": []string{rules},
			"scrape_configs": []m{
				{
					"job_name":       "kube-state-metrics",
					"static_configs": []target{{[]string{strings.TrimPrefix(page.URL, "http://")}, map[string]string{"cluster": big}}},
				},
				{"job_name": "others", "file_sd_configs": []m{{"files": []string{r.targets}, "refresh_interval": "1s"}}},
			},
		}))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := prom.Stop(); err != nil {
			t.Error(err)
		}
	})
	r.source = NewSource("Prometheus", prom.URL())
	r.abused = NewSource("the proxy that is misused", "")
	t.Cleanup(r.source.client.CloseIdleConnections)
	t.Cleanup(r.abused.client.CloseIdleConnections)
	to, err := url.Parse(prom.URL())
	if err != nil {
		t.Fatal(err)
	}
	for i := range fronts {
		r.front = append(r.front, serve(r.behind(i, &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }})))
	}
	base := r.spillway(t, r.write(t, "spillway.yaml",
		m{"groups": []m{{"name": "all", "heartbeat": "up", "shards": []m{{"replicas": []m{{"url": prom.URL()}}}}}}}))
	// The second of the ruler's groups joins with a series that is there once, until it is there
	// twice.
	global := r.write(t, "global.yaml", m{"groups": []m{
		{"name": "works", "rules": []m{{"record": "job:up:sum", "expr": "sum by (cluster, job) (up)"}, alert("Staged", twice, "critical")}},
		{"name": "joins", "rules": []m{{"record": "staged:up", "expr": "up * on (cluster, instance) staged"}}},
	}})
	remote := r.write(t, "remote-write.yaml", m{"remote_write": []m{{"url": prom.URL() + "/api/v1/write", "name": "rules"}}})
	at := program(t, thanos, func(at []string) []string {
		return []string{
			"rule", "--data-dir=" + filepath.Join(r.dir, "ruler"), "--rule-file=" + global, "--eval-interval=1s", "--resend-delay=1s",
			"--query=" + base, "--alertmanagers.url=" + r.manager.URL(),
			"--remote-write.config-file=" + remote, `--label=ruler_replica="0"`, "--alert.label-drop=ruler_replica",
			"--http-grace-period=1s", "--grpc-grace-period=1s",
			"--http-address=" + at[0], "--grpc-address=" + at[1],
		}
	})
	r.watch(t, "thanos-rule", at[0])
	return r
}

func marshal(t *testing.T, content any) []byte {
	t.Helper()
	text, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// fronts is how many faces the Prometheus shows to the proxy of stage: one that breaks its
// connections, two shards that are the same, one that keeps its callers waiting, and three of
// pairs.
const fronts = 7

// behind is a face. Only range queries meet its trouble: health probes ask none.
func (r *scrapedRuler) behind(i int, to http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		if strings.HasSuffix(q.URL.Path, "/query_range") {
			switch {
			case i == 0:
				panic(http.ErrAbortHandler) // which closes the connection and says nothing
			case i == 3:
				select { // until the proxy has lost patience, or its client has
				case <-q.Context().Done():
				case <-time.After(5 * time.Second):
				}
				return
			}
		}
		to.ServeHTTP(w, q)
	}
}

// stage begins all troubles but the last.
func (r *scrapedRuler) stage(t *testing.T) {
	t.Helper()
	type m = map[string]any
	replica := func(i int) m { return m{"url": r.front[i].URL} }
	group := func(name string, shards ...m) m {
		return m{"name": name, "labels": m{"place": name}, "shards": shards}
	}
	less, err := realprom.Start(t.Context(), realprom.Options{Config: "{}"}) // it scrapes nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := less.Stop(); err != nil {
			t.Error(err)
		}
	})
	pair := group("halved", m{"replicas": []m{replica(4), {"url": less.URL()}}})
	pair["heartbeat"] = "up"
	r.abused.url = r.spillway(t, r.write(t, "misused.yaml", m{"groups": []m{
		pair,
		group("broken", m{"replicas": []m{replica(0)}}),
		group("doubled", m{"replicas": []m{replica(1)}}, m{"replicas": []m{replica(2)}}),
		group("unjudged", m{"replicas": []m{replica(5), replica(6)}}),
		group("slow", m{"replicas": []m{replica(3)}}),
	}}))
	r.hook.Close()
	r.staged.Store(true)
}

// misuse asks the proxy of stage what breaks, what it refuses, and what nobody waits for.
func (r *scrapedRuler) misuse(ctx context.Context) {
	now := time.Now()
	for _, expr := range []string{
		`up{place="broken"}`, `{job=~".+"}`, `up{place="slow"}`, `sum(up{place="unjudged"})`,
		`quantile(0.5, up{place="doubled"})`,
	} {
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		// what becomes of it the panels tell
		_, _ = r.abused.Ask(short, Question{Expr: expr, From: now.Add(-time.Minute), To: now, Step: time.Second})
		cancel()
	}
}

// until does something and looks, twice a second, until there is nothing to complain of.
func (r *scrapedRuler) until(t *testing.T, what string, do func(context.Context), check func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for {
		do(ctx)
		complaint := check()
		if complaint == "" {
			t.Logf("%5.1fs until %s", time.Since(began).Seconds(), what)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain until %s: %s", what, complaint)
		}
	}
}

// questions are those of a dashboard that somebody looks at now.
func (r *scrapedRuler) questions(t *testing.T, name string) []Asked {
	t.Helper()
	now := time.Now()
	v, err := lookEvery(t.Context(), time.Second, r.source, load(t, name), now.Add(-time.Minute), now, everything)
	if err != nil {
		t.Fatalf("dashboard %s: %v", name, err)
	}
	qs, err := v.Questions()
	if err != nil {
		t.Fatalf("dashboard %s: %v", name, err)
	}
	return qs
}

// shows is the amount that a panel of Elsewhere shows.
func (r *scrapedRuler) shows(t *testing.T, at string) string {
	t.Helper()
	name, title, _ := strings.Cut(at, ": ")
	var all Answer
	for _, q := range r.questions(t, name) {
		if q.Panel == nil || q.Panel.Title != title {
			continue
		}
		a := ask(t, r.source, q)
		if a == nil {
			t.FailNow()
		}
		if len(a.Notes) > 0 {
			t.Errorf("%s: Prometheus notes %q\n%s", q.Where, a.Notes, q.Question.Expr)
		}
		all.Series = append(all.Series, a.Series...)
	}
	return amount(&all)
}

// amount is "none" of an answer without numbers, "zero" of one whose numbers have all been zero for
// some seconds, "few" before they are some seconds old, and "more".
func amount(a *Answer) string {
	numbers := 0
	for _, s := range a.Series {
		values := slices.DeleteFunc(slices.Clone(s.Points), func(p Point) bool { return math.IsNaN(p.V) })
		if slices.ContainsFunc(values, func(p Point) bool { return p.V != 0 }) {
			return "more"
		}
		numbers = max(numbers, len(values))
	}
	switch {
	case numbers == 0:
		return "none"
	case numbers < 5:
		return "few"
	}
	return "zero"
}
