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

// errHistograms marks an answer whose pieces cannot be joined as tables.
var errHistograms = &answer.Inexact{Why: "native histograms are not joined over stretches of time"}

// stretches answers a range query piece by piece, each a query of its own over some of the steps:
// what one replica of each shard holds whole is asked of it, and only what lies between is read and
// spliced.
func (x *exchange) stretches(whole plan.Query, pieces []plan.Query) (err error) {
	plans := make([]*plan.Plan, len(pieces))
	var root *plan.Node
	if x.account != nil {
		root = &plan.Node{Mode: plan.ModeRaw, Expr: whole.Text, Why: "no replica of some shard is whole over all steps; they are answered in stretches"}
	}
	for i, q := range pieces {
		if plans[i], err = x.plan(q); err != nil {
			return err
		}
		if plans[i].Refused != nil {
			return plans[i].Refused
		}
		if root != nil && plans[i].Root != nil {
			n := *plans[i].Root
			n.Why = fmt.Sprintf("steps from %s to %s: %s", clock(q.Grid.Start), clock(q.Grid.End), n.Why)
			root.Children = append(root.Children, &n)
		}
	}
	if told, err := x.tell(root, nil); told || err != nil {
		return err
	}
	cause := plan.CauseNone
	if i := slices.IndexFunc(plans, func(p *plan.Plan) bool { return p.Raw }); i >= 0 {
		cause = plan.CauseNotWhole
		x.s.metrics.blame(plans[i])
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
		return errHistograms
	}
	if err := x.budget.AddSeries(len(joined.Series)); err != nil {
		return err
	}
	return x.encodeTable(joined, true)
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
			return nil, err
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
	err = x.compute(p, grid, tables, rough, func(res *promql.Result, _ promql.Query, _ *evaluation.Turn) error {
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
