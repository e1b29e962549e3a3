package cluster

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// look returns the sum of the matching series of a job at a moment, and how
// many they are. Matchers are names and values in turn.
func look(t *testing.T, m *Model, at time.Time, job, name string, match ...string) (v float64, n int) {
	t.Helper()
	for _, tg := range m.Targets() {
		if tg.Job != job {
			continue
		}
		_ = m.Series(tg, at, func(l labels.Labels, x float64, _ metricType) { // down: nothing is there
			if l.Get(model.MetricNameLabel) != name {
				return
			}
			b := labels.NewBuilder(l)
			tg.Labels.Range(func(x labels.Label) { b.Set(x.Name, x.Value) })
			l = b.Labels()
			for i := 0; i < len(match); i += 2 {
				if l.Get(match[i]) != match[i+1] {
					return
				}
			}
			v, n = v+x, n+1
		})
	}
	return v, n
}

// longRun finds an experiment that runs for more than an hour within the hours
// before testUntil, on at least so many nodes.
func longRun(t *testing.T, m *Model, nodes int) (Experiment, Span) {
	t.Helper()
	for _, e := range m.Experiments(testUntil.Add(-6*time.Hour), testUntil) {
		for _, r := range e.Runs {
			if len(e.Nodes) >= nodes && r.Until.Sub(r.From) > 70*time.Minute {
				return e, r
			}
		}
	}
	t.Fatalf("no experiment of %d nodes runs for 70 minutes", nodes)
	return Experiment{}, Span{}
}

// A fatal Xid under a gang: the pod dies with the GPU, the gang is not placed
// again before Until, and then runs on; the Xid stays.
func TestFatalXidEndsTheGang(t *testing.T) {
	base := mustNew(t, Options{Seed: 3, Nodes: 12})
	e, run := longRun(t, base, 2)
	at := run.From.Add(20 * time.Minute)
	until := at.Add(4 * time.Minute) // shorter than the window of Xids
	node := e.Nodes[1]
	for _, xid := range []float64{79, 119} {
		m := mustNew(t, Options{
			Seed: 3, Nodes: 12,
			Troubles: []Trouble{{Kind: GPUXidFatal, Target: node + "/2", From: at, Until: until, Value: xid}},
		})
		busy := func(at time.Time, gpu string) bool {
			v, n := look(t, m, at, JobDCGM, "DCGM_FI_DEV_GPU_UTIL", "node", node, "gpu", gpu)
			return n == 1 && v > 30
		}
		seen := func(at time.Time) int {
			_, n := look(t, m, at, JobDCGM, "DCGM_FI_DEV_GPU_TEMP", "node", node)
			return n
		}
		if !busy(at.Add(-time.Minute), "2") || !busy(at.Add(-time.Minute), "3") {
			t.Fatal("the gang does not run before the trouble")
		}
		if busy(at.Add(time.Minute), "3") || busy(until.Add(-time.Second), "3") {
			t.Error("the gang runs on without its GPU")
		}
		for _, x := range m.Experiments(at, until) {
			for _, r := range x.Runs {
				for i, n := range x.Nodes {
					if n == node && r.From.After(at) && r.From.Before(until) {
						t.Errorf("pod %d of %s starts on %s at %s, where a GPU is dead", i, x.Name, n, r.From)
					}
				}
			}
		}
		want := 8
		if xid == 79 {
			want = 7
		}
		if n := seen(at.Add(time.Minute)); n != want {
			t.Errorf("Xid %v: DCGM sees %d GPUs, not %d", xid, n, want)
		}
		if n := seen(until); n != 8 {
			t.Errorf("Xid %v: DCGM sees %d GPUs afterwards", xid, n)
		}
		for _, c := range []struct {
			at   time.Time
			want float64
		}{{at.Add(-time.Second), 8}, {at.Add(11 * time.Second), 7}, {until.Add(11 * time.Second), 8}} {
			if v, _ := look(t, m, c.at, JobKubeStateMetrics, "kube_node_status_allocatable", "node", node, "resource",
				"nvidia_com_gpu"); v != c.want {
				t.Errorf("Xid %v: %v GPUs can be allocated %s after it", xid, v, c.at.Sub(at))
			}
			if v, _ := look(t, m, c.at, JobKubeStateMetrics, "kube_node_status_capacity", "node", node, "resource",
				"nvidia_com_gpu"); v != 8 {
				t.Errorf("capacity became %v", v)
			}
		}
		count := 0
		for d := time.Duration(0); d < 20*time.Minute; d += 30 * time.Second {
			_, n := look(t, m, at.Add(d), JobDCGM, "DCGM_EXP_XID_ERRORS_COUNT", "node", node, "xid", fmt.Sprint(xid))
			count += n
		}
		if want := map[float64]int{79: 0, 119: 10}[xid]; count != want {
			t.Errorf("Xid %v is counted at %d of 40 scrapes, not %d", xid, count, want)
		}
		if v, n := look(t, m, until.Add(time.Hour), JobDCGM, "DCGM_FI_DEV_XID_ERRORS", "node", node, "gpu", "2", "err_code",
			fmt.Sprint(xid)); n != 1 || v != xid {
			t.Errorf("Xid %v: an hour later the gauge is %v", xid, v)
		}
	}
}

