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
// chosen from is the same, and has each of these values more than once, nothing has changed.

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

// loose is a change that may be one of ties only, with the samples that other series have, by time.
type loose struct {
	change  Change
	samples []point
}

// looser are they, by the question that shows whether they are.
type looser map[*Question]loose

// take says whether a change may be one, and notes the question that shows it.
func (l looser) take(o *Options, res *result, c Change) bool {
	query, ok := unchosen(c.Question.Query)
	if c.Kind != Answer || !ok || !o.tied(&res.before, &res.after) {
		return false
	}
	others := append(beyond(&res.before, &res.after), beyond(&res.after, &res.before)...)
	if len(others) > maxLoose {
		return false
	}
	q := c.Question
	q.Query = query
	l[&q] = loose{c, others}
	return true
}

// beyond are the samples of an answer that the other one does not have of the same series.
func beyond(a, b *answer) (out []point) {
	has := map[string]bool{}
	for _, r := range b.data {
		for _, p := range r.points {
			has[p.at+r.key] = true
		}
	}
	for _, r := range a.data {
		for _, p := range r.points {
			if !has[p.at+r.key] {
				out = append(out, p)
			}
		}
	}
	return out
}

// settle says whether what is chosen from is the same in both answers, and has the samples that
// were others' more than once.
func (l looser) settle(o *Options, res *result) bool {
	b, a := &res.before, &res.after
	if b.failed+a.failed != "" || b.error+a.error != "" {
		return false // which shows nothing
	}
	if kind, _, _, differ := o.compare(b, a); differ && kind == Answer {
		return false
	}
	values := map[string][]any{} // by time
	for _, r := range b.data {
		for _, p := range r.points {
			values[p.at] = append(values[p.at], p.value)
		}
	}
	for _, p := range l[res.q].samples {
		n := 0
		for _, v := range values[p.at] {
			if o.same(v, p.value) {
				n++
			}
		}
		if n < 2 {
			return false
		}
	}
	return true
}
