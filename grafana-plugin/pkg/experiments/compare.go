package experiments

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

const (
	// compareBack is how long before the end of the panel's range runs are looked for: the proxy's
	// max_range is 31 days.
	compareBack = 30 * 24 * time.Hour
	// compareLooks is how many times that long is looked for where a run began that is found.
	compareLooks = 4
	// comparePart is in what pieces that time is searched first.
	comparePart = time.Hour
	// runPause is how long an experiment may be away and come back as the same run.
	runPause = 24 * time.Hour
	// runTail is how long after the last pod ran what is known of its end is still looked at.
	runTail = 10 * time.Minute
	// maxRunParts is how many questions about GPU hours one run takes, but for those that ran for
	// more months.
	maxRunParts = 4
)

// run is one run of an experiment: from the first sample in which a pod with GPUs ran to the last.
type run struct {
	name        string
	matchers    []string
	points      []prom.Point // the parts of time in which it was there
	first, last time.Time
	running     bool // at the end of the panel's range
	older       bool // it began before first, or may have: nobody knows when
	cut         bool // older, since nothing is known of its clusters before first
}

// compare puts runs beside each other, also those from before the panel's range, which were there
// in the 30 days before its end. Where they began is looked for up to 120 days back; one that is
// older is told of in a notice, and not drawn. View series draws the metric of each, averaged over
// its GPUs in all clusters, over the time since its first pod with GPUs ran: that is at From. View
// summary is a table of the whole runs. An experiment that was away for more than a day and came
// back under its name is a new run, and the newest is taken.
func compare(ctx context.Context, r *Run) (data.Frames, error) {
	summary := r.Query.View == "summary"
	if n := len(r.Query.Experiments); n < 2 {
		r.Notice(data.NoticeSeverityInfo, "Choose 2 to %d experiments to compare; this is %d.", model.MaxCompared, n)
		if n == 0 && summary {
			return r.summaryFrames(nil), nil
		} else if n == 0 {
			return emptyFrames(data.FrameTypeTimeSeriesMulti), nil
		}
	}
	runs, err := r.findRuns(ctx)
	if err != nil {
		return nil, err
	}
	if len(runs) == 0 {
		if summary {
			return r.summaryFrames(nil), r.Empty(ctx, NeedPods|NeedHours, "runs")
		}
		return emptyFrames(data.FrameTypeTimeSeriesMulti), r.Empty(ctx, NeedPods|NeedHours, "runs")
	}
	if summary {
		rows := make([]runSummary, len(runs))
		for i, x := range runs {
			if rows[i], err = r.summarize(ctx, x); err != nil {
				return nil, err
			}
		}
		return r.summaryFrames(rows), nil
	}
	return r.compareSeries(ctx, runs)
}

// compareSeries draws the metric of each run whose beginning is known.
func (r *Run) compareSeries(ctx context.Context, runs []run) (data.Frames, error) {
	runs = slices.DeleteFunc(runs, func(x run) bool { return x.older })
	if len(runs) == 0 { // a notice says so of each
		return emptyFrames(data.FrameTypeTimeSeriesMulti), nil
	}
	step := r.recordedStep()
	questions := make([][]question, len(runs))
	for i, x := range runs {
		from := aligned(x.first, step)
		until := from.Add(r.length())
		if until.After(r.Until) {
			until = r.Until
		}
		if !until.Before(from) {
			questions[i] = []question{r.span("avg ("+Selector("experiment:gpu:"+string(r.Query.Metric), x.matchers...)+")", from, until,
				step)}
		}
	}
	answers, err := r.each(ctx, questions...)
	if err != nil {
		return nil, err
	}
	var series []prom.Series
	for i, answer := range answers {
		if len(answer) == 0 {
			r.Notice(data.NoticeSeverityWarning, "Nothing is known of this metric of %s since %s, when it began.", runs[i].name, runs[i].first.UTC().Format(time.DateTime+" MST"))
		}
		shift := r.From.Sub(aligned(runs[i].first, step)).Milliseconds()
		for _, s := range answer {
			s.Labels = map[string]string{"run": runs[i].name}
			for j := range s.Points {
				s.Points[j].T += shift
			}
			series = append(series, s)
		}
	}
	if len(series) == 0 {
		return emptyFrames(data.FrameTypeTimeSeriesMulti), r.Empty(ctx, NeedPods|NeedGPUs, "GPUs with this metric")
	}
	return timeSeries(series, step, r.Query.Metric.Unit(), func(l map[string]string) string { return l["run"] }), nil
}

