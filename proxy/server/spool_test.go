package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/admit"
)

// slowRig is a rig whose shards send so much for each query, and what asks one and both of them.
func slowRig(t *testing.T, size, more string) (r *rig, paths map[string]string) {
	t.Helper()
	r = newRig(t, []rigGroup{{"heron", false, []int{1}}, {"ibis", false, []int{1}}},
		fmt.Sprintf("limits: {timeout: %dms, max_series: 10000000, max_samples: 100000000}\n%s", (10*patience).Milliseconds(), more),
		func(o *Options) { o.writePatience = 10 * patience })
	for _, s := range r.all() {
		if err := s.Set("", fakeshard.Route{Path: "/api/v1/query", Script: "generate " + size}); err != nil {
			t.Fatal(err)
		}
	}
	now := fmt.Sprint(time.Now().Unix())
	return r, map[string]string{
		"one shard":  "/api/v1/query?" + url.Values{"query": {`up{cluster="ibis"}`}, "time": {now}}.Encode(),
		"two shards": "/api/v1/query?" + url.Values{"query": {`up`}, "time": {now}}.Encode(),
	}
}

// asksSlowly sends a request of which nothing is read until the caller does. Both systems' buffers
// take some 10 MiB of the answer all the same.
func (r *rig) asksSlowly(path string) *wire {
	w := r.wire()
	w.say("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")
	return w
}

// atWork are the calls at the shards.
func (r *rig) atWork() (n int) {
	for _, s := range r.all() {
		n += s.InFlight()
	}
	return n
}

// TestSlowCallersHoldNoPlace: what servers have sent is kept for a caller that has not read a byte
// of it, so that the servers have ended and their places are free; and it is the whole answer, as
// one who reads at once gets it.
func TestSlowCallersHoldNoPlace(t *testing.T) {
	t.Parallel()
	r, paths := slowRig(t, "16MiB", "")
	for name, path := range paths {
		want := r.askKeeping(64<<20, r.request(t.Context(), asking{path: path}))
		if want.status != http.StatusOK || want.err != nil || want.size < 2<<20 {
			t.Fatalf("%s: %s", name, want)
		}
		w := r.asksSlowly(path)
		r.eventually(name+": all calls are made", func() bool { return r.metric("spillway_requests_in_flight") == 1 })
		r.eventually(name+": the answer is kept", func() bool { return r.s.poolNow().InUse() > 1<<20 })
		r.eventually(name+": no server waits for its caller", func() bool { return r.atWork() == 0 })
		if n := r.metric("spillway_requests_in_flight"); n != 1 {
			t.Fatalf("%s: %v requests are in flight, so that nobody was slow", name, n)
		}
		for _, q := range r.queries() { // with what is kept
			if q.HeldBytes < 1<<20 || q.PeakBytes < q.HeldBytes {
				t.Errorf("%s: it holds %d bytes and has held %d at most", name, q.HeldBytes, q.PeakBytes)
			}
		}
		status, _, body := w.hear(http.MethodGet)
		if status != http.StatusOK || body != string(want.body) {
			t.Errorf("%s: status %d and %d bytes, and not the %d of who reads at once", name, status, len(body), len(want.body))
		}
	}
	r.idle()
}

