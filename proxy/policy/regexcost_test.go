package policy

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	resyntax "regexp/syntax"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// fleets are how machines and pods are called: the values of a variable of Grafana, in the order in
// which Prometheus lists them.
var fleets = []struct {
	name  string
	value func(r *rand.Rand, i int) string
}{
	{"addresses of a subnet", func(_ *rand.Rand, i int) string {
		return fmt.Sprintf("10.%d.%d.%d:9400", 10+i/62_500, i/250%250, i%250)
	}},
	{"addresses of many", func(r *rand.Rand, _ int) string {
		return fmt.Sprintf("10.%d.%d.%d:9400", r.IntN(250), r.IntN(250), r.IntN(250))
	}},
	{"EC2 nodes", func(r *rand.Rand, _ int) string {
		return fmt.Sprintf("ip-10-%d-%d-%d.ec2.internal", r.IntN(4), r.IntN(250), r.IntN(250))
	}},
	{"training pods", func(r *rand.Rand, _ int) string {
		return fmt.Sprintf("train-llama-%d-%s-%s", r.IntN(40), letters(r, 10), letters(r, 5))
	}},
	{"numbered nodes", func(_ *rand.Rand, i int) string { return fmt.Sprintf("gpu-node-%05d", i) }},
	{"UUIDs", func(r *rand.Rand, _ int) string {
		return fmt.Sprintf("GPU-%08x-%04x-%04x-%04x-%012x", r.Uint32(), r.IntN(1<<16), r.IntN(1<<16), r.IntN(1<<16), r.Int64N(1<<48))
	}},
}

func letters(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "bcdfghjklmnpqrstvwxz2456789"[r.IntN(27)]
	}
	return string(b)
}

// fleet is n different values of a kind, sorted.
func fleet(kind, n int) []string {
	r := rand.New(rand.NewPCG(1, uint64(kind)))
	seen := map[string]bool{}
	values := make([]string, 0, n)
	for i := 0; len(values) < n; i++ {
		if v := fleets[kind].value(r, i); !seen[v] {
			seen[v] = true
			values = append(values, v)
		}
	}
	slices.Sort(values)
	return values
}

// grafanaSpecial is what Grafana's Prometheus data source escapes in a value of a variable that may
// have several.
var grafanaSpecial = regexp.MustCompile(`[$^*{}\[\]'+?.()|]`)

