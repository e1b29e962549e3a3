package relabel

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/usage"
)

const (
	// panels is how many each dashboard has.
	panels = 20
	// logged is the time that the usage log covers.
	logged = 30 * 24 * time.Hour
	people = 200
)

// MakeUses writes dir/dashboards/*.json and dir/usage.jsonl: what is looked at of the metrics that
// MakeBlocks writes with equal options.
func MakeUses(dir string, o Options) error {
	o, err := o.complete()
	if err != nil {
		return fmt.Errorf("options: %w", err)
	}
	c, err := newCluster(o)
	if err != nil {
		return err
	}
	used := c.used(o)
	if err := os.MkdirAll(filepath.Join(dir, "dashboards"), 0o777); err != nil {
		return fmt.Errorf("make the folder of dashboards: %w", err)
	}
	r := rand.New(rand.NewPCG(o.Seed, 1))
	for i := range o.Dashboards {
		text, err := json.MarshalIndent(dashboard(c, used, r, i), "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "dashboards", uid(i)+".json"), append(text, '\n'), 0o666); err != nil {
			return fmt.Errorf("write a dashboard: %w", err)
		}
	}
	if err := writeLog(filepath.Join(dir, "usage.jsonl"), c, used, r, o); err != nil {
		return fmt.Errorf("write the usage log: %w", err)
	}
	return nil
}

// used are the metrics that are looked at: a histogram's three together or none.
func (c *cluster) used(o Options) []*metric {
	var used []*metric
	for _, m := range c.metrics {
		if mix(m.seed)%uint64(o.UsedEvery) == 0 {
			used = append(used, m)
		}
	}
	if len(used) == 0 {
		used = c.metrics[:1]
	}
	return used
}

func uid(i int) string { return fmt.Sprintf("dashboard-%03d", i) }

// query looks at the metric in one of the ways in which people do. scope is what a selector says
// beside the name: a variable's value or the variable.
func query(m *metric, r *rand.Rand, scope func(label string) string) string {
	name := m.name
	rate := func(selector string) string {
		if m.counter {
			return "rate(" + selector + "[5m])"
		}
		return selector
	}
	switch m.kind {
	case pods:
		return fmt.Sprintf("sum by (namespace, phase) (%s)", rate(name+"{"+scope("namespace")+"}"))
	case containers:
		return fmt.Sprintf("topk(10, sum by (pod) (%s))", rate(name+"{"+scope("namespace")+`, container!="POD"}`))
	case nodes:
		return fmt.Sprintf("avg by (instance) (%s)", rate(name+"{"+scope("instance")+`, mode!="idle"}`))
	case bucket:
		if r.IntN(8) == 0 {
			le := m.les[len(m.les)/2]
			return fmt.Sprintf("sum(rate(%s{%s, le=%q}[5m])) / sum(rate(%s_count{%s}[5m]))", name, scope("verb"), le, strings.TrimSuffix(name, "_bucket"), scope("verb"))
		}
		return fmt.Sprintf("histogram_quantile(0.%d, sum by (le, verb) (rate(%s{%s}[5m])))", 90+r.IntN(10), name, scope("verb"))
	case sum:
		family := strings.TrimSuffix(name, "_sum")
		return fmt.Sprintf("sum by (verb) (rate(%s{%s}[5m])) / sum by (verb) (rate(%s_count{%[2]s}[5m]))", name, scope("verb"), family)
	}
	return fmt.Sprintf("sum by (job) (%s)", rate(name+"{"+scope("instance")+"}"))
}