// A fatal Xid while the pods of a gang are being started: it does not get to run on the dead GPU.
func TestFatalXidBeforeTheStart(t *testing.T) {
	e, run := longRun(t, mustNew(t, Options{Seed: 3, Nodes: 12}), 2)
	at, until := run.From.Add(-time.Second), run.From.Add(10*time.Minute)
	m := mustNew(t, Options{
		Seed: 3, Nodes: 12, Troubles: []Trouble{{Kind: GPUXidFatal, Target: e.Nodes[1] + "/2", From: at, Until: until, Value: 95}},
	})
	for _, x := range m.Experiments(at, until) {
		for _, r := range x.Runs {
			if slices.Contains(x.Nodes, e.Nodes[1]) && r.From.Before(until) && r.Until.After(at.Add(time.Second)) {
				t.Errorf("%s runs from %s to %s on %s, where a GPU is dead from %s to %s", x.Name, r.From, r.Until, e.Nodes[1], at, until)
			}
		}
	}
}

// An experiment that holds its GPUs and does nothing: utilisation and power
// fall, memory stays, nobody else's GPUs change.
func TestAllocatedIdle(t *testing.T) {
	o := Options{Seed: 3, Nodes: 12, APIServers: 1}
	base := mustNew(t, o)
	e, run := longRun(t, base, 2)
	from, until := run.From.Add(10*time.Minute), run.From.Add(50*time.Minute)
	o.Troubles = []Trouble{{Kind: GPUAllocatedIdle, Target: e.Name, From: from, Until: until}}
	m := mustNew(t, o)
	all := func(string) bool { return true }
	if d := moved(everything(t, base, from.Add(-time.Second), all), everything(t, m, from.Add(-time.Second), all)); len(d) > 0 {
		t.Errorf("before: %v", d)
	}
	at := from.Add(5 * time.Minute)
	got := moved(everything(t, base, at, all), everything(t, m, at, all))
	for fam, how := range got {
		switch strings.TrimPrefix(fam, JobDCGM+" ") {
		case "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_POWER_USAGE",
			"DCGM_FI_DEV_POWER_VIOLATION",
			"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE",
			"DCGM_FI_DEV_SM_CLOCK",
			"DCGM_FI_PROF_NVLINK_RX_BYTES", "DCGM_FI_PROF_NVLINK_TX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES", "DCGM_FI_PROF_PCIE_TX_BYTES",
			"node-exporter node_load1", "node-exporter node_load5", "node-exporter node_load15",
			"node-exporter node_infiniband_port_data_received_bytes_total", "node-exporter node_infiniband_port_data_transmitted_bytes_total":
			if how != "down" {
				t.Errorf("%s moved %s", fam, how)
			}
		case "node-exporter node_cpu_seconds_total":
			if how != "down+up" {
				t.Errorf("%s moved %s: idle should give way", fam, how)
			}
		case "node-exporter node_memory_MemFree_bytes", "node-exporter node_memory_MemAvailable_bytes":
			if how != "up" {
				t.Errorf("%s moved %s", fam, how)
			}
		default:
			t.Errorf("%s moved %s", fam, how)
		}
	}
	for _, name := range []string{"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"} {
		if v, n := look(t, m, at, JobDCGM, name, "pod", e.Name+"-w-1"); v != 0 || n != e.GPUs {
			t.Errorf("%s of its GPUs is %v on %d", name, v, n)
		}
		was, _ := look(t, base, until, JobDCGM, name, "pod", e.Name+"-w-1")
		if v, _ := look(t, m, until, JobDCGM, name, "pod", e.Name+"-w-1"); v != was || v == 0 {
			t.Errorf("%s is %v afterwards, not %v", name, v, was)
		}
	}
}

