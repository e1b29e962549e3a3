package experiments

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/policy"
)

// fleet answers as an experiment of 500 nodes with eight GPUs each does, half of them in another
// cluster, and every node has an Xid. Names are long and have dots.
type fleet struct {
	t       testing.TB
	mu      sync.Mutex
	now     int
	most    int
	queries []string
}

func (f *fleet) answer(query string) (prom.Answer, error) {
	f.mu.Lock()
	f.queries = append(f.queries, query)
	f.now++
	f.most = max(f.most, f.now)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.now--
		f.mu.Unlock()
	}()
	metric, passes := f.selected(query)
	var a prom.Answer
	for i := range 500 {
		cluster, node := []string{"eu-central-1", "us-east-1"}[i%2],
			fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", i%7, i%251, i)
		if !passes(cluster, node) {
			continue
		}
		gpus := 1
		if strings.HasPrefix(metric, "experiment:gpu:") {
			gpus = 8
		}
		for g := range gpus {
			a.Series = append(a.Series, prom.Series{
				Labels: map[string]string{
					"cluster": cluster, "namespace": "research", "pod": fmt.Sprintf("llama-w-%d-x%dz", i, i*7919),
					"uid":        fmt.Sprintf("5f3c2b1a-%04d-4abc-8def-0123456789ab", i),
					"experiment": "llama", "team": "vision", "node": node, "gpu": fmt.Sprint(g), "UUID": fmt.Sprintf("GPU-%d-%d", i, g),
					"modelName": "H100", "xid": "48",
				},
				Points: []prom.Point{{T: 3_600_000, V: 90}},
			})
		}
	}
	return a, nil
}

// selected is the metric of a query and which nodes it asks for: they are asked for by name, and
// only those of a question are in its answer.
func (f *fleet) selected(query string) (metric string, passes func(cluster, node string) bool) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		f.t.Errorf("%v: %s", err, query)
		return "", func(string, string) bool { return false }
	}
	var asked []func(cluster, node string) bool
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			metric = v.Name
			for _, m := range v.LabelMatchers {
				switch m.Name {
				case "cluster":
					asked = append(asked, func(cluster, _ string) bool { return m.Matches(cluster) })
				case "node":
					asked = append(asked, func(_, node string) bool { return m.Matches(node) })
				}
			}
		}
		return nil
	})
	return metric, func(cluster, node string) bool {
		return !slices.ContainsFunc(asked, func(f func(string, string) bool) bool { return !f(cluster, node) })
	}
}

func (f *fleet) Instant(_ context.Context, query string, at time.Time) (prom.Answer, error) {
	f.judge(&endpoint.Request{ID: endpoint.Query, Query: query, Time: endpoint.At(at.UnixMilli())})
	return f.answer(query)
}

func (f *fleet) Range(_ context.Context, query string, from, until time.Time, step time.Duration) (prom.Answer, error) {
	f.judge(&endpoint.Request{
		ID: endpoint.QueryRange, Query: query, Start: endpoint.At(from.UnixMilli()),
		End: endpoint.At(until.UnixMilli()), Step: step,
	})
	return f.answer(query)
}

// judge holds a query to the default bounds of the proxy, by its own rules.
func (f *fleet) judge(req *endpoint.Request) {
	_, err := policy.Decide(req, policy.Limits(config.Default().LimitsFor(req.ID)), nil, time.UnixMilli(3_600_000))
	if err != nil {
		f.t.Errorf("the proxy would refuse %.300s: %v", req.Query, err)
	}
}

var _ prom.Asker = (*fleet)(nil)

