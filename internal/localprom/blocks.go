package localprom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/tsdb"
)

// AddBlocks puts the blocks of dir into the running shard, as a back-fill does, and returns when queries see them (within blockReloadInterval and the time it takes to open them) or ctx ends. Blocks that the
// shard already has are left alone. Blocks older than the retention are deleted by the TSDB soon after.
func (s *Shard) AddBlocks(ctx context.Context, dir string) error {
	ids, err := LinkBlocks(ctx, dir, s.dir)
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

// hasBlocks says whether all ids were loaded; one that is gone from the directory again was loaded and then compacted or deleted by retention.
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

// LinkBlocks hard-links (or copies) every block of the directory from into the directory to and returns their ids. Hard links are safe: the TSDB never changes a file of a block in place, it writes a new one
// and renames it. A block appears in to under its name only when it is whole.
func LinkBlocks(ctx context.Context, from, to string) ([]ulid.ULID, error) {
	entries, err := os.ReadDir(from)
	if err != nil {
		return nil, fmt.Errorf("blocks directory: %w", err)
	}
	var ids []ulid.ULID
	for _, e := range entries {
		id, err := ulid.ParseStrict(e.Name())
		if err != nil || !e.IsDir() {
			continue // chunks_head, wal, lock, queries.active: not blocks
		}
		if err := ctx.Err(); err != nil {
			return ids, context.Cause(ctx)
		}
		dst := filepath.Join(to, e.Name())
		if _, err := os.Stat(dst); err == nil {
			ids = append(ids, id)
			continue
		}
		// The suffix is one that the TSDB removes when it opens a directory that was left in the middle of this.
		tmp := dst + ".tmp-for-creation"
		if err := errors.Join(os.RemoveAll(tmp), linkTree(filepath.Join(from, e.Name()), tmp), os.Rename(tmp, dst)); err != nil {
			return ids, errors.Join(fmt.Errorf("bring block %s in: %w", e.Name(), err), os.RemoveAll(tmp))
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		dst := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(dst, 0o777)
		}
		if os.Link(path, dst) == nil {
			return nil
		}
		return copyFile(path, dst) // another file system, or one without hard links
	})
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}
