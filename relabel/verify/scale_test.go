package verify_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel/uses"
	"github.com/spillwayproject/spillway/relabel/verify"
)

// fleet is thirty jobs with lists of a hundred names and buckets, and a number of queries.
func fleet(t testing.TB, queries int) verify.Options {
	var b strings.Builder
	b.WriteString("scrape_configs:\n")
	for j := range 30 {
		fmt.Fprintf(&b, "  - job_name: job%d\n    metric_relabel_configs:\n", j)
		for rule := range 10 {
			var names []string
			for n := range 90 {
				names = append(names, fmt.Sprintf("unused_%d_%d_%d", j, rule, n))
			}
			fmt.Fprintf(&b, "      - {source_labels: [__name__], regex: '%s', action: drop}\n", strings.Join(names, "|"))
		}
		fmt.Fprintf(&b, "      - {source_labels: [__name__, le], regex: 'h_%d_bucket;(0\\.25|0\\.75|2\\.5|25(\\.0)?)', action: drop}\n", j)
	}
	set := new(uses.Set)
	for q := range queries {
		texts := []string{
			fmt.Sprintf(`sum by (pod) (rate(used_%d{namespace=~"a|b|c",pod=~"web-.*"}[5m]))`, q),
			fmt.Sprintf(`histogram_quantile(0.9, sum by (le) (rate(h_%d_bucket{job="job%d"}[5m])))`, q%30, q%30),
			fmt.Sprintf(`count({__name__=~"used_%d.*",job=~"job.*"})`, q),
		}
		set.Add(&uses.Use{Kind: uses.Dashboard, File: "d.json", Line: q + 1, Query: texts[q%len(texts)]})
	}
	return verify.Options{Prometheus: []string{file(t, "prometheus.yml", b.String())}, Uses: set}
}

func BenchmarkCheck(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		o := fleet(b, n)
		b.Run(fmt.Sprintf("queries=%d", n), func(b *testing.B) {
			for b.Loop() {
				if r := check(b, o); r.State != verify.OK {
					b.Fatal(r.State)
				}
			}
		})
	}
}
