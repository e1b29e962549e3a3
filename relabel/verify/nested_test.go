package verify

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
)

// slowly is common as it may be written down without a thought on what it costs: by the places of
// the programs alone, which are looked at anew for each character.
func slowly(conditions ...condition) (string, answer) {
	type state struct {
		at   [][]uint32
		word string
	}
	spell := func(at [][]uint32) string { return fmt.Sprint(at) }
	closed := func(prog *syntax.Prog, from []uint32) []uint32 {
		out, seen := []uint32{}, map[uint32]bool{}
		for len(from) > 0 {
			pc := from[0]
			if from = from[1:]; seen[pc] {
				continue
			}
			seen[pc] = true
			switch in := prog.Inst[pc]; in.Op {
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
	exact, negative := true, false
	same := map[rune]string{}
	var first state
	for _, c := range conditions {
		exact, negative = exact && !c.auto.asserts, negative || c.not
		first.at = append(first.at, closed(c.auto.prog, []uint32{uint32(c.auto.prog.Start)}))
	}
	all, seen, steps := []state{first}, map[string]bool{spell(first.at): true}, 0
	for i := 0; i < len(all); i++ {
		now, accepted, letters, behind := all[i], true, []rune{'x', 'a', '0', '_'}, []rune(nil)
		for k, c := range conditions {
			matches := slices.ContainsFunc(now.at[k], func(pc uint32) bool { return c.auto.prog.Inst[pc].Op == syntax.InstMatch })
			accepted = accepted && matches != c.not
			for _, pc := range now.at[k] {
				if in := &c.auto.prog.Inst[pc]; consumes(in) {
					letters, behind = append(letters, named(in)...), append(behind, beyond(in)...)
				}
			}
		}
		if accepted {
			return now.word, map[bool]answer{true: found, false: unknown}[exact]
		}
		letters = append(letters, behind...)
		told := map[string]bool{}
		for _, r := range letters {
			if !utf8.ValidRune(r) {
				r = 0xe000
			}
			if same[r] == "" {
				same[r] = apart(conditions, r)
			}
			if told[same[r]] {
				continue
			}
			told[same[r]] = true
			var next [][]uint32
			for k, c := range conditions {
				steps += 1 + len(now.at[k])
				var to []uint32
				for _, pc := range now.at[k] {
					if in := &c.auto.prog.Inst[pc]; consumes(in) && in.MatchRune(r) {
						to = append(to, in.Out)
					}
				}
				if next = append(next, closed(c.auto.prog, to)); len(next[k]) == 0 && !c.not {
					next = nil
					break
				}
			}
			if next != nil && !seen[spell(next)] {
				seen[spell(next)] = true
				all = append(all, state{next, now.word + string(r)})
			}
		}
		if len(seen) > maxStates || steps > maxSteps {
			return "", unknown
		}
	}
	if !exact && negative {
		return "", unknown
	}
	return "", none
}

// apart is by what conditions tell a character from others.
func apart(conditions []condition, r rune) string {
	out := []byte{' '}
	for _, c := range conditions {
		for i := range c.auto.prog.Inst {
			in, matches := &c.auto.prog.Inst[i], byte('0')
			if consumes(in) && in.MatchRune(r) {
				matches = '1'
			}
			out = append(out, matches)
		}
	}
	return string(out)
}

// named are the characters of an instruction, with the bounds of what it names.
func named(in *syntax.Inst) (out []rune) {
	if len(in.Rune) == 1 {
		return boundsOfOne(in.Rune[0])
	}
	for at := 0; at+1 < len(in.Rune); at += 2 {
		if out = append(out, in.Rune[at]); in.Rune[at+1] < '\U0010ffff' {
			out = append(out, in.Rune[at+1]+1)
		}
	}
	return out
}

// beyond are the first characters behind what an instruction names, and the very first one where it
// names the last.
func beyond(in *syntax.Inst) (out []rune) {
	if in.Op == syntax.InstRuneAnyNotNL {
		return []rune{'\n', '\n' + 1}
	}
	if len(in.Rune) == 1 {
		for _, r := range boundsOfOne(in.Rune[0]) {
			out = append(out, r+1)
		}
	}
	for at := 1; at < len(in.Rune); at += 2 {
		if in.Rune[at] == unicode.MaxRune {
			out = append(out, 0)
		}
	}
	return out
}

// boundsOfOne is a character in all of its cases.
func boundsOfOne(r rune) []rune {
	out := []rune{r}
	for _, other := range "abcxkABCXK\u212a" {
		if other != r && strings.EqualFold(string(r), string(other)) {
			out = append(out, other)
		}
	}
	return out
}

// slowTake is what take answers, by slowly.
func slowTake(p *pattern, f *form) (s heldNames) {
	with := func(c condition) (string, answer) { return slowly(append(slices.Clone(f.conditions), c)...) }
	var near []*branch
	for _, b := range p.alternatives() {
		if strings.HasPrefix(b.prefix, f.prefix) || strings.HasPrefix(f.prefix, b.prefix) {
			near = append(near, b)
		}
	}
	if len(near) == 0 {
		return s
	}
	word, known := "", unknown
	for _, b := range near[:min(len(near), maxFirst)] {
		if w, k := with(condition{auto: b.automaton()}); k == found && p.regexp.MatchString(w) {
			word, known = w, found
			break
		}
	}
	if known != found {
		if word, known = with(condition{auto: p.open}); known == found && !p.regexp.MatchString(word) {
			known = unknown
		}
	}
	if known == none {
		return s
	}
	_, rest := with(condition{auto: p.whole, not: true})
	switch {
	case known == found && rest == none:
		return heldNames{sure: []string{word}}
	case word != "" && p.regexp.MatchString(word):
		s.unsure = append(s.unsure, word)
	default:
		s.open = true
	}
	for _, b := range near[:min(len(near), maxWithin)] {
		within := strings.HasPrefix(b.prefix, f.prefix)
		for _, c := range f.conditions {
			_, k := slowly(condition{auto: b.automaton()}, condition{auto: c.auto, not: !c.not})
			within = within && k == none
		}
		if w, k := with(condition{auto: b.automaton()}); within && k == found && p.regexp.MatchString(w) {
			return heldNames{sure: []string{w}}
		}
	}
	return s
}

// anyRegex is a regex of nested repeats.
func anyRegex(r *rand.Rand, depth int) string {
	if depth == 0 {
		return []string{
			"a", "b", "_", "c", "[a-c]", "[^b]", ".", "(?i:x)", "é", `\pL`, "[0-9]", "[a-z]", "x", "0", "(?i:k)",
			`(?-s:.)`, `[^\x00]`, `[\x01-\x{d7ff}]`,
		}[r.IntN(18)]
	}
	sub := func() string { return anyRegex(r, depth-1) }
	switch r.IntN(9) {
	case 0, 1, 2:
		return sub() + sub()
	case 3:
		return "(" + sub() + "|" + sub() + ")"
	case 4:
		return "(?:" + sub() + ")*"
	case 5:
		return "(?:" + sub() + ")+"
	case 6:
		return fmt.Sprintf("(?:%s){%d,%d}", sub(), r.IntN(2), 2+r.IntN(4))
	case 7:
		return sub() + "?" + sub()
	}
	return []string{sub() + `\b`, sub(), sub(), sub()}[r.IntN(4)]
}

// agreed says by Go's own regexp whether a word meets what a need asks for, and a rule or not: one
// of false and true, or none where it is no word of the need.
func agreed(ms []*labels.Matcher, rule, word string) []bool {
	for _, m := range ms {
		if whole(m.Value).MatchString(word) != (m.Type == labels.MatchRegexp) {
			return nil
		}
	}
	return []bool{!whole(rule).MatchString(word)}
}

var wholes = map[string]*regexp.Regexp{}

// whole is an expression as Prometheus takes it.
func whole(pattern string) *regexp.Regexp {
	if wholes[pattern] == nil {
		wholes[pattern] = regexp.MustCompile("^(?s:" + pattern + ")$")
	}
	return wholes[pattern]
}

// anyWordOf are words of up to three characters behind the k_ that all have here, one of those that
// the rule takes (false) and one of those that it leaves (true).
func anyWordOf(t *testing.T, ms []*labels.Matcher, rule string) map[bool]string {
	t.Helper()
	out, words := map[bool]string{}, []string{"k_"}
	for at := 0; at < len(words) && len(out) < 2; at++ {
		for _, not := range agreed(ms, rule, words[at]) {
			if _, ok := out[not]; !ok {
				out[not] = words[at]
			}
		}
		if utf8.RuneCountInString(words[at]) < 5 {
			for _, r := range "abcdxyzAK_09é日\n\u212a" {
				words = append(words, words[at]+string(r))
			}
		}
	}
	return out
}

// What is found fast is what is found slowly: the same names, or none, and where that was not known
// within the bounds it may be known now.
func TestFastIsSlow(t *testing.T) {
	kinds := map[string]int{}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		ask := fmt.Sprintf("k_%s", anyRegex(r, 2+r.IntN(2)))
		var alternatives []string
		for range 1 + r.IntN(6) {
			alternatives = append(alternatives, "k_"+anyRegex(r, 2+r.IntN(2)))
		}
		text := strings.Join(alternatives, "|")
		ms := []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "__name__", ask)}
		if r.IntN(3) == 0 {
			ms = append(ms, labels.MustNewMatcher(labels.MatchNotRegexp, "__name__", "k_"+anyRegex(r, 2)))
		}
		regex, err := relabel.NewRegexp(text)
		if err != nil {
			t.Fatal(err)
		}
		parsed := languages{map[string]*language{}, map[string]*form{}, map[string]*pattern{}}
		ru := &rule{}
		ru.Config = &relabel.Config{Regex: regex}
		ru.words, ru.known = readLanguage(text)
		f, p := parsed.formOf(ms), parsed.patternOf(ru)
		if !f.named {
			continue // it names words
		}
		anyWord := anyWordOf(t, ms, text)
		for _, not := range []bool{false, true} {
			c := condition{auto: p.whole, not: not}
			word, known := f.with(c)
			if other, ok := anyWord[not]; known == none && ok || known == found && !slices.Contains(agreed(ms, text, word), not) {
				t.Errorf("%s and %s, %v: %q %d, and a regex says %q", ms, text, not, word, known, other)
			}
			slow, slowKnown := slowly(append(slices.Clone(f.conditions), c)...)
			if word != slow || known != slowKnown {
				t.Errorf("%s and %s, %v: %q %d, slowly %q %d", ask, text, not, word, known, slow, slowKnown)
			}
			kinds[fmt.Sprint("answer ", known)]++
		}
		fast, slow := p.take(f), slowTake(p, f)
		if got, want := fmt.Sprint(fast), fmt.Sprint(slow); got != want && (!slow.open || len(fast.sure)+len(fast.unsure) > 0) {
			t.Errorf("%s takes of %s: %s, slowly %s", text, ask, got, want)
		}
		kinds[fmt.Sprintf("%d sure, %d unsure, open %v", len(fast.sure), len(fast.unsure), fast.open)]++
	}
	for _, kind := range []string{
		"answer 0", "answer 1", "answer 2",
		"0 sure, 0 unsure, open false", "1 sure, 0 unsure, open false", "0 sure, 1 unsure, open false",
	} {
		if kinds[kind] < 10 {
			t.Errorf("%s: %v", kind, kinds)
		}
	}
}

