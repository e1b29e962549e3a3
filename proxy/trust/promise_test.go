package trust

import (
	"strings"
	"testing"
	"time"
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
			f := Check(tc.last, "short", "l", tc.v, time.Unix(9, 0), short)
			state, why := f.Of("short", "l")
			if state != tc.state || !strings.Contains(why, tc.says) || (why == "") != (tc.says == "") {
				t.Errorf("%s, %q", state, why)
			}
			if state, _ := f.Of("long", "l"); state != Unchecked {
				t.Errorf("another promise is %s", state)
			}
		})
	}
	long := Values{List: []string{"\xff" + strings.Repeat("x", 2000)}}
	if f := Check(Fact{}, "short", "l", long, time.Unix(9, 0), short); len(f.Value) > 1100 || strings.Contains(f.Value, "\xff") {
		t.Errorf("a value of %d bytes is kept for a message", len(f.Value))
	}
}

// TestTrustAges: what was read long ago is believed no more, and what was seen to be broken is not
// forgotten by that.
func TestTrustAges(t *testing.T) {
	read := time.Date(2026, 11, 30, 4, 5, 6, 0, time.UTC)
	keeps := func(string) string { return "" }
	f := Check(Fact{}, "p", "node", Values{List: []string{"a"}}, read, keeps)
	for range 3 { // who cannot be asked is not read anew
		f = Check(f, "p", "node", Values{Away: true}, read.Add(time.Minute), keeps)
	}
	if state, why := f.After(time.Minute, read.Add(time.Minute), "node").Of("p", "node"); state != Trusted || why != "" {
		t.Errorf("at its end: %s, %q", state, why)
	}
	state, why := f.After(time.Minute, read.Add(time.Minute+1), "node").Of("p", "node")
	if want := "its values of node could not be read since 2026-11-30T04:05:06Z"; state != Unchecked || why != want {
		t.Errorf("after it: %s, %q", state, why)
	}
	broken := Check(f, "p", "node", Values{List: []string{"a"}}, read, func(string) string { return "it holds a" })
	if state, _ := broken.After(time.Minute, read.Add(time.Hour), "node").Of("p", "node"); state != Broken {
		t.Errorf("what was broken is %s", state)
	}
}
