package dropped

import (
	"regexp/syntax"
	"slices"
	"unicode"

	"github.com/prometheus/prometheus/model/labels"
)

// maxValues is how many values a matcher may list one by one.
const maxValues = 256

// finite are the values that a matcher lets through, where it lists them: by equality, an
// alternation, or an expression with optional parts, such as 30(\.0)?, which is how people write
// the edges of buckets for two versions of Prometheus. Prometheus' own list (SetMatches) knows no
// optional parts.
func finite(m *labels.Matcher) ([]string, bool) {
	switch m.Type {
	case labels.MatchEqual:
		return []string{m.Value}, true
	case labels.MatchRegexp:
		if set := m.SetMatches(); len(set) > 0 {
			return set, true
		}
		re, err := syntax.Parse(m.Value, syntax.Perl)
		if err != nil {
			return nil, false // a matcher whose expression is none cannot be made
		}
		values := expand(re)
		slices.Sort(values)
		return slices.Compact(values), len(values) > 0
	}
	return nil, false
}

// expand lists what an expression matches as a whole; nil where that is not finite, more than
// maxValues, or not plain.
func expand(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return []string{""}
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return nil
		}
		return []string{string(re.Rune)}
	case syntax.OpCharClass:
		var out []string
		for i := 0; i+1 < len(re.Rune); i += 2 {
			if re.Rune[i+1]-re.Rune[i] >= maxValues || len(out) >= maxValues || re.Rune[i+1] > unicode.MaxRune {
				return nil
			}
			for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
				out = append(out, string(r))
			}
		}
		return out
	case syntax.OpCapture:
		return expand(re.Sub[0])
	case syntax.OpQuest:
		if inner := expand(re.Sub[0]); inner != nil {
			return append([]string{""}, inner...)
		}
		return nil
	case syntax.OpAlternate:
		var out []string
		for _, sub := range re.Sub {
			inner := expand(sub)
			if inner == nil || len(out)+len(inner) > maxValues {
				return nil
			}
			out = append(out, inner...)
		}
		return out
	case syntax.OpConcat:
		out := []string{""}
		for _, sub := range re.Sub {
			inner := expand(sub)
			if inner == nil || len(out)*len(inner) > maxValues {
				return nil
			}
			longer := make([]string, 0, len(out)*len(inner))
			for _, a := range out {
				for _, b := range inner {
					longer = append(longer, a+b)
				}
			}
			out = longer
		}
		return out
	default:
		return nil
	}
}