// A name that Go's own regexp finds by trying short ones is not missed: not the one that an
// allow-list leaves out, nor the one that a rule takes.
func TestNoneIsMissed(t *testing.T) {
	short := func(r *rand.Rand) string {
		one := func() string {
			return []string{
				"a", "b", "x", "0", "1", "[a-z]", "[0-9]", "[a-d]", "(?i:k)", "[^_]", ".", "c",
				"(?-s:.)", `[\x01-\x{10ffff}]`,
			}[r.IntN(14)]
		}
		return []string{one(), one() + one(), "(?:" + one() + "|" + one() + ")", one() + "*" + one(), one() + "?"}[r.IntN(5)]
	}
	kinds := map[string]int{}
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 2))
		ask, text := "k_"+short(r), "k_"+short(r)+".*|k_"+short(r)+".*"
		ms := []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "__name__", ask)}
		parsed := languages{map[string]*language{}, map[string]*form{}, map[string]*pattern{}}
		ru := &rule{}
		ru.Config = &relabel.Config{Regex: relabel.MustNewRegexp(text)}
		ru.words, ru.known = readLanguage(text)
		f, p := parsed.formOf(ms), parsed.patternOf(ru)
		if !f.named {
			continue // it names words
		}
		words := anyWordOf(t, ms, text)
		for _, not := range []bool{false, true} { // a rule that drops, and one that keeps
			s := p.held(f, not)
			_, exists := words[not]
			nothing := len(s.sure)+len(s.unsure) == 0 && !s.open
			if exists && nothing {
				t.Errorf("%s and %s, %v: %q is missed", ask, text, not, words[not])
			}
			for _, word := range append(s.sure, s.unsure...) {
				if !slices.Contains(agreed(ms, text, word), not) {
					t.Errorf("%s and %s, %v: %q is none", ask, text, not, word)
				}
			}
			kinds[fmt.Sprint(not, nothing)]++
		}
	}
	for _, kind := range []string{"true true", "true false", "false true", "false false"} {
		if kinds[kind] < 50 {
			t.Errorf("%s: %v", kind, kinds)
		}
	}
}

