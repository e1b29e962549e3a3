package policy

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// regexSize is an estimate of what a regular expression costs, in units of a literal character that
// is compiled and that a value of the label may come by at each of its own characters.
type regexSize struct {
	all      int // all parts
	repeated int // those that stand in counted repetitions
	fixed    int // those that a value comes by once at most
	once     int // the characters of these, as they are written
	wide     int // classes of nearly all characters
}

// cost is what compiling the expression and running it over the values of a label come to.
func (a regexSize) cost() int { return a.all - a.fixed + a.once/onceFactor }

// full is the same without regard to how often a value comes by a part.
func (a regexSize) full() regexSize { return regexSize{all: a.all, repeated: a.repeated, wide: a.wide} }

func (a regexSize) plus(b regexSize) regexSize {
	return regexSize{
		addInt(a.all, b.all), addInt(a.repeated, b.repeated), addInt(a.fixed, b.fixed), addInt(a.once, b.once),
		addInt(a.wide, b.wide),
	}
}

// times is the size of n copies. From two on, all of it is repeated.
func (a regexSize) times(n int) regexSize {
	if n <= 1 {
		return a.full()
	}
	all := mulInt(a.all, n)
	return regexSize{all: all, repeated: all, wide: a.wide}
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
	rangeRunesPerUnit    = 32   // [一-龥]: so many characters of a range are looked at
	shortAlternative     = 8    // bytes of an alternative: a shorter one costs as much to compile
	expressionCost       = 40   // of any expression that is compiled at all
	maxRegexNesting      = 1000 // Go's own bound; deeper expressions are rejected by the parser
	maxCountedRepetition = 1000 // likewise

	// onceFactor is how many characters that a value comes by once cost as much as a part that it
	// may come by at each of its own. An expression begins at the first character of a value, so
	// what stands at a fixed distance from its beginning is looked at once: all the names of an
	// alternation that nothing of varying length stands before. At values of 20 characters that is
	// a tenth of the steps on average, where all names go along with the value to its end; with
	// names in order, which share what they begin with, it is a thousandth. BenchmarkRegexCost has
	// the figures.
	onceFactor = 10
	// freeNesting is how deep alternatives may nest at no price, be it in parentheses or as names
	// that begin like others. Beyond it the square of the levels is charged: Prometheus looks
	// through all that is inside at each level, and does so in milliseconds for 200 levels, in a
	// tenth of a second for 300. Names that people give nest ten deep.
	freeNesting = 32
)

// group is one pair of parentheses, or the whole expression, while it is being read.
type group struct {
	ends   int       // alternatives that were closed
	done   regexSize // finished alternatives
	branch regexSize // this alternative without its last atom
	last   regexSize // the last atom, which a repetition multiplies

	prefix []byte // the previous alternative, as far as it was literal
	text   []byte // this alternative as far as it is literal, with anyByte for a dot
	ended  bool   // its literal beginning has ended
	mixed  bool   // this alternative is not literal

	head  bool // the group begins at a fixed distance from the beginning of a value
	fixed bool // so does what comes next

	spans  []sharing // of alternatives that share a prefix, the shorter prefix first
	height int       // how deep alternatives nest inside
}

// sharing is a run of alternatives that begin with the same bytes, which the parser makes a group
// of.
type sharing struct {
	shared int // bytes
	height int // levels, this one included
}

// anyByte stands for a dot in group.text. No literal has it: it is not UTF-8.
const anyByte = 0xff

// onceOf is the size of a part that a value comes by once.
func onceOf(n int) regexSize { return regexSize{all: n, fixed: n, once: n} }

// atom begins a new atom.
func (g *group) atom(size regexSize) {
	g.branch = g.branch.plus(g.last)
	g.last = size
}

// literal is an atom of one character.
func (g *group) literal(s string, fold bool) {
	if g.fixed && !fold {
		g.atom(onceOf(1))
	} else {
		g.atom(regexSize{all: 1})
	}
	if !g.ended {
		g.text = append(g.text, s...)
	}
}

// any is a dot: an atom of one character too.
func (g *group) any() {
	if g.fixed {
		g.atom(onceOf(specialCost))
	} else {
		g.atom(regexSize{all: specialCost})
	}
	g.mixed = true
	if !g.ended {
		g.text = append(g.text, anyByte)
	}
}

// special is an atom that is no character.
func (g *group) special(size regexSize) {
	g.atom(size)
	g.mixed, g.ended, g.fixed = true, true, false
}

// repeat is a repetition of the last atom.
func (g *group) repeat() {
	g.last = g.last.full()
	g.mixed, g.ended, g.fixed = true, true, false
}

// end closes an alternative. Literal alternatives share the prefix they have in common with the one
// before: the parser factors it out.
func (g *group) end() {
	size := g.branch.plus(g.last)
	shared := 0
	for shared < len(g.text) && shared < len(g.prefix) && g.text[shared] == g.prefix[shared] {
		shared++
	}
	g.share(shared)
	if !g.mixed {
		size.all = max(1, size.all-shared)
		size.fixed = min(size.fixed, size.all)
	}
	g.done = g.done.plus(size)
	if g.head {
		least := 1
		if g.ends > 0 { // one that stands alone is none
			least += max(0, shortAlternative-len(g.text))
		}
		g.done = g.done.plus(onceOf(least))
	} else {
		g.done = g.done.plus(regexSize{all: 1})
	}
	g.ends++
	g.prefix, g.text = g.text, g.prefix[:0]
	g.branch, g.last, g.mixed, g.ended, g.fixed = regexSize{}, regexSize{}, false, false, g.head
}

