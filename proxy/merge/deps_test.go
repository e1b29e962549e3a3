package merge

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestImports: merge is a leaf. Of Spillway it knows errors only, and of Prometheus the types of results: what it must never gain stands here with the reason.
func TestImports(t *testing.T) {
	never := map[string]string{
		"net/http":                                 "a merge reads from readers and writes to writers; who is at the other end is not its business",
		"unsafe":                                   "strings of shards are copied; Thanos' and Prometheus' label types differ by build tag",
		"github.com/prometheus/prometheus/web":     "Prometheus' codec is what the tests compare with, and pulls in a server",
		"github.com/prometheus/prometheus/tsdb":    "nothing is stored here",
		"github.com/prometheus/prometheus/storage": "nothing is evaluated here",
		"github.com/thanos-io":                     "labelpb casts labels",
		"github.com/json-iterator":                 "the scanner bounds what it reads; jsoniter does not",
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			for prefix, reason := range never {
				if path == prefix || strings.HasPrefix(path, prefix+"/") {
					t.Errorf("%s imports %s: %s", name, path, reason)
				}
			}
			if rest, ours := strings.CutPrefix(path, "github.com/spillwayproject/spillway/"); ours && rest != "proxy/qerr" && rest != "proxy/endpoint" {
				t.Errorf("%s imports %s: merge stands behind nothing but qerr and endpoint", name, path)
			}
		}
	}
}
