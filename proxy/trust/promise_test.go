package trust

import (
	"strings"
	"testing"
)

// TestCheck: what a server has is held against a promise only where all of it could be read, and
// what was known stands only for the same promise.
func TestCheck(t *testing.T) {
	short := func(v string) string {
		if len(v) > 2 {
			return "it holds " + v
		}
		return ""
	}
	before := Fact{Promise: "short", State: Broken, Value: "old", Why: "it holds old"}
	for _, tc := range []struct {
		name  string
		last  Fact
		v     Values
		state State
		says  string
	}{
		{"all keep it", before, Values{List: []string{"a", "bc", ""}}, Trusted, ""},
		{"it has none", before, Values{}, Trusted, ""},
		{"one does not", Fact{}, Values{List: []string{"a", "bad", "worse"}}, Broken, "it holds bad"},
		{"not whole", before, Values{Unread: "it is cut", List: []string{"bad"}}, Unchecked, "cannot be read whole: it is cut"},
		{"away, known before", before, Values{Away: true}, Broken, "it holds old"},
		{"away, of another promise", Fact{Promise: "long", State: Trusted}, Values{Away: true}, Unchecked, "have not been read yet"},
		{"away, never asked", Fact{}, Values{Away: true}, Unchecked, "have not been read yet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := Check(tc.last, "short", "l", tc.v, short)
			state, why := f.Of("short", "l")
			if state != tc.state || !strings.Contains(why, tc.says) || (why == "") != (tc.says == "") {
				t.Errorf("%s, %q", state, why)
			}
			if state, _ := f.Of("long", "l"); state != Unchecked {
				t.Errorf("another promise is %s", state)
			}
		})
	}
	if f := Check(Fact{}, "short", "l", Values{List: []string{"\xff" + strings.Repeat("x", 2000)}}, short); len(f.Value) > 1100 ||
		strings.Contains(f.Value, "\xff") {
		t.Errorf("a value of %d bytes is kept for a message", len(f.Value))
	}
}
