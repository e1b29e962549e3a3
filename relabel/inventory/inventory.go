package inventory

import (
	"context"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

// MaxValues is how many values of one label of one metric of one job are known one by one. Of
// labels with more, only their number is, about.
const MaxValues = 256

// Series is one stored series.
type Series struct {
	// Labels are those that metric_relabel_configs see: the page's own and the target's. They are
	// valid during the call only.
	Labels labels.Labels
	// Type is what the page or the metadata says; unknown where neither does.
	Type model.MetricType
	// Native says that the samples are native histograms.
	Native bool
	// Interval is the time between samples; 0 where the source does not know it.
	Interval time.Duration
}

// Source is somewhere to read series from.
type Source interface {
	// Scan calls f for each series, one at a time, each series once. It may be called again and
	// begins at the beginning then. It ends with f's error, or with its own, or with
	// context.Cause(ctx).
	Scan(ctx context.Context, f func(*Series) error) error
	// String names the source in messages: the folder, the URL.
	String() string
}

// Inventory is what is stored.
type Inventory struct {
	// Sources are the names of what was read, sorted.
	Sources []string
	// Metrics are sorted by job, then by name.
	Metrics []*Metric
	// Series is how many there are, SamplesPerSecond how many samples come each second, where
	// intervals are known.
	Series           int64
	SamplesPerSecond float64
}

// Metric is one metric of one job: the unit for which rules are made, since metric_relabel_configs
// belong to a job.
type Metric struct {
	Job, Name string
	Type      model.MetricType
	// Native says that at least one series of it is a native histogram.
	Native           bool
	Series           int64
	SamplesPerSecond float64
	// Labels are all labels but __name__ that a series of it has, by name.
	Labels map[string]*Label
}

// Label is one label of one metric of one job.
type Label struct {
	// Series is how many of the metric's series have it. Where that is less than the metric's, the
	// others have the empty value.
	Series int64
	// Distinct is how many values it has; about (within 5 %) where Values is nil.
	Distinct int64
	// Values are its values with the number of series that have each; nil where there are more than
	// MaxValues.
	Values map[string]int64
}

// Sampled is a Source that knows samples too.
type Sampled interface {
	Source
	// Samples calls f for each series that keep accepts, with its samples of the newest window,
	// oldest first: at least one, and of a page exactly one. The slices are valid during the call
	// only.
	Samples(ctx context.Context, window time.Duration, keep func(labels.Labels) bool,
		f func(s *Series, floats []promql.FPoint, histograms []promql.HPoint) error) error
}

// Known is what package uses asks before it lets a matcher exclude anything.
func (inv *Inventory) Known() func(metric, label string) bool {
	known := map[[2]string]bool{}
	for _, m := range inv.Metrics {
		for label := range m.Labels {
			known[[2]string{m.Name, label}] = true
		}
	}
	return func(metric, label string) bool { return known[[2]string{metric, label}] }
}
