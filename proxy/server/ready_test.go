package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// away is a server that is there and answers nothing.
var away = fakeshard.Route{Script: "status 503; send 'Service Unavailable'"}

// lateShard is a server of the group that is away from the start on.
func lateShard(t *testing.T, group string, routes ...fakeshard.Route) *fakeshard.Shard {
	return fakeshard.Start(t, fakeshard.Config{
		Series: []map[string]string{{"__name__": "up", "instance": group + "-0", "job": "fake"}}, Routes: routes,
	})
}

// groupsOver is a configuration of one group for each server, named by their order.
func groupsOver(urls ...string) string {
	var b strings.Builder
	b.WriteString("groups:\n")
	for i, u := range urls {
		fmt.Fprintf(&b, "  - {name: g%d, labels: {cluster: g%d}, shards: [{replicas: [{url: %q}]}]}\n", i, i, u)
	}
	return b.String()
}

// startUnready starts a proxy that is not ready, since servers are away.
func startUnready(t *testing.T, text string, wait time.Duration) *rig {
	t.Helper()
	r := &rig{t: t, log: &logbook{}, client: newClient(t)}
	r.config = filepath.Join(t.TempDir(), "spillway.yaml")
	if err := os.WriteFile(r.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(r.config)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	r.s, err = New(Options{
		Config: cfg, ConfigFile: r.config, ListenAddress: "127.0.0.1:0", AdminListenAddress: "127.0.0.1:0", Version: "test",
		lame: time.Millisecond, Logger: slog.New(r.log), ReadyWait: wait,
		shards: shard.Options{ProbeInterval: 50 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.s.Run(ctx, context.Background()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the proxy ended with %v", err)
		}
	})
	r.eventually("the log says that it is not ready", func() bool {
		at := regexp.MustCompile(`^serving, but not ready: .* address=(\S+) admin=(\S+) `)
		for _, line := range r.log.atLeast(slog.LevelWarn) {
			if m := at.FindStringSubmatch(line); m != nil {
				r.url, r.admin = "http://"+m[1], "http://"+m[2]
			}
		}
		return r.url != ""
	})
	if r.url == "" {
		t.FailNow()
	}
	return r
}

// isReady tells whether both listeners say so, which they do at once.
func (r *rig) isReady() bool {
	return r.get(r.url+"/-/ready").status == http.StatusOK && r.get(r.admin+"/-/ready").status == http.StatusOK
}

// down tells whether all servers are known to be.
func (r *rig) down(n int) bool {
	return r.metric("spillway_shard_replica_state", "state=down") == float64(n)
}

// A start is not ready before a server of any group has answered. Then, and afterwards, servers
// count no more.
func TestReadyOnceServersAnswer(t *testing.T) {
	t.Parallel()
	other, late, gone := lateShard(t, "g0", away), lateShard(t, "g1", away), lateShard(t, "ended")
	r := startUnready(t, groupsOver(other.URL(), late.URL())+fmt.Sprintf(
		"  - {name: ended, labels: {cluster: ended}, until: 2020-01-01T00:00:00Z, shards: [{replicas: [{url: %q}]}]}\n", gone.URL()), time.Hour)
	for _, base := range []string{r.url, r.admin} {
		if a := r.get(base + "/-/ready"); a.status != http.StatusServiceUnavailable ||
			!strings.Contains(string(a.body), "no server of any of the groups g0, g1 has answered yet; the log says why") ||
			!strings.Contains(string(a.body), "ready without them 1h0m0s after its start") {
			t.Errorf("%s before any server has answered: %s", base, a)
		}
		if a := r.get(base + "/-/healthy"); a.status != http.StatusOK {
			t.Errorf("%s is not healthy: %s", base, a)
		}
	}
	if slices.ContainsFunc(r.log.atLeast(slog.LevelInfo), func(l string) bool { return strings.HasPrefix(l, "Spillway is ready") }) {
		t.Error("the log says that it is ready")
	}
	if err := late.Set(""); err != nil {
		t.Fatal(err)
	}
	r.eventually("it is ready once g1's server answers", r.isReady)
	a := r.get(r.url + "/api/v1/query?query=up%7Bcluster%3D%22g1%22%7D")
	if a.status != http.StatusOK || !strings.Contains(string(a.body), "g1-0") {
		t.Errorf("a query of the group that is there: %s", a)
	}
	for _, s := range []*fakeshard.Shard{gone, late} {
		if err := s.Set("", away); err != nil {
			t.Fatal(err)
		}
	}
	r.eventually("all servers are down", func() bool { return r.down(3) })
	if !r.isReady() {
		t.Error("not ready any more since its servers are down, as those of every other proxy are")
	}
}

// A server whose readiness page is closed, and whose API answers, is one that answers.
func TestReadyWithoutReadinessPage(t *testing.T) {
	t.Parallel()
	closed := lateShard(t, "g0", fakeshard.Route{Path: "/-/ready", Script: "status 403; send 'Forbidden'"})
	r := startUnready(t, groupsOver(closed.URL()), time.Hour)
	r.eventually("it is ready once a query was answered", r.isReady)
}

// A start waits for servers only so long.
func TestReadyAfterTheWait(t *testing.T) {
	t.Parallel()
	var urls []string
	for range 7 {
		urls = append(urls, lateShard(t, "g", away).URL())
	}
	r := startUnready(t, groupsOver(urls...), time.Second)
	r.eventually("it is ready after the wait", r.isReady)
	if !slices.Contains(r.log.atLeast(slog.LevelWarn), "ready although no server of a group has answered groups=g0, g1, g2, g3, g4, g5, g6 limit=1s") {
		t.Errorf("the log does not say without what: %q", r.log.atLeast(slog.LevelWarn))
	}
	if got := r.s.unready(); !strings.Contains(got, "no server of any of the groups g0, g1, g2, g3, g4 and 2 more has answered yet") {
		t.Errorf("what it was waiting for: %s", got)
	}
}

// What a start waits for is what the configuration of that moment has.
func TestReadyAfterReload(t *testing.T) {
	t.Parallel()
	there := lateShard(t, "g0")
	r := startUnready(t, groupsOver(lateShard(t, "g0", away).URL()), time.Hour)
	if r.isReady() {
		t.Error("ready without a server")
	}
	if err := os.WriteFile(r.config, []byte(groupsOver(there.URL())), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.s.Reload(); err != nil {
		t.Fatal(err)
	}
	r.eventually("it is ready once the file names the right server", r.isReady)
}

// Without a wait a start is ready, whatever the first probes found.
func TestReadyWithoutWait(t *testing.T) {
	t.Parallel()
	_, url := startProxy(t, t.Context(), groupsOver(lateShard(t, "g0", away).URL()))
	r := &rig{t: t, client: newClient(t)}
	if a := r.get(url + "/-/ready"); a.status != http.StatusOK {
		t.Errorf("ready: %s", a)
	}
}
