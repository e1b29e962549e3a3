package cluster

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
)

// Over an hour counters only rise, except over a start of their process, and
// every histogram is cumulative, ends in +Inf and agrees with its count.
func TestCountersAndHistograms(t *testing.T) {
	m := mustNew(t, Options{Seed: 2, Nodes: 2, Detail: Full})
	last := map[string]float64{}
	lastStart := map[string]int64{}
	checked, resets := 0, 0
	for at := testUntil.Add(-time.Hour); !at.After(testUntil); at = at.Add(15 * time.Minute) {
		for i, tg := range m.Targets() {
			if tg.node > 0 || tg.ord > 0 {
				continue
			}
			p := m.compiler(at.UnixMilli(), at.UnixMilli(), false).page(&m.targets[i])
			started := p.pr.starts[0]
			if p.machine != nil {
				started = max(started, p.machine.starts[0])
			}
			id := tg.Job + tg.Instance
			restarted := lastStart[id] != started
			lastStart[id] = started
			type hist struct {
				le   []float64
				n    []float64
				sum  float64
				got  float64
				seen int
			}
			hists := map[string]*hist{}
			err := m.Series(tg, at, func(l labels.Labels, v float64, typ metricType) {
				name := l.Get(model.MetricNameLabel)
				if math.IsNaN(v) || math.IsInf(v, 0) || (v < 0 && typ != model.MetricTypeGauge) {
					t.Fatalf("%s is %v", l, v)
				}
				if typ == model.MetricTypeCounter || typ == model.MetricTypeHistogram {
					k := id + l.String()
					if was, ok := last[k]; ok && v < was {
						if resets++; !restarted && !strings.HasPrefix(name, "container_") {
							t.Fatalf("%s fell from %v to %v at %s", l, was, v, at)
						}
					}
					last[k] = v
					checked++
				}
				if typ == model.MetricTypeHistogram {
					key := labels.NewBuilder(l).Del("le", model.MetricNameLabel).Labels().String()
					fam := familyName(name)
					h := hists[fam+key]
					if h == nil {
						h = &hist{}
						hists[fam+key] = h
					}
					switch {
					case l.Has("le"):
						var f float64
						if _, err := fmt.Sscan(l.Get("le"), &f); err != nil {
							t.Fatal(err)
						}
						h.le, h.n = append(h.le, f), append(h.n, v)
					case strings.HasSuffix(name, "_sum"):
						h.sum = v
						h.seen++
					default:
						h.got = v
						h.seen++
					}
				}
			})
			if err != nil {
				t.Log(err)
				continue
			}
			for k, h := range hists {
				n := len(h.n)
				if h.seen != 2 || n == 0 || !math.IsInf(h.le[n-1], 1) || h.n[n-1] != h.got || !sort.Float64sAreSorted(h.le) ||
					!sort.Float64sAreSorted(h.n) {
					t.Fatalf("histogram %s is not consistent: %+v", k, h)
				}
				if h.got > 100 && h.sum <= 0 {
					t.Fatalf("histogram %s: %v observations add up to %v", k, h.got, h.sum)
				}
			}
		}
	}
	t.Logf("%d counter values, %d resets", checked, resets)
	if checked < 10000 {
		t.Error("hardly a counter was seen")
	}
}

// familyName is the family of a histogram's sample. One suffix only:
// kubelet_containers_per_pod_count is a family.
func familyName(sample string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if s, ok := strings.CutSuffix(sample, suffix); ok {
			return s
		}
	}
	return sample
}

