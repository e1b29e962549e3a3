package merge

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/admit"
)

// exemplarBytes is what one exemplar costs beside the bytes of its labels.
const exemplarBytes = 64

type exemplar struct {
	labels labels.Labels
	value  float64
	ms     int64
}

func (e exemplar) compare(o exemplar) int {
	// NaN equals NaN here: a replica's copy of it is a copy.
	return cmp.Or(cmp.Compare(e.ms, o.ms), cmp.Compare(e.value, o.value), labels.Compare(e.labels, o.labels))
}

type exemplarSeries struct {
	labels    labels.Labels
	exemplars []exemplar
}

// MergeExemplars writes the union of the shards' answers to query_exemplars: series relabelled and
// sorted by labels, equal ones joined, in each the distinct exemplars sorted by time, value and
// labels. Nothing is ever left out: a bound refuses.
func MergeExemplars(ctx context.Context, w *Writer, shards []Source, budget *admit.Budget) (Result, error) {
	var (
		res   Result
		lists = make([]exemplarList, len(shards))
		all   []exemplarSeries
	)
	defer func() {
		for i := range lists {
			lists[i].held.Drop()
		}
	}()
	err := together(shards, func(i int) error {
		return lists[i].read(ctx, shards[i], budget)
	})
	var warnings, infos Notes
	for i := range lists {
		all = append(all, lists[i].series...)
		res.take(&lists[i].a, &warnings, &infos)
	}
	if err != nil {
		return res, err
	}
	slices.SortStableFunc(all, func(a, b exemplarSeries) int { return labels.Compare(a.labels, b.labels) })
	out := []byte{'['}
	for i := 0; i < len(all); {
		one := all[i]
		for i++; i < len(all) && labels.Equal(all[i].labels, one.labels); i++ {
			one.exemplars = append(one.exemplars, all[i].exemplars...)
		}
		slices.SortFunc(one.exemplars, exemplar.compare)
		one.exemplars = slices.CompactFunc(one.exemplars, func(a, b exemplar) bool { return a.compare(b) == 0 })
		if res.Series++; res.Series > 1 {
			out = append(out, ',')
		}
		out = one.append(out)
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

func (e *exemplarSeries) append(dst []byte) []byte {
	dst = AppendLabels(append(dst, `{"seriesLabels":`...), e.labels)
	dst = append(dst, `,"exemplars":[`...)
	for i, x := range e.exemplars {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendLabels(append(dst, `{"labels":`...), x.labels)
		dst = AppendFloat(append(dst, `,"value":`...), x.value)
		dst = AppendTimestamp(append(dst, `,"timestamp":`...), x.ms)
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}

// exemplarList is one shard's answer.
type exemplarList struct {
	series []exemplarSeries
	held   admit.Ledger
	a      answer
}

func (l *exemplarList) hold(s *Scanner, n int64) bool {
	if err := l.held.Hold(n); err != nil {
		s.err = err
		return false
	}
	return true
}

func (l *exemplarList) read(ctx context.Context, src Source, budget *admit.Budget) error {
	l.held = admit.NewLedger(budget)
	s := NewScanner(src.Body, budget)
	defer s.Close()
	d := setDecoder{rl: src.Relabel}
	plain := setDecoder{}
	readAnswer(s, &l.a, func() bool {
		if !s.Array() {
			return false
		}
		for first := true; s.More(first); first = false {
			if ctx.Err() != nil {
				s.err = context.Cause(ctx)
				return false
			}
			if err := budget.AddSeries(1); err != nil {
				s.err = err
				return false
			}
			if !l.readSeries(s, &d, &plain, budget) {
				return false
			}
		}
		return s.err == nil
	})
	return shardErr(ctx, src.Name, s.err)
}

func (l *exemplarList) readSeries(s *Scanner, d, plain *setDecoder, budget *admit.Budget) bool {
	if !s.Object() {
		return false
	}
	var one exemplarSeries
	named := false
	for first := true; ; first = false {
		key, ok := s.Key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "seriesLabels":
			var n int64
			if one.labels, n, ok = d.decode(s); ok {
				ok = l.hold(s, n+labelSetBytes)
			}
			named = true
		case "exemplars":
			if ok = s.Array(); !ok {
				return false
			}
			for first := true; s.More(first); first = false {
				if err := budget.AddSamples(1); err != nil {
					s.err = err
					return false
				}
				if !l.readExemplar(s, plain, &one) {
					return false
				}
			}
			ok = s.err == nil
		default:
			ok = s.skip(4)
		}
		if !ok {
			return false
		}
	}
	if s.err != nil {
		return false
	}
	if !named {
		return s.fail(WrongShape, "exemplars without seriesLabels")
	}
	l.series = append(l.series, one)
	return true
}

func (l *exemplarList) readExemplar(s *Scanner, plain *setDecoder, one *exemplarSeries) bool {
	if !s.Object() {
		return false
	}
	var x exemplar
	size := int64(exemplarBytes)
	for first := true; ; first = false {
		key, ok := s.Key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "labels":
			var n int64
			x.labels, n, ok = plain.decode(s)
			size += n + labelSetBytes
		case "value":
			var b []byte
			if b, ok = s.String(); ok {
				var err error
				if x.value, err = strconv.ParseFloat(string(b), 64); err != nil && !math.IsInf(x.value, 0) {
					return s.fail(WrongShape, "the value of an exemplar is no number")
				}
			}
		case "timestamp":
			var b []byte
			if b, ok = s.Number(); ok {
				t, err := strconv.ParseFloat(string(b), 64)
				if ms := math.Round(t * 1000); err == nil && math.Abs(ms) < 1<<62 {
					x.ms = int64(ms)
				} else {
					return s.fail(WrongShape, "the timestamp of an exemplar is out of range")
				}
			}
		default:
			ok = s.skip(6)
		}
		if !ok {
			return false
		}
	}
	if s.err != nil || !l.hold(s, size) {
		return false
	}
	one.exemplars = append(one.exemplars, x)
	return true
}
