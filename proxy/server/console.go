package server

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/attribution"
	"github.com/spillwayproject/spillway/proxy/console"
	"github.com/spillwayproject/spillway/proxy/deny"
	"github.com/spillwayproject/spillway/proxy/live"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// consoleSource is what the console has of this server.
type consoleSource struct{ s *Server }

func (c consoleSource) Now() time.Time { return c.s.now() }

func (c consoleSource) Head() console.Head {
	st, done := c.s.peek()
	defer done()
	return console.Head{Version: c.s.shownVersion(), Hash: st.cfg.Hash, Loaded: st.loaded}
}

func (c consoleSource) Glance() console.Glance {
	st, done := c.s.peek()
	defer done()
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
	st, done := c.s.peek()
	defer done()
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

// peek is the current state for whoever asks nothing of it. When the server ends it may be closed
// already, and tells what it was.
func (s *Server) peek() (st *state, done func()) {
	st = s.state.Load()
	if st.enter() {
		return st, st.release
	}
	return st, func() {}
}

// Explain asks as the admin API's explain does: as nobody, whatever the browser sends along.
func (c consoleSource) Explain(r *http.Request, query string) (verdict, reason string, tree any, problem string) {
	e, err := c.s.ask(asNobody(r), Question{Query: query}, true)
	if err != nil {
		return "", "", nil, publicly(err)
	}
	if e.Plan != nil {
		tree = e.Plan
	}
	return string(e.Verdict), e.Reason, tree, ""
}

// isShown tells whether the console has a page about it.
func isShown(x *exchange, qe *qerr.Error) bool {
	if qe == nil || x.ours() || x.req == nil {
		return false
	}
	switch qe.Kind {
	case qerr.TooExpensive, qerr.Overloaded, qerr.Forbidden, qerr.ShardFailed, qerr.Timeout, qerr.Unavailable, qerr.Internal:
		return true
	}
	return false
}

// linked is the error with the address of the console's page about it, where that is known.
func (s *Server) linked(x *exchange, qe *qerr.Error) *qerr.Error {
	if s.opts.ConsoleURL == "" || !isShown(x, qe) {
		return qe
	}
	own := *qe // others may wait for the same answer
	own.Link = s.opts.ConsoleURL + "/refusals/" + x.uid
	return &own
}

// checkConsoleURL tells what is wrong with Options.ConsoleURL.
func checkConsoleURL(link string) error {
	if link == "" {
		return nil
	}
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		if u != nil {
			link = u.Redacted()
		}
		return fmt.Errorf("the console's URL %q is not an http or https address without a password, a path and a query, such as https://spillway-admin.example.com", link)
	}
	return nil
}

// showRefusal tells the console of a request that was refused, or failed for want of anything here
// or at the shards. Mistakes in a query, and callers who left, are nobody's concern but theirs.
func (s *Server) showRefusal(x *exchange, qe *qerr.Error) {
	if !isShown(x, qe) {
		return
	}
	r := console.Refusal{
		Asked: console.Asked{
			ID: x.uid, Endpoint: string(x.req.ID), Query: words(x.said), Tenant: x.caller.Tenant, User: x.caller.User,
			Dashboard: x.caller.Dashboard, Panel: x.caller.Panel, Rule: x.caller.Rule, Claimed: x.caller.Claimed,
		},
		Kind: qe.Kind.String(), Status: qe.Kind.Status(), Bound: qe.Bound, Value: qe.Value, Seen: qe.Seen,
		Message: qe.Message, Advice: qe.Advice,
	}
	if qe.Bound == policy.BoundUnselective && x.dec != nil && x.dec.Expr != nil && x.dec.Request.Query == x.said.Query {
		r.Marks = inTheWay(x.dec.Expr, qe.Seen)
	}
	if w := qe.Rewrite; w != nil {
		r.Rewrite = w.Path + "?" + url.Values(w.Parameters).Encode()
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

// inTheWay is where the selectors stand in the query's text that a refusal by unselective names.
func inTheWay(expr parser.Expr, named string) (marks [][2]int) {
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok && policy.SelectorText(vs.LabelMatchers) == named {
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
