package server

import (
	"context"
	"io"
	"math"
	"slices"
	"strings"
	"sync"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
	"google.golang.org/protobuf/proto"

	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// select reads the series of one selector from all shards, spliced and relabelled.
func (x *exchange) selectSeries(from, until int64, hints *storage.SelectHints, ms []*labels.Matcher) ([]storage.Series, error) {
	ctx, span := x.s.room(x.ctx, "select")
	defer span.End()
	return x.fetcher(nil).Series(ctx, from, until, hints, ms)
}

// maxFrameBytes is what Prometheus puts into one frame of a streamed answer.
const maxFrameBytes = 1 << 20

var framePool = sync.Pool{New: func() any { b := make([]byte, 0, 64<<10); return &b }}

// read answers remote read, as samples or as streamed chunks.
func (x *exchange) read() error {
	rq := x.dec.Request.ReadQuery
	kind, err := remote.NegotiateResponseType(rq.AcceptedResponseTypes)
	if err != nil {
		return qerr.Wrap(qerr.BadData, err, "none of the accepted response types is known; accept STREAMED_XOR_CHUNKS or SAMPLES")
	}
	all := make([][]storage.Series, len(rq.Queries))
	for i, q := range rq.Queries {
		var hints *storage.SelectHints
		if h := q.Hints; h != nil {
			hints = &storage.SelectHints{
				Start: h.StartMs, End: h.EndMs, Step: h.StepMs, Func: h.Func, Grouping: h.Grouping,
				Range: h.RangeMs, By: h.By,
			}
		}
		if all[i], err = x.selectSeries(q.StartTimestampMs, q.EndTimestampMs, hints, x.dec.Selectors[i]); err != nil {
			return err
		}
	}
	h := x.client.Header()
	out := &boundedWriter{x: x}
	if kind == prompb.ReadRequest_STREAMED_XOR_CHUNKS {
		h.Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
		frames := remote.NewChunkedWriter(out, out)
		for i, series := range all {
			set := storage.NewSeriesSetToChunkSet(&seriesSet{
				ctx: x.ctx, list: series, from: rq.Queries[i].StartTimestampMs,
				until: rq.Queries[i].EndTimestampMs,
			})
			if _, err := remote.StreamChunkedReadResponses(frames, int64(i), set, nil, maxFrameBytes, &framePool); err != nil {
				return out.or(err)
			}
		}
		return x.out.End()
	}
	h.Set("Content-Type", "application/x-protobuf")
	h.Set("Content-Encoding", "snappy")
	w := samplesWriter{x: x}
	for i, series := range all {
		if err := w.result(&seriesSet{
			ctx: x.ctx, list: series, from: rq.Queries[i].StartTimestampMs,
			until: rq.Queries[i].EndTimestampMs,
		}); err != nil {
			return err
		}
	}
	if err := w.writeTo(out); err != nil {
		return out.or(err)
	}
	return x.out.End()
}

// boundedWriter writes an answer that is not JSON under max_response_bytes.
type boundedWriter struct {
	x   *exchange
	n   int64
	err error
}

// Write implements io.Writer.
func (b *boundedWriter) Write(p []byte) (int, error) {
	if b.n += int64(len(p)); b.n > b.x.limits.MaxResponseBytes {
		limit := itoa(b.x.limits.MaxResponseBytes)
		b.err = qerr.Refuse(policy.BoundMaxResponseBytes, limit, "at least "+itoa(b.n), "select fewer series or a shorter range",
			"the answer is larger than max_response_bytes allows (%s bytes)", limit)
		return 0, b.err
	}
	n, err := b.x.out.Write(p)
	if err != nil {
		b.err = err
	}
	return n, err
}

// Flush implements http.Flusher; the writer decides itself when to send.
func (*boundedWriter) Flush() {}

// or returns the bound's error where one ended the writing.
func (b *boundedWriter) or(err error) error {
	if b.err != nil {
		return b.err
	}
	return err
}

// seriesSet is a list of series as a set, cut to [from, until]. It ends with the context.
type seriesSet struct {
	ctx         context.Context
	list        []storage.Series
	from, until int64
	at          int
	err         error
}

// Next implements storage.SeriesSet. Series without a sample in the window are left out, as
// Prometheus does.
func (s *seriesSet) Next() bool {
	for s.err == nil && s.at < len(s.list) {
		s.at++
		if s.err = ended(s.ctx); s.err != nil {
			return false
		}
		it := &windowed{Iterator: s.list[s.at-1].Iterator(nil), from: s.from, until: s.until}
		if it.Next() != chunkenc.ValNone {
			return true
		}
		if err := it.Err(); err != nil {
			s.err = undecodable(err)
		}
	}
	return false
}

// At implements storage.SeriesSet.
func (s *seriesSet) At() storage.Series {
	series := s.list[s.at-1]
	return &storage.SeriesEntry{Lset: series.Labels(), SampleIteratorFn: func(it chunkenc.Iterator) chunkenc.Iterator {
		return &windowed{Iterator: series.Iterator(nil), from: s.from, until: s.until}
	}}
}

// Err implements storage.SeriesSet.
func (s *seriesSet) Err() error { return s.err }

// Warnings implements storage.SeriesSet.
func (*seriesSet) Warnings() annotations.Annotations { return nil }

// windowed cuts an iterator to [from, until].
type windowed struct {
	chunkenc.Iterator
	from, until int64
	begun       bool
}

// Next implements chunkenc.Iterator.
func (w *windowed) Next() chunkenc.ValueType {
	var typ chunkenc.ValueType
	if !w.begun {
		w.begun = true
		typ = w.Iterator.Seek(w.from)
	} else {
		typ = w.Iterator.Next()
	}
	if typ != chunkenc.ValNone && w.AtT() > w.until {
		return chunkenc.ValNone
	}
	return typ
}

// Seek implements chunkenc.Iterator.
func (w *windowed) Seek(t int64) chunkenc.ValueType {
	w.begun = true
	typ := w.Iterator.Seek(max(t, w.from))
	if typ != chunkenc.ValNone && w.AtT() > w.until {
		return chunkenc.ValNone
	}
	return typ
}

// federate answers with the newest sample of each series, in the format that the client prefers, as
// Prometheus does: without type and help, without stale markers, sorted by metric name, an empty
// instance label where there is none so that the scraper does not put its own there.
func (x *exchange) federate() error {
	all, err := x.newest()
	if err != nil {
		return err
	}
	if err := x.budget.AddSamples(int64(len(all))); err != nil {
		return err
	}
	format := expfmt.NegotiateAccept(x.header, expfmt.NewFormat(expfmt.TypeProtoDelim), expfmt.NewFormat(expfmt.TypeProtoText),
		expfmt.NewFormat(expfmt.TypeProtoCompact), expfmt.NewFormat(expfmt.TypeTextPlain))
	x.client.Header().Set("Content-Type", string(format))
	out := &boundedWriter{x: x}
	enc := expfmt.NewEncoder(out, format)
	isProto := strings.HasPrefix(string(format), "application/vnd.google.protobuf")
	if err := x.remark(out, isProto); err != nil {
		return err
	}
	var family *dto.MetricFamily
	var held int64 // for it
	defer func() { x.budget.Drop(held) }()
	flush := func() error {
		if family == nil {
			return nil
		}
		err := out.or(enc.Encode(family))
		x.budget.Drop(held)
		held = 0
		return err
	}
	for _, s := range all {
		name := s.lbls.Get(model.MetricNameLabel)
		if name == "" || s.fh != nil && !isProto && !s.fh.UsesCustomBuckets() {
			continue // a nameless series, or a native histogram for a client that cannot read it
		}
		if typ := s.kind(); family == nil || family.GetName() != name || family.GetType() != typ {
			if err := flush(); err != nil {
				return err
			}
			family = &dto.MetricFamily{Name: proto.String(name), Type: typ.Enum()}
		}
		if err := x.budget.Hold(s.made()); err != nil {
			return err
		}
		held += s.made()
		family.Metric = append(family.Metric, s.metric())
	}
	if err := flush(); err != nil {
		return err
	}
	return x.out.End()
}

// partialHeader says of a federation that a shard is missing in it.
const partialHeader = "X-Spillway-Partial"

// remark says what a federation has no other place for: that a shard is missing in a header, and
// all warnings in comments, where the format has such. A scraper looks at neither, people do.
func (x *exchange) remark(out io.Writer, isProto bool) error {
	warnings := x.warnings.List()
	if slices.ContainsFunc(warnings, func(w string) bool { return strings.HasPrefix(w, partialWarning) }) {
		x.client.Header().Set(partialHeader, "true")
	}
	if isProto {
		return nil
	}
	for _, w := range warnings {
		if _, err := io.WriteString(out, "# "+strings.Join(strings.Fields(w), " ")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// newestSample is the newest sample of a series.
type newestSample struct {
	lbls labels.Labels
	t    int64
	f    float64
	fh   *histogram.FloatHistogram
}

// newest reads the newest sample of each series that is selected, sorted by metric name; none of
// those that have ended.
func (x *exchange) newest() (all []newestSample, err error) {
	now := x.view.Now().UnixMilli()
	from := now - x.lookback().Milliseconds()
	seen := map[string]bool{} // keys; of one selector each series comes once
	for _, ms := range x.dec.Selectors {
		series, err := x.selectSeries(from, now, nil, ms)
		if err != nil {
			return nil, err
		}
		for _, s := range series {
			if err := ended(x.ctx); err != nil {
				return nil, err
			}
			if len(x.dec.Selectors) > 1 {
				key := string(s.Labels().Bytes(nil))
				if seen[key] {
					continue
				}
				if err := x.budget.Hold(int64(len(key)) + 48); err != nil {
					return nil, err
				}
				seen[key] = true
			}
			it := &windowed{Iterator: s.Iterator(nil), from: from, until: now}
			out := newestSample{lbls: s.Labels(), t: math.MinInt64}
			for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
				out.t, out.fh = it.AtT(), nil
				if typ == chunkenc.ValFloat {
					_, out.f = it.At()
				} else {
					_, out.fh = it.AtFloatHistogram(nil)
				}
			}
			if err := it.Err(); err != nil {
				return nil, undecodable(err)
			}
			if out.t == math.MinInt64 || out.fh == nil && value.IsStaleNaN(out.f) || out.fh != nil && value.IsStaleNaN(out.fh.Sum) {
				continue
			}
			if err := x.budget.Hold(out.kept()); err != nil {
				return nil, err
			}
			all = append(all, out)
		}
	}
	slices.SortStableFunc(all, func(a, b newestSample) int {
		return strings.Compare(a.lbls.Get(model.MetricNameLabel), b.lbls.Get(model.MetricNameLabel))
	})
	return all, nil
}

// What is made of a series while it is federated: the sample, in a slice that grows by doubling,
// for as long as the page takes; and its metric with its timestamp and value, as long as its family
// is not written: of each label a pair, its place in a slice, and two strings that are pointed at.
const (
	newestBytes = 2 * 56
	metricBytes = 160
	pairBytes   = 80 + 2*8 + 2*16
)

// kept is how many bytes are kept of it for the page, without its labels' text.
func (s *newestSample) kept() int64 {
	if s.fh == nil {
		return newestBytes
	}
	return newestBytes + int64(s.fh.Size())
}

// made is how many bytes metric makes.
func (s *newestSample) made() int64 {
	n := int64(metricBytes + (s.lbls.Len()+1)*pairBytes)
	if s.fh != nil {
		n += 2 * int64(s.fh.Size()) // as protobuf has it: 64 bits for a bucket, and its spans by pointers
	}
	return n
}

// kind is the type of metric that it is federated as.
func (s *newestSample) kind() dto.MetricType {
	switch {
	case s.fh == nil:
		return dto.MetricType_UNTYPED
	case s.fh.CounterResetHint == histogram.GaugeType:
		return dto.MetricType_GAUGE_HISTOGRAM
	}
	return dto.MetricType_HISTOGRAM
}

// metric is what is written of it.
func (s *newestSample) metric() *dto.Metric {
	m := &dto.Metric{TimestampMs: proto.Int64(s.t)}
	s.lbls.Range(func(l labels.Label) {
		if l.Name != model.MetricNameLabel {
			m.Label = append(m.Label, &dto.LabelPair{Name: proto.String(l.Name), Value: proto.String(l.Value)})
		}
	})
	if !s.lbls.Has(model.InstanceLabel) {
		m.Label = append(m.Label, &dto.LabelPair{Name: proto.String(model.InstanceLabel), Value: proto.String("")})
	}
	if s.fh == nil {
		m.Untyped = &dto.Untyped{Value: proto.Float64(s.f)}
	} else {
		m.Histogram = federatedHistogram(s.fh)
	}
	return m
}
