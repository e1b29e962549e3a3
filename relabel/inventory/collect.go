package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/axiomhq/hyperloglog"
	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

const (
	// progressEvery is how many series pass between two calls of progress.
	progressEvery = 1 << 16
	// sketchPrecision gives 8,192 registers: a standard error of 1.15 %, so that the 5 % that are
	// promised are four times that.
	sketchPrecision = 13
)

// Collect reads the source once. progress, if not nil, is called now and then with the number of
// series so far, and at the end with all of them.
func Collect(ctx context.Context, src Source, progress func(series int64)) (*Inventory, error) {
	if progress == nil {
		progress = func(int64) {}
	}
	c := &collector{metrics: map[metricKey]*counted{}, strings: map[string]string{}}
	err := src.Scan(ctx, func(s *Series) error {
		if err := c.add(s); err != nil {
			return err
		}
		if c.series%progressEvery == 0 {
			progress(c.series)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("take stock of %s: %w", src, err)
	}
	progress(c.series)
	return c.inventory(src), nil
}

// Metric finds a metric of a job; nil where there is none.
func (inv *Inventory) Metric(job, name string) *Metric {
	i, ok := slices.BinarySearchFunc(inv.Metrics, metricKey{job, name},
		func(m *Metric, k metricKey) int { return metricKey{m.Job, m.Name}.compare(k) })
	if !ok {
		return nil
	}
	return inv.Metrics[i]
}

type metricKey struct{ job, name string }

func (k metricKey) compare(o metricKey) int {
	return cmp.Or(strings.Compare(k.job, o.job), strings.Compare(k.name, o.name))
}

// collector counts. Strings that it keeps are its own: those of a series are good during the call
// only.
type collector struct {
	metrics map[metricKey]*counted
	last    *counted // sources hand on series of one metric after the other
	strings map[string]string
	series  int64
}

// counted is one metric while it is counted.
type counted struct {
	Metric
	labels    []*countedLabel // sorted by name
	contested bool            // its series have different types
}

// countedLabel has exact numbers until there are more than MaxValues values, and a sketch from then
// on.
type countedLabel struct {
	name   string
	series int64
	last   string // the value of the series before, often that of the next one
	lastAt int
	index  map[string]int
	values []string
	counts []int64
	sketch *hyperloglog.Sketch
}

func (c *collector) add(s *Series) error {
	var k metricKey
	s.Labels.Range(func(l labels.Label) {
		switch l.Name {
		case model.MetricNameLabel:
			k.name = l.Value
		case model.JobLabel:
			k.job = l.Value
		}
	})
	if k.name == "" {
		return fmt.Errorf("a series has no metric name: %s", s.Labels)
	}
	m := c.last
	if m == nil || m.Name != k.name || m.Job != k.job {
		if m = c.metrics[k]; m == nil {
			k = metricKey{c.keep(k.job), c.keep(k.name)}
			m = &counted{Metric: Metric{Job: k.job, Name: k.name, Type: model.MetricTypeUnknown}}
			c.metrics[k] = m
		}
		c.last = m
	}
	c.series++
	m.Series++
	m.Native = m.Native || s.Native
	if s.Interval > 0 {
		m.SamplesPerSecond += 1 / s.Interval.Seconds()
	}
	m.typed(s.Type)
	i := 0
	s.Labels.Range(func(l labels.Label) {
		if l.Name == model.MetricNameLabel {
			return
		}
		for i < len(m.labels) && m.labels[i].name < l.Name {
			i++
		}
		if i == len(m.labels) || m.labels[i].name != l.Name {
			m.labels = slices.Insert(m.labels, i, &countedLabel{name: c.keep(l.Name), index: map[string]int{}, lastAt: -1})
		}
		m.labels[i].add(l.Value, c)
		i++
	})
	return nil
}

// typed takes note of a type: what is known wins over what is not, and where two are known none
// does.
func (m *counted) typed(t model.MetricType) {
	switch {
	case t == m.Type || t == "" || t == model.MetricTypeUnknown || m.contested:
	case m.Type == model.MetricTypeUnknown:
		m.Type = t
	default:
		m.Type, m.contested = model.MetricTypeUnknown, true
	}
}

func (c *collector) keep(s string) string {
	if own, ok := c.strings[s]; ok {
		return own
	}
	own := strings.Clone(s)
	c.strings[own] = own
	return own
}

func (l *countedLabel) add(v string, c *collector) {
	l.series++
	if l.sketch != nil {
		l.sketch.InsertHash(xxhash.Sum64String(v))
		return
	}
	if l.lastAt >= 0 && l.last == v {
		l.counts[l.lastAt]++
		return
	}
	i, ok := l.index[v]
	if !ok {
		if len(l.values) == MaxValues {
			l.spill()
			l.sketch.InsertHash(xxhash.Sum64String(v))
			return
		}
		v = c.keep(v)
		i = len(l.values)
		l.index[v] = i
		l.values, l.counts = append(l.values, v), append(l.counts, 0)
	}
	l.counts[i]++
	l.last, l.lastAt = l.values[i], i
}

// spill gives up the values and goes on with their number.
func (l *countedLabel) spill() {
	sketch, err := hyperloglog.NewSketch(sketchPrecision, false) // its sparse form saves memory and costs three times the time
	if err != nil {
		panic(err) // the precision is a constant within its bounds
	}
	for _, v := range l.values {
		sketch.InsertHash(xxhash.Sum64String(v))
	}
	l.sketch, l.index, l.values, l.counts, l.last, l.lastAt = sketch, nil, nil, nil, "", -1
}

func (l *countedLabel) label() *Label {
	if l.sketch != nil {
		// More than MaxValues is certain, however the sketch errs; so is that there are no more
		// values than series.
		return &Label{Series: l.series, Distinct: min(max(int64(l.sketch.Estimate()), MaxValues+1), l.series)}
	}
	out := &Label{Series: l.series, Distinct: int64(len(l.values)), Values: make(map[string]int64, len(l.values))}
	for i, v := range l.values {
		out.Values[v] = l.counts[i]
	}
	return out
}

func (c *collector) inventory(src Source) *Inventory {
	inv := &Inventory{Sources: sourceNames(src), Series: c.series}
	for _, m := range c.metrics {
		m.Labels = make(map[string]*Label, len(m.labels))
		for _, l := range m.labels {
			m.Labels[l.name] = l.label()
		}
		m.labels = nil
		inv.Metrics = append(inv.Metrics, &m.Metric)
	}
	slices.SortFunc(inv.Metrics, func(a, b *Metric) int { return metricKey{a.Job, a.Name}.compare(metricKey{b.Job, b.Name}) })
	for _, m := range inv.Metrics { // in this order, so that the sum is the same each time
		inv.SamplesPerSecond += m.SamplesPerSecond
	}
	return inv
}
