package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

const hostile = "<b>\"x\"\\ .*|\n\u202eé"

// TestTruth: what Pods, GPU and Xids say is what the pages show at many moments, names of Called
// among it, on both instances of kube-state-metrics.
func TestTruth(t *testing.T) {
	from := testUntil.Add(-8 * time.Hour)
	o := Options{Seed: 9, Nodes: 24, KubeStateMetrics: 2, Troubles: []Trouble{{
		Kind: GPUXidFatal, Target: "gpu-00003/5", Value: 95,
		From: testUntil.Add(-5 * time.Hour), Until: testUntil.Add(-4 * time.Hour),
	}}}
	names := mustNew(t, o).Experiments(from, testUntil)
	o.Called = map[string]Called{
		names[0].Name: {Experiment: hostile, Team: "t\n"}, names[1].Name: {Experiment: "both"},
		names[2].Name: {Experiment: "both"},
	}
	m := mustNew(t, o)
	pods := m.Pods(from, testUntil)
	seen, codes := map[string]bool{}, map[int]bool{}
	for at := from; at.Before(testUntil); at = at.Add(13 * time.Minute) {
		want := map[string]string{}
		for _, p := range pods {
			if at.Before(p.Created) || !at.Before(p.Removed) {
				continue
			}
			node, phase := p.Node, "Pending"
			switch {
			case p.Scheduled.IsZero() || at.Before(p.Scheduled):
				node = ""
			case p.Started.IsZero() || at.Before(p.Started):
			case at.Before(p.Ended):
				phase = "Running"
			case p.Failed:
				phase = "Failed"
			default:
				phase = "Succeeded"
			}
			restarts := 0
			for _, r := range p.Restarts {
				if !at.Before(r.Until) {
					restarts++
				}
			}
			want[p.UID] = fmt.Sprintf("%s/%s on %q with %d GPUs is %s, of %q, restarts %d", p.Namespace, p.Name, node, len(p.GPUs), phase, p.Experiment, restarts)
			seen[phase] = true
		}
		instances := 0
		for _, tg := range m.Targets() {
			switch tg.Job {
			case JobKubeStateMetrics:
				instances++
				if got := podsOf(t, m, tg, at); !maps.Equal(got, want) {
					t.Fatalf("%s at %s: the page shows\n%v\nand the truth is\n%v", tg.Instance, at, got, want)
				}
			case JobDCGM:
				checkGPUs(t, m, tg, at, codes)
			}
		}
		if instances != 2 {
			t.Fatalf("%d instances of kube-state-metrics", instances)
		}
	}
	for _, phase := range []string{"Pending", "Running", "Failed", "Succeeded"} {
		if !seen[phase] {
			t.Errorf("no pod was ever %s: the test saw nothing of it", phase)
		}
	}
	if !codes[95] || len(codes) < 3 {
		t.Errorf("Xids %v were seen; the staged 95 and two more were to be", codes)
	}
	called := map[string]int{}
	for _, p := range pods {
		if p.Experiment != p.Gang {
			called[p.Experiment]++
		}
		if p.Experiment == hostile && p.Team != "t\n" {
			t.Errorf("%+v has not the team that it was given", p)
		}
	}
	if called[hostile] == 0 || called["both"] < 2 || len(called) != 2 {
		t.Errorf("pods by name given: %v", called)
	}
}

