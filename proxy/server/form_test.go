package server

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// TestInexactElsewhere: a query whose sums cancel each other at some steps of a long time, and that
// is read raw therefore, is pushed to shards all the same for a time in which none do, however
// lately somebody has asked for the long one.
func TestInexactElsewhere(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	var urls []string
	for _, sign := range []float64{1, -1} {
		g := storedSeries{lbls: labels.FromStrings("__name__", "level", "of", fmt.Sprint(sign))}
		for at := now.Add(-58 * time.Minute); at.Before(now); at = at.Add(15 * time.Second) {
			v := 0.1
			if at.Before(now.Add(-30 * time.Minute)) {
				v *= sign
			}
			g.points = append(g.points, point{t: at.UnixMilli(), f: v})
		}
		urls = append(urls, promShard(t, labels.FromStrings("cluster", "jaguar"), []storedSeries{g}).URL())
	}
	s, base := startProxy(t, t.Context(), fmt.Sprintf("groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n"+
		"    shards:\n      - replicas: [{url: %q}]\n      - replicas: [{url: %q}]\n", urls[0], urls[1]))
	over := func(long time.Duration) (raw float64) {
		before := plans(t, s, "raw")
		code, body := ask(t, base, "/api/v1/query_range", url.Values{
			"query": {"sum(level)"}, "start": {stamp(now.Add(-long))}, "end": {stamp(now.Add(-time.Second))}, "step": {"30"},
		})
		if got, msg := fromJSON(t, body); code != 200 || len(got) != 1 {
			t.Errorf("over %s: %d, %d series %s", long, code, len(got), msg)
		}
		return plans(t, s, "raw") - before
	}
	if n := over(50 * time.Minute); n == 0 {
		t.Error("over sums that cancel each other it is exact")
	}
	if n := over(49 * time.Minute); n == 0 {
		t.Error("that it is not exact was forgotten")
	}
	if n := over(10 * time.Minute); n != 0 {
		t.Error("where none cancel each other the series are read raw")
	}
}
