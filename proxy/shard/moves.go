package shard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// A configuration may move a group to other servers, or have the same ones asked in another way. If
// none of them answers, that is a mistake in a url, a password or a certificate more often than it
// is meant, and who has the configuration of before still has answers.

const (
	// movesParallel is how many servers CheckMoves asks at once.
	movesParallel = 32
	// lately is for how long the answers of a group's servers speak for them when all are down.
	lately = 5 * time.Minute
	// movesAsk is which part of MoveTimeout one server has where they are more than are asked at
	// once: some that hang keep no other from being asked.
	movesAsk = 3
	// movesNamed is how many servers of a group an UnreachedError names.
	movesNamed = 5
)

// UnreachedError names the groups that would be moved from servers that answer to such as do not.
type UnreachedError struct{ groups []string }

func (e *UnreachedError) Error() string { return strings.Join(e.groups, "\n") }

// move is a group that has none of the servers of before.
type move struct {
	group   *Group
	servers []*Replica
	errs    []error     // of those that were asked
	refused atomic.Bool // a server of it refuses queries
	ctx     context.Context
	found   context.CancelFunc // ends the asking of the others
}

// errNoTime is why a server was not asked whose neighbours refuse queries.
var errNoTime = errors.New("there was too little time to ask it a query, which others of the group refuse")

// CheckMoves asks the servers of each group that had others in previous, of which some answered
// lately, whether one of them is there; if none is, the error is an *UnreachedError. A server that
// is to be asked with other credentials is another one, and one that is ready but refuses queries
// is not there: it is another program, or lets Spillway in at that page alone. Groups that are
// looked up are left out: their servers come and go, and there may be none yet. t need not be
// started. It takes at most MoveTimeout, in which some of very many servers that all hang may not
// be asked.
func (t *Topology) CheckMoves(ctx context.Context, previous *Topology) error {
	var moves []*move
	size, most := 0, 0
	for _, g := range t.Groups {
		if was := previous.Group(g.Name); was != nil && !g.LookedUp && was.answeredLately(time.Now()) && !g.shares(was) {
			m := &move{group: g, servers: slices.Collect(g.servers())}
			m.errs = make([]error, len(m.servers))
			moves = append(moves, m)
			size, most = size+len(m.servers), max(most, len(m.servers))
		}
	}
	if len(moves) == 0 {
		return nil
	}
	t.checks.Store(true)
	defer t.checks.Store(false)
	within := t.opts.MoveTimeout
	if size > movesParallel {
		within /= movesAsk
	}
	all, cancel := context.WithTimeoutCause(ctx, t.opts.MoveTimeout, context.DeadlineExceeded)
	defer cancel()
	for _, m := range moves {
		m.ctx, m.found = context.WithCancel(all)
		defer m.found()
	}
	var eg errgroup.Group
	eg.SetLimit(movesParallel)
	var queries sync.WaitGroup // beside the limit, so that slow ones keep no server from being asked at all
	places := make(chan struct{}, movesParallel)
	for i := range most { // of each group one after the other: the first one that answers is enough
		for _, m := range moves {
			if i < len(m.servers) {
				eg.Go(func() error {
					answered, err := m.servers[i].isThere(m.ctx, within)
					if err != nil || answered {
						m.note(i, err)
					} else {
						queries.Go(func() { m.note(i, m.query(m.servers[i], places, min(within, lagTimeout))) })
					}
					return nil // one server's failure does not end the others' asking
				})
			}
		}
	}
	_ = eg.Wait()
	queries.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("ask the new servers: %w", context.Cause(ctx))
	}
	e := &UnreachedError{}
	for _, m := range moves {
		if !slices.Contains(m.errs, nil) {
			e.groups = append(e.groups, m.String())
		}
	}
	if len(e.groups) == 0 {
		return nil
	}
	return e
}

// String says what each server has answered.
func (m *move) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "group %s: none of the servers that it has in the new configuration answers, while those in force did lately: ", m.group.Name)
	var asked, others []int
	for i, err := range m.errs {
		if errors.Is(err, errNoTime) {
			others = append(others, i)
		} else {
			asked = append(asked, i)
		}
	}
	for n, i := range append(asked, others...)[:min(len(m.servers), movesNamed)] {
		if n > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s: %v", m.servers[i].URL(), m.errs[i])
	}
	if n := len(m.servers) - movesNamed; n > 0 {
		fmt.Fprintf(&b, "; and %d more", n)
	}
	return b.String()
}

// note keeps what the asking of the i-th server came to.
func (m *move) note(i int, err error) {
	if m.errs[i] = err; err == nil {
		m.found()
	}
}

// query asks a server that is ready whether it refuses queries, once there is a place. One that has
// not had all of the time for it when time is up does as the others of its group.
func (m *move) query(r *Replica, places chan struct{}, within time.Duration) error {
	end, _ := m.ctx.Deadline()
	whole := false
	select {
	case places <- struct{}{}:
		whole = time.Until(end) >= within
		err := r.answersQuery(m.ctx, within)
		<-places
		if refusesQueries(err) {
			m.refused.Store(true)
			return r.toldOf(err, within)
		}
		whole = whole || err == nil
	case <-m.ctx.Done():
	}
	if !whole && m.refused.Load() {
		return errNoTime
	}
	return nil // it answers, or is busy, slow or starting
}

// refusesQueries tells whether err is that of a server that will answer no query of ours, however
// long one waits: it is no Prometheus, or does not let Spillway in.
func refusesQueries(err error) bool {
	switch code := statusOf(err); code {
	case 0:
		return errors.As(err, new(*senselessError))
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		return true
	default:
		return code >= 300 && code < 400 // to a login page, or to its own path prefix
	}
}

// isThere asks whether the server is ready, or answers a query all the same, which it tells.
func (r *Replica) isThere(ctx context.Context, within time.Duration) (answered bool, err error) {
	within = min(within, probeTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, within, context.DeadlineExceeded)
	defer cancel()
	if err := r.ready(ctx); err != nil {
		return true, r.toldOf(r.tryDown(ctx, err), within)
	}
	return false, nil
}

// toldOf is err as an UnreachedError says it.
func (r *Replica) toldOf(err error, within time.Duration) error {
	switch qe := qerr.From(err); {
	case err == nil, errors.As(err, new(*startingError)):
		return err
	case qe.Kind == qerr.Timeout:
		return fmt.Errorf("%s did not answer within %s", r.Name(), within)
	case statusOf(err) != 0:
		return errors.New(qe.Message) // without the page, which may repeat what was sent
	}
	return err
}

// servers yields every replica of the group, in order.
func (g *Group) servers() func(yield func(*Replica) bool) {
	return func(yield func(*Replica) bool) {
		for _, s := range g.Shards {
			for _, r := range s.Replicas {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// shares tells whether the group has a server of the other one, asked in the same way.
func (g *Group) shares(other *Group) bool {
	known := map[*upstream]bool{}
	for r := range other.servers() {
		known[r.up] = true
	}
	for r := range g.servers() {
		if known[r.up] {
			return true
		}
	}
	return false
}

// answeredLately tells whether a server of the group is up, or was a short while ago.
func (g *Group) answeredLately(now time.Time) bool {
	for r := range g.servers() {
		u := r.up
		u.mu.Lock()
		up := u.health.state == Up || u.onceUp.Load() && now.Sub(u.health.since) < lately
		u.mu.Unlock()
		if up || now.UnixNano()-u.answered.Load() < int64(lately) {
			return true
		}
	}
	return false
}
