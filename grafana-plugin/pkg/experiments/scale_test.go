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
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		f.t.Errorf("%v: %s", err, query)
		return prom.Answer{}, nil
	}
	// Nodes are asked for by name: only those of this question are in its answer.
	var asked []func(cluster, node string) bool
	metric := ""
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
	var a prom.Answer
	for i := range 500 {
		cluster, node := []string{"eu-central-1", "us-east-1"}[i%2],
			fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", i%7, i%251, i)
		if slices.ContainsFunc(asked, func(f func(string, string) bool) bool { return !f(cluster, node) }) {
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
	}{{false, 5000, maxNamesBytes}, {true, 0, maxEscapedBytes}, {true, 5000, maxEscapedBytes - 5000}, {true, 1 << 20, minEscapedBytes}} {
		if got := namesBound(c.escaped, c.beside); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
