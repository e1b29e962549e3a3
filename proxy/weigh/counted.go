package weigh

import (
	"context"
	"errors"
	"maps"
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
)

// How many series the selectors of a query have on a shard: what the shard says of its metrics'
// sizes, what was counted before, and what it is asked now.

const (
	// countMoments is at how many moments of a window series are counted, its ends among them.
	countMoments = 5
	// countLookback is how long before a moment a series may have had its last sample to be
	// counted, at least: ranges reach what is sampled more seldom than a server looks back.
	countLookback = time.Hour
	// longWindow is from when on the moments of a window are asked for one by one: for a range a
	// server holds what it knows of all chunks within, of each series.
	longWindow = 5 * time.Hour
	// countBytes is what a server holds of each series that it counts, listBytes of each that it
	// lists, or looks through for native histograms, and blockBytes more in each block, which has
	// labels of its own: a Prometheus 3.15 with 153,000 of them held 490, 250 and 200 in its head,
	// with a block 1,070 to 1,390, 930 and 720, and with three blocks 1,600 for native histograms.
	countBytes, listBytes, blockBytes = 500, 300, 500
	// headTime is how much of the time before now a server has in its head, at least, with what a
	// query may be late; blockTime how much a block has, at least.
	headTime, blockTime = 65 * time.Minute, 2 * time.Hour
	// maxListed is up to how many series are listed: 50 MB of an answer.
	maxListed = 250_000
)

// read is a selector of a leaf, as a shard is asked for it: the series of which metric, if it names
// one, in which window they are counted, and what is known of them.
type read struct {
	vs          *parser.VectorSelector
	part        *plan.Part
	metric      string
	from, until int64
	own, nats   *selected // see ofSelector, nativesOf
	// size is how many series the metric has at most, if it is sized; without one, the selector.
	size  int64
	sized bool
	// native is how many native histograms among these are known.
	native int64
}

// selected is what is to be counted on a shard of the series that the matchers select, and the
// question for it.
type selected struct {
	key         cost.Key
	part        *plan.Part
	matchers    []*labels.Matcher
	from, until int64
	question    func(selector string) string
	// of are the series themselves, where it is something else that is counted of them.
	of *selected
	// each is how many bytes the server holds of each series to answer, blocks how many blocks it
	// reads for that beside its head.
	each, blocks int64
	// most is how many series there are at most, by what the shard said of its metrics and labels
	// when the request looked first, if it is told. Where they are dear, to count so many might
	// make the server hold more than a query may: they are listed instead, up to a number. To list
	// takes no more than what is listed, where to count takes all.
	most       int64
	told, dear bool
	old        bool // some of the time is before what the shard tells of
}

// What is asked of series, beside what countNatives asks: how many there are; how many have the
// same labels at most.
func countSeries(sel string) string { return "count(" + sel + ")" }