// share notes that this alternative and the one before begin with so many equal bytes.
func (g *group) share(n int) {
	inside := 0
	for len(g.spans) > 0 && g.spans[len(g.spans)-1].shared > n {
		inside = max(g.spans[len(g.spans)-1].height, inside+1)
		g.spans = g.spans[:len(g.spans)-1]
	}
	switch top := len(g.spans) - 1; {
	case n == 0:
		g.height = max(g.height, inside)
	case top >= 0 && g.spans[top].shared == n:
		g.spans[top].height = max(g.spans[top].height, inside+1)
	default:
		g.spans = append(g.spans, sharing{n, inside + 1})
	}
}

// finish closes the last alternative and returns what the group costs and how deep it nests.
func (g *group) finish() (regexSize, int) {
	g.end()
	g.share(0)
	return g.done, g.height
}

// sizeOf estimates the cost of a regular expression in one pass over its text. It errs on the side
// of dear, and on texts that are no regular expression at all its answer means nothing: the parser
// rejects those.
func sizeOf(re string) regexSize {
	if literalAlternation(re) {
		return regexSize{all: len(re) / bytesPerLiteral}
	}
	s := sizer{re: re, groups: []group{{head: true, fixed: true}}}
	s.run()
	for len(s.groups) > 1 {
		s.close()
	}
	size, height := s.top().finish()
	deep := max(0, height-freeNesting)
	return size.plus(regexSize{
		all:   expressionCost + len(re)/bytesPerUnit + mulInt(deep, deep),
		fixed: min(len(re), size.once) / bytesPerUnit,
	})
}

type sizer struct {
	re     string
	pos    int
	fold   bool // (?i) was seen
	groups []group
}

func (s *sizer) top() *group { return &s.groups[len(s.groups)-1] }

func (s *sizer) close() {
	size, height := s.top().finish()
	s.groups = s.groups[:len(s.groups)-1]
	s.top().special(size.plus(regexSize{all: groupCost}))
	s.top().height = max(s.top().height, height+1)
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
			s.groups = append(s.groups, group{head: s.top().fixed, fixed: s.top().fixed})
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
			g.repeat()
		case '{':
			s.repetition()
		case '[':
			s.pos++
			s.class()
		case '\\':
			s.escape()
		case '.':
			s.pos++
			s.top().any()
		case '^', '$':
			s.pos++
			s.top().special(regexSize{all: specialCost})
		default:
			_, w := utf8.DecodeRuneInString(s.re[s.pos:])
			s.top().literal(s.re[s.pos:s.pos+w], s.fold)
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
			s.top().literal("{", s.fold)
			return
		}
	}
	if end == len(s.re) || end == s.pos+1 {
		s.pos++
		s.top().literal("{", s.fold)
		return
	}
	s.pos = end + 1
	g := s.top()
	g.last = g.last.times(max(nums[0]+commas, nums[1]))
	g.repeat()
}

// class reads a character class; its opening bracket has been read.
func (s *sizer) class() {
	var (
		size   = specialCost
		wide   int
		ranges int
		before rune = -1
		dash   bool
		first  = true
	)
	if s.pos < len(s.re) && s.re[s.pos] == '^' {
		s.pos++
		wide = 1
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
			if rest := s.re[s.pos:]; strings.HasPrefix(rest, `\S`) || strings.HasPrefix(rest, `\D`) {
				wide = 1
			}
			var unicodeClass bool
			if r, unicodeClass = s.classEscape(); unicodeClass {
				size = addInt(size, s.unicodeCost())
			}
		default:
			var w int
			r, w = utf8.DecodeRuneInString(s.re[s.pos:])
			s.pos += w
		}
		if dash && r > before {
			size = addInt(size, int(r-before)/rangeRunesPerUnit)
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
	s.top().special(regexSize{all: addInt(size, ranges/classRangesPerUnit), wide: wide})
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
			s.top().literal(s.re[s.pos:s.pos+w], s.fold)
			s.pos += w
		}
	case 'p', 'P':
		s.classEscape()
		s.top().special(regexSize{all: s.unicodeCost()})
	case 'D', 'S':
		s.pos += 2
		s.top().special(regexSize{all: boundaryCost, wide: 1})
	case 'd', 's', 'w', 'W', 'A', 'z', 'b', 'B', 'C':
		s.pos += 2
		s.top().special(regexSize{all: boundaryCost})
	default:
		from := s.pos
		r, _ := s.classEscape()
		if r >= 0 && s.pos-from == 2 {
			s.top().literal(s.re[from+1:s.pos], s.fold)
			return
		}
		s.top().special(regexSize{all: specialCost})
	}
}

// classEscape reads a backslash and what belongs to it. It returns the character it stands for, or
// -1, and whether it is a Unicode class.
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
