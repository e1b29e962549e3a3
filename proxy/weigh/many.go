package weigh

import (
	"fmt"

	"github.com/spillwayproject/spillway/proxy/cost"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
)

// Of selectors that may have more series than can be counted: how many there are at most, and the
// lists that are asked for in place of their number.

// many is the key for how many series were listed. What is one more than so many, or too long a
// list, may be any number, so that it is for those alone who list as many.
func (sc *Scale) many(t selected) cost.Key {
	what := fmt.Sprint("listed ", sc.listed(), sc.MaxListBytes)
	return cost.KeyOf(t.part.Shard.Identity(), what, plan.Selector(t.matchers), t.from, t.until)
}

// bounded is the selected with what the shard says of itself.
func (sc *Scale) bounded(t selected) selected {
	sent, ok := plan.Strip(t.part.Shard.Group, t.matchers) // no server knows of its group's labels
	if t.told = true; ok {
		t.most, t.told = sc.Known.Sizes.Selects(t.part.Shard, sent, &sc.hashes)
	}
	t.dear = t.told && t.most > sc.much()/t.each
	return t
}

// much is what may be held of a server to count series, or where little is made of each.
func (sc *Scale) much() int64 { return max(sc.MaxBytes, SomeBytes) }

// listed is up to how many series are listed.
func (sc *Scale) listed() int { return int(min(maxListed, sc.much()/(listBytes+blockBytes))) }

// holds is what a server is to hold to answer a question about series, no more than a query may: of
// those that were counted, and of all of a metric; of a selector that few may fit, or of which
// nobody tells and that names no metric, half of that at most. It is sure that it needs that of
// those that were counted.
func (sc *Scale) holds(t selected) (held int64, sure bool) {
	of, each := &t, t.each
	if t.of != nil {
		of = t.of
	}
	n, sure := sc.exactly(*of, nil)
	switch {
	case sure:
		return min(n*each, sc.much()), true
	case of.told && len(of.matchers) == 1:
		return min(of.most*each, sc.much()), false
	case of.told:
		return min(of.most*each, sc.much()/2), false
	case nameless(of.matchers):
		return sc.much() / 2, false
	}
	return 0, false
}

// listRequest asks for the series themselves, one more than are counted, that have a sample within
// the grid or in the time before.
func (sc *Scale) listRequest(t selected, grid merge.Grid) *endpoint.Request {
	sent, _ := plan.Strip(t.part.Shard.Group, t.matchers)
	return &endpoint.Request{
		ID: endpoint.Series, Match: []string{plan.Selector(plan.Filled(sent))}, Limit: sc.listed() + 1, Timeout: sc.Timeout,
		Start: endpoint.At(max(grid.Start-max(sc.Lookback, countLookback).Milliseconds(), 0)), End: endpoint.At(grid.End),
	}
}

// tooMany tells whether there are more series than are listed.
func (sc *Scale) tooMany(t selected, known numbers) bool {
	if !t.dear {
		return false
	}
	n, ok := sc.found(sc.many(t), known)
	return ok && n > int64(sc.listed())
}
