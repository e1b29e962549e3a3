package server

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/cost"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// How many series the selectors of a query have on a shard, and how many of these are native
// histograms: what the shard says of its metrics' sizes, what was counted before, and what it is
// asked now.

const (
	// countMoments is at how many moments of a window series are counted, its ends among them.
	countMoments = 5
	// maxAskedByName is how many series a metric may have for all of them to be asked whether they
	// are native histograms, once for all who read it; of a larger one those are that a query
	// selects.
	maxAskedByName = 100_000
	// nativeWindow is how far back it is looked for native histograms at least: what a metric is
	// changes with the programs that have it, and is asked less often than how many series it has.
	nativeWindow = 3 * time.Hour
	// countLookback is how long before a moment a series may have had its last sample to be
	// counted, at least: ranges reach what is sampled more seldom than a server looks back.
	countLookback = time.Hour
	// longWindow is from when on the moments of a window are asked for one by one: for a range a
	// server holds what it knows of all chunks within, of each series.
	longWindow = 5 * time.Hour
)

// selected is a selector whose series are to be counted on a shard, or what else of them is.
type selected struct {
	key         cost.Key
	part        *plan.Part
	matchers    []*labels.Matcher
	from, until int64
	question    func(selector string) string
}

// What is asked of a selector's series: how many there are; how many of them are native
// histograms, and one more; how many have the same labels at most.
func countSeries(sel string) string { return "count(" + sel + ")" }

func countNatives(sel string) string {
	return "1 + (count(histogram_count(" + sel + ")) or 0 * count(" + sel + "))"
}

func countAlike(by cost.Labels) func(string) string {
	agg := &parser.AggregateExpr{Op: parser.COUNT, Grouping: by.Names, Without: by.Without, Expr: &parser.VectorSelector{Name: "x"}}
	count := strings.TrimSuffix(agg.String(), "(x)")
	return func(sel string) string { return "max(" + count + "(" + sel + "))" }
}

// none is under what it is remembered that there are no series at all: not for longer than ten
// minutes, they may come. A metric that has no label of those that shards are told apart by is on
// one of them.
func (t selected) none() cost.Key {
	return t.key.Soon(t.until)
}

// numbers are numbers of series that were found for a request. Of native histograms it is one more
// where there are any series, since nothing is not remembered by others.
type numbers map[cost.Key]int64

// natives finds out how many of the series that the loads read are native histograms, adds to the
// numbers what it had to ask, and tells whether there are any. It asks where a shard's metrics are
// so large that it would hold too much if all their series were such. Of a shard that has not said
// how large they are only what was found before is known.
func (x *exchange) natives(loads []load, known numbers) (some bool, err error) {
	held := map[*shard.Shard]int64{}
	for _, l := range loads {
		held[l.part.Shard] += cost.Held(l.leaf.Expr, l.grid, func(vs *parser.VectorSelector) (int64, int64) {
			name := nameOf(vs)
			if x.old(l, vs) {
				name = "" // as many as all have now
			}
			n, _ := x.st.sizes.of(l.part.Shard, name)
			return n, n
		}, nil)
	}
	var unknown []selected
	each := func(f func(l load, vs *parser.VectorSelector)) {
		for _, l := range loads {
			if held[l.part.Shard] > x.limits.MaxShardBytes {
				eachSelector(l.leaf.Expr, func(vs *parser.VectorSelector) { f(l, vs) })
			}
		}
	}
	each(func(l load, vs *parser.VectorSelector) {
		t := x.nativesOf(l, vs)
		if _, ok := x.known(t, known); !ok {
			unknown = append(unknown, t)
		}
	})
	if len(unknown) > 0 {
		found, err := x.count(unknown)
		if err != nil && !refused(err) { // a server from before there were any cannot read the question
			return false, err
		}
		maps.Copy(known, found)
	}
	each(func(l load, vs *parser.VectorSelector) { some = some || x.native(l, vs, known) > 0 })
	return some, nil
}

