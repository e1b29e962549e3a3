package uses

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestIgnoreListings: lists without a metric's name keep nothing where somebody says so, and are
// told; queries, and lists of named metrics, keep what they select all the same.
func TestIgnoreListings(t *testing.T) {
	pods := strings.Repeat("p", 20_000)
	logged := asked(time.Hour, "series", `{job="x"}`) + asked(time.Hour, "label_values", `{job="y",pod=~"a.+"}`) +
		asked(time.Hour, "series", `named{job="x"}`) + asked(time.Hour, "query", `count({job="q"})`) +
		asked(time.Hour, "federate", `{job="f"}`) + asked(time.Hour, "series", `{job="x",pod=~"`+pods+`"}`)
	const board = `{"title": "B", "templating": {"list": [
		{"name": "pod", "type": "query", "query": "label_values({job=\"x\"}, pod)"},
		{"name": "node", "type": "query", "query": "label_values(node_info{job=\"x\"}, node)"},
		{"name": "all", "type": "query", "query": "query_result({job=\"r\"})"}]}, "panels": []}`
	dir := folder(t, "usage.jsonl", logged, "b/b.json", board)
	for _, ignore := range []bool{false, true} {
		set := &Set{IgnoreListings: ignore}
		if err := Log(t.Context(), set, filepath.Join(dir, "usage.jsonl"), LogOptions{Now: logNow}); err != nil {
			t.Fatal(err)
		}
		if err := Dashboards(set, filepath.Join(dir, "b")); err != nil {
			t.Fatal(err)
		}
		var selected []string
		for _, u := range set.Uses {
			for i := range u.Needs {
				selected = append(selected, u.Needs[i].Selector())
			}
			if len(u.Needs) == 0 && u.Query != "" {
				t.Errorf("%s is asked again", u.Query)
			}
		}
		got := strings.Join(selected, " ")
		for selector, list := range map[string]bool{
			`{job="x"}`: true, `{job="y",pod=~"a.+"}`: true, `named{job="x"}`: false, `{job="q"}`: false, `{job="f"}`: false,
			`{}`: false, `node_info{job="x"}`: false, `{job="r"}`: false,
		} {
			if (" "+got+" " != strings.ReplaceAll(" "+got+" ", " "+selector+" ", " ")) != (!list || !ignore) {
				t.Errorf("ignored: %v, %s among %s", ignore, selector, got)
			}
		}
		told := set.IgnoredListings()
		if (told != "") != ignore || ignore && (!strings.HasPrefix(told, "3 listings without a metric's name: ") ||
			!strings.Contains(told, "usage.jsonl (ada, series)") || !strings.Contains(told, "variable $pod")) {
			t.Errorf("ignored: %v, told %q", ignore, told)
		}
		warned := strings.Join(set.Warnings, "\n")
		if strings.Contains(warned, `variable $pod): it selects {job="x"}`) == ignore {
			t.Errorf("ignored: %v, warnings %s", ignore, warned)
		}
	}
}
