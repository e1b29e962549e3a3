package raw

import (
	"context"
	"errors"
	"math"
	"time"

	"golang.org/x/sync/errgroup"
)

// readSlices reads what each leg's slice has of the query, Width of them at a time, in their order.
func (q *Queryable) readSlices(ctx context.Context, legs []Leg, query Query) ([][]*series, error) {
	results := make([][]*series, len(legs))
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for i, leg := range legs {
		own := query
		own.From, own.Matchers = max(own.From, leg.Slice.From), leg.Matchers
		if leg.Slice.Until != math.MaxInt64 {
			own.Until = min(own.Until, leg.Slice.Until-1)
		}
		if own.From > own.Until {
			continue
		}
		leave, err := q.enter(ctx, began)
		if errors.Is(err, errSlowSlice) && q.Lost != nil {
			err = q.Lost(leg.Slice.Name, err)
		}
		if err != nil {
			g.Go(func() error { return err }) // it ends what is being read
			break
		}
		if leave == nil {
			continue // the answer goes without this one
		}
		waited := time.Since(began)
		g.Go(func() error {
			defer leave()
			got, err := q.slice(ctx, leg.Slice, own, waited)
			results[i] = got
			return err
		})
	}
	return results, g.Wait()
}

// enter waits for one of the places of Width, until ctx ends or a slice that has been waited for
// since began counts as failed.
func (q *Queryable) enter(ctx context.Context, began time.Time) (leave func(), err error) {
	if q.Width <= 0 {
		return func() {}, nil
	}
	q.once.Do(func() { q.places = make(chan struct{}, q.Width) })
	leave = func() { <-q.places }
	select {
	case q.places <- struct{}{}:
		return leave, nil
	default:
	}
	var late <-chan time.Time
	if q.SlicePatience > 0 {
		timer := time.NewTimer(q.SlicePatience - time.Since(began))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case q.places <- struct{}{}:
		return leave, nil
	case <-late:
		return nil, errSlowSlice
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
