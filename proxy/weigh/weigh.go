package weigh

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/answer"
	"github.com/spillwayproject/spillway/proxy/cost"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

const (
	// LightSeries is what a text may make a server hold for one series before these are counted: a
	// server holds about as much of each at rest, in its head and its index, and of a metric's
	// series only few of its own are such.
	LightSeries = 4 << 10
	// SomeBytes is what no server is harmed by, however little a query may make it hold: what makes
	// little of each series is not weighed up to there, and series are counted that take no more.
	SomeBytes = 64 << 20
	// lightNative is the same for a native histogram, with its chunks of samples.
	lightNative = 32 << 10
	// maxLightNames is how many metrics a text may read of which none makes much.
	maxLightNames = 8
	// wide is the part of max_shard_bytes up to which an upper bound says well enough how much of a
	// server a query is to have, and series are not counted for that alone.
	wide = 4
)

// Weight is what a shard's server would hold of a query.
type Weight struct {
	// Counted is by the series of its selectors, Uncounted by all of their metrics', so that it is
	// an upper bound, of a selector that few of these fit a high one. In bytes, to be added.
	Counted, Uncounted int64
}

// Scale weighs what a request asks.
type Scale struct {
	// MaxBytes is max_shard_bytes, MaxRange how far back a query may reach.
	MaxBytes int64
	MaxRange time.Duration
	// MaxListBytes is how long a list of series may be that is read in order to count them, in
	// bytes.
	MaxListBytes int64
	// Light is how many bytes a text may make a server hold for one series before these are
	// counted; LightSeries but for tests.
	Light int64
	// Interval is the step of a subquery that has none, Lookback how far back an evaluation looks
	// for a sample, Timeout how long the request may take.
	Interval, Lookback, Timeout time.Duration
	// LookbackDelta is how far back the request itself has it look; 0 is Lookback, with which
	// series are counted either way.
	LookbackDelta time.Duration
	// Now is the time of the request, in milliseconds.
	Now int64
	// Tenant is whose request it is: what is learned of its counts is for its estimates alone.
	Tenant string
	// Lane is in which lane's places its questions are asked.
	Lane   string
	hashes cost.Hashes // of what selectors ask for
	last   *plan.Plan  // whose loads were made last, and these
	loaded []*load
	// Known is what was found before, for all requests of a topology.
	Known *Known
	// Discreet tells that the caller is not to know what servers say of their metrics: others have
	// part in that.
	Discreet bool
	// Unlearned tells that no estimate is to learn of what is counted.
	Unlearned bool
	// Held is told what a server of a shard would hold of the query, or of each of its pieces where
	// there are several, by the best that Pieces found, where it looked; nil is nobody.
	Held func(s *shard.Shard, w Weight)
	// Patience is for how long from now on what others ask is waited for before GiveUp is asked;
	// nil is as long as the context lasts.
	Patience func() time.Duration
	// GiveUp is told of a shard whose numbers others have asked for and not got: the error with
	// which the request goes without it; nil where the request needs it, and waits on.
	GiveUp func(s *shard.Shard) error
	// Ask asks the questions, all at once, and calls found with the place of each and the largest
	// number in its answer as it comes, from any goroutine. An error is the request's, or a
	// server's refusal.
	Ask func(ctx context.Context, questions []Question, found func(i int, n int64)) error
}

// Known is what is known of a topology's shards, for all requests. Learned has to be set for
// Estimate alone.
type Known struct {
	// Sizes are those of metrics.
	Sizes *Sizes
	// Found is what was counted, and may be handed on to another topology: it is known by servers.
	*Found
	// Learned is what answers showed, of whatever topology.
	Learned *cost.Learned
}

// Found is what was counted of servers, whatever shards they are. The zero value is ready for use.
type Found struct {
	// Counts are numbers of series, Weights of bytes that shards hold for texts.
	Counts, Weights cost.Counts
}

// serversOf identifies a shard by its servers: its place is another one's after a reload.
func serversOf(s *shard.Shard) string { return cmp.Or(s.Key(), s.Name()) }

// Question is what one shard is asked in order to count.
type Question struct {
	// Part names the shard and its replicas.
	Part *plan.Part
	// Request is a query that gives numbers at the times of Grid, or lists series, of which the
	// number is how many there are, no more than its limit.
	Request *endpoint.Request
	Grid    merge.Grid
	// Holds is how many bytes the server is to hold for it at most, no more than a query may, and
	// Needs how many it is sure to; 0 is not known.
	Holds, Needs int64
}

