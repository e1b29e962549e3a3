package relabel

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// TestKeptByFew: a plan that takes hardly anything names the queries that keep the rest, and only
// then.
func TestKeptByFew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.yaml")
	const one = "groups:\n  - name: g\n    rules:\n      - {alert: Named, expr: up > 0}\n"
	const all = one + "      - {alert: All, expr: 'count({__name__=~\".+\"}) > 1'}\n"
	for _, tc := range []struct {
		text          string
		stored, drops int64
		want          string
	}{
		{all, 421, 0, "Hardly anything goes: 0 of 421 series"},
		{all, 421, 200, ""},
		{one, 421, 0, ""},
	} {
		if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		set := new(uses.Set)
		if err := uses.Rules(set, file); err != nil {
			t.Fatal(err)
		}
		got := keptByFew(set, propose.Saving{Series: tc.stored}, propose.Saving{Series: tc.drops})
		if (got == "") != (tc.want == "") || !strings.HasPrefix(got, tc.want) ||
			got != "" && (!strings.Contains(got, "r.yaml:5 (alert All)") || strings.Contains(got, "Named")) {
			t.Errorf("%d of %d: %q", tc.drops, tc.stored, got)
		}
	}
}
