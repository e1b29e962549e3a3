package uses

import (
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// allowed are the packages of Spillway that this one may import, with the reason.
var allowed = map[string]string{
	"github.com/spillwayproject/spillway/proxy/usage":    "the format of the usage log",
	"github.com/spillwayproject/spillway/proxy/endpoint": "the names of the endpoints in it",
}

// TestImports keeps the package at its place: what is looked at does not depend on what is stored, nor on what is made of both.
func TestImports(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, parser.ImportsOnly)
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
