package merge

import (
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// maxReaders is how many answers one merge reads at the same time: reading is mostly waiting, but
// decoding keeps a core busy.
const maxReaders = 16

// together calls read for all sources at the same time and returns the first error when all calls
// have ended. With that error the other sources are cancelled, and those not yet begun are left
// out.
func together(shards []Source, read func(i int) error) error {
	var (
		g     errgroup.Group
		mu    sync.Mutex
		first error
	)
	g.SetLimit(maxReaders)
	for i := range shards {
		g.Go(func() error {
			mu.Lock()
			over := first != nil
			mu.Unlock()
			if over {
				return nil
			}
			err := qerr.Guard(func() error { return read(i) })
			if err == nil {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = err
				for j, src := range shards {
					if j != i && src.Cancel != nil {
						src.Cancel()
					}
				}
			}
			return nil
		})
	}
	_ = g.Wait() // no call returns an error of its own
	return first
}
