package usage

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// allowed are the packages of Spillway that this one may import, with the reason.
var allowed = map[string]string{
	"github.com/spillwayproject/spillway/internal/tree": "PromQL's expressions",
}

// TestImports keeps the package at its place: everything builds on it, so it builds on next to nothing.
func TestImports(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(path, "github.com/spillwayproject/") && allowed[path] == "" {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}
