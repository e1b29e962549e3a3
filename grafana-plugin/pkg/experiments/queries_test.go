package experiments

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// The queries of all handlers are recorded here, for relabel: what the plugin looks at must not be
// dropped. No Prometheus is behind them: an outline of one answers each query with series that have
// the labels which the query gives, whose values are variables ($e, $c, $pod), so that the next
// queries are about those.

// repository is the folder of the repository.
const repository = "../../.."

var placeholders = map[string]string{
	"cluster": "$c", "namespace": "$ns", "experiment": "$e", "team": "$t", "node": "$n", "pod": "$pod", "uid": "$uid",
	"container": "$container", "gpu": "$gpu",
	"UUID": "$UUID", "modelName": "$model", "model": "$model", "device": "$device",
}

// several are labels whose values decide what is asked next.
var several = map[string][]string{
	"phase":  {"Running", "Pending", "Failed"},
	"reason": {"CrashLoopBackOff", "Evicted"},
	"xid":    {"79"},
}

// outline answers by the form of a query alone. value is that of points, by their place; without is
// a metric of which there are no series.
type outline struct {
	value   func(i int) float64
	without string

	mu      sync.Mutex
	queries map[string]bool
	metrics map[string]bool
}

var promParser = parser.NewParser(parser.Options{})

func (o *outline) labels(query string) (names []string, fixed map[string]string, err error) {
	expr, err := promParser.ParseExpr(query)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", query, err)
	}
	fixed = map[string]string{}
	gone := false
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if sel, ok := n.(*parser.VectorSelector); ok {
			o.mu.Lock()
			o.metrics[sel.Name] = true
			o.mu.Unlock()
			gone = gone || o.without != "" && sel.Name == o.without
			for _, m := range sel.LabelMatchers {
				if m.Type == labels.MatchEqual && m.Value != "" {
					fixed[m.Name] = m.Value
				}
			}
		}
		return nil
	})
	if gone {
		return nil, nil, nil
	}
	return outcome(expr), fixed, nil
}

// outcome are the labels that the series of an expression have.
func outcome(expr parser.Expr) []string {
	all := append(slices.Sorted(maps.Keys(placeholders)), slices.Sorted(maps.Keys(several))...)
	switch e := expr.(type) {
	case *parser.ParenExpr:
		return outcome(e.Expr)
	case *parser.StepInvariantExpr:
		return outcome(e.Expr)
	case *parser.UnaryExpr:
		return outcome(e.Expr)
	case *parser.SubqueryExpr:
		return outcome(e.Expr)
	case *parser.MatrixSelector:
		return outcome(e.VectorSelector)
	case *parser.AggregateExpr:
		switch inner := outcome(e.Expr); {
		case e.Op == parser.TOPK || e.Op == parser.BOTTOMK:
			return inner
		case e.Without:
			return slices.DeleteFunc(inner, func(l string) bool { return slices.Contains(e.Grouping, l) })
		default:
			return e.Grouping
		}
	case *parser.Call:
		for _, a := range e.Args {
			if t := a.Type(); t == parser.ValueTypeVector || t == parser.ValueTypeMatrix {
				out := outcome(a)
				if strings.HasPrefix(e.Func.Name, "label_") {
					out = append(slices.Clone(out), strings.Trim(e.Args[1].String(), `"`))
				}
				return out
			}
		}
		return nil
	case *parser.BinaryExpr:
		if e.LHS.Type() == parser.ValueTypeScalar {
			return outcome(e.RHS)
		}
		return outcome(e.LHS)
	case *parser.VectorSelector:
		return all
	}
	return nil
}

