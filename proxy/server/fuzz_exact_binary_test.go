package server

import (
	"fmt"
	"strings"
)

// matching is the matching clause of a binary operation between vectors.
func (g *exactQueries) matching(set bool) string {
	if g.chance(0.15) {
		return " "
	}
	names := []string{pickOne(g, "node", "node", "cluster", "job", "instance")}
	for range g.rng.IntN(3) {
		names = append(names, pickOne(g, exactLabelNames[:17]...))
	}
	out := " " + pickOne(g, "on", "on", "ignoring") + " (" + strings.Join(names, ", ") + ") "
	if g.chance(0.08) {
		out = " on () "
	}
	if !set && g.chance(0.6) {
		include := pickOne(g, "", "", "rack", "job", "cluster", "version")
		if !strings.HasPrefix(out, " ignoring") && strings.Contains(out, include) {
			include = ""
		}
		out += pickOne(g, "group_left", "group_right") + " (" + include + ") "
	}
	return out
}

// binary writes an operation between two vectors.
func (g *exactQueries) binary(depth int) string {
	a, b := g.vector(depth), g.vector(depth)
	switch g.rng.IntN(9) {
	case 8: // partners that lack the label by which they are matched, and by which the shards may be told apart
		gold, tin := `quota{tier="gold"}`, `quota{tier="tin"}`
		if g.chance(0.5) {
			return gold + pickOne(g, " and on (node) ", " unless on (node) ", " or on (node) ", " * on (node) group_left () ") + tin
		}
		return "sum by (node) (" + gold + ")" + pickOne(g, " / on (node) ", " unless on (node) ", " or on (node) ") + "sum by (node) (" +
			tin + ")"
	case 0: // joins that find partners
		m := g.metric("gauge", "counter")
		a = m.name
		if m.name == "température.c" {
			a = `{"température.c"}`
		}
		return a + " * on (node, instance, cluster) group_left (" + pickOne(g, "", "version", "rack") + ") " +
			pickOne(g, "target_info", "node_info", `up{job="node"}`, `up`)
	case 1:
		by := pickOne(g, "cluster", "node", "job", "cluster, node", "")
		return fmt.Sprintf("sum by (%s) (%s) %s sum by (%s) (%s)", by, g.perSeries(0),
			pickOne(g, "/", "-", "+", ">", "<= bool", "and", "or", "unless"), by, g.perSeries(0))
	case 2:
		return a + " " + pickOne(g, "and", "or", "unless") + g.matching(true) + b
	case 3:
		return a + pickOne(g, " or vector(0)", " or on () vector(1)", " and on () vector(1)", " unless on () vector(1)")
	case 4:
		s := g.selector("counter", "gauge")
		return s + " " + pickOne(g, "-", "/", "==", "> bool") + " " + s + " offset " + pickOne(g, "1m", "5m")
	}
	fill := ""
	if g.chance(0.1) {
		fill = pickOne(g, "fill(0) ", "fill_left(1) ", "fill_right(2) ")
	}
	return a + " " + pickOne(g, "+", "-", "*", "/", "%", "==", "!=", ">", "<", ">= bool", "atan2") + g.matching(false) + fill + b
}

// oneSided writes a join one side of which has series without the label by which it joins, on one
// shard or on several.
func (g *exactQueries) oneSided() string {
	m := pickOne(g, "up", "node_info", `gpu_temperature{gpu="0"}`, `node_memory_free_bytes`, "capacity", "quota")
	if g.chance(0.3) {
		name, ms, ok := strings.Cut(strings.TrimSuffix(m, "}"), "{")
		if ok {
			ms += ","
		}
		m = name + "{" + ms + `node!=""}`
	}
	few := pickOne(g, "capacity", "capacity", `capacity{node!=""}`, `capacity{node=""}`, "abs(capacity)", "avg by (node, pool) (capacity)")
	on := pickOne(g, " on (node) ", " on (node) ", " on (node, cluster) ", " ignoring (instance, job, gpu, rack, pool) ")
	op := pickOne(g, "*", "+", "/", "> bool", ">", "and", "unless", "or")
	if strings.Contains("and unless or", op) {
		return m + " " + op + on + few
	}
	switch g.rng.IntN(3) {
	case 0:
		return m + " " + op + on + few
	case 1:
		return m + " " + op + on + "group_left (" + pickOne(g, "", "pool") + ") " + few
	}
	return few + " " + op + on + "group_right () " + m
}

// closeSums writes a comparison of sums that are equal, or nearly so: their last bits decide.
func (g *exactQueries) closeSums() string {
	of := pickOne(g, "capacity", "capacity", `{"température.c"}`, "node_memory_free_bytes", "rate(http_requests_total["+g.duration()+"])",
		`{__name__=~"limit_.+"}`)
	by := pickOne(g, "", "", " by (cluster) ", " by (node) ", " by (job) ")
	op := pickOne(g, ">", "<", ">=", "<=", "==", "!=") + pickOne(g, "", " bool")
	sum := "sum" + by + "(" + of + ")"
	switch g.rng.IntN(8) {
	case 0: // a sum and the same in two halves
		node := pickOne(g, g.nodes...)
		with := func(m string) string {
			if i := strings.IndexByte(of, '}'); i >= 0 {
				return of[:i] + "," + m + of[i:]
			}
			if i := strings.IndexByte(of, '['); i >= 0 {
				return of[:i] + "{" + m + "}" + of[i:]
			}
			return of + "{" + m + "}"
		}
		return fmt.Sprintf(`%s %s (sum%s(%s) + sum%s(%s))`, sum, op, by, with(`node="`+node+`"`), by, with(`node!="`+node+`"`))
	case 1:
		return fmt.Sprintf("%s / count%s(%s) %s avg%s(%s)", sum, by, of, op, by, of)
	case 2:
		return fmt.Sprintf("%s / %s %s %s", sum, sum, op, pickOne(g, "1", "(2 / 2)"))
	case 3:
		return fmt.Sprintf("%s(%s) %s %s", pickOne(g, "abs", "max", "min", "-", "sqrt", "sum"), sum, op, g.tenths())
	case 4:
		return fmt.Sprintf("(%s %s) %s %s", sum, pickOne(g, "* 10", "or vector(1)", "/ 10", "+ 0.1", "- 0.1"), op,
			pickOne(g, g.tenths(), fmt.Sprint(1+g.rng.IntN(40))))
	case 5:
		return fmt.Sprintf("%s(%s[%s:30s])", pickOne(g, "ts_of_max_over_time", "ts_of_min_over_time", "idelta", "changes", "max_over_time",
			"resets"), sum, pickOne(g, "2m", "5m"))
	case 6:
		return fmt.Sprintf("%s(%s, sum by (%s) (%s))", pickOne(g, "topk", "bottomk"), pickOne(g, "1", "2"),
			pickOne(g, "node", "cluster", "job", "instance"), of)
	}
	return sum + " " + op + " " + g.tenths()
}

// tenths writes a number that the sums of capacities come near to.
func (g *exactQueries) tenths() string {
	n := 1 + g.rng.IntN(60)
	return pickOne(g, fmt.Sprintf("%g", float64(n)/10), fmt.Sprintf("(%d / 10)", n), fmt.Sprintf("%g", float64(n)/10))
}