// A slow GPU of a gang: what it does falls to the share, its neighbours and its
// memory stay as they were, and afterwards it is as fast as ever.
func TestSlowGPU(t *testing.T) {
	o := Options{Seed: 3, Nodes: 12, APIServers: 1}
	base := mustNew(t, o)
	e, run := longRun(t, base, 2)
	from, until := run.From.Add(10*time.Minute), run.From.Add(50*time.Minute)
	o.Troubles = []Trouble{{Kind: GPUSlow, Target: e.Nodes[1] + "/3", From: from, Until: until, Value: 0.25}}
	m := mustNew(t, o)
	all := func(string) bool { return true }
	for _, at := range []time.Time{from.Add(-time.Second), until} {
		for fam, how := range moved(everything(t, base, at, all), everything(t, m, at, all)) {
			if at.Before(from) || fam != JobDCGM+" DCGM_FI_DEV_POWER_VIOLATION" || how != "down" { // which counts work
				t.Errorf("%s: %s moved %s", at.Sub(from), fam, how)
			}
		}
	}
	at := from.Add(5 * time.Minute)
	want := map[string]string{}
	for _, fam := range []string{
		"DEV_GPU_UTIL", "DEV_GPU_TEMP", "DEV_MEMORY_TEMP", "DEV_POWER_USAGE", "DEV_POWER_VIOLATION", "DEV_SM_CLOCK",
		"PROF_GR_ENGINE_ACTIVE", "PROF_PIPE_TENSOR_ACTIVE",
		"PROF_SM_ACTIVE", "PROF_DRAM_ACTIVE", "PROF_NVLINK_RX_BYTES", "PROF_NVLINK_TX_BYTES", "PROF_PCIE_RX_BYTES", "PROF_PCIE_TX_BYTES",
	} {
		want[JobDCGM+" DCGM_FI_"+fam] = "down"
	}
	if got := moved(everything(t, base, at, all), everything(t, m, at, all)); !maps.Equal(got, want) {
		t.Errorf("moved\n\t%s\nwanted\n\t%s", describe(got), describe(want))
	}
	for gpu, share := range map[string]float64{"3": 0.25, "2": 1} {
		was, _ := look(t, base, at, JobDCGM, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "node", e.Nodes[1], "gpu", gpu)
		is, n := look(t, m, at, JobDCGM, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "node", e.Nodes[1], "gpu", gpu)
		if n != 1 || was == 0 || math.Abs(is/was-share) > 1.0/64 {
			t.Errorf("GPU %s does %v, and %v when it is fast", gpu, is, was)
		}
	}
}

