package identity

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// TestImports: identity stands before policy on the road of a request and knows nothing of what follows.
func TestImports(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "identity.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range file.Imports {
		if strings.Contains(i.Path.Value, ".") { // anything outside the standard library
			t.Errorf("identity imports %s", i.Path.Value)
		}
	}
}
