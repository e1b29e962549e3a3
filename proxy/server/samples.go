package server

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// samplesWriter makes the answer of a remote read that wants samples: one protobuf message,
// compressed as a whole. Series are encoded one by one, since a sample takes 20 bytes in the
// message and 48, with what slices grow by 100, as protobuf's Go value. What it holds is charged to
// the request's budget as it grows.
type samplesWriter struct {
	x      *exchange
	data   []byte
	series prompb.TimeSeries // used again for each
}

const (
	// chargedTimes is how often a byte of the message is charged: in the buffer, whose growth
	// copies it, and compressed.
	chargedTimes = 3
	// resultTag begins a field 1 that is a message: a result of the answer, and a series of a
	// result.
	resultTag = 1<<3 | 2
	// maxResultHead is the longest tag and length.
	maxResultHead = 1 + binary.MaxVarintLen64
)

// result appends what one query of the read found.
func (w *samplesWriter) result(set *seriesSet) error {
	begin := len(w.data)
	w.data = append(w.data, make([]byte, maxResultHead)...)
	var it chunkenc.Iterator
	for set.Next() {
		s := set.At()
		it = s.Iterator(it)
		if err := w.oneSeries(s, it); err != nil {
			return err
		}
	}
	if err := set.Err(); err != nil {
		return err
	}
	head := binary.AppendUvarint([]byte{resultTag}, uint64(len(w.data)-begin-maxResultHead))
	n := copy(w.data[begin:], head)
	w.data = append(w.data[:begin+n], w.data[begin+maxResultHead:]...)
	return nil
}

// oneSeries appends a series with all its samples.
func (w *samplesWriter) oneSeries(s storage.Series, it chunkenc.Iterator) error {
	ts := &w.series
	ts.Labels, ts.Samples, ts.Histograms = prompb.FromLabels(s.Labels(), ts.Labels), ts.Samples[:0], ts.Histograms[:0]
	for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
		switch typ {
		case chunkenc.ValFloat:
			t, v := it.At()
			ts.Samples = append(ts.Samples, prompb.Sample{Timestamp: t, Value: v})
		case chunkenc.ValHistogram:
			t, h := it.AtHistogram(nil)
			ts.Histograms = append(ts.Histograms, prompb.FromIntHistogram(t, h))
		default:
			t, fh := it.AtFloatHistogram(nil)
			ts.Histograms = append(ts.Histograms, prompb.FromFloatHistogram(t, fh))
		}
	}
	if err := it.Err(); err != nil {
		return undecodable(err)
	}
	if err := w.x.budget.AddSamples(int64(len(ts.Samples) + len(ts.Histograms))); err != nil {
		return err
	}
	n := ts.Size()
	if err := w.x.budget.Hold(int64(chargedTimes * (n + maxResultHead))); err != nil {
		return err
	}
	w.data = binary.AppendUvarint(append(w.data, resultTag), uint64(n))
	begin := len(w.data)
	w.data = slices.Grow(w.data, n)[:begin+n]
	_, err := ts.MarshalToSizedBuffer(w.data[begin:])
	return err
}

// writeTo sends the message.
func (w *samplesWriter) writeTo(out *boundedWriter) error {
	_, err := out.Write(snappy.Encode(nil, w.data))
	return err
}

// undecodable is the failure of a shard whose chunks are none.
func undecodable(err error) error {
	if named := (*qerr.Error)(nil); errors.As(err, &named) {
		return err
	}
	return qerr.Wrap(qerr.ShardFailed, err, "a shard sent series data that cannot be decoded")
}

// ended is the cause of a context that has ended, else nil.
func ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
