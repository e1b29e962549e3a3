package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// shown is a family's values, by target and the hash of the labels.
type shown map[[2]uint64]float64

// everything is all series that a model shows at a moment, by job, family and
// labels; what is down shows nothing.
func everything(t *testing.T, m *Model, at time.Time, jobs func(string) bool) map[string]shown {
	t.Helper()
	out := map[string]shown{}
	for i, tg := range m.Targets() {
		if !jobs(tg.Job) {
			continue
		}
		err := m.Series(tg, at, func(l labels.Labels, v float64, typ metricType) {
			fam := l.Get(model.MetricNameLabel)
			if typ == model.MetricTypeHistogram {
				fam = familyName(fam)
			}
			key := tg.Job + " " + fam
			if out[key] == nil {
				out[key] = shown{}
			}
			out[key][[2]uint64{uint64(i), l.Hash()}] = v
		})
		if err != nil && !errors.Is(err, ErrDown) {
			t.Fatal(err)
		}
	}
	return out
}

// moved says how the families of two moments differ: up and down where a value
// differs, new and gone where a series does.
func moved(was, is map[string]shown) map[string]string {
	out := map[string]string{}
	for fam := range maps.Keys(was) {
		if is[fam] == nil {
			is[fam] = nil
		}
	}
	for fam, now := range is {
		how := map[string]bool{}
		for l, v := range now {
			switch w, ok := was[fam][l]; {
			case !ok:
				how["new"] = true
			case v > w:
				how["up"] = true
			case v < w:
				how["down"] = true
			}
		}
		for l := range was[fam] {
			if _, ok := now[l]; !ok {
				how["gone"] = true
			}
		}
		if len(how) > 0 {
			out[fam] = strings.Join(slices.Sorted(maps.Keys(how)), "+")
		}
	}
	return out
}

func describe(m map[string]string) string {
	var s []string
	for k, v := range m {
		s = append(s, k+" "+v)
	}
	sort.Strings(s)
	return strings.Join(s, "\n\t")
}

// moves reads a table's cell: "up A B, new C" for the families A and B in which
// values rose and C of which there are new series. A star marks what only Full has.
func moves(d Detail, cell string) map[string]string {
	out := map[string]string{}
	for _, part := range strings.Split(cell, ",") {
		words := strings.Fields(part)
		for i, fam := range words {
			fam, wide := strings.CutPrefix(fam, "*")
			if i == 0 || wide && d == Lean {
				continue
			}
			out[jobOf(fam)+" "+fam] = words[0]
		}
	}
	return out
}

// jobOf is the job on whose page a family of these tests is.
func jobOf(fam string) string {
	for prefix, job := range map[string]string{
		"DCGM_": JobDCGM, "node_": JobNode, "kube_": JobKubeStateMetrics, "problem_": JobProblemDetector, "probe_": JobNodeMesh,
		"iptables_":           JobIPTables,
		"cluster_autoscaler_": JobAutoscaler, "container_": JobCadvisor,
	} {
		if strings.HasPrefix(fam, prefix) {
			return job
		}
	}
	return ""
}

const (
	onNode = "gpu-00001"
	onGPU  = "gpu-00001/3"
)

// jobsOnNodes are the jobs whose pages a node itself serves.
var jobsOnNodes = []string{JobNode, JobDCGM, JobKubelet, JobCadvisor, JobIPTables, JobProblemDetector}

