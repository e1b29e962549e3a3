package server

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/heap"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// hookCalls runs each after every call of a function of PromQL, until the test ends. The test must
// not run beside others.
func hookCalls(t *testing.T, name string, each func()) {
	before := promql.FunctionCalls[name]
	promql.FunctionCalls[name] = func(v []promql.Vector, m promql.Matrix, args parser.Expressions,
		enh *promql.EvalNodeHelper,
	) (promql.Vector, annotations.Annotations) {
		out, notes := before(v, m, args, enh)
		each()
		return out, notes
	}
	t.Cleanup(func() { promql.FunctionCalls[name] = before })
}

// longQuery asks for 10,001 windows of one series, which nobody stores.
func longQuery(of string) asking {
	return asking{path: "/api/v1/query_range", form: url.Values{
		"query": {of + "(vector(time())[500s:1s])"}, "start": {"1000000000"}, "end": {"1000010000"}, "step": {"1"},
	}}
}

// TestLeftEvaluationsEnd: the client leaves in the middle of one series' windows, where the engine
// itself does not look.
func TestLeftEvaluationsEnd(t *testing.T) {
	r := newRig(t, manyShards(1), limits(10*patience))
	var calls atomic.Int64
	begun := make(chan struct{})
	hookCalls(t, "deriv", func() {
		if n := calls.Add(1); n == 100 {
			close(begun)
		} else if n > 100 {
			time.Sleep(time.Millisecond) // so that the end has time to arrive; ten seconds in all
		}
	})
	c := r.call(r.request(context.Background(), longQuery("deriv")))
	<-begun
	c.leave(true)
	r.eventually("the evaluation ends", func() bool { return r.metric("spillway_requests_in_flight") == 0 })
	if n := calls.Load(); n >= 10001 {
		t.Errorf("all %d windows were evaluated for a client that had left", n)
	}
	if n := r.metric("spillway_cancellations_total"); n != 1 {
		t.Errorf("%v cancellations are counted", n)
	}
	r.idle()
}

// TestLongEvaluationsTakeTurns: of sixteen long ones no more are at work than leave a processor;
// the others wait, a query beside them is answered, and who finds no turn before its deadline is
// told so.
func TestLongEvaluationsTakeTurns(t *testing.T) {
	r := newRig(t, manyShards(1), limits(10*patience))
	hookCalls(t, "deriv", func() { time.Sleep(time.Millisecond) })
	const callers = 16
	var all []*caller
	for i := range callers {
		long := longQuery("deriv")
		long.form.Set("end", itoa(int64(1000010000-i))) // identical ones would be evaluated once
		all = append(all, r.call(r.request(context.Background(), long)))
	}
	at := max(1, runtime.GOMAXPROCS(0)-1)
	if at >= callers {
		t.Skipf("%d processors are more than the callers of this test", at)
	}
	r.eventually("the others wait", func() bool { return r.metric("spillway_evaluations_waiting") == float64(callers-at) })
	if n := r.metric("spillway_evaluations_running"); n > float64(at) {
		t.Errorf("%v long evaluations at once, want %d", n, at)
	}
	for i := range 10 {
		if got := r.get(r.url + "/api/v1/query?query=" +
			url.QueryEscape(fmt.Sprintf("vector(time())*%d", i))); got.status != http.StatusOK {
			t.Errorf("beside long evaluations: %d %s", got.status, got.body)
		}
	}
	late := longQuery("deriv")
	late.form.Set("timeout", "1s")
	got := r.ask(r.request(context.Background(), late))
	if b := decodeRefusal(t, got.body).Spillway.Bound; b == nil || *b != policy.BoundEvaluations && *b != policy.BoundTimeout {
		t.Errorf("not done by the deadline: %d %s", got.status, got.body)
	}
	for _, c := range all {
		c.leave(true)
	}
	r.eventually("all end", func() bool {
		return r.metric("spillway_evaluations_waiting") == 0 && r.metric("spillway_evaluations_running") == 0
	})
	r.idle()
}

// TestReloadKeepsThePool: a reload that changes memory.budget changes the one pool; what requests
// hold of it goes on counting.
func TestReloadKeepsThePool(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	r := newRig(t, manyShards(1), "", func(o *Options) { o.ConfigFile = file })
	held := admit.NewBudget(r.s.state.Load().pool, admit.Limits{})
	if err := held.Hold(100 << 20); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(r.config+"memory: {budget: 64MiB}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.s.Reload(); err != nil {
		t.Fatal(err)
	}
	if used, limit := r.metric("spillway_memory_budget_used_bytes"), r.metric("spillway_memory_budget_bytes"); used < 100<<20 ||
		limit != 64<<20 {
		t.Errorf("after the reload %v of %v bytes are in use, want those of before, of 64 MiB", used, limit)
	}
	if got := r.get(r.url + "/api/v1/query?query=vector(1)%2B1"); got.status != http.StatusTooManyRequests {
		t.Errorf("the old configuration's requests hold more than the new one has: %d %s", got.status, got.body)
	}
	held.Close()
	if got := r.get(r.url + "/api/v1/query?query=vector(1)%2B1"); got.status != http.StatusOK {
		t.Errorf("after they have ended: %d %s", got.status, got.body)
	}
}

// TestTheHeaviestIsEndedWithItsCause: what the heap's watch ends is told so, in the middle of its
// evaluation, and a small request beside it goes on.
func TestTheHeaviestIsEndedWithItsCause(t *testing.T) {
	r := newRig(t, manyShards(1), limits(10*patience))
	var ended atomic.Bool
	var charged atomic.Int64 // since when the heavy one is charged, Unix nanoseconds
	ceiling := func() int64 {
		if r.s.poolNow().InUse() >= heap.MinWeight {
			charged.CompareAndSwap(0, time.Now().UnixNano())
		}
		if since := charged.Load(); ended.Load() || since == 0 || time.Since(time.Unix(0, since)) < 3*heap.MinAge {
			return math.MaxInt64
		}
		return 1 << 20 // whatever the process holds is too much, until one was ended
	}
	r.s.heap = heap.New(heap.Options{
		Ceiling: ceiling, Pressed: func(*qerr.Error) {},
		Evicted: func() { r.s.metrics.evictions.Inc(); ended.Store(true) },
	})
	hookCalls(t, "deriv", func() { time.Sleep(time.Millisecond) })
	heavy, small := longQuery("deriv"), longQuery("deriv")
	heavy.form.Set("query", "deriv(vector(time()"+strings.Repeat("+0", 50)+")[500s:1s])") // each number has a point for each second
	c := r.call(r.request(context.Background(), small))
	got := r.ask(r.request(context.Background(), heavy))
	if e := decodeRefusal(t, got.body); got.status != http.StatusTooManyRequests || *e.Spillway.Bound != policy.BoundMemoryHeap ||
		got.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if n := r.metric("spillway_evictions_total"); n != 1 {
		t.Errorf("%v evictions are counted", n)
	}
	if n := r.metric("spillway_requests_in_flight"); n != 1 {
		t.Errorf("%v requests are in flight, want the small one", n)
	}
	c.leave(true)
	r.idle()
}