// load is what one shard is asked for a leaf, and its selectors there.
type load struct {
	leaf  *plan.Leaf
	part  *plan.Part
	grid  cost.Grid
	reads []read
	// weight is what its shard would hold, by what is known; counted that this is of the series of
	// its selectors, not of all of their metrics', and sure that it is no less.
	weight        int64
	counted, sure bool
	values        cost.Values // of labels, in the time that is read
}

// read is a selector of the load.
func (l *load) read(vs *parser.VectorSelector) *read {
	for i := range l.reads {
		if l.reads[i].vs == vs {
			return &l.reads[i]
		}
	}
	return nil
}

// held is what a shard would hold for a load of so many series, and native histograms among them,
// of each selector; where alike is nil each chosen series may be another one at each step.
func (l *load) held(series func(*read) (int64, int64), alike cost.Alike) int64 {
	return cost.HeldBy(l.leaf.Expr, l.grid, func(vs *parser.VectorSelector) (int64, int64) {
		if r := l.read(vs); r != nil {
			return series(r)
		}
		return 0, 0
	}, alike, l.values)
}

// one is the least that a series of a join can meet.
func one(*parser.VectorSelector, cost.Labels) int64 { return 1 }

// Pieces is in how many pieces of time the query is to be asked, so that none of its servers holds
// more than max_shard_bytes at a time: 1 where it is asked as it is. The error is a refusal where
// no number of pieces is enough, or what kept the series from being counted.
func (sc *Scale) Pieces(ctx context.Context, q plan.Query, p *plan.Plan) (int, error) {
	if sc.weighedBefore(p) {
		return 1, nil
	}
	loads, known := sc.loads(q, p), numbers{}
	light := sc.light(p, false) && sc.fit(sc.asFloats(loads, math.MaxInt64, known, nil))
	if light && sc.light(p, true) {
		if sure(loads) {
			sc.tell(loads)
		}
		if mute(loads) {
			sc.remember(p, loads)
		}
		return 1, nil
	}
	if err := sc.countMetrics(ctx, loads, known); err != nil {
		return 1, err
	}
	native, many, err := sc.natives(ctx, loads, leastSteps(q), known)
	if err != nil {
		return 1, err
	}
	if light && !native && !many && sc.fit(sc.asFloats(loads, math.MaxInt64, known, nil)) {
		if sure(loads) {
			sc.tell(loads)
		}
		sc.remember(p, loads)
		return 1, nil
	}
	heavy, held, err := sc.beyond(ctx, sc.open(loads), known)
	if err != nil {
		return 1, err
	}
	if len(heavy) == 0 {
		if err := sc.narrow(ctx, loads, known); err != nil {
			return 1, err
		}
		sc.tell(loads)
		sc.remember(p, loads)
		return 1, nil
	}
	sc.tell(loads) // it may be asked all the same
	worst, most := heavy[0].part.Shard, int64(0)
	for s, n := range held {
		if n > most || n == most && s.Name() < worst.Name() {
			worst, most = s, n
		}
	}
	if q.Range {
		steps := int64(q.Grid.Len())
		for n := max(most/sc.MaxBytes, 2); n <= min(plan.MaxPieces, steps); n++ {
			if sc.fits(heavy, (steps+n-1)/n, known) {
				if !q.Divides(int(n)) {
					break
				}
				if native && givesNative(q, loads) {
					return 1, answer.ErrPieces
				}
				sc.tell(sc.cut(loads, (steps+n-1)/n, known))
				return int(n), nil
			}
		}
	}
	if q.Inexact && !q.NoPass { // this text came to be evaluated here before, for which no shard holds much
		return 1, &answer.Inexact{Why: q.Raw}
	}
	return 1, sc.tooMuch(q, worst, most, sc.uncounted(heavy, worst, known))
}

// leastSteps is of how many steps a piece of the query has to be at least.
func leastSteps(q plan.Query) int64 {
	steps := int64(q.Grid.Len())
	if n := min(plan.MaxPieces, steps); q.Range && n > 1 && q.Divides(int(n)) {
		return (steps + n - 1) / n
	}
	return steps
}

