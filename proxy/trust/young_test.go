package trust

import (
	"context"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// TestYoungBuckets: samples may come minutes late, as by agents that are behind, so that what is
// equal when a bucket has just closed says little of what it will be: it stands for two minutes.
// One that was equal a quarter of an hour later stands for an hour.
func TestYoungBuckets(t *testing.T) {
	end := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		judged, looked time.Duration // after its end
		known          bool
	}{
		{30 * time.Second, 2 * time.Minute, true},
		{30 * time.Second, 10 * time.Minute, false},
		{14 * time.Minute, 20 * time.Minute, false},
		{15 * time.Minute, time.Hour, true},
	} {
		h, s := New("up", 2), &history{}
		at := end.Add(c.judged)
		w, _ := WindowOf(end.Add(-Bucket/2).UnixMilli(), end.UnixMilli(), at)
		if _, err := h.Learn(t.Context(), s.ask, 3, w, at); err != nil {
			t.Fatal(err)
		}
		whole, known := h.Lookup(3, w, end.Add(c.looked))
		if known != c.known || known != (whole == 3) {
			t.Errorf("judged after %v, after %v: whole %b, known %v", c.judged, c.looked, whole, known)
		}
	}
}

// TestYoungBucketsAreAskedAgain: the background work finds out within three minutes that one of two
// that were equal has lost the rest, and who looks at it meanwhile never has to ask; it costs
// little.
func TestYoungBucketsAreAskedAgain(t *testing.T) {
	end := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, after := range map[string]time.Duration{"one loses the rest": 40 * time.Second, "nobody does": 2 * time.Hour} {
		h, s := New("up", 2), &history{}
		questions, steps := 0, int64(0)
		ask := func(ctx context.Context, part uint64, req *endpoint.Request) ([]map[int64]Beats, uint64, error) {
			if req.ID == endpoint.QueryRange {
				questions++
				steps += (req.End.Ms-req.Start.Ms)/req.Step.Milliseconds() + 1
			}
			return s.ask(ctx, part, req)
		}
		for age := 30 * time.Second; age < time.Hour; age += 10 * time.Second {
			now := end.Add(age)
			s.lost = age > after
			h.Refresh(t.Context(), ask, 3, now)
			h.Renew(t.Context(), ask, 3, now)
			w, _ := WindowOf(end.Add(-Bucket).UnixMilli()+1, end.UnixMilli(), now)
			whole, known := h.Lookup(3, w, now.Add(9*time.Second)) // before the next round
			if !known || s.lost && age > 3*time.Minute && whole&1 != 0 {
				t.Errorf("%s, after %v: whole %b, known %v", name, age, whole, known)
			}
		}
		// 96 and 1332 of them are for what has just closed, and for the minutes since.
		if !s.lost && (questions > 144 || steps > 1836) {
			t.Errorf("%s: %d range queries, %d steps in an hour", name, questions, steps)
		}
	}
}
