package admit

import (
	"testing"
	"time"
)

// A pool that is full for a moment between two scrapes says so for a minute at least, and no longer
// than two.
func TestPeakOfThePool(t *testing.T) {
	p := NewPool(1 << 20)
	at := time.Unix(1000, 0)
	if got := p.Peak(at); got != 0 {
		t.Errorf("nothing was taken: %d", got)
	}
	b := NewBudget(p, Limits{})
	if err := b.Hold(900 << 10); err != nil {
		t.Fatal(err)
	}
	b.Close()
	for _, c := range []struct {
		after time.Duration
		want  int64
	}{
		{15 * time.Second, 15 * poolChunk},
		{59 * time.Second, 15 * poolChunk},
		{61 * time.Second, 15 * poolChunk},
		{119 * time.Second, 15 * poolChunk},
		{122 * time.Second, 15 * poolChunk},
		{123 * time.Second, 0},
	} {
		if got := p.Peak(at.Add(c.after)); got != c.want {
			t.Errorf("after %s: %d, want %d", c.after, got, c.want)
		}
	}
	// What is refused counts with what it asked for.
	b = NewBudget(p, Limits{})
	defer b.Close()
	if b.Hold(2<<20) == nil {
		t.Fatal("two megabytes of one")
	}
	if got := p.Peak(at.Add(3 * time.Minute)); got != 2<<20 {
		t.Errorf("refused: %d", got)
	}
}