// A jump of egress shows in the node's rules, on its card and in the pods'
// own counters by the same bytes, in that namespace alone.
func TestEgressJump(t *testing.T) {
	o := Options{Seed: 3, Nodes: 8, APIServers: 1, Exporters: WithIPTables}
	e, run := longRun(t, mustNew(t, o), 2)
	from, until := run.From.Add(10*time.Minute), run.From.Add(40*time.Minute)
	for _, target := range []string{e.Namespace, WholeCluster} {
		// Full has the packets of pods too; Lean is looked at as a whole.
		all := func(string) bool { return true }
		if o.Detail = Lean; target == WholeCluster {
			o.Detail = Full
			all = func(job string) bool { return job == JobIPTables || job == JobNode || job == JobCadvisor }
		}
		o.Troubles = nil
		base := mustNew(t, o)
		o.Troubles = []Trouble{{Kind: EgressJump, Target: target, From: from, Until: until, Value: 100}}
		m := mustNew(t, o)
		if d := moved(everything(t, base, from, all), everything(t, m, from, all)); len(d) > 0 {
			t.Errorf("before: %v", d)
		}
		want := map[string]string{
			"iptables-exporter iptables_rule_bytes_total": "up", "iptables-exporter iptables_rule_packets_total": "up",
			"node-exporter node_network_transmit_bytes_total": "up", "node-exporter node_network_transmit_packets_total": "up",
			"cadvisor container_network_transmit_bytes_total": "up",
		}
		if o.Detail == Full {
			want["cadvisor container_network_transmit_packets_total"] = "up"
		}
		for _, at := range []time.Time{from.Add(5 * time.Minute), until.Add(time.Minute)} {
			if got := moved(everything(t, base, at, all), everything(t, m, at, all)); !maps.Equal(got, want) {
				t.Errorf("%s: %s", target, describe(got))
			}
		}
		// What each of the three says the jump was, on one node, within it.
		var jump [3]float64
		for i, q := range [][]string{
			{JobIPTables, "iptables_rule_bytes_total", "rule", `! -d 10.0.0.0/8 -m comment --comment \"accounting traffic=internet-out\"`},
			{JobNode, "node_network_transmit_bytes_total", "device", "eth0"},
			{JobCadvisor, "container_network_transmit_bytes_total", "namespace", e.Namespace},
		} {
			more := func(at time.Time) float64 {
				with, _ := look(t, m, at, q[0], q[1], append(q[2:4:4], "node", e.Nodes[0])...)
				without, _ := look(t, base, at, q[0], q[1], append(q[2:4:4], "node", e.Nodes[0])...)
				return with - without
			}
			jump[i] = more(from.Add(10*time.Minute)) - more(from.Add(time.Minute))
		}
		if jump[0] < 99*150_000*540 || absolute(jump[0]-jump[1]) > 1e-4*jump[0] || absolute(jump[0]-jump[2]) > 1e-4*jump[0] {
			t.Errorf("%s: the same jump is %v bytes by the rules, %v on the card, %v in the pods", target, jump[0], jump[1], jump[2])
		}
		if target == WholeCluster {
			continue
		}
		for _, x := range base.Experiments(from, until) {
			if x.Namespace == e.Namespace {
				continue
			}
			for i := range x.Nodes {
				pod := x.Name + "-w-" + strconv.Itoa(i)
				was, _ := look(t, base, until, JobCadvisor, "container_network_transmit_bytes_total", "pod", pod)
				if v, _ := look(t, m, until, JobCadvisor, "container_network_transmit_bytes_total", "pod", pod); v != was {
					t.Errorf("%s of another namespace sends more too", pod)
				}
			}
		}
	}
}

func absolute(v float64) float64 { return max(v, -v) }

