package mixin

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-jsonnet/formatter"
	"github.com/google/go-jsonnet/linter"
)

// sources are the jsonnet files, by their path below this folder.
func sources(t *testing.T) []string {
	t.Helper()
	var out []string
	err := fs.WalkDir(embedded, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".libsonnet" {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 10 {
		t.Fatalf("only %d files are embedded", len(out))
	}
	return out
}

// Every file is what `jsonnetfmt -n 2 --max-blank-lines 2 --string-style s --comment-style s` makes
// of it; -update writes it so.
func TestFormatted(t *testing.T) {
	o := formatter.DefaultOptions()
	o.Indent, o.MaxBlankLines, o.StringStyle, o.CommentStyle = 2, 2, formatter.StringStyleSingle, formatter.CommentStyleSlash
	for _, name := range sources(t) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := formatter.Format(sourceDir+name, string(b), o)
		switch {
		case err != nil:
			t.Error(err)
		case want == string(b):
		case *update:
			if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s%s is not formatted: line %s; run go test ./jsonnet -run TestFormatted -update", sourceDir, name, firstDifference(string(b), want))
		}
	}
}

// jsonnet-lint has nothing to say: no unused variable, no field that is not there.
func TestLint(t *testing.T) {
	for _, name := range sources(t) {
		t.Run(name, func(t *testing.T) {
			b, err := fs.ReadFile(embedded, name)
			if err != nil {
				t.Fatal(err)
			}
			linter.LintSnippet(newVM(embedded), testWriter{t}, []linter.Snippet{{FileName: sourceDir + name, Code: string(b)}})
		})
	}
}

// testWriter makes what is written to it errors of a test.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Errorf("%s", b)
	return len(b), nil
}

// Every file of alerts, rules and dashboards is joined by the mixin: one that is forgotten is a
// group that nobody misses until it should have fired.
func TestNothingForgotten(t *testing.T) {
	read := func(name string) string {
		b, err := fs.ReadFile(embedded, name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const boards, ofPlugin = "dashboards/dashboards.libsonnet", "plugin/plugin.libsonnet"
	for _, name := range sources(t) {
		switch path.Dir(name) {
		case "alerts", "rules":
			if !strings.Contains(read(entry), "(import '"+name+"')") {
				t.Errorf("%s%s does not import %s", sourceDir, entry, name)
			}
		case "dashboards":
			if name != boards && !strings.Contains(read(boards), "(import '"+path.Base(name)+"')") {
				t.Errorf("%s%s does not import %s", sourceDir, boards, name)
			}
		case "plugin":
			if name != ofPlugin && !strings.Contains(read(ofPlugin), "(import '"+path.Base(name)+"')") {
				t.Errorf("%s%s does not import %s", sourceDir, ofPlugin, name)
			}
		}
	}
}