// grafanaAll is what Grafana writes between the quotes for a variable with these values, All or
// several of them.
func grafanaAll(values []string) string {
	escaped := make([]string, len(values))
	for i, v := range values {
		escaped[i] = grafanaSpecial.ReplaceAllString(strings.ReplaceAll(v, `\`, `\\\\`), `\\$0`)
	}
	if len(escaped) == 1 {
		return escaped[0]
	}
	return "(" + strings.Join(escaped, "|") + ")"
}

// TestGrafanaAllOfAQuery: a query that Grafana writes for All passes, as long as its text does,
// whatever the names are like and however often the variable is in it.
func TestGrafanaAllOfAQuery(t *testing.T) {
	forms := []struct {
		one         string
		occurrences int
	}{
		{`DCGM_FI_DEV_FB_USED{Hostname=~"$x",gpu=~"0|1"}`, 1},
		{`up{instance!~"$x"}`, 2},
		{`node_load1{instance=~"$x:.*"}`, 3},
		{`up{instance=~"gpu-$x"}`, 6},
	}
	for kind, k := range fleets {
		values := fleet(kind, 5000)
		for _, f := range forms {
			text := func(n int) string {
				one := strings.ReplaceAll(f.one, "$x", grafanaAll(values[:n]))
				return "sum(" + one + strings.Repeat("+"+one, f.occurrences-1) + ")"
			}
			n := sort.Search(len(values), func(n int) bool { return len(text(n+1)) > 64<<10 })
			if _, err := Decide(instantQuery(text(n)), testLimits(), testGroup, now); err != nil {
				t.Errorf("%d %s, %d times %s: %v", n, k.name, f.occurrences, f.one, err)
			}
		}
	}
}

// TestGrafanaFormats: what the refusal says of Grafana's formats is so. :pipe escapes nothing,
// which is cheap where there is nothing to escape; :regex escapes with one backslash, which PromQL
// does not read.
func TestGrafanaFormats(t *testing.T) {
	pipe := func(values []string) int { return sizeOf(strings.Join(values, "|")).cost() }
	if nodes := fleet(4, 4000); pipe(nodes) > 300 {
		t.Errorf("4,000 names by :pipe cost %d", pipe(nodes))
	}
	if addresses := fleet(1, 3000); pipe(addresses) <= sizeOf("("+strings.ReplaceAll(strings.Join(addresses, "|"), ".", `\.`)+")").cost() {
		t.Error("dots that are not escaped cost no more than those that are")
	}
	if _, err := tree.Parser.ParseExpr(`up{instance=~"(10\.0\.0\.1:9400|10\.0\.0\.2:9400)"}`); err == nil {
		t.Error("PromQL reads a single backslash before a dot")
	}
	for _, all := range []string{`up{instance=~".*"}`, `up{instance=~"gpu-node-1|gpu-node-2"}`} {
		if _, err := Decide(instantQuery(all), testLimits(), testGroup, now); err != nil {
			t.Errorf("%s: %v", all, err)
		}
	}
}

// TestOnlyWhatIsMetOnceIsCheap: names cost a tenth as long as a value comes by each of them once,
// and in full where it may come by them at each of its characters.
func TestOnlyWhatIsMetOnceIsCheap(t *testing.T) {
	names := strings.Join(fleet(5, 200), "|") // nothing is shared
	for _, tc := range []struct {
		re    string
		cheap bool
	}{
		{"(" + names + ")", true},
		{"(?:" + names + ")", true},
		{"((" + names + "))", true},
		{"(" + names + "):.*", true},
		{"node-(" + names + ")", true},
		{"(x|(" + names + ")|y)", true},
		{"..(" + names + ")", true},
		{".*(" + names + ")", false},
		{"a?(" + names + ")", false},
		{"(" + names + ")*", false},
		{"(" + names + ")+", false},
		{"((" + names + ")|x){2}", false},
		{"(a|bb)(" + names + ")", false},
		{"(?i)(" + names + ")", false},
		{"(?i:" + names + ")", false},
		{"[ab](" + names + ")", false},
	} {
		cost := sizeOf(tc.re).cost()
		if full := len(names); tc.cheap && cost > full/5 || !tc.cheap && cost < full*9/10 {
			t.Errorf("%.20s…%s: %d units for %d characters, cheap: %t", tc.re, tc.re[len(tc.re)-3:], cost, full, tc.cheap)
		}
	}
}

// TestNestedAlternatives: alternatives that nest deep take the server long, be it in parentheses or
// as names that begin like others, upwards or downwards.
func TestNestedAlternatives(t *testing.T) {
	begins := func(n int, part, end string) []string {
		names := make([]string, n)
		for i := range names {
			names[i] = strings.Repeat(part, i+1) + end
		}
		return names
	}
	down := begins(300, "a", "")
	slices.Reverse(down)
	for name, re := range map[string]string{
		"names":          "(" + strings.Join(begins(300, "a", ""), "|") + ")",
		"names downward": strings.Join(down, "|") + "|.",
		"groups at last": "(" + strings.Join(begins(300, "a", "(x|y)"), "|") + ")",
		"dots":           "(" + strings.Join(begins(300, ".", "x"), "|") + ")",
		"parentheses":    strings.Repeat("a(x|", 300) + "b" + strings.Repeat(")", 300),
		"within a group": ".*(" + strings.Join(begins(300, "a", ""), "|") + ").*",
	} {
		if cost := sizeOf(re).cost(); cost <= maxMatchRegexCost {
			t.Errorf("%s: 300 levels cost %d", name, cost)
		}
	}
	names := begins(20, "a", "")
	if cost := sizeOf("(" + strings.Join(names, "|") + ")").cost(); cost > 200 {
		t.Errorf("20 levels cost %d", cost)
	}
}

// FuzzRegexCost: running an expression over a value takes no more steps than its cost allows, and
// what is said to be met once is. The steps are counted as the regexp package takes them, which
// keeps a list of all places of the expression that it may have come to.
func FuzzRegexCost(f *testing.F) {
	for _, re := range []string{
		"(a|b|ab)", "(a\\.b|a\\.c)x*", "node-(1|2|10):.*", ".*(a|b)", "(a|b)*c", "((a|b)|c)?d", "(a|aa|aaa)(a|aa|aaa)", "..(aa|ab)",
		"a{3}b|c", "(?i)(ab|b)", "\\Qa.b\\E|c", "(?:a|)b", "a**", "[ab]c|d", "(a.b|a.c|..)", "a+?|(b)",
	} {
		f.Add(re, "aaaaaaaaaaabab")
		f.Add(re, "node-10:9100")
	}
	f.Fuzz(func(t *testing.T, re, value string) {
		if len(re) > 500 || len(value) > 100 || literalAlternation(re) { // names joined by | are looked up in a map
			return
		}
		size := sizeOf(re)
		parsed, err := resyntax.Parse("^(?s:"+re+")$", resyntax.Perl|resyntax.DotNL)
		if err != nil || size.repeated > 0 {
			return
		}
		prog, err := resyntax.Compile(parsed.Simplify())
		if err != nil {
			return
		}
		most := 2 * ((size.all-size.fixed)*(len(value)+1) + size.once)
		if n := steps(prog, value); n > most {
			t.Fatalf("%q on %q takes %d steps, %+v allows %d", re, value, n, size, most)
		}
	})
}

// steps counts the places of the program that a run over a value comes by, at each of its
// characters anew.
func steps(prog *resyntax.Prog, value string) int {
	total := 0
	var now, next []uint32
	seen := make([]bool, len(prog.Inst))
	var add func(pc uint32, cond resyntax.EmptyOp)
	add = func(pc uint32, cond resyntax.EmptyOp) {
		if seen[pc] {
			return
		}
		seen[pc] = true
		total++
		switch in := &prog.Inst[pc]; in.Op {
		case resyntax.InstAlt, resyntax.InstAltMatch:
			add(in.Out, cond)
			add(in.Arg, cond)
		case resyntax.InstEmptyWidth:
			if resyntax.EmptyOp(in.Arg)&^cond == 0 {
				add(in.Out, cond)
			}
		case resyntax.InstCapture, resyntax.InstNop:
			add(in.Out, cond)
		default:
			next = append(next, pc)
		}
	}
	runes := append([]rune(value), -1)
	before := rune(-1)
	add(uint32(prog.Start), resyntax.EmptyOpContext(before, runes[0]))
	for i, r := range runes[:len(runes)-1] {
		now, next = next, now[:0]
		clear(seen)
		for _, pc := range now {
			if in := &prog.Inst[pc]; in.Op != resyntax.InstMatch && in.Op != resyntax.InstFail && in.MatchRune(r) {
				add(in.Out, resyntax.EmptyOpContext(r, runes[i+1]))
			}
		}
	}
	return total
}

// dearest is the longest expression of a kind that passes in a query.
func dearest(write func(n int) string) string {
	low, high := 1, 64<<10
	for low < high {
		mid := (low + high + 1) / 2
		re := write(mid)
		q := &Query{Request: &endpoint.Request{ID: endpoint.Query}, Limits: testLimits(), regexps: []string{re}, known: &Known{}}
		if len(re) <= 64<<10 && (regexCost{}).Check(q) == nil {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return write(low)
}

// BenchmarkRegexCost holds what expressions are charged against what they take Prometheus: to
// compile, and to run over values of the label. An expression of at most 256 names is not run at
// all: their postings are looked up. docs/bounds/regex_cost.md has the figures, the least of
// several runs.
func BenchmarkRegexCost(b *testing.B) {
	same := make([]string, 100) // values that every name of the worst kind goes along with
	for i := range same {
		same[i] = strings.Repeat("a", 19) + string(rune('0'+i%10))
	}
	repeat := func(head, part, tail string) string {
		return dearest(func(n int) string { return head + strings.Repeat(part, n) + tail })
	}
	tangled := func(head, tail string) string { // names in an order that leaves the parser nothing to share, and that no map can hold
		return dearest(func(n int) string {
			var b strings.Builder
			for i := range n {
				fmt.Fprintf(&b, "%s%d|%c|", strings.Repeat("a", 19), i%10, 'b'+i%20)
			}
			return head + b.String() + "x|y" + tail
		})
	}
	type row struct {
		name, re string
		values   []string
	}
	var rows []row
	for kind, k := range fleets {
		values := fleet(kind, 20_000)
		every := func(n int) []string { // some of them, evenly
			some := make([]string, n)
			for i := range some {
				some[i] = values[i*len(values)/n]
			}
			return some
		}
		run := every(2000) // half of them have the names that are looked for
		for _, n := range []int{256, 1000, 1500} {
			re := strings.ReplaceAll(grafanaAll(every(n)), `\\`, `\`) // as PromQL unquotes it
			rows = append(rows, row{fmt.Sprintf("%s/%d", k.name, n), re, run})
			if n == 1000 {
				rows = append(rows, row{k.name + "/1000 and more", re + ".*", run},
					row{k.name + "/1000 by pipe", strings.Join(every(n), "|"), run}, row{k.name + "/1000 anywhere", ".*" + re + ".*", run})
			}
		}
	}
	rows = append(rows,
		row{"dearest/names in a tangle", tangled("(", ")"), same},
		row{"dearest/names in a tangle anywhere", tangled(".*(", ").*"), same},
		row{"dearest/a?", repeat("", "a?", ""), same},
		row{"dearest/a*", repeat("", "a*", ""), same},
		row{"dearest/(a|b)*", repeat("", "(a|b)*", ""), same},
		row{"dearest/(.*)", repeat("", "(.*)", ""), same},
		row{"dearest/.*a", repeat("(", ".*a", ")?.*"), same},
		row{"dearest/.a", repeat("", ".a", ""), same},
		row{"dearest/nested", dearest(func(n int) string { return strings.Repeat("a(xx|yy|", n) + "b" + strings.Repeat(")", n) }), same},
	)
	for _, r := range rows {
		b.Run(strings.ReplaceAll(r.name, " ", "_"), func(b *testing.B) {
			compiled, ran := time.Hour, time.Hour // the least: the mean says more about the machine's other work
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				m, err := labels.NewFastRegexMatcher(r.re)
				if err != nil {
					b.Fatal(err)
				}
				compiled = min(compiled, time.Since(start))
				b.StopTimer()
				if len(m.SetMatches()) > 0 {
					ran = 0
				}
				if ran > 0 {
					start := time.Now()
					for _, v := range r.values {
						m.MatchString(v)
					}
					ran = min(ran, time.Since(start)/time.Duration(len(r.values)))
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(sizeOf(r.re).cost()), "units")
			b.ReportMetric(float64(len(r.re)), "bytes")
			b.ReportMetric(float64(compiled)/1e6, "compile-ms")
			b.ReportMetric(float64(ran)/1e3, "µs/value")
		})
	}
}
