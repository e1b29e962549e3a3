package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/hostile"
)

// longest returns the dearest text of a kind that the pre-scan lets pass, at most 64 KiB long.
func longest(kind int) string {
	w := hostile.Parts[kind]
	text := func(n int) string { return w.Head + strings.Repeat(w.Part, n) + w.Tail }
	if w.Part == "" {
		return text(1)
	}
	low, high := 1, (64<<10-len(w.Head)-len(w.Tail))/len(w.Part)
	for low < high {
		if mid := (low + high + 1) / 2; passes(text(mid)) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return text(low)
}

// passes tells whether the parser is given a text.
func passes(text string) bool {
	q := &Query{Request: &endpoint.Request{ID: endpoint.Query, Query: text}, Limits: testLimits(), known: &Known{}}
	for _, c := range []Check{queryBytes{}, queryShape{}, regexCost{}} {
		if c.Check(q) != nil {
			return false
		}
	}
	return true
}

// BenchmarkWorst prints what the dearest text of each kind costs: the whole verdict, and what the
// pre-scan alone takes to refuse 100 kB of it.
func BenchmarkWorst(b *testing.B) {
	for i, w := range hostile.Parts {
		text := longest(i)
		b.Run("verdict/"+strings.ReplaceAll(w.Name, " ", "_"), func(b *testing.B) {
			best := time.Duration(1 << 62) // the mean says more about the machine's other work than about the text
			for b.Loop() {
				start := time.Now()
				_, _ = Decide(&endpoint.Request{ID: endpoint.Query, Query: text}, testLimits(), nil, now)
				best = min(best, time.Since(start))
			}
			b.ReportMetric(float64(best)/1e6, "best-ms")
			b.ReportMetric(float64(len(text)), "bytes")
		})
	}
	for _, w := range hostile.Parts {
		if w.Part == "" {
			continue
		}
		text := w.Head + strings.Repeat(w.Part, 100_000/len(w.Part)) + w.Tail
		b.Run("prescan_100kB/"+strings.ReplaceAll(w.Name, " ", "_"), func(b *testing.B) {
			for b.Loop() {
				_, _ = prescan(text)
			}
		})
	}
}
