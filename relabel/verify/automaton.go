package verify

import (
	"encoding/binary"
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode"
)

// automaton is an expression, which is taken to match whole words, with the states that were looked
// at: many needs are held against one rule.
type automaton struct {
	prog    *syntax.Prog
	asserts bool // on where something stands
	states  []place
	known   map[string]int // states by where they are
	alphabet

	reached []uint32 // see closure
	round   uint32
	at      []uint32
	key     []byte
}

// place is where an expression may be after some characters.
type place struct {
	at      []uint32
	matches bool
	next    []int32 // by the class of the character, -1 where it was not looked at
	runes   []rune  // see characters
	behind  []rune
}

// maxKept bounds the states that an automaton remembers from one word to the next, and maxTable
// what they may lead to.
const (
	maxKept  = 1 << 13
	maxTable = 1 << 21
)

// program compiles an expression.
func program(pattern string) (*automaton, error) {
	re, err := parse(pattern)
	if err != nil {
		return nil, err
	}
	return compiled(re)
}

func compiled(re *syntax.Regexp) (*automaton, error) {
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, fmt.Errorf("compile a regex: %w", err)
	}
	asserts := slices.ContainsFunc(prog.Inst, func(i syntax.Inst) bool { return i.Op == syntax.InstEmptyWidth })
	return &automaton{prog: prog, asserts: asserts, alphabet: alphabetOf(prog), reached: make([]uint32, len(prog.Inst))}, nil
}

// begin is the state before the first character. State 0 is the one that matches nothing any more.
func (a *automaton) begin() int32 {
	if a.known == nil || len(a.states) > maxKept || len(a.states)*a.classes > maxTable {
		a.states, a.known = nil, map[string]int{}
		a.state(nil)
	}
	return a.state([]uint32{uint32(a.prog.Start)})
}

// state is the state that is reached at some places of the expression.
func (a *automaton) state(from []uint32) int32 {
	at := a.closure(from)
	k := a.key[:0]
	for _, pc := range at {
		k = binary.LittleEndian.AppendUint32(k, pc)
	}
	a.key = k
	if id, ok := a.known[string(k)]; ok {
		return int32(id)
	}
	id := len(a.states)
	a.known[string(k)] = id
	next := make([]int32, a.classes)
	for i := range next {
		next[i] = -1
	}
	a.states = append(a.states, place{at: slices.Clone(at), next: next, matches: slices.ContainsFunc(at, func(pc uint32) bool {
		return a.prog.Inst[pc].Op == syntax.InstMatch
	})})
	return int32(id)
}

// after is the state after one more character.
func (a *automaton) after(id int32, r rune) int32 {
	class := a.class(r)
	if next := a.states[id].next[class]; next >= 0 {
		return next
	}
	var to []uint32
	for _, pc := range a.states[id].at {
		if in := &a.prog.Inst[pc]; consumes(in) && in.MatchRune(r) {
			to = append(to, in.Out)
		}
	}
	next := a.state(to)
	a.states[id].next[class] = next
	return next
}

// characters are those that are named in a state, with the bounds of what is named; those behind
// them are the first of what is not. Of each range of characters that the state tells apart the
// first one is there, unless it tells none apart from what is behind the last.
func (a *automaton) characters(id int32) (named, behind []rune) {
	if a.states[id].runes != nil {
		return a.states[id].runes, a.states[id].behind
	}
	named = []rune{}
	for _, pc := range a.states[id].at {
		in := &a.prog.Inst[pc]
		if !consumes(in) {
			continue
		}
		if in.Op == syntax.InstRuneAnyNotNL {
			behind = append(behind, '\n', '\n'+1)
		}
		if len(in.Rune) == 1 {
			for r := in.Rune[0]; ; {
				named, behind = append(named, r), append(behind, r+1)
				if r = unicode.SimpleFold(r); r == in.Rune[0] {
					break
				}
			}
		}
		for at := 0; at+1 < len(in.Rune); at += 2 {
			named = append(named, in.Rune[at])
			if in.Rune[at+1] < unicode.MaxRune {
				named = append(named, in.Rune[at+1]+1)
			} else {
				behind = append(behind, 0)
			}
		}
	}
	seen := map[rune]bool{}
	named, behind = once(named, seen), once(behind, seen)
	a.states[id].runes, a.states[id].behind = named, behind
	return named, behind
}

// once leaves each character there once. Halves of surrogate pairs stand in no text; what comes
// after them may.
func once(all []rune, seen map[rune]bool) []rune {
	out := all[:0]
	for _, r := range all {
		if 0xd800 <= r && r < 0xe000 {
			r = 0xe000
		}
		if r <= unicode.MaxRune && !seen[r] {
			seen[r] = true
			out = append(out, r)
		}
	}
	return out
}

func consumes(in *syntax.Inst) bool {
	switch in.Op {
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		return true
	}
	return false
}

// closure adds what is reached without a character, sorted. It is overwritten by the next one.
func (a *automaton) closure(from []uint32) []uint32 {
	a.round++
	out := a.at[:0]
	for len(from) > 0 {
		pc := from[len(from)-1]
		if from = from[:len(from)-1]; a.reached[pc] == a.round {
			continue
		}
		a.reached[pc] = a.round
		switch in := &a.prog.Inst[pc]; in.Op {
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
	a.at = out
	return out
}
