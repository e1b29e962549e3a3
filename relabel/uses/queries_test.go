package uses

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// writer writes random queries over the metrics of a world, such that most of them give an answer.
type writer struct{ rng *rand.Rand }

func (w writer) of(options ...string) string { return options[w.rng.IntN(len(options))] }

func (w writer) labels(from ...string) string {
	if len(from) == 0 {
		from = []string{"a", "b", "c", "d", "job", "version"}
	}
	var out []string
	for _, l := range from {
		if w.rng.IntN(3) == 0 {
			out = append(out, l)
		}
	}
	return strings.Join(out, ", ")
}

func (w writer) selector() string {
	name, matchers := w.of("m0", "m1", "m2", "m3", "m0", "m1", "m2", "m3", "h_bucket"), []string{}
	if w.rng.IntN(15) == 0 {
		name, matchers = "", []string{w.of(`__name__=~"m[01]"`, `__name__=~"m0|m2"`, `__name__!="m1", job="j0"`, `job="j1"`)}
	}
	for w.rng.IntN(3) == 0 {
		l := w.of("a", "b", "c", "d")
		matchers = append(matchers, w.of(
			fmt.Sprintf(`%s="%s%d"`, l, l, w.rng.IntN(3)), fmt.Sprintf(`%s!="%s%d"`, l, l, w.rng.IntN(3)),
			fmt.Sprintf(`%s=~"%s[01]"`, l, l),
			fmt.Sprintf(`%s!~"%s[12]"`, l, l), fmt.Sprintf(`%s=""`, l), fmt.Sprintf(`%s!=""`, l), `job=~"j.*"`))
	}
	s := name
	if len(matchers) > 0 {
		s += "{" + strings.Join(matchers, ", ") + "}"
	}
	return s
}

func (w writer) instant() string {
	switch s := w.selector(); w.rng.IntN(12) {
	case 0:
		return s + " offset 2m"
	case 1:
		return s + " @ 1700000600"
	default:
		return s
	}
}

func (w writer) ranged(depth int) string {
	if depth > 0 && w.rng.IntN(4) == 0 {
		return "(" + w.vector(depth-1) + ")[" + w.of("5m:1m", "10m:2m", "6m:") + "]"
	}
	return w.selector() + "[" + w.of("2m", "5m", "10m") + "]"
}

func (w writer) aggregate(depth int) string {
	op := w.of("sum", "sum", "avg", "min", "max", "count", "group", "stddev", "stdvar", "quantile", "count_values", "topk", "bottomk",
		"limitk", "limit_ratio")
	parameter := map[string]string{
		"quantile": "0.6, ", "count_values": `"v", `, "topk": "2, ", "bottomk": "1, ", "limitk": "2, ",
		"limit_ratio": "0.5, ",
	}[op]
	modifier := w.of("by", "by", "without") + " (" + w.labels() + ") "
	if w.rng.IntN(6) == 0 {
		modifier = ""
	}
	return op + " " + modifier + "(" + parameter + w.vector(depth-1) + ")"
}

func (w writer) histogram() string {
	rate := w.of("rate", "increase", "irate", "delta") + "(h_bucket" + w.of("", "", `{a=~"a.*"}`, `{le!="10.0"}`) + "[5m])"
	inner := rate
	switch w.rng.IntN(5) {
	case 0:
		inner = "sum by (le, " + w.of("a", "b", "job") + ") (" + rate + ")"
	case 1:
		inner = "avg without (" + w.of("a", "b", "c") + ") (" + rate + ")"
	case 2:
		inner = "sum by (le) (" + rate + " * " + w.of("2", "0.5") + ")"
	case 3:
		inner = "h_bucket"
	}
	return "histogram_quantile(" + w.of("0.5", "0.9", "0.99") + ", " + inner + ")"
}

