// Package pause waits, for those who ask again later.
package pause

import (
	"context"
	"time"
)

// For waits for d. It returns early, with the cause, where ctx ends first.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
