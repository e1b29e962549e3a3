package trust

import (
	"context"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// TestLacksOfALongWindow: of a window of 30 days that ended days ago, about which more is found out
// than is kept, nothing is forgotten meanwhile; what was forgotten later is not known.
func TestLacksOfALongWindow(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 2, 0, 0, time.UTC)
	day := 24 * time.Hour
	from, until := now.Add(-34*day), now.Add(-4*day) // [30d] offset 4d
	away := func(at time.Time) bool {
		in := func(hour time.Time) bool { return at.After(hour) && !at.After(hour.Add(time.Hour)) }
		return in(from.Add(100*time.Hour)) || in(until.Add(-2*time.Hour))
	}
	ask := func(_ context.Context, part uint64, req *endpoint.Request) ([]map[int64]Beats, uint64, error) {
		out := []map[int64]Beats{{}, {}}
		if req.ID != endpoint.QueryRange {
			return out, part, nil
		}
		for end := req.Start.Ms; end <= req.End.Ms; end += req.Step.Milliseconds() {
			n := float64(20) * req.Step.Minutes() * 4
			b := Beats{jobs: map[string]beat{"j": {20, n}}}
			if req.Step < Bucket {
				b = Beats{jobs: map[string]beat{"": {20, n}}}
			}
			out[1][end] = b
			if !away(time.UnixMilli(end)) {
				out[0][end] = b
			}
		}
		return out, part, nil
	}
	h := New("up", 2)
	learn := func(from, until time.Time) Window {
		w, ok := WindowOf(from.UnixMilli(), until.UnixMilli(), now)
		if !ok {
			t.Fatal("no window")
		}
		if _, err := h.Learn(t.Context(), ask, 3, w, now); err != nil {
			t.Fatal(err)
		}
		return w
	}
	learn(now.Add(-4*day), now.Add(-time.Hour)) // what others ask for: the last days
	w := learn(from, until)                     // as Whole and Lacks do (shard.find)
	spans, known := h.Lacks(3, w, now)
	if !known || len(spans[0]) != 2 || len(spans[1]) != 0 {
		t.Errorf("known: %v; %v", known, spans)
	}
	h.mu.Lock()
	delete(h.buckets, w.first+100*bucketMs)
	h.mu.Unlock()
	if spans, known := h.Lacks(3, w, now); known {
		t.Errorf("a bucket that was forgotten is known: %v", spans)
	}
}

// TestHeartbeatOfNothing: that a heartbeat selects nothing on any replica is told, once, and not
// before both the last minute and the newest closed bucket are known to have none of it.
func TestHeartbeatOfNothing(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 2, 0, 0, time.UTC)
	has, left := map[int]bool{}, uint64(3)
	ask := func(_ context.Context, part uint64, req *endpoint.Request) ([]map[int64]Beats, uint64, error) {
		out := []map[int64]Beats{{}, {}}
		start, end, step := req.Start.Ms, req.End.Ms, req.Step.Milliseconds()
		if req.ID != endpoint.QueryRange {
			start, end, step, part = req.Time.Ms, req.Time.Ms, 1, part&left
		}
		for at := start; at <= end; at += step {
			for i := range out {
				if has[i] {
					out[i][at] = Beats{jobs: map[string]beat{"j": {20, 80}}}
				}
			}
		}
		return out, part, nil
	}
	h := New("upp", 2)
	look := func(what string, empty, news bool) {
		t.Helper()
		gotEmpty, gotNews := h.Empty()
		if said := h.Pulse(0).Error != "" && h.Pulse(1).Error != ""; gotEmpty != empty || gotNews != news || said != empty {
			t.Errorf("%s: empty %v, news %v, %q", what, gotEmpty, gotNews, h.Pulse(0).Error)
		}
	}
	look("before anybody was asked", false, false)
	h.Refresh(t.Context(), ask, 3, now)
	look("nothing anywhere", true, true)
	look("still", true, false)
	left, now = 1, now.Add(5*time.Minute) // one fails to answer for the last minute, and the bucket that has closed is not asked for
	h.Refresh(t.Context(), ask, 3, now)
	look("nothing more is known", true, false)
	left, now = 3, now.Add(time.Minute)
	h.Refresh(t.Context(), ask, 3, now)
	look("nothing anywhere, as before", true, false)
	has[1] = true
	now = now.Add(10 * time.Minute)
	h.Refresh(t.Context(), ask, 3, now)
	look("one has it", false, true)
}

// TestCovers: those that are left cover the others where at each time one of them lacks nothing of
// theirs, whichever it is.
func TestCovers(t *testing.T) {
	const a, b, c = 1, 2, 4
	now := time.Date(2026, 3, 1, 12, 2, 0, 0, time.UTC)
	w, _ := WindowOf(now.Add(-4*time.Hour).UnixMilli(), now.Add(-2*time.Hour).UnixMilli(), now)
	gaps := func(away ...int64) *Heartbeats { // the bucket in which each was away, counted from the last
		h := New("up", 3)
		for k := range int64(24) {
			at := make([]Beats, 3)
			for i := range at {
				if away[i] != k {
					at[i] = Beats{jobs: map[string]beat{"j": {20, 400}}}
				}
			}
			h.buckets[w.last-k*bucketMs] = judge(at, a|b|c)
		}
		return h
	}
	for _, tc := range []struct {
		name         string
		away         []int64
		left, others uint64
		want         bool
	}{
		{"each was away alone", []int64{3, 9, 15}, a | b, c, true},
		{"one of them alone", []int64{3, 9, 15}, a, c, false},
		{"both at the same time", []int64{3, 3, 15}, a | b, c, false},
		{"all at the same time", []int64{3, 3, 3}, a | b, c, true},
		{"the other one was away too", []int64{3, 9, 3}, a, c, true},
		{"none is left", []int64{3, 9, 15}, 0, c, false},
	} {
		if got := gaps(tc.away...).Covers(tc.left, tc.others, w, now); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}
