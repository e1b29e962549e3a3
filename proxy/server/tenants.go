package server

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
	"github.com/spillwayproject/spillway/proxy/tenant"
)

// challenge tells who is not known what to send.
func (s *Server) challenge(w http.ResponseWriter, st *state, err error) {
	if qerr.From(err).Kind == qerr.Unauthorized {
		w.Header()["Www-Authenticate"] = st.tenants.Challenge(err)
	}
}

// keysRead is when the keys of signed tokens were last read, in seconds since 1970; 0 for never.
func (s *Server) keysRead() float64 {
	st := s.state.Load()
	if st == nil || st.tenants.KeysRead().IsZero() {
		return 0
	}
	return float64(st.tenants.KeysRead().Unix())
}

// tokensAway is how many files of tenants' tokens cannot be read now.
func (s *Server) tokensAway() float64 {
	st := s.state.Load()
	if st == nil {
		return 0
	}
	return float64(st.tenants.Unreadable(time.Now()))
}

// foreign refuses a page to who is no tenant; true where it did.
func (s *Server) foreign(w http.ResponseWriter, r *http.Request) bool {
	st := s.acquire()
	defer st.release()
	_, err := s.walls.identify(st.tenants, r)
	if err == nil {
		return false
	}
	s.challenge(w, st, err)
	refuse(w, qerr.From(err))
	return true
}

// walls are what keeps a tenant to its own, each with one place that asks it. Tests plant holes in
// them, to see that what they look for is found.
type walls struct {
	identify func(*tenant.Directory, *http.Request) (*tenant.Tenant, error)
	enforce  func(*tenant.Tenant, *endpoint.Request, parser.Expr, [][]*labels.Matcher) (*endpoint.Request, error)
	check    func(*tenant.Tenant, *endpoint.Request, [][]*labels.Matcher) error
	sees     func(*tenant.Tenant, labels.Labels) bool
	names    func(*exchange) (func(labels.Labels) bool, error)   // whose metadata is shown
	bare     func(*tenant.Tenant) bool                           // whether metadata is shown without its texts
	reads    func(*tenant.Tenant, endpoint.ID) []*labels.Matcher // what all that is read to be evaluated here meets
}

// standing are the walls without holes.
func standing() walls {
	return walls{
		identify: (*tenant.Directory).Identify, enforce: (*tenant.Tenant).Enforce, check: (*tenant.Tenant).Check,
		sees: (*tenant.Tenant).Sees, names: (*exchange).seenNames, bare: (*tenant.Tenant).Narrow,
		reads: func(t *tenant.Tenant, _ endpoint.ID) []*labels.Matcher { return t.Narrowing() },
	}
}

// mayKnow tells whether the tenant can have anything in the group, by the labels that the group
// gives to all that it holds: nothing else is asked for him, fails him or is named to him.
func (x *exchange) mayKnow(g *shard.Group) bool {
	_, ok := plan.Strip(g, x.tenant.Narrowing())
	return ok
}

// shards is how many shards the caller may know of.
func (x *exchange) shards() int {
	if !x.tenant.Narrow() {
		return x.st.shards
	}
	n := 0
	for _, g := range x.st.top.Groups {
		if x.mayKnow(g) {
			n += len(g.Shards)
		}
	}
	return n
}

// seen lets of the sources' rules and alerts only what the tenant may see.
func (x *exchange) seen(src []merge.Source) []merge.Source {
	if x.tenant.Narrow() {
		for i := range src {
			src[i].Keep = func(ls labels.Labels) bool { return x.s.walls.sees(x.tenant, ls) }
		}
	}
	return src
}

// nameBytes is what a name takes beside its text: its place in a list and in a table, both of which
// grow by doubling.
const nameBytes = 2*16 + 2*24

// seenNames tells of a name whether the tenant has series of it in the last metadata_range; nil
// where it sees everything.
func (x *exchange) seenNames() (func(labels.Labels) bool, error) {
	if !x.tenant.Narrow() {
		return nil, nil
	}
	req := &endpoint.Request{ID: endpoint.LabelValues, Label: model.MetricNameLabel}
	if x.req.Metric != "" {
		for _, name := range merge.MetadataNames(x.req.Metric) {
			req.Match = append(req.Match, "{"+labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, name).String()+"}")
		}
	}
	kept := &keptAnswer{nowhere: nowhere{http.Header{}}, budget: x.budget}
	from := (&http.Request{Header: http.Header{}}).WithContext(identity.With(context.WithoutCancel(x.ctx), identity.From(x.ctx)))
	ctx, cancel := context.WithCancel(from.Context())
	defer cancel()
	defer context.AfterFunc(x.ctx, cancel)()
	switch _, qe := x.s.road(kept, from.WithContext(ctx), &inner{req: req, tenant: x.tenant}); {
	case kept.err != nil:
		return nil, kept.err
	case kept.over:
		e := qerr.New(qerr.TooExpensive, "the names of the metrics that tenant %s has series of have more than %d MiB", x.tenant.Name, maxKept>>20)
		e.Advice = "ask for one of them with metric="
		return nil, e
	case qe != nil:
		return nil, qe
	}
	// Each name is in the list and the table, its text beside the answer's for a moment.
	if err := x.budget.Hold(int64(len(kept.body) + nameBytes*(1+bytes.Count(kept.body, []byte{','})))); err != nil {
		return nil, err
	}
	var answer struct{ Data, Warnings []string }
	if err := json.Unmarshal(kept.body, &answer); err != nil {
		return nil, qerr.Wrap(qerr.Internal, err, "Spillway failed to list the metrics of tenant %s; its log has the cause", x.tenant.Name)
	}
	x.warnings.Add(answer.Warnings...) // where it was cut
	names := make(map[string]bool, len(answer.Data))
	for _, name := range answer.Data {
		names[name] = true
	}
	x.budget.Drop(int64(len(kept.body)))
	return func(ls labels.Labels) bool { return names[ls.Get(model.MetricNameLabel)] }, nil
}
