package tenant

import (
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Narrow tells whether the tenant sees a part only. A nil one sees everything.
func (t *Tenant) Narrow() bool { return t != nil && len(t.matchers) > 0 }

// Bytes is how many bytes longer the matchers can make a selector.
func (t *Tenant) Bytes() int64 { return int64(len(t.selector(nil))) }

// Sees tells whether something with these labels, a rule or an alert, is the tenant's. One that
// lacks a label of the tenant's matchers is nobody's in particular, whatever they say of an empty
// value: its text may name what others have.
func (t *Tenant) Sees(ls labels.Labels) bool {
	return !t.Narrow() || !slices.ContainsFunc(t.matchers, func(m *labels.Matcher) bool {
		value := ls.Get(m.Name)
		return value == "" || !m.Matches(value)
	})
}

// Enforce is the request as the tenant may ask it: its matchers are in every selector. expr is the
// request's query as it was parsed, nil where there is none; it is changed. selectors are those of
// match[], in their order. The error is a *qerr.Error, Forbidden where the tenant may not ask it at
// all.
func (t *Tenant) Enforce(req *endpoint.Request, expr parser.Expr, selectors [][]*labels.Matcher) (*endpoint.Request, error) {
	if !t.Narrow() {
		return req, nil
	}
	if req.ID.Whole() {
		return nil, qerr.New(qerr.Forbidden, "tenant %s sees a part of what is stored, and this endpoint tells of all of it; ask with an identity that has no matchers", t.Name)
	}
	if req.ID.Selects() == endpoint.SelectsNothing {
		return req, nil
	}
	out := req.Clone()
	switch {
	case expr != nil:
		t.narrow(expr, req.ID.Evaluates())
		out.Query = tree.String(expr)
	case req.ReadQuery != nil:
		out.ReadQuery = t.read(req.ReadQuery)
	case len(out.Match) == 0:
		out.Match = []string{t.selector(nil)}
	default:
		if len(selectors) != len(out.Match) {
			return nil, errNotEnforced
		}
		for i, ms := range selectors {
			out.Match[i] = t.selector(ms)
		}
	}
	return out, nil
}

// narrow adds the matchers to every selector of an expression, but for the second argument of
// info() where the expression is evaluated: that one says which labels are wanted, and matchers
// more would be labels more. What info() reads, which no text shows, is narrowed where it is read,
// by Narrowing.
func (t *Tenant) narrow(expr parser.Expr, evaluated bool) {
	wanted := map[parser.Node]bool{}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			if !wanted[n] {
				n.LabelMatchers = t.before(n.LabelMatchers)
			}
		case *parser.Call:
			if n.Func.Name == "info" && len(n.Args) > 1 && evaluated {
				wanted[n.Args[1]] = true
			}
		}
		return nil
	})
}

// before puts the matchers in front of others, but for those that are among them: absent() gives a
// label to none that is repeated, and to an equality only if it is the last word about its label.
func (t *Tenant) before(ms []*labels.Matcher) []*labels.Matcher {
	var all []*labels.Matcher
	for _, own := range t.matchers {
		if !slices.ContainsFunc(ms, func(m *labels.Matcher) bool {
			return own.Type == m.Type && own.Name == m.Name && own.Value == m.Value
		}) {
			all = append(all, own)
		}
	}
	return append(all, ms...)
}

// Narrowing are the matchers that every series has to meet which is read for the tenant; none where
// it sees all. They are not to be changed.
func (t *Tenant) Narrowing() []*labels.Matcher {
	if !t.Narrow() {
		return nil
	}
	return t.matchers
}

// Regexps are the regular expressions of the matchers.
func (t *Tenant) Regexps() (out []string) {
	for _, m := range t.Narrowing() {
		if m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp {
			out = append(out, m.Value)
		}
	}
	return out
}

// selector is the text of a selector with the matchers.
func (t *Tenant) selector(ms []*labels.Matcher) string {
	all := append(slices.Clip(ms), t.matchers...)
	if !slices.ContainsFunc(all, func(m *labels.Matcher) bool { return !m.Matches("") }) {
		all = append(all, labels.MustNewMatcher(labels.MatchNotEqual, model.MetricNameLabel, "")) // Prometheus wants one that selects
	}
	parts := make([]string, len(all))
	for i, m := range all {
		parts[i] = m.String()
	}
	return "{" + strings.Join(parts, ",") + "}"
}

var wireTypes = map[labels.MatchType]prompb.LabelMatcher_Type{
	labels.MatchEqual: prompb.LabelMatcher_EQ, labels.MatchNotEqual: prompb.LabelMatcher_NEQ,
	labels.MatchRegexp: prompb.LabelMatcher_RE, labels.MatchNotRegexp: prompb.LabelMatcher_NRE,
}

// read is a remote read with the matchers in each of its queries.
func (t *Tenant) read(r *prompb.ReadRequest) *prompb.ReadRequest {
	out := *r
	out.Queries = make([]*prompb.Query, len(r.Queries))
	for i, q := range r.Queries {
		narrowed := *q
		narrowed.Matchers = slices.Clip(q.Matchers)
		for _, m := range t.matchers {
			narrowed.Matchers = append(narrowed.Matchers, &prompb.LabelMatcher{Type: wireTypes[m.Type], Name: m.Name, Value: m.Value})
		}
		out.Queries[i] = &narrowed
	}
	return &out
}

// Check looks at the selectors of the request as it is finally asked: each must have all the
// matchers. The error is Internal: it is a fault of Spillway, and nothing is answered.
func (t *Tenant) Check(req *endpoint.Request, selectors [][]*labels.Matcher) error {
	if !t.Narrow() || req.ID.Selects() == endpoint.SelectsNothing {
		return nil
	}
	if len(selectors) == 0 && !req.ID.HasQuery() { // a query may be a number
		return errNotEnforced
	}
	for _, ms := range selectors {
		for _, want := range t.matchers {
			if !slices.ContainsFunc(ms, func(m *labels.Matcher) bool {
				return m.Type == want.Type && m.Name == want.Name && m.Value == want.Value
			}) {
				return errNotEnforced
			}
		}
	}
	return nil
}

var errNotEnforced = qerr.New(qerr.Internal, "a selector is without the tenant's matchers; this is a fault of Spillway, and nothing is answered")
