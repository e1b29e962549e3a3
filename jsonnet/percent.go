package mixin

import (
	"cmp"
	_ "embed"
	"slices"
	"strings"

	"github.com/google/go-jsonnet"
	"github.com/google/go-jsonnet/ast"
	"github.com/google/go-jsonnet/toolutils"
)

// The library's % on texts is a program in jsonnet that goes over its text a character at a time,
// and adds each to a longer text: three quarters of what rendering cost. Files keep the operator,
// since other programs read them too; what this package reads of them calls quick instead. It takes
// a text apart in Go, and leaves what is rare to the operator.

// quickName is what quick is called in files: nobody else calls anything so.
const quickName = "quickPercent__"

// quickText stands before each file, on its first line, so that lines keep their numbers.
//
//go:embed percent.jsonnet
var quickText string

var quickHead = "local " + quickName + " = " + strings.Join(strings.Fields(uncommented(quickText)), " ") + "; "

// uncommented is a jsonnet text without its lines of comment.
func uncommented(s string) string {
	lines := strings.Split(s, "\n")
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(strings.TrimSpace(l), "//") }), "\n")
}

// piece is what stands in a format before a code, and the code: Code is "" at the end, "s" for what
// is only put in, else the code without its key. Key is nil where the value has its place by order.
type piece struct {
	text, code string
	key        any
}

// pieces takes a format apart; false where it has what is left to the library: widths that are
// values, an error.
func pieces(format string) ([]piece, bool) {
	var out []piece
	text := ""
	for {
		before, rest, found := strings.Cut(format, "%")
		text += before
		if !found {
			return append(out, piece{text: text}), true
		}
		p := piece{}
		if strings.HasPrefix(rest, "(") {
			key, after, closed := strings.Cut(rest[1:], ")")
			if !closed {
				return nil, false
			}
			p.key, rest = key, after
		}
		end := strings.IndexFunc(rest, func(r rune) bool { return !strings.ContainsRune("#0- +123456789.", r) })
		if end < 0 || !strings.ContainsRune("diuoxXeEfFgGcs%", rune(rest[end])) {
			return nil, false
		}
		code := rest[:end+1]
		format = rest[end+1:]
		if code == "%" && p.key == nil {
			text += "%"
			continue
		} else if code[end] == '%' {
			return nil, false
		}
		p.text, p.code, text = text, code, ""
		out = append(out, p)
	}
}

// piecesFunction gives jsonnet the pieces of a format as [text, key, code] each, or null.
func piecesFunction() *jsonnet.NativeFunction {
	seen := map[string]any{}
	return &jsonnet.NativeFunction{Name: "pieces", Params: ast.Identifiers{"format"}, Func: func(args []any) (any, error) {
		format, _ := args[0].(string)
		if v, ok := seen[format]; ok {
			return v, nil
		}
		found, ok := pieces(format)
		var v any
		if ok {
			list := make([]any, len(found))
			for i, p := range found {
				list[i] = []any{p.text, p.key, p.code}
			}
			v = list
		}
		seen[format] = v
		return v, nil
	}}
}

// quick is the text of a file with calls of quick in the place of each %. A file that is no jsonnet
// stays as it is: the library says what is wrong with it.
func quick(name, text string) string {
	root, err := jsonnet.SnippetToAST(name, text)
	if err != nil {
		return text
	}
	lines := []int{0, 0} // where each begins, from 1
	for i := range text {
		if text[i] == '\n' {
			lines = append(lines, i+1)
		}
	}
	at := func(l ast.Location) int { return lines[l.Line] + l.Column - 1 }
	type edit struct {
		at, length int
		put        string
	}
	var edits []edit
	seen := map[ast.Node]bool{}
	var walk func(ast.Node)
	walk = func(n ast.Node) {
		if n == nil || seen[n] {
			return
		}
		seen[n] = true
		if a, b := percent(n); a != nil {
			begin, end := at(n.Loc().Begin), at(n.Loc().End)
			from, to := at(a.Loc().End), at(b.Loc().Begin)
			// Between the sides are the operator, and brackets and space around it.
			if gap := text[from:to]; strings.Count(gap, "%") == 1 && strings.Trim(gap, "() \n%") == "" {
				edits = append(edits, edit{begin, 0, quickName + "("}, edit{from + strings.Index(gap, "%"), 1, ","}, edit{end, 0, ")"})
			}
		}
		for _, c := range toolutils.Children(n) {
			walk(c)
		}
	}
	walk(root)
	if len(edits) == 0 {
		return text
	}
	// Where one ends and an operator follows at once, as in a%b%c, the end stands first.
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Or(a.at-b.at, a.length-b.length) })
	var b strings.Builder
	b.WriteString(quickHead)
	last := 0
	for _, e := range edits {
		b.WriteString(text[last:e.at] + e.put)
		last = e.at + e.length
	}
	return b.String() + text[last:]
}

// percent are the sides of a %, as the library's reader leaves it: a call of std.mod.
func percent(n ast.Node) (a, b ast.Node) {
	call, ok := n.(*ast.Apply)
	if !ok || len(call.Arguments.Positional) != 2 || n.Loc().Begin.Line == 0 {
		return nil, nil
	}
	index, ok := call.Target.(*ast.Index)
	if !ok {
		return nil, nil
	}
	std, isVar := index.Target.(*ast.Var)
	name, isText := index.Index.(*ast.LiteralString)
	if !isVar || !isText || std.Id != "$std" || name.Value != "mod" {
		return nil, nil
	}
	return call.Arguments.Positional[0].Expr, call.Arguments.Positional[1].Expr
}
