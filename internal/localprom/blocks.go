package localprom

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/spillwayproject/spillway/internal/promfiles"
)

// AddBlocks puts the blocks of dir into the running shard, as a back-fill does, and returns when
// queries see them (within blockReloadInterval and the time it takes to open them) or ctx ends.
// Blocks that the shard already has are left alone. Blocks older than the retention are deleted by
// the TSDB soon after.
func (s *Shard) AddBlocks(ctx context.Context, dir string) error {
	ids, err := promfiles.LinkBlocks(ctx, dir, s.dir)
	if err != nil {
		return err
	}
	tick := time.NewTicker(blockReloadInterval / 20)
	defer tick.Stop()
	for {
		if s.hasBlocks(ids) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the blocks of %s to be loaded: %w", dir, context.Cause(ctx))
		}
	}
}

// hasBlocks says whether all ids were loaded; one that is gone from the directory again was loaded
// and then compacted or deleted by retention.
func (s *Shard) hasBlocks(ids []ulid.ULID) bool {
	loaded := s.db.Blocks()
	for _, id := range ids {
		if slices.ContainsFunc(loaded, func(b *tsdb.Block) bool { return b.Meta().ULID == id }) {
			continue
		}
		if _, err := os.Stat(filepath.Join(s.dir, id.String())); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}
