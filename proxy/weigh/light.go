package weigh

import (
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

// crowded weighs loads of which little is made of each series by what shards say of themselves, and
// tells whether that is too much all the same; whether all have told, of the time that is read; and
// whether those that have not never will. What nobody tells of weighs nothing.
func (sc *Scale) crowded(loads []*load) (crowded, told, mute bool) {
	held := map[*shard.Shard]int64{}
	told, mute = true, true
	for _, l := range loads {
		s, whole := l.part.Shard, true
		l.weight = l.held(func(r *read) (int64, int64) {
			t := sc.ofSelector(r)
			whole = whole && t.told && !t.old
			return t.most, 0
		})
		held[s] += l.weight
		crowded = crowded || held[s] > sc.much()
		if !whole {
			l.weight, told, mute = 0, false, mute && s.Thanos()
		}
	}
	return crowded, told, mute
}

// fitAsSized weighs loads by how many series their metrics have, and tells whether no shard would
// hold too much of them, as far as the numbers are known, and whether all are.
func (sc *Scale) fitAsSized(loads []*load) (fits, sized bool) {
	held := map[*shard.Shard]int64{}
	fits, sized = true, true
	for _, l := range loads {
		whole := true
		l.weight = l.held(func(r *read) (int64, int64) {
			t := sc.ofSelector(r)
			tells := t.told && !t.old
			whole = whole && (r.sized || tells)
			switch {
			case r.sized && tells:
				return min(r.size, t.most), 0
			case r.sized:
				return r.size, 0
			}
			return t.most, 0
		})
		if !whole {
			l.weight, sized = 0, false
		}
		held[l.part.Shard] += l.weight
		fits = fits && held[l.part.Shard] <= sc.much()
	}
	return fits, sized
}
