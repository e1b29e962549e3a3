package verify

import (
	"fmt"
	"math/rand/v2"
	"regexp/syntax"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/internal/effort"
)

// manyClasses is an expression that tells as many characters apart as these bits number.
func manyClasses(bits int) string {
	var b strings.Builder
	b.WriteString(`k_zz|k_`)
	for bit := range bits {
		b.WriteString("[")
		for from := 0x10000 + 1<<bit; from < 0x10000+1<<bits; from += 2 << bit {
			fmt.Fprintf(&b, `\x{%x}-\x{%x}`, from, from+1<<bit-1)
		}
		b.WriteString("]")
	}
	return b.String() + ".*"
}

// manySets is an expression of as many classes of two characters.
func manySets(n int) string {
	var b strings.Builder
	b.WriteString(`k_zz|k_[\x{100ff}-\x{1ffff}]`)
	for at := range n {
		fmt.Fprintf(&b, `[\x{%x}\x{%x}]?`, 0x10000+2*at, 0x10003+2*at)
	}
	return b.String() + ".*"
}

// An expression that tells more characters apart than are numbered is not known, which is found out
// at once, and is no "nothing".
func TestTooManyClasses(t *testing.T) {
	parsed := languages{map[string]*language{}, map[string]*form{}, map[string]*pattern{}}
	f := parsed.formOf([]*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "__name__", `k_[\x{100}\x{100ff}].*`)})
	for text, few := range map[string]bool{
		manyClasses(8): true, manyClasses(13): false, manyClasses(16): false, manySets(100): true, manySets(20_000): false,
	} {
		ru := &rule{}
		ru.Config = &relabel.Config{Regex: relabel.MustNewRegexp(text)}
		ru.words, ru.known = readLanguage(text)
		took := effort.Of(func() {
			p := parsed.patternOf(ru)
			for _, keep := range []bool{false, true} {
				if s := p.held(f, keep); few == s.open || few != (len(s.sure)+len(s.unsure) == 1) {
					t.Errorf("%.40s, %d bytes, keep %v: %v", text, len(text), keep, s)
				}
			}
		})
		if took > 5*time.Second {
			t.Errorf("%.40s, %d bytes: %s", text, len(text), took)
		}
	}
}

// Two characters are of one class if no instruction tells them apart.
func TestAlphabet(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		re, err := syntax.Parse(anyRegex(r, 4)+`(?i:[\x{1c4}k])?ǅ`, syntax.Perl|syntax.DotNL)
		if err != nil {
			t.Fatal(err)
		}
		auto, err := compiled(re)
		if err != nil {
			t.Fatal(err)
		}
		classes, ids := map[string]uint16{}, map[uint16]bool{}
		for c := range rune(0x2200) {
			told := apart([]condition{{auto: auto}}, c)
			class, ok := classes[told]
			if !ok {
				class = auto.class(c)
				if classes[told] = class; ids[class] {
					t.Fatalf("%s: %q is of the class of others", re, c)
				}
				ids[class] = true
			}
			if auto.class(c) != class || (int(class) == auto.never) == strings.Contains(told, "1") {
				t.Fatalf("%s: %q is of class %d, not %d; never %d", re, c, auto.class(c), class, auto.never)
			}
		}
	}
}
