package shard

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestSickKindsArePage: docs/trust.md says of each kind what was found and what to do.
func TestSickKindsArePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/trust.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| kind | what was found | what to do |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var rows []string
	for row := range strings.Lines(table) {
		name, _, _ := strings.Cut(strings.TrimPrefix(row, "| `"), "`")
		rows = append(rows, name)
	}
	if !slices.Equal(rows, SickKinds()) {
		t.Errorf("docs/trust.md has rows for %q, want %q", rows, SickKinds())
	}
}