// uncounted tells whether one of the shard's selectors has more series than are listed.
func (sc *Scale) uncounted(loads []*load, s *shard.Shard, known numbers) bool {
	for _, l := range loads {
		for i := range l.reads {
			if l.part.Shard == s && sc.tooMany(sc.ofSelector(&l.reads[i]), known) {
				return true
			}
		}
	}
	return false
}

// weighedBefore tells whether all parts of the plan were weighed within the last ten minutes, and
// together at most half of what their shards may hold was found.
func (sc *Scale) weighedBefore(p *plan.Plan) bool {
	if len(p.Leaves) == 1 && len(p.Leaves[0].Parts) == 1 { // nearly always
		part := p.Leaves[0].Parts[0]
		n, ok := sc.Known.Weights.Known(sc.weightOf(p.Leaves[0], part))
		if ok = ok && max(n, -n) <= sc.MaxBytes/2; ok && n != 0 && sc.Held != nil {
			sc.Held(part.Shard, Weight{}.with(max(n, -n), n > 0))
		}
		return ok
	}
	held := map[*shard.Shard]Weight{}
	for _, l := range p.Leaves {
		for _, part := range l.Parts {
			n, ok := sc.Known.Weights.Known(sc.weightOf(l, part))
			if !ok || max(n, -n) > sc.MaxBytes/2/int64(len(p.Leaves)) {
				return false
			}
			held[part.Shard] = held[part.Shard].with(max(n, -n), n > 0)
		}
	}
	for s, w := range held {
		if w != (Weight{}) && sc.Held != nil { // nothing was not looked at
			sc.Held(s, w)
		}
	}
	return true
}

// remember is what the parts of a plan weigh, below zero where it was not counted; 0 is nothing
// that was looked at.
func (sc *Scale) remember(p *plan.Plan, loads []*load) {
	for _, l := range loads {
		n := max(l.weight, 1) // nothing is not looked at
		if !l.counted {
			n = -l.weight
		}
		sc.Known.Weights.Remember(sc.weightOf(l.leaf, l.part), n)
	}
	for _, l := range p.Leaves {
		for _, part := range l.Parts {
			sc.Known.Weights.Remember(sc.weightOf(l, part), 0)
		}
	}
}

// with is the weight with so much more.
func (w Weight) with(n int64, counted bool) Weight {
	if counted {
		w.Counted += n
	} else {
		w.Uncounted += n
	}
	return w
}

// tell tells what the loads weigh, all of a shard together.
func (sc *Scale) tell(loads []*load) {
	if sc.Held == nil {
		return
	}
	held := map[*shard.Shard]Weight{}
	for _, l := range loads {
		held[l.part.Shard] = held[l.part.Shard].with(l.weight, l.counted)
	}
	for s, w := range held {
		sc.Held(s, w)
	}
}

func (sc *Scale) weightOf(l *plan.Leaf, part *plan.Part) cost.Key {
	return cost.WeightKey(serversOf(part.Shard), part.Query, sc.costGrid(l), min(l.Grid.End, sc.Now))
}

// refused tells whether a server would not answer, whatever the time.
func refused(err error) bool {
	k := qerr.From(err).Kind
	return k == qerr.BadData || k == qerr.TooExpensive
}

func (sc *Scale) costGrid(l *plan.Leaf) cost.Grid {
	return cost.Grid{
		Steps: int64(l.Grid.Len()), Step: l.Grid.Step, Interval: sc.Interval.Milliseconds(),
		Lookback: cmp.Or(sc.LookbackDelta, sc.Lookback).Milliseconds(),
	}
}

// loads are the leaves' parts. Those of one plan are made once.
func (sc *Scale) loads(q plan.Query, p *plan.Plan) []*load {
	if sc.last == p {
		return sc.loaded
	}
	var out []*load
	for _, l := range p.Leaves {
		for _, part := range l.Parts {
			if l.Expr != nil {
				ld := &load{leaf: l, part: part, grid: sc.costGrid(l), reads: sc.reads(q, l, part)}
				if since := sc.Known.Sizes.Since(part.Shard); !slices.ContainsFunc(ld.reads, func(r read) bool { return r.from < since }) {
					ld.values = func(label string) (int64, bool) { return sc.Known.Sizes.values(part.Shard, label) }
				}
				out = append(out, ld)
			}
		}
	}
	sc.last, sc.loaded = p, out
	return out
}

