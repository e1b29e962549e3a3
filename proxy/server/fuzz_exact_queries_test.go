package server

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// exactQueries writes random expressions over the metrics of a world. Selectors, per-series
// functions and aggregations of them are the commonest, since they are what may run on the shards;
// everything else that PromQL has stands around them.
type exactQueries struct {
	w     *exactWorld
	rng   *rand.Rand
	nodes []string
	start time.Time
}

func newExactQueries(w *exactWorld) *exactQueries {
	g := &exactQueries{w: w, rng: rand.New(rand.NewPCG(w.seed, 13)), start: w.start}
	for _, group := range w.groups {
		for _, s := range group.shards {
			for _, n := range s.nodes {
				if !slices.Contains(g.nodes, n.name) {
					g.nodes = append(g.nodes, n.name)
				}
			}
		}
	}
	if len(g.nodes) == 0 {
		g.nodes = []string{"none"}
	}
	return g
}

func (g *exactQueries) chance(p float64) bool { return g.rng.Float64() < p }

func pickOne[T any](g *exactQueries, of ...T) T { return of[g.rng.IntN(len(of))] }

// duration writes one of a few durations, now and then as an expression.
func (g *exactQueries) duration() string {
	if g.chance(0.05) {
		return pickOne(g, "(1m + 30s)", "(2m * 2)", "max(1m, step())", "(step() + 1m)", "-(-3m)", "min(range(), 4m) + 30s")
	}
	return pickOne(g, "20s", "45s", "1m", "90s", "2m", "3m", "5m", "5m", "7m13s", "10m", "15m")
}

// modifier is an offset, an @, both, or usually nothing.
func (g *exactQueries) modifier() string {
	out := ""
	if g.chance(0.08) {
		out += pickOne(g, " offset 1m", " offset 3m17s", " offset 12m", " offset -1m", " offset -37s", " offset 250ms",
			" offset (1m + 10s)")
	}
	if g.chance(0.06) {
		out += pickOne(g, " @ start()", " @ end()", " @ "+g.moment())
	}
	return out
}

// moment is a time within the data, as @ takes it.
func (g *exactQueries) moment() string {
	return stamp(g.start.Add(time.Duration(g.rng.Int64N(int64(g.w.length)))))
}

// metric is a metric of one of the kinds, any where none is given.
func (g *exactQueries) metric(kinds ...string) *exactMetric {
	for {
		m := &exactMetrics[g.rng.IntN(len(exactMetrics))]
		if m.name == "collides" && !g.chance(0.3) {
			continue
		}
		if len(kinds) == 0 || slices.Contains(kinds, m.kind) {
			return m
		}
	}
}

func (g *exactQueries) someNodes() string {
	n := 1 + g.rng.IntN(min(3, len(g.nodes)))
	out := make([]string, n)
	for i := range out {
		out[i] = pickOne(g, g.nodes...)
	}
	return strings.Join(out, "|")
}

// selector writes an instant selector without modifiers.
func (g *exactQueries) selector(kinds ...string) string {
	m := g.metric(kinds...)
	name, ms := m.name, []string(nil)
	if len(kinds) == 0 && g.chance(0.04) {
		name, ms = "", []string{`__name__=~"` + pickOne(g, "up|node_info", "gpu_temperature|special", "http_requests_total|slow_value",
			"node_.+", "quota|up", "limit_.+") + `"`}
	} else if len(kinds) == 0 && g.chance(0.06) {
		name = pickOne(g, "quota", "quota", "capacity", "capacity", "bound", "nothing_has_this_name")
	}
	if g.chance(0.3) {
		ms = append(ms, pickOne(g, `cluster="jaguar"`, `cluster="jaguar"`, `cluster="ibis"`, `cluster!="jaguar"`, `cluster=~"jaguar|heron"`,
			`cluster=""`, `cluster="nowhere"`, `cluster=~".+"`, `region="eu"`, `cluster!~"i.*"`))
	}
	if g.chance(0.25) {
		ms = append(ms, pickOne(g, `node="`+pickOne(g, g.nodes...)+`"`, `node=~"`+g.someNodes()+`"`, `node!="`+pickOne(g, g.nodes...)+`"`,
			`node=""`, `node=~"[nu][0-3]"`, `node!~"`+g.someNodes()+`"`))
	}
	if g.chance(0.15) {
		ms = append(ms, pickOne(g, `code="500"`, `code=~"5.."`, `code!="200"`, `gpu="0"`, `job="api"`, `job="node"`,
			`prometheus_replica=""`, `prometheus_replica!="a"`, `handler="/a"`, `s="a"`, `le="+Inf"`, `"node.zone"="z1"`, `rack=~"r.|"`,
			`nothing=""`, `tier="gold"`))
	}
	plain := !strings.ContainsFunc(name, func(r rune) bool { return r > 127 || r == '.' })
	switch {
	case name == "":
	case !plain, len(ms) > 0 && g.chance(0.03):
		ms = append([]string{fmt.Sprintf("%q", name)}, ms...)
		name = ""
	}
	if len(ms) == 0 {
		return name
	}
	return name + "{" + strings.Join(ms, pickOne(g, ",", ", ")) + "}"
}

