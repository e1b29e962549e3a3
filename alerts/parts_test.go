package alerts_test

import (
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/alerts"
)

// TestRulesOfOneNameAreParts: rules that record the same name with the same labels, which promtool
// calls duplicates, are the two parts of one expression: they differ by one matcher, which is
// negated in one of them, so that no series is recorded twice.
func TestRulesOfOneNameAreParts(t *testing.T) {
	pairs := 0
	for dir, fsys := range map[string]fs.FS{"global": alerts.Global(), "shard": alerts.Shard()} {
		paths, err := fs.Glob(fsys, "*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		first := map[string]rulefmt.Rule{}
		for _, path := range paths {
			text, err := fs.ReadFile(fsys, path)
			if err != nil {
				t.Fatal(err)
			}
			groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}),
				slog.New(slog.DiscardHandler))
			if len(errs) > 0 {
				t.Fatalf("%s: %v", path, errs)
			}
			for _, g := range groups.Groups {
				for _, r := range g.Rules {
					name := r.Record + r.Alert + fmt.Sprint(r.Labels)
					one, ok := first[name]
					switch first[name] = r; {
					case !ok:
					case strings.Replace(one.Expr, `gpu=~"[0-3]"`, `gpu!~"[0-3]"`, 1) == r.Expr && one.Expr != r.Expr:
						pairs++
					default:
						t.Errorf("%s/%s: %s is there twice:\n%s\n%s", dir, path, name, one.Expr, r.Expr)
					}
				}
			}
		}
	}
	if pairs == 0 {
		t.Error("no rule is made in parts; docs/alerts.md says that promtool counts six")
	}
}
