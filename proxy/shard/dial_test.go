package shard

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// A burst of dials looks the name up once, also where the one that began it leaves, and what was
// found is used for some seconds.
func TestOneLookupAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lookups atomic.Int32
		d := newDialer(5*time.Second, func(context.Context, string, string) (net.Conn, error) {
			c, _ := net.Pipe()
			return c, nil
		})
		d.resolve = func(ctx context.Context, _ string) ([]string, error) {
			lookups.Add(1)
			select {
			case <-time.After(time.Second):
				return []string{"10.0.0.1"}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		burst := func(want int32) {
			t.Helper()
			ctx, leave := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { // it is the one that looks up
				if conn, err := d.dial(ctx, "tcp", "shard.invalid:9090"); err == nil {
					_ = conn.Close()
				}
			})
			synctest.Wait()
			for range 50 {
				wg.Go(func() {
					conn, err := d.dial(t.Context(), "tcp", "shard.invalid:9090")
					if err != nil {
						t.Error(err)
						return
					}
					_ = conn.Close()
				})
			}
			synctest.Wait()
			leave()
			wg.Wait()
			if n := lookups.Swap(0); n != want {
				t.Errorf("%d lookups, want %d", n, want)
			}
		}
		burst(1)
		burst(0)
		time.Sleep(dnsFresh)
		burst(1)
	})
}

// A connection that this machine could not open says nothing about the server: it is not down, its
// breaker stays closed, and whoever asks is told what to do.
func TestNoFileIsNotTheServersFault(t *testing.T) {
	for _, no := range []error{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS} {
		t.Run(no.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, fakeshard.Config{})
				defer b.close()
				var short atomic.Bool
				top, err := New([]config.Group{group(b.urls...)},
					Options{Registerer: prometheus.NewRegistry(), Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
						if short.Load() {
							return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("socket", no)}
						}
						return b.dial(ctx, network, addr)
					}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer top.Close()
				top.Start(context.Background())
				time.Sleep(10 * time.Second)
				r := top.Groups[0].Shards[0].Replicas[0]
				if r.State() != Up {
					t.Fatalf("the replica is %s", r.State())
				}
				closeIdle(r.up.transport)
				short.Store(true)
				for range 2 * breakerFailures {
					_, err := ask(t.Context(), r.Shard, &endpoint.Request{ID: endpoint.Series, Match: []string{"up"}})
					e := qerr.From(err)
					if e.Kind != qerr.Overloaded || e.Bound != "process_calls" || !strings.Contains(e.Message, no.Error()) ||
						!strings.Contains(e.Advice, "open files") || !errors.Is(err, no) {
						t.Fatalf("%v, %+v", err, e)
					}
				}
				time.Sleep(time.Minute) // probes fail too
				if r.State() != Up || r.up.breaker.current(time.Now()) != Closed {
					t.Errorf("the replica is %s, its breaker %s", r.State(), r.up.breaker.current(time.Now()))
				}
				if _, err := r.Shard.Base(); err != nil {
					t.Errorf("the replica is not asked any more: %v", err)
				}
				short.Store(false)
				if _, err := ask(t.Context(), r.Shard, &endpoint.Request{ID: endpoint.Series, Match: []string{"up"}}); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
