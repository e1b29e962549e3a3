package endpoint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// decideByID are the functions outside this package that decide by the ID of an endpoint, each with
// the reason why no column of the table decides for it. A variable of a package stands under its
// own name; a star stands for any name.
var decideByID = map[string]string{
	"proxy/server/routes.go:init":            "the functions that answer: a column of them would import the server; TestHandlers holds them to the table",
	"proxy/server/metadata.go:exchange.note": "which advice stands in a warning, and nothing else; a list of label names has a selector that can be narrowed otherwise",
	"internal/rehearse/question.go:*":        "which lines of a usage log can be asked again: that depends on what the log has of their parameters, not on the endpoint",
	"proxy/thanos/dialect.go:*":              "a dialect's own table: what a Thanos Query serves, takes, warns of and fails with is no property of the endpoint",
}

const self = "github.com/spillwayproject/spillway/proxy/endpoint"

// TestTableRules holds that elsewhere a column decides what becomes of a request, not a list of IDs
// that nobody thinks of when an endpoint is added. To name an ID in order to build a request is no
// decision.
func TestTableRules(t *testing.T) {
	names := idNames(t)
	found := map[string][]string{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, file)
		rel = filepath.ToSlash(rel)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (rel == "proxy/endpoint" || d.Name() == "testdata" || d.Name() == "node_modules" ||
			strings.HasPrefix(d.Name(), ".") && rel != "."):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for where, at := range decisions(f, names) {
			for _, pos := range at {
				found[rel+":"+where] = append(found[rel+":"+where], strconv.Itoa(fset.Position(pos).Line))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, where := range slices.Sorted(maps.Keys(found)) {
		allowed := false
		for pattern := range decideByID {
			if ok, err := path.Match(pattern, where); err != nil {
				t.Fatal(err)
			} else if ok {
				allowed, used[pattern] = true, true
			}
		}
		if !allowed {
			t.Errorf("%s decides by the ID of an endpoint (line %s): let a column of endpoint.Table decide, or write the reason into decideByID", where, strings.Join(found[where], ", "))
		}
	}
	for _, where := range slices.Sorted(maps.Keys(decideByID)) {
		if !used[where] {
			t.Errorf("%s decides by no ID any more: take it out of decideByID", where)
		}
	}
}

// TestDecisions shows what counts as a decision, and what does not.
func TestDecisions(t *testing.T) {
	for _, c := range []struct {
		code string
		want int
	}{
		{`func f(id e.ID) bool { return id == e.Query }`, 1},
		{`func f(id e.ID) bool { return (e.Query) != id }`, 1},
		{`func f(id e.ID) { switch id { case e.Query, e.Read: } }`, 2},
		{`func f(id e.ID) bool { return map[e.ID]bool{e.Query: true}[id] }`, 1},
		{`func f(id e.ID) bool { return slices.Contains([]e.ID{e.Query}, id) }`, 1},
		{`func f(ids []e.ID) bool { return slices.Contains(ids, e.Read) }`, 1},
		{`var v = map[e.ID]int{e.Series: 1}`, 1},
		{`var v = []e.ID{e.Series, e.Labels}`, 2},
		{`func (x *T[A]) f(id e.ID) bool { return x.m[e.Query] }`, 1},
		{`func f() *e.Request { return &e.Request{ID: e.Query} }`, 0},
		{`func f(r *e.Request) { r.ID = e.QueryRange; id := e.Query; g(id, e.Series) }`, 0},
		{`func f(r *e.Request) bool { return r.ID.Evaluates() || r.Class == e.ClassQuery }`, 0},
		{`func f(id string) bool { return id == other.Query }`, 0},
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nimport e \""+self+"\"\n"+c.code, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, at := range decisions(f, idNames(t)) {
			got += len(at)
		}
		if got != c.want {
			t.Errorf("%s: %d decisions, want %d", c.code, got, c.want)
		}
	}
}

// idNames are the names of the constants of type ID, as table.go declares them.
func idNames(t *testing.T) map[string]bool {
	f, err := parser.ParseFile(token.NewFileSet(), "table.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			if typ, ok := v.Type.(*ast.Ident); ok && typ.Name == "ID" {
				names[v.Names[0].Name] = true
			}
		}
		return true
	})
	if len(names) != len(Table) {
		t.Fatalf("%d constants of type ID, %d rows", len(names), len(Table))
	}
	return names
}

// decisions are the places of a file where an ID is compared, is a case, a key or an index, stands
// in a list, or is looked for in one; by function, or by variable of the package.
func decisions(f *ast.File, names map[string]bool) map[string][]token.Pos {
	pkg := ""
	for _, i := range f.Imports {
		if from, _ := strconv.Unquote(i.Path.Value); from == self {
			if pkg = "endpoint"; i.Name != nil {
				pkg = i.Name.Name
			}
		}
	}
	if pkg == "" {
		return nil
	}
	found := map[string][]token.Pos{}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			decidesIn(d, receiver(d)+d.Name.Name, pkg, names, found)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if v, ok := s.(*ast.ValueSpec); ok {
					decidesIn(v, v.Names[0].Name, pkg, names, found)
				}
			}
		}
	}
	return found
}

// receiver is the type of a method, with a dot.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	typ := d.Recv.List[0].Type
	for {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr:
			typ = t.X
		case *ast.Ident:
			return t.Name + "."
		default:
			return ""
		}
	}
}

func decidesIn(root ast.Node, where, pkg string, names map[string]bool, found map[string][]token.Pos) {
	look := func(exprs ...ast.Expr) {
		for _, e := range exprs {
			s, ok := ast.Unparen(e).(*ast.SelectorExpr)
			if !ok || !names[s.Sel.Name] {
				continue
			}
			if x, ok := s.X.(*ast.Ident); ok && x.Name == pkg {
				found[where] = append(found[where], s.Pos())
			}
		}
	}
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			look(n.X, n.Y)
		case *ast.CaseClause:
			look(n.List...)
		case *ast.IndexExpr:
			look(n.Index)
		case *ast.CompositeLit:
			for _, e := range n.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok {
					look(kv.Key)
				} else {
					look(e)
				}
			}
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "slices" {
					look(n.Args...)
				}
			}
		}
		return true
	})
}
