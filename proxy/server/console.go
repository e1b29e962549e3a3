package server

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/attribution"
	"github.com/spillwayproject/spillway/proxy/console"
	"github.com/spillwayproject/spillway/proxy/deny"
	"github.com/spillwayproject/spillway/proxy/live"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// consoleSource is what the console has of this server.
type consoleSource struct{ s *Server }

func (c consoleSource) Now() time.Time { return c.s.now() }

func (c consoleSource) Head() console.Head {
	st := c.s.acquire()
	defer st.release()
	return console.Head{Version: c.s.shownVersion(), Hash: st.cfg.Hash, Loaded: st.loaded}
}

func (c consoleSource) Glance() console.Glance {
	st := c.s.acquire()
	defer st.release()
	g := console.Glance{
		At: c.s.now(), MemoryUsed: st.pool.InUse(), MemoryLimit: st.pool.Limit(), Live: c.s.live.Len(), Shards: st.top.Places(),
		Lanes: []console.Lane{},
	}
	for _, l := range st.top.Lanes() {
		g.Lanes = append(g.Lanes, console.Lane{
			Name: l.Name, Held: l.Held, Waiting: l.Waiting, WaitedSeconds: l.Waited.Seconds(), Refused: l.Refused,
		})
	}
	return g
}

func (c consoleSource) Replicas() []shard.Info {
	st := c.s.acquire()
	defer st.release()
	return st.top.Status()
}

func (c consoleSource) Live(now time.Time) []live.Query { return c.s.live.List(now) }

func (c consoleSource) Top(now time.Time, by attribution.Kind, limit int) attribution.Top {
	return c.s.spent.Top(now, by, "shard_s", limit)
}

func (c consoleSource) Deny(now time.Time) []deny.Entry { return c.s.deny.List(now) }

func (c consoleSource) Kill(r *http.Request, f live.Filter) int {
	return len(c.s.killAll(r, "/kill", f))
}

// Explain asks as the admin API's explain does: as nobody, whatever the browser sends along.
func (c consoleSource) Explain(r *http.Request, query string) (verdict, reason string, tree any, problem string) {
	e, err := c.s.ask(asNobody(r), Question{Query: query})
	if err != nil {
		return "", "", nil, publicly(err)
	}
	if e.Plan != nil {
		tree = e.Plan
	}
	return string(e.Verdict), e.Reason, tree, ""
}

// showRefusal tells the console of a request that was refused, or failed for want of anything here
// or at the shards. Mistakes in a query, and callers who left, are nobody's concern but theirs.
func (s *Server) showRefusal(x *exchange, qe *qerr.Error) {
	if qe == nil || x.inner || x.req == nil {
		return
	}
	switch qe.Kind {
	case qerr.TooExpensive, qerr.Overloaded, qerr.Forbidden, qerr.ShardFailed, qerr.Timeout, qerr.Unavailable, qerr.Internal:
	default:
		return
	}
	r := console.Refusal{
		Asked: console.Asked{
			ID: x.uid, Endpoint: string(x.req.ID), Query: words(x.req), Tenant: x.caller.Tenant, User: x.caller.User,
			Dashboard: x.caller.Dashboard, Panel: x.caller.Panel, Rule: x.caller.Rule,
		},
		Kind: qe.Kind.String(), Status: qe.Kind.Status(), Bound: qe.Bound, Value: qe.Value, Seen: qe.Seen,
		Message: qe.Message, Advice: qe.Advice,
	}
	if qe.Kind == qerr.TooExpensive && x.dec != nil && x.dec.Expr != nil && x.req.Query != "" {
		r.Marks = inTheWay(x.dec.Expr, qe.Message)
	}
	s.console.Refused(r)
}

// report writes the log's digests and the console's history until ctx ends.
func (s *Server) report(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { s.console.Run(ctx) })
	s.digest.run(ctx, s.log)
	wg.Wait()
}

// inTheWay is where the selectors stand in the query's text that a sentence speaks of.
func inTheWay(expr parser.Expr, sentence string) (marks [][2]int) {
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok && strings.Contains(sentence, vs.String()) {
			marks = append(marks, [2]int{int(vs.PosRange.Start), int(vs.PosRange.End)})
		}
		return nil
	})
	return marks
}

// adminRefusals lists what was refused lately.
func (s *Server) adminRefusals(w http.ResponseWriter, _ *http.Request) {
	adminData(w, s.console.Refusals())
}

// adminGlances are memory, lanes and shards' places over the last ten minutes.
func (s *Server) adminGlances(w http.ResponseWriter, _ *http.Request) {
	adminData(w, s.console.Glances())
}
