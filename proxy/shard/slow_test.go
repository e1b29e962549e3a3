package shard

import (
	"context"
	"io"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/spillwayproject/spillway/proxy/config"
)

// labelled is the metric of the family that has the label values, in order.
func labelled(t *testing.T, reg *prometheus.Registry, name string, values ...string) *dto.Metric {
	t.Helper()
	for _, f := range gather(t, reg) {
		if f.GetName() != name {
			continue
		}
	metrics:
		for _, m := range f.Metric {
			for _, v := range values {
				found := false
				for _, l := range m.Label {
					found = found || l.GetValue() == v
				}
				if !found {
					continue metrics
				}
			}
			return m
		}
	}
	t.Fatalf("no %s with %q", name, values)
	return nil
}

// Of two shards one takes three seconds to begin. Both answers are read once both have begun, as a
// fan-out does: the metrics and the calls themselves blame the slow one alone.
func TestSlowShardAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, paced(steady(10*time.Millisecond)), paced(steady(3*time.Second)))
		reg := prometheus.NewRegistry()
		g := group(b.urls[0])
		g.Shards = append(g.Shards, config.Shard{Replicas: group(b.urls[1]).Shards[0].Replicas})
		top := build(t, Options{Dial: b.dial, Registerer: reg}, true, g)
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		answers := make([]*Response, 2)
		var all sync.WaitGroup
		for i, s := range top.Groups[0].Shards {
			all.Go(func() {
				var err error
				if answers[i], err = s.Do(ctx, sumRequest, CallOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		for i, want := range []float64{0, 1} {
			if got := labelled(t, reg, "spillway_shard_requests_unanswered", "jaguar",
				b.urls[i][len("http://"):]).GetGauge().GetValue(); got != want {
				t.Errorf("shard %d after a second: %g unanswered calls, want %g", i, got, want)
			}
		}
		all.Wait()
		for _, r := range answers {
			if _, err := io.ReadAll(r.Body); err != nil {
				t.Error(err)
			}
			r.Body.Close()
		}
		for i, want := range []float64{0.01, 3} {
			began, took := answers[i].Took()
			host := b.urls[i][len("http://"):]
			for name, got := range map[string]float64{
				"began": began.Seconds(), "took": took.Seconds(),
				"header":   labelled(t, reg, "spillway_shard_header_duration_seconds", "jaguar", host).GetHistogram().GetSampleSum(),
				"duration": labelled(t, reg, "spillway_shard_request_duration_seconds", "jaguar", itoa(i)).GetHistogram().GetSampleSum(),
			} {
				if math.Abs(got-want) > 0.005 {
					t.Errorf("shard %d, %s: %.3f s, want %.3f", i, name, got, want)
				}
			}
			if got := labelled(t, reg, "spillway_shard_requests_unanswered", "jaguar", host).GetGauge().GetValue(); got != 0 {
				t.Errorf("shard %d at the end: %g unanswered calls", i, got)
			}
		}
		top.Close()
		b.close()
	})
}

// A call that is given up without an answer counts with the time for which it was waited: a shard
// that hangs is slow, not absent.
func TestSilentCallCountsAsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, paced(steady(time.Hour)))
		reg := prometheus.NewRegistry()
		top := build(t, Options{Dial: b.dial, Registerer: reg}, true, group(b.urls[0]))
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		if _, err := top.Groups[0].Shards[0].Do(ctx, sumRequest, CallOptions{}); err == nil {
			t.Error("an answer")
		}
		h := labelled(t, reg, "spillway_shard_header_duration_seconds", "jaguar").GetHistogram()
		if h.GetSampleCount() != 1 || h.GetSampleSum() < 7 {
			t.Errorf("%d calls in %g s", h.GetSampleCount(), h.GetSampleSum())
		}
		if got := labelled(t, reg, "spillway_shard_requests_unanswered", "jaguar").GetGauge().GetValue(); got != 0 {
			t.Errorf("%g unanswered calls", got)
		}
		top.Close()
		b.close()
	})
}
