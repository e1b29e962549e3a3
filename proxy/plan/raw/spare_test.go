package raw

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
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
