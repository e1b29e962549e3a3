package tree

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/randseed"
)

// TestShorter: what a list of names is compiled as.
func TestShorter(t *testing.T) {
	many := func(format string) string { return strings.Repeat(format, longText) }
	for _, c := range []struct{ re, want string }{
		{`(10\.0\.0\.2|10\.0\.0\.1` + many(`|10\.0\.0\.2`) + `)`, `10\.0\.0\.(?:1|2)`},
		{`node-1\.a\.b` + many(`|node-22\.a\.b|x\.a\.b`), `(?:node-(?:1|22)|x)\.a\.b`},
		{`(a` + many(`|b`) + `)`, `a` + many(`|b`)},
		{`(?:a` + many(`|b`) + `)`, `a` + many(`|b`)},
		{`(a|` + many(`|b`) + `)`, `(a|` + many(`|b`) + `)`},
		{`a\.` + many(`|a\.b`) + `|`, `(?:|a\.(?:|b))`},
		{`(ä\.` + many(`|å\.`) + `)`, `(?:ä|å)\.`},
		{`(a\.b` + many(`|xa\.b`) + `)`, `(?:a|xa)\.b`}, // one is the end of all
		{`a|b\.`, `a|b\.`},
	} {
		if got := shorter(c.re); got != c.want {
			t.Errorf("%.60s: %.60s, want %.60s", c.re, got, c.want)
		}
	}
	pad := many("x")
	for _, re := range []string{
		`(a\d|x)`, `(a.b|x)`, `(a\.b)|(x)`, `((a\.b|x))`, `(?i)(a\.b|x)`, `(a\.b|x\`, `(a\Q.b|x)`, `a\.b|[x]`,
		`a\.b|x{2}`, "a\\.\xff|x", `\pL|a\.b`, `a\ü|x`, `^(a\.b|x)$`, `a\.b`,
	} {
		if re = pad + re; shorter(re) != re {
			t.Errorf("%.20s…%s is no list of names, but it is compiled as %.60s", re, re[len(pad):], shorter(re))
		}
	}
}

// TestShorterMatchesTheSame: lists of random names match what Prometheus has them match.
func TestShorterMatchesTheSame(t *testing.T) {
	r := rand.New(rand.NewPCG(randseed.Of(t, 0), 1))
	parts := []string{"a", "b", ".", "10.", "é", "ê", "日", "|", "(", "\n", "-", "node", "", "9", "aa", "_", "\\"}
	for range 60 {
		names := make([]string, 1+r.IntN(400))
		quoted := make([]string, len(names))
		for i := range names {
			for range r.IntN(6) {
				names[i] += parts[r.IntN(len(parts))]
			}
			names[i] += []string{"", "", ".end"}[r.IntN(3)]
			quoted[i] = regexp.QuoteMeta(names[i])
		}
		list := strings.Join(quoted, "|")
		for len(list) < longText {
			list += "|" + list
		}
		re := fmt.Sprintf([]string{"(%s)", "%s", "(?:%s)"}[r.IntN(3)], list)
		if names, signs := namesOf(list); signs {
			re = "(" + listOf(names) + ")" // even where little is won
			if got := shorter("(" + list + ")"); got != re[1:len(re)-1] && got != "("+list+")" {
				t.Fatalf("%.300q is compiled as %.300q", list, got)
			}
		}
		want, err := labels.NewFastRegexMatcher("(" + list + ")")
		if err != nil {
			t.Fatal(err)
		}
		got, err := labels.NewFastRegexMatcher(shorter(re))
		if err != nil {
			t.Fatalf("%.100q is compiled as %.100q: %v", re, shorter(re), err)
		}
		for i := range 3 * len(names) {
			name := names[i%len(names)]
			switch i / len(names) {
			case 1:
				name += parts[r.IntN(len(parts))]
			case 2:
				name = name[:r.IntN(len(name)+1)]
			}
			if got.MatchString(name) != want.MatchString(name) {
				t.Fatalf("%.300q, compiled as %.300q: %q is matched: %t", re, shorter(re), name, got.MatchString(name))
			}
		}
		if w, g := want.SetMatches(), got.SetMatches(); len(w) > 0 {
			if slices.Sort(w); !slices.Equal(slices.Compact(w), slices.Compact(slices.Sorted(slices.Values(g)))) {
				t.Fatalf("%.300q names %.300q, not %.300q", re, g, w)
			}
		}
	}
}

// TestListsAreCheap: the longest lists that Grafana writes, and worse ones, take little to compile,
// counted in bytes that are allocated. As they stand they take several times as much.
func TestListsAreCheap(t *testing.T) {
	for name, write := range map[string]func(i int) string{
		"nodes":    func(i int) string { return fmt.Sprintf(`ip-10-%d-%d-%d\.ec2\.internal`, i*7919%4, i*31%250, i%250) },
		"the same": func(i int) string { return []string{`0a\.b`, `1c\.d`, "2e", "3f"}[i%4] },
		"names":    func(i int) string { return fmt.Sprintf("train-llama-%d-xk4bz", i) },
	} {
		var b strings.Builder
		b.WriteString("(x")
		for i := 0; b.Len() < 64<<10; i++ {
			b.WriteString("|" + write(i))
		}
		re := b.String() + ")"
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := labels.NewFastRegexMatcher(shorter(re))
		runtime.ReadMemStats(&after)
		if err != nil || !m.MatchString(strings.ReplaceAll(write(1), `\`, "")) {
			t.Errorf("%s: %v", name, err)
		}
		if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 5<<20 {
			t.Errorf("%s: %d bytes are allocated", name, bytes)
		} else {
			t.Logf("%s: %d bytes are allocated", name, bytes)
		}
	}
}
