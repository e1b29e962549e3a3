package policy

import (
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// maxRegexCost bounds the cost of all regular expressions of a query text together. A unit is one literal character that is compiled, a quarter to half
	// a microsecond. An alternation of 3,000 node names in parentheses passes.
	maxRegexCost = 8_000
	// maxMatchRegexCost is the same for match[] and remote read, where Grafana writes all values of a variable as one alternation in parentheses: 10,000
	// names pass, which take about 20 ms to compile.
	maxMatchRegexCost = 32_000
	// maxRepeatedCost bounds what counted repetitions such as {30} blow up in one request: every value of the label is run through all of it.
	maxRepeatedCost = 500
)

// regexCost refuses regular expressions that are dear to compile or to run. It reads their text only: the parser would compile them.
type regexCost struct{}

func (regexCost) Name() string { return BoundRegexCost }

func (regexCost) Check(q *Query) error {
	most := maxRegexCost
	if !hasQuery(q.Request.ID) {
		most = maxMatchRegexCost
	}
	add := func(re string) error {
		q.sizes = q.sizes.plus(sizeOf(re))
		return refuseRegexps(q.sizes, most)
	}
	for _, re := range q.regexps {
		if err := add(re); err != nil {
			return err
		}
	}
	if q.Request.ID == endpoint.Read && q.Request.ReadQuery != nil {
		return readShape(q.Request.ReadQuery.Queries, add)
	}
	return nil
}

// refuseRegexps refuses regular expressions that come to more than most, or whose counted repetitions do to more than maxRepeatedCost.
func refuseRegexps(sum regexSize, most int) error {
	if sum.repeated > maxRepeatedCost {
		return qerr.Refuse(BoundRegexCost, strconv.Itoa(maxRepeatedCost), strconv.Itoa(sum.repeated), "replace counted repetitions such as {30} by * or +",
			"counted repetitions blow the regular expressions of the request up to %d parts and at most %d are run", sum.repeated, maxRepeatedCost)
	}
	if sum.all > most {
		return qerr.Refuse(BoundRegexCost, strconv.Itoa(most), strconv.Itoa(sum.all),
			"join names by | without parentheses or escapes, which costs nothing in a matcher, use a shorter pattern, or match on another label",
			"the regular expressions of the request come to about %d parts and at most %d are compiled", sum.all, most)
	}
	return nil
}

