package server

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/tenant"
)

// unchecked is that the second look has the same hole as the first, so that nothing but the answers
// can tell.
func unchecked(*tenant.Tenant, *endpoint.Request, [][]*labels.Matcher) error { return nil }

// leaky is enforcement that leaves out some selectors: those of an expression of which skip tells,
// with the nodes above them and how many came before.
func leaky(skip func(vs *parser.VectorSelector, above []parser.Node, before int) bool) func(*walls) {
	return func(w *walls) {
		w.check = unchecked
		w.enforce = func(t *tenant.Tenant, req *endpoint.Request, expr parser.Expr, selectors [][]*labels.Matcher) (*endpoint.Request,
			error,
		) {
			if expr == nil {
				return t.Enforce(req, expr, selectors)
			}
			before := 0
			kept := map[*parser.VectorSelector][]*labels.Matcher{}
			parser.Inspect(expr, func(n parser.Node, above []parser.Node) error {
				if vs, ok := n.(*parser.VectorSelector); ok {
					if skip(vs, above, before) {
						kept[vs] = vs.LabelMatchers
					}
					before++
				}
				return nil
			})
			out, err := t.Enforce(req, expr, selectors)
			if err != nil || out == req {
				return out, err
			}
			for vs, ms := range kept {
				vs.LabelMatchers = ms
			}
			out.Query = expr.String()
			return out, nil
		}
	}
}

func under[N parser.Node](above []parser.Node) bool {
	return slices.ContainsFunc(above, func(n parser.Node) bool { _, ok := n.(N); return ok })
}

// unnarrowed asks what holds says as if the tenant saw everything, and the rest as it is.
func unnarrowed(holds func(*endpoint.Request, parser.Expr) bool) func(*walls) {
	return func(w *walls) {
		w.check = unchecked
		w.enforce = func(t *tenant.Tenant, req *endpoint.Request, expr parser.Expr, selectors [][]*labels.Matcher) (*endpoint.Request,
			error,
		) {
			if holds(req, expr) {
				return req, nil
			}
			return t.Enforce(req, expr, selectors)
		}
	}
}

// changed is enforcement whose outcome is spoilt.
func changed(spoil func(t *tenant.Tenant, asked, out *endpoint.Request)) func(*walls) {
	return func(w *walls) {
		w.check = unchecked
		w.enforce = func(t *tenant.Tenant, req *endpoint.Request, expr parser.Expr, selectors [][]*labels.Matcher) (*endpoint.Request,
			error,
		) {
			out, err := t.Enforce(req, expr, selectors)
			if err == nil && out != req {
				spoil(t, req, out)
			}
			return out, err
		}
	}
}

// readToo is a hole in an endpoint whose series are read here: there they are narrowed once more.
func readToo(id endpoint.ID, hole func(*walls)) func(*walls) {
	return func(w *walls) {
		hole(w)
		w.reads = func(t *tenant.Tenant, of endpoint.ID) []*labels.Matcher {
			if of == id {
				return nil
			}
			return t.Narrowing()
		}
	}
}