func (o *outline) answer(query string, points func(value func(i int) float64) []prom.Point) (prom.Answer, error) {
	o.mu.Lock()
	o.queries[query] = true
	o.mu.Unlock()
	names, fixed, err := o.labels(query)
	if err != nil || names == nil && fixed == nil {
		return prom.Answer{}, err
	}
	list := []map[string]string{{}}
	slices.Sort(names)
	for _, l := range slices.Compact(names) {
		values := several[l]
		switch {
		case fixed[l] != "":
			values = []string{fixed[l]}
		case values == nil:
			values = []string{cmp.Or(placeholders[l], "$"+l)}
		}
		var next []map[string]string
		for _, m := range list {
			for _, v := range values {
				with := maps.Clone(m)
				with[l] = v
				next = append(next, with)
			}
		}
		list = next
	}
	a := prom.Answer{}
	for i, m := range list {
		if p := points(func(j int) float64 { return o.value(i + j) }); len(p) > 0 {
			a.Series = append(a.Series, prom.Series{Labels: m, Points: p})
		}
	}
	return a, nil
}

// Instant implements prom.Asker.
func (o *outline) Instant(_ context.Context, query string, at time.Time) (prom.Answer, error) {
	return o.answer(query, func(value func(i int) float64) []prom.Point {
		v := value(0)
		// Times must be times.
		if strings.Contains(query, "timestamp(") || strings.Contains(query, "_created") ||
			strings.Contains(query, "_time") && !strings.Contains(query, "_over_time") {
			v = float64(at.Unix() - 3000)
		}
		return []prom.Point{{T: at.UnixMilli(), V: v}}
	})
}

// Range implements prom.Asker.
func (o *outline) Range(_ context.Context, query string, from, until time.Time, step time.Duration) (prom.Answer, error) {
	return o.answer(query, func(value func(i int) float64) []prom.Point {
		var out []prom.Point
		if begin := outlineUntil.Add(-outlinePast); from.Before(begin) {
			from = begin
		}
		for i, at := 0, from; !at.After(until); i, at = i+1, at.Add(step) {
			out = append(out, prom.Point{T: at.UnixMilli(), V: value(i / 3)})
		}
		return out
	})
}

var _ prom.Asker = (*outline)(nil)

var (
	outlineUntil  = time.Unix(1_800_000_000, 0).UTC()
	outlineLength = 6 * time.Hour
	outlinePast   = 35 * 24 * time.Hour // that there is of it
)