// open returns those of the loads of whose shards the sizes of metrics do not show that all of them
// together are little enough.
func (sc *Scale) open(loads []*load) (open []*load) {
	held, unknown := map[*shard.Shard]int64{}, map[*shard.Shard]bool{}
	for _, l := range loads {
		s := l.part.Shard
		l.weight = l.held(func(r *read) (int64, int64) {
			unknown[s] = unknown[s] || !r.sized
			return r.size, r.native
		}, nil)
		held[s] += l.weight
	}
	for _, l := range loads {
		if s := l.part.Shard; unknown[s] || held[s] > sc.MaxBytes {
			open = append(open, l)
		}
	}
	return open
}

// beyond counts the series of the loads' selectors, which it adds to the numbers, and returns those
// of the loads whose shards would hold too much, and how much each shard would.
func (sc *Scale) beyond(ctx context.Context, loads []*load, known numbers) ([]*load, map[*shard.Shard]int64, error) {
	var unknown []selected
	sum := func() map[*shard.Shard]int64 {
		unknown = nil
		held := map[*shard.Shard]int64{}
		for _, l := range loads {
			l.weight, l.counted = sc.held(l, l.grid, known, &unknown), true
			held[l.part.Shard] += l.weight
		}
		return held
	}
	held := sum()
	for range 2 { // the series, and then what is asked of them
		ask := sc.askable(unknown, known)
		if len(ask) == 0 {
			break
		}
		found, err := sc.count(ctx, ask)
		if err != nil {
			return nil, nil, err
		}
		maps.Copy(known, found)
		held = sum()
		sc.learn(loads, known)
	}
	var heavy []*load
	for _, l := range loads {
		if held[l.part.Shard] > sc.MaxBytes {
			heavy = append(heavy, l)
		}
	}
	return heavy, held, nil
}

// narrow counts the series of the selectors of those loads of which an upper bound alone is known,
// where it is much: their shards would not hold too much, but who selects few series of a large
// metric would be taken for one who selects all of them. Where a server will not count, the bound
// stays.
func (sc *Scale) narrow(ctx context.Context, loads []*load, known numbers) error {
	if sc.Held == nil {
		return nil
	}
	most := map[*shard.Shard]int64{}
	for _, l := range loads {
		if !l.counted {
			most[l.part.Shard] += l.weight
		}
	}
	loads = slices.DeleteFunc(slices.Clone(loads), func(l *load) bool { return l.counted || most[l.part.Shard] <= sc.MaxBytes/wide })
	var unknown []selected
	for _, l := range loads {
		sc.held(l, l.grid, known, &unknown)
	}
	if err := sc.countRefusable(ctx, sc.askable(unknown, known), known); err != nil && ctx.Err() != nil {
		return err // any other is no reason to fail: the bound stays
	}
	for _, l := range loads {
		unknown = unknown[:0]
		if n := sc.held(l, l.grid, known, &unknown); len(unknown) == 0 {
			l.weight, l.counted = n, true
		}
	}
	sc.learn(loads, known)
	return nil
}

// askable are those of what is not known that may be asked for: not what is made of series of which
// there may be too many for a query.
func (sc *Scale) askable(unknown []selected, known numbers) []selected {
	return slices.DeleteFunc(slices.Clone(unknown), func(t selected) bool {
		if t.of == nil {
			return false
		}
		return sc.mostOf(t, known) > sc.much()/t.each
	})
}

// mostOf is how many series there are at most of which something else is to be counted.
func (sc *Scale) mostOf(t selected, known numbers) int64 {
	if n, ok := sc.known(*t.of, known); ok {
		return n
	}
	return t.of.most
}