// A node that is not ready keeps its pods for five minutes, and gets no new ones.
func TestNotReadyEvicts(t *testing.T) {
	base := mustNew(t, Options{Seed: 3, Nodes: 12})
	e, run := longRun(t, base, 2)
	at := run.From.Add(20 * time.Minute)
	for _, c := range []struct {
		lasts time.Duration
		stays bool
	}{{4 * time.Minute, true}, {12 * time.Minute, false}} {
		m := mustNew(t, Options{
			Seed: 3, Nodes: 12,
			Troubles: []Trouble{{Kind: NodeNotReady, Target: e.Nodes[0], From: at, Until: at.Add(c.lasts)}},
		})
		for _, x := range m.Experiments(run.From, run.Until) {
			if x.Name != e.Name {
				continue
			}
			first := x.Runs[0]
			for _, r := range x.Runs {
				if r.From.Equal(run.From) {
					first = r
				}
				if r.From.After(at) && r.From.Before(at.Add(c.lasts)) {
					t.Errorf("%s: placed at %s on a node that is not ready", c.lasts, r.From)
				}
			}
			want := run.Until
			if !c.stays {
				want = at.Add(5 * time.Minute)
			}
			if !first.Until.Equal(want) {
				t.Errorf("not ready for %s: the gang ran until %s, not %s", c.lasts, first.Until, want)
			}
		}
	}
}

func TestNodeTroublesRefused(t *testing.T) {
	for name, tr := range map[string]Trouble{
		"no such node":        {Kind: NodeDiskFull, Target: "gpu-00009"},
		"no such name":        {Kind: NodeDiskFull, Target: "node-1"},
		"a GPU of a node":     {Kind: NodeDiskFull, Target: "gpu-00001/1"},
		"no GPU":              {Kind: GPUHot, Target: "gpu-00001"},
		"no such GPU":         {Kind: GPUHot, Target: "gpu-00001/8"},
		"a GPU in words":      {Kind: GPUHot, Target: "gpu-00001/one"},
		"share":               {Kind: NodeNotReady, Target: fleet, Value: 1.5},
		"degrees of a fleet":  {Kind: GPUHot, Target: fleet, Value: 92},
		"no share":            {Kind: NodeNotReady, Target: fleet},
		"negative":            {Kind: GPUPCIeReplay, Target: "gpu-00001/1", Value: -1},
		"fleet of disks":      {Kind: NodeDiskFull, Target: fleet},
		"no mesh":             {Kind: NodeUnreachable, Target: "gpu-00001"},
		"no accounting":       {Kind: NetworkAccountingLost, Target: fleet, Value: 0.5},
		"nobody idles":        {Kind: GPUAllocatedIdle, Target: "nobody"},
		"no such namespace":   {Kind: EgressJump, Target: "nobody"},
		"drawn, never staged": {Kind: proberBlip, Target: "0/1"},
	} {
		tr.From, tr.Until = testUntil, testUntil.Add(time.Minute)
		if _, err := New(Options{Nodes: 4, Troubles: []Trouble{tr}}); err == nil {
			t.Errorf("%s: no error", name)
		} else if !strings.Contains(err.Error(), "troubles[0]") {
			t.Errorf("%s: %v does not say which", name, err)
		}
	}
	if _, err := New(Options{Nodes: 1, Exporters: 1 << 7}); err == nil {
		t.Error("unknown exporters: no error")
	}
}

// TestLinksOfBlackwell: a B200 has NVLink 5's counters, of which half are recoveries that fail, and
// none of the others; an H100 has it the other way round.
func TestLinksOfBlackwell(t *testing.T) {
	from := testUntil.Add(-time.Hour)
	const new1, new2 = "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS"
	const old1, old2 = "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"
	for model, has := range map[string][2][]string{
		"B200": {{new1, new2}, {old1, old2}},
		"H100": {{old1, old2}, {new1, new2}},
	} {
		m := mustNew(t, Options{
			Nodes: 1, GPUModels: []string{model},
			Troubles: []Trouble{{Kind: GPUNVLinkErrors, Target: "gpu-00000/3", From: from, Until: testUntil, Value: 4}},
		})
		for _, name := range has[0] {
			if v, n := look(t, m, from.Add(30*time.Minute), JobDCGM, name, "gpu", "3"); n != 1 || v < 59 {
				t.Errorf("%s of %s: %d series, %v after half an hour", name, model, n, v)
			}
		}
		for _, name := range has[1] {
			if _, n := look(t, m, from, JobDCGM, name); n != 0 {
				t.Errorf("%s of %s: %d series, but it has none of them", name, model, n)
			}
		}
	}
}
