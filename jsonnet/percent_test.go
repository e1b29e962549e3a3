package mixin

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-jsonnet"
)

// TestQuickIsPercent: what is rendered is, byte for byte, what the library makes of the files as
// they stand.
func TestQuickIsPercent(t *testing.T) {
	text := func(vm *jsonnet.VM) string {
		out, err := vm.EvaluateAnonymousSnippet("all",
			`local m = import 'jsonnet/mixin.libsonnet'; [m.prometheusAlerts, m.prometheusRules, m.grafanaDashboards]`)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	vm := jsonnet.MakeVM()
	i := newImporter(embedded)
	i.asItIs = true
	vm.Importer(i)
	if got, want := text(newVM(embedded)), text(vm); got != want {
		t.Errorf("line %s", firstDifference(got, want))
	}
}

// same evaluates an expression with quick and without.
func same(t *testing.T, expression string) {
	t.Helper()
	vm := jsonnet.MakeVM()
	vm.NativeFunction(piecesFunction())
	want, wantErr := vm.EvaluateAnonymousSnippet("as it is", expression)
	changed := quick("a file", expression)
	got, gotErr := vm.EvaluateAnonymousSnippet("changed", changed)
	if got != want || (gotErr == nil) != (wantErr == nil) {
		t.Errorf("%s\n%s%v\nas it is:\n%s%v\nit was changed to %s", expression, got, gotErr, want, wantErr, changed)
	}
	if wantErr != nil && gotErr != nil {
		first := func(err error) string { text, _, _ := strings.Cut(err.Error(), "\n"); return text }
		if first(gotErr) != first(wantErr) {
			t.Errorf("%s: %s, as it is: %s", expression, first(gotErr), first(wantErr))
		}
	}
}

func TestPercent(t *testing.T) {
	for _, e := range []string{
		`'a' % []`, `'%s' % 'x'`, `'%s' % ['x']`, `'%s and %s' % ['x', 1.5]`, `'%s' % [[1, 2]]`, `'%s' % null`, `'100%%'  % []`,
		`'%%s' % []`, `'%s' % [{ a: 1 }]`, `'%(a)s %(b)s %(a)s' % { a: 1, b: 'two', c: error 'nobody asks' }`, `'%(a)g' % { a: 0.5 }`,
		`'%d' % 3`, `'%05d|%-5s|% d' % [3, 'x', 4]`, `'%(a)05.1f' % { a: 2.25 }`,
		`'%x %X %o %e %E %g %G %c %c' % [255, 255, 8, 1.5, 1.5, 1e9, 1e-9, 'q', 97]`, `'%*d' % [5, 3]`, `'%.*f' % [2, 3.14159]`,
		`7 % 4`, `7 % 4 % 2`, `'%s%%' % 'a' % []`, `('%s' + '%s') % [1, 2]`, `local f(x) = '%s' % x; f('%s' % 'in') % []`,
		`('%s' % 'a') + ('%s' % 'b')`, "|||\n  %(a)s\n  more\n||| % { a: 1 }", `{ a: 'x', b: '%(a)s' % self }`,
		`'%(x)s' % { x:: 'hidden' }`, `'ä%sö' % 'ü' + '%s' % 'ß'`, `std.map(function(x) '%s' % x, [1, true, null])`,
		`'%s' /* 100% */ % 'x'`,
		`'%s' % // %
 'x'`,
		`'%ld %hs' % [1, 'x']`, `'%#x %+d' % [255, 3]`,
		// Errors are the library's.
		`'%s'  % []`, `'%s' % [1, 2]`, `'%(a)s' % { b: 1 }`, `'%s' % { a: 1 }`, `'%(a)s' % [1]`, `'%(a)s' % 'x'`, `'%' % []`,
		`'%(a' % {}`, `'%y' % 1`, `'%d' % 'x'`, `'%5' % 1`, `'%(a)s' % { a: error 'this one' }`, `[] % 3`, `'%(a)%' % { a: 1 }`,
		`'%(a)s %s' % { a: 1 }`, `'%5%' % []`,
	} {
		same(t, e)
	}
}

// FuzzPercent: whatever stands in a format.
func FuzzPercent(f *testing.F) {
	for _, seed := range []string{
		"", "%", "%s", "%(a)s", "%%", "%5.2f", "%(a)", "%(a)%", "x%dy%s", "%(%s)s", "%*s", "ä%s", "% s", "%-05s", "%(b)d%(a)s",
		"%100000000s",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, format string) {
		// The library adds to widths one space after the other.
		if len(format) > 60 || strings.ContainsAny(format, "123456789") {
			return
		}
		text, err := json.Marshal(format)
		if err != nil {
			t.Fatal(err)
		}
		for _, values := range []string{"'x'", "['x']", "[1, 2.5]", "{ a: 1, b: 'two' }", "[]"} {
			same(t, string(text)+" % "+values)
		}
	})
}
