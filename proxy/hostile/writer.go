package hostile

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// MaxText is the most bytes that a text has.
const MaxText = 64 << 10

// Query is a text and how it is asked.
type Query struct {
	// Kind is what the text is aimed at, one of Kinds.
	Kind string
	Text string
	// Range and Step are those of a range query that ends now; an instant query has none.
	Range, Step time.Duration
}

// Kinds are what texts are aimed at.
var Kinds = []string{"labels", "leaves", "visits", "regexps", "joins", "rows", "mixed"}

// Writer writes queries. It is not safe for concurrent use.
type Writer struct {
	rng  *rand.Rand
	left int // bytes that the text may still grow by, roughly
}

// NewWriter returns a writer whose texts follow from the seed.
func NewWriter(seed uint64) *Writer { return &Writer{rng: rand.New(rand.NewPCG(seed, 0x5b1))} }

// Next writes a query.
func (w *Writer) Next() Query {
	for {
		w.left = w.size(MaxText)
		q := Query{Kind: pick(w, Kinds)}
		switch q.Kind {
		case "labels":
			q.Text = w.labels(w.size(60))
		case "leaves":
			q.Text = w.leaves(w.size(1000))
		case "visits":
			q.Text = w.visits(1 + w.rng.IntN(3))
		case "regexps":
			q.Text = w.replace(w.vector(1), w.regexp(w.size(40_000)))
		case "joins":
			q.Text = w.join(1 + w.rng.IntN(4))
		case "rows":
			q.Text = w.rows(1 + w.rng.IntN(3))
		default:
			q.Text = w.vector(1 + w.rng.IntN(4))
		}
		if w.rng.IntN(2) == 0 {
			q.Step = time.Duration(1+w.rng.IntN(60)) * time.Second
			q.Range = q.Step * time.Duration(w.size(11_000))
		}
		if len(q.Text) <= MaxText {
			return q
		}
	}
}

// size is a number from 1 to most, its logarithm even.
func (w *Writer) size(most int) int {
	return max(1, int(math.Exp(w.rng.Float64()*math.Log(float64(most)+1))))
}

func pick[T any](w *Writer, list []T) T { return list[w.rng.IntN(len(list))] }

var (
	names  = []string{"wide", "wide", "up", "nope"}
	labels = []string{"pod", "node", "x", "y", "__name__"}
)

// vector is any expression of series, so deep.
func (w *Writer) vector(depth int) string {
	if depth <= 0 || w.left <= 0 {
		return w.leaf()
	}
	w.left -= 30
	switch w.rng.IntN(9) {
	case 0:
		return w.labels(w.size(8))
	case 1:
		return w.leaves(w.size(12))
	case 2:
		return w.visits(1)
	case 3:
		return w.replace(w.vector(depth-1), w.regexp(w.size(300)))
	case 4:
		return w.join(depth)
	case 5:
		return fmt.Sprintf("%s by (%s) (%s)", pick(w, []string{"sum", "max", "group", "count", "stddev"}), pick(w, labels),
			w.vector(depth-1))
	case 6:
		return fmt.Sprintf("%s(%d, %s)", pick(w, []string{"topk", "bottomk", "limitk"}), w.size(30_000), w.vector(depth-1))
	case 7:
		return fmt.Sprintf("%s(%s, %q)", pick(w, []string{"sort_by_label", "sort_by_label_desc"}), w.vector(depth-1), pick(w, labels))
	}
	return fmt.Sprintf(pick(w, []string{
		"sum(%s)", "count(%s)", "abs(%s)", "absent(%s)", "-(%s)", "sort(%s)", "quantile(0.5,%s)",
		`count_values("v",%s)`,
	}), w.vector(depth-1))
}

// leaf is where series come from: those of a server, or none.
func (w *Writer) leaf() string {
	switch w.rng.IntN(5) {
	case 0:
		return "vector(1)"
	case 1:
		return fmt.Sprintf(`label_replace(vector(time()),%q,%q,"","")`, pick(w, labels), w.literal())
	case 2:
		return fmt.Sprintf(`absent(nope{x=%q})`, w.literal())
	case 3:
		return fmt.Sprintf(`wide{pod=~%q}`, w.regexp(w.size(60)))
	}
	return pick(w, names)
}

// literal is a text of some length.
func (w *Writer) literal() string {
	n := w.size(max(2, w.left/2))
	w.left -= n
	return strings.Repeat(pick(w, []string{"a", "1", "a1", "ü"}), n)[:n]
}

