package server

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"

	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Statistics count the samples of one evaluation, so that over several shards all series are read
// for them. Where these are too many statistics give way: the request begins again without them.
// Prometheus' web UI asks for them with each query, and again at each refresh, so that it is
// remembered which did.

// stats is the parameter stats, empty where statistics are left out.
func (x *exchange) stats() string {
	if x.attempt.NoStats {
		return ""
	}
	return x.dec.Request.Stats
}

// leaveStats leaves statistics out from the beginning where they gave way a few minutes ago. In a
// trial nothing gives way.
func (x *exchange) leaveStats() {
	if x.stats() != "" && x.trial == nil && x.s.uncounted.get(x.counted(), x.s.now()) != "" {
		x.attempt.NoStats, x.uncounted = true, true
	}
}

// gaveWay remembers that statistics gave way: to a bound of the query, and not to what others hold
// at the moment.
func (x *exchange) gaveWay(err error) {
	var e *qerr.Error
	if errors.As(err, &e) && e.Bound != policy.BoundMemoryBudget {
		x.s.uncounted.put(x.counted(), e.Bound, x.s.now())
	}
}

// counted is by what a query is known whose statistics gave way: all that says how much is read for
// them, but when.
func (x *exchange) counted() string {
	g := x.grid()
	return x.learnt(fmt.Sprint(x.form(), "\x00", g.End-g.Start, " ", x.st.cfg.Hash))
}

// learnt is by what a text is known that something was learnt of: with whose it is and the bounds
// within which that was so, since what is too much for one tenant is no other one's affair, and how
// fast an answer comes must not tell one what another one asks. It is a hash, since the longest
// texts are read the most for.
func (x *exchange) learnt(text string) string {
	l := x.limits
	b := append(append(make([]byte, 0, 256), text...), 0)
	b = append(append(strconv.AppendInt(b, int64(x.dec.Request.LookbackDelta), 10), ' '), x.tenantName()...)
	b = strconv.AppendInt(append(b, 0), int64(l.MaxSeries), 10)
	b = strconv.AppendInt(append(b, ' '), int64(l.MaxSamples), 10)
	hash := sha256.Sum256(b)
	return string(hash[:])
}

// learned is what was learnt of a text within the same bounds; empty where nothing was.
func (x *exchange) learned(of *inexacts, text func() string) string {
	if of.none() {
		return ""
	}
	return of.get(x.learnt(text()), x.s.now())
}

// written is the query as it was written.
func (x *exchange) written() string { return x.dec.Request.Query }

// whyNoStats is what the caller is told of statistics that are left out.
func (x *exchange) whyNoStats() string {
	more := "are more than may be held here at once"
	if x.uncounted {
		more = "were more than may be held here at once when they were read for it, less than " + inexactTime.String() + " ago"
	}
	return "statistics are left out: they count the samples of one evaluation, and its series " + more
}
