package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/proxy/plan/raw"
)

// TestSize: an explanation is never larger than was reckoned, whatever is in it.
func TestSize(t *testing.T) {
	for _, text := range []string{"", "up", `a"\b`, "<&>", "\x00\x1f\n\x7f", "\xff\xfe", "größe \u2028 日", strings.Repeat("\x01", 5000)} {
		call := &Call{
			Shard: text, Replica: text, Query: text, Series: math.MinInt64, Samples: math.MinInt64, Bytes: math.MinInt64,
			Began: -math.MaxFloat64 / 3, Seconds: -math.SmallestNonzeroFloat64,
			Segments: []raw.Segment{{Slice: text, Copy: text, From: math.MinInt64, Until: math.MinInt64}, {}},
		}
		node := &Node{Mode: ModeParcels, Expr: text, Why: text, Calls: []*Call{call, call}}
		e := &Explanation{
			Query: text, Verdict: Refused, Reason: text, Slow: text, Shadow: []string{text, text},
			Plan: &Node{Mode: ModeRaw, Expr: text, Children: []*Node{node, node}},
			Estimate: &Estimate{
				By: text, Series: math.MinInt64, Samples: math.MinInt64, Bytes: math.MinInt64, Selected: math.MinInt64,
				Read: math.MinInt64, Held: math.MinInt64, Seconds: -math.MaxFloat64 / 3, GiBSeconds: -math.MaxFloat64 / 3,
			},
		}
		for _, e := range []*Explanation{e, {Query: text}} {
			var b bytes.Buffer
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(e); err != nil {
				t.Fatal(err)
			}
			if n := int64(b.Len()); e.Size() < n {
				t.Errorf("%.20q: %d bytes, reckoned %d", text, n, e.Size())
			}
		}
	}
}

// TestLongTextsStandOnce: of a long text that many shards are asked one call shows all, and the
// others whose it is; short ones stand everywhere, and different ones are told apart.
func TestLongTextsStandOnce(t *testing.T) {
	n := &Node{}
	one, other := strings.Repeat("a", wholeText+1), strings.Repeat("b", wholeText+1)
	for i, text := range []string{one, other, one, "up", "up", other, one[:wholeText], one[:wholeText]} {
		n.asks(&Call{Shard: fmt.Sprintf("g[%d]", i), Query: text})
	}
	want := []string{
		one, other, one[:cutText] + "… (as g[0])", "up", "up", other[:cutText] + "… (as g[1])", one[:wholeText], one[:wholeText],
	}
	for i, c := range n.Calls {
		if c.Query != want[i] {
			t.Errorf("%d: %s", i, c.Query)
		}
	}
}
