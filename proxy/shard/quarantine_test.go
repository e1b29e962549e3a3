package shard

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// TestBreakerOfServersIsNotSentOn: a query on which a server ended is not sent to its copy, is refused for a minute, and is tried once then. What was done too soon to
// be the cause goes on to the copy, and so does all of a server that is still there.
func TestBreakerOfServersIsNotSentOn(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		gone         bool
		kind         string
		copies       int // calls that the copy sees
	}{
		{"it ended over the query", "delay 3s; reset", true, "unavailable", 0},
		{"it ended in the same moment", "reset", true, "ok", 1},
		{"it is still there", "delay 3s; reset", false, "ok", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				routes := []fakeshard.Route{{Path: "/api/v1/query", Query: "killer", Script: tc.script}}
				if tc.gone {
					routes = append(routes, fakeshard.Route{Path: "/-/ready", Script: "reset"})
				}
				b := newBubble(t, fakeshard.Config{Routes: routes}, fakeshard.Config{Queries: map[string]string{"killer": `{"resultType":"vector","result":[]}`}})
				defer b.close()
				top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
				defer top.Close()
				s := top.Groups[0].Shards[0]
				one := func(text string) error {
					ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
					defer cancel()
					_, err := ask(ctx, s, &endpoint.Request{ID: endpoint.Query, Query: text, Time: endpoint.At(0)})
					return err
				}
				if err := one("killer"); kindOf(err) != tc.kind || b.count(1, "/api/v1/query") != tc.copies {
					t.Errorf("%v, the copy saw %d calls", err, b.count(1, "/api/v1/query"))
				}
				if tc.kind == "ok" {
					return
				}
				if err := one("killer"); !isHeld(err) || b.count(1, "/api/v1/query") != 0 {
					t.Errorf("once more: %v, the copy saw %d calls", err, b.count(1, "/api/v1/query"))
				}
				if err := one("1+1"); err != nil {
					t.Errorf("another query: %v", err)
				}
				time.Sleep(heldFor)
				s.base.Store(1) // whoever is asked now is sound
				for range 2 {
					if err := one("killer"); err != nil {
						t.Errorf("after a minute: %v", err)
					}
				}
			})
		})
	}
}

// TestManySuspects: where many queries were under way when a server ended, none is held for that; one that was there when servers broke twice is.
func TestManySuspects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{}, fakeshard.Config{})
		defer b.close()
		top := build(t, Options{Dial: b.dial}, false, group(b.urls...))
		defer top.Close()
		s := top.Groups[0].Shards[0]
		q := &s.Replicas[0].up.metrics.held
		req := func(i int) *endpoint.Request {
			return &endpoint.Request{ID: endpoint.Query, Query: fmt.Sprintf("up + %d", i)}
		}
		held := func(i int) bool { _, err := q.admit(s.Replicas[1], req(i)); return err != nil }
		for i := range 10 {
			q.note(s.Replicas[0], req(i))
		}
		for i := range 9 {
			if held(i) {
				t.Errorf("query %d of ten is held", i)
			}
		}
		time.Sleep(time.Minute)
		q.note(s.Replicas[1], req(3))
		if time.Sleep(2 * heldFor); !held(3) || held(4) {
			t.Error("the query that was there twice is not held, or another is")
		}
	})
}
