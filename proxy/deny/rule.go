package deny

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
)

const (
	// MaxRules is how many rules there are of each source.
	MaxRules = 1000
	// MaxRegexes is how many of them may have a regular expression.
	MaxRegexes = 20
	// MaxRegexText is how many bytes of a request's text a regular expression sees.
	MaxRegexText = 8 << 10
	// MaxReason is how long a reason may be, in bytes; MaxPattern a text, selector or regular
	// expression, MaxField anything else.
	MaxReason, MaxPattern, MaxField = 500, 2 << 10, 256
)

// Source is where a rule comes from.
type Source string

const (
	// Config is the configuration file.
	Config Source = "config"
	// API is the admin listener.
	API Source = "api"
	// Crash is a request that was under way when the process was killed.
	Crash Source = "crash"
)

// Rule refuses requests. Fields that are empty match every request; at least one is not.
type Rule struct {
	// Name is unique among all rules; letters, digits, '_', '-' and '.', at most 63.
	Name string `json:"name"`
	// Reason is what the caller is told, and needed.
	Reason string `json:"reason"`
	// Until is when the rule ends; zero is never.
	Until time.Time `json:"until,omitzero"`
	// Shadow counts what the rule would refuse, and lets it through.
	Shadow bool `json:"shadow,omitempty"`
	// SparesRules does that with what is asked for an alert or a rule, for rules of source Crash.
	SparesRules bool `json:"spares_rules,omitempty"`

	// Endpoint is a row of the endpoint table, such as query_range.
	Endpoint string `json:"endpoint,omitempty"`
	// Tenant, User, Dashboard and Panel are the caller's, as live queries and the usage log have
	// them: where nobody vouches for the caller's headers they are what it claims.
	Tenant    string `json:"tenant,omitempty"`
	User      string `json:"user,omitempty"`
	Dashboard string `json:"dashboard,omitempty"`
	Panel     string `json:"panel,omitempty"`
	// Query is a whole query; it is compared as Prometheus prints it, so that spaces mean nothing.
	// For metadata it is the selectors of match[], joined by a comma and a space.
	Query string `json:"query,omitempty"`
	// Regex is a regular expression (RE2), anchored at both ends, over the same text.
	Regex string `json:"regex,omitempty"`
	// Selector is a series selector: one of the request's has all its matchers, as they are
	// written.
	Selector string `json:"selector,omitempty"`
	// Range is how far a request reaches at least, from the oldest sample that it may read to the
	// newest; 0 is any.
	Range model.Duration `json:"range,omitempty"`
	// Step is the step of a range query at most; 0 is any, and other requests too.
	Step model.Duration `json:"step,omitempty"`
	// Digest is the request's own, for rules of source Crash.
	Digest string `json:"digest,omitempty"`
}

// Subject is what of a request rules look at.
type Subject struct {
	Endpoint, Tenant, User, Dashboard, Panel string
	// Rule tells that it is asked for an alert or a rule, as far as its caller is to be believed.
	Rule bool
	// Query is the query as Prometheus prints it, or the selectors of match[].
	Query func() string
	// Written is the text as its caller wrote it, where a regular expression may match that too;
	// nil where it is Query.
	Written func() string
	// Digest is its Digest.
	Digest func() string
	// Selectors are the matchers of its selectors.
	Selectors [][]*labels.Matcher
	// Range is the time from the oldest sample that it may read to the newest; Step is 0 for all
	// but range queries.
	Range, Step time.Duration
}

// Digest names a request by what it is about, such as its endpoint, tenant and text, without having
// them: 32 hexadecimal digits.
func Digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// rule is a Rule that can be asked.
type rule struct {
	Rule
	source   Source
	query    string
	regex    *regexp.Regexp
	matchers []*labels.Matcher
	hits     atomic.Int64
	last     atomic.Int64 // nanoseconds since 1970
}

