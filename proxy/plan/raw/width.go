package raw

import (
	"context"
	"errors"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// readSlices reads what each leg's slice has of the query, Width of them at a time and PerSlice of
// the same one, in their order: so all selectors wait for the slices in one order, and none for
// another.
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
		leave, err := q.enter(ctx, began, leg.Slice.Name)
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
			return qerr.Guard(func() (err error) {
				results[i], err = q.slice(ctx, leg.Slice, own, waited)
				return err
			})
		})
	}
	return results, g.Wait()
}

// places are taken by who reads; nil are as many as anybody wants.
type places chan struct{}

// enter waits for one of the slice's places and one of Width, until ctx ends or a slice that has
// been waited for since began counts as failed.
func (q *Queryable) enter(ctx context.Context, began time.Time, slice string) (leave func(), err error) {
	own, all := q.placesOf(slice)
	patience := q.patience(slice)
	if err := own.take(ctx, began, patience); err != nil {
		return nil, err
	}
	if err := all.take(ctx, began, patience); err != nil {
		own.give()
		return nil, err
	}
	return func() { all.give(); own.give() }, nil
}

// placesOf are the slice's places and those of all slices.
func (q *Queryable) placesOf(slice string) (own, all places) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Width > 0 && q.places == nil {
		q.places = make(places, q.Width)
	}
	if q.PerSlice > 0 {
		if own = q.ofSlice[slice]; own == nil {
			own = make(places, q.PerSlice)
			if q.ofSlice == nil {
				q.ofSlice = map[string]places{}
			}
			q.ofSlice[slice] = own
		}
	}
	return own, q.places
}

func (p places) take(ctx context.Context, began time.Time, patience time.Duration) error {
	if p == nil {
		return nil
	}
	select {
	case p <- struct{}{}:
		return nil
	default:
	}
	var late <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience - time.Since(began))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case p <- struct{}{}:
		return nil
	case <-late:
		return errSlowSlice
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p places) give() {
	if p != nil {
		<-p
	}
}
