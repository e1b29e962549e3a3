package server

import (
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/tree"
)

// TestHeldPerSeries: what the engine holds for each series that is read, in points of 16 bytes.
func TestHeldPerSeries(t *testing.T) {
	const steps = 1000
	for _, c := range []struct {
		query  string
		copies int64
		points int64
	}{
		{"m", 1, steps},
		{"rate(m[5m])", 1, steps},
		{"sum(m)", 1, steps},
		{"sum(rate(m[5m]))", 1, steps},
		{"sum by (i) (m)", 2, steps},
		{"quantile by (i) (0.5, m)", 2, steps},
		{"topk(5, m)", 2, steps},
		{"m * 2", 2, steps},
		{"m + on (i) group_left () n", 2, steps},
		{"abs(rate(m[5m]))", 2, steps},
		{"sort(m)", 2, steps},
		{"max_over_time(m[1h:15s])", 2, 0},
	} {
		e, err := tree.Parser.ParseExpr(c.query)
		if err != nil {
			t.Fatal(err)
		}
		points := pointsPerSeries(e, steps, 15*time.Second, time.Minute)
		if c.points == steps && points != steps {
			t.Errorf("%s: %d points", c.query, points)
		}
		if got, want := heldPerSeries(e, points), c.copies*(points*sampleBytes+engineSeriesBytes); got != want {
			t.Errorf("%s: %d bytes a series, want %d", c.query, got, want)
		}
	}
}
