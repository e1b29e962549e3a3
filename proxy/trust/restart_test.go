package trust

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// history is a pair of replicas that have the same, but for what the first one lost.
type history struct {
	lost  bool   // all that the first one had
	asked int    // range queries
	then  func() // while one is answered
}

func (s *history) ask(_ context.Context, part uint64, req *endpoint.Request) ([]map[int64]Beats, uint64, error) {
	out := []map[int64]Beats{{}, {}}
	start, end, step := req.Start.Ms, req.End.Ms, req.Step
	if req.ID == endpoint.QueryRange {
		s.asked++
	} else {
		start, end, step = req.Time.Ms, req.Time.Ms, time.Minute
	}
	for at := start; at <= end; at += step.Milliseconds() {
		b := Beats{jobs: map[string]beat{"j": {20, 20 * step.Minutes() * 4}}}
		if step < Bucket {
			b.jobs = map[string]beat{"": b.jobs["j"]}
		}
		out[1][at] = b
		if !s.lost || req.ID != endpoint.QueryRange {
			out[0][at] = b
		}
	}
	if s.then != nil {
		s.then()
	}
	return out, part, nil
}

// TestRestartsForget: what was known of a replica before it was away holds again once the same
// process is there, and is asked anew of another one: it may have come back without its data.
func TestRestartsForget(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 2, 0, 0, time.UTC)
	const both, second = 3, 2
	for _, c := range []struct {
		name   string
		before []time.Duration // when the process that is known was started, before start
		away   bool
		after  []time.Duration
		known  bool // without asking anew
	}{
		{"nobody was away", []time.Duration{time.Hour}, false, []time.Duration{time.Hour}, true},
		{"away, and nothing is said", []time.Duration{time.Hour}, true, nil, false},
		{"the same is back", []time.Duration{time.Hour}, true, []time.Duration{time.Hour + time.Second}, true},
		{"another is back", []time.Duration{time.Hour}, true, []time.Duration{0}, false},
		{"back, and nobody knew who was away", nil, true, []time.Duration{time.Hour}, false},
		{"back, then another", []time.Duration{time.Hour}, true, []time.Duration{time.Hour, 0}, false},
		{"another, that nobody saw come", []time.Duration{time.Hour}, false, []time.Duration{0}, false},
		{"known for the first time", nil, false, []time.Duration{time.Hour}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, s, now := New("up", 2), &history{}, start
			said := func(all []time.Duration) {
				for _, ago := range all {
					now = now.Add(time.Second)
					h.Started(0, start.Add(-ago), now)
				}
			}
			said(c.before)
			w, _ := WindowOf(now.Add(-4*time.Hour).UnixMilli(), now.Add(-2*time.Hour).UnixMilli(), now)
			if _, err := h.Learn(t.Context(), s.ask, both, w, now); err != nil {
				t.Fatal(err)
			}
			if whole, known := h.Lookup(both, w, now); whole != both || !known {
				t.Fatalf("whole %b, known %v", whole, known)
			}
			s.lost, s.asked = true, 0
			if now = now.Add(time.Second); c.away {
				h.Away(0, now)
			}
			said(c.after)
			if _, known := h.Lookup(both, w, now); known != c.known {
				t.Fatalf("known %v, want %v", known, c.known)
			}
			if whole, known := h.Lookup(second, w, now); whole != second || !known {
				t.Errorf("of who was not away: whole %b, known %v", whole, known)
			}
			if _, err := h.Learn(t.Context(), s.ask, both, w, now); err != nil {
				t.Fatal(err)
			}
			want := uint64(second)
			if c.known {
				want = both
			}
			if whole, known := h.Lookup(both, w, now); whole != want || !known || (s.asked == 0) != c.known {
				t.Errorf("whole %b, want %b; known %v, asked %d times", whole, want, known, s.asked)
			}
		})
	}
	t.Run("while it is asked", func(t *testing.T) {
		h, s := New("up", 2), &history{}
		w, _ := WindowOf(start.Add(-4*time.Hour).UnixMilli(), start.Add(-2*time.Hour).UnixMilli(), start)
		s.then = func() { h.Away(0, start.Add(time.Second)) }
		if _, err := h.Learn(t.Context(), s.ask, both, w, start); err != nil {
			t.Fatal(err)
		}
		if _, known := h.Lookup(both, w, start); known {
			t.Error("who answered before it went away counts as asked")
		}
	})
	t.Run("a sign of life of before", func(t *testing.T) {
		h, s := New("up", 2), &history{}
		h.Started(0, start, start)
		w, _ := WindowOf(start.Add(-4*time.Hour).UnixMilli(), start.Add(-2*time.Hour).UnixMilli(), start)
		if _, err := h.Learn(t.Context(), s.ask, both, w, start); err != nil {
			t.Fatal(err)
		}
		h.Away(0, start.Add(2*time.Second))
		h.Started(0, start, start.Add(time.Second)) // asked before, read after
		if _, known := h.Lookup(both, w, start); known {
			t.Error("what was asked before it went away shows that it is the same")
		}
	})
}

