package policy

import (
	"fmt"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/strutil"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// The bounds on the shape of a query text. They keep the parser, which is quadratic in long chains
// and takes no context, below a few milliseconds for any text that passes; people and dashboards
// stay far below them.
const (
	// maxDepth is how deep parentheses, braces and brackets nest.
	maxDepth = 64
	// maxWeight is the sum of the weights of all operators and modifiers of a text.
	maxWeight = 4000
	// arithmeticWeight is the weight of an arithmetic operator: 1,000 of them pass.
	arithmeticWeight = 4
	// matchingWeight is the weight of everything that can make the parser report an error for each
	// link of a chain, which it does in quadratic time: comparisons, set operators, unary
	// operators, modifiers of operators and of selectors. 400 of them pass.
	matchingWeight = 10
	// parenWeight is the weight of a parenthesis: the parser asks for the type of all that is
	// inside.
	parenWeight = 1
	// maxTokens is the number of tokens, where one outside braces counts twice: it may become a
	// parse error of its own.
	maxTokens = 16_000
	// maxNumberBytes is how long one number may be, and maxUnderscores how many underscores all of
	// them have, as in 1_000: the lexer reads them slowly.
	maxNumberBytes = 1024
	maxUnderscores = 1000
	// maxMatchersPerSelector is the number of matchers between two braces.
	maxMatchersPerSelector = 100
	// maxMatchingPairs bounds, over the whole text, the labels of on() or ignoring() times those of
	// the group_left() or group_right() behind it: the parser compares each with each.
	maxMatchingPairs = 4096
)

// scan is what one pass over a text found.
type scan struct {
	regexps []string // the regular expressions, unquoted
	outside int      // bytes outside string literals
	tokens  int      // those outside braces twice, but for comments
}

// prescan goes through a text once with Prometheus' own lexer, so that the two cannot disagree
// about where a string or a comment ends, and stops where a bound is passed or where the lexer, and
// so the parser, gives up. It returns a refusal or what it found. Time is linear in the text up to
// the bound that stops it; memory is the regular expressions.
func prescan(text string) (scan, error) {
	var (
		lexer = parser.Lex(text)
		item  parser.Item
		s     scanner
	)
	for next := 0; ; next = int(item.Pos) + len(item.Val) {
		if n := numberAt(text, next); n > maxNumberBytes {
			return s.found, tooMany("characters in one number", maxNumberBytes, n)
		}
		lexer.NextItem(&item)
		if item.Typ == parser.EOF || item.Typ == parser.ERROR {
			return s.found, nil
		}
		err := s.count(&item)
		switch {
		case err != nil || item.Typ == parser.COMMENT:
		case s.inside:
			err = s.between(&item)
		default:
			err = s.outside(&item)
		}
		if err != nil {
			return s.found, err
		}
	}
}

// scanner is where a prescan is in its text.
type scanner struct {
	found  scan
	weight int
	unders int // underscores in numbers
	depth  int
	inside bool // between braces
	match  int  // matchers between these braces
	regex  bool // the next string is a regular expression

	list           parser.ItemType // the keyword before the list of labels being read, or 0
	open           bool            // inside that list
	on, group, all int             // labels in the last on(), in this group_left(), and the sum of their products
}

// count counts a token, wherever it stands.
func (s *scanner) count(item *parser.Item) error {
	if s.found.tokens++; !s.inside && item.Typ != parser.COMMENT {
		s.found.tokens++
	}
	if s.found.tokens > maxTokens {
		return tooMany("tokens", maxTokens, s.found.tokens)
	}
	if item.Typ != parser.STRING {
		s.found.outside += len(item.Val)
	}
	if item.Typ == parser.NUMBER {
		if s.unders += strings.Count(item.Val, "_"); s.unders > maxUnderscores {
			return tooMany("underscores in numbers", maxUnderscores, s.unders)
		}
	}
	return nil
}

// between takes a token between braces.
func (s *scanner) between(item *parser.Item) error {
	switch item.Typ {
	case parser.RIGHT_BRACE:
		s.inside, s.regex = false, false
		s.depth--
	case parser.EQL_REGEX, parser.NEQ_REGEX:
		s.regex = true
		s.match++
	case parser.EQL, parser.NEQ:
		s.regex = false
		s.match++
	case parser.STRING:
		if s.regex {
			if re, err := strutil.Unquote(item.Val); err == nil {
				s.found.regexps = append(s.found.regexps, re)
			}
		}
		s.regex = false
	}
	if s.match > maxMatchersPerSelector {
		return tooMany("matchers in one selector", maxMatchersPerSelector, s.match)
	}
	return nil
}

// outside takes a token that is not between braces.
func (s *scanner) outside(item *parser.Item) error {
	switch item.Typ {
	case parser.LEFT_BRACE:
		s.inside, s.match = true, 0
		s.depth++
	case parser.LEFT_PAREN:
		s.open = s.list != 0
		s.depth++
		s.weight += parenWeight
	case parser.LEFT_BRACKET:
		s.depth++
		s.weight += matchingWeight
	case parser.RIGHT_PAREN, parser.RIGHT_BRACKET:
		if err := s.listEnds(); err != nil {
			return err
		}
		s.depth--
	case parser.ON, parser.IGNORING:
		s.list, s.on = item.Typ, 0
		s.weight += matchingWeight
	case parser.GROUP_LEFT, parser.GROUP_RIGHT:
		s.list, s.group = item.Typ, 0
		s.weight += matchingWeight
	case parser.ADD, parser.SUB, parser.MUL, parser.DIV, parser.MOD, parser.POW, parser.ATAN2:
		s.weight += arithmeticWeight
	case parser.AT, parser.OFFSET, parser.BOOL, parser.ANCHORED, parser.SMOOTHED, parser.FILL, parser.FILL_LEFT, parser.FILL_RIGHT:
		s.weight += matchingWeight
	default:
		if item.Typ.IsOperator() {
			s.weight += matchingWeight
		}
	}
	if s.open && item.Typ != parser.COMMA && item.Typ != parser.LEFT_PAREN {
		if s.list == parser.ON || s.list == parser.IGNORING {
			s.on++
		} else {
			s.group++
		}
	}
	if s.depth > maxDepth {
		return tooMany("nested parentheses", maxDepth, s.depth)
	}
	if s.weight > maxWeight {
		return tooMany("operators", maxWeight/arithmeticWeight, s.weight/arithmeticWeight)
	}
	return nil
}

// listEnds counts the labels of the list that ends here, where one does.
func (s *scanner) listEnds() error {
	if !s.open {
		return nil
	}
	if s.list == parser.GROUP_LEFT || s.list == parser.GROUP_RIGHT {
		if s.all += s.on * s.group; s.all > maxMatchingPairs {
			return tooMany("pairs of labels in on() and group_left()", maxMatchingPairs, s.all)
		}
	}
	s.list, s.open = 0, false
	return nil
}

// smallText is the length in bytes up to which a text can pass no bound, but for those on how deep
// it nests and on matchers: it has that many tokens at most, of which none weighs more than
// matchingWeight, and two lists of labels share it, so that they make no more than
// maxMatchingPairs.
const smallText = 128

// small tells whether prescan would find nothing in a text, which most texts can be seen to be at a
// glance: it is short, and has fewer signs that can nest or begin a matcher than the bounds on
// these are, and none of a regular expression.
func small(text string) bool {
	if len(text) > smallText {
		return false
	}
	signs := 0
	for i := range len(text) {
		switch text[i] {
		case '~':
			return false
		case '(', '[', '{', '=', '!':
			signs++
		}
	}
	return signs <= min(maxDepth, maxMatchersPerSelector)
}

// numberAt is the length of the number that stands at pos, spaces skipped, or a little more than
// maxNumberBytes if it is longer; 0 if there is none.
func numberAt(text string, pos int) int {
	for pos < len(text) && strings.IndexByte(" \t\r\n", text[pos]) >= 0 {
		pos++
	}
	n := 0
	for ; pos+n < len(text) && n <= maxNumberBytes; n++ {
		c := text[pos+n]
		digit := c >= '0' && c <= '9' || c == '.'
		if !digit && (n == 0 || c != '_' && (c|0x20 < 'a' || c|0x20 > 'z')) {
			break
		}
	}
	return n
}

// tooMany is a refusal by the shape of the text. The pass stops at the bound, so what was seen is
// only known to be beyond it.
func tooMany(what string, most, seen int) error {
	return qerr.Refuse(BoundQueryShape, fmt.Sprintf("%d %s", most, what), fmt.Sprintf("at least %d %s", seen, what),
		"split the query, or move parts of it into recording rules", "the query has more than %d %s", most, what)
}

// queryShape bounds what the parser is given.
type queryShape struct{}

func (queryShape) Name() string { return BoundQueryShape }

func (queryShape) Check(q *Query) error {
	if q.Request.ID.HasQuery() && !small(q.Request.Query) {
		found, err := prescan(q.Request.Query)
		if err != nil {
			return err
		}
		q.regexps = append(q.regexps, found.regexps...)
		q.tokens += found.tokens
	}
	outside := 0
	for _, text := range matchTexts(q.Request) {
		found, err := prescan(text)
		if err != nil {
			return err
		}
		q.regexps = append(q.regexps, found.regexps...)
		q.tokens += found.tokens
		outside += found.outside
	}
	if most := q.Limits.MaxQueryBytes; int64(outside) > most {
		return refuseBytes(most, int64(outside), "the match[] of this request have %d bytes outside string literals and max_query_bytes is %s", outside, bytesText(most))
	}
	return nil
}
