// Package parent tells a plugin that the Grafana which started it is gone. Grafana ends its plugins
// when it stops, but not when it is killed or crashes: without looking, the program would stay for
// ever, with the credentials of its datasources in memory, beside the one that the next Grafana
// starts.
//
//	ctx, cancel := context.WithCancel(context.Background())
//	go func() {
//		if parent.Wait(ctx, parent.Every, os.Getppid) {
//			os.Exit(0)
//		}
//	}()
//
// It promises to notice within the interval on Unix systems, where an orphan gets another parent.
// On Windows the parent's number stays, and Wait never returns before ctx ends. It asks nothing of
// the system but that number.
package parent

import (
	"context"
	"time"
)

// Every is how often a plugin looks.
const Every = 2 * time.Second

// Wait returns true when pid gives another number than at first, false when ctx has ended before.
// It asks every so often.
func Wait(ctx context.Context, every time.Duration, pid func() int) bool {
	first := pid()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if pid() != first {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}
