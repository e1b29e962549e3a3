package shard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// TestPlacesAreGivenBack: of a pair of Thanos Queries an answer may be read to its end before
// anybody has it, to see whether it is one. The place that it had is free all the same.
func TestPlacesAreGivenBack(t *testing.T) {
	const json = "header Content-Type application/json; "
	for name, script := range map[string]string{
		"late":      "delay 18500ms; " + json + `send '{"status":"success","data":[{"seriesLabels":{},"exemplars":[]}]}'`,
		"small":     json + `send '{"status":"success","data":[]}'`,
		"warned of": json + `header Cache-Control no-store; send '{"status":"success","data":[],"warnings":["no store"]}'`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				route := fakeshard.Route{Path: "/api/v1/query_exemplars", Script: script}
				thanos := fakeThanos(map[string]string{"query.timeout": "2m"}, route)
				b := newBubble(t, thanos, thanos)
				defer b.close()
				top := build(t, Options{Dial: b.dial}, true, thanosGroup(b.urls...))
				defer top.Close()
				s := top.Groups[0].Shards[0]
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				req := &endpoint.Request{ID: endpoint.QueryExemplars, Query: "up"}
				if _, _, err := hedged(ctx, s, s.Replicas, req, CallOptions{Partial: true}); err != nil {
					t.Error(err)
				}
				if n := s.calls.Held(); n != 0 {
					t.Errorf("%d places are held when nobody asks anything any more", n)
				}
			})
		})
	}
}
