package server

import (
	"fmt"
	"net/url"
	"testing"
	"time"

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

// TestLimitUnderGroupLabels: the label of a group may put a series behind another one that it stood
// before on its server, which must not cut then, be it the only one.
func TestLimitUnderGroupLabels(t *testing.T) {
	start := time.Now().Add(-30 * time.Minute).Truncate(time.Minute)
	series := "load 15s\n  x{%[1]sa=\"1\"} 1x120\n  x{%[1]sa=\"1\",b=\"1\"} 2x120\n"
	one := serverWith(t, fmt.Sprintf(series, `cluster="jaguar",`), start)
	_, base := startProxy(t, t.Context(), fmt.Sprintf("groups: [{name: jaguar, labels: {cluster: jaguar}, shards: [{replicas: [{url: %q}]}]}]\n",
		serverWith(t, fmt.Sprintf(series, ""), start)))
	at := start.Add(20 * time.Minute)
	form := url.Values{"query": {"x"}, "limit": {"1"}, "start": {stamp(at)}, "end": {stamp(at.Add(3 * time.Minute))}, "step": {"60"}}
	var answers [2]valuesAt
	for i, server := range []string{base, one} {
		_, body := ask(t, server, "/api/v1/query_range", form)
		var wrong string
		if answers[i], wrong = fromJSON(t, body); wrong != "" {
			t.Fatal(wrong)
		}
	}
	if diff := compare(answers[0], answers[1], 0); diff != "" {
		t.Error(diff)
	}
}