// perSeries writes an expression each series of which follows from one stored series.
func (g *exactQueries) perSeries(depth int) string {
	switch n := g.rng.IntN(22); {
	case n == 21:
		return g.renamed()
	case n == 20: // labels that make series of different shards equal, or keep them apart by chance
		if g.chance(0.4) {
			return fmt.Sprintf(`label_join(%s, "%s", "", "%s")`, g.selector(), pickOne(g, "node", "instance", "dst"),
				pickOne(g, "job", "none", "node"))
		}
		return fmt.Sprintf(`label_replace(%s, "%s", "%s", "%s", "(.*)")`, pickOne(g, "quota", g.selector()),
			pickOne(g, "node", "instance", "pool"), pickOne(g, "x", "", "$1"), pickOne(g, "node", "job", ""))
	case n < 8:
		return g.selector() + g.modifier()
	case n < 13:
		return g.overRange(g.selector("counter", "bucket", "exponential", "gauge", "custom") + "[" + g.duration() + "]" + g.modifier())
	case n < 14 && depth > 0:
		return g.simple(depth - 1)
	case n < 16:
		return g.withNumber(g.selector() + g.modifier())
	case n < 17:
		return "rate(" + g.selector("counter", "bucket") + "[" + g.duration() + "]" + g.modifier() + ")"
	case n < 18:
		return "-" + g.selector()
	case n < 19:
		return "(" + g.selector() + g.modifier() + ")"
	}
	return g.selector(pickOne(g, "exponential", "custom", "mixed")) + g.modifier()
}

// severalNames writes a selector of several metrics by a regular expression; those of limit_ are
// equal on all shards but for the name.
func (g *exactQueries) severalNames() string {
	names := pickOne(g, "limit_.+", "limit_.+", "limit_[0-4]", "up|node_info", "quota|up", "capacity|quota", "bound|limit_.+",
		"http_requests_total|http_seconds_count")
	return `{__name__=~"` + names + `"` + pickOne(g, "", "", "", `,cluster="jaguar"`, `,tier="gold"`) + "}"
}

// renamed writes an expression that makes series equal which only a name, a type or a label kept
// apart, and now and then a filter that hides all but one of them: the reference fails on those
// that it hides, too.
func (g *exactQueries) renamed() string {
	of := g.severalNames()
	if g.chance(0.25) {
		of = pickOne(g, "bound", `bound{tier="gold"}`, "bound")
	}
	switch g.rng.IntN(7) {
	case 0:
		of = pickOne(g, "rate", "delta", "max_over_time", "last_over_time", "changes") + "(" + of + "[" + g.duration() + "])"
	case 1:
		of = pickOne(g, "abs", "ceil", "sgn", "timestamp", "round") + "(" + of + ")"
	case 2:
		of = "(-" + of + ")"
	case 3:
		of = "(" + of + pickOne(g, " * 2", " + 0", " ^ 1", " > bool 1") + ")"
	case 4:
		of = fmt.Sprintf(`label_replace(%s, "%s", "x", "", "")`, of, pickOne(g, "__name__", "tier", "node", "pool"))
	case 5:
		of = fmt.Sprintf("max_over_time((%s%s)[2m:30s])", pickOne(g, "-", "", "2 * "), of)
	}
	if g.chance(0.6) {
		of = "(" + of + pickOne(g, " > ", " < ", " >= ", " == ", " != ") + pickOne(g, "0", "0.1", "1", "0.5", "2", "4") + ")"
	}
	return of
}

var exactRangeFunctions = []string{
	"rate", "rate", "increase", "delta", "irate", "idelta", "deriv", "changes", "resets", "avg_over_time", "min_over_time", "max_over_time",
	"sum_over_time", "count_over_time", "last_over_time", "first_over_time",
	"present_over_time", "stddev_over_time", "stdvar_over_time", "mad_over_time", "ts_of_max_over_time", "ts_of_min_over_time",
	"ts_of_last_over_time", "absent_over_time",
}

