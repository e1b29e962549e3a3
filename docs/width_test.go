package docs_test

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	// widestComment and widestCode are how many columns a line may have, a tab counting four.
	widestComment, widestCode = 100, 140
	// wideCode is how many lines of code are wider still; it may fall and must not rise. Lines with
	// a long literal are not counted: a sentence is found more easily in one piece.
	wideCode = 2231
)

var (
	commentLine = regexp.MustCompile(`^\s*//`)
	// exampleLine is code, a table or a list in a comment, which counts as code; directives too.
	exampleLine = regexp.MustCompile(`^\s*//(\t| {3,}|[a-z]+:)`)
	longLiteral = regexp.MustCompile("\"[^\"]{50,}\"|`[^`]{50,}`|^[^`]*`[^`]{50,}$|^[^\"`]{100,}`")
)

// TestWidth holds comments to the width in which prose is read, and code to that of a screen.
func TestWidth(t *testing.T) {
	var wide []string // their places
	lines := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || d.Name() == ".git" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		in := bufio.NewScanner(f)
		in.Buffer(nil, 1<<20)
		for n := 1; in.Scan(); n++ {
			line := strings.ReplaceAll(in.Text(), "\t", "    ")
			columns := utf8.RuneCountInString(line)
			lines++
			switch {
			case commentLine.MatchString(line) && !exampleLine.MatchString(in.Text()):
				if columns > widestComment {
					t.Errorf("%s:%d: a comment of %d columns; %d are read easily", path, n, columns, widestComment)
				}
			case columns > widestCode && !longLiteral.MatchString(line):
				wide = append(wide, fmt.Sprintf("%s:%d", path, n))
			}
		}
		return in.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	if lines < 50_000 {
		t.Errorf("only %d lines were read", lines)
	}
	if len(wide) > wideCode {
		t.Errorf("%d lines of code have more than %d columns, there were %d: divide the new ones; those of files that were changed last:\n%s",
			len(wide), widestCode, wideCode, strings.Join(changed(wide), "\n"))
	}
	t.Logf("%d lines of code have more than %d columns", len(wide), widestCode)
}

// changed are the places in files that the last commit changed, or that are changed since; all of
// them where git cannot say.
func changed(places []string) (out []string) {
	var files string
	for _, args := range [][]string{{"diff", "--name-only", "HEAD~1"}, {"ls-files", "--others", "--exclude-standard"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = ".."
		names, err := cmd.Output()
		if err != nil {
			return places
		}
		files += string(names)
	}
	for name := range strings.Lines(files) {
		for _, place := range places {
			if strings.HasPrefix(place, "../"+strings.TrimSpace(name)+":") {
				out = append(out, place)
			}
		}
	}
	return out
}
