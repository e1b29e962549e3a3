package plan

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan/raw"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// Mode is how a node of a query is answered.
type Mode string

// The modes that exist. Splice and push come with their own proofs.
const (
	// ModePass: one shard holds it all; its answer streams through.
	ModePass Mode = "pass"
	// ModeRaw: series are fetched and evaluated here.
	ModeRaw Mode = "raw"
	// ModeLocal: nothing is selected; evaluated here without a shard.
	ModeLocal Mode = "local"
)

// settle is how long after a shard's first millisecond its answers are not yet trusted alone: a window that ends earlier is read raw, so that samples from
// before the boundary take part.
const settle = 10 * time.Minute

// View is a topology as one request sees it: every relative time is fixed once.
type View struct {
	top *shard.Topology
	now time.Time
}

// NewView fixes the clock for one request.
func NewView(top *shard.Topology, now time.Time) *View { return &View{top: top, now: now} }

// Now is the request's time.
func (v *View) Now() time.Time { return v.now }

// Leg is a shard with the matchers to send it.
type Leg struct {
	Shard *shard.Shard
	// Matchers are the selector's without those on the group's labels; may be empty.
	Matchers []*labels.Matcher
	// From is the shard's first millisecond, Until the first one after it.
	From, Until int64
}

// Legs returns the shards that can hold series of the selector between from and until (milliseconds, inclusive), in the order of the configuration.
func (v *View) Legs(ms []*labels.Matcher, from, until int64) []Leg {
	var legs []Leg
	for _, g := range v.top.Groups {
		sent, ok := Strip(g, ms)
		if !ok {
			continue
		}
		for _, s := range g.Shards {
			f, u := s.Span(v.now)
			if f >= u || f > until || u != math.MaxInt64 && u <= from {
				continue
			}
			legs = append(legs, Leg{Shard: s, Matchers: sent, From: f, Until: u})
		}
	}
	return legs
}

// Plan is how one query is answered.
type Plan struct {
	// Mode is the road.
	Mode Mode
	// Why says in a few words why it is not pass; empty where it is.
	Why string
	// Shard and Replica are asked where Mode is pass.
	Shard   *shard.Shard
	Replica *shard.Replica
	// Query is the text to send them.
	Query string
	// Relabel is what their answer needs: the group's labels set, or none. nil is nothing.
	Relabel *merge.Relabel
}

// Query plans an expression. text is its source; from and until bound all samples that it can touch, in milliseconds, inclusive.
func (v *View) Query(ctx context.Context, expr parser.Expr, text string, selectors [][]*labels.Matcher, from, until int64) (*Plan, error) {
	if len(selectors) == 0 {
		return &Plan{Mode: ModeLocal}, nil
	}
	var only *Leg
	for _, ms := range selectors {
		for _, l := range v.Legs(ms, from, until) {
			if only != nil && only.Shard != l.Shard {
				return &Plan{Mode: ModeRaw, Why: "several shards can hold its series"}, nil
			}
			only = &l
		}
	}
	if only == nil {
		return &Plan{Mode: ModeRaw, Why: "no shard can hold its series"}, nil
	}
	g := only.Shard.Group
	// A selector that no shard of the group can answer selects nothing; sent without its matchers it would.
	for _, ms := range selectors {
		if _, ok := Strip(g, ms); !ok {
			return &Plan{Mode: ModeRaw, Why: "one of its selectors selects nothing in the group"}, nil
		}
	}
	if from < only.From || only.Until != math.MaxInt64 && until >= only.Until {
		return &Plan{Mode: ModeRaw, Why: "its window crosses the shard's own from or until"}, nil
	}
	if only.From != math.MinInt64 && until < only.From+settle.Milliseconds() {
		return &Plan{Mode: ModeRaw, Why: "its window ends less than 10 minutes after the shard's from"}, nil
	}
	owned := Owned(g)
	presence := groupPresence(expr, owned)
	if presence == mixed {
		return &Plan{Mode: ModeRaw, Why: "it uses the group's labels, which the shard does not store"}, nil
	}
	query, ok := rewrite(text, g)
	if !ok {
		return &Plan{Mode: ModeRaw, Why: "it cannot be written without the matchers on the group's labels"}, nil
	}
	r, whole, err := only.Shard.Whole(ctx, from, until, v.now)
	if err != nil {
		return nil, err
	}
	if !whole {
		return &Plan{Mode: ModeRaw, Why: "no replica of the shard is known to be whole over its window"}, nil
	}
	if !r.Clean() {
		return &Plan{Mode: ModeRaw, Why: "the shard stores labels with the names of the group's, or has not said yet whether it does"}, nil
	}
	p := &Plan{Mode: ModePass, Shard: only.Shard, Replica: r, Query: query}
	if presence == with && !g.Labels.IsEmpty() {
		p.Relabel = merge.NewRelabel(g.Labels.Map(), nil)
	}
	return p, nil
}

// Raw is the storage for evaluating here. lost decides about shards that do not answer (raw.Queryable.Lost); maxBytes bounds one replica's answer.
func (v *View) Raw(budget *merge.Budget, maxBytes int64, lost func(string, error) error) *raw.Queryable {
	return &raw.Queryable{
		Meter: budget,
		Lost:  lost,
		Legs: func(ctx context.Context, from, until int64, ms []*labels.Matcher) ([]raw.Leg, error) {
			legs := v.Legs(ms, from, until)
			out := make([]raw.Leg, 0, len(legs))
			for _, l := range legs {
				slice, err := v.slice(ctx, l, from, until, budget, maxBytes)
				if err != nil {
					if lost == nil {
						return nil, err
					}
					if err := lost(l.Shard.Name(), err); err != nil {
						return nil, err
					}
					continue
				}
				out = append(out, raw.Leg{Slice: slice, Matchers: l.Matchers})
			}
			return out, nil
		},
	}
}

// slice is the shard as raw reads it: its whole replica alone, else all that can be asked, the base first.
func (v *View) slice(ctx context.Context, l Leg, from, until int64, budget *merge.Budget, maxBytes int64) (*raw.Slice, error) {
	base, whole, err := l.Shard.Whole(ctx, max(from, l.From), min(until, l.Until), v.now)
	if err != nil {
		return nil, err
	}
	g := l.Shard.Group
	s := &raw.Slice{Name: l.Shard.Name(), Labels: g.Labels, Drop: Owned(g), From: l.From, Until: l.Until}
	well, err := l.Shard.Well()
	if err != nil {
		return nil, err
	}
	if whole {
		s.Copies = append(s.Copies, &replica{r: base, budget: budget, maxBytes: maxBytes, spare: len(well) > 1})
		for _, r := range well {
			if r != base {
				s.Spare = append(s.Spare, &replica{r: r, budget: budget, maxBytes: maxBytes})
			}
		}
		return s, nil
	}
	for _, r := range well {
		s.Copies = append(s.Copies, &replica{r: r, budget: budget, maxBytes: maxBytes, spare: len(well) > 1})
	}
	return s, nil
}
