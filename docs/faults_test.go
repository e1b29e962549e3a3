package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// testsOf are the tests of a package's folder.
func testsOf(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	return names
}

// TestFaultsPage: faults.md has each number once, with tests that there are.
func TestFaultsPage(t *testing.T) {
	text, err := os.ReadFile("faults.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for i := range 30 {
		want = append(want, fmt.Sprint("F", i+1))
	}
	for i := range 26 {
		want = append(want, fmt.Sprint("B", i+1))
	}
	known := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || !regexp.MustCompile(`^ [FB]\d+ $`).MatchString(cells[0]) {
			continue
		}
		number := strings.TrimSpace(cells[0])
		got = append(got, number)
		for of := range strings.SplitSeq(cells[3], ";") {
			m := regexp.MustCompile("^ `([a-z0-9/-]+)` ((?:\\w+, )*\\w+) ?$").FindStringSubmatch(of)
			if m == nil {
				t.Errorf("%s: %q is not a package and its tests", number, of)
				continue
			}
			if known[m[1]] == nil {
				known[m[1]] = testsOf(t, m[1])
			}
			for name := range strings.SplitSeq(m[2], ", ") {
				if !slices.Contains(known[m[1]], name) {
					t.Errorf("%s: %s has no test %s", number, m[1], name)
				}
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("rows are %v, want %v", got, want)
	}
}
