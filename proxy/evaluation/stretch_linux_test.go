package evaluation

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
)

// slowest notes the longest stretch between two looks, in processor time of the thread that
// evaluates: what else the machine does is not in it.
type slowest struct {
	context.Context
	last    time.Duration
	longest time.Duration
}

// Err implements context.Context: each look asks first.
func (s *slowest) Err() error {
	now := threadTime()
	s.longest = max(s.longest, now-s.last)
	s.last = now
	return nil
}

// threadTime is the processor time of this thread so far.
func threadTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLongestStretch is how long calls run without a look of a Turn's, in ms: each function of
// a range over as many points as max_points lets one window have, and texts with many series. The
// engine's own looks, once for each step or series, are not seen by it.
func BenchmarkLongestStretch(b *testing.B) {
	many := newStored(20000, 4)
	type one struct {
		text  string
		steps int
		from  storage.Queryable
	}
	list := []one{
		{"max_over_time(quantile_over_time(0.9, vector(time())[500s:1s])[500s:1s])", 200, nil},
		{"rate(m_total[1h])", 200, many},
		{"abs(m_total)", 20, many},
		{"sort_desc(m_total)", 1, many},
		{"histogram_quantile(0.9, m_total)", 20, many},
	}
	for _, name := range slices.Sorted(maps.Keys(parser.Functions)) {
		if text := callOf(name, parser.Functions[name], "vector(time())[22700s:1s]"); promql.FunctionCalls[name] != nil &&
			strings.Contains(text, "[") {
			list = append(list, one{text, 20, nil})
		}
	}
	for _, c := range list {
		b.Run(c.text, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for b.Loop() {
				ctx := &slowest{Context: b.Context(), last: threadTime()}
				turn, err := NewGate(2, nil).Begin(ctx, "")
				if err != nil {
					b.Fatal(err)
				}
				if err := evaluate(b, b.Context(), turn, c.text, c.steps, c.from); err != nil {
					b.Fatal(err)
				}
				turn.End()
				b.ReportMetric(float64(ctx.longest.Microseconds())/1000, "longest-ms")
			}
		})
	}
}
