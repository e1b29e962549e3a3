package experiments

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// maxExprBytes is how long the text of a query can be once its macros are replaced: the proxy's
// max_query_bytes.
const maxExprBytes = 64 << 10

// promqlQuery answers type promql: the user's own query over the panel's range, or at its end.
func promqlQuery(ctx context.Context, r *Run) (data.Frames, error) {
	expr, err := expand(r.Query.Expr, r.Query, r.Settings, r.Step(), r.length())
	if err != nil {
		return nil, err
	}
	name := func(labels map[string]string) string { return seriesName(r.Query.Legend, labels) }
	if r.Query.Instant {
		series, err := r.Instant(ctx, expr, r.Until)
		if err != nil {
			return nil, err
		}
		if isRange(series) {
			return nil, fmt.Errorf("expr: the query gives many samples for each series; an instant query gives one: put a function such as last_over_time() around it")
		}
		return r.ownFrames(r.cut(series), data.FrameTypeNumericMulti, name), nil
	}
	series, err := r.Range(ctx, expr)
	if err != nil {
		return nil, err
	}
	return r.ownFrames(r.cut(series), data.FrameTypeTimeSeriesMulti, name), nil
}

// ownFrames makes the frames of a user's query, in which no series is no error: nothing is known of
// what it needs.
func (r *Run) ownFrames(series []prom.Series, kind data.FrameType, name func(map[string]string) string) data.Frames {
	frames := timeSeries(series, "", name)
	if kind == data.FrameTypeNumericMulti {
		for i, f := range frames {
			value := f.Fields[1]
			frames[i] = data.NewFrame("", value)
			frames[i].Meta = &data.FrameMeta{Type: kind, TypeVersion: data.FrameTypeVersion{0, 1}}
		}
	}
	if len(frames) > 0 {
		return frames
	}
	r.Notice(data.NoticeSeverityInfo, "The query gives no series between %s and %s. $__experiment stands for %s.",
		r.From.UTC().Format(time.DateTime), r.Until.UTC().Format(time.DateTime+" MST"), experimentMacro(r.Query))
	empty := data.NewFrame("")
	empty.Meta = &data.FrameMeta{Type: kind, TypeVersion: data.FrameTypeVersion{0, 1}}
	return data.Frames{empty}
}

// cut leaves the settings' MaxSeries series, the first by their labels, and says how many were left
// out.
func (r *Run) cut(series []prom.Series) []prom.Series {
	slices.SortFunc(series, func(a, b prom.Series) int {
		return cmp.Compare(data.Labels(a.Labels).String(), data.Labels(b.Labels).String())
	})
	if n := r.Settings.MaxSeries; len(series) > n {
		r.Notice(data.NoticeSeverityWarning, "%d series are not shown: the query gives %d, and the datasource shows %d (maxSeries). Aggregate, for example with topk or sum by.", len(series)-n, len(series), n)
		return series[:n]
	}
	return series
}

// isRange tells whether an instant query gave several samples of a series.
func isRange(series []prom.Series) bool {
	return slices.ContainsFunc(series, func(s prom.Series) bool { return len(s.Points) > 1 })
}

// experimentMacro is what $__experiment stands for: matchers of what is chosen; where nothing is,
// one that every recorded series of an experiment passes.
func experimentMacro(q model.Query) string {
	if m := Chosen(q); len(m) > 0 {
		return strings.Join(m, ",")
	}
	return `experiment!=""`
}

// expand replaces the macros of a query in one pass: what a name of an experiment contains is never
// taken for one.
//
//   - $__experiment: matchers of what is chosen, to stand between braces:
//     experiment:gpu:util{$__experiment, gpu="0"}
//   - $__interval and $__interval_ms: the step
//   - $__rate_interval: a window that holds at least four samples, and no less than a step and one
//     sample
//   - $__range, $__range_s and $__range_ms: the panel's range
//   - $__idle_below: the settings' IdleBelow, in percent
//
// Each may be written with braces too: ${__range}. Another name that begins with $__ is an error; a
// $ that begins none of these stays, as in regular expressions.
func expand(expr string, q model.Query, s model.Settings, step, length time.Duration) (string, error) {
	sample := s.Interval()
	values := map[string]string{
		"experiment":    experimentMacro(q),
		"interval":      seconds(step),
		"interval_ms":   fmt.Sprint(step.Milliseconds()),
		"rate_interval": seconds(max(step+sample, 4*sample)),
		"range":         seconds(length),
		"range_s":       fmt.Sprint(max(1, int64(length.Round(time.Second)/time.Second))),
		"range_ms":      fmt.Sprint(max(1000, length.Milliseconds())),
		"idle_below":    fmt.Sprint(s.Idle()),
	}
	var b strings.Builder
	for rest := expr; ; {
		i := strings.IndexByte(rest, '$')
		if i < 0 {
			b.WriteString(rest)
			break
		}
		b.WriteString(rest[:i])
		name, n := macro(rest[i:])
		value, ok := values[name]
		switch {
		case n == 0:
			b.WriteByte('$')
			n = 1
		case !ok:
			return "", fmt.Errorf("expr: $__%s is no macro; there are $__experiment, $__interval, $__rate_interval, $__range and $__idle_below", name)
		default:
			b.WriteString(value)
		}
		rest = rest[i+n:]
	}
	if b.Len() > maxExprBytes {
		return "", fmt.Errorf("expr: the query has %d bytes with its macros replaced, and at most %d are sent; choose fewer experiments", b.Len(), maxExprBytes)
	}
	return b.String(), nil
}

// macro reads $__name or ${__name} at the beginning of s: its name without the underscores and how
// long it is, 0 where there is none.
func macro(s string) (name string, n int) {
	begin, end := "$__", ""
	if strings.HasPrefix(s, "${__") {
		begin, end = "${__", "}"
	}
	rest, ok := strings.CutPrefix(s, begin)
	if !ok {
		return "", 0
	}
	name = rest[:len(rest)-len(strings.TrimLeft(rest, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"))]
	if name == "" || !strings.HasPrefix(rest[len(name):], end) {
		return "", 0
	}
	return name, len(begin) + len(name) + len(end)
}

// seriesName is a series' name: format with {{label}} replaced by the label's value; without a
// format, the series as PromQL writes it. Values are not read again.
func seriesName(format string, labels map[string]string) string {
	if format == "" {
		name := labels["__name__"]
		var pairs []string
		for _, k := range slices.Sorted(maps.Keys(labels)) {
			if k != "__name__" {
				pairs = append(pairs, fmt.Sprintf("%s=%q", k, labels[k]))
			}
		}
		if len(pairs) == 0 && name != "" {
			return name
		}
		return name + "{" + strings.Join(pairs, ", ") + "}"
	}
	var b strings.Builder
	for rest := format; ; {
		before, after, ok := strings.Cut(rest, "{{")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		label, behind, closed := strings.Cut(after, "}}")
		if !closed {
			b.WriteString("{{" + after)
			return b.String()
		}
		b.WriteString(labels[strings.TrimSpace(label)])
		rest = behind
	}
}
