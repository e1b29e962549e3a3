package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestArchitecture: every room that docs/architecture.md or docs/glossary.md names is there, and
// every package of the proxy is on the first; the words of the second are sorted and stand once.
func TestArchitecture(t *testing.T) {
	named := regexp.MustCompile("(?m)(?:[ `]|├─ |└─ )((?:proxy|internal|relabel|cmd|loadtest|proofs|deploy|jsonnet|alerts|dashboards|grafana-plugin)/?[a-z0-9/_-]*)[` \n]")
	var page string
	for _, file := range []string{"architecture.md", "glossary.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(m[1], "/") {
				continue
			}
			found++
			if info, err := os.Stat(filepath.Join("..", m[1])); err != nil || !info.IsDir() {
				t.Errorf("%s names %s, which is not there", file, m[1])
			}
		}
		if found < 8 {
			t.Errorf("%s names %d rooms; the test does not see them", file, found)
		}
		if file == "architecture.md" {
			page = string(text)
		}
	}
	err := filepath.WalkDir("../proxy", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(filepath.ToSlash(path), "../")
		if d.Name() == "testdata" || strings.HasSuffix(name, "test") || name == "proxy" || name == "proxy/hostile" ||
			strings.HasPrefix(name, "proxy/policy/") {
			return nil
		}
		if files, _ := filepath.Glob(filepath.Join(path, "doc.go")); len(files) == 0 {
			return nil
		}
		short := strings.TrimPrefix(name, "proxy/")
		if !strings.Contains(page, name) && !strings.Contains(page, "("+short) {
			t.Errorf("docs/architecture.md has no word about %s", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, m := range regexp.MustCompile(`(?m)^\| ([a-z][a-z ]*) \|`).FindAllStringSubmatch(string(text), -1) {
		if m[1] != "word" {
			words = append(words, m[1])
		}
	}
	if sorted := slices.Compact(slices.Sorted(slices.Values(words))); !slices.Equal(words, sorted) || len(words) < 30 {
		t.Errorf("the glossary's words are not sorted, or some stands twice: %q", words)
	}
}

// TestIndex: every page of docs/ is on docs/README.md.
func TestIndex(t *testing.T) {
	index, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if page != "README.md" && !strings.Contains(string(index), "]("+page+")") {
			t.Errorf("docs/README.md does not list %s", page)
		}
	}
}
