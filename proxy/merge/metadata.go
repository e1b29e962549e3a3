package merge

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"

	"github.com/spillwayproject/spillway/proxy/admit"
)

// MergeMetadata writes the union of the shards' metric metadata: for each metric, sorted, its
// distinct entries, sorted by type, unit and help. At most limit metrics and perMetric entries of
// each are written (0 is no limit). Of Bare sources there is one entry for each metric. Metrics
// that are left out make the answer truncated. Entries that perMetric leaves out do not: the client
// got as many as it asked for, as from Prometheus.
func MergeMetadata(ctx context.Context, w *Writer, limit, perMetric int, shards []Source, budget *admit.Budget) (Result, error) {
	d, err := readDocuments[map[string][]metadata.Metadata](ctx, shards, budget)
	defer d.release()
	if err != nil {
		return d.res, err
	}
	all := map[string][]metadata.Metadata{}
	for i, doc := range d.docs {
		for name, list := range doc {
			if keep := shards[i].Keep; keep != nil {
				if list = keptMetadata(name, list, keep); len(list) == 0 {
					continue
				}
			}
			all[name] = append(all[name], list...)
		}
	}
	names := make([]string, 0, len(all))
	for name, list := range all {
		names = append(names, name)
		slices.SortFunc(list, func(a, b metadata.Metadata) int {
			return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Unit, b.Unit), cmp.Compare(a.Help, b.Help))
		})
		list = slices.Compact(list)
		if slices.ContainsFunc(shards, func(s Source) bool { return s.Bare }) {
			list = []metadata.Metadata{agreed(name, list)}
		}
		if perMetric > 0 && len(list) > perMetric {
			list = list[:perMetric]
		}
		all[name] = list
	}
	slices.Sort(names)
	if limit > 0 && len(names) > limit {
		for _, name := range names[limit:] {
			delete(all, name)
		}
		d.res.Truncated = true
	}
	d.res.Series = len(all)
	return d.res, writeData(w, all)
}

// parts are the names of a metric's series by its type, where they are not the metric's: what
// stands behind its name. All of a list must be there.
var parts = map[model.MetricType][][]string{
	model.MetricTypeHistogram:      {{"_bucket"}, {"_count", "_sum"}},
	model.MetricTypeGaugeHistogram: {{"_bucket"}, {"_gcount", "_gsum"}},
	model.MetricTypeSummary:        {{"_count", "_sum"}},
	model.MetricTypeCounter:        {{"_total"}}, // of OpenMetrics
	model.MetricTypeInfo:           {{"_info"}},  // likewise
}

// MetadataNames are the names of the series that a metric may have, its own first.
func MetadataNames(metric string) []string {
	names := []string{metric}
	for _, t := range types {
		for _, list := range parts[t] {
			for _, part := range list {
				if name := metric + part; !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// keptMetadata is what of a metric's metadata may be seen by whoever sees the series that keep
// tells of: all, where one has the metric's name, else what is of a type whose parts are there.
// Another metric's part alone is no sign of it: somebody may have a gauge called x_count beside
// another one's gauge called x.
func keptMetadata(name string, list []metadata.Metadata, keep func(labels.Labels) bool) []metadata.Metadata {
	sees := func(name string) bool { return keep(labels.FromStrings(model.MetricNameLabel, name)) }
	if sees(name) {
		return list
	}
	return slices.DeleteFunc(list, func(m metadata.Metadata) bool {
		return !slices.ContainsFunc(parts[m.Type], func(all []string) bool {
			return !slices.ContainsFunc(all, func(part string) bool { return !sees(name + part) })
		})
	})
}

// types are all that Prometheus has.
var types = []model.MetricType{
	model.MetricTypeCounter, model.MetricTypeGauge, model.MetricTypeHistogram, model.MetricTypeGaugeHistogram, model.MetricTypeSummary,
	model.MetricTypeInfo, model.MetricTypeStateset,
}

// agreed is what all entries of a metric say, without anybody's words: a type of the list, and a
// unit that the name has. The list is not empty.
func agreed(name string, list []metadata.Metadata) metadata.Metadata {
	all := metadata.Metadata{Type: list[0].Type, Unit: list[0].Unit}
	for _, m := range list {
		if m.Type != all.Type || !slices.Contains(types, m.Type) {
			all.Type = model.MetricTypeUnknown
		}
		if m.Unit != all.Unit || !strings.Contains("_"+name+"_", "_"+m.Unit+"_") {
			all.Unit = ""
		}
	}
	return all
}

// targetMetadata is one entry of targets/metadata.
type targetMetadata struct {
	Target       labels.Labels `json:"target"`
	MetricFamily string        `json:"metric,omitempty"`
	Type         string        `json:"type"`
	Help         string        `json:"help"`
	Unit         string        `json:"unit"`
}

func (a targetMetadata) compare(b targetMetadata) int {
	return cmp.Or(labels.Compare(a.Target, b.Target), cmp.Compare(a.MetricFamily, b.MetricFamily), cmp.Compare(a.Type, b.Type),
		cmp.Compare(a.Help, b.Help), cmp.Compare(a.Unit, b.Unit))
}

// MergeTargetsMetadata writes the union of the shards' targets/metadata: targets relabelled,
// entries sorted by target and metric, each once, at most limit (0 is no limit).
func MergeTargetsMetadata(ctx context.Context, w *Writer, limit int, shards []Source, budget *admit.Budget) (Result, error) {
	d, err := readDocuments[[]targetMetadata](ctx, shards, budget)
	defer d.release()
	if err != nil {
		return d.res, err
	}
	all := []targetMetadata{}
	for i, doc := range d.docs {
		for _, m := range doc {
			m.Target = shards[i].Relabel.Labels(m.Target)
			all = append(all, m)
		}
	}
	slices.SortFunc(all, targetMetadata.compare)
	all = slices.CompactFunc(all, func(a, b targetMetadata) bool { return a.compare(b) == 0 })
	if limit > 0 && len(all) > limit {
		all, d.res.Truncated = all[:limit], true
	}
	d.res.Series = len(all)
	return d.res, writeData(w, all)
}