// readShape bounds what a remote read request brings instead of a text.
func readShape(queries []*prompb.Query, add func(re string) error) error {
	if len(queries) > maxMatches {
		return tooMany("queries in one remote read request", maxMatches, len(queries))
	}
	for _, rq := range queries {
		if rq == nil {
			continue
		}
		if n := len(rq.Matchers); n > maxMatchersPerSelector {
			return tooMany("matchers in one selector", maxMatchersPerSelector, n)
		}
		for _, m := range rq.Matchers {
			if m == nil || m.Type != prompb.LabelMatcher_RE && m.Type != prompb.LabelMatcher_NRE {
				continue
			}
			if err := add(m.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// regexSize is an estimate of what a regular expression costs, in units of a literal character that is compiled.
type regexSize struct {
	all      int
	repeated int // the part of it that stands in counted repetitions
}

func (a regexSize) plus(b regexSize) regexSize {
	return regexSize{addInt(a.all, b.all), addInt(a.repeated, b.repeated)}
}

// times is the size of n copies. From two on, all of it is repeated.
func (a regexSize) times(n int) regexSize {
	if n <= 1 {
		return a
	}
	all := mulInt(a.all, n)
	return regexSize{all, all}
}

func addInt(a, b int) int {
	if a > math.MaxInt32-b {
		return math.MaxInt32
	}
	return a + b
}

func mulInt(a, n int) int {
	if n != 0 && a > math.MaxInt32/n {
		return math.MaxInt32
	}
	return a * n
}

// What the parts of an expression cost, in units of a literal character.
const (
	bytesPerUnit         = 16    // text that is only read
	bytesPerLiteral      = 256   // text of literals joined by |, which is never compiled
	specialCost          = 3     // any character, an anchor, a small class, a repetition
	groupCost            = 4     // a pair of parentheses
	boundaryCost         = 4     // \b and \d and their like
	unicodeClassCost     = 200   // \pL has hundreds of ranges
	foldedClassCost      = 5_000 // and with (?i) each of their characters is looked up
	foldedRunesPerUnit   = 4     // (?i)[a-z]: so many characters are looked up at the price of one
	classRangesPerUnit   = 4
	expressionCost       = 40   // of any expression that is compiled at all
	maxRegexNesting      = 1000 // Go's own bound; deeper expressions are rejected by the parser
	maxCountedRepetition = 1000 // likewise
)

// group is one pair of parentheses, or the whole expression, while it is being read.
type group struct {
	done   regexSize // finished alternatives
	branch regexSize // this alternative without its last atom
	last   regexSize // the last atom, which a repetition multiplies

	prefix []byte // the previous alternative, where it was literal
	text   []byte // this alternative as far as it is literal
	mixed  bool   // this alternative is not literal
}

// atom begins a new atom.
func (g *group) atom(cost int) {
	g.branch = g.branch.plus(g.last)
	g.last = regexSize{all: cost}
}

// literal is an atom of one character.
func (g *group) literal(s string) {
	g.atom(1)
	if !g.mixed {
		g.text = append(g.text, s...)
	}
}

// special is an atom that is no literal.
func (g *group) special(size regexSize) {
	g.branch = g.branch.plus(g.last)
	g.last = size
	g.mixed = true
}

// end closes an alternative. Literal alternatives share the prefix they have in common with the one before: the compiler factors it out.
func (g *group) end() {
	size := g.branch.plus(g.last)
	if !g.mixed {
		shared := 0
		for shared < len(g.text) && shared < len(g.prefix) && g.text[shared] == g.prefix[shared] {
			shared++
		}
		size.all = max(1, size.all-shared)
		g.prefix, g.text = g.text, g.prefix[:0]
	} else {
		g.prefix, g.text = g.prefix[:0], g.text[:0]
	}
	g.done = g.done.plus(size).plus(regexSize{all: 1})
	g.branch, g.last, g.mixed = regexSize{}, regexSize{}, false
}

// sizeOf estimates the cost of a regular expression in one pass over its text. It errs on the side of dear, and on texts that are no regular
// expression at all its answer means nothing: the parser rejects those.
func sizeOf(re string) regexSize {
	if literalAlternation(re) {
		return regexSize{all: len(re) / bytesPerLiteral}
	}
	s := sizer{re: re, groups: []group{{}}}
	s.run()
	for len(s.groups) > 1 {
		s.close()
	}
	s.top().end()
	return s.top().done.plus(regexSize{all: expressionCost + len(re)/bytesPerUnit})
}

type sizer struct {
	re     string
	pos    int
	fold   bool // (?i) was seen
	groups []group
}

func (s *sizer) top() *group { return &s.groups[len(s.groups)-1] }

func (s *sizer) close() {
	g := s.top()
	g.end()
	size := g.done.plus(regexSize{all: groupCost})
	s.groups = s.groups[:len(s.groups)-1]
	s.top().special(size)
}

func (s *sizer) run() {
	for s.pos < len(s.re) {
		switch c := s.re[s.pos]; c {
		case '(':
			s.pos++
			s.flags()
			if len(s.groups) > maxRegexNesting {
				s.top().special(regexSize{all: math.MaxInt32})
				return
			}
			s.groups = append(s.groups, group{})
		case ')':
			s.pos++
			if len(s.groups) == 1 {
				return // no regular expression
			}
			s.close()
		case '|':
			s.pos++
			s.top().end()
		case '*', '+', '?':
			s.pos++
			g := s.top()
			g.last = g.last.plus(regexSize{all: specialCost})
			g.mixed = true
		case '{':
			s.repetition()
		case '[':
			s.pos++
			s.class()
		case '\\':
			s.escape()
		case '.', '^', '$':
			s.pos++
			s.top().special(regexSize{all: specialCost})
		default:
			_, w := utf8.DecodeRuneInString(s.re[s.pos:])
			s.top().literal(s.re[s.pos : s.pos+w])
			s.pos += w
		}
	}
}

// flags reads what may follow an opening parenthesis: ?:, ?i:, ?P<name>.
func (s *sizer) flags() {
	if s.pos >= len(s.re) || s.re[s.pos] != '?' {
		return
	}
	for s.pos++; s.pos < len(s.re); s.pos++ {
		switch s.re[s.pos] {
		case 'i':
			s.fold = true
		case ':', '>':
			s.pos++
			return
		case ')', '(':
			return
		}
	}
}

// repetition reads {n}, {n,} or {n,m}; anything else is a literal brace.
func (s *sizer) repetition() {
	end, commas, nums := s.pos+1, 0, [2]int{}
	for ; end < len(s.re) && s.re[end] != '}'; end++ {
		switch c := s.re[end]; {
		case c == ',' && commas == 0:
			commas++
		case c >= '0' && c <= '9':
			nums[commas] = min(nums[commas]*10+int(c-'0'), maxCountedRepetition+1)
		default:
			s.pos++
			s.top().literal("{")
			return
		}
	}
	if end == len(s.re) || end == s.pos+1 {
		s.pos++
		s.top().literal("{")
		return
	}
	s.pos = end + 1
	g := s.top()
	g.last = g.last.times(max(nums[0]+commas, nums[1]))
	g.mixed = true
}

// class reads a character class; its opening bracket has been read.
func (s *sizer) class() {
	var (
		size   = specialCost
		ranges int
		before rune = -1
		dash   bool
		first  = true
	)
	if s.pos < len(s.re) && s.re[s.pos] == '^' {
		s.pos++
	}
	for ; s.pos < len(s.re); first = false {
		c := s.re[s.pos]
		if c == ']' && !first {
			s.pos++
			break
		}
		if c == '-' && before >= 0 && !dash && s.pos+1 < len(s.re) && s.re[s.pos+1] != ']' {
			s.pos++
			dash = true
			continue
		}
		ranges++
		var r rune
		switch {
		case c == '\\':
			var unicodeClass bool
			if r, unicodeClass = s.classEscape(); unicodeClass {
				size = addInt(size, s.unicodeCost())
			}
		default:
			var w int
			r, w = utf8.DecodeRuneInString(s.re[s.pos:])
			s.pos += w
		}
		if dash && s.fold && r > before {
			size = addInt(size, int(r-before)/foldedRunesPerUnit)
		}
		if dash {
			before, dash = -1, false
		} else {
			before = r
		}
	}
	s.top().special(regexSize{all: addInt(size, ranges/classRangesPerUnit)})
}

func (s *sizer) unicodeCost() int {
	if s.fold {
		return foldedClassCost
	}
	return unicodeClassCost
}

// escape reads a backslash and what belongs to it, outside a class.
func (s *sizer) escape() {
	if s.pos+1 >= len(s.re) {
		s.pos++
		return
	}
	switch c := s.re[s.pos+1]; c {
	case 'Q':
		s.pos += 2
		for s.pos < len(s.re) {
			if s.re[s.pos] == '\\' && s.pos+1 < len(s.re) && s.re[s.pos+1] == 'E' {
				s.pos += 2
				return
			}
			_, w := utf8.DecodeRuneInString(s.re[s.pos:])
			s.top().literal(s.re[s.pos : s.pos+w])
			s.pos += w
		}
	case 'p', 'P':
		s.classEscape()
		s.top().special(regexSize{all: s.unicodeCost()})
	case 'd', 'D', 's', 'S', 'w', 'W', 'A', 'z', 'b', 'B', 'C':
		s.pos += 2
		s.top().special(regexSize{all: boundaryCost})
	default:
		from := s.pos
		r, _ := s.classEscape()
		if r >= 0 && s.pos-from == 2 {
			s.top().literal(s.re[from+1 : s.pos])
			return
		}
		s.top().special(regexSize{all: specialCost})
	}
}

// classEscape reads a backslash and what belongs to it. It returns the character it stands for, or -1, and whether it is a Unicode class.
func (s *sizer) classEscape() (r rune, unicodeClass bool) {
	s.pos++ // the backslash
	if s.pos >= len(s.re) {
		return -1, false
	}
	c := s.re[s.pos]
	switch {
	case c == 'p' || c == 'P':
		s.pos++
		if s.pos < len(s.re) && s.re[s.pos] == '{' {
			for s.pos < len(s.re) && s.re[s.pos] != '}' {
				s.pos++
			}
		}
		if s.pos < len(s.re) {
			_, w := utf8.DecodeRuneInString(s.re[s.pos:])
			s.pos += w
		}
		return -1, true
	case c == 'x':
		s.pos++
		return s.hex(), false
	case c >= '0' && c <= '7':
		n := rune(0)
		for i := 0; i < 3 && s.pos < len(s.re) && s.re[s.pos] >= '0' && s.re[s.pos] <= '7'; i++ {
			n = n*8 + rune(s.re[s.pos]-'0')
			s.pos++
		}
		return n, false
	case c == 'd' || c == 'D' || c == 's' || c == 'S' || c == 'w' || c == 'W':
		s.pos++
		return -1, false
	}
	r, w := utf8.DecodeRuneInString(s.re[s.pos:])
	s.pos += w
	return r, false
}

// hex reads the two digits of \x7F or the braces of \x{10FFFF}.
func (s *sizer) hex() rune {
	most := 2
	if s.pos < len(s.re) && s.re[s.pos] == '{' {
		s.pos++
		most = 8
	}
	n := rune(0)
	for i := 0; i < most && s.pos < len(s.re); i++ {
		v, err := strconv.ParseUint(s.re[s.pos:s.pos+1], 16, 8)
		if err != nil {
			break
		}
		n = min(n*16+rune(v), utf8.MaxRune)
		s.pos++
	}
	if most == 8 && s.pos < len(s.re) && s.re[s.pos] == '}' {
		s.pos++
	}
	return n
}
