package plan

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// Query is an expression to plan.
type Query struct {
	// Text is its source; it parses.
	Text string
	// Expr is Text parsed by tree.Parser, or nil. It is only read, so that whoever has it need not
	// parse it twice where shards answer the whole query.
	Expr parser.Expr
	// Grid is when it is evaluated, Range whether as a range query.
	Grid  merge.Grid
	Range bool
	// Windows are what each selector reads, in the order of the text.
	Windows []Window
	// Interval is the step of a subquery that has none.
	Interval time.Duration
	// Raw keeps everything but whole queries of one shard from running on shards, and is the reason
	// for that; empty keeps nothing.
	Raw string
	// Inexact tells that the reason is that the parts, as shards answered them, could not be put
	// together.
	Inexact bool
	// NoPass keeps whole queries of one shard here too.
	NoPass bool
	// Ordered keeps a whole query here of which one shard's answer would have its series in another
	// order than they have with the labels that are set on it.
	Ordered bool
	// Parcels allows parts for which no replica is whole to be evaluated here in parcels.
	Parcels bool
	// Heavy tells why a part of Expr must not run on shards, whatever they hold; empty where it
	// may. nil means that all of it may.
	Heavy func(parser.Expr) string
	// Constant tells that it selects no series.
	Constant bool
	// NoExplain leaves out what explain alone shows: Plan.Root, Leaf.Node and Part.Call.
	NoExplain bool
	// Avoid names replicas that failed this request, Lost shards that its answer goes without. Both
	// may be nil.
	Avoid func(*shard.Replica) bool
	Lost  func(*shard.Shard) bool
}

// Window is a stretch of time in milliseconds, both ends inclusive.
type Window struct{ From, Until int64 }

// planner plans one query.
type planner struct {
	v       *View
	ctx     context.Context
	q       Query
	root    parser.Expr
	delayed bool
	nodes   *nodes
	reads   []read // of its selectors, by where they stand
	beside  *Together
	shards  int // in the topology
	leaves  []*Leaf
	fetches bool
	cause   Cause        // the first that lies with the servers
	blamed  *shard.Shard // with which of them
	refused error
}

// frame is when a part of the query is evaluated.
type frame struct {
	grid merge.Grid
	rng  bool
	top  bool // as the whole query is: start(), end(), step() and range() mean the same

	strict bool      // see Leaf
	near   []float64 // likewise
	loose  bool      // likewise
}

// Query plans an expression. The error is that of the request's context.
func (v *View) Query(ctx context.Context, q Query) (*Plan, error) {
	if len(v.own) == 0 { // else it has to be looked at, whatever the topology
		if p := v.only(ctx, q); p != nil {
			return p, nil
		}
	}
	expr, err := q.Expr, error(nil)
	if expr == nil {
		if expr, err = q.parse(); err != nil {
			return nil, err
		}
	}
	if len(v.own) > 0 && callsInfo(expr) {
		q.Raw, q.NoPass = "info() reads series that the text does not show, and the tenant sees a part of what is stored", true
	}
	p := &planner{v: v, ctx: ctx, q: q, root: expr, delayed: v.top.DelayedNameRemoval(), nodes: newNodes()}
	if p.nodes.constant(expr) {
		if expr, err = q.own(expr); err != nil {
			return nil, err
		}
		return &Plan{Mode: ModeLocal, Expr: expr, Root: p.node(q.Text, "it selects no series and is evaluated here", nil)}, nil
	}
	p.look()
	f := frame{grid: q.Grid, rng: q.Range, top: true}
	leaf, why := p.leaf(expr, f, true)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if leaf != nil {
		return &Plan{
			Mode: leaf.Mode, Leaves: []*Leaf{leaf}, Whole: true, Raw: p.fetches, Cause: p.why(), Shard: p.whose(),
			Root: leaf.Node, Together: p.beside,
		}, nil
	}
	if expr, err = q.own(expr); err != nil {
		return nil, err
	}
	p.root = expr
	var nodes []*Node
	if q.Raw == "" {
		nodes = p.inside(&expr, f, why)
	} else {
		nodes = p.raw(expr, why)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	shown := why
	if len(p.leaves) > 0 {
		shown = "evaluated here, over the answers of its parts: " + why
	}
	return &Plan{
		Mode: ModeRaw, Why: why, Leaves: p.leaves, Raw: p.fetches, Cause: p.why(), Shard: p.whose(), Refused: p.refused,
		Expr: expr, Root: p.node(q.Text, shown, nodes), Together: p.beside,
	}, nil
}

func (q *Query) parse() (parser.Expr, error) {
	var known tree.Regexps
	known.KnowAll(q.Expr)
	expr, err := known.Parse(tree.Parser, q.Text)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return expr, nil
}

// own is the expression for an evaluation, which changes it, as do the leaves that are put into it:
// another tree where this one is the caller's.
func (q *Query) own(expr parser.Expr) (parser.Expr, error) {
	if q.Expr == nil {
		return expr, nil
	}
	return q.parse()
}

// node is what explain shows of a part that is evaluated here.
func (p *planner) node(expr, why string, children []*Node) *Node {
	if p.q.NoExplain {
		return nil
	}
	return &Node{Mode: ModeRaw, Expr: expr, Why: why, Children: children}
}

// only is the plan over a topology of one shard that owns no labels and has no end in time: nothing
// in the text can matter, so it is not even parsed. nil where it is not as simple as that.
func (v *View) only(ctx context.Context, q Query) *Plan {
	if q.Constant || q.NoPass || q.Heavy != nil || len(v.top.Groups) != 1 || len(v.top.Groups[0].Shards) != 1 {
		return nil
	}
	g, s := v.top.Groups[0], v.top.Groups[0].Shards[0]
	if from, until := s.Span(v.now); from != math.MinInt64 || until != math.MaxInt64 || ownsAny(g) || s.Thanos() || !g.Trusted() ||
		q.Lost != nil && q.Lost(s) {
		return nil
	}
	w := Window{math.MaxInt64, math.MinInt64}
	for _, own := range q.Windows {
		w.From, w.Until = min(w.From, own.From), max(w.Until, own.Until)
	}
	replicas, err := s.Wholes(ctx, w.From, w.Until, v.now)
	if err != nil || len(replicas) == 0 ||
		slices.ContainsFunc(replicas, func(r *shard.Replica) bool { return r.Differs() || q.Avoid != nil && q.Avoid(r) }) {
		return nil
	}
	leaf := &Leaf{Mode: ModePass, Expr: q.Expr, Grid: q.Grid, Range: q.Range, Streams: true}
	part := &Part{Shard: s, Replicas: replicas, Query: q.Text, From: w.From, Until: w.Until}
	leaf.Parts = []*Part{part}
	if !q.NoExplain {
		part.Call = &Call{Shard: s.Name(), Replica: replicas[0].Name(), Query: q.Text}
		leaf.Node = &Node{Mode: ModePass, Expr: q.Text, Why: reason(leaf) + short(s, len(replicas), w, v.now), Calls: []*Call{part.Call}}
	}
	return &Plan{Mode: ModePass, Leaves: []*Leaf{leaf}, Whole: true, Root: leaf.Node}
}
