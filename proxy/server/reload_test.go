package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestReloadSaysWhatTheStartSays: remarks on a configuration are said by a reload, too, each time
// that one is taken up.
func TestReloadSaysWhatTheStartSays(t *testing.T) {
	r, file := reloadable(t)
	writeText(t, file, strings.Replace(r.config, "limits: {", "limits: {metadata_range: 400d, ", 1))
	for range 2 { // the second one changes nothing
		if err := r.s.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	said := slices.DeleteFunc(r.log.atLeast(slog.LevelWarn), func(line string) bool {
		return !strings.Contains(line, "limits.metadata_range")
	})
	if len(said) != 1 {
		t.Errorf("%q", r.log.atLeast(slog.LevelWarn))
	}
}

// TestReloadOfAStateDir: what the next start would not find is refused by the reload.
func TestReloadOfAStateDir(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("where root may make no folder is known of Linux only")
	}
	r, file := reloadable(t)
	before := r.s.state.Load()
	writeText(t, file, r.config+"state_dir: /proc/spillway\n")
	if err := r.s.Reload(); err == nil || !strings.Contains(err.Error(), "state_dir: mkdir /proc/spillway") || r.s.state.Load() != before {
		t.Error(err)
	}
	dir := filepath.Join(t.TempDir(), "new")
	writeText(t, file, r.config+"state_dir: "+dir+"\n")
	if err := r.s.Reload(); err != nil {
		t.Error(err)
	}
	if is, err := os.Stat(dir); err != nil || !is.IsDir() {
		t.Error(err)
	}
}

// TestReloadOfAFileThatIsGone: a file that vanishes, as where its key leaves a Secret, or that
// cannot be read is refused once and counted, and the old configuration stays; when it is back all
// is well again.
func TestReloadOfAFileThatIsGone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	r := newRig(t, manyShards(1), limits(ample), func(o *Options) { o.ConfigFile = file })
	writeText(t, file, r.config)
	if err := r.s.Reload(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.s.watchConfig(ctx, 5*time.Millisecond) }()
	defer func() { stop(); <-ended }()
	before := r.s.state.Load()
	well := func() bool { return r.metric("spillway_config_last_reload_successful") == 1 }
	refused := func() (lines []string) {
		for _, line := range r.log.atLeast(slog.LevelError) {
			if strings.Contains(line, "the configuration was not reloaded") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	back := func() error { // whole at once: what is half there is another mistake
		return errors.Join(os.WriteFile(file+".new", []byte(r.config), 0o600), os.Rename(file+".new", file))
	}
	for i, gone := range []struct {
		what     string
		do, undo func() error
	}{
		{"removed", func() error { return os.Remove(file) }, back},
		{
			"a folder in its place", func() error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) },
			func() error { return errors.Join(os.Remove(file), back()) },
		},
	} {
		if err := gone.do(); err != nil {
			t.Fatal(err)
		}
		r.eventually(gone.what+": it is told", func() bool { return !well() })
		if lines := refused(); len(lines) != i+1 || !strings.Contains(lines[i], file) {
			t.Errorf("%s: %q", gone.what, lines)
		}
		if well() || r.s.state.Load() != before {
			t.Errorf("%s: it is well, or another configuration is in force", gone.what)
		}
		if err := gone.undo(); err != nil {
			t.Fatal(err)
		}
		r.eventually(gone.what+": it is back", well)
		if r.s.state.Load() != before {
			t.Errorf("%s: the same bytes were built again", gone.what)
		}
	}
}

// TestLooksAtAFileThatIsGone: one look that finds no file, between the two halves of a swap, loads
// nothing; two in a row do, once.
func TestLooksAtAFileThatIsGone(t *testing.T) {
	there := [sha256.Size]byte{1}
	var l fileLooks
	look := func(what string, ok, well, want bool) {
		t.Helper()
		var sum [sha256.Size]byte
		if ok {
			sum = there
		}
		if got := l.due(sum, ok, well); got != want {
			t.Fatalf("%s: it is loaded: %t", what, got)
		} else if got {
			l.loaded(sum, ok)
		}
	}
	look("the first look", true, true, true)
	for range 5 {
		look("in the middle of a swap", false, true, false)
		look("after the swap", true, true, false)
	}
	look("it has gone", false, true, false)
	look("it has gone for a second look", false, true, true)
	for range 3 * mostLooks {
		look("it was told", false, false, false)
	}
	look("it was there for whoever asked for a reload", false, true, true)
	look("it is back", true, false, true)
	look("it is the same", true, true, false)
	look("it has gone again", false, true, false)
	look("it has gone again for a second look", false, true, true)
}

