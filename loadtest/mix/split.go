package mix

import (
	"context"
	"crypto/md5" //nolint:gosec // Prometheus' hashmod action is defined by it
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
)

// Shard is which of n shards holds a series: what Prometheus' relabel action hashmod computes of
// its label node, whichever page the series comes from; where it has none, of its instance,
// namespace and pod joined by semicolons, as the action does with several source labels. So what
// belongs to a node is on one shard, and of the rest the control plane is spread by server, and
// what kube-state-metrics says by object.
func Shard(l labels.Labels, n int) int {
	v := l.Get("node")
	if v == "" {
		v = l.Get("instance") + ";" + l.Get("namespace") + ";" + l.Get("pod")
	}
	sum := md5.Sum([]byte(v)) //nolint:gosec // as above
	return int(binary.BigEndian.Uint64(sum[8:]) % uint64(n))
}

// split writes the series of a block into as many blocks as there are directories, chunks as edit
// gives them, and returns how many went where. seen is told of each series and of its first and
// last sample's time in milliseconds. It holds one series at a time, and what an index being
// written holds: the symbols and the postings.
func split(
	ctx context.Context, block string, dirs []string,
	edit func([]chunks.Meta) ([]chunks.Meta, error), seen func(l labels.Labels, from, until int64),
) (_ []int, err error) {
	b, err := tsdb.OpenBlock(slog.New(slog.DiscardHandler), block, nil, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	ir, err := b.Index()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ir.Close()) }()
	cr, err := b.Chunks()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cr.Close()) }()

	parts := make([]*part, len(dirs))
	defer func() {
		for _, p := range parts {
			err = errors.Join(err, p.close())
		}
	}()
	for i, dir := range dirs {
		if parts[i], err = newPart(ctx, filepath.Join(dir, ulid.Make().String()), b.Meta()); err != nil {
			return nil, err
		}
	}
	if err := addSymbols(ir.Symbols(), parts); err != nil {
		return nil, err
	}
	all, value := index.AllPostingsKey()
	postings, err := ir.Postings(ctx, all, value)
	if err != nil {
		return nil, err
	}
	var metas []chunks.Meta
	builder := labels.NewScratchBuilder(24)
	for postings.Next() { // in the order of labels, as a level-1 block's series are stored
		if err := ir.Series(postings.At(), &builder, &metas); err != nil {
			return nil, err
		}
		for i := range metas {
			chunk, _, err := cr.ChunkOrIterable(metas[i])
			if err != nil {
				return nil, err
			}
			metas[i].Chunk = chunk
		}
		if metas, err = edit(metas); err != nil {
			return nil, err
		}
		if len(metas) == 0 {
			continue
		}
		l := builder.Labels()
		seen(l, metas[0].MinTime, metas[len(metas)-1].MaxTime)
		if err := parts[Shard(l, len(parts))].add(l, metas); err != nil {
			return nil, err
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
	}
	if err := postings.Err(); err != nil {
		return nil, err
	}
	return finish(parts)
}

// finish writes the parts' ends and returns how many series each has.
func finish(parts []*part) ([]int, error) {
	counts := make([]int, len(parts))
	for i, p := range parts {
		if counts[i] = int(p.meta.Stats.NumSeries); counts[i] == 0 {
			return nil, fmt.Errorf("shard %d of %d would be empty; ask for more series", i, len(parts))
		}
		if err := p.finish(); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// addSymbols gives each part all symbols: more than it needs, and no harm.
func addSymbols(symbols index.StringIter, parts []*part) error {
	for symbols.Next() {
		for _, p := range parts {
			if err := p.iw.AddSymbol(symbols.At()); err != nil {
				return err
			}
		}
	}
	return symbols.Err()
}

// part is one block being written.
type part struct {
	dir  string
	meta tsdb.BlockMeta
	cw   *chunks.Writer
	iw   *index.Writer
	ref  storage.SeriesRef
}

func newPart(ctx context.Context, dir string, whole tsdb.BlockMeta) (*part, error) {
	p := &part{dir: dir, meta: tsdb.BlockMeta{
		MinTime: whole.MinTime, MaxTime: whole.MaxTime, Version: 1,
		Compaction: tsdb.BlockMetaCompaction{Level: 1},
	}}
	id, err := ulid.ParseStrict(filepath.Base(dir))
	if err != nil {
		return nil, err
	}
	p.meta.ULID, p.meta.Compaction.Sources = id, []ulid.ULID{id}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	if p.cw, err = chunks.NewWriter(filepath.Join(dir, "chunks")); err != nil {
		return nil, err
	}
	if p.iw, err = index.NewWriter(ctx, filepath.Join(dir, "index")); err != nil {
		return nil, errors.Join(err, p.cw.Close())
	}
	return p, nil
}

func (p *part) add(l labels.Labels, metas []chunks.Meta) error {
	if err := p.cw.WriteChunks(metas...); err != nil {
		return err
	}
	p.ref++
	p.meta.Stats.NumSeries++
	p.meta.Stats.NumChunks += uint64(len(metas))
	for _, m := range metas {
		p.meta.Stats.NumSamples += uint64(m.Chunk.NumSamples())
		p.meta.Stats.NumFloatSamples += uint64(m.Chunk.NumSamples())
	}
	return p.iw.AddSeries(p.ref, l, metas...)
}

// finish makes the directory a block.
func (p *part) finish() error {
	if err := p.close(); err != nil {
		return err
	}
	text, err := json.Marshal(&p.meta)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.dir, "meta.json"), text, 0o666)
}

// close may be called more than once, and on nil.
func (p *part) close() error {
	if p == nil || p.cw == nil {
		return nil
	}
	err := errors.Join(p.cw.Close(), p.iw.Close())
	p.cw, p.iw = nil, nil
	return err
}
