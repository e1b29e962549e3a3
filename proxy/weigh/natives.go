package weigh

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/cost"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// How many of the series that a query reads are native histograms, where that may be too much for
// their server: no text tells, so the server is asked.

const (
	// maxAskedByName is how many series a metric may have for all of them to be asked whether they
	// are native histograms, once for all who read it; of a larger one those are that a query
	// selects.
	maxAskedByName = 100_000
	// nativeWindow is how far back it is looked for native histograms at least, which a server has
	// in its head: to read blocks, too, takes several times as much. Of a large metric it is no
	// more than the query reads, or leastStretch.
	nativeWindow = time.Hour
	leastStretch = 5 * time.Minute
)

// countNatives asks how many of the series are native histograms, and one more. It looks through a
// stretch of time, one series after the other, where instant selectors would have all of them at
// once, and miss those whose last scrape failed, which is a stale marker. It does not tell whether
// there are any series: that would be to select them twice. apart is as for natives.
func countNatives(stretch time.Duration, apart bool) func(sel string) string {
	return func(sel string) string {
		return "1 + (" + natives("last_over_time("+sel+"["+model.Duration(stretch).String()+"])", apart) + " or vector(0))"
	}
}

// natives counts those of the series. histogram_count takes their names away, and a server refuses
// it to two metrics that have the same labels: apart keeps the name, where there may be several.
func natives(series string, apart bool) string {
	if apart {
		series = `label_replace(` + series + `, "name_", "$1", "__name__", "(.*)")`
	}
	return "count(histogram_count(" + series + "))"
}

// natives finds out how many of the series that the loads read are native histograms, and tells
// whether there are any, or so many series that it does not matter: that is too much at so few
// steps even if all are floats. It asks where a shard's metrics are so large that it would hold too
// much if all their series were such.
func (sc *Scale) natives(ctx context.Context, loads []*load, steps int64, known numbers) (some, many bool, err error) {
	held := map[*shard.Shard]int64{}
	for _, l := range loads {
		held[l.part.Shard] += l.held(func(r *read) (int64, int64) { return r.size, r.size }, nil)
	}
	loads = slices.DeleteFunc(slices.Clone(loads), func(l *load) bool { return held[l.part.Shard] <= sc.MaxBytes })
	all := len(loads)
	if loads, err = sc.possible(ctx, loads, steps, known); err != nil {
		return false, false, err
	}
	many = len(loads) < all
	var unknown []selected
	learn := func() {
		unknown = unknown[:0]
		for _, l := range loads {
			for i := range l.reads {
				r := &l.reads[i]
				t := sc.nativesOf(r)
				n, ok := sc.known(t, known)
				if !ok {
					unknown = append(unknown, t)
				}
				r.native = max(n-1, 0)
				some = some || r.native > 0
			}
		}
	}
	if learn(); len(unknown) == 0 {
		return some, many, nil
	}
	if err := sc.countRefusable(ctx, unknown, known); err != nil { // a server from before there were any cannot read the question
		return false, false, err
	}
	learn()
	return some, many, nil
}

// possible returns those of the loads whose shards might not hold too much at so few steps, if all
// series were floats and each met only one in a join. Of others it need not be known, and to ask
// would take as much as the query.
func (sc *Scale) possible(ctx context.Context, loads []*load, steps int64, known numbers) ([]*load, error) {
	held := sc.asFloats(loads, steps, known, one)
	var unknown []selected
	for _, l := range loads {
		for i := range l.reads {
			t := sc.ofSelector(&l.reads[i])
			if _, ok := sc.known(t, known); !ok && held[l.part.Shard] > sc.much() {
				unknown = append(unknown, t)
			}
		}
	}
	if len(unknown) > 0 {
		if err := sc.countRefusable(ctx, unknown, known); err != nil {
			return nil, err
		}
		held = sc.asFloats(loads, steps, known, one)
	}
	return slices.DeleteFunc(slices.Clone(loads), func(l *load) bool { return held[l.part.Shard] > sc.much() }), nil
}

// givesNative tells whether the answer has native histograms, as far as it is known.
func givesNative(q plan.Query, loads []*load) bool {
	return cost.Native(q.Expr, func(vs *parser.VectorSelector) (series, native int64) {
		for _, l := range loads {
			if r := l.read(vs); r != nil {
				native += r.native
			}
		}
		return native, native
	})
}

// nativesOf are the native histograms of a selector's metric, or of the selector where the metric
// has too many series or none is named. They are looked for in all that is read, at once, or in an
// hour before each of some moments of more than longWindow. For one read it is always the same,
// whatever becomes known meanwhile.
func (sc *Scale) nativesOf(r *read) selected {
	if r.nats == nil {
		t := sc.findNatives(r)
		r.nats = &t
	}
	return *r.nats
}

func (sc *Scale) findNatives(r *read) (t selected) {
	of, what, selector, ms := sc.ofSelector(r), "natives", plan.Selector(r.vs.LabelMatchers), r.vs.LabelMatchers
	stretch := nativeWindow
	if i := slices.IndexFunc(ms, isName); i >= 0 && r.sized && r.size <= maxAskedByName {
		of, what, selector, ms = sc.bounded(sc.ofMetric(r)), "natives of metric", r.metric, ms[i:i+1]
	} else if r.sized {
		stretch = leastStretch
	}
	read := time.Duration(r.until-r.from) * time.Millisecond
	if read > stretch && read <= nativeWindow {
		stretch = nativeWindow // one for all that read so much
	}
	if read <= stretch {
		t = sc.counted(r, what+" in "+stretch.String(), selector, ms, r.until-stretch.Milliseconds())
		t.from = t.until
	} else if t = sc.counted(r, what, selector, ms, r.from); t.until-t.from <= longWindow.Milliseconds() {
		stretch = time.Duration(t.until-t.from).Truncate(1000) * time.Millisecond
		t.from = t.until
	} else {
		stretch = nativeWindow
	}
	if t.from == t.until {
		t.blocks = sc.blocks(t.until-stretch.Milliseconds(), t.until)
	}
	t.each = listBytes + blockBytes*t.blocks
	if !sc.there(of) { // what comes is to be looked for, too
		t.key = t.key.Soon(t.until)
	}
	t.question, t.of = countNatives(stretch, r.metric == ""), &of
	return t
}