// asked are the queries of a type, whatever the answers are: with values that stay, that come and
// go, with nothing at all, and without each of the metrics that it asks about. frames are those of
// the first.
func asked(t *testing.T, query model.Query) (queries []string, frames data.Frames) {
	t.Helper()
	settings := settingsOf(t, `{"prices": {"default": 2}}`)
	found, metrics := map[string]bool{}, map[string]bool{}
	ask := func(value func(i int) float64, without string) data.Frames {
		o := &outline{value: value, without: without, queries: found, metrics: map[string]bool{}}
		r := NewRun(o, settings, query, outlineUntil.Add(-outlineLength), outlineUntil)
		r.MaxPoints, r.Interval = 100, time.Minute
		frames, err := r.Do(t.Context())
		var setup *SetupError
		if err != nil && !errors.As(err, &setup) {
			t.Fatalf("%s %s: %v", query.Type, query.View, err)
		}
		maps.Copy(metrics, o.metrics)
		return frames
	}
	one := func(int) float64 { return 1 }
	frames = ask(one, "")
	for _, value := range []func(int) float64{
		func(int) float64 { return 0 },
		func(int) float64 { return 95 },
		func(i int) float64 { return float64(i % 2) },
		func(i int) float64 { return float64(79 + i%3) },
		func(i int) float64 { return float64(i) },
	} {
		ask(value, "")
	}
	for done := map[string]bool{}; len(done) < len(metrics); {
		for _, m := range slices.Sorted(maps.Keys(metrics)) {
			if !done[m] {
				done[m] = true
				ask(one, m)
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), frames
}

// variants are queries of each type that together ask all that the type can ask.
func variants(t *testing.T, typ model.QueryType) []model.Query {
	t.Helper()
	var out []model.Query
	add := func(fields string) {
		text := fmt.Sprintf(`{"queryType": %q, "experiments": ["$e"], "clusters": ["$c"]%s}`, typ, fields)
		if typ == model.Compare {
			text = strings.Replace(text, `["$e"]`, `["$e", "=$e2"]`, 1)
		}
		q, err := parsedWithVariables("", text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, q)
	}
	switch typ {
	case model.PromQL:
		return append(out, bundledPromQL(t)...)
	case model.GPUTimeSeries:
		for _, m := range model.Metrics {
			add(fmt.Sprintf(`, "metric": %q, "groupBy": ["cluster", "node", "gpu"]`, m))
			add(fmt.Sprintf(`, "metric": %q, "groupBy": ["cluster", "node", "gpu"], "rank": "top"`, m))
		}
		return out
	case model.Stragglers:
		for _, m := range model.Metrics {
			add(fmt.Sprintf(`, "metric": %q`, m))
		}
		return out
	}
	views := model.Views[typ]
	if len(views) == 0 {
		views = []string{""}
	}
	for _, v := range views {
		if typ == model.Compare && v == "series" {
			for _, m := range model.Metrics {
				add(fmt.Sprintf(`, "view": %q, "metric": %q`, v, m))
			}
			continue
		}
		add(fmt.Sprintf(`, "view": %q`, v))
		if typ == model.Network {
			add(fmt.Sprintf(`, "view": %q, "rank": "top"`, v))
		}
	}
	if typ == model.Experiments {
		q := out[0]
		q.Experiments = nil
		out = append(out, q)
	}
	return out
}

// bundledPromQL are the queries of type promql on the bundled dashboards.
func bundledPromQL(t *testing.T) []model.Query {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repository, "grafana-plugin", "src", "dashboards", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d dashboards, %v", len(files), err)
	}
	var out []model.Query
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Panels []struct{ Targets []model.Query }
		}
		if err := json.Unmarshal(b, &d); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				if q.Type != model.PromQL {
					continue
				}
				q.RefID = "A"
				q.Expr = strings.NewReplacer("$team", "$t", "$cluster", "$c").Replace(q.Expr)
				if len(q.Experiments) > 0 {
					q.Experiments = []string{"$e"}
				}
				q.Teams, q.Clusters = []string{"$t"}, []string{"$c"}
				out = append(out, q)
			}
		}
	}
	return out
}

// ruleQueries are the expressions of the recording rules that the plugin reads, one a line, by the
// series that they make.
func ruleQueries(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(repository, "alerts", "global", "experiment-rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var groups rulefmt.RuleGroups
	if err := yaml.Unmarshal(b, &groups); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			expr, err := promParser.ParseExpr(r.Expr)
			if err != nil {
				t.Fatalf("%s: %v", r.Record, err)
			}
			out = append(out, "# "+r.Record, expr.String())
		}
	}
	return out
}

const queriesFile = repository + "/relabel/testdata/experiment.promql"

