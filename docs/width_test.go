package docs_test

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
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
	// longLiteral is how long a literal is that makes its line as wide as it likes: a sentence is
	// found more easily in one piece.
	longLiteral = 50
	// longest is how many lines a function may have.
	longest = 80
)

// exampleLine is code, a table or a list in a comment, which counts as code; directives too.
var exampleLine = regexp.MustCompile(`^\s*//(\t| {3,}|[a-z]+:)`)

// TestWidth holds comments to the width in which prose is read, and code to that of a screen.
func TestWidth(t *testing.T) {
	lines := 0
	eachFile(t, func(path string, text []byte) {
		widest := widths(path, text)
		for i, line := range strings.Split(string(text), "\n") {
			lines++
			n := i + 1
			columns := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			most, what := widestCode, "code"
			switch w, known := widest[n]; {
			case known && w == 0, exampleLine.MatchString(line):
				continue
			case known:
				most, what = w, "a comment"
			}
			if columns > most {
				t.Errorf("%s:%d: %s of %d columns; %d are read easily", path, n, what, columns, most)
			}
		}
	})
	if lines < 50_000 {
		t.Errorf("only %d lines were read", lines)
	}
}

// widths are how wide lines may be that are not code alone: 0 is as wide as they like.
func widths(path string, text []byte) map[int]int {
	files := token.NewFileSet()
	var s scanner.Scanner
	s.Init(files.AddFile(path, -1, len(text)), text, nil, scanner.ScanComments)
	out := map[int]int{}
	last := 0 // the line of the last token
	for {
		pos, tok, lit := s.Scan()
		line := files.Position(pos).Line
		switch {
		case tok == token.EOF:
			return out
		case tok == token.COMMENT && line != last:
			for i := range strings.Count(lit, "\n") + 1 {
				out[line+i] = widestComment
			}
		case tok == token.STRING && (len(lit) > longLiteral+1 || strings.Contains(lit, "\n")):
			for i := range strings.Count(lit, "\n") + 1 {
				out[line+i] = 0
			}
		}
		last = line + strings.Count(lit, "\n")
		if tok == token.SEMICOLON { // which may be the end of the line
			last = line
		}
	}
}

// TestLength holds functions to what a screen shows.
func TestLength(t *testing.T) {
	eachFile(t, func(path string, text []byte) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := files.Position(fn.End()).Line - files.Position(fn.Pos()).Line + 1
			if lines > longest {
				t.Errorf("%s %s has %d lines; divide it, at most %d are seen at once", path, fn.Name.Name, lines, longest)
			}
		}
	})
}

// eachFile reads all Go files of the repository.
func eachFile(t *testing.T, read func(path string, text []byte)) {
	t.Helper()
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
		text, err := os.ReadFile(path)
		if err == nil {
			read(filepath.ToSlash(path), text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