// aligned is the first multiple of step that is not before t.
func aligned(t time.Time, step time.Duration) time.Time {
	if at := multiple(t, step); at.Before(t) {
		return at.Add(step)
	}
	return t
}

// findRuns finds when each experiment of the query last ran, in the query's order; a notice names
// those that did not.
func (r *Run) findRuns(ctx context.Context) ([]run, error) {
	var runs []run
	var questions [][]question
	// Whole hours, and what there is of the last one: a run that came back after the panel's end is
	// none of it.
	hours := r.Until.Truncate(comparePart)
	for _, name := range r.Query.Experiments {
		if slices.ContainsFunc(runs, func(x run) bool { return x.name == name }) {
			continue
		}
		q := r.Query
		q.Experiments = []string{name}
		x := run{name: name, matchers: Chosen(q)}
		runs = append(runs, x)
		list := []question{r.span(x.seen(comparePart), hours.Add(-compareBack), hours, comparePart)}
		if rest := r.Until.Sub(hours); rest > 0 {
			list = append(list, r.at(x.seen(rest), r.Until))
		}
		questions = append(questions, list)
	}
	answers, err := r.each(ctx, questions...)
	if err != nil {
		return nil, err
	}
	// The hours of the newest run are known; now its first and last sample.
	var found []run
	for i, x := range runs {
		if len(answers[i]) == 0 {
			r.missing(x)
			continue
		}
		for _, s := range answers[i] { // the hours stand before the rest
			x.points = append(x.points, s.Points...)
		}
		found = append(found, x.newest())
	}
	if err := r.lookBack(ctx, found, hours.Add(-compareBack)); err != nil {
		return nil, err
	}
	edges := make([][]question, 0, 2*len(found))
	for _, x := range found {
		edge := func(which string, at prom.Point) []question {
			query := fmt.Sprintf("%s (%s_over_time((timestamp(%s))[%s:%s]))", which, which, x.counted(), seconds(comparePart),
				seconds(minStep))
			return []question{r.at(query, time.UnixMilli(at.T).UTC())}
		}
		edges = append(edges, edge("min", x.points[0]), edge("max", x.points[len(x.points)-1]))
	}
	if answers, err = r.each(ctx, edges...); err != nil {
		return nil, err
	}
	runs = nil
	for i, x := range found {
		first, last := answers[2*i], answers[2*i+1]
		if len(first) == 0 || len(last) == 0 {
			r.missing(x)
			continue
		}
		x.first, x.last = unixTime(first[0].Value()), unixTime(last[0].Value())
		x.running = !x.last.Add(3 * r.Settings.Interval()).Before(r.Until)
		runs = append(runs, x)
	}
	if err := r.markCut(ctx, runs); err != nil {
		return nil, err
	}
	for _, x := range runs {
		at, why := x.first.UTC().Format(time.DateTime+" MST"), ""
		switch {
		case x.cut:
			why = fmt.Sprintf("%s was there at %s, when the first is known of its clusters, and may be older", x.name, at)
		case x.older:
			why = fmt.Sprintf("%s began before %s", x.name, at)
		default:
			continue
		}
		r.Notice(data.NoticeSeverityWarning, "%s: started, duration and GPU hours are those since then, and no line is drawn from its beginning.", why)
	}
	return runs, nil
}

