package cli

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/plan/raw"
)

var update = flag.Bool("update", false, "write the examples of docs/explain.md anew")

func TestWriteExplanation(t *testing.T) {
	x := &plan.Explanation{
		Query: "sum(up) / rate(x[5m])", Verdict: plan.Exact,
		Plan: &plan.Node{
			Mode: plan.ModeRaw, Expr: "sum(up) / rate(x[5m])", Why: "it joins what several shards hold",
			Children: []*plan.Node{
				{Mode: plan.ModePush, Expr: "sum(up)", Why: "sums of disjoint shards add up", Calls: []*plan.Call{
					{
						Shard: "jaguar[0]", Replica: "jaguar/10.0.0.1:9090", Query: "sum(up)", Series: 1, Samples: 1, Bytes: 120,
						Seconds: 0.0042,
					},
					{Shard: "jaguar[1]", Query: "sum(up)"},
				}},
				{Mode: plan.ModeRaw, Expr: "x[5m]", Why: "no replica is whole", Calls: []*plan.Call{{
					Shard: "jaguar[0]", Replica: "jaguar/10.0.0.1:9090", Query: "{__name__=\"x\"}", Series: 20000, Samples: 1e6,
					Bytes: 3 << 20, Seconds: 1,
					Segments: []raw.Segment{
						{Copy: "jaguar/10.0.0.1:9090", From: math.MinInt64, Until: 1.8e12},
						{Copy: "jaguar/10.0.0.2:9090", From: 1.8e12 + 1, Until: math.MaxInt64},
					},
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
not run: --analyze tells whether the bounds that only a run meets, such as max_series, allow it
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
			"strange", &plan.Explanation{
				Verdict: plan.Exact,
				Plan:    &plan.Node{Mode: plan.ModePass, Expr: "a\n+\x1b[31m b", Why: "\u2028x"},
			},
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

const explainPage = "../../docs/explain.md"

// TestExplainPage runs the examples of docs/explain.md over real servers. With -update it writes
// them anew.
func TestExplainPage(t *testing.T) {
	text, err := os.ReadFile(explainPage)
	if err != nil {
		t.Fatal(err)
	}
	_, config, _ := strings.Cut(string(text), "```yaml\n")
	config, _, _ = strings.Cut(config, "```")
	var toReal, toPage []string
	for i := 1; i <= 5; i++ {
		p, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
		node := min(i, 4) // the last two are copies
		load := fmt.Sprintf("load 15s\n  up{job=\"node\", node=\"n%d\"} 1x90\n  requests_total{job=\"api\", node=\"n%d\"} 0+%dx90\n", node,
			node, 15*node)
		if err := p.LoadAt(load, time.Now().Add(-20*time.Minute)); err != nil {
			t.Fatal(err)
		}
		onPage, real := fmt.Sprintf("10.0.0.%d:9090", i), strings.TrimPrefix(p.URL(), "http://")
		toReal, toPage = append(toReal, onPage, real), append(toPage, real, onPage)
	}
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	if err := os.WriteFile(file, []byte(strings.NewReplacer(toReal...).Replace(config)), 0o600); err != nil {
		t.Fatal(err)
	}
	moving := regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z|\d+ samples?|[\d.]+(Ki)?B in [\d.]+ s`)
	page := regexp.MustCompile("(?s)```text\n\\$ spillway explain (--analyze )?'([^\n]*)'\n(.*?)```").ReplaceAllStringFunc(string(text), func(block string) string {
		head, shown, _ := strings.Cut(block, "'\n")
		shown = strings.TrimSuffix(shown, "```")
		_, query, _ := strings.Cut(head, "'")
		args := []string{"explain", "--config.file=" + file, query}
		if strings.Contains(head, "--analyze") {
			args = append(args, "--analyze")
		}
		var out, errs bytes.Buffer
		Spillway.Run(t.Context(), t.Context(), args, &out, &errs)
		got := strings.NewReplacer(toPage...).Replace(out.String())
		if errs.Len() > 0 {
			t.Errorf("%s: %s", query, &errs)
		}
		if *update {
			shown = got
		} else if moving.ReplaceAllString(got, "") != moving.ReplaceAllString(shown, "") {
			t.Errorf("%s: the page shows\n%s\nit is (run with -update)\n%s", query, shown, got)
		}
		return head + "'\n" + shown + "```"
	})
	if n := strings.Count(page, "\nverdict: "); n < 7 {
		t.Errorf("only %d examples end with a verdict", n)
	}
	for _, mode := range []plan.Mode{plan.ModePass, plan.ModeSplice, plan.ModePush, plan.ModeRaw} {
		if !strings.Contains(page, "'\n"+string(mode)+" ") {
			t.Errorf("there is no example of %s", mode)
		}
	}
	if *update {
		if err := os.WriteFile(explainPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestExplainRefusedRun: of a query that a bound refuses once it runs, what was seen and what to
// ask in its place is told, as the API tells it.
func TestExplainRefusedRun(t *testing.T) {
	t.Parallel()
	p, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	load := "load 15s\n  up{job=\"node\", node=\"n1\"} 1x90\n  up{job=\"node\", node=\"n2\"} 1x90\n"
	if err := p.LoadAt(load, time.Now().Add(-20*time.Minute)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	config := "groups: [{name: main, labels: {cluster: main}, shards: [{replicas: [{url: '" + p.URL() + "'}]}]}]\nlimits: {max_series: 1, rewrites: off}\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args           []string
		stdout, stderr string // regular expressions
	}{
		{
			[]string{"up"}, `seen: at least 2, where max_series is 1
verdict: refused: the answer has more series than max_series allows \(1\); add a label matcher, .*
`, "",
		},
		{[]string{"up", "--format=json"}, `(?s)\{
  "status": "error",.*"bound": "max_series",
    "value": "1",
    "seen": "at least 2",
    "advice": "add .*\}
`, ""},
		{[]string{"up{"}, "", "spillway: .*parse error: .*\n"},
	} {
		var out, errs bytes.Buffer
		args := append([]string{"explain", "--config.file=" + file, "--analyze"}, c.args...)
		if code := Spillway.Run(t.Context(), t.Context(), args, &out, &errs); code != 1 {
			t.Errorf("%q: exit code %d", c.args, code)
		}
		if !regexp.MustCompile("^" + c.stdout + "$").Match(out.Bytes()) {
			t.Errorf("%q: it says\n%s\nwant\n%s", c.args, &out, c.stdout)
		}
		if !regexp.MustCompile("^" + c.stderr + "$").Match(errs.Bytes()) {
			t.Errorf("%q: on stderr it says\n%s\nwant\n%s", c.args, &errs, c.stderr)
		}
	}
}
