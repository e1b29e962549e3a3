package weigh

import (
	"context"
	"strconv"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Touched refuses (422, max_series_touched) a query whose selectors select more than maxSeries
// series on all shards that evaluate a part of it, each selector's counted by itself.
//
// What shards say of their metrics and labels usually shows that it is not so many; where that is
// too much, the series of those selectors are counted that are more than a name, as Pieces counts
// them. A shard that says nothing of itself, as a Thanos Query, counts with what was counted there
// before; a selector that its server will not count, with nothing. The error is the refusal, or
// what kept the series from being counted.
func (sc *Scale) Touched(ctx context.Context, q plan.Query, p *plan.Plan, maxSeries int) error {
	loads, known := sc.loads(q, p), numbers{}
	var most touched
	for _, l := range loads {
		for i := range l.reads {
			most.add(&l.reads[i], sc.atMost(&l.reads[i], known))
		}
	}
	if most.all <= int64(maxSeries) {
		return nil
	}
	var unknown []selected
	for _, l := range loads {
		for i := range l.reads {
			r := &l.reads[i]
			if _, ok := sc.known(sc.ofSelector(r), known); !ok && !r.bare() && sc.atMost(r, known) > 0 {
				unknown = append(unknown, sc.ofSelector(r))
			}
		}
	}
	if err := sc.countRefusable(ctx, unknown, known); err != nil {
		return err
	}
	sc.learn(loads, known)
	most = touched{}
	for _, l := range loads {
		for i := range l.reads {
			r := &l.reads[i]
			n, ok := sc.known(sc.ofSelector(r), known)
			if !ok && r.bare() {
				n = sc.atMost(r, known)
			}
			most.add(r, n)
		}
	}
	if most.all <= int64(maxSeries) {
		return nil
	}
	return most.refuse(maxSeries)
}

// bare tells whether the selector is a name alone: the size of its metric is its own.
func (r *read) bare() bool { return r.metric != "" && len(r.vs.LabelMatchers) == 1 }

// atMost is how many series a selector has on its shard at most, as was counted or as the shard
// says of its metrics and labels; 0 where neither is known.
func (sc *Scale) atMost(r *read, known numbers) int64 {
	if n, ok := sc.known(sc.ofSelector(r), known); ok {
		return n
	}
	n, ok := sc.Known.Sizes.Selects(r.part.Shard, r.vs.LabelMatchers, nil)
	if !ok {
		return 0
	}
	return n
}

// touched are series that a query selects: of all of its selectors on all shards, and of the metric
// that has the most.
type touched struct {
	all    int64
	metric string
	by     map[string]int64
}

func (t *touched) add(r *read, n int64) {
	if n == 0 {
		return
	}
	if t.by == nil {
		t.by = map[string]int64{}
	}
	t.all += n
	if t.by[r.metric] += n; t.by[r.metric] >= t.by[t.metric] {
		t.metric = r.metric
	}
}

func (t *touched) refuse(maxSeries int) error {
	of := "by selectors that name no metric"
	if t.metric != "" {
		of = "of " + clip.Text(t.metric, shownName)
	}
	most := "all"
	if n := t.by[t.metric]; n < t.all {
		most = strconv.FormatInt(n, 10) + " of them"
	}
	return qerr.Refuse(policy.BoundMaxSeriesTouched, strconv.Itoa(maxSeries), strconv.FormatInt(t.all, 10),
		"select fewer series by a label matcher, such as namespace=\"…\"; for good, record what is asked by a rule on the shards, each of which reads its own series",
		"the shards would select %d series for this, %s %s, and max_series_touched allows %d", t.all, most, of, maxSeries)
}

// shownName is how many bytes of a metric's name a refusal has.
const shownName = 100
