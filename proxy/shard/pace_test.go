package shard

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// A replica that fails for half an hour, and one that is slow for that long, are told when it
// begins and when it ends, and in between each ten minutes at most.
func TestTroubleIsToldOnce(t *testing.T) {
	for _, c := range []struct {
		name, bad, begins, ends string
		most                    int
	}{
		{"fails", "reset", "a replica failed too often", "a replica that failed too often answers again", 4},
		{"slow", "delay 3s; answer", "a replica is slow", "a replica is no longer slow", 1},
		{"silent", "stall", "a server answers nothing", "a server that answered nothing answers again", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				b := newBubble(t, fakeshard.Config{})
				top := build(t, Options{Dial: b.dial, Logger: slog.New(slog.NewTextHandler(&log, nil))}, true, group(b.urls[0]))
				s := top.Groups[0].Shards[0]
				var calls atomic.Int64
				askFor := func(d time.Duration) {
					for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
						ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
						_, _ = ask(ctx, s, sumRequest)
						cancel()
						calls.Add(1)
					}
				}
				askFor(time.Minute)
				if err := b.fakes[0].Set("", fakeshard.Route{Path: "/api/v1/query", Script: c.bad}); err != nil {
					t.Fatal(err)
				}
				askFor(30 * time.Minute)
				if err := b.fakes[0].Set(""); err != nil {
					t.Fatal(err)
				}
				askFor(time.Minute)
				top.Close()
				b.close()
				begun, ended := strings.Count(log.String(), c.begins), strings.Count(log.String(), c.ends)
				t.Logf("%d calls, %d lines that it began, %d that it ended", calls.Load(), begun, ended)
				if begun < 1 || begun > c.most || ended != 1 {
					t.Errorf("want 1 to %d lines, and 1:\n%s", c.most, log.String())
				}
			})
		})
	}
}