// markCut finds the runs whose first sample is where what is known of their clusters begins: no
// more is stored, or the rules were installed then. These may have begun earlier. A cluster of
// which nodes are never counted tells nothing.
func (r *Run) markCut(ctx context.Context, runs []run) error {
	// Groups of rules are not evaluated at one time, and one may have been late.
	near := 2 * wholeSeconds(r.Settings.Interval())
	var questions [][]question
	for _, x := range runs {
		if x.older {
			questions = append(questions, nil)
			continue
		}
		began := fmt.Sprintf("group by (cluster) (%s @ %.3f)", x.counted(), float64(x.first.UnixMilli())/1000)
		known := func(d time.Duration, offset string) string {
			counted := Selector(nodesCounted, OneOf("cluster", r.Query.Clusters...)) + "[" + seconds(d) + "]" + offset
			return "group (group by (cluster) (last_over_time(" + counted + ")) and on (cluster) " + began + ")"
		}
		questions = append(questions, []question{r.at(known(2*near, "")+" unless "+known(comparePart, " offset "+seconds(2*near)),
			x.first.Add(near))})
	}
	answers, err := r.each(ctx, questions...)
	if err != nil {
		return err
	}
	for i := range runs {
		runs[i].cut = len(answers[i]) > 0
		runs[i].older = runs[i].older || runs[i].cut
	}
	return nil
}

// seen asks whether the run was there at some time in d.
func (x run) seen(d time.Duration) string {
	return "group (count_over_time(" + x.counted() + "[" + milliseconds(d) + "]))"
}

// newest is the run with its last points that no pause parts.
func (x run) newest() run {
	begin := len(x.points) - 1
	for begin > 0 && x.points[begin].T-x.points[begin-1].T <= runPause.Milliseconds() {
		begin--
	}
	x.points = x.points[begin:]
	return x
}

// lookBack looks for where those of runs began that were there, but for a pause, at from, where the
// first look began. What cannot be asked, as where a store of old samples is away, leaves them
// older.
func (r *Run) lookBack(ctx context.Context, runs []run, from time.Time) error {
	for look := 1; ; look++ {
		var questions [][]question
		var asked []int
		for i, x := range runs {
			runs[i].older = time.UnixMilli(x.points[0].T).Sub(from) <= runPause
			if runs[i].older {
				before := r.span(x.seen(comparePart), from.Add(-compareBack), from.Add(-comparePart), comparePart)
				questions, asked = append(questions, []question{before}), append(asked, i)
			}
		}
		if len(asked) == 0 || look == compareLooks {
			return nil
		}
		answers, err := r.each(ctx, questions...)
		if err != nil && ctx.Err() != nil {
			return err
		} else if err != nil {
			return nil
		}
		for j, i := range asked {
			x := &runs[i]
			for _, s := range answers[j] {
				x.points = slices.Concat(s.Points, x.points)
			}
			*x = x.newest()
		}
		from = from.Add(-compareBack)
	}
}

func (r *Run) missing(x run) {
	r.Notice(data.NoticeSeverityWarning, "%s had no running pod with GPUs in the %d days before %s.",
		x.name, compareBack/(24*time.Hour), r.Until.UTC().Format(time.DateTime+" MST"))
}

// counted selects the number of its running pods with GPUs: one series for each cluster and
// namespace.
func (x run) counted() string {
	return Selector("experiment:pods:count", append(x.matchers[:len(x.matchers):len(x.matchers)], OneOf("phase", "Running"))...)
}

type runSummary struct {
	run
	clusters           string
	ended              *time.Time
	duration           time.Duration
	hours, gpus        float64
	util               *float64
	restarts, failures int64
}

