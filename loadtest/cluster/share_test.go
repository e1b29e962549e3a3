package cluster

import (
	"math"
	"testing"
)

// TestShare: observations stay in their buckets, and a bucket has its part of them.
func TestShare(t *testing.T) {
	quantiles := []float64{0, 0.001, 0.2, 1.0 / 3, 0.5, 0.77, 0.999, 1}
	before := make([]float64, len(quantiles))
	for n := range 5000 {
		gained := 0.0
		for i, q := range quantiles {
			got := share(float64(n)+0.7, q)
			if math.Abs(got-q*float64(n)) > math.Log2(float64(n)+2) {
				t.Fatalf("of %d observations %v are below %v", n, got, q)
			}
			step := got - before[i]
			if step < gained || step > 1 {
				t.Fatalf("observation %d: the bucket of %v gains %v, and a smaller one %v", n, q, step, gained)
			}
			gained, before[i] = step, got
		}
	}
	for _, n := range []float64{-1, 0, 1 << 40} {
		if got := share(n, 0.25); got != max(0, math.Floor(n/4)) {
			t.Errorf("a quarter of %v is %v", n, got)
		}
	}
}
