package shard

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/vitals"
)

// A server that has little memory left (vitals.go) is spared what needs much of it, and nothing
// else: its light calls, and those of lanes that are never shed, go on. A heavy call goes to a copy
// with more memory where there is one that can answer it. Where there is none, and the server is
// sick, it is not sent. While the server is only busy it is: to have it wait for places that light
// calls need, too, would keep those waiting.

const (
	// heavyPart is the part of the shard's budget from which on a call is heavy, however wide its
	// places are.
	heavyPart = 8
	// shedFor is when a call that was not sent may come again, and up to how much later: those that
	// were turned away together are not to come back together. It is stretched as VitalsEvery is,
	// since before the next reading nothing changes.
	shedFor = 10 * time.Second
)

// The reasons of spillway_shard_shed_total.
const (
	shedWide        = "wide"
	shedUnselective = "unselective"
)

// errShed is the private cause of a call that is not made because its server has no memory left.
var errShed = errors.New("the server has nearly no memory left")

func newShed() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_shard_shed_total",
		Help: "Calls that were not made since the server has nearly no memory left and no copy of it has, by reason: wide (it would hold several places' worth), unselective (it visits every series).",
	}, append(replicaLabels, "reason"))
}

// strain is how little memory the server has left: 0 where it has enough or nothing is known, 1
// where it is busy, 2 where it is sick.
func (r *Replica) strain() int {
	switch r.Vitals().State {
	case vitals.Busy:
		return 1
	case vitals.Sick:
		return 2
	}
	return 0
}

// heavy is why a call is one that needs much memory of the server that is asked; empty where it is
// not.
func (s *Shard) heavy(o *CallOptions) string {
	budget, needs := s.topology.opts.Budget, o.Needs
	if !o.AtMost {
		needs = max(needs, o.Held)
	}
	switch {
	case o.Class == Unselective:
		return shedUnselective
	case budget > 0 && needs > 0 && (s.seats(needs) > 1 || needs >= budget/heavyPart):
		return shedWide
	}
	return ""
}

// neverShed tells whether the call is of a lane that goes on.
func (s *Shard) neverShed(ctx context.Context) bool {
	return slices.Contains(s.topology.opts.NeverShed, identity.From(ctx).Lane)
}

// spared tells whether a call is one that servers without memory are spared, and why it is.
func (s *Shard) spared(ctx context.Context, o *CallOptions) (why string) {
	if why = s.heavy(o); why != "" && s.neverShed(ctx) {
		return ""
	}
	return why
}

// Easiest is replicas in the order in which they are to be asked such a call: as they stand, and
// where it is heavy those with memory before those without, but for those that are not well.
func (s *Shard) Easiest(replicas []*Replica, o CallOptions) []*Replica {
	if s.heavy(&o) == "" {
		return replicas
	}
	return easiest(replicas, time.Now())
}

// easiest sorts replicas for a heavy call: those that are well before those that are not, of these
// those that have memory, and else as they stand.
func easiest(replicas []*Replica, now time.Time) []*Replica {
	type weighed struct {
		r            *Replica
		well, strain int
	}
	all := make([]weighed, len(replicas))
	strained := false
	for i, r := range replicas {
		all[i] = weighed{r: r, strain: r.strain()}
		strained = strained || all[i].strain > 0
		if r.doubt(now) >= 3 {
			all[i].well = 1
		}
	}
	if !strained {
		return replicas
	}
	slices.SortStableFunc(all, func(a, b weighed) int {
		if a.well != b.well {
			return a.well - b.well
		}
		return a.strain - b.strain
	})
	out := make([]*Replica, len(all))
	for i, w := range all {
		out[i] = w.r
	}
	return out
}

// strained is the replica that a heavy call to the shard would go to, and how little memory that
// has left; nil where none can be asked, which others say.
func (s *Shard) strained(now time.Time) (*Replica, int) {
	known := false
	for _, r := range s.Replicas {
		known = known || r.strain() > 0
	}
	if !known {
		return nil, 0
	}
	order, err := s.order(now)
	if err != nil {
		return nil, 0
	}
	r := easiest(order, now)[0]
	return r, r.strain()
}

// Strained tells whether no copy of the shard that is well has memory left, by the servers' own
// metrics: all are sick.
func (s *Shard) Strained() bool {
	_, strain := s.strained(time.Now())
	return strain >= 2
}

// Spared is the failure of a call that is not made: the server that it would go to has nearly no
// memory left. It is nil where the call is to be made. Of replicas any one can answer it; none are
// all of the shard. To ask before anybody waits for a place, and before other shards are asked,
// spares those.
func (s *Shard) Spared(ctx context.Context, replicas []*Replica, o CallOptions) error {
	if s.spared(ctx, &o) == "" {
		return nil
	}
	now := time.Now()
	if len(replicas) == 0 {
		order, err := s.order(now)
		if err != nil {
			return nil // whoever asks is told
		}
		replicas = order
	}
	if e := easiest(replicas, now)[0].shed(ctx, &o); e != nil {
		return e
	}
	return nil
}

// Shed tells whether the failed call was not made since its server has nearly no memory left.
func Shed(err error) bool { return errors.Is(err, errShed) }

// shed is the failure of a call that is not made; nil where it is to be made.
func (r *Replica) shed(ctx context.Context, o *CallOptions) *qerr.Error {
	why := r.Shard.spared(ctx, o)
	if why == "" || r.strain() < 2 {
		return nil
	}
	r.up.watched.shed.Add(1)
	r.count(r.up.metrics.shed, why)
	v := r.Vitals()
	needs := "it visits every series"
	advice := "name a metric in the selector, such as kube_pod_info{namespace=\"…\"}"
	if why == shedWide {
		needs = "it is estimated to hold about " + admit.FormatBytes(max(1, max(o.Held, o.Needs)>>20)<<20) + " there"
		advice = "try again in a moment, or ask for fewer series or fewer steps"
	}
	wait := r.Shard.topology.stretch(shedFor)
	wait = (wait + rand.N(wait)).Round(time.Second)
	st := &StatusError{Code: http.StatusServiceUnavailable, RetryAfter: wait, unasked: true, cause: errShed}
	has := "has nearly no memory left"
	if float64(v.Held) < vitals.SickTo*float64(v.Of) {
		has = "had nearly no memory left a moment ago, and is watched a while longer"
	}
	e := qerr.Wrap(qerr.ShardFailed, st, "%s %s (it holds %s of %s), so this was not sent to it: %s",
		r.Name(), has, admit.FormatBytes(max(v.Held, 0)>>20<<20), admit.FormatBytes(max(v.Of, 0)>>20<<20), needs)
	e.Advice = advice + "; light queries are answered; for good, give that server more memory, drop series that nobody asks for, or spread them over more shards (the admin API's shards has its memory)"
	e.RetryAfter = wait
	e.Shards = []string{r.Name()}
	return e
}
