package shard

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// lagAfter is how many calls a replica must lose, none in between being answered in the usual
	// time, before that is held against it.
	lagAfter = 3
	// silentAfter is how long nothing may come on a call before the server is asked whether it is
	// there.
	silentAfter = 2 * time.Second
	// lagFor is how long it then stands behind the others; as long as it does not answer our own
	// question, that begins anew.
	lagFor = 10 * time.Second
	// lagEvery is the time between two such questions, lagTimeout how long it may take to answer
	// one. Any sound server answers it in milliseconds.
	lagEvery, lagTimeout = 2 * time.Second, 2 * time.Second
	// muteTimeout is how long it may take where no sound replica is beside it: all requests that
	// need the shard fail then, so that a server which is slow must not be taken for one that
	// hangs.
	muteTimeout = 5 * time.Second
	// readyAtOnce is how long a server that is only busy takes for its readiness page, which waits
	// for nobody.
	readyAtOnce = time.Second
	// lagPause is the least time between two looks at replicas that turn out to be sound.
	lagPause = time.Second
)

// lag is what is known of a server's keeping calls waiting. The readiness page of a server that
// answers no query may be sound, and it takes a probe six seconds to see one that hangs as a whole:
// calls are the sooner measure.
type lag struct {
	quiet atomic.Int32 // calls running that it was silent on, or lost by a wide margin; any header ends the run
	lost  atomic.Int32 // calls that it lost by a wide margin since it answered one in the usual time
	until atomic.Int64 // Unix nanoseconds: other replicas are preferred before
	hung  atomic.Bool  // it did not answer our own question either
	late  atomic.Int32 // queries running that were not answered within the time that the server was told they have; any header ends the run
	// Unix nanoseconds: hung since then at least, with no sound replica beside it, so that its
	// calls fail at once; 0: not so
	mute atomic.Int64
}

// heard is any call's header.
func (l *lag) heard() {
	if l.quiet.Load() != 0 {
		l.quiet.Store(0)
	}
	if l.late.Load() != 0 {
		l.late.Store(0)
	}
	if l.mute.Load() != 0 {
		l.mute.Store(0)
	}
}

// silent counts a call that the server was silent on, and whether it lost it; it returns how many
// it lost since it was last quick.
func (u *upstream) silent(lost bool) int32 {
	u.lag.quiet.Add(1)
	if !lost {
		return u.lag.lost.Load()
	}
	return u.lag.lost.Add(1)
}

// lagging tells whether the server stands behind the others, and whether it does not answer at all.
func (u *upstream) lagging(now time.Time) (lagging, hung bool) {
	if u.lag.mute.Load() != 0 {
		return true, true
	}
	if now.UnixNano() >= u.lag.until.Load() {
		return false, false
	}
	return true, u.lag.hung.Load()
}

// Lagging tells whether other replicas of the shard are preferred to this one because it kept calls
// waiting.
func (r *Replica) Lagging() bool {
	lagging, _ := r.up.lagging(time.Now())
	return lagging
}

// setBehind sets the replica behind the others for a while; false where no other one is sound,
// since somebody must be asked.
func (s *Shard) setBehind(r *Replica, hung bool) bool {
	now := time.Now()
	if s.aloneWith(r, now) {
		return false
	}
	was, wasHung := r.up.lagging(now)
	r.up.lag.hung.Store(hung || was && wasHung)
	r.up.lag.until.Store(now.Add(lagFor).UnixNano())
	r.up.lag.lost.Store(0) // it begins anew
	if !was || hung && !wasHung {
		s.topology.opts.Logger.Warn("a replica keeps calls waiting; others of its shard are preferred until it answers again",
			slog.String("replica", r.Name()), slog.Bool("silent", hung))
	}
	return true
}

// watchSilence counts the call as one that the server is silent on once nothing has come for
// silentAfter: before its header, or in one read of its body.
func (c *call) watchSilence() {
	c.quiet = c.r.up.timers.AfterFunc(silentAfter, func() {
		if !c.probe {
			c.r.up.silent(false)
			c.r.Shard.suspect(c.r, 1)
		}
	})
}

// suspect has the replica looked at, if it was silent on at least so many calls running.
func (s *Shard) suspect(r *Replica, least int32) {
	if r.up.lag.quiet.Load() < least {
		return
	}
	select {
	case s.hedge.wake <- struct{}{}:
	default:
	}
}

// doubts tells whether some replica is known to have kept calls waiting.
func (s *Shard) doubts() bool {
	now := time.Now()
	return slices.ContainsFunc(s.Replicas, func(r *Replica) bool {
		lagging, _ := r.up.lagging(now)
		return lagging || r.up.lag.quiet.Load() > 0
	})
}

