package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// everyShard are questions with one request for every shard of which the caller may know.
// everyReplica asks all replicas of each that can be asked: their rules and alerts are their own,
// and the most urgent state wins.
func (x *exchange) everyShard(everyReplica bool, change func(*endpoint.Request)) []question {
	var out []question
	for _, g := range x.st.top.Groups {
		if !x.mayKnow(g) {
			continue
		}
		relabel := merge.NewRelabel(g.Labels.Map(), plan.Owned(g))
		for _, s := range g.Shards {
			if !s.Serves(x.dec.Request.ID) {
				continue // another kind of server, which has no such thing to tell
			}
			req := x.dec.Request.Clone()
			req.PartialResponse = x.noPart()
			if change != nil {
				change(req)
			}
			q := question{shard: s, req: req, relabel: relabel, class: shard.Light}
			sound, err := x.sound(s)
			if err != nil || !everyReplica && len(x.attempt.Avoid) == 0 { // the shard's own error is the better one, and so is its choice
				out = append(out, q)
				continue
			}
			if !everyReplica {
				sound = sound[:1]
			}
			for _, r := range sound {
				q.replica = r
				out = append(out, q)
			}
		}
	}
	return out
}

// joiner writes what several answers come to together.
type joiner func(context.Context, *merge.Writer, []merge.Source, *admit.Budget) (merge.Result, error)

// joined answers with the merge of small documents from all shards.
func (x *exchange) joined(questions []question, join joiner) error {
	r, err := x.ask(questions)
	if err != nil {
		return err
	}
	defer r.close()
	if err := x.out.Begin(); err != nil {
		return err
	}
	_, span := x.s.room(x.ctx, "merge")
	res, err := join(x.ctx, x.out, r.sources, x.budget)
	span.End()
	if err != nil {
		return x.bodyError(r, err)
	}
	x.note(res)
	return x.finishJSON()
}

// metadata answers type, help and unit of metrics.
func (x *exchange) metadata() error {
	limit := x.listLimit()
	ask := func(r *endpoint.Request) { r.Limit = limit + 1 } // one more than is wanted, so that what is cut is known to be
	keep, err := x.s.walls.names(x)
	if err != nil {
		return err
	}
	if keep != nil {
		ask = func(r *endpoint.Request) { r.Limit = 0 } // what is cut would be of others
	}
	return x.joined(x.everyShard(false, ask),
		func(ctx context.Context, w *merge.Writer, src []merge.Source, b *admit.Budget) (merge.Result, error) {
			for i := range src {
				src[i].Keep, src[i].Bare = keep, x.s.walls.bare(x.tenant)
			}
			return merge.MergeMetadata(ctx, w, limit, x.req.LimitPerMetric, src, b)
		})
}

// listLimit is the least of the client's limit and ours; it is also what note says.
func (x *exchange) listLimit() int {
	limit := x.limits.MaxSeries
	if x.req.Limit > 0 {
		limit = min(limit, x.req.Limit)
	}
	x.dec.Limit, x.dec.PerShardLimit = limit, limit
	return limit
}

// rules answers the rule groups. Pages are cut after merging, so shards are asked for everything
// that the other filters leave.
func (x *exchange) rules() error {
	page := merge.RulesPage{}
	if v := x.req.Filters["group_limit"]; len(v) > 0 {
		page.Limit, _ = strconv.Atoi(v[0]) // endpoint.Parse has checked it
	}
	if v := x.req.Filters["group_next_token"]; len(v) > 0 {
		page.Token = v[0]
	}
	return x.joined(x.everyShard(true, func(r *endpoint.Request) {
		delete(r.Filters, "group_limit")
		delete(r.Filters, "group_next_token")
	}), func(ctx context.Context, w *merge.Writer, src []merge.Source, b *admit.Budget) (merge.Result, error) {
		return merge.MergeRules(ctx, w, page, x.seen(src), b)
	})
}

// alerts answers the pending and firing alerts.
func (x *exchange) alerts() error {
	merged := func(ctx context.Context, w *merge.Writer, src []merge.Source, b *admit.Budget) (merge.Result, error) {
		return merge.MergeAlerts(ctx, w, x.seen(src), b)
	}
	return x.joined(x.everyShard(true, nil), merged)
}

// targetList answers the scrape targets.
func (x *exchange) targetList() error { return x.joined(x.everyShard(false, nil), merge.MergeTargets) }

