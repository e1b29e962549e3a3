package server

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/policy"
)

var (
	exactCount  = flag.Int("exact.queries", 300, "how many random queries TestExactFuzz compares with the reference")
	exactMissed = flag.Bool("exact.missed", false, "print the queries with an aggregation that looks pushable and was not pushed")
	exactSeed   = flag.Uint64("exact.seed", 0, "seed of TestExactFuzz's first world; 0 leaves it to internal/randseed")
)

// One topology is asked as many queries as leave room for exactWorlds of them, within these bounds.
const (
	exactWorlds   = 12
	exactPerWorld = 100
)

// Every exactPushed-th query is an aggregation that shards can run, as far as the world has any,
// and exactJudged of them is how many it takes to judge how many they did: of fewer, which worlds
// and windows were drawn would decide. There are exactMoreWorlds worlds more to find them in.
const (
	exactPushed     = 4
	exactJudged     = 30
	exactMoreWorlds = 24
)

// exactTally counts what became of the queries, over all worlds.
type exactTally struct {
	modes    map[string]int // by the road they took
	outcomes map[string]int
	pushable int // aggregations that look as if shards could run them
	pushed   int // those that shards did run
	failures int
}

// TestExactFuzz asks random queries, our own and promqlsmith's, of proxies over random topologies,
// and compares each answer with the reference. Whatever differs, is refused without a reason, or
// fails on one side only, is made small and printed as a row for exactFound.
func TestExactFuzz(t *testing.T) {
	seed := randseed.Of(t, *exactSeed)
	tally := &exactTally{modes: map[string]int{}, outcomes: map[string]int{}}
	asked := 0
	for i := 0; asked < *exactCount || tally.pushable < exactJudged; i++ {
		if i >= exactWorlds+asked/exactPerWorld+exactMoreWorlds {
			t.Fatalf("in %d worlds shards could run %d aggregations: too few to judge what is pushed", i, tally.pushable)
		}
		n := min(exactPerWorld, (*exactCount+exactWorlds-1)/exactWorlds)
		if left := *exactCount - asked; left > 0 {
			n = min(n, left)
		}
		kind := exactKinds[i%len(exactKinds)]
		t.Run(fmt.Sprintf("%s-%d", kind, seed+uint64(i)), func(t *testing.T) {
			h := newExactHarness(t, seed+uint64(i), kind, tally)
			h.run(n)
		})
		asked += n
		if tally.failures >= 12 {
			t.Fatalf("stopped after %d queries: enough was found", asked)
		}
	}
	t.Logf("%d queries ran as %v; %v; %d of %d aggregations that could be pushed were", asked, tally.modes, tally.outcomes, tally.pushed, tally.pushable)
	if 3*tally.pushed < tally.pushable { // half of them and more at most seeds; a world whose servers do not fit together has none
		t.Errorf("%d of %d aggregations that shards could run were pushed: less than a third (-exact.missed lists them)", tally.pushed, tally.pushable)
	}
}

// exactHarness is one world, served.
type exactHarness struct {
	t     *testing.T
	w     *exactWorld
	s     *Server
	base  string
	ref   *exactReference
	tally *exactTally
}

func newExactHarness(t *testing.T, seed uint64, kind exactKind, tally *exactTally) *exactHarness {
	h := &exactHarness{t: t, w: newExactWorld(seed, kind, time.Now()), tally: tally}
	return h.serve()
}

func (h *exactHarness) serve() *exactHarness {
	h.s, h.base = h.w.serve(h.t)
	h.ref = newExactReference(h.w)
	h.ref.attach(h.t, h.s)
	return h
}

