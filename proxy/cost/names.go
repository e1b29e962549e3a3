package cost

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

const (
	// MaxNames is how many metrics, pairs of label and value, and labels a shard is asked for:
	// those with the most series or values. All others have at most as many as the last of these.
	MaxNames = 1000
	// MoreNames is how many are asked for of a shard that has more than MaxNames and tells of these
	// within quickNames.
	MoreNames  = 10_000
	quickNames = 200 * time.Millisecond
	// sureNames is from which place on the metrics count as equals where a number has to hold: a
	// metric that was deployed or grew since may come up to there unseen.
	sureNames = 200
	// NamesAge is the least time before that is asked for again; the time is at least namesRest
	// times as long as the last answer took, since the server walks its index for it under a lock.
	NamesAge  = 5 * time.Minute
	namesRest = 100
	// namesOld is how many times as old as that it may be before nothing of it counts.
	namesOld = 3
	// sickPause is when it is asked for again of a shard that is not well.
	sickPause = 30 * time.Second
	// MaxTold is of how many metrics a sketch has the names at most: of toldOfSize for each power
	// of two of series, and as many that are buckets. maxToldName is how long one may be, in bytes.
	MaxTold, toldOfSize, maxToldName = 200, 4, 200
	// MaxJobs is how many jobs, values of the label job, a sketch has the names of at most.
	MaxJobs = 50
	// maxValues is of how many values a matcher is taken apart.
	maxValues = 64
)

// Names is a sketch of a shard: how many series its largest metrics, and its most frequent pairs of
// label and value have, and how many values its labels, as its status/tsdb says of its newest
// hours. The zero value knows nothing, and is ready for use by several goroutines.
type Names struct {
	now    atomic.Pointer[sketch] // nil where nothing is known
	mu     sync.Mutex
	next   time.Time // when it is asked for again
	asking bool
	more   bool // the next question may be for MoreNames
	slow   bool // what it would take too long to tell
}

// sketch is what a shard told. It does not change, so that nobody who looks waits.
type sketch struct {
	metrics tally
	pairs   tally     // as label=value; empty where the server does not tell
	values  tally     // of labels
	named   []Metric  // at most MaxTold
	jobs    []Metric  // at most MaxJobs
	others  int64     // series that the metric at the place sureNames has, or the last one
	all     int64     // series that all metrics have together
	since   int64     // when the oldest sample was made of what it tells of, in milliseconds
	until   time.Time // when it is too old
}

// Metric is the name of a metric, or of a job, and how many series it has.
type Metric struct {
	Name   string
	Series int64
}

// tally is a list of names with numbers, by a hash that nobody can foresee.
type tally struct {
	of    []entry // by hash
	least int64   // what a name has at most that is not in it
	full  bool    // there may be others
}

type entry struct {
	hash uint64
	n    int64
}

var namesSeed = maphash.MakeSeed()

// hashOf is the hash of a name, or of a label and a value.
func hashOf(parts ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(namesSeed)
	for _, s := range parts {
		h.WriteString(s)
	}
	return h.Sum64()
}

// find is the number of a name, if it is in the list.
func (t *tally) find(hash uint64) (int64, bool) {
	i, ok := slices.BinarySearchFunc(t.of, hash, func(e entry, h uint64) int {
		switch {
		case e.hash < h:
			return -1
		case e.hash > h:
			return 1
		}
		return 0
	})
	if !ok {
		return 0, false
	}
	return t.of[i].n, true
}

// atMost is the number of a name, or what one has at most that is not in the list.
func (t *tally) atMost(hash uint64) int64 {
	if n, ok := t.find(hash); ok {
		return n
	}
	return t.least
}

// place is the number that is at that place, the largest first, or the least one.
func (t *tally) place(i int) int64 {
	if len(t.of) < i {
		return t.least
	}
	sorted := slices.Clone(t.of)
	slices.SortFunc(sorted, func(a, b entry) int { return cmp.Compare(b.n, a.n) })
	return sorted[i-1].n
}

// AtMost is how many series the metric has at most, if that is known, for whoever protects servers
// by it: no less than one of middle size, since the metric may have grown, and labels, which come
// and go faster, are not looked at. Without a name it is how many all metrics have together.
func (n *Names) AtMost(metric string) (int64, bool) {
	s := n.now.Load()
	switch {
	case s == nil:
		return 0, false
	case metric == "":
		return s.all, true
	}
	return max(s.metrics.atMost(hashOf(metric)), s.others), true
}

// Has is how many series the metric had when the shard told, if it is one of those that were named;
// as Selects, it is not known of a server with an empty head.
func (n *Names) Has(metric string) (int64, bool) {
	s := n.now.Load()
	if s == nil || s.since == math.MaxInt64 {
		return 0, false
	}
	return s.metrics.find(hashOf(metric))
}

// Selects is how many series the matchers selected at most when the shard told, if that is known,
// as it is not of a server with an empty head: no more than the metric has that they name, nor than
// have one of the labels that they ask for. What was deployed since may have more, for as long as
// it takes until the shard is asked again.
func (n *Names) Selects(ms []*labels.Matcher, h *Hashes) (int64, bool) {
	s := n.now.Load()
	if s == nil || s.since == math.MaxInt64 {
		return 0, false
	}
	most := s.all
	for _, m := range ms {
		hashes := h.of(m)
		of, ok := int64(0), len(hashes) > 0
		for _, hash := range hashes {
			var some int64
			if m.Name == model.MetricNameLabel {
				some = s.metrics.atMost(hash)
			} else if some, ok = s.pairs.find(hash); !ok && s.pairs.full {
				// Values come and go with pods: one that is not listed is no news where all are.
				some, ok = s.pairs.least, true
			}
			if of += some; !ok {
				break
			}
		}
		if ok {
			most = min(most, of)
		}
	}
	return most, true
}

