package verify

import (
	"fmt"
	"regexp/syntax"
	"slices"
)

// parse reads an expression that is taken to match whole words, as Prometheus takes all of them:
// what says no more than that, such as ^ at its beginning and $ at its end, is left out.
func parse(pattern string) (*syntax.Regexp, error) {
	re, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
	if err != nil {
		return nil, fmt.Errorf("read a regex: %w", err)
	}
	return unanchored(unanchored(re, false), true), nil
}

// unanchored leaves out what holds anyway at the beginning of a word, or at its end.
func unanchored(re *syntax.Regexp, end bool) *syntax.Regexp {
	switch re.Op {
	case syntax.OpBeginText, syntax.OpBeginLine:
		if !end {
			return &syntax.Regexp{Op: syntax.OpEmptyMatch}
		}
	case syntax.OpEndText, syntax.OpEndLine:
		if end {
			return &syntax.Regexp{Op: syntax.OpEmptyMatch}
		}
	case syntax.OpCapture, syntax.OpQuest, syntax.OpAlternate:
		out := copied(re)
		for i, sub := range out.Sub {
			out.Sub[i] = unanchored(sub, end)
		}
		return out
	case syntax.OpConcat:
		out := copied(re)
		for i := range out.Sub {
			if end {
				i = len(out.Sub) - 1 - i
			}
			if out.Sub[i] = unanchored(out.Sub[i], end); !takesNothing(out.Sub[i]) {
				break
			}
		}
		return out
	}
	return re
}

// copied is a copy with a list of its own of what it consists of.
func copied(re *syntax.Regexp) *syntax.Regexp {
	out := *re
	out.Sub = slices.Clone(re.Sub)
	return &out
}

// takesNothing says whether an expression only says where something stands.
func takesNothing(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	case syntax.OpCapture, syntax.OpConcat, syntax.OpAlternate:
		return !slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return !takesNothing(sub) })
	}
	return false
}

// anyhow says whether words of an expression may begin in any way: all that is known of them comes
// after a repetition of any character, without bound. over says that they may be over before that.
func anyhow(re *syntax.Regexp) (open, over bool) {
	switch re.Op {
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL, syntax.OpCharClass:
		return false, anyCharacter(re)
	case syntax.OpCapture:
		return anyhow(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		open, over = anyhow(re.Sub[0])
		bound := re.Op == syntax.OpQuest || re.Op == syntax.OpRepeat && re.Max >= 0
		none := re.Op == syntax.OpStar || re.Op == syntax.OpQuest || re.Op == syntax.OpRepeat && re.Min == 0
		return open || !bound && anyCharacter(re.Sub[0]), over || none
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if open, over = anyhow(sub); open || !over {
				return open, false
			}
		}
		return false, true
	case syntax.OpAlternate:
		open, over = true, true
		for _, sub := range re.Sub {
			each, also := anyhow(sub)
			open, over = open && each, over && (each || also)
		}
		return open, over
	}
	return false, takesNothing(re)
}

// anyCharacter says whether an expression is one character, which may be any that a metric's name
// begins with; the colon is for recorded series.
func anyCharacter(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return true
	case syntax.OpCapture:
		return anyCharacter(re.Sub[0])
	case syntax.OpCharClass:
		return covers(re.Rune, 'A', 'Z') && covers(re.Rune, '_', '_') && covers(re.Rune, 'a', 'z')
	}
	return false
}

// covers says whether a class has all characters from one to another.
func covers(ranges []rune, from, to rune) bool {
	for i := 0; i+1 < len(ranges); i += 2 {
		if ranges[i] <= from && to <= ranges[i+1] {
			return true
		}
	}
	return false
}