// run asks n queries.
func (h *exactHarness) run(n int) {
	own := newExactQueries(h.w)
	smith := newExactSmith(h.w)
	failures := 0
	for i := range n {
		var text string
		for tries := 0; ; tries++ {
			switch {
			case i%exactPushed == 1:
				text = h.pushable(own)
			case i%3 == 2:
				text = smith()
			default:
				text = own.query()
			}
			if _, err := exactParser.ParseExpr(text); err == nil && len(text) < 4000 {
				break
			}
			h.tally.outcomes["rewritten: not PromQL"]++
			if tries > 200 {
				h.t.Fatalf("the generators write nothing that parses: %s", text)
			}
		}
		q := own.question(text)
		if e, err := exactParser.ParseExpr(text); err == nil && q.step > 0 && e.Type() == parser.ValueTypeMatrix {
			q.start, q.step = q.end, 0
		}
		v := h.check(q)
		h.tally.modes[v.mode]++
		h.tally.outcomes[v.outcome]++
		h.tally.pushable += v.pushable
		h.tally.pushed += v.pushed
		if v.pushed < v.pushable && *exactMissed {
			h.t.Logf("not pushed: ran as %s (%s): %s", v.mode, v.outcome, h.row(q))
		}
		if v.failed {
			h.tally.failures++
			small, least := h.minimise(q, v)
			h.t.Errorf("%s\n\t%s\n\tran as %s; made small from\n\t%s", least.text, h.row(small), least.mode, q.query)
			if failures++; failures >= 3 {
				h.t.Logf("the world: %s\n%s", strings.Join(h.w.traits, "; "), h.w.config(func(r *exactReplica) string { return r.name }))
				return
			}
		}
	}
}

// pushable writes a query with an aggregation that shards can run; any where the world seems to
// have none.
func (h *exactHarness) pushable(own *exactQueries) string {
	for range 20 {
		text := own.query()
		if own.chance(0.5) {
			text = own.aggregate(0)
		}
		if e, err := exactParser.ParseExpr(text); err == nil {
			if could, _ := h.w.pushed(e, &exactSeen{}); could > 0 {
				return text
			}
		}
	}
	return own.query()
}

// row is a question as exactFound takes it.
func (h *exactHarness) row(q exactQuestion) string {
	return fmt.Sprintf("{seed: %d, kind: %q, query: %s, end: %d, length: %d, step: %d, lookback: %d},", h.w.seed, h.w.kind, strconv.Quote(q.query),
		q.end.Sub(h.w.start).Milliseconds(), q.end.Sub(q.start).Milliseconds(), q.step.Milliseconds(), q.lookback.Milliseconds())
}

// exactVerdict is what came of one query.
type exactVerdict struct {
	outcome, mode, text string
	failed              bool
	pushable, pushed    int   // aggregations that shards could run, and those that they did
	at                  int64 // where it differs; 0 where that is not one moment
}

// exactReply is what the proxy answers.
type exactReply struct {
	code   int
	answer *exactAnswer
	notes  exactNotes
	error  string
	bound  string
}

// proxy asks the proxy. further are more parameters.
func (h *exactHarness) proxy(q exactQuestion, further ...string) (exactReply, error) {
	form, path := url.Values{"query": {q.query}}, "/api/v1/query"
	if q.step == 0 {
		form.Set("time", stamp(q.start))
	} else {
		path = "/api/v1/query_range"
		form.Set("start", stamp(q.start))
		form.Set("end", stamp(q.end))
		form.Set("step", strconv.FormatFloat(q.step.Seconds(), 'f', 3, 64))
	}
	if q.lookback != 0 {
		form.Set("lookback_delta", strconv.FormatFloat(q.lookback.Seconds(), 'f', 3, 64))
	}
	for i := 0; i+1 < len(further); i += 2 {
		form.Set(further[i], further[i+1])
	}
	code, body := ask(h.t, h.base, path, form)
	out := exactReply{code: code}
	if code == 200 {
		var err error
		if out.answer, err = readExact(body); err == nil {
			out.notes, err = readNotes(body)
		}
		return out, err
	}
	var env struct {
		Error    string
		Spillway *struct{ Bound string }
	}
	if err := json.Unmarshal(body, &env); err != nil {
		return out, fmt.Errorf("status %d with %.200q: %w", code, body, err)
	}
	out.error = env.Error
	if env.Spillway != nil {
		out.bound = env.Spillway.Bound
	}
	return out, nil
}

