package server

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// How values are divided into parcels.

// parcelValues is how many targets are in the first parcel; half as many in the next attempt where
// their series are too many. A server takes so many alternatives of a regular expression as a set.
const parcelValues = 200

// parcelsAtOnce is how many parcels are made at a time: one is read while another one is evaluated.
const parcelsAtOnce = 2

// parcelBytes is how long the values of a parcel are at most together, but for a single one.
const parcelBytes = 64 << 10

// parcelling divides values into parcels of a size that fills the room there is.
type parcelling struct {
	values []string // that are left, in order
	size   int      // of the next parcel, at most
	most   int      // that any may have
	room   int      // series that may be held at a time
	beside int      // parcels that are made at a time: while one is evaluated the next one is read
	width  int      // what beside is at first

	mu      sync.Mutex
	changed *sync.Cond
	begun   bool // the parcel of no values
	making  int  // parcels
	err     error
}

// run calls add with some of the values at a time, and once with none, several at once. add tells
// how many series the parcel had: the next one is made to fill its part of the room, and is at most
// twice as large. After an error where fewer may be right the values are tried again: at most half
// as many where they are too many by themselves, else alone, with no other parcel beside theirs.
// Who is alone may divide what is too much, and tells how many series that were.
func (p *parcelling) run(add func(some []string, alone bool) (series int, smaller bool, err error)) error {
	p.changed, p.width = sync.NewCond(&p.mu), p.beside
	var g errgroup.Group
	for range p.beside {
		g.Go(func() error {
			for {
				some, alone, ok := p.next()
				if !ok {
					return nil
				}
				var series int
				var smaller bool
				err := qerr.Guard(func() (err error) {
					series, smaller, err = add(some, alone)
					return err
				})
				p.done(some, alone, series, smaller, err)
			}
		})
	}
	_ = g.Wait()
	return p.err
}

// next are the values of another parcel, once it may be made; alone tells that no other one is
// meanwhile.
func (p *parcelling) next() (some []string, alone, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil && p.making >= p.beside || p.making > 0 && p.begun && len(p.values) == 0 { // these may come back
		p.changed.Wait()
	}
	if p.err != nil || p.begun && len(p.values) == 0 {
		return nil, false, false
	}
	p.making++
	if p.begun {
		n := fitting(p.values, p.size)
		some, p.values = p.values[:n:n], p.values[n:]
	}
	p.begun = true
	return some, p.beside == 1, true
}

// done learns from a parcel.
func (p *parcelling) done(some []string, alone bool, series int, smaller bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.changed.Broadcast()
	p.making--
	n, share := len(some), float64(series*p.width)/float64(p.room) // of its part of the room
	fit := p.most
	if share > 0 {
		fit = max(1, int(min(float64(n)/share, float64(p.most))))
	}
	if alone && err == nil && (series > p.room || share <= 1) { // it was divided, or leaves room for others
		p.beside = p.width
	}
	switch {
	case err == nil && (n == 0 || series > p.room):
	case err == nil:
		if n == p.size || fit < p.size { // of fewer than it might have had, little is to be learnt
			p.size = min(fit, 2*p.size)
		}
	case smaller && n > 1 && (share > 1 || alone):
		if share <= 1 { // it is not their number
			p.most = max(1, n/2)
		}
		p.size = min(fit, n/2)
		p.back(some)
	case smaller && !alone:
		p.beside = 1
		p.back(some)
	default:
		p.err = cmp.Or(p.err, err)
	}
}

// back takes values back of which no parcel was made.
func (p *parcelling) back(some []string) {
	if len(some) == 0 {
		p.begun = false
		return
	}
	p.values = append(slices.Clone(some), p.values...)
}

// fitting is how many of the values are in the next parcel.
func fitting(values []string, most int) int {
	bytes := 0
	for i, v := range values {
		if bytes += len(v); i == most || i > 0 && bytes > parcelBytes {
			return i
		}
	}
	return len(values)
}

// matcherOf selects the series that have one of the values of the label, or do not have it.
func matcherOf(label string, values []string) *labels.Matcher {
	if len(values) < 2 {
		return labels.MustNewMatcher(labels.MatchEqual, label, strings.Join(values, ""))
	}
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = regexp.QuoteMeta(v)
	}
	return labels.MustNewMatcher(labels.MatchRegexp, label, strings.Join(quoted, "|"))
}