// overRange writes a function of a range.
func (g *exactQueries) overRange(of string) string {
	switch g.rng.IntN(12) {
	case 0:
		return fmt.Sprintf("quantile_over_time(%s, %s)", pickOne(g, "0.5", "0.9", "0", "1", "2"), of)
	case 1:
		return fmt.Sprintf("predict_linear(%s, %s)", of, pickOne(g, "600", "-60"))
	case 2:
		if g.chance(0.3) {
			return fmt.Sprintf("double_exponential_smoothing(%s, 0.3, 0.6)", of)
		}
	}
	return pickOne(g, exactRangeFunctions...) + "(" + of + ")"
}

// withNumber writes an operation with a literal, on either side.
func (g *exactQueries) withNumber(v string) string {
	n := pickOne(g, "0", "1", "-1", "2", "10", "45", "100", "0.5", "NaN", "Inf", "-Inf", "1e9", "1", "(1 + 1)", "time()", "3m")
	op := pickOne(g, "+", "-", "*", "/", "%", "^", "atan2", ">", "<", ">=", "<=", "==", "!=", "> bool", "< bool", "== bool", "!= bool",
		">= bool", "*", "-", "<", ">")
	if g.chance(0.5) {
		return n + " " + op + " " + v
	}
	return v + " " + op + " " + n
}

// simple writes a function of an instant vector.
func (g *exactQueries) simple(depth int) string {
	v := g.vector(depth)
	switch g.rng.IntN(9) {
	case 0:
		return fmt.Sprintf("clamp(%s, %s, %s)", v, pickOne(g, "0", "40", "-1"), pickOne(g, "1", "45", "Inf"))
	case 1:
		return fmt.Sprintf("clamp_%s(%s, %s)", pickOne(g, "min", "max"), v, pickOne(g, "0", "44", "NaN"))
	case 2:
		return fmt.Sprintf("round(%s, %s)", v, pickOne(g, "1", "0.5", "10"))
	case 3:
		return fmt.Sprintf(`label_replace(%s, "%s", "%s", "%s", "%s")`, v,
			pickOne(g, "dst", "node", "cluster", "prometheus_replica", "__name__"), pickOne(g, "$1", "x", "x-$1", ""),
			pickOne(g, "node", "cluster", "job", "code", "none"), pickOne(g, "(.*)", "(.).*", "jag(.*)", "n[0-2]"))
	case 4:
		return fmt.Sprintf(`label_join(%s, "%s", "%s", %s)`, v, pickOne(g, "dst", "node", "cluster"), pickOne(g, "-", ""),
			pickOne(g, `"node", "cluster"`, `"job"`, `"node"`, `"cluster"`))
	case 5:
		return pickOne(g, "histogram_count", "histogram_sum", "histogram_avg", "histogram_stddev", "histogram_stdvar") + "(" +
			g.histograms(depth) + ")"
	case 6:
		if g.chance(0.3) {
			return g.quantiles()
		}
		if g.chance(0.3) {
			return fmt.Sprintf("histogram_fraction(%s, %s, %s)", pickOne(g, "0", "-1", "0.2"), pickOne(g, "1", "2.5", "Inf"),
				g.histograms(depth))
		}
		return g.histogramQuantile(depth)
	case 7:
		return pickOne(g, "sort", "sort_desc") + "(" + v + ")"
	}
	return pickOne(g, "abs", "start_timestamp", "ceil", "floor", "exp", "ln", "log2", "log10", "sqrt", "sgn", "timestamp", "sin", "deg",
		"year", "minute", "hour", "day_of_week", "days_in_month") + "(" + v + ")"
}

// histograms writes an expression of native histograms.
func (g *exactQueries) histograms(depth int) string {
	sel := g.selector(pickOne(g, "exponential", "custom", "exponential", "mixed"))
	switch g.rng.IntN(5) {
	case 0:
		return sel
	case 1:
		return "rate(" + sel + "[" + g.duration() + "])"
	case 2:
		return pickOne(g, "sum", "avg") + g.grouping() + "(" + sel + ")"
	case 3:
		return pickOne(g, "sum", "avg") + g.grouping() + "(" + pickOne(g, "rate", "increase", "last_over_time", "sum_over_time",
			"avg_over_time", "delta", "irate") + "(" + sel + "[" + g.duration() + "]))"
	}
	return g.withNumber(sel)
}

