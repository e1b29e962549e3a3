package server

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/evaluation"
	"github.com/spillwayproject/spillway/proxy/heap"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// queueing is how long those wait who are to find no room: what is left of it when they give up, in
// which they say so, is a fortieth, and under the race detector that of a second was too short.
const queueing = "5s"

// roomSayings are the errors of who finds no room, each with others who have taken it, and that of
// who was there when a server ended.
var roomSayings = []saying{
	{
		name: "a shard has no memory for a wide query", more: "limits: {max_shard_bytes: 100KiB, shard_budget: 100KiB}\n", own: withoutMemory,
		before: noMemory, form: []string{"query", "max_over_time(abs(up)[1h:15s])"},
	},
	{
		name: "a shard has no memory for what selects nothing in particular", own: withoutMemory, before: noMemory, path: "/api/v1/series",
		form: []string{"match[]", `{le!=""}`},
	},
	{name: "a shard reads its log", form: []string{"query", "up"}, own: func(t *testing.T) (string, string) {
		return fakeshard.Start(t, fakeshard.Config{Routes: []fakeshard.Route{
			{Path: "/-/ready", Script: "status 503; send 'Service Unavailable'"},
			{Path: "/api/v1/status/walreplay", Script: `header Content-Type application/json; send '{"status":"success","data":{"min":0,"max":40,"current":12}}'`},
			{Path: "/api/v1/status/buildinfo", Script: "status 503; send 'Service Unavailable'"},
		}}).URL(), config.TypePrometheus
	}},
	{
		name: "replica_calls of one address", more: "limits: {replica_calls: 2, read_slots: 1}\n", script: "stall",
		form:   []string{"query", "up", "timeout", queueing},
		before: func(r *rig) { r.crowd(3, "query", "up"); r.waits("spillway_shard_calls_waiting", 1) },
	},
	{
		name: "replica_calls", more: "limits: {replica_calls: 1, read_slots: 1}\n", form: []string{"query", "up", "timeout", queueing},
		before: func(r *rig) { // the place is Spillway's own, who has no address
			leave, err := r.s.state.Load().top.Groups[1].Shards[1].Enter(r.t.Context(), 0)
			if err != nil {
				r.t.Fatal(err)
			}
			r.t.Cleanup(leave)
		},
	},
	{
		name: "process_calls of one address", form: []string{"query", "up", "timeout", queueing},
		change: func(o *Options) { o.shards.OpenFiles = 64 },
		before: func(r *rig) {
			for _, s := range r.all() { // of one that answers the place is given back
				if err := s.Set("", fakeshard.Route{Path: "/api/v1/query", Script: "stall"}); err != nil {
					r.t.Fatal(err)
				}
			}
			r.crowd(8, "query", "up")
			r.waits("spillway_calls_waiting", 4)
		},
	},
	{
		name: "read_slots", more: "limits: {read_slots: 1}\n", form: []string{"query", "count(info(up))", "timeout", queueing},
		before: func(r *rig) {
			r.stalls("/api/v1/read")
			r.crowd(2, "query", "count(info(up))")
			r.waits("spillway_shard_requests_waiting", 1)
		},
	},
	{
		name: "read_slots of one address", more: "limits: {read_slots: 6}\n",
		form: []string{"query", "count(info(up))", "timeout", queueing},
		before: func(r *rig) {
			r.stalls("/api/v1/read")
			r.crowd(6, "query", "count(info(up))")
			r.waits("spillway_shard_requests_waiting", 1)
		},
	},
	{
		name: "unselective_slots", path: "/api/v1/series", form: []string{"match[]", `{le!=""}`, "timeout", queueing},
		before: func(r *rig) {
			r.stalls("/api/v1/series")
			for i := range maxUnselective { // not the same one, which would be asked once
				of := url.Values{"match[]": {`{le!=""}`}, "limit": {itoa(int64(100 + i))}}
				r.call(r.request(context.Background(), asking{path: "/api/v1/series", form: of}))
			}
			bad := r.shards["jaguar"][1][0]
			r.eventually("both are asked", func() bool { return len(bad.RequestsTo("/api/v1/series")) == maxUnselective })
		},
	},
	{
		name: "evaluations", path: "/api/v1/query_range", form: long(40, "timeout", queueing),
		before: func(r *rig) {
			r.s.gate = evaluation.NewGate(1, nil) // whatever machine this is
			turn, err := r.s.gate.Begin(r.t.Context(), "")
			if err != nil {
				r.t.Fatal(err)
			}
			turn.Heavy()
			if err := turn.Look(); err != nil {
				r.t.Fatal(err)
			}
			r.t.Cleanup(turn.End)
		},
	},
	{
		name: "memory.heap: the request that is ended", form: []string{"query", "count(info(up))"},
		before: func(r *rig) { r.stalls("/api/v1/read"); r.press() },
	},
	{
		name: "memory.heap: no more for the large", more: "memory: {budget: 8MiB}\n", script: "stall", path: "/api/v1/query_range",
		form: []string{
			"query", "vector(time()" + strings.Repeat("+0", 50) + ")", "start", "1000000000", "end", "1000010000", "step",
			"1",
		},
		before: func(r *rig) {
			tight := r.press()
			r.crowd(1, "query", "up")
			r.eventually("memory is tight", tight.Load)
		},
	},
	{
		name: "quarantine of a shard's only replica", script: "stall", form: []string{"query", "up"},
		before: func(r *rig) { r.endWhileAsked() },
	},
	{
		name: "quarantine, asked again, with a copy that is up", script: "stall", form: []string{"query", "up"},
		groups: []rigGroup{{"heron", false, []int{1}}, {"jaguar", false, []int{1, 2}}},
		before: func(r *rig) {
			r.endWhileAsked()
			r.ask(r.request(context.Background(), asking{path: "/api/v1/query"}, "query", "up"))
		},
	},
}

