package server

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/config"
)

// TestReloadKeepsCounts: what was counted on servers is known after a reload, whatever place these
// have then; what others were never asked is not.
func TestReloadKeepsCounts(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	var shards [3]string
	for i := range shards {
		held := scraped(100, now.Add(-75*time.Minute), now, 2*time.Second, nil)
		for j := range held {
			held[j].lbls = labels.NewBuilder(held[j].lbls).Set("shard", fmt.Sprint(i)).Labels()
		}
		shards[i] = fmt.Sprintf("      - replicas: [{url: %q}]\n", promShard(t, labels.EmptyLabels(), held).URL())
	}
	const head, tail = "groups:\n  - name: jaguar\n    shards:\n", "limits: {max_shard_bytes: 400KiB}\n"
	s, base := startProxy(t, t.Context(), head+shards[0]+shards[1]+tail)
	counts := func() float64 {
		before := seriesCounts(t, s)
		code, body := ask(t, base, "/api/v1/query_range", url.Values{
			"query": {`rate(requests_total{node=~"n1.?"}[1m])`}, "start": {stamp(now.Add(-time.Hour))}, "end": {stamp(now)}, "step": {"15"},
		})
		if code != 200 {
			t.Errorf("%d %.300s", code, body)
		}
		return seriesCounts(t, s) - before
	}
	first := counts()
	if again := counts(); first == 0 || again != 0 {
		t.Fatalf("counted %v times, and %v times again", first, again)
	}
	for _, tc := range []struct {
		config string
		anew   bool
	}{
		{head + shards[0] + shards[1] + tail + "strict_parameters: true\n", false},
		{head + shards[1] + shards[0] + tail, false},
		{head + shards[2] + shards[1] + tail, true},
	} {
		cfg, err := config.Parse([]byte(tc.config), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		before := s.state.Load()
		if err := s.put(cfg, loadDrops, true); err != nil || s.state.Load() == before {
			t.Fatal(err)
		}
		if got := counts(); got > 0 != tc.anew {
			t.Errorf("after a reload counted %v times, anew should be %v:\n%s", got, tc.anew, tc.config)
		}
	}
}
