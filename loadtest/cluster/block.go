package cluster

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
)

// Blocks are written directly, series by series in the order of the index,
// without a head: a head would cost ten times the memory and time.

const (
	samplesPerChunk = 120 // as Prometheus cuts them
	// batchSeries bounds how many series' labels are held at once: about 60 MB.
	batchSeries = 100_000
)

// Backfill writes the chosen targets' samples as TSDB blocks into dir, one for
// each aligned BlockRange that has samples. Memory is bounded by batchSeries
// and the set of distinct label values, whatever the size of the cluster.
// Blocks appear by rename when they are whole; on an error those written so
// far stay.
func (m *Model) Backfill(ctx context.Context, dir string, o BackfillOptions) (Stats, error) {
	j, err := m.newJob(o)
	if err != nil {
		return Stats{}, err
	}
	w := &blockJob{job: j, st: Stats{Targets: len(j.targets)}, dir: dir}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return w.st, fmt.Errorf("backfill: %w", err)
	}
	if err := w.survey(ctx); err != nil {
		return w.st, err
	}
	step := j.o.BlockRange.Milliseconds()
	from, until := j.o.From.UnixMilli(), j.o.Until.UnixMilli()
	for b := from - from%step; b < until; b += step {
		name, err := w.block(ctx, b, b+step)
		if err != nil {
			return w.st, fmt.Errorf("write block from %d: %w", b, err)
		}
		if name != "" {
			w.st.Blocks = append(w.st.Blocks, name)
		}
	}
	return w.st, nil
}

type blockJob struct {
	*job
	st      Stats
	dir     string
	symbols []string
	batches []batch
	lead    []firstLabel // the first of each target's own labels
	noted   bool         // Stats has the series: every walk meets all of them
}

// A batch is a contiguous part of the order of series: all whose first label
// lies in [lo, hi].
type batch struct{ lo, hi firstLabel }

// firstLabel is the first label of a series in the index's order.
type firstLabel struct{ name, value string }

func (a firstLabel) less(b firstLabel) bool {
	if a.name != b.name {
		return a.name < b.name
	}
	return a.value < b.value
}

func first(s *series, extra firstLabel) firstLabel {
	if s.relabelled {
		var f firstLabel
		s.stays.Range(func(l labels.Label) {
			if f.name == "" {
				f = firstLabel{l.Name, l.Value}
			}
		})
		return f
	}
	f := firstLabel{model.MetricNameLabel, s.name}
	if extra.name < f.name {
		f = extra
	}
	for i := 0; i < len(s.pairs); i += 2 {
		// Upper case sorts before __name__: UUID, Hostname, To.
		if s.pairs[i] < f.name && s.pairs[i+1] != "" {
			f = firstLabel{s.pairs[i], s.pairs[i+1]}
		}
	}
	return f
}

// survey walks everything once: symbols, counts for each scrape, batches.
func (w *blockJob) survey(ctx context.Context) error {
	symbols := map[string]struct{}{"": {}}
	counts := map[firstLabel]int{}
	for i := range w.targets {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		lead := firstLabel{name: model.MetricNameLabel}
		w.extra[i].Range(func(l labels.Label) {
			symbols[l.Name], symbols[l.Value] = struct{}{}, struct{}{}
			if l.Name < lead.name {
				lead = firstLabel{l.Name, l.Value}
			}
		})
		w.lead = append(w.lead, lead)
		symbols[model.MetricNameLabel] = struct{}{}
		w.walk(i, func(s *series, _ made) {
			counts[first(s, w.lead[i])]++
			if s.relabelled {
				s.stays.Range(func(l labels.Label) { symbols[l.Name], symbols[l.Value] = struct{}{}, struct{}{} })
				return
			}
			symbols[s.name] = struct{}{}
			for n := 0; n < len(s.pairs); n += 2 {
				name := s.pairs[n]
				if w.extra[i].Has(name) {
					name = "exported_" + name
				}
				symbols[name], symbols[s.stored(n)] = struct{}{}, struct{}{}
			}
		})
	}
	w.symbols = make([]string, 0, len(symbols))
	for s := range symbols {
		w.symbols = append(w.symbols, s)
	}
	sort.Strings(w.symbols)
	keys := make([]firstLabel, 0, len(counts))
	for k := range counts {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return keys[i].less(keys[j]) })
	n := 0
	for i, k := range keys {
		if i == 0 || n+counts[k] > batchSeries {
			w.batches = append(w.batches, batch{lo: k})
			n = 0
		}
		n += counts[k]
		w.batches[len(w.batches)-1].hi = k
	}
	return nil
}

