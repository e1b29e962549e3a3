package inventory

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
)

var _ Sampled = (*blocks)(nil)

// blocks reads the blocks of a TSDB.
type blocks struct {
	dir  string
	dirs []string
}

// Blocks reads a TSDB block, or a data directory with blocks: all series that they have, each once,
// however many blocks have it, by labels. The head (the series of about the last two hours, in wal/
// and chunks_head/) is not read: a snapshot of the server has all. Samples that were deleted but
// not cleaned count as stored.
//
// Intervals are those between the samples of a series' newest chunk that has at least two. Blocks
// do not know types.
func Blocks(dir string) (Source, error) {
	if isBlock(dir) {
		return &blocks{dir: dir, dirs: []string{dir}}, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the data directory: %w", err)
	}
	b := &blocks{dir: dir}
	head := false
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if _, err := ulid.ParseStrict(e.Name()); err == nil && isBlock(path) {
			b.dirs = append(b.dirs, path)
		}
		head = head || e.Name() == "wal" || e.Name() == "chunks_head"
	}
	switch {
	case len(b.dirs) > 0:
		return b, nil
	case head:
		return nil, fmt.Errorf("%s has a head but no block yet; take a snapshot (POST /api/v1/admin/tsdb/snapshot, with --web.enable-admin-api) and read that", dir)
	}
	return nil, fmt.Errorf("%s is no TSDB block and holds none; a block is a folder with meta.json, index and chunks", dir)
}

func isBlock(dir string) bool {
	for _, name := range []string{"meta.json", "index"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.IsDir() {
			return false
		}
	}
	return true
}

// String is the folder.
func (b *blocks) String() string { return b.dir }

// Scan reads all blocks side by side, in the order of labels, a little ahead of f.
func (b *blocks) Scan(ctx context.Context, f func(*Series) error) error { return ahead(ctx, b.scan, f) }

func (b *blocks) scan(ctx context.Context, f func(*Series) error) error {
	return b.each(ctx, func(m *merged) error {
		s, err := m.series()
		if err != nil {
			return err
		}
		return f(s)
	})
}

// Samples decodes the chunks that reach into the window, which ends with the newest sample of all
// blocks. Stale markers are among the samples.
func (b *blocks) Samples(ctx context.Context, window time.Duration, keep func(labels.Labels) bool, f withSamples) error {
	var d decoder
	return b.each(ctx, func(m *merged) error {
		if !keep(m.parts[0].labels) {
			return nil
		}
		to := m.newest
		if err := d.decode(m, to-window.Milliseconds(), to); err != nil {
			return err
		}
		if len(d.floats)+len(d.histograms) == 0 {
			return nil
		}
		s, err := m.series()
		if err != nil {
			return err
		}
		return f(s, d.floats, d.histograms)
	})
}

// merged is one series with the blocks that have it.
type merged struct {
	parts  []*cursor
	newest int64 // the time of the newest sample of all blocks
	out    Series
}

// each opens the blocks, merges them, and closes them.
func (b *blocks) each(ctx context.Context, f func(*merged) error) (err error) {
	var h cursors
	defer func() {
		for _, c := range h {
			err = errors.Join(err, c.close())
		}
	}()
	var m merged
	m.newest = -1 << 62
	for _, dir := range b.dirs {
		c, err := openBlock(ctx, dir)
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("open block %s: %w; restore it, or move it away if its series are in other blocks", dir, err)
		}
		h = append(h, c)
		m.newest = max(m.newest, c.block.Meta().MaxTime-1) // the end of a block is not part of it
	}
	all := slices.Clone(h)
	defer func() { h = all }() // those that came to their end are closed too
	ready := h[:0]
	for _, c := range all {
		more, err := c.next()
		if err != nil {
			return err
		}
		if more {
			ready = append(ready, c)
		}
	}
	h = ready
	heap.Init(&h)
	for n := 0; len(h) > 0; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		m.parts = m.parts[:0]
		for len(h) > 0 && (len(m.parts) == 0 || labels.Equal(h[0].labels, m.parts[0].labels)) {
			if len(h) == 1 { // the common case of a single block costs no heap
				m.parts, h = append(m.parts, h[0]), h[:0]
				break
			}
			m.parts = append(m.parts, heap.Pop(&h).(*cursor))
		}
		if err := f(&m); err != nil {
			return err
		}
		for _, c := range m.parts {
			more, err := c.next()
			if err != nil {
				return err
			}
			switch {
			case !more: // with it go the pages of its files that are mapped into memory
				if err := c.close(); err != nil {
					return err
				}
			case len(h) == 0:
				h = append(h, c)
			default:
				heap.Push(&h, c)
			}
		}
	}
	return nil
}

