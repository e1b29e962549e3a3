package parent

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWait(t *testing.T) {
	for what, c := range map[string]struct {
		first, then int
		dies, ends  time.Duration // 0: never
		want        bool
		after       time.Duration
	}{
		"the parent dies":            {7, 1, 61 * time.Second, 0, true, 62 * time.Second},
		"the parent is process 1":    {1, 1, time.Second, 3 * time.Minute, false, 3 * time.Minute},
		"the plugin stops by itself": {7, 7, 0, time.Minute + time.Second, false, time.Minute + time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var pid atomic.Int64
				pid.Store(int64(c.first))
				if c.dies > 0 {
					time.AfterFunc(c.dies, func() { pid.Store(int64(c.then)) })
				}
				if c.ends > 0 {
					time.AfterFunc(c.ends, cancel)
				}
				began := time.Now()
				got := Wait(ctx, Every, func() int { return int(pid.Load()) })
				if took := time.Since(began); got != c.want || took != c.after {
					t.Errorf("%v after %s, want %v after %s", got, took, c.want, c.after)
				}
			})
		})
	}
}
