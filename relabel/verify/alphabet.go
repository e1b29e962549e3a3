package verify

import (
	"cmp"
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode"
)

// alphabet divides all characters into classes: an expression tells those of one class apart
// nowhere. There are few, however many characters an expression names.
type alphabet struct {
	classes int
	low     [0x80]uint16 // classes of the first characters
	bounds  []rune       // where ranges of one class begin, sorted, the first at 0
	ranges  []uint16     // their classes
	never   int          // the class of what the expression matches nowhere, -1 where there is none
	vast    bool         // there are more than maxClasses, and none is numbered
}

// maxClasses bounds the classes of an expression, and maxChanges the places where one of its sets
// of characters begins or ends. Nobody writes more; what such a one has in common with others is
// not known.
const (
	maxClasses = 4096
	maxChanges = 1 << 16
)

// change is where a set of characters begins, or ends.
type change struct {
	at  rune
	set int
}

// alphabetOf is the alphabet of an expression.
func alphabetOf(prog *syntax.Prog) (out alphabet) {
	changes, sets := changesOf(prog)
	if out.vast = len(changes) > maxChanges; out.vast {
		return out
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	// the sets that a character is in, bit by bit, and how many these are
	ids, within, n := map[string]uint16{}, make([]byte, (sets+7)/8), 0
	out.never = -1
	for r, at := rune(0), 0; ; r = changes[at].at {
		for ; at < len(changes) && changes[at].at == r; at++ {
			bit := byte(1) << (changes[at].set & 7)
			if within[changes[at].set>>3] ^= bit; within[changes[at].set>>3]&bit != 0 {
				n++
			} else {
				n--
			}
		}
		id, ok := ids[string(within)]
		if !ok {
			if len(ids) == maxClasses {
				return alphabet{vast: true}
			}
			id = uint16(len(ids))
			ids[string(within)] = id
			if n == 0 {
				out.never = int(id)
			}
		}
		out.bounds, out.ranges = append(out.bounds, r), append(out.ranges, id)
		if at == len(changes) || changes[at].at > unicode.MaxRune {
			break
		}
	}
	out.classes = len(ids)
	for r := range rune(len(out.low)) {
		out.low[r] = out.search(r)
	}
	return out
}

// changesOf are those of all sets of characters that an expression has, and how many sets these
// are. There may be one more than maxChanges, or a few.
func changesOf(prog *syntax.Prog) (out []change, sets int) {
	lists, seen := map[*rune]bool{}, map[string]bool{} // repetitions have lists in common
	for i := range prog.Inst {
		in := &prog.Inst[i]
		if !consumes(in) || len(in.Rune) > 1 && lists[&in.Rune[0]] {
			continue
		}
		if len(in.Rune) > 1 {
			lists[&in.Rune[0]] = true
		}
		id := fmt.Sprint(in.Op, in.Arg, in.Rune)
		if seen[id] {
			continue
		}
		seen[id] = true
		for _, r := range boundsOf(in) {
			out = append(out, change{r, sets})
		}
		if sets++; len(out) > maxChanges {
			break
		}
	}
	return out, sets
}

// boundsOf are where an instruction begins to match, or ends to, in turns once they are sorted.
func boundsOf(in *syntax.Inst) (out []rune) {
	switch {
	case in.Op == syntax.InstRuneAnyNotNL:
		return []rune{0, '\n', '\n' + 1}
	case in.Op == syntax.InstRuneAny:
		return []rune{0}
	case len(in.Rune) == 1:
		for r := in.Rune[0]; ; {
			out = append(out, r, r+1)
			if r = unicode.SimpleFold(r); r == in.Rune[0] || syntax.Flags(in.Arg)&syntax.FoldCase == 0 {
				return out
			}
		}
	}
	for at := 0; at+1 < len(in.Rune); at += 2 {
		out = append(out, in.Rune[at], in.Rune[at+1]+1)
	}
	return out
}

// class is the class of a character.
func (a *alphabet) class(r rune) uint16 {
	if uint32(r) < uint32(len(a.low)) {
		return a.low[r]
	}
	return a.search(r)
}

func (a *alphabet) search(r rune) uint16 {
	at, ok := slices.BinarySearchFunc(a.bounds, r, cmp.Compare)
	if !ok {
		at--
	}
	return a.ranges[max(at, 0)]
}

// has says whether the expression matches all of the characters somewhere.
func (a *alphabet) has(all []rune) bool {
	return a.vast || !slices.ContainsFunc(all, func(r rune) bool { return int(a.class(r)) == a.never })
}