// check asks the proxy and the reference, and judges.
func (h *exactHarness) check(q exactQuestion) exactVerdict {
	h.ref.seen()
	got, err := h.proxy(q)
	seen := h.ref.seen()
	v := exactVerdict{mode: seen.mode()}
	fail := func(outcome, format string, args ...any) exactVerdict {
		v.outcome, v.failed, v.text = outcome, true, outcome+": "+fmt.Sprintf(format, args...)
		return v
	}
	if err != nil {
		return fail("malformed", "%v", err)
	}
	want := h.ref.ask(h.t.Context(), q, seen, nil)
	refused, unread := got.code != 200, seen.unread(want.collision)
	switch {
	case got.bound == "label_collision":
		if want.collision == "" && h.collides() == "" {
			return fail("refused", "%s", got.error)
		}
		v.outcome, v.mode = "refused: label_collision", "refused"
		return v
	case (got.bound == policy.BoundMaxPoints || got.bound == policy.BoundLabelBytes) && strings.Contains(q.query, "count_values"):
		// As many series as it meets values, each with its labels: the worlds have too many for it.
		v.outcome, v.mode = "refused: "+got.bound, "refused"
		return v
	case got.bound == policy.BoundMaxShardBytes && h.w.tight > 0:
		v.outcome, v.mode = "refused: max_shard_bytes", "refused"
		return v
	case got.bound != "":
		return fail("refused", "bound %s: %s", got.bound, got.error)
	case refused && want.err != nil && (got.code == 400) != errors.Is(want.err, errExactParse),
		refused && got.code != 400 && got.code != 422:
		return fail("fails otherwise", "%d %s; the reference: %v", got.code, got.error, want.err)
	case refused && want.err != nil:
		v.outcome, v.mode = "both fail", "failed"
		return v
	case refused != (want.err != nil) && h.chosen(q, seen, got.answer):
		v.outcome = "tie of topk, bottomk or limitk"
		return v
	case refused:
		return fail("fails here only", "%d %s", got.code, got.error)
	case want.collision != "" && !unread:
		return fail("collision not refused", "%s", want.collision)
	case errors.Is(want.err, errExactParse):
		return fail("accepted here only", "%v", want.err)
	case want.err != nil:
		return fail("answered here only", "%v", want.err)
	}
	expr, err := exactParser.ParseExpr(q.query)
	if err != nil {
		return fail("malformed", "%v", err)
	}
	v.pushable, v.pushed = h.w.pushed(expr, &seen)
	tolerance := 0.0
	if v.mode != "raw" {
		tolerance = exactTolerance(expr)
	}
	d := got.answer.differ(want.answer, tolerance)
	if c, ok := expr.(*parser.Call); ok && d == nil && q.step == 0 && (c.Func.Name == "sort" || c.Func.Name == "sort_desc") {
		d = got.answer.differInOrder(want.answer, tolerance)
	}
	if d == nil {
		if len(want.problems) > 0 && !unread {
			return fail("impossible segments", "%s", want.problems[0])
		}
		if d := h.noted(q, seen, &got, &want); d != "" {
			return fail("other notes", "%s", d)
		}
		v.outcome = "same"
		return v
	}
	v.at = d.at
	if why := h.explained(q, expr, &seen, &got, &want); why != "" {
		v.outcome = why
		return v
	}
	return fail("different", "%s (tolerance %g)%s", d.text, tolerance, strings.Join(append([]string{""}, want.problems...), "; "))
}

// collides looks for label sets that become equal on one server at any time: chunks that reach into
// the window are read even if their samples in it are none.
func (h *exactHarness) collides() string {
	for _, g := range h.w.groups {
		for _, s := range g.shards {
			for _, r := range s.replicas {
				for key, held := range r.byKey {
					if len(held.places) > 1 {
						return key
					}
				}
			}
		}
	}
	return ""
}

// exactTolerance is what design section 7 allows an expression that was not evaluated raw.
func exactTolerance(e parser.Expr) float64 {
	tolerance := 0.0
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			switch a.Op {
			case parser.SUM, parser.AVG:
				tolerance = max(tolerance, 1e-12)
			case parser.STDDEV, parser.STDVAR:
				tolerance = max(tolerance, 1e-9)
			}
		}
		return nil
	})
	return tolerance
}

