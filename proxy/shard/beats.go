package shard

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/trust"
)

const (
	// beatEvery is how often the background work asks.
	beatEvery = 10 * time.Second
	// wholeWait is the most that one request spends on buckets that are not known yet.
	wholeWait = 3 * time.Second
	// beatGrace is how much later than another one a replica may answer the same question; it is
	// less than wholeWait, so that a request that comes while others ask has time left afterwards.
	beatGrace = 2 * time.Second
)

var errBeatBudget = errors.New("the time for heartbeats is over")

// askAll asks those taking part the same thing at once, each by itself: the failure of one is
// nothing that another could be charged with. left are those that answered. One that could not be
// asked, or was silent about the last minute for all the time that there is, or for beatGrace after
// another one had answered, takes part no more, for a while; nobody is called silent by a process
// that is late itself. Who says something else than an
// answer, and who has none in time about what takes longer to say, is there all the same, and may
// be the only one that lacks nothing: that is the error.
func (s *Shard) askAll(ctx context.Context, part uint64, req *endpoint.Request) (answers []map[int64]trust.Beats, left uint64, err error) {
	return s.askFor(ctx, part, req, wholeWait, s.unanswered.noteFor)
}

// askAgain is askAll of those that take no part, for nothing but whether they answer. That they do
// not is not remembered here: those that take part are asked as before. A call keeps a part of its
// time for itself, and nobody else's answer ends the wait here.
func (s *Shard) askAgain(ctx context.Context, part uint64, req *endpoint.Request) ([]map[int64]trust.Beats, uint64, error) {
	return s.askFor(ctx, part, req, wholeWait-margin(wholeWait), func(_, _ time.Duration) {})
}

// askFor is askAll: who had less time than enough was in a hurry, and vain is called for who waited
// in vain, with the time for which that stands.
func (s *Shard) askFor(ctx context.Context, part uint64, req *endpoint.Request, enough time.Duration,
	vain func(waited, stands time.Duration),
) (answers []map[int64]trust.Beats, left uint64, err error) {
	began := time.Now()
	own, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var first sync.Once
	var grace *time.Timer
	var errs []error
	late := ownDelay(func() {
		answers, errs = s.askEach(own, part, req, func() {
			first.Do(func() { grace = time.AfterFunc(beatGrace, func() { giveUp(context.DeadlineExceeded) }) })
		})
	})
	overdue := grace != nil && !grace.Stop()
	hurried := !overdue && time.Since(began) < enough // the caller was
	for i := range s.Replicas {
		if part&(1<<i) == 0 {
			continue
		}
		if errs[i] == nil {
			s.beats.Answered(i)
			left |= 1 << i
			continue
		}
		switch kind := qerr.From(errs[i]).Kind; {
		case kind == qerr.Canceled: // a request that ended by itself says nothing about the replicas
			return nil, 0, errs[i]
		case !absent(errs[i]), asksForTime(errs[i]) && s.beats.Late(i, time.Now()) < lateWaits:
			s.beats.Failed(i, errs[i], false)
			vain(inVain(errs[i], req, time.Since(began)))
			err = errs[i]
		case kind == qerr.Timeout && (req.ID.Span() != endpoint.SpanInstant || hurried || late >= starved):
			s.beats.Failed(i, errs[i], false)
			vain(time.Since(began), trust.Pause)
			err = errs[i]
		default:
			s.beats.Failed(i, errs[i], true)
			if kind != qerr.Timeout {
				s.beats.Refused(i)
			}
		}
	}
	return answers, left, err
}

// askPatiently asks those taking part the same thing at once and waits for all of them. left are
// those that answered. One that did not is none of these, and nothing else follows of it.
func (s *Shard) askPatiently(ctx context.Context, part uint64, req *endpoint.Request,
) (answers []map[int64]trust.Beats, left uint64, err error) {
	answers, errs := s.askEach(ctx, part, req, func() {})
	for i := range s.Replicas {
		if part&(1<<i) != 0 && errs[i] == nil {
			left |= 1 << i
		}
	}
	return answers, left, ctx.Err()
}

// askEach asks those taking part the same thing at once, each by itself, and waits for all. done is
// called for each that answered, while others may not have answered yet.
func (s *Shard) askEach(ctx context.Context, part uint64, req *endpoint.Request, done func(),
) (answers []map[int64]trust.Beats, errs []error) {
	answers, errs = make([]map[int64]trust.Beats, len(s.Replicas)), make([]error, len(s.Replicas))
	var all sync.WaitGroup
	for i, r := range s.Replicas {
		if part&(1<<i) == 0 {
			continue
		}
		all.Go(func() {
			errs[i] = qerr.Guard(func() (err error) {
				answers[i], err = r.beats(ctx, req)
				return err
			})
			if errs[i] == nil {
				done()
			}
		})
	}
	all.Wait()
	return answers, errs
}

