package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/dashboards"
)

var (
	metricName = regexp.MustCompile("`(spillway_[a-z_]+)`")
	panelTitle = regexp.MustCompile(`\*([^*]+)\*`)
	quotedLine = regexp.MustCompile(`"([^"]+)"`)
	runbookOf  = regexp.MustCompile(`\[(\w+)\]\(runbooks/(\w+)\.md\)`)
)

// TestProxyTroubles: each metric, alert, panel and log line that docs/proxy-by-trouble.md names is
// there, and each row has one of each, or says why it has no alert.
func TestProxyTroubles(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	metrics, alerts := read("metrics.md"), read("../alerts/shard/spillway.yaml")
	d, err := dashboards.Load("proxy")
	if err != nil {
		t.Fatal(err)
	}
	panels := map[string]bool{}
	for _, q := range d.Queries() {
		if q.Panel != nil {
			panels[q.Panel.Title] = true
		}
	}
	var code strings.Builder
	err = filepath.WalkDir("../proxy", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			code.WriteString(read(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.SplitSeq(read("proxy-by-trouble.md"), "\n") {
		cells := strings.Split(line, " | ")
		if len(cells) != 5 || strings.HasPrefix(line, "| trouble ") {
			continue
		}
		rows++
		all := func(what, cell string, find *regexp.Regexp, there func(string) bool) {
			found := find.FindAllStringSubmatch(cell, -1)
			if len(found) == 0 {
				t.Errorf("%s: no %s is named in %q", cells[0], what, cell)
			}
			for _, m := range found {
				if !there(m[1]) {
					t.Errorf("%s: there is no %s %q", cells[0], what, m[1])
				}
			}
		}
		all("metric", cells[1], metricName, func(s string) bool { return strings.Contains(metrics, "| `"+s+"` |") })
		if why, ok := strings.CutPrefix(cells[2], "none: "); !ok || why == "" {
			all("alert", cells[2], runbookOf, func(s string) bool { return strings.Contains(alerts, "- alert: "+s+"\n") })
		}
		all("panel", cells[3], panelTitle, func(s string) bool { return panels[s] })
		all("log line", cells[4], quotedLine, func(s string) bool { return strings.Contains(code.String(), `"`+s+`"`) })
	}
	if rows < 8 {
		t.Errorf("only %d rows were read", rows)
	}
}
