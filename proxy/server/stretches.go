package server

import (
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/spillwayproject/spillway/proxy/answer"
	"github.com/spillwayproject/spillway/proxy/evaluation"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
)

// planStretches is what the metric of plans calls a range query that is answered in stretches.
const planStretches = "stretches"

// stretches answers a range query piece by piece, each a query of its own over some of the steps:
// what one replica of each shard holds whole is asked of it, and only what lies between is read and
// spliced; or as much as a server may hold at a time. heavy is what each piece weighs, nil where
// this was not looked at yet; why says for explain why it is done.
func (x *exchange) stretches(whole plan.Query, of []plan.Query, heavy weights, why string) (err error) {
	pieces, err := x.planPieces(of, heavy)
	if err != nil {
		return err
	}
	var root *plan.Node
	if x.account != nil {
		root = &plan.Node{Mode: plan.ModeRaw, Expr: whole.Text, Why: why}
		for _, p := range pieces {
			if p.plan.Root != nil {
				n := *p.plan.Root
				n.Why = fmt.Sprintf("steps from %s to %s: %s", clock(p.grid.Start), clock(p.grid.End), n.Why)
				root.Children = append(root.Children, &n)
			}
		}
	}
	if told, err := x.tell(root, nil); told || err != nil {
		return err
	}
	cause := plan.CauseNone
	if i := slices.IndexFunc(pieces, func(p stretch) bool { return p.plan.Raw }); i >= 0 {
		cause = pieces[i].plan.Cause
		x.blame(pieces[i].plan)
	}
	x.s.metrics.plans.WithLabelValues(planStretches, string(cause)).Inc()
	tables := make([]*merge.Table, 0, len(pieces))
	defer func() {
		for _, t := range tables {
			t.Close()
		}
	}()
	for _, p := range pieces {
		if x.s.observeSteps != nil {
			x.s.observeSteps(p.grid, true)
		}
		before := x.budget.Series()
		x.heavy = p.heavy
		t, err := x.piece(p.plan, p.grid)
		if err != nil {
			return err
		}
		tables = append(tables, t)
		x.budget.DropSeries(x.budget.Series() - before)
	}
	joined, err := merge.Follow(whole.Grid, tables, x.budget)
	if err != nil {
		return err
	}
	defer joined.Close()
	if joined.Histograms {
		return answer.ErrPieces
	}
	if err := x.budget.AddSeries(len(joined.Series)); err != nil {
		return err
	}
	return x.encodeTable(joined, true)
}

// stretch is a piece of a range query: its plan, its steps, and what it weighs.
type stretch struct {
	plan  *plan.Plan
	grid  merge.Grid
	heavy weights
}

// planPieces plans pieces of a range query, each of which weighs that; without it they are weighed,
// and those divided further that would make a server hold too much.
func (x *exchange) planPieces(pieces []plan.Query, heavy weights) (out []stretch, err error) {
	for _, q := range pieces {
		p, err := x.plan(q)
		if err != nil {
			return nil, err
		}
		if p.Refused != nil {
			return nil, p.Refused
		}
		own := heavy
		if own == nil {
			n := 1
			if n, own, err = x.pieces(q, p); err != nil {
				return nil, err
			}
			if n > 1 {
				more, err := x.planPieces(q.Divide(n), own)
				if err != nil {
					return nil, err
				}
				out = append(out, more...)
				continue
			}
		}
		out = append(out, stretch{p, q.Grid, own})
	}
	return out, nil
}

// clock is a step's time as explain writes it.
func clock(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

// piece is the answer to the steps of a grid.
func (x *exchange) piece(p *plan.Plan, grid merge.Grid) (t *merge.Table, err error) {
	var tables []*merge.Table
	var rough []int
	if len(p.Leaves) > 0 {
		if err := x.guard(p.Leaves); err != nil {
			return nil, err
		}
		if tables, rough, err = x.tables(p); err != nil {
			return nil, x.tooMany(p, err)
		}
	}
	if p.Whole {
		return tables[0], nil
	}
	defer func() {
		for _, t := range tables {
			t.Close()
		}
	}()
	if p.Mode == plan.ModeRaw {
		x.rawHere, x.rawCause = p.Why, p.Cause
	}
	err = x.compute(computation{plan: p, grid: grid, tables: tables, rough: rough},
		func(res *promql.Result, _ promql.Query, _ *evaluation.Turn) error {
			m, err := res.Matrix()
			if err != nil {
				return err
			}
			if err := x.budget.AddSamples(int64(m.TotalSamples())); err != nil {
				return err
			}
			t, err = merge.TableOf(m, grid, x.budget)
			return err
		})
	return t, err
}
