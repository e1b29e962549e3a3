package discovery

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery/targetgroup"

	"github.com/spillwayproject/spillway/proxy/config"
)

// TestShardThatStarts: a shard that comes while its group is in force is found, as far as anybody
// can tell, when one of its servers answers; so are the servers of its other pods then. One that is
// gone again before was never there. A new copy of a shard that is in force is no such.
func TestShardThatStarts(t *testing.T) {
	k := startKube(t)
	k.slice("one", endpoint{pod: "s-0-0", ip: "10.0.0.1"})
	r := newRig(t, strings.Replace(slicesOf(k, ""), "500ms", "1h", 1))
	var up atomic.Pointer[string]
	r.Watch.there = func(_ context.Context, c config.Replica) bool {
		host := up.Load()
		return host != nil && strings.Contains(c.URL, *host)
	}
	if got := r.shape(); got != "10.0.0.1:9090" {
		t.Fatalf("found %q", got)
	}
	k.slice("two", endpoint{pod: "s-1-0", ip: "10.0.1.1", notReady: true}, endpoint{pod: "s-1-1", ip: "10.0.1.2", notReady: true})
	r.counts("awaited", 2)
	k.slice("three", endpoint{pod: "s-0-1", ip: "10.0.0.2", notReady: true})
	r.becomes("10.0.0.1:9090+10.0.0.2:9090")
	k.slice("four", endpoint{pod: "s-2-0", ip: "10.0.2.1", notReady: true})
	r.counts("awaited", 3)
	k.slice("four")
	r.counts("awaited", 2)
	host := "10.0.1.2"
	up.Store(&host)
	r.becomes("10.0.0.1:9090+10.0.0.2:9090 10.0.1.1:9090+10.0.1.2:9090")
	r.counts("awaited", 0)
	r.counts("kept", 0)
}

// TestShardThatNeverStarts: after keep it is needed, and requests name it.
func TestShardThatNeverStarts(t *testing.T) {
	k := startKube(t)
	k.slice("one", endpoint{pod: "s-0-0", ip: "10.0.0.1"})
	r := newRig(t, slicesOf(k, ""))
	r.Watch.there = func(context.Context, config.Replica) bool { return false }
	if got := r.shape(); got != "10.0.0.1:9090" {
		t.Fatalf("found %q", got)
	}
	k.slice("two", endpoint{pod: "s-1-0", ip: "10.0.1.1"})
	r.counts("awaited", 1)
	r.becomes("10.0.0.1:9090 10.0.1.1:9090")
	r.counts("awaited", 0)
}

// TestAwaitedAndRefused: while what is found cannot be used, an awaited shard whose keep has ended
// is looked after once a second: time alone changes nothing then.
func TestAwaitedAndRefused(t *testing.T) {
	s := sourceOf(t, "{dns_srv: [a.test, b.test], keep: 10m, refresh_interval: 1h}")
	now := time.Unix(1e9, 0)
	s.now = func() time.Time { return now }
	tell := func(name string, targets ...model.LabelSet) {
		for _, target := range targets {
			target[dnsName] = model.LabelValue(name)
		}
		s.take([]*targetgroup.Group{{Source: name, Targets: targets}})
	}
	looks := func(in time.Duration) {
		t.Helper()
		if got := s.nextEnd(); got != in {
			t.Errorf("looks again in %s, want %s", got, in)
		}
	}
	old, fresh := model.LabelSet{model.AddressLabel: "h1"}, model.LabelSet{model.AddressLabel: "h2", ShardLabel: "2"}
	tell("a.test", old)
	tell("b.test", model.LabelSet{model.AddressLabel: "h1"})
	if s.refused == nil {
		t.Fatal("one server in two places is used")
	}
	tell("b.test", model.LabelSet{model.AddressLabel: "h3"})
	tell("a.test", old, fresh)
	if got := s.shape(); got != "h1 h3" || len(s.awaited) != 1 {
		t.Fatalf("%q are asked, %d are awaited", got, len(s.awaited))
	}
	looks(10 * time.Minute)
	tell("b.test", model.LabelSet{model.AddressLabel: "h1"})
	looks(10 * time.Minute)
	now = now.Add(10*time.Minute + time.Second)
	s.take(nil)
	looks(time.Second)
	tell("b.test", model.LabelSet{model.AddressLabel: "h3"})
	if got := s.shape(); got != "h1 h2 h3" && got != "h2 h1 h3" || len(s.awaited) != 0 {
		t.Errorf("%q are asked, %d are awaited", got, len(s.awaited))
	}
}

// counts waits until so many servers are in a state.
func (r *rig) counts(state string, want float64) {
	r.t.Helper()
	var got float64
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if got = r.state(state); got == want {
			return
		}
	}
	r.t.Fatalf("spillway_discovery_servers of %s is %g, want %g", state, got, want)
}

// TestThere: what counts as a server that has started.
func TestThere(t *testing.T) {
	var status atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/prom/-/ready" || r.Header.Get("Authorization") != "" || r.Header.Get("X-Secret") != "" {
			t.Errorf("asked for %s with %v", r.URL.Path, r.Header)
		}
		w.Header().Set("Location", "http://127.0.0.1:1/")
		w.WriteHeader(int(status.Load()))
	}))
	defer server.Close()
	hung, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	cut, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and hangs up, as what forwards to nobody does
	if err != nil {
		t.Fatal(err)
	}
	defer cut.Close()
	go func() {
		for c, err := cut.Accept(); err == nil; c, err = cut.Accept() {
			c.Close()
		}
	}()
	of := func(url string) config.Replica {
		cfg, err := config.Parse(fmt.Appendf(nil, "groups: [{name: g, shards: [{replicas: [{url: %q, headers: {X-Secret: a}, http_client: {basic_auth: {username: u, password: p}}}]}]}]", url), "")
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Groups[0].Shards[0].Replicas[0]
	}
	for code, want := range map[int]bool{200: true, 503: false, 502: false, 504: false, 404: true, 401: true, 302: true, 500: true} {
		status.Store(int64(code))
		if got := there(t.Context(), of(server.URL+"/prom")); got != want {
			t.Errorf("%d: %t", code, got)
		}
	}
	for url, want := range map[string]bool{
		"http://127.0.0.1:1": false, "http://nobody.moved.invalid:9090": false, "http://" + hung.Addr().String(): false,
		"http://" + cut.Addr().String(): false, "https://" + cut.Addr().String(): false,
		strings.Replace(server.URL, "http:", "https:", 1): true, // another trouble, that is told where it is asked
	} {
		if got := there(t.Context(), of(url)); got != want {
			t.Errorf("%s: %t", url, got)
		}
	}
}
