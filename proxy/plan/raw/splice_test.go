package raw

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/randseed"
)

// parseStamps reads a line of times such as "0 15 30s 45": an s marks a stale marker, an S one of a
// scrape that succeeded, an f a sample of a scrape that failed.
func parseStamps(t testing.TB, text string, from int32) []stamp {
	t.Helper()
	var out []stamp
	for i, f := range strings.Fields(text) {
		n, err := strconv.ParseInt(strings.TrimRight(f, "sSf"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, stamp{
			t: n, from: from, nth: int32(i), stale: strings.ContainsAny(f, "sS"), sure: strings.HasSuffix(f, "S"),
			failed: strings.HasSuffix(f, "f"),
		})
	}
	return out
}

func printStamps(ss []stamp) string {
	var out []string
	for _, s := range ss {
		mark := ""
		switch {
		case s.sure:
			mark = "S"
		case s.stale:
			mark = "s"
		case s.failed:
			mark = "f"
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
		{"a gap is filled, not interleaved, and not close to the base", "0 15 60 75", "7 22 37 52 67", 0, 75, "a0 a15 b37 b52 a60 a75"},
		{"a pause of one and a half intervals is no gap", "0 10 25 35", "1 11 21 31", 0, 35, "a0 a10 a25 a35"},
		{"the start of the window", "45 60 75", "0 15 30 46 61 76", 0, 75, "b0 b15 b30 a45 a60 a75"},
		{"the end of the window", "0 15 30", "1 16 31 46 61", 0, 75, "a0 a15 a30 b46 b61"},
		{"one and a tenth intervals to the end are no gap", "0 20 40", "11 31 51", 0, 62, "a0 a20 a40"},
		{"and more are", "0 20 40", "11 31 51", 0, 63, "a0 a20 a40 b51"},
		{"the other copy has the same gap", "0 15 60 75", "7 22 67 82", 0, 82, "a0 a15 a60 a75"},
		{"no base", "", "1 16 31", 0, 40, "b1 b16 b31"},
		{"no other", "1 16 91", "", 0, 100, "a1 a16 a91"},
		{"of fewer than three samples the base's", "10", "40", 0, 100, "a10"},
		{"unless the other copy has more", "10s", "40", 0, 100, "b40"},
		{"of two at one time the base's", "10", "10", 0, 100, "a10"},
		{
			"a stale marker goes where the other copy goes on", "0 15 30 31s 90 105", "7 22 37 52 67 82 97", 0, 105,
			"a0 a15 a30 b52 b67 b82 a90 a105",
		},
		{"one of a scrape that succeeded stands", "0 15 30 45S 90 105", "8 23 38 53 68 83 98", 0, 105, "a0 a15 a30 a45S b53 b68 a90 a105"},
		{"a stale marker stays where nobody knows more", "0 15 30 45s", "7 22 37s", 0, 105, "a0 a15 a30 a45s"},
		{"and where the other copy is not there", "0 15 30 45s", "7 22", 0, 105, "a0 a15 a30 a45s"},
		{"and where the other copy had samples just before, and then none", "0 15 30 45s", "8 23 38", 0, 105, "a0 a15 a30 a45s"},
		{"until its next one is due it goes on", "0 15 30 45s", "8 23 38", 0, 60, "a0 a15 a30 b38"},
		{"both ended, the other a little later", "0 15 30 45s", "7 22 37 52s", 0, 105, "a0 a15 a30 a45s b52s"},
		{"the other copy ends in a gap of the base", "0 15 30 150 165", "8 23 38 53 68s 158", 0, 165, "a0 a15 a30 b38 b53 b68s a150 a165"},
		{"a gap that is only the other copy's marker", "0 15 30 150 165", "8 23 36s 158", 0, 165, "a0 a15 a30 b36s a150 a165"},
		{"a marker of the other copy just before the base goes on", "0 15 30 75 90", "8 23 38 53 65s 83", 0, 90, "a0 a15 a30 b38 b53 a75 a90"},
		{"a marker inside a whole stretch goes", "0 15 16s 30 45", "7 22 37", 0, 45, "a0 a15 a30 a45"},
		{"unless its scrape succeeded", "0 15 16S 30 45", "7 22 37", 0, 45, "a0 a15 a16S a30 a45"},
		{"from a marker that goes the other copy is read", "0 15 30s 44 59", "8 23 38 52", 0, 59, "a0 a15 b23 a44 a59"},
		{"who is cut off says nothing of its targets", "0 15 30f 45f 60f 75f", "8 23 38 53 68", 0, 75, "a0 a15 b23 b38 b53 b68"},
		{"a target that both find dead is dead", "0 15 30f 45f", "8 23 38f 53f", 0, 45, "a0 a15 a30f a45f"},
		{"one that dies between the two as well", "0 15 30f", "8 23f", 0, 30, "a0 a15 a30f"},
		{"a failed scrape stands where the other copy did not look", "0 15 30f 45f 60f", "5 100", 0, 60, "a0 a15 a30f a45f a60f"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := printStamps(new(splicer).splice(parseStamps(t, tc.base, 0), parseStamps(t, tc.other, 1), tc.lo, tc.hi))
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// Whatever the copies miss, a splice is sorted, has no time twice, holds all real samples of the
// base but for failed scrapes of targets that the other copy reached, and takes samples of the
// other copy only where the base lacks some, and not close to its.
func TestSpliceProperties(t *testing.T) {
	seed := randseed.Of(t, 0)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 5000 {
		base, other := randomCopy(rng, 0), randomCopy(rng, 1)
		got := new(splicer).splice(base, other, 0, 3600)
		bad := func(format string, args ...any) {
			t.Fatalf("%s: %s\nbase  %s\nother %s", fmt.Sprintf(format, args...), printStamps(got), printStamps(base), printStamps(other))
		}
		kept := map[int64]bool{}
		for i, s := range got {
			if i > 0 && got[i-1].t >= s.t {
				bad("not sorted")
			}
			if s.from == 0 {
				kept[s.t] = true
			}
		}
		if samples(base)+samples(other) < 3 || samples(base) == 0 {
			continue
		}
		for _, s := range base {
			if !s.stale && !s.failed && !kept[s.t] || s.sure && !kept[s.t] {
				bad("lost the base's %d", s.t)
			}
		}
		iv := new(splicer).interval(base, other)
		for _, s := range got {
			if s.from != 1 || s.stale {
				continue
			}
			prev, next, marked := int64(-1), int64(3601), false
			for _, b := range base {
				if !kept[b.t] {
					marked = marked || b.t > prev && b.t < next
					continue
				}
				if b.t < s.t {
					prev, marked = b.t, false
				} else {
					next = b.t
					break
				}
			}
			edge := prev < 0 || next > 3600
			if far := float64(next - prev); !marked && (edge && far <= 1.1*iv || !edge && far <= 1.5*iv) {
				bad("%d of the other copy stands where the base lacks nothing (%d to %d, interval %g)", s.t, prev, next, iv)
			}
			if prev >= 0 && float64(s.t-prev) < iv/2 || next <= 3600 && float64(next-s.t) < iv/2 {
				bad("%d of the other copy is close to the base's", s.t)
			}
		}
		place := map[[2]int64]int{}
		for i, ss := range [][]stamp{base, other} {
			for n, s := range ss {
				place[[2]int64{int64(i), s.t}] = n
			}
		}
		n := 0
		for i, r := range runs(got) { // all that the copy has in it, and nothing else, is taken
			own := place[[2]int64{int64(r.copy), r.until}] - place[[2]int64{int64(r.copy), r.from}] + 1
			for range own {
				if got[n].from != int32(r.copy) {
					bad("run %d holds what is not of copy %d", i, r.copy)
				}
				n++
			}
		}
		if n != len(got) {
			bad("the runs hold %d of %d", n, len(got))
		}
	}
}

func randomCopy(rng *rand.Rand, from int32) []stamp {
	var out []stamp
	phase := rng.Int64N(15)
	down, failing := false, false
	for at := phase; at <= 3600; at += 15 {
		if rng.IntN(20) == 0 {
			down = !down
			if down && rng.IntN(2) == 0 {
				out = append(out, stamp{t: at, stale: true, sure: rng.IntN(2) == 0, from: from})
				continue
			}
		}
		if rng.IntN(30) == 0 {
			failing = !failing
		}
		if !down {
			out = append(out, stamp{t: at + rng.Int64N(3), from: from, failed: failing})
		}
	}
	for i := range out {
		out[i].nth = int32(i)
	}
	return out
}