// matched is two vectors with a matching that often holds: one side has nothing but the labels
// matched on.
func (w writer) matched(depth int) string {
	on := w.of("a", "b", "a, b", "job", "a, job", "")
	left, right := w.vector(depth-1), w.of("sum", "max", "group", "count")+" by ("+on+") ("+w.vector(depth-1)+")"
	op := w.of("+", "-", "*", "/", ">", "<", ">= bool", "==", "!=", "%")
	switch w.rng.IntN(11) {
	case 9:
		return fmt.Sprintf("(%s * on (job) group_left (%s) target_info)", left, w.of("version", "d", "version, d", "b"))
	case 10: // one metric after another
		return fmt.Sprintf("%s(%s((%s or on (%s) %s)[12m:2m]))", w.of("sum", "count", "max", "min by (a)"),
			w.of("max_over_time", "sum_over_time", "delta"), w.selector(), w.of("", "a", "job", "a, b"), w.selector())
	case 0:
		return fmt.Sprintf("(%s %s on (%s) group_left () %s)", left, op, on, right)
	case 1:
		return fmt.Sprintf("(%s %s on (%s) group_right () %s)", right, op, on, left)
	case 2: // the one side has more labels
		extra := w.of("c", "d")
		return fmt.Sprintf("(%s %s on (%s) group_left (%s) max by (%s) (%s))", left, op, on, extra, strings.Trim(on+", "+extra, ", "),
			w.vector(depth-1))
	case 3:
		return fmt.Sprintf("(sum by (%s) (%s) %s on (%s) %s)", on, left, op, on, right)
	case 4:
		return fmt.Sprintf("(%s %s ignoring (%s) %s)", left, op, w.labels("a", "b", "c", "d"), w.vector(depth-1))
	case 5:
		return fmt.Sprintf("(%s %s on (%s) %s)", w.vector(depth-1), w.of("and", "unless", "or", "and", "unless"), w.labels(),
			w.vector(depth-1))
	case 6:
		return fmt.Sprintf("(%s %s ignoring (%s) %s)", w.vector(depth-1), w.of("and", "unless", "or"), w.labels(), w.vector(depth-1))
	case 7:
		return fmt.Sprintf("(%s %s %s)", left, w.of("and", "unless", "or", op), w.vector(depth-1))
	default:
		return fmt.Sprintf("(%s %s ignoring (%s) group_left () %s)", left, op, w.labels("a", "b", "c", "d"), right)
	}
}

func (w writer) call(depth int) string {
	v := func() string { return w.vector(depth - 1) }
	switch w.rng.IntN(14) {
	case 0, 1, 2:
		return w.of("rate", "increase", "irate", "delta", "idelta", "deriv", "changes", "resets") + "(" + w.ranged(depth) + ")"
	case 3:
		return w.of("sum_over_time", "max_over_time", "count_over_time", "last_over_time", "stddev_over_time", "present_over_time",
			"first_over_time", "mad_over_time", "ts_of_max_over_time") + "(" + w.ranged(depth) + ")"
	case 4:
		return w.of("quantile_over_time(0.3, ", "quantile_over_time(scalar(m2), ") + w.ranged(depth) + ")"
	case 5:
		return "predict_linear(" + w.ranged(depth) + ", 60)"
	case 6:
		return w.of("abs", "ceil", "exp", "sgn", "timestamp", "hour", "sort", "sort_desc", "-") + "(" + v() + ")"
	case 7:
		return "clamp_max(" + v() + ", scalar(" + v() + "))"
	case 8:
		return w.of("absent("+v()+")", "absent("+v()+")", "(m2 + scalar("+v()+"))")
	case 9:
		return "absent_over_time(" + w.ranged(depth) + ")"
	case 10:
		return fmt.Sprintf(`label_replace(%s, "%s", "$1", "%s", "(.*)")`, v(), w.of("a", "x"), w.of("b", "c"))
	case 11:
		return fmt.Sprintf(`label_join(%s, "x", "-", "a", "%s")`, v(), w.of("b", "c"))
	case 12:
		return w.of("info("+w.instant()+")", w.of("sum", "max")+" by (version) (info("+w.selector()+"))",
			"info("+w.instant()+`, {version=~".+"})`, `sort_by_label(`+v()+`, "a")`, "vector(scalar("+v()+"))")
	default:
		return w.histogram()
	}
}

// vector is an expression that gives a vector.
func (w writer) vector(depth int) string {
	if depth <= 0 {
		if w.rng.IntN(3) == 0 {
			return "rate(" + w.selector() + "[5m])"
		}
		return w.instant()
	}
	switch w.rng.IntN(10) {
	case 0, 1, 2, 3:
		return w.aggregate(depth)
	case 4, 5, 6:
		return w.matched(depth)
	case 7, 8:
		return w.call(depth)
	default:
		return "(" + w.vector(depth-1) + w.of(" * 2", " > 3", " + 1", " == bool 4", " - time() * 0", " < 100") + ")"
	}
}