// labels makes labels of labels, so many times over.
func (w *Writer) labels(times int) string {
	e, dst := w.leaf(), pick(w, labels)
	refs := w.size(500)
	if w.rng.IntN(2) == 0 { // one label, again and again
		e = fmt.Sprintf(`label_replace(%s,%q,%q,"","")`, pick(w, []string{"vector(1)", "vector(time())", "up", "wide"}), dst, w.literal())
		for range times {
			if w.left <= 0 {
				break
			}
			e = fmt.Sprintf("label_replace(%s,%q,%q,%q,%q)", e, dst, strings.Repeat("$1", refs), dst, "(.*)")
			w.left -= 2*refs + 40
		}
		times = 0
	}
	for range times {
		if w.left <= 0 {
			break
		}
		src := dst
		if w.rng.IntN(4) == 0 {
			src = pick(w, labels)
		}
		if w.rng.IntN(4) == 0 {
			dst = pick(w, labels)
		}
		switch w.rng.IntN(6) {
		case 0:
			e = fmt.Sprintf("label_join(%s,%q,%q%s)", e, dst, w.literal(), strings.Repeat(fmt.Sprintf(",%q", src), w.size(20)))
		case 1:
			e = fmt.Sprintf("count_values by (%s) (%q, %s)", pick(w, labels), pick(w, labels), e)
		case 2:
			e = fmt.Sprintf("%s or %s", e, w.leaf())
		default:
			n := w.size(refs)
			w.left -= 2*n + 40
			e = fmt.Sprintf("label_replace(%s,%q,%q,%q,%q)", e, dst, strings.Repeat(pick(w, []string{"$1", "${1}", "$0"}), n), src,
				pick(w, []string{"(.*)", "(.+)", "(?s:(.*))", "([a-z0-9-]*)"}))
		}
		w.left -= 20
	}
	if w.rng.IntN(3) == 0 {
		e = fmt.Sprintf("%s * on() group_left(%s) %s", pick(w, names), dst, w.grouped(e))
	}
	return e
}

func (w *Writer) grouped(e string) string {
	if w.rng.IntN(2) == 0 {
		return "(" + e + ")"
	}
	return fmt.Sprintf("max by (x,y,pod) (%s)", e)
}

// leaves joins so many selectors.
func (w *Writer) leaves(n int) string {
	format := pick(w, []string{
		"sum(nope)", "up", "nope%d", "wide{pod=\"pod-%d\"}", "rate(wide[1%dm])", "count(wide offset %ds)",
		"max(wide{pod!=\"%d\"})",
	})
	op := pick(w, []string{"+", " or ", " and ", " unless ", "*"})
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(op)
		}
		if strings.Contains(format, "%") {
			fmt.Fprintf(&b, format, i)
		} else {
			b.WriteString(format)
		}
	}
	w.left -= b.Len()
	return b.String()
}

// visits are subqueries in subqueries, so deep, and long ranges.
func (w *Writer) visits(deep int) string {
	e := pick(w, []string{"vector(1)", "vector(time())", "up", "nope", "wide{pod=\"pod-1\"}", "sum(wide)"})
	if w.rng.IntN(4) == 0 {
		e = "(" + e + strings.Repeat(pick(w, []string{"+1", " or vector(1)", "*2"}), w.size(300)) + ")"
	}
	for range deep {
		step := w.size(300)
		e = w.over(fmt.Sprintf("%s[%ds:%ds]", e, step*w.size(250_000), step))
	}
	if w.rng.IntN(6) == 0 {
		e = w.over(fmt.Sprintf("wide[%dm]", w.size(10_000)))
	}
	n := w.size(8)
	return strings.TrimSuffix(strings.Repeat(e+"+", n), "+")
}

// over is a function over a range.
func (w *Writer) over(arg string) string {
	switch f := pick(w, []string{"sum", "max", "stddev", "quantile", "mad", "predict", "smooth", "deriv", "rate", "count"}); f {
	case "quantile":
		return fmt.Sprintf("quantile_over_time(0.9,%s)", arg)
	case "predict":
		return fmt.Sprintf("predict_linear(%s,60)", arg)
	case "smooth":
		return fmt.Sprintf("double_exponential_smoothing(%s,0.5,0.5)", arg)
	case "deriv", "rate":
		return fmt.Sprintf("%s(%s)", f, arg)
	default:
		return fmt.Sprintf("%s_over_time(%s)", f, arg)
	}
}

