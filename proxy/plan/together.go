package plan

import (
	"context"
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

	mu     sync.Mutex
	chosen map[within]*choice
}

// within is what is read of one shard at one time.
type within struct {
	shard  *shard.Shard
	window Window
}

// choice is of which replicas a shard's samples of one time are read.
type choice struct {
	once  sync.Once
	order []*shard.Replica // as shard.Wholes has it, so many of them whole
	whole int
	err   error

	taken *shard.Replica // whole, and read already; nil while none is. Together's mutex guards it.
}

// window is what the selectors read of the shard whose windows overlap this one, or one another's
// that do: all of it together, as far as the shard goes.
func (t *Together) window(leg Leg, w Window) Window {
	if t == nil {
		return w
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
	return w
}

func reads(r read, s *shard.Shard) bool {
	return slices.ContainsFunc(r.legs, func(l Leg) bool { return l.Shard == s })
}

// of is the choice for a window, which is made once.
func (t *Together) of(ctx context.Context, leg Leg, w Window, now time.Time) *choice {
	w = t.window(leg, w)
	c := &choice{}
	if t != nil {
		t.mu.Lock()
		if t.chosen == nil {
			t.chosen = map[within]*choice{}
		}
		key := within{leg.Shard, w}
		if known := t.chosen[key]; known != nil {
			c = known
		}
		t.chosen[key] = c
		t.mu.Unlock()
	}
	c.once.Do(func() { c.order, c.whole, c.err = leg.Shard.Ordered(ctx, w.From, w.Until, now) })
	return c
}

// wholes are the replicas of which one may answer alone what is read in the window: those that are
// whole over all that is read together with it. Where none is, but what is read raw takes the base's
// samples wherever that one has any, it is the base, if that is whole over this window.
func (t *Together) wholes(ctx context.Context, leg Leg, w Window, now time.Time, avoid func(*shard.Replica) bool) ([]*shard.Replica, error) {
	c := t.of(ctx, leg, w, now)
	if c.err != nil || c.whole > 0 || t.window(leg, w) == w {
		return c.order[:c.whole], c.err
	}
	well, err := leg.Shard.Well()
	if err != nil {
		return nil, err
	}
	own, err := leg.Shard.Wholes(ctx, w.From, w.Until, now)
	if well = c.sorted(well, avoid); err != nil || !slices.Contains(own, well[0]) {
		return nil, err
	}
	return well[:1], nil
}

// take chooses of the whole ones, those not to be avoided first; nil where there is none.
func (t *Together) take(c *choice, avoid func(*shard.Replica) bool) *shard.Replica {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
	}
	if c.taken != nil {
		return c.taken
	}
	for _, r := range c.order[:c.whole] {
		if avoid == nil || !avoid(r) {
			c.taken = r
			return r
		}
	}
	return nil
}

// Took says that the replica has answered what its shard was asked for the window: what is read raw
// of the shard at that time is read of it too.
func (t *Together) Took(w Window, r *shard.Replica) {
	if t == nil {
		return
	}
	s := r.Shard
	from, until := s.Span(t.now)
	w = t.window(Leg{Shard: s, From: from, Until: until}, w)
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.chosen[within{s, w}]; c != nil && slices.Contains(c.order[:c.whole], r) {
		c.taken = r
	}
}

// Shared tells whether several selectors read the shard, so that one of them must not go over to
// another replica by itself.
func (t *Together) Shared(s *shard.Shard) bool {
	if t == nil {
		return false
	}
	n := 0
	for _, r := range t.reads {
		if reads(r, s) {
			n++
		}
	}
	return n > 1
}

// sorted are those that are well, in the same order for all that is read together, and without
// those to be avoided where others are left.
func (c *choice) sorted(well []*shard.Replica, avoid func(*shard.Replica) bool) []*shard.Replica {
	well = slices.Clone(well)
	slices.SortStableFunc(well, func(a, b *shard.Replica) int { return slices.Index(c.order, a) - slices.Index(c.order, b) })
	if avoid == nil {
		return well
	}
	if left := slices.DeleteFunc(slices.Clone(well), avoid); len(left) > 0 {
		return left
	}
	return well
}
