package experiments

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// fleet answers as an experiment of 500 nodes with eight GPUs each does, half of them in another cluster, and every node has an Xid. Names are long and have dots.
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
		cluster, node := []string{"eu-central-1", "us-east-1"}[i%2], fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", i%7, i%251, i)
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
					"cluster": cluster, "namespace": "research", "pod": fmt.Sprintf("llama-w-%d-x%dz", i, i*7919), "uid": fmt.Sprintf("5f3c2b1a-%04d-4abc-8def-0123456789ab", i),
					"experiment": "llama", "team": "vision", "node": node, "gpu": fmt.Sprint(g), "UUID": fmt.Sprintf("GPU-%d-%d", i, g), "modelName": "H100", "xid": "48",
				},
				Points: []prom.Point{{T: 3_600_000, V: 90}},
			})
		}
	}
	return a, nil
}

func (f *fleet) Instant(_ context.Context, query string, _ time.Time) (prom.Answer, error) {
	return f.answer(query)
}

func (f *fleet) Range(_ context.Context, query string, _, _ time.Time, _ time.Duration) (prom.Answer, error) {
	return f.answer(query)
}

var _ prom.Asker = (*fleet)(nil)

// An experiment of 4,000 GPUs on 500 nodes is asked about in few questions, each within the proxy's bounds of a query's length and of what is compiled for it.
func TestScale(t *testing.T) {
	for _, c := range []struct {
		query  string
		handle Handler
		most   int
	}{
		{`"queryType":"nodes"`, nodesTable, 80},
		{`"queryType":"gpu_timeseries","groupBy":["node","gpu"]`, gpuTimeSeries, 6},
		{`"queryType":"gpu_health"`, gpuHealth, 120},
		{`"queryType":"network"`, network, 20},
		{`"queryType":"cost"`, cost, 20},
		{`"queryType":"stragglers"`, stragglers, 2},
		{`"queryType":"compare"`, compare, 20},
		{`"queryType":"compare","view":"summary"`, compare, 60},
	} {
		t.Run(c.query, func(t *testing.T) {
			f := &fleet{t: t}
			q, err := model.ParseQuery("A", "", []byte("{"+c.query+`,"experiments":["llama","alpaca"]}`))
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
				if n := strings.Count(q, `\`); n > 0 && len(q) > maxEscapedBytes*3/2 {
					t.Errorf("a query with escapes, of %d bytes: %.200s…", len(q), q)
				}
			}
			if len(f.queries) > c.most {
				t.Errorf("%d queries, more than %d", len(f.queries), c.most)
			}
			if f.most > parallel {
				t.Errorf("%d questions at once, more than %d", f.most, parallel)
			}
			t.Logf("%d queries", len(f.queries))
		})
	}
}