// scrapePools answers the names of the scrape pools.
func (x *exchange) scrapePools() error {
	return x.joined(x.everyShard(false, nil), merge.MergeScrapePools)
}

// alertmanagers answers where servers send alerts. Replicas find theirs by themselves, so all are
// asked.
func (x *exchange) alertmanagers() error {
	return x.joined(x.everyShard(true, nil), merge.MergeAlertmanagers)
}

// targetsMetadata answers metadata by target. Matchers on the group's labels choose groups, as
// everywhere.
func (x *exchange) targetsMetadata() error {
	limit := x.listLimit()
	var questions []question
	for _, q := range x.everyShard(false, func(r *endpoint.Request) { r.Limit = limit + 1 }) {
		if len(x.dec.Selectors) > 0 {
			sent, ok := plan.Strip(q.shard.Group, x.dec.Selectors[0])
			if !ok {
				continue
			}
			q.req.Match = nil
			if len(sent) > 0 {
				q.req.Match = []string{plan.Selector(sent)}
			}
		}
		questions = append(questions, q)
	}
	merged := func(ctx context.Context, w *merge.Writer, src []merge.Source, b *admit.Budget) (merge.Result, error) {
		return merge.MergeTargetsMetadata(ctx, w, limit, src, b)
	}
	return x.joined(questions, merged)
}

// features answers what all shards have: nothing that is known, where one does not tell, as older
// ones do not.
func (x *exchange) features() error {
	err := x.joined(x.everyShard(false, nil), merge.MergeFeatures)
	var status *shard.StatusError
	if errors.As(err, &status) && (status.Code == http.StatusNotFound || status.Code == http.StatusMethodNotAllowed) {
		return x.writeData(struct{}{})
	}
	return err
}

// buildinfo answers the lowest version among the shards that are Prometheus: Thanos counts by its
// own, 0.42 or so, which clients take for an ancient Prometheus. It is answered where there is
// nothing else.
func (x *exchange) buildinfo() error {
	questions := x.everyShard(false, nil)
	if len(questions) == 0 {
		return qerr.New(qerr.Forbidden, "tenant %s can have nothing in any group, so that there is no server to tell of: its matchers fit the labels of none", x.tenant.Name)
	}
	if own := slices.DeleteFunc(slices.Clone(questions), func(q question) bool { return q.shard.Thanos() }); len(own) > 0 {
		questions = own
	}
	return x.joined(questions, merge.MergeBuildinfo)
}

// tsdb answers what the heads hold, added up.
func (x *exchange) tsdb() error {
	limit := 10
	if v := x.req.Filters["limit"]; len(v) > 0 {
		limit, _ = strconv.Atoi(v[0]) // endpoint.Parse has checked it
	}
	merged := func(ctx context.Context, w *merge.Writer, src []merge.Source, b *admit.Budget) (merge.Result, error) {
		return merge.MergeTSDB(ctx, w, limit, src, b)
	}
	return x.joined(x.everyShard(false, nil), merged)
}

// exemplars answers query_exemplars: the exemplars of the series that the expression's selectors
// find. What else the expression says does not matter, so each group is asked for the selectors
// that it can answer.
func (x *exchange) exemplars() error {
	var questions []question
	if !x.dec.Empty {
		for _, t := range x.targets() {
			relabel := merge.NewRelabel(t.group.Labels.Map(), plan.Owned(t.group))
			for _, s := range t.group.Shards {
				from, until, ok := x.window(s)
				if !ok || len(t.sent) == 0 {
					continue
				}
				req := x.dec.Request.Clone()
				req.PartialResponse = x.noPart()
				req.Start, req.End = endpoint.At(from), endpoint.At(until)
				req.Query = union(t.sent)
				q := question{shard: s, req: req, relabel: relabel, class: shard.Light}
				asked, err := x.askCopies(q, from, until)
				if err != nil {
					return err
				}
				questions = append(questions, asked...)
			}
		}
	}
	return x.joined(questions, merge.MergeExemplars)
}

// union is one expression with all the selectors in it.
func union(selectors [][]*labels.Matcher) string {
	texts := make([]string, len(selectors))
	for i, ms := range selectors {
		texts[i] = plan.Selector(plan.Filled(ms))
	}
	return strings.Join(texts, " or ")
}
