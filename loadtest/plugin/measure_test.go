package plugin

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/loadtest/bench"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

func TestMain(m *testing.M) { realpromtest.Main(m) }

func TestResult(t *testing.T) {
	quick, slow := View{Name: "quick", Took: bench.Took{Median: time.Second}}, View{Name: "slow", Took: bench.Took{Median: 3 * time.Second}}
	refused := View{Name: "refused", Took: bench.Took{Err: errors.New("too many series")}}
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
	r := &Result{
		Nodes: 7500, Shards: 4, Series: 3, ExperimentGPUs: 4000, ExperimentNodes: 500, SlowGPUs: 50, Torn: 5 * time.Minute,
		Window: time.Hour, Views: []View{refused, quick}, ProxyPeak: 3 << 20,
	}
	if err := r.WriteMarkdown(&b); err != nil || !strings.Contains(b.String(), "4000 GPUs on 500 nodes, in 3 series of 7500 nodes") ||
		!strings.Contains(b.String(), "| refused | 0 | 0 | 0 | not answered |") ||
		!strings.Contains(b.String(), "| quick | 0 | 0 | 0 | 1.00 s |") ||
		!strings.Contains(b.String(), "\n50 of its GPUs do half of their work") ||
		!strings.Contains(b.String(), "looked at 5m0s after") {
		t.Errorf("%v:\n%s", err, b.String())
	}
}

func TestValidate(t *testing.T) {
	err := Options{
		Servers: bench.Servers{Nodes: 4, Shards: -1, Interval: time.Hour},
		Asking:  bench.Asking{Window: time.Second, Times: -1, Bound: -1}, Gang: 9,
	}.Validate()
	for _, want := range []string{
		"binary is missing", "nodes: 4", "gang: 9", "shards: -1", "window: 1s", "interval: 1h", "times: -1",
		"bound: -1ns",
	} {
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

// TestSee: an answer without rows is one only where there is nothing to be seen, and then it says
// so.
func TestSee(t *testing.T) {
	frame := func(rows int, notices ...data.Notice) data.Frames {
		f := data.NewFrame("", data.NewField("pod", nil, make([]string, rows)))
		f.Meta = &data.FrameMeta{ExecutedQueryString: "up\nsum(up)", Notices: notices}
		return data.Frames{f}
	}
	none := data.Notice{Text: "There are no pods."}
	for name, c := range map[string]struct {
		empty  bool
		frames data.Frames
		want   string
	}{
		"rows":                {false, frame(3), ""},
		"no rows":             {false, frame(0, none), "its time says nothing"},
		"empty":               {true, frame(0, none), ""},
		"empty, without word": {true, frame(0), "nothing says so"},
		"not empty":           {true, frame(3), "there are 3 rows"},
	} {
		var v View
		err := v.see(question{empty: c.empty}, c.frames)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || v.Queries != 2 || v.Frames != 1 {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
}

// TestFindPast: all that is staged is there at the time at which it is looked for, whatever the
// seed.
func TestFindPast(t *testing.T) {
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	for seed := range uint64(4) {
		o := Options{Servers: bench.Servers{Nodes: 60, Seed: seed}, Asking: bench.Asking{Window: 20 * time.Minute}, Gang: 21}.withDefaults()
		p, err := o.findPast(now)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
			continue
		}
		if e := p.runs[0]; len(e.Nodes) != 21 || p.slow != 3 || waiting(p.model, e, p.whole) != 0 || waiting(p.model, e, p.torn) != 10 {
			t.Errorf("seed %d: %+v, %d slow GPUs, %d and %d pods wait", seed, e, p.slow, waiting(p.model, e, p.whole),
				waiting(p.model, e, p.torn))
		}
		xids, err := p.model.Xids(p.runs[0].Nodes[1], p.whole.Add(-o.Window), p.whole)
		if err != nil || !slices.ContainsFunc(xids, func(x cluster.Xid) bool { return x.Code == 63 && x.GPU == 2 }) {
			t.Errorf("seed %d: Xids %v, %v", seed, xids, err)
		}
	}
}

// TestFindPastAtAnyTime: one of the runs that are compared began within what is written, at
// whatever time the benchmark begins: a comparison draws no other.
func TestFindPastAtAnyTime(t *testing.T) {
	for k := range 12 {
		now := time.Date(2026, 11, 30, 0, 51, 0, 0, time.UTC).Add(time.Duration(k) * 47 * time.Minute)
		o := Options{Servers: bench.Servers{Nodes: 24}, Asking: bench.Asking{Window: 20 * time.Minute}, Gang: 8}.withDefaults()
		p, err := o.findPast(now)
		if err != nil {
			t.Errorf("%s: %v", now, err)
			continue
		}
		known := p.whole.Add(-o.Window - before + 5*time.Minute)
		if !slices.ContainsFunc(compared(p.runs), func(e cluster.Experiment) bool { return e.Runs[0].From.After(known) }) {
			t.Errorf("%s: all of %+v may be older than what is known at %s", now, compared(p.runs), p.whole)
		}
	}
}

// TestMeasure: the real thing, small.
func TestMeasure(t *testing.T) {
	r, err := Measure(t.Context(), Options{
		Servers: bench.Servers{Spillway: realpromtest.Spillway(t), Nodes: 24, Shards: 2, Dir: t.TempDir(), Say: t.Logf},
		Asking:  bench.Asking{Window: 20 * time.Minute, Times: 1, Bound: time.Hour}, Gang: 8,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	rows := map[string]int{}
	for _, v := range r.Views {
		rows[v.Name] = v.Rows
		if v.Median <= 0 || v.Max < v.Median || v.Queries == 0 {
			t.Errorf("%+v", v)
		}
	}
	if r.ExperimentGPUs != 64 || r.ExperimentNodes != 8 || r.SlowGPUs != 1 || r.Torn != 5*time.Minute || r.Series < 24*300 ||
		r.ProxyPeak == 0 {
		t.Errorf("%+v", r)
	}
	// The pods of before are gone when half of the new ones wait.
	for name, want := range map[string]int{
		"pods": 8, "nodes": 8, "pending": 4, "stragglers": r.SlowGPUs,
		"pending while all run (empty)": 0,
	} {
		if n, ok := rows[name]; !ok || n != want {
			t.Errorf("%s has %d rows, not %d; all: %v", name, n, want, rows)
		}
	}
	if rows["events"] < 3 { // a node that was not ready, an Xid, a gang made anew
		t.Errorf("%d events", rows["events"])
	}
}
