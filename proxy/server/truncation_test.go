package server

import (
	"fmt"
	"net/url"
	"slices"
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

// TestOrderUnderGroupLabels: at an instant, too, the series of a range, and those sorted by labels,
// come in the order that they have under the label of their group, and a limit cuts the last.
func TestOrderUnderGroupLabels(t *testing.T) {
	start := time.Now().Add(-30 * time.Minute).Truncate(time.Minute)
	series := "load 15s\n  x{%[1]sa=\"1\"} 1x120\n  x{%[1]sa=\"1\",b=\"1\"} 2x120\n"
	one := serverWith(t, fmt.Sprintf(series, `cluster="jaguar",`), start, exactFeatures...)
	_, base := startProxy(t, t.Context(), fmt.Sprintf("groups: [{name: jaguar, labels: {cluster: jaguar}, shards: [{replicas: [{url: %q}]}]}]\n",
		serverWith(t, fmt.Sprintf(series, ""), start, exactFeatures...)))
	at := stamp(start.Add(20 * time.Minute))
	for _, c := range []struct{ query, limit string }{
		{`x[1m]`, ""},
		{`x[1m]`, ""}, // what was found out is known now
		{`x[1m]`, "1"},
		{`(x[45s] offset 1m)`, "1"},
		{`x[1m:20s]`, ""},
		{`(x * 2)[1m:20s]`, "1"},
		{`sum(x)[1m:20s]`, "1"},
		{`x[1m]`, "2"},
		{`sort_by_label(x, "nothing")`, ""},
		{`sort_by_label(x, "nothing")`, "1"},
		{`sort_by_label_desc(x, "nothing")`, "1"},
		{`sort_by_label(sum by (a, b) (x), "nothing")`, "1"},
		{`sort_by_label(x, "nothing")`, "2"},
	} {
		form := url.Values{"query": {c.query}, "time": {at}}
		if c.limit != "" {
			form.Set("limit", c.limit)
		}
		var answers [2]*exactAnswer
		for i, server := range []string{base, one} {
			code, body := ask(t, server, "/api/v1/query", form)
			answer, err := readExact(body)
			if err != nil {
				t.Fatalf("%s: %d %s: %v", c.query, code, body, err)
			}
			answers[i] = answer
		}
		if diff := answers[0].differ(answers[1], 0); diff != nil || !slices.Equal(answers[0].order, answers[1].order) {
			t.Errorf("%s, limit %q: %v, not %v", c.query, c.limit, answers[0].order, answers[1].order)
		}
	}
}
