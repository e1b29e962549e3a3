package verify

import (
	"regexp"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
)

// condition is an expression that a word matches, or does not.
type condition struct {
	auto *automaton
	not  bool
}

// answer says whether there is a word that meets all conditions.
type answer int

const (
	none answer = iota
	found
	unknown
)

// maxStates bounds how much is looked at for one word, and maxSteps how many places in expressions
// are gone through for it: those of a long list are many for each character.
const (
	maxStates = 2048
	maxSteps  = 200_000

	maxDivided = 1 << 14 // see divide
)

// conditionOf is what a matcher asks of a value.
func conditionOf(m *labels.Matcher) (condition, error) {
	pattern := m.Value
	if m.Type == labels.MatchEqual || m.Type == labels.MatchNotEqual {
		pattern = regexp.QuoteMeta(m.Value)
	}
	auto, err := program(pattern)
	return condition{auto: auto, not: m.Type == labels.MatchNotEqual || m.Type == labels.MatchNotRegexp}, err
}

// search goes through the states that conditions are in together, in the order in which words lead
// to them.
type search struct {
	conditions []condition
	at         []int32  // the states of the automata, of one state after the other
	last       []rune   // the character that led to each
	from       []int32  // the state before it
	table      []int32  // the states by their hash, plus 1; 0 is free
	letters    []rune   // see characters
	classes    []uint64 // by the class of a character in all conditions: the round in which it had one
	round      uint64
	low        [2]uint64     // which of ASCII are there, where there are too many classes
	wide       map[rune]bool // and which others
	steps      int
}

// common is the shortest word that meets all conditions; one of them at least names how it begins.
// With assertions on where something stands, such as \b, it may be none. What it costs, and so
// whether there is an answer, depends on the conditions alone.
func common(conditions ...condition) (string, answer) {
	return new(search).common(conditions)
}

// common is that; what the search before has taken up is used again.
func (s *search) common(conditions []condition) (string, answer) {
	if slices.ContainsFunc(conditions, func(c condition) bool { return c.auto.vast }) {
		return "", unknown
	}
	exact := !slices.ContainsFunc(conditions, func(c condition) bool { return c.auto.asserts })
	s.conditions, s.steps = conditions, 0
	s.at, s.last, s.from = s.at[:0], s.last[:0], s.from[:0]
	s.divide()
	if s.table == nil {
		s.table = make([]int32, 64)
	}
	clear(s.table)
	next := make([]int32, len(conditions))
	for i, c := range conditions {
		next[i] = c.auto.begin()
	}
	s.add(next, 0, -1)
	for at := 0; at < len(s.last); at++ {
		now := s.at[at*len(conditions) : (at+1)*len(conditions)]
		if s.accepted(now) {
			if exact {
				return s.word(at), found
			}
			return s.word(at), unknown
		}
		for _, r := range s.characters(now) {
			if s.after(now, next, r) {
				s.add(next, r, at)
			}
		}
		if len(s.last) > maxStates || s.steps > maxSteps {
			return "", unknown
		}
	}
	if !exact && slices.ContainsFunc(conditions, func(c condition) bool { return c.not }) {
		return "", unknown
	}
	return "", none
}

// add adds a state, unless it was reached before.
func (s *search) add(next []int32, r rune, from int) {
	n := len(next)
	slot := s.slot(next)
	if s.table[slot] > 0 {
		return
	}
	s.at, s.last, s.from = append(s.at, next...), append(s.last, r), append(s.from, int32(from))
	s.table[slot] = int32(len(s.last))
	if len(s.last)*2 < len(s.table) {
		return
	}
	s.table = make([]int32, 4*len(s.table))
	for i := range s.last {
		s.table[s.slot(s.at[i*n:(i+1)*n])] = int32(i + 1)
	}
}

// slot is where a state stands in the table, or a free place for it.
func (s *search) slot(states []int32) int {
	n := len(states)
	hash := uint64(0)
	for _, state := range states {
		hash = (hash ^ uint64(uint32(state))) * 0x9e3779b97f4a7c15
		hash ^= hash >> 29
	}
	for at := int(hash) & (len(s.table) - 1); ; at = (at + 1) & (len(s.table) - 1) {
		id := int(s.table[at]) - 1
		if id < 0 || slices.Equal(s.at[id*n:(id+1)*n], states) {
			return at
		}
	}
}

// word is what leads to a state.
func (s *search) word(at int) string {
	var out []rune
	for ; s.from[at] >= 0; at = int(s.from[at]) {
		out = append(out, s.last[at])
	}
	slices.Reverse(out)
	return string(out)
}

// accepted says whether the word meets all conditions as it is.
func (s *search) accepted(at []int32) bool {
	for i, c := range s.conditions {
		if c.auto.states[at[i]].matches == c.not {
			return false
		}
	}
	return true
}

// after is where everything is after one more character; not ok where no longer word can meet the
// conditions, or it is where it was.
func (s *search) after(at, next []int32, r rune) (ok bool) {
	same := true
	for i := range s.conditions {
		c := &s.conditions[i]
		from := &c.auto.states[at[i]]
		s.steps += 1 + len(from.at)
		to := from.next[c.auto.class(r)]
		if to < 0 {
			to = c.auto.after(at[i], r)
		}
		if to == 0 && !c.not {
			return false
		}
		same = same && to == at[i]
		next[i] = to
	}
	return !same // which is there already
}

// characters stand for all that lead anywhere: what people would take first, then the bounds of
// what is named, then what comes behind that; each once, and one of those that no condition tells
// apart.
func (s *search) characters(at []int32) []rune {
	s.letters, s.low = s.letters[:0], [2]uint64{}
	clear(s.wide)
	s.round++
	s.try(usual)
	for i := range s.conditions {
		named, _ := s.conditions[i].auto.characters(at[i])
		s.try(named)
	}
	for i := range s.conditions {
		_, behind := s.conditions[i].auto.characters(at[i])
		s.try(behind)
	}
	return s.letters
}

var usual = []rune{'x', 'a', '0', '_'}

// try adds characters that are not there.
func (s *search) try(all []rune) {
	for _, r := range all {
		if len(s.classes) > 0 {
			class := 0
			for i := range s.conditions {
				auto := s.conditions[i].auto
				class = class*auto.classes + int(auto.class(r))
			}
			if s.classes[class] != s.round {
				s.classes[class] = s.round
				s.letters = append(s.letters, r)
			}
			continue
		}
		if uint32(r) < 128 {
			if bit := uint64(1) << (r & 63); s.low[r>>6]&bit == 0 {
				s.low[r>>6] |= bit
				s.letters = append(s.letters, r)
			}
			continue
		}
		if s.wide == nil {
			s.wide = map[rune]bool{}
		}
		if !s.wide[r] {
			s.wide[r] = true
			s.letters = append(s.letters, r)
		}
	}
}

// divide makes room for the classes of characters that conditions tell apart together, unless there
// are too many.
func (s *search) divide() {
	classes := 1
	for _, c := range s.conditions {
		if classes *= c.auto.classes; classes > maxDivided {
			s.classes = nil
			return
		}
	}
	if classes > len(s.classes) {
		s.classes = make([]uint64, classes)
	}
}
