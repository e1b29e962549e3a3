package evaluation

import (
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestImports keeps the package a leaf: it knows the engine, and of Spillway the names of bounds and errors only.
func TestImports(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range tree.Imports {
			path, _ := strconv.Unquote(i.Path.Value)
			rest, ours := strings.CutPrefix(path, "github.com/spillwayproject/spillway/")
			if ours && rest != "proxy/policy" && rest != "proxy/qerr" {
				t.Errorf("%s imports %s: what is evaluated, and over which data, is for others to say", f.Name(), path)
			}
		}
	}
}