// nodeTroubleCases are the kinds on a node without experiments: which families
// move while it lasts and after it, and how. Nothing else may. "all of DCGM"
// stands for every family of a GPU, and goes; "all of the node" for every family
// of its pages.
var nodeTroubleCases = []struct {
	kind          Kind
	target        string
	value         float64
	during, after string
}{
	{
		GPUXidFatal, onGPU, 79,
		"gone all-of-DCGM, up problem_counter, down kube_node_status_allocatable",
		"gone+new DCGM_FI_DEV_XID_ERRORS, up problem_counter",
	},
	{
		GPUXidFatal, onGPU, 119,
		"gone+new DCGM_FI_DEV_XID_ERRORS, new DCGM_EXP_XID_ERRORS_COUNT, up problem_counter, down kube_node_status_allocatable",
		"gone+new DCGM_FI_DEV_XID_ERRORS, up problem_counter",
	},
	{
		GPUXidFatal, onGPU, 13,
		"gone+new DCGM_FI_DEV_XID_ERRORS, new DCGM_EXP_XID_ERRORS_COUNT, up problem_counter",
		"gone+new DCGM_FI_DEV_XID_ERRORS, up problem_counter",
	},
	{
		GPUUncorrectableECC, onGPU, 2,
		"gone+new DCGM_FI_DEV_XID_ERRORS, new DCGM_EXP_XID_ERRORS_COUNT, down kube_node_status_allocatable," +
			"up problem_counter DCGM_FI_DEV_ECC_DBE_VOL_TOTAL DCGM_FI_DEV_ROW_REMAP_PENDING DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
		"gone+new DCGM_FI_DEV_XID_ERRORS, up problem_counter DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
	},
	{GPUCorrectableECC, onGPU, 0, "up DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "up DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"},
	{
		GPURowRemapFailure, onGPU, 0,
		"gone+new DCGM_FI_DEV_XID_ERRORS, new DCGM_EXP_XID_ERRORS_COUNT, down kube_node_status_allocatable, up problem_counter DCGM_FI_DEV_ROW_REMAP_FAILURE",
		"gone+new DCGM_FI_DEV_XID_ERRORS, up problem_counter",
	},
	{
		GPURowRemapPending, onGPU, 0,
		"gone+new DCGM_FI_DEV_XID_ERRORS, new DCGM_EXP_XID_ERRORS_COUNT, down kube_node_status_allocatable," +
			"up problem_counter DCGM_FI_DEV_ROW_REMAP_PENDING DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
		"gone+new DCGM_FI_DEV_XID_ERRORS, up problem_counter DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
	},
	{GPUHot, onGPU, 0, "up DCGM_FI_DEV_GPU_TEMP DCGM_FI_DEV_MEMORY_TEMP", ""},
	{GPUHot, fleet, 0.67, "up DCGM_FI_DEV_GPU_TEMP DCGM_FI_DEV_MEMORY_TEMP", ""},
	{
		GPUThrottled, onGPU, 0.3,
		"up DCGM_FI_DEV_THERMAL_VIOLATION DCGM_FI_DEV_SM_CLOCK, new DCGM_EXP_CLOCK_EVENTS_COUNT",
		"up DCGM_FI_DEV_THERMAL_VIOLATION",
	},
	{GPUSlow, onGPU, 0, "", ""}, // nothing runs there: TestSlowGPU
	{
		GPUNVLinkErrors, onGPU, 0,
		"up DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
		"up DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
	},
	{
		GPUNVLinkErrors, fleet, 0.67,
		"up DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
		"up DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
	},
	{GPUPCIeReplay, onGPU, 0, "up DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "up DCGM_FI_DEV_PCIE_REPLAY_COUNTER"},
	{GPUExporterGone, onNode, 0, "gone all-of-DCGM", ""},
	{GPUExporterGone, fleet, 0.67, "gone all-of-DCGM", ""},
	{NodeUnreachable, onNode, 0, "down probe_success, up probe_duration_seconds", ""},
	{NodeUnreachable, onNode, 0.5, "down probe_success, up probe_duration_seconds", ""},
	{NodeUnreachable, fleet, 0.34, "down probe_success, up probe_duration_seconds", ""},
	{NodeCutOff, onNode, 0, "gone all-of-the-node, down probe_success, up probe_duration_seconds", ""},
	{
		NodeNotReady, onNode, 0,
		"down+up kube_node_status_condition kube_pod_status_ready cluster_autoscaler_nodes_count, new kube_node_spec_taint", "",
	},
	{
		NodeNotReady, fleet, 0.34,
		"down+up kube_node_status_condition kube_pod_status_ready cluster_autoscaler_nodes_count, new kube_node_spec_taint", "",
	},
	{NodeDiskFull, onNode, 0, "down node_filesystem_avail_bytes *node_filesystem_free_bytes", ""},
	{NodeDiskReadOnly, onNode, 0, "up node_filesystem_readonly problem_counter problem_gauge, down+up kube_node_status_condition", "up problem_counter"},
	{
		NodeDiskError, onNode, 0,
		"gone+new node_filesystem_device_error node_filesystem_readonly, up problem_counter problem_gauge, down+up kube_node_status_condition," +
			"gone node_filesystem_size_bytes node_filesystem_avail_bytes *node_filesystem_free_bytes *node_filesystem_files *node_filesystem_files_free",
		"up problem_counter",
	},
	{NodeARPTableFilling, onNode, 0, "up node_arp_entries node_lnstat_entries_total", ""},
	{
		NodeARPTableOverflow, onNode, 0,
		"up node_arp_entries node_lnstat_entries_total node_lnstat_table_fulls_total *node_lnstat_unresolved_discards_total",
		"up node_lnstat_table_fulls_total *node_lnstat_unresolved_discards_total",
	},
	{NodeCordoned, onNode, 0, "up kube_node_spec_unschedulable, new kube_node_spec_taint", ""},
	{NodesReserved, onNode, 0, "new kube_node_spec_taint", ""},
	{NodesReserved, fleet, 0.34, "new kube_node_spec_taint", ""},
	{NodeCordoned, fleet, 0.34, "up kube_node_spec_unschedulable, new kube_node_spec_taint", ""},
	{
		NetworkAccountingLost, fleet, 0.67,
		"gone iptables_rule_bytes_total iptables_rule_packets_total",
		"down iptables_rule_bytes_total iptables_rule_packets_total",
	},
}

// Each trouble moves what the real thing moves and nothing else: nothing before
// From, the families of the table while it lasts, and after Until only what
// counters have counted.
func TestNodeTroublesMoveTheirSeries(t *testing.T) {
	from := testUntil.Add(-2 * time.Hour)
	until := from.Add(12 * time.Minute)
	o := Options{Seed: 5, Nodes: 3, IdleShare: 1, APIServers: 1, Exporters: AllExporters}
	moments := []struct {
		name string
		at   time.Time
	}{
		{"before", from.Add(-time.Millisecond)},
		{"at the start", from.Add(70 * time.Second)},
		{"at the end", until.Add(-time.Millisecond)},
		{"after", until.Add(6 * time.Minute)},
	}
	for _, o.Detail = range []Detail{Lean, Full} {
		jobs := func(job string) bool {
			switch job {
			case JobNode, JobDCGM, JobKubeStateMetrics, JobIPTables, JobProblemDetector, JobNodeMesh, JobAutoscaler:
				return true
			}
			return o.Detail == Lean // wide in Full, and the same code
		}
		calm := mustNew(t, o)
		var was []map[string]shown
		for _, mo := range moments {
			was = append(was, everything(t, calm, mo.at, jobs))
		}
		seen := map[Kind]bool{}
		for _, c := range nodeTroubleCases {
			seen[c.kind] = true
			t.Run(fmt.Sprintf("detail %d/%s %s %v", o.Detail, c.kind, c.target, c.value), func(t *testing.T) {
				with := o
				with.Troubles = []Trouble{{Kind: c.kind, Target: c.target, From: from, Until: until, Value: c.value}}
				m := mustNew(t, with)
				for i, mo := range moments {
					cell := c.during
					switch mo.name {
					case "before":
						cell = ""
					case "after":
						cell = c.after
					}
					want := moves(o.Detail, cell)
					if how, ok := want[" all-of-DCGM"]; ok {
						delete(want, " all-of-DCGM")
						for fam := range was[i] {
							if strings.HasPrefix(fam, JobDCGM+" ") {
								want[fam] = how
							}
						}
					}
					if how, ok := want[" all-of-the-node"]; ok {
						delete(want, " all-of-the-node")
						for fam := range was[i] {
							if slices.Contains(jobsOnNodes, strings.Fields(fam)[0]) {
								want[fam] = how
							}
						}
					}
					if mo.name == "at the end" {
						// The Xid has left its window of five minutes.
						delete(want, JobDCGM+" DCGM_EXP_XID_ERRORS_COUNT")
					}
					maps.DeleteFunc(want, func(fam, _ string) bool { return !jobs(strings.Fields(fam)[0]) })
					if got := moved(was[i], everything(t, m, mo.at, jobs)); !maps.Equal(got, want) {
						t.Errorf("%s:\n\t%s\nwanted\n\t%s", mo.name, describe(got), describe(want))
					}
				}
			})
		}
		for k := range nodeKinds {
			if _, planned := (&ailment{kind: k}).reboot(); !seen[k] && !planned {
				t.Errorf("%s is not in the table; planned work is TestPlannedWork's", k)
			}
		}
	}
}

// TestDownTwice: a node that is down for two reasons at once has one taint, and is not ready until
// the last of them is over.
func TestDownTwice(t *testing.T) {
	from := testUntil.Add(-3 * time.Hour)
	after := func(minutes int) time.Time { return from.Add(time.Duration(minutes) * time.Minute) }
	m := mustNew(t, Options{Seed: 9, Nodes: 3, APIServers: 1, Troubles: []Trouble{
		{Kind: NodeDown, Target: "gpu-00001", From: after(0), Until: after(20)},
		{Kind: NodeDown, Target: "gpu-00001", From: after(10), Until: after(40)},
	}})
	ksm := slices.IndexFunc(m.Targets(), func(tg Target) bool { return tg.Job == JobKubeStateMetrics })
	for _, minutes := range []int{5, 15, 30} {
		taints, ready := 0, 0.0
		err := m.Series(m.Targets()[ksm], after(minutes), func(l labels.Labels, v float64, _ model.MetricType) {
			switch {
			case l.Get("node") != "gpu-00001":
			case l.Get("key") == "node.kubernetes.io/unreachable":
				taints++
			case l.Get("condition") == "Ready" && l.Get("status") == "true":
				ready += v
			}
		})
		if err != nil || taints != 1 || ready != 0 {
			t.Errorf("after %d minutes the node has %d taints for being unreachable, ready is %g (%v)", minutes, taints, ready, err)
		}
	}
}
