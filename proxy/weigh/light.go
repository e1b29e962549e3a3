package weigh

import (
	"slices"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/cost"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// Of queries that make little of each series, which are mostly asked without a number.

// light tells whether all leaves together make little of each series of a metric, if these are
// floats, or native histograms.
func (sc *Scale) light(p *plan.Plan, native bool) bool {
	var names []string
	for _, l := range p.Leaves {
		if l.Expr != nil {
			names = appendNames(names, l.Expr)
		}
	}
	if len(names) > maxLightNames {
		return false
	}
	most, n := sc.Light, int64(0)
	if native {
		most, n = max(most, lightNative), 1
	}
	for _, name := range names {
		one := int64(0)
		for _, l := range p.Leaves {
			if l.Expr != nil {
				one += cost.Held(l.Expr, sc.costGrid(l), func(vs *parser.VectorSelector) (int64, int64) {
					if nameOf(vs) == name {
						return 1, n
					}
					return 0, 0
				}, nil)
			}
		}
		if one > most {
			return false
		}
	}
	return true
}

// asFloats weighs loads as if all of their series were floats, by what is known, over so many of
// their steps at most, and returns what each shard would hold; alike is as for load.held. What is
// no bound weighs nothing for who is told of it, and as much as is known here.
func (sc *Scale) asFloats(loads []*load, steps int64, known numbers, alike cost.Alike) map[*shard.Shard]int64 {
	held := map[*shard.Shard]int64{}
	for _, l := range loads {
		part := *l
		part.grid.Steps = min(part.grid.Steps, steps)
		l.sure = true
		l.weight = part.held(func(r *read) (int64, int64) {
			n, sure := sc.atMost(r, known)
			l.sure = l.sure && sure
			return n, 0
		}, alike)
		held[l.part.Shard] += l.weight
		if !l.sure {
			l.weight = 0
		}
	}
	return held
}

// atMost is how many series a selector has, as far as it is known: by a count, or else at most, by
// what the shard says of itself and its metric's size. It is sure unless nobody tells, or not of
// the time that is read.
func (sc *Scale) atMost(r *read, known numbers) (n int64, sure bool) {
	t := sc.ofSelector(r)
	if n, ok := sc.known(t, known); ok {
		return n, true
	}
	tells := t.told && !t.old
	switch {
	case r.sized && tells:
		return min(r.size, t.most), true
	case r.sized:
		return r.size, true
	}
	return t.most, tells
}

// fit tells whether no shard would hold so much that series are to be counted.
func (sc *Scale) fit(held map[*shard.Shard]int64) bool {
	for _, n := range held {
		if n > sc.much() {
			return false
		}
	}
	return true
}

// sure tells whether the loads' weights are bounds.
func sure(loads []*load) bool {
	return !slices.ContainsFunc(loads, func(l *load) bool { return !l.sure })
}

// mute tells whether nobody will ever tell of those loads of whose weights nobody has.
func mute(loads []*load) bool {
	return !slices.ContainsFunc(loads, func(l *load) bool { return !l.sure && !l.part.Shard.Thanos() })
}
