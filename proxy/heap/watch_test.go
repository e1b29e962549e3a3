package heap

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mib = int64(1 << 20)

// rig is a Watch over a runtime that says what the test wants.
type rig struct {
	*Watch
	now       Reading
	looks     int
	collected int
	pressed   []*qerr.Error
	evicted   int
}

func newRig() *rig {
	r := &rig{now: Reading{Live: 100 * mib, Other: 12 * mib, Limit: 4 << 30}}
	r.Watch = New(Options{
		Ceiling: func() int64 { return 512 * mib }, Evicted: func() { r.evicted++ },
		Pressed: func(e *qerr.Error) { r.pressed = append(r.pressed, e) },
		More:    func(limit int64) string { return "raise this limit of " + admit.FormatBytes(limit) },
		read:    func() Reading { r.looks++; return r.now },
		collect: func() { r.locked(func() { r.collected++; r.now.Cycles++ }) },
	})
	return r
}

// locked keeps the test and the looks apart.
func (r *rig) locked(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *rig) live(n int64) { r.locked(func() { r.now.Live = n }) }

// goOn lets time pass while the collector works now and then, as it does where much is allocated.
func (r *rig) goOn(looks int) {
	for range looks {
		r.locked(func() { r.now.Cycles++ })
		time.Sleep(Every)
		synctest.Wait()
	}
}

func (r *rig) lastPressed() (e *qerr.Error) {
	r.locked(func() { e = r.pressed[len(r.pressed)-1] })
	return e
}

func weighs(n int64) func() int64 { return func() int64 { return n } }

// TestTheHeaviestIsEnded: one at a time, heaviest first, none twice, none that weighs next to
// nothing; and the error says whom, why and what to do.
func TestTheHeaviestIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		var ended []string
		join := func(name string, weight int64) *Request {
			return r.Join(weighs(weight), func(err error) {
				var e *qerr.Error
				if !errors.As(err, &e) || e.Kind != qerr.Overloaded || e.Bound != policy.BoundMemoryHeap || e.Value != "512MiB" ||
					e.Seen == "" || e.RetryAfter == 0 ||
					!strings.HasSuffix(e.Advice, "to mend it for good, raise this limit of 4GiB") {
					t.Errorf("%s was ended with %#v", name, err)
				}
				ended = append(ended, name)
			})
		}
		all := []*Request{join("small", mib), join("heavy", 100*mib), join("heaviest", 200*mib)}
		r.goOn(5)
		if len(ended) != 0 || len(r.pressed) != 0 {
			t.Errorf("ended %v at 112 of 512 MiB", ended)
		}
		r.live(420 * mib) // 432: tight, not full
		r.goOn(5)
		if len(ended) != 0 || len(r.pressed) == 0 || r.pressed[0] == nil || r.pressed[0].Bound != policy.BoundMemoryHeap {
			t.Errorf("ended %v at 432 of 512 MiB, pressed %v", ended, r.pressed)
		}
		r.live(460 * mib)     // 472: full
		time.Sleep(5 * Every) // no collection in this time
		synctest.Wait()
		if len(ended) != 1 || ended[0] != "heaviest" {
			t.Errorf("ended %v before a collection, want the heaviest", ended)
		}
		all[2].Leave()
		r.goOn(1)
		r.goOn(5)
		if len(ended) != 2 || ended[1] != "heavy" || r.evicted != 2 {
			t.Errorf("ended %v, %d counted", ended, r.evicted)
		}
		r.live(50 * mib)
		r.goOn(1)
		if last := r.lastPressed(); last != nil {
			t.Errorf("still pressed: %v", last)
		}
		all[0].Leave()
		all[1].Leave()
		var before, after int
		r.locked(func() { before = r.looks })
		time.Sleep(time.Minute)
		r.locked(func() { after = r.looks })
		if after > before+1 {
			t.Errorf("%d looks in a minute without requests", after-before)
		}
	})
}

// TestWhoeverIsEvaluatedIsSuspected: where most of what is held was charged to nobody, the one who
// was charged most is not to blame; evaluations come first, and the error claims no more than is
// known.
func TestWhoeverIsEvaluatedIsSuspected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		var ended, said []string
		join := func(name string, weight int64, evaluated bool) *Request {
			q := r.Join(weighs(weight), func(err error) { ended, said = append(ended, name), append(said, err.Error()) })
			q.Evaluated(evaluated)
			return q
		}
		all := []*Request{
			join("reads", 60*mib, false), join("evaluates", mib, true), join("evaluates more", 3*mib, true),
			join("did", 70*mib, true),
		}
		all[3].Evaluated(false)
		time.Sleep(2 * MinAge)
		r.live(470 * mib)
		r.goOn(2)
		if len(ended) == 0 || ended[0] != "evaluates more" || strings.Contains(said[0], "more than any other") ||
			!strings.Contains(said[0], "charged to nobody") {
			t.Fatalf("ended %v: %v", ended, said)
		}
		all[2].Leave()
		r.goOn(3)
		if len(ended) < 3 || ended[1] != "evaluates" || ended[2] != "did" ||
			!strings.Contains(said[2], "was charged for more than any other") {
			t.Errorf("ended %v: %v", ended, said)
		}
		for _, q := range all {
			q.Leave()
		}
		r.live(mib)
		r.goOn(1)
	})
}

// TestGarbageIsNoReason: nobody allocates, so nobody collects, and the last collection says that
// the heap is full. It is collected, and nobody ended.
func TestGarbageIsNoReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.live(440 * mib)
		q := r.Join(weighs(mib), func(error) { t.Error("ended") })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if r.collected == 0 {
			t.Error("nobody collects")
		}
		q.Leave()
		r.live(mib) // tight is looked after without requests too
		time.Sleep(time.Second)
		synctest.Wait()
		if last := r.lastPressed(); last != nil {
			t.Errorf("still pressed: %v", last)
		}
	})
}

// TestRead: the runtime's figures make sense.
func TestRead(t *testing.T) {
	if r := read(); r.Live < 0 || r.Other <= 0 || r.Held() <= 0 || r.Limit <= 0 {
		t.Errorf("%+v", r)
	}
}