func (g *exactQueries) histogramQuantile(depth int) string {
	q := pickOne(g, "0.5", "0.9", "0.99", "0", "1", "-1")
	if g.chance(0.5) {
		by := pickOne(g, " by (le)", " by (le, cluster)", " by (le, node)", " without (instance, node)", " by (le, job)")
		return fmt.Sprintf("histogram_quantile(%s, sum%s (rate(%s[%s])))", q, by, g.selector("bucket"), g.duration())
	}
	return fmt.Sprintf("histogram_quantile(%s, %s)", q, g.histograms(depth))
}

// quantiles writes several quantiles at once, each with a label that may be one by which shards or
// groups are told apart.
func (g *exactQueries) quantiles() string {
	of := g.selector("bucket")
	switch g.rng.IntN(4) {
	case 0:
		of = "rate(" + of + "[" + g.duration() + "])"
	case 1:
		of = "sum" + pickOne(g, " by (le)", " by (le, node)", " by (le, cluster)", " by (le, node, cluster)") + " (rate(" + of + "[" +
			g.duration() + "]))"
	case 2:
		of = g.selector("exponential")
	}
	out := fmt.Sprintf(`histogram_quantiles(%s, "%s", %s)`, of, pickOne(g, "node", "node", "cluster", "q", "job", "instance"),
		pickOne(g, "0.5", "0.5, 0.9", "0, 1", "0.99, 2"))
	if g.chance(0.5) {
		out = pickOne(g, "count", "max", "sum", "group") + g.grouping() + "(" + out + ")"
	}
	return out
}

var exactLabelNames = []string{
	"__type__", "__unit__", "node", "cluster", "job", "instance", "code", "gpu", "le", "handler", "region",
	"prometheus_replica", `"node.zone"`, `"baie.n°"`, "rack", "pool", "none", "__name__",
}

// grouping is by, without, or nothing.
func (g *exactQueries) grouping() string {
	if g.chance(0.35) {
		return " "
	}
	n := g.rng.IntN(3)
	names := []string{pickOne(g, "node", "cluster", "job", "cluster", "node")}
	for range n {
		names = append(names, pickOne(g, exactLabelNames...))
	}
	if g.chance(0.05) {
		names = nil
	}
	return " " + pickOne(g, "by", "by", "without") + " (" + strings.Join(names, ", ") + ") "
}

var exactPlain = []string{"sum", "sum", "count", "min", "max", "avg", "group"}

// aggregate writes an aggregation.
func (g *exactQueries) aggregate(depth int) string {
	of := g.perSeries(depth)
	if depth > 0 && g.chance(0.3) {
		of = g.vector(depth - 1)
	}
	switch g.rng.IntN(14) {
	case 0:
		return pickOne(g, "topk", "bottomk") + g.grouping() + "(" + pickOne(g, "1", "2", "3", "10", "0") + ", " + of + ")"
	case 1:
		return "quantile" + g.grouping() + "(" + pickOne(g, "0.5", "0.9", "0", "1", "-1", "NaN") + ", " + of + ")"
	case 2:
		return "count_values" + g.grouping() + `("` + pickOne(g, "v", "node", "cluster") + `", ` + of + ")"
	case 3:
		return pickOne(g, "stddev", "stdvar") + g.grouping() + "(" + of + ")"
	case 4:
		if g.chance(0.5) {
			return pickOne(g, "limitk") + g.grouping() + "(" + pickOne(g, "1", "3") + ", " + of + ")"
		}
		return "limit_ratio" + g.grouping() + "(" + pickOne(g, "0.3", "-0.5", "1") + ", " + of + ")"
	}
	return pickOne(g, exactPlain...) + g.grouping() + "(" + of + ")"
}

// subquery writes a function over a subquery.
func (g *exactQueries) subquery(depth int) string {
	inner := g.vector(depth)
	switch g.rng.IntN(10) {
	case 0, 1, 2:
		inner = g.aggregate(0)
	case 3, 4: // what means the whole query's grid, in a part that has another
		inner = "sum" + g.grouping() + "(" + pickOne(g, "count_over_time("+g.selector()+"[step() + 1m])", g.selector()+" @ start()",
			"last_over_time("+g.selector()+"[max(range(), 1m)] @ end())") + ")"
	}
	if strings.ContainsAny(inner, " -+") && !strings.HasSuffix(inner, ")") || strings.HasPrefix(inner, "-") {
		inner = "(" + inner + ")"
	}
	step := pickOne(g, "", "15s", "30s", "17s", "1m", "500ms", "(10s + 5s)")
	within := pickOne(g, "1m", "2m", "5m", "10m")
	if step == "500ms" {
		within = "20s"
	}
	return g.overRange("(" + inner + ")[" + within + ":" + step + "]" + g.modifier())
}

