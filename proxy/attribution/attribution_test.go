package attribution

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/randseed"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func names(rows []Row) (out []string) {
	for _, r := range rows {
		out = append(out, r.Name)
	}
	return out
}

func TestTop(t *testing.T) {
	var table Table
	table.Add(noon, Who{User: "ada", Dashboard: "fleet", Panel: "7", Query: "sum(\n  up )"}, Cost{Requests: 1, ShardSeconds: 3, Bytes: 10})
	table.Add(noon.Add(6*time.Minute), Who{User: "ada", Query: "sum( up )"}, Cost{Requests: 1, ShardSeconds: 1, Bytes: 10})
	table.Add(noon, Who{User: "bob", Dashboard: "fleet", Panel: "8"}, Cost{Requests: 1, Refused: 1, ShardSeconds: 1, Bytes: 1000})
	table.Add(noon, Who{Panel: "9"}, Cost{Requests: 1, ShardSeconds: 0.5})
	at := noon.Add(7 * time.Minute)
	for _, c := range []struct {
		by          Kind
		order, want string
		nobody      int64
	}{
		{ByUser, "shard_s", "[ada bob]", 1},
		{ByUser, "bytes", "[bob ada]", 1},
		{ByUser, "refused", "[bob ada]", 1},
		{ByDashboard, "requests", "[fleet]", 2},
		{ByPanel, "shard_s", "[fleet/7 fleet/8 /9]", 1},
		{ByQuery, "requests", "[sum( up )]", 2},
		{ByTenant, "requests", "[]", 4},
	} {
		top := table.Top(at, c.by, c.order, 10)
		if got := fmt.Sprint(names(top.Rows)); got != c.want || top.Nobody.Requests != c.nobody || top.Total.Requests != 4 {
			t.Errorf("by %s, %s: %s, nobody %+v, total %+v", c.by, c.order, got, top.Nobody, top.Total)
		}
	}
	top := table.Top(at, ByUser, "shard_s", 1)
	if top.Rows[0].Cost != (Cost{Requests: 2, ShardSeconds: 4, Bytes: 20}) || top.Rest.Requests != 1 || top.Rest.Bytes != 1000 {
		t.Errorf("%+v", top)
	}
	// Buckets are forgotten one by one, and written over by those an hour later.
	if top := table.Top(noon.Add(61*time.Minute), ByUser, "shard_s", 10); top.Total.Requests != 1 || top.Since != noon.Add(5*time.Minute) {
		t.Errorf("an hour later: %+v", top)
	}
	table.Add(noon.Add(time.Hour), Who{User: "eve"}, Cost{Requests: 1})
	if top := table.Top(noon.Add(time.Hour), ByUser, "shard_s", 10); fmt.Sprint(names(top.Rows)) != "[ada eve]" {
		t.Errorf("%+v", top)
	}
	if top := table.Top(noon.Add(9*time.Hour), ByUser, "shard_s", 10); top.Total != (Cost{}) || top.Rows == nil {
		t.Errorf("nine hours later: %+v", top)
	}
}

// TestClockThatJumps: what was added while the clock was a day ahead is nobody's of today, and
// takes nothing up.
func TestClockThatJumps(t *testing.T) {
	var table Table
	for _, ahead := range []time.Duration{0, 24 * time.Hour, 24*time.Hour + Span} {
		table.Add(noon.Add(ahead), Who{User: fmt.Sprint(ahead)}, Cost{Requests: 1})
	}
	at := noon.Add(time.Minute)
	if top := table.Top(at, ByUser, "requests", 10); top.Total.Requests != 0 || len(top.Rows) > 0 {
		t.Errorf("what comes tomorrow: %+v", top)
	}
	table.Add(at, Who{User: "ada"}, Cost{Requests: 1})
	table.Add(at.Add(Span), Who{User: "ada"}, Cost{Requests: 1})
	if top := table.Top(at.Add(Span), ByUser, "requests", 10); fmt.Sprint(names(top.Rows)) != "[ada]" || top.Total.Requests != 2 {
		t.Errorf("once the clock is right: %+v", top)
	}
	if top := table.Top(at.Add(24*time.Hour), ByUser, "requests", 10); top.Total.Requests != 0 {
		t.Errorf("a day later: %+v", top)
	}
}

// However many names there are, memory is bounded, all sums add up, nobody is told to have spent
// what it has not, and the one that spends the most is there.
func TestManyNames(t *testing.T) {
	seed := randseed.Of(t, 0)
	rng := rand.New(rand.NewPCG(seed, 0))
	var table Table
	truth := map[string]float64{}
	total := 0.0
	for i := range 20_000 {
		name, s := fmt.Sprint("invented-", rng.IntN(5000)), rng.Float64()
		switch {
		case i%50 == 0:
			name, s = "heavy", 10
		case i%7 == 0:
			name = ""
		}
		truth[name] += s
		total += s
		who := Who{User: name, Query: strings.Repeat("x", i%2000)}
		table.Add(noon.Add(time.Duration(i)*100*time.Millisecond), who, Cost{Requests: 1, ShardSeconds: s})
	}
	at := noon.Add(2000 * time.Second)
	for _, limit := range []int{1, 10, 1 << 20} {
		top := table.Top(at, ByUser, "shard_s", limit)
		if top.Rows[0].Name != "heavy" || top.Rows[0].ShardSeconds != truth["heavy"] {
			t.Errorf("first is %+v, want heavy with %v", top.Rows[0], truth["heavy"])
		}
		sum, requests := top.Rest.ShardSeconds+top.Nobody.ShardSeconds, top.Rest.Requests+top.Nobody.Requests
		for _, r := range top.Rows {
			if r.ShardSeconds > truth[r.Name]+1e-9 {
				t.Errorf("%s is told to have spent %v, and spent %v", r.Name, r.ShardSeconds, truth[r.Name])
			}
			sum += r.ShardSeconds
			requests += r.Requests
		}
		if math.Abs(sum-total) > 1e-6 || requests != 20_000 || math.Abs(top.Nobody.ShardSeconds-truth[""]) > 1e-6 {
			t.Errorf("the sum is %v of %v, %d requests, nobody %v of %v", sum, total, requests, top.Nobody.ShardSeconds, truth[""])
		}
	}
	for _, b := range table.buckets {
		if b == nil {
			continue
		}
		for k, r := range b.kinds {
			if len(r.rows) > MaxKeys || len(r.heap) != len(r.rows) {
				t.Errorf("%d rows by %s, %d in the heap", len(r.rows), k, len(r.heap))
			}
			for name := range r.rows {
				if len(name) > MaxKeyBytes+len("…") {
					t.Errorf("a name of %d bytes", len(name))
				}
			}
		}
	}
}

// BenchmarkAdd is one request of a name that is there, and of one that never is.
func BenchmarkAdd(b *testing.B) {
	for _, bc := range []struct {
		name string
		of   int
	}{{"known", 100}, {"invented", math.MaxInt}} {
		b.Run(bc.name, func(b *testing.B) {
			var table Table
			who := make([]Who, 1<<14)
			for i := range who {
				n := fmt.Sprint(i % bc.of)
				who[i] = Who{User: n, Dashboard: n, Panel: n, Query: "sum by (namespace) (rate(http_requests_total{x=\"" + n + "\"}[5m]))"}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				table.Add(noon, who[i%len(who)], Cost{Requests: 1, ShardSeconds: float64(i)})
			}
		})
	}
}