// summarize asks for everything about a whole run.
func (r *Run) summarize(ctx context.Context, x run) (runSummary, error) {
	out := runSummary{run: x, duration: x.last.Sub(x.first)}
	if !x.running {
		out.ended = &x.last
	} else {
		out.duration = r.Until.Sub(x.first)
	}
	// The first sample is in: a range leaves its beginning out.
	begin, end := x.first.Add(-time.Second), x.last
	life := end.Sub(begin)
	hours := r.gpuHours(x.matchers, "", begin, end, max(maxRunParts, int(life/compareBack)+1))
	if life > compareBack {
		begin, life = end.Add(-compareBack), compareBack
		r.Notice(data.NoticeSeverityInfo, "%s ran for more than %d days: its clusters, mean_util, restarts, failures and gpus are those of the last %[2]d.",
			x.name, compareBack/(24*time.Hour))
	}
	known := end.Add(runTail)
	if known.After(r.Until) {
		known = r.Until
	}
	lived := milliseconds(known.Sub(begin))
	gpus := Selector("experiment:pod:gpus", x.matchers...)
	use, n := Selector("experiment:gpu_util:avg", x.matchers...), Selector("experiment:gpu_util:count", x.matchers...)
	pods, err := r.pods(ctx, fmt.Sprintf("last_over_time(%s[%s] @ %.3f)", Selector("experiment:pod:info", x.matchers...), lived,
		float64(known.UnixMilli())/1000))
	if err != nil {
		return out, err
	}
	answers, err := r.each(ctx,
		[]question{r.at("group by (cluster) (last_over_time("+x.counted()+"["+milliseconds(life)+"]))", end)},
		hours,
		[]question{r.at("max_over_time("+r.lookAt("sum ("+gpus+")", life)+")", end)},
		// The mean of all GPUs at all times, from the means that are recorded.
		[]question{r.at("sum (sum_over_time("+r.lookAt(use+" * "+n, life)+")) / sum (sum_over_time("+r.lookAt(n, life)+"))", end)},
		onUIDs(pods, func(of selectPods) question {
			return r.at("sum by ("+byPod+") (max by ("+byPod+", container) (max_over_time("+
				of("kube_pod_container_status_restarts_total")+"["+lived+"])))", known)
		}),
		onUIDs(pods, func(of selectPods) question {
			return r.at("max by ("+byPod+") (max_over_time("+of("kube_pod_status_phase", OneOf("phase", "Failed"))+"["+lived+"])) > 0",
				known)
		}),
	)
	if err != nil {
		return out, err
	}
	clusters := clustersIn(answers[0])
	names := clusters.names()
	out.clusters = strings.Join(names, ", ")
	if !x.running {
		lost, err := r.lostSince(ctx, names, x.last)
		if err != nil {
			return out, err
		}
		if len(lost) > 0 {
			out.ended = nil
			r.noticeLost(lost)
		}
	}
	for _, s := range answers[1] {
		out.hours += s.Value()
	}
	held := holding{"GPU hours of " + x.name, "its time", x.matchers, clusters, x.first.Add(-time.Second), end, out.hours}
	if _, err := r.evaluated(ctx, held); err != nil {
		return out, err
	}
	for _, s := range answers[2] {
		out.gpus = s.Value()
	}
	for _, s := range answers[3] {
		v := s.Value()
		out.util = &v
	}
	for _, v := range valueOf(answers[4]) {
		out.restarts += int64(v)
	}
	out.failures = int64(len(valueOf(answers[5])))
	return out, nil
}

// summaryFrames is the table of runs. Columns from and to are a range that a run lies in, in
// milliseconds, for links.
func (r *Run) summaryFrames(rows []runSummary) data.Frames {
	n := len(rows)
	name, clusters, started, ended := make([]string, n), make([]string, n), make([]time.Time, n), make([]*time.Time, n)
	duration, hours, util, gpus := make([]float64, n), make([]float64, n), make([]*float64, n), make([]float64, n)
	restarts, failures := make([]int64, n), make([]int64, n)
	from, to := make([]string, n), make([]string, n)
	for i, s := range rows {
		end := s.last
		if s.running {
			end = r.Until
		}
		// No more than a proxy answers at once. Text, since Grafana puts numbers into links as it
		// shows them.
		start := s.first.Add(-r.Settings.Interval())
		if least := end.Add(-compareBack); start.Before(least) {
			start = least
		}
		from[i] = strconv.FormatInt(start.UnixMilli(), 10)
		to[i] = strconv.FormatInt(end.UnixMilli(), 10)
		name[i], clusters[i], started[i], ended[i] = s.name, s.clusters, s.first, s.ended
		duration[i], hours[i], util[i], gpus[i] = s.duration.Seconds(), s.hours, s.util, s.gpus
		restarts[i], failures[i] = s.restarts, s.failures
	}
	return data.Frames{table(
		column{"run", name, experimentLinks(r.Settings, map[string]string{"experiment": "run"})},
		column{"clusters", clusters, nil},
		column{"started", started, nil},
		column{"ended", ended, nil},
		column{"duration", duration, &data.FieldConfig{Unit: "s"}},
		column{"gpu_hours", hours, &data.FieldConfig{Unit: hoursUnit}},
		column{"mean_util", util, &data.FieldConfig{Unit: "percent"}},
		column{"restarts", restarts, nil},
		column{"failures", failures, nil},
		column{"gpus", gpus, nil},
		column{"from", from, nil},
		column{"to", to, nil},
	)}
}