var ruleName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$`)

// compile checks a rule. The error names the field.
func compile(r Rule, source Source) (*rule, error) {
	out := &rule{Rule: r, source: source, query: r.Query}
	switch {
	case r.Name == "":
		return nil, errors.New("name: a rule needs one, of up to 63 letters, digits, '_', '-' and '.': it is told to those who are refused")
	case !ruleName.MatchString(r.Name):
		return nil, fmt.Errorf("name: %.64q is none; use up to 63 letters, digits, '_', '-' and '.'", r.Name)
	case strings.TrimSpace(r.Reason) == "":
		return nil, errors.New("reason: it is what those who are refused are told, such as who refuses it and whom to ask")
	case len(r.Reason) > MaxReason || !utf8.ValidString(r.Reason):
		return nil, fmt.Errorf("reason: at most %d bytes of UTF-8", MaxReason)
	case max(len(r.Query), len(r.Regex), len(r.Selector)) > MaxPattern:
		return nil, fmt.Errorf("query, regex, selector: at most %d bytes each", MaxPattern)
	case max(len(r.Endpoint), len(r.Tenant), len(r.User), len(r.Dashboard), len(r.Panel), len(r.Digest)) > MaxField:
		return nil, fmt.Errorf("endpoint, tenant, user, dashboard, panel: at most %d bytes each", MaxField)
	case r.SparesRules && source != Crash:
		return nil, errors.New("spares_rules: it is for what was under way at a crash")
	case r.Range < 0 || r.Step < 0:
		return nil, errors.New("range, step: a duration such as 6h, above 0")
	}
	bare := r
	bare.Name, bare.Reason, bare.Until, bare.Shadow, bare.SparesRules = "", "", time.Time{}, false, false
	if bare == (Rule{}) {
		return nil, errors.New("it names nothing to refuse; give one or more of endpoint, tenant, user, dashboard, panel, query, regex, selector, range, step")
	}
	var err error
	if r.Query != "" {
		if out.query, err = normal(r.Query); err != nil {
			return nil, fmt.Errorf("query: %.200q is neither PromQL nor a list of selectors, so it is no request's; where it was cut, as long ones are in the usage log, name a selector or the dashboard: %.500s",
				r.Query, err)
		}
	}
	if r.Regex != "" {
		if _, err = regexp.Compile(r.Regex); err == nil { // by itself, or ")|(" would be one
			out.regex, err = regexp.Compile("^(?s:" + r.Regex + ")$")
		}
		if err != nil {
			return nil, fmt.Errorf("regex: %w", err)
		}
	}
	if r.Selector != "" {
		if out.matchers, err = parser.NewParser(parser.Options{}).ParseMetricSelector(r.Selector); err != nil {
			return nil, fmt.Errorf("selector: %w", err)
		}
		if len(out.matchers) == 0 {
			return nil, errors.New("selector: {} is part of every selector; name a metric or a label")
		}
	}
	return out, nil
}

// normal is a query as Prometheus prints it, or selectors with a comma and a space between them,
// each as it prints them.
func normal(query string) (string, error) {
	expr, err := tree.Parser.ParseExpr(query)
	if err == nil {
		return tree.String(expr), nil
	}
	var selectors []string
	for rest := query; rest != ""; {
		end, sel := 0, parser.Expr(nil)
		for sel == nil { // a comma may stand in a selector
			i := strings.Index(rest[end:], ",")
			if i < 0 {
				i = len(rest) - end
			}
			if end += i; end > 0 {
				if e, err := tree.Parser.ParseExpr(rest[:end]); err == nil {
					sel = e
				}
			}
			if sel == nil && end == len(rest) {
				return "", err
			}
			end++
		}
		if _, ok := sel.(*parser.VectorSelector); !ok {
			return "", err
		}
		selectors = append(selectors, tree.String(sel))
		rest = strings.TrimLeft(rest[min(end, len(rest)):], " ")
	}
	return strings.Join(selectors, ", "), nil
}

// OfSelectors is the text of a request for what series are selected, as a rule's query is compared
// with it. parsed are its selectors as they were read already: their regular expressions, which may
// be long, are not compiled again.
func OfSelectors(match []string, parsed [][]*labels.Matcher) string {
	var known tree.Regexps
	for _, ms := range parsed {
		known.Know(ms)
	}
	out := slices.Clone(match)
	for i, text := range out {
		if sel, err := known.Parse(tree.Parser, text); err == nil {
			out[i] = tree.String(sel)
		}
	}
	return strings.Join(out, ", ")
}

// Check tells what is wrong with a rule of the configuration.
func Check(r Rule) error {
	_, err := compile(r, Config)
	return err
}

// over tells whether the rule has ended.
func (r *rule) over(now time.Time) bool { return !r.Until.IsZero() && !now.Before(r.Until) }

// forgotten tells whether nobody needs to know of the rule any more. What was under way at a crash
// is remembered for a day: the next time it is refused for longer.
func (r *rule) forgotten(now time.Time) bool {
	if r.source == Crash {
		now = now.Add(-24 * time.Hour)
	}
	return r.over(now)
}

// matches tells whether the request has all that the rule names.
func (r *rule) matches(s *Subject) bool {
	for _, f := range [...]struct{ want, have string }{
		{r.Endpoint, s.Endpoint},
		{r.Tenant, s.Tenant},
		{r.User, s.User},
		{r.Dashboard, s.Dashboard},
		{r.Panel, s.Panel},
	} {
		if f.want != "" && f.want != f.have {
			return false
		}
	}
	if r.Range > 0 && s.Range < time.Duration(r.Range) || r.Step > 0 && (s.Step == 0 || s.Step > time.Duration(r.Step)) {
		return false
	}
	if r.Digest != "" && r.Digest != s.Digest() || r.query != "" && r.query != s.Query() {
		return false
	}
	if r.matchers != nil && !slices.ContainsFunc(s.Selectors, r.isPartOf) {
		return false
	}
	fits := func(text func() string) bool {
		t := text()
		return r.regex.MatchString(t[:min(len(t), MaxRegexText)])
	}
	return r.regex == nil || fits(s.Query) || s.Written != nil && fits(s.Written)
}

// isPartOf tells whether the selector has all matchers of the rule's.
func (r *rule) isPartOf(selector []*labels.Matcher) bool {
	return !slices.ContainsFunc(r.matchers, func(want *labels.Matcher) bool {
		return !slices.ContainsFunc(selector, func(have *labels.Matcher) bool {
			return have.Name == want.Name && have.Type == want.Type && have.Value == want.Value
		})
	})
}
