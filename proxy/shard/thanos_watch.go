package shard

import (
	"context"
	"errors"
	"time"
)

// A Thanos Query chooses the stores for a request when that comes, by what its health checks of
// five seconds found last, and the page of stores says what they found by the time it is read. Of
// two pages that are far apart both may call a store well that was left out in between: with its
// copy gone too, and back before the next look, an answer of half the data looks whole. So the
// pages are read so often that no check goes unseen while a request is under way; each says when a
// store was found well last, and two successes that follow each other are one check apart.

const (
	// storeChecks is the time between two of Thanos' health checks by default, and at least.
	storeChecks = 5 * time.Second
	// storesWatched is how old the page may be when a request is sent, and how often it is read
	// while an answer has not begun.
	storesWatched = 2 * time.Second
	// storesWatchWait is how long a request waits for the page before it is sent.
	storesWatchWait = 500 * time.Millisecond
)

// errUnseen is the private cause of an answer while which a health check went unseen: it is asked
// for again.
var errUnseen = errors.New("a health check of its stores went unseen meanwhile")

// unseen tells whether a store that both pages call well was checked in between without success, as
// far as can be told: there is more than one check between its successes. The time between two
// checks is given; 0 where it is not known.
func unseen(before, after []storeInfo, checks time.Duration) bool {
	checks = max(checks, storeChecks)
	was := make(map[string]storeInfo, len(before))
	for _, i := range before {
		was[i.name] = i
	}
	for _, i := range after {
		b, listed := was[i.name]
		if !listed || b.err != "" || i.err != "" || b.checked.IsZero() || i.checked.IsZero() {
			continue
		}
		if i.checked.Sub(b.checked) >= 2*checks-time.Second {
			return true
		}
	}
	return false
}

// followed tells whether all health checks of the server's stores from asked on have been seen.
func (r *Replica) followed(asked time.Time) bool {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return !asked.Before(r.up.thanos.followed)
}

// watchStores sees that the page of stores is fresh, and is read again and again until stop is
// called. What it finds is kept; who judges an answer finds errors again.
func (r *Replica) watchStores(ctx context.Context) (stop func()) {
	r.up.mu.Lock()
	fresh := time.Since(r.up.thanos.started) < storesWatched
	r.up.mu.Unlock()
	if !fresh {
		first, cancel := context.WithTimeout(ctx, storesWatchWait)
		now := time.Now()
		_, _ = r.look(first, now.Add(-storesWatched), now)
		cancel()
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	timer := time.AfterFunc(storesWatched, func() {
		defer close(done)
		ticker := time.NewTicker(storesWatched)
		defer ticker.Stop()
		for {
			now := time.Now()
			_, _ = r.look(ctx, now.Add(-storesWatched/2), now)
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		if !timer.Stop() {
			<-done
		}
	}
}