// holes are what could be wrong with the enforcement.
func holes() map[string]func(*walls) {
	var last atomic.Pointer[tenant.Tenant]
	return map[string]func(*walls){
		"only the first selector": leaky(func(_ *parser.VectorSelector, _ []parser.Node, before int) bool { return before > 0 }),
		"not inside subqueries": leaky(func(_ *parser.VectorSelector, above []parser.Node, _ int) bool {
			return under[*parser.SubqueryExpr](above)
		}),
		"not with an offset": leaky(func(vs *parser.VectorSelector, _ []parser.Node, _ int) bool { return vs.OriginalOffset != 0 }),
		"not in counts": leaky(func(_ *parser.VectorSelector, above []parser.Node, _ int) bool { // no label tells
			return slices.ContainsFunc(above, func(n parser.Node) bool {
				e, ok := n.(*parser.AggregateExpr)
				return ok && e.Op == parser.COUNT && len(e.Grouping) == 0 && !e.Without
			})
		}),
		"not behind joins": leaky(func(_ *parser.VectorSelector, above []parser.Node, before int) bool {
			return before > 0 && under[*parser.BinaryExpr](above)
		}),
		"what names a namespace is believed": leaky(func(vs *parser.VectorSelector, _ []parser.Node, _ int) bool {
			return slices.ContainsFunc(vs.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == "namespace" })
		}),
		"only the first matcher": changed(func(_ *tenant.Tenant, _, out *endpoint.Request) {
			for _, who := range []string{red, blue} {
				out.Query = strings.ReplaceAll(strings.ReplaceAll(out.Query, `,owner="`+who+`"`, ""), `owner="`+who+`",`, "")
			}
		}),
		"what info() reads is not narrowed": func(w *walls) {
			w.reads = func(*tenant.Tenant, endpoint.ID) []*labels.Matcher { return nil }
		},
		"only the first match[]": changed(func(_ *tenant.Tenant, asked, out *endpoint.Request) {
			if len(asked.Match) > 1 {
				out.Match = slices.Concat(out.Match[:1], asked.Match[1:])
			}
		}),
		"no match[] is all": unnarrowed(func(req *endpoint.Request, _ parser.Expr) bool {
			return len(req.Match) == 0 && (req.ID == endpoint.Labels || req.ID == endpoint.LabelValues)
		}),
		"not in remote read": readToo(endpoint.Read, unnarrowed(func(req *endpoint.Request, _ parser.Expr) bool {
			return req.ID == endpoint.Read
		})),
		"only the first query of a remote read": readToo(endpoint.Read, changed(func(_ *tenant.Tenant, asked, out *endpoint.Request) {
			if asked.ReadQuery != nil {
				out.ReadQuery.Queries = slices.Concat(out.ReadQuery.Queries[:1], asked.ReadQuery.Queries[1:])
			}
		})),
		"not in exemplars": unnarrowed(func(req *endpoint.Request, _ parser.Expr) bool {
			return req.ID == endpoint.QueryExemplars
		}),
		"not in federate": readToo(endpoint.Federate, unnarrowed(func(req *endpoint.Request, _ parser.Expr) bool {
			return req.ID == endpoint.Federate
		})),
		"what tells of all is shown": unnarrowed(func(req *endpoint.Request, _ parser.Expr) bool { return req.ID.Whole() }),
		"what has no label is everybody's": func(w *walls) {
			w.sees = func(t *tenant.Tenant, ls labels.Labels) bool { return ls.Get("owner") == "" || t.Sees(ls) }
		},
		"rules are everybody's": func(w *walls) { w.sees = func(*tenant.Tenant, labels.Labels) bool { return true } },
		"metadata of all metrics": func(w *walls) {
			w.names = func(*exchange) (func(labels.Labels) bool, error) { return nil, nil }
		},
		"metadata with its texts": func(w *walls) { w.bare = func(*tenant.Tenant) bool { return false } },
		"who asked last is who asks": func(w *walls) {
			w.identify = func(d *tenant.Directory, r *http.Request) (*tenant.Tenant, error) {
				t, err := d.Identify(r)
				if before := last.Swap(t); err == nil && before != nil {
					return before, nil
				}
				return t, err
			}
		},
		"a matcher that is not anchored": changed(func(_ *tenant.Tenant, _, out *endpoint.Request) {
			for i := range out.Match {
				out.Match[i] = strings.NewReplacer(`owner="`+red+`"`, `owner=~".*e.*"`, `owner="`+blue+`"`, `owner=~".*e.*"`,
					`=~"`+red+`-.+|shared"`, `=~".*-.+|shared"`, `=~"`+blue+`-.+|shared"`, `=~".*-.+|shared"`).Replace(out.Match[i])
			}
		}),
	}
}
