package cost

import (
	"container/list"
	"context"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync"
	"time"
)

// MaxCounts is how many numbers are remembered; those that were used longest ago are forgotten.
const MaxCounts = 50_000

// minPeriod is how long a number stands for a window that ends now, at least.
const minPeriod = 10 * time.Minute

// Key identifies what was counted, in a stretch of time. Of texts, which come from callers and may
// be long, it holds 128 bits of a hash that nobody can foresee.
type Key struct {
	text   [2]uint64
	soon   bool
	class  int
	period int64
}

var keySeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// KeyOf is the key for what is counted of the series of a selector on a shard, in a window in
// milliseconds. Windows share a key if they are about as long and end in the same ten minutes, or
// in the same half of their length, so that a window that moves with the clock is counted anew now
// and then.
func KeyOf(shard, what, selector string, from, until int64) Key {
	class := bits.Len64(uint64(max(until-from, 0)))
	period := max(minPeriod.Milliseconds(), int64(1)<<class/4)
	return Key{text: hash(shard, what, selector, Grid{}), class: class, period: until / period}
}

// WeightKey is the key for the most that a shard holds for an expression's text over a grid that
// ends at until, in milliseconds. Grids that end in the same ten minutes share it.
func WeightKey(shard, text string, grid Grid, until int64) Key {
	return Key{text: hash(shard, "weight", text, grid)}.Soon(until)
}

// hash tells apart texts of UTF-8.
func hash(shard, what, text string, grid Grid) (sums [2]uint64) {
	for i, seed := range keySeeds {
		var h maphash.Hash
		h.SetSeed(seed)
		for _, s := range [...]string{shard, what, text} {
			h.WriteString(s)
			h.WriteByte(0xff)
		}
		var b [32]byte
		binary.LittleEndian.PutUint64(b[:], uint64(grid.Steps))
		binary.LittleEndian.PutUint64(b[8:], uint64(grid.Step))
		binary.LittleEndian.PutUint64(b[16:], uint64(grid.Interval))
		binary.LittleEndian.PutUint64(b[24:], uint64(grid.Lookback))
		h.Write(b[:])
		sums[i] = h.Sum64()
	}
	return sums
}

// Soon is a key for the same thing under which a number is good for ten minutes at most.
func (k Key) Soon(until int64) Key {
	k.soon, k.period = true, until/minPeriod.Milliseconds()
	return k
}

// Whole is the beginning of the longest window that shares a key with this one.
func Whole(from, until int64) int64 {
	return until - int64(1)<<bits.Len64(uint64(max(until-from, 0))) + 1
}

// Counts remembers numbers of series. The zero value is ready for use, by several goroutines.
type Counts struct {
	mu   sync.Mutex
	seen map[Key]*list.Element
	used list.List // of *count, the one that was used last in front
}

// count is a number that is known, or that somebody is finding out.
type count struct {
	key   Key
	n     int64
	done  chan struct{} // closed when n is known, or somebody else finds it out; nil from then on
	since time.Time     // when it was asked for last
	lanes []string      // of those who ask and have no answer yet; none when n is known
}

// late is from when on somebody else asks, too, who is in the lane.
func (n *count) late(lane string) time.Time {
	wait := patience
	for i, l := range n.lanes {
		if l == lane && slices.Contains(n.lanes[:i], lane) {
			wait = min(2*wait, maxPatience)
		}
	}
	return n.since.Add(wait)
}

// leave takes out one who has asked in the lane.
func (n *count) leave(lane string) {
	if i := slices.Index(n.lanes, lane); i >= 0 {
		n.lanes = slices.Delete(n.lanes, i, i+1)
	}
}

// Known is the number for a key, if it is known.
func (c *Counts) Known(k Key) (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.seen[k]
	if e == nil || e.Value.(*count).done != nil {
		return 0, false
	}
	c.used.MoveToFront(e)
	return e.Value.(*count).n, true
}

// Remember stores a number that the caller knows.
func (c *Counts) Remember(k Key, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[Key]*list.Element{}
	}
	if c.seen[k] == nil {
		c.seen[k] = c.used.PushFront(&count{key: k, n: n})
		c.forget()
	}
}

// patience is how long somebody else's question is waited for before one's own is asked: that may
// come to its turn at the server sooner, in another lane above all. Where two of a lane ask already
// the next one waits twice as long, and so on up to maxPatience, so that a question which takes a
// server long is not asked again by each of many.
const patience, maxPatience = 2 * time.Second, 8 * time.Second