// TestSlowCallersLeave: whoever leaves, is ended or has no time left while the answer is kept for
// him leaves nothing of it, and gets no half answer that looks whole.
func TestSlowCallersLeave(t *testing.T) {
	t.Parallel()
	r, paths := slowRig(t, "16MiB", "")
	for name, path := range paths {
		for how, leave := range map[string]func(*wire){
			"leaves": func(w *wire) { _ = w.Close() },
			"is ended": func(*wire) {
				for _, q := range r.queries() {
					r.adminAsk(http.MethodDelete, "/"+q.ID, http.StatusOK, nil)
				}
			},
		} {
			w := r.asksSlowly(path)
			r.eventually(name+": the answer is kept", func() bool { return r.s.poolNow().InUse() > 1<<20 && r.atWork() == 0 })
			leave(w)
			r.eventually(name+" "+how+": nothing is kept", func() bool {
				return r.s.poolNow().InUse() == 0 && r.metric("spillway_requests_in_flight") == 0
			})
			if how == "is ended" {
				if status, _, body := w.hear(http.MethodGet); strings.HasSuffix(body, "}") {
					t.Errorf("%s: status %d, %d bytes that look whole", name, status, len(body))
				}
			}
		}
	}
	// On a busy machine it may have no time left before its answer begins, and is an error then.
	for n, timeout := 5.0, time.Second; ; n, timeout = n+1, 2*timeout {
		w := r.asksSlowly(paths["one shard"] + "&timeout=" + timeout.String())
		r.eventually("it has no time left", func() bool { return r.metric("spillway_requests_total") == n })
		status, _, body := w.hear(http.MethodGet)
		if status == http.StatusServiceUnavailable && timeout < patience/2 {
			continue
		}
		if status != http.StatusOK || strings.HasSuffix(body, "}") {
			t.Errorf("an answer that has no time left after %s: status %d, %d bytes that look whole", timeout, status, len(body))
		}
		break
	}
	r.idle()
}

// TestSlowCallersHaveBounds: however much there is to be kept, for however many, half of
// memory.budget is free for others, who are answered.
func TestSlowCallersHaveBounds(t *testing.T) {
	t.Parallel()
	const budget = 48 << 20
	r, paths := slowRig(t, "64MiB", "memory: {budget: 48MiB}\n")
	var all []*wire
	for range 4 {
		for _, path := range paths {
			all = append(all, r.asksSlowly(path))
		}
	}
	most := int64(0)
	r.eventually("answers are kept", func() bool {
		most = max(most, r.s.poolNow().InUse())
		return most > budget/4
	})
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		most = max(most, r.s.poolNow().InUse())
	}
	if most > budget*3/4 {
		t.Errorf("%d bytes are in use", most)
	}
	for _, w := range all {
		_ = w.Close()
	}
	r.idle()
}

// TestSpool: pieces come in order and whole, however slow who sends them is; a failure to send ends
// it for whoever puts more, and so does its end from elsewhere.
func TestSpool(t *testing.T) {
	t.Parallel()
	pool := admit.NewPool(4 << 20)
	text := strings.Repeat("0123456789abcdef", 30_000)
	panicked := func(v any, _ []byte) error { return fmt.Errorf("panic: %v", v) }
	var got strings.Builder
	s := newSpool(pool, "", func(p []byte) (int, error) {
		if got.Len() == 0 {
			time.Sleep(20 * time.Millisecond)
		}
		return got.Write(p)
	}, panicked)
	for i := 0; i < len(text); i += 1000 {
		if _, err := io.WriteString(s, text[i:min(len(text), i+1000)]); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.drain(t.Context()); err != nil || got.String() != text {
		t.Errorf("%v, %d bytes of %d", err, got.Len(), len(text))
	}
	s.memory.Close()
	broken := errors.New("broken")
	for name, send := range map[string]func([]byte) (int, error){
		"broken": func([]byte) (int, error) { return 0, broken },
		"panic":  func([]byte) (int, error) { panic("at the disco") },
	} {
		s := newSpool(pool, "", send, panicked)
		var err error
		for i := 0; err == nil && i < 1000; i++ {
			_, err = io.WriteString(s, text)
		}
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: putting more returns %v", name, err)
		}
		if err := s.drain(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: its end returns %v", name, err)
		}
		s.memory.Close()
	}
	stuck := make(chan struct{})
	s = newSpool(pool, "", func(p []byte) (int, error) { <-stuck; return len(p), nil }, panicked)
	time.AfterFunc(20*time.Millisecond, func() { s.fail(broken) })
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		_, err = io.WriteString(s, text)
	}
	if !errors.Is(err, broken) {
		t.Errorf("one who waits for room when it is ended gets %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	if err := s.drain(ctx); !errors.Is(err, broken) {
		t.Errorf("one who waits for the end when the request ends gets %v", err)
	}
	close(stuck)
	<-s.done
	s.memory.Close()
	if n := pool.InUse(); n != 0 {
		t.Errorf("%d bytes are in use", n)
	}
}
