package server

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/cost"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// What shards are asked is weighed before they are: what it makes each of them hold is a function
// of the text, of its steps, and of how many series its selectors have there (proxy/cost). What a
// server says of its metrics' sizes, which is asked for once in ten minutes, mostly shows that it
// is not too much. Where it shows too much, the series of the selectors are counted, which is no
// more than the query itself does first. Where it is not known, since the server has no head or the
// window is older, all series of the metric are counted, once for all who ask about it: that takes
// a sixth of what the server holds of them at rest.

const (
	// lightSeries is what a text may make a server hold for one series before these are counted: a
	// server holds about as much of each at rest, in its head and its index, and of a metric's
	// series only few of its own are such.
	lightSeries = 4 << 10
	// maxLightNames is how many metrics a text may read of which none makes much.
	maxLightNames = 8
	// countMoments is at how many moments of a window series are counted, its ends among them.
	countMoments = 5
	// recentWindow is how far back a window may begin for the sizes of metrics to be taken for
	// those of then: a server tells those of its newest hours.
	recentWindow = 24 * time.Hour
)

// load is what one shard is asked for a leaf.
type load struct {
	leaf *plan.Leaf
	part *plan.Part
	grid cost.Grid
}

// selected is a selector whose series are to be counted on a shard.
type selected struct {
	key      cost.Key
	part     *plan.Part
	matchers []*labels.Matcher
}

// pieces is in how many pieces of time the query is to be asked, so that none of its servers holds
// more than max_shard_bytes at a time: 1 where it is asked as it is. The error is a refusal where
// no number of pieces is enough, or what kept the series from being counted.
func (x *exchange) pieces(q plan.Query, p *plan.Plan) (int, error) {
	if n := min(x.s.divide, q.Grid.Len()); n > 1 && q.Divide(n) != nil {
		return n, nil
	}
	heavy, unknown := x.open(x.loads(p))
	if len(unknown) > 0 {
		more, _, err := x.beyond(unknown, false, nil)
		switch {
		case err == nil:
		case refused(err): // a metric may be too large for a server to count where the selector is not
			more = unknown
		default:
			return 1, err
		}
		heavy = append(heavy, more...)
	}
	numbers := map[cost.Key]int64{}
	heavy, held, err := x.beyond(heavy, true, numbers)
	if err != nil || len(heavy) == 0 {
		return 1, err
	}
	worst, most := heavy[0].part.Shard, int64(0)
	for s, n := range held {
		if n > most || n == most && s.Name() < worst.Name() {
			worst, most = s, n
		}
	}
	if q.Range {
		steps := int64(q.Grid.Len())
		for n := max(most/x.limits.MaxShardBytes, 2); n <= min(plan.MaxPieces, steps); n++ {
			if x.fits(heavy, (steps+n-1)/n, numbers) {
				if q.Divide(int(n)) == nil {
					break
				}
				return int(n), nil
			}
		}
	}
	return 1, x.tooMuch(q, worst, most)
}

// refused tells whether a server would not answer, whatever the time.
func refused(err error) bool {
	k := qerr.From(err).Kind
	return k == qerr.BadData || k == qerr.TooExpensive
}

// loads are the leaves' parts, where all leaves together make much of each series of a metric.
func (x *exchange) loads(p *plan.Plan) []load {
	interval := x.evaluationInterval().Milliseconds()
	grid := func(l *plan.Leaf) cost.Grid {
		return cost.Grid{Steps: int64(l.Grid.Len()), Step: l.Grid.Step, Interval: interval}
	}
	var names []string
	parts := 0
	for _, l := range p.Leaves {
		if l.Expr != nil {
			names, parts = appendNames(names, l.Expr), parts+len(l.Parts)
		}
	}
	light := len(names) <= maxLightNames
	for i := 0; light && i < len(names); i++ {
		one := int64(0)
		for _, l := range p.Leaves {
			if l.Expr != nil {
				one += cost.Held(l.Expr, grid(l), func(vs *parser.VectorSelector) int64 {
					if nameOf(vs) == names[i] {
						return 1
					}
					return 0
				})
			}
		}
		light = one <= x.s.lightSeries
	}
	if light {
		return nil
	}
	out := make([]load, 0, parts)
	for _, l := range p.Leaves {
		for _, part := range l.Parts {
			if l.Expr != nil {
				out = append(out, load{l, part, grid(l)})
			}
		}
	}
	return out
}

