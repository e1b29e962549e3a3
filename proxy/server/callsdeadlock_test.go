package server

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// crowded is a topology of shards in memory, with few places.
type crowded struct {
	s     *Server
	st    *state
	fakes []*fakeshard.Shard
}

func newCrowded(t *testing.T, shards, replicas, places, files int, script string, lanes ...admit.Lane) *crowded {
	t.Helper()
	c := &crowded{}
	byAddr := map[string]*fakeshard.Memory{}
	var b strings.Builder
	b.WriteString("groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    shards:\n")
	for i := range shards {
		b.WriteString("      - replicas:\n")
		for j := range replicas {
			mem, addr := fakeshard.NewMemory(), fmt.Sprintf("10.0.%d.%d:9090", i, j)
			f, err := fakeshard.New(fakeshard.Config{Listener: mem, Default: script})
			if err != nil {
				t.Fatal(err)
			}
			byAddr[addr] = mem
			c.fakes = append(c.fakes, f)
			fmt.Fprintf(&b, "          - {url: \"http://%s\"}\n", addr)
		}
	}
	cfg, err := config.Parse([]byte(b.String()), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	top, err := shard.New(cfg.Groups, shard.Options{
		Registerer: prometheus.NewRegistry(), MaxCalls: places, OpenFiles: files, Budget: int64(places) << 20, Lanes: lanes,
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return byAddr[addr].DialContext(ctx, network, addr)
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.s = &Server{}
	c.st = &state{top: top, pool: admit.NewPool(64 << 20), cfg: cfg}
	return c
}

func (c *crowded) close() {
	c.st.top.Close()
	for _, f := range c.fakes {
		f.Close()
	}
}

// watch looks each millisecond, when everybody waits for something, until it is over.
func (*crowded) watch(over chan struct{}, look func()) {
	for {
		select {
		case <-over:
			return
		case <-time.After(time.Millisecond):
			synctest.Wait()
			look()
		}
	}
}

// exchange is a request that has so much time.
func (c *crowded) exchange(ctx context.Context, limit time.Duration) (*exchange, func()) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	x := &exchange{
		s: c.s, st: c.st, ctx: ctx,
		decided: decided{dec: &policy.Decision{}, limits: config.Limits{MaxResponseBytes: 64 << 20, Timeout: limit}},
	}
	x.budget = admit.NewBudget(c.st.pool, admit.Limits{MaxSeries: 1e6, MaxSamples: 1e6, MaxBytes: 64 << 20})
	return x, func() {
		x.budget.Close()
		cancel()
	}
}

// parts are n questions for each of the shards.
func parts(shards []*shard.Shard, n int, r *rand.Rand) []question {
	var out []question
	for part := range n {
		for _, s := range shards {
			q := question{shard: s, part: part, req: &endpoint.Request{ID: endpoint.Query, Query: "up", Time: endpoint.At(1)}}
			switch r.IntN(3) {
			case 0:
				q.replica = s.Replicas[r.IntN(len(s.Replicas))]
			case 1:
				q.replicas = s.Replicas
			}
			out = append(out, q)
		}
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// lockstep reads all bodies side by side, a few bytes of each at a time.
func lockstep(sources []merge.Source) error {
	open := len(sources)
	ended := make([]bool, len(sources))
	buf := make([]byte, 16)
	for open > 0 {
		for i := range sources {
			if ended[i] {
				continue
			}
			switch _, err := sources[i].Body.Read(buf); err {
			case nil:
			case io.EOF:
				ended[i] = true
				open--
			default:
				return err
			}
		}
	}
	return nil
}

// However few places there are, and however requests want them, none waits for another that waits
// for it: all end, none fails, and no server has more calls than there are places.
func TestCallsNeverWaitForEachOther(t *testing.T) {
	seed := randseed.Of(t, 0)
	for _, places := range []int{1, 2} {
		for _, more := range []int{0, 8} { // a fan-out of more questions than are asked side by side, where there is one
			t.Run(fmt.Sprint(places, " places, ", more, " more"), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCrowded(t, 4, 2, places, 1, "delay 20ms; drip 200B/1ms; answer")
					defer c.close()
					shards := c.st.top.Groups[0].Shards
					over := make(chan struct{})
					var watch, wg sync.WaitGroup
					watch.Go(func() {
						c.watch(over, func() {
							for i, f := range c.fakes {
								if n := f.InFlight(); n > places {
									t.Errorf("server %d had %d calls", i, n)
								}
							}
						})
					})
					for i := range 50 {
						r := rand.New(rand.NewPCG(seed, uint64(i)))
						wg.Go(func() {
							x, done := c.exchange(t.Context(), 10*time.Minute)
							defer done()
							mine := make([]*shard.Shard, 0, len(shards))
							for _, s := range r.Perm(len(shards))[:1+r.IntN(len(shards))] {
								mine = append(mine, shards[s])
							}
							var read reading
							n := 1
							if i%2 == 0 {
								n = 1 + r.IntN(8) + more
								if r.IntN(2) == 0 {
									read = func(_ int, _ *question, src merge.Source) error {
										_,
											err := io.Copy(io.Discard, src.Body)
										return err
									}
								}
							}
							got, err := x.askAndRead(parts(mine, n, r), read)
							if err != nil {
								t.Error(err)
								return
							}
							defer got.close()
							if len(got.sources) != n*len(mine) || got.broken != nil {
								t.Errorf("%d answers of %d, %v", len(got.sources), n*len(mine), got.broken)
							}
							if read == nil {
								if err := lockstep(got.sources); err != nil {
									t.Error(err)
								}
							}
						})
					}
					wg.Wait()
					close(over)
					watch.Wait()
					if n := c.st.pool.InUse(); n != 0 {
						t.Errorf("%d bytes are still held", n)
					}
				})
			})
		}
	}
}

// Who finds no place until shortly before its deadline is told so, by the name of the bound and of
// the servers; who leaves waits no longer; both leave the place to those that come after.
func TestNoPlaceAtAReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowded(t, 2, 1, 1, 1000, "delay 30s; answer")
		defer c.close()
		shards := c.st.top.Groups[0].Shards
		r := rand.New(rand.NewPCG(1, 1))
		var wg sync.WaitGroup
		holder, done := c.exchange(t.Context(), time.Minute)
		defer done()
		wg.Go(func() {
			got, err := holder.ask(parts(shards[1:], 1, r))
			if err != nil {
				t.Error(err)
				return
			}
			got.close()
		})
		synctest.Wait()
		for _, n := range []int{1, 2} { // one by one, and both side by side
			x, done := c.exchange(t.Context(), 10*time.Second)
			_, err := x.ask(parts(shards[2-n:], 1, r))
			e := qerr.From(err)
			if e.Kind != qerr.Overloaded || e.Bound != policy.BoundReplicaCalls || e.RetryAfter == 0 || e.Advice == "" ||
				!strings.Contains(e.Message, "jaguar[1] (10.0.1.0:9090)") || !strings.Contains(e.Seen, "0 others waiting") ||
				x.ctx.Err() != nil {
				t.Errorf("%d shards: %v, seen %q", n, err, e.Seen)
			}
			done()
		}
		ctx, leave := context.WithCancelCause(t.Context())
		x, done := c.exchange(ctx, time.Minute)
		defer done()
		wg.Go(func() {
			if _, err := x.ask(parts(shards, 1, r)); qerr.From(err).Kind != qerr.Canceled {
				t.Errorf("a client that left: %v", err)
			}
		})
		synctest.Wait()
		leave(qerr.ErrClientLeft)
		wg.Wait()
		for range 2 {
			x, done := c.exchange(t.Context(), 45*time.Second)
			got, err := x.ask(parts(shards, 1, r))
			if err != nil {
				t.Errorf("a place was kept: %v", err)
			} else {
				got.close()
			}
			done()
		}
	})
}

