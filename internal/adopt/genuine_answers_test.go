package adopt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/dashboards"
	"github.com/spillwayproject/spillway/dashboards/live"
	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
)

// queries are those whose answers are compared.
var queries = []string{
	"up", "count(up)", "sum by (job) (rate(http_requests_total[5m]))", "sum(rate(http_requests_total[5m])) by (code)",
	`sum(rate(http_requests_total{code="500"}[5m])) / sum(rate(http_requests_total[5m]))`, "topk(3, node_load1)",
	"avg by (gpu) (gpu_temperature)", "max_over_time(gpu_temperature[10m])", "quantile(0.9, node_load1)", "stddev(node_load1)",
	"histogram_quantile(0.9, sum by (le) (rate(latency_seconds_bucket[5m])))", `node_load1{instance="10.0.0.3:9100"}`,
	`count by (gpu) (gpu_temperature > 50)`, "node_load1 * on (instance) group_left () up", "absent(nothing_of_that_name)",
	"sort_desc(node_load1)", "predict_linear(node_load1[10m], 3600)", "max(max_over_time(gpu_temperature[10m:1m]))",
	`sum by (instance) (increase(http_requests_total[10m])) > bool 100`, "count_values(\"v\", up)",
}

// compare compares the answers of Spillway's pod with those of one Prometheus that has everything.
func (p *plane) compare(f *fleet, node *node, begin time.Time) {
	t := p.t
	t.Helper()
	<-node.listens
	if shards := bytes.Count(fetch(t, node.admin+"/api/spillway/v1/shards"), []byte(`"url":`)); shards != len(f.servers) {
		t.Errorf("Spillway has found %d servers of %d", shards, len(f.servers))
	}
	external := labels.EmptyLabels()
	if name, value, ok := strings.Cut(strings.TrimSuffix(f.labels, ","), "="); ok {
		external = labels.FromStrings(name, strings.Trim(value, `"`))
	}
	whole := realpromtest.Start(t, realprom.Options{
		Blocks: []string{blocks(t, load(-1, 1, f.labels), begin), demo(t, begin, external, nil)},
	})
	at := func(d time.Duration) string { return fmt.Sprint(begin.Add(d).Unix()) }
	asked := 0
	for _, q := range queries {
		for _, path := range []string{
			"/api/v1/query?" + url.Values{"query": {q}, "time": {at(20 * time.Minute)}}.Encode(),
			"/api/v1/query_range?" + url.Values{
				"query": {q}, "start": {at(5 * time.Minute)}, "end": {at(25 * time.Minute)}, "step": {"37"},
			}.Encode(),
		} {
			asked++
			if got, want := answer(t, node.api+path), answer(t, whole.URL()+path); got != want {
				t.Errorf("%s %s\nSpillway: %s\none Prometheus: %s", q, path, got, want)
			} else if strings.HasSuffix(want, " []") {
				t.Errorf("%s compares nothing: %s", path, want)
			}
		}
	}
	t.Logf("%d answers are those of one Prometheus", asked)
	p.panels(node.api, whole.URL(), begin)
}

// values are those of an answer without their series.
func values(answer string) string {
	all := strings.Split(labelled.ReplaceAllString(answer, ""), "},{")
	slices.Sort(all)
	return strings.Trim(strings.Join(all, "},{"), "[]{}")
}

// panelQueries is how many queries of dashboards are compared at most.
const panelQueries = 100

// panels compares the answers to queries of the dashboards that the demo has, asked as Grafana asks
// them: the first that have any.
func (p *plane) panels(spillway, whole string, begin time.Time) {
	t := p.t
	t.Helper()
	from, to := begin.Add(10*time.Minute), begin.Add(29*time.Minute)
	compared := map[string]bool{}
	for _, name := range dashboards.Names() {
		d, err := dashboards.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		v, err := live.Look(p.ctx, live.NewSource("one Prometheus", whole), d, from, to, "$__all")
		if err != nil {
			continue // a variable of series that only rules make has no value
		}
		all, err := v.Questions()
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range all {
			params := url.Values{"query": {q.Question.Expr}, "time": {fmt.Sprint(q.Question.To.Unix())}}
			path := "/api/v1/query?"
			if q.Question.Step > 0 {
				path = "/api/v1/query_range?"
				params.Set("start", fmt.Sprint(q.Question.From.Unix()))
				params.Set("end", fmt.Sprint(q.Question.To.Unix()))
				params.Set("step", fmt.Sprint(q.Question.Step.Seconds()))
			}
			path += params.Encode()
			if q.Target == nil || compared[path] || len(compared) == panelQueries {
				continue
			}
			want := answer(t, whole+path)
			if strings.HasSuffix(want, " []") {
				continue
			}
			compared[path] = true
			got := answer(t, spillway+path)
			if strings.Contains(q.Question.Expr, "topk(") { // of equal values each server takes others
				got, want = values(got), values(want)
			}
			if got != want {
				t.Errorf("%s: %s\nSpillway: %.2000s\none Prometheus: %.2000s", name, q.Question.Expr, got, want)
			}
		}
	}
	t.Logf("%d answers to queries of dashboards compared", len(compared))
	if len(compared) < 70 {
		t.Errorf("%d queries of dashboards have an answer", len(compared))
	}
}

func fetch(t *testing.T, address string) []byte {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	res, err := client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	// number is a sample's value, or that of a label.
	number = regexp.MustCompile(`"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?"`)
	// labelled are the labels of a series.
	labelled = regexp.MustCompile(`"metric":\{[^}]*\},?`)
)

// answer is the result of a query; the order of an instant vector is not defined, but for that of
// sort, and numbers have 12 digits: sums over two shards are added in another order
// (docs/exactness.md).
func answer(t *testing.T, address string) string {
	t.Helper()
	b := fetch(t, address)
	var a struct {
		Status string
		Data   struct{ Result []json.RawMessage }
		Error  string
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return string(b)
	}
	if !strings.Contains(address, "sort_desc") {
		slices.SortFunc(a.Data.Result, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
	}
	out, err := json.Marshal(a.Data.Result)
	if err != nil {
		t.Fatal(err)
	}
	return a.Status + a.Error + " " + number.ReplaceAllStringFunc(string(out), func(s string) string {
		f, err := strconv.ParseFloat(strings.Trim(s, `"`), 64)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.FormatFloat(f, 'g', 12, 64)
	})
}
