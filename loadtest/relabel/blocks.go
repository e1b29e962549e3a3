package relabel

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
)

const (
	// samples is how many each series has, interval the milliseconds between them.
	samples, interval = 10, 30_000
	// shapes is how many different chunks there are: one for each position of a bucket, and some.
	shapes = 32
)

// MakeBlocks writes TSDB blocks into dir, which is made if need be. Blocks appear by rename when
// they are whole; on an error those written so far stay.
func MakeBlocks(ctx context.Context, dir string, o Options) error {
	o, err := o.complete()
	if err != nil {
		return fmt.Errorf("options: %w", err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("make the folder of blocks: %w", err)
	}
	c, err := newCluster(o)
	if err != nil {
		return err
	}
	end := o.Now.UnixMilli()
	metas, err := pattern(end)
	if err != nil {
		return fmt.Errorf("make chunks: %w", err)
	}
	for n, rest := 0, c.metrics; len(rest) > 0; n++ {
		size, k := 0, 0
		for k < len(rest) && (k == 0 || size+rest[k].series <= o.BlockSeries) {
			size += rest[k].series
			k++
		}
		w := &blockWriter{cluster: c, metrics: rest[:k], metas: metas}
		if err := w.write(ctx, dir, blockID(o.Seed, uint64(end), uint64(n)), end); err != nil {
			return fmt.Errorf("write block %d: %w", n, err)
		}
		rest = rest[k:]
	}
	return nil
}

// pattern makes the chunks that all series share. That of a higher bucket has more.
func pattern(end int64) ([]chunks.Meta, error) {
	metas := make([]chunks.Meta, shapes)
	for i := range metas {
		x := chunkenc.NewXORChunk()
		app, err := x.Appender()
		if err != nil {
			return nil, err
		}
		from := end - (samples-1)*interval
		for n := range int64(samples) {
			app.Append(0, from+n*interval, float64(i+1)*float64(n+1))
		}
		metas[i] = chunks.Meta{Chunk: x, MinTime: from, MaxTime: end}
	}
	return metas, nil
}

type blockWriter struct {
	cluster *cluster
	metrics []*metric
	metas   []chunks.Meta
}

func (w *blockWriter) write(ctx context.Context, dir string, id ulid.ULID, end int64) (err error) {
	// A server that opens the directory removes what still has this ending.
	temp := filepath.Join(dir, id.String()+".tmp-for-creation")
	if err := os.Mkdir(temp, 0o777); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
	}()
	meta := tsdb.BlockMeta{
		ULID: id, Version: 1, MinTime: end - (samples-1)*interval, MaxTime: end + 1,
		Compaction: tsdb.BlockMetaCompaction{Level: 1, Sources: []ulid.ULID{id}},
	}
	if err := w.fill(ctx, temp, &meta); err != nil {
		return err
	}
	text, err := json.MarshalIndent(&meta, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(temp, "meta.json"), text, 0o666); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(dir, id.String()))
}

func (w *blockWriter) fill(ctx context.Context, dir string, meta *tsdb.BlockMeta) (err error) {
	symbols, err := w.symbols(ctx)
	if err != nil {
		return err
	}
	cw, err := chunks.NewWriter(filepath.Join(dir, "chunks"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cw.Close()) }()
	iw, err := index.NewWriter(ctx, filepath.Join(dir, "index"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, iw.Close()) }()
	for _, s := range symbols {
		if err := iw.AddSymbol(s); err != nil {
			return err
		}
	}
	type series struct {
		labels labels.Labels
		shape  int
	}
	var list []series
	one := make([]chunks.Meta, 1)
	ref := storage.SeriesRef(0)
	for _, m := range w.metrics {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		list = list[:0]
		err := w.cluster.each(m, func(ls labels.Labels, le int) error {
			if m.kind != bucket {
				le = int(m.seed % shapes)
			}
			list = append(list, series{ls, le})
			return nil
		})
		if err != nil {
			return err
		}
		slices.SortFunc(list, func(a, b series) int { return labels.Compare(a.labels, b.labels) })
		for i := range list {
			one[0] = w.metas[list[i].shape]
			if err := cw.WriteChunks(one...); err != nil {
				return err
			}
			ref++
			if err := iw.AddSeries(ref, list[i].labels, one...); err != nil {
				return err
			}
		}
		meta.Stats.NumSeries += uint64(len(list))
	}
	meta.Stats.NumChunks = meta.Stats.NumSeries
	meta.Stats.NumSamples = meta.Stats.NumSeries * samples
	meta.Stats.NumFloatSamples = meta.Stats.NumSamples
	return nil
}

// symbols are all strings of the block, sorted.
func (w *blockWriter) symbols(ctx context.Context) ([]string, error) {
	set := map[string]struct{}{"": {}}
	for _, m := range w.metrics {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		err := w.cluster.each(m, func(ls labels.Labels, _ int) error {
			ls.Range(func(l labels.Label) { set[l.Name], set[l.Value] = struct{}{}, struct{}{} })
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(set)), nil
}

// blockID is made from what makes the block.
func blockID(seed, end, n uint64) ulid.ULID {
	var id ulid.ULID
	binary.BigEndian.PutUint64(id[8:], mix(seed^mix(end+n+1)))
	if err := id.SetTime(end); err != nil {
		panic(err) // a time after the year 10889
	}
	return id
}
