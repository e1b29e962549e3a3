package experiments

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// unassigned is shown where a pod has no team.
const unassigned = "unassigned"

// column is one column of a table: a slice of one of the types of data.NewField, as long as the
// others.
type column struct {
	name   string
	values any
	config *data.FieldConfig
}

// table is a frame of type table. links are those of the field of that name.
func table(columns ...column) *data.Frame {
	f := data.NewFrame("")
	for _, c := range columns {
		field := data.NewField(c.name, nil, c.values)
		field.Config = c.config
		f.Fields = append(f.Fields, field)
	}
	f.Meta = &data.FrameMeta{Type: data.FrameTypeTable, TypeVersion: data.FrameTypeVersion{0, 1}, PreferredVisualization: data.VisTypeTable}
	return f
}

// timeSeries makes frames of type timeseries-multi, one for each series: fields time and value, the
// value with the series' labels. step is that of the question: where a point is missing Grafana
// draws the line over the hole unless it knows how far points are apart. name gives each series its
// legend. Sorted by name, then labels.
func timeSeries(series []prom.Series, step time.Duration, unit string, name func(labels map[string]string) string) data.Frames {
	type named struct {
		name string
		key  string
		s    prom.Series
	}
	list := make([]named, len(series))
	for i, s := range series {
		list[i] = named{name(s.Labels), data.Labels(s.Labels).String(), s}
	}
	slices.SortFunc(list, func(a, b named) int { return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.key, b.key)) })
	frames := make(data.Frames, 0, len(list))
	for _, n := range list {
		times, values := make([]time.Time, len(n.s.Points)), make([]float64, len(n.s.Points))
		for i, p := range n.s.Points {
			times[i], values[i] = time.UnixMilli(p.T).UTC(), p.V
		}
		value := data.NewField("Value", data.Labels(n.s.Labels), values)
		value.Config = &data.FieldConfig{Unit: unit, DisplayNameFromDS: n.name}
		at := data.NewField("Time", nil, times)
		at.Config = &data.FieldConfig{Interval: float64(step.Milliseconds())}
		f := data.NewFrame("", at, value)
		f.Meta = &data.FrameMeta{Type: data.FrameTypeTimeSeriesMulti, TypeVersion: data.FrameTypeVersion{0, 1}}
		frames = append(frames, f)
	}
	return frames
}