// lagLoop looks at suspected replicas until ctx ends.
func (s *Shard) lagLoop(ctx context.Context) {
	pause := func(d time.Duration) bool {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	// What was known before a reload is looked at without a call: a mute server gets none.
	for look := s.doubts(); ; look = false {
		if !look {
			select {
			case <-s.hedge.wake:
			case <-ctx.Done():
				return
			}
		}
		for s.lookAtLag(ctx) {
			if !pause(lagEvery) {
				return
			}
		}
		if !pause(lagPause) {
			return
		}
	}
}

// lookAtLag asks every replica that lags, or was silent on a call, something that costs little. One
// that does not answer that either, nor any call meanwhile, is set behind the others as one that
// hangs, and calls that wait for it go on to another. It tells whether some replica is still to be
// looked at.
func (s *Shard) lookAtLag(ctx context.Context) (more bool) {
	for _, r := range s.Replicas {
		lagging, hung := r.up.lagging(time.Now())
		if !lagging && r.up.lag.quiet.Load() == 0 {
			continue
		}
		patience := lagTimeout
		if s.aloneWith(r, time.Now()) {
			patience = muteTimeout
		}
		var err error
		late := ownDelay(func() { err = r.answersQuery(ctx, patience) })
		silent := hung || r.up.lag.quiet.Load() > 0
		switch {
		case ctx.Err() != nil:
			return false
		case err == nil:
			r.up.lag.hung.Store(false)
			if s.unmute(r) || !lagging {
				r.up.lag.heard() // what it was silent on takes long, no more
			}
		case s.setBehind(r, silent) && silent && !hung:
			r.up.leaveIt()
		case late >= starved: // nobody can be called silent by somebody who does not get to listen
			more = true
		case silent && qerr.From(err).Kind == qerr.Timeout && s.aloneWith(r, time.Now()):
			if r.busyOnly(ctx) {
				more = true
			} else {
				s.muteIt(r, patience)
			}
		}
		lagging, _ = r.up.lagging(time.Now())
		more = more || lagging
	}
	return more
}

// busyOnly tells whether a server that does not answer our question may have no slot free for it,
// and be well: as many calls of ours are unanswered there as it evaluates queries at once, its
// readiness page comes at once, and queries end in the time that it was told they have. Prometheus
// ends them then, those in its queue too; so a server that keeps several for longer, and answers
// nothing in between, hangs.
func (r *Replica) busyOnly(ctx context.Context) bool {
	if r.up.unanswered.Load() < int64(r.querySlots()) || r.up.lag.late.Load() >= lagAfter {
		return false
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyAtOnce, context.DeadlineExceeded)
	defer cancel()
	return r.ready(ctx) == nil
}

// wasLate counts a query that came to its deadline without the beginning of an answer.
func (c *call) wasLate(e *qerr.Error) {
	if !c.probe && c.id.Evaluates() && e.Kind == qerr.Timeout && time.Since(c.started) >= muteTimeout {
		c.r.up.lag.late.Add(1)
	}
}

const (
	// delayEvery is how often a process looks how late it is.
	delayEvery = 50 * time.Millisecond
	// starved is how late it is where answers may lie unread: its processors are busy with
	// something else.
	starved = 250 * time.Millisecond
)

// ownDelay is how late this process was at most with what it had to do at a certain time while f
// ran.
func ownDelay(f func()) (worst time.Duration) {
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		tick := time.NewTimer(delayEvery)
		defer tick.Stop()
		for due := time.Now().Add(delayEvery); ; due = time.Now().Add(delayEvery) {
			select {
			case <-tick.C:
				worst = max(worst, time.Since(due))
				tick.Reset(delayEvery)
			case <-stop:
				return
			}
		}
	})
	f()
	close(stop)
	wg.Wait()
	return worst
}

// answersQuery asks the server for the number of its targets: a question that passes the queue, the
// engine and the newest series, as queries do.
func (r *Replica) answersQuery(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, context.DeadlineExceeded)
	defer cancel()
	query := "count(up)"
	if r.Thanos() { // whether its stores answer is another question (whoHangs)
		query = "vector(1)"
	}
	began, whatever := time.Now(), func(json.RawMessage) error { return nil }
	err := r.getData(ctx, "/api/v1/query", url.Values{"query": {query}, "timeout": {patience.String()}}, whatever)
	if err == nil {
		r.up.answers(began)
	}
	return err
}

// leaveIt makes the calls go on to another replica that wait for this one and may.
func (u *upstream) leaveIt() {
	u.mu.Lock()
	watchers := make([]func(), 0, len(u.watchers))
	for p := range u.watchers {
		watchers = append(watchers, *p)
	}
	u.mu.Unlock()
	for _, f := range watchers {
		f()
	}
}

var descLag = prometheus.NewDesc("spillway_shard_replica_lagging",
	"1 while other replicas of the shard are preferred to this one because it kept calls waiting that another one answered.", replicaLabels, nil)
