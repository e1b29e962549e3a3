package server

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// counsel adds to an error what only the request and the state of all servers tell: since when a
// shard fails and that the others are well, what the time was spent on, why series had to be read;
// and what to do now, and for good.
func (x *exchange) counsel(e *qerr.Error) *qerr.Error {
	if x.st == nil || x.dec == nil || x.view == nil || e == nil {
		return e
	}
	out := *e // the private cause goes along
	switch {
	case e.Bound == policy.BoundMaxSeries && x.rawHere != "":
		out.Message = fmt.Sprintf("the query reads %s series, and max_series allows %s; they have to be read since it is evaluated here: %s", e.Seen, e.Value, x.rawHere)
		out.Advice = "now: add a label matcher, such as namespace=\"…\"; for good: record the expression by a rule on the shards, or mend what keeps it from running there (explain tells)"
		if g := x.undivided(); g != "" {
			out.Advice += "; where one shard of group " + g + " has all of these metrics, as that which scrapes kube-state-metrics has its, say so under names of that shard (docs/trust.md)"
		}
		if x.rawCause == plan.CauseNotWhole {
			out.Advice = "now: add a label matcher, such as namespace=\"…\", or ask for a time over which one replica lacks nothing; for good: mend the replica that does not scrape what another one does (docs/runbooks/ProxyReplicaNotWhole.md)"
		}
	case e.Kind == qerr.Timeout && e.Bound == policy.BoundTimeout && x.doing.now() != workPlan:
		out.Message = e.Message + ": at its end it was still being " + x.doing.now().String()
	case len(e.Shards) > 0 && (e.Kind == qerr.ShardFailed || e.Kind == qerr.Timeout ||
		(e.Kind == qerr.Overloaded || e.Kind == qerr.Unavailable) && e.Bound == ""):
		x.tellTrouble(&out)
	}
	return &out
}

// undivided is a group of several shards, listed in the configuration, of which nothing says how
// series are spread, where the request joins metrics of it that it gives by name; empty where there
// is none.
func (x *exchange) undivided() string {
	if c := x.rawCause; c != plan.CauseExpression && c != plan.CauseNone || x.dec.Expr == nil || !joins(x.dec.Expr) {
		return ""
	}
	named := func(m *labels.Matcher) bool { return m.Type == labels.MatchEqual && m.Name == model.MetricNameLabel }
	var found *shard.Group
	for _, ms := range x.dec.Selectors {
		if !slices.ContainsFunc(ms, named) {
			return ""
		}
		legs := x.view.Legs(ms, x.dec.Start, x.dec.End)
		i := slices.IndexFunc(legs, func(l plan.Leg) bool {
			g := l.Shard.Group
			return !l.Alone && len(g.Shards) > 1 && !g.LookedUp && len(g.ShardBy) == 0 && g.Hashmod == nil && (found == nil || found == g)
		})
		if i < 0 {
			return ""
		}
		found = legs[i].Shard.Group
	}
	if found == nil {
		return ""
	}
	return found.Name
}

// joins tells whether series are matched with others in it.
func joins(n parser.Node) bool {
	if b, ok := n.(*parser.BinaryExpr); ok && b.VectorMatching != nil &&
		b.LHS.Type() == parser.ValueTypeVector && b.RHS.Type() == parser.ValueTypeVector {
		return true
	}
	for child := range parser.ChildrenIter(n) {
		if joins(child) {
			return true
		}
	}
	return false
}

// tellTrouble says of a failure of shards since when they fail, that the others are well, and how
// to go without.
func (x *exchange) tellTrouble(e *qerr.Error) {
	var failed []*shard.Shard
	var since time.Time
	for _, name := range e.Shards {
		r := x.st.top.Replica(name)
		if r == nil {
			continue
		}
		if !slices.Contains(failed, r.Shard) {
			failed = append(failed, r.Shard)
		}
		if _, at := r.Trouble(); !at.IsZero() && (since.IsZero() || at.Before(since)) {
			since = at
		}
	}
	if len(failed) == 0 {
		return
	}
	var notes []string
	if len(failed) == 1 {
		notes = append(notes, "shard "+failed[0].Name())
	}
	if s := shard.Since(since); s != "" && !strings.Contains(e.Message, " UTC") {
		notes = append(notes, "failing"+s)
	}
	others, well := 0, 0
	for _, g := range x.st.top.Groups {
		if !x.mayKnow(g) {
			continue
		}
		for _, s := range g.Shards {
			if slices.Contains(failed, s) {
				continue
			}
			if others++; s.Sound() {
				well++
			}
		}
	}
	switch {
	case others == 0:
	case others == well && others == 1:
		notes = append(notes, "the other shard is well")
	case others == well:
		notes = append(notes, fmt.Sprintf("the other %d shards are well", others))
	default:
		notes = append(notes, fmt.Sprintf("%d of the other %d shards are well", well, others))
	}
	if len(notes) > 0 {
		e.Message += " (" + strings.Join(notes, ", ") + ")"
	}
	if e.Advice == "" && e.Kind == qerr.ShardFailed && !strings.Contains(e.Message, " log ") &&
		!strings.Contains(e.Message, "configuration") {
		e.Advice = "look at that server's log, and at what stands between it and Spillway"
	}
	if advice := x.without(failed, well, shard.LacksStores(e)); advice != "" {
		if e.Advice != "" {
			e.Advice += "; "
		}
		e.Advice += advice
	}
}

// without is how to ask for what there is without the shards that failed, or, where stores behind
// one of them did, without those; empty where there is no way, and where nobody would read that
// something is missing: an alert over a part resolves what fires elsewhere.
func (x *exchange) without(failed []*shard.Shard, well int, stores bool) string {
	wanted := func(s *shard.Shard) bool { return !x.mayLack(s) }
	if well == 0 && !stores || !x.req.ID.Partial() || x.unseen() || !slices.ContainsFunc(failed, wanted) {
		return ""
	}
	g, them := failed[0].Group, "it"
	switch {
	case stores:
		them = "these stores"
	case len(failed) > 1:
		them = "them"
	}
	advice := "meanwhile partial_response=true answers without " + them
	if well == 0 || len(x.dec.Selectors) == 0 || len(failed) > 1 || g.Labels.IsEmpty() || len(x.st.top.Groups) == 1 {
		return advice
	}
	var first labels.Label
	g.Labels.Range(func(l labels.Label) {
		if first.Name == "" {
			first = l
		}
	})
	advice += fmt.Sprintf(", and so does the matcher %s!=%q", first.Name, first.Value)
	if n := len(g.Shards); n > 1 {
		advice += fmt.Sprintf(", which leaves out all %d shards of %s", n, g.Name)
	}
	return advice
}

// cannotAsk is the error that the query would come to because a shard cannot be asked now; nil
// where each can.
func (x *exchange) cannotAsk() error {
	for _, g := range x.st.top.Groups {
		for _, s := range g.Shards {
			if x.mayLack(s) || !x.concerns(s) {
				continue
			}
			if why := s.Gone(); why != "" {
				e := qerr.New(qerr.ShardFailed, "%s", why)
				for _, r := range s.Replicas {
					e.Shards = append(e.Shards, r.Name())
				}
				return x.counsel(e)
			}
		}
	}
	return nil
}
