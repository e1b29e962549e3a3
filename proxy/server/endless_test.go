package server

import (
	"context"
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// heapWatch notes the highest heap since it was started. Garbage is collected often meanwhile: what
// is wanted is what is held, and on busy processors a collection may end long after it was due.
type heapWatch struct {
	base, peak uint64
	percent    int
	stop       chan struct{}
	done       sync.WaitGroup
}

func watchHeap() *heapWatch {
	h := &heapWatch{stop: make(chan struct{}), percent: debug.SetGCPercent(10)}
	runtime.GC()
	h.base = heapBytes()
	h.done.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				h.peak = max(h.peak, heapBytes())
			case <-h.stop:
				return
			}
		}
	})
	return h
}

// grown is how far the heap has been above its base, in bytes.
func (h *heapWatch) grown() uint64 {
	close(h.stop)
	h.done.Wait()
	debug.SetGCPercent(h.percent)
	return h.peak - min(h.peak, h.base)
}

func heapBytes() uint64 {
	s := []runtimemetrics.Sample{{Name: "/gc/heap/live:bytes"}}
	runtimemetrics.Read(s)
	return s[0].Value.Uint64()
}

// Ten gigabytes of valid answer: a bound ends it early, by an error of its own, by a cut that is
// announced, or, where half of it has been sent, by breaking the connection; never by a success
// that looks whole. Memory stays flat.
func TestEndlessAnswers(t *testing.T) {
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}, {"heron", false, []int{1}}},
		"limits: {timeout: 20s, max_response_bytes: 4MiB}\nmemory: {budget: 8MiB}\n")
	bad := []*fakeshard.Shard{r.shards["jaguar"][1][0], r.shards["heron"][0][0]}
	for _, kind := range []struct{ name, json, frames string }{
		{"many", "generate 10GiB", "generate 10GiB"},
		{"one that never ends", "generate 10GiB string", "generate 10GiB longchunks"},
		{"white space", `header Content-Type application/json; send '{"status":"success","data":'; generate 10GiB text`, "generate 10GiB longchunks"},
	} {
		for _, a := range askings() {
			f := fault{script: kind.json, frames: kind.frames}
			if a.frames {
				f.script = kind.frames
			}
			for _, s := range bad {
				f.set(t, s, []asking{a})
			}
			h := watchHeap()
			got := r.ask(r.request(context.Background(), a))
			r.idle()
			grown := h.grown()
			if grown > 32<<20 {
				t.Errorf("%s, %s: the heap grew by %d MiB", kind.name, a.name, grown>>20)
			}
			var sent int64
			for _, s := range bad {
				for _, rec := range s.Requests() {
					sent = max(sent, rec.Sent)
				}
			}
			if sent > 256<<20 {
				t.Errorf("%s, %s: %d MiB were read of one answer", kind.name, a.name, sent>>20)
			}
			if got.took > 25*time.Second {
				t.Errorf("%s, %s: answered after %s", kind.name, a.name, got.took)
			}
			clamped := a.most && got.err == nil && got.status == 200 &&
				strings.Contains(strings.Join(got.message.Warnings, "\n"), "truncated")
			// One series is enough to know that the group has any.
			known := a.name == "label_values of a group label" && strings.Contains(string(got.body), `["jaguar"]`)
			refused := got.err == nil && (got.status == 422 || got.status == 429 || got.status == 502) && got.message.Status == "error" &&
				got.message.ErrorType == errorTypes[got.status]
			if got.status == 502 && !r.named(got.message.Error, bad) {
				t.Errorf("%s, %s: the error names no shard: %s", kind.name, a.name, got)
			}
			if !known && !clamped && !refused && !got.half() {
				t.Errorf("%s, %s: want a bound's error, a cut that says so or a broken connection, got %s, %d bytes, header %v, warnings %q", kind.name, a.name, got, got.size, got.header, got.message.Warnings)
			}
			t.Logf("%s, %s: %d %s, the heap grew by %d MiB, %.160q", kind.name, a.name, got.status, got.header.Get("X-Spillway-Verdict"),
				grown>>20, got.message.Error)
		}
	}
}

// Many such requests at once, more than the budget can hold: each ends by a bound, and the heap
// stays within what the budget allows.
func TestEndlessAnswersAtOnce(t *testing.T) {
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}, {"heron", false, []int{1}}},
		"limits: {timeout: 20s, max_response_bytes: 8MiB}\nmemory: {budget: 16MiB}\n")
	for _, s := range r.all() {
		if err := s.Set("generate 10GiB"); err != nil {
			t.Fatal(err)
		}
	}
	h := watchHeap()
	var wg sync.WaitGroup
	var refused atomic.Int64
	for range 3 {
		for _, a := range askings() {
			wg.Go(func() {
				// The callers stand in the same process: what they kept of their answers would be
				// taken for what Spillway holds.
				got := r.askKeeping(64<<10, r.request(context.Background(), a))
				if got.err == nil && got.status == 429 {
					refused.Add(1)
					if got.header.Get("Retry-After") == "" {
						t.Errorf("%s: 429 without Retry-After", a.name)
					}
				}
				if got.err == nil && got.status == 200 && !a.most && a.name != "features" && a.name != "status_buildinfo" {
					t.Errorf("%s: a success: %s", a.name, got)
				}
			})
		}
	}
	wg.Wait()
	r.idle()
	grown := h.grown()
	if grown > 48<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	t.Logf("%d requests found no room in the budget; the heap grew by %d MiB", refused.Load(), grown>>20)
}