// native is how many of a selector's series are native histograms, or of its metric's, as far as it
// is known.
func (x *exchange) native(l load, vs *parser.VectorSelector, known numbers) int64 {
	n, _ := x.known(x.nativesOf(l, vs), known)
	return max(n-1, 0)
}

// givesNative tells whether the answer has native histograms, as far as it is known.
func (x *exchange) givesNative(q plan.Query, loads []load, known numbers) bool {
	return cost.Native(q.Expr, func(vs *parser.VectorSelector) (series, native int64) {
		for _, l := range loads {
			native += x.native(l, vs, known)
		}
		return native, native
	})
}

// known is a number that was found for this request, or before.
func (x *exchange) known(t selected, known numbers) (int64, bool) {
	n, ok := known[t.key]
	if !ok {
		if n, ok = x.st.counts.Known(t.key); !ok {
			n, ok = x.st.counts.Known(t.none())
		}
		if ok {
			known[t.key] = n
		}
	}
	return n, ok
}

// old tells whether a selector's window begins before the time that the sizes of metrics are of.
func (x *exchange) old(l load, vs *parser.VectorSelector) bool {
	return l.window(vs).From < x.st.sizes.since(l.part.Shard)
}

// eachSelector calls f with every selector of an expression.
func eachSelector(node parser.Node, f func(*parser.VectorSelector)) {
	if vs, ok := node.(*parser.VectorSelector); ok {
		f(vs)
	}
	for child := range parser.ChildrenIter(node) {
		eachSelector(child, f)
	}
}

// appendNames adds the names of the metrics that an expression reads, the empty one for selectors
// without.
func appendNames(names []string, node parser.Node) []string {
	eachSelector(node, func(vs *parser.VectorSelector) {
		if name := nameOf(vs); !slices.Contains(names, name) {
			names = append(names, name)
		}
	})
	return names
}

func nameOf(vs *parser.VectorSelector) string {
	if i := slices.IndexFunc(vs.LabelMatchers, isName); i >= 0 {
		return vs.LabelMatchers[i].Value
	}
	return ""
}

// selectedOf is what is counted for a selector: its own series, or all of its metric.
func (x *exchange) selectedOf(l load, vs *parser.VectorSelector, exact bool) selected {
	from, until := x.counted(l, vs)
	name, matchers := nameAndMatchers(vs, exact)
	return selected{cost.KeyOf(l.part.Shard.Name(), name, from, until), l.part, matchers, x.whole(from, until), until, countSeries}
}

// alikeOf is what is counted for a selector, or all of its metric, of whose series those count that
// the labels do not tell apart.
func (x *exchange) alikeOf(l load, vs *parser.VectorSelector, exact bool, by cost.Labels) selected {
	t := x.selectedOf(l, vs, exact)
	t.question = countAlike(by)
	t.key.Selector = t.question(t.key.Selector)
	return t
}

// nativesOf is what native histograms are counted of for a selector: all of its metric, where these
// are not too many.
func (x *exchange) nativesOf(l load, vs *parser.VectorSelector) selected {
	from, until := x.counted(l, vs)
	from = max(min(from, until-nativeWindow.Milliseconds()), 0)
	n, ok := x.st.sizes.of(l.part.Shard, nameOf(vs))
	name, matchers := nameAndMatchers(vs, !ok || n > maxAskedByName)
	key := cost.KeyOf(l.part.Shard.Name(), "histogram_count("+name+")", from, until)
	return selected{key, l.part, matchers, x.whole(from, until), until, countNatives}
}

// nameAndMatchers are a selector's matchers, or that of its name alone, and how they are
// remembered.
func nameAndMatchers(vs *parser.VectorSelector, all bool) (string, []*labels.Matcher) {
	i := slices.IndexFunc(vs.LabelMatchers, isName)
	if i < 0 || all && len(vs.LabelMatchers) > 1 {
		return plan.Selector(vs.LabelMatchers), vs.LabelMatchers
	}
	return vs.LabelMatchers[i].Value, vs.LabelMatchers[i : i+1]
}

func isName(m *labels.Matcher) bool {
	return m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual
}

