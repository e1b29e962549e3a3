package weigh

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// topology is a group with a shard of each of the URLs.
func topology(t *testing.T, previous *shard.Topology, urls ...string) *shard.Topology {
	t.Helper()
	g := config.Group{Name: "jaguar"}
	for _, u := range urls {
		r := config.Replica{URL: u, Type: config.TypePrometheus}
		g.Shards = append(g.Shards, config.Shard{Replicas: []config.Replica{r}})
	}
	top, err := shard.New([]config.Group{g}, shard.Options{}, previous)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(top.Close)
	return top
}

// TestSizesOfANewTopology: of a shard that stays the same, wherever it stands, what is known stays,
// and when it is asked again; of another one nothing is known.
func TestSizesOfANewTopology(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	clock := func() time.Time { return now }
	top := topology(t, nil, "http://10.0.0.1:9090", "http://10.0.0.2:9090")
	before := NewSizes(t.Context(), top, nil, clock, slog.New(slog.DiscardHandler))
	for i, told := range []string{`[{"name":"up","value":7}]`, `[{"name":"up","value":8}]`} {
		n := before.Names(top.Groups[0].Shards[i])
		if err := n.Learn(strings.NewReader(`{"data":{"seriesCountByMetricName":`+told+`}}`), now, 0); err != nil {
			t.Fatal(err)
		}
	}
	next := topology(t, top, "http://10.0.0.2:9090", "http://10.0.0.3:9090")
	z := NewSizes(t.Context(), next, before, clock, slog.New(slog.DiscardHandler))
	before.Close()
	kept, other := next.Groups[0].Shards[0], next.Groups[0].Shards[1]
	if n, ok := z.Of(kept, "up"); !ok || n != 8 || z.Names(kept).Due(now) {
		t.Errorf("of a shard that stayed %d series are known (%v), or it is asked again", n, ok)
	}
	if _, ok := z.Names(other).AtMost("up"); ok || !z.Names(other).Due(now) {
		t.Error("of a new shard something is known, or it is not asked")
	}
}
