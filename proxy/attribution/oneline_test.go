package attribution

import (
	"strings"
	"testing"
)

func TestInOneLine(t *testing.T) {
	for _, text := range []string{
		"", "up", "sum by (a) (up)", " up", "up ", "sum  (up)", "sum\n(up)", "a\u00a0b", "a \u2003b", " ", "é b",
	} {
		if got, want := inOneLine(text), strings.Join(strings.Fields(text), " ") == text; got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}