// TestReloadsBetweenTwoLooks: who has a change loaded and takes it back in the file at once gets
// what is in the file, although no look has seen another one.
func TestReloadsBetweenTwoLooks(t *testing.T) {
	r, file := reloadable(t)
	writeText(t, file, r.config)
	const interval = 500 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.s.watchConfig(ctx, interval) }()
	defer func() { stop(); <-ended }()
	if !wait(t.Context(), 3*interval) { // the file as it is has been looked at; else this shows less
		t.Fatal("no time")
	}
	writeText(t, file, r.config+"strict_parameters: true\n")
	if err := r.s.Reload(); err != nil || !r.s.state.Load().cfg.StrictParameters {
		t.Fatal("it is not reloaded: ", err)
	}
	writeText(t, file, r.config)
	r.eventually("what is in the file is in force", func() bool { return !r.s.state.Load().cfg.StrictParameters })
}

// TestFilesThatComeAndGoWhileALookWaits: a look that waits for another reload to end may load other
// files than it has seen. What is there again afterwards is loaded, and a refusal of what came in
// between is told.
func TestFilesThatComeAndGoWhileALookWaits(t *testing.T) {
	for between, refused := range map[string]bool{"strict_parameters: true\n": false, "nonsense: 1\n": true} {
		r, file := reloadable(t)
		writeText(t, file, r.config)
		seen, _, _ := r.s.configBytes()
		var l fileLooks
		for range 2 { // there may have been looks before
			l.last = seen
			writeText(t, file, r.config+between)
			r.s.loadSeen(&l)
			if well := r.s.reloadedWell.Load(); well == refused || r.s.state.Load().cfg.StrictParameters == refused {
				t.Fatalf("%q: what came in between is loaded: %t", between, well)
			}
			writeText(t, file, r.config)
			if sum, _, ok := r.s.configBytes(); sum != seen || !l.due(sum, ok, r.s.reloadedWell.Load()) {
				t.Fatalf("%q: what is there again is not loaded", between)
			}
			if r.s.loadSeen(&l); r.s.state.Load().cfg.StrictParameters || !r.s.reloadedWell.Load() || l.due(seen, true, true) {
				t.Errorf("%q: what is there again is not in force, or is loaded once more", between)
			}
		}
	}
}

// TestRefusalsOfWhatALookHasNotSeen: that no new server answers is told once, and again of other
// files, those that came while the look waited too.
func TestRefusalsOfWhatALookHasNotSeen(t *testing.T) {
	r, file, _ := movable(t)
	writeText(t, file, jaguarAt(nobodyAt()))
	var l fileLooks
	for i, told := range []int{1, 1, 2} {
		if i == 2 {
			writeText(t, file, jaguarAt(nobodyAt()))
		}
		if r.s.loadSeen(&l); len(r.refusals()) != told {
			t.Errorf("look %d: %q", i, r.refusals())
		}
	}
}

