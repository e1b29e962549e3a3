package server

import (
	"testing"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/policy"
)

// An answer that was cut says by which limit.
func TestTruncationNamesTheLimitThatCut(t *testing.T) {
	for _, c := range []struct {
		asked, limit, perShard, n int
		want                      string
	}{
		{0, 10000, 10000, 10000, "results truncated due to limit: at most 10000 (max_series)"},
		{0, 10000, 1000, 4492, "results truncated due to limit: at most 1000 from each shard (unselective)"},
		{0, 10000, 1000, 10000, "results truncated due to limit: at most 10000 (max_series)"},
		{5, 5, 5, 5, "results truncated due to limit: at most 5 (the request's own limit)"},
		{5, 5, 5, 3, "results truncated due to limit: at most 5 from each shard (the request's own limit)"},
		{5000, 5000, 1000, 3000, "results truncated due to limit: at most 1000 from each shard (unselective)"},
		{40000, 10000, 10000, 10000, "results truncated due to limit: at most 10000 (max_series)"},
	} {
		x := &exchange{
			req:     &endpoint.Request{Limit: c.asked},
			decided: decided{dec: &policy.Decision{Limit: c.limit, PerShardLimit: c.perShard}},
		}
		if got := x.truncation(c.n); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
