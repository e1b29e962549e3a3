package randseed

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// Env names the variable that holds the seed: a decimal number, 0 or nothing for the clock's.
const Env = "SPILLWAY_SEED"

// Of gives a test's seed, and prints it with the way to run the test again: named when it is not 0,
// else Env's, else the clock's. A variable that holds no number ends the test.
func Of(t testing.TB, named uint64) uint64 {
	t.Helper()
	seed := named
	if text := os.Getenv(Env); seed == 0 && text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s is %q, which is no seed: give a decimal number, or 0 for a new one each time", Env, text)
		}
		seed = n
	}
	if seed == 0 {
		// Short enough to be typed, and to be exact where a number goes through a float.
		seed = uint64(time.Now().UnixNano()) % 1e12
	}
	t.Logf("seed %d (run again with %s=%d)", seed, Env, seed)
	return seed
}