// series describes the series by its newest chunks.
func (m *merged) series() (*Series, error) {
	newest := m.parts[0]
	for _, c := range m.parts[1:] {
		if c.end() > newest.end() {
			newest = c
		}
	}
	m.out = Series{Labels: m.parts[0].labels, Type: model.MetricTypeUnknown}
	for i := len(newest.metas) - 1; i >= 0 && i >= len(newest.metas)-2; i-- {
		meta := newest.metas[i]
		c, err := newest.chunk(meta)
		if err != nil {
			return nil, err
		}
		if i == len(newest.metas)-1 {
			m.out.Native = isNative(c.Encoding())
		}
		n := c.NumSamples()
		if err := newest.pool.Put(c); err != nil {
			return nil, err
		}
		if n > 1 {
			m.out.Interval = time.Duration(meta.MaxTime-meta.MinTime) * time.Millisecond / time.Duration(n-1)
			break
		}
	}
	return &m.out, nil
}

func isNative(e chunkenc.Encoding) bool {
	switch e {
	case chunkenc.EncHistogram, chunkenc.EncFloatHistogram, chunkenc.EncHistogramST, chunkenc.EncFloatHistogramST:
		return true
	}
	return false
}

// cursor goes through the series of one block, in the order of labels.
type cursor struct {
	dir      string
	block    *tsdb.Block
	index    tsdb.IndexReader
	chunks   tsdb.ChunkReader
	pool     chunkenc.Pool
	file     *indexFile // nil where the index is older than version 2
	postings index.Postings
	builder  labels.ScratchBuilder
	labels   labels.Labels
	metas    []chunks.Meta
}

func openBlock(ctx context.Context, dir string) (c *cursor, err error) {
	c = &cursor{dir: dir, pool: chunkenc.NewPool(), builder: labels.NewScratchBuilder(32)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.block, err = tsdb.OpenBlock(nil, dir, c.pool, nil); err != nil {
		return c, err
	}
	if c.index, err = c.block.Index(); err != nil {
		return c, err
	}
	if c.chunks, err = c.block.Chunks(); err != nil {
		return c, err
	}
	if c.file, err = openIndex(dir); err != nil {
		return c, err
	}
	name, value := index.AllPostingsKey()
	c.postings, err = c.index.Postings(ctx, name, value)
	return c, err
}

func (c *cursor) close() error {
	var errs []error
	if c.chunks != nil {
		errs = append(errs, c.chunks.Close())
	}
	if c.index != nil {
		errs = append(errs, c.index.Close())
	}
	if c.block != nil {
		errs = append(errs, c.block.Close())
	}
	if c.file != nil {
		errs = append(errs, c.file.file.Close())
	}
	c.chunks, c.index, c.block, c.file = nil, nil, nil, nil // once is enough
	return errors.Join(errs...)
}

func (c *cursor) next() (bool, error) {
	if !c.postings.Next() {
		if err := c.postings.Err(); err != nil {
			return false, fmt.Errorf("block %s: %w", c.dir, err)
		}
		return false, nil
	}
	read := c.index.Series
	if c.file != nil {
		read = c.file.series
	}
	if err := read(c.postings.At(), &c.builder, &c.metas); err != nil {
		return false, fmt.Errorf("block %s: series %d: %w", c.dir, c.postings.At(), err)
	}
	c.builder.Overwrite(&c.labels)
	return true, nil
}

// end is the time of the newest sample.
func (c *cursor) end() int64 {
	if len(c.metas) == 0 {
		return -1 << 62
	}
	return c.metas[len(c.metas)-1].MaxTime
}

func (c *cursor) chunk(meta chunks.Meta) (chunkenc.Chunk, error) {
	chunk, iterable, err := c.chunks.ChunkOrIterable(meta)
	if err == nil && iterable != nil {
		err = errors.New("a block's chunk must be whole")
	}
	if err != nil {
		return nil, fmt.Errorf("block %s: chunk of %s: %w", c.dir, c.labels, err)
	}
	return chunk, nil
}

// cursors are a heap by labels; of equal ones, the order of blocks.
type cursors []*cursor

func (h cursors) Len() int      { return len(h) }
func (h cursors) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h cursors) Less(i, j int) bool {
	if c := labels.Compare(h[i].labels, h[j].labels); c != 0 {
		return c < 0
	}
	return h[i].dir < h[j].dir
}
func (h *cursors) Push(x any) { *h = append(*h, x.(*cursor)) }
func (h *cursors) Pop() any {
	old := *h
	c := old[len(old)-1]
	*h = old[:len(old)-1]
	return c
}

// decoder makes samples of chunks; its slices are used again.
type decoder struct {
	points
	iterators []chunkenc.Iterator
	chain     chunkenc.Iterator
}

// decode reads the samples of [from, to], each time once.
func (d *decoder) decode(m *merged, from, to int64) error {
	d.floats, d.histograms, d.iterators = d.floats[:0], d.histograms[:0], d.iterators[:0]
	for _, c := range m.parts {
		for _, meta := range c.metas {
			if meta.MaxTime < from || meta.MinTime > to {
				continue
			}
			chunk, err := c.chunk(meta)
			if err != nil {
				return err
			}
			d.iterators = append(d.iterators, chunk.Iterator(nil))
		}
	}
	if len(d.iterators) == 0 {
		return nil
	}
	d.chain = storage.ChainSampleIteratorFromIterators(d.chain, d.iterators)
	if err := d.add(d.chain, from, to); err != nil {
		return fmt.Errorf("samples of %s: %w", m.parts[0].labels, err)
	}
	return nil
}
