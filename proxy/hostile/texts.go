package hostile

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Text is what a client may send as a query or as a selector.
type Text struct {
	// Kind is how it was made, one of TextKinds.
	Kind string
	Text string
	// Selector tells that it is one selector, for match[].
	Selector bool
}

// TextKinds are the ways in which texts are made, each by its function.
var TextKinds = []string{
	"grammar", "filled", "nested", "repeated", "doubled", "mutated", "noise", "regexps", "selectors", "literals", "lists", "durations",
	"honest", "aimed",
}

// TextOf is the text of a seed, of at most MaxText bytes. Unlike a Writer's it is made to be dear
// to read: to be parsed, judged, printed and planned, whatever it would compute.
func TextOf(seed uint64) Text {
	rng := rand.New(rand.NewPCG(seed, 0x7e87))
	w := &Writer{rng: rng}
	t := Text{Kind: pick(w, TextKinds)}
	w.left = w.size(MaxText)
	if rng.IntN(2) == 0 { // half of them are about as long as texts may be
		w.left = MaxText * 9 / 10
	}
	switch t.Kind {
	case "grammar":
		t.Text = w.any(1 + w.size(64))
	case "filled":
		t.Text = w.filled()
	case "nested":
		t.Text = w.nested()
	case "repeated":
		t.Text = pick(w, Parts).Text(w.left)
	case "doubled":
		a, b := pick(w, Parts), pick(w, Parts)
		t.Text = a.Text(w.left/2) + pick(w, operators) + b.Text(w.left/2)
	case "mutated":
		t.Text = w.mutated()
	case "noise":
		t.Text = w.noise()
	case "regexps", "selectors":
		if t.Selector = rng.IntN(2) == 0; t.Kind == "regexps" {
			t.Text = w.expressions(t.Selector)
		} else {
			t.Text = w.matchers(w.size(150))
		}
	case "literals":
		t.Text = w.literals()
	case "lists":
		t.Text = w.lists()
	case "durations":
		t.Text = w.any(2) + "[" + w.duration(1+w.size(60)) + "]"
	case "honest":
		t.Text = w.honest()
	case "aimed":
		t.Text = w.Next().Text
	}
	if len(t.Text) > MaxText {
		t.Text = t.Text[:MaxText]
	}
	return t
}

// Part is a text that is dear for its length: part is repeated between a head and a tail.
type Part struct{ Name, Head, Part, Tail string }

// Text is the longest text of the kind that has at most so many bytes, with one part at least.
func (p Part) Text(most int) string {
	n := 1
	if p.Part != "" {
		n = max(1, (most-len(p.Head)-len(p.Tail))/len(p.Part))
	}
	return p.Head + strings.Repeat(p.Part, n) + p.Tail
}

var (
	operators = []string{
		"+", "-", "*", "/", "%", "^", " atan2 ", "==", "!=", ">", "<", ">=", "<=", " and ", " or ", " unless ", ">/", "</", "+bool ",
		">bool ", "== bool on(a) ",
		" * on(a,b) group_left(c) ", " - ignoring(\"ü\") group_right() ", " + fill(0) ", " / on() fill_left(1) fill_right(-1) ",
	}
	functions = []string{
		"abs", "rate", "sum_over_time", "quantile_over_time", "label_replace", "label_join", "histogram_quantile",
		"histogram_quantiles", "info", "absent",
		"absent_over_time", "scalar", "vector", "sort_by_label", "clamp", "round", "time", "day_of_week", "predict_linear", "timestamp",
		"double_exponential_smoothing", "histogram_fraction", "nope", "step", "range", "start", "max_of", "first_over_time", "pi",
		"ts_of_last_over_time",
	}
	aggregations = []string{"sum", "avg", "topk", "quantile", "count_values", "limit_ratio", "stddev", "group", "bottomk", "min"}
	words        = []string{
		"by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset", "anchored", "smoothed", "fill", "fill_left",
		"start", "end", "step",
		"range", "inf", "nan", "0x1F", "1e400", "1_000", "5m", "1y2w3d4h5m6s7ms", "\"a\"", "'b'", "`c`", "{", "}", "(", ")", "[", "]",
		",", ":", "=", "=~",
		"!~", "!=", "==", "@", "#\n", "up", "a:b", "__name__", "ü", "\"\\u00fc\"", "\\", "{{schema:1 sum:3 count:7 buckets:[1 2 3]}}",
		"stale", "_x5", "$", "\x00", "\xff",
		"min_of", "max_of", "sum", "rate", "le", "+Inf", "1", "-", "+", "~",
	}
)

