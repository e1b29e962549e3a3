package plugin

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

func TestMain(m *testing.M) { realpromtest.Main(m) }

func TestResult(t *testing.T) {
	quick, slow, refused := View{Name: "quick", Median: time.Second}, View{Name: "slow", Median: 3 * time.Second}, View{Name: "refused", Err: errors.New("too many series")}
	for name, c := range map[string]struct {
		views []View
		want  []string // nothing: all is well
	}{
		"none asked": {nil, []string{"no view"}},
		"well":       {[]View{quick}, nil},
		"slow":       {[]View{quick, slow}, []string{"slow takes 3.00 s, over 2s"}},
		"refused":    {[]View{refused, slow}, []string{"refused: too many series", "slow takes"}},
	} {
		err := (&Result{Views: c.views, Bound: 2 * time.Second}).Err()
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
	r := &Result{Nodes: 7500, Shards: 4, Series: 3, ExperimentGPUs: 4000, ExperimentNodes: 500, Window: time.Hour, Views: []View{refused, quick}, ProxyPeak: 3 << 20}
	if err := r.WriteMarkdown(&b); err != nil || !strings.Contains(b.String(), "4000 GPUs on 500 nodes, in 3 series of 7500 nodes") || !strings.Contains(b.String(), "| refused | 0 | 0 | 0 | not answered |") ||
		!strings.Contains(b.String(), "| quick | 0 | 0 | 0 | 1.00 s |") {
		t.Errorf("%v:\n%s", err, b.String())
	}
}

func TestValidate(t *testing.T) {
	err := Options{Nodes: 4, Gang: 9, Shards: -1, Window: time.Second, Interval: time.Hour, Times: -1, Bound: -1}.Validate()
	for _, want := range []string{"binary is missing", "nodes: 4", "gang: 9", "shards: -1", "window: 1s", "interval: 1h", "times: -1", "bound: -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestSound(t *testing.T) {
	for executed, want := range map[string]string{
		"up\nsum(experiment:pod:gpus) + node:gpu_model:info": "",
		"up\na:b:c > 1": "a:b:c is read",
		"sum(":          "no PromQL",
	} {
		if err := sound(executed); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", executed, err)
		}
	}
}

// TestQuestions: every type of query and every view is asked.
func TestQuestions(t *testing.T) {
	runs := []cluster.Experiment{{Name: "wide-1", Team: "vision"}, {Name: "other-2"}}
	asked := map[string]bool{}
	for _, q := range questions(runs) {
		if asked[q.name] {
			t.Errorf("two views are called %q", q.name)
		}
		asked[q.name] = true
		asked[string(q.query.Type)] = true
		asked[string(q.query.Type)+"/"+q.query.View] = true
	}
	for _, kind := range model.QueryTypes {
		if !asked[string(kind)] {
			t.Errorf("%s is not asked", kind)
		}
		for _, v := range model.Views[kind] {
			if !asked[string(kind)+"/"+v] {
				t.Errorf("%s, %s is not asked", kind, v)
			}
		}
	}
}

// TestMeasure: the real thing, small.
func TestMeasure(t *testing.T) {
	r, err := Measure(t.Context(), Options{Spillway: realpromtest.Spillway(t), Nodes: 24, Gang: 8, Shards: 2, Window: 20 * time.Minute, Times: 1, Bound: time.Hour, Dir: t.TempDir(), Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	rows := 0
	for _, v := range r.Views {
		rows += v.Rows
		if v.Median <= 0 || v.Max < v.Median || v.Queries == 0 {
			t.Errorf("%+v", v)
		}
	}
	if r.ExperimentGPUs != 64 || r.ExperimentNodes != 8 || r.Series < 24*300 || rows < 100 || r.ProxyPeak == 0 {
		t.Errorf("%+v", r)
	}
}
