package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// nestedReplace is label_replace around itself, each doubling a label by its replacement.
func nestedReplace(inner string, n, refs int) string {
	for range n {
		inner = `label_replace(` + inner + `,"x","` + strings.Repeat("$1", refs) + `","x","(.*)")`
	}
	return inner
}

// TestMadeLabelsAreRefused: texts that make labels, or work of regular expressions, that nobody
// bounded: each killed Spillway or a server behind it, or kept a core busy.
func TestMadeLabelsAreRefused(t *testing.T) {
	long := strings.Repeat("a", 30<<10)
	seed := `label_replace(vector(1),"x","aaaaaaaaaaaaaaaa","","")`
	for _, tc := range []struct{ name, text, bound, part string }{
		{"nested label_replace of a constant", nestedReplace(seed, 40, 500), "label_bytes", "label_replace at 1:1"},
		{"nested label_replace of a series", nestedReplace("up", 40, 500), "label_bytes", "label_replace at 1:1"},
		{"nested label_replace by name", strings.ReplaceAll(strings.ReplaceAll(nestedReplace(seed, 40, 60), "(.*)", "(?P<all>.*)"), "$1",
			"${all}"), "label_bytes", "label_replace"},
		{"nested label_replace that doubles", nestedReplace(seed, 60, 2), "label_bytes", "label_replace"},
		{"nested label_replace in a subquery", "max_over_time(" + nestedReplace(seed, 30, 4) + "[5m:1m])", "label_bytes", "label_replace"},
		{"nested label_replace under sum", "sum(" + nestedReplace(seed, 30, 4) + ")", "label_bytes", "label_replace"},
		{"nested label_replace in a parameter", "topk(scalar(" + nestedReplace(seed, 30, 4) + "), up)", "label_bytes", "label_replace"},
		{"long replacement over series", `label_replace(up,"x","` + long + `","","")`, "label_bytes", "30721 bytes of labels for each series and at most 4KiB"},
		{"long replacement of the name", `label_replace(up,"__name__","` + long + `","","")`, "label_bytes", "for each series"},
		{"many labels over series", strings.Repeat("label_replace(", 60) + "up" + func() (s string) {
			for i := range 60 {
				s += fmt.Sprintf(`,"l%d","$1$1","instance","(.*)")`, i)
			}
			return s
		}(), "label_bytes", "for each series"},
		{"group_left of a long label", `up * on() group_left(x) label_replace(vector(1),"x","` + long + `","","")`, "label_bytes", "group_left at 1:1"},
		{
			"group_right of a long label", `label_replace(vector(1),"x","` + long + `","","") * on() group_right(x) up`, "label_bytes",
			"group_right at 1:1",
		},
		{"group_left of what absent made", `up * on() group_left(x) absent(nope{x="` + long + `"})`, "label_bytes", "group_left"},
		{"label_join with a long separator", `label_join(up,"x","` + long + `","instance","job")`, "label_bytes", "label_join at 1:1"},
		{
			"label_join of one label many times", `label_join(up,"x",""` + strings.Repeat(`,"instance"`, 500) + `)`, "label_bytes",
			"label_join",
		},
		{"nested label_join", func() string {
			s := seed
			for range 50 {
				s = `label_join(` + s + `,"x","","x","x","x")`
			}
			return s
		}(), "label_bytes", "label_join"},
		{"long labels joined by or", seed + strings.Repeat(` or `+nestedReplace(seed, 2, 60), 30), "label_bytes", "makes"},
		{"count_values by a long label", `count_values by (x) ("v", label_replace(vector(time()),"x","` + long + `","",""))`, "label_bytes", "count_values"},
		{
			"costly expression of label_replace", `label_replace(vector(1),"x","$1","x","(` + strings.Repeat(`a.`, 19<<10) + `)")`,
			"regex_cost", "regular expressions of the request",
		},
		{
			"literal alternatives of label_replace", `label_replace(vector(1),"x","$1","x","` + strings.Repeat(`ab|`, 12<<10) + `")`,
			"regex_cost", "regular expressions of the request",
		},
		{"counted repetitions of label_replace", `label_replace(up,"x","$1","x","((a?){30}){30}")`, "regex_cost", "counted repetitions"},
		{"expressions of matchers and label_replace together", `label_replace(up{a=~"(` + strings.Repeat("a.*", 800) + `)"},"x","$1","x","(` + strings.Repeat("a.", 1500) + `)")`, "regex_cost", "regular expressions"},
		{"costly expression over a long label", `label_replace(label_replace(vector(1),"x","` + long + `","",""),"y","$1","x","(` +
			strings.Repeat(".*a", 300) + `)")`, "regex_cost", "steps of regular expressions"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if len(tc.text) > 64<<10 {
				t.Fatalf("%d bytes: another bound refuses it", len(tc.text))
			}
			for _, req := range []*endpoint.Request{rangeQuery(tc.text, 11_000*time.Second, time.Second), instantQuery(tc.text)} {
				if req.ID == endpoint.Query && strings.HasPrefix(tc.text, "count_values") {
					continue // one group
				}
				_, err := Decide(req, testLimits(), testGroup, now)
				e := refusal(t, err)
				if e.Bound != tc.bound || !strings.Contains(e.Message, tc.part) {
					t.Errorf("%s: bound %s, %q; want %s, %q", req.ID, e.Bound, e.Message, tc.bound, tc.part)
				}
				if e.Value == "" || e.Seen == "" || e.Advice == "" || len(e.Message) > 300 {
					t.Errorf("value %q, seen %q, advice %q, a sentence of %d bytes", e.Value, e.Seen, e.Advice, len(e.Message))
				}
			}
		})
	}
}

