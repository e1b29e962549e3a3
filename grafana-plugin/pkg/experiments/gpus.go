package experiments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"
	commonmodel "github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// maxLinePoints is at how many points of a range it is looked at most which lines there are.
const maxLinePoints = 2000

// gpuTimeSeries is one metric of the GPUs, averaged by the labels of GroupBy: a frame for each of
// their values.
//
// Which series are drawn is decided first, by their average over the whole range, so that the same
// ones are drawn at every point: with Rank the largest or smallest K, else all of them, or the
// largest where there are more than MaxSeries.
func gpuTimeSeries(ctx context.Context, r *Run) (data.Frames, error) {
	metric, by := "experiment:gpu:"+string(r.Query.Metric), groupBy(r.Query)
	chosen := Chosen(r.Query)
	// At the points of the lines, so that none is missed of which one is drawn.
	step := min(wholeSeconds(r.back()/lookPoints), max(r.recordedStep(), wholeSeconds(r.back()/maxLinePoints)))
	look := func(step time.Duration) ([]prom.Series, error) {
		return r.Instant(ctx, fmt.Sprintf("avg by (%s) (avg_over_time(%s))", strings.Join(by, ", "),
			r.lookEach(Selector(metric, chosen...), r.back(), step)), r.Until)
	}
	means, err := look(step)
	coarse, refused := wholeSeconds(r.back()/lookPoints), (*prom.Refusal)(nil)
	if errors.As(err, &refused) && refused.Status == http.StatusUnprocessableEntity && step < coarse {
		// of so many GPUs a server would hold too much: a subquery cannot be cut in time
		if means, err = look(coarse); err == nil {
			r.LeftOut("Lines of less than %s may be left out, since there are so many GPUs; choose a shorter time, a team or a cluster.", commonmodel.Duration(coarse))
		}
	}
	if err != nil {
		return nil, err
	}
	if len(means) == 0 {
		return emptyFrames(data.FrameTypeTimeSeriesMulti), r.Empty(ctx, NeedPods|NeedGPUs, "GPUs with this metric")
	}
	series, err := r.drawn(ctx, r.pick(means, by, r.Settings.MaxSeries, "series"), by, func(matchers ...string) question {
		query := fmt.Sprintf("avg by (%s) (%s)", strings.Join(by, ", "), Selector(metric, append(slices.Clone(chosen), matchers...)...))
		return r.span(query, r.From, r.Until, r.recordedStep())
	})
	if err != nil {
		return nil, err
	}
	for _, s := range series {
		if slices.Contains(by, "team") && s.Labels["team"] == "" {
			s.Labels["team"] = unassigned
		}
	}
	return timeSeries(series, r.recordedStep(), r.Query.Metric.Unit(), func(l map[string]string) string { return legend(l, by) }), nil
}

// groupBy is GroupBy without what stands there twice.
func groupBy(q model.Query) []string {
	var by []string
	for _, l := range q.GroupBy {
		if !slices.Contains(by, l) {
			by = append(by, l)
		}
	}
	return by
}

// legend names a series by the values of its labels.
func legend(labels map[string]string, by []string) string {
	var parts []string
	for _, l := range by {
		switch v := labels[l]; {
		case v == "":
		case l == "gpu":
			parts = append(parts, "GPU "+v)
		default:
			parts = append(parts, v)
		}
	}
	return strings.Join(parts, " ")
}

// pick returns those of means (one for each line that could be drawn, told apart by the labels of
// by) that are drawn: at most the K that the query ranks, and at most limit. A notice says what was
// left out of a line that nobody asked to rank. Equal values are in the order of their labels; NaN
// comes last.
func (r *Run) pick(means []prom.Series, by []string, limit int, what string) []prom.Series {
	order := -1.0 // the largest first
	if r.Query.Rank == "bottom" {
		order = 1
	}
	means = slices.Clone(means)
	slices.SortStableFunc(means, func(a, b prom.Series) int {
		x, y := a.Value(), b.Value()
		if math.IsNaN(x) || math.IsNaN(y) {
			return cmp.Or(compareBool(math.IsNaN(x), math.IsNaN(y)), strings.Compare(key(a.Labels, by...), key(b.Labels, by...)))
		}
		return cmp.Or(cmp.Compare(order*x, order*y), strings.Compare(key(a.Labels, by...), key(b.Labels, by...)))
	})
	n := len(means)
	if r.Query.Rank != "" {
		n = min(n, r.Query.K)
	}
	if n > limit {
		which := "highest"
		if r.Query.Rank == "bottom" {
			which = "lowest"
		}
		r.LeftOut("%d of %d %s are shown, those with the %s average; group by fewer labels, choose fewer experiments, or raise the datasource's maxSeries.",
			limit, len(means), what, which)
		n = limit
	}
	return means[:n]
}

// compareBool puts false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// drawn asks for the chosen lines by the values of their labels and returns exactly those, each
// once.
func (r *Run) drawn(ctx context.Context, chosen []prom.Series, by []string, ask func(matchers ...string) question) ([]prom.Series, error) {
	answers, err := r.each(ctx, byValues(compiledBytes(r.Query), chosen, by, ask))
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, s := range chosen {
		wanted[key(s.Labels, by...)] = true
	}
	var out []prom.Series
	for _, s := range answers[0] {
		if k := key(s.Labels, by...); wanted[k] {
			delete(wanted, k)
			out = append(out, s)
		}
	}
	return out, nil
}

// byValues makes the questions about series by the values of their labels, as many in each as fit
// beside the bytes of what is chosen. Matchers of several labels also select what pairs the value
// of one series with that of another.
func byValues(beside int, chosen []prom.Series, by []string, ask func(matchers ...string) question) []question {
	chosen = slices.Clone(chosen)
	slices.SortFunc(chosen, func(a, b prom.Series) int { return strings.Compare(key(a.Labels, by...), key(b.Labels, by...)) })
	values := map[string]map[string]bool{} // of the question that is being put together
	size, bound := 0, namesBound(slices.ContainsFunc(chosen, func(s prom.Series) bool {
		return slices.ContainsFunc(by, func(l string) bool { return mustEscape(s.Labels[l]) })
	}), beside)
	var questions []question
	flush := func() {
		var matchers []string
		for _, l := range by {
			if len(values[l]) > 0 {
				matchers = append(matchers, OneOf(l, slices.Collect(maps.Keys(values[l]))...))
			}
		}
		if len(matchers) > 0 {
			questions = append(questions, ask(matchers...))
		}
		clear(values)
		size = 0
	}
	for _, s := range chosen {
		more := 0
		for _, l := range by {
			if !values[l][s.Labels[l]] {
				more += len(s.Labels[l]) + 1
			}
		}
		if size > 0 && size+more > bound {
			flush()
		}
		for _, l := range by {
			if values[l] == nil {
				values[l] = map[string]bool{}
			}
			if v := s.Labels[l]; !values[l][v] {
				values[l][v] = true
				size += len(v) + 1
			}
		}
	}
	flush()
	return questions
}

// emptyFrames is one frame of the type, without fields: there is nothing of it.
func emptyFrames(kind data.FrameType) data.Frames {
	f := data.NewFrame("")
	f.Meta = &data.FrameMeta{Type: kind, TypeVersion: data.FrameTypeVersion{0, 1}}
	return data.Frames{f}
}
