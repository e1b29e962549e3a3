package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/answer"
	"github.com/spillwayproject/spillway/proxy/cost"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
	"github.com/spillwayproject/spillway/proxy/weigh"
)

// TestHeavyCallsAreWide: a request takes as many of a shard's places as what it is to hold there
// comes to, whether its answers are read side by side or one by one; counting series before takes
// as many as these come to, and what lists series one, also for a query. Copies that answer the
// same share them.
func TestHeavyCallsAreWide(t *testing.T) {
	for _, c := range []struct {
		name   string
		counts bool
		lists  bool
		parts  int // of each shard
		copies int
		want   int // places at the one that is to hold three of six MiB
	}{
		{"side by side", false, false, 1, 1, 3},
		{"two parts", false, false, 2, 1, 4},  // a MiB and a half each
		{"two copies", false, false, 1, 2, 4}, // one by one; of three each only one would go at a time
		{"counted", true, false, 1, 1, 1},
		{"very many counted", true, false, 1, 1, 3},
		{"by two copies", true, false, 1, 2, 4},
		{"listed", false, true, 1, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCrowded(t, 2, c.copies, 6, 640, "answer")
				defer w.close()
				x, done := w.exchange(t.Context(), time.Minute)
				defer done()
				x.req = &endpoint.Request{ID: endpoint.QueryRange}
				shards := w.st.top.Groups[0].Shards
				x.heavy = weights{shards[0]: {Counted: 3 << 20}}
				var questions []question
				for _, q := range parts(shards, c.parts, rand.New(rand.NewPCG(1, 1))) {
					if q.counts = c.counts; q.counts && c.name != "counted" && q.shard == shards[0] {
						q.holds = 3 << 20
					}
					if c.lists {
						q.req = &endpoint.Request{ID: endpoint.Series, Match: []string{"up"}}
					}
					q.replicas = nil
					for _, q.replica = range q.shard.Replicas {
						questions = append(questions, q)
					}
				}
				var mu sync.Mutex
				most := 0
				var read reading
				if c.parts*c.copies > 1 || c.counts { // as it is counted
					read = func(_ int, _ *question, src merge.Source) error {
						time.Sleep(time.Second) // until all that can be have begun
						mu.Lock()
						most = max(most, w.st.top.Lanes()[0].Held)
						mu.Unlock()
						_, err := io.Copy(io.Discard, src.Body)
						return err
					}
				}
				got, err := x.askAndRead(questions, read)
				if err != nil {
					t.Fatal(err)
				}
				if read == nil {
					most = w.st.top.Lanes()[0].Held
				}
				got.close()
				synctest.Wait()
				if want := c.want + c.parts*c.copies; most != want { // the other one's calls are one place wide
					t.Errorf("%d places are held, not %d", most, want)
				}
				if held := w.st.top.Lanes()[0].Held; held != 0 {
					t.Errorf("%d places are held at the end", held)
				}
			})
		})
	}
}

// TestWidthIsOfTheAttempt: calls that are left go on with the width that they had when they were
// asked, and another attempt begins without one.
func TestWidthIsOfTheAttempt(t *testing.T) {
	w := newCrowded(t, 1, 1, 6, 640, "answer")
	defer w.close()
	x, done := w.exchange(t.Context(), time.Minute)
	defer done()
	s := w.st.top.Groups[0].Shards[0]
	questions := parts([]*shard.Shard{s}, 1, rand.New(rand.NewPCG(1, 1)))
	x.heavy = weights{s: {Counted: 3 << 20}}
	f := x.newFanout(questions, nil)
	defer f.close()
	x.heavy = weights{s: {Counted: 2 << 20}}
	later := x.newFanout(questions, nil)
	defer later.close()
	if a, b := f.heldOf(&questions[0]), later.heldOf(&questions[0]); a != 3<<20 || b != 2<<20 {
		t.Errorf("%d and %d bytes", a, b)
	}
	x.budget.Close()
	if x.beginAttempt(); x.holds(s) != 0 {
		t.Errorf("the next attempt begins with %d bytes", x.holds(s))
	}
}

