package verify

import (
	"regexp/syntax"
	"slices"
	"strings"
)

// pieces are what all words of an expression have.
type pieces struct {
	prefix, suffix string
	must           []rune // characters that stand somewhere in them
	named          bool   // something is known of how they begin
}

func piecesOf(re *syntax.Regexp) (out pieces) {
	out.prefix, _ = begins(re)
	out.suffix, _ = ends(re)
	open, over := anyhow(re)
	out.named = !open && !over
	out.must = must(re, nil)
	slices.Sort(out.must)
	out.must = slices.Compact(out.must)
	return out
}

// fits says whether a word may begin and end as both say.
func (p *pieces) fits(other *pieces) bool {
	return (strings.HasPrefix(p.prefix, other.prefix) || strings.HasPrefix(other.prefix, p.prefix)) &&
		(strings.HasSuffix(p.suffix, other.suffix) || strings.HasSuffix(other.suffix, p.suffix))
}

// must adds characters that stand in all words of an expression.
func must(re *syntax.Regexp, out []rune) []rune {
	switch {
	case re.Op == syntax.OpLiteral && re.Flags&syntax.FoldCase == 0:
		return append(out, re.Rune...)
	case re.Op == syntax.OpCapture, re.Op == syntax.OpPlus, re.Op == syntax.OpConcat, re.Op == syntax.OpRepeat && re.Min > 0:
		for _, sub := range re.Sub {
			out = must(sub, out)
		}
	}
	return out
}

// begins is how all words of an expression begin, and whether that is all of them.
func begins(re *syntax.Regexp) (prefix string, all bool) {
	if takesNothing(re) {
		return "", true
	}
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return "", false
		}
		return string(re.Rune), true
	case syntax.OpCapture:
		return begins(re.Sub[0])
	case syntax.OpPlus:
		prefix, _ = begins(re.Sub[0])
		return prefix, false
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			next, all := begins(sub)
			if prefix += next; !all {
				return prefix, false
			}
		}
		return prefix, true
	case syntax.OpAlternate:
		prefix, _ = begins(re.Sub[0])
		for _, sub := range re.Sub[1:] {
			next, _ := begins(sub)
			same := 0
			for same < min(len(prefix), len(next)) && prefix[same] == next[same] {
				same++
			}
			prefix = prefix[:same]
		}
	}
	return prefix, false
}

// ends is how all words of an expression end, and whether that is all of them.
func ends(re *syntax.Regexp) (suffix string, all bool) {
	if takesNothing(re) {
		return "", true
	}
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return "", false
		}
		return string(re.Rune), true
	case syntax.OpCapture:
		return ends(re.Sub[0])
	case syntax.OpPlus:
		suffix, _ = ends(re.Sub[0])
	case syntax.OpConcat:
		for _, sub := range slices.Backward(re.Sub) {
			before, all := ends(sub)
			if suffix = before + suffix; !all {
				return suffix, false
			}
		}
		return suffix, true
	case syntax.OpAlternate:
		suffix, _ = ends(re.Sub[0])
		for _, sub := range re.Sub[1:] {
			other, _ := ends(sub)
			same := 0
			for same < min(len(suffix), len(other)) && suffix[len(suffix)-1-same] == other[len(other)-1-same] {
				same++
			}
			suffix = suffix[len(suffix)-same:]
		}
	}
	return suffix, false
}
