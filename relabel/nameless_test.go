package relabel_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// One logged query that only counts by name keeps all of a job, for its answer has a value of each
// name: nothing that is not proven goes, and the plan names that query, and how to do without.
func TestHeldByNameless(t *testing.T) {
	src := pages(t, map[string]string{
		"x/a": "used 1\nidle_a 1\nidle_b{c=\"1\"} 1\nidle_b{c=\"2\"} 1\n",
		"y/a": "used 1\nidle_a 1\n",
	})
	const counting, quotedCounting = `topk(10, count by (__name__) ({job="x"}))`, `"topk(10, count by (__name__) ({job=\"x\"}))"`
	logged := func(count int64) *uses.Use {
		return &uses.Use{Kind: uses.Logged, File: "usage.jsonl", Where: "ada, query", Query: counting, Count: count, Last: now}
	}
	for name, c := range map[string]struct {
		uses   []*uses.Use
		exempt []string
		want   []string // in the one warning, empty where there is none
	}{
		"one of a log": {
			uses: []*uses.Use{logged(2)},
			want: []string{
				"job x: 2 of its 3 metrics, with 3 series, are kept by nothing but one query that names no metric: " + quotedCounting +
					" of usage.jsonl (ada, query), asked 2 times, last on 2026-11-20 12:00:00 (UTC), which only counts series by name.",
				"take its lines out of the usage log",
			},
		},
		"one of a dashboard, and another": {
			uses: []*uses.Use{
				{Kind: uses.Dashboard, File: "d.json", Line: 3, Where: "dashboard D", Query: `sum({job="x"})`},
				{Kind: uses.Dashboard, File: "d.json", Line: 4, Where: "dashboard D", Query: `max({job="x"})`},
			},
			want: []string{"2 queries that name no metric", "d.json:3 (dashboard D); ", "--exclude"},
		},
		"kept on purpose": {uses: []*uses.Use{logged(1), {Kind: uses.Kept, File: "keep.yaml", Query: `{job="x"}`}}},
		"all are named":   {uses: []*uses.Use{logged(1), {Kind: uses.Listed, Query: "idle_a + idle_b"}}},
		"none":            {},
		"exempt":          {uses: []*uses.Use{logged(1)}, exempt: []string{"x"}},
	} {
		t.Run(name, func(t *testing.T) {
			set := queries("used")
			for _, u := range c.uses {
				set.Add(u)
			}
			p := plan(t, src, set, func(o *relabel.Options) { o.Propose.Exempt = c.exempt })
			var got []string
			for _, w := range p.Warnings {
				if strings.Contains(w, "kept by nothing but") {
					got = append(got, w)
				}
			}
			if len(got) != min(len(c.want), 1) {
				t.Fatalf("%q", p.Warnings)
			}
			for _, text := range c.want {
				if !strings.Contains(got[0], text) {
					t.Errorf("%q lacks %q", got[0], text)
				}
			}
			if len(c.uses) > 0 && p.Jobs[0].Dropped.Series > 0 {
				t.Errorf("%d series of job x go", p.Jobs[0].Dropped.Series)
			}
		})
	}
}

// What takes a query's lines out of the log needs the whole of it, as a string of JSON. Without one
// whose text the log does not have, only the window does.
func TestHeldByLoggedTexts(t *testing.T) {
	src := pages(t, map[string]string{"x/a": "used 1\nidle_a 1\n"})
	const lines, window = "take its lines out of the usage log", "choose a --window that begins after the last of them"
	long := `count by (__name__) ({job="x",pod!="` + strings.Repeat("p", 220) + `\\(.é'"})`
	for name, c := range map[string]struct {
		query, said string
		lines       bool
	}{
		"long":               {long, "", true},
		"of two lines":       {"count by (__name__) ({job=\"x\"})\n# <1>\x7f", "", true},
		"without whole text": {"", "a query whose text the log does not have, of usage.jsonl (ada, query), asked 2 times, last on 2026-11-20", false},
	} {
		set := queries("used")
		u := &uses.Use{Kind: uses.Logged, File: "usage.jsonl", Where: "ada, query", Query: c.query, Count: 2, Last: now}
		if c.query == "" {
			u.Needs, _ = uses.Needs(`{job="x"}`) // of what the log lists of a cut text
		}
		set.Add(u)
		var got string
		for _, w := range plan(t, src, set, func(*relabel.Options) {}).Warnings {
			if _, after, ok := strings.Cut(w, "one query that names no metric: "); ok {
				got = after
			}
		}
		if !strings.HasPrefix(got, c.said) || strings.Contains(got, lines) != c.lines || !strings.Contains(got, window) {
			t.Errorf("%s: %q", name, got)
		}
		var shown string
		if c.lines && (json.NewDecoder(strings.NewReader(got)).Decode(&shown) != nil || shown != c.query) {
			t.Errorf("%s: shown as %q in %q", name, shown, got)
		}
	}
}
