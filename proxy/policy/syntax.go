package policy

import (
	"errors"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// maxErrorBytes is how much of a parse error reaches the client: it may quote a literal of any
// length.
const maxErrorBytes = 1024

// parses reads query texts, match[] and remote read matchers, and classes the selectors it finds.
type parses struct{}

func (parses) Name() string { return "syntax" }

func (parses) Check(q *Query) error {
	if read := q.known.Read; read != nil {
		q.known.Read = nil
		if err := read(Effort{Parts: q.sizes.all, Tokens: q.tokens}); err != nil {
			return err
		}
	}
	r, regexps := q.Request, &q.known.Regexps
	if r.ID.HasQuery() {
		expr, err := regexps.Parse(tree.Parser, r.Query)
		if err != nil {
			return badText(r.ID, err)
		}
		q.Expr = expr
		if selectsByQuery(r.ID) {
			q.reach = selectorsOf(q, expr)
		}
	}
	for _, text := range r.Match {
		matchers, err := regexps.ParseSelector(tree.Parser, text)
		if err != nil {
			return badText(r.ID, err)
		}
		regexps.Know(matchers)
		q.Selectors = append(q.Selectors, Selector{matchers, classOf(matchers, q.group, r.ID)})
	}
	for _, text := range r.Filters["match[]"] {
		if _, err := regexps.ParseSelector(tree.Parser, text); err != nil {
			return badText(r.ID, err)
		}
	}
	if r.ReadQuery != nil {
		for _, rq := range r.ReadQuery.Queries {
			matchers, err := readMatchers(rq, regexps)
			if err != nil {
				return badText(r.ID, err)
			}
			q.Selectors = append(q.Selectors, Selector{matchers, classOf(matchers, q.group, r.ID)})
		}
	}
	return nil
}

// readMatchers converts the matchers of a remote read query.
func readMatchers(rq *prompb.Query, known *tree.Regexps) ([]*labels.Matcher, error) {
	if rq == nil {
		return nil, errors.New("the remote read request has an empty query")
	}
	matchers := make([]*labels.Matcher, 0, len(rq.Matchers))
	for _, m := range rq.Matchers {
		t, ok := readMatchType(m)
		if !ok {
			return nil, errors.New("the remote read request has a matcher of an unknown type")
		}
		matcher, err := known.Matcher(t, m.Name, m.Value)
		if err != nil {
			return nil, err
		}
		matchers = append(matchers, matcher)
	}
	return matchers, nil
}

func readMatchType(m *prompb.LabelMatcher) (labels.MatchType, bool) {
	if m == nil {
		return 0, false
	}
	switch m.Type {
	case prompb.LabelMatcher_EQ:
		return labels.MatchEqual, true
	case prompb.LabelMatcher_NEQ:
		return labels.MatchNotEqual, true
	case prompb.LabelMatcher_RE:
		return labels.MatchRegexp, true
	case prompb.LabelMatcher_NRE:
		return labels.MatchNotRegexp, true
	}
	return 0, false
}

// badText is Prometheus' answer to a query or a selector that it cannot parse.
func badText(id endpoint.ID, err error) error {
	if blamed := id.Blames(); blamed != "" {
		return qerr.Prometheus("invalid parameter %q: %s", blamed, clip.Text(err.Error(), maxErrorBytes))
	}
	return qerr.Prometheus("%s", clip.Text(err.Error(), maxErrorBytes))
}

// noSelector is what Prometheus rejects about match[] after parsing, judged on the selectors as the
// client sent them.
type noSelector struct{}

func (noSelector) Name() string { return "non_empty_matcher" }

func (noSelector) Check(q *Query) error {
	r := q.Request
	if !isMetadata(r.ID) { // Prometheus takes any selector for federation; the check unselective judges it
		return nil
	}
	if len(r.Match) == 0 && r.ID.Requires("match[]") {
		return qerr.Prometheus("no match[] parameter provided")
	}
	for _, s := range q.Selectors {
		if !selectsNonEmpty(s.Matchers) {
			return badText(r.ID, errors.New("match[] must contain at least one non-empty matcher"))
		}
	}
	return nil
}

// selectsNonEmpty is Prometheus' own condition: at least one matcher does not match the empty
// string.
func selectsNonEmpty(matchers []*labels.Matcher) bool {
	for _, m := range matchers {
		if m != nil && !m.Matches("") {
			return true
		}
	}
	return false
}
