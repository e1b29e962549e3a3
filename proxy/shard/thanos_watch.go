package shard

import (
	"context"
	"errors"
	"time"
)

// The page of stores is read so often that none of Thanos' health checks goes unseen while a
// request is under way; see thanos.Stores.Followed.

const (
	// storesWatched is how old the page may be when a request is sent, and how often it is read
	// while an answer has not begun.
	storesWatched = 2 * time.Second
	// storesWatchWait is how long a request waits for the page before it is sent.
	storesWatchWait = 500 * time.Millisecond
)

// errUnseen is the private cause of an answer while which a health check went unseen: it is asked
// for again.
var errUnseen = errors.New("a health check of its stores went unseen meanwhile")

// followed tells whether all health checks of the server's stores from asked on have been seen.
func (r *Replica) followed(asked time.Time) bool {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return r.up.stores.Followed(asked)
}

// watchStores sees that the page of stores is fresh, and is read again and again until stop is
// called. What it finds is kept; who judges an answer finds errors again.
func (r *Replica) watchStores(ctx context.Context) (stop func()) {
	r.up.mu.Lock()
	fresh := time.Since(r.up.stores.Read) < storesWatched
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
