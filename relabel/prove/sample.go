package prove

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/spillwayproject/spillway/relabel/inventory"
)

// interval is that of the samples that continue a page.
const interval = time.Minute

// sample is a part of the data.
type sample struct {
	series []sampled
	// end is the time of the newest sample, in ms.
	end int64
	// thinned are the targets of which only a part is in it.
	thinned int
	// wanted is how many series were chosen, found of how many of them there are samples.
	wanted, found int64
}

// sampled is one series. A single sample is continued when it is written.
type sampled struct {
	labels     labels.Labels
	kind       model.MetricType
	floats     []promql.FPoint
	histograms []promql.HPoint
}

// target is what was scraped.
type target struct{ job, instance string }

// part says which series of a target are taken: those whose hash is not above limit, at most most
// of them.
type part struct {
	limit uint64
	most  int64
	taken int64
	up    bool // up is among them
}

// up is the metric that the server writes of each target.
const up = "up"

// load takes the targets that fit, whole where that is possible.
func load(ctx context.Context, src inventory.Sampled, recorded map[string]bool, most int64, span time.Duration) (*sample, error) {
	counts := map[target]*int64{}
	err := src.Scan(ctx, func(s *inventory.Series) error {
		if recorded[s.Labels.Get(model.MetricNameLabel)] {
			return nil // the rules record it again, from what is left
		}
		job, instance := s.Labels.Get(model.JobLabel), s.Labels.Get(model.InstanceLabel)
		n := counts[target{job, instance}]
		if n == nil {
			n = new(int64)
			counts[target{strings.Clone(job), strings.Clone(instance)}] = n // series are valid during the call only
		}
		*n++
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("choose what to replay: %s: %w", src, err)
	}
	sizes := make(map[target]int64, len(counts))
	for t, n := range counts {
		sizes[t] = *n
	}
	parts := choose(sizes, most)
	out := &sample{}
	for t, p := range parts {
		out.wanted += p.most
		if p.most < sizes[t] {
			out.thinned++
		}
	}
	var buf []byte
	keep := func(ls labels.Labels) bool {
		p := parts[target{ls.Get(model.JobLabel), ls.Get(model.InstanceLabel)}]
		if p == nil || recorded[ls.Get(model.MetricNameLabel)] {
			return false
		}
		if p.limit == math.MaxUint64 {
			return true
		}
		var h uint64
		h, buf = together(ls, buf)
		return h <= p.limit
	}
	err = src.Samples(ctx, span, keep, func(s *inventory.Series, floats []promql.FPoint, histograms []promql.HPoint) error {
		p := parts[target{s.Labels.Get(model.JobLabel), s.Labels.Get(model.InstanceLabel)}]
		if p == nil || p.taken >= p.most || len(floats)+len(histograms) == 0 {
			return nil
		}
		p.taken++
		out.found++
		p.up = p.up || s.Labels.Get(model.MetricNameLabel) == up
		x := sampled{labels: s.Labels.Copy(), kind: s.Type, floats: slices.Clone(floats)}
		for _, h := range histograms {
			x.histograms = append(x.histograms, promql.HPoint{T: h.T, H: h.H.Copy()})
			out.end = max(out.end, h.T)
		}
		for _, f := range floats {
			out.end = max(out.end, f.T)
		}
		out.series = append(out.series, x)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("load what is replayed: %s: %w", src, err)
	}
	out.end = max(out.end, span.Milliseconds())
	// Pages lack what the server itself writes. Queries join with up, and would be empty without
	// it.
	for _, t := range slices.SortedFunc(maps.Keys(parts),
		func(a, b target) int { return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.instance, b.instance)) }) {
		if p := parts[t]; p.taken > 0 && !p.up {
			ls := labels.FromStrings(model.MetricNameLabel, up, model.JobLabel, t.job, model.InstanceLabel, t.instance)
			out.series = append(out.series, sampled{labels: ls, kind: model.MetricTypeGauge, floats: []promql.FPoint{{T: out.end, F: 1}}})
		}
	}
	return out, nil
}

