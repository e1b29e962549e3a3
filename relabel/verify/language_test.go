package verify

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestReadLanguage(t *testing.T) {
	for pattern, want := range map[string]struct {
		words string
		exact bool
	}{
		`30(\.0)?`:       {"30 30.0", true},
		`a|b|ab`:         {"a ab b", true},
		`x;(0.15|30)`:    {"x;0.15 x;30", false},
		`[ab]{2}`:        {"aa ab ba bb", true},
		`a.*`:            {"ax", false},
		`(?i)a`:          {"A", false},
		``:               {"", true},
		`[^a]`:           {"\x00", false},
		`a+b?`:           {"a ab", false},
		`(a|b);(c|d|)`:   {"a; a;c a;d b; b;c b;d", true},
		`m_(total|sum)$`: {"m_sum m_total", true},
	} {
		l, ok := readLanguage(pattern)
		if got := strings.Join(l.words, " "); !ok || got != want.words || l.exact() != want.exact {
			t.Errorf("%q: %q exact %v ok %v", pattern, got, l.exact(), ok)
		}
	}
	for _, pattern := range []string{"(", "[a-z]{20}", "(a|b|c|d|e){9}"} {
		if l, ok := readLanguage(pattern); ok && l.exact() {
			t.Errorf("%q has %d words", pattern, len(l.words))
		}
	}
}

// Each word matches; and where the words are said to be all, no near miss of one does.
func FuzzReadLanguage(f *testing.F) {
	for _, s := range []string{`30(\.0)?`, `a;(1|2.5|\+Inf)`, `(?i)x[0-9]{1,2}`, `a*b+c?`, `\bword\b`, `[^x]`, `(|a)(|b)`, `^a$`, `\pL`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		if len(pattern) > 60 || strings.ContainsAny(pattern, "^$") || strings.Contains(pattern, `\b`) || strings.Contains(pattern, `\B`) ||
			strings.Contains(pattern, `\A`) || strings.Contains(pattern, `\z`) {
			return // an assertion may make a word impossible, which costs a finding too many
		}
		re, err := regexp.Compile("^(?s:" + pattern + ")$")
		if err != nil {
			return
		}
		l, ok := readLanguage(pattern)
		if !ok {
			return
		}
		for _, w := range l.words[:min(50, len(l.words))] {
			if !re.MatchString(w) {
				t.Fatalf("%q does not match its word %q", pattern, w)
			}
			if !l.exact() {
				continue
			}
			for _, near := range []string{w + "0", "x" + w, strings.TrimSuffix(w, "0"), strings.ToUpper(w), w + w} {
				if _, listed := slices.BinarySearch(l.words, near); re.MatchString(near) != listed {
					t.Fatalf("%q on %q: listed %v", pattern, near, listed)
				}
			}
		}
		if s := shortest(pattern); s != "" && !re.MatchString(s) {
			t.Fatalf("%q does not match %q", pattern, s)
		}
	})
}

func TestStoredSpelling(t *testing.T) {
	for value, want := range map[string]string{
		"1": "1.0", "30": "30.0", "30.0": "30.0", "0.5": "0.5", "0.50": "0.5", "+Inf": "+Inf",
		"Inf": "+Inf", "1000000": "1e+06", "1e6": "1e+06", "5e-05": "5e-05", "": "", "x": "x", "-1": "-1.0",
	} {
		if got := stored(value); got != want {
			t.Errorf("%q is stored as %q, want %q", value, got, want)
		}
	}
}
