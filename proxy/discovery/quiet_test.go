package discovery

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery/targetgroup"
)

// TestQuiet: a file, or a list, that can no longer be read is told, as an API server that does not
// answer is; what was found before is asked on, and when it can be read again that is told too.
func TestQuiet(t *testing.T) {
	good := `[{"targets": ["a:9090"], "labels": {"__spillway_shard__": "s-0"}}]`
	list := func(bad http.HandlerFunc) func(t *testing.T) (from string, fail, mend func()) {
		return func(t *testing.T) (from string, fail, mend func()) {
			var failing atomic.Bool
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if failing.Load() {
					bad(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, good)
			}))
			t.Cleanup(server.Close)
			return "http_sd: '" + server.URL + "'", func() { failing.Store(true) }, func() { failing.Store(false) }
		}
	}
	file := func(fail func(t *testing.T, file string)) func(t *testing.T) (string, func(), func()) {
		return func(t *testing.T) (string, func(), func()) {
			dir := t.TempDir()
			name := filepath.Join(dir, "shards.json")
			replace(t, name, good)
			return "files: ['" + dir + "/*.json']", func() { fail(t, name) }, func() { replace(t, name, good) }
		}
	}
	for name, begin := range map[string]func(t *testing.T) (string, func(), func()){
		"the list answers 500": list(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "down", 500) }),
		"the list is a page":   list(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }),
		"the list hangs":       list(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
		"the file is cut off":  file(func(t *testing.T, file string) { replace(t, file, good[:20]) }),
		"the file has gone": file(func(t *testing.T, file string) {
			if err := os.Remove(file); err != nil {
				t.Error(err)
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, fail, mend := begin(t)
			r := newRig(t, "{"+from+", keep: 1s, refresh_interval: 200ms}")
			r.becomes("a:9090")
			r.refused(0)
			fail()
			r.refused(1)
			r.becomes("a:9090")
			mend()
			r.refused(0)
			r.becomes("a:9090")
		})
	}
}

// TestStillAnswered: what is told of again and again is not taken for quiet, nor an empty file,
// which is told of once.
func TestStillAnswered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	replace(t, filepath.Join(dir, "1.json"), `[{"targets": ["a:9090"], "labels": {"__spillway_shard__": "s-0"}}]`)
	replace(t, filepath.Join(dir, "2.json"), `[{"targets": ["b:9090"], "labels": {"__spillway_shard__": "s-1"}}]`)
	r := newRig(t, "{files: ['"+dir+"/*.json'], keep: 1ms, refresh_interval: 100ms}")
	r.becomes("a:9090 b:9090")
	replace(t, filepath.Join(dir, "2.json"), `[]`)
	r.becomes("a:9090")
	time.Sleep(unheard + time.Second)
	r.refused(0)
	if s := r.sources[0]; func() bool { s.mu.Lock(); defer s.mu.Unlock(); return !s.silent.IsZero() }() {
		t.Error("it counts as silent")
	}
}

// TestEmptyFromTheBeginning: a list of nothing is an answer at a start too; a file without a byte,
// or one that is cut off, is waited for.
func TestEmptyFromTheBeginning(t *testing.T) {
	for text, want := range map[string]string{"[]": "http://a", "# none\n[ ]\n": "http://a", "": "", "# of team x\n": "", "[{": ""} {
		dir := t.TempDir()
		replace(t, filepath.Join(dir, "1.json"), "[{}]")
		replace(t, filepath.Join(dir, "2.yml"), text)
		s := sourceOf(t, "{files: ['"+dir+"/*.json', '"+dir+"/*.yml']}")
		s.take([]*targetgroup.Group{{
			Source:  filepath.Join(dir, "1.json") + ":0",
			Targets: []model.LabelSet{{model.AddressLabel: "a", ShardLabel: "s"}},
		}})
		got := ""
		for _, k := range sortedValues(s.known) {
			got += k.url
		}
		if got != want || s.ready != (want != "") || want == "" && !strings.HasSuffix(s.missing(), "2.yml") {
			t.Errorf("beside %q: %q is asked, want %q; missing: %q", text, got, want, s.missing())
		}
	}
}

// TestNewFileCutOff: a file that comes while others are in use, and cannot be read, holds back
// nothing that the others say, and is told as one that could be read before.
func TestNewFileCutOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const one = `[{"targets": ["a:9090"], "labels": {"__spillway_shard__": "s-0"}}`
	const two = `[{"targets": ["b:9090"], "labels": {"__spillway_shard__": "s-2"}}]`
	replace(t, filepath.Join(dir, "1.json"), one+"]")
	r := newRig(t, "{files: ['"+dir+"/*.json'], keep: 1s, refresh_interval: 100ms}")
	r.becomes("a:9090")
	replace(t, filepath.Join(dir, "2.json"), two[:20])
	replace(t, filepath.Join(dir, "3.json"), "[]")
	replace(t, filepath.Join(dir, "1.json"), one+`, {"targets": ["c:9090"], "labels": {"__spillway_shard__": "s-1"}}]`)
	r.becomes("a:9090 c:9090")
	r.refused(1)
	replace(t, filepath.Join(dir, "2.json"), two)
	r.becomes("a:9090 c:9090 b:9090")
	r.refused(0)
}

