package cli

import (
	"bytes"
	"math"
	"testing"

	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/plan/raw"
)

func TestWriteExplanation(t *testing.T) {
	x := &plan.Explanation{
		Query: "sum(up) / rate(x[5m])", Verdict: plan.Exact,
		Plan: &plan.Node{
			Mode: plan.ModeRaw, Expr: "sum(up) / rate(x[5m])", Why: "it joins what several shards hold",
			Children: []*plan.Node{
				{Mode: plan.ModePush, Expr: "sum(up)", Why: "sums of disjoint shards add up", Calls: []*plan.Call{
					{Shard: "jaguar[0]", Replica: "jaguar/10.0.0.1:9090", Query: "sum(up)", Series: 1, Samples: 1, Bytes: 120, Seconds: 0.0042},
					{Shard: "jaguar[1]", Query: "sum(up)"},
				}},
				{Mode: plan.ModeRaw, Expr: "x[5m]", Why: "no replica is whole", Calls: []*plan.Call{{
					Shard: "jaguar[0]", Replica: "jaguar/10.0.0.1:9090", Query: "{__name__=\"x\"}", Series: 20000, Samples: 1e6, Bytes: 3 << 20, Seconds: 1,
					Segments: []raw.Segment{{Copy: "jaguar/10.0.0.1:9090", From: math.MinInt64, Until: 1.8e12}, {Copy: "jaguar/10.0.0.2:9090", From: 1.8e12 + 1, Until: math.MaxInt64}},
				}}},
			},
		},
	}
	const planned = `raw     sum(up) / rate(x[5m])
        why: it joins what several shards hold
  push    sum(up)
          why: sums of disjoint shards add up
          ask jaguar[0] at jaguar/10.0.0.1:9090: sum(up)
          ask jaguar[1]: sum(up)
  raw     x[5m]
          why: no replica is whole
          ask jaguar[0] at jaguar/10.0.0.1:9090: {__name__="x"}
              the beginning to 2027-01-15T08:00:00.000Z
              2027-01-15T08:00:00.001Z to the end from jaguar/10.0.0.2:9090
verdict: exact
`
	const ran = `raw     sum(up) / rate(x[5m])
        why: it joins what several shards hold
  push    sum(up)
          why: sums of disjoint shards add up
          ask jaguar[0] at jaguar/10.0.0.1:9090: sum(up)
              answered with 1 series, 1 sample and 120B in 0.004 s
          ask jaguar[1]: sum(up)
              answered with 0 series, 0 samples and 0B in 0.000 s
  raw     x[5m]
          why: no replica is whole
          ask jaguar[0] at jaguar/10.0.0.1:9090: {__name__="x"}
              the beginning to 2027-01-15T08:00:00.000Z
              2027-01-15T08:00:00.001Z to the end from jaguar/10.0.0.2:9090
              answered with 20000 series, 1000000 samples and 3MiB in 1.000 s
verdict: exact
`
	for _, c := range []struct {
		name string
		x    *plan.Explanation
		ran  bool
		want string
	}{
		{"planned", x, false, planned},
		{"ran", x, true, ran},
		{"refused", &plan.Explanation{Verdict: plan.Refused, Reason: "it selects everything;\nname a metric"}, false, "verdict: refused: it selects everything; name a metric\n"},
		{
			"strange", &plan.Explanation{Verdict: plan.Exact, Plan: &plan.Node{Mode: plan.ModePass, Expr: "a\n+\x1b[31m b", Why: "\u2028x"}},
			false, "pass    a + [31m b\n        why:  x\nverdict: exact\n",
		},
	} {
		var out bytes.Buffer
		writeExplanation(&out, c.x, c.ran)
		if out.String() != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, &out, c.want)
		}
	}
}