// A fan-out over many shards has a bounded number of calls under way, and is charged for them.
func TestWidthOfAFanOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowded(t, 80, 1, 48, 128, "delay 20ms; answer") // 32 places in all
		defer c.close()
		var wg sync.WaitGroup
		var most, held int64
		over := make(chan struct{})
		wg.Go(func() {
			c.watch(over, func() {
				n := int64(0)
				for _, f := range c.fakes {
					n += int64(f.InFlight())
				}
				most, held = max(most, n), max(held, c.st.pool.InUse())
			})
		})
		var callers sync.WaitGroup
		for i := range 32 {
			callers.Go(func() {
				x, done := c.exchange(t.Context(), time.Minute)
				defer done()
				got, err := x.ask(parts(c.st.top.Groups[0].Shards, 1, rand.New(rand.NewPCG(1, uint64(i)))))
				if err != nil {
					t.Error(err)
					return
				}
				defer got.close()
				if err := lockstep(got.sources); err != nil || len(got.sources) != 80 {
					t.Errorf("%d answers, %v", len(got.sources), err)
				}
			})
		}
		callers.Wait()
		close(over)
		wg.Wait()
		if most > 32 {
			t.Errorf("%d calls were under way at once", most)
		}
		if held < 32*callBytes {
			t.Errorf("32 calls were charged with %d bytes", held)
		}
		if n := c.st.pool.InUse(); n != 0 {
			t.Errorf("%d bytes are still held", n)
		}
	})
}