// TestFilesUnread: since when a file is silent, and who counts as kept for it: only those that
// nothing else has told of. The clock is the test's own.
func TestFilesUnread(t *testing.T) {
	const every = time.Minute
	dir := t.TempDir()
	file := func(n int) string { return filepath.Join(dir, fmt.Sprint(n, ".json")) }
	s := sourceOf(t, "{files: ['"+dir+"/*.json'], keep: 1h, refresh_interval: 1m}")
	now := time.Unix(1e9, 0)
	s.now = func() time.Time { return now }
	tell := func(n int, hosts ...string) {
		replace(t, file(n), "[{}]")
		g := &targetgroup.Group{Source: file(n) + ":0"}
		for _, h := range hosts {
			g.Targets = append(g.Targets, model.LabelSet{model.AddressLabel: model.LabelValue(h), ShardLabel: model.LabelValue("s-" + h)})
		}
		s.take([]*targetgroup.Group{g})
	}
	is := func(silent string, found, kept float64) {
		t.Helper()
		_, err := s.silence()
		if (err == nil) != (silent == "") || err != nil && !strings.Contains(err.Error(), silent+" cannot be read") {
			t.Errorf("silent: %v, want %q", err, silent)
		}
		for state, want := range map[string]float64{"found": found, "kept": kept} {
			if got := testutil.ToFloat64(s.w.metrics.servers.WithLabelValues("jaguar", state)); got != want {
				t.Errorf("%g are %s, want %g", got, state, want)
			}
		}
	}
	pass := func(d time.Duration, hosts ...string) { // in which 1.json is told of again and again
		for end := now.Add(d); now.Before(end); {
			now = now.Add(every)
			tell(1, hosts...)
		}
	}
	replace(t, file(2), "[{}]")
	tell(1, "a", "b")
	tell(2, "b", "c")
	is("", 3, 0)
	pass(4*every, "a", "b") // 2.json is not told of; b stands in 1.json too
	is(file(2), 2, 1)
	tell(2, "b", "c")
	is("", 3, 0)

	replace(t, file(3), "[") // new, and never told of
	pass(2*every, "a", "b")
	tell(2, "b", "c")
	is("", 3, 0)
	pass(2*every, "a", "b")
	tell(2, "b", "c")
	is(file(3), 3, 0)
	replace(t, file(3), "[]") // right, and never told of either
	pass(2*every, "a", "b")
	tell(2, "b", "c")
	is("", 3, 0)
	replace(t, file(3), "[") // and then not
	pass(4*every, "a", "b")
	tell(2, "b", "c")
	is(file(3), 3, 0)

	if err := os.Remove(file(3)); err != nil { // it is nobody's business any more
		t.Fatal(err)
	}
	pass(every, "a", "b")
	is("", 3, 0)
	now = now.Add(time.Hour)
	replace(t, file(3), "[") // half written: it has as long as any other
	tell(1, "a", "b")
	tell(2, "b", "c")
	is("", 3, 0)
}

// TestMovedIntoABrokenFile: while a file says nothing of what it has, nobody is let go who is found
// no more: he may stand in it.
func TestMovedIntoABrokenFile(t *testing.T) {
	for _, keep := range []string{"1h", "90s", "1m", "1s"} { // two refreshes take longer than most of these
		t.Run(keep, func(t *testing.T) { movedIntoABrokenFile(t, keep) })
	}
}

func movedIntoABrokenFile(t *testing.T, keep string) {
	dir := t.TempDir()
	file := func(n int) string { return filepath.Join(dir, fmt.Sprint(n, ".json")) }
	s := sourceOf(t, "{files: ['"+dir+"/*.json'], keep: "+keep+", refresh_interval: 1m}")
	now := time.Unix(1e9, 0)
	s.now = func() time.Time { return now }
	tell := func(n int, hosts ...string) {
		g := &targetgroup.Group{Source: file(n) + ":0"}
		for _, h := range hosts {
			g.Targets = append(g.Targets, model.LabelSet{model.AddressLabel: model.LabelValue(h), ShardLabel: model.LabelValue("s-" + h)})
		}
		s.take([]*targetgroup.Group{g})
	}
	has := func(want string) {
		t.Helper()
		var got []string
		for _, k := range sortedValues(s.known) {
			got = append(got, k.url)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q are asked, want %q", got, want)
		}
	}
	pass := func(d time.Duration) {
		for end := now.Add(d); now.Before(end); {
			now = now.Add(time.Minute)
			tell(1, "a")
		}
	}
	replace(t, file(1), "[{}]")
	tell(1, "a", "b")
	has("http://a http://b")
	replace(t, file(2), "[{") // b went there
	pass(3 * time.Hour)
	has("http://a http://b")
	if next := s.nextEnd(); next < 30*time.Second {
		t.Errorf("looks again after %s", next)
	}
	replace(t, file(2), "[]") // it went nowhere
	pass(2 * time.Hour)
	has("http://a")
}

// TestPodsAreNotNoted: of the many objects of API servers nothing is kept that says when each was
// told of: pods come and go without end.
func TestPodsAreNotNoted(t *testing.T) {
	s := sourceOf(t, "{http_sd: 'http://x/'}")
	s.clusters, s.ready = []*cluster{{}}, true
	for i := range 1000 {
		source := fmt.Sprintf("pod/ci/job-%d", i)
		s.take([]*targetgroup.Group{{Source: source, Targets: []model.LabelSet{{model.AddressLabel: "10.0.0.1:9090"}}}})
		s.take([]*targetgroup.Group{{Source: source}})
	}
	if len(s.heard) > 0 || len(s.groups) > 0 {
		t.Errorf("%d and %d objects that are gone are kept", len(s.heard), len(s.groups))
	}
}