// long is the form of a range query that evaluates so many long terms of no stored series, with
// more names and values.
func long(terms int, more ...string) []string {
	one := "deriv(vector(time())[500s:1s])"
	return append([]string{"query", one + strings.Repeat(" + "+one, terms-1), "start", "1000000000", "end", "1000010000", "step", "1"},
		more...)
}

// stalls has the second shard of jaguar answer nothing at this path, and all else.
func (r *rig) stalls(path string) {
	if err := r.shards["jaguar"][1][0].Set("", fakeshard.Route{Path: path, Script: "stall"}); err != nil {
		r.t.Fatal(err)
	}
}

// crowd sends a query so many times, and reads no answer.
func (r *rig) crowd(n int, form ...string) {
	for range n {
		r.call(r.request(context.Background(), asking{path: "/api/v1/query"}, form...))
	}
}

// waits waits until so many wait for room, as a metric tells.
func (r *rig) waits(metric string, n float64) {
	r.eventually("others wait for room", func() bool { return r.metric(metric) >= n })
}

// press has the process hold too much, whatever it holds, and tells once it is known.
func (r *rig) press() *atomic.Bool {
	var tight atomic.Bool
	r.s.heap = heap.New(heap.Options{Ceiling: func() int64 { return 1 << 20 }, Pressed: func(e *qerr.Error) {
		r.s.poolNow().Tighten(e)
		tight.Store(e != nil)
	}})
	return &tight
}

// endWhileAsked ends the second shard of jaguar once it has worked for a second on the query it is
// asked next.
func (r *rig) endWhileAsked() {
	bad := r.shards["jaguar"][1][0]
	asked := func() bool {
		for _, q := range bad.RequestsTo("/api/v1/query") {
			if q.Form.Get("query") == "up" {
				return true
			}
		}
		return false
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		r.eventually("it is asked", asked)
		since := time.Now()
		r.eventually("it has worked for a while", func() bool { return time.Since(since) > 1100*time.Millisecond })
		bad.Close()
	})
	r.t.Cleanup(wg.Wait)
}

// withoutMemory is a server that holds nearly all that it may.
func withoutMemory(t *testing.T) (string, string) {
	return fakeshard.Start(t, fakeshard.Config{Metrics: map[string]float64{
		"go_gc_gomemlimit_bytes": 3 << 30, "go_gc_heap_live_bytes": 2.8 * (1 << 30),
	}}).URL(), config.TypePrometheus
}

// noMemory waits until that is known.
func noMemory(r *rig) {
	r.eventually("jaguar is known to have no memory", r.s.state.Load().top.Groups[1].Shards[0].Strained)
}
