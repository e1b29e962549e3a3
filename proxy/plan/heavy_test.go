package plan

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
)

// TestHeavyPartsStayHere: a part that is not for shards is not sent to any, whatever the topology;
// the parts in it that are for them still run there, and explain says why the rest does not.
func TestHeavyPartsStayHere(t *testing.T) {
	now := time.Now()
	const why = "it makes 5000 bytes of labels for each series"
	heavy := func(e parser.Expr) string {
		if strings.Contains(e.String(), "label_replace") {
			return why
		}
		return ""
	}
	for _, shards := range []int{1, 4} {
		top := benchTopology(t, shards, nil)
		for _, tc := range []struct {
			text  string
			sent  string // what shards are asked; empty where series are read
			reads bool
		}{
			{`label_replace(up,"x","b","","")`, "", true},
			{`sum(label_replace(up,"x","b","",""))`, "", true},
			{`label_replace(sum by (node) (up),"x","b","","")`, "sum by (node) (up)", false},
			{`topk(2,label_replace(up,"x","b","","")) + on(node) sum by (node) (up)`, "sum by (node) (up)", true},
		} {
			q := rangeOf(t, tc.text, now)
			q.NoExplain, q.Heavy = false, heavy
			p, err := NewView(top, now).Query(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			sent := ""
			for _, l := range p.Leaves {
				sent = l.Parts[0].Query
				if len(l.Uses) != 1 || len(l.Uses[0]) != 1 || l.Uses[0][0] != len(q.Windows)-1 {
					t.Errorf("%s: the leaf has the selectors %v", tc.text, l.Uses)
				}
			}
			if p.Mode != ModeRaw || p.Raw != tc.reads || sent != tc.sent || shards == 1 && !strings.Contains(p.Root.Why, why) {
				t.Errorf("%s over %d: %s, raw %t, sent %q, because %q", tc.text, shards, p.Mode, p.Raw, sent, p.Root.Why)
			}
		}
	}
}
