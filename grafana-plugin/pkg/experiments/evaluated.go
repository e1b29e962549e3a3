package experiments

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"
	commonmodel "github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

const (
	// leastEvaluations is in how many Intervals of a range a series is there of which it is told
	// that evaluations of the rules are missing: of fewer a single one is much, and where a range
	// ends within an Interval there is one more or less than of these.
	leastEvaluations = 20
	// mostRecorded is the share of a range from which on all of it counts as recorded.
	mostRecorded = 0.95
	// evaluationsOff is by how much of them there may be more or fewer evaluations than Intervals:
	// the ends of pods are seen late after a restart of the ruler.
	evaluationsOff = 0.1
)

// holding is a time in which something had GPU hours.
type holding struct {
	what, when  string   // what is counted, and the time, for a sentence
	matchers    []string // of experiment:pods:count
	clusters    set
	from, until time.Time
	hours       float64
}

// evaluated looks whether the rules were evaluated once in each Interval, which is what GPU hours
// are counted from, and says in a notice where they were not. rate is how many evaluations there
// were for each Interval in which what is counted was there; 1 where that was never for long. Of
// more than maxIdleSamples evaluations only the last ones are looked at.
func (r *Run) evaluated(ctx context.Context, l holding) (rate float64, err error) {
	interval, length := r.Settings.Interval(), l.until.Sub(l.from)
	if length < leastEvaluations*interval {
		return 1, nil
	}
	d := min(length, mostBack)
	late := d
	if samples := l.hours / interval.Hours(); samples > maxIdleSamples {
		late = max(leastEvaluations*interval, time.Duration(float64(d)*maxIdleSamples/samples))
	}
	counts := Selector("experiment:pods:count", append(l.matchers[:len(l.matchers):len(l.matchers)], OneOf("phase", "Running"))...)
	counted := "max by (cluster) (" + Selector(nodesCounted, OneOf("cluster", l.clusters.names()...)) + ")"
	there := fmt.Sprintf("count_over_time(%s[%s:%s]) >= %d", counts, seconds(late), seconds(interval), leastEvaluations)
	answers, err := r.each(ctx,
		[]question{r.at(fmt.Sprintf("sum (count_over_time(%[1]s[%[2]s]) and %[3]s) / sum (%[3]s)", counts, seconds(late), there), l.until)},
		scaled(r.lookStep(d).Seconds()/d.Seconds(), r.at("count_over_time("+r.lookAt(counted, d)+")", l.until)))
	if err != nil { // it is for notices alone
		if r.Alert || ctx.Err() != nil || errors.Is(err, ErrPanic) {
			return 1, err
		}
		return 1, nil
	}
	if err := r.noticeGaps(ctx, answers[1], l, d); err != nil {
		return 1, err
	}
	if len(answers[0]) == 0 {
		return 1, nil
	}
	switch rate = answers[0][0].Value(); {
	case rate < 1-evaluationsOff:
		r.LeftOut("%.0f %% of the evaluations of rule group experiment.pods are missing, as where one takes longer than %s (ruleInterval): "+
			"%s are too low by as much.", 100*(1-rate), commonmodel.Duration(interval), l.what)
	case rate > 1+evaluationsOff:
		r.Notice(data.NoticeSeverityWarning, "Rule group experiment.pods is evaluated %.1f times in each %s (ruleInterval): %s are too high by as much. "+
			"Set the datasource's ruleInterval to the interval of the group.", rate, commonmodel.Duration(interval), l.what)
	default:
		rate = 1
	}
	return rate, nil
}

// noticeGaps says of which clusters less than all of d before l ends was recorded. shares has a
// series for each. An alert is not evaluated then, but where there is a gap because all that is
// known of a cluster begins there.
func (r *Run) noticeGaps(ctx context.Context, shares []prom.Series, l holding, d time.Duration) error {
	gaps, least := map[string]float64{}, 1.0
	for _, s := range shares {
		if v := s.Value(); v < mostRecorded {
			gaps[s.Labels["cluster"]], least = v, min(least, v)
		}
	}
	if len(gaps) == 0 {
		return nil
	}
	if d < l.until.Sub(l.from) {
		l.when = "the last " + commonmodel.Duration(d).String() + " of " + l.when
	}
	in := set{}
	for c := range gaps {
		in[c] = true
	}
	if len(gaps) > 1 {
		l.when += ", where it is least,"
	}
	say := r.LeftOut
	if r.Alert {
		young, err := r.young(ctx, gaps, l.until, d)
		if err != nil {
			return err
		}
		if len(in.without(young)) == 0 {
			say = func(format string, args ...any) { r.Notice(data.NoticeSeverityWarning, format, args...) }
		}
	}
	say("%s may be too low: only %.0f %% of %s was recorded %s. The rules or kube-state-metrics stood still, or no more is stored.",
		l.what, 100*least, l.when, in.in())
	return nil
}

// young are those of clusters of which nothing was known before the d before until, and all was
// recorded since something is. gaps has the share of d that was. Where the time before cannot be
// asked for, there are none.
func (r *Run) young(ctx context.Context, gaps map[string]float64, until time.Time, d time.Duration) (set, error) {
	counted := Selector(nodesCounted, OneOf("cluster", slices.Collect(maps.Keys(gaps))...))
	answers, err := r.each(ctx,
		[]question{r.at(firstOf(counted, d, r.lookStep(d)), until)},
		[]question{r.at(fmt.Sprintf("group by (cluster) (last_over_time(%[1]s[1d])) or group by (cluster) (last_over_time(%[1]s[%[2]s:1h]))",
			counted, seconds(mostBack)), until.Add(-d))})
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, ErrPanic) {
			return nil, err
		}
		return set{}, nil
	}
	out, before := set{}, clustersIn(answers[1])
	for _, s := range answers[0] {
		c, since := s.Labels["cluster"], until.Sub(unixTime(s.Value()))
		if !before[c] && (since < leastEvaluations*r.Settings.Interval() || gaps[c]*float64(d) >= mostRecorded*float64(since)) {
			out[c] = true
		}
	}
	return out, nil
}
