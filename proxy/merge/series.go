package merge

import (
	"context"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/admit"
)

// labelSetBytes is what one label set costs beside the bytes of its names and values: the header,
// the length prefixes, the slack of growing slices.
const labelSetBytes = 96

// MergeSeries writes the union of the shards' answers to series as a JSON array: relabelled, sorted
// by labels.Compare, each label set once, at most limit (0 is no limit). Which sets a limit leaves
// out follows from what the shards sent: of more than limit, the first in order stay.
//
// The shards' order is not used. Prometheus sorts only when it has several match[] or several
// blocks to merge: with one selector and the head alone, which is the common case behind this
// proxy, series come in the order of their creation. So the sets are collected, held in budget, and
// sorted here; the shards are read at the same time. A shard's answer is cut at its own
// Source.Limit.
func MergeSeries(ctx context.Context, w *Writer, limit int, shards []Source, budget *admit.Budget) (Result, error) {
	var (
		res   Result
		lists = make([]seriesList, len(shards))
		sets  []labels.Labels
		total = admit.NewLedger(budget)
	)
	defer func() {
		total.Drop()
		for i := range lists {
			lists[i].held.Drop()
		}
	}()
	err := together(shards, func(i int) error {
		return lists[i].read(ctx, shards[i], budget)
	})
	n := 0
	for i := range lists {
		n += len(lists[i].sets)
	}
	if err != nil {
		return res, err
	}
	const header = 32
	if err := total.Hold(int64(n) * header); err != nil {
		return res, err
	}
	sets = make([]labels.Labels, 0, n)
	var warnings, infos Notes
	for i := range lists {
		sets = append(sets, lists[i].sets...)
		res.take(&lists[i].a, &warnings, &infos)
	}
	slices.SortFunc(sets, labels.Compare)
	sets = slices.CompactFunc(sets, labels.Equal)
	if limit > 0 && len(sets) > limit {
		sets = sets[:limit]
		res.Truncated = true
	}
	if err := budget.AddSeries(len(sets)); err != nil {
		return res, err
	}
	res.Series = len(sets)
	out := append(make([]byte, 0, encodeFlush+4096), '[')
	for i, ls := range sets {
		if i > 0 {
			out = append(out, ',')
		}
		out = AppendLabels(out, ls)
		if len(out) >= encodeFlush {
			if _, err := w.Write(out); err != nil {
				return res, err
			}
			out = out[:0]
		}
	}
	_, err = w.Write(append(out, ']'))
	return res, err
}

// seriesList is one shard's answer to series.
type seriesList struct {
	sets []labels.Labels
	held admit.Ledger
	a    answer
}

func (l *seriesList) read(ctx context.Context, src Source, budget *admit.Budget) error {
	l.held = admit.NewLedger(budget)
	s := NewScanner(src.Body, budget)
	defer s.Close()
	d := setDecoder{rl: src.Relabel}
	if !s.Object() {
		return shardErr(ctx, src.Name, s.err)
	}
	found, ok := l.a.toData(s)
	if found && s.Array() {
		for first := true; s.More(first); first = false {
			if src.Limit > 0 && len(l.sets) >= src.Limit {
				l.a.truncated = true
				return nil
			}
			ls, n, ok := d.decode(s)
			if !ok {
				break
			}
			if len(l.sets)&255 == 0 && ctx.Err() != nil {
				s.err = context.Cause(ctx)
				break
			}
			if err := l.held.Hold(n + labelSetBytes); err != nil {
				return err
			}
			l.sets = append(l.sets, ls)
		}
		if s.err == nil {
			l.a.afterData(s)
		}
	} else if ok && !found {
		finishAnswer(s, &l.a)
	}
	return shardErr(ctx, src.Name, s.err)
}

// CountSeries is how many series an answer to series lists, limit at most: as many as that where it
// was cut off, or is longer than maxBytes. It holds a buffer of 64 KiB and nothing of the answer,
// which counts for no budget. The error is that of ctx, of the body, or of what cannot be
// understood.
func CountSeries(ctx context.Context, src Source, limit int, maxBytes int64) (n int, err error) {
	s := NewScanner(src.Body, nil)
	defer s.Close()
	var a answer
	if !s.Object() {
		return 0, shardErr(ctx, src.Name, s.err)
	}
	found, ok := a.toData(s)
	if found && s.Array() {
		for first := true; s.More(first); first = false {
			if n >= limit || s.Offset() > maxBytes {
				return limit, nil
			}
			if n&255 == 0 && ctx.Err() != nil {
				s.err = context.Cause(ctx)
				break
			}
			if !s.Skip() {
				break
			}
			n++
		}
		if s.err == nil && a.afterData(s) && a.truncated {
			return limit, nil
		}
	} else if ok && !found {
		finishAnswer(s, &a)
	}
	return n, shardErr(ctx, src.Name, s.err)
}

// maxSetLabels bounds the labels of one set. Servers that set a bound take 30 or 60; what a set of
// short labels costs here is many times its bytes.
const maxSetLabels = 4096

// setDecoder decodes label sets and relabels them on the way.
type setDecoder struct {
	rl    *Relabel
	b     labels.ScratchBuilder
	arena []byte // names and values of the set in hand
	ends  []int  // where each ends in arena: name, value, name, value

	removed bool // a label was removed from any set
}

// decode consumes an object of strings. It returns the set and the number of bytes of its names and
// values.
func (d *setDecoder) decode(s *Scanner) (ls labels.Labels, size int64, ok bool) {
	if !s.Object() {
		return ls, 0, false
	}
	d.arena, d.ends = d.arena[:0], d.ends[:0]
	for first := true; ; first = false {
		key, ok := s.Key(first)
		if !ok {
			break
		}
		from := len(d.arena)
		d.arena = append(d.arena, key...)
		to := len(d.arena)
		value, ok := s.String()
		if !ok {
			return ls, 0, false
		}
		if len(value) == 0 || d.rl.removes(d.arena[from:to]) {
			d.removed = d.removed || len(value) > 0
			d.arena = d.arena[:from]
			continue
		}
		d.arena = append(d.arena, value...)
		if len(d.arena) > MaxToken {
			return ls, 0, s.fail(OverBound, "a label set is longer than %s", admit.FormatBytes(MaxToken))
		}
		if d.ends = append(d.ends, to, len(d.arena)); len(d.ends) > 2*maxSetLabels {
			return ls, 0, s.fail(OverBound, "a label set has more than %d labels", maxSetLabels)
		}
	}
	if s.err != nil {
		return ls, 0, false
	}
	d.b.Reset()
	all, last := string(d.arena), ""
	sorted, from := true, 0
	for i := 0; i < len(d.ends); i += 2 {
		name, value := all[from:d.ends[i]], all[d.ends[i]:d.ends[i+1]]
		from = d.ends[i+1]
		sorted = sorted && (i == 0 || last < name)
		last = name
		d.b.Add(name, value)
	}
	size = int64(len(d.arena))
	if d.rl != nil {
		for _, l := range d.rl.owned {
			if l.value == "" {
				continue
			}
			d.b.Add(l.name, l.value)
			size += int64(len(l.name) + len(l.value))
			sorted = false
		}
	}
	if !sorted {
		d.b.Sort()
	}
	ls = d.b.Labels()
	if !sorted {
		if name, twice := ls.HasDuplicateLabelNames(); twice {
			return ls, 0, s.fail(WrongShape, "label %q stands twice in one set", short([]byte(name)))
		}
	}
	return ls, size, true
}
