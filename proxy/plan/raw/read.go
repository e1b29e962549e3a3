package raw

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// beforeHistograms is how much earlier than the window native histograms are read from. A server
// cuts chunks at the window's start and forgets what the first histogram behind the cut followed,
// so that a counter reset just there would be missed, or one made up.
const beforeHistograms = 5 * 60 * 1000

// read collects one copy's series, and tells what the meter was charged for them. What a failed
// copy held is given back.
func (q *Queryable) read(ctx context.Context, s *Slice, c Copy, query Query) (out []stored, charged int64, err error) {
	out, charged, histograms, err := q.readFrom(ctx, s, c, query)
	if err != nil || !histograms || query.From < math.MinInt64+beforeHistograms {
		return out, charged, err
	}
	q.Meter.Drop(charged)
	early := query
	early.From -= beforeHistograms
	if h := query.Hints; h != nil {
		own := *h
		own.Start -= beforeHistograms
		early.Hints = &own
	}
	out, charged, _, err = q.readFrom(ctx, s, c, early)
	// What ended before the window is not in it; what is left is cut where it is iterated.
	return slices.DeleteFunc(out, func(st stored) bool {
		return !slices.ContainsFunc(st.chunks, func(c prompb.Chunk) bool { return c.MaxTimeMs >= query.From })
	}), charged, err
}

func (q *Queryable) readFrom(ctx context.Context, s *Slice, c Copy, query Query) (out []stored, charged int64, histograms bool, err error) {
	f := Fetched{Slice: s.Name, Copy: c.Name(), Matchers: query.Asked}
	began := time.Now()
	defer func() {
		if err != nil {
			q.Meter.Drop(charged)
			out, charged = nil, 0
			return
		}
		if q.Read != nil {
			f.Series, f.Took = len(out), time.Since(began)
			q.Read(f)
		}
	}()
	var (
		seen    = map[uint64][]int{}  // places in out by hash of the relabelled set
		texts   = map[string]string{} // removed labels: those of a server's series are nearly always the same
		builder labels.ScratchBuilder
		last    []prompb.Label
		removed []byte
	)
	err = c.Read(ctx, query, func(lbls []prompb.Label, chunks []prompb.Chunk) error {
		bytes, samples, native, err := measured(c, chunks)
		if err != nil {
			return err
		}
		f.Bytes, f.Samples, histograms = f.Bytes+bytes, f.Samples+samples, histograms || native
		n := bytes + 64*int64(len(chunks))
		again := len(out) > 0 && sameLabels(last, lbls)
		if !again {
			n += seriesOverhead + q.PerSeries
			for i := range lbls {
				n += int64(len(lbls[i].Name) + len(lbls[i].Value))
				f.Bytes += int64(len(lbls[i].Name) + len(lbls[i].Value))
			}
		}
		if err := q.Meter.Hold(n); err != nil {
			return err
		}
		charged += n
		if again {
			if before := out[len(out)-1].chunks; len(before) > 0 && len(chunks) > 0 &&
				chunks[0].MinTimeMs <= before[len(before)-1].MaxTimeMs {
				return malformed(c, "chunks of a series that overlap or go back in time")
			}
			out[len(out)-1].chunks = append(out[len(out)-1].chunks, chunks...)
			return nil
		}
		last = lbls
		if !selected(lbls, query.Matchers) {
			return malformed(c, "a series that was not asked for")
		}
		st := stored{chunks: slices.Clone(chunks)}
		st.lbls, removed = s.relabelled(&builder, lbls, removed[:0])
		if _, twice := st.lbls.HasDuplicateLabelNames(); twice {
			return malformed(c, "a series with a label twice")
		}
		if len(s.Drop) > 0 {
			text, ok := texts[string(removed)]
			if !ok && len(removed) > 0 {
				text = string(removed[2:])
				texts[string(removed)] = text
			}
			st.removed = text
			h := st.lbls.Hash()
			for _, j := range seen[h] {
				if labels.Equal(out[j].lbls, st.lbls) {
					return collision(st.lbls, s.Name, out[j].removed, st.removed)
				}
			}
			seen[h] = append(seen[h], len(out))
		}
		out = append(out, st)
		return nil
	})
	return out, charged, histograms, err
}

// measured checks the chunks of a series and tells how many bytes and samples are in them, and
// whether any is of histograms.
func measured(c Copy, chunks []prompb.Chunk) (bytes, samples int64, histograms bool, err error) {
	for i := range chunks {
		if err := checkChunk(&chunks[i]); err != nil {
			return 0, 0, false, qerr.Wrap(qerr.ShardFailed, err, "%s sent series data that cannot be decoded", c.Name())
		}
		if chunks[i].MaxTimeMs < chunks[i].MinTimeMs || i > 0 && chunks[i].MinTimeMs <= chunks[i-1].MaxTimeMs {
			return 0, 0, false, malformed(c, "chunks of a series that overlap or go back in time")
		}
		bytes += int64(len(chunks[i].Data))
		samples += int64(samplesOf(&chunks[i])) // checked above to be there
		histograms = histograms || chunks[i].Type != prompb.Chunk_XOR && chunks[i].Type != prompb.Chunk_XOR2
	}
	return bytes, samples, histograms, nil
}

// relabelled are the labels of a series as the slice has them: without those that it drops, which
// are appended to removed, and with its own.
func (s *Slice) relabelled(b *labels.ScratchBuilder, lbls []prompb.Label, removed []byte) (labels.Labels, []byte) {
	b.Reset()
	for _, l := range lbls {
		if slices.Contains(s.Drop, l.Name) {
			removed = fmt.Appendf(removed, ", %s=%q", l.Name, l.Value)
			continue
		}
		if l.Value != "" {
			b.Add(l.Name, l.Value)
		}
	}
	s.Labels.Range(func(l labels.Label) { b.Add(l.Name, l.Value) })
	b.Sort()
	return b.Labels(), removed
}

// malformed is the failure of a copy that sent what no server sends.
func malformed(c Copy, what string) error {
	e := qerr.New(qerr.ShardFailed, "%s sent %s; what it answers cannot be trusted", c.Name(), what)
	e.Shards = []string{c.Name()}
	return e
}

// selected tells whether the matchers select the series as it is stored.
func selected(lbls []prompb.Label, ms []*labels.Matcher) bool {
	for _, m := range ms {
		value := ""
		for i := range lbls {
			if lbls[i].Name == m.Name {
				value = lbls[i].Value
				break
			}
		}
		if !m.Matches(value) {
			return false
		}
	}
	return true
}

// collision refuses a query whose answer would depend on which of two equal series one takes.
func collision(lbls labels.Labels, slice, a, b string) error {
	return qerr.Refuse("label_collision", "0", "2",
		"rename the stored label when scraping (metric_relabel_configs), or choose other names for the group's labels",
		"shard %s stores two series that become equal, %s, once the group's own labels replace the stored ones, {%s} and {%s}", slice, lbls, a, b)
}

func sameLabels(a, b []prompb.Label) bool {
	return slices.EqualFunc(a, b, func(x, y prompb.Label) bool { return x.Name == y.Name && x.Value == y.Value })
}
