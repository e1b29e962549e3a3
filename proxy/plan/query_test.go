package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/internal/tree"
)

// TestHandedOverTree: a plan made with the parsed query is the one made without, whatever road it
// takes, the tree is left as it was, and no part of it is handed to an evaluation, which would
// change it. Without explanation the same is asked of the same servers.
func TestHandedOverTree(t *testing.T) {
	top, now := benchTopology(t, 4, map[string]string{"cluster": "jaguar"}), time.Now()
	texts := []string{
		"1", "avg(up)", "sum(up) > 3", "max_over_time(sum(up)[1h:])", "absent(up)", "topk(2, up)", "sum(topk(2, up))",
		"(count(up))",
	}
	for _, p := range panels {
		texts = append(texts, p.text)
	}
	w := &writer{
		rng: rand.New(rand.NewPCG(randseed.Of(t, *presenceSeed), 3)), group: []string{"cluster"},
		match: []string{`node="gpu-00001"`},
	}
	for range 300 {
		if text := w.vector(1 + w.rng.IntN(4)); parses(text) {
			texts = append(texts, text)
		}
	}
	modes := map[Mode]int{}
	for _, text := range texts {
		q := rangeOf(t, text, now)
		nodes, before := map[parser.Node]bool{}, written(q.Expr, nil)
		query := func(change func(*Query)) *Plan {
			q := q
			change(&q)
			p, err := NewView(top, now).Query(context.Background(), q)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			return p
		}
		alone := query(func(q *Query) { q.Expr, q.NoExplain = nil, false })
		handed := query(func(q *Query) { q.NoExplain = false })
		silent := query(func(*Query) {})
		modes[alone.Mode]++
		if written(q.Expr, nodes) != before {
			t.Errorf("planning changes %s", text)
		}
		for _, p := range []*Plan{handed, silent} {
			if a, b := asked(alone), asked(p); a != b {
				t.Errorf("%s is planned otherwise with its tree:\n%s\n%s", text, a, b)
			}
			if p.Expr != nil {
				parser.Inspect(p.Expr, func(n parser.Node, _ []parser.Node) error {
					if nodes[n] {
						t.Errorf("%s: the evaluation gets a part of the request's own tree", text)
					}
					return nil
				})
			}
		}
		a, _ := json.Marshal(alone.Root)
		b, _ := json.Marshal(handed.Root)
		if string(a) != string(b) {
			t.Errorf("%s is explained otherwise with its tree:\n%s\n%s", text, a, b)
		}
		if silent.Root != nil || len(silent.Leaves) > 0 && (silent.Leaves[0].Node != nil || silent.Leaves[0].Parts[0].Call != nil) {
			t.Errorf("%s is explained, which nobody asked for", text)
		}
	}
	for _, m := range []Mode{ModePass, ModeSplice, ModePush, ModeRaw, ModeLocal} {
		if modes[m] == 0 {
			t.Errorf("no query takes the road %s", m)
		}
	}
}

func parses(text string) bool {
	_, err := tree.Parser.ParseExpr(text)
	return err == nil
}

// written is a tree with all its positions; its nodes are put into the set.
func written(e parser.Expr, nodes map[parser.Node]bool) string {
	out := e.String()
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if n != nil {
			out += fmt.Sprintf(" %T%v", n, n.PositionRange())
		}
		if n != nil && nodes != nil {
			nodes[n] = true
		}
		return nil
	})
	return out
}

// asked is a plan without its explanation.
func asked(p *Plan) string {
	out := fmt.Sprintln(p.Mode, p.Why, p.Whole, p.Raw, p.Refused)
	if p.Expr != nil {
		out += written(p.Expr, nil)
	}
	for _, l := range p.Leaves {
		out += fmt.Sprintln(l.Mode, l.Grid, l.Range, l.Fold, l.Folds, l.Strict, l.Near, l.Loose, l.Streams)
		for _, part := range l.Parts {
			out += fmt.Sprintln(part.Shard.Name(), len(part.Replicas), part.Query, part.From, part.Until, part.Relabel == nil)
		}
		for _, g := range l.Guards {
			out += fmt.Sprintln(g.Shard.Name(), g.Match, g.From, g.Until)
		}
	}
	return out
}

// TestSays: a text that is printed from an expression and is another one when it is read is found.
func TestSays(t *testing.T) {
	for text, want := range map[string]bool{
		`m * 2`: true, `m offset 5m @ 5 * 2`: true, `rate(m[5m + 1s]) * 2`: true, `m offset (1m + 1s) * 2`: true,
		`sum(m offset (1m + 1s) @ 5)`: true,
		`m offset (1m + 1s) @ 5 * 2`:  false, `sum(m offset (1m + 1s) @ end() - 1)`: false,
		`max_over_time(m[5m:1m] offset (1m + 1s) @ 5) * 2`: true,
		`rate(m{b="1",a="2"}[5m + 1s])`:                    true, `m{b="1",a="2"} > 5m`: true,
		`m + fill (NaN) m > 5m`: true,
		`m > 1s1ms`:             false, // which Prometheus prints as 1s
	} {
		e, err := tree.Parser.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := says(e.String(), e); got != want {
			t.Errorf("%s is printed as %s: %v, want %v", text, e, got, want)
		}
	}
}
