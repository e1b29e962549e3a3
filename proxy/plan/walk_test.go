package plan

import (
	"context"
	"slices"
	"testing"
	"time"
)

// TestParametersThatAreNotPrepared: what the engine evaluates otherwise in the parameter of an
// aggregate than in a query of its own is not sent to the shards as one; what it does not is.
func TestParametersThatAreNotPrepared(t *testing.T) {
	top, now := benchTopology(t, 4, nil), time.Now()
	for _, c := range []struct {
		param string
		sent  []string // besides what is aggregated
	}{
		{`scalar(min(up))`, []string{"min(up)"}},
		{`scalar((min(up)))`, []string{"min(up)"}},
		{`scalar(min(abs(up offset 5m)))`, []string{"min(abs(up offset 5m))"}},
		{`scalar(min(up @ start()))`, nil},
		{`scalar(min(up @ end()))`, nil},
		{`scalar(min(up @ 5)) + scalar(max(up))`, nil},
		{`scalar(min(max_over_time(up[1h:] @ start())))`, nil},
		{`scalar(max(max_over_time(sum by (node) (up)[1h:] @ 5)))`, nil},
		{`scalar(max_over_time(sum(up @ 5)[1h:]))`, nil},
		{`scalar(max(timestamp((up))))`, nil},
		{`scalar(sum(rate((up[5m]))))`, nil},
		{`scalar(sum(max_over_time((up[1h:]))))`, nil},
		{`scalar(sum(label_replace(up, ("a"), "", "", "")))`, nil},
		{`scalar(count(count_values(("a"), up)))`, nil},
	} {
		for text, want := range map[string][]string{
			`quantile(` + c.param + `, max by (job) (up))`:   append([]string{"max by (job) (up)"}, c.sent...),
			`topk((` + c.param + `), max by (job) (up @ 5))`: append([]string{"max by (job) (up @ 5.000)"}, c.sent...),
		} {
			p, err := NewView(top, now).Query(context.Background(), rangeOf(t, text, now))
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			var sent []string
			for _, l := range p.Leaves {
				sent = append(sent, l.Parts[0].Query)
			}
			if !slices.Equal(sent, want) {
				t.Errorf("%s: the shards are sent %q, not %q", text, sent, want)
			}
		}
	}
}
