package plan

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"
)

// read is what a selector reads: when, and from which shards.
type read struct {
	at     posrange.Pos
	nth    int // as Query.Windows counts
	window Window
	legs   []Leg
}

// look finds out what the selectors read.
func (p *planner) look() {
	for _, g := range p.v.top.Groups {
		p.shards += len(g.Shards)
	}
	selectors(p.root, func(vs *parser.VectorSelector) {
		w := Window{math.MinInt64, math.MaxInt64}
		if i := len(p.reads); i < len(p.q.Windows) {
			w = p.q.Windows[i]
		}
		legs := p.v.Legs(vs.LabelMatchers, w.From, w.Until)
		if p.q.Lost != nil {
			legs = slices.DeleteFunc(legs, func(l Leg) bool { return p.q.Lost(l.Shard) })
		}
		p.reads = append(p.reads, read{vs.PosRange.Start, len(p.reads), w, legs})
	})
	slices.SortFunc(p.reads, func(a, b read) int { return int(a.at - b.at) })
	// info() reads series of its own, and parcels read the same selector many times.
	if len(p.reads) > 1 || callsInfo(p.root) || p.q.Parcels {
		p.beside = &Together{now: p.v.now, reads: p.reads}
	}
}

// read is what the selector reads.
func (p *planner) read(vs *parser.VectorSelector) read {
	i, ok := slices.BinarySearchFunc(p.reads, vs.PosRange.Start, func(r read, at posrange.Pos) int { return int(r.at - at) })
	if !ok {
		return read{}
	}
	return p.reads[i]
}

// reach is which shards an expression's selectors can have series on, the window that they read
// together, and whether it calls info().
func (p *planner) reach(e parser.Expr) (legs []Leg, w Window, info bool) {
	w = Window{math.MaxInt64, math.MinInt64}
	selectors(e, func(vs *parser.VectorSelector) {
		own := p.read(vs)
		w.From, w.Until = min(w.From, own.window.From), max(w.Until, own.window.Until)
		if len(legs) == 0 {
			legs = slices.Clip(own.legs)
			return
		}
		for _, l := range own.legs {
			switch i := slices.IndexFunc(legs, func(o Leg) bool { return o.Shard == l.Shard }); {
			case i < 0:
				legs = append(legs, l)
			case legs[i].Alone && !l.Alone: // it is asked for other metrics, too
				legs = slices.Clone(legs) // they are the selector's
				legs[i].Alone = false
			}
		}
	})
	return legs, w, callsInfo(e)
}

// callsInfo tells whether an expression calls info().
func callsInfo(n parser.Node) bool {
	if c, ok := n.(*parser.Call); ok && c.Func.Name == "info" {
		return true
	}
	for child := range parser.ChildrenIter(n) {
		if callsInfo(child) {
			return true
		}
	}
	return false
}
