package raw

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// haul is what one copy has of a query in a stretch of time.
type haul struct {
	copy    int
	span    Stretch
	series  []stored
	charged int64 // of the meter
}

// hauls are what is to be read of the slice: of its base, or of all copies, the whole window; of
// the others what lies in the stretches that the base lacks something in. Those of one copy follow
// each other, in the order of time.
func (s *Slice) hauls(query Query) []haul {
	window := Stretch{query.From, query.Until}
	out := []haul{{copy: 0, span: window}}
	for i := 1; i < len(s.Copies); i++ {
		if len(s.Lacking) == 0 {
			out = append(out, haul{copy: i, span: window})
		}
		for _, l := range s.Lacking {
			if l = (Stretch{max(l.From, window.From), min(l.Until, window.Until)}); l.From <= l.Until {
				out = append(out, haul{copy: i, span: l})
			}
		}
	}
	return out
}

// within is the query for a part of its window.
func (q Query) within(s Stretch) Query {
	if h := q.Hints; h != nil && s != (Stretch{q.From, q.Until}) {
		own := *h
		own.Start, own.End = max(own.Start, s.From), min(own.End, s.Until)
		q.Hints = &own
	}
	q.From, q.Until = s.From, s.Until
	return q
}

// give gives back what the hauls are charged for.
func (q *Queryable) give(hauls []haul) {
	for i := range hauls {
		q.Meter.Drop(hauls[i].charged)
		hauls[i].charged, hauls[i].series = 0, nil
	}
}

// readAll reads all copies at once, within the limit where that is more than 0, and returns the
// error of each. Where it is not known what they lack, the first one that was read lets the others
// have SparePatience more.
func (q *Queryable) readAll(ctx context.Context, limit time.Duration, s *Slice, query Query, hauls []haul) []error {
	var (
		wg      sync.WaitGroup
		once    sync.Once
		errs    = make([]error, len(s.Copies))
		own     = make([][]haul, len(s.Copies))
		reading = make([]*patience, len(s.Copies))
	)
	for i, n := 0, 0; i < len(own); i++ {
		first := n
		for n < len(hauls) && hauls[n].copy == i {
			n++
		}
		own[i] = hauls[first:n]
		reading[i] = newPatience(ctx, limit, errSlowSlice)
		defer reading[i].stop()
	}
	for i, c := range s.Copies {
		wg.Go(func() {
			errs[i] = qerr.Guard(func() error { return q.readOne(reading[i], s, c, query, own[i]) })
			if errs[i] == nil && q.SparePatience > 0 && !s.Known {
				once.Do(func() {
					for _, other := range reading {
						other.within(q.SparePatience, errSlowCopy)
					}
				})
			}
		})
	}
	wg.Wait()
	return errs
}

// readOne reads the hauls of one copy, one after the other: all of them or none.
func (q *Queryable) readOne(ctx *patience, s *Slice, c Copy, query Query, hauls []haul) error {
	query.Waits = ctx.wait
	for i := range hauls {
		h := &hauls[i]
		var err error
		if h.series, h.charged, err = q.read(ctx, s, c, query.within(h.span)); err != nil {
			q.give(hauls[:i])
			return err
		}
	}
	return nil
}

// without is the slice as it is read again after some of its copies have failed; nil where there is
// nothing to be had by that. What others hold of a base that was not read is more than was read of
// them.
func (s *Slice) without(live []int, failed []string) *Slice {
	rest := *s
	rest.Lacking = nil
	switch {
	case len(live) == 0 && len(s.Spare) > 0:
		rest.Copies, rest.Spare, rest.spared = s.Spare, nil, failed
	case len(live) > 0 && live[0] != 0 && len(s.Lacking) > 0:
		rest.Copies = nil
		for _, i := range live {
			rest.Copies = append(rest.Copies, s.Copies[i])
		}
	default:
		return nil
	}
	return &rest
}

// copyFailed tells whether another copy may still answer.
func copyFailed(err error) bool {
	var e *qerr.Error
	if !errors.As(err, &e) {
		return true
	}
	return e.Kind == qerr.ShardFailed || e.Kind == qerr.Timeout || e.Kind == qerr.Overloaded && len(e.Shards) > 0 // no slot at that server
}
