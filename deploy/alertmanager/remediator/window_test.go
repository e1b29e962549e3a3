package main

import (
	"strings"
	"testing"
	"time"
)

// TestClockAhead: cordons of a moment in which the machine's clock was a year ahead use their
// places for one window from when the clock is right again, and not for a year; and not for none.
func TestClockAhead(t *testing.T) {
	r := newRig(t, 100, nil) // three an hour
	right := r.clock
	r.clock = right.Add(365 * 24 * time.Hour)
	if err := r.post(t, xid(1), xid(2), xid(3)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		after     time.Duration
		node, out int
	}{
		{time.Minute, 4, 3}, {30 * time.Minute, 4, 3}, {59 * time.Minute, 4, 3}, // waits
		{62 * time.Minute, 5, 5}, {63 * time.Minute, 6, 6}, {64 * time.Minute, 7, 6},
	} {
		r.clock = right.Add(tc.after)
		if err := r.post(t, xid(tc.node)); err != nil {
			t.Fatal(err)
		}
		if got := len(r.api.out()); got != tc.out {
			t.Errorf("%s later %d nodes are out, want %d", tc.after, got, tc.out)
		}
	}
	if got := strings.Count(r.log.String(), "yet to come"); got != 3 {
		t.Errorf("it is told %d times of three cordons", got)
	}
}

// TestClockBackTwice: a time that was first met by a clock that was ahead too does not stay so.
func TestClockBackTwice(t *testing.T) {
	r := newRig(t, 100, nil)
	right, d := r.clock, cordon{"a", r.clock.Add(2 * 365 * 24 * time.Hour).Format(time.RFC3339)}
	for _, tc := range []struct {
		clock time.Duration
		want  bool
	}{
		{365 * 24 * time.Hour, true}, {0, true}, {50 * time.Minute, true}, {61 * time.Minute, false}, {24 * time.Hour, false},
	} {
		r.clock = right.Add(tc.clock)
		if got := r.c.within(d, r.clock.Add(-time.Hour)); got != tc.want {
			t.Errorf("at %s: %v", tc.clock, got)
		}
	}
}
