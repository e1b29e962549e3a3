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

const (
	// maxExprBytes is how long the text of a query can be once its macros are replaced: the proxy's
	// max_query_bytes.
	maxExprBytes = 64 << 10
	// maxKept is how many series of a user's own query are kept until the first of them by their
	// labels are known; no fewer than the settings' MaxSeries can be.
	maxKept = 10_000
)

// promqlQuery answers type promql: the user's own query over the panel's range, or at its end.
func promqlQuery(ctx context.Context, r *Run) (data.Frames, error) {
	expr, err := expand(r.Query.Expr, r.Query, r.Settings, r.Step(), r.length())
	if err != nil {
		return nil, err
	}
	name := func(labels map[string]string) string { return seriesName(r.Query.Legend, labels) }
	ctx = prom.WithMaxSeries(ctx, maxKept)
	if r.Query.Instant {
		answer, err := r.instant(ctx, expr, r.Until)
		if err != nil {
			return nil, err
		}
		if isRange(answer.Series) {
			return nil, fmt.Errorf("expr: the query gives many samples for each series; an instant query gives one: put a function such as last_over_time() around it")
		}
		return r.ownFrames(r.cut(answer), data.FrameTypeNumericMulti, name), nil
	}
	answer, err := r.rangeOf(ctx, expr, r.From, r.Until, r.Step())
	if err != nil {
		return nil, err
	}
	return r.ownFrames(r.cut(answer), data.FrameTypeTimeSeriesMulti, name), nil
}

// ownFrames makes the frames of a user's query, in which no series is no error: nothing is known of
// what it needs.
func (r *Run) ownFrames(series []prom.Series, kind data.FrameType, name func(map[string]string) string) data.Frames {
	frames := timeSeries(series, r.Step(), "", name)
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

// cut leaves the settings' MaxSeries series, the first by their labels of those that are kept, and
// says how many were left out. The others are kept by nothing then.
func (r *Run) cut(a prom.Answer) []prom.Series {
	type keyed struct {
		key string
		prom.Series
	}
	list := make([]keyed, len(a.Series))
	for i, s := range a.Series {
		list[i] = keyed{data.Labels(s.Labels).String(), s}
	}
	slices.SortFunc(list, func(a, b keyed) int { return cmp.Compare(a.key, b.key) })
	shown := min(len(list), r.Settings.MaxSeries)
	if n := len(list) + a.Left; n > shown {
		r.LeftOut("%d series are not shown: the query gives %d, and the datasource shows %d (maxSeries). Aggregate, for example with topk or sum by.", n-shown, n, shown)
	}
	if a.Left > 0 {
		r.LeftOut("Only the first %d series of the answer are looked at, so others may be shown when the panel is drawn again.", len(list))
	}
	out := make([]prom.Series, shown)
	for i := range out {
		out[i] = list[i].Series
	}
	return out
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

// chooses says whether a query asks for what is chosen, by $__experiment.
func chooses(expr string) bool {
	for {
		i := strings.IndexByte(expr, '$')
		if i < 0 {
			return false
		}
		name, n := macro(expr[i:])
		if name == "experiment" {
			return true
		}
		expr = expr[i+max(n, 1):]
	}
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