// relabel/testdata/experiment.promql has all queries of the plugin and of its recording rules;
// -update writes it.
func TestQueriesForRelabel(t *testing.T) {
	var out bytes.Buffer
	fmt.Fprintln(&out, "# What the datasource for experiments asks: the expressions of its recording rules, then the queries of each of its types.")
	fmt.Fprintln(&out, "# Generated by go test ./grafana-plugin/pkg/experiments -run TestQueriesForRelabel -update.")
	fmt.Fprintln(&out, "# A query a line. $e, $c, $t, $n, $pod and the like are names of experiments, clusters, teams, nodes, pods; $range is the panel's range.")
	for _, line := range ruleQueries(t) {
		fmt.Fprintln(&out, line)
	}
	written := map[string]bool{}
	section := func(name string, queries []string) {
		fmt.Fprintf(&out, "\n# %s\n", name)
		for _, q := range queries {
			q = strings.NewReplacer("["+seconds(outlineLength), "[$range", fmt.Sprintf("[%dms", outlineLength.Milliseconds()),
				"[$range").Replace(q)
			if !written[q] {
				fmt.Fprintln(&out, q)
				written[q] = true
			}
		}
	}
	for _, typ := range model.QueryTypes {
		all := map[string]bool{}
		for _, q := range variants(t, typ) {
			queries, _ := asked(t, q)
			for _, text := range queries {
				all[text] = true
			}
		}
		if len(all) == 0 {
			t.Errorf("type %s asks nothing", typ)
		}
		section(string(typ), slices.Sorted(maps.Keys(all)))
	}
	section("lists of names, for pickers and variables", listed(t))
	section("the health check", diagnosed(t))
	if *update {
		if err := os.WriteFile(queriesFile, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(queriesFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, out.Bytes()) {
		committed, now := strings.Split(string(b), "\n"), strings.Split(out.String(), "\n")
		for i := range now {
			if i >= len(committed) || committed[i] != now[i] {
				t.Fatalf("%s is not what the code asks, from line %d on; -update writes it:\nnow  %s", queriesFile, i+1, now[i])
			}
		}
		t.Fatalf("%s has %d lines more than the code asks; -update writes it", queriesFile, len(committed)-len(now))
	}
}

// listed are the queries by which names are listed.
func listed(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	for _, chosen := range []string{`{}`, `{"clusters": ["$c"], "namespaces": ["$ns"], "teams": ["$t"]}`, `{"experiments": ["$e"]}`} {
		q, err := parsedWithVariables(string(model.Experiments), chosen)
		if err != nil {
			t.Fatal(err)
		}
		o := &outline{value: func(int) float64 { return 1 }, queries: found, metrics: map[string]bool{}}
		r := NewRun(o, settingsOf(t, ""), q, outlineUntil.Add(-outlineLength), outlineUntil)
		if _, err := r.Recent(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, label := range []string{"cluster", "namespace", "team", "node"} {
			if _, err := r.Names(t.Context(), label); err != nil {
				t.Fatal(err)
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// diagnosed are the queries of Diagnose: with all that is needed there, and without each of it.
func diagnosed(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	needs := NeedPods | NeedGPUs | NeedFaults | NeedHours | NeedInfiniband | NeedEthernet | NeedNVLink
	metrics := map[string]bool{"": true}
	for done := map[string]bool{}; len(done) < len(metrics); {
		for _, m := range slices.Sorted(maps.Keys(metrics)) {
			if done[m] {
				continue
			}
			done[m] = true
			o := &outline{value: func(int) float64 { return 1 }, without: m, queries: found, metrics: metrics}
			if _, _, err := Diagnose(t.Context(), o, settingsOf(t, ""), needs, []string{"$c"}, outlineUntil); err != nil {
				t.Fatal(err)
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// testdata/columns.json has the columns of each table, for the test of the dashboards that name
// them; -update writes it.
func TestColumns(t *testing.T) {
	columns := map[string][]string{}
	for _, typ := range model.QueryTypes {
		for _, q := range variants(t, typ) {
			_, frames := asked(t, q)
			if len(frames) != 1 || frames[0].Meta == nil || frames[0].Meta.Type != data.FrameTypeTable && typ != model.Events {
				continue
			}
			var names []string
			for _, f := range frames[0].Fields {
				names = append(names, f.Name)
			}
			name := string(typ)
			if q.View != "" {
				name += " " + q.View
			}
			columns[name] = names
		}
	}
	b, err := json.MarshalIndent(columns, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, '\n')
	at := filepath.Join("testdata", "columns.json")
	if *update {
		if err := os.WriteFile(at, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if committed, err := os.ReadFile(at); err != nil || !bytes.Equal(committed, b) {
		t.Errorf("%s is not what the handlers answer (-update writes it): %v\n%s", at, err, b)
	}
}

// parsedWithVariables reads a query in which variables stand for names, which ParseQuery refuses.
func parsedWithVariables(kind, text string) (model.Query, error) {
	q, err := model.ParseQuery("A", kind, []byte(strings.ReplaceAll(text, `["$`, `["=$`)))
	for _, list := range [][]string{q.Experiments, q.Clusters, q.Namespaces, q.Teams} {
		for i, name := range list {
			list[i] = strings.TrimPrefix(name, "=")
		}
	}
	return q, err
}
