package pause

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestFor: it takes its time, and no more than there is.
func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := For(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		enough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, enough)
		defer cancel()
		began = time.Now()
		if err := For(ctx, time.Minute); !errors.Is(err, enough) || time.Since(began) != time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}
