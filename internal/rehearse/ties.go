package rehearse

import (
	"errors"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// Which of several series with equal values topk and bottomk take is nobody's promise: one server
// takes others each time it is asked. So where two answers to such a query have the same values,
// and differ in whose they are, the query is asked once more without the choice. Where what is
// chosen from is the same, has each of these values more than once, and has them of the very series
// that were taken, nothing has changed.

// errFound ends a walk.
var errFound = errors.New("found")

// unchosen is a query with what topk and bottomk choose from in their place; false where it has
// neither.
func unchosen(query string) (string, bool) {
	out := query
	for {
		expr, err := promql.ParseExpr(out)
		if err != nil {
			return "", false
		}
		var choice *parser.AggregateExpr
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			if a, ok := n.(*parser.AggregateExpr); ok && choice == nil && (a.Op == parser.TOPK || a.Op == parser.BOTTOMK) {
				choice = a
				return errFound
			}
			return nil
		})
		if choice == nil {
			return out, out != query
		}
		whole, from := choice.PositionRange(), choice.Expr.PositionRange()
		// Shorter each time, so this ends.
		out = out[:whole.Start] + "(" + out[from.Start:from.End] + ")" + out[whole.End:]
	}
}

// tied says whether two answers have the same values at each time, whatever their series.
func (o *Options) tied(before, after *answer) bool {
	values := func(a *answer) []string {
		var out []string
		for _, r := range a.data {
			for _, p := range r.points {
				out = append(out, p.at+" "+valueText(p.value))
			}
		}
		slices.Sort(out)
		return out
	}
	return slices.EqualFunc(values(before), values(after), func(a, b string) bool {
		at, x, _ := strings.Cut(a, " ")
		when, y, _ := strings.Cut(b, " ")
		return at == when && o.same(x, y)
	})
}

// maxLoose is how many samples may be others' in two answers that are held until it is known what
// was chosen from.
const maxLoose = 10_000

// sample is a point of a series.
type sample struct {
	key string // of its row
	point
}

// place is whose a sample is, and of when.
func (s sample) place() string { return s.at + " " + s.key }

// samples are all of an answer.
func (a *answer) samples(yield func(sample) bool) {
	for _, r := range a.data {
		for _, p := range r.points {
			if !yield(sample{r.key, p}) {
				return
			}
		}
	}
}

// loose is a change that may be one of ties only, with the samples that the other answer has not,
// and what else differs between the two; nil for nothing.
type loose struct {
	change  Change
	samples []sample
	besides *Change
}

// looser are they, by the question that shows whether they are.
type looser map[*Question]loose

// take says whether a change may be one, and notes the question that shows it.
func (l looser) take(o *Options, res *result, c Change) bool {
	b, a := &res.before, &res.after
	query, ok := unchosen(c.Question.Query)
	if c.Kind != Answer || !ok || !o.tied(b, a) || b.twice() || a.twice() {
		return false
	}
	others := append(o.beyond(b, a), o.beyond(a, b)...)
	if len(others) > maxLoose {
		return false
	}
	q := c.Question
	q.Query = query
	l[&q] = loose{c, others, o.besides(res)}
	return true
}

// besides is what differs between two answers but for their samples: warnings, the plan, the cost.
func (o *Options) besides(res *result) *Change {
	b, a := res.before, res.after
	b.data, a.data = nil, nil
	kind, was, is, differ := o.compare(&b, &a)
	if !differ {
		return nil
	}
	return &Change{kind, *res.q, was, is}
}

// twice says whether an answer has a series twice, such as one without labels that are ignored.
func (a *answer) twice() bool {
	for i := 1; i < len(a.data); i++ {
		if a.data[i].key == a.data[i-1].key { // they are sorted
			return true
		}
	}
	return false
}

// beyond are the samples of an answer that the other one does not have of the same series, or has
// with another value.
func (o *Options) beyond(a, b *answer) (out []sample) {
	has := map[string]any{}
	for s := range b.samples {
		has[s.place()] = s.value
	}
	for s := range a.samples {
		if v, ok := has[s.place()]; !ok || !o.same(v, s.value) {
			out = append(out, s)
		}
	}
	return out
}

// settle says whether what is chosen from is the same in both answers, has the samples that the
// other answer had not, of their series, and their values more than once. Its warnings and cost are
// not looked at: nobody asked it, and those of the question are besides.
func (l looser) settle(o *Options, res *result) bool {
	b, a := &res.before, &res.after
	if b.failed+a.failed != "" || b.error+a.error != "" {
		return false // which shows nothing
	}
	if kind, _, _, differ := o.compare(b, a); differ && kind == Answer {
		return false
	}
	values, places := map[string][]any{}, map[string][]any{} // by time, and by whose it is too
	for s := range b.samples {
		values[s.at] = append(values[s.at], s.value)
		places[s.place()] = append(places[s.place()], s.value)
	}
	for _, s := range l[res.q].samples {
		if o.occurs(s.value, places[s.place()], 1) && o.occurs(s.value, values[s.at], 2) {
			continue
		}
		return false
	}
	return true
}

// occurs says whether a value is in a list so often.
func (o *Options) occurs(value any, in []any, often int) bool {
	for _, v := range in {
		if o.same(v, value) {
			often--
		}
		if often == 0 {
			return true
		}
	}
	return false
}
