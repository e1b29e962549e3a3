package plan

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/proxy/shard"
)

// Together is what the selectors of one query read at the same times, and of which replica. No two
// replicas of a shard hold the same samples, so that a ratio of one's by the other's is a number
// that no Prometheus has ever had: selectors whose windows overlap are read from one replica,
// whether shards evaluate over them or they are read raw (docs/decisions/0012). nil is one selector
// that is read alone. It is safe for concurrent use.
type Together struct {
	now   time.Time
	reads []read

	mu       sync.Mutex
	windows  map[within]Window // what window has found
	chosen   map[chosen]*choice
	answered []answer
	became   map[[2]string]*became // by shard and replica
}

// within is what is read of one shard at one time.
type within struct {
	shard  *shard.Shard
	window Window
}

// chosen is what a choice is made for: what is settled has one of its own while its group's targets
// may move.
type chosen struct {
	within
	settled bool
}

// choice is of which replicas a shard's samples of one time are read.
type choice struct {
	once  sync.Once
	over  Window           // all that is read together
	order []*shard.Replica // as shard.Wholes has it, so many of them whole
	whole int
	err   error

	// Together's mutex guards these.
	taken  *shard.Replica   // for all that is read raw; nil while none is
	copies []*shard.Replica // that are read where none is whole; nil while none are
}

// window is what the selectors read of the shard whose windows overlap this one, or one another's
// that do: all of it together, as far as the shard goes.
func (t *Together) window(leg Leg, w Window) Window {
	if t == nil {
		return w
	}
	key := within{leg.Shard, w}
	t.mu.Lock()
	known, ok := t.windows[key]
	t.mu.Unlock()
	if ok {
		return known
	}
	for {
		wider := w
		for _, r := range t.reads {
			if r.window.From <= wider.Until && r.window.Until >= wider.From &&
				(r.window.From < wider.From || r.window.Until > wider.Until) && reads(r, leg.Shard) {
				wider.From, wider.Until = min(wider.From, r.window.From), max(wider.Until, r.window.Until)
			}
		}
		if wider == w {
			break
		}
		w = wider
	}
	w.From = max(w.From, leg.From)
	if leg.Until != math.MaxInt64 {
		w.Until = min(w.Until, leg.Until-1)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.windows == nil {
		t.windows = map[within]Window{}
	}
	t.windows[key] = w
	return w
}

// Apart tells whether what is read of the shard in one window may be read of another replica than
// what is read in the other.
func (t *Together) Apart(s *shard.Shard, a, b Window) bool {
	leg := Leg{Shard: s, From: math.MinInt64, Until: math.MaxInt64}
	a, b = t.window(leg, a), t.window(leg, b)
	return a.Until < b.From || b.Until < a.From
}

func reads(r read, s *shard.Shard) bool {
	return slices.ContainsFunc(r.legs, func(l Leg) bool { return l.Shard == s })
}

// of is the choice for a window, which is made once.
func (t *Together) of(ctx context.Context, leg Leg, w Window, now time.Time) *choice {
	w = t.window(leg, w)
	c := &choice{over: w}
	if t != nil {
		t.mu.Lock()
		if t.chosen == nil {
			t.chosen = map[chosen]*choice{}
		}
		key := chosen{within{leg.Shard, w}, leg.settled && leg.Shard.Divides(w.Until)}
		if known := t.chosen[key]; known != nil {
			c = known
		}
		t.chosen[key] = c
		t.mu.Unlock()
	}
	c.once.Do(func() { c.order, c.whole, c.err = leg.ordered(ctx, w, now) })
	return c
}

// ordered are the shard's replicas for the window, so many whole ones first.
func (l Leg) ordered(ctx context.Context, w Window, now time.Time) (order []*shard.Replica, whole int, err error) {
	if l.settled {
		return l.Shard.Settled(ctx, w.From, w.Until, now)
	}
	return l.Shard.Ordered(ctx, w.From, w.Until, now)
}

// wholes are the replicas of which one may answer alone what is read in the window: those that are
// whole over all that is read together with it. Where none is, but what is read raw takes the
// base's samples wherever that one has any, it is the base, if that is whole over this window.
func (t *Together) wholes(ctx context.Context, leg Leg, w Window, now time.Time, avoid func(*shard.Replica) bool,
) ([]*shard.Replica, error) {
	c := t.of(ctx, leg, w, now)
	if c.err != nil || c.whole > 0 || t.window(leg, w) == w {
		return c.order[:c.whole], c.err
	}
	well, err := leg.Shard.Well()
	if err != nil {
		return nil, err
	}
	own, n, err := leg.ordered(ctx, w, now)
	if well = t.sorted(c, well, avoid); err != nil || !slices.Contains(own[:n], well[0]) {
		return nil, err
	}
	return well[:1], nil
}

// take chooses of the whole ones: the one that has answered a part of what is read together, else
// the first that is not to be avoided; nil where there is none. It is the same for all that is read
// together.
func (t *Together) take(c *choice, wholes []*shard.Replica, s *shard.Shard, avoid func(*shard.Replica) bool) *shard.Replica {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, a := range t.answered {
			if a.shard == s && a.window.From <= c.over.Until && a.window.Until >= c.over.From && slices.Contains(wholes, a.by) {
				c.taken = a.by
				return a.by
			}
		}
	}
	if c.taken != nil && slices.Contains(wholes, c.taken) {
		return c.taken
	}
	for _, r := range wholes {
		if avoid == nil || !avoid(r) {
			c.taken = r
			return r
		}
	}
	return nil
}