// vector writes an instant vector of any form.
func (g *exactQueries) vector(depth int) string {
	if depth <= 0 {
		return g.perSeries(0)
	}
	switch n := g.rng.IntN(30); {
	case n < 4:
		return g.perSeries(depth)
	case n < 15:
		return g.aggregate(depth - 1)
	case n < 18:
		return g.simple(depth - 1)
	case n < 21:
		return g.withNumber("(" + g.vector(depth-1) + ")")
	case n < 25:
		return "(" + g.binary(depth-1) + ")"
	case n < 27:
		return g.subquery(depth - 1)
	case n < 28:
		return "absent(" + g.vector(depth-1) + ")"
	case n < 29:
		if g.chance(0.4) {
			return "info(" + g.selector("counter", "gauge") + pickOne(g, ")", `, {version=~".+"})`, `, {version="v1"})`)
		}
		return pickOne(g, "absent_over_time("+g.selector()+"["+g.duration()+"])", "vector(scalar("+g.vector(depth-1)+"))", "vector(1)",
			"vector(time())", "- ("+g.vector(depth-1)+")")
	}
	range3 := pickOne(g, "anchored", "smoothed")
	return pickOne(g, "rate", "increase", "delta", "changes", "resets") + "(" + g.selector("counter") + "[" + g.duration() + "] " + range3 +
		")"
}

// query writes an expression.
func (g *exactQueries) query() string {
	switch n := g.rng.IntN(46); {
	case n >= 45:
		return g.quantiles()
	case n >= 43:
		return g.oneSided()
	case n >= 41:
		return g.closeSums()
	case n >= 40:
		return pickOne(g, "", "sum ", "count by (tier) ", "max ") + "(" + g.renamed() + ")"
	case n == 0:
		return "scalar(" + g.vector(1) + ")"
	case n == 1:
		return "scalar(" + g.aggregate(0) + ") " + pickOne(g, "+", "*", "> bool") + " " +
			pickOne(g, "1", "time()", "scalar("+g.selector()+")")
	case n == 2:
		return g.selector() + "[" + g.duration() + "]" + g.modifier() // at an instant only
	case n < 12:
		return g.aggregate(1)
	case n < 16:
		return g.withNumber(g.aggregate(0))
	}
	return g.vector(1 + g.rng.IntN(3))
}

// question gives an expression a time: an instant, or a range of any step.
func (g *exactQueries) question(query string) exactQuestion {
	q := exactQuestion{query: query}
	end := g.start.Add(time.Duration(g.rng.Int64N(int64(g.w.length + 5*time.Minute)))).Truncate(time.Millisecond)
	switch g.rng.IntN(6) {
	case 0:
		end = end.Truncate(15 * time.Second)
	case 1: // at a sample, or a millisecond beside it
		if t, ok := g.sampleTime(); ok {
			end = time.UnixMilli(t + int64(g.rng.IntN(3)-1))
		}
	case 2:
		if !g.w.moved.IsZero() {
			end = g.w.moved.Add(time.Duration(g.rng.Int64N(int64(24*time.Minute))) - 4*time.Minute).Truncate(time.Millisecond)
		}
	}
	q.start, q.end = end, end
	if g.chance(0.1) {
		q.lookback = pickOne(g, 20*time.Second, time.Minute, 90*time.Second, 10*time.Minute)
	}
	if g.chance(0.5) {
		return q
	}
	q.step = pickOne(g, 15*time.Second, 30*time.Second, 37*time.Second, time.Minute, 7300*time.Millisecond, 250*time.Millisecond,
		time.Second, 61001*time.Millisecond, 5*time.Minute, 13*time.Second)
	steps := 1 + g.rng.IntN(30)
	q.start = q.end.Add(-time.Duration(steps) * q.step)
	if g.chance(0.5) { // the end is no multiple of the step
		q.end = q.end.Add(time.Duration(g.rng.Int64N(int64(q.step))).Truncate(time.Millisecond))
	}
	return q
}

// sampleTime is the time of some sample.
func (g *exactQueries) sampleTime() (int64, bool) {
	group := pickOne(g, g.w.groups...)
	s := pickOne(g, group.shards...)
	r := pickOne(g, s.replicas...)
	if len(r.series) == 0 {
		return 0, false
	}
	return pickOne(g, pickOne(g, r.series...).points...).t, true
}
