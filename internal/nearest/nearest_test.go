package nearest

import (
	"strings"
	"testing"
)

// TestOf: what is a slip of the keyboard is found, what is another word is not.
func TestOf(t *testing.T) {
	t.Parallel()
	names := []string{"timeout", "max_series", "max_samples", "path"}
	for _, tc := range []struct {
		word string
		most int
		want string
	}{
		{"timeot", 2, "timeout"},
		{"tiemout", 2, "timeout"},
		{"TimeOut", 0, "timeout"},
		{"max_serie", 1, "max_series"},
		{"timeot", 0, ""},
		{"tiemout", 1, ""},
		{"elephants", 3, ""},
		{"", 3, ""},
		{"", 4, "path"},
		{"max_saries", 4, "max_series"},
		{strings.Repeat("timeout", 1<<20), 60, "timeout"},
	} {
		if got := Of(tc.word, names, tc.most); got != tc.want {
			t.Errorf("%.20q, at most %d letters away: %q, want %q", tc.word, tc.most, got, tc.want)
		}
	}
	if got := Of("x", nil, 64); got != "" {
		t.Errorf("of no names: %q", got)
	}
}