// any is an expression of the grammar, so deep.
func (w *Writer) any(depth int) string {
	if depth <= 0 || w.left <= 0 {
		return w.atom()
	}
	w.left -= 8
	switch w.rng.IntN(12) {
	case 0, 1, 2:
		return w.any(depth-1-w.rng.IntN(4)) + pick(w, operators) + w.any(depth-1-w.rng.IntN(4))
	case 3, 4:
		args := make([]string, w.rng.IntN(5))
		for i := range args {
			args[i] = w.any(depth - 1 - w.rng.IntN(3))
		}
		return pick(w, functions) + "(" + strings.Join(args, ",") + ")"
	case 5:
		by := ""
		if w.rng.IntN(2) == 0 {
			by = pick(w, []string{" by", " without"}) + "(" + w.names(w.size(20)) + ")"
		}
		return pick(w, aggregations) + by + "(" + pick(w, []string{"", "3,", "0.9,", "\"v\",", "scalar(x),"}) + w.any(depth-1) + ")"
	case 6:
		return "(" + w.any(depth-1) + ")"
	case 7:
		return pick(w, []string{"-", "+"}) + w.any(depth-1)
	case 8:
		return w.any(depth-1) + "[" + w.duration(w.rng.IntN(4)) + ":" + pick(w, []string{"", "1m", w.duration(1)}) + "]"
	case 9:
		return w.any(depth-1) + pick(w, []string{
			" offset 5m", " offset -(1h*2)", " @ 1e9", " @ start()", " @ end()", " anchored",
			" smoothed",
		})
	case 10:
		return "rate(" + w.selector(3) + "[" + w.duration(w.rng.IntN(3)) + "]" + pick(w, []string{
			"", " offset step()", " @ 5",
			" smoothed",
		}) + ")"
	}
	return w.atom()
}

// atom is an expression without others in it.
func (w *Writer) atom() string {
	switch w.rng.IntN(6) {
	case 0:
		return pick(w, []string{"1", "-1.5", "0x1F", "1e9", "Inf", "NaN", "1_000", "5m", "time()", "vector(1)"})
	case 1:
		return w.quoted(w.size(200))
	case 2:
		return pick(w, []string{"# a comment\n1", "up", "a:b:c", "sum", "{\"a metric.é\"}", "vector(time())"})
	}
	return w.selector(w.size(8))
}

// names is a list of label names.
func (w *Writer) names(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = pick(w, []string{"pod", "node", "le", "\"a label\"", "on", fmt.Sprint("l", w.rng.IntN(1000))})
	}
	return strings.Join(list, ",")
}

