package alerts_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// promtool evaluates the groups of a case in an order of chance, but for those that
// group_eval_order names; and it sorts one that is not named beside the first. So a file that loads
// a group and another one that reads what it records must name both, the reader later: otherwise
// its cases pass on one day and fail on the next. Two that read each other are to be named, in
// either order.
func TestOrderOfGroups(t *testing.T) {
	type at struct{ path, group string }
	records := map[string][]at{}
	reads := map[at]map[string]bool{}
	for _, r := range rulesOf(t) {
		g := at{filepath.Join(r.scope, r.file), r.group}
		if r.Record != "" {
			records[r.Record] = append(records[r.Record], g)
		}
		if reads[g] == nil {
			reads[g] = map[string]bool{}
		}
		parser.Inspect(r.expr, func(n parser.Node, _ []parser.Node) error {
			if s, ok := n.(*parser.VectorSelector); ok {
				reads[g][s.Name] = true
			}
			return nil
		})
	}
	mutual := func(writer, reader at) bool {
		for name := range reads[writer] {
			if slices.Contains(records[name], reader) {
				return true
			}
		}
		return false
	}
	for _, f := range caseFiles(t) {
		loaded := map[string]bool{}
		for _, p := range f.rules(t) {
			loaded[filepath.Clean(p)] = true
		}
		for reader, names := range reads {
			for name := range names {
				for _, writer := range records[name] {
					if writer == reader || !loaded[reader.path] || !loaded[writer.path] {
						continue
					}
					w, r := slices.Index(f.GroupOrder, writer.group), slices.Index(f.GroupOrder, reader.group)
					if w < 0 || r < 0 || r <= w && !mutual(writer, reader) {
						t.Errorf("%s: group_eval_order: %s of %s records %s, which %s of %s reads: name both, in this order",
							f.path, writer.group, writer.path, name, reader.group, reader.path)
					}
				}
			}
		}
	}
}
