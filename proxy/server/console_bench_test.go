package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/live"
)

// BenchmarkConsole is one request for the console's first page over its listener, with 10,000
// queries under way of the longest texts, each of a dashboard's panel: their listing, what each of
// them has done, the drawing and the way. The page that is kept for a second is outlived each time.
func BenchmarkConsole(b *testing.B) {
	r := newRig(b, manyShards(8), "")
	now := time.Now()
	r.s.now = func() time.Time { return now }
	pool := admit.NewPool(1 << 30)
	for i := range 10_000 {
		x := &exchange{s: r.s}
		x.weighed.Store(admit.NewBudget(pool, admit.Limits{}))
		r.s.live.Enter(live.Facts{
			ID: fmt.Sprint(i), Endpoint: "query_range", Query: fmt.Sprint(i) + strings.Repeat("x", live.MaxQueryBytes),
			User: fmt.Sprint("user-", i%500), Dashboard: fmt.Sprint("d", i%300), Panel: fmt.Sprint(i % 40),
			Started: now.Add(-time.Duration(i) * time.Millisecond), Deadline: now.Add(time.Minute),
		}, x.look, func(error) {})
	}
	for b.Loop() {
		now = now.Add(2 * time.Second)
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, r.admin+"/", http.NoBody)
		if err != nil {
			b.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		page, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(page), "and 9980 more") {
			b.Fatalf("%d, %d bytes, %v", resp.StatusCode, len(page), err)
		}
		b.ReportMetric(float64(len(page)), "page-B")
	}
}
