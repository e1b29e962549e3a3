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
// too much, the series of those selectors are counted of which they do not say the number itself,
// as Pieces counts them. A shard that says nothing of itself, as a Thanos Query, counts with what
// was counted there before; a selector that cannot be counted, with nothing. The error is the
// refusal, or that of ctx.
func (sc *Scale) Touched(ctx context.Context, q plan.Query, p *plan.Plan, maxSeries int) error {
	loads, known := sc.loads(q, p), numbers{}
	var most, found touched
	var unknown []selected
	for _, l := range loads {
		for i := range l.reads {
			r := &l.reads[i]
			n, sure := sc.series(r, known)
			if most.add(r, n); !sure && n > 0 {
				unknown = append(unknown, sc.ofSelector(r))
			}
		}
	}
	if most.all <= int64(maxSeries) {
		return nil
	}
	if err := sc.countRefusable(ctx, unknown, known); err != nil && ctx.Err() != nil {
		return err // any other is no reason to fail: nobody would be asked as much for the query itself
	}
	sc.learn(loads, known)
	for _, l := range loads {
		for i := range l.reads {
			r := &l.reads[i]
			n, sure := sc.series(r, known)
			if !sure && sc.tooMany(sc.ofSelector(r), known) {
				n, sure = int64(sc.listed())+1, true // at least
			}
			if sure {
				found.add(r, n)
			}
		}
	}
	if found.all <= int64(maxSeries) {
		return nil
	}
	return found.refuse(maxSeries)
}

// series is how many series a selector has on its shard. It is sure of what was counted, and of a
// name that the shard has told the number of, within its head; else it is what there are at most,
// by what the shard says of its metrics and labels, 0 where it says nothing.
func (sc *Scale) series(r *read, known numbers) (n int64, sure bool) {
	t := sc.ofSelector(r)
	if n, ok := sc.exactly(t, known); ok {
		return n, true
	}
	s := r.part.Shard
	sent, ok := plan.Strip(s.Group, r.vs.LabelMatchers) // no server knows of its group's labels
	if !ok {
		return 0, true
	}
	if len(sent) == 1 && isName(sent[0]) && r.from >= sc.Known.Sizes.Since(s) {
		if n, ok := sc.Known.Sizes.has(s, r.metric); ok {
			return n, true
		}
	}
	return t.most, false
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
	if t.by[r.metric] += n; t.by[r.metric] > t.by[t.metric] {
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
