package server

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

const (
	// maxListed is how many names or values a shard that does not search is asked for, to be
	// searched here.
	maxListed = 100_000
	// partPresence tells questions whether there is a series from the others to the same shard.
	partPresence = 1
	// metadataToo is the parameter that asks for type, help and unit.
	metadataToo = "include_metadata"
)

// searchMetricNames answers search/metric_names.
func (x *exchange) searchMetricNames() error { return x.search(model.MetricNameLabel, "name") }

// searchLabelNames answers search/label_names.
func (x *exchange) searchLabelNames() error { return x.search("", "name") }

// searchLabelValues answers search/label_values.
func (x *exchange) searchLabelValues() error { return x.search(x.req.Label, "value") }

// search answers a search of the values of a label, or of label names where there is no label, in
// the lines of Prometheus. Shards that serve searches do their part; of the others all values are
// had and searched here, and of all of them where one turns out to search in another way. Nothing
// is written before all of it is known, so that every failure is an error with a status of its own.
func (x *exchange) search(label, key string) error {
	if x.told(metadataToo) && !x.describes() {
		x.warnings.Add(metadataToo + " is not for tenants with matchers: a server does not say whose series a text is about")
	}
	f, err := x.searched(label, true)
	if x.searchesNot(err) {
		f, err = x.searched(label, false)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := f.Sort()
	if err != nil {
		return err
	}
	// The limit has been kept to; whether groups have any series was counted too.
	if err := x.budget.AddSeries(min(n, x.limits.MaxSeries-int(x.budget.Series()))); err != nil {
		return err
	}
	x.warnings.Add(f.Warnings()...)
	x.noteSearched(n) // these answers have no place for infos
	switch {
	case f.Short():
		x.cut = true
		whose := policy.BoundUnselective
		if !x.dec.Unselective {
			whose = fmt.Sprintf("a shard that does not search by itself is asked for %d", maxListed)
		}
		x.warnings.Add("not all of a shard was searched (" + whose + "); name a metric or add a label matcher")
	case f.More() && x.req.Limit > x.dec.Limit:
		x.cut = true
		x.warnings.Add(x.truncation(n) + "; search for more of the text, or add a label matcher")
	}
	x.client.Header().Set("Content-Type", "application/x-ndjson; charset=utf-8")
	batch := endpoint.DefaultSearchBatch
	if v := x.req.Filters["batch_size"]; len(v) > 0 {
		batch, _ = strconv.Atoi(v[0]) // endpoint.Parse has checked it
	}
	_, span := x.s.room(x.ctx, "write")
	defer span.End()
	return f.Write(x.out, merge.SearchAnswer{Batch: batch, Key: key, Scores: x.told("include_score")}, x.warnings.List())
}

// told tells whether a parameter of the request that is true or false is true.
func (x *exchange) told(name string) bool { return slices.Equal(x.req.Filters[name], []string{"true"}) }

// describes tells whether the answer says what each metric is: where it was asked for, and not to a
// tenant that sees a part.
func (x *exchange) describes() bool { return x.told(metadataToo) && !x.s.walls.bare(x.tenant) }

// searching is what the request looks for.
func (x *exchange) searching() *merge.Search {
	said := func(name string) string { return strings.Join(x.req.Filters[name], "") }
	threshold, _ := strconv.Atoi(said("fuzz_threshold")) // endpoint.Parse has checked it
	return &merge.Search{
		Terms: x.req.Filters["search[]"], JaroWinkler: said("fuzz_alg") == "jarowinkler", Threshold: threshold,
		AnyCase: said("case_sensitive") == "false", ByScore: said("sort_by") == "score", Descending: said("sort_dir") == "dsc",
	}
}

// searched is what all shards have. byShards lets those search that can. Close must be called of
// what is returned without an error.
func (x *exchange) searched(label string, byShards bool) (_ *merge.Finds, err error) {
	f := merge.NewFinds(x.ctx, x.searching(), x.dec.Limit, x.budget)
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	questions, err := x.searchQuestions(f, label, byShards)
	if err != nil {
		return nil, err
	}
	r, err := x.ask(questions)
	if err != nil {
		return nil, err
	}
	defer r.close()
	_, span := x.s.room(x.ctx, "merge")
	defer span.End()
	p := &searchPace{x: x}
	defer p.end()
	f.Look = p.look
	listed := map[*shard.Shard]bool{}
	groups, asked := map[*shard.Group][]merge.Source{}, map[*shard.Group]endpoint.ID{}
	for i, src := range r.sources {
		q := r.asked[i]
		src.Bare = !x.describes()
		if q.part != partPresence {
			src.Body = p.reads(src.Body)
		}
		switch {
		case q.part == partPresence:
			groups[q.shard.Group], asked[q.shard.Group] = append(groups[q.shard.Group], src), q.req.ID
		case q.req.ID == x.req.ID:
			if err = f.Shard(src, label == ""); errors.Is(err, merge.ErrOtherSearch) {
				x.rememberLists(q.shard, err)
			}
		default:
			listed[q.shard] = true
			err = f.List(merge.ShardStrings(x.ctx, src, label == "", x.budget))
		}
		if err != nil {
			return nil, x.bodyError(r, p.blames(err))
		}
	}
	for _, g := range x.st.top.Groups {
		if len(groups[g]) == 0 {
			continue
		}
		ok, err := x.exists(asked[g], groups[g])
		if err != nil {
			return nil, x.bodyError(r, err)
		}
		if !ok {
			if err := x.none(r, g); err != nil {
				return nil, err
			}
		} else {
			if err := f.Add(ownOf(g, label)...); err != nil {
				return nil, err
			}
		}
	}
	if x.describes() && len(listed) > 0 {
		err = x.describe(f, listed)
	}
	return f, err
}

// ownOf are the values that the group's own labels have of the label, or their names where there is
// none.
func ownOf(g *shard.Group, label string) (own []string) {
	g.Labels.Range(func(l labels.Label) {
		switch label {
		case "":
			own = append(own, l.Name)
		case l.Name:
			own = append(own, l.Value)
		}
	})
	return own
}

// searchQuestions are what the shards are asked: to search, for all there is, or, where a group's
// own label is among what is searched, whether there is any series.
func (x *exchange) searchQuestions(f *merge.Finds, label string, byShards bool) (out []question, err error) {
	for _, t := range x.targets() {
		own := ownOf(t.group, label)
		if slices.ContainsFunc(own, f.Accepts) {
			qs, err := x.presenceQuestions(t)
			if err != nil {
				return nil, err
			}
			for i := range qs {
				qs[i].part = partPresence
			}
			out = append(out, qs...)
		}
		if label != "" && slices.Contains(plan.Owned(t.group), label) {
			continue // what shards store of it is in no answer
		}
		spare := 0
		if label == "" {
			spare = len(plan.Owned(t.group)) // which are removed from what a shard sends
		}
		// What a Prometheus finds without a text are any values as soon as it has enough of them,
		// not the first ones.
		whole := label != "" && f.Everything()
		search, list := t, t
		for _, s := range t.group.Shards {
			if byShards && !whole && s.Searches() && x.s.listed.get(s.Name(), x.s.now()) == "" {
				search.only = append(search.only, s)
			} else {
				list.only = append(list.only, s)
			}
		}
		qs, err := x.searchOf(search, x.req.ID, label, x.dec.PerShardLimit+spare)
		if err != nil {
			return nil, err
		}
		out = append(out, qs...)
		id, limit := endpoint.LabelValues, maxListed
		if label == "" {
			id = endpoint.Labels
		}
		if x.dec.Unselective {
			limit = policy.UnselectiveSeriesPerShard
		}
		if qs, err = x.searchOf(list, id, label, limit); err != nil {
			return nil, err
		}
		out = append(out, qs...)
	}
	return out, nil
}

// searchOf are the questions to some shards of a group.
func (x *exchange) searchOf(t target, id endpoint.ID, label string, limit int) ([]question, error) {
	if len(t.only) == 0 {
		return nil, nil
	}
	qs, err := x.metadataQuestions(t, id, limit)
	for i := range qs {
		req := qs[i].req
		if req.Label = x.req.Label; id != x.req.ID {
			req.Label = label
		}
		delete(req.Filters, "batch_size") // what is written is put into lines here
		delete(req.Filters, "include_score")
		if !x.describes() {
			delete(req.Filters, metadataToo)
		}
	}
	return qs, err
}

// describe adds what shards that do not search say about metrics.
func (x *exchange) describe(f *merge.Finds, shards map[*shard.Shard]bool) error {
	var questions []question
	for s := range shards {
		req := &endpoint.Request{ID: endpoint.Metadata, Timeout: x.dec.Request.Timeout}
		questions = append(questions, question{shard: s, req: req, class: shard.Light})
	}
	slices.SortFunc(questions, func(a, b question) int { return strings.Compare(a.shard.Name(), b.shard.Name()) })
	r, err := x.ask(questions)
	if err != nil {
		return err
	}
	defer r.close()
	return x.bodyError(r, f.Describe(r.sources))
}

// searchesNot tells whether an error means that a shard does not serve this search, whatever it
// said before, so that what it has is searched here.
func (x *exchange) searchesNot(err error) bool {
	if errors.Is(err, merge.ErrOtherSearch) {
		return true
	}
	var status *shard.StatusError
	if !errors.As(err, &status) {
		return false
	}
	switch status.Code {
	case http.StatusBadRequest: // such as a limit over its own
		return true
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
	case http.StatusServiceUnavailable:
		if !strings.Contains(status.Body, "search") { // "search API disabled"
			return false
		}
	default:
		return false
	}
	var e *qerr.Error
	if errors.As(err, &e) {
		for _, name := range e.Shards {
			if r := x.st.top.Replica(name); r != nil {
				x.rememberLists(r.Shard, err)
			}
		}
	}
	return true
}

// rememberLists notes that a shard is not to be asked to search for some minutes.
func (x *exchange) rememberLists(s *shard.Shard, why error) {
	x.s.listed.put(s.Name(), why.Error(), x.s.now())
}
