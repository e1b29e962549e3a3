package randseed_test

import (
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/randseed"
)

// recorder keeps what a test would print, and whether it was ended.
type recorder struct {
	testing.TB
	logged, fatal string
}

func (r *recorder) Helper()                        {}
func (r *recorder) Logf(format string, a ...any)   { r.logged = format }
func (r *recorder) Fatalf(format string, _ ...any) { r.fatal = format; panic(r) }

func TestOf(t *testing.T) {
	for _, c := range []struct {
		env         string
		named, want uint64
	}{
		{"", 5, 5}, {"7", 5, 5}, {"7", 0, 7}, {"18446744073709551615", 0, 1<<64 - 1},
	} {
		t.Setenv(randseed.Env, c.env)
		r := &recorder{TB: t}
		if got := randseed.Of(r, c.named); got != c.want || !strings.Contains(r.logged, "run again") {
			t.Errorf("%s=%q, named %d: %d (%s), want %d", randseed.Env, c.env, c.named, got, r.logged, c.want)
		}
	}
	for _, env := range []string{"", "0"} {
		t.Setenv(randseed.Env, env)
		if got := randseed.Of(&recorder{TB: t}, 0); got == 0 {
			t.Errorf("%s=%q: no seed", randseed.Env, env)
		}
	}
}

func TestOfRefusesWhatIsNoNumber(t *testing.T) {
	for _, env := range []string{"x", "-1", "1e3", " 1", "18446744073709551616"} {
		t.Setenv(randseed.Env, env)
		r := &recorder{TB: t}
		func() {
			defer func() { _ = recover() }()
			randseed.Of(r, 0)
		}()
		if r.fatal == "" {
			t.Errorf("%s=%q was taken for a seed", randseed.Env, env)
		}
	}
}
