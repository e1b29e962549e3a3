package raw

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// hangingCopy answers when its reader has gone.
type hangingCopy struct{ fakeCopy }

func (c *hangingCopy) Read(ctx context.Context, _ Query, _ func([]prompb.Label, []prompb.Chunk) error) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// TestSpareCopies: of spare copies, each of which has all, one that was read is the answer,
// whatever becomes of the others; where all fail they are told of together.
func TestSpareCopies(t *testing.T) {
	slow := func(name string) *hangingCopy { return &hangingCopy{fakeCopy{name: name}} }
	ok := &fakeCopy{name: "ok", series: []string{"m{n=1}: 7 22 37"}}
	for name, tc := range map[string]struct {
		spare  []Copy
		failed []string
	}{
		"one is read":   {[]Copy{ok, slow("c")}, nil},
		"none of them":  {[]Copy{slow("b")}, []string{"a", "b"}},
		"there is none": {nil, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := slice("s", math.MinInt64, math.MaxInt64, slow("a"))
			s.Spare = tc.spare
			var failures []Failure
			q := &Queryable{
				Meter: &countingMeter{}, Legs: legsOf(s), SparePatience: 50 * time.Millisecond,
				Failed: func(f Failure) error {
					failures = append(failures, f)
					return nil
				},
				SlicePatience: func(string) time.Duration { return 200 * time.Millisecond },
			}
			got, err := fetchText(t, q, 0, 40)
			if tc.failed == nil {
				if err != nil || got != `{__name__="m", cluster="jaguar", n="1"}: 7 22 37` || len(failures) > 0 {
					t.Errorf("%v %q, told of %+v", err, got, failures)
				}
				return
			}
			if err == nil || len(failures) != 1 || !slices.Equal(failures[0].Failed, tc.failed) || len(failures[0].Left) > 0 {
				t.Errorf("%v, told of %+v", err, failures)
			}
		})
	}
}

// waitingCopy waits for room first, then for its server.
type waitingCopy struct {
	fakeCopy
	room, server time.Duration
}

func (c *waitingCopy) Read(ctx context.Context, q Query, emit func([]prompb.Label, []prompb.Chunk) error) error {
	over := q.Waits()
	if dl, ok := ctx.Deadline(); ok && time.Until(dl) < c.room {
		time.Sleep(time.Until(dl) - time.Millisecond)
		over()
		return qerr.New(qerr.Overloaded, "there was no room")
	}
	time.Sleep(c.room)
	over()
	select {
	case <-time.After(c.server):
		return c.fakeCopy.Read(ctx, q, emit)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestRoomIsNoCopys: what a copy waits for in which no other one is nearer to it is in no patience,
// neither that before a spare one is read, nor that with which others are waited for; what its
// server takes then is.
func TestRoomIsNoCopys(t *testing.T) {
	const held, quick, hangs = 20 * time.Second, time.Second, time.Hour
	at := func(name string, room, server time.Duration) *waitingCopy {
		return &waitingCopy{fakeCopy{name: name, series: []string{"m{n=1}: 7 22 37"}}, room, server}
	}
	for name, tc := range map[string]struct {
		copies []Copy
		spare  []Copy
		used   string
		took   time.Duration
	}{
		"the base waits":        {[]Copy{at("a", held, quick)}, []Copy{at("b", 0, 0)}, "a", held + quick},
		"the base hangs then":   {[]Copy{at("a", held, hangs)}, []Copy{at("b", 0, 0)}, "b", held + 5*time.Second},
		"the other one waits":   {[]Copy{at("a", 0, quick), at("b", held, quick)}, nil, "a b", held + quick},
		"the other hangs then":  {[]Copy{at("a", 0, quick), at("b", held, hangs)}, nil, "a", held + 5*time.Second},
		"the other hangs":       {[]Copy{at("a", 0, quick), at("b", 0, hangs)}, nil, "a", quick + 5*time.Second},
		"the shard waits":       {[]Copy{at("a", held, quick)}, nil, "a", held + quick},
		"the shard hangs then":  {[]Copy{at("a", held, hangs)}, nil, "", held + 6*time.Second},
		"the shard hangs":       {[]Copy{at("a", 0, hangs)}, nil, "", 18 * time.Second},
		"there is no room ever": {[]Copy{at("a", hangs, quick)}, []Copy{at("b", 0, 0)}, "", 30*time.Second - time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				s := slice("s", math.MinInt64, math.MaxInt64, tc.copies...)
				s.Spare = tc.spare
				used := ""
				q := &Queryable{
					Meter: &countingMeter{}, Legs: legsOf(s), SparePatience: 5 * time.Second,
					SlicePatience: func(string) time.Duration { return 18 * time.Second },
					Used:          func(_ string, read, _ []string) { used = strings.Join(read, " ") },
				}
				began := time.Now()
				_, err := q.Series(ctx, 0, 40_000, nil, nil)
				if took := time.Since(began); used != tc.used || err == nil != (tc.used != "") || took != tc.took {
					t.Errorf("%q was read after %s, want %q after %s: %v", used, took, tc.used, tc.took, err)
				}
			})
		})
	}
}
