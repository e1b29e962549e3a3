package relabel_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/verify"
)

// Without +Inf there is no quantile, and without the highest finite bucket a lower one. Buckets
// that are compared with _count stay, and jobs lose the same ones.
func TestTrap05Buckets(t *testing.T) {
	page := func(edges ...string) string {
		var b strings.Builder
		b.WriteString("# TYPE h histogram\n")
		for _, le := range edges {
			fmt.Fprintf(&b, "h_bucket{le=%q} 1\n", le)
		}
		return b.String() + "h_sum 1\nh_count 1\n"
	}
	src := pages(t, map[string]string{
		"j/1": page("0.1", "0.12", "0.15", "0.2", "1", "5", "+Inf"),
		"k/1": page("0.1", "0.12", "0.15", "0.2", "+Inf"),
	})
	quantile := `histogram_quantile(0.9, sum by (le) (rate(h_bucket[5m]))) + h_sum + h_count`
	slo := `1 - sum(rate(h_bucket{le="0.12"}[5m])) / sum(rate(h_count[5m])) + sum(h_sum)`
	expect(t, src, plan(t, src, queries(quantile)))
	expect(t, src, plan(t, src, queries(slo), replayed),
		`j h_bucket{le="0.1"}`, `j h_bucket{le="0.15"}`, `j h_bucket{le="1.0"}`, // 0.2 is the highest that k has, so that j keeps it too
		`k h_bucket{le="0.1"}`, `k h_bucket{le="0.15"}`)
	p := plan(t, src, queries(quantile, slo), replayed, func(o *relabel.Options) { o.Propose.Risk = propose.High })
	expect(t, src, p, `j h_bucket{le="0.15"}`, `k h_bucket{le="0.15"}`)
	for _, r := range p.Rules {
		if r.QuantileError <= 1 || r.QuantileError > 2.5 || r.Risk != propose.High {
			t.Errorf("%s states an error of %g, risk %s", r.ID, r.QuantileError, r.Risk)
		}
	}
	// A sum over all buckets is a sum over all buckets.
	expect(t, src, plan(t, src, queries("sum(rate(h_bucket[5m])) + sum(h_count) + sum(h_sum)"), func(o *relabel.Options) { o.Propose.Risk = propose.High }))
	verifies(t, src, queries(slo), `{source_labels: [__name__, le], regex: 'h_bucket;0\.12', action: drop}`, verify.CheckLost)
}

// A page says le="1", Prometheus 3 stores 1.0, a query says either; and the rule works on both.
func TestTrap06SpellingOfBuckets(t *testing.T) {
	src := pages(t, map[string]string{"j/1": "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"15\"} 1\nh_bucket{le=\"30\"} 1\nh_bucket{le=\"60\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n"})
	for _, query := range []string{`h_bucket{le="30"}`, `h_bucket{le="30.0"}`, `h_bucket{le=~"30(\\.0)?"}`} {
		p := plan(t, src, queries(query, "h_sum", "h_count"))
		expect(t, src, p, `j h_bucket{le="1.0"}`, `j h_bucket{le="15.0"}`)
		for _, le := range []string{"1", "1.0", "15", "15.0"} {
			if _, kept := apply(labels.FromStrings(model.MetricNameLabel, "h_bucket", "job", "j", "le", le), p.Rules); kept {
				t.Errorf("%s: an older server keeps le=%q", query, le)
			}
		}
		for _, le := range []string{"30", "30.0", "60", "60.0", "150", "1.05", "+Inf", ""} {
			if _, kept := apply(labels.FromStrings(model.MetricNameLabel, "h_bucket", "job", "j", "le", le), p.Rules); !kept {
				t.Errorf("%s: le=%q goes", query, le)
			}
		}
	}
	verifies(t, src, queries("h_sum"), `{source_labels: [__name__, le], regex: 'h_bucket;(1|15)', action: drop}`, verify.CheckLe)
}

// A native histogram and its classic twins are one metric in two forms, and dashboards move from
// one to the other: while one is used, both stay.
func TestTrap14NativeHistogramPair(t *testing.T) {
	src := native{of("j", "h", "h_bucket{le=1.0}", "h_bucket{le=+Inf}", "h_sum", "h_count", "unused", "g", "g_bucket{le=+Inf}", "g_count")}
	for _, query := range []string{"histogram_quantile(0.9, sum(rate(h[5m])))", `h_bucket{le="1"}`, "rate(h_count[5m])"} {
		p := plan(t, src, queries(query))
		expect(t, src, p, "j g", `j g_bucket{le="+Inf"}`, "j g_count", "j unused")
	}
}

// native says that h and g are native histograms.
type native struct{ memory }

func (n native) Scan(ctx context.Context, f func(*inventory.Series) error) error {
	return n.memory.Scan(ctx, func(s *inventory.Series) error {
		name := s.Labels.Get(model.MetricNameLabel)
		s.Native = name == "h" || name == "g"
		return f(s)
	})
}