// choose takes targets of each job in turn, the first of each job first, in the order of their
// names: nodes that are the first in one job are so in the others, and joins find both sides. Each
// job gets an equal share of the series for its first target, of which a part is taken where it is
// larger. Other targets are taken whole or not at all.
func choose(sizes map[target]int64, most int64) map[target]*part {
	byJob := map[string][]target{}
	for t := range sizes {
		byJob[t.job] = append(byJob[t.job], t)
	}
	jobs := slices.Sorted(maps.Keys(byJob))
	out := map[target]*part{}
	whole := func(t target) { out[t] = &part{limit: math.MaxUint64, most: sizes[t]} }
	var large []target
	left := most
	for i, j := range jobs {
		slices.SortFunc(byJob[j], func(a, b target) int { return cmp.Compare(a.instance, b.instance) })
		first := byJob[j][0]
		if sizes[first] > left/int64(len(jobs)-i) {
			large = append(large, first)
			left -= left / int64(len(jobs)-i) // its share is put back below
			continue
		}
		whole(first)
		left -= sizes[first]
	}
	left = most
	for _, p := range out {
		left -= p.most
	}
	slices.SortFunc(large, func(a, b target) int { return cmp.Or(cmp.Compare(sizes[a], sizes[b]), cmp.Compare(a.job, b.job)) })
	for i, t := range large {
		share := left / int64(len(large)-i)
		if sizes[t] <= share {
			whole(t)
			left -= sizes[t]
			continue
		}
		if share == 0 {
			continue
		}
		out[t] = &part{limit: uint64(float64(share) / float64(sizes[t]) * (math.MaxUint64 - 1<<12)), most: share}
		left -= share
	}
	for round := 1; left > 0; round++ {
		any := false
		for _, j := range jobs {
			if round >= len(byJob[j]) {
				continue
			}
			any = true
			if t := byJob[j][round]; sizes[t] <= left {
				whole(t)
				left -= sizes[t]
			}
		}
		if !any {
			break
		}
	}
	return out
}

// objects are the labels that series are joined by where one target tells about many things, as
// kube-state-metrics does.
var objects = []string{"namespace", "node", "pod"}

// together is a hash that is equal for series that belong together: of the same object, or else of
// the same histogram.
func together(ls labels.Labels, buf []byte) (uint64, []byte) {
	for _, name := range objects {
		if ls.Has(name) {
			return ls.HashForLabels(buf, objects...)
		}
	}
	return ls.HashWithoutLabels(buf, model.BucketLabel, model.QuantileLabel)
}

// each calls f for every sample, oldest first. A single one is the first of a stretch that ends at
// end.
func (s *sampled) each(end int64, span time.Duration, f func(t int64, v float64, h *histogram.FloatHistogram) error) error {
	if len(s.floats)+len(s.histograms) > 1 {
		// The two never have the same time.
		i, j := 0, 0
		for i < len(s.floats) || j < len(s.histograms) {
			var err error
			if j == len(s.histograms) || i < len(s.floats) && s.floats[i].T < s.histograms[j].T {
				err = f(s.floats[i].T, s.floats[i].F, nil)
				i++
			} else {
				err = f(s.histograms[j].T, 0, s.histograms[j].H)
				j++
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	steps := int64(span / interval)
	if len(s.histograms) == 1 {
		first := s.histograms[0].H
		for k := range steps + 1 {
			h := first.Copy()
			if h.CounterResetHint != histogram.GaugeType {
				h.Mul(1 + float64(k)/10)
			}
			if err := f(end-(steps-k)*interval.Milliseconds(), 0, h); err != nil {
				return err
			}
		}
		return nil
	}
	v, step := s.floats[0].F, s.advance()
	for k := range steps + 1 {
		if err := f(end-(steps-k)*interval.Milliseconds(), v+float64(k)*step, nil); err != nil {
			return err
		}
	}
	return nil
}

// advance is how much the series rises in an interval: 0 for what is no counter. It is a whole
// number, so that sums of it are exact, different from series to series, and never smaller in a
// higher bucket of the same histogram.
func (s *sampled) advance() float64 {
	name := s.labels.Get(model.MetricNameLabel)
	base, isBucket := strings.CutSuffix(name, "_bucket")
	base, isCount := strings.CutSuffix(base, "_count")
	base, isSum := strings.CutSuffix(base, "_sum")
	part := isBucket || isCount || isSum
	switch s.kind {
	case model.MetricTypeCounter:
	case model.MetricTypeHistogram, model.MetricTypeSummary:
		if !part {
			return 0 // a quantile
		}
	case model.MetricTypeUnknown, "":
		if !part && !strings.HasSuffix(name, "_total") {
			return 0
		}
	default:
		return 0
	}
	hash, _ := s.labels.HashWithoutLabels(nil, model.BucketLabel)
	hash += xxhash.Sum64String(base)
	factor := float64(1 + hash%16)
	le := math.Inf(1)
	if isBucket {
		v, err := strconv.ParseFloat(s.labels.Get(model.BucketLabel), 64)
		if err != nil || math.IsNaN(v) {
			return 0
		}
		le = v
	}
	if !part {
		return factor
	}
	return factor * (1 + math.Floor(1000*below(le)))
}

// below is the part of a histogram that is not above an edge: half of it is below one, and little
// below zero.
func below(edge float64) float64 {
	switch {
	case math.IsInf(edge, 1):
		return 1
	case edge > 0:
		return 0.05 + 0.95*edge/(1+edge)
	}
	return 0.05 / (1 - edge)
}