// Find returns the numbers for keys. It asks, all at once, for those that are not known and that
// nobody else is asking for: ask calls found with the index of each key among those that it is
// given, as soon as its number is known, from any goroutine; of two numbers for a key the first
// counts. Where another caller's question fails, does not find the number or takes long, we ask
// ourselves, in our lane. What is not found when we ask is not in the result. 0 is not remembered,
// since there may have been no series only at that moment: how long it is to be believed is for the
// caller to decide, by Remember.
//
// ctx bounds only how long others' questions are waited for; the error is *Late where it ends then.
func (c *Counts) Find(ctx context.Context, lane string, keys []Key, ask func(keys []Key, found func(i int, n int64)) error,
) (map[Key]int64, error) {
	out, asked := make(map[Key]int64, len(keys)), map[Key]bool{}
	for {
		own, wait, late := c.claim(lane, keys, out, asked)
		if len(own) > 0 {
			if err := c.ask(lane, own, out, ask); err != nil {
				return nil, err
			}
		}
		if wait == nil {
			return out, nil
		}
		long := time.NewTimer(time.Until(late))
		select {
		case <-wait:
		case <-long.C:
		case <-ctx.Done():
		}
		long.Stop()
		if ctx.Err() != nil {
			left := slices.DeleteFunc(slices.Clone(keys), func(k Key) bool {
				n, ok := c.Known(k) // it may have been found while we asked for others
				if _, had := out[k]; ok && !had {
					out[k] = n
				}
				_, ok = out[k]
				return ok || asked[k]
			})
			if len(left) == 0 {
				return out, nil
			}
			return nil, &Late{Keys: left, Err: context.Cause(ctx)}
		}
	}
}

// Late is the error of who waits no longer for what others ask.
type Late struct {
	// Keys are those of which the number is not known.
	Keys []Key
	// Err is what ended the wait.
	Err error
}

// Error implements error.
func (l *Late) Error() string { return l.Err.Error() }

// Unwrap is what ended the wait.
func (l *Late) Unwrap() error { return l.Err }

// claim adds to out what is known, and returns the keys that the caller is now to ask for, which
// are in asked from then on, and what to wait for, and until when, where somebody else asks. What
// would be taken from others soon is taken with what is late: it would have to wait for that.
func (c *Counts) claim(lane string, keys []Key, out map[Key]int64, asked map[Key]bool) (own []Key, wait chan struct{}, late time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[Key]*list.Element{}
	}
	now := time.Now()
	due := now
	for _, k := range keys {
		if e := c.seen[k]; e != nil && !asked[k] && e.Value.(*count).done != nil && !now.Before(e.Value.(*count).late(lane)) {
			due = now.Add(patience)
		}
	}
	for _, k := range keys {
		if _, ok := out[k]; ok || asked[k] {
			continue
		}
		var before []string
		if e := c.seen[k]; e != nil {
			n := e.Value.(*count)
			if n.done == nil {
				out[k] = n.n
				continue
			}
			if l := n.late(lane); due.Before(l) {
				if wait == nil || l.Before(late) {
					wait, late = n.done, l
				}
				continue
			}
			before = n.lanes
			c.drop(k)
		}
		c.seen[k] = c.used.PushFront(&count{key: k, done: make(chan struct{}), since: now, lanes: append(before, lane)})
		own, asked[k] = append(own, k), true
	}
	return own, wait, late
}

// drop forgets a key that is asked for, and wakes those who wait for it. The caller holds the
// mutex.
func (c *Counts) drop(k Key) {
	if e := c.seen[k]; e != nil && e.Value.(*count).done != nil {
		close(e.Value.(*count).done)
		c.used.Remove(e)
		delete(c.seen, k)
	}
}

// ask finds out what was claimed, and lets go of what was not found whatever comes of it. Those who
// wait for a number wait for no other one.
func (c *Counts) ask(lane string, own []Key, out map[Key]int64, ask func([]Key, func(int, int64)) error) (err error) {
	c.mu.Lock()
	mine := make([]*list.Element, len(own))
	for i, k := range own {
		mine[i] = c.seen[k]
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, k := range own {
			if c.seen[k] == mine[i] { // nobody took it
				c.drop(k)
			} else if e := c.seen[k]; e != nil {
				e.Value.(*count).leave(lane)
			}
		}
		c.forget()
	}()
	return ask(own, func(i int, n int64) {
		c.mu.Lock()
		defer c.mu.Unlock()
		k := own[i]
		if _, ok := out[k]; ok {
			return
		}
		out[k] = n
		e := c.seen[k]
		switch {
		case n == 0:
			if e == mine[i] {
				c.drop(k)
			}
		case e == nil: // it was taken, and given up
			c.seen[k] = c.used.PushFront(&count{key: k, n: n})
		case e.Value.(*count).done != nil:
			close(e.Value.(*count).done)
			e.Value.(*count).n, e.Value.(*count).done, e.Value.(*count).lanes = n, nil, nil
		}
	})
}

// forget lets go of what is too much, but not of what somebody waits for. The caller holds the
// mutex.
func (c *Counts) forget() {
	for e := c.used.Back(); e != nil && len(c.seen) > MaxCounts; {
		before, k := e.Prev(), e.Value.(*count)
		if k.done == nil {
			c.used.Remove(e)
			delete(c.seen, k.key)
		}
		e = before
	}
}
