package plan

import "github.com/spillwayproject/spillway/proxy/shard"

// Cause is why series of a query are fetched and evaluated here: of those that have to do with the
// servers, the first that was met. Metrics count by it.
type Cause string

// The causes. All but CauseExpression and CauseNoHeartbeat are a state of the servers, so that
// somebody can mend it.
const (
	// CauseNone is a plan that fetches nothing.
	CauseNone Cause = "none"
	// CauseExpression is what the query itself asks for: nothing less is exact.
	CauseExpression Cause = "expression"
	// CauseNotWhole is a shard of which no replica is known to be whole.
	CauseNotWhole Cause = "not_whole"
	// CauseNoHeartbeat is a shard of several replicas whose group has no heartbeat, so that none of
	// them will ever be known to be whole. The configuration says so; nothing is wrong with the
	// servers.
	CauseNoHeartbeat Cause = "no_heartbeat"
	// CauseUnreachable is a shard of which no replica can be asked.
	CauseUnreachable Cause = "unreachable"
	// CauseEngine is a shard whose query engine differs from the others'.
	CauseEngine Cause = "engine"
	// CauseSick is a group that is not as the configuration says.
	CauseSick Cause = "sick"
	// CauseLabels are labels of a group that its shards do not store, or store as they must not.
	CauseLabels Cause = "labels"
	// CauseBoundary is a window that crosses the from or until of a shard, or ends soon after one.
	CauseBoundary Cause = "boundary"
	// CauseInexact is a query whose parts, as the shards answered them, could not be put together.
	CauseInexact Cause = "inexact"
)

// Causes are all of them.
func Causes() []Cause {
	return []Cause{
		CauseNone, CauseExpression, CauseNotWhole, CauseNoHeartbeat, CauseUnreachable, CauseEngine, CauseSick, CauseLabels,
		CauseBoundary, CauseInexact,
	}
}

// Parcels tells whether an aggregate that is evaluated here for the cause may be in parcels: the
// series are as good as ever, and what they come to is not to be trusted to the shards at the
// moment. Where the expression or the configuration says so it stays so, and is to be changed.
func (c Cause) Parcels() bool {
	switch c {
	case CauseNotWhole, CauseEngine, CauseSick, CauseLabels, CauseBoundary:
		return true
	}
	return false
}

// because notes the first cause that lies with the servers, or else the configuration, and with
// which shard, and returns why.
func (p *planner) because(c Cause, s *shard.Shard, why string) string {
	if p.cause == "" || p.cause == CauseNoHeartbeat {
		p.cause, p.blamed = c, s
	}
	return why
}

// whose is the shard that the plan's cause lies with; nil where it lies with none.
func (p *planner) whose() *shard.Shard {
	if c := p.why(); c == CauseNone || c == CauseInexact || c == CauseExpression {
		return nil
	}
	return p.blamed
}

// why is the plan's cause.
func (p *planner) why() Cause {
	switch {
	case !p.fetches:
		return CauseNone
	case p.q.Raw != "" && p.q.Inexact:
		return CauseInexact
	case p.q.Raw != "" || p.cause == "":
		return CauseExpression
	}
	return p.cause
}
