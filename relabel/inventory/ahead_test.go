package inventory

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
)

// TestAhead: reading ahead changes neither what comes, nor its order, nor where it ends.
func TestAhead(t *testing.T) {
	broken, enough := errors.New("broken"), errors.New("enough")
	for _, n := range []int{0, 1, aheadSeries - 1, aheadSeries, aheadSeries + 1, 10*aheadSeries + 7} {
		for _, tc := range []struct {
			name    string
			readErr error
			stopAt  int
		}{{"to the end", nil, -1}, {"an error of the source", broken, -1}, {"the caller has enough", nil, n / 2}, {"both", broken, n - 1}} {
			t.Run(fmt.Sprintf("%d %s", n, tc.name), func(t *testing.T) {
				scanning := false
				scan := func(ctx context.Context, f func(*Series) error) error {
					scanning = true
					defer func() { scanning = false }()
					b := labels.NewScratchBuilder(1)
					var s Series
					for i := range n {
						if ctx.Err() != nil {
							return context.Cause(ctx)
						}
						b.Reset()
						b.Add("i", fmt.Sprint(i))
						b.Overwrite(&s.Labels) // the same memory each time
						s.Native = i%3 == 0
						if err := f(&s); err != nil {
							return err
						}
					}
					return tc.readErr
				}
				got := 0
				err := ahead(t.Context(), scan, func(s *Series) error {
					if s.Labels.Get("i") != fmt.Sprint(got) || s.Native != (got%3 == 0) {
						t.Fatalf("series %d is %s", got, s.Labels)
					}
					if got == tc.stopAt {
						return enough
					}
					got++
					return nil
				})
				want, count := tc.readErr, n
				if tc.stopAt >= 0 && n > 0 {
					want, count = enough, tc.stopAt
				}
				if !errors.Is(err, want) || got != count || scanning {
					t.Errorf("%d series and %v, want %d and %v; still reading: %v", got, err, count, want, scanning)
				}
			})
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	endless := func(ctx context.Context, f func(*Series) error) error {
		for {
			if err := f(&Series{}); err != nil {
				return err
			}
		}
	}
	n := 0
	err := ahead(ctx, endless, func(*Series) error {
		if n++; n == 1000 {
			cancel(enough)
		}
		return nil
	})
	if !errors.Is(err, enough) || n != 1000 {
		t.Errorf("%d series, then %v", n, err)
	}
}