// appendNames adds the names of the metrics that an expression reads, the empty one for selectors
// without.
func appendNames(names []string, node parser.Node) []string {
	if vs, ok := node.(*parser.VectorSelector); ok {
		if name := nameOf(vs); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for child := range parser.ChildrenIter(node) {
		names = appendNames(names, child)
	}
	return names
}

func nameOf(vs *parser.VectorSelector) string {
	if i := slices.IndexFunc(vs.LabelMatchers, isName); i >= 0 {
		return vs.LabelMatchers[i].Value
	}
	return ""
}

// open returns those of the loads of whose shards the sizes of metrics do not show that all of them
// together are little enough: where they show too much, and where they are not known.
func (x *exchange) open(loads []load) (heavy, open []load) {
	if len(loads) == 0 {
		return nil, nil
	}
	held, unknown := map[*shard.Shard]int64{}, map[*shard.Shard]bool{}
	recent := x.view.Now().Add(-recentWindow).UnixMilli()
	for _, l := range loads {
		s := l.part.Shard
		held[s] += cost.Held(l.leaf.Expr, l.grid, func(vs *parser.VectorSelector) int64 {
			i := slices.IndexFunc(vs.LabelMatchers, isName)
			if i < 0 || l.part.From < recent {
				unknown[s] = true
				return 0
			}
			n, ok := x.st.sizes.of(s, vs.LabelMatchers[i].Value)
			if !ok {
				unknown[s] = true
			}
			return n
		})
	}
	for _, l := range loads {
		switch s := l.part.Shard; {
		case unknown[s]:
			open = append(open, l)
		case held[s] > x.limits.MaxShardBytes:
			heavy = append(heavy, l)
		}
	}
	return heavy, open
}

// beyond returns those of the loads whose shards would hold too much, and how much each shard
// would. exact tells whether the series of each selector are counted, or all of its metric. The
// numbers that were counted are added to numbers, which may be nil.
func (x *exchange) beyond(loads []load, exact bool, numbers map[cost.Key]int64) ([]load, map[*shard.Shard]int64, error) {
	if numbers == nil {
		numbers = map[cost.Key]int64{}
	}
	var unknown []selected
	sum := func() map[*shard.Shard]int64 {
		unknown = nil
		held := map[*shard.Shard]int64{}
		for _, l := range loads {
			held[l.part.Shard] += x.held(l, exact, numbers, &unknown)
		}
		return held
	}
	held := sum()
	if len(unknown) > 0 {
		found, err := x.count(unknown)
		if err != nil {
			return nil, nil, err
		}
		maps.Copy(numbers, found)
		held = sum()
	}
	var heavy []load
	for _, l := range loads {
		if held[l.part.Shard] > x.limits.MaxShardBytes {
			heavy = append(heavy, l)
		}
	}
	return heavy, held, nil
}

// held is what a shard would hold for a load, selectors whose series are not known left out and
// added to unknown.
func (x *exchange) held(l load, exact bool, numbers map[cost.Key]int64, unknown *[]selected) int64 {
	return cost.Held(l.leaf.Expr, l.grid, func(vs *parser.VectorSelector) int64 {
		t := x.selectedOf(l.part, vs, exact)
		n, ok := numbers[t.key]
		if !ok {
			if n, ok = x.st.counts.Known(t.key); ok {
				numbers[t.key] = n
			}
		}
		if !ok && unknown != nil {
			*unknown = append(*unknown, t)
		}
		return n
	})
}

// fits tells whether no shard of the loads would hold too much over so many of their steps.
func (x *exchange) fits(loads []load, steps int64, numbers map[cost.Key]int64) bool {
	held := map[*shard.Shard]int64{}
	for _, l := range loads {
		l.grid.Steps = min(l.grid.Steps, steps)
		held[l.part.Shard] += x.held(l, true, numbers, nil)
	}
	for _, n := range held {
		if n > x.limits.MaxShardBytes {
			return false
		}
	}
	return true
}

// selectedOf is what is counted for a selector: its own series, or all of its metric.
func (x *exchange) selectedOf(p *plan.Part, vs *parser.VectorSelector, exact bool) selected {
	from, until := x.counted(p)
	i := slices.IndexFunc(vs.LabelMatchers, isName)
	if i < 0 || exact && len(vs.LabelMatchers) > 1 {
		return selected{cost.KeyOf(p.Shard.Name(), plan.Selector(vs.LabelMatchers), from, until), p, vs.LabelMatchers}
	}
	name := vs.LabelMatchers[i : i+1]
	return selected{cost.KeyOf(p.Shard.Name(), name[0].Value, from, until), p, name}
}

func isName(m *labels.Matcher) bool {
	return m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual
}

// counted is the window in which a part's series are counted: not before 1970, nor after now.
func (x *exchange) counted(p *plan.Part) (from, until int64) {
	until = max(min(p.Until, x.view.Now().UnixMilli()), 0)
	return min(max(p.From, until-x.limits.MaxRange.Milliseconds(), 0), until), until
}

// count asks the shards for the numbers of series that are not known. A server that will not count
// refuses by a bound of its own, as it would the query.
func (x *exchange) count(unknown []selected) (map[cost.Key]int64, error) {
	by := map[cost.Key]selected{}
	var keys []cost.Key
	for _, t := range unknown {
		if _, ok := by[t.key]; !ok {
			by[t.key], keys = t, append(keys, t.key)
		}
	}
	return x.st.counts.Find(x.ctx, keys, func(keys []cost.Key, found func(int, int64)) error {
		questions := make([]question, 0, len(keys))
		grids := make([]merge.Grid, 0, len(keys))
		for i, k := range keys {
			req, grid := x.countRequest(by[k])
			part := by[k].part
			q := question{shard: part.Shard, req: req, class: shard.Light, plain: true, part: i, from: grid.Start, until: grid.End}
			if q.replicas = part.Replicas; len(part.Replicas) == 1 {
				q.replica, q.replicas = part.Replicas[0], nil
			}
			questions, grids = append(questions, q), append(grids, grid)
		}
		return x.countAnswers(questions, grids, found)
	})
}

// countRequest asks how many series there are at some moments of the window. Nothing of it is the
// caller's but the selector and the window: others will take the number for theirs.
func (x *exchange) countRequest(t selected) (*endpoint.Request, merge.Grid) {
	sent, _ := plan.Strip(t.part.Shard.Group, t.matchers)
	req := &endpoint.Request{Query: "count(" + plan.Selector(plan.Filled(sent)) + ")", LookbackDelta: x.lookback(), Timeout: x.dec.Request.Timeout}
	from, until := x.counted(t.part)
	step := (until - from) / (countMoments - 1)
	if step == 0 {
		req.ID, req.Time = endpoint.Query, endpoint.At(until)
		return req, merge.Grid{Start: until, End: until}
	}
	grid := merge.Grid{Start: until - step*(countMoments-1), End: until, Step: step}
	req.ID, req.Start, req.End = endpoint.QueryRange, endpoint.At(grid.Start), endpoint.At(grid.End)
	req.Step = time.Duration(step) * time.Millisecond
	return req, grid
}

// countAnswers asks, and tells the largest number of each answer as it comes.
func (x *exchange) countAnswers(questions []question, grids []merge.Grid, found func(int, int64)) error {
	x.s.metrics.counts.Add(float64(len(questions)))
	r, err := x.askAndRead(questions, func(_ int, q *question, src merge.Source) error {
		t, _, err := merge.DecodeTable(x.ctx, src, grids[q.part], x.budget)
		if err != nil {
			return err
		}
		defer t.Close()
		most := int64(0)
		for _, s := range t.Series {
			for _, v := range s.Values {
				if v > float64(most) { // which no NaN is
					most = int64(min(v, math.MaxInt32))
				}
			}
		}
		found(q.part, most)
		return nil
	})
	if err != nil {
		return err
	}
	defer r.close()
	if r.broken != nil {
		return x.bodyError(r, r.broken)
	}
	return nil
}

// tooMuch refuses what would make a server hold too much.
func (x *exchange) tooMuch(q plan.Query, s *shard.Shard, held int64) error {
	steps, advice := "", "select fewer series, or record a part of the query"
	if q.Range {
		steps = fmt.Sprintf(" at %d steps", q.Grid.Len())
		advice = "select fewer series, shorten the range or widen the step, or record a part of the query"
	}
	if hasSubquery(q.Expr) {
		advice = strings.Replace(advice, "select fewer series", "select fewer series, give the subquery a shorter range or a longer step", 1)
	}
	limit := merge.FormatBytes(x.limits.MaxShardBytes)
	return qerr.Refuse(policy.BoundMaxShardBytes, limit, "about "+merge.FormatBytes(held), advice,
		"evaluating this%s would make a server of shard %s hold about %s at once, as estimated from the series that it selects there, "+
			"and max_shard_bytes allows %s", steps, s.Name(), merge.FormatBytes(held), limit)
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
