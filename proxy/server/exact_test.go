package server

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/plan"
)

// expressions are what is asked: every kind of node, over one shard, one group and everything.
func expressions(rng *rand.Rand) []string {
	selectors := []string{
		`http_requests_total`, `http_requests_total{cluster="jaguar"}`, `http_requests_total{cluster="heron",code="500"}`,
		`node_memory_free_bytes{cluster=~"ibis|heron"}`,
		`gpu_temperature{node=~"n[0-5]"}`, `gpu_temperature{cluster!="jaguar"}`, `request_duration_seconds_bucket`, `mixed_in`,
		`mixed_in{cluster="ibis"}`,
		`http_requests_total{prometheus_replica=""}`, `up{cluster="heron"}`, `{__name__=~"up|node_memory_free_bytes"}`,
		`nothing_has_this_name`, `up{cluster="nowhere"}`,
	}
	var out []string
	for _, s := range selectors {
		out = append(out,
			s, s+" offset 3m", s+" @ end()", "-"+s, "rate("+s+"[3m])", "increase("+s+"[7m])", "max_over_time("+s+"[2m:30s])", "sum("+s+")",
			"sum by (cluster) ("+s+")",
			"count without (node, instance) ("+s+")", "avg by (node) ("+s+")", "topk(2, "+s+")", "quantile(0.3, "+s+")",
			"stddev by (cluster) ("+s+")", "absent("+s+")",
			"count_values(\"v\", count by (cluster) ("+s+"))", s+" > 50", "timestamp("+s+")", "changes("+s+"[10m])",
			"sum(rate("+s+"[5m])) by (job, cluster)",
			"label_replace("+s+`, "c", "$1", "cluster", "(.).*")`, "sort_desc("+s+")", "last_over_time("+s+"[45s])",
			"sum by (prometheus_replica) ("+s+")", "group by (cluster) ("+s+")",
		)
	}
	out = append(out,
		`sum(rate(http_requests_total{code="500"}[5m])) / sum(rate(http_requests_total[5m]))`,
		`sum by (cluster) (rate(http_requests_total{code="500"}[5m])) / sum by (cluster) (rate(http_requests_total[5m]))`,
		`histogram_quantile(0.9, sum by (le) (rate(request_duration_seconds_bucket[5m])))`,
		`histogram_quantile(0.9, sum by (le, cluster) (rate(request_duration_seconds_bucket[5m])))`,
		`histogram_quantile(0.5, rpc_duration_seconds)`, `histogram_quantile(0.5, sum(rate(rpc_duration_seconds[5m])))`, `histogram_count(rpc_duration_seconds)`, `rate(rpc_duration_seconds{cluster="heron"}[4m])`,
		`sum(rpc_duration_seconds)`, `max(http_requests_total) < 10`, `10 - max(http_requests_total)`, `up * on (node) group_left (job) gpu_temperature{gpu="0"}`,
		`up * on (cluster, node) group_right () http_requests_total`, `up unless on (node) (gpu_temperature > 45)`, `up{cluster="jaguar"} or up{cluster="ibis"}`, `up or vector(0)`,
		`scalar(up{node="n1"})`, `vector(1)`, `time()`, `sum(up) + count(up)`, `max by (cluster) (gpu_temperature) > bool 50`,
		`count(count by (node) (up))`, `sum(sum by (cluster) (up))`, `avg(avg by (cluster) (gpu_temperature{gpu="1"}))`,
		`absent(up{cluster="heron"})`, `absent(up{cluster="nowhere"})`, `absent_over_time(up{node="none"}[5m])`,
		`up{cluster="heron"} and on () vector(1)`,
		`sum by (cluster) (up) * on (cluster) group_left () up`, `label_join(up{cluster="heron"}, "x", "-", "node", "cluster")`, `count by (cluster, node) (up{cluster="heron"})`,
		`sum without (cluster) (up{cluster="heron"})`, `min without (cluster, node, instance) (gpu_temperature)`, `http_requests_total{cluster="heron"} / ignoring (code) group_left sum without (code) (http_requests_total{cluster="heron"})`,
		`predict_linear(node_memory_free_bytes[10m], 3600)`, `deriv(node_memory_free_bytes{cluster="heron"}[10m])`, `resets(http_requests_total[30m])`, `irate(http_requests_total[2m])`, `delta(gpu_temperature[5m])`,
		`sum_over_time(up[5m])`, `stdvar_over_time(gpu_temperature[5m])`, `quantile_over_time(0.7, node_memory_free_bytes[6m])`, `rate(http_requests_total[5m:30s])`, `max_over_time(sum(up)[5m:1m])`,
		`http_requests_total @ start()`, `sum(http_requests_total @ end()) by (cluster)`, `clamp(gpu_temperature, 42, 48)`, `hour()`,
		`day_of_week(up{cluster="heron"})`,
	)
	for range 30 { // random pairs
		a, b := out[rng.IntN(len(selectors)*25)], out[rng.IntN(len(selectors)*25)]
		out = append(out, "count("+a+") + on () count("+b+")")
	}
	return out
}

