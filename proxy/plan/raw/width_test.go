package raw

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// slowCopy answers nothing after so long, or when its context ends, and counts who reads it and its
// like.
type slowCopy struct {
	takes         time.Duration
	reading, most *atomic.Int64
}

func (*slowCopy) Name() string { return "slow" }

func (c *slowCopy) Read(ctx context.Context, _ Query, _ func([]prompb.Label, []prompb.Chunk) error) error {
	n := c.reading.Add(1)
	defer c.reading.Add(-1)
	for was := c.most.Load(); n > was && !c.most.CompareAndSwap(was, n); was = c.most.Load() {
	}
	select {
	case <-time.After(c.takes):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// slowLegs are n slices of such copies.
func slowLegs(n int, takes time.Duration) (legs []Leg, reading, most *atomic.Int64) {
	reading, most = new(atomic.Int64), new(atomic.Int64)
	for i := range n {
		legs = append(legs, Leg{Slice: slice(fmt.Sprintf("jaguar[%d]", i), math.MinInt64, math.MaxInt64, &slowCopy{takes, reading, most})})
	}
	return legs, reading, most
}

func (q *Queryable) legs(all []Leg) {
	q.Legs = func(context.Context, int64, int64, []*labels.Matcher) ([]Leg, error) { return all, nil }
}

// TestWidth: five selectors over 200 slices are 1,000 reads, 64 over 800 are 51,200, and as many
// goroutines at once as Width has places, beside one for each selector.
func TestWidth(t *testing.T) {
	for _, tc := range []struct{ width, selectors, slices int }{{8, 5, 200}, {64, 64, 800}} {
		synctest.Test(t, func(t *testing.T) {
			legs, reading, most := slowLegs(tc.slices, time.Second)
			q := &Queryable{Width: tc.width, Meter: &countingMeter{}}
			q.legs(legs)
			began, before := time.Now(), runtime.NumGoroutine()
			var wg sync.WaitGroup
			for range tc.selectors {
				wg.Go(func() {
					if _, err := q.Series(t.Context(), 0, 1000, nil, nil); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			if n := int(reading.Load()); n != tc.width {
				t.Errorf("%d slices are read at once, want %d", n, tc.width)
			}
			if n := runtime.NumGoroutine() - before; n > tc.width+tc.selectors {
				t.Errorf("%d goroutines, want at most %d", n, tc.width+tc.selectors)
			}
			wg.Wait()
			if n := int(most.Load()); n != tc.width {
				t.Errorf("%d slices were read at once, want %d", n, tc.width)
			}
			if took, want := time.Since(began), time.Duration(tc.selectors*tc.slices/tc.width)*time.Second; took != want {
				t.Errorf("took %s, want %s: a place stood empty", took, want)
			}
		})
	}
}

// TestPerSlice: however many selectors there are, a slice is read for a few of them at a time, and
// each slice for as many, one after another without a pause.
func TestPerSlice(t *testing.T) {
	const perSlice, selectors, slices = 4, 60, 3
	synctest.Test(t, func(t *testing.T) {
		legs, _, _ := slowLegs(slices, time.Second)
		var most [slices]atomic.Int64
		for i, leg := range legs {
			leg.Slice.Copies = []Copy{&slowCopy{time.Second, new(atomic.Int64), &most[i]}}
		}
		q := &Queryable{Width: 64, PerSlice: perSlice, Meter: &countingMeter{}}
		q.legs(legs)
		began := time.Now()
		var wg sync.WaitGroup
		for range selectors {
			wg.Go(func() {
				if _, err := q.Series(t.Context(), 0, 1000, nil, nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for i := range most {
			if n := most[i].Load(); n != perSlice {
				t.Errorf("slice %d was read for %d selectors at once, want %d", i, n, perSlice)
			}
		}
		if took, want := time.Since(began), selectors/perSlice*time.Second; took != want {
			t.Errorf("took %s, want %s: a place stood empty", took, want)
		}
	})
}

// TestWidthAndSilentSlices: slices that hang fill all places. An answer that can go without them
// comes when their patience is over, without those that never had a place too; one that cannot has
// the error then.
func TestWidthAndSilentSlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		legs, _, most := slowLegs(20, time.Hour)
		for _, goesOn := range []bool{true, false} {
			var lost atomic.Int64
			q := &Queryable{Width: 4, Meter: &countingMeter{}, SlicePatience: threeSeconds, Lost: func(_ string, err error) error {
				lost.Add(1)
				if goesOn {
					return nil
				}
				return err
			}}
			q.legs(legs)
			began := time.Now()
			_, err := q.Series(t.Context(), 0, 1000, nil, nil)
			if took := time.Since(began); took > 3*time.Second+5*time.Millisecond {
				t.Errorf("took %s", took)
			}
			switch {
			case goesOn && (err != nil || lost.Load() != 20):
				t.Errorf("%d slices lost, want 20; %v", lost.Load(), err)
			case !goesOn && qerr.From(err).Kind != qerr.Timeout:
				t.Errorf("the error is %v", err)
			}
		}
		if n := most.Load(); n > 4 {
			t.Errorf("%d slices were read at once", n)
		}
	})
}

// TestWidthEndsWithTheFirstFailure: nobody waits for a place once the answer is lost, nor when the
// request has ended.
func TestWidthEndsWithTheFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		legs, _, _ := slowLegs(20, time.Hour)
		legs[2].Slice.Copies = []Copy{&fakeCopy{name: "broken", err: errors.New("no such thing")}}
		q := &Queryable{Width: 4, Meter: &countingMeter{}}
		q.legs(legs)
		if _, err := q.Series(t.Context(), 0, 1000, nil, nil); err == nil || !strings.Contains(err.Error(), "no such thing") {
			t.Errorf("the error is %v", err)
		}
		ctx, leave := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { leave(qerr.ErrClientLeft) })
		q = &Queryable{Width: 4, Meter: &countingMeter{}}
		legs, _, _ = slowLegs(20, time.Hour)
		q.legs(legs)
		if _, err := q.Series(ctx, 0, 1000, nil, nil); !errors.Is(err, qerr.ErrClientLeft) {
			t.Errorf("the error is %v", err)
		}
	})
}

func threeSeconds(string) time.Duration { return 3 * time.Second }
