package experiments

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"golang.org/x/sync/errgroup"
)

// ErrPanic is in the chain of the error of a query whose handler panicked in one of its goroutines;
// the error has the stack, which is for a log.
var ErrPanic = errors.New("panic")

// together does n things, at most parallel at once; the first error ends the others and is
// returned.
func together(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i := range n {
		g.Go(func() (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("%w: %v\n%s", ErrPanic, p, debug.Stack()) // it would end the process
				}
			}()
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			return do(ctx, i)
		})
	}
	return g.Wait()
}
