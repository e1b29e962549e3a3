package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/evaluation"
)

// longRegexp is a selector with a list of so many bytes of names.
func longRegexp(bytes int) string {
	var b strings.Builder
	for i := 0; b.Len() < bytes; i++ {
		fmt.Fprintf(&b, "node-%d.example|", i*7919)
	}
	return `up{instance=~"(` + strings.TrimSuffix(b.String(), "|") + `)"}`
}

// busyGate has one place for long evaluations, which is taken until free is called.
func busyGate(t *testing.T) (gate *evaluation.Gate, free func()) {
	gate = evaluation.NewGate(1, nil)
	turn, err := gate.Begin(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	turn.Heavy()
	if err := turn.Look(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(turn.End)
	return gate, turn.End
}

// TestLongTextsTakeTurns: a text that takes long to compile waits for a place while there is none;
// who leaves meanwhile is gone, short ones wait for nobody, and in the end it is answered. What is
// refused anyway does not wait.
func TestLongTextsTakeTurns(t *testing.T) {
	read := func(selector string) asking {
		return asking{path: "/api/v1/series", form: url.Values{"match[]": {selector}}, post: true}
	}
	r := newRig(t, manyShards(1), limits(ample))
	gate, free := busyGate(t)
	r.s.gate = gate
	text := longRegexp(200 << 10)
	c := r.call(r.request(t.Context(), read(text)))
	r.eventually("the long one waits", func() bool { return gate.Waiting() == 1 })
	c.leave(false)
	r.eventually("who left is gone", func() bool { return gate.Waiting() == 0 })
	r.eventually("that it left is counted", func() bool { return r.metric("spillway_cancellations_total") == 1 })
	names := `up{instance=~"` + strings.Repeat("node-1|", 7<<10) + `"}` // a list of names alone is never compiled
	for _, quick := range []string{"up", names} {
		if got := r.ask(r.request(t.Context(), read(quick))); got.status != http.StatusOK {
			t.Errorf("%.20s of %d bytes: %d %.300s", quick, len(quick), got.status, got.body)
		}
	}
	dear := strings.Replace(text, "(", ".*(", 1) // every value comes by all the names at each of its characters
	if got := r.ask(r.request(t.Context(), read(dear))); got.status != http.StatusUnprocessableEntity {
		t.Errorf("what is refused anyway: %d %.300s", got.status, got.body)
	}
	if got := r.ask(r.request(t.Context(), read(text))); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("who waits too long: %d %.300s", got.status, got.body)
	}
	free()
	if got := r.ask(r.request(t.Context(), read(text))); got.status != http.StatusOK {
		t.Errorf("when there is room: %d %.300s", got.status, got.body)
	}
	if got := gate.Running(); got != 0 {
		t.Errorf("%d hold a place at the end", got)
	}
}

// TestCompilingIsCharged: what compiling a long text takes belongs to memory.budget for as long as
// it is held.
func TestCompilingIsCharged(t *testing.T) {
	for _, most := range []struct {
		budget string
		status int
	}{{"16MiB", http.StatusTooManyRequests}, {"128MiB", http.StatusOK}} {
		r := newRig(t, manyShards(1), limits(ample)+"memory: {budget: "+most.budget+"}\n")
		got := r.ask(r.request(t.Context(), asking{
			path: "/api/v1/series", form: url.Values{"match[]": {longRegexp(200 << 10)}}, post: true,
		}))
		if got.status != most.status || most.status != http.StatusOK && !strings.Contains(string(got.body), `"bound":"memory.budget"`) {
			t.Errorf("%s: %d %.300s", most.budget, got.status, got.body)
		}
		r.eventually("all of it is given back", func() bool { return r.s.state.Load().pool.InUse() == 0 })
	}
}

// longSum is a query of so many selectors.
func longSum(selectors int) string { return "up" + strings.Repeat("+up", selectors-1) }

// TestLongTextsGoOneAfterTheOther: texts of many tokens wait for a place while there is none, those
// of another address do not wait behind them, short ones and constants wait for nobody, and who
// leaves meanwhile is gone.
func TestLongTextsGoOneAfterTheOther(t *testing.T) {
	r := newRig(t, manyShards(1), limits(ample))
	r.s.readers = admit.NewGate(2, 1, nil)
	ask := func(query string) *http.Request {
		return r.request(t.Context(), asking{path: "/api/v1/query", form: url.Values{"query": {query}}})
	}
	place, err := r.s.readers.Wait(t.Context(), admit.Asker{Peer: "127.0.0.1"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	c := r.call(ask(longSum(250)))
	waits := func(want int) func() bool {
		return func() bool { n, _ := r.s.readers.Waiting(); return n == want }
	}
	r.eventually("the long one waits", waits(1))
	for _, short := range []string{"up", `up{a="1",b="2",c="3",d="4",e="5"} + on () group_left () (up{a="1"} or up{b="2"})`} {
		if got := r.ask(ask(short)); got.status != http.StatusOK {
			t.Errorf("a short one: %d %.300s", got.status, got.body)
		}
	}
	if got := r.askFrom("127.0.0.2", ask(longSum(250))); got.status != http.StatusOK {
		t.Errorf("a long one of somebody else: %d %.300s", got.status, got.body)
	}
	very := asking{path: "/api/v1/series", form: url.Values{"match[]": {longRegexp(200 << 10)}}, post: true}
	if got := r.ask(r.request(t.Context(), very)); got.status != http.StatusOK {
		t.Errorf("a very long one, which takes the place of an evaluation: %d %.300s", got.status, got.body)
	}
	c.leave(false)
	r.eventually("who left is gone", waits(0))
	if got := r.ask(ask(longSum(900))); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("who waits too long: %d %.300s", got.status, got.body)
	}
	r.s.readers.Leave(&place, 1)
	if got := r.ask(ask(longSum(250))); got.status != http.StatusOK {
		t.Errorf("when there is room: %d %.300s", got.status, got.body)
	}
	if got := r.ask(ask(longSum(900))); got.status != http.StatusUnprocessableEntity {
		t.Errorf("too many selectors: %d %.300s", got.status, got.body)
	}
	if got := r.s.readers.Held(); got != 0 {
		t.Errorf("%d places are held at the end", got)
	}
}

// TestRefusedLongTextsHoldNothing: what is looked for instead of a long query, which was refused
// before it was read, is read itself, and holds nothing afterwards.
func TestRefusedLongTextsHoldNothing(t *testing.T) {
	r := newRig(t, manyShards(1), "limits: {max_range: 1h}\n")
	for range 3 {
		got := r.ask(r.request(t.Context(), asking{path: "/api/v1/query_range", form: url.Values{
			"query": {longSum(200)}, "start": {"1700000000"}, "end": {"1700200000"}, "step": {"600"},
		}}))
		if got.status != http.StatusUnprocessableEntity || !strings.Contains(string(got.body), `"bound":"max_range"`) {
			t.Fatalf("%d %.300s", got.status, got.body)
		}
	}
	r.eventually("all of it is given back", func() bool { return r.s.state.Load().pool.InUse() == 0 })
}

// TestParsedIsCharged: what a long query holds belongs to memory.budget, by GET too.
func TestParsedIsCharged(t *testing.T) {
	for _, most := range []struct {
		budget string
		status int
	}{{"1MiB", http.StatusTooManyRequests}, {"16MiB", http.StatusOK}} {
		r := newRig(t, manyShards(1), limits(ample)+"memory: {budget: "+most.budget+"}\n")
		long := "sum by (" + strings.Repeat("a,", 2000) + "a) (up)"
		got := r.ask(r.request(t.Context(), asking{path: "/api/v1/query", form: url.Values{"query": {long}}}))
		refused := strings.Contains(string(got.body), `"bound":"memory.budget"`)
		if got.status != most.status || refused != (most.status == http.StatusTooManyRequests) {
			t.Errorf("%s: %d %.300s", most.budget, got.status, got.body)
		}
		r.eventually("all of it is given back", func() bool { return r.s.state.Load().pool.InUse() == 0 })
	}
}
