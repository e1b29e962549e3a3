package thanos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// question is what is asked again and again; want are the values that a whole answer has, sorted.
type question struct {
	name string
	path string
	back time.Duration // a range: from so long ago until now
	want []string
	all  bool // Thanos asks all stores for it, and cannot be told not to: while one hangs, so does it
}

// A scrape that fails on a busy machine makes up 0, which is no fault of an answer: what is looked
// at is who is in it.
var questions = []question{
	{name: "count", path: "/api/v1/query?query=count(up)", want: []string{fmt.Sprint(targets)}},
	{
		name: "sum by", path: "/api/v1/query?query=" + url.QueryEscape("sum by(job)(up >= bool 0)"),
		want: []string{fmt.Sprint("api=", shards), fmt.Sprint("node=", shards*perShard)},
	},
	{
		name: "range", path: "/api/v1/query_range?query=" + url.QueryEscape("count(up)") + "&step=1", back: 5 * time.Second,
		want: []string{fmt.Sprint(targets)},
	},
	{name: "label_values", path: "/api/v1/label/instance/values?match[]=up", want: instances()},
	{name: "series", path: "/api/v1/series?match[]=up", want: instances()},
	{name: "rules", path: "/api/v1/rules", want: each("rule-%d"), all: true},
	{name: "targets", path: "/api/v1/targets?state=active", want: instances(), all: true},
	{name: "metadata", path: "/api/v1/metadata", want: each("temperature_%d"), all: true},
}

func instances() (out []string) {
	for s := range shards {
		out = append(out, fmt.Sprintf("api-%d", s))
		for n := range perShard {
			out = append(out, fmt.Sprintf("node-%d-%d", s, n))
		}
	}
	slices.Sort(out)
	return out
}

// each is what each shard has of it.
func each(format string) (out []string) {
	for s := range shards {
		out = append(out, fmt.Sprintf(format, s))
	}
	return out
}

// answer is one, with when it was asked for and when it was there.
type answer struct {
	began, ended time.Time
	status       int
	body         string
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func ask(ctx context.Context, base string, q question, now time.Time) (answer, error) {
	a := answer{began: time.Now()}
	path := q.path
	if q.back > 0 {
		path += fmt.Sprintf("&start=%d&end=%d", now.Add(-q.back).Unix(), now.Unix())
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return a, err
	}
	res, err := client.Do(req)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	a.ended, a.status, a.body = time.Now(), res.StatusCode, string(raw)
	return a, err
}

type verdict string

const (
	fine    verdict = "fine"
	refused verdict = "refused" // an error
	wrong   verdict = "wrong"   // 200, and not what is there
)

// judge says what an answer is.
func judge(q question, a answer) verdict {
	if a.status != http.StatusOK {
		return refused
	}
	var got struct {
		Warnings []string
		Data     json.RawMessage
	}
	if json.Unmarshal([]byte(a.body), &got) != nil || len(got.Warnings) > 0 {
		return wrong
	}
	var values []string
	switch {
	case q.all:
		values = namesOf(got.Data)
	case json.Unmarshal(got.Data, &values) != nil:
		values = valuesOf(got.Data)
	}
	slices.Sort(values)
	if !slices.Equal(slices.Compact(values), q.want) {
		return wrong
	}
	return fine
}

// namesOf are what rules, targets and metadata are about: names of rules, instances and names of
// metrics.
func namesOf(data json.RawMessage) (out []string) {
	var rules struct {
		Groups []struct{ Rules []struct{ Name string } }
	}
	var targets struct {
		ActiveTargets []struct{ Labels map[string]string }
	}
	var metrics map[string][]any
	switch {
	case json.Unmarshal(data, &rules) == nil && rules.Groups != nil:
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				out = append(out, r.Name)
			}
		}
	case json.Unmarshal(data, &targets) == nil && targets.ActiveTargets != nil:
		for _, t := range targets.ActiveTargets {
			out = append(out, t.Labels["instance"])
		}
	case json.Unmarshal(data, &metrics) == nil:
		return slices.Collect(maps.Keys(metrics))
	}
	return out
}

// valuesOf are what the data of a query or of series says: each value of a vector or matrix, after
// the job if it has one, and each instance of series.
func valuesOf(data json.RawMessage) (out []string) {
	var series []map[string]string
	if json.Unmarshal(data, &series) == nil {
		seen := map[string]bool{}
		for _, s := range series {
			if seen[s["instance"]] {
				out = append(out, s["instance"]+" twice")
			}
			seen[s["instance"]] = true
			out = append(out, s["instance"])
		}
		return out
	}
	var result struct {
		Result []struct {
			Metric map[string]string
			Value  []any
			Values [][]any
		}
	}
	if json.Unmarshal(data, &result) != nil {
		return nil
	}
	for _, r := range result.Result {
		prefix := ""
		if job := r.Metric["job"]; job != "" {
			prefix = job + "="
		}
		if len(r.Value) > 0 {
			r.Values = append(r.Values, r.Value)
		}
		for _, v := range r.Values {
			out = append(out, prefix+fmt.Sprint(v[len(v)-1]))
		}
	}
	return out
}

// heard is all that was heard of one question.
type heard struct {
	q       question
	answers []answer
}

// listen asks all questions, each every -thanos.every or as soon as the last answer is there, until
// ctx ends. They begin one after the other, so that something is asked at each eighth of that time.
func listen(ctx context.Context, base string) func() []heard {
	out := make([]heard, len(questions))
	var all sync.WaitGroup
	for i, q := range questions {
		out[i].q = q
		all.Go(func() {
			time.Sleep(*every * time.Duration(i) / time.Duration(len(questions)))
			tick := time.NewTicker(*every)
			defer tick.Stop()
			for {
				if a, err := ask(context.WithoutCancel(ctx), base, q, time.Now()); err == nil {
					out[i].answers = append(out[i].answers, a)
				} else {
					out[i].answers = append(out[i].answers, answer{began: a.began, ended: time.Now(), body: "no answer: " + err.Error()})
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return func() []heard {
		all.Wait()
		return out
	}
}

// names tells whether an error says which of the addresses it is about.
func names(text string, addrs []string) bool {
	return slices.ContainsFunc(addrs, func(a string) bool { return strings.Contains(text, a) })
}
