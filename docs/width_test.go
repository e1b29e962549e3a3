package docs_test

import (
	"bufio"
	"io/fs"
	"os"
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
	wideCode = 2234
)

var (
	commentLine = regexp.MustCompile(`^\s*//`)
	// exampleLine is code, a table or a list in a comment, which counts as code; directives too.
	exampleLine = regexp.MustCompile(`^\s*//(\t| {3,}|[a-z]+:)`)
	longLiteral = regexp.MustCompile("\"[^\"]{50,}\"|`[^`]{50,}`|^[^`]*`[^`]{50,}$|^[^\"`]{100,}`")
)

// TestWidth holds comments to the width in which prose is read, and code to that of a screen.
func TestWidth(t *testing.T) {
	wide, lines := 0, 0
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
				wide++
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
	if wide > wideCode {
		t.Errorf("%d lines of code have more than %d columns, there were %d: divide the new ones", wide, widestCode, wideCode)
	}
	t.Logf("%d lines of code have more than %d columns", wide, widestCode)
}
