package server

import (
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
)

// making charges an evaluation for the labels that it makes and the regular expressions that it
// runs, of which policy said how much that is for each series, once it is known how many series
// there are. It is done before the engine has any of them, since the engine cannot be stopped
// there.
type making struct {
	hold func(int64) error

	mu  sync.Mutex
	sum policy.Making
	by  map[string]policy.Made // of selectors that were not read yet
}

// making returns the charges for what is evaluated here, those for the leaves' answers made
// already; nil where nothing is made.
func (x *exchange) making(p *plan.Plan, tables []*merge.Table, hold func(int64) error) (*making, error) {
	if len(x.dec.Made) == 0 {
		return nil, nil
	}
	m := &making{hold: hold, by: map[string]policy.Made{}}
	for i, ms := range x.dec.Selectors { // the engine names selectors by their matchers alone
		key := plan.Selector(ms)
		m.by[key] = m.by[key].Plus(x.dec.Made[i])
	}
	for i, t := range tables {
		var all policy.Made // wherever the leaf stands
		for _, use := range p.Leaves[i].Uses {
			var most policy.Made // each series of the answer stems from those of one selector
			for _, nth := range use {
				most = most.Or(x.dec.Made[nth])
			}
			all = all.Plus(most)
		}
		n := 0
		for j := range t.Series {
			t.Series[j].Labels.Range(func(l labels.Label) { n = max(n, len(l.Value)) })
		}
		if err := m.add(all, len(t.Series), n); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// judge charges what is made of the series of one selector; those who read it again read the same.
func (m *making) judge(ms []*labels.Matcher, n, longest int) error {
	key := plan.Selector(ms)
	m.mu.Lock()
	defer m.mu.Unlock()
	made := m.by[key]
	delete(m.by, key)
	return m.add(made, n, longest)
}

func (m *making) add(made policy.Made, n, longest int) error {
	if made == (policy.Made{}) {
		return nil
	}
	bytes, err := m.sum.Add(made, n, longest)
	if err != nil {
		return err
	}
	return m.hold(bytes)
}

// madeSeries charges an evaluation for each series that is about to be made at its steps.
func (x *exchange) madeSeries(hold func(int64) error) func(parser.Expr, policy.Row) error {
	var sum policy.MadeSeries
	return func(of parser.Expr, row policy.Row) error {
		bytes, err := sum.Add(of, row, x.req.Query)
		if err != nil {
			return err
		}
		return hold(bytes)
	}
}
