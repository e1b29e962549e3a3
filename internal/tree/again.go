package tree

import (
	"slices"
	"sort"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"
)

// Regexps are regular expressions that were compiled already, for texts that have them again:
// compiling them is nearly all that a long text costs. The zero value has none. It is not for
// several goroutines at once.
type Regexps struct {
	known map[string]*labels.Matcher // by the text of the expression; of any name, positive or not
}

// Know adds those of matchers.
func (r *Regexps) Know(ms []*labels.Matcher) {
	for _, m := range ms {
		if isRegexp(m.Type) {
			r.add(m)
		}
	}
}

func (r *Regexps) add(m *labels.Matcher) {
	if r.known == nil {
		r.known = map[string]*labels.Matcher{}
	}
	r.known[m.Value] = m
}

// Matcher is labels.NewMatcher, which compiles no regular expression that is known.
func (r *Regexps) Matcher(t labels.MatchType, name, value string) (*labels.Matcher, error) {
	if isRegexp(t) {
		if m, err := r.matcher(t, name, value); err == nil {
			return m, nil
		}
	}
	return labels.NewMatcher(t, name, value) // whose error is of the text as it was written
}

// matcher is one with a regular expression, compiled if it is not known.
func (r *Regexps) matcher(t labels.MatchType, name, value string) (*labels.Matcher, error) {
	if m := r.known[value]; m != nil {
		if m.Type == t && m.Name == name {
			return m, nil
		}
		same := *m
		same.Type, same.Name = t, name
		return &same, nil
	}
	m, err := labels.NewMatcher(t, name, shorter(value))
	if err != nil {
		return nil, err
	}
	m.Value = value
	r.add(m)
	return m, nil
}

// KnowAll adds those of an expression.
func (r *Regexps) KnowAll(e parser.Expr) {
	if e == nil {
		return
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok {
			r.Know(vs.LabelMatchers)
		}
		return nil
	})
}

// How many bytes a text must have to be looked through for regular expressions beforehand: where
// some are known, where it has several, and where it has one, which may be long then.
const knownText, severalText, longText = 64, 128, 1024

func isRegexp(t labels.MatchType) bool { return t == labels.MatchRegexp || t == labels.MatchNotRegexp }

// Parse is p.ParseExpr, which compiles no regular expression that is known, nor one of the text
// twice. The text is parsed as it would be with equalities instead, which take the same grammar;
// then each matcher gets its type. Wherever something is not as expected p parses the text itself,
// so that its errors are p's.
func (r *Regexps) Parse(p parser.Parser, text string) (parser.Expr, error) {
	plain, braces := r.withoutRegexps(text)
	if braces == nil {
		return p.ParseExpr(text)
	}
	e, err := p.ParseExpr(plain)
	if err != nil {
		return p.ParseExpr(text)
	}
	whole := true
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok && whole {
			i := sort.Search(len(braces), func(i int) bool { return braces[i].at >= vs.PosRange.Start })
			if i < len(braces) && braces[i].at < vs.PosRange.End {
				whole = r.restore(vs.LabelMatchers, vs.Name, braces[i].types) && (vs.Name != "" || vs.BypassEmptyMatcherCheck ||
					selects(vs.LabelMatchers))
			}
		}
		return nil
	})
	if !whole {
		return p.ParseExpr(text)
	}
	return e, nil
}

// selects tells whether any matcher does not match the empty text, as Prometheus wants it of a
// selector.
func selects(ms []*labels.Matcher) bool {
	return slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return !m.Matches("") })
}

// ParseSelector is p.ParseMetricSelector in the same way.
func (r *Regexps) ParseSelector(p parser.Parser, text string) ([]*labels.Matcher, error) {
	plain, braces := r.withoutRegexps(text)
	if len(braces) != 1 {
		return p.ParseMetricSelector(text)
	}
	ms, err := p.ParseMetricSelector(plain)
	if err != nil {
		return p.ParseMetricSelector(text)
	}
	name := ""
	if len(ms) == len(braces[0].types)+1 {
		name = ms[len(ms)-1].Value
	}
	if !r.restore(ms, name, braces[0].types) {
		return p.ParseMetricSelector(text)
	}
	return ms, nil
}

// restore gives matchers the types that they have in the text. Where the selector has a name before
// its braces that is the last matcher.
func (r *Regexps) restore(ms []*labels.Matcher, name string, types []labels.MatchType) bool {
	if len(ms) != len(types) && (name == "" || len(ms) != len(types)+1) {
		return false
	}
	for i, t := range types {
		m := ms[i]
		if !isRegexp(t) {
			if m.Type != t {
				return false
			}
			continue
		}
		if (m.Type == labels.MatchEqual) != (t == labels.MatchRegexp) {
			return false
		}
		again, err := r.matcher(t, m.Name, m.Value)
		if err != nil {
			return false
		}
		ms[i] = again
	}
	return true
}

// brace is a pair of braces in a text, and the types of the matchers between them.
type brace struct {
	at    posrange.Pos
	types []labels.MatchType
}

// withoutRegexps is the text with = for =~ and != for !~, every byte else at its place, and all
// braces with what their matchers really are; nil where that saves nothing.
func (r *Regexps) withoutRegexps(text string) (string, []brace) {
	least := longText
	if len(r.known) > 0 {
		least = knownText
	}
	if len(text) <= knownText { // most are
		return "", nil
	}
	signs := strings.Count(text, "=~") + strings.Count(text, "!~")
	if signs > 1 {
		least = min(least, severalText)
	}
	if signs == 0 || len(text) <= least {
		return "", nil
	}
	var (
		plain  = []byte(text)
		braces []brace
		inside bool
		value  bool // what comes is the value of a matcher
		lexer  = parser.Lex(text)
		item   parser.Item
	)
	for {
		lexer.NextItem(&item)
		if item.Typ == parser.EOF {
			return string(plain), braces
		}
		if item.Typ == parser.ERROR {
			return "", nil
		}
		if !inside {
			if inside = item.Typ == parser.LEFT_BRACE; inside {
				braces = append(braces, brace{at: item.Pos})
			}
			continue
		}
		types := &braces[len(braces)-1].types
		operator := func(t labels.MatchType) {
			if value = true; len(*types) > 0 {
				(*types)[len(*types)-1] = t
			}
		}
		switch item.Typ {
		case parser.RIGHT_BRACE:
			inside, value = false, false
		case parser.IDENTIFIER, parser.STRING:
			if !value {
				*types = append(*types, labels.MatchEqual) // a name as long as no operator follows
			}
			value = false
		case parser.EQL:
			operator(labels.MatchEqual)
		case parser.NEQ:
			operator(labels.MatchNotEqual)
		case parser.EQL_REGEX:
			operator(labels.MatchRegexp)
			plain[item.Pos+1] = ' '
		case parser.NEQ_REGEX:
			operator(labels.MatchNotRegexp)
			plain[item.Pos+1] = '='
		}
	}
}