// TestUnweighedWidth: what was not weighed is as wide as what the shards say of themselves, each by
// what it says, up to a quarter of the budget; a guess is one place, and what was weighed is that.
func TestUnweighedWidth(t *testing.T) {
	w := newCrowded(t, 3, 1, 24, 640, "answer")
	defer w.close()
	x, done := w.exchange(t.Context(), time.Minute)
	defer done()
	shards, now := w.st.top.Groups[0].Shards, time.Now()
	sizes := weigh.NewSizes(t.Context(), w.st.top, nil, time.Now, slog.New(slog.DiscardHandler))
	known := weigh.Known{Sizes: sizes, Found: &weigh.Found{}, Learned: &cost.Learned{}}
	expr, err := tree.Parser.ParseExpr("sum by (pod) (rate(x_total[5m]))")
	if err != nil {
		t.Fatal(err)
	}
	estimate := func(series ...int) {
		t.Helper()
		for i, n := range series {
			told := fmt.Sprintf(`{"data":{"headStats":{"numSeries":90000000,"minTime":0},"seriesCountByMetricName":[{"name":"x_total","value":%d}]}}`, n)
			if err := known.Sizes.Names(shards[i]).Learn(strings.NewReader(told), now, 0); err != nil {
				t.Fatal(err)
			}
		}
		x.foreseen.Store(known.Estimate(&weigh.Asked{
			Request: &endpoint.Request{ID: endpoint.QueryRange, Query: "x"}, Expr: expr, Selectors: parser.ExtractSelectors(expr),
			From: now.UnixMilli() - 3_600_000, Until: now.UnixMilli(), Grid: cost.Grid{Steps: 241, Step: 15_000},
			View: plan.NewView(w.st.top, now),
		}))
	}
	if estimate(); x.foreseen.Load() == nil || x.holds(shards[0]) != 0 {
		t.Errorf("a guess holds %d bytes", x.holds(shards[0]))
	}
	estimate(10_000_000, 1000, 2000)
	a, b, c := x.holds(shards[0]), x.holds(shards[1]), x.holds(shards[2])
	if a != 256<<20 || b < 1<<20 || b > 64<<20 || c < 2*b-2 || c > 2*b+2 {
		t.Errorf("%d, %d and %d bytes", a, b, c)
	}
	x.heavy = weights{shards[0]: {Counted: 300 << 20}, shards[1]: {Counted: 1 << 40}}
	if d, e := x.holds(shards[0]), x.holds(shards[1]); d != 300<<20 || e != 512<<20 {
		t.Errorf("%d and %d bytes were weighed", d, e)
	}
	// In shadow of max_shard_bytes more is let through than that.
	x.st.cfg.Limits.Shadow = []string{policy.BoundMaxShardBytes}
	if d := x.holds(shards[1]); d != 1<<40 {
		t.Errorf("in shadow, %d bytes", d)
	}
	x.st.cfg.Limits.Shadow = nil
	// What was not counted is an upper bound of what was estimated.
	x.heavy = weights{
		shards[0]: {Uncounted: 500 << 20}, shards[1]: {Uncounted: 500 << 20}, shards[2]: {Counted: 300 << 20, Uncounted: 1 << 20},
	}
	if d, e, f := x.holds(shards[0]), x.holds(shards[1]), x.holds(shards[2]); d != 256<<20 || e != b || f != 300<<20 {
		t.Errorf("%d, %d and %d bytes were not counted", d, e, f)
	}
	if x.heavy[shards[1]] = (weigh.Weight{Uncounted: 10}); x.holds(shards[1]) != 10 {
		t.Errorf("%d bytes where all series of the metric come to 10", x.holds(shards[1]))
	}
	x.foreseen.Store(&weigh.Estimate{Guessed: true, Held: 1 << 40})
	if d, e := x.holds(shards[0]), x.holds(shards[1]); d != 256<<20 || e != 10 {
		t.Errorf("beside a guess, %d and %d bytes", d, e)
	}
}

// TestMaxWaitLosesNoShard: that a lane waits no longer is an error also where an answer may go
// without a shard: it is well, and answers others.
func TestMaxWaitLosesNoShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCrowded(t, 2, 1, 1, 640, "answer", admit.Lane{Name: "default", Share: 1, MaxWait: time.Second})
		defer w.close()
		shards := w.st.top.Groups[0].Shards
		leave, err := shards[1].Enter(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		for _, n := range []int{1, 2} { // side by side, and one by one
			x, done := w.exchange(t.Context(), time.Minute)
			x.req = &endpoint.Request{ID: endpoint.Query}
			x.partial, x.chosen = true, true
			began := time.Now()
			_, err := x.ask(parts(shards, n, rand.New(rand.NewPCG(1, 1))))
			var lost *answer.LostShard
			if e := qerr.From(err); e == nil || e.Kind != qerr.Overloaded || errors.As(err, &lost) || len(x.gone.sorted()) > 0 ||
				time.Since(began) != time.Second {
				t.Errorf("%d of each shard: after %s: %v, gone are %v", n, time.Since(began), err, x.gone.sorted())
			}
			done()
		}
	})
}

// TestNoRoomLosesTheShard: where an answer may go without a shard, it goes without one that has no
// room in time, also where its call is wide or a wide one is ahead of it.
func TestNoRoomLosesTheShard(t *testing.T) {
	for name, c := range map[string]struct {
		held  int64
		ahead bool
	}{"narrow": {0, false}, "wide": {2 << 20, false}, "behind a wide one": {0, true}} {
		synctest.Test(t, func(t *testing.T) {
			w := newCrowded(t, 2, 1, 6, 640, "answer")
			defer w.close()
			shards := w.st.top.Groups[0].Shards
			n := 6
			if c.ahead {
				n = 5
			}
			var all []func()
			for range n {
				leave, err := shards[1].Enter(t.Context(), 0)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, leave)
			}
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				if c.ahead {
					if leave, err := shards[1].Enter(t.Context(), 3<<20); err == nil {
						leave()
					}
				}
			}()
			synctest.Wait()
			x, done := w.exchange(t.Context(), time.Minute)
			x.req = &endpoint.Request{ID: endpoint.Query}
			x.partial, x.chosen = true, true
			x.heavy = weights{shards[1]: {Counted: c.held}}
			_, err := x.ask(parts(shards, 1, rand.New(rand.NewPCG(1, 1))))
			var lost *answer.LostShard
			if e := qerr.From(err); e == nil || e.Kind != qerr.Overloaded || !errors.As(err, &lost) || len(x.gone.sorted()) == 0 {
				t.Errorf("%s: %v, gone are %v", name, err, x.gone.sorted())
			}
			done()
			for _, leave := range all {
				leave()
			}
			<-gone
		})
	}
}