// TestMadeLabelsPass: what dashboards and people write passes, and what is made of each series is
// known.
func TestMadeLabelsPass(t *testing.T) {
	for _, tc := range []struct {
		text         string
		labels, work int64 // of the first selector, at labels of 64 bytes; work as at least
		heavy        bool
	}{
		{`up`, 0, 0, false},
		{`label_replace(up,"node","$1","instance","(.*):.*")`, 68, 500, false},
		{`label_replace(label_replace(up,"node","$1","instance","(.*):.*"),"rack","$1","node","(r[0-9]+)-.*")`, 136, 1000, false},
		{`sum by (node) (label_replace(up,"node","$1","instance","(.*):.*"))`, 68, 500, false},
		{`label_join(up,"key","/","namespace","pod")`, 3 + 1 + 128, 0, false},
		{`up * on(node) group_left(rack,zone) kube_node_labels`, 0, 0, false},
		{`up * on(node) group_left(team) label_replace(vector(1),"team","research","","")`, 12, 0, false},
		{`count_values("version", build_info)`, 7 + 24, 0, false},
		{`label_replace(up,"x","` + strings.Repeat("a", 2000) + `","","")`, 2001, 0, true},
		{`sum(label_replace(up,"x","` + strings.Repeat("$1", 20) + `","instance","(.*)"))`, 1 + 20*64, 0, true},
		{`label_replace(up,"x","$1","instance","` + strings.Repeat(".*a", 100) + `")`, 65, 20_000, true},
		{`sort_by_label(up,"instance")`, 0, 6000, false},
		{`info(up)`, 8 * 64, 0, false},
	} {
		d, err := Decide(instantQuery(tc.text), testLimits(), testGroup, now)
		if err != nil {
			t.Errorf("%s: %v", tc.text, err)
			continue
		}
		var made Made
		if len(d.Made) > 0 {
			made = d.Made[0]
			if len(d.Made) != len(d.Windows) {
				t.Errorf("%s: %d of %d selectors", tc.text, len(d.Made), len(d.Windows))
			}
		}
		if got := made.Labels.At(64); got != tc.labels {
			t.Errorf("%s makes %d bytes of a series, want %d", tc.text, got, tc.labels)
		}
		if got := made.Work.At(64); got < tc.work || tc.work == 0 && got > 2000 {
			t.Errorf("%s makes %d steps of a series, want at least %d", tc.text, got, tc.work)
		}
		if heavy := d.Heavy != nil && d.Heavy(d.Expr) != ""; heavy != tc.heavy {
			t.Errorf("%s is not for shards: %t, want %t", tc.text, heavy, tc.heavy)
		}
	}
}

// TestMakingIsBounded: the series that are read are what an expression's labels and regular
// expressions are multiplied by.
func TestMakingIsBounded(t *testing.T) {
	made := Made{Labels: Grown{Fixed: 1000, Times: 2}, Work: Grown{Times: 50}}
	var m Making
	if n, err := m.Add(made, 20_000, 50); err != nil || n != 20_000*1100 {
		t.Errorf("%d bytes, %v", n, err)
	}
	_, err := m.Add(made, 20_000, 2000)
	if e := refusal(t, err); e.Bound != BoundLabelBytes || e.Value != "64MiB" || e.Seen != "122000000B" {
		t.Errorf("%s %s %s", e.Bound, e.Value, e.Seen)
	}
	m = Making{}
	_, err = m.Add(Made{Work: Grown{Fixed: 1 << 40, Times: 1 << 40}}, 1<<31, 1<<30)
	if e := refusal(t, err); e.Bound != BoundRegexCost || !strings.Contains(e.Message, "countless") {
		t.Errorf("%s %s", e.Bound, e.Message)
	}
}
