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
// spliced; or as much as a server may hold at a time. weigh tells that this was not looked at yet,
// why says for explain why it is done.
func (x *exchange) stretches(whole plan.Query, pieces []plan.Query, weigh bool, why string) (err error) {
	pieces, plans, err := x.planPieces(pieces, weigh)
	if err != nil {
		return err
	}
	var root *plan.Node
	if x.account != nil {
		root = &plan.Node{Mode: plan.ModeRaw, Expr: whole.Text, Why: why}
		for i, p := range plans {
			if p.Root != nil {
				n := *p.Root
				n.Why = fmt.Sprintf("steps from %s to %s: %s", clock(pieces[i].Grid.Start), clock(pieces[i].Grid.End), n.Why)
				root.Children = append(root.Children, &n)
			}
		}
	}
	if told, err := x.tell(root, nil); told || err != nil {
		return err
	}
	cause := plan.CauseNone
	if i := slices.IndexFunc(plans, func(p *plan.Plan) bool { return p.Raw }); i >= 0 {
		cause = plan.CauseNotWhole
		x.blame(plans[i])
	}
	x.s.metrics.plans.WithLabelValues(planStretches, string(cause)).Inc()
	tables := make([]*merge.Table, 0, len(pieces))
	defer func() {
		for _, t := range tables {
			t.Close()
		}
	}()
	for i, p := range plans {
		if x.s.observeSteps != nil {
			x.s.observeSteps(pieces[i].Grid, true)
		}
		before := x.budget.Series()
		t, err := x.piece(p, pieces[i].Grid)
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

// planPieces plans pieces of a range query, and divides those further, where they are to be
// weighed, that would make a server hold too much.
func (x *exchange) planPieces(pieces []plan.Query, weigh bool) (out []plan.Query, plans []*plan.Plan, err error) {
	for _, q := range pieces {
		p, err := x.plan(q)
		if err != nil {
			return nil, nil, err
		}
		if p.Refused != nil {
			return nil, nil, p.Refused
		}
		if n := 1; weigh {
			if n, err = x.pieces(q, p); err != nil {
				return nil, nil, err
			}
			if n > 1 {
				more, ps, err := x.planPieces(q.Divide(n), false)
				if err != nil {
					return nil, nil, err
				}
				out, plans = append(out, more...), append(plans, ps...)
				continue
			}
		}
		out, plans = append(out, q), append(plans, p)
	}
	return out, plans, nil
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