// TestSoundBucketsAreAskedAgain: a server that goes on may delete what another one keeps.
func TestSoundBucketsAreAskedAgain(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 2, 0, 0, time.UTC)
	h, s := New("up", 2), &history{}
	w, _ := WindowOf(now.AddDate(0, 0, -15).UnixMilli(), now.AddDate(0, 0, -14).UnixMilli(), now)
	for _, c := range []struct {
		after time.Duration
		known bool
		whole uint64
	}{{0, false, 3}, {10 * time.Hour, true, 3}, {12 * time.Hour, false, 2}} {
		at := now.Add(c.after)
		if _, known := h.Lookup(3, w, at); known != c.known {
			t.Errorf("after %v: known %v", c.after, known)
		}
		if _, err := h.Learn(t.Context(), s.ask, 3, w, at); err != nil {
			t.Fatal(err)
		}
		if whole, _ := h.Lookup(3, w, at); whole != c.whole {
			t.Errorf("after %v: whole %b, want %b", c.after, whole, c.whole)
		}
		s.lost = true
	}
}

// TestSoundBucketsAreRenewed: what somebody looks at is asked for again in the background, a piece
// at a time, before it is believed no more, so that nobody waits for it; what nobody looks at is
// not.
func TestSoundBucketsAreRenewed(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 2, 0, 0, time.UTC)
	h, s := New("up", 2), &history{}
	w, _ := WindowOf(start.AddDate(0, 0, -2).UnixMilli(), start.AddDate(0, 0, -1).UnixMilli(), start)
	if _, err := h.Learn(t.Context(), s.ask, 3, w, start); err != nil {
		t.Fatal(err)
	}
	s.lost = true
	refresh := func(from, until time.Duration) (most int) {
		for now := start.Add(from); now.Before(start.Add(until)); now = now.Add(10 * time.Second) {
			s.asked = 0
			h.Refresh(t.Context(), s.ask, 3, now)
			h.Renew(t.Context(), s.ask, 3, now)
			most = max(most, s.asked)
		}
		return most
	}
	h.Lookup(3, w, start)
	refresh(0, 50*time.Minute)
	if whole, known := h.Lookup(3, w, start.Add(50*time.Minute)); whole != 3 || !known {
		t.Fatalf("whole %b, known %v before anything is due", whole, known)
	}
	if most := refresh(50*time.Minute, 93*time.Minute); most > 5 {
		t.Errorf("%d questions in one refresh", most)
	}
	if whole, known := h.Lookup(3, w, start.Add(93*time.Minute)); whole != 2 || !known {
		t.Errorf("whole %b, known %v once all is renewed", whole, known)
	}

	h, s = New("up", 2), &history{}
	if _, err := h.Learn(t.Context(), s.ask, 3, w, start); err != nil {
		t.Fatal(err)
	}
	refresh(0, 5*time.Hour)
	if _, known := h.Lookup(3, w, start.Add(5*time.Hour)); known {
		t.Error("what nobody looked at was renewed")
	}
}

