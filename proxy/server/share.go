package server

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/proxy/coalesce"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Identical requests of one address that are under way at the same time are asked once: forty
// people behind one Grafana have opened the same wall of dashboards. Package coalesce keeps the
// answer for those that wait.

// An answer that was begun up to sharedAge before, and up to a tenth of the request's time, is
// given to a later request: the shards scrape hardly more often, and nobody loses more of its time
// than that.
const (
	sharedAge   = 10 * time.Second
	sharedShare = 10
)

type flight = coalesce.Flight[facts]

// facts are what an answer is besides its bytes.
type facts struct {
	kind string // Content-Type
	cut  bool   // truncated by a bound
	// shadow are the bounds in shadow that would have acted on it.
	shadow []string
}

// key is the text by which identical requests know one another: all that an answer depends on, and
// the address and lane that they come from, since whoever waits for another one's answer stands in
// its queue, and is told its refusals. It is empty where the request's answer is for nobody else:
// of what this process asks itself, of what is explained on the way, of what asks no shard, of an
// instant query without an instant, which is another one each time, and of what was too large.
func (x *exchange) key() string {
	req := x.dec.Request
	if x.inner || x.account != nil || !req.ID.JSON() || req.ID.Class() == endpoint.ClassLocal ||
		req.ID.Span() == endpoint.SpanInstant && !req.Time.Set || !x.s.large.none() && x.s.large.get(x.subject(), x.s.now()) != "" {
		return ""
	}
	b := make([]byte, 0, 512)
	for _, word := range [...]string{x.tenantName(), identity.From(x.ctx).Peer, x.lane} {
		b = append(append(b, word...), 0)
	}
	for _, kind := range [...]bool{x.partial, x.unseen(), x.takesStock()} {
		b = strconv.AppendBool(b, kind)
	}
	b = fmt.Appendf(strconv.AppendInt(b, int64(x.dec.Deadline), 10), " %p ", x.st)
	return string(append(b, req.Canonical()...))
}

// subject is what a request is about, whatever time it looks at: by it an answer is known that was
// too large to be kept.
func (x *exchange) subject() string {
	req := x.dec.Request
	return strings.Join(append([]string{string(req.ID), x.tenantName(), req.Label, req.Query}, req.Match...), "\x00")
}

func (x *exchange) tenantName() string {
	if x.tenant == nil {
		return ""
	}
	return x.tenant.Name
}

// board finds an identical request that is under way. lead tells that there is none: others may
// join this one.
func (x *exchange) board() (f *flight, lead bool) {
	key := x.key()
	if key == "" {
		return nil, false
	}
	young := min(sharedAge, x.dec.Deadline/sharedShare)
	f, lead = x.s.flights.Join(key, identity.From(x.ctx).Peer, x.s.now(), young, x.st.pool, func() { x.end(qerr.ErrClientLeft) })
	if lead {
		x.client.flight = f
		x.flying.Store(f)
	}
	return f, lead
}

// left ends the request whose client has left, unless others wait for its answer.
func (x *exchange) left() {
	if f := x.flying.Load(); f != nil && f.Left() {
		x.deserted.Store(true)
		return
	}
	x.end(qerr.ErrClientLeft)
}

// given gives the client the answer to an identical request, or tells that this one has to be
// answered for itself.
func (x *exchange) given(f *flight) error {
	_, room := x.s.room(x.ctx, "shared")
	defer room.End()
	x.doing.set(workWait)
	a, err := f.Wait(x.ctx)
	if err != nil {
		if qe := (*qerr.Error)(nil); x.ctx.Err() == nil && errors.As(err, &qe) {
			x.wrong = qe
		}
		return err
	}
	x.s.metrics.shared.WithLabelValues(string(x.req.ID)).Inc()
	return x.repeat(a)
}

// land gives what became of the answer to those that wait, and the answer to the client itself
// where it was kept for them.
func (x *exchange) land(f *flight, err error) error {
	h := x.client.Header()
	if err == nil {
		x.lookShadow()
		a := f.Land(facts{kind: h.Get(kindHeader), cut: x.cut, shadow: slices.Clone(x.shadow)}, nil)
		switch {
		case a == nil:
			if f.Large() {
				x.s.large.put(x.subject(), "it was too large to be kept", x.s.now())
			}
			return nil
		case x.deserted.Load():
			a.Release()
			return qerr.ErrClientLeft
		}
		return x.repeat(a)
	}
	if !x.client.begun { // it can still become an error with a status of its own
		x.client.wrote = false
		h.Del(kindHeader)
		h.Del(lengthHeader)
	}
	x.wrong = x.cause(err)
	if x.wrong.Kind == qerr.Canceled {
		f.Abandon() // its client left before anybody joined
		return err
	}
	f.Land(facts{}, x.wrong)
	return err
}

// repeat writes an answer that was kept.
func (x *exchange) repeat(a *coalesce.Answer[facts]) error {
	defer a.Release()
	x.cut = a.Meta.cut
	for _, b := range a.Meta.shadow {
		x.shade(b)
	}
	x.client.flight = nil
	x.client.Header().Set(kindHeader, a.Meta.kind)
	x.commit(a.Size)
	for _, c := range a.Chunks {
		if _, err := x.client.Write(c); err != nil {
			return fmt.Errorf("%w: %w", qerr.ErrClientLeft, err)
		}
	}
	return nil
}
