package server

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// clusters are groups of the rig with so many shards each, named c000 and on.
func clusters(n, shards int) []rigGroup {
	out := make([]rigGroup, n)
	for i := range out {
		out[i] = rigGroup{name: fmt.Sprintf("c%03d", i)}
		for range shards {
			out[i].replicas = append(out[i].replicas, 1)
		}
	}
	return out
}

// groupValues are the forms of label_values(cluster): with a metric, as dashboards ask, and without
// any, as Grafana's explorer does.
func groupValues() []asking {
	const path = "/api/v1/label/cluster/values"
	return []asking{
		{name: "of a metric", id: endpoint.LabelValues, path: path, form: map[string][]string{"match[]": {"up"}}, at: "/api/v1/series"},
		{name: "of everything", id: endpoint.LabelValues, path: path, at: "/api/v1/labels"},
	}
}

// No group waits for another one: none answers before all of them were asked.
func TestGroupLabelValuesAskAllGroupsTogether(t *testing.T) {
	r := newRig(t, clusters(20, 4), limits(ample))
	for _, a := range groupValues() {
		for _, s := range r.all() {
			fault{script: "wait " + strings.ReplaceAll(a.name, " ", "-") + "; answer"}.set(t, s, []asking{a})
		}
		answer := make(chan *reply)
		go func() { answer <- r.ask(r.request(context.Background(), a)) }()
		r.eventually("every shard of every group is asked", func() bool {
			for _, s := range r.all() {
				n := 0
				for _, rec := range s.Requests() {
					if rec.Path == a.at && rec.Form.Get("limit") == "1" {
						n++
					}
				}
				if n == 0 {
					return false
				}
			}
			return true
		})
		for _, s := range r.all() {
			s.Release(strings.ReplaceAll(a.name, " ", "-"))
		}
		got := <-answer
		if got.status != 200 || len(got.message.Warnings) > 0 || strings.Count(string(got.message.Data), `"c0`) != 20 {
			t.Errorf("%s: %s", a.name, got)
		}
	}
}

// Groups that hang cost a partial answer one wait together, and their own values. Without partial
// answers the error says how many were silent and names some.
func TestGroupLabelValuesWithHungGroups(t *testing.T) {
	t.Parallel()
	r := newRig(t, clusters(20, 1), roomy(hangLimit), hangs)
	hung := []string{"c003", "c005", "c008", "c011", "c013", "c017"}
	for _, name := range hung {
		fault{script: "stall"}.set(t, r.shards[name][0][0], groupValues())
	}
	var wg sync.WaitGroup
	for _, a := range groupValues() {
		wg.Go(func() {
			got := r.ask(r.request(context.Background(), a, "partial_response", "true"))
			if got.status != 200 || strings.Count(string(got.message.Data), `"c0`) != 14 || len(got.message.Warnings) != len(hung) {
				t.Errorf("%s, partial: %s, warnings %q", a.name, got, got.message.Warnings)
			}
		})
		wg.Go(func() {
			got := r.ask(r.request(context.Background(), a, "partial_response", "false"))
			if got.status != 503 || !strings.Contains(got.message.Error, "silent were 6 shards: c003[0], c005[0], c008[0], c011[0], c013[0] and 1 more") {
				t.Errorf("%s, strict: %s", a.name, got)
			}
		})
	}
	wg.Wait()
}

// BenchmarkGroupLabelValues reports how much longer label_values(cluster) takes than the slowest of
// 200 groups of four shards, which answer after 5 to 60 ms.
func BenchmarkGroupLabelValues(b *testing.B) {
	const slowest = 60 * time.Millisecond
	r := newRig(b, clusters(200, 4), limits(ample),
		func(o *Options) { o.shards = shard.Options{ProbeInterval: time.Hour, FactsEvery: time.Hour} })
	for _, a := range groupValues() {
		i := 0
		for _, s := range r.all() {
			fault{script: fmt.Sprintf("delay %s; answer",
				[]time.Duration{5 * time.Millisecond, 20 * time.Millisecond, slowest}[i%3])}.set(b, s, []asking{a})
			i++
		}
		b.Run(fmt.Sprintf("%q", a.name), func(b *testing.B) {
			r.ask(r.request(b.Context(), a))
			b.ResetTimer()
			for range b.N {
				if got := r.ask(r.request(b.Context(), a)); got.status != 200 {
					b.Fatal(got)
				}
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(slowest), "x-slowest")
			b.ReportMetric(0, "ns/op")
		})
	}
}