// dashboard is one as Grafana exports it.
func dashboard(c *cluster, used []*metric, r *rand.Rand, i int) map[string]any {
	m := used[i%len(used)]
	variable := func(label string) map[string]any {
		return map[string]any{
			"name": label, "type": "query", "datasource": map[string]string{"type": "prometheus", "uid": "main"},
			"query": map[string]any{"query": fmt.Sprintf("label_values(%s, %s)", m.name, label), "refId": "A"}, "multi": true,
			"includeAll": true,
		}
	}
	var list []map[string]any
	for n := range panels {
		m := used[(i*panels+n*7)%len(used)]
		list = append(list, map[string]any{
			"id": n + 1, "type": "timeseries", "title": fmt.Sprintf("Panel %d", n+1),
			"gridPos":    map[string]int{"h": 8, "w": 12, "x": n % 2 * 12, "y": n / 2 * 8},
			"datasource": map[string]string{"type": "prometheus", "uid": "main"},
			"targets": []map[string]any{{
				"refId": "A",
				"expr":  query(m, r, func(label string) string { return label + `=~"$` + label + `"` }),
			}},
		})
	}
	return map[string]any{
		"uid": uid(i), "title": fmt.Sprintf("Dashboard %d", i), "schemaVersion": 41, "tags": []string{"made"},
		"time":       map[string]string{"from": "now-6h", "to": "now"},
		"templating": map[string]any{"list": []map[string]any{variable("namespace"), variable("instance"), variable("verb")}},
		"panels":     list,
	}
}

// value is one of those that labels have.
func (c *cluster) value(label string, r *rand.Rand, m *metric) string {
	switch label {
	case "namespace":
		return fmt.Sprintf(`namespace=%q`, namespace(r.IntN(c.pods)))
	case "verb":
		return fmt.Sprintf(`verb=%q`, verbs[r.IntN(len(verbs))])
	}
	switch m.kind {
	case nodes:
		return fmt.Sprintf(`instance="node-%05d:9100"`, r.IntN(c.nodes))
	case everywhere:
		return fmt.Sprintf(`instance=~"10.2.%d.*"`, r.IntN(8))
	}
	return fmt.Sprintf(`instance="10.3.0.%d:8443"`, r.IntN(c.instances))
}

// writeLog writes the usage log as package usage does, one line after the other.
func writeLog(path string, c *cluster, used []*metric, r *rand.Rand, o Options) (err error) {
	p := parser.NewParser(parser.Options{})
	facts := make([]usage.Facts, o.Queries)
	for i := range facts {
		m := used[i%len(used)]
		expr, err := p.ParseExpr(query(m, r, func(label string) string { return c.value(label, r, m) }))
		if err != nil {
			return err
		}
		facts[i] = usage.Describe(expr)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := bufio.NewWriterSize(file, 1<<20)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	step := logged / time.Duration(o.Lines)
	for i := range o.Lines {
		who := r.IntN(people)
		rec := usage.Record{
			V: usage.Version, Time: o.Now.Add(-step * time.Duration(o.Lines-1-i)).UTC().Truncate(time.Millisecond),
			ID:     fmt.Sprintf("%016x", mix(uint64(i)+o.Seed)),
			Tenant: fmt.Sprintf("team-%d", who%12), User: fmt.Sprintf("person-%d", who), Endpoint: "query_range",
			Facts:        facts[r.IntN(len(facts))],
			RangeSeconds: 21600, StepSeconds: 60, Series: int64(r.IntN(500)), Samples: int64(r.IntN(500_000)),
			Bytes:        int64(r.IntN(1 << 20)),
			ShardSeconds: float64(r.IntN(1000)) / 1000, PeakBytes: int64(r.IntN(8 << 20)), Verdict: "pass",
		}
		switch r.IntN(4) {
		case 0:
			rec.Endpoint, rec.RangeSeconds, rec.StepSeconds, rec.Rule = "query", 0, 0, fmt.Sprintf("rule-%d", r.IntN(100))
		case 1: // Explore
		default:
			rec.Dashboard, rec.Panel = uid(r.IntN(o.Dashboards)), fmt.Sprint(1+r.IntN(panels))
		}
		if err := enc.Encode(&rec); err != nil {
			return err
		}
	}
	return w.Flush()
}