// regexp is a regular expression of about n characters.
func (w *Writer) regexp(n int) string {
	part := pick(w, []string{".*a", "a?", "a*", "(a|b)*", "[a-z0-9]+", "(.*)", "x", "pod-1|", "(p|po|pod).*", `\\pL`, "(?:a{3})*", ".+"})
	n = min(n, max(1, w.left))
	w.left -= n
	re := strings.Repeat(part, max(1, n/len(part)))
	switch w.rng.IntN(4) {
	case 0:
		return "(" + re + ")?.*"
	case 1:
		return "(" + re + ")*"
	case 2:
		return ".*" + re + ".*"
	}
	return re
}

// replace runs a regular expression over a label of an expression.
func (w *Writer) replace(e, re string) string {
	for range w.size(6) {
		e = fmt.Sprintf("label_replace(%s,%q,%q,%q,%q)", e, pick(w, labels), strings.Repeat("$1", w.size(40)), pick(w, labels), re)
	}
	return e
}

// join matches expressions with each other.
func (w *Writer) join(deep int) string {
	if deep <= 0 {
		return w.vector(0)
	}
	l, r := w.vector(deep-1), w.vector(deep-2)
	on := fmt.Sprintf("%s(%s)", pick(w, []string{"on", "on", "ignoring"}), pick(w, []string{"", "pod", "node", "pod,node", "x"}))
	switch w.rng.IntN(6) {
	case 0:
		return fmt.Sprintf("(%s) %s %s (%s)", l, pick(w, []string{"and", "or", "unless"}), on, r)
	case 1:
		return fmt.Sprintf("(%s) * %s group_left(%s) (%s)", l, on, pick(w, labels), r)
	case 2:
		return fmt.Sprintf("(%s) * %s group_right(%s,y) (%s)", l, on, pick(w, labels), r)
	case 3:
		return fmt.Sprintf("info(%s)", l)
	case 4:
		return fmt.Sprintf("(%s) + %s fill(0) (%s)", l, on, r)
	}
	return fmt.Sprintf("(%s) * %s group_left(%s) max by (pod,node,x) (%s)", l, on, pick(w, labels), w.labels(w.size(10)))
}

// rows makes series that are others at each step, so many nodes around what makes them.
func (w *Writer) rows(deep int) string {
	of := pick(w, []string{
		"vector(time())", "wide + time()", "wide * 0 + time()", "up * time()", "sum(wide) + time()",
		"time() + 0 * (up @ end())", "floor(vector(time()) / 60)", "wide",
	})
	made := fmt.Sprintf("count_values%s (%q, %s)", pick(w, []string{"", " without (zzz)", " by (pod)", " by (node, pod)"}),
		pick(w, labels[:4]), of)
	chosen := pick(w, []string{
		made, "label_replace(topk(1, wide), \"w\", \"$1\", \"pod\", \"(.*)\")",
		fmt.Sprintf("label_replace(wide == scalar(vector(time() %% %d)), \"w\", \"$1\", \"pod\", \"(.*)\")", w.size(30_000)), w.turns(w.size(60)),
	})
	var e string
	switch w.rng.IntN(4) {
	case 0:
		e = made
	case 1:
		e = made + strings.Repeat(pick(w, []string{"+0", " or " + made, " unless nope"}), w.size(40))
	case 2:
		e = fmt.Sprintf("%s * %s group_left(%s) (%s)", pick(w, []string{"wide", "up", made}),
			pick(w, []string{"on()", "on()", "ignoring(pod,node,x,w,y)", "on(node)"}), pick(w, []string{"w", "x", "y"}), chosen)
	default:
		e = fmt.Sprintf("(%s) * on() group_right(w) (%s)", chosen, w.turns(w.size(60)))
	}
	for range deep - 1 {
		switch w.rng.IntN(4) {
		case 0:
			e = fmt.Sprintf("sort_by_label(%s, \"v\")", e)
		case 1:
			e = fmt.Sprintf("count by (%s) (%s)", pick(w, labels[:4]), e)
		default:
			e = w.over(fmt.Sprintf("(%s)[%ds:%ds]", e, w.size(2_000_000), w.size(10)))
		}
	}
	w.left -= len(e)
	return e
}

// turns are so many series of which there is one at each step.
func (w *Writer) turns(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("(label_replace(vector(1),\"w\",\"%d\",\"\",\"\") and on() (vector(time() %% %d) == %d))", i, n, i)
	}
	return strings.Join(all, " or ")
}
