package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// TestDiscoveredShards: the file in which shards are looked up changes under load, to what is of no
// use at times. No request fails, no series is doubled, and each answer is that of one of the
// topologies: the shards that were never away are always in it.
func TestDiscoveredShards(t *testing.T) {
	const changes = 24
	dir := t.TempDir()
	file := filepath.Join(dir, "shards.yml")
	var shards []*fakeshard.Shard
	for i := range 4 {
		up := map[string]string{"__name__": "up", "instance": fmt.Sprint("node-", i), "job": "fake"}
		shards = append(shards, fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{up}}))
	}
	write := func(n int) {
		t.Helper()
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "- {targets: [%q], labels: {__spillway_shard__: %q}}\n", shards[i].Addr(), fmt.Sprint("s", i))
		}
		if n == 0 {
			b.WriteString("- {targets: [nowhere]}\n") // in no shard
		}
		writeText(t, file, b.String())
	}
	write(1)
	r := &rig{t: t, shards: map[string][][]*fakeshard.Shard{}, names: map[*fakeshard.Shard]string{}, log: &logbook{}, client: newClient(t)}
	text := "groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    shards_from: {files: [" + file + "], keep: 1ms, refresh_interval: 200ms}\n"
	r.s, r.url = startProxy(t, t.Context(), text+limits(ample), func(o *Options) {
		o.shards = shard.Options{ProbeInterval: 200 * time.Millisecond}
	})
	count := func() int { return len(r.s.state.Load().top.Groups[0].Shards) }
	var done atomic.Bool
	var served atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for !done.Load() {
				for _, a := range askings() {
					switch a.name {
					case "query spliced", "query_range pushed", "query raw", "series", "federate":
					default:
						continue
					}
					got := r.ask(r.request(context.Background(), a))
					if got.err != nil || got.status != 200 || len(got.message.Warnings) > 0 {
						t.Errorf("%s: %s", a.name, got)
						return
					}
					if a.name == "series" {
						for i := range shards {
							if n := strings.Count(string(got.body), fmt.Sprintf(`"node-%d"`, i)); n > 1 || n == 0 && i == 0 {
								t.Errorf("node-%d is there %d times: %s", i, n, got)
							}
						}
					}
					served.Add(1)
				}
			}
		})
	}
	for i := range changes {
		if i%6 == 5 {
			was := count()
			write(0)
			r.eventually("what is of no use is refused", func() bool { return r.metric("spillway_discovery_refused", "group=jaguar") == 1 })
			if count() != was {
				t.Errorf("it has changed the shards: %d, %d before", count(), was)
			}
		}
		n := 1 + (i+1)%4
		write(n)
		r.eventually(fmt.Sprintf("there are %d shards", n), func() bool { return count() == n })
	}
	r.eventually("requests go on", func() bool { return served.Load() > 20 })
	done.Store(true)
	wg.Wait()
	if n := r.metric("spillway_config_last_reload_successful"); n != 1 {
		t.Errorf("spillway_config_last_reload_successful is %v", n)
	}
	t.Logf("%d changes, %d requests", changes, served.Load())
}

// TestDiscoveredShardIsMissing: that a remainder of the hashmod is on none of the shards that were
// found is in the log, at the start and when it comes to be so, once each.
func TestDiscoveredShardIsMissing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shards.yml")
	write := func(hashes ...int) {
		t.Helper()
		var b strings.Builder
		for _, h := range hashes {
			fmt.Fprintf(&b, "- {targets: ['127.0.0.1:%d'], labels: {__spillway_shard__: s%d, __spillway_hash__: %d}}\n", 1+h, h, h)
		}
		writeText(t, file, b.String())
	}
	write(0)
	log := &logbook{}
	r := &rig{t: t, log: log}
	text := "groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    hashmod: {labels: [node], modulus: 3}\n    shards_from: {files: [" + file + "], keep: 1ms, refresh_interval: 200ms}\n"
	s, _ := startProxy(t, t.Context(), text+limits(ample), func(o *Options) { o.Logger = slog.New(log) })
	warned := func() string { return strings.Join(log.atLeast(slog.LevelWarn), "\n") }
	says := func(n, first int) bool {
		return strings.Count(warned(), fmt.Sprintf("groups[0].hashmod: %d of 3 remainders are on no shard, the first is %d", n, first)) == 1
	}
	if !says(2, 1) {
		t.Fatalf("it is not said at the start:\n%s", warned())
	}
	count := func() int { return len(s.state.Load().top.Groups[0].Shards) }
	for _, hashes := range [][]int{{0, 1, 2}, {1, 2}} {
		write(hashes...)
		r.eventually(fmt.Sprintf("there are %d shards", len(hashes)), func() bool { return count() == len(hashes) })
	}
	r.eventually("it is said", func() bool { return says(1, 0) })
	if n := strings.Count(warned(), "remainders are on no shard"); n != 2 {
		t.Errorf("said %d times:\n%s", n, warned())
	}
}

