package experiments

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// together does n things, at most parallel at once; the first error ends the others and is returned.
func together(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i := range n {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			return do(ctx, i)
		})
	}
	return g.Wait()
}
