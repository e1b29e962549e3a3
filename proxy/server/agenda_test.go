package server

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// TestAgendaBeginsWithTheSlowest: of many shards those are asked first whose answers usually begin
// latest, whatever the order of the configuration and wherever the turn begins; of the others the
// order stays, so that requests which come together do not meet at one shard after the other.
func TestAgendaBeginsWithTheSlowest(t *testing.T) {
	r := newRig(t, clusters(maxWaiting/4+4, 4), limits(ample))
	slow := map[string]bool{"c003": true, "c007": true, "c011": true}
	for name := range slow {
		for _, replicas := range r.shards[name] {
			// far more than a busy machine is late by, and nothing is asserted but the order
			fault{script: "delay 1s; answer"}.set(t, replicas[0], groupValues())
		}
	}
	for range 5 { // the first time counts whole, and is forgotten by a quarter each time
		if got := r.ask(r.request(context.Background(), groupValues()[1])); got.status != 200 {
			t.Fatal(got)
		}
	}
	var questions []question
	for _, g := range r.s.state.Load().top.Groups {
		for _, s := range g.Shards {
			questions = append(questions, question{shard: s, req: &endpoint.Request{}})
		}
	}
	usual := func(l *column) *shard.Shard { return questions[l.questions[0]].shard }
	starts := map[string]bool{}
	for range 20 {
		l := newAgenda(questions, maxAtOnce)
		if len(l.turns) != len(questions) {
			t.Fatalf("%d turns for %d shards", len(l.turns), len(questions))
		}
		for i, of := range l.turns[:4*len(slow)] {
			if name := usual(of).Group.Name; !slow[name] {
				t.Fatalf("turn %d is %s's, which begins to answer after %s", i, usual(of).Name(), usual(of).Begins())
			}
		}
		if !slices.IsSortedFunc(l.turns, func(a, b *column) int { return b.begins - a.begins }) {
			t.Error("a shard is asked before one that takes longer")
		}
		starts[strings.Join([]string{usual(l.turns[0]).Name(), usual(l.turns[4*len(slow)]).Name()}, " ")] = true
	}
	if len(starts) < 2 {
		t.Errorf("twenty requests all began at the same shards: %v", starts)
	}
}
