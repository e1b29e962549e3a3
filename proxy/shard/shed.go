package shard

import (
	"context"
	"errors"
	"fmt"
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
// else: its light calls, and those of lanes that are never shed, go on. A heavy call goes to a
// sound copy where there is one. Where there is none it is wider while the server is busy, by what
// that has left, so that fewer go at once; while it is sick it is not sent.

const (
	// heavyPart is the part of the shard's budget from which on a call is heavy, however wide its
	// places are.
	heavyPart = 8
	// leastRoom is the part of its budget that a busy shard has in any case.
	leastRoom = 8
	// shedFor is when a call that was not sent may come again.
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

// heavy is why a call, which is estimated to make a server hold so many bytes, is one that a server
// without memory is spared; empty where it is not.
func (s *Shard) heavy(held int64, c Class) string {
	budget := s.topology.opts.Budget
	switch {
	case c == Unselective:
		return shedUnselective
	case budget > 0 && held > 0 && (s.width(held, budget) > 1 || held >= budget/heavyPart):
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
	if why = s.heavy(o.Held, o.Class); why != "" && s.neverShed(ctx) {
		return ""
	}
	return why
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

// Strained tells whether no copy of the shard has enough memory left, by the servers' own metrics.
func (s *Shard) Strained() bool {
	_, strain := s.strained(time.Now())
	return strain > 0
}

// shed is the failure of a call that is not made; nil where it is to be made.
func (r *Replica) shed(ctx context.Context, o *CallOptions) *qerr.Error {
	why := r.Shard.spared(ctx, o)
	if why == "" || r.strain() < 2 {
		return nil
	}
	r.up.watched.shed.Add(1)
	r.up.metrics.shed.WithLabelValues(append(r.labels(), why)...).Inc()
	v := r.Vitals()
	needs := "it visits every series"
	advice := "name a metric in the selector, such as kube_pod_info{namespace=\"…\"}"
	if why == shedWide {
		needs = "it is estimated to hold about " + admit.FormatBytes(max(1, o.Held>>20)<<20) + " there"
		advice = "try again in a moment, or ask for fewer series or fewer steps"
	}
	st := &StatusError{Code: http.StatusServiceUnavailable, RetryAfter: shedFor, unasked: true, cause: errShed}
	e := qerr.Wrap(qerr.ShardFailed, st, "%s has nearly no memory left (it holds %s of %s), so this was not sent to it: %s",
		r.Name(), admit.FormatBytes(max(v.Held, 0)>>20<<20), admit.FormatBytes(max(v.Of, 0)>>20<<20), needs)
	e.Advice = advice + "; light queries are answered; for good, give that server more memory, drop series that nobody asks for, or spread them over more shards (the admin API's shards has its memory)"
	e.RetryAfter = shedFor
	e.Shards = []string{r.Name()}
	return e
}

// shedAll is shed where nobody of the shard can take the call, before places are waited for.
func (s *Shard) shedAll(ctx context.Context, held int64) *qerr.Error {
	if s.heavy(held, Light) == "" {
		return nil
	}
	r, strain := s.strained(time.Now())
	if strain < 2 {
		return nil
	}
	return r.shed(ctx, &CallOptions{Held: held})
}

// room is what a heavy call's width is reckoned by: the shard's budget, or, while no copy of the
// shard has enough memory, what the server that is asked may hold more, a part of the budget in any
// case.
func (s *Shard) room(ctx context.Context) int64 {
	budget := s.topology.opts.Budget
	r, strain := s.strained(time.Now())
	if strain == 0 || s.neverShed(ctx) {
		return budget
	}
	v := r.Vitals()
	return max(min(v.Room(), budget), budget/leastRoom)
}

// strainedText says of a shard without enough memory how much it holds, for the end of a sentence;
// empty where it has enough.
func (s *Shard) strainedText() string {
	r, strain := s.strained(time.Now())
	if strain == 0 {
		return ""
	}
	v := r.Vitals()
	return fmt.Sprintf(", more than usual since that server holds %s of the %s that it may", admit.FormatBytes(v.Held>>20<<20), admit.FormatBytes(v.Of>>20<<20))
}