// podsOf is what a page of kube-state-metrics tells of the pods of experiments, by uid.
func podsOf(t *testing.T, m *Model, tg Target, at time.Time) map[string]string {
	t.Helper()
	type row struct {
		at, node, phase, experiment string
		gpus, restarts              float64
	}
	rows := map[string]*row{}
	of := func(l labels.Labels) *row {
		uid := l.Get("uid")
		if rows[uid] == nil {
			rows[uid] = &row{}
		}
		return rows[uid]
	}
	err := m.Series(tg, at, func(l labels.Labels, v float64, _ metricType) {
		switch l.Get(model.MetricNameLabel) {
		case "kube_pod_info":
			of(l).node, of(l).at = l.Get("node"), l.Get("namespace")+"/"+l.Get("pod")
		case "kube_pod_status_phase":
			if v == 1 {
				of(l).phase = l.Get("phase")
			}
		case "kube_pod_labels":
			of(l).experiment = l.Get("label_experiment")
			if of(l).experiment == "" {
				of(l).experiment = l.Get("label_jobset_sigs_k8s_io_jobset_name")
			}
		case "kube_pod_container_resource_requests":
			if l.Get("resource") == "nvidia_com_gpu" {
				of(l).gpus = v
			}
		case "kube_pod_container_status_restarts_total":
			of(l).restarts = v
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for uid, r := range rows {
		if r.experiment != "" {
			out[uid] = fmt.Sprintf("%s on %q with %v GPUs is %s, of %q, restarts %v", r.at, r.node, r.gpus, r.phase, r.experiment,
				r.restarts)
		}
	}
	return out
}

// checkGPUs compares a node's GPUs and their last Xids.
func checkGPUs(t *testing.T, m *Model, tg Target, at time.Time, codes map[int]bool) {
	t.Helper()
	node := tg.Labels.Get("node")
	xids, err := m.Xids(node, at.Add(-30*24*time.Hour), at.Add(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	boots := m.Troubles(NodeDown, node, at.Add(-30*24*time.Hour), at)
	last := map[int]int{}
	for _, x := range xids {
		// A machine that was started since has forgotten.
		if !slices.ContainsFunc(boots, func(b Trouble) bool { return b.Until.After(x.At) && !b.Until.After(at) }) {
			last[x.GPU] = x.Code
		}
	}
	err = m.Series(tg, at, func(l labels.Labels, v float64, _ metricType) {
		if l.Get(model.MetricNameLabel) != "DCGM_FI_DEV_XID_ERRORS" {
			return
		}
		var gpu int
		if _, err := fmt.Sscan(l.Get("gpu"), &gpu); err != nil {
			t.Fatal(err)
		}
		g, err := m.GPU(node, gpu)
		if err != nil || g.UUID != l.Get("UUID") || g.Model != l.Get("modelName") {
			t.Errorf("%s/%d: %+v, %v; the page says %s", node, gpu, g, err, l)
		}
		if int(v) != last[gpu] {
			t.Errorf("%s/%d at %s: the page's last Xid is %v, that of the truth %d", node, gpu, at, v, last[gpu])
		}
		codes[int(v)] = true
	})
	if err != nil && !strings.Contains(err.Error(), "answer") {
		t.Fatal(err)
	}
}

// TestFirstGang: the first pool is as wide as one asks, and the others as ever.
func TestFirstGang(t *testing.T) {
	m := mustNew(t, Options{Seed: 3, Nodes: 300, FirstGang: 200})
	wide, others := 0, 0
	for _, e := range m.Experiments(testUntil.Add(-12*time.Hour), testUntil) {
		switch n := len(e.Nodes); {
		case n == 200 && e.Nodes[0] == "gpu-00000" && e.GPUs == 8:
			wide++
		case n > 64:
			t.Errorf("%s has %d nodes", e.Name, n)
		default:
			others++
		}
	}
	if wide == 0 || others == 0 {
		t.Errorf("%d wide gangs and %d others", wide, others)
	}
	for want, o := range map[string]Options{
		"first_gang: 9":             {Nodes: 8, FirstGang: 9},
		"kube_state_metrics: -1":    {Nodes: 8, KubeStateMetrics: -1},
		`called["a"].experiment`:    {Nodes: 8, Called: map[string]Called{"a": {}}},
		"gpu-00000 to gpu-00007":    {Nodes: 8},
		"GPUs 0 to 7, and no 8":     {Nodes: 8},
		"no \"gpu-7\"":              {Nodes: 8},
		"no \"gpu-00008\"":          {Nodes: 8},
		"gpu-00000 has GPUs 0 to 7": {Nodes: 8},
	} {
		m, err := New(o)
		if err == nil {
			_, e1 := m.GPU("gpu-00000", 8)
			_, e2 := m.Xids("gpu-7", testUntil, testUntil)
			_, e3 := m.GPU("gpu-00008", 0)
			err = fmt.Errorf("%w; %w; %w", e1, e2, e3)
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
}
