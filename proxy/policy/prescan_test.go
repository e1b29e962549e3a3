package policy

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/randseed"
)

// TestSmall: what is taken for small without a look at its tokens passes no bound on them and has
// no regular expression, whatever stands in it.
func TestSmall(t *testing.T) {
	check := func(text string) (is bool) {
		found, err := prescan(text)
		if is = small(text); is && (err != nil || len(found.regexps) > 0) {
			t.Errorf("%q is not small: it has %d expressions, %v", text, len(found.regexps), err)
		}
		return is
	}
	for _, part := range []string{"(", "[", "{", "-", ">", "@", "=", "!=", "a=,", "1", "1_", "#\n", ";", "\xff", "on(a)group_left(a)"} {
		for _, head := range []string{"", "{", "x", "1", "on(" + strings.Repeat(">", 56) + ")group_left("} {
			check((head + strings.Repeat(part, smallText))[:smallText])
			check((head + strings.Repeat(part, smallText))[:smallText-1] + ")")
		}
	}
	parts := []string{
		"(", ")", "{", "}", "[", "]", "on(", "ignoring(", "group_left(", "GROUP_RIGHT(", "a", "a,", "a=", `"b"`, "!=", "=~",
		"!~", "~", "+", ">", "-", "@", " offset ", "bool", "1_0", "5m", "#", "\n", "'", "\\",
	}
	rng := rand.New(rand.NewPCG(randseed.Of(t, 0), 0))
	n := 0
	for range 50_000 {
		few := 1 + rng.IntN(len(parts))
		from := rng.IntN(len(parts))
		var sb strings.Builder
		for sb.Len() < smallText {
			sb.WriteString(parts[(from+rng.IntN(few))%len(parts)])
		}
		if check(sb.String()[:1+rng.IntN(smallText)]) {
			n++
		}
	}
	if n < 1000 {
		t.Errorf("only %d texts are small", n)
	}
}