// block writes the samples within [lo, hi) and returns the block's name, ""
// if there were none.
func (w *blockJob) block(ctx context.Context, lo, hi int64) (name string, err error) {
	ranges := make([][2]int, len(w.targets))
	mint, maxt := int64(never), int64(-1)
	for i, s := range w.scrapes {
		ranges[i] = [2]int{s.first(lo), s.first(hi)}
		if a, b := ranges[i][0], ranges[i][1]; a < b {
			mint, maxt = min(mint, s.ts[a]), max(maxt, s.ts[b-1])
		}
	}
	if maxt < 0 {
		return "", nil
	}
	// A server that opens the directory removes what still has this ending.
	tmp := filepath.Join(w.dir, ulid.Make().String()+".tmp-for-creation")
	if err := os.Mkdir(tmp, 0o777); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	meta := tsdb.BlockMeta{MinTime: mint, MaxTime: maxt + 1, Version: 1, Compaction: tsdb.BlockMetaCompaction{Level: 1}}
	if err := w.fill(ctx, tmp, ranges, &meta); err != nil {
		return "", err
	}
	meta.ULID = blockID(w.m.seed, &meta, w.o.Replica)
	meta.Compaction.Sources = []ulid.ULID{meta.ULID}
	b, err := json.MarshalIndent(&meta, "", "\t")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(tmp, "meta.json"), b, 0o666); err != nil {
		return "", err
	}
	return meta.ULID.String(), os.Rename(tmp, filepath.Join(w.dir, meta.ULID.String()))
}

// blockID is made from what is in the block, so that equal calls write equal
// directories and different shards different ones.
func blockID(seed uint64, m *tsdb.BlockMeta, replica uint64) ulid.ULID {
	var e [16]byte
	h := hash(seed, uint64(m.MinTime), uint64(m.MaxTime), m.Stats.NumSeries, m.Stats.NumSamples, m.Stats.NumChunks, replica)
	binary.BigEndian.PutUint64(e[:], h)
	binary.BigEndian.PutUint64(e[8:], mix(h))
	var id ulid.ULID
	copy(id[6:], e[:10])
	if err := id.SetTime(uint64(m.MaxTime)); err != nil {
		panic(err) // a time after the year 10889
	}
	return id
}

func (w *blockJob) fill(ctx context.Context, dir string, ranges [][2]int, meta *tsdb.BlockMeta) (err error) {
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
	for _, s := range w.symbols {
		if err := iw.AddSymbol(s); err != nil {
			return err
		}
	}
	enc := &encoder{}
	b := labels.NewScratchBuilder(24)
	var entries []entry
	ref := storage.SeriesRef(0)
	for _, part := range w.batches {
		entries = entries[:0]
		outside := func(i int, s *series) bool {
			f := first(s, w.lead[i])
			return f.less(part.lo) || part.hi.less(f)
		}
		w.skip = outside
		for i := range w.targets {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			w.walk(i, func(s *series, mk made) {
				if outside(i, s) {
					return
				}
				entries = append(entries, entry{lset: storedLabels(s, w.extra[i], &b), target: int32(i), made: mk, life: s.life})
			})
		}
		if entries, err = merge(entries); err != nil {
			return err
		}
		for i := range entries {
			e := &entries[i]
			if !w.noted {
				w.st.note(e.lset)
			}
			r := ranges[e.target]
			if err := enc.encode(w.scrapes[e.target], e, r[0], r[1]); err != nil {
				return err
			}
			if len(enc.metas) == 0 {
				continue
			}
			if err := cw.WriteChunks(enc.metas...); err != nil {
				return err
			}
			ref++
			if err := iw.AddSeries(ref, e.lset, enc.metas...); err != nil {
				return err
			}
			meta.Stats.NumSeries++
			meta.Stats.NumChunks += uint64(len(enc.metas))
			meta.Stats.NumSamples += uint64(enc.samples)
			meta.Stats.NumFloatSamples += uint64(enc.samples)
			w.st.Samples += enc.samples
			w.st.StaleMarkers += enc.stale
		}
	}
	w.noted = true
	return nil
}

// encoder makes one series' chunks; its buffers are used again.
type encoder struct {
	metas          []chunks.Meta
	pool           []*chunkenc.XORChunk
	samples, stale int
}

func (c *encoder) encode(sc *scrapes, e *entry, lo, hi int) error {
	c.metas, c.samples, c.stale = c.metas[:0], 0, 0
	var app chunkenc.Appender
	var failed error
	in := samplesPerChunk
	sc.each(e, lo, hi, func(t int64, v float64) {
		if in == samplesPerChunk {
			n := len(c.metas)
			if n == len(c.pool) {
				c.pool = append(c.pool, chunkenc.NewXORChunk())
			}
			x := c.pool[n]
			buf := x.Bytes()[:2]
			buf[0], buf[1] = 0, 0
			x.Reset(buf)
			a, err := x.Appender()
			if err != nil {
				failed = err
				return
			}
			app, in = a, 0
			c.metas = append(c.metas, chunks.Meta{Chunk: x, MinTime: t})
		}
		app.Append(0, t, v)
		c.metas[len(c.metas)-1].MaxTime = t
		in++
		c.samples++
		if value.IsStaleNaN(v) {
			c.stale++
		}
	})
	return failed
}