// exactOrders is how many orders of the series the reference is asked in, where an answer may
// depend on it.
const exactOrders = 6

// explained names the exception that allows a difference, or is empty. Prometheus' engine itself
// does not fix the order in which series come out of most nodes of a range query, so the last bits
// of a sum and the choice between ties differ from one of its runs to the next. An answer is
// excused where it is within what the reference itself answers when the series come to it in other
// orders.
func (h *exactHarness) explained(q exactQuestion, e parser.Expr, seen *exactSeen, got *exactReply, want *exactOutcome) string {
	ties, sums, zeros, free, orders := false, false, false, q.step > 0 || seen.mode() != "raw", exactOrders
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if _, ok := n.(*parser.SubqueryExpr); ok {
			free = true
		}
		if b, ok := n.(*parser.BinaryExpr); ok && b.Op.IsComparisonOperator() {
			orders = 64 // two sums that ought to be equal are so in some orders only
		}
		if a, ok := n.(*parser.AggregateExpr); ok {
			ties = ties || choosesTie(a.Op)
			if a.Op == parser.STDDEV || a.Op == parser.STDVAR {
				orders = 64 // what is left of numbers that are nearly equal is far apart
			}
			sums = sums || slices.Contains([]parser.ItemType{parser.SUM, parser.AVG, parser.STDDEV, parser.STDVAR}, a.Op)
			zeros = zeros || slices.Contains([]parser.ItemType{parser.QUANTILE, parser.MIN, parser.MAX}, a.Op)
		}
		return nil
	})
	if sums && seen.mode() != "raw" && h.cancelled(q, e, got, want) {
		return "cancellation after a sum"
	}
	// One instant, evaluated here: the order is that of the labels, and so is every sum.
	sums, zeros = sums && free, zeros && free && got.answer.unsigned().differ(want.answer.unsigned(), 0) == nil
	if !ties && !sums && !zeros {
		return ""
	}
	others, open := []*exactAnswer{want.answer}, false
	rng := rand.New(rand.NewPCG(h.w.seed, 17))
	shuffle := func(s []storage.Series) { rng.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] }) }
	for i := range orders {
		order := shuffle
		if i == 0 {
			order = slices.Reverse[[]storage.Series] // between two ties this is the other choice
		}
		other := h.ref.ask(h.t.Context(), q, *seen, order)
		switch {
		case other.err == nil:
			others = append(others, other.answer)
		case !ties: // what was chosen may have partners that what is chosen now has not
			return "" // an error that depends on the order: nothing that these expressions are known for
		default:
			open = true
		}
	}
	open = open || slices.ContainsFunc(others, func(o *exactAnswer) bool { return o.differ(want.answer, 0) != nil })
	switch {
	case ties && open && h.tied(q, e, seen, got.answer, others, shuffle):
		return "tie of topk, bottomk or limitk"
	case !ties && sums && got.answer.amid(others):
		return "order of a sum"
	case zeros && open:
		return "tie of two zeros"
	}
	return ""
}

// noted says in what the notes differ from the reference's, in any order of its series; empty where
// they do not.
func (h *exactHarness) noted(q exactQuestion, seen exactSeen, got *exactReply, want *exactOutcome) string {
	d := got.notes.differ(want.notes)
	if d == "" {
		return ""
	}
	rng := rand.New(rand.NewPCG(h.w.seed, 29))
	for range exactOrders {
		other := h.ref.ask(h.t.Context(), q, seen,
			func(s []storage.Series) { rng.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] }) })
		if other.err == nil && got.notes.differ(other.notes) == "" {
			return ""
		}
	}
	return d
}