// counted is the window in which a selector's series are counted: not before 1970, nor after now.
func (x *exchange) counted(l load, vs *parser.VectorSelector) (from, until int64) {
	w := l.window(vs)
	until = max(min(w.Until, x.view.Now().UnixMilli()), 0)
	return min(max(w.From, until-x.limits.MaxRange.Milliseconds(), 0), until), until
}

// whole is where it is counted from: over all of the longest window that will take the number for
// its own.
func (x *exchange) whole(from, until int64) int64 {
	return max(cost.Whole(from, until), min(from, until-x.limits.MaxRange.Milliseconds()), 0)
}

// count asks the shards for the numbers of series that are not known. A server that will not count
// refuses by a bound of its own, as it would the query.
func (x *exchange) count(unknown []selected) (numbers, error) {
	by := map[cost.Key]selected{}
	var keys []cost.Key
	for _, t := range unknown {
		if _, ok := by[t.key]; !ok {
			by[t.key], keys = t, append(keys, t.key)
		}
	}
	out, err := x.st.counts.Find(x.ctx, keys, func(keys []cost.Key, found func(int, int64)) error {
		var questions []question
		var grids []merge.Grid
		left := make([]int, len(keys))
		for i, k := range keys {
			part := by[k].part
			for _, grid := range by[k].grids() {
				q := question{shard: part.Shard, class: shard.Light, plain: true, part: i, from: grid.Start, until: grid.End}
				q.req = x.countRequest(by[k], grid)
				if q.replicas = part.Replicas; len(part.Replicas) == 1 {
					q.replica, q.replicas = part.Replicas[0], nil
				}
				questions, grids = append(questions, q), append(grids, grid)
				left[i]++
			}
		}
		var mu sync.Mutex
		most := make([]int64, len(keys))
		return x.countAnswers(questions, grids, func(i int, n int64) {
			mu.Lock()
			defer mu.Unlock()
			most[i] = max(most[i], n)
			if left[i]--; left[i] == 0 {
				found(i, most[i])
			}
		})
	})
	for k, n := range out {
		if n == 0 {
			x.st.counts.Remember(by[k].none(), 0)
		}
	}
	return out, err
}

// grids are the moments at which series are counted: in one range, or each alone where the server
// would hold all that lies between.
func (t selected) grids() []merge.Grid {
	step := (t.until - t.from) / (countMoments - 1)
	switch {
	case step == 0:
		return []merge.Grid{{Start: t.until, End: t.until}}
	case t.until-t.from <= longWindow.Milliseconds():
		return []merge.Grid{{Start: t.until - step*(countMoments-1), End: t.until, Step: step}}
	}
	out := make([]merge.Grid, countMoments)
	for i := range out {
		at := t.until - step*int64(i)
		out[i] = merge.Grid{Start: at, End: at}
	}
	return out
}

// countRequest asks what is to be counted at the moments of the grid. Nothing of it is the caller's
// but the selector, what tells its series apart, and the window: others will take the number for
// theirs.
func (x *exchange) countRequest(t selected, grid merge.Grid) *endpoint.Request {
	sent, _ := plan.Strip(t.part.Shard.Group, t.matchers)
	query := t.question(plan.Selector(plan.Filled(sent)))
	req := &endpoint.Request{Query: query, LookbackDelta: max(x.lookback(), countLookback), Timeout: x.dec.Request.Timeout}
	if grid.Step == 0 {
		req.ID, req.Time = endpoint.Query, endpoint.At(grid.End)
		return req
	}
	req.ID, req.Start, req.End = endpoint.QueryRange, endpoint.At(grid.Start), endpoint.At(grid.End)
	req.Step = time.Duration(grid.Step) * time.Millisecond
	return req
}

// countAnswers asks, and tells the largest number of each answer as it comes.
func (x *exchange) countAnswers(questions []question, grids []merge.Grid, found func(int, int64)) error {
	x.s.metrics.counts.Add(float64(len(questions)))
	r, err := x.askAndRead(questions, func(i int, q *question, src merge.Source) error {
		t, _, err := merge.DecodeTable(x.ctx, src, grids[i], x.budget)
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
