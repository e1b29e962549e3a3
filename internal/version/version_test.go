package version

import (
	"cmp"
	"testing"
)

func TestCompare(t *testing.T) {
	sorted := []string{"x", "2.9.0", "v2.42.0", "3.0.0-rc.1", "3.0.0", "3.9.0+ds", "3.15.0"}
	for i, a := range sorted {
		for j, b := range sorted {
			if got, want := Compare(a, b), cmp.Compare(i, j); got != want {
				t.Errorf("compare %s with %s: %d, want %d", a, b, got, want)
			}
		}
	}
	for _, same := range [][2]string{{"3.0.0", "v3.0.0"}, {"3.0.0", "3.0.0+ds"}, {"", "unknown"}} {
		if got := Compare(same[0], same[1]); got != 0 {
			t.Errorf("compare %q with %q: %d", same[0], same[1], got)
		}
	}
}