// Equal answers over shards and replicas, against one Prometheus that holds all of it.
func TestQueriesAreExact(t *testing.T) {
	t.Run("replicas that differ", func(t *testing.T) { queriesAreExact(t, 200, 2, 2, 1) })
	t.Run("one replica each", func(t *testing.T) { queriesAreExact(t, 0, 1, 1, 1) })
}

func queriesAreExact(t *testing.T, leastRaw int, replicas ...int) {
	seed := randseed.Of(t, testSeed)
	w := makeWorldOf(t, seed, replicas...)
	s, base := w.serve(t.Context())
	ref := &reference{w: w}
	s.observe = ref.observe
	modes := map[plan.Mode]int{}
	var mu sync.Mutex
	s.observeCall = func(m plan.Mode, _, _, _ string) {
		mu.Lock()
		defer mu.Unlock()
		modes[m]++
	}
	for _, g := range w.groups {
		for _, shard := range s.state.Load().top.Group(g.name).Shards {
			var names []string
			for _, r := range shard.Replicas {
				names = append(names, r.Name())
			}
			g.names = append(g.names, names)
		}
	}
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1e8, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
		Parser: tree.Parser,
	})
	passed := map[string]int{}
	end := w.start.Add(w.length)
	for i, expr := range expressions(w.rng) {
		at := w.start.Add(time.Duration(w.rng.Int64N(int64(w.length)))).Truncate(time.Millisecond)
		if i%3 == 0 {
			at = end.Add(time.Duration(w.rng.Int64N(int64(3 * time.Minute))))
		}
		for _, isRange := range []bool{false, true} {
			form, path := url.Values{"query": {expr}}, "/api/v1/query"
			start, step := at.Add(-10*time.Minute), 37*time.Second
			if isRange {
				path = "/api/v1/query_range"
				form.Set("start", stamp(start))
				form.Set("end", stamp(at))
				form.Set("step", "37")
			} else {
				form.Set("time", stamp(at))
			}
			code, body := ask(t, base, path, form)
			selected := ref.take()
			var problems []string
			queryable := storage.QueryableFunc(func(int64, int64) (storage.Querier, error) {
				return &refQuerier{r: ref, selected: selected, problems: &problems}, nil
			})
			var qry promql.Query
			var err error
			if isRange {
				qry, err = engine.NewRangeQuery(t.Context(), queryable, nil, expr, start, at, step)
			} else {
				qry, err = engine.NewInstantQuery(t.Context(), queryable, nil, expr, at)
			}
			if err != nil {
				t.Fatalf("%s: %v", expr, err)
			}
			res := qry.Exec(t.Context())
			got, msg := fromJSON(t, body)
			what := fmt.Sprintf("%s (range %v, at %s)", expr, isRange, stamp(at))
			switch {
			case res.Err != nil && got == nil:
				passed["error"]++ // both refuse, such as a many-to-many match
			case res.Err != nil:
				t.Errorf("%s: the reference fails with %v, the proxy answers", what, res.Err)
			case got == nil:
				t.Errorf("%s: the proxy answers %d %s", what, code, msg)
			default:
				mode := "raw"
				if len(selected) == 0 {
					mode = "pass or local"
				}
				passed[mode]++
				tolerance := 0.0
				if mode != "raw" {
					tolerance = 1e-12
				}
				want := fromResult(res.Value)
				if strings.HasPrefix(expr, "topk(") { // of equal values it takes either
					got, want = byRank(got), byRank(want)
				}
				if diff := compare(got, want, tolerance); diff != "" {
					t.Errorf("%s: %s", what, diff)
				}
			}
			if len(problems) > 0 {
				t.Errorf("%s: %s", what, problems[0])
			}
			qry.Close()
		}
	}
	t.Logf("compared: %v, calls: %v", passed, modes)
	if passed["raw"] < leastRaw || passed["pass or local"] < 50 {
		t.Errorf("too few comparisons: %v", passed)
	}
}

// byRank are the values of each moment, whosesoever they are.
func byRank(a valuesAt) valuesAt {
	at := map[int64][]string{}
	for _, points := range a {
		for t, v := range points {
			at[t] = append(at[t], v)
		}
	}
	out := valuesAt{}
	for t, values := range at {
		slices.Sort(values)
		for i, v := range values {
			key := fmt.Sprintf("value %d", i)
			if out[key] == nil {
				out[key] = map[int64]string{}
			}
			out[key][t] = v
		}
	}
	return out
}

func stamp(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
