package mix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/proxy/config"
)

// With pairs each shard has two replicas more: one that holds all that the first holds, and one
// that was away for ten minutes within every window of an hour. Of the whole pairs both hold
// everything; of the others the one that was away is listed first.

// Names of the paths over pairs, and how long ago the outage began and ended.
const (
	SpillwayPairs = "Spillway, four pairs"
	SpillwayGaps  = "Spillway, four pairs with gaps"

	gapBegan, gapEnded = 40 * time.Minute, 30 * time.Minute
)

// pairs are the further replicas of each shard.
type pairs struct{ twins, away []*realprom.Server }

func (p *pairs) all() []*realprom.Server {
	if p == nil {
		return nil
	}
	return append(append([]*realprom.Server{}, p.twins...), p.away...)
}

// startPairs copies the shards' blocks and starts a server over each copy.
func (w *World) startPairs(ctx context.Context) error {
	w.pairs = &pairs{make([]*realprom.Server, shardCount), make([]*realprom.Server, shardCount)}
	var g errgroup.Group
	g.SetLimit(2)
	for i, dir := range w.Data.Shards {
		for name, kind := range map[string]struct {
			servers []*realprom.Server
			gap     [2]time.Time
		}{
			"twin": {servers: w.pairs.twins},
			"away": {w.pairs.away, [2]time.Time{w.Data.Until.Add(-gapBegan), w.Data.Until.Add(-gapEnded)}},
		} {
			g.Go(func() (err error) {
				to := filepath.Join(w.dir, fmt.Sprintf("%s-%d", name, i))
				if err := copyBlocks(ctx, dir, to, kind.gap[0], kind.gap[1]); err != nil {
					return fmt.Errorf("copy shard %d: %w", i, err)
				}
				kind.servers[i], err = realprom.Start(ctx, realprom.Options{Dir: to, Flags: serverFlags})
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		w.pairs.twins, w.pairs.away = started(w.pairs.twins), started(w.pairs.away) // so that Close finds those that did
		return fmt.Errorf("start the replicas: %w", err)
	}
	return nil
}

func started(servers []*realprom.Server) (out []*realprom.Server) {
	for _, s := range servers {
		if s != nil {
			out = append(out, s)
		}
	}
	return out
}

// copyBlocks writes the blocks of one folder anew into another, without the samples of a stretch of
// time.
func copyBlocks(ctx context.Context, from, to string, gapFrom, gapUntil time.Time) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(from, e.Name(), "meta.json")); err != nil {
			continue // no block
		}
		edit := asTheyAre
		if gapUntil.After(gapFrom) {
			edit = func(metas []chunks.Meta) ([]chunks.Meta, error) {
				return without(metas, gapFrom.UnixMilli(), gapUntil.UnixMilli())
			}
		}
		if _, err := split(ctx, filepath.Join(from, e.Name()), []string{to}, edit, func(labels.Labels, int64, int64) {}); err != nil {
			return err
		}
	}
	return nil
}

// without are the chunks of a series without its samples between two times in milliseconds, the
// second one exclusive. Samples are floats.
func without(metas []chunks.Meta, from, until int64) ([]chunks.Meta, error) {
	out := make([]chunks.Meta, 0, len(metas))
	var it chunkenc.Iterator
	for _, m := range metas {
		if m.MaxTime < from || m.MinTime >= until {
			out = append(out, m)
			continue
		}
		chunk := chunkenc.NewXORChunk()
		app, err := chunk.Appender()
		if err != nil {
			return nil, err
		}
		kept := chunks.Meta{Chunk: chunk}
		it = m.Chunk.Iterator(it)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			if kind != chunkenc.ValFloat {
				return nil, errors.New("a sample that is no float")
			}
			at, v := it.At()
			if at >= from && at < until {
				continue
			}
			if chunk.NumSamples() == 0 {
				kept.MinTime = at
			}
			app.Append(0, at, v)
			kept.MaxTime = at
		}
		if err := it.Err(); err != nil {
			return nil, err
		}
		if chunk.NumSamples() > 0 {
			out = append(out, kept)
		}
	}
	return out, nil
}

// pairsGroup is the group whose shards have these servers before the ones of the four shards.
func (w *World) pairsGroup(first []*realprom.Server) config.Group {
	g := w.fourShards()
	g.Heartbeat = "up"
	for i := range g.Shards {
		g.Shards[i].Replicas = config.Replicas(first[i].URL(), w.parts[i].URL())
	}
	return g
}
