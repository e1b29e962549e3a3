package scenario

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/prometheus/prometheus/tsdb"

	"github.com/spillwayproject/spillway/internal/promfiles"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

const (
	// headSpan is what the head holds, as that of a server whose last block was just cut.
	headSpan = time.Hour
	// blockSpan is the past that is in blocks.
	blockSpan     = 4 * time.Hour
	headInterval  = 5 * time.Minute
	blockInterval = 10 * time.Minute
	// bucketShare is the share of series with le.
	bucketShare = 0.6
)

// Data is what each server starts with: a directory with blocks and a write-ahead log.
type Data struct {
	Dir string
	// Series and Buckets are those in the head; Buckets have a label le, so the killer selects
	// them.
	Series, Buckets int
	Blocks          int
	// Until is when the newest sample was taken.
	Until time.Time
}

// MakeData writes the data of one server into dir, which must not exist: `series` series, or up to
// 4 % more, from the model of a GPU cluster.
func MakeData(ctx context.Context, dir string, series int, seed uint64, now time.Time) (Data, error) {
	d := Data{Dir: dir, Until: now}
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return d, fmt.Errorf("make data: %w", err)
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		return d, fmt.Errorf("make data: %w", err)
	}
	head := cluster.BackfillOptions{From: now.Add(-headSpan), Until: now, Interval: headInterval}
	blocks := cluster.BackfillOptions{From: now.Add(-headSpan - blockSpan), Until: now.Add(-headSpan), Interval: blockInterval}
	// it meets the number within 2 %, and fewer would not be what was asked for
	o, err := cluster.SizeForSeries(ctx, cluster.Options{
		Seed: seed, Cluster: "jaguar",
		Start: now.Add(-30 * 24 * time.Hour).Truncate(time.Hour),
	}, head, series+series/50, bucketShare)
	if err != nil {
		return d, fmt.Errorf("make data: %w", err)
	}
	m, err := cluster.New(o)
	if err != nil {
		return d, fmt.Errorf("make data: %w", err)
	}
	st, err := m.Backfill(ctx, dir, blocks)
	if err != nil {
		return d, fmt.Errorf("make blocks: %w", err)
	}
	d.Blocks = len(st.Blocks)
	st, err = makeHead(ctx, dir, m, head)
	if err != nil {
		return d, fmt.Errorf("make the head: %w", err)
	}
	d.Series, d.Buckets = st.Series, st.BucketSeries
	debug.FreeOSMemory() // a whole head is garbage now, and the servers need the room
	return d, nil
}

// makeHead appends to a database and closes it, which leaves a write-ahead log.
func makeHead(ctx context.Context, dir string, m *cluster.Model, o cluster.BackfillOptions) (st cluster.Stats, err error) {
	opts := tsdb.DefaultOptions()
	opts.NoLockfile = true
	db, err := tsdb.Open(dir, slog.New(slog.DiscardHandler), nil, opts, nil)
	if err != nil {
		return st, err
	}
	db.DisableCompactions()
	st, err = m.BackfillHead(ctx, db, o)
	return st, errors.Join(err, db.Close())
}

// copyTo makes the data directory of one server: blocks as hard links, the write-ahead log as a
// copy, since a server may repair it in place.
func (d Data) copyTo(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if _, err := promfiles.LinkBlocks(ctx, d.Dir, dir); err != nil {
		return err
	}
	for _, part := range []string{"wal", "chunks_head"} {
		// A head without full chunks has no folder for them.
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join(d.Dir, part))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("copy the head: %w", err)
		}
	}
	return nil
}
