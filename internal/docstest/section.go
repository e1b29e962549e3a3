// Package docstest reads the project's pages, for tests that hold what they say to what is there.
package docstest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Section is the text of a page of docs/, such as install.md, from a heading, such as "## By Helm",
// to the next one of the second level. A page or a heading that is not there ends the test.
func Section(t testing.TB, page, heading string) string {
	t.Helper()
	root := ".."
	for ; ; root = filepath.Join("..", root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if abs, err := filepath.Abs(root); err != nil || abs == "/" {
			t.Fatalf("no go.mod above the test: %v", err)
		}
	}
	b, err := os.ReadFile(filepath.Join(root, "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut("\n"+string(b), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("docs/%s has no %q", page, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}
