package server

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// digestEvery is the time between two summaries of what is not logged one by one.
	digestEvery = time.Minute
	// maxDigested bounds the failures that are told apart, by kind and shards.
	maxDigested = 1000
	// slowRequest is how long a request must take to be counted as slow.
	slowRequest = 5 * time.Second
)

// digest keeps the log short while much goes wrong. A failure is told when it is the first of its
// kind and its shards, and from then on counted until a minute passes without any; refusals,
// clients that left and slow requests are only counted. Each minute the counts are a line each. The
// zero value is ready for use.
type digest struct {
	mu       sync.Mutex
	failures map[failure]*int // since the last summary, the one that was told left out
	counts   map[summary]*tally
}

type failure struct{ kind, shards string }

// summary is what is counted of requests that are no failures: what happened, on which endpoint, by
// which bound.
type summary struct{ what, endpoint, bound string }

type tally struct {
	n       int
	longest time.Duration
}

// The kinds of a summary.
const (
	countRefused  = "requests were refused"
	countCanceled = "clients left before the answer"
	countSlow     = "requests were slow"
)

// first tells whether the failure is to be told at once; otherwise it was counted.
func (d *digest) first(qe *qerr.Error) bool {
	f := failure{qe.Kind.String(), strings.Join(slices.Sorted(slices.Values(qe.Shards)), ",")}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failures == nil {
		d.failures = map[failure]*int{}
	}
	if n := d.failures[f]; n != nil {
		*n++
		return false
	}
	if len(d.failures) >= maxDigested {
		f.shards = "others"
		if n := d.failures[f]; n != nil {
			*n++
			return false
		}
	}
	d.failures[f] = new(int)
	return true
}

// request counts a request that is no failure.
func (d *digest) request(endpoint string, took time.Duration, qe *qerr.Error) {
	c := summary{endpoint: endpoint}
	switch {
	case qe == nil && took >= slowRequest:
		c.what = countSlow
	case qe == nil:
		return
	case qe.Kind == qerr.Canceled:
		c.what = countCanceled
	case qe.Bound != "":
		c.what, c.bound = countRefused, qe.Bound
	default:
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.counts == nil {
		d.counts = map[summary]*tally{}
	}
	n := d.counts[c]
	if n == nil {
		n = &tally{}
		d.counts[c] = n
	}
	n.n++
	n.longest = max(n.longest, took)
}

// tell writes what was counted since the last time, and begins anew.
func (d *digest) tell(log *slog.Logger) {
	d.mu.Lock()
	counts, failures := d.counts, map[failure]int{}
	d.counts = nil
	for f, n := range d.failures {
		if *n == 0 {
			delete(d.failures, f) // the next one is news
		} else {
			failures[f], *n = *n, 0
		}
	}
	d.mu.Unlock()
	for _, f := range slices.SortedFunc(maps.Keys(failures),
		func(a, b failure) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.shards, b.shards)) }) {
		log.Warn("requests failed like one that was logged", slog.String("outcome", f.kind), slog.String("shards", f.shards),
			slog.Int("requests", failures[f]), slog.Duration("within", digestEvery))
	}
	for _, c := range slices.SortedFunc(maps.Keys(counts), func(a, b summary) int {
		return cmp.Or(cmp.Compare(a.what, b.what), cmp.Compare(a.endpoint, b.endpoint), cmp.Compare(a.bound, b.bound))
	}) {
		attrs := []slog.Attr{slog.String("endpoint", c.endpoint), slog.Int("requests", counts[c].n), slog.Duration("within", digestEvery)}
		if c.bound != "" {
			attrs = append(attrs, slog.String("bound", c.bound))
		} else {
			attrs = append(attrs, slog.Duration("longest", counts[c].longest))
		}
		log.LogAttrs(context.Background(), slog.LevelInfo, c.what, attrs...)
	}
}

// run tells each minute, and at the end, until ctx ends.
func (d *digest) run(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(digestEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			d.tell(log)
		case <-ctx.Done():
			d.tell(log)
			return
		}
	}
}
