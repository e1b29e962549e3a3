package emit

import (
	"fmt"
	"strings"
)

// change is a stretch of lines: [a0, a1) of the old became [b0, b1) of the new.
type change struct{ a0, a1, b0, b1 int }

const around = 3 // lines of context, as diff -u

// unified is the difference as `patch` reads it.
func unified(name, old, new string) string {
	if old == new {
		return ""
	}
	a, b := gitLines(old), gitLines(new)
	changes := compare(a, b)
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", name, name)
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].a0-changes[n-1].a1 <= 2*around {
			n++
		}
		hunk(&out, a, b, changes[:n])
		changes = changes[n:]
	}
	return out.String()
}

// gitLines cuts behind LF only, as patch does.
func gitLines(text string) []string {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

func hunk(out *strings.Builder, a, b []string, changes []change) {
	first, last := changes[0], changes[len(changes)-1]
	from := max(0, first.a0-around)
	to := min(len(a), last.a1+around)
	bFrom := first.b0 - (first.a0 - from)
	bTo := last.b1 + (to - last.a1)
	fmt.Fprintf(out, "@@ -%s +%s @@\n", span(from, to), span(bFrom, bTo))
	at := from
	for _, c := range changes {
		emitLines(out, ' ', a[at:c.a0])
		emitLines(out, '-', a[c.a0:c.a1])
		emitLines(out, '+', b[c.b0:c.b1])
		at = c.a1
	}
	emitLines(out, ' ', a[at:to])
}

func span(from, to int) string {
	switch to - from {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return fmt.Sprint(from + 1)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}

func emitLines(out *strings.Builder, sign byte, lines []string) {
	for _, l := range lines {
		out.WriteByte(sign)
		out.WriteString(l)
		if !strings.HasSuffix(l, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

// compare finds the stretches that differ: between what is equal at both ends it looks for lines
// that occur once on both sides, and goes on between those. Where there are none, small stretches
// are compared line by line and large ones are a change as a whole: a diff need not be the shortest
// to be right.
func compare(a, b []string) []change {
	var out []change
	var walk func(a0, a1, b0, b1 int)
	add := func(c change) {
		if n := len(out); n > 0 && out[n-1].a1 == c.a0 && out[n-1].b1 == c.b0 {
			out[n-1].a1, out[n-1].b1 = c.a1, c.b1
			return
		}
		out = append(out, c)
	}
	walk = func(a0, a1, b0, b1 int) {
		for a0 < a1 && b0 < b1 && a[a0] == b[b0] {
			a0, b0 = a0+1, b0+1
		}
		for a0 < a1 && b0 < b1 && a[a1-1] == b[b1-1] {
			a1, b1 = a1-1, b1-1
		}
		if a0 == a1 && b0 == b1 {
			return
		}
		if a0 == a1 || b0 == b1 {
			add(change{a0, a1, b0, b1})
			return
		}
		pairs := anchors(a[a0:a1], b[b0:b1])
		if len(pairs) == 0 {
			add(change{a0, a1, b0, b1})
			return
		}
		i, j := a0, b0
		for _, p := range pairs {
			walk(i, a0+p[0], j, b0+p[1])
			i, j = a0+p[0]+1, b0+p[1]+1
		}
		walk(i, a1, j, b1)
	}
	walk(0, len(a), 0, len(b))
	return out
}

// anchors are lines that stay in order: those that occur once on each side, the longest run of them
// that rises on both; or a longest common subsequence where the stretch is small.
func anchors(a, b []string) [][2]int {
	if len(a)*len(b) <= 1<<18 {
		return subsequence(a, b)
	}
	count := map[string][4]int{} // occurrences and last index in a, in b
	for i, l := range a {
		c := count[l]
		c[0], c[1] = c[0]+1, i
		count[l] = c
	}
	for j, l := range b {
		c := count[l]
		c[2], c[3] = c[2]+1, j
		count[l] = c
	}
	var tails, back []int // patience sorting: tails[k] is the pair that ends the best run of k+1
	var pairs [][2]int
	for i, l := range a {
		if c := count[l]; c[0] == 1 && c[2] == 1 {
			pairs = append(pairs, [2]int{i, c[3]})
		}
	}
	for n, p := range pairs {
		lo, hi := 0, len(tails)
		for lo < hi {
			if mid := (lo + hi) / 2; pairs[tails[mid]][1] < p[1] {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		prev := -1
		if lo > 0 {
			prev = tails[lo-1]
		}
		back = append(back, prev)
		if lo == len(tails) {
			tails = append(tails, n)
		} else {
			tails[lo] = n
		}
	}
	if len(tails) == 0 {
		return nil
	}
	run := make([][2]int, len(tails))
	for n, k := tails[len(tails)-1], len(tails)-1; k >= 0; n, k = back[n], k-1 {
		run[k] = pairs[n]
	}
	return run
}

func subsequence(a, b []string) [][2]int {
	width := len(b) + 1
	length := make([]int32, (len(a)+1)*width)
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				length[i*width+j] = length[(i+1)*width+j+1] + 1
			} else {
				length[i*width+j] = max(length[(i+1)*width+j], length[i*width+j+1])
			}
		}
	}
	var out [][2]int
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			out = append(out, [2]int{i, j})
			i, j = i+1, j+1
		case length[(i+1)*width+j] >= length[i*width+j+1]:
			i++
		default:
			j++
		}
	}
	return out
}
