package tree_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/hostile"
)

// read is a selector as it was read.
type read struct {
	name     string
	at       posrange.PositionRange
	matchers []*labels.Matcher
}

// reads are the selectors of an expression.
func reads(e parser.Expr) []read {
	var out []read
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok {
			out = append(out, read{vs.Name, vs.PosRange, vs.LabelMatchers})
		}
		return nil
	})
	return out
}

// setOf are the values that a matcher knows to match, each once: of what a text has twice
// Prometheus keeps both where it stands in parentheses, and one where it does not.
func setOf(m *labels.Matcher) []string {
	return slices.Compact(slices.Sorted(slices.Values(m.SetMatches())))
}

// alike tells whether matchers are, and match, the same. Of a long list with repetitions Prometheus
// knows no set of values, and Spillway, which reads each once, may: then each of these has to match
// in Prometheus.
func alike(got, want []*labels.Matcher) bool {
	return slices.EqualFunc(got, want, func(a, b *labels.Matcher) bool {
		if a.String() != b.String() || a.Prefix() != b.Prefix() {
			return false
		}
		for _, v := range []string{"", "a", "node-1", "(node-1"} {
			if a.Matches(v) != b.Matches(v) {
				return false
			}
		}
		set, whole := setOf(a), setOf(b)
		if len(whole) == 0 {
			return !slices.ContainsFunc(set, func(v string) bool { return b.Matches(v) != (b.Type == labels.MatchRegexp) })
		}
		return len(whole) >= 256 || slices.Equal(set, whole) // Prometheus' parser gives up there
	})
}

func same(a, b read) bool { return a.name == b.name && a.at == b.at && alike(a.matchers, b.matchers) }

// sameParse fails where a text is read otherwise than by Prometheus' parser.
func sameParse(t *testing.T, r *tree.Regexps, text string) {
	t.Helper()
	want, wantErr := promql.ParseExpr(text)
	got, err := r.Parse(promql, text)
	switch {
	case fmt.Sprint(err) != fmt.Sprint(wantErr):
		t.Errorf("%.200q: %v, not %v", text, err, wantErr)
	case err == nil && (tree.String(got) != tree.String(want) || !slices.EqualFunc(reads(got), reads(want), same) ||
		got.PositionRange() != want.PositionRange()):
		t.Errorf("%.200q: read as %.300s", text, tree.String(got))
	}
	if err == nil {
		r.KnowAll(got)
	}
	ms, wantErr := promql.ParseMetricSelector(text)
	again, err := r.ParseSelector(promql, text)
	if fmt.Sprint(err) != fmt.Sprint(wantErr) || err == nil && !alike(again, ms) {
		t.Errorf("%.200q: the selector %.300v %v, not %.300v %v", text, again, err, ms, wantErr)
	}
}

// TestKnownRegexpsChangeNothing: a text is read as Prometheus' parser reads it, whatever is known.
func TestKnownRegexpsChangeNothing(t *testing.T) {
	var r tree.Regexps
	long := "(" + hostile.Part{Part: "node-1|"}.Text(1100) + "x)"
	for _, text := range []string{
		`up{a=~"%s",b!~"%s"}`, `{"a metric",a=~"%s",b="=~"}`, `{a=~"%s","a metric"}`, `{"a label"!~"%s",a!~"%s"}`, `{a=~".*",b=~"%s|"}`,
		`{a=~"(%s"} + {a=~"%s"}`,
		`rate(up{a=~"%s"}[5m] offset 1m) / up{a!~"%s"} @ end()`, `info(up{a=~"%s"},{a=~"%s"})`, `info(up{a=~"%s"},{a=~"%s.*|"})`, `up{a=~"%s",__name__=~"%s"}`,
		`up + {__name__=~"%s",a!=""} + up{} + {a=~"%s"}`, "# a{=~\nup{a=~\"%s\"}+up{a=~\"%s\"}", `up{a=~"%s" b=~"%s"}`, `up{a=~'%s',}`,
		"up{a!~`%s`}", `up{=~"%s"}`, `{a=~"%s",a=~}`,
		`label_replace(up{a=~"%s"},"b","$1","c","=~(.*)")`, `up{a=~"%s"}=~"b"`, `sum by (a) (up{a !~ "%s"})`,
		`{a=~"%s"} == bool on(a) {a=~"%s"}`, `{__name__="up",a=~"%s"}`,
	} {
		text = strings.ReplaceAll(text, "%s", long)
		for range 2 { // with nothing known, and with all
			sameParse(t, &r, text)
		}
	}
	seed := randseed.Of(t, 0)
	for i := range uint64(400) {
		if text := hostile.TextOf(seed + i).Text; len(text) < 8<<10 {
			sameParse(t, &r, text)
			sameParse(t, &tree.Regexps{}, text+"+"+text)
		}
	}
}

// allocated is how many bytes a function allocates, which stands for its effort: it does not depend
// on the machine.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestKnownRegexpsAreNotCompiled: what is known is the very matcher again, and what stands in a
// text twice is one.
func TestKnownRegexpsAreNotCompiled(t *testing.T) {
	long := hostile.Part{Part: "node-1|"}.Text(100) + "x.*"
	var none tree.Regexps
	var r tree.Regexps
	e, err := r.Parse(promql, fmt.Sprintf(`up{a=~%q} + up{a=~%q}`, long, long))
	if err != nil {
		t.Fatal(err)
	}
	sum := e.(*parser.BinaryExpr)
	first := sum.LHS.(*parser.VectorSelector).LabelMatchers[0]
	if sum.RHS.(*parser.VectorSelector).LabelMatchers[0] != first {
		t.Error("one regular expression was compiled twice")
	}
	ms, err := r.ParseSelector(promql, fmt.Sprintf(`down{b="c",a=~%q}`, long))
	if err != nil || ms[1] != first {
		t.Errorf("a regular expression that is known was compiled: %v", err)
	}
	ms, err = r.ParseSelector(promql, fmt.Sprintf(`{other!~%q}`, long))
	if err != nil || ms[0].String() != fmt.Sprintf("other!~%q", long) || ms[0].Matches("node-1") || !ms[0].Matches("y") ||
		first.Type != labels.MatchRegexp {
		t.Errorf("under another name: %v %v", ms, err)
	}
	list := "(" + hostile.Part{Part: "node-1|"}.Text(60<<10) + "x)"
	text := fmt.Sprintf("{a=~%q}", list)
	if bytes := allocated(func() { ms, err = none.ParseSelector(promql, text) }); err != nil || bytes > 1<<20 ||
		!ms[0].Matches("node-1") || ms[0].Matches("node") || ms[0].Value != list {
		t.Errorf("a list of literals in parentheses is compiled: %d bytes (%v)", bytes, err)
	}
}
