package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// worst are the texts that are dearest to parse for their kind, each made of a part that is
// repeated n times between a head and a tail.
var worst = []struct{ name, head, part, tail string }{
	{"minus", "", "-", "1"},
	{"minus selector", "", "-", "x"},
	{"minus string", "", "-", `"a"`},
	{"minus matrix", "", "-", `x[5m]`},
	{"plus", "up", "+up", ""},
	{"plus strings", `""`, `+""`, ""},
	{"plus matrices", "x[1m]", "+x[1m]", ""},
	{"power", "1", "^1", ""},
	{"power selector", "x", "^x", ""},
	{"scalar comparison", "1", "==1", ""},
	{"scalar comparison time", "time()", "==time()", ""},
	{"bool misused", "1", "+bool 1", ""},
	{"bool misused power", "1", "^bool 1", ""},
	{"on between scalars", "1", "+on(a)1", ""},
	{"or between scalars", "1", " or 1", ""},
	{"or on between scalars", "1", " or bool on(a) 1", ""},
	{"or group_left", "x", " or on(a) group_left() x", ""},
	{"fill", "x", "+fill(1)x", ""},
	{"fill in sets", "x", " or fill(1) x", ""},
	{"parentheses", "", "(", "1"},
	{"parentheses closed", strings.Repeat("(", 60) + "1", "+(1)", strings.Repeat(")", 60)},
	{"parentheses around a sum", strings.Repeat("(", 63) + "1", "+1", strings.Repeat(")", 63)},
	{"parentheses around a power", strings.Repeat("(", 63) + "1", "^1", strings.Repeat(")", 63)},
	{"parentheses around time", strings.Repeat("(", 62) + "time()", "+time()", strings.Repeat(")", 62)},
	{"signs around a sum", strings.Repeat("-(", 63) + "1", "+1", strings.Repeat(")", 63)},
	{"signs around a vector", strings.Repeat("-(", 63) + "x", "+x", strings.Repeat(")", 63)},
	{"calls around a sum", strings.Repeat("vector(", 1) + strings.Repeat("abs(", 62) + "1", "+1", strings.Repeat(")", 63)},
	{"calls around a string", strings.Repeat("abs(", 63) + "1", "+bool 1", strings.Repeat(")", 63)},
	{"sums around a sum", strings.Repeat("sum(", 63) + "1", "+bool 1", strings.Repeat(")", 63)},
	{"subqueries around a sum", strings.Repeat("(", 63) + "1", "==1", strings.Repeat(")[1m:]", 63)},
	{"sets around", strings.Repeat("(", 63) + "1", " or 1", strings.Repeat(" or 1)", 63)},
	{"calls", "", "abs(", "x"},
	{"aggregates", "", "sum(", "x"},
	{"subqueries", "x", "[5m:]", ""},
	{"subqueries with @", "x", "[5m:]@1@1", ""},
	{"at", "x", "@1", ""},
	{"offset", "x", " offset 1m", ""},
	{"smoothed", "x", " smoothed", ""},
	{"duration expression", "x[1", "+1", "]"},
	{"duration minus", "x[", "-", "1]"},
	{"duration power", "x[1", "^1", "]"},
	{"duration parentheses", "x[", "(", "1]"},
	{"arguments", "abs(1", ",1", ")"},
	{"string arguments", "abs(1", `,""`, ")"},
	{"bad arguments", `label_join(1`, `,1`, ")"},
	{"label_replace in a chain", "1", ` or label_replace(vector(1),"a","","","")`, ""},
	{"label_replace of many labels", "x", `or label_join(x,"a","","b")`, ""},
	{"label_join of many labels", `label_join(x,"a",""`, `,"b"`, ")"},
	{"selector arguments", `label_join({}`, `,{}`, ")"},
	{"grouping", "sum by (a", ",a", ")(x)"},
	{"bad grouping", "sum by (1", ",1", ")(x)"},
	{"on and group_left", "x", "+on(a,a,a,a,a,a,a,a)group_left(a,a,a,a,a,a,a,a)x", ""},
	{"on and group_left, once", "x+on(a" + strings.Repeat(",a", 63) + ")group_left(a" + strings.Repeat(",a", 62) + ")x", "", ""},
	{"digits", "", "1", ""},
	{"underscores", "", "1_", "1"},
	{"spaces", "", " ", "1"},
	{"comments", "", "#\n", "1"},
	{"identifiers", "", "a ", ""},
	{"long identifier", "", "a", ""},
	{"fill words", "", "fill ", ""},
	{"string", `"`, "a", `"`},
	{"escapes", `"`, `\x41`, `"`},
	{"bad escape", `{a="`, `\x41`, `\q"}`},
	{"unterminated", `{a="`, `b`, ``},
	{"matchers", "{", `a="",`, "}"},
	{"bad matchers", "{", `"a",`, "}"},
	{"selectors", "1", `+{a=""}`, ""},
	{"weeks", "x[", "1w", "]"},
	{"regular expression", `{a=~"`, "ab.", `"}`},
	{"escaped alternatives", `{a=~"(x`, `|a\\.b`, `)"}`},
	{"random alternatives", `{a=~"(x`, `|0a\\.b|1c\\.d|2e|3f|4g`, `)"}`},
	{"contains", `{a=~"x`, `|.*a.*`, `"}`},
	{"classes", `{a=~"`, `[ab]`, `"}`},
	{"optional", `{a=~"`, `x?`, `"}`},
	{"stars", `{a=~"`, `x*`, `"}`},
	{"unicode classes", `{a=~"`, `\\pL`, `"}`},
	{"unicode class", `{a=~"[`, `\\pL`, `]"}`},
	{"negated unicode class", `{a=~"[^`, `\\PL`, `]"}`},
	{"folded unicode classes", `{a=~"(?i)`, `\\pL`, `"}`},
	{"folded ranges", `{a=~"(?i)`, `[B-\\x{1e942}]`, `"}`},
	{"folded range", `{a=~"(?i)[`, `B-\\x{942}`, `]"}`},
	{"posix classes", `{a=~"`, `[[:alpha:][:digit:]]`, `"}`},
	{"counted", `{a=~"(`, `a?`, `){1000}"}`},
	{"counted selectors", `1`, `+{a=~"(.*a){1000}"}`, ``},
	{"nested counts", `{a=~"((a{30}){30}){30}"}`, ``, ``},
	{"groups", `{a=~"`, `(`, `"}`},
	{"closed groups", `{a=~"`, `(x)`, `"}`},
	{"flags", `{a=~"x`, `(?i)`, `"}`},
	{"named groups", `{a=~"x`, `(?P<a>b)`, `"}`},
	{"empty alternatives", `{a=~"x.`, `|`, `"}`},
	{"many small expressions", `1`, `+{a=~"b.c"}`, ``},
	{"literal alternatives", `{a=~"x`, `|node-1`, `"}`},
	{"quoted", `{a=~"`, `\\Qa\\E.`, `"}`},
	{"word boundaries", `{a=~"`, `\\b`, `"}`},
	{"case folding", `{a=~"(?i)`, `k`, `"}`},
	{"case folding alternatives", `{a=~"(?i)x`, `|k.`, `"}`},
}

