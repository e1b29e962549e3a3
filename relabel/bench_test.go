package relabel_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/inventory"
)

// fleet is a source that makes its series up while it is read: pods with 600 metrics each, one of
// ten a histogram.
type fleet struct{ pods int }

func (f fleet) String() string { return fmt.Sprintf("%d pods", f.pods) }

func (f fleet) Scan(ctx context.Context, visit func(*inventory.Series) error) error {
	edges := []string{"0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "+Inf"}
	b := labels.NewScratchBuilder(8)
	one := func(name, pod, code, le string) error {
		b.Reset()
		b.Add("__name__", name)
		b.Add("code", code)
		b.Add("instance", "i"+pod)
		b.Add("job", "j"+name[len(name)-1:])
		if le != "" {
			b.Add("le", le)
		}
		b.Add("pod", "p"+pod)
		b.Add("uid", "u"+pod)
		return visit(&inventory.Series{Labels: b.Labels(), Interval: 30 * time.Second})
	}
	for metric := range 600 {
		name := fmt.Sprintf("metric_%d", metric)
		for pod := range f.pods {
			id := fmt.Sprint(pod)
			if metric%10 != 0 {
				if err := one(name, id, []string{"200", "404", "500"}[pod%3], ""); err != nil {
					return err
				}
				continue
			}
			for _, le := range edges {
				if err := one(name+"_bucket", id, "200", le); err != nil {
					return err
				}
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// BenchmarkMake makes plans of growing fleets, where every third metric is used.
func BenchmarkMake(b *testing.B) {
	var texts []string
	for metric := 0; metric < 600; metric += 3 {
		texts = append(texts, fmt.Sprintf("sum by (pod) (rate(metric_%d[5m]))", metric), fmt.Sprintf(`metric_%d_bucket{le="0.5"}`, metric),
			fmt.Sprintf(`metric_%d{code="500"}`, metric+1))
	}
	for _, pods := range []int{100, 1000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				p, err := relabel.Make(b.Context(), relabel.Options{Source: fleet{pods}, Uses: queries(texts...), Now: now})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(p.Stored.Series), "series")
				b.ReportMetric(float64(p.Dropped.Series), "dropped")
				b.ReportMetric(float64(len(p.Rules)), "rules")
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.Sys)/(1<<20), "MiB")
		})
	}
}