// cancelled tells whether a difference comes from a sum of the shards' sums, within its 1e-12, that
// lost most of its digits afterwards, as in a difference of two of them: each sum alone is within
// 1e-12; evaluated raw, the answer is the reference's; and what differs is less than 1e-9 of the
// largest sum.
func (h *exactHarness) cancelled(q exactQuestion, e parser.Expr, got *exactReply, want *exactOutcome) bool {
	h.ref.seen()
	raw, err := h.proxy(q, "stats", "all") // a query whose statistics are asked for is evaluated raw
	seen := h.ref.seen()
	if err != nil || raw.answer == nil || len(seen.calls) > 0 {
		return false
	}
	same := h.ref.ask(h.t.Context(), q, seen, nil)
	if same.err != nil {
		return false
	}
	if d := raw.answer.differ(same.answer, 0); d != nil && (q.step == 0 || raw.answer.differ(same.answer, 1e-12) != nil) {
		return false
	}
	largest, parts, sound := 0.0, 0, true
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		a, ok := n.(*parser.AggregateExpr)
		if !ok || a.Op != parser.SUM && a.Op != parser.AVG || len(path) == 0 {
			return nil
		}
		part := q
		part.query = a.String()
		alone, err := h.proxy(part)
		want := h.ref.ask(h.t.Context(), part, h.ref.seen(), nil)
		if err != nil || alone.answer == nil || want.err != nil || alone.answer.differ(want.answer, 1e-12) != nil {
			sound = false
			return nil
		}
		parts++
		largest = max(largest, want.answer.largest())
		return nil
	})
	if parts == 0 || !sound {
		return false // nothing was done to the sums, or they are wrong themselves
	}
	return got.answer.near(want.answer, 1e-9*largest)
}

// minimise looks for a smaller question that fails too: a part of the expression, an instant of a
// range, the default lookback.
func (h *exactHarness) minimise(q exactQuestion, v exactVerdict) (exactQuestion, exactVerdict) {
	best, found := q, v
	try := func(c exactQuestion) bool {
		if e, err := exactParser.ParseExpr(c.query); err != nil || e.Type() == parser.ValueTypeString ||
			c.step > 0 && e.Type() == parser.ValueTypeMatrix {
			return false
		}
		if v := h.check(c); v.failed {
			best, found = c, v
			return true
		}
		return false
	}
	for range 30 {
		c := best
		if c.step > 0 {
			at := found.at
			if at == 0 {
				at = c.end.UnixMilli()
			}
			c.start, c.end, c.step = time.UnixMilli(at), time.UnixMilli(at), 0
			if try(c) {
				continue
			}
		}
		c = best
		if c.lookback != 0 {
			if c.lookback = 0; try(c) {
				continue
			}
		}
		smaller := false
		for _, part := range exactParts(best.query) {
			c = best
			c.query = part
			if smaller = try(c); smaller {
				break
			}
		}
		if !smaller {
			break
		}
	}
	return best, found
}

// exactParts are the parts of an expression that can stand alone, and the expression with one of
// its matchers or modifiers left out; the shortest first.
func exactParts(query string) []string {
	e, err := exactParser.ParseExpr(query)
	if err != nil {
		return nil
	}
	var out []string
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		if part, ok := n.(parser.Expr); ok && len(path) > 0 {
			if t := part.Type(); t == parser.ValueTypeVector || t == parser.ValueTypeScalar {
				if _, ok := path[len(path)-1].(*parser.MatrixSelector); !ok {
					out = append(out, part.String())
				}
			}
		}
		return nil
	})
	// Simplifications in place: each edit is printed and undone.
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			ms := n.LabelMatchers
			for i := range ms {
				if n.LabelMatchers = slices.Delete(slices.Clone(ms), i, i+1); ms[i].Name != "__name__" && len(ms) > 1 {
					out = append(out, e.String())
				}
			}
			n.LabelMatchers = ms
			if offset := n.OriginalOffset; offset != 0 {
				n.OriginalOffset = 0
				out = append(out, e.String())
				n.OriginalOffset = offset
			}
		case *parser.AggregateExpr:
			grouping := n.Grouping
			for i := range grouping {
				n.Grouping = slices.Delete(slices.Clone(grouping), i, i+1)
				out = append(out, e.String())
			}
			n.Grouping = grouping
		}
		return nil
	})
	out = slices.DeleteFunc(out, func(s string) bool { return len(s) >= len(e.String()) })
	slices.SortFunc(out, func(a, b string) int { return len(a) - len(b) })
	return slices.Compact(out)
}
