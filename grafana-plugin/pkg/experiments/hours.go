package experiments

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

const (
	// hoursPart is how much of a long range one question about GPU hours looks at: 7,500 pods have
	// 11 million samples in a day.
	hoursPart = 24 * time.Hour
	// maxHoursParts is how many questions one range is cut into.
	maxHoursParts = 31
	// maxIdleSamples is how many samples of experiment:gpu:util are looked at for idle GPU hours;
	// of more only one in so many is.
	maxIdleSamples = 10e6
)

// gpuHours asks for the hours that GPUs were held in (from, until], summed by labels (a single
// number where by is empty): at most so many questions, whose answers are added. Each sample of
// experiment:pod:gpus says how many GPUs a pod held for one Interval.
func (r *Run) gpuHours(matchers []string, by string, from, until time.Time, most int) []question {
	var out []question
	for _, p := range parts(from, until, max(hoursPart, until.Sub(from)/time.Duration(most))) {
		held := Selector("experiment:pod:gpus", matchers...)
		out = append(out, r.at(fmt.Sprintf("sum by (%s) (sum_over_time(%s[%s]))", by, held, milliseconds(p.until.Sub(p.from))), p.until))
	}
	return scaled(r.Settings.Interval().Hours(), out...)
}

// byHolder are the labels of a pod that the series of its GPUs share with experiment:pod:gpus.
const byHolder = "cluster, namespace, pod, node, experiment, team"

// idleHours is gpuHours of GPUs whose use was below IdleBelow. Each GPU of a pod weighs as much as
// the pod holds on average of each that is measured: a quarter of a card is a quarter of an hour in
// an hour, as in gpuHours. held is how many GPU hours there are at most: where those have more than
// maxIdleSamples samples, the step is longer, and what is returned is an estimate.
func (r *Run) idleHours(matchers []string, by string, from, until time.Time, held float64) (questions []question, step time.Duration) {
	step = wholeSeconds(r.Settings.Interval())
	if samples := held / step.Hours(); samples > maxIdleSamples {
		step *= time.Duration(math.Ceil(samples / maxIdleSamples))
	}
	use, gpus := Selector("experiment:gpu:util", matchers...), Selector("experiment:pod:gpus", matchers...)
	idle := fmt.Sprintf("avg by (%[1]s) (%[2]s < bool %[3]g) * on (%[1]s) sum by (%[1]s) (%[4]s)", byHolder, use, r.Settings.Idle(), gpus)
	for _, p := range parts(from, until, max(hoursPart, step, until.Sub(from)/maxHoursParts)) {
		questions = append(questions, r.at(fmt.Sprintf("sum by (%s) (sum_over_time((%s)[%s:%s]))", by, idle,
			milliseconds(p.until.Sub(p.from)), seconds(step)), p.until))
	}
	return scaled(step.Hours(), questions...), step
}

// mostBack is how far back one question may reach by a proxy's default (max_range).
const mostBack = 31 * 24 * time.Hour

// measured asks which share of what was held over d before the range's end was measured: of a pod
// no more GPUs than it has series, and no more than it holds.
func (r *Run) measured(matchers []string, d time.Duration) question {
	use, gpus := Selector("experiment:gpu:util", matchers...), Selector("experiment:pod:gpus", matchers...)
	count := fmt.Sprintf("count by (%s) (%s)", byHolder, use)
	held := fmt.Sprintf("sum by (%s) (%s)", byHolder, gpus)
	seen := fmt.Sprintf("sum(%[1]s * on (%[2]s) clamp_max(%[3]s / on (%[2]s) %[1]s, 1))", count, byHolder, held)
	return r.at(fmt.Sprintf("sum_over_time(%s) / sum_over_time(%s)", r.lookAt(seen, d), r.lookAt("sum("+gpus+")", d)), r.Until)
}

// part is (from, until] of a longer range.
type part struct{ from, until time.Time }

// parts cuts (from, until] into parts of at most size, the last one shorter. They touch and do not
// overlap, since a range selector leaves its beginning out.
func parts(from, until time.Time, size time.Duration) []part {
	var out []part
	for from.Before(until) {
		end := from.Add(size)
		if end.After(until) {
			end = until
		}
		out = append(out, part{from, end})
		from = end
	}
	return out
}

// milliseconds writes a duration as PromQL does, exactly; at least one.
func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%dms", max(1, d.Milliseconds()))
}

// scaled are questions whose answers' values are multiplied.
func scaled(by float64, list ...question) []question {
	out := make([]question, len(list))
	for i, ask := range list {
		out[i] = func(ctx context.Context) ([]prom.Series, error) {
			series, err := ask(ctx)
			for _, s := range series {
				for i := range s.Points {
					s.Points[i].V *= by
				}
			}
			return series, err
		}
	}
	return out
}
