package clip

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for _, tc := range []struct {
		in   string
		most int
		want string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc…"},
		{"aé", 2, "a…"},
		{"aé", 3, "aé"},
		{"日本", 3, "日…"},
		{"日本", 0, "…"},
		{"abc", -1, "…"},
		{strings.Repeat("\x80", 9), 4, "…"},
	} {
		got := Text(tc.in, tc.most)
		if got != tc.want {
			t.Errorf("%q in %d bytes is %q, want %q", tc.in, tc.most, got, tc.want)
		}
		if utf8.ValidString(tc.in) && !utf8.ValidString(got) {
			t.Errorf("%q divides a rune", got)
		}
	}
}
