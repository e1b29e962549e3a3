package rewrite

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/policy"
)

// ranges are the texts of all ranges in brackets that are shorter than 33d.
func ranges(format string) (out []string) {
	for _, d := range []string{"31d", "30d", "2w", "1w", "3d", "2d", "1d", "12h", "6h", "3h", "1h", "30m", "15m", "5m"} {
		out = append(out, fmt.Sprintf(format, d))
	}
	return out
}

// TestMeaning: what the text would not say of itself is not proposed.
func TestMeaning(t *testing.T) {
	pairs := []Pair{{"pod", "a"}, {"job", `j"r`}}
	metrics := []string{"m_total", "m"}
	for _, tc := range []struct {
		name, bound, query string
		over               time.Duration // of a range query at a step of 15s; 0 is an instant one
		kind               Kind
		want               []string
	}{
		{
			"a matcher", policy.BoundMaxSeries,
			`rate(x{pod=~"a.*"}[5m])`,
			0, Matcher,
			[]string{`rate(x{pod="a"}[5m])`, `rate(x{job="j\"r",pod=~"a.*"}[5m])`},
		},
		{
			"a value that is not among those asked for", policy.BoundMaxSeries,
			`x{pod=~"b.*"}`,
			0, Matcher,
			[]string{`x{job="j\"r",pod=~"b.*"}`},
		},
		{"a part of what is selected", policy.BoundMaxSeriesTouched, `count(x)`, 0, Matcher, []string{
			`count(x{pod="a"})`, `count(x{job="j\"r"})`,
		}},
		{"a label that one side has fixed", policy.BoundMaxSeries, `x * on (pod) y{pod="b"}`, 0, Matcher, nil},
		{
			"joined by the label", policy.BoundMaxSeries,
			`x * on (pod) group_left (node) y`,
			0, Matcher,
			[]string{`x{pod="a"} * on (pod) group_left (node) y{pod="a"}`},
		},
		{
			"joined without the label", policy.BoundMaxSeries,
			`x * ignoring (pod) group_left () y`,
			0, Matcher,
			[]string{`x{job="j\"r"} * ignoring (pod) group_left () y{job="j\"r"}`},
		},
		{
			"joined after the label is gone", policy.BoundMaxSeries,
			`sum by (job) (x) / sum by (job) (y)`,
			0, Matcher,
			[]string{`sum by (job) (x{job="j\"r"}) / sum by (job) (y{job="j\"r"})`},
		},
		{"a part of all", policy.BoundMaxSeries, `x / on () group_left () sum(x)`, 0, Matcher, nil},
		{"a part of a number", policy.BoundMaxSeries, `x / scalar(sum(x))`, 0, Matcher, nil},
		{"both", policy.BoundMaxSeries, `x and on (pod) y`, 0, Matcher, []string{`x{pod="a"} and on (pod) y{pod="a"}`}},
		{"unless", policy.BoundMaxSeries, `x unless on (pod, job) y`, 0, Matcher, nil},
		{"or", policy.BoundMaxSeries, `x or y`, 0, Matcher, nil},
		{"absent", policy.BoundMaxSeries, `absent(x)`, 0, Matcher, nil},
		{"absent over a time", policy.BoundMaxSeries, `absent_over_time(x[1h])`, 0, Matcher, nil},
		{
			"a label that is written", policy.BoundMaxSeries,
			`label_replace(x, "pod", "$1", "job", "(.*)")`,
			0, Matcher,
			[]string{`label_replace(x{job="j\"r"}, "pod", "$1", "job", "(.*)")`},
		},
		{
			"values that become the label", policy.BoundMaxSeries,
			`count_values("pod", x)`,
			0, Matcher,
			[]string{`count_values("pod", x{job="j\"r"})`},
		},
		{"info", policy.BoundMaxSeries, `info(x)`, 0, Matcher, nil},

		{"ranges that differ", policy.BoundMaxRange, `rate(x[60d]) / rate(x[1h])`, 0, Range, nil},
		{"ranges that would be the same", policy.BoundMaxRange, `rate(x[60d]) - rate(x[31d])`, 0, Range, nil},
		{"absent in a range", policy.BoundMaxRange, `absent_over_time(x[60d])`, 0, Range, nil},
		{"a sum by its range", policy.BoundMaxRange, `sum_over_time(x[60d]) / 345600`, 0, Range, nil},
		{"a sum by its range in steps", policy.BoundMaxRange, `sum(count_over_time(x[60d])) / (60 * 24 * 60)`, 0, Range, nil},
		{"a sum by a number on the left", policy.BoundMaxRange, `100 * (1 - increase(x_total[60d]) / 1e6)`, 0, Range, nil},
		{"a sum beside another vector", policy.BoundMaxRange, `changes(x[60d]) / y`, 0, Range, nil},
		{"a sum by a number that is computed", policy.BoundMaxRange, `resets(x[60d]) / vector(60)`, 0, Range, nil},
		{"a sum that has a ceiling", policy.BoundMaxRange, `clamp_max(increase(x_total[60d]), 1000)`, 0, Range, nil},
		{"a sum of a subquery", policy.BoundMaxRange, `sum_over_time(x[60d:1h]) * 3600`, 0, Range, nil},
		{"a rate by its range in seconds", policy.BoundMaxRange, `rate(x_total[60d]) * 5184000`, 0, Range, nil},
		{"a rate by its range in days", policy.BoundMaxRange, `60 * sum(avg_over_time(x[60d]))`, 0, Range, nil},
		{"a rate by a product", policy.BoundMaxRange, `rate(x_total[60d]) * (60 * 86400)`, 0, Range, nil},
		{
			"a rate in another unit", policy.BoundMaxRange, `rate(x_total[33d]) * 8`, 0, Range,
			ranges("rate(x_total[%s]) * 8"),
		},
		{
			"two sums of the same range", policy.BoundMaxRange, `sum(increase(x_total[33d])) / sum(increase(y_total[33d]))`, 0, Range,
			ranges("sum(increase(x_total[%[1]s])) / sum(increase(y_total[%[1]s]))"),
		},
		{"more than in a range", policy.BoundMaxRange, `increase(x[60d]) > 100`, 0, Range, nil},
		{"a subquery's range, not below four of its steps nor of the range in it", policy.BoundMaxShardBytes, `avg_over_time(rate(x[1h])[1d:1h])`, 0, Range, []string{
			`avg_over_time(rate(x[1h])[12h:1h])`, `avg_over_time(rate(x[1h])[6h:1h])`,
		}},
		{"no range is too short for what is scraped", policy.BoundMaxShardBytes, `rate(x[10m])`, 0, Range, []string{`rate(x[5m])`}},

		{
			"a subquery's step", policy.BoundMaxShardBytes,
			`max_over_time(x[1h:5m])`,
			0, Step,
			[]string{`max_over_time(x[1h:10m])`, `max_over_time(x[1h:15m])`},
		},
		{"below an absence", policy.BoundMaxShardBytes, `absent(max_over_time(x[1h:5m]))`, 0, Step, nil},
		{"filled where there is none", policy.BoundMaxShardBytes, `max_over_time(x[1h:5m]) + on (pod) fill (0) y`, 0, Step, nil},
		{"filled on one side", policy.BoundMaxRange, `rate(x[60d]) + on (pod) fill_right (0) rate(y[60d])`, 0, Range, nil},
		{"how many steps there are", policy.BoundMaxShardBytes, `count_over_time(x[1h:5m])`, 0, Step, nil},
		{"what is left of the others", policy.BoundMaxShardBytes, `x unless max_over_time(x[1h:5m])`, 0, Step, nil},
		{"the last of them", policy.BoundMaxShardBytes, `last_over_time(x[1h:5m])`, 0, Step, nil},
		{"what they sum up to", policy.BoundMaxShardBytes, `sum_over_time(x[1h:5m])`, 0, Step, nil},

		{"a step as a number", policy.BoundMaxPoints, `increase(x_total[1m]) / step()`, time.Hour, Step, nil},
		{"a range as a number", policy.BoundMaxSamples, `sum(increase(x_total[1h])) / range()`, time.Hour, Window, nil},
		{"the start as a number", policy.BoundMaxSamples, `x and on () vector(time()) > start() + 60`, time.Hour, Window, nil},
		{"the end as a number", policy.BoundMaxSamples, `(end() - time()) * x`, time.Hour, Step, nil},
		{"in what a function is given", policy.BoundMaxSamples, `clamp_max(x, step())`, time.Hour, Window, nil},
		{"a step beside a range in brackets", policy.BoundMaxRange, `rate(x_total[60d]) * step()`, time.Hour, Range, nil},
		{"a step beside that of a subquery", policy.BoundMaxShardBytes, `max_over_time(x[1h:5m]) * step()`, time.Hour, Step, nil},
		{
			"the time of each moment", policy.BoundMaxSamples, `time() - x`, 6 * time.Minute, Window,
			[]string{`the last 5m of this range`, `the last 1m of this range`},
		},

		{"the start of the range", policy.BoundMaxSamples, `x @ start()`, time.Hour, Window, nil},
		{"a subquery at the start of the range", policy.BoundMaxSamples, `max_over_time(x[1h:1m] @ start())`, time.Hour, Window, nil},
		{"how long the range is", policy.BoundMaxSamples, `rate(x[range()])`, time.Hour, Window, nil},
		{"how long a step is", policy.BoundMaxSamples, `rate(x[step()])`, time.Hour, Step, nil},
		{"the end of the range", policy.BoundMaxSamples, `x @ end()`, time.Minute, Step, nil}, // it has four steps
		{
			"the end of a longer range", policy.BoundMaxSamples,
			`x @ end()`,
			6 * time.Minute, Window,
			[]string{`the last 5m of this range`, `the last 1m of this range`},
		},

		{"a gauge is not added up", policy.BoundMaxSeries, `x_bytes`, 0, Aggregation, []string{`topk(10, x_bytes)`}},
		{
			"a ratio is not added up", policy.BoundMaxSeries,
			`rate(x_total[5m]) / rate(y_total[5m])`,
			0, Aggregation,
			[]string{`topk(10, rate(x_total[5m]) / rate(y_total[5m]))`},
		},
		{"bytes as bits are", policy.BoundMaxSeries, `8 * rate(x_total[5m])`, 0, Aggregation, []string{
			`topk(10, 8 * rate(x_total[5m]))`, `sum by (namespace) (8 * rate(x_total[5m]))`,
			`sum by (job) (8 * rate(x_total[5m]))`, `sum(8 * rate(x_total[5m]))`,
		}},
		{"a sum without labels is", policy.BoundMaxSeries, `sum without (pod, job) (rate(x_total[5m]))`, 0, Aggregation, []string{
			`topk(10, sum without (pod, job) (rate(x_total[5m])))`, `sum by (namespace) (sum without (pod, job) (rate(x_total[5m])))`,
			`sum(sum without (pod, job) (rate(x_total[5m])))`,
		}},
		{
			"buckets keep their bounds", policy.BoundMaxSeries,
			`rate(x_bucket[5m])`,
			0, Aggregation,
			[]string{`topk(10, rate(x_bucket[5m]))`, `sum by (le) (rate(x_bucket[5m]))`},
		},
		{
			"a quantile is not added up", policy.BoundMaxSeries,
			`histogram_quantile(0.9, rate(x_bucket[5m]))`,
			0, Aggregation,
			[]string{`topk(10, histogram_quantile(0.9, rate(x_bucket[5m])))`},
		},
		{
			"a sum over bounds of buckets has none", policy.BoundMaxSeries, `sum without (le) (rate(x_bucket[5m]))`, 0, Aggregation,
			[]string{`topk(10, sum without (le) (rate(x_bucket[5m])))`},
		},
		{
			"how far groups are apart", policy.BoundMaxSeries, `stddev by (namespace, pod) (x)`, 0, Aggregation,
			[]string{`topk(10, stddev by (namespace, pod) (x))`},
		},
		{"how far all are apart", policy.BoundMaxSeries, `stdvar(x)`, 0, Aggregation, nil},
		{"nothing to choose from", policy.BoundMaxSeries, `absent(x)`, 0, Aggregation, nil},
		{"nor over a time", policy.BoundMaxSeries, `absent_over_time(x[1h])`, 0, Aggregation, nil},
		{"nor of a number", policy.BoundMaxSeries, `vector(scalar(sum(x)))`, 0, Aggregation, nil},
		{
			"what is left of the others is not added up", policy.BoundMaxSeries, `count without (pod) (x unless y)`, 0, Aggregation,
			[]string{`topk(10, count without (pod) (x unless y))`},
		},
		{
			"names stay", policy.BoundMaxSeries,
			`count by (__name__, pod) ({job="a"})`,
			0, Aggregation,
			[]string{`count by (__name__) ({job="a"})`},
		},

		{
			"one metric", policy.BoundUnselective,
			`count({pod!=""})`,
			0, Metric,
			[]string{`count(m_total{pod!=""})`, `count(m{pod!=""})`},
		},
		{"the rate of a gauge", policy.BoundUnselective, `rate({pod!=""}[5m])`, 0, Metric, []string{`rate(m_total{pod!=""}[5m])`}},
		{"the slope of a counter", policy.BoundUnselective, `deriv({pod!=""}[5m])`, 0, Metric, []string{`deriv(m{pod!=""}[5m])`}},
		{"two selectors", policy.BoundUnselective, `{pod!=""} / on (pod) {job!=""}`, 0, Metric, nil},
		{"the names themselves", policy.BoundUnselective, `count by (__name__) ({pod!=""})`, 0, Metric, nil},
		{"what is absent", policy.BoundUnselective, `absent({pod!=""})`, 0, Metric, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			step := time.Duration(0)
			if tc.over > 0 {
				step = 15 * time.Second
			}
			q := asked(t, tc.bound, tc.query, tc.over, step)
			q.Pairs, q.Metrics = slices.Values(pairs), slices.Values(metrics)
			var got []string
			for _, c := range candidates(q) {
				if c.Kind == tc.kind {
					got = append(got, Words(q.Request, c.Request))
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s\nwant %s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

// TestMoments: the moments of a shorter window and of a longer step are among those of the request.
func TestMoments(t *testing.T) {
	for _, step := range []time.Duration{7 * time.Second, 15 * time.Second, 1500 * time.Millisecond, time.Hour, 100 * time.Minute} {
		q := asked(t, policy.BoundMaxPoints, "up", 9*24*time.Hour+time.Minute, step)
		found := candidates(q)
		if len(found) < 5 {
			t.Errorf("%s: %d candidates", step, len(found))
		}
		was := q.Request
		for _, c := range found {
			r := c.Request
			if (r.Start.Ms-was.Start.Ms)%step.Milliseconds() != 0 || r.Step%step != 0 || r.End != was.End ||
				r.Start.Ms < was.Start.Ms || r.Start.Ms > r.End.Ms {
				t.Errorf("%s: from %d every %s is %s", step, r.Start.Ms-was.Start.Ms, r.Step, Words(was, r))
			}
		}
	}
}
