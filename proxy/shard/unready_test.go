package shard

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// unready is a server whose readiness page fails from some time on, while it answers queries. What
// it has changes with that: it would break its group's promises.
type unready struct {
	status       int // of the page; 0: it is slower than a probe waits
	value, other string
	is           atomic.Bool
}

func (u *unready) config() fakeshard.Config {
	return fakeshard.Config{Answer: func(r fakeshard.Record) (fakeshard.Answer, bool) {
		is := u.is.Load()
		said := func(body string) (fakeshard.Answer, bool) {
			h := http.Header{"Content-Type": {"application/json"}}
			return fakeshard.Answer{Status: http.StatusOK, Header: h, Body: []byte(body)}, true
		}
		switch {
		case r.Path == "/-/ready" && is && u.status == 0:
			time.Sleep(probeTimeout + 2*time.Second)
			return fakeshard.Answer{Status: http.StatusOK, Body: []byte("Ready.")}, true
		case r.Path == "/-/ready" && is:
			return fakeshard.Answer{Status: u.status, Body: []byte("no")}, true
		case strings.HasSuffix(r.Path, "/values") && is:
			return said(`{"status":"success","data":["` + u.other + `"]}`)
		case strings.HasSuffix(r.Path, "/values"):
			return said(`{"status":"success","data":["` + u.value + `"]}`)
		case strings.HasSuffix(r.Path, "/query"):
			return said(`{"status":"success","data":{"resultType":"vector","result":[]}}`)
		}
		return fakeshard.Answer{}, false
	}}
}

// TestUnreadyAndAnswers: a server that fails its readiness page and answers queries all the same
// has something to add to answers, so what it told of its series once is not believed for ever:
// neither where it is asked, nor where nobody asks it, just for what it told.
func TestUnreadyAndAnswers(t *testing.T) {
	for name, p := range map[string]struct {
		value, other string
		promise      func(*config.Group)
		trusted      func(*Group) bool
	}{
		"shards[].names": {"up", "kube_x", func(g *config.Group) { g.Shards[1].Names = []string{"kube_.+"} }, (*Group).ShardNamesTrusted},
		"names":          {"up", "kube_x", func(g *config.Group) { g.Names = []string{"up"} }, (*Group).NamesTrusted},
		"hashmod": {valueOf(t, 0, 2, 0), valueOf(t, 1, 2, 0), func(g *config.Group) {
			g.Hashmod = config.Hashmod{Labels: []string{"node"}, Modulus: 2}
			g.Shards = g.Shards[:1]
		}, (*Group).HashmodTrusted},
	} {
		for _, status := range []int{
			0, http.StatusForbidden, http.StatusTooManyRequests,
			http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		} {
			for _, asked := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %d, asked %t", name, status, asked), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						u := &unready{status: status, value: p.value, other: p.other}
						u.test(t, p.promise, p.trusted, asked)
					})
				})
			}
		}
	}
}

func (u *unready) test(t *testing.T, promise func(*config.Group), trusted func(*Group) bool, asked bool) {
	t.Helper()
	b := newBubble(t, u.config(), fakeshard.Config{Series: []map[string]string{{model.MetricNameLabel: "up"}}})
	cfg := sharded(b.urls...)
	promise(&cfg)
	top := build(t, Options{Dial: b.dial}, true, cfg)
	defer b.close()
	defer top.Close()
	g := top.Groups[0]
	synctest.Wait()
	if !trusted(g) {
		t.Fatal("not trusted to begin with")
	}
	u.is.Store(true)
	for range 5 {
		time.Sleep(time.Minute)
		if !asked {
			continue
		}
		if _, err := ask(t.Context(), g.Shards[0], &endpoint.Request{ID: endpoint.Query, Query: "kube_x"}); err != nil {
			t.Fatalf("it does not answer: %v", err)
		}
	}
	if s := g.Shards[0].Replicas[0].State(); s != Down {
		t.Fatalf("it is %s", s)
	}
	holds, _ := g.Prune(named1("kube_x"), math.MinInt64, math.MaxInt64, time.Now())
	if trusted(g) || holds != nil && !holds(g.Shards[0]) {
		t.Error("it has another value, answers for five minutes, and is left out")
	}
}

// TestUnreadySince: what was answered before the server was down says nothing about it.
func TestUnreadySince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, fakeshard.Config{Routes: []fakeshard.Route{
			{Path: "/-/ready", Nth: 2, To: 10000, Script: "status 503; send no"},
			{Path: "/api/v1/query", Nth: 2, To: 10000, Script: "status 503; send no"},
			{Path: "/api/v1/label/__name__/values", Script: `header Content-Type application/json; send '{"status":"success","data":["up"]}'`},
		}})
		cfg := named(b.urls[0], "up")
		top := build(t, Options{Dial: b.dial}, true, cfg)
		defer b.close()
		defer top.Close()
		g := top.Groups[0]
		if _, err := ask(t.Context(), g.Shards[0], &endpoint.Request{ID: endpoint.Query, Query: "up"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if r := g.Shards[0].Replicas[0]; r.State() != Down || !g.NamesTrusted() {
			_, why := r.Names()
			t.Errorf("a server that answers nothing any more is %s, and is not believed: %s", r.State(), why)
		}
	})
}
