package server

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/plan"
)

// One of four shards is slow: the explanation of a run names it and no other, each call has its own
// time, and so has the usage log's sum.
func TestSlowShardIsNamed(t *testing.T) {
	r := newRig(t, clusters(4, 1), limits(ample))
	slow := r.shards["c002"][0][0]
	a := asking{
		name: "pushed", id: endpoint.Query, path: "/api/v1/query", form: map[string][]string{"query": {"sum(up)"}},
		at: "/api/v1/query",
	}
	if err := slow.Set("", fakeshard.Route{Path: a.at, Query: "sum(up)", Script: "wait slow; answer"}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	answer := make(chan *reply)
	go func() {
		req := r.request(context.Background(), a)
		req.Header.Set(explainHeader, explainRun)
		answer <- r.ask(req)
	}()
	r.eventually("three have answered and one has not", func() bool {
		return r.metric("spillway_shard_header_duration_seconds") == 3 && r.metric("spillway_shard_requests_unanswered") == 1
	})
	if got := r.metric("spillway_shard_requests_unanswered", "group=c002"); got != 1 {
		t.Errorf("the slow shard has %g unanswered calls", got)
	}
	others := time.Since(began) // at most
	until := time.Now().Add(4*others + time.Second)
	r.eventually("it is slow, however busy the machine is", func() bool { return time.Now().After(until) })
	late := time.Since(began) - others // at least what the slow one's call takes
	slow.Release("slow")
	got := <-answer
	var body struct {
		Spillway struct{ Explain *plan.Explanation }
	}
	if err := json.Unmarshal(got.body, &body); err != nil || got.status != 200 || body.Spillway.Explain == nil {
		t.Fatalf("%v: %s", err, got)
	}
	e := body.Spillway.Explain
	if !strings.HasPrefix(e.Slow, r.names[slow]+" took ") || strings.Count(e.Slow, "c00") != 1 ||
		!strings.Contains(e.Slow, "the middle one of 4 servers took") {
		t.Errorf("slow: %q", e.Slow)
	}
	for _, c := range e.Plan.Calls {
		if is := c.Seconds > late.Seconds(); is != (c.Replica == r.names[slow]) || c.Began > c.Seconds || c.Began <= 0 {
			t.Errorf("%s began after %g s and took %g s; the slow one's took %s at least", c.Replica, c.Began, c.Seconds, late)
		}
	}
}
