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
		for i, s := range steps {
			if is := w.Saw(with(s.share), 0, time.Minute, epoch.Add(time.Duration(i)*10*time.Second)); is != s.is {
				t.Errorf("%s, page %d (%g): %s, want %s", name, i, s.share, is, s.is)
			}
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
		last, was, is := -10, Unknown, Unknown
		for i := range 500 {
			share := rnd.Float64()
			was, is = is, w.Saw(with(share), 0, time.Minute, epoch.Add(time.Duration(i)*10*time.Second))
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
	if v := w.Now(0, epoch); v.State != Unknown || v.Held != -1 || v.Queries != -1 {
		t.Errorf("before anything: %+v", v)
	}
	w.Saw(with(0.95), 0, 30*time.Second, epoch)
	if v := w.Now(0, epoch.Add(30*time.Second-1)); v.State != Sick {
		t.Errorf("within its time: %+v", v)
	}
	if v := w.Now(0, epoch.Add(30*time.Second)); v.State != Unknown || v.Held != -1 || v.Of != -1 {
		t.Errorf("afterwards: %+v", v)
	}
	if is := w.Saw(with(0.5), 0, 30*time.Second, epoch.Add(time.Minute)); is != Sound {
		t.Errorf("seen again: %s", is)
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
		"what is live not known, and a higher limit":  {of(func(s *Sample) { s.Live = -1 }), 10 * gib, 7 * gib, 10 * gib, Sound},
		"neither is what its runtime holds":           {of(func(s *Sample) { s.Live, s.Used = -1, -1 }), 10 * gib, 9 * gib, 10 * gib, Sick},
		"nothing":                                     {noGo(-1), 8 * gib, -1, 8 * gib, Unknown},
	} {
		var w Watch
		is := w.Saw(tc.s, tc.configured, time.Minute, epoch)
		if v := w.Now(tc.configured, epoch); is != tc.is || v.Held != tc.held || v.Of != tc.of {
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
		return w.Now(0, at).Rest / gib
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
	if is := w.Saw(s, 0, time.Hour, at); is != Sick || w.Now(0, at).Rest/gib != 9 {
		t.Errorf("another process: %+v", w.Now(0, at))
	}
	s = with(0.1)
	s.Started = at.Add(time.Minute)
	if is := w.Saw(s, 0, time.Hour, at); is != Sound {
		t.Errorf("a process that was started anew is %s", is)
	}
}

// seenPage is one of with, seconds after epoch.
type seenPage struct {
	at      int
	share   float64
	started int // seconds after epoch
	gc      int // likewise, by a clock that is an hour behind; 0 is not known
	is      State
}

// TestPagesOverTime: what follows from pages as they come.
func TestPagesOverTime(t *testing.T) {
	for name, pages := range map[string][]seenPage{
		"one peak, and no collection for two minutes": {
			{0, 0.5, 0, 1, Sound},
			{10, 0.95, 0, 15, Sick},
			{20, 0.95, 0, 15, Sick},
			{30, 0.95, 0, 15, Sick},
			{40, 0.95, 0, 15, Sick},
			{50, 0.95, 0, 15, Sick},
			{60, 0.95, 0, 15, Busy},
			{120, 0.95, 0, 15, Busy},
			{130, 0.5, 0, 135, Busy},
		},
		"full, and seldom collected": {
			{0, 0.92, 0, 1, Sick},
			{30, 0.92, 0, 1, Sick},
			{40, 0.92, 0, 1, Sick},
			{50, 0.92, 0, 1, Busy},
			{120, 0.92, 0, 121, Sick},
			{160, 0.92, 0, 121, Sick},
			{170, 0.92, 0, 121, Sick},
			{230, 0.92, 0, 121, Sick},
			{240, 0.5, 0, 240, Sick},
			{250, 0.5, 0, 240, Sick},
			{260, 0.5, 0, 240, Sound},
			{270, 0.92, 0, 269, Sick},
			{310, 0.92, 0, 269, Sick},
			{320, 0.92, 0, 269, Sick},
			{330, 0.92, 0, 269, Busy},
		},
		"it collects all the time": {
			{0, 0.95, 0, 1, Sick},
			{10, 0.95, 0, 11, Sick},
			{40, 0.95, 0, 41, Sick},
			{300, 0.95, 0, 299, Sick},
		},
		"no page tells when": {{0, 0.95, 0, 0, Sick}, {10, 0.95, 0, 0, Sick}, {40, 0.95, 0, 0, Sick}, {300, 0.95, 0, 0, Sick}},
		"many pages at once": {
			{0, 0.95, 0, 0, Sick},
			{10, 0.3, 0, 0, Sick},
			{11, 0.3, 0, 0, Sick},
			{12, 0.3, 0, 0, Sick},
			{13, 0.3, 0, 0, Sick},
			{20, 0.3, 0, 0, Sick},
			{30, 0.3, 0, 0, Sound},
		},
		"it restarts":            {{0, 0.95, 0, 0, Sick}, {10, 0.3, 9, 0, Sound}, {20, 0.95, 9, 0, Sick}},
		"its clock is corrected": {{0, 0.95, 0, 0, Sick}, {10, 0.3, 2, 0, Sick}, {20, 0.3, 1, 0, Sick}, {30, 0.3, -2, 0, Sound}},
		"two processes, now one of two": {
			{0, 0.95, 0, 0, Sick},
			{10, 0.3, 9, 0, Sound},
			{20, 0.95, 0, 0, Unknown},
			{30, 0.3, 9, 0, Unknown},
			{300, 0.95, 0, 0, Unknown},
		},
		"two processes, then one": {
			{0, 0.95, 0, 0, Sick},
			{10, 0.3, 9, 0, Sound},
			{20, 0.95, 0, 0, Unknown},
			{319, 0.95, 0, 0, Unknown},
			{320, 0.95, 0, 0, Sick},
		},
	} {
		var w Watch
		for i, p := range pages {
			s := with(p.share)
			s.Started = epoch.Add(time.Duration(p.started) * time.Second)
			if p.gc != 0 {
				s.Collected = epoch.Add(time.Duration(p.gc)*time.Second - time.Hour)
			}
			at := epoch.Add(time.Duration(p.at) * time.Second)
			if is := w.Saw(s, 0, 10*time.Minute, at); is != p.is {
				t.Errorf("%s, page %d: %s, want %s", name, i, is, p.is)
			}
			if v := w.Now(0, at); (v.Why() == "") != (p.is != Unknown) || v.Mixed != (p.is == Unknown) {
				t.Errorf("%s, page %d: %q, %t", name, i, v.Why(), v.Mixed)
			}
		}
	}
}

// TestSickAndSilent: a server that had no memory left and is too slow to say more is taken to have
// none for minutes, unless it is not there; of one that was well no more is known.
func TestSickAndSilent(t *testing.T) {
	const holds = 30 * time.Second
	for _, tc := range []struct {
		share float64
		lasts time.Duration
		is    State
	}{{0.95, lateFor, Sick}, {0.85, lateFor, Busy}, {0.5, holds, Sound}} {
		var w Watch
		w.Saw(with(tc.share), 0, holds, epoch)
		for after := time.Duration(0); after < 15*time.Minute; after += 10 * time.Second {
			want := tc.is
			if after >= tc.lasts {
				want = Unknown
			}
			if v := w.Now(0, epoch.Add(after)); v.State != want {
				t.Fatalf("%g, after %s: %s, want %s", tc.share, after, v.State, want)
			}
			w.Late(holds, epoch.Add(after))
		}
	}
	var w Watch
	w.Saw(with(0.95), 0, holds, epoch)
	w.Late(holds, epoch.Add(20*time.Second))
	if is := w.Saw(with(0.5), 0, holds, epoch.Add(40*time.Second)); is != Sick {
		t.Errorf("the first page since: %s", is)
	}
	w.Forget()
	if v := w.Now(0, epoch.Add(41*time.Second)); v.State != Unknown || v.Held != -1 || v.Rest != -1 {
		t.Errorf("not there: %+v", v)
	}
}

// TestAnotherLimit: where the configuration gives another limit, what was read is judged by that at
// once.
func TestAnotherLimit(t *testing.T) {
	var w Watch
	w.Saw(noGo(9*gib), 10*gib, time.Minute, epoch)
	for configured, want := range map[int64]State{10 * gib: Sick, 11 * gib: Busy, 20 * gib: Sound, 0: Unknown} {
		if v := w.Now(configured, epoch); v.State != want || v.Held != 9*gib {
			t.Errorf("of %d: %s, %+v", configured, v.State, v)
		}
	}
	if is := w.Saw(noGo(9*gib), 20*gib, time.Minute, epoch.Add(10*time.Second)); is != Sound {
		t.Errorf("the next page: %s", is)
	}
}

// TestOnePeakIsNotFull: one query's peak in which garbage was collected twice leaves a server sick
// until half a minute after the last of them, and three pages; who stays full is sick all the same.
func TestOnePeakIsNotFull(t *testing.T) {
	for name, tc := range map[string]struct {
		collected []int // seconds, in the peak
		over      int   // when the peak is; the next collection is two minutes later
		most      int   // seconds
	}{"one": {[]int{9}, 20, 50}, "two": {[]int{9, 19}, 20, 60}, "six": {[]int{9, 14, 19, 24, 29, 34}, 35, 90}} {
		var w Watch
		sick := 0
		for at := 0; at <= 400; at += 10 {
			s, last := with(0.5), 1
			for _, gc := range tc.collected {
				if at > gc {
					s, last = with(0.92), gc
				}
			}
			if at > tc.over+120 {
				s, last = with(0.5), tc.over+120
			}
			s.Started, s.Collected = epoch, epoch.Add(time.Duration(last)*time.Second)
			if w.Saw(s, 0, time.Minute, epoch.Add(time.Duration(at)*time.Second)) == Sick {
				sick += 10
			}
		}
		if sick == 0 || sick > tc.most {
			t.Errorf("%s: sick for %d s", name, sick)
		}
	}
	var w Watch
	for at := 0; at <= 1200; at += 10 { // collects every two minutes, and is full each time
		s := with(0.95)
		s.Started, s.Collected = epoch, epoch.Add(time.Duration(at/120*120)*time.Second)
		if is := w.Saw(s, 0, time.Minute, epoch.Add(time.Duration(at)*time.Second)); at > 120 && is != Sick {
			t.Fatalf("full for %d s: %s", at, is)
		}
	}
}
