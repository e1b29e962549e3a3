package effort_test

import (
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/effort"
)

// TestOf: who computes has effort, who waits has none.
func TestOf(t *testing.T) {
	const some = 50 * time.Millisecond
	if got := effort.Of(func() {
		for began := effort.SoFar(); effort.SoFar()-began < some; {
		}
	}); got < some {
		t.Errorf("who computes for %s has an effort of %s", some, got)
	}
	if got := effort.Of(func() { time.Sleep(some) }); got >= some {
		t.Errorf("who waits for %s has an effort of %s", some, got)
	}
}
