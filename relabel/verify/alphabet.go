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
}

// alphabetOf is the alphabet of an expression.
func alphabetOf(prog *syntax.Prog) (out alphabet) {
	var named []*syntax.Inst // one for each set of characters
	seen := map[string]bool{}
	out.bounds = []rune{0}
	for i := range prog.Inst {
		in := &prog.Inst[i]
		if !consumes(in) {
			continue
		}
		if id := fmt.Sprint(in.Op, in.Arg, in.Rune); !seen[id] {
			seen[id] = true
			named = append(named, in)
			out.bounds = append(out.bounds, boundsOf(in)...)
		}
	}
	slices.Sort(out.bounds)
	out.bounds = slices.Compact(out.bounds)
	ids, matched := map[string]uint16{}, make([]byte, len(named))
	out.never = -1
	for _, r := range out.bounds {
		for i, in := range named {
			matched[i] = 0
			if in.MatchRune(r) {
				matched[i] = 1
			}
		}
		id, ok := ids[string(matched)]
		if !ok {
			id = uint16(len(ids))
			ids[string(matched)] = id
			if !slices.Contains(matched, 1) {
				out.never = int(id)
			}
		}
		out.ranges = append(out.ranges, id)
	}
	out.classes = len(ids)
	for r := range rune(len(out.low)) {
		out.low[r] = out.search(r)
	}
	return out
}

// boundsOf are where an instruction begins to match, or ends to.
func boundsOf(in *syntax.Inst) (out []rune) {
	switch {
	case in.Op == syntax.InstRuneAnyNotNL:
		return []rune{'\n', '\n' + 1}
	case in.Op == syntax.InstRuneAny:
		return nil
	case len(in.Rune) == 1:
		for r := in.Rune[0]; ; {
			out = append(out, r, r+1)
			if r = unicode.SimpleFold(r); r == in.Rune[0] {
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
	return !slices.ContainsFunc(all, func(r rune) bool { return int(a.class(r)) == a.never })
}
