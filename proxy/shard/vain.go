package shard

import (
	"sync"
	"time"

	"github.com/spillwayproject/spillway/proxy/trust"
)

// vain remembers that somebody has waited in vain, and how long, for trust.Pause: who has no more
// patience than that need not wait for the same again. The zero vain remembers nothing.
type vain struct {
	mu     sync.Mutex
	until  time.Time
	waited time.Duration
}

// note remembers a wait. What is remembered of a longer one stands as long as it would have.
func (v *vain) note(waited time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if now.Before(v.until) && waited < v.waited {
		return
	}
	v.until, v.waited = now.Add(trust.Pause), waited
}

// spares tells whether one who would wait so long would do so in vain: for as long as another one,
// or a quarter more, of which calls keep a part to themselves. Who waited for beatGrace did so for
// everybody: more than this is given to no replica.
func (v *vain) spares(patience time.Duration) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return time.Now().Before(v.until) && (v.waited >= beatGrace || patience <= v.waited*5/4)
}
