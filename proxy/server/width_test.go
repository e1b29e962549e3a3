package server

import (
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
)

// TestHeavyCallsAreWide: a request takes as many of a shard's places as what it is to hold there
// comes to, whether its answers are read side by side or one by one; counting series before takes
// one, and so does what lists series.
func TestHeavyCallsAreWide(t *testing.T) {
	for _, c := range []struct {
		name   string
		id     endpoint.ID
		counts bool
		parts  int // of each shard
		want   int // places at the one that is to hold three of four MiB
	}{
		{"side by side", endpoint.QueryRange, false, 1, 3},
		{"two parts", endpoint.QueryRange, false, 2, 4}, // a MiB and a half each
		{"counted", endpoint.QueryRange, true, 1, 1},
		{"listed", endpoint.Series, false, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCrowded(t, 2, 1, 4, 640, "answer")
				defer w.close()
				x, done := w.exchange(t.Context(), time.Minute)
				defer done()
				x.req = &endpoint.Request{ID: c.id}
				shards := w.st.top.Groups[0].Shards
				x.weighs(shards[0], 3<<20)
				questions := parts(shards, c.parts, rand.New(rand.NewPCG(1, 1)))
				for i := range questions {
					questions[i].counts = c.counts
				}
				var mu sync.Mutex
				most := 0
				var read reading
				if c.parts > 1 {
					read = func(_ int, _ *question, src merge.Source) error {
						time.Sleep(time.Second) // until all that can be have begun
						mu.Lock()
						most = max(most, w.st.top.Lanes()[0].Held)
						mu.Unlock()
						_, err := io.Copy(io.Discard, src.Body)
						return err
					}
				}
				got, err := x.askAndRead(questions, read)
				if err != nil {
					t.Fatal(err)
				}
				if read == nil {
					most = w.st.top.Lanes()[0].Held
				}
				got.close()
				synctest.Wait()
				if want := c.want + c.parts; most != want { // the other one's calls are one place wide
					t.Errorf("%d places are held, not %d", most, want)
				}
				if held := w.st.top.Lanes()[0].Held; held != 0 {
					t.Errorf("%d places are held at the end", held)
				}
			})
		})
	}
}
