package shard

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestDamaged: what Prometheus says about its storage is told from what it says about a query, also
// where that has such words in it.
func TestDamaged(t *testing.T) {
	for text, want := range map[string]bool{
		"cannot populate chunk 226 from block 01JC3DV1WY5BJ2Z6G6QXMBQK1K: checksum mismatch expected:8b1f3c2a, actual:11d1a2b3": true,
		"expanding series: cannot populate chunk 8 from block 01JC3DV1WY5BJ2Z6G6QXMBQK1K: segment index 3 out of range":         true,
		"expanding series: get series 1234: read series: invalid checksum":                                                      true,
		"expanding series: fetching postings for matchers: get postings offset entry: invalid size":                             true,
		`fetching postings for job="x y": decode postings: unexpected postings length`:                                          true,
		"LabelValues() from merge generic querier for label job: lookup label value: unknown symbol offset 5":                   true,
		"corruption in head chunk file /prometheus/chunks_head/000002: checksum mismatch expected:1, actual:2":                  true,
		"iterate chunk while re-encoding: EOF":                                                                                  true,
		"":                                                                                                                      false,
		"query processing would load too many samples into memory in query execution":                                           false,
		"found duplicate series for the match group {job=\"cannot populate chunk\"}":                                            false,
		`invalid label name in label_replace(): "cannot populate chunk 1 from block : "`:                                        false,
		"multiple matches for labels: many-to-one matching must be explicit":                                                    false,
		"expanding series: the query would read more than the limit of 100000 series":                                           false,
		"expanding series: the limit of expanding series: cannot populate chunk 1 from block ":                                  false,
		"invalid regular expression in label_replace(): checksum mismatch expected:1":                                           false,
	} {
		if got := damaged(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
	var told damageTold
	now := time.Now()
	for _, tc := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {time.Second, false}, {tellAgain - time.Second, false}, {tellAgain, true}, {tellAgain + time.Minute, false}} {
		if got := told.now(now.Add(tc.after)); got != tc.want {
			t.Errorf("said after %s: %t", tc.after, got)
		}
	}
}

// TestDamagedFailsOver: a replica that cannot read some of what it stores has the other one asked,
// and nothing else follows of it, however often. What it says about the query is the answer.
func TestDamagedFailsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{}, fakeshard.Config{})
		top := build(t, Options{Dial: b.dial}, true, group(b.urls...))
		s := top.Groups[0].Shards[0]
		time.Sleep(time.Second)
		says := func(text string) {
			route := fakeshard.Route{Path: "/api/v1/query", Query: "damaged", Script: "error 422 execution '" + text + "'"}
			if err := b.fakes[0].Set("", route); err != nil {
				t.Fatal(err)
			}
		}
		req := &endpoint.Request{ID: endpoint.Query, Query: "damaged", Time: endpoint.At(time.Now().UnixMilli())}
		first := s.Replicas[0]
		says("cannot populate chunk 226 from block 01JC3DV1WY5BJ2Z6G6QXMBQK1K: checksum mismatch expected:1, actual:2")
		for range 2 * breakerFailures {
			s.base.Store(0)
			if _, err := ask(t.Context(), s, req); err != nil {
				t.Fatal(err)
			}
			if base := s.base.Load(); base != 1 {
				t.Errorf("the next request begins with replica %d", base)
			}
		}
		if !first.up.breaker.calm() || first.up.failing.Load() != 0 {
			t.Errorf("breaker %s, failing since %d", first.up.breaker.current(time.Now()), first.up.failing.Load())
		}
		_, err := first.Do(t.Context(), req, CallOptions{})
		if e := qerr.From(err); e == nil || e.Kind != qerr.ShardFailed || !strings.Contains(e.Message, first.Name()+" cannot read some of what it stores: cannot populate") {
			t.Errorf("alone: %v", err)
		}
		const verdict = "invalid label name in label_replace(): cannot populate chunk 1 from block 2: checksum mismatch"
		says(verdict)
		s.base.Store(0)
		if _, err := ask(t.Context(), s, req); qerr.From(err).Kind != qerr.TooExpensive || qerr.From(err).Message != verdict {
			t.Errorf("its verdict: %v", err)
		}
		top.Close()
		b.close()
	})
}