// While an experiment's pods run its GPUs are busy, name the pod and draw
// power; GPUs without a pod are idle.
func TestExperimentsKeepGPUsBusy(t *testing.T) {
	m := mustNew(t, Options{Seed: 9, Nodes: 24})
	from, until := testUntil.Add(-6*time.Hour).UnixMilli(), testUntil.UnixMilli()
	exps := m.Experiments(testUntil.Add(-6*time.Hour), testUntil)
	running := func(node string, at int64) map[string]Experiment {
		out := map[string]Experiment{}
		for _, e := range exps {
			for i, n := range e.Nodes {
				for _, r := range e.Runs {
					if n == node && at >= r.From.UnixMilli() && at < r.Until.UnixMilli() {
						out[fmt.Sprintf("%s-w-%d", e.Name, i)] = e
					}
				}
			}
		}
		return out
	}
	busyGPUs, idleGPUs, phases := 0, 0, map[string]int{}
	for at := from; at < until; at += 37 * 60e3 {
		requested := map[string]float64{}
		for _, tg := range m.Targets() {
			node := tg.Labels.Get("node")
			switch tg.Job {
			case JobDCGM:
				want := running(node, at)
				got, readings := map[string]int{}, 0
				err := m.Series(tg, time.UnixMilli(at), func(l labels.Labels, v float64, _ metricType) {
					if l.Get(model.MetricNameLabel) != "DCGM_FI_DEV_GPU_UTIL" || v == blankInt64 {
						return
					}
					readings++
					pod := l.Get("pod")
					if pod == "" {
						idleGPUs++
						if v > 5 {
							t.Errorf("%s has no pod and is %v %% busy", l, v)
						}
						return
					}
					got[pod]++
					e, ok := want[pod]
					switch {
					case !ok:
						t.Errorf("%s runs no experiment at %d", l, at)
					case v < 40 || v > 100:
						// In-place restarts of rank 0 are the one exception.
						if !strings.HasSuffix(pod, "-w-0") {
							t.Errorf("%s of %s is %v %% busy", l, e.Name, v)
						}
					default:
						busyGPUs++
					}
				})
				if err == nil && (readings > 8 || readings < 6) { // a blank one is left out above
					t.Errorf("%s at %d: %d readings of 8 GPUs", node, at, readings)
				}
				if err == nil && len(got) != len(want) {
					t.Errorf("%s at %d: GPUs name %v, running are %v", node, at, got, want)
				}
			case JobKubeStateMetrics:
				err := m.Series(tg, time.UnixMilli(at), func(l labels.Labels, v float64, _ metricType) {
					switch l.Get(model.MetricNameLabel) {
					case "kube_pod_status_phase":
						if v == 1 {
							phases[l.Get("phase")]++
						}
					case "kube_pod_container_resource_requests":
						if l.Get("resource") == "nvidia_com_gpu" && l.Get("node") != "" {
							requested[l.Get("node")] += v
						}
					}
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		for node, n := range requested {
			if n > 2*8 {
				t.Errorf("%s at %d: %v GPUs requested of 8", node, at, n)
			}
		}
	}
	t.Logf("%d experiments; GPU readings: %d busy, %d idle; pods by phase: %v", len(exps), busyGPUs, idleGPUs, phases)
	if busyGPUs == 0 || idleGPUs == 0 || phases["Pending"] == 0 || phases["Running"] == 0 || phases["Failed"]+phases["Succeeded"] == 0 {
		t.Error("the cluster is not in the states that it should show")
	}
}

// A staged trouble goes through the same time line as chance.
func TestTroubles(t *testing.T) {
	base := mustNew(t, Options{Seed: 1, Nodes: 8})
	var victim Experiment
	for _, e := range base.Experiments(testUntil.Add(-2*time.Hour), testUntil) {
		for _, r := range e.Runs {
			if r.Until.Sub(r.From) > 40*time.Minute && victim.Name == "" {
				victim = e
				victim.Runs = []Span{r}
			}
		}
	}
	if victim.Name == "" {
		t.Fatal("no experiment runs for 40 minutes")
	}
	at := victim.Runs[0].From.Add(20 * time.Minute)
	node := victim.Nodes[0]
	m := mustNew(t, Options{Seed: 1, Nodes: 8, Troubles: []Trouble{
		{Kind: PodFailure, Target: victim.Name, From: at, Until: at.Add(time.Minute), Value: 94},
		{Kind: NodeDown, Target: "gpu-00007", From: at, Until: at.Add(5 * time.Minute)},
		{Kind: ProcessRestart, Target: "kube-apiserver/10.0.0.10:6443", From: at, Until: at.Add(30 * time.Second)},
	}})
	value := func(job, node, name string, at time.Time, match ...string) (float64, bool) {
		var out float64
		found := false
		for _, tg := range m.Targets() {
			if tg.Job != job || (node != "" && tg.Labels.Get("node") != node) || tg.ord != 0 {
				continue
			}
			_ = m.Series(tg, at, func(l labels.Labels, v float64, _ metricType) { // down: nothing found
				for i := 0; i < len(match); i += 2 {
					if l.Get(match[i]) != match[i+1] {
						return
					}
				}
				if l.Get(model.MetricNameLabel) == name {
					out, found = v, true
				}
			})
		}
		return out, found
	}
	for _, later := range []time.Duration{time.Second, 2 * time.Hour} {
		if v, _ := value(JobDCGM, node, "DCGM_FI_DEV_XID_ERRORS", at.Add(later), "err_code", "94"); v != 94 {
			t.Errorf("%s after the failure the Xid gauge of %s is %v, not 94: it should stick", later, node, v)
		}
	}
	if _, ok := value(JobDCGM, node, "DCGM_EXP_XID_ERRORS_COUNT", at.Add(time.Minute), "xid", "94"); !ok {
		t.Error("the Xid is not counted in its window")
	}
	if _, ok := value(JobDCGM, node, "DCGM_EXP_XID_ERRORS_COUNT", at.Add(10*time.Minute), "xid", "94"); ok {
		t.Error("the Xid is still counted after its window")
	}
	if v, ok := value(JobKubeStateMetrics, "", "kube_node_status_condition", at.Add(2*time.Minute), "node", "gpu-00007", "condition",
		"Ready", "status", "unknown"); !ok || v != 1 {
		t.Errorf("a node that is down is not shown as such: %v %v", v, ok)
	}
	if _, ok := value(JobNode, "gpu-00007", "node_boot_time_seconds", at.Add(2*time.Minute)); ok {
		t.Error("a node that is down answers")
	}
	if v, _ := value(JobNode, "gpu-00007", "node_boot_time_seconds",
		at.Add(6*time.Minute)); v != float64(at.Add(5*time.Minute).UnixMilli())/1000 {
		t.Errorf("boot time is %v", v)
	}
	before, _ := value(JobAPIServer, "", "process_cpu_seconds_total", at.Add(-time.Second))
	after, ok := value(JobAPIServer, "", "process_cpu_seconds_total", at.Add(time.Minute))
	if !ok || after >= before {
		t.Errorf("the API server was restarted and counts on: %v, %v", before, after)
	}
}

func TestValidate(t *testing.T) {
	for name, o := range map[string]Options{
		"no nodes":        {},
		"too many nodes":  {Nodes: 1e6},
		"unknown card":    {Nodes: 1, GPUModels: []string{"RTX"}},
		"unknown trouble": {Nodes: 1, Troubles: []Trouble{{Kind: "Flood", Target: "x", From: testUntil, Until: testUntil.Add(1)}}},
		"empty trouble":   {Nodes: 1, Troubles: []Trouble{{Kind: NodeDown, From: testUntil, Until: testUntil.Add(1)}}},
		"trouble ends":    {Nodes: 1, Troubles: []Trouble{{Kind: NodeDown, Target: "x", From: testUntil, Until: testUntil}}},
		"share":           {Nodes: 1, IdleShare: math.NaN()},
		"detail":          {Nodes: 1, Detail: 7},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	_, err := New(Options{GPUsPerNode: 99})
	if err == nil || !strings.Contains(err.Error(), "nodes:") || !strings.Contains(err.Error(), "gpus_per_node:") {
		t.Errorf("not all problems at once: %v", err)
	}
}

// Shard is what Prometheus' own relabelling computes.
func TestShardIsHashmod(t *testing.T) {
	m := mustNew(t, Options{Nodes: 50})
	for _, n := range []int{1, 2, 3, 4, 16} {
		used := map[int]int{}
		for _, tg := range m.Targets() {
			source := "node"
			if !tg.Labels.Has("node") {
				source = "instance"
			}
			cfg := &relabel.Config{
				SourceLabels: model.LabelNames{model.LabelName(source)}, Separator: ";", Regex: relabel.DefaultRelabelConfig.Regex,
				Modulus: uint64(n), TargetLabel: "__tmp_shard", Action: relabel.HashMod, Replacement: "$1",
			}
			if err := cfg.Validate(model.UTF8Validation); err != nil {
				t.Fatal(err)
			}
			b := labels.NewBuilder(targetLabels(&tg, labels.EmptyLabels()))
			if !relabel.ProcessBuilder(b, cfg) {
				t.Fatal("dropped")
			}
			got := Shard(tg, n)
			if want := b.Labels().Get("__tmp_shard"); want != fmt.Sprint(got) {
				t.Fatalf("%s/%s of %d: %d, Prometheus says %s", tg.Job, tg.Instance, n, got, want)
			}
			used[got]++
		}
		if len(used) != n {
			t.Errorf("%d shards: only %v are used", n, used)
		}
	}
}

// The same Xid twice on one GPU within five minutes is one series that counts two while both are in
// the window.
func TestXidCounts(t *testing.T) {
	got := xidCounts([]event{
		{from: 0, value: 13},
		{from: 100 * second, value: 13},
		{from: 150 * second, value: 94},
		{from: 1000 * second, value: 13},
	})
	want := []xidCount{
		{13, 1, 0, 100 * second},
		{13, 2, 100 * second, 300 * second},
		{13, 1, 300 * second, 400 * second},
		{13, 1, 1000 * second, 1300 * second},
		{94, 1, 150 * second, 450 * second},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
