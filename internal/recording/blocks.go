package recording

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// Blocks evaluates the rules of o over source and writes what they record in [from, until) as a
// block into the directory to, for servers that are given it. Query and Append of o are not looked
// at: rules see source and what they recorded themselves. What is recorded is in memory until it is
// written, and a temporary folder in to is used meanwhile.
func Blocks(ctx context.Context, to string, o Options, engine promql.QueryEngine, source storage.Queryable, from,
	until time.Time,
) (st Stats, err error) {
	if err := os.MkdirAll(to, 0o777); err != nil {
		return st, fmt.Errorf("record the past: %w", err)
	}
	dir, err := os.MkdirTemp(to, "recording-")
	if err != nil {
		return st, fmt.Errorf("record the past: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	limits := tsdb.DefaultOptions()
	// One rule after the other begins at from again, and a head takes samples up to half a block
	// older than its newest.
	limits.MinBlockDuration = 4 * max(until.Sub(from), time.Hour).Milliseconds()
	limits.MaxBlockDuration = limits.MinBlockDuration
	limits.WALSegmentSize = -1
	db, err := tsdb.Open(dir, promslog.NewNopLogger(), nil, limits, nil)
	if err != nil {
		return st, fmt.Errorf("record the past: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.DisableCompactions()
	o.Append = db
	o.Query = FromEngine(engine, both{source, db})
	f, err := New(o)
	if err != nil {
		return st, err
	}
	st, failed := f.Fill(ctx, from, until)
	if ctx.Err() != nil {
		return st, failed
	}
	if st.Samples == 0 {
		return st, failed // an empty head has no block to write
	}
	if err := db.Snapshot(to, true); err != nil {
		return st, errors.Join(failed, fmt.Errorf("record the past: %w", err))
	}
	return st, failed
}

// both is two storages as one.
type both struct{ a, b storage.Queryable }

func (q both) Querier(mint, maxt int64) (storage.Querier, error) {
	a, err := q.a.Querier(mint, maxt)
	if err != nil {
		return nil, err
	}
	b, err := q.b.Querier(mint, maxt)
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return storage.NewMergeQuerier([]storage.Querier{a, b}, nil, storage.ChainedSeriesMerge), nil
}
