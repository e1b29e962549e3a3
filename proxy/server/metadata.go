package server

import (
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/shard"
)

const maxTime = math.MaxInt64

// series answers series: the union over shards, bounded, with a warning where it was cut.
func (x *exchange) series() error {
	var questions []question
	for _, t := range x.targets() {
		qs, err := x.metadataQuestions(t, endpoint.Series, x.dec.PerShardLimit)
		if err != nil {
			return err
		}
		questions = append(questions, qs...)
	}
	r, err := x.ask(questions)
	if err != nil {
		return err
	}
	defer r.close()
	if err := x.out.Begin(); err != nil {
		return err
	}
	_, span := x.s.room(x.ctx, "merge")
	res, err := merge.MergeSeries(x.ctx, x.out, x.dec.Limit, r.sources, x.budget)
	span.End()
	if err != nil {
		return x.bodyError(r, err)
	}
	x.note(res)
	return x.finishJSON()
}

// note takes over what a merge saw.
func (x *exchange) note(res merge.Result) {
	x.warnings.Add(res.Warnings...)
	x.infos.Add(res.Infos...)
	x.noteSearched(res.Series)
	if res.Truncated {
		x.cut = x.cut || x.req.Limit == 0 || x.req.Limit > x.dec.Limit || x.dec.PerShardLimit < x.dec.Limit
		advice := "narrow the selector"
		if x.req.ID == endpoint.Series || x.req.ID == endpoint.LabelValues {
			advice = "name a metric or add a label matcher"
		}
		x.warnings.Add(x.truncation(res.Series) + "; " + advice)
	}
}

// noteSearched says which time was searched where the request gave no start and somebody may miss
// something: of nothing found in a warning, and of a metric that was named in an info, since not
// all of its series may be there. Other lists are asked without a start by whoever completes a
// text, at each key, and mean what there is now.
func (x *exchange) noteSearched(found int) {
	switch {
	case x.dec.Searched == "":
	case found == 0:
		x.warnings.Add(x.dec.Searched)
	case slices.Contains(x.dec.Classes, policy.Named):
		x.infos.Add(x.dec.Searched)
	}
}

// truncation says which limit has cut an answer of so many series, names or values: that of all of
// it, or that of each shard.
func (x *exchange) truncation(n int) string {
	limit, each, whose := x.dec.Limit, "", policy.BoundMaxSeries
	if n < x.dec.Limit {
		limit, each = x.dec.PerShardLimit, " from each shard"
	}
	switch {
	case limit < x.dec.Limit:
		whose = policy.BoundUnselective
	case x.req.Limit > 0 && x.req.Limit <= limit:
		whose = "the request's own limit"
	}
	return fmt.Sprintf("results truncated due to limit: at most %d%s (%s)", limit, each, whose)
}

// labels answers label names: those that shards store, and the labels of every group that has a
// series.
func (x *exchange) labels() error {
	var questions []question
	for _, t := range x.targets() {
		limit := x.dec.PerShardLimit
		if !x.dec.Unselective || limit > policy.UnselectiveSeriesPerShard {
			limit += len(plan.Owned(t.group)) // which are removed from what a shard sends
		}
		qs, err := x.metadataQuestions(t, endpoint.Labels, limit)
		if err != nil {
			return err
		}
		questions = append(questions, qs...)
	}
	r, err := x.ask(questions)
	if err != nil {
		return err
	}
	defer r.close()
	var lists []merge.Strings
	var own []string
	for i, src := range r.sources {
		l := &peeked{Strings: merge.ShardStrings(x.ctx, src, true, x.budget)}
		lists = append(lists, l)
		if l.peek() {
			r.asked[i].shard.Group.Labels.Range(func(lb labels.Label) { own = append(own, lb.Name) })
		}
	}
	lists = append(lists, merge.FixedStrings(own))
	return x.strings(r, lists)
}

// strings merges lists into the answer.
func (x *exchange) strings(r *replies, lists []merge.Strings) error {
	if err := x.out.Begin(); err != nil {
		return err
	}
	_, span := x.s.room(x.ctx, "merge")
	res, err := merge.MergeStrings(x.ctx, x.out, x.dec.Limit, lists, x.budget)
	span.End()
	if err != nil {
		return x.bodyError(r, err)
	}
	x.note(res)
	return x.finishJSON()
}

// peeked is a list whose first string can be looked for before the merge begins.
type peeked struct {
	merge.Strings
	looked, has, used bool
}

func (p *peeked) peek() bool {
	if !p.looked {
		p.looked, p.has = true, p.Strings.Next()
	}
	return p.has
}

// Next implements merge.Strings.
func (p *peeked) Next() bool {
	if p.looked && !p.used {
		p.used = true
		return p.has
	}
	return p.Strings.Next()
}

// labelValues answers the values of one label. Values of a group's own label come from the
// configuration, for groups in which the selectors find a series; a replica label has none. All
// groups are asked together, whichever of the two they are asked: one that is slow makes no other
// one wait.
func (x *exchange) labelValues() error {
	var questions []question
	for _, t := range x.targets() {
		var qs []question
		var err error
		switch {
		case t.group.Labels.Has(x.req.Label):
			qs, err = x.presenceQuestions(t)
		case slices.Contains(t.group.ReplicaLabels, x.req.Label):
			continue
		default:
			qs, err = x.metadataQuestions(t, endpoint.LabelValues, x.dec.PerShardLimit)
		}
		if err != nil {
			return err
		}
		questions = append(questions, qs...)
	}
	r, err := x.ask(questions)
	if err != nil {
		return err
	}
	defer r.close()
	var lists []merge.Strings
	groups, asked := map[*shard.Group][]merge.Source{}, map[*shard.Group]endpoint.ID{}
	for i, src := range r.sources {
		if q := r.asked[i]; q.req.ID == x.req.ID {
			lists = append(lists, merge.ShardStrings(x.ctx, src, false, x.budget))
		} else {
			groups[q.shard.Group], asked[q.shard.Group] = append(groups[q.shard.Group], src), q.req.ID
		}
	}
	var own []string
	for _, g := range x.st.top.Groups {
		if len(groups[g]) == 0 {
			continue
		}
		ok, err := x.exists(asked[g], groups[g])
		if err != nil {
			return x.bodyError(r, err)
		}
		if ok {
			own = append(own, g.Labels.Get(x.req.Label))
		} else if err := x.none(r, g); err != nil {
			return err
		}
	}
	return x.strings(r, append(lists, merge.FixedStrings(own)))
}

// presence is what a group is asked to find out whether its selectors find any series. Where there
// are none, any label name will do: that reads no series.
func presence(t target) endpoint.ID {
	if t.all {
		return endpoint.Labels
	}
	return endpoint.Series
}

// exists tells whether a group's answers to presence have any series.
func (x *exchange) exists(id endpoint.ID, sources []merge.Source) (bool, error) {
	w := merge.NewWriter(io.Discard, x.budget)
	defer w.Close()
	var (
		res merge.Result
		err error
	)
	if id.Decode() == endpoint.DecodeLabelSets {
		res, err = merge.MergeSeries(x.ctx, w, 1, sources, x.budget)
	} else {
		var lists []merge.Strings
		for _, src := range sources {
			lists = append(lists, merge.ShardStrings(x.ctx, src, false, x.budget))
		}
		res, err = merge.MergeStrings(x.ctx, w, 1, lists, x.budget)
	}
	x.warnings.Add(res.Warnings...)
	return res.Series > 0, err
}
