package operation

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// drainLimit is how long a stop may take; overrun is what the machine may add to that.
const (
	drainLimit = 15 * time.Second
	overrun    = 10 * time.Second
)

// stopped is a program over two shards that take a while, and its clients.
type stopped struct {
	t      *testing.T
	p      *program
	shards []*fakeshard.Shard

	signaled atomic.Int64 // nanoseconds since 1970; 0 before
	wrong    complaints
	whole    atomic.Int64 // answers to what was under way at the signal
	late     atomic.Int64 // answers to what came after it
	refused  atomic.Int64
}

func newStopped(t *testing.T) *stopped {
	t.Helper()
	s := &stopped{t: t}
	text := "groups:\n  - name: heron\n    labels: {cluster: heron}\n    shards:\n"
	for i := range 2 {
		held := []map[string]string{{"__name__": "up", "instance": fmt.Sprint("node-", i)}}
		for j := range wide / 2 {
			held = append(held, map[string]string{"__name__": "wide", "instance": fmt.Sprintf("wide-%d-%d", i, j)})
		}
		shard := fakeshard.Start(t, fakeshard.Config{Series: held, Routes: []fakeshard.Route{
			{Path: "/api/v1/query", Query: "up", Script: "delay 300ms; answer"},
			{Path: "/api/v1/query_range", Script: "drip 16KiB/20ms; answer"},
			{Path: "/api/v1/series", Script: "drip 4KiB/40ms; answer"},
			{Path: "/api/v1/query", Query: endless, Script: "stall"},
		}})
		s.shards = append(s.shards, shard)
		text += fmt.Sprintf("      - replicas: [{url: %q}]\n", shard.URL())
	}
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	replace(t, file, text+"limits: {timeout: 50s}\n")
	s.p = start(t, file, "", nil)
	return s
}

// wide is how many series the metric of that name has.
const wide = 1200

// endless is a query to which a shard never answers.
const endless = `up{instance="never"}`

// endless is how many of these a shard was asked.
func (s *stopped) endless() (n int) {
	for _, r := range s.shards[0].RequestsTo("/api/v1/query") {
		if r.Form.Get("query") == endless {
			n++
		}
	}
	return n
}

// asks is what clients ask: something short, and what takes its time before its first byte, or
// behind it.
func (s *stopped) asks() []asked {
	now := time.Now().Unix()
	return []asked{
		{"/api/v1/query", url.Values{"query": {"up"}}},
		{"/api/v1/query_range", url.Values{"query": {"wide"}, "start": {fmt.Sprint(now - 600)}, "end": {fmt.Sprint(now)}, "step": {"60"}}},
		{"/api/v1/labels", url.Values{"match[]": {"up"}}},
		{"/api/v1/series", url.Values{"match[]": {"wide"}}},
	}
}

// load asks until the program takes nothing any more.
func (s *stopped) load(wg *sync.WaitGroup, clients int) {
	for i := range clients {
		c := newClient(s.t, nil)
		wg.Go(func() {
			for n := i; ; n++ {
				a := s.asks()[n%4]
				before := s.signaled.Load() == 0
				status, body, err := get(c, a.url(s.p.main))
				var got answer
				switch {
				case err == nil && status == http.StatusOK && json.Unmarshal(body, &got) == nil && len(got.Warnings) == 0 &&
					(n%2 == 0 || len(valuesOf(body, "instance")) == wide):
					switch {
					case !before:
						s.late.Add(1)
					case s.signaled.Load() != 0:
						s.whole.Add(1)
					}
				case s.signaled.Load() != 0 && (errors.Is(err, syscall.ECONNREFUSED) || !before && status == 0):
					s.refused.Add(1)
					return // nobody listens any more
				default:
					s.wrong.add("%s, asked before the signal %v: %d, %d bytes, %v: %.200s", a.path, before, status, len(body), err, body)
					if s.signaled.Load() != 0 {
						return
					}
				}
			}
		})
	}
}

// term sends SIGTERM, under load.
func (s *stopped) term() time.Time {
	s.t.Helper()
	for _, shard := range s.shards {
		if !eventually(func() bool { return len(shard.RequestsTo("/api/v1/query_range")) >= 3 && shard.InFlight() > 0 }) {
			s.t.Fatal("nothing is under way")
		}
	}
	at := time.Now()
	s.signaled.Store(at.UnixNano())
	s.p.signal(syscall.SIGTERM)
	return at
}

// ended waits for the end of the program.
func (s *stopped) ended(limit time.Duration) {
	s.t.Helper()
	select {
	case <-s.p.Done():
	case <-time.After(limit + patience):
		s.t.Fatal("it does not end")
	}
}

