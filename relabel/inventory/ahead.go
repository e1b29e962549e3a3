package inventory

import (
	"context"
	"errors"
	"sync"
)

const (
	// aheadSeries is how many series are handed over at once, aheadBatches how many such batches
	// wait at most.
	aheadSeries  = 512
	aheadBatches = 2
)

var errEnough = errors.New("who asked for series has enough")

// ahead runs scan in a goroutine of its own, a little ahead of f, so that reading and what is done
// with it have a processor each. All else is as if f were called by scan: one series at a time, in
// the same order, up to the one before an error; and scan has ended when ahead returns.
func ahead(ctx context.Context, scan func(context.Context, func(*Series) error) error, f func(*Series) error) error {
	reading, stop := context.WithCancelCause(ctx)
	defer stop(errEnough)
	batches := make(chan []Series, aheadBatches)
	used := make(chan []Series, aheadBatches+2) // as many as there can be, so that giving one back never waits
	var failed error
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(batches)
		var batch []Series
		pass := func() error {
			select {
			case batches <- batch:
			case <-reading.Done():
				return context.Cause(reading)
			}
			select {
			case batch = <-used:
				batch = batch[:0]
			default:
				batch = make([]Series, 0, aheadSeries)
			}
			return nil
		}
		failed = scan(reading, func(s *Series) error {
			one := *s
			one.Labels = s.Labels.Copy() // the scan uses its memory again for the next one
			if batch = append(batch, one); len(batch) < aheadSeries {
				return nil
			}
			return pass()
		})
		if len(batch) > 0 { // before an error, all that came before it
			if err := pass(); failed == nil {
				failed = err
			}
		}
	})
	defer reader.Wait()
	for batch := range batches {
		for i := range batch {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := f(&batch[i]); err != nil {
				stop(errEnough)
				return err
			}
		}
		used <- batch
	}
	return failed // written before the channel was closed
}
