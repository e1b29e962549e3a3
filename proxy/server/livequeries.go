package server

import (
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/spillwayproject/spillway/proxy/live"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// work is what a request's time is spent on.
type work uint32

const (
	workPlan work = iota
	workWait
	workAsk
	workFold
	workRead
	workParcels
	workSearch
	workWrite
)

// String is what follows "it is being".
func (w work) String() string {
	return [...]string{
		workPlan:    "planned",
		workWait:    "given the answer to an identical request, which is waited for",
		workAsk:     "asked of the shards",
		workFold:    "evaluated here, over what the shards had answered",
		workRead:    "read from the shards and evaluated here, series by series",
		workParcels: "read from the shards and evaluated here, some targets at a time",
		workSearch:  "searched here, value by value, in what the shards had answered",
		workWrite:   "written to its caller",
	}[w]
}

// doing is the work that is done now; other goroutines read it.
type doing struct{ atomic.Uint32 }

func (d *doing) set(w work) { d.Store(uint32(w)) }
func (d *doing) now() work  { return work(d.Load()) }

// show puts the request among the live ones, but for what this process asks itself.
func (x *exchange) show() {
	if x.ours() || bare {
		return
	}
	req := x.dec.Request
	c := x.caller
	x.shown = x.s.live.Enter(live.Facts{
		ID: x.uid, Endpoint: string(req.ID), Query: words(x.said), Tenant: c.Tenant, User: c.User, Dashboard: c.Dashboard, Panel: c.Panel,
		Rule: c.Rule, Lane: x.lane, Claimed: c.Claimed, Started: x.began.UTC(), Deadline: x.began.Add(x.dec.Deadline).UTC(),
	}, x.look, x.end)
}

// look tells what the request is doing; other goroutines call it.
func (x *exchange) look() live.State {
	b := x.weighed.Load()
	state := live.State{
		Doing: x.doing.now().String(), Series: b.Series(), Samples: b.Samples(), Bytes: b.Bytes(), HeldBytes: x.held(), PeakBytes: x.peak(),
		ShardSeconds: x.calls.get().Seconds(), Waiting: x.flying.Load().Waiting(),
	}
	if e := x.foreseen.Load(); e != nil {
		state.EstimatedBy, state.EstimatedSeries, state.EstimatedSamples = string(e.By), e.Series, e.Samples
		state.EstimatedBytes, state.EstimatedShardSeconds = e.Bytes, e.Seconds
	}
	return state
}

// adminQueries lists the live queries.
func (s *Server) adminQueries(w http.ResponseWriter, _ *http.Request) {
	adminData(w, s.live.List(s.now()))
}

// adminQuery is one of them, with its whole text.
func (s *Server) adminQuery(w http.ResponseWriter, r *http.Request) {
	q, ok := s.live.Get(r.PathValue("id"), s.now())
	if !ok {
		goneQuery(w, r)
		return
	}
	adminData(w, q)
}

// killQuery ends one, or, where no id is given, those of a tenant, a user, a dashboard.
func (s *Server) killQuery(w http.ResponseWriter, r *http.Request) {
	f, path := live.Filter{ID: r.PathValue("id")}, adminAPI+"queries"
	for name, values := range r.URL.Query() {
		into := map[string]*string{"tenant": &f.Tenant, "user": &f.User, "dashboard": &f.Dashboard}[name]
		if into == nil || len(values) != 1 || values[0] == "" || f.ID != "" {
			qerr.New(qerr.BadData, "%s takes tenant, user and dashboard, each once and not empty, and %s/ID takes nothing", path, path).WriteTo(w)
			return
		}
		*into = values[0]
	}
	if f == (live.Filter{}) {
		qerr.New(qerr.BadData, "which ones? DELETE %s/ID ends one, and DELETE %s?user=, ?dashboard= and ?tenant= all that have what is named", path, path).WriteTo(w)
		return
	}
	ids := s.killAll(r, path, f)
	if f.ID != "" && len(ids) == 0 {
		goneQuery(w, r)
		return
	}
	adminData(w, map[string][]string{"killed": ids})
}

// killAll ends what the filter names on behalf of r, which is one to the path, and says so in the
// log.
func (s *Server) killAll(r *http.Request, path string, f live.Filter) []string {
	ids := s.live.Kill(f)
	if f.ID == "" || len(ids) > 0 {
		s.metrics.kills.Add(float64(len(ids)))
		s.audit("kill", s.requestedBy(r, path), resultEnded, "queries", len(ids), "ids", strings.Join(ids[:min(len(ids), maxAudited)], " "))
	}
	return ids
}

// maxAudited is how many ids an audit line has.
const maxAudited = 100

func goneQuery(w http.ResponseWriter, r *http.Request) {
	qerr.New(qerr.NotFound, "no request with the id %.64q is under way: it has ended, or another Spillway has it", r.PathValue("id")).WriteTo(w)
}
