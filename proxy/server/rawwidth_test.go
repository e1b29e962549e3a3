package server

import (
	"context"
	"fmt"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestRawReadsHaveTheWidthOfCalls: a query that reads series reads as many shards at once as a
// request may ask, not all of them.
func TestRawReadsHaveTheWidthOfCalls(t *testing.T) {
	const shards = 40
	r := newRig(t, clusters(shards, 1), "memory: {budget: 4MiB}\n"+limits(ample))
	for _, s := range r.all() {
		if err := s.Set("", fakeshard.Route{Path: "/api/v1/read", Script: "wait go; answer"}); err != nil {
			t.Fatal(err)
		}
	}
	reads := func() int {
		n := 0
		for _, s := range r.all() {
			for _, rec := range s.Requests() {
				if rec.Path == "/api/v1/read" {
					n++
				}
			}
		}
		return n
	}
	width := (&exchange{st: r.s.state.Load()}).width()
	if width >= shards {
		t.Fatalf("a request may have %d calls here: there is nothing to see", width)
	}
	answer := make(chan *reply)
	go func() {
		// such a query is evaluated here
		answer <- r.ask(r.request(context.Background(), asking{path: "/api/v1/query"}, "query", "count(up)", "stats", "all"))
	}()
	most := 0
	r.eventually("as many shards are read as may be", func() bool {
		most = max(most, reads())
		return most >= width
	})
	for _, s := range r.all() {
		s.Release("go")
	}
	got := <-answer
	if most != width {
		t.Errorf("%d shards were read at once, want %d", most, width)
	}
	if got.status != 200 {
		t.Errorf("%s", got)
	}
	if n := reads(); n != shards {
		t.Errorf("%d reads of %d shards", n, shards)
	}
}

// TestOneRequestLeavesReadSlots: a query of many selectors is read from a shard for half of the
// server's slots at a time, so that somebody else's is read beside it.
func TestOneRequestLeavesReadSlots(t *testing.T) {
	r := newRig(t, clusters(2, 1), "limits: {read_slots: 6, timeout: "+ample.String()+"}\n")
	for _, s := range r.all() {
		if err := s.Set("", fakeshard.Route{Path: "/api/v1/read", Script: "wait go; answer"}); err != nil {
			t.Fatal(err)
		}
	}
	reads := func() int { return len(r.all()[0].RequestsTo("/api/v1/read")) }
	answers := make(chan *reply, 2)
	ask := func(query string) { // with stats it is evaluated here
		answers <- r.ask(r.request(context.Background(), asking{path: "/api/v1/query"}, "query", query, "stats", "all"))
	}
	many := "count(up)"
	for i := range 11 {
		many += fmt.Sprintf(" + count(up offset %dm)", i+1)
	}
	go ask(many)
	r.eventually("three selectors are read", func() bool { return reads() == 3 })
	go ask("count(up)")
	r.eventually("somebody else's is read beside them", func() bool { return reads() > 3 })
	if n := reads(); n != 4 {
		t.Errorf("%d reads are under way, want 4", n)
	}
	for _, s := range r.all() {
		s.Release("go")
	}
	for range 2 {
		if got := <-answers; got.status != 200 {
			t.Errorf("%s", got)
		}
	}
	if n := reads(); n != 13 {
		t.Errorf("%d reads in all, want 13", n)
	}
}