// watch looks at readiness while a program stops.
type watch struct {
	p       *program
	unready time.Time // first seen so
	refused bool      // no connection was taken by then
}

// notice is how long a load balancer has at least to notice that it is unready: the program takes
// connections for nearly half a second more, and the machine may be slow.
const notice = 300 * time.Millisecond

// run looks until the program is unready, and then whether it still takes a connection.
func (w *watch) run(c *http.Client) {
	ready := time.Now()
	for ; w.unready.IsZero(); time.Sleep(5 * time.Millisecond) {
		asked := time.Now()
		switch status, _, err := get(c, w.p.admin+"/-/ready"); {
		case err != nil:
			return // it has ended
		case status == http.StatusOK:
			ready = asked
		case status == http.StatusServiceUnavailable:
			w.unready = time.Now()
		}
	}
	// over a connection of its own: one that is there is served to its last answer
	knock := &http.Transport{DisableKeepAlives: true}
	_, _, err := get(&http.Client{Transport: knock, Timeout: patience}, w.p.main+"/-/healthy")
	w.refused = errors.Is(err, syscall.ECONNREFUSED) && time.Since(ready) < notice
}

// TestStopUnderLoad: at SIGTERM the program is unready before anybody is refused, what is under way
// gets its whole answer, and it ends with 0 as soon as that is done.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	s := newStopped(t)
	var wg sync.WaitGroup
	s.load(&wg, 8)
	watched := &watch{p: s.p}
	watching, look := make(chan struct{}), newClient(t, nil)
	wg.Go(func() {
		<-watching
		watched.run(look)
	})
	at := s.term()
	close(watching)
	s.ended(drainLimit)
	took := time.Since(at)
	wg.Wait()
	s.wrong.tell(t)
	if err := s.p.Err(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if took > drainLimit+overrun {
		t.Errorf("it took %s", took)
	}
	if strings.Contains(s.p.Log(), "were cut") {
		t.Error("it says that requests were cut")
	}
	switch {
	case watched.unready.IsZero():
		t.Error("it was never seen unready")
	case watched.refused:
		t.Error("it took no connections any more when it was first seen unready")
	}
	if s.whole.Load() == 0 {
		t.Error("nothing was under way at the signal: the test shows nothing")
	}
	t.Logf("%d answers to what was under way, %d to what came after the signal, %d clients refused; unready after %s, ended after %s", s.whole.Load(), s.late.Load(), s.refused.Load(), watched.unready.Sub(at).Round(time.Millisecond), took.Round(time.Millisecond))
}

// TestStopOfWhatDoesNotEnd: what goes on until the drain limit is told so, by 503, and the others
// have their answers.
func TestStopOfWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	s := newStopped(t)
	var wg sync.WaitGroup
	c := newClient(t, nil)
	wg.Go(func() {
		status, body, err := get(c, s.p.main+"/api/v1/query?query="+url.QueryEscape(endless))
		if err != nil || status != http.StatusServiceUnavailable || !strings.Contains(string(body), "unavailable") {
			t.Errorf("what does not end: %d %s %v", status, body, err)
		}
	})
	if !eventually(func() bool { return s.endless() > 0 }) {
		t.Fatal("the shard was not asked")
	}
	s.load(&wg, 4)
	at := s.term()
	s.ended(drainLimit)
	took := time.Since(at)
	wg.Wait()
	s.wrong.tell(t)
	if took < drainLimit/2 || took > drainLimit+overrun {
		t.Errorf("it took %s, the drain limit is %s", took, drainLimit)
	}
	if err := s.p.Err(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// TestSecondStop: the second SIGTERM ends what is under way, at once and with 1.
func TestSecondStop(t *testing.T) {
	t.Parallel()
	s := newStopped(t)
	var wg sync.WaitGroup
	for range 8 {
		c := newClient(t, nil)
		wg.Go(func() {
			status, body, err := get(c, s.p.main+"/api/v1/query?query="+url.QueryEscape(endless))
			if err == nil && status == http.StatusOK {
				t.Errorf("what does not end: %d %s", status, body)
			}
		})
	}
	if !eventually(func() bool { return s.endless() == 8 }) {
		t.Fatal("the shard was not asked")
	}
	at := time.Now()
	s.p.signal(syscall.SIGTERM)
	if !eventually(func() bool { return strings.Contains(s.p.Log(), "stopping: no new requests") }) {
		t.Fatal("it does not say that it stops")
	}
	s.p.signal(syscall.SIGTERM)
	s.ended(0)
	if took := time.Since(at); took > drainLimit-time.Second {
		t.Errorf("it took %s, as if it had been told once", took)
	}
	wg.Wait()
	if err := s.p.Err(); err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("it ended with %v", err)
	}
}
