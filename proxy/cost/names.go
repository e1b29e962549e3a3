package cost

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"sync"
	"time"
	"unique"
)

const (
	// MaxNames is how many metrics of a shard are known by name: those with the most series. All
	// others have at most as many as the last of these.
	MaxNames = 200
	// NamesAge is the least time before that is asked for again; the time is at least namesRest
	// times as long as the last answer took, since the server walks its index for it under a lock.
	NamesAge  = 10 * time.Minute
	namesRest = 100
)

// Names is how many series the metrics of a shard have, as its status/tsdb says of its newest
// hours. The zero value knows nothing, and is ready for use by several goroutines.
type Names struct {
	mu     sync.Mutex
	by     map[unique.Handle[string]]int64
	others int64     // what a metric has at most that is not in by
	all    int64     // what all have together
	since  int64     // when the oldest sample was made of what it tells of, in milliseconds
	next   time.Time // when it is asked for again
	asking bool
}

// AtMost is how many series the metric has at most, if that is known; without a name, how many all
// metrics have together.
func (n *Names) AtMost(metric string) (int64, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.by == nil {
		return 0, false
	}
	if metric == "" {
		return n.all, true
	}
	if most, ok := n.by[unique.Make(metric)]; ok {
		return most, true
	}
	return n.others, true
}

// Since is the time from which on the numbers hold, in milliseconds: of series that ended before,
// they say nothing.
func (n *Names) Since() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.since
}

// Due tells whether the caller is to ask now: Learn or Fail has to follow.
func (n *Names) Due(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asking || now.Before(n.next) {
		return false
	}
	n.asking = true
	return true
}

// Learn reads an answer of status/tsdb with the limit MaxNames, which took that long. Where the
// answer cannot be understood, what was known stays. A server with an empty head says nothing of
// any time.
func (n *Names) Learn(body io.Reader, now time.Time, took time.Duration) error {
	var answer struct {
		Data struct {
			HeadStats *struct {
				NumSeries int64 `json:"numSeries"`
				MinTime   int64 `json:"minTime"`
			} `json:"headStats"`
			SeriesCountByMetricName []struct {
				Name  string `json:"name"`
				Value int64  `json:"value"`
			} `json:"seriesCountByMetricName"`
		} `json:"data"`
	}
	err := json.NewDecoder(body).Decode(&answer)
	list, head := answer.Data.SeriesCountByMetricName, answer.Data.HeadStats
	empty := head != nil && head.NumSeries == 0 && len(list) == 0
	if err == nil && !empty && (len(list) == 0 || len(list) > MaxNames) {
		err = fmt.Errorf("%d metrics, want 1 to %d", len(list), MaxNames)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asking, n.next = false, now.Add(max(NamesAge, namesRest*took))
	if err != nil {
		return fmt.Errorf("cost: status/tsdb: %w", err)
	}
	n.by, n.others = make(map[unique.Handle[string]]int64, len(list)), maxSeries
	n.all, n.since = 0, 0
	switch {
	case empty:
		n.all, n.since = maxSeries, math.MaxInt64
	case head != nil:
		n.all, n.since = min(max(head.NumSeries, 0), maxSeries), head.MinTime
	}
	for _, m := range list {
		most := min(max(m.Value, 0), maxSeries)
		n.by[unique.Make(m.Name)] = most
		n.others, n.all = min(n.others, most), max(n.all, most)
	}
	return nil
}

// Fail notes that there was no answer. What was known is forgotten: it is old.
func (n *Names) Fail(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asking, n.next, n.by = false, now.Add(NamesAge), nil
}
