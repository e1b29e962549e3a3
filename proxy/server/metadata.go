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
	if res.Truncated {
		x.cut = x.cut || x.req.Limit == 0 || x.req.Limit > x.dec.Limit || x.dec.PerShardLimit < x.dec.Limit
		advice := "narrow the selector"
		if x.req.ID == endpoint.Series || x.req.ID == endpoint.LabelValues {
			advice = "name a metric or add a label matcher"
		}
		text := fmt.Sprintf("results truncated due to limit: at most %d", x.dec.Limit)
		if x.dec.PerShardLimit < x.dec.Limit {
			text += fmt.Sprintf(", and %d from each shard", x.dec.PerShardLimit)
		}
		x.warnings.Add(text + "; " + advice)
	}
}

// labels answers label names: those that shards store, and the labels of every group that has a series.
func (x *exchange) labels() error {
	var questions []question
	for _, t := range x.targets() {
		limit := x.dec.PerShardLimit
		if !x.dec.Unselective {
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

// labelValues answers the values of one label. Values of a group's own label come from the configuration, for groups in which the selectors find a series;
// a replica label has none.
func (x *exchange) labelValues() error {
	var (
		questions []question
		own       []string
	)
	for _, t := range x.targets() {
		switch {
		case t.group.Labels.Has(x.req.Label):
			ok, err := x.exists(t)
			if err != nil {
				return err
			}
			if ok {
				own = append(own, t.group.Labels.Get(x.req.Label))
			}
		case slices.Contains(t.group.ReplicaLabels, x.req.Label):
		default:
			qs, err := x.metadataQuestions(t, endpoint.LabelValues, x.dec.PerShardLimit)
			if err != nil {
				return err
			}
			questions = append(questions, qs...)
		}
	}
	r, err := x.ask(questions)
	if err != nil {
		return err
	}
	defer r.close()
	lists := []merge.Strings{merge.FixedStrings(own)}
	for _, src := range r.sources {
		lists = append(lists, merge.ShardStrings(x.ctx, src, false, x.budget))
	}
	return x.strings(r, lists)
}

// exists asks whether the selectors find any series in the group. Where there are none, any label name will do: that reads no series.
func (x *exchange) exists(t target) (bool, error) {
	id := endpoint.Series
	if t.all {
		id = endpoint.Labels
	}
	qs, err := x.metadataQuestions(t, id, 1)
	if err != nil {
		return false, err
	}
	r, err := x.ask(qs)
	if err != nil {
		return false, err
	}
	defer r.close()
	w := merge.NewWriter(io.Discard, x.budget)
	defer w.Close()
	var res merge.Result
	if id == endpoint.Series {
		res, err = merge.MergeSeries(x.ctx, w, 1, r.sources, x.budget)
	} else {
		var lists []merge.Strings
		for _, src := range r.sources {
			src.Relabel = nil // any name will do
			lists = append(lists, merge.ShardStrings(x.ctx, src, false, x.budget))
		}
		res, err = merge.MergeStrings(x.ctx, w, 1, lists, x.budget)
	}
	x.warnings.Add(res.Warnings...)
	return res.Series > 0, x.bodyError(r, err)
}
