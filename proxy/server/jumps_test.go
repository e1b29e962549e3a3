package server

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestJumps: what rounds sums of fractions is put together from what shards have added, and is read
// raw only where the last bit of a sum decides. Either way it is the reference's answer. (The sum
// of 0.1, 0.2 and 0.3 is 0.6 on one server, and a bit more of two sums.)
func TestJumps(t *testing.T) {
	start := time.Now().Add(-30 * time.Minute).Truncate(time.Minute)
	serve := func(series string) string { return serverWith(t, "load 15s\n"+series, start) }
	of := func(labels string) [2]string {
		return [2]string{
			fmt.Sprintf("  part{%[1]sn=\"1\"} 0.1x120\n  part{%[1]sn=\"2\"} 0.2x120\n  odd{%[1]sn=\"1\"} 0.38+0.11x120\n  none{%[1]sn=\"1\"} 0x120\n"+
				"  big{%[1]sn=\"1\"} 45275.5x120\n  big{%[1]sn=\"2\"} 35101.4x120\n"+
				"  duo{%[1]sns=\"a\",pod=\"1\",n=\"1\"} 0.1x120\n  duo{%[1]sns=\"a\",pod=\"1\",n=\"2\"} 0.2x120\n"+
				"  duo{%[1]sns=\"b\",pod=\"1\",n=\"1\"} 0.6000000000000001x120\n"+
				"  duo{%[1]sns=\"a\",pod=\"2\",n=\"1\"} 7.1x120\n  duo{%[1]sns=\"b\",pod=\"2\",n=\"1\"} 7.1x120\n"+
				"  same{%[1]sk=\"1\",n=\"1\"} 0.1x120\n  same{%[1]sk=\"1\",n=\"2\"} 0.2x120\n  same{%[1]sk=\"2\",n=\"1\"} 0.3x120\n  same{%[1]sk=\"3\",n=\"1\"} 0.6x120\n", labels),
			fmt.Sprintf("  part{%[1]sn=\"3\"} 0.3x120\n  odd{%[1]sn=\"2\"} 1234.53+1.7x120\n  odd{%[1]sn=\"3\"} 1e7+0.3x120\n  none{%[1]sn=\"2\"} 0+0.5x120\n  big{%[1]sn=\"3\"} 43079.8x120\n  duo{%[1]sns=\"a\",pod=\"1\",n=\"3\"} 0.3x120\n"+
				"  same{%[1]sk=\"1\",n=\"3\"} 0.3x120\n  same{%[1]sk=\"2\",n=\"2\"} 0.3x120\n", labels),
		}
	}
	held, stored := of(`cluster="jaguar",`), of("")
	one := serve(held[0] + held[1])
	s, base := startProxy(t, t.Context(), fmt.Sprintf(
		"groups: [{name: jaguar, labels: {cluster: jaguar}, shards: [{replicas: [{url: %q}]}, {replicas: [{url: %q}]}]}]\n",
		serve(stored[0]), serve(stored[1])))
	at := start.Add(20 * time.Minute)
	for _, tc := range []struct {
		query   string
		decides bool // the last bit
	}{
		{"round(sum(odd), 0.001)", false},
		{"round(sum(odd))", false},
		{"ceil(sum by (cluster) (rate(odd[5m])))", false},
		{"floor(avg(odd))", false},
		{"sum by (n) (none) * 0 + 1 == bool 2 or floor(sum by (n) (rate(odd[5m])))", false},
		{"sgn(sum(none))", false},
		{"ceil(sum by (n) (none))", false}, // 0, and a whole number where the other one has a half
		{"round(100 * sum(rate(odd[5m])) / sum(part), 0.01)", false},
		{"hour(sum(rate(odd[5m])) * 6131.7)", false},
		{"sum(rate(odd[5m])) % 7", false},
		{"sum(odd) % 7", true},                                          // which leaves but few of its digits
		{"ceil(max(sum by (k) (same)) - min(sum by (k) (same)))", true}, // 0, and never again once a bit is off
		{"ceil(abs(sum(part) - 0.6))", true},
		{"max_over_time(round(sum(odd), 0.1)[5m:1m])", true}, // at steps that nobody looks at here
		{"sum(round(sum by (n) (odd), 0.1))", false},
		{"floor((sum(odd) or vector(0)) % 8640000)", false},
		{"floor((sum(rate(odd[5m])) or vector(0)) % 86400)", false},
		{"ceil(round(sum(rate(odd[5m])) or vector(0), 0.001))", false},
		{"sum(big) % 7", true},
		{"ceil(max by (pod) (sum by (ns, pod) (duo)) - min by (pod) (sum by (ns, pod) (duo)))", true},
		{"floor(100 * sum by (ns, pod) (duo) / on (pod) group_left () sum by (pod) (sum by (ns, pod) (duo)))", true},
		{"ceil(sum(part) * 10)", true},
		{"floor(sum(part) / sum(part) * 6)", false}, // divided by itself, whatever its last bit
		{"round(sum(part) * 10 - 0.5)", true},
		{"sum(part) * 10 % 6", true},
		{"minute(sum(part) * 100)", true},
		{"1e9 + ceil(sum(part) * 10)", true},
		{"sum(ceil(sum by (cluster) (part) * 10) or sum by (n) (odd) * 1e2)", true},
		{"round(sum(part) + 1e7, 0.4)", false}, // which has no place for its last bit
		{"count_values(\"v\", sum(part))", true},
		{"+sum(part) > 0.6", true},
		{"-(+sum(part)) < -0.6", true},
		{"clamp(part, scalar(sum(part)), 0.6)", true},
		{"quantile_over_time(scalar(sum(part) * 10 / 6), odd[5m])", true},
		{"vector(-2) ^ (sum(part) * 10 / 3)", true},
		{"(sum(odd) > sum(part)) unless on () absent(part{n=\"1\"})", false},
		{"round(sum(odd), 0.001) unless on () absent(part{n=\"1\"})", false},
		{"sum(odd * 1s7ms) + count(odd > 1s1ms)", false},
	} {
		for path, form := range map[string]url.Values{
			"/api/v1/query":       {"time": {stamp(at)}},
			"/api/v1/query_range": {"start": {stamp(at)}, "end": {stamp(at.Add(3 * time.Minute))}, "step": {"60"}},
		} {
			form.Set("query", tc.query)
			before := testutil.ToFloat64(s.metrics.inexact)
			var answers [2]valuesAt
			for i, url := range []string{base, one} {
				_, body := ask(t, url, path, form)
				var wrong string
				if answers[i], wrong = fromJSON(t, body); wrong != "" {
					t.Errorf("%s: %s", tc.query, wrong)
				}
			}
			if diff := compare(answers[0], answers[1], 1e-12); diff != "" {
				t.Errorf("%s: %s", tc.query, diff)
			}
			if raw := testutil.ToFloat64(s.metrics.inexact) > before; raw != tc.decides {
				t.Errorf("%s by %s: read raw is %t, want %t", tc.query, path, raw, tc.decides)
			}
		}
	}
}
