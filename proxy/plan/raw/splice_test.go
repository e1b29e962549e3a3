package raw

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/randseed"
)

// parseStamps reads a line of times such as "0 15 30s 45": an s marks a stale marker.
func parseStamps(t testing.TB, text string, from int) []stamp {
	t.Helper()
	var out []stamp
	for _, f := range strings.Fields(text) {
		n, err := strconv.ParseInt(strings.TrimSuffix(f, "s"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, stamp{t: n, stale: strings.HasSuffix(f, "s"), from: from})
	}
	return out
}

func printStamps(ss []stamp) string {
	var out []string
	for _, s := range ss {
		mark := ""
		if s.stale {
			mark = "s"
		}
		out = append(out, fmt.Sprintf("%c%d%s", "ab"[s.from], s.t, mark))
	}
	return strings.Join(out, " ")
}

func TestSplice(t *testing.T) {
	for _, tc := range []struct {
		name, base, other string
		lo, hi            int64
		want              string
	}{
		{"a whole base is read alone", "0 15 30 45 60", "7 22 37 52", 0, 60, "a0 a15 a30 a45 a60"},
		{"a gap is filled, not interleaved", "0 15 60 75", "7 22 37 52 67", 0, 75, "a0 a15 b22 b37 b52 a60 a75"},
		{"a pause of one and a half intervals is no gap", "0 10 25 35", "1 11 21 31", 0, 35, "a0 a10 a25 a35"},
		{"the start of the window", "45 60 75", "0 15 30 46 61 76", 0, 75, "b0 b15 b30 a45 a60 a75"},
		{"the end of the window", "0 15 30", "1 16 31 46 61", 0, 75, "a0 a15 a30 b31 b46 b61"},
		{"the other copy has the same gap", "0 15 60 75", "7 22 67 82", 0, 82, "a0 a15 b22 a60 a75"},
		{"no base", "", "1 16 31", 0, 40, "b1 b16 b31"},
		{"no other", "1 16 91", "", 0, 100, "a1 a16 a91"},
		{"fewer than three samples are all taken", "10", "40", 0, 100, "a10 b40"},
		{"of two at one time the base's", "10", "10", 0, 100, "a10"},
		{"a stale marker at the edge of a filled gap goes", "0 15 30 31s 90 105", "7 22 37 52 67 82 97", 0, 105, "a0 a15 a30 b37 b52 b67 b82 a90 a105"},
		{"a stale marker stays where nobody knows more", "0 15 30 45s", "7 22 37s", 0, 105, "a0 a15 a30 a45s"},
		{"both ended, the other a little later", "0 15 30 45s", "7 22 37 52s", 0, 105, "a0 a15 a30 b37 b52s"},
		{"a stale marker inside a whole stretch stays", "0 15 16s 30 45", "7 22 37", 0, 45, "a0 a15 a16s a30 a45"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := printStamps(splice(parseStamps(t, tc.base, 0), parseStamps(t, tc.other, 1), tc.lo, tc.hi))
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// Whatever the copies miss, a splice is sorted, has no time twice, holds all real samples of the base, and takes from the other copy only what lies in a gap.
func TestSpliceProperties(t *testing.T) {
	seed := randseed.Of(t, 0)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		base, other := randomCopy(rng, 0), randomCopy(rng, 1)
		got := splice(base, other, 0, 3600)
		real := map[int64]bool{}
		for i, s := range got {
			if i > 0 && got[i-1].t >= s.t {
				t.Fatalf("not sorted: %s\nbase  %s\nother %s", printStamps(got), printStamps(base), printStamps(other))
			}
			if s.from == 0 {
				real[s.t] = true
			}
		}
		for _, s := range base {
			if !s.stale && !real[s.t] {
				t.Fatalf("lost the base's sample %d: %s\nbase  %s\nother %s", s.t, printStamps(got), printStamps(base), printStamps(other))
			}
		}
		if len(base)+len(other) < 3 || len(base) == 0 {
			continue
		}
		iv := interval(base, other)
		for _, s := range got {
			if s.from != 1 {
				continue
			}
			prev, next := int64(-1), int64(3601)
			for _, b := range base {
				if b.stale {
					continue
				}
				if b.t < s.t {
					prev = b.t
				} else {
					next = b.t
					break
				}
			}
			if float64(next-prev) <= 1.5*float64(iv) {
				t.Fatalf("sample %d of the other copy stands in a stretch that has no gap (%d to %d, interval %d)", s.t, prev, next, iv)
			}
		}
		for i, r := range runs(got) {
			n := 0
			for _, s := range got {
				if s.t >= r.from && s.t <= r.until {
					n++
					if s.from != r.copy {
						t.Fatalf("run %d holds a sample of copy %d", i, s.from)
					}
				}
			}
			if n == 0 {
				t.Fatalf("run %d is empty", i)
			}
		}
	}
}

func randomCopy(rng *rand.Rand, from int) []stamp {
	var out []stamp
	phase := rng.Int64N(15)
	down := false
	for at := phase; at <= 3600; at += 15 {
		if rng.IntN(20) == 0 {
			down = !down
			if down && rng.IntN(2) == 0 {
				out = append(out, stamp{t: at, stale: true, from: from})
			}
		}
		if !down {
			out = append(out, stamp{t: at + rng.Int64N(3), from: from})
		}
	}
	return slices.CompactFunc(out, func(a, b stamp) bool { return a.t >= b.t })
}
