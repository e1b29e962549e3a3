package promfiles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/oklog/ulid/v2"
)

// LinkBlocks hard-links (or copies) every block of the directory from into the directory to and
// returns their ids. Hard links are safe: the TSDB never changes a file of a block in place, it
// writes a new one and renames it. A block appears in to under its name only when it is whole.
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
		// The suffix is one that the TSDB removes when it opens a directory that was left in the
		// middle of this.
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
