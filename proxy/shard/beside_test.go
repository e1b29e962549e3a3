package shard

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// zones is a group of eight shards, each a pair of which the first replica is in a zone that says
// nothing for late nanoseconds, and lacks nothing. The others lack an hour that begins eight hours
// before the bubble's seventeenth minute, which nobody has looked at yet.
type zones struct {
	*bubble
	late atomic.Int64
	cfg  config.Group
	top  *Topology
}

func newZones(t *testing.T, heartbeat string) *zones {
	t.Helper()
	z := &zones{}
	full, lacks := gapped(time.Now().Add(17 * time.Minute).Add(-8 * time.Hour).Truncate(trust.Bucket))
	cfgs := make([]fakeshard.Config, 16)
	for i := range cfgs {
		if cfgs[i] = beating(lacks); i%2 == 0 {
			cfgs[i] = beating(full)
		}
		answer := cfgs[i].Answer
		cfgs[i].Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
			if i%2 == 0 && strings.HasPrefix(r.Path, "/api/v1/query") {
				time.Sleep(time.Duration(z.late.Load()))
			}
			return answer(r)
		}
	}
	z.bubble = newBubble(t, cfgs...)
	z.cfg = group(z.urls[:2]...)
	for i := 2; i < len(z.urls); i += 2 {
		z.cfg.Shards = append(z.cfg.Shards, group(z.urls[i:i+2]...).Shards...)
	}
	z.cfg.Heartbeat = heartbeat
	z.top = build(t, Options{Dial: z.dial}, true, z.cfg)
	time.Sleep(17*time.Minute + 2*time.Second)
	return z
}

// reload reads the same configuration anew.
func (z *zones) reload(t *testing.T) {
	t.Helper()
	next, err := New([]config.Group{z.cfg}, Options{Dial: z.dial}, z.top)
	if err != nil {
		t.Fatal(err)
	}
	next.Start(t.Context())
	z.top.Close()
	z.top = next
}

// fail opens the breakers of the zone.
func (z *zones) fail() {
	for _, s := range z.top.Groups[0].Shards {
		for range breakerFailures {
			s.Replicas[0].up.breaker.failure(time.Now())
		}
	}
}

// ask is what one request asks of all shards before it asks anybody for samples, and for how long.
// well tells of each whether the zone is whole, or read.
func (z *zones) ask(t *testing.T, limit time.Duration) (took time.Duration, well []bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	from := began.Add(-8 * time.Hour).UnixMilli()
	for _, s := range z.top.Groups[0].Shards {
		order, whole, err := s.Ordered(ctx, from, from+time.Hour.Milliseconds(), began)
		if err != nil {
			t.Error(err)
			continue
		}
		read, _ := s.Well()
		well = append(well, order[0].Index == 0 || whole == 0 && len(read) == 2)
	}
	return time.Since(began), well
}

func (z *zones) stop() {
	z.late.Store(0)
	z.top.Close()
	z.close()
}

// TestShardsAreTriedSideBySide: one replica of each of eight shards failed too often, and does not
// say whether it answers. A request waits for all of them as long as for one, also one that comes
// meanwhile, and not again within ten seconds, whatever the configuration is read anew for.
func TestShardsAreTriedSideBySide(t *testing.T) {
	for _, heartbeat := range []string{"up", ""} {
		for _, limit := range []time.Duration{4 * time.Second, 25 * time.Second} {
			t.Run("heartbeat "+heartbeat+", "+limit.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					z := newZones(t, heartbeat)
					z.late.Store(int64(time.Minute))
					most := min(wholeWait, limit/4)
					var last time.Time // when one waited
					for i := range 40 {
						z.fail()
						if i%12 == 11 {
							z.reload(t)
						}
						var all sync.WaitGroup
						var took [2]time.Duration
						for j := range took {
							all.Go(func() {
								time.Sleep(time.Duration(j) * 400 * time.Millisecond)
								took[j], _ = z.ask(t, limit)
							})
						}
						all.Wait()
						longest := slices.Max(took[:])
						switch again := time.Since(last) - longest; {
						case longest > most:
							t.Errorf("requests %d waited for %s, want %s", i, took, most)
						case longest > 0 && again < trust.Pause && most == wholeWait:
							t.Errorf("requests %d waited for %s, %s after others", i, took, again)
						}
						if longest > 0 {
							last = time.Now()
						}
						time.Sleep(600 * time.Millisecond)
					}
					z.stop()
				})
			})
		}
	}
}

// TestTriedSideBySideHidesNothing: those that failed too often answer, if not at once. They are
// read by who waits for them with all others, in a hurry or not.
func TestTriedSideBySideHidesNothing(t *testing.T) {
	for _, limit := range []time.Duration{2 * time.Second, 4 * time.Second, 25 * time.Second} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				z := newZones(t, "up")
				z.late.Store(int64(300 * time.Millisecond))
				z.fail()
				var all sync.WaitGroup
				for range 3 {
					all.Go(func() {
						if _, well := z.ask(t, limit); slices.Contains(well, false) {
							t.Errorf("of those that answer are read: %t", well)
						}
					})
				}
				all.Wait()
				z.stop()
			})
		})
	}
}
