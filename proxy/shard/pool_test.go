package shard

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	commonconfig "github.com/prometheus/common/config"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// After a burst few connections to a server stay, whichever road they were made by, and what goes
// on asking finds one.
func TestPoolAfterABurst(t *testing.T) {
	for name, change := range map[string]func(*config.Replica){
		"bare": func(*config.Replica) {},
		"with credentials": func(r *config.Replica) {
			r.HTTPClient.BasicAuth = &commonconfig.BasicAuth{Username: "u", Password: "p"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, fakeshard.Config{Routes: []fakeshard.Route{{Path: seriesPath, Script: "delay 1s; answer"}}})
				defer b.close()
				g := group(b.urls...)
				change(&g.Shards[0].Replicas[0])
				top, err := New([]config.Group{g}, Options{Registerer: prometheus.NewRegistry(), Dial: b.dial}, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer top.Close()
				top.Start(context.Background())
				time.Sleep(10 * time.Second)
				s, req := top.Groups[0].Shards[0], &endpoint.Request{ID: endpoint.Series, Match: []string{"up"}}
				var wg sync.WaitGroup
				for range 100 {
					wg.Go(func() {
						if _, err := ask(context.Background(), s, req); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if n := b.fakes[0].MostConns(); n < maxCalls || n > maxCalls+1 { // and a probe
					t.Errorf("%d connections in the burst", n)
				}
				time.Sleep(time.Minute)
				synctest.Wait() // a probe that is under way has ended
				before := b.fakes[0].Conns()
				if before == 0 || before > 20 {
					t.Errorf("%d connections a minute later", before)
				}
				if err := b.fakes[0].Set(""); err != nil { // at once, so that no probe comes meanwhile
					t.Fatal(err)
				}
				made := b.fakes[0].Accepted()
				if _, err := ask(context.Background(), s, req); err != nil {
					t.Error(err)
				}
				if n := b.fakes[0].Accepted() - made; n != 0 {
					t.Errorf("%d connections were made though %d were idle", n, before)
				}
			})
		})
	}
}

// However many servers there are, their idle connections are bounded together; one to each is kept.
func TestPoolOfManyServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfgs := make([]fakeshard.Config, 12)
		for i := range cfgs {
			cfgs[i].Routes = []fakeshard.Route{{Path: seriesPath, Script: "delay 1s; answer"}}
		}
		b := newBubble(t, cfgs...)
		defer b.close()
		var groups []config.Group
		for i, u := range b.urls {
			g := group(u)
			g.Name = fmt.Sprint("g", i)
			g.Labels = map[string]string{"cluster": g.Name}
			groups = append(groups, g)
		}
		// 100 calls at once, 50 idle
		top, err := New(groups, Options{Registerer: prometheus.NewRegistry(), Dial: b.dial, OpenFiles: 400}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer top.Close()
		var wg sync.WaitGroup
		for _, g := range top.Groups {
			for range 20 {
				wg.Go(func() {
					if _, err := ask(context.Background(), g.Shards[0],
						&endpoint.Request{ID: endpoint.Series, Match: []string{"up"}}); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		synctest.Wait()
		all := 0
		for i, f := range b.fakes {
			if f.Conns() == 0 {
				t.Errorf("none is left to server %d", i)
			}
			all += f.Conns()
		}
		if all > 50+len(b.fakes) {
			t.Errorf("%d connections are idle", all)
		}
	})
}
