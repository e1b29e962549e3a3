package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// maxUnselective is how many unselective calls one shard is asked at once; the gate of each replica
// admits as many.
const maxUnselective = 2

// slots are taken by a request for ALL the shards it is about to ask before it asks any, and none
// is held while another one is waited for. If each call of a fan-out waited at its own replica's
// gate instead, two requests could hold the slots of one shard while two others hold those of
// another, and all four would wait for each other until their deadlines. The zero value is ready
// for use.
type slots struct {
	mu sync.Mutex
	by map[string]*admit.Gate // by shard name; as many as configurations ever named
}

// of is where slots of the shard are had. They have no lanes, since there are two; whose turn it is
// among the flows is chosen fairly.
func (s *slots) of(name string) *admit.Gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string]*admit.Gate{}
	}
	g := s.by[name]
	if g == nil {
		g = admit.NewGate(maxUnselective, maxUnselective, nil)
		s.by[name] = g
	}
	return g
}

// take waits, until shortly before the deadline, for one slot of every shard that an unselective
// question is for. If the error is nil, each question is asked or failed, or the caller calls drop.
func (s *slots) take(within func(*shard.Shard) context.Context, questions []question) (taken, error) {
	var wanted []*shard.Shard
	for _, q := range questions {
		if q.class == shard.Unselective && !slices.Contains(wanted, q.shard) {
			wanted = append(wanted, q.shard)
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	slices.SortFunc(wanted, func(a, b *shard.Shard) int { return cmp.Compare(a.Name(), b.Name()) })
	doors, began := make([]*slotDoor, len(wanted)), time.Now()
	for i, sh := range wanted {
		doors[i] = &slotDoor{gate: s.of(sh.Name()), ctx: within(sh), shard: sh, began: began}
	}
	if err := admit.EnterAll(doors); err != nil {
		return nil, err
	}
	leave := make(map[*shard.Shard]func(), len(wanted))
	for i, sh := range wanted {
		leave[sh] = doors[i].Leave
	}
	return taken(nil).with(leave, questions), nil
}

// slotDoor is where one request gets a slot of one shard; it implements admit.Door.
type slotDoor struct {
	gate  *admit.Gate
	ctx   context.Context
	shard *shard.Shard
	began time.Time
	place admit.Place
}

func (d *slotDoor) asker() admit.Asker {
	who := identity.From(d.ctx)
	return admit.Asker{Flow: who.Flow, Peer: who.Peer, Arrived: who.Arrived, Began: d.began}
}

// Try implements admit.Door.
func (d *slotDoor) Try() (ok bool) {
	d.place, ok = d.gate.Try(d.asker(), 1)
	return ok
}

// Wait implements admit.Door.
func (d *slotDoor) Wait() (err error) {
	wait := d.ctx
	if dl, ok := wait.Deadline(); ok { // what is left is for the answer that says so
		var cancel context.CancelFunc
		wait, cancel = context.WithDeadline(wait, dl.Add(-min(time.Until(dl)/20, 250*time.Millisecond)))
		defer cancel()
	}
	began := time.Now()
	if d.place, err = d.gate.Wait(wait, d.asker(), 1); err == nil {
		return nil
	}
	if d.ctx.Err() != nil && !qerr.TimedOut(d.ctx) {
		return qerr.From(context.Cause(d.ctx))
	}
	outcome := fmt.Sprintf("there was no room for this one before its deadline (it waited %s)", time.Since(began).Round(10*time.Millisecond))
	if r := (*admit.Refusal)(nil); errors.As(err, &r) && r.Why == admit.FlowFull {
		outcome = fmt.Sprintf("%d of the same caller wait there already, as many as may", r.Most)
	}
	e := qerr.Overload(policy.BoundUnselectiveSlots, strconv.Itoa(maxUnselective), time.Second,
		"name a metric in the selector, such as kube_pod_info{namespace=\"…\"}; such requests need no slot",
		"%s is asked at most %d requests at once that select nothing in particular, and %s", d.shard.Name(), maxUnselective, outcome)
	e.Shards = []string{d.shard.Name()}
	return e
}

// Leave implements admit.Door.
func (d *slotDoor) Leave() { d.gate.Leave(&d.place, 1) }

// Wide implements admit.Door.
func (*slotDoor) Wide() bool { return false }

// taken are the slots of one request.
type taken map[*shard.Shard]*slot

// slot goes back when the last of its users, the shard's questions, is done.
type slot struct {
	users atomic.Int32
	give  func()
}

func (s *slot) done() {
	if s.users.Add(-1) == 0 {
		s.give()
	}
}

// with are the slots together with places of the same request at the shards; each goes back with
// its shard's slot, when the last of the shard's questions has.
func (t taken) with(leave map[*shard.Shard]func(), questions []question) taken {
	if t == nil {
		t = make(taken, len(leave))
	}
	for sh, f := range leave {
		if h := t[sh]; h != nil {
			give := h.give
			h.give = func() { f(); give() }
			continue
		}
		h := &slot{give: f}
		for _, q := range questions {
			if q.shard == sh {
				h.users.Add(1)
			}
		}
		t[sh] = h
	}
	return t
}

// until keeps a question's part of the shard's slot, if there is one, until its answer's end: then,
// or when it is closed, the shard has done its work, however long the client takes to read.
func (t taken) until(sh *shard.Shard, body io.ReadCloser) io.ReadCloser {
	s := t[sh]
	if s == nil {
		return body
	}
	return slotBody{body, sync.OnceFunc(s.done)}
}

// failed says that a question has no answer.
func (t taken) failed(sh *shard.Shard) {
	if s := t[sh]; s != nil {
		s.done()
	}
}

// drop gives everything back of which nothing was asked.
func (t taken) drop() {
	for _, s := range t {
		s.give()
	}
}

type slotBody struct {
	io.ReadCloser
	end func()
}

// Read implements io.Reader.
func (b slotBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

// Close implements io.Closer.
func (b slotBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}