func countAlike(by cost.Labels) (what string, question func(string) string) {
	agg := &parser.AggregateExpr{Op: parser.COUNT, Grouping: by.Names, Without: by.Without, Expr: &parser.VectorSelector{Name: "x"}}
	what = strings.TrimSuffix(agg.String(), "(x)")
	return what, func(sel string) string { return "max(" + what + "(" + sel + "))" }
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

// reads are the selectors of a leaf, as a shard is asked for them. They are counted in the windows
// that they read: not before 1970, nor after now.
func (sc *Scale) reads(q plan.Query, l *plan.Leaf, p *plan.Part) []read {
	var out []read
	eachSelector(l.Expr, func(vs *parser.VectorSelector) {
		nth, w := len(out), plan.Window{From: p.From, Until: p.Until}
		if len(l.Uses) > 0 { // wherever it stands, it reads the same
			nth = l.Uses[0][nth]
		}
		if nth < len(q.Windows) {
			w = q.Windows[nth]
		}
		until := max(min(w.Until, sc.Now), 0)
		from := min(max(w.From, until-sc.MaxRange.Milliseconds(), 0), until)
		out = append(out, read{vs: vs, part: p, metric: nameOf(vs), from: from, until: until})
	})
	return out
}

// learnSize finds out how many series the metric has: as the shard says, or as was counted where it
// does not or the window begins before what it tells of.
func (sc *Scale) learnSize(r *read, known numbers) bool {
	if r.sized {
		return true
	}
	if r.size, r.sized = sc.Known.Sizes.Of(r.part.Shard, r.metric); !r.sized || r.from < sc.Known.Sizes.Since(r.part.Shard) {
		r.size, r.sized = sc.known(sc.bounded(sc.ofMetric(r)), known)
	}
	return r.sized
}

// countMetrics counts the series of the metrics whose sizes are not known. Of one that is too large
// for its server to count nothing is known then: it may not be for what is selected of it.
func (sc *Scale) countMetrics(ctx context.Context, loads []*load, known numbers) error {
	var unknown []selected
	for _, l := range loads {
		for i := range l.reads {
			if r := &l.reads[i]; !sc.learnSize(r, known) {
				unknown = append(unknown, sc.bounded(sc.ofMetric(r)))
			}
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	if err := sc.countRefusable(ctx, unknown, known); err != nil {
		return err
	}
	for _, l := range loads {
		for i := range l.reads {
			sc.learnSize(&l.reads[i], known)
		}
	}
	return nil
}

// countRefusable counts and adds what was found to the numbers, nothing where a server refuses.
func (sc *Scale) countRefusable(ctx context.Context, unknown []selected, known numbers) error {
	if len(unknown) == 0 {
		return nil
	}
	found, err := sc.count(ctx, unknown)
	if err != nil && !refused(err) {
		return err
	}
	maps.Copy(known, found)
	return nil
}

// known is a number that was found for this request, or before; of more series than are listed it
// is how many there are at most. It is known to the request from then on, whatever is forgotten.
func (sc *Scale) known(t selected, known numbers) (int64, bool) {
	n, ok := sc.exactly(t, known)
	if !ok && sc.tooMany(t, known) {
		return t.most, true
	}
	return n, ok
}

// exactly is a number that was counted for this request, or before.
func (sc *Scale) exactly(t selected, known numbers) (int64, bool) {
	if n, ok := sc.found(t.key, known); ok {
		return n, true
	}
	if n, ok := sc.found(t.none(), known); ok {
		return n, true
	}
	if t.dear {
		if n, ok := sc.found(sc.many(t), known); ok && n <= int64(sc.listed()) {
			return n, true
		}
	}
	return 0, false
}

// found is the number for a key.
func (sc *Scale) found(k cost.Key, known numbers) (int64, bool) {
	n, ok := known[k]
	if !ok {
		if n, ok = sc.Known.Counts.Known(k); ok && known != nil {
			known[k] = n
		}
	}
	return n, ok
}

// nameless tells whether matchers name no metric.
func nameless(ms []*labels.Matcher) bool { return !slices.ContainsFunc(ms, isName) }

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

func isName(m *labels.Matcher) bool {
	return m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual
}

// ofSelector are the series of a selector, as they are bounded when it is first asked for.
func (sc *Scale) ofSelector(r *read) selected {
	if r.own == nil {
		t := sc.bounded(sc.selectorOf(r))
		t.old = r.from < sc.Known.Sizes.Since(r.part.Shard)
		r.own = &t
	}
	return *r.own
}

func (sc *Scale) selectorOf(r *read) selected {
	if len(r.vs.LabelMatchers) == 1 && r.metric != "" {
		return sc.ofMetric(r)
	}
	return sc.counted(r, "selector", plan.Selector(r.vs.LabelMatchers), r.vs.LabelMatchers, r.from)
}

// ofMetric are all series of a selector's metric, or its own where it names none.
func (sc *Scale) ofMetric(r *read) selected {
	i := slices.IndexFunc(r.vs.LabelMatchers, isName)
	if i < 0 {
		return sc.ofSelector(r)
	}
	return sc.counted(r, "metric", r.metric, r.vs.LabelMatchers[i:i+1], r.from)
}

// alikeOf are those of a selector's series that the labels do not tell apart.
func (sc *Scale) alikeOf(r *read, by cost.Labels) selected {
	what, question := countAlike(by)
	t, of := sc.counted(r, what, plan.Selector(r.vs.LabelMatchers), r.vs.LabelMatchers, r.from), sc.ofSelector(r)
	t.question, t.of = question, &of
	return t
}

// there tells whether there are such series, for sure.
func (sc *Scale) there(t selected) bool {
	if n, ok := sc.exactly(t, nil); ok {
		return n > 0
	}
	if len(t.matchers) > 1 || nameless(t.matchers) {
		return false
	}
	n, ok := sc.Known.Sizes.has(t.part.Shard, t.matchers[0].Value)
	return ok && n > 0
}

// blocks is how many blocks a server reads of a stretch of time, beside its head, at most.
func (sc *Scale) blocks(from, until int64) int64 {
	head := sc.Now - headTime.Milliseconds()
	if from >= head {
		return 0
	}
	return 1 + (min(until, head)-from)/blockTime.Milliseconds()
}

// counted is what is counted of the series that the matchers select, from then on at least: over
// all of the longest window that will take the number for its own.
func (sc *Scale) counted(r *read, what, selector string, matchers []*labels.Matcher, from int64) selected {
	whole := max(cost.Whole(from, r.until), min(from, r.until-sc.MaxRange.Milliseconds()), 0)
	t := selected{
		key: cost.KeyOf(r.part.Shard.Identity(), what, selector, from, r.until), part: r.part, matchers: matchers,
		from: whole, until: r.until, question: countSeries, blocks: 1, // of moments that lie apart each reads one
	}
	if t.until-t.from <= longWindow.Milliseconds() {
		t.blocks = sc.blocks(t.from-max(sc.Lookback, countLookback).Milliseconds(), t.until)
	}
	t.each = countBytes + blockBytes*t.blocks
	return t
}

// count asks the shards for the numbers of series that are not known. A server that will not count
// refuses by a bound of its own, as it would the query; of one that will not list as many as are
// there at most count.
func (sc *Scale) count(ctx context.Context, unknown []selected) (numbers, error) {
	by := map[cost.Key]selected{}
	var keys []cost.Key
	counts := false
	for _, t := range unknown {
		k := t.key
		if t.dear {
			k = sc.many(t)
		}
		if _, ok := by[k]; !ok {
			by[k], keys = t, append(keys, k)
			counts = counts || !t.dear
		}
	}
	listed := int64(sc.listed())
	out, err := sc.find(ctx, keys, by, func(keys []cost.Key, found func(int, int64)) error {
		grids, most, open := make([][]merge.Grid, len(keys)), make([]int64, len(keys)), make([]int, len(keys))
		for i, k := range keys {
			grids[i] = by[k].grids()
		}
		for first := true; ; first = false {
			var questions []Question
			var of []int // the key that each is for
			for i, k := range keys {
				now := grids[i]
				if first && by[k].dear && len(now) > 1 { // the others only if these are not too many
					now = now[:1]
				}
				grids[i], open[i] = grids[i][len(now):], len(now)
				for _, grid := range now {
					questions, of = append(questions, sc.ask(by[k], grid)), append(of, i)
				}
			}
			if len(questions) == 0 {
				return nil
			}
			var mu sync.Mutex
			err := sc.Ask(ctx, questions, func(q int, n int64) {
				mu.Lock()
				defer mu.Unlock()
				i := of[q]
				most[i] = max(most[i], n)
				many := by[keys[i]].dear && most[i] > listed
				if open[i]--; open[i] > 0 || len(grids[i]) > 0 && !many {
					return
				}
				if grids[i] = nil; by[keys[i]].dear && most[i] > 0 && !many {
					sc.Known.Counts.Remember(by[keys[i]].key, most[i])
				}
				found(i, most[i])
			})
			if err != nil {
				return err
			}
		}
	})
	if err != nil && refused(err) && !counts {
		out, err = numbers{}, nil
		for _, k := range keys {
			n, ok := sc.Known.Counts.Known(k)
			if !ok {
				n = listed + 1
			}
			out[k] = n
		}
	}
	for k, n := range out {
		if n == 0 {
			sc.Known.Counts.Remember(by[k].none(), 0)
		}
	}
	return out, err
}

// find is Find for as long as the request has patience with those who ask before it: each one's
// question may take the time that its request has, and to wait for one after the other would be to
// wait until the deadline for a server that is silent, though the answer may go without it.
func (sc *Scale) find(ctx context.Context, keys []cost.Key, by map[cost.Key]selected, ask func([]cost.Key, func(int, int64)) error,
) (numbers, error) {
	if sc.Patience == nil {
		return sc.Known.Counts.Find(ctx, sc.Lane, keys, ask)
	}
	wait, cancel := context.WithTimeout(ctx, sc.Patience())
	defer cancel()
	out, err := sc.Known.Counts.Find(wait, sc.Lane, keys, ask)
	var late *cost.Late
	if !errors.As(err, &late) || ctx.Err() != nil {
		return out, err
	}
	var gone error
	for _, k := range late.Keys { // all of them: the next attempt would wait for each that is left
		if err := sc.GiveUp(by[k].part.Shard); err != nil && gone == nil {
			gone = err
		}
	}
	if gone != nil {
		return nil, gone
	}
	return sc.Known.Counts.Find(ctx, sc.Lane, keys, ask)
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
func (sc *Scale) countRequest(t selected, grid merge.Grid) *endpoint.Request {
	sent, _ := plan.Strip(t.part.Shard.Group, t.matchers)
	query := t.question(plan.Selector(plan.Filled(sent)))
	req := &endpoint.Request{Query: query, LookbackDelta: max(sc.Lookback, countLookback), Timeout: sc.Timeout}
	if grid.Step == 0 {
		req.ID, req.Time = endpoint.Query, endpoint.At(grid.End)
		return req
	}
	req.ID, req.Start, req.End = endpoint.QueryRange, endpoint.At(grid.Start), endpoint.At(grid.End)
	req.Step = time.Duration(grid.Step) * time.Millisecond
	return req
}

// ask is the question for what is selected over a grid.
func (sc *Scale) ask(t selected, grid merge.Grid) Question {
	q := Question{Part: t.part, Grid: grid}
	if t.dear {
		q.Request, q.Holds = sc.listRequest(t, grid), min(int64(sc.listed())*(listBytes+blockBytes*t.blocks), sc.much())
		q.Needs = q.Holds
		return q
	}
	held, sure := sc.holds(t)
	if q.Request, q.Holds = sc.countRequest(t, grid), held; sure {
		q.Needs = held
	}
	return q
}
