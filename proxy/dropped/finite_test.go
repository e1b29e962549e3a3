package dropped

import (
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
)

func TestFinite(t *testing.T) {
	for expr, want := range map[string][]string{
		`30(\.0)?`:         {"30", "30.0"},
		`(5|30)(\.0)?`:     {"30", "30.0", "5", "5.0"},
		`a|b`:              {"a", "b"},
		`x[12]?`:           {"x", "x1", "x2"},
		`a.`:               nil,
		`a+`:               nil,
		`a*`:               nil,
		`(?i)a(b)?`:        nil,
		`[a-z][a-z][a-z]?`: nil, // more than are listed
		`[^a]`:             nil,
		`(a|b)?c(d)?`:      {"ac", "acd", "bc", "bcd", "c", "cd"},
	} {
		m, err := labels.NewMatcher(labels.MatchRegexp, "x", expr)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := finite(m)
		if want != nil && !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
		if ok != (want != nil) {
			t.Errorf("%s: %q is taken for a list: %v", expr, got, ok)
		}
	}
	for _, kind := range []labels.MatchType{labels.MatchNotEqual, labels.MatchNotRegexp} {
		if got, ok := finite(labels.MustNewMatcher(kind, "x", "a")); ok {
			t.Errorf("%s: %q", kind, got)
		}
	}
}

// FuzzFinite: each value that is listed is one that the matcher accepts, and where there is a list,
// nothing beside it is accepted.
func FuzzFinite(f *testing.F) {
	for _, expr := range []string{`30(\.0)?`, `(a|b)?c`, `[a-c]{1,2}x?`, `(?s).`, `a|`, `^a$`, `(?i)k?`, `\x{10ffff}?`, `(a?b?)?`} {
		f.Add(expr, "a")
	}
	f.Fuzz(func(t *testing.T, expr, probe string) {
		m, err := labels.NewMatcher(labels.MatchRegexp, "x", expr)
		if err != nil {
			return
		}
		list, ok := finite(m)
		if !ok {
			return
		}
		for _, v := range list {
			if !m.Matches(v) {
				t.Fatalf("%q lists %q and does not match it", expr, v)
			}
		}
		if m.Matches(probe) && !slices.Contains(list, probe) {
			t.Fatalf("%q matches %q and lists %q", expr, probe, list)
		}
	})
}