// quoted is a string literal of about n bytes.
func (w *Writer) quoted(n int) string {
	q := pick(w, []string{`"`, `'`, "`"})
	part := pick(w, []string{"a", "ü", "\\n", "\\x41", "\\u00fc", "\\\\", "%", ".", "é日本", "\\\"", " "})
	if q == "`" {
		part = strings.ReplaceAll(part, `\`, "/")
	}
	return q + strings.Repeat(part, max(0, min(n, MaxText)/len(part))) + q
}

// selector is one of about n matchers.
func (w *Writer) selector(n int) string {
	return pick(w, []string{"", "up", "a_total"}) + w.matchers(n)
}

// matchers are n of them, between braces.
func (w *Writer) matchers(n int) string {
	list, most := make([]string, 0, n+1), max(8, w.left/max(1, n))
	list = append(list, pick(w, []string{"a=\"b\"", "\"quoted.name\"", "__name__=~\"a|b|c\""}))
	for range n {
		name := pick(w, []string{"pod", "job", "\"a label\"", "le", "__name__", fmt.Sprint("l", w.rng.IntN(1000))})
		value := w.quoted(w.size(min(most, 500)))
		op := pick(w, []string{"=", "!=", "=~", "!~"})
		if strings.HasSuffix(op, "~") && w.rng.IntN(2) == 0 {
			value = fmt.Sprintf("%q", w.re(w.size(most)))
		}
		list = append(list, name+op+value)
	}
	s := "{" + strings.Join(list, ",") + "}"
	w.left -= len(s)
	return s
}

// re is a regular expression of the grammar of RE2 of about n characters.
func (w *Writer) re(n int) string {
	if n <= 4 {
		return pick(w, []string{
			"a", ".*", "b+", "[a-z]", "\\pL", "\\d", "^", "$", "\\b", "x?", "é", "(?i)k", "[^a]", "\\x41", "a{3}",
			".{0,5}", "\\Qa.b\\E", "|",
		})
	}
	switch w.rng.IntN(7) {
	case 0:
		return "(" + w.re(n-2) + ")" + pick(w, []string{"", "*", "+?", "?", "{2}", "{1,4}"})
	case 1:
		return w.re(n/2) + "|" + w.re(n/2)
	case 2:
		part := w.re(min(n/4, 1+w.rng.IntN(20)))
		return strings.Repeat(part, max(1, n/max(1, len(part))))
	case 3:
		part := w.re(min(n/4, 1+w.rng.IntN(20))) + "|"
		return strings.Repeat(part, max(1, n/len(part)))
	case 4:
		return "(?i:" + w.re(n-5) + ")"
	case 5: // values of a variable
		var b strings.Builder
		for i := 0; b.Len() < n; i++ {
			fmt.Fprintf(&b, "node-%d\\.%d|", w.rng.IntN(10_000), i)
		}
		return b.String()
	}
	return w.re(n/2) + w.re(n/2)
}

// expressions are regular expressions in matchers, or in label_replace.
func (w *Writer) expressions(selector bool) string {
	var list []string
	for n := w.size(90); n > 0 && w.left > 0; n-- {
		re := w.re(w.size(max(4, w.left/n)))
		w.left -= len(re)
		switch {
		case selector:
			list = append(list, fmt.Sprintf("l%d=~%q", n, re))
		case w.rng.IntN(3) == 0:
			list = append(list, fmt.Sprintf("label_replace(up,\"a\",\"$1\",\"b\",%q)", re))
		default:
			list = append(list, fmt.Sprintf("up{a!~%q}", re))
		}
	}
	if selector {
		return "{" + strings.Join(list, ",") + "}"
	}
	return strings.Join(list, pick(w, []string{"+", " or ", "*on()"}))
}

// fragment is a short expression of one type, by which chains are made.
func (w *Writer) fragment() string {
	return pick(w, []string{
		"1", "up", "time()", "vector(1)", "sum(up)", "rate(m_total[5m])", "(up)", "-up", "{a=\"b\"}", "\"s\"", "up[5m]",
		"count by(a)(up)", "abs(up)",
		"label_replace(up,\"a\",\"$1\",\"b\",\"(.*)\")", "up offset 1m", "up @ start()", "max_over_time(up[1h:1m])", "topk(2,up)",
		"scalar(up)", "info(up)",
		"histogram_quantile(0.9,sum by(le)(rate(x_bucket[5m])))", "absent(up)", "up{a=~\"b.*\"}", "(1)", "sort_by_label(up,\"a\")",
	})
}

// filled is a chain of a few parts that is as long as the bounds on its shape and size let it be:
// one of its literals is long, near its head or its tail.
func (w *Writer) filled() string {
	part, op := w.fragment(), pick(w, operators)
	if w.rng.IntN(3) == 0 {
		part += pick(w, operators) + w.fragment()
	}
	n := min(w.size(1000), max(1, w.left/(len(part)+len(op))))
	chain := strings.TrimSuffix(strings.Repeat(part+op, n), op)
	long := "up{a=" + w.quoted(max(0, w.left-len(chain)-20)) + "}"
	switch w.rng.IntN(4) {
	case 0:
		return long + op + chain
	case 1:
		return chain + op + long
	case 2:
		return "sum(" + long + op + chain + ")"
	}
	return chain
}

// nested is a long part inside of many others.
func (w *Writer) nested() string {
	open, end := "", ""
	for range min(63, w.size(100)) {
		switch w.rng.IntN(7) {
		case 0:
			open, end = open+pick(w, []string{"abs(", "sum(", "(", "sort(", "vector(scalar(", "count by(a)(", "-("}), ")"+end
			if strings.HasSuffix(open, "vector(scalar(") {
				end = ")" + end
			}
		case 1:
			open, end = open+"max_over_time(", "[5m:1m])"+end
		case 2:
			open, end = open+"label_replace(", ",\"a\",\"$1\",\"b\",\"(.*)\")"+end
		case 3:
			open, end = open+"1+(", ")"+end
		case 4:
			open, end = open+"(", " or up)"+end
		case 5:
			open, end = open+"topk(3,", ")"+end
		default:
			open, end = open+"(", ")"+end
		}
	}
	w.left -= len(open) + len(end)
	return open + w.filled() + end
}

// mutated is a text of another kind with small things changed.
func (w *Writer) mutated() string {
	b := []byte(pick(w, []func() string{
		w.filled, w.nested, func() string { return w.any(12) }, w.honest,
		func() string { return w.matchers(40) },
	})())
	for range w.size(20) {
		if len(b) < 2 {
			break
		}
		at := w.rng.IntN(len(b))
		switch w.rng.IntN(5) {
		case 0:
			b[at] = byte(w.rng.IntN(256))
		case 1:
			b = append(b[:at:at], b[min(len(b), at+w.size(30)):]...)
		case 2:
			b = append(b[:at:at], append([]byte(pick(w, words)), b[at:]...)...)
		case 3:
			cut := b[at:min(len(b), at+w.size(200))]
			b = append(b[:at:at], append([]byte(strings.Repeat(string(cut), w.size(20))), b[at:]...)...)
		default:
			b[at] = pick(w, []byte("()[]{}\"'`,=~!@#-+:\\"))
		}
	}
	return string(b)
}

