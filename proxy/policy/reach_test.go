package policy

import (
	"strings"
	"testing"
	"time"

	promqlengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// TestWindowAgainstTheEngine compares what Decide says a query reads with what Prometheus' own
// engine asks its storage for. The engine leaves out the oldest millisecond, which it reads as an
// open end.
func TestWindowAgainstTheEngine(t *testing.T) {
	p := parser.NewParser(parser.Options{
		EnableExperimentalFunctions: true, ExperimentalDurationExpr: true, EnableExtendedRangeSelectors: true,
		EnableBinopFillModifiers: true,
	})
	for _, text := range []string{
		"up", "up offset 1h", "up offset -1h", "up @ 1700000000", "up @ start() offset 1h", "rate(up[5m] @ end())",
		"rate(up[5m]) + up offset 1w",
		"max_over_time(rate(up[5m])[1h:1m])", "max_over_time(rate(up[5m] offset 10m)[1h:1m] offset 1d)", "max_over_time(rate(up[5m])[1h:1m] @ 1700000000 offset 1h)",
		"max_over_time(max_over_time(up[1h:1m] offset 1h)[1d:1h] @ end())", "max_over_time(max_over_time(up[1h:1m] @ start() offset 1h)[1d:1h])",
		"max_over_time((up @ start())[1d:1h])", "rate(up[10m] smoothed)", "rate(up[10m] anchored)", "up smoothed",
		"rate(up[step()*4] offset (range()/2))",
		"max_over_time(up[2*step():step()])", "info(up)", "info(rate(up[1m] offset 1d))", "info(up offset 1d, {a=~\".+\"})",
		"absent(up{a=\"b\"} offset 1h)",
		"sum by (a) (up) / on(a) group_left sum(up offset 2h)", "topk(scalar(up offset 3h), up)",
		"quantile(scalar(up @ start()), up offset 4h)", "quantile(scalar(up @ end()), up @ start())",
		"quantile(scalar(up @ 1700000000), up @ end())",
		"quantile(scalar(max_over_time(up[1h:1m] @ end())), up @ start())", "max_over_time(topk(scalar(up @ end()), up @ start())[1h:1m])",
		"quantile(scalar(quantile(0.5, up @ end())), up @ start())", "quantile(scalar(rate(up[2h] @ end())), up @ start()) + up @ end()",
	} {
		for _, req := range []*endpoint.Request{
			rangeQuery(text, 2*hour, time.Minute),
			{ID: endpoint.Query, Query: text, Time: ago(hour), LookbackDelta: 7 * time.Minute},
		} {
			start, end, step := time.UnixMilli(req.Start.Ms), time.UnixMilli(req.End.Ms), req.Step
			if req.ID == endpoint.Query {
				start, end, step = time.UnixMilli(req.Time.Ms), time.UnixMilli(req.Time.Ms), 0
			}
			expr, err := p.ParseExpr(text)
			if err != nil {
				t.Fatal(text, err)
			}
			lookback := 5 * time.Minute
			if req.LookbackDelta > 0 {
				lookback = req.LookbackDelta
			}
			expr, err = promqlengine.PreprocessExpr(expr, start, end, step)
			d, derr := Decide(req, testLimits(), nil, now)
			if (err == nil) != (derr == nil) {
				t.Errorf("%s as %s: the engine says %v, Decide says %v", text, req.ID, err, derr)
				continue
			}
			if err != nil {
				continue
			}
			from, until := promqlengine.FindMinMaxTime(&parser.EvalStmt{
				Expr: expr, Start: start, End: end, Interval: step,
				LookbackDelta: lookback,
			})
			// info() with a second argument: the engine reads it where the first is read, Decide
			// wherever it could be.
			if d.Start > from || d.End < until || !strings.HasPrefix(text, "info") && (from-d.Start > 1 || d.End != until) {
				t.Errorf("%s as %s: Decide says [%d, %d], the engine reads [%d, %d]", text, req.ID, d.Start, d.End, from, until)
			}
		}
	}
}