// TestRenewalsTakeNothingAway: a question that nobody waits for, and that one replica answers late,
// or with an error, or none, leaves all that is known as it was, and is asked again in minutes.
func TestRenewalsTakeNothingAway(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 2, 0, 0, time.UTC)
	for name, fails := range map[string]func(answers []map[int64]Beats) ([]map[int64]Beats, uint64, error){
		"one is late": func(a []map[int64]Beats) ([]map[int64]Beats, uint64, error) {
			return []map[int64]Beats{a[0], nil}, 1, nil
		},
		"both are": func([]map[int64]Beats) ([]map[int64]Beats, uint64, error) { return make([]map[int64]Beats, 2), 0, nil },
		"one will not": func([]map[int64]Beats) ([]map[int64]Beats, uint64, error) {
			return nil, 0, errors.New("too many samples")
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, s, asked := New("up", 2), &history{}, 0
			patiently := func(ctx context.Context, part uint64, req *endpoint.Request) ([]map[int64]Beats, uint64, error) {
				asked++
				answers, _, _ := s.ask(ctx, part, req)
				return fails(answers)
			}
			w, _ := WindowOf(start.Add(-6*time.Hour).UnixMilli(), start.Add(-2*time.Hour).UnixMilli(), start)
			if _, err := h.Learn(t.Context(), s.ask, 3, w, start); err != nil {
				t.Fatal(err)
			}
			h.Lookup(3, w, start)
			for now := start; now.Before(start.Add(118 * time.Minute)); now = now.Add(10 * time.Second) {
				h.Refresh(t.Context(), s.ask, 3, now)
				h.Renew(t.Context(), patiently, 3, now)
				if whole, known := h.Lookup(3, w, now); whole != 3 || !known {
					t.Fatalf("after %v: whole %b, known %v", now.Sub(start), whole, known)
				}
			}
			if asked < 2 || asked > 15 {
				t.Errorf("asked %d times in an hour", asked)
			}
		})
	}
}

// TestRenewalsAreFew: of a day that is looked at, each piece of six hours is asked for about once
// an hour, however far apart its buckets have become due.
func TestRenewalsAreFew(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 2, 0, 0, time.UTC)
	h, s, renewals := New("up", 2), &history{}, 0
	patiently := func(ctx context.Context, part uint64, req *endpoint.Request) ([]map[int64]Beats, uint64, error) {
		renewals++
		return s.ask(ctx, part, req)
	}
	from := start.AddDate(0, 0, -1).UnixMilli()
	look := func(now time.Time) bool {
		w, _ := WindowOf(from, now.Add(-10*time.Minute).UnixMilli(), now)
		_, known := h.Lookup(3, w, now)
		if !known {
			if _, err := h.Learn(t.Context(), s.ask, 3, w, now); err != nil {
				t.Fatal(err)
			}
		}
		return known
	}
	look(start)
	for now := start; now.Before(start.Add(8 * time.Hour)); now = now.Add(10 * time.Second) {
		h.Refresh(t.Context(), s.ask, 3, now)
		h.Renew(t.Context(), patiently, 3, now)
		if now.Minute() == 0 && now.Second() == 0 && !look(now) {
			t.Errorf("after %v it is not known any more", now.Sub(start))
		}
		if now.Sub(start) == 6*time.Hour {
			renewals = 0
		}
	}
	if renewals > 24 {
		t.Errorf("%d renewals in two hours", renewals)
	}
}

// TestRenewalsWaitForAll: while one of three takes no part for a moment, what is known of all three
// is not replaced by what two say.
func TestRenewalsWaitForAll(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 2, 0, 0, time.UTC)
	h, s := New("up", 3), &history{}
	ask := func(ctx context.Context, part uint64, req *endpoint.Request) ([]map[int64]Beats, uint64, error) {
		answers, left, err := s.ask(ctx, part, req)
		return append(answers, answers[1]), left, err
	}
	w, _ := WindowOf(start.Add(-6*time.Hour).UnixMilli(), start.Add(-2*time.Hour).UnixMilli(), start)
	if _, err := h.Learn(t.Context(), ask, 7, w, start); err != nil {
		t.Fatal(err)
	}
	h.Lookup(7, w, start)
	for now := start; now.Before(start.Add(118 * time.Minute)); now = now.Add(10 * time.Second) {
		h.Renew(t.Context(), ask, 3, now)
		if whole, known := h.Lookup(7, w, now); whole != 7 || !known {
			t.Fatalf("after %v: whole %b, known %v", now.Sub(start), whole, known)
		}
	}
	now := start.Add(119 * time.Minute)
	h.Renew(t.Context(), ask, 7, now)
	if _, known := h.Lookup(7, w, now.Add(30*time.Minute)); !known {
		t.Error("it is not renewed once all are back")
	}
}
