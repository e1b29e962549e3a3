package cost

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
	"unique"
)

const (
	// MaxNames is how many metrics of a shard are known by name: those with the most series. All
	// others have at most as many as the last of these.
	MaxNames = 200
	// NamesAge is how old that may be before it is asked for again, at least, and namesRest how
	// many times as long as the asking took: it walks the server's index under a lock.
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
	next   time.Time // when it is asked for again
	asking bool
}

// AtMost is how many series the metric has at most, if that is known; without a name how many there
// are of all metrics.
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

// Learn reads an answer of status/tsdb with the limit MaxNames, which took so long. What was known
// stays where it cannot be understood.
func (n *Names) Learn(body io.Reader, now time.Time, took time.Duration) error {
	var answer struct {
		Data struct {
			HeadStats struct {
				NumSeries int64 `json:"numSeries"`
			} `json:"headStats"`
			SeriesCountByMetricName []struct {
				Name  string `json:"name"`
				Value int64  `json:"value"`
			} `json:"seriesCountByMetricName"`
		} `json:"data"`
	}
	err := json.NewDecoder(body).Decode(&answer)
	list := answer.Data.SeriesCountByMetricName
	if err == nil && (len(list) == 0 || len(list) > MaxNames) {
		err = fmt.Errorf("%d metrics, want 1 to %d", len(list), MaxNames)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asking, n.next = false, now.Add(max(NamesAge, namesRest*took))
	if err != nil {
		return fmt.Errorf("cost: status/tsdb: %w", err)
	}
	n.by, n.others = make(map[unique.Handle[string]]int64, len(list)), maxSeries
	n.all = min(max(answer.Data.HeadStats.NumSeries, 0), maxSeries)
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
