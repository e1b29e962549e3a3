package live

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/alerts"
	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/loadtest/cluster"
	"github.com/spillwayproject/spillway/loadtest/mix"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/usage"
)

const (
	// estimatesPage has the table of TestEstimates behind estimatesBegin.
	estimatesPage, estimatesBegin = "../../docs/estimates.md", "<!-- written by TestEstimates -->\n"
	// panelQueries is how many queries of dashboards are asked.
	panelQueries = 100
	// estimatedPast is how long before now the servers' heads begin.
	estimatedPast = 80 * time.Minute
)

// guess is a query with what was estimated and counted: at first, once an answer of that moment was
// seen, and five minutes later.
type guess struct {
	where                string
	q                    Question
	first, second, third usage.Record
}

// estimator asks a proxy in front of real servers that have all in their heads.
type estimator struct {
	url, log string
	end      time.Time
	model    *cluster.Model
	read     int // bytes of the log
}

// ask asks a question and gives its line of the usage log.
func (e *estimator) ask(t *testing.T, q Question) usage.Record {
	t.Helper()
	v := url.Values{"query": {q.Expr}}
	path := "/api/v1/query"
	at := func(when time.Time) string { return strconv.FormatFloat(float64(when.UnixMilli())/1000, 'f', -1, 64) }
	if q.Step > 0 {
		path += "_range"
		v.Set("start", at(q.From))
		v.Set("end", at(q.To))
		v.Set("step", strconv.FormatFloat(q.Step.Seconds(), 'f', -1, 64))
	} else {
		v.Set("time", at(q.To))
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.url+path+"?"+v.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	id := resp.Header.Get("X-Spillway-Request-Id")
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(2 * time.Millisecond) {
		text, err := os.ReadFile(e.log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text[e.read:])) {
			var r usage.Record
			if !strings.HasSuffix(line, "\n") || json.Unmarshal([]byte(line), &r) != nil || r.ID != id {
				continue
			}
			e.read = len(text)
			return r
		}
	}
	t.Fatalf("%s: no line in the usage log", q.Expr)
	return usage.Record{}
}

// startEstimator starts two Prometheus servers, whose heads are a cluster's last hour, and the
// proxy.
func startEstimator(t *testing.T) *estimator {
	t.Helper()
	dir := t.TempDir()
	e := &estimator{log: filepath.Join(dir, "usage.jsonl"), end: time.Now().Truncate(time.Minute)}
	var err error
	if e.model, err = cluster.New(cluster.Options{
		Seed: 1, Cluster: big, Nodes: 8, APIServers: 3, Start: e.end.Add(-20 * 24 * time.Hour).Truncate(time.Hour),
		Exporters: cluster.AllExporters,
	}); err != nil {
		t.Fatal(err)
	}
	g := config.Group{Name: big, Labels: map[string]string{"cluster": big}, ShardBy: []string{"node"}}
	for i := range shards {
		at := filepath.Join(dir, strconv.Itoa(i))
		p, err := localprom.Start(t.Context(), localprom.Options{Dir: at})
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.model.BackfillHead(t.Context(), p.Storage(), cluster.BackfillOptions{
			From: e.end.Add(-estimatedPast), Until: e.end, Interval: 30 * time.Second,
			Keep: func(target cluster.Target) bool { return cluster.Shard(target, shards) == i },
		})
		if closed := p.Close(); err != nil || closed != nil {
			t.Fatal(err, closed)
		}
		srv, err := realprom.Start(t.Context(), realprom.Options{
			Dir: at, Config: "global: {}\n", ExternalLabels: labels.FromStrings("cluster", big, "replica", "a"),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = srv.Stop() })
		g.Shards = append(g.Shards, config.Shard{Replicas: config.Replicas(srv.URL())})
	}
	g.ReplicaLabels = []string{"replica"}
	cfg := config.Of(g)
	cfg.UsageLog.Path = e.log
	file := filepath.Join(dir, "spillway.yaml")
	if err := config.WriteFile(file, cfg); err != nil {
		t.Fatal(err)
	}
	proxy, api, _, err := realprom.StartProxy(t.Context(), realpromtest.Spillway(t), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Stop() })
	e.url = api
	for i := 0; ; i++ { // a shard is asked for its sketch once it has answered something
		r := e.ask(t, Question{Expr: fmt.Sprintf("vector(%d) and on () absent(nothing_%d)", i, i), To: e.end})
		if r.EstimatedBy == "sketch" {
			return e
		}
		if i == 1000 {
			t.Fatalf("the servers do not tell of themselves: %+v", r)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// panels are the first queries of dashboards, in the order of their names, that have an answer, and
// then those of rules.
func (e *estimator) panels(t *testing.T) (out []*guess) {
	t.Helper()
	seen := map[string]bool{}
	for _, name := range names() {
		v, err := Look(t.Context(), NewSource("the proxy", e.url), load(t, name), e.end.Add(-time.Hour), e.end, big)
		if err != nil {
			continue // a variable of series that only rules make has no value
		}
		all, err := v.Questions()
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range all {
			key := fmt.Sprint(q.Question.Expr, q.Step)
			if q.Target == nil || seen[key] {
				continue
			}
			seen[key] = true
			if g := e.first(t, name, q.Question); g != nil {
				if out = append(out, g); len(out) == panelQueries {
					return out
				}
			}
		}
	}
	for _, name := range e.ruleFiles(t) {
		text, err := fs.ReadFile(alerts.Shard(), name)
		if err != nil {
			t.Fatal(err)
		}
		groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				if seen[r.Expr] || len(out) == panelQueries {
					continue
				}
				seen[r.Expr] = true
				if g := e.first(t, name, Question{Expr: strings.TrimSpace(r.Expr), To: e.end}); g != nil {
					out = append(out, g)
				}
			}
		}
	}
	return out
}