// longest returns the dearest text of a kind that the pre-scan lets pass, at most 64 KiB long.
func longest(kind int) string {
	w := worst[kind]
	text := func(n int) string { return w.head + strings.Repeat(w.part, n) + w.tail }
	if w.part == "" {
		return text(1)
	}
	low, high := 1, (64<<10-len(w.head)-len(w.tail))/len(w.part)
	for low < high {
		if mid := (low + high + 1) / 2; passes(text(mid)) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return text(low)
}

// passes tells whether the parser is given a text.
func passes(text string) bool {
	q := &Query{Request: &endpoint.Request{ID: endpoint.Query, Query: text}, Limits: testLimits()}
	for _, c := range []Check{queryBytes{}, queryShape{}, regexCost{}} {
		if c.Check(q) != nil {
			return false
		}
	}
	return true
}

// BenchmarkWorst prints what the dearest text of each kind costs: the whole verdict, and what the
// pre-scan alone takes to refuse 100 kB of it.
func BenchmarkWorst(b *testing.B) {
	for i, w := range worst {
		text := longest(i)
		b.Run("verdict/"+strings.ReplaceAll(w.name, " ", "_"), func(b *testing.B) {
			best := time.Duration(1 << 62) // the mean says more about the machine's other work than about the text
			for b.Loop() {
				start := time.Now()
				_, _ = Decide(&endpoint.Request{ID: endpoint.Query, Query: text}, testLimits(), nil, now)
				best = min(best, time.Since(start))
			}
			b.ReportMetric(float64(best)/1e6, "best-ms")
			b.ReportMetric(float64(len(text)), "bytes")
		})
	}
	for _, w := range worst {
		if w.part == "" {
			continue
		}
		text := w.head + strings.Repeat(w.part, 100_000/len(w.part)) + w.tail
		b.Run("prescan_100kB/"+strings.ReplaceAll(w.name, " ", "_"), func(b *testing.B) {
			for b.Loop() {
				_, _ = prescan(text)
			}
		})
	}
}