// learn notes how many series the selectors of leaves have whose parts were all counted.
func (sc *Scale) learn(loads []*load, known numbers) {
	if sc.Known.Learned == nil || sc.Unlearned {
		return
	}
	type of struct {
		leaf *plan.Leaf
		vs   *parser.VectorSelector
	}
	series, parts := map[of]int64{}, map[of]int{}
	for _, l := range loads {
		for i := range l.reads {
			if n, ok := sc.exactly(sc.ofSelector(&l.reads[i]), known); ok {
				series[of{l.leaf, l.reads[i].vs}] += n
				parts[of{l.leaf, l.reads[i].vs}]++
			}
		}
	}
	for s, n := range series {
		if ms := s.vs.LabelMatchers; parts[s] == len(s.leaf.Parts) {
			exact, shape := cost.PrintOfSelector(sc.Tenant, ms, false), cost.PrintOfSelector(sc.Tenant, ms, true)
			sc.Known.learnSelected(exact, shape, n, time.UnixMilli(sc.Now))
		}
	}
}

// held is what a shard would hold for a load over the grid, what is not known left out and added to
// unknown.
func (sc *Scale) held(l *load, grid cost.Grid, known numbers, unknown *[]selected) int64 {
	number := func(t selected) int64 {
		n, ok := sc.known(t, known)
		if !ok && unknown != nil {
			*unknown = append(*unknown, t)
		}
		if !ok && t.of != nil {
			return sc.mostOf(t, known)
		}
		return n
	}
	return cost.HeldBy(l.leaf.Expr, grid, func(vs *parser.VectorSelector) (int64, int64) {
		if r := l.read(vs); r != nil {
			return number(sc.ofSelector(r)), r.native
		}
		return 0, 0
	}, func(vs *parser.VectorSelector, by cost.Labels) int64 {
		if r := l.read(vs); r != nil {
			return number(sc.alikeOf(r, by))
		}
		return 1
	}, l.values)
}

// cut is the loads over so many of their steps, weighed by what is known of them.
func (sc *Scale) cut(loads []*load, steps int64, known numbers) []*load {
	out := make([]*load, len(loads))
	for i, l := range loads {
		piece := *l
		piece.grid.Steps = min(piece.grid.Steps, steps)
		if l.counted {
			piece.weight = sc.held(&piece, piece.grid, known, nil)
		} else {
			piece.weight = piece.held(func(r *read) (int64, int64) { return r.size, r.native }, nil)
		}
		out[i] = &piece
	}
	return out
}

// fits tells whether no shard of the loads would hold too much over so many of their steps.
func (sc *Scale) fits(loads []*load, steps int64, known numbers) bool {
	held := map[*shard.Shard]int64{}
	for _, l := range loads {
		grid := l.grid
		grid.Steps = min(grid.Steps, steps)
		held[l.part.Shard] += sc.held(l, grid, known, nil)
	}
	for _, n := range held {
		if n > sc.MaxBytes {
			return false
		}
	}
	return true
}

// tooMuch refuses what would make a server hold too much. Where its series are too many to be
// counted, they may be fewer.
func (sc *Scale) tooMuch(q plan.Query, s *shard.Shard, held int64, uncounted bool) error {
	steps, advice := "", "select fewer series, "
	if hasSubquery(q.Expr) {
		advice += "give the subquery a shorter range or a longer step, "
	}
	if q.Range {
		steps = fmt.Sprintf(" at %d steps", q.Grid.Len())
		advice += "shorten the range or widen the step, "
	}
	advice += "or record a part of the query"
	basis, about := "as estimated from the series that it selects there", "about "
	if uncounted {
		basis, about = fmt.Sprintf("as estimated from what the server says of its metrics, since the series are more than the %d that are counted", sc.listed()), "up to "
	}
	limit := admit.FormatBytes(sc.MaxBytes)
	if uncounted && sc.Discreet {
		return qerr.Refuse(policy.BoundMaxShardBytes, limit, "more than that", advice,
			"evaluating this%s could make a server of shard %s hold more at once than the %s that max_shard_bytes allows: its series are more than the %d that are counted",
			steps, s.Name(), limit, sc.listed())
	}
	return qerr.Refuse(policy.BoundMaxShardBytes, limit, about+admit.FormatBytes(held), advice,
		"evaluating this%s would make a server of shard %s hold %s%s at once, %s, and max_shard_bytes allows %s",
		steps, s.Name(), about, admit.FormatBytes(held), basis, limit)
}

// hasSubquery tells whether an expression has a subquery.
func hasSubquery(n parser.Node) bool {
	if _, ok := n.(*parser.SubqueryExpr); ok {
		return true
	}
	for child := range parser.ChildrenIter(n) {
		if hasSubquery(child) {
			return true
		}
	}
	return false
}