// ruleFiles are the files of rules that shards evaluate, in order.
func (*estimator) ruleFiles(t *testing.T) []string {
	t.Helper()
	files, err := fs.Glob(alerts.Shard(), "*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	return files
}

// earlier is a question as it is asked before.
func (q Question) earlier() Question {
	q.From, q.To = q.From.Add(-5*time.Minute), q.To.Add(-5*time.Minute)
	return q
}

// first asks a question; nil where it has no answer.
func (e *estimator) first(t *testing.T, where string, q Question) *guess {
	t.Helper()
	g := &guess{where: where, q: q, first: e.ask(t, q.earlier())}
	if g.first.Verdict == "refuse" || g.first.Series == 0 {
		return nil
	}
	return g
}

// mixed are the queries of the dashboard mix, for a node.
func (e *estimator) mixed(t *testing.T, node, namespace string) (out []Question) {
	t.Helper()
	m := mix.Builtin()
	for _, q := range m.Queries {
		text := strings.NewReplacer("{{node}}", node, "{{namespace}}", namespace).Replace(q.Query)
		ask := Question{Expr: text, From: e.end.Add(-m.Range), To: e.end}
		if q.Kind == mix.Range {
			ask.Step = m.Step
		}
		out = append(out, ask)
	}
	return out
}

// values are those of a label of the GPUs.
func (e *estimator) values(t *testing.T, label string) []string {
	t.Helper()
	q := Question{Expr: "DCGM_FI_DEV_GPU_UTIL", Label: label, From: e.end.Add(-5 * time.Minute), To: e.end}
	a, err := NewSource("the proxy", e.url).Ask(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(a.Values, func(v string) bool { return v == "" })
}

// alone are the selectors of queries that name a metric, each asked by itself.
func (e *estimator) alone(t *testing.T, of []*guess) (out []*guess) {
	t.Helper()
	seen := map[string]bool{}
	for _, g := range of {
		expr, err := parser.NewParser(parser.Options{EnableExperimentalFunctions: true}).ParseExpr(g.q.Expr)
		if err != nil {
			t.Fatal(err)
		}
		for _, ms := range parser.ExtractSelectors(expr) {
			text := usage.SelectorText(ms)
			named := slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return m.Name == "__name__" && m.Type == labels.MatchEqual })
			if !named || seen[text] {
				continue
			}
			seen[text] = true
			if g := e.first(t, "selector", Question{Expr: text, To: e.end}); g != nil {
				out = append(out, g)
			}
		}
	}
	return out
}

func ratioOf(estimated, counted int64) float64 {
	return float64(max(estimated, 1)) / float64(max(counted, 1))
}

// judge compares what was estimated of some with what was counted. No ratio may be less than least,
// and their median has to lie between these.
func judge(t *testing.T, what string, of []*guess, line func(*guess) usage.Record, least, low, high float64) {
	t.Helper()
	for kind, ratio := range map[string]func(usage.Record) float64{
		"series":  func(r usage.Record) float64 { return ratioOf(r.EstimatedSeries, r.Series) },
		"samples": func(r usage.Record) float64 { return ratioOf(r.EstimatedSamples, r.Samples) },
	} {
		var all []float64
		for _, g := range of {
			r := line(g)
			if all = append(all, ratio(r)); ratio(r) < least {
				t.Errorf("%s: %s of %s are estimated by %s as %.3f of what they were: %d and %d for %d and %d", what, kind, g.q.Expr, r.EstimatedBy,
					ratio(r), r.EstimatedSeries, r.EstimatedSamples, r.Series, r.Samples)
			}
		}
		slices.Sort(all)
		median := all[len(all)/2]
		if median < low || median > high {
			t.Errorf("%s: the median ratio of %s is %.3f, want %v to %v", what, kind, median, low, high)
		}
		low, _ := slices.BinarySearch(all, 0.95)
		t.Logf("%s: %d ratios of %s: least %.3f, median %.3f, most %.3f; %d below 0.95", what, len(all), kind, all[0], median, all[len(all)-1], low)
	}
}

