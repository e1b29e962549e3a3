package cost

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// BenchmarkHeld is what looking at a dashboard's query takes.
func BenchmarkHeld(b *testing.B) {
	e := parsed(b, `sum by (namespace) (rate(container_cpu_usage_seconds_total{cluster="jaguar"}[5m])) / on (namespace) group_left sum by (namespace) (kube_pod_container_resource_requests{resource="cpu"})`)
	b.ReportAllocs()
	for b.Loop() {
		Held(e, Grid{Steps: 241, Step: 15_000, Interval: 60_000}, floats(1), nil)
	}
}

// BenchmarkSelects is what three selectors of 60 values take of 40 shards that told of ten thousand
// pairs each, and where the values are hashed for each shard.
func BenchmarkSelects(b *testing.B) {
	body := `{"data":{"headStats":{"numSeries":90000}` + names("seriesCountByMetricName", "x", MoreNames, 5) +
		names("seriesCountByLabelValuePair", "pod=p", MoreNames, 5) + "}}"
	shards := make([]Names, 40)
	for i := range shards {
		shards[i].more = true
		if err := shards[i].Learn(strings.NewReader(body), time.Now(), 0); err != nil {
			b.Fatal(err)
		}
	}
	var selectors [][]*labels.Matcher
	for i := range 3 {
		var values []string
		for j := range 60 {
			values = append(values, fmt.Sprintf("p%d", 100*j+i))
		}
		selectors = append(selectors, []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "pod", strings.Join(values, "|"))})
	}
	for _, once := range []bool{true, false} {
		b.Run(fmt.Sprintf("once=%v", once), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var h *Hashes
				if once {
					h = &Hashes{}
				}
				for _, ms := range selectors {
					for i := range shards {
						if n, ok := shards[i].Selects(ms, h); !ok || n != 300 {
							b.Fatal(n, ok)
						}
					}
				}
			}
		})
	}
}
