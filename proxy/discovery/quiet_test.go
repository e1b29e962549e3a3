package discovery

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
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