// Hashes are those of the values that matchers ask for. They are the same for all shards, and made
// once for a request. The zero value is ready for use by one goroutine; nil remembers none.
type Hashes struct{ by map[*labels.Matcher][]uint64 }

// of are the hashes of a matcher; none where it is not taken apart.
func (h *Hashes) of(m *labels.Matcher) []uint64 {
	if h == nil {
		return hashesOf(m)
	}
	out, ok := h.by[m]
	if !ok {
		out = hashesOf(m)
		if h.by == nil {
			h.by = map[*labels.Matcher][]uint64{}
		}
		h.by[m] = out
	}
	return out
}

func hashesOf(m *labels.Matcher) []uint64 {
	if m.Type != labels.MatchEqual && m.Type != labels.MatchRegexp || m.Matches("") {
		return nil
	}
	values := []string{m.Value}
	if m.Type == labels.MatchRegexp {
		if values = m.SetMatches(); len(values) > maxValues {
			return nil
		}
	}
	out := make([]uint64, len(values))
	for i, v := range values {
		if out[i] = hashOf(v); m.Name != model.MetricNameLabel {
			out[i] = hashOf(m.Name, "=", v)
		}
	}
	return out
}

// Values is how many values a label has at most, if that is known; of a label that is not listed
// where all are, nothing is.
func (n *Names) Values(label string) (int64, bool) {
	s := n.now.Load()
	if s == nil {
		return 0, false
	}
	if v, ok := s.values.find(hashOf(label)); ok || !s.values.full {
		return v, ok
	}
	return s.values.least, true
}

// Labels is how many label names there are, if that is known.
func (n *Names) Labels() (int64, bool) {
	s := n.now.Load()
	if s == nil {
		return 0, false
	}
	return int64(len(s.values.of)), len(s.values.of) > 0 && !s.values.full
}

// Named are some of the shard's metrics, at most MaxTold, as it told them: the largest first, and a
// few of each size. The caller does not change them.
func (n *Names) Named() []Metric {
	if s := n.now.Load(); s != nil {
		return s.named
	}
	return nil
}

// Jobs are the shard's largest jobs, values of the label job, at most MaxJobs, with how many series
// each has, as it told them. The caller does not change them.
func (n *Names) Jobs() []Metric {
	if s := n.now.Load(); s != nil {
		return s.jobs
	}
	return nil
}

// Since is the time from which on the numbers hold, in milliseconds: of series that ended before,
// they say nothing.
func (n *Names) Since() int64 {
	if s := n.now.Load(); s != nil {
		return s.since
	}
	return 0
}

// Due tells whether the caller is to ask now: Learn, Fail or Later has to follow.
func (n *Names) Due(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asking || now.Before(n.next) {
		return false
	}
	n.asking = true
	return true
}

// Limit is how many names to ask for: MaxNames, or MoreNames of a server that has more, was quick
// to tell of the first, and never failed to tell of more.
func (n *Names) Limit() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.limit()
}

func (n *Names) limit() int {
	if n.more && !n.slow {
		return MoreNames
	}
	return MaxNames
}

// Learn reads an answer of status/tsdb with the Limit, which took that long. Where the answer
// cannot be understood, what was known stays. A server with an empty head says nothing of any time.
func (n *Names) Learn(body io.Reader, now time.Time, took time.Duration) error {
	limit := n.Limit()
	t := told{limit: limit}
	err := t.read(body)
	empty := t.head != nil && t.head.NumSeries == 0 && len(t.metrics.of) == 0
	if err == nil && len(t.metrics.of) == 0 && !empty {
		err = errors.New("it has no metric")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asking, n.next = false, now.Add(rest(took))
	n.slow = n.slow || took >= quickNames && limit > MaxNames
	if err != nil {
		return fmt.Errorf("cost: status/tsdb: %w", err)
	}
	n.more = limit > MaxNames || took < quickNames && (t.metrics.full || t.pairs.full || t.values.full)
	s := &sketch{metrics: t.metrics, pairs: t.pairs, values: t.values, named: t.named, jobs: t.jobs, others: t.metrics.place(sureNames)}
	s.until = now.Add(namesOld * rest(took))
	switch {
	case empty:
		s.all, s.since = maxSeries, math.MaxInt64
	case t.head != nil:
		s.all, s.since = min(max(t.head.NumSeries, 0), maxSeries), t.head.MinTime
	}
	for _, m := range s.metrics.of {
		s.all = max(s.all, m.n)
	}
	n.now.Store(s)
	return nil
}

// Old tells whether what is known is so old that nothing of it counts: three times as old as when
// it was to be asked for again, 15 minutes at least. It is not old where nothing is known.
func (n *Names) Old(now time.Time) bool {
	s := n.now.Load()
	return s != nil && !now.Before(s.until)
}

// Unread notes that Learn could not read an answer that took that long, its body included: one that
// was too long, or did not end. What was known stays until it is old.
func (n *Names) Unread(now time.Time, took time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow = n.slow || n.limit() > MaxNames
	n.next = now.Add(rest(took))
}

// Fail notes that there was no answer in that time. What was known stays until it is old: a server
// that has no time to tell is one to be spared. The next question is for MaxNames, and all others
// too if it was not soon that this one for MoreNames failed.
func (n *Names) Fail(now time.Time, took time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow = n.slow || took >= quickNames && n.limit() > MaxNames
	n.asking, n.next, n.more = false, now.Add(rest(took)), false
}

// rest is how long a shard is left alone after a question that took that long.
func rest(took time.Duration) time.Duration { return max(NamesAge, namesRest*took) }

// Later notes that the shard was not asked, since it is not well.
func (n *Names) Later(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asking, n.next = false, now.Add(sickPause)
}
