package verify

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	"github.com/prometheus/prometheus/model/labels"
)

// condition is an expression that a word matches, or does not.
type condition struct {
	prog *syntax.Prog
	not  bool
}

// answer says whether there is a word that meets all conditions.
type answer int

const (
	none answer = iota
	found
	unknown
)

// maxStates bounds how much is looked at for one word.
const maxStates = 2048

// program compiles an expression, which is taken to match whole words.
func program(pattern string) (*syntax.Prog, error) {
	re, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
	if err != nil {
		return nil, fmt.Errorf("read a regex: %w", err)
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, fmt.Errorf("compile a regex: %w", err)
	}
	return prog, nil
}

// conditionOf is what a matcher asks of a value.
func conditionOf(m *labels.Matcher) (condition, error) {
	pattern := m.Value
	if m.Type == labels.MatchEqual || m.Type == labels.MatchNotEqual {
		pattern = regexp.QuoteMeta(m.Value)
	}
	prog, err := program(pattern)
	return condition{prog: prog, not: m.Type == labels.MatchNotEqual || m.Type == labels.MatchNotRegexp}, err
}

// state is where the expressions of all conditions are after the same characters.
type state struct {
	at   [][]uint32
	word string
}

// common is the shortest word that meets all conditions; one of them at least names how it begins.
// With assertions on where something stands, such as \b, it may be none.
func common(conditions ...condition) (string, answer) {
	exact := !slices.ContainsFunc(conditions, func(c condition) bool {
		return slices.ContainsFunc(c.prog.Inst, func(i syntax.Inst) bool { return i.Op == syntax.InstEmptyWidth })
	})
	start := state{}
	for _, c := range conditions {
		start.at = append(start.at, closure(c.prog, []uint32{uint32(c.prog.Start)}))
	}
	seen, waiting := map[string]bool{start.key(): true}, []state{start}
	for len(waiting) > 0 {
		s := waiting[0]
		if waiting = waiting[1:]; s.accepted(conditions) {
			if exact {
				return s.word, found
			}
			return s.word, unknown
		}
		for _, r := range s.characters(conditions) {
			next, ok := s.after(conditions, r)
			if key := next.key(); ok && !seen[key] {
				seen[key] = true
				waiting = append(waiting, next)
			}
		}
		if len(seen) > maxStates {
			return "", unknown
		}
	}
	if !exact && slices.ContainsFunc(conditions, func(c condition) bool { return c.not }) {
		return "", unknown
	}
	return "", none
}

func (s state) key() string {
	var b strings.Builder
	for _, at := range s.at {
		fmt.Fprint(&b, at)
	}
	return b.String()
}

// accepted says whether the word meets all conditions as it is.
func (s state) accepted(conditions []condition) bool {
	for i, c := range conditions {
		matches := slices.ContainsFunc(s.at[i], func(pc uint32) bool { return c.prog.Inst[pc].Op == syntax.InstMatch })
		if matches == c.not {
			return false
		}
	}
	return true
}

// after is where everything is after one more character; not ok where no longer word can meet the
// conditions.
func (s state) after(conditions []condition, r rune) (state, bool) {
	next := state{word: s.word + string(r)}
	for i, c := range conditions {
		var to []uint32
		for _, pc := range s.at[i] {
			if in := &c.prog.Inst[pc]; consumes(in) && in.MatchRune(r) {
				to = append(to, in.Out)
			}
		}
		if len(to) == 0 && !c.not {
			return state{}, false
		}
		next.at = append(next.at, closure(c.prog, to))
	}
	return next, true
}

// characters stand for all that lead anywhere: what people would take first, then the bounds of
// what is named.
func (s state) characters(conditions []condition) []rune {
	out := []rune{'x', 'a', '0', '_'}
	for i, c := range conditions {
		for _, pc := range s.at[i] {
			in := &c.prog.Inst[pc]
			if !consumes(in) {
				continue
			}
			if len(in.Rune) == 1 {
				for r := in.Rune[0]; ; {
					out = append(out, r)
					if r = unicode.SimpleFold(r); r == in.Rune[0] {
						break
					}
				}
			}
			for at := 0; at+1 < len(in.Rune); at += 2 {
				out = append(out, in.Rune[at])
				if in.Rune[at+1] < unicode.MaxRune {
					out = append(out, in.Rune[at+1]+1)
				}
			}
		}
	}
	seen := map[rune]bool{}
	return slices.DeleteFunc(out, func(r rune) bool {
		again := seen[r]
		seen[r] = true
		return again
	})
}

func consumes(in *syntax.Inst) bool {
	switch in.Op {
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		return true
	}
	return false
}

// closure adds what is reached without a character, sorted.
func closure(prog *syntax.Prog, from []uint32) []uint32 {
	seen, out := map[uint32]bool{}, []uint32{}
	for len(from) > 0 {
		pc := from[len(from)-1]
		if from = from[:len(from)-1]; seen[pc] {
			continue
		}
		seen[pc] = true
		switch in := &prog.Inst[pc]; in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			from = append(from, in.Out, in.Arg)
		case syntax.InstCapture, syntax.InstEmptyWidth, syntax.InstNop:
			from = append(from, in.Out)
		case syntax.InstFail:
		default:
			out = append(out, pc)
		}
	}
	slices.Sort(out)
	return out
}
