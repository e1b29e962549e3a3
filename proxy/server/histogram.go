package server

import (
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/histogram"
	"google.golang.org/protobuf/proto"
)

// federatedHistogram is a native histogram for /federate. One with custom buckets becomes a classic
// one, which every exposition format can carry.
func federatedHistogram(h *histogram.FloatHistogram) *dto.Histogram {
	out := &dto.Histogram{SampleCountFloat: proto.Float64(h.Count), SampleSum: proto.Float64(h.Sum)}
	if h.UsesCustomBuckets() {
		out.Bucket = classicBuckets(h)
		return out
	}
	out.Schema = proto.Int32(h.Schema)
	out.ZeroThreshold, out.ZeroCountFloat = proto.Float64(h.ZeroThreshold), proto.Float64(h.ZeroCount)
	out.PositiveSpan, out.PositiveCount = spans(h.PositiveSpans), h.PositiveBuckets
	out.NegativeSpan, out.NegativeCount = spans(h.NegativeSpans), h.NegativeBuckets
	return out
}

func spans(in []histogram.Span) []*dto.BucketSpan {
	var out []*dto.BucketSpan
	for _, s := range in {
		out = append(out, &dto.BucketSpan{Offset: proto.Int32(s.Offset), Length: proto.Uint32(s.Length)})
	}
	return out
}

// classicBuckets are the cumulative counts at the custom bounds; the encoder adds +Inf where its
// format needs it.
func classicBuckets(h *histogram.FloatHistogram) []*dto.Bucket {
	counts := make([]float64, len(h.CustomValues)+1)
	for it := h.PositiveBucketIterator(); it.Next(); {
		if b := it.At(); int(b.Index) >= 0 && int(b.Index) < len(counts) {
			counts[b.Index] += b.Count
		}
	}
	out := make([]*dto.Bucket, len(h.CustomValues))
	sum := 0.0
	for i, le := range h.CustomValues {
		sum += counts[i]
		out[i] = &dto.Bucket{UpperBound: proto.Float64(le), CumulativeCountFloat: proto.Float64(sum)}
	}
	return out
}