// TestChangedWhileStarting: what was written after the file had been read, and before it was
// watched, is loaded.
func TestChangedWhileStarting(t *testing.T) {
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1}}}, limits(ample))
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	if err := os.WriteFile(file, []byte(r.config+"\npartial_response: warn\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := startProxy(t, t.Context(), r.config, func(o *Options) { o.ConfigFile, o.ReloadInterval = file, 20*time.Millisecond })
	r.eventually("it is loaded", func() bool { return s.state.Load().cfg.PartialResponse == "warn" })
}

// TestRefusedIsTriedAgain: a configuration that was refused for what is beside it, and not for what
// stands in it, is loaded when that has come, though nobody touches it.
func TestRefusedIsTriedAgain(t *testing.T) {
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1}}}, limits(ample))
	dir := t.TempDir()
	file, logs := filepath.Join(dir, "spillway.yaml"), filepath.Join(dir, "logs")
	if err := os.WriteFile(file, []byte(r.config), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := startProxy(t, t.Context(), r.config, func(o *Options) { o.ConfigFile, o.ReloadInterval = file, 5*time.Millisecond })
	with := r.config + "\nusage_log: {path: " + filepath.Join(logs, "usage.jsonl") + "}\npartial_response: warn\n"
	if err := os.WriteFile(file, []byte(with), 0o600); err != nil {
		t.Fatal(err)
	}
	r.eventually("it is refused", func() bool { return !s.reloadedWell.Load() })
	if err := os.Mkdir(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	r.eventually("it is loaded", func() bool { return s.state.Load().cfg.PartialResponse == "warn" && s.reloadedWell.Load() })
}

// TestConfigIsWatched: a file that changes is loaded, by its bytes; what is half written is not,
// and a broken one changes nothing.
func TestConfigIsWatched(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1}}}, limits(ample))
	// As a ConfigMap is mounted: the file is a link into a folder, which is a link itself.
	put := func(folder, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, folder, "spillway.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(folder, filepath.Join(dir, "..new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	put("1", r.config)
	file := filepath.Join(dir, "spillway.yaml")
	if err := os.Symlink("..data/spillway.yaml", file); err != nil {
		t.Fatal(err)
	}
	s, _ := startProxy(t, t.Context(), r.config, func(o *Options) { o.ConfigFile, o.ReloadInterval = file, 20*time.Millisecond })
	partial := func() string { return s.state.Load().cfg.PartialResponse }
	put("2", r.config+"\npartial_response: warn\n")
	r.eventually("the link to another folder is followed", func() bool { return partial() == "warn" })
	put("3", "groups: []\n")
	r.eventually("a broken file is refused", func() bool { return !s.reloadedWell.Load() })
	if partial() != "warn" {
		t.Error("a broken file has changed something")
	}
	loaded := s.state.Load()
	put("4", r.config+"\npartial_response: warn\n")
	r.eventually("it is well again", s.reloadedWell.Load)
	if s.state.Load() != loaded {
		t.Error("the same bytes were built again")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	r.eventually("a file that is gone is told", func() bool { return !s.reloadedWell.Load() })
	if partial() != "warn" || s.state.Load() != loaded {
		t.Error("a file that is gone has changed something")
	}
}

// TestDiscoveredShardsHaveNoNames: the refusal of a join does not advise a key that shards which
// are looked up cannot have.
func TestDiscoveredShardsHaveNoNames(t *testing.T) {
	var listed, found strings.Builder
	for i := range 2 {
		s := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{
			{"__name__": "up", "instance": fmt.Sprint("a-", i), "job": "fake"},
			{"__name__": "up", "instance": fmt.Sprint("b-", i), "job": "fake"},
		}})
		fmt.Fprintf(&listed, "      - replicas: [{url: %q}]\n", s.URL())
		fmt.Fprintf(&found, "- {targets: [%q], labels: {__spillway_shard__: s%d}}\n", s.Addr(), i)
	}
	file := filepath.Join(t.TempDir(), "shards.yml")
	if err := os.WriteFile(file, []byte(found.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for shards, advised := range map[string]bool{
		"shards:\n" + listed.String():            true,
		"shards_from: {files: [" + file + "]}\n": false,
	} {
		text := "groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    " + shards + "limits: {max_series: 1}\n"
		r := &rig{t: t, log: &logbook{}, client: newClient(t)}
		r.s, r.url = startProxy(t, t.Context(), text)
		got := r.getForm("/api/v1/query", url.Values{"query": {"sum(up * on(instance) up)"}})
		if got.status != http.StatusUnprocessableEntity || !strings.Contains(string(got.body), "may lie on different shards") {
			t.Fatal(got)
		}
		if strings.Contains(string(got.body), "names of that shard") != advised {
			t.Errorf("%.20s: %s", shards, got.body)
		}
	}
}
