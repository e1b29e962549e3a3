package dashboards

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/dashboards"
	"github.com/spillwayproject/spillway/dashboards/live"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	mixin "github.com/spillwayproject/spillway/jsonnet"
	"github.com/spillwayproject/spillway/loadtest/bench"
	"github.com/spillwayproject/spillway/loadtest/cluster"
	"github.com/spillwayproject/spillway/loadtest/rules"
)

func TestMain(m *testing.M) { realpromtest.Main(m) }

func TestResult(t *testing.T) {
	quick := Panel{Dashboard: "a", Title: "quick", Took: bench.Took{Median: time.Second}}
	slow := Panel{Dashboard: "a", Title: "slow", Took: bench.Took{Median: 3 * time.Second}}
	recorded := Panel{Dashboard: "a", Title: "recorded", Took: bench.Took{Median: 3 * time.Second}, Recorded: true}
	refused := Panel{Dashboard: "a", Title: "refused", Took: bench.Took{Err: errors.New("too many series")}}
	for name, c := range map[string]struct {
		panels []Panel
		want   []string // nothing: all is well
	}{
		"none asked": {nil, []string{"no panel"}},
		"well":       {[]Panel{quick, recorded}, nil},
		"slow":       {[]Panel{quick, slow}, []string{`"slow" takes 3.0 s`}},
		"refused":    {[]Panel{refused, slow}, []string{"too many series", `"slow"`}},
	} {
		err := (&Result{Panels: c.panels, Bound: 2 * time.Second}).Err()
		if (err == nil) != (len(c.want) == 0) {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %q", name, err, want)
			}
		}
	}
	var b bytes.Buffer
	r := &Result{
		Rules: &rules.Result{Nodes: 7500, Series: 5_000_000, Shards: 4}, Panels: []Panel{refused, slow, quick},
		Bound: 2 * time.Second,
	}
	if err := r.WriteMarkdown(&b); err != nil || !strings.Contains(b.String(), "3 panels over 5000000 series of 7500 nodes") ||
		!strings.Contains(b.String(), "; 2 over 2s") ||
		!strings.Contains(b.String(), "| a | refused | 0 | 0 |  | not answered |") {
		t.Errorf("%v:\n%s", err, b.String())
	}
}

func TestReadsRecorded(t *testing.T) {
	for expr, want := range map[string]bool{
		`sum(up)`: false, `max(node:ready:max{cluster=~"a"})`: true, `rate(x_total[5m]) / on () group_left () cluster:nodes:count`: true, `label_replace(up, "a:b", "", "c", "")`: false,
	} {
		if got, err := readsRecorded(expr); err != nil || got != want {
			t.Errorf("%s: %v, %v", expr, got, err)
		}
	}
	if _, err := readsRecorded(`sum(`); err == nil {
		t.Error("what is no PromQL was read")
	}
}

func TestValidate(t *testing.T) {
	err := Options{Asking: bench.Asking{Window: time.Second, Times: -1, Bound: -1}}.Validate()
	for _, want := range []string{"window: 1s", "times: -1", "bound: -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// TestMeasure: the real thing, small. Durations of the rules are a thirtieth, so that everything is
// recorded within seconds.
func TestMeasure(t *testing.T) {
	binary := realpromtest.Spillway(t)
	config := filepath.Join(t.TempDir(), "values.json")
	if err := os.WriteFile(config, []byte(`{"timeScale": 30}`), 0o600); err != nil {
		t.Fatal(err)
	}
	rendered, err := mixin.Render(mixin.Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for name, text := range rendered {
		if strings.Contains(name, "global/") {
			files[path.Base(name)] = text
		}
	}
	var shown bool
	r, err := Measure(t.Context(), rules.Options{
		Servers: bench.Servers{Spillway: binary, Nodes: 12, Shards: 2, Interval: 15 * time.Second, Dir: t.TempDir(), Say: t.Logf},
		Files:   files, Past: 10 * time.Minute, Run: 40 * time.Second,
		Troubles: func(_ *cluster.Model, now time.Time) []cluster.Trouble {
			down := cluster.Trouble{Kind: cluster.NodeDown, Target: "gpu-00002", From: now.Add(-8 * time.Minute), Until: now.Add(time.Hour)}
			return []cluster.Trouble{down}
		},
	}, Options{
		Asking: bench.Asking{Window: 5 * time.Minute, Times: 1, Bound: time.Hour},
		Then: func(ctx context.Context, api string, until time.Time) error {
			q := live.Question{Expr: `up{job="node-exporter",node="gpu-00002"} == 0`, To: until}
			a, err := live.NewSource("the proxy", api).Ask(ctx, q)
			shown = err == nil && len(a.Series) == 1
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if !shown {
		t.Error("afterwards the proxy does not know of the node that was down")
	}
	asked, series := map[string]bool{}, 0
	for _, p := range r.Panels {
		asked[p.Dashboard] = true
		series += p.Series
		if p.Queries == 0 || p.Median <= 0 || p.Max < p.Median {
			t.Errorf("%+v", p)
		}
	}
	if len(asked) != len(dashboards.Names()) || series < len(r.Panels) {
		t.Errorf("%d dashboards, %d panels, %d series", len(asked), len(r.Panels), series)
	}
}