// An experiment of 4,000 GPUs on 500 nodes is asked about in few questions, each within the proxy's
// bounds: also where it is one of a hundred that are chosen, whose names are long and must be
// escaped as those of the nodes must.
func TestScale(t *testing.T) {
	many := make([]string, model.MaxNames)
	for i := range many {
		many[i] = fmt.Sprintf("%08x.llama-3.1-70b-sft-lr3e-4-seed42", uint32(i)*2_654_435_761) // 40 bytes, which begin differently
	}
	for _, c := range []struct {
		query      string
		handle     Handler
		most, many int // questions
	}{
		{`"queryType":"nodes"`, nodesTable, 80, 130},
		{`"queryType":"gpu_timeseries","groupBy":["node","gpu"]`, gpuTimeSeries, 6, 40},
		{`"queryType":"gpu_health"`, gpuHealth, 120, 140},
		{`"queryType":"network"`, network, 20, 20},
		{`"queryType":"cost"`, cost, 20, 20},
		{`"queryType":"stragglers"`, stragglers, 2, 2},
		{`"queryType":"events"`, events, 70, 90},
		{`"queryType":"compare"`, compare, 20, 60},
		{`"queryType":"compare","view":"summary"`, compare, 60, 200},
	} {
		ask := func(t *testing.T, names []string, most int) {
			f := &fleet{t: t}
			list, err := json.Marshal(names)
			if err != nil {
				t.Fatal(err)
			}
			q, err := model.ParseQuery("A", "", []byte("{"+c.query+`,"experiments":`+string(list)+`}`))
			if err != nil {
				t.Fatal(err)
			}
			r := NewRun(f, settingsOf(t, ""), q, time.UnixMilli(0), time.UnixMilli(3_600_000))
			if _, err := c.handle(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			for _, q := range f.queries {
				if len(q) > 32<<10 {
					t.Errorf("a query of %d bytes: %.200s…", len(q), q)
				}
			}
			if len(f.queries) > most {
				t.Errorf("%d queries, more than %d", len(f.queries), most)
			}
			if f.most > parallel {
				t.Errorf("%d questions at once, more than %d", f.most, parallel)
			}
			t.Logf("%d queries", len(f.queries))
		}
		t.Run(c.query, func(t *testing.T) { ask(t, []string{"llama", "alpaca"}, c.most) })
		t.Run(c.query+" of many", func(t *testing.T) {
			if strings.Contains(c.query, "compare") {
				ask(t, many[:model.MaxCompared], c.many)
				return
			}
			ask(t, many, c.many)
		})
	}
}

// What is chosen leaves room for names beside it, and only what is compiled counts.
func TestCompiledBytes(t *testing.T) {
	for _, c := range []struct {
		query model.Query
		want  int
	}{
		{model.Query{}, 0},
		{model.Query{Experiments: []string{"a.b"}}, 0}, // compared, not compiled
		{model.Query{Experiments: []string{"a", "bc"}, Teams: []string{"x", "y"}}, 0},
		{model.Query{Experiments: []string{"a.b", "c"}}, 6},
		{model.Query{Clusters: []string{"a.b", "c"}, Namespaces: []string{"n", "m"}, Teams: []string{"(", "t"}}, 10},
	} {
		if got := compiledBytes(c.query); got != c.want {
			t.Errorf("%+v: %d, want %d", c.query, got, c.want)
		}
	}
	for _, c := range []struct {
		escaped      bool
		beside, want int
	}{{false, 5000, maxNamesBytes}, {true, 0, maxNamesBytes}, {true, 5000, maxNamesBytes - 5000}, {true, 1 << 20, minEscapedBytes}} {
		if got := namesBound(c.escaped, c.beside); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// site answers as clusters of so many nodes of the chosen experiments do, and as many of others
// again. Every 250th node of either is sick. Names have dots, and suffix behind.
type site struct {
	fleet
	clusters, nodes int
	suffix          string
}

func (s *site) answer(query string) prom.Answer {
	s.mu.Lock()
	s.queries = append(s.queries, query)
	s.mu.Unlock()
	metric, passes := s.selected(query)
	if strings.Contains(query, nodesCounted) { // no cluster is lost
		return prom.Answer{}
	}
	sick, ours := false, strings.HasPrefix(metric, "experiment:")
	switch metric {
	case "kube_node_spec_unschedulable", "DCGM_FI_DEV_XID_ERRORS", "gpu:xid_last:info":
		return prom.Answer{}
	case "gpu:xid_errors:count5m", "gpu:row_remap_failure:max", "node:gpu_temp_celsius:max", "experiment:gpu:temp":
		sick = true
	case "kube_node_status_condition":
		if strings.Contains(query, "unknown") {
			return prom.Answer{}
		}
		sick = true
	default:
		if !ours && !slices.Contains([]string{"node:ready:max", "node:gpu_capacity:max", "node:gpu_seen:count"}, metric) {
			return prom.Answer{}
		}
	}
	var a prom.Answer
	for i := range 2 * s.nodes {
		if ours && i >= s.nodes || sick && i%250 != 249 {
			continue
		}
		cluster := fmt.Sprintf("c%d", i%s.clusters)
		node := fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal%s", i%7, i%251, i, s.suffix)
		if !passes(cluster, node) {
			continue
		}
		a.Series = append(a.Series, prom.Series{
			Labels: map[string]string{
				"cluster": cluster, "namespace": "research", "pod": fmt.Sprintf("llama-w-%d", i),
				"uid": fmt.Sprintf("5f3c2b1a-%04d-4abc-8def-0123456789ab", i), "experiment": "llama", "team": "vision", "node": node,
				"gpu": "0", "UUID": fmt.Sprintf("GPU-%d", i), "modelName": "H100", "xid": "48",
			},
			Points: []prom.Point{{T: 3_600_000, V: float64(1 + i%9)}},
		})
	}
	return a
}

func (s *site) Instant(_ context.Context, query string, at time.Time) (prom.Answer, error) {
	s.judge(&endpoint.Request{ID: endpoint.Query, Query: query, Time: endpoint.At(at.UnixMilli())})
	return s.answer(query), nil
}

func (s *site) Range(_ context.Context, query string, from, until time.Time, step time.Duration) (prom.Answer, error) {
	s.judge(&endpoint.Request{
		ID: endpoint.QueryRange, Query: query, Start: endpoint.At(from.UnixMilli()),
		End: endpoint.At(until.UnixMilli()), Step: step,
	})
	return s.answer(query), nil
}

// What is asked of nodes of which each has few series does not grow with them, nor with clusters,
// where nothing is chosen, as in an alert rule. What others' nodes have is left out.
func TestWholeSite(t *testing.T) {
	for _, c := range []struct {
		query  string
		fields []string
	}{
		{`"queryType":"nodes"`, []string{"cluster", "node", "state", "pods", "gpus_held", "gpus", "util", "xid"}},
		{`"queryType":"gpu_health"`, []string{"cluster", "node", "fault", "pod", "value"}},
		{`"queryType":"gpu_health","view":"count"`, nil},
		{`"queryType":"events"`, []string{"time", "title", "text"}},
	} {
		ask := func(t *testing.T, s *site) []string {
			s.t = t
			r := hourly(t, s, `{"maxRows":10000}`, "{"+c.query+"}")
			r.Alert = c.fields == nil
			frames, err := r.Do(t.Context())
			t.Logf("%d queries of %d nodes in %d clusters", len(s.queries), s.nodes, s.clusters)
			if err != nil || len(s.queries) > maxQueries {
				t.Fatalf("%d queries of %d nodes in %d clusters: %v", len(s.queries), s.nodes, s.clusters, err)
			}
			var rows []string
			if r.Alert {
				for _, f := range frames {
					rows = append(rows, fmt.Sprint(f.Fields[0].Labels["class"], " ", f.Fields[0].At(0)))
				}
				return rows
			}
			for _, row := range rowsOf(t, frames[0], c.fields...) {
				if suffix := s.suffix; suffix != "" {
					row = strings.ReplaceAll(row, suffix, "")
				}
				rows = append(rows, row)
			}
			return rows
		}
		t.Run(c.query, func(t *testing.T) {
			ask(t, &site{clusters: 1, nodes: 10_000})
			ask(t, &site{clusters: 30, nodes: 600})
			// Names that are longer make no difference but in how they are asked for.
			exact := ask(t, &site{clusters: 2, nodes: 1_000})
			whole := ask(t, &site{clusters: 2, nodes: 1_000, suffix: strings.Repeat(".rack", 40)})
			equal(t, "rows", whole, exact)
			if len(exact) < 4 {
				t.Errorf("%q", exact)
			}
		})
	}
}
