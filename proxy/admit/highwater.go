package admit

import (
	"sync/atomic"
	"time"
)

// highWaterEvery is how long a highWater keeps apart what it saw. A scrape each minute or more
// often misses nothing.
const highWaterEvery = time.Minute

// highWater is the largest of the values that it saw in this minute and in the one before: a gauge
// that is sampled now and then misses what is full for a second. The zero value is ready for use.
type highWater struct {
	now, before atomic.Int64
	since       atomic.Int64 // when now began, Unix nanoseconds
}

// saw is called for each value; it is a load where the value is not the largest.
func (h *highWater) saw(v int64) {
	for {
		most := h.now.Load()
		if v <= most || h.now.CompareAndSwap(most, v) {
			return
		}
	}
}

// get is the largest value of late; current is the one now, with which the next minute begins.
func (h *highWater) get(at time.Time, current int64) int64 {
	most := max(h.now.Load(), h.before.Load(), current)
	since := h.since.Load()
	if age := at.UnixNano() - since; (age < 0 || age >= int64(highWaterEvery)) && h.since.CompareAndSwap(since, at.UnixNano()) {
		h.before.Store(h.now.Swap(current))
	}
	return most
}

// Peak is the most that was taken at once within the last one to two minutes, provided that Peak is
// called once a minute or more often. Where memory was asked for in vain it counts as taken: Peak
// is then more than Limit.
func (p *Pool) Peak(at time.Time) int64 { return p.high.get(at, p.InUse()) }
