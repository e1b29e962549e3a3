package policy

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestImports keeps the package a leaf: it judges requests and must never be able to send one.
func TestImports(t *testing.T) {
	allowed := []string{
		"github.com/spillwayproject/spillway/proxy/qerr",     // errors
		"github.com/spillwayproject/spillway/proxy/endpoint", // the typed request
		"github.com/spillwayproject/spillway/internal/tree",  // PromQL's expressions
		"github.com/spillwayproject/spillway/internal/clip",  // texts for messages
	}
	forbidden := map[string]string{
		"net/http": "policy judges typed requests, not HTTP", "net": "no I/O", "os": "no I/O", "context": "nothing here waits",
		"log/slog": "callers log",
	}
	eachFile(t, func(name string, f *ast.File) {
		for _, spec := range f.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if strings.Contains(path, "spillwayproject") && !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s", name, path)
			}
			if why := forbidden[path]; why != "" {
				t.Errorf("%s imports %s: %s", name, path, why)
			}
		}
	})
}

// TestEveryBoundHasAPage compares the bounds in the code with docs/bounds.
func TestEveryBoundHasAPage(t *testing.T) {
	var declared []string
	eachFile(t, func(_ string, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Names) == 1 && strings.HasPrefix(spec.Names[0].Name, "Bound") &&
				len(spec.Values) == 1 {
				if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
					name, _ := strconv.Unquote(lit.Value)
					declared = append(declared, name)
				}
			}
			return true
		})
	})
	pages, err := filepath.Glob("../../docs/bounds/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, page := range pages {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		if name == "README" {
			continue
		}
		named = append(named, name)
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"# " + name + "\n", "## What it protects\n", "## Default\n", "## What you see\n", "## What to do\n"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s lacks %q", page, strings.TrimSpace(want))
			}
		}
	}
	for _, b := range Bounds() {
		if !slices.Contains(declared, b) {
			t.Errorf("Bounds() has %s, which no constant Bound… declares", b)
		}
		if !slices.Contains(named, b) {
			t.Errorf("%s has no page: write docs/bounds/%s.md", b, b)
		}
	}
	for _, b := range declared {
		if !slices.Contains(Bounds(), b) {
			t.Errorf("the bound %s is not in Bounds()", b)
		}
	}
	for _, b := range named {
		if !slices.Contains(Bounds(), b) {
			t.Errorf("docs/bounds/%s.md is about no bound", b)
		}
	}
}

var update = flag.Bool("update", false, "write the table of docs/bounds/README.md")

// TestBoundsIndex: the index of the bounds has what each page says first, in the order of Bounds.
func TestBoundsIndex(t *testing.T) {
	const page, head = "../../docs/bounds/README.md", "| bound | what it limits |\n|---|---|\n"
	var rows strings.Builder
	for _, b := range Bounds() {
		text, err := os.ReadFile("../../docs/bounds/" + b + ".md")
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitN(string(text), "\n", 4)
		if len(lines) < 4 || lines[2] == "" {
			t.Fatalf("the third line of docs/bounds/%s.md does not say what it limits", b)
		}
		fmt.Fprintf(&rows, "| [%s](%s.md) | %s |\n", b, b, strings.TrimSuffix(lines[2], "."))
	}
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(raw), head)
	if !found {
		t.Fatalf("%s has no table", page)
	}
	want := before + head + rows.String()
	if _, after, more := strings.Cut(rest, "\n\n"); more {
		want += "\n" + after
	}
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(raw) != want {
		t.Errorf("%s does not say what the pages say; go test ./proxy/policy -run TestBoundsIndex -update writes it", page)
	}
}

// TestChecksAreNamedOnce keeps logs and tests unambiguous.
func TestChecksAreNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Checks() {
		if c.Name() == "" || seen[c.Name()] {
			t.Errorf("check %T has the name %q", c, c.Name())
		}
		seen[c.Name()] = true
	}
}

func eachFile(t *testing.T, f func(name string, file *ast.File)) {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil || len(names) == 0 {
		t.Fatal("no files", err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		f(name, file)
	}
}

// TestOperationsPage: the page says of each bound whom it protects, and whether it may be in
// shadow.
func TestOperationsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## What each bound protects")
	said := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\|.*\\| ([a-z ]+) \\|$").FindAllStringSubmatch(table, -1) {
		said[row[1]] = row[2]
	}
	for _, b := range Bounds() {
		want := "no"
		switch {
		case b == BoundDenyRule:
			want = "by the rule"
		case slices.Contains(Shadowable, b):
			want = "yes"
		}
		if said[b] != want {
			t.Errorf("%s: the page says %q, want %q", b, said[b], want)
		}
		delete(said, b)
	}
	for b := range said {
		t.Errorf("%s is no bound", b)
	}
}