// noise is words of the lexer in any order.
func (w *Writer) noise() string {
	var b strings.Builder
	few := make([]string, w.size(len(words)))
	for i := range few {
		few[i] = pick(w, words)
	}
	sep := pick(w, []string{" ", "", "\n"})
	for b.Len() < w.left {
		b.WriteString(pick(w, few))
		b.WriteString(sep)
	}
	return b.String()
}

// literals are long ones, wherever the grammar has any.
func (w *Writer) literals() string {
	n := max(1, w.left-40)
	switch w.rng.IntN(9) {
	case 0:
		return w.quoted(n)
	case 1:
		return "{" + w.quoted(n) + "}"
	case 2:
		return "sum by (" + w.quoted(n) + ") (up)"
	case 3:
		return "up{" + w.quoted(n/2) + "=" + w.quoted(n/2) + "}"
	case 4:
		return fmt.Sprintf("label_replace(up,%s,%s,\"b\",\"c\")", w.quoted(n/2), w.quoted(n/2))
	case 5:
		return strings.Repeat(pick(w, []string{"a", "a:", "1", "0x1", "1.", "1e", "1_1", "1m"}), n/3)
	case 6:
		return "#" + w.quoted(n) + "\nup"
	case 7:
		return strings.Repeat(w.quoted(w.size(100))+pick(w, []string{"==", "+", ",", " "}), w.size(300)) + "1"
	}
	return "count_values(" + w.quoted(n) + ",up)"
}

// lists are long ones, wherever the grammar has any.
func (w *Writer) lists() string {
	n := w.size(12_000)
	switch w.rng.IntN(9) {
	case 0:
		return "sum by (" + w.names(n) + ") (up)"
	case 1:
		return "up + on(" + w.names(n) + ") up"
	case 2:
		return "up * ignoring(" + w.names(w.size(60)) + ") group_left(" + w.names(w.size(60)) + ") up"
	case 3:
		return "sort_by_label(up" + strings.Repeat(",\"a\"", n) + ")"
	case 4:
		return "label_join(up,\"a\",\"-\"" + strings.Repeat(",\"b\"", n) + ")"
	case 5:
		return "histogram_quantiles(up,\"q\"" + strings.Repeat(",0.5", n) + ")"
	case 6:
		return "up " + strings.Repeat(pick(w, []string{"1 ", "1x5 ", "_ ", "{{sum:1}} ", "stale "}), n)
	case 7:
		return "absent(" + w.matchers(min(n, 99)) + ")"
	}
	return "{__name__=~\"" + strings.Repeat("metric_|", n) + "x\"}"
}

// duration is a duration expression, so deep.
func (w *Writer) duration(depth int) string {
	if depth <= 0 || w.left <= 0 {
		return pick(w, []string{"5m", "1h30m", "30", "1y", "step()", "range()", "1_0", "0x10"})
	}
	w.left -= 6
	switch w.rng.IntN(4) {
	case 0:
		return "(" + w.duration(depth-1) + ")"
	case 1:
		return pick(w, []string{"min_of", "max_of"}) + "(" + w.duration(depth-2) + "," + w.duration(depth-1) + ")"
	case 2:
		return "-" + w.duration(depth-1)
	}
	return w.duration(depth-1) + pick(w, []string{"+", "-", "*", "/", "%", "^"}) + w.duration(depth-2)
}

// honest is what a dashboard sends, with a variable of many values.
func (w *Writer) honest() string {
	format := pick(w, []string{
		`sum by (node) (rate(node_cpu_seconds_total{node=~"%s",mode!="idle"}[5m]))`, `up{instance=~"%s"}`, `{__name__=~"%s"}`,
		`histogram_quantile(0.99, sum by (le) (rate(apiserver_request_duration_seconds_bucket{pod=~"%s"}[5m])))`,
		`1 - node_memory_MemAvailable_bytes{node=~"%[1]s"} / node_memory_MemTotal_bytes{node=~"%[1]s"}`,
		`topk(10, sum by (pod) (container_memory_working_set_bytes{pod=~"%s", container!=""}) * on (pod) group_left (label_team) kube_pod_labels)`,
		`max_over_time(DCGM_FI_DEV_GPU_TEMP{Hostname=~"%s"}[1h:1m]) > 80`,
	})
	most := max(1, (w.left-len(format))/strings.Count(format, "s\"")-40)
	var b strings.Builder
	for i, form := 0, pick(w, []string{
		"gpu-node-%05d", "10\\\\.2\\\\.%[1]d\\\\.%[1]d:9400",
		"train-llama-%d-xk4bz",
	}); b.Len() < most/2; i++ {
		fmt.Fprintf(&b, form+"|", i)
	}
	return fmt.Sprintf(format, "("+b.String()+"x)")
}
