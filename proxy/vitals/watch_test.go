package vitals

import (
	"math/rand/v2"
	"testing"
	"time"
)

const gib = 1 << 30

var epoch = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// with is a server that knows its limit of 10 GiB and holds a part of it.
func with(share float64) Sample {
	live := int64(share*10*gib + 1) // the part itself, whatever floats make of it
	return Sample{Resident: 12 * gib, Used: 10 * gib, Live: live, Limit: 10 * gib, Started: epoch}
}

// TestStates: worse holds at once, better after three pages running and below a lower threshold.
func TestStates(t *testing.T) {
	for name, steps := range map[string][]struct {
		share float64
		is    State
	}{
		"up and down": {
			{0.5, Sound},
			{0.79, Sound},
			{0.80, Busy},
			{0.76, Busy},
			{0.76, Busy},
			{0.76, Busy},
			{0.9, Sick},
			{0.86, Sick},
			{0.86, Sick},
			{0.86, Sick},
			{0.84, Sick},
			{0.84, Sick},
			{0.84, Busy},
			{0.7, Busy},
			{0.7, Busy},
			{0.7, Sound},
			{0.79, Sound},
		},
		"straight down":               {{0.95, Sick}, {0.3, Sick}, {0.3, Sick}, {0.3, Sound}},
		"straight up":                 {{0.3, Sound}, {0.95, Sick}},
		"a good page between bad":     {{0.95, Sick}, {0.3, Sick}, {0.3, Sick}, {0.88, Sick}, {0.3, Sick}, {0.3, Sick}, {0.3, Sound}},
		"to and fro at the threshold": {{0.81, Busy}, {0.79, Busy}, {0.81, Busy}, {0.79, Busy}, {0.79, Busy}, {0.79, Busy}, {0.79, Busy}},
	} {
		var w Watch
		was := Unknown
		for i, s := range steps {
			before, is := w.Saw(with(s.share), 0, time.Minute, epoch.Add(time.Duration(i)*10*time.Second))
			if is != s.is || before != was {
				t.Errorf("%s, page %d (%g): %s after %s, want %s after %s", name, i, s.share, is, before, s.is, was)
			}
			was = is
		}
	}
}

// TestNeverFlaps: of random pages, whatever they say, a state gets better at most once in three,
// and it is never better than the newest page says.
func TestNeverFlaps(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		var w Watch
		last := -10
		for i := range 500 {
			share := rnd.Float64()
			was, is := w.Saw(with(share), 0, time.Minute, epoch.Add(time.Duration(i)*10*time.Second))
			if worse(was, is) {
				if i-last < calmAfter {
					t.Fatalf("it got better at pages %d and %d", last, i)
				}
				last = i
			}
			if at := map[bool]State{share >= BusyFrom: Busy, share >= SickFrom: Sick}[true]; worse(at, is) {
				t.Fatalf("%g is %s", share, is)
			}
		}
	}
}

// TestOldIsNotKnown: what was seen holds for the time given, and a server that was not seen for
// longer begins anew.
func TestOldIsNotKnown(t *testing.T) {
	var w Watch
	if v := w.Now(epoch); v.State != Unknown || v.Held != -1 || v.Room() != -1 || v.Queries != -1 {
		t.Errorf("before anything: %+v", v)
	}
	w.Saw(with(0.95), 0, 30*time.Second, epoch)
	if v := w.Now(epoch.Add(30*time.Second - 1)); v.State != Sick || v.Room() != 0 {
		t.Errorf("within its time: %+v", v)
	}
	if v := w.Now(epoch.Add(30 * time.Second)); v.State != Unknown || v.Held != -1 || v.Of != -1 {
		t.Errorf("afterwards: %+v", v)
	}
	if was, is := w.Saw(with(0.5), 0, 30*time.Second, epoch.Add(time.Minute)); was != Unknown || is != Sound {
		t.Errorf("seen again: %s, %s", was, is)
	}
}

// noGo is a server that serves nothing of its runtime.
func noGo(resident int64) Sample { return Sample{Resident: resident, Used: -1, Live: -1, Limit: -1} }

// TestLimits: which memory is compared with which limit.
func TestLimits(t *testing.T) {
	full := Sample{Resident: 9 * gib, Used: 7 * gib, Live: 4 * gib, Limit: 8 * gib}
	of := func(f func(s *Sample)) Sample { s := full; f(&s); return s }
	for name, tc := range map[string]struct {
		s          Sample
		configured int64
		held, of   int64
		is         State
	}{
		"it knows its limit":                          {full, 0, 4 * gib, 8 * gib, Sound},
		"it knows a lower one than is configured":     {full, 16 * gib, 4 * gib, 8 * gib, Sound},
		"the configured one is lower: garbage counts": {full, 75 * gib / 10, 7 * gib, 75 * gib / 10, Sick},
		"the configured one alone":                    {of(func(s *Sample) { s.Limit = -1 }), 10 * gib, 7 * gib, 10 * gib, Sound},
		"nothing but resident memory":                 {noGo(9 * gib), 10 * gib, 9 * gib, 10 * gib, Sick},
		"no limit":                                    {of(func(s *Sample) { s.Limit = -1 }), 0, 7 * gib, -1, Unknown},
		"a limit, and what is live not known":         {of(func(s *Sample) { s.Live = -1 }), 0, -1, 8 * gib, Unknown},
		"nothing":                                     {noGo(-1), 8 * gib, -1, 8 * gib, Unknown},
	} {
		var w Watch
		_, is := w.Saw(tc.s, tc.configured, time.Minute, epoch)
		if v := w.Now(epoch); is != tc.is || v.Held != tc.held || v.Of != tc.of {
			t.Errorf("%s: %s, %d of %d; want %s, %d of %d", name, is, v.Held, v.Of, tc.is, tc.held, tc.of)
		}
	}
}

// TestRest: what a server holds at rest is the least of the last hour, of this process.
func TestRest(t *testing.T) {
	var w Watch
	at := epoch
	saw := func(share float64, after time.Duration) int64 {
		at = at.Add(after)
		w.Saw(with(share), 0, 3*time.Hour, at)
		return w.Now(at).Rest / gib
	}
	for i, tc := range []struct {
		share float64
		after time.Duration
		rest  int64
	}{
		{0.5, 0, 5},
		{0.3, 10 * time.Minute, 3},
		{0.6, 10 * time.Minute, 3},
		{0.6, 30 * time.Minute, 3},
		{0.7, 30 * time.Minute, 6},
		{0.8, 2 * time.Hour, 8},
	} {
		if got := saw(tc.share, tc.after); got != tc.rest {
			t.Errorf("%d: at rest it holds %d GiB, want %d", i, got, tc.rest)
		}
	}
	s := with(0.9)
	s.Started = at
	if _, is := w.Saw(s, 0, time.Hour, at); is != Sick || w.Now(at).Rest/gib != 9 {
		t.Errorf("another process: %+v", w.Now(at))
	}
	s = with(0.1)
	s.Started = at.Add(time.Second)
	if was, is := w.Saw(s, 0, time.Hour, at); was != Unknown || is != Sound {
		t.Errorf("a process that was started anew is %s after %s", is, was)
	}
}
