package live

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	rehearsal "github.com/spillwayproject/spillway/alerts/live"
	"github.com/spillwayproject/spillway/dashboards"
	"github.com/spillwayproject/spillway/deploy/exporters"
	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	mixin "github.com/spillwayproject/spillway/jsonnet"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

const (
	// timeScale divides the durations of the rules, so that an hour is two minutes.
	timeScale = 30
	// scraped is how long is scraped before anybody looks: rates over five minutes, counts over an
	// hour, and two evaluations of each on top of each other.
	scraped = 75 * time.Second
)

// TestScraped: what a real Prometheus scrapes from the simulated cluster, with our rules loaded,
// answers the same queries, those about the proxy among them.
func TestScraped(t *testing.T) {
	bin := realpromtest.Spillway(t)
	w, err := rehearsal.NewWorld(cluster.Options{Nodes: 6, Exporters: cluster.AllExporters, Cluster: big}, time.Now(), 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	site := httptest.NewServer(w)
	defer site.Close()
	dir := t.TempDir()
	admin := filepath.Join(dir, "proxy.json")
	config := scrapeConfig(t, site.URL, admin, rulesFor(t, dir))
	pair := make([]*realprom.Server, 2) // two replicas: only of these the proxy tells whether they are whole
	for i := range pair {
		srv, err := realprom.Start(t.Context(), realprom.Options{Config: config})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := srv.Stop(); err != nil {
				t.Error(err)
			}
		}()
		pair[i] = srv
	}
	srv := pair[0]
	file := filepath.Join(dir, "spillway.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "groups: [{name: all, heartbeat: up, shards: [{replicas: [{url: %q}, {url: %q}]}]}]\n", srv.URL(), pair[1].URL()), 0o600); err != nil {
		t.Fatal(err)
	}
	proxy, api, metrics, err := realprom.StartProxy(t.Context(), bin, file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := proxy.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := os.WriteFile(admin, fmt.Appendf(nil, `[{"targets": [%q], "labels": {"cluster": "monitoring"}}]`, strings.TrimPrefix(metrics, "http://")), 0o600); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	direct, through := Source{"Prometheus", srv.URL(), client}, Source{"the proxy", api, client}
	// Somebody looks all the while, so that the proxy has something to tell.
	look := func() {
		t.Helper()
		if _, err := through.Ask(t.Context(),
			Question{Expr: "sum by (job) (up)", From: time.Now().Add(-time.Minute), To: time.Now(), Step: time.Second}); err != nil {
			t.Error(err)
		}
	}
	for end := time.Now().Add(scraped); time.Now().Before(end); time.Sleep(2 * time.Second) {
		look()
	}
	f := facts(t)
	now := lookedAt(t, direct, look)
	for _, name := range dashboards.Names() {
		v, err := lookEvery(t.Context(), time.Second, direct, load(t, name), now.Add(-time.Minute), now, everything)
		if err != nil {
			t.Errorf("dashboard %s: %v", name, err)
			continue
		}
		qs, err := v.Questions()
		if err != nil {
			t.Errorf("dashboard %s: %v", name, err)
		}
		for _, q := range qs {
			a := ask(t, direct, q)
			if a == nil {
				continue
			}
			if len(a.Notes) > 0 {
				t.Errorf("%s: %s: Prometheus notes %q\n%s", name, q.Where, a.Notes, q.Question.Expr)
			}
			if a.OnlyNaN() {
				t.Errorf("%s: %s: there is no number in the answer\n%s", name, q.Where, q.Question.Expr)
			}
			if q.Panel != nil && a.Empty() && f[name][q.Panel.Title].Quiet == "" && !looksFarApart(t, q.Question.Expr) {
				t.Errorf("%s: %s is empty, and does not say why\n%s", name, q.Where, q.Question.Expr)
			}
		}
	}
	if missed := w.GivenUp(); missed > 10 {
		t.Logf("%d scrapes were given up: the machine is too busy for this test", missed)
	}
}

// lookedAt is a moment of which the scrapes of the last seconds tell that somebody looked: where
// the machine is busy a look may take longer than a panel's window.
func lookedAt(t *testing.T, direct Source, look func()) time.Time {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(500 * time.Millisecond) {
		look()
		now := time.Now().Add(-2 * time.Second).Truncate(time.Second)
		const rate = `sum(rate(spillway_requests_total{job="spillway", cluster="monitoring"}[4s])) > 0`
		if a := ask(t, direct, Asked{Question: Question{Expr: rate, From: now, To: now, Step: time.Second}}); a != nil && !a.Empty() {
			return now
		}
		if time.Now().After(end) {
			t.Fatal("the scrapes of the proxy tell of no requests")
		}
	}
}

// looksFarApart tells whether an expression has a subquery whose steps are minutes: none of them
// may be within the time that is scraped here. TestDashboards answers these.
func looksFarApart(t *testing.T, expr string) (yes bool) {
	t.Helper()
	e, err := parser.NewParser(parser.Options{ExperimentalDurationExpr: true}).ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v", expr, err)
		return false
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if sub, ok := n.(*parser.SubqueryExpr); ok && sub.Step >= scraped {
			yes = true
		}
		return nil
	})
	return yes
}

// rulesFor writes the mixin's rules for compressed time below dir and gives the patterns of their
// files.
func rulesFor(t *testing.T, dir string) []string {
	t.Helper()
	values := filepath.Join(dir, "values.json")
	text, err := json.Marshal(map[string]any{"timeScale": timeScale, "evaluationInterval": "1m"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(values, text, 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := mixin.Render(mixin.Options{Config: values})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasPrefix(name, "alerts/") || name == "alerts/shard/spillway.yaml" {
			continue
		}
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, files[name], fs.FileMode(0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return []string{filepath.Join(dir, "alerts", "shard", "*.yaml"), filepath.Join(dir, "alerts", "global", "*.yaml")}
}

// scrapeConfig is prometheus.yml of a server that scrapes everything each second.
func scrapeConfig(t *testing.T, site, admin string, rules []string) string {
	t.Helper()
	relabels, err := exporters.Relabel(exporters.Options{Cluster: big, Shards: 1, Replica: "a"})
	if err != nil {
		t.Fatal(err)
	}
	type m = map[string]any
	sd := []any{m{"url": site + "/sd", "refresh_interval": "5s"}}
	cluster := m{"target_label": "cluster", "replacement": big}
	jobs := slices.Sorted(maps.Keys(relabels))
	scrapes := []any{
		m{"job_name": "spillway", "file_sd_configs": []any{m{"files": []string{admin}, "refresh_interval": "1s"}}},
		m{
			"job_name": "others", "http_sd_configs": sd,
			"relabel_configs": []any{m{"source_labels": []string{"job"}, "regex": strings.Join(jobs, "|"), "action": "drop"}, cluster},
		},
	}
	for _, j := range jobs {
		scrapes = append(scrapes, m{
			"job_name": j, "http_sd_configs": sd, "metric_relabel_configs": relabels[j],
			"relabel_configs": []any{m{"source_labels": []string{"job"}, "regex": j, "action": "keep"}, cluster},
		})
	}
	text, err := yaml.Marshal(m{
		"global":     m{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "2s"},
		"rule_files": rules, "scrape_configs": scrapes,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