// TestLoadedIsWhatWasRead: a file that is replaced again and again, in whatever moment, is never
// noted as loaded where another one is in force.
func TestLoadedIsWhatWasRead(t *testing.T) {
	r, file := reloadable(t)
	sums := map[bool][sha256.Size]byte{}
	put := func(strict bool) error {
		text := r.config + fmt.Sprintf("strict_parameters: %t\n", strict)
		return errors.Join(os.WriteFile(file+".new", []byte(text), 0o600), os.Rename(file+".new", file))
	}
	for _, strict := range []bool{false, true} {
		if err := put(strict); err != nil {
			t.Fatal(err)
		}
		sums[strict], _, _ = r.s.configBytes()
	}
	var replaced sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	replaced.Go(func() {
		for strict := false; ctx.Err() == nil; strict = !strict {
			if err := put(strict); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var l fileLooks
	for range 200 {
		if r.s.loadSeen(&l); l.last != (fileLooks{}).last && l.last != sums[r.s.state.Load().cfg.StrictParameters] {
			t.Error("another file is noted than is in force")
			break
		}
	}
	stop()
	replaced.Wait()
}

// TestLooksAfterReloadsOfOthers is the same by looks alone.
func TestLooksAfterReloadsOfOthers(t *testing.T) {
	var l fileLooks
	sum := [sha256.Size]byte{1}
	for asked := range 3 {
		for i := range 3 {
			l.others(int64(asked))
			if got := l.due(sum, true, true); got != (i == 0) {
				t.Errorf("after %d reloads of others, look %d: it is loaded: %t", asked, i, got)
			} else if got {
				l.loaded(sum, true)
			}
		}
	}
}

// reloadable is a rig with a configuration file, which is not written yet.
func reloadable(t *testing.T) (r *rig, file string) {
	file = filepath.Join(t.TempDir(), "spillway.yaml")
	return newRig(t, manyShards(1), limits(ample), func(o *Options) { o.ConfigFile = file }), file
}

// TestReloadsAreCounted: a token of the servers that is changed, by a reload that is taken up or by
// one that is refused, leaves none of their calls uncounted.
func TestReloadsAreCounted(t *testing.T) {
	for _, tc := range []struct{ name, more string }{
		{"taken up", ""},
		{"refused", "usage_log: {path: /nowhere/at/all/usage.jsonl}\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "spillway.yaml")
			r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{2, 2}}}, limits(ample), func(o *Options) { o.ConfigFile = file })
			beats := strings.Replace(r.config, "    shards:\n", "    heartbeat: up\n    shards:\n", 1)
			writeText(t, file, beats)
			if err := r.s.Reload(); err != nil {
				t.Fatal(err)
			}
			counted := func() float64 { return r.metric("spillway_shard_requests_total", "outcome=ok") }
			for range 10 {
				r.query("up")
			}
			if counted() == 0 {
				t.Fatal("nothing is counted to begin with")
			}
			writeText(t, file, strings.ReplaceAll(beats, `{url: `, `{headers: {X-Token: rotated}, url: `)+tc.more)
			if err := r.s.Reload(); (err != nil) != (tc.more != "") {
				t.Fatal(err)
			}
			before := counted()
			const calls = 100
			for range calls {
				r.query("up")
			}
			if after := counted(); before == 0 || after-before < calls {
				t.Errorf("%d requests later %g calls are counted as ok, %g before", calls, after, before)
			}
		})
	}
}

// TestReloadsForgetSeries: series of the shards and drop rules that no configuration has any more
// go with the last request of one that had them; those of the others stay.
func TestReloadsForgetSeries(t *testing.T) {
	plan, file := filepath.Join(t.TempDir(), "plan.json"), filepath.Join(t.TempDir(), "spillway.yaml")
	writeText(t, plan, droppedPlan(time.Now().Add(-time.Hour), "gone_total"))
	r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{1, 1}}, {name: "ibis", replicas: []int{1}}},
		limits(ample)+"drop_rules: {plan: ["+plan+"]}\n", func(o *Options) { o.ConfigFile = file })
	m := r.s.metrics
	stays := func() bool {
		return r.metric("spillway_shard_raw_plans_total", "group=jaguar") == 1 &&
			r.metric("spillway_duplicate_series_total", "shard=jaguar[0]", "other=jaguar[1]") == 1
	}
	goes := func() float64 {
		return r.metric("spillway_shard_raw_plans_total", "group=ibis") + r.metric("spillway_duplicate_series_total", "other=ibis[0]") +
			r.metric("spillway_dropped_metric_queries_total")
	}
	m.rawShards.WithLabelValues("jaguar", "1", "sick").Inc()
	m.rawShards.WithLabelValues("ibis", "0", "sick").Inc()
	m.duplicates.WithLabelValues("jaguar[0]", "jaguar[1]").Inc()
	m.duplicates.WithLabelValues("jaguar[0]", "ibis[0]").Inc()
	r.query("gone_total")
	writeText(t, file, r.config+"partial_response: warn\n")
	if err := r.s.Reload(); err != nil {
		t.Fatal(err)
	}
	if !stays() || goes() != 3 {
		t.Fatalf("a reload that leaves them alone: %t, %g of 3", stays(), goes())
	}
	groups, rest, _ := strings.Cut(r.config, "  - name: ibis\n")
	_, rest, _ = strings.Cut(rest, "limits: ")
	rest, _, _ = strings.Cut(rest, "drop_rules: ")
	writeText(t, file, groups+"limits: "+rest)
	held := r.s.acquire() // a request of before
	if err := r.s.Reload(); err != nil {
		t.Fatal(err)
	}
	if !stays() || goes() != 3 {
		t.Errorf("while a request of before goes on: %t, %g of 3", stays(), goes())
	}
	held.release()
	if !stays() || goes() != 0 {
		t.Errorf("afterwards those that stay are there: %t; %g of those that are gone", stays(), goes())
	}
}
