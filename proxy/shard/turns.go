package shard

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// A reload may come before the targets of all servers are read, so that each topology begins with
// those that were not asked for the longest time, over all of them. Of a server that is so slow
// that each question to it is cut off nothing is learned; such ones would stand before all others
// each time, or, counted as asked, behind them, where they are cut off anew.

// turns are the servers whose targets are to be read, those that wait for the longest time first.
type turns struct {
	mu sync.Mutex
	// cut are those that did not answer to the end when they were last asked, rest all others.
	cut, rest []*Replica
}

func newTurns(of iter.Seq[*Replica]) *turns {
	var out turns
	asked := map[*Replica]time.Time{}
	for r := range of {
		cut := false
		if asked[r], cut = r.askedTargets(); cut {
			out.cut = append(out.cut, r)
		} else {
			out.rest = append(out.rest, r)
		}
	}
	for _, s := range [][]*Replica{out.cut, out.rest} {
		slices.SortStableFunc(s, func(a, b *Replica) int { return asked[a].Compare(asked[b]) })
	}
	return &out
}

// next is the server that is to be asked next, one that was cut off if there is any where these are
// first; nil is none.
func (t *turns) next(cutFirst bool) *Replica {
	t.mu.Lock()
	defer t.mu.Unlock()
	from := &t.rest
	if len(t.cut) > 0 && (cutFirst || len(t.rest) == 0) {
		from = &t.cut
	}
	if len(*from) == 0 {
		return nil
	}
	r := (*from)[0]
	*from = (*from)[1:]
	return r
}

// readTargets reads the targets of those servers that can be asked, and of the stores of each
// Thanos Query. There is nothing else to compare in a topology of one. Half of those that are asked
// at once are such as were cut off before, while there are others.
func (t *Topology) readTargets(ctx context.Context, of iter.Seq[*Replica]) {
	all, several := newTurns(of), t.several()
	var g errgroup.Group
	for i := range compareParallel {
		cutFirst := i < compareParallel/2
		g.Go(func() error {
			for r := all.next(cutFirst); r != nil && ctx.Err() == nil; r = all.next(cutFirst) {
				if rank, ok := r.rank(time.Now()); !ok || rank >= answersNothing {
					r.notTold()
					continue
				}
				if several {
					_ = r.readTargets(ctx) // what cannot be read now stays as it was, for a while
				}
				if r.Thanos() {
					_ = r.readCopies(ctx) // likewise
				}
			}
			return nil
		})
	}
	_ = g.Wait()
}
