package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEmitForms: each form is run by a script, and told of where people look for it.
func TestEmitForms(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var scripts strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		scripts.Write(text)
	}
	page, err := os.ReadFile("../../docs/drop-rules.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range emitForms {
		if !strings.Contains(scripts.String(), "--format="+f.name+" ") {
			t.Errorf("no script of testdata/script runs spillway relabel emit --format=%s", f.name)
		}
		if !strings.Contains(string(page), "--format="+f.name+" ") {
			t.Errorf("docs/drop-rules.md does not show --format=%s", f.name)
		}
	}
}