// absent tells whether the failure is of a server that could not be asked, and not what it said.
func absent(err error) bool {
	var status *StatusError
	if errors.As(err, &status) {
		return status.Code >= 500
	}
	if errors.As(err, new(*damageError)) {
		return false
	}
	kind := qerr.From(err).Kind
	return kind == qerr.ShardFailed || kind == qerr.Timeout
}

// asksForTime tells whether the server has said when it wants to be asked again, now or before, so
// that it was not asked: it will answer then. One that says so on and on will not.
func asksForTime(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && (status.unasked || status.later())
}

// inVain is how long one waits in vain where the server refused the question after so long, and for
// how long that stands. To be refused takes no time: whoever comes would ask the others anew, one
// after the other. So one that asks for time has refused it to everybody until then, and one that
// does not say its last minute for the usual while.
func inVain(err error, req *endpoint.Request, took time.Duration) (waited, stands time.Duration) {
	var status *StatusError
	switch {
	case !errors.As(err, &status):
		return took, trust.Pause
	case asksForTime(err):
		return max(took, beatGrace), min(status.wait(), trust.Pause)
	case req.ID.Span() == endpoint.SpanInstant:
		return max(took, beatGrace), trust.Pause
	}
	return took, trust.Pause
}

// errBeats is the private cause of an answer to a heartbeat question that makes no sense.
var errBeats = errors.New("not an answer to a heartbeat question")

// beats asks the replica for its heartbeats, by bucket end.
func (r *Replica) beats(ctx context.Context, req *endpoint.Request) (map[int64]trust.Beats, error) {
	// Our own: of each shard one for requests at a time, and one in the background.
	resp, err := r.Do(ctx, req, CallOptions{MaxBytes: trust.MaxAnswer, Entered: true})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out, err := trust.Decode(resp.Body)
	if err != nil && ctx.Err() == nil && !isQerr(err) {
		err = qerr.Wrap(qerr.Internal, errBeats, "heartbeat of %s: %s", r.Name(), err)
	}
	return out, err
}

func isQerr(err error) bool {
	var e *qerr.Error
	return errors.As(err, &e)
}

// wholeNow tells whether the replica is whole as of the newest closed bucket and the last minute.
func (s *Shard) wholeNow(replica int, now time.Time) bool {
	part := s.present(time.Now())
	if replica >= trust.MaxReplicas || part&(1<<replica) == 0 {
		return false
	}
	if part == 1<<replica {
		return true
	}
	whole, known := s.beats.Newest(part, now)
	return known && whole&(1<<replica) != 0
}

// beatLoop keeps the last hour and the last minute known until ctx ends.
func (s *Shard) beatLoop(ctx context.Context) {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		s.awaitProbes(ctx)
		s.refreshBeats(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Shard) refreshBeats(ctx context.Context) {
	done, ok := s.beats.Turn(ctx)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, beatEvery, errBeatBudget)
	defer cancel()
	now := s.topology.opts.Clock()
	func() {
		defer done()
		s.beats.Refresh(ctx, s.askAll, s.present(time.Now()), now)
		s.tellLacking(now)
	}()
	s.beats.Renew(ctx, s.askPatiently, s.present(time.Now()), now)
}

// tellLacking writes to the log who is cut off, and who goes on to lack something, and when that
// ends.
func (s *Shard) tellLacking(now time.Time) {
	log := s.topology.opts.Logger
	empty, news := false, false
	if s.lives(now) { // else what there is to say is kept until it does
		empty, news = s.beats.Empty()
	}
	switch {
	case empty && news:
		log.Warn("the heartbeat selects nothing on any replica, so that none is known to be whole, and queries read all of them; see heartbeat of the group",
			slog.String("shard", s.Name()), slog.String("heartbeat", s.Group.Heartbeat))
	case news:
		log.Info("the heartbeat selects something again", slog.String("shard", s.Name()))
	}
	for i, n := range s.beats.News(now) {
		r := s.Replicas[i]
		name := slog.String("replica", r.Name())
		pulse := s.beats.Pulse(i)
		switch {
		case n.CutOff:
			log.Warn("a replica is cut off: it does not reach targets that another one of its shard reaches, which is read instead", name, slog.Float64("share", pulse.Unreached))
		case n.Reaches:
			log.Info("a replica is cut off no more", name)
		}
		switch {
		case n.Lacks:
			log.Warn("a replica goes on to lack what another one of its shard has; see whether both scrape the same", name, slog.String("lacks", r.shortfall(pulse.Lacking, now)))
		case n.Whole:
			log.Info("a replica lacks nothing any more", name)
		}
	}
}