// What a word costs is little for each state that is looked at: there may be a hundred rules, and
// five hundred uses of each.
func TestNestedRepeatsAreCheap(t *testing.T) {
	for _, pattern := range []string{"kube_(?:[a-z_]*f){5}.{0,200}(a|b)[a-z]{20}", "kube_(?:(?:[a-z]{1,8}_){1,8}p_){0,8}total"} {
		a, err := program("kube_.*s.{30}")
		if err != nil {
			t.Fatal(err)
		}
		b, err := program(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(2, func() { common(condition{auto: a}, condition{auto: b}) }); n > 100 {
			t.Errorf("%s: %v allocations", pattern, n)
		}
	}
}

// BenchmarkNested is a check of 50,000 pairs of a rule and a use, both of nested repeats.
func BenchmarkNested(b *testing.B) {
	for name, regex := range map[string]string{
		"bounded": "kube_(?:[a-z_]*f){5}.{0,200}(a|b)%d[a-z]{20}",
		"stars":   "kube_(?:(?:[a-z]+_)*%d)*_(?:total|bytes)",
		"squares": "kube_(?:(?:[a-z]{1,8}_){1,8}p%d_){0,8}total",
	} {
		b.Run(name, func(b *testing.B) {
			var rules []*rule
			for k := range 100 {
				ru := &rule{}
				ru.Config = &relabel.Config{Regex: relabel.MustNewRegexp(fmt.Sprintf(regex, k))}
				rules = append(rules, ru)
			}
			for b.Loop() {
				parsed := languages{map[string]*language{}, map[string]*form{}, map[string]*pattern{}}
				for i := range 500 {
					m := labels.MustNewMatcher(labels.MatchRegexp, "__name__", fmt.Sprintf("kube_.*s%d.{30}", i))
					f := parsed.formOf([]*labels.Matcher{m})
					for _, ru := range rules {
						ru.pattern = nil
						parsed.patternOf(ru).held(f, false)
					}
				}
			}
		})
	}
}

// What all words of an expression have is seen of it, and whether two may share a word.
func TestPieces(t *testing.T) {
	of := func(pattern string) pieces {
		re, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
		if err != nil {
			t.Fatal(err)
		}
		return piecesOf(re)
	}
	for pattern, want := range map[string]string{
		"a_.*_total": "a_ _total _alot", "a(b|cb)+x?": "a  a", "a(xb|cb)": "a b a", "(?:_a){2,3}": "  _a",
		"(?i:a)b": " b b", `a.b\b`: "a b ab", "": "  ", `^a_(?:^.*)_b$`: "a_ _b _ab", `\B(?m:^)a.(?m:b$)\b`: "a b ab",
	} {
		if p := of(pattern); p.prefix+" "+p.suffix+" "+string(p.must) != want {
			t.Errorf("%s: %q %q %q", pattern, p.prefix, p.suffix, string(p.must))
		}
	}
	total := of("a_.*_total")
	for pattern, want := range map[string]bool{"a_b.*": true, "a_.*_seconds": false, "b_.*_total": false, "a_(?:.*l|.*tal)": true} {
		if p := of(pattern); total.fits(&p) != want || p.fits(&total) != want {
			t.Errorf("%s: %v", pattern, !want)
		}
	}
}

// What holds anyway is left out of an expression, and nothing else is.
func TestUnanchored(t *testing.T) {
	words := []string{"", "a", "b", "ab", "ba", "aa", "a\n", "a\na", "\na", "a\nb"}
	for pattern, asserts := range map[string]bool{
		"^a$": false, "^(a|ab$)": false, "(^a|b)b?$": false, "^(?:^a)?b*$": false, `\A(?m:^a.*$)\z`: false, "(?m)(?:a$|^$)": false,
		"(?:^a)+": true, "a^b": true, "a$.*": true, "(?m)a$.^a": true,
		"(?:a$)*b": true, `\ba`: true, "^*a": true, "(?:b|^)a": false, "b?^a": true,
	} {
		re, err := parse(pattern)
		if err != nil {
			t.Fatal(err)
		}
		left, all := regexp.MustCompile("^(?s:"+re.String()+")$"), regexp.MustCompile("^(?s:"+pattern+")$")
		for _, w := range words {
			if left.MatchString(w) != all.MatchString(w) {
				t.Errorf("%s on %q: not %v", pattern, w, left.MatchString(w))
			}
		}
		if auto, err := compiled(re); err != nil || auto.asserts != asserts {
			t.Errorf("%s: %s, %v", pattern, re, err)
		}
	}
}