// TestEstimates compares estimates with what was counted, of the first hundred queries of the
// dashboards and rules that have an answer, of the fifteen of the dashboard mix, and of their
// selectors alone, on real servers. With what answers showed an estimate is not below 95 % of it,
// and in the middle it is right; without, it is an upper bound of selectors by the metric's name.
func TestEstimates(t *testing.T) {
	e := startEstimator(t)
	nodes, spaces := e.values(t, "node"), e.values(t, "namespace")
	panels := e.panels(t)
	if len(panels) != panelQueries {
		t.Fatalf("%d queries of dashboards have an answer", len(panels))
	}
	var mixed []*guess
	for i, q := range e.mixed(t, nodes[0], spaces[0]) {
		mixed = append(mixed, &guess{where: "mix: " + mix.Builtin().Queries[i].Name, q: q, first: e.ask(t, q.earlier())})
	}
	queries := append(panels, mixed...)
	alone := e.alone(t, queries)
	for i, q := range e.mixed(t, nodes[1], spaces[0]) { // another node: the shape is known
		mixed[i].q = q
	}
	all := slices.Concat(queries, alone)
	for _, g := range all {
		g.second = e.ask(t, g.q.earlier())
	}
	for _, g := range all {
		g.third = e.ask(t, g.q)
	}
	first := func(g *guess) usage.Record { return g.first }
	other := 0
	second := func(g *guess) usage.Record {
		r := g.second
		if r.EstimatedBy == "shape" { // by the node of the first time, which had what it had
			if r.Series > g.first.Series || r.Samples > g.first.Samples {
				other++
			}
			r.Series, r.Samples = min(r.Series, g.first.Series), min(r.Samples, g.first.Samples)
		}
		return r
	}
	third := func(g *guess) usage.Record { return g.third }
	judge(t, "selectors at first", alone, first, 0.95, 0, 1e9)
	judge(t, "selectors that are known", alone, second, 0.95, 0.8, 1.5)
	judge(t, "queries that are known", queries, second, 0.95, 0.8, 1.5)
	if t.Logf("%d were estimated by what another node had, which had less", other); other > 30 {
		t.Errorf("%d of %d", other, 2*len(alone)+2*len(queries))
	}
	judge(t, "queries at first", queries, first, 0.95, 0, 1e9)
	judge(t, "selectors five minutes later", alone, third, 0, 0.8, 1.5) // pods have come
	judge(t, "queries five minutes later", queries, third, 0, 0.8, 1.5)
	e.page(t, queries, alone)
}

// page compares the queries of the docs page with those that were asked, or writes it anew.
func (e *estimator) page(t *testing.T, queries, alone []*guess) {
	t.Helper()
	text, err := os.ReadFile(estimatesPage)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(text), estimatesBegin)
	if !ok {
		t.Fatalf("%s has no place for the table", estimatesPage)
	}
	var b strings.Builder
	b.WriteString(head + estimatesBegin)
	row := func(g *guess) {
		f, then, later := g.first, g.second, g.third
		fmt.Fprintf(&b, "| %s | `%s` | %d | %s | %d | %.2f | %.2f | %s | %.2f | %.2f | %.2f |\n",
			g.where, strings.ReplaceAll(strings.Join(strings.Fields(g.q.Expr), " "), "|", "\\|"), f.Series,
			f.EstimatedBy, f.EstimatedSeries, ratioOf(f.EstimatedSeries, f.Series), ratioOf(f.EstimatedSamples, f.Samples),
			then.EstimatedBy, ratioOf(then.EstimatedSeries, then.Series), ratioOf(then.EstimatedSamples, then.Samples),
			ratioOf(later.EstimatedSeries, later.Series))
	}
	b.WriteString("| from | query | series | at first by | estimated | ratio | of samples | then by | ratio | of samples | 5 min later |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, g := range queries {
		row(g)
	}
	if *update {
		if err := os.WriteFile(estimatesPage, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, want := strings.Count(string(text), "\n"), strings.Count(b.String(), "\n"); got != want {
		t.Errorf("%s has %d lines, want %d: -update writes it anew", estimatesPage, got, want)
	}
}
