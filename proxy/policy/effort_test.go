package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// terms are n selectors joined by +, each written by the format with its number.
func terms(n int, format string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = format
		if strings.Contains(format, "%") {
			list[i] = fmt.Sprintf(format, i)
		}
	}
	return strings.Join(list, "+")
}

// TestEffortIsBounded: subqueries weigh as much as the function does over them, all of the text
// counts together, and so do ranges that are sorted at each step.
func TestEffortIsBounded(t *testing.T) {
	dense := func(f string, points int) string { return fmt.Sprintf("%s(vector(1)[%ds:1s])", f, points) }
	for _, tc := range []struct {
		name, text string
		steps      int
		part       string // of the refusal; empty for none
	}{
		{"a sum over a dense subquery", dense("sum_over_time", 22_700), 11_000, ""},
		{"a quantile over it", "quantile_over_time(0.9,vector(1)[22700s:1s])", 11_000, "most of them by quantile_over_time over the range at 1:24"},
		{"a median deviation over it", dense("mad_over_time", 22_700), 11_000, "most of them by mad_over_time"},
		{"many sums over such", strings.Join([]string{
			dense("sum_over_time", 22_700), dense("sum_over_time", 22_600),
			dense("sum_over_time", 22_500), dense("sum_over_time", 22_400), dense("sum_over_time", 22_300), dense("sum_over_time", 22_200),
		},
			"+"), 11_000, "and the bound is 1250000000"},
		{"a forecast over it", "predict_linear(vector(1)[22700s:1s],60)", 11_000, "predict_linear"},
		{"much inside a dense subquery", "sum_over_time((vector(1)" + strings.Repeat("+1", 500) + ")[219999s:1s])", 1, "looks at points"},
		{"subqueries in a subquery", "max_over_time(max_over_time(vector(1)[1h:1s])[1d:1s])", 1, "look at"},
		{"quantiles of a day", "quantile_over_time(0.9,up[1d])", 2001, ""},
		{"median deviation of a day", "mad_over_time(up[1d])", 2001, ""},
		{"two quantiles of a day", "quantile_over_time(0.9,up[1d])/quantile_over_time(0.5,up[1d])", 2001, ""},
		{"quantiles of a month", "quantile_over_time(0.9,up[30d])", 11_000, "quantile_over_time"},
		{"quantiles of a month at one time", "quantile_over_time(0.9,up[30d] @ end())", 11_000, ""},
		{"a panel's subquery", "max_over_time(rate(up[5m])[1d:1m])", 2001, ""},
		{"quantiles of a panel's subquery", "quantile_over_time(0.99,rate(up[5m])[1d:1m])", 2001, ""},
		{"a long text at many steps", "1" + strings.Repeat("+1", 900), 11_000, ""},
	} {
		_, err := Decide(rangeQuery(tc.text, time.Duration(tc.steps-1)*time.Second, time.Second), testLimits(), nil, now)
		switch {
		case tc.part == "" && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.part == "":
		default:
			if e := refusal(t, err); e.Bound != BoundMaxPoints || !strings.Contains(e.Message, tc.part) {
				t.Errorf("%s: %s %s", tc.name, e.Bound, e.Message)
			}
		}
	}
}

// TestLeavesAreBounded: each selector is asked of each shard, so their number is bounded; equal
// ones are one.
func TestLeavesAreBounded(t *testing.T) {
	for _, tc := range []struct {
		name, text, seen string // seen is empty where it passes
	}{
		{"equal ones", terms(250, "up"), ""},
		{"too many equal ones", terms(300, "up"), "300"},
		{"different ones", terms(64, "m%d"), ""},
		{"too many different ones", terms(65, "m%d"), "65"},
		{"different ranges", terms(70, "rate(up[1%dm])"), "70"},
		{"different offsets", terms(70, "up offset %dm"), "70"},
		{"a sum of 700 that nobody has", terms(700, "sum(nope)"), "700"},
	} {
		_, err := Decide(instantQuery(tc.text), testLimits(), nil, now)
		if tc.seen == "" {
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			continue
		}
		if e := refusal(t, err); e.Bound != BoundQueryLeaves || e.Seen != tc.seen {
			t.Errorf("%s: %s %s", tc.name, e.Bound, e.Message)
		}
	}
}
