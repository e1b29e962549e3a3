package shard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/proxy/config"
)

// TestAgainstPrometheus: Prometheus' own API answers the prober's questions and the heartbeat's.
// Two replicas hold the last two hours of ten targets; the second missed every scrape of ten
// minutes an hour ago.
func TestAgainstPrometheus(t *testing.T) {
	now := time.Now().Truncate(time.Minute)
	gapFrom, gapUntil := now.Add(-70*time.Minute), now.Add(-60*time.Minute)
	start := func(replica string, gap bool) string {
		p, err := localprom.Start(context.Background(), localprom.Options{
			DisableWAL: true, ExternalLabels: labels.FromStrings("cluster", "jaguar", "prometheus_replica", replica),
			BlockDuration: 24 * time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		var b strings.Builder
		b.WriteString("load 15s\n")
		for i := range 10 {
			fmt.Fprintf(&b, "  up{job=\"node\",instance=\"node-%d\"}", i)
			at := now.Add(-2 * time.Hour)
			for ; !at.After(now); at = at.Add(15 * time.Second) {
				if gap && at.After(gapFrom) && at.Before(gapUntil) {
					b.WriteString(" _")
				} else {
					b.WriteString(" 1")
				}
			}
			b.WriteString("\n")
		}
		if err := p.LoadAt(b.String(), now.Add(-2*time.Hour)); err != nil {
			t.Fatal(err)
		}
		return p.URL()
	}
	g := group(start("a", false), start("b", true))
	g.Heartbeat = "up"
	top := build(t, Options{}, true, g)
	s := top.Groups[0].Shards[0]
	for _, r := range s.Replicas {
		e := r.Engine()
		if r.State() != Up || !r.Clean() || e.Lookback != "5m" || !slices.Contains(e.Features, "promql_functions/rate") ||
			len(top.EngineDifferences(r)) > 0 {
			t.Errorf("%s: state %s, clean %t, engine %+v, differs %q", r.Name(), r.State(), r.Clean(), e, top.EngineDifferences(r))
		}
	}
	for _, tc := range []struct {
		name        string
		from, until time.Time
		both        bool
	}{
		{"the last half hour", now.Add(-30 * time.Minute), now, true},
		{"before the gap", now.Add(-110 * time.Minute), now.Add(-80 * time.Minute), true},
		{"over the gap", now.Add(-110 * time.Minute), now, false},
		{"in the gap", gapFrom.Add(6 * time.Minute), gapUntil, false},
	} {
		if wholes, err := s.Wholes(context.Background(), tc.from.UnixMilli(), tc.until.UnixMilli(), now); err != nil || len(wholes) == 0 ||
			(len(wholes) == 2) != tc.both || !tc.both && wholes[0].Index != 0 {
			t.Errorf("%s: %d are whole, %v; heartbeat errors %q, %q",
				tc.name, len(wholes), err, s.beats.Pulse(0).Error, s.beats.Pulse(1).Error)
		}
	}
	problems, err := CheckOnline(context.Background(), &config.Config{Groups: []config.Group{g}})
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	if name, err := ask(context.Background(), s, seriesRequest); err != nil || name != s.Replicas[0].Name() {
		t.Errorf("%s, %v", name, err)
	}
}
