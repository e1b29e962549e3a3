package verify_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/uses"
	"github.com/spillwayproject/spillway/relabel/verify"
)

// A rule that takes the values that nobody has picked yet is doubtful, once for all who picked
// some; one that takes what was asked for is wrong.
func TestPickedValues(t *testing.T) {
	const head = "scrape_configs:\n- job_name: j\n  static_configs: [{targets: [x]}]\n  metric_relabel_configs:\n  "
	for name, c := range map[string]struct {
		rule, text string
		state      verify.State
		findings   int
	}{
		"others": {"- {source_labels: [__name__, gpu], regex: 'xid;(0|1|2)', action: drop}", "with other values than those in the log", verify.OK, 1},
		"theirs": {"- {source_labels: [__name__, gpu], regex: 'xid;(0|3)', action: drop}", `of xid{gpu="3"}`, verify.Faulty, 1},
		"none":   {"- {source_labels: [__name__, gpu], regex: 'other;0', action: drop}", "", verify.OK, 0},
	} {
		file := filepath.Join(t.TempDir(), "prometheus.yml")
		if err := os.WriteFile(file, []byte(head+c.rule+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		set := new(uses.Set)
		for _, query := range []string{`xid{gpu="3"}`, `xid{gpu="4"}`} {
			set.Add(&uses.Use{Kind: uses.Logged, File: "usage.jsonl", Where: "ada", Query: query, Picked: true})
		}
		for _, src := range []inventory.Source{nil, series(t, "xid gpu=0", "xid gpu=1", "xid gpu=3", "xid gpu=4")} {
			r := check(t, verify.Options{Prometheus: []string{file}, Uses: set, Source: src})
			text := textOf(t, r)
			if r.State != c.state || len(r.Findings) != c.findings || !strings.Contains(text, c.text) {
				t.Errorf("%s, stored %v:\n%s", name, src != nil, text)
			}
		}
	}
}
