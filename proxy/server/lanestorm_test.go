package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
	"github.com/spillwayproject/spillway/proxy/tenant"
)

// The time that a server takes for a heavy query and for a light one.
const heavyTime, lightTime = 2 * time.Second, 50 * time.Millisecond

// newStormy is one server in memory that takes its time, behind the lanes.
func newStormy(t *testing.T, cfg *config.Config) *crowded {
	t.Helper()
	mem := fakeshard.NewMemory()
	f, err := fakeshard.New(fakeshard.Config{Listener: mem, Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
		took := lightTime
		if r.Form.Get("query") == "heavy" {
			took = heavyTime
		}
		time.Sleep(took)
		return fakeshard.Answer{
			Header: http.Header{"Content-Type": {"application/json"}},
			Body:   []byte(`{"status":"success","data":{"resultType":"vector","result":[]}}`),
		}, true
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := &crowded{s: &Server{}, fakes: []*fakeshard.Shard{f}}
	c.st = &state{pool: admit.NewPool(64 << 20), cfg: cfg, lanes: cfg.LanesInForce()}
	o := shard.Options{Registerer: prometheus.NewRegistry(), Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return mem.DialContext(ctx, network, addr)
	}}
	for _, l := range c.st.lanes {
		o.Lanes = append(o.Lanes, admit.Lane{Name: l.Name, Share: float64(l.Share), Most: l.MaxConcurrent})
	}
	groups := []config.Group{{Name: "jaguar", Shards: []config.Shard{{Replicas: config.Replicas("http://10.0.0.1:9090")}}}}
	if c.st.top, err = shard.New(groups, o, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

// asks is one query of somebody, with all that a request has until it asks; it returns how long
// that took.
func (c *crowded) asks(ctx context.Context, who *tenant.Tenant, peer, user, query string, limit time.Duration) (time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	if err != nil {
		return 0, err
	}
	r.RemoteAddr = peer + ":1"
	r.Header.Set(identity.HeaderUser, user)
	r.Header.Set(identity.HeaderDashboard, user)
	from := &exchange{st: c.st}
	from.tenant, from.caller = who, who.Caller(identity.FromRequest(r))
	ctx = from.inLane(identity.With(ctx, identity.Request{Peer: identity.HolderOf(r)}), r, nil)
	x, done := c.exchange(ctx, limit)
	defer done()
	began := time.Now()
	req := &endpoint.Request{ID: endpoint.Query, Query: query, Time: endpoint.At(1)}
	got, err := x.ask([]question{{shard: c.st.top.Groups[0].Shards[0], req: req}})
	if err != nil {
		return time.Since(began), err
	}
	defer got.close()
	return time.Since(began), lockstep(got.sources)
}

// TestStormOfOneCaller: ten thousand heavy queries of a thousand invented users, from one address
// or a few, keep ten callers with light queries waiting for one heavy query at most, and so do
// those of four users who are believed for others at the same address; those of a thousand who are
// keep nobody in another lane waiting at all. Those that find no room to wait are told so.
func TestStormOfOneCaller(t *testing.T) {
	all := []string{identity.HeaderUser, identity.HeaderDashboard}
	grafana := &tenant.Tenant{Tenant: config.Tenant{Name: "grafana", MaySet: all}}
	oncall := &tenant.Tenant{Tenant: config.Tenant{Name: "oncall"}}
	lanes := &config.Config{Lanes: []config.Lane{{Name: "oncall", Match: config.LaneMatch{Tenant: "oncall"}, Share: 0.5}}}
	for _, tc := range []struct {
		name         string
		cfg          *config.Config
		addresses    int // of the heavy ones
		users        int
		heavy, light *tenant.Tenant
		same         bool          // the light ones have the same addresses
		most         time.Duration // that a light one waits
		full         bool          // some heavy ones find no room to wait
	}{
		{"one address", &config.Config{}, 1, 1000, nil, nil, false, heavyTime, true},
		{"four addresses", &config.Config{}, 4, 1000, nil, nil, false, heavyTime, false},
		{"believed users of one address", lanes, 1, 4, grafana, grafana, true, heavyTime, false},
		{"a lane of its own", lanes, 4, 1000, grafana, oncall, true, lightTime, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newStormy(t, tc.cfg)
				defer c.close()
				ctx, cancel := context.WithCancelCause(t.Context())
				var heavy, light sync.WaitGroup
				var mu sync.Mutex
				full, worst := 0, time.Duration(0)
				for i := range 10_000 {
					heavy.Go(func() {
						peer, user := fmt.Sprint("192.0.2.", i%tc.addresses), fmt.Sprint("invented ", i%tc.users)
						_, err := c.asks(ctx, tc.heavy, peer, user, "heavy", time.Hour)
						if e := qerr.From(err); e != nil && e.Bound == policy.BoundReplicaCalls {
							mu.Lock()
							full++
							mu.Unlock()
						}
					})
				}
				time.Sleep(10 * time.Second)
				for i := range 10 {
					rng := rand.New(rand.NewPCG(1, uint64(i)))
					peer := fmt.Sprint("198.51.100.", i)
					if tc.same {
						peer = fmt.Sprint("192.0.2.", i%tc.addresses)
					}
					light.Go(func() {
						for range 20 {
							time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
							took, err := c.asks(ctx, tc.light, peer, fmt.Sprint("light ", i), "light", 25*time.Second)
							if err != nil {
								t.Error(err)
								return
							}
							mu.Lock()
							worst = max(worst, took-lightTime)
							mu.Unlock()
						}
					})
				}
				light.Wait()
				t.Logf("a light query waited %s at most; %d of the heavy ones found no room to wait", worst, full)
				if worst > tc.most+10*time.Millisecond {
					t.Errorf("a light query waited %s, of which %s is one that is under way", worst, tc.most)
				}
				if tc.full != (full > 0) {
					t.Errorf("%d heavy ones found no room", full)
				}
				cancel(qerr.ErrClientLeft)
				heavy.Wait()
				for _, l := range c.st.top.Lanes() {
					if l.Held != 0 || l.Waiting != 0 {
						t.Errorf("at the end %+v", l)
					}
				}
			})
		})
	}
}
