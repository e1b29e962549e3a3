package server

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// maxUnselective is how many unselective calls one shard is asked at once; the gate of each replica
// admits as many.
const maxUnselective = 2

// slots are taken by a request for ALL the shards it is about to ask, in the order of their names,
// before it asks any. If each call of a fan-out waited at its own replica's gate instead, two
// requests could hold the slots of one shard while two others hold those of another, and all four
// would wait for each other until their deadlines. The zero value is ready for use.
type slots struct {
	mu sync.Mutex
	by map[string]*semaphore.Weighted // by shard name; as many as configurations ever named
}

func (s *slots) of(name string) *semaphore.Weighted {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string]*semaphore.Weighted{}
	}
	sem := s.by[name]
	if sem == nil {
		sem = semaphore.NewWeighted(maxUnselective)
		s.by[name] = sem
	}
	return sem
}

// take waits, until shortly before the deadline, for one slot of every shard that an unselective
// question is for. The caller calls begun exactly once if the error is nil.
func (s *slots) take(ctx context.Context, questions []question) (taken, error) {
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
	wait := ctx
	if dl, ok := ctx.Deadline(); ok { // what is left is for the answer that says so
		var cancel context.CancelFunc
		wait, cancel = context.WithDeadline(ctx, dl.Add(-min(time.Until(dl)/20, 250*time.Millisecond)))
		defer cancel()
	}
	t, began := taken{}, time.Now()
	for _, sh := range wanted {
		sem := s.of(sh.Name())
		if err := sem.Acquire(wait, 1); err != nil {
			t.begun()
			if ctx.Err() != nil && !qerr.TimedOut(ctx) {
				return nil, qerr.From(context.Cause(ctx))
			}
			e := qerr.Overload(policy.BoundUnselectiveSlots, strconv.Itoa(maxUnselective), time.Second,
				"name a metric in the selector, such as kube_pod_info{namespace=\"…\"}; such requests need no slot",
				"%s is asked at most %d requests at once that select nothing in particular, and there was no room for this one before its deadline (it waited %s)",
				sh.Name(), maxUnselective, time.Since(began).Round(10*time.Millisecond))
			e.Shards = []string{sh.Name()}
			return nil, e
		}
		h := &slot{give: func() { sem.Release(1) }}
		h.users.Store(1) // the request itself, until begun
		t[sh] = h
	}
	return t, nil
}

// taken are the slots of one request.
type taken map[*shard.Shard]*slot

// slot goes back when the last of its users is done.
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
// its shard's slot.
func (t taken) with(leave map[*shard.Shard]func()) taken {
	if t == nil {
		t = make(taken, len(leave))
	}
	for sh, f := range leave {
		h := t[sh]
		if h == nil {
			h = &slot{give: f}
			h.users.Store(1)
			t[sh] = h
			continue
		}
		give := h.give
		h.give = func() { f(); give() }
	}
	return t
}

// until keeps the shard's slot, if there is one, until the answer's end too: at its end, or when it
// is closed, the shard has done its work, however long the client takes to read.
func (t taken) until(sh *shard.Shard, body io.ReadCloser) io.ReadCloser {
	s := t[sh]
	if s == nil {
		return body
	}
	s.users.Add(1)
	return slotBody{body, sync.OnceFunc(s.done)}
}

// begun says that all answers that there will be have begun.
func (t taken) begun() {
	for _, s := range t {
		s.done()
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