// answer is who has answered what a shard was asked for a window.
type answer struct {
	within
	by *shard.Replica
}

// Took says that the replica has answered what its shard was asked for the window: what is read raw
// of the shard at that time is read of it too.
func (t *Together) Took(w Window, r *shard.Replica) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answered = append(t.answered, answer{within{r.Shard, w}, r})
	t.note(r.Shard.Name(), r.Name(), true, nil)
}

// Used and Failed say of which replicas a shard was read, and which of them failed.
func (t *Together) Used(s string, used, failed []string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range used {
		t.note(s, r, true, nil)
	}
	for _, r := range failed {
		t.note(s, r, false, errFailed)
	}
}

// Failed says that the replica of the shard failed, and that another one is to be read instead.
func (t *Together) Failed(s, r string, err error) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.note(s, r, false, err)
}

var errFailed = errors.New("it failed while the others were read")

// note remembers what became of a replica. The caller holds the mutex.
func (t *Together) note(s, r string, read bool, err error) {
	if t.became == nil {
		t.became = map[[2]string]*became{}
	}
	b := t.became[[2]string{s, r}]
	if b == nil {
		b = &became{}
		t.became[[2]string{s, r}] = b
	}
	b.read = b.read || read
	if b.err == nil {
		b.err = err
	}
}

// became is what became of a replica in one query.
type became struct {
	read bool  // for some selector
	err  error // for another one
}

// Mixed is a replica that was read for one selector and failed for another, which another replica
// was read for: the answer is of both, and is to be thrown away. The error is nil where there is
// none.
func (t *Together) Mixed() (replica string, err error) {
	if t == nil {
		return "", nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, b := range t.became {
		if b.read && b.err != nil {
			return key[1], b.err
		}
	}
	return "", nil
}

// sorted are those that are well, and without those to be avoided where others are left. It is the
// same for all that is read together, but for those that are to be avoided since: one that has come
// back since is not read, and one that has gone has failed.
func (t *Together) sorted(c *choice, well []*shard.Replica, avoid func(*shard.Replica) bool) []*shard.Replica {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
	}
	if c.copies == nil {
		c.copies = c.inOrder(well, avoid)
		return c.copies
	}
	left := make([]*shard.Replica, 0, len(c.copies))
	for _, r := range c.copies {
		if slices.Contains(well, r) {
			left = append(left, r)
		} else if t != nil {
			t.note(r.Shard.Name(), r.Name(), false, errGone)
		}
	}
	if len(left) == 0 {
		c.copies = c.inOrder(well, avoid)
		return c.copies
	}
	if avoid != nil && slices.ContainsFunc(left, avoid) && slices.ContainsFunc(left, func(r *shard.Replica) bool { return !avoid(r) }) {
		return slices.DeleteFunc(left, avoid)
	}
	return left
}

var errGone = errors.New("it has gone while the others were read")

func (c *choice) inOrder(well []*shard.Replica, avoid func(*shard.Replica) bool) []*shard.Replica {
	well = slices.Clone(well)
	place := func(r *shard.Replica) int {
		if i := slices.Index(c.order, r); i >= 0 {
			return i
		}
		return len(c.order) // it has come back since
	}
	slices.SortStableFunc(well, func(a, b *shard.Replica) int { return place(a) - place(b) })
	if avoid == nil {
		return well
	}
	if left := slices.DeleteFunc(slices.Clone(well), avoid); len(left) > 0 {
		return left
	}
	return well
}
