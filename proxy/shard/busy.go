package shard

import (
	"errors"
	"net/http"
	"time"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// maxBusy is the longest Retry-After that is believed: a server may say so in error, and is to be
// tried again before long.
const maxBusy = time.Minute

// coolDown has the server left alone for as long as it asked for, at most maxBusy, unless it asked
// that of our own question only: a page that something between refuses says nothing of the others.
// Nor does what a Spillway refuses: what has no room there, or needs a server that is starting, is
// this request.
func (c *call) coolDown(st *StatusError) {
	if st.RetryAfter <= 0 || st.alone || c.probe {
		return
	}
	u := c.r.up
	u.mu.Lock()
	u.notYet, u.notYetCode = time.Now().Add(min(st.RetryAfter, maxBusy)), st.Code
	u.mu.Unlock()
}

// busy is the failure of a call that is not made, since the server asked to be left alone for a
// while that is not over; nil where it did not.
func (r *Replica) busy(now time.Time) *qerr.Error {
	r.up.mu.Lock()
	left, code := r.up.notYet.Sub(now), r.up.notYetCode
	r.up.mu.Unlock()
	if left <= 0 {
		return nil
	}
	return r.busyError(&StatusError{Code: code, RetryAfter: left, unasked: true}, "")
}

// refused is the failure of a call that is not made, because of what is known of the server; nil
// where it is to be made.
func (r *Replica) refused(now time.Time) *qerr.Error {
	if e := r.muted(); e != nil {
		return e
	}
	return r.busy(now)
}

// busyError is the error of a server that asked to be asked later. To the rest of Spillway it is a
// failure like others, of which another replica knows nothing; Busy makes of it what the client is
// told.
func (r *Replica) busyError(st *StatusError, said string) *qerr.Error {
	what := "has no room for more requests"
	if st.Code == http.StatusServiceUnavailable {
		what = "takes no requests for the moment"
	}
	if said != "" {
		said = ", saying " + said
	}
	wait := max(time.Second, (st.wait() + time.Second - 1).Truncate(time.Second))
	e := qerr.Wrap(qerr.ShardFailed, st, "%s %s (status %d%s) and wants to be left alone for another %s", r.Name(), what, st.Code, said, wait)
	if st.alone {
		e = qerr.Wrap(qerr.ShardFailed, st, "%s, a Spillway, refuses this request (status %d%s); it may be sent again in %s", r.Name(), st.Code, said, wait)
	}
	e.Advice = "ask again then; if that goes on, look at that server's load and at who asks it (the admin API's queries and usage)"
	e.RetryAfter = wait
	e.Shards = []string{r.Name()}
	return e
}

// Busy is an error as the client is to be told it. Where a server asked, by Retry-After, to be
// asked later, it is not a failure but 429 or 503, to be tried again then; any other error stays as
// it is.
func Busy(e *qerr.Error) *qerr.Error {
	var st *StatusError
	if e.Kind != qerr.ShardFailed || !errors.As(e, &st) || !st.later() {
		return e
	}
	out := *e // its private cause goes along
	out.Kind, out.RetryAfter = qerr.Overloaded, st.wait()
	if st.Code == http.StatusServiceUnavailable {
		out.Kind = qerr.Unavailable
	}
	return &out
}

// wait is how long the request has to wait: as long as the server asked for, of which no more than
// maxBusy is believed where it is for everybody.
func (e *StatusError) wait() time.Duration {
	if e.alone {
		return e.RetryAfter
	}
	return min(e.RetryAfter, maxBusy)
}

// later tells whether the server said when it wants to be asked again.
func (e *StatusError) later() bool {
	return e.RetryAfter > 0 && (e.Code == http.StatusTooManyRequests || e.Code == http.StatusServiceUnavailable)
}

// refusedAlone tells whether a Spillway has refused this request and no other: that is no failure
// of its server.
func refusedAlone(err error) bool {
	var st *StatusError
	return errors.As(err, &st) && st.alone && (st.Code == http.StatusTooManyRequests || st.Code == http.StatusServiceUnavailable)
}

// Unasked tells whether the failed call never reached the server, so that asking another one is no
// second call.
func Unasked(err error) bool {
	var st *StatusError
	var dial *dialError
	return errors.As(err, &st) && st.unasked || errors.As(err, &dial) || errors.Is(err, errMute)
}
