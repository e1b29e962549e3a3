package plan

import (
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
)

// TestBesideZero: a sum of what is never negative is 0 only if all of it is, so that it may be
// compared with 0 whatever its last bit is; of anything else it may have cancelled.
func TestBesideZero(t *testing.T) {
	for text, free := range map[string]bool{
		"sum(rate(x[5m]))":                        true,
		"sum by (a) (increase(x[5m]))":            true,
		"avg(irate(x[5m]) * 8)":                   true,
		"sum(rate(x[5m]) / rate(y[5m]))":          true,
		"sum(8 * (sum by (a) (rate(x[5m]))))":     true,
		"sum(count by (a) (x) * rate(x[5m]))":     true,
		"sum(x)":                                  false,
		"sum(rate(x[5m]) * -1)":                   false,
		"sum(rate(x[5m]) - rate(y[5m]))":          false,
		"sum(delta(x[5m]))":                       false,
		"sum(-rate(x[5m]))":                       false,
		"sum(max by (a) (x))":                     false,
		"sum(rate(x[5m]) * x)":                    false,
		"avg(avg_over_time(x[5m]) * rate(x[5m]))": false,
	} {
		e, err := tree.Parser.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		got := besideZero([]float64{0, 5}, e.(*parser.AggregateExpr))
		if want := map[bool]int{true: 1, false: 2}[free]; len(got) != want || got[len(got)-1] != 5 {
			t.Errorf("%s: %v", text, got)
		}
	}
}
