package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// How much each trouble moves: enough for the alert that it is staged for, and
// what its Value says.
func TestNodeTroubleAmounts(t *testing.T) {
	from := testUntil.Add(-2 * time.Hour)
	until := from.Add(40 * time.Minute)
	late := until.Add(-time.Millisecond)
	gpu := []string{"node", onNode, "gpu", "3"}
	node := []string{"node", onNode}
	with := func(base []string, more ...string) []string { return append(base[:len(base):len(base)], more...) }
	for _, c := range []struct {
		name      string
		trouble   Trouble
		job, fam  string
		match     []string
		at, since time.Time // the difference of the two, if since is set
		lo, hi    float64
	}{
		{"hot", Trouble{Kind: GPUHot, Target: onGPU}, JobDCGM, "DCGM_FI_DEV_GPU_TEMP", gpu, from, time.Time{}, 92, 92},
		{"hot as asked", Trouble{Kind: GPUHot, Target: onGPU, Value: 88}, JobDCGM, "DCGM_FI_DEV_GPU_TEMP", gpu, late, time.Time{}, 88, 88},
		{
			"cool afterwards",
			Trouble{Kind: GPUHot, Target: onGPU, Value: 88},
			JobDCGM, "DCGM_FI_DEV_GPU_TEMP", gpu, until,
			time.Time{},
			20,
			40,
		},
		{
			"throttled",
			Trouble{Kind: GPUThrottled, Target: onGPU},
			JobDCGM, "DCGM_FI_DEV_THERMAL_VIOLATION", gpu, late, from, 0.2 * 2400e9,
			0.21 * 2400e9,
		},
		{
			"throttled now",
			Trouble{Kind: GPUThrottled, Target: onGPU},
			JobDCGM, "DCGM_EXP_CLOCK_EVENTS_COUNT", with(gpu, "clock_event", "hw_thermal"), late,
			time.Time{},
			10, 10,
		},
		{
			"recoveries",
			Trouble{Kind: GPUNVLinkErrors, Target: onGPU},
			JobDCGM, "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", gpu, late,
			from, 79, 80,
		},
		{
			"replays of links",
			Trouble{Kind: GPUNVLinkErrors, Target: onGPU, Value: 4},
			JobDCGM, "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", gpu, late, from, 4799, 4805,
		},
		{
			"replays of the bus",
			Trouble{Kind: GPUPCIeReplay, Target: onGPU, Value: 12},
			JobDCGM, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", gpu, late, from, 479, 490,
		},
		{
			"double-bit errors",
			Trouble{Kind: GPUUncorrectableECC, Target: onGPU, Value: 3},
			JobDCGM, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", gpu, from, from.Add(-time.Millisecond), 3, 3,
		},
		{
			"double-bit errors until the reset",
			Trouble{Kind: GPUUncorrectableECC, Target: onGPU, Value: 3},
			JobDCGM, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", gpu, late,
			time.Time{},
			3, 3,
		},
		{
			"double-bit errors after it",
			Trouble{Kind: GPUUncorrectableECC, Target: onGPU, Value: 3},
			JobDCGM, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", gpu, until,
			time.Time{},
			0, 0,
		},
		{
			"single-bit errors",
			Trouble{Kind: GPUCorrectableECC, Target: onGPU},
			JobDCGM, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", gpu, late, from,
			399, 402,
		},
		{
			"single-bit errors as asked",
			Trouble{Kind: GPUCorrectableECC, Target: onGPU, Value: 3},
			JobDCGM, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", gpu, late, from, 119, 122,
		},
		{
			"Xid of them",
			Trouble{Kind: GPUUncorrectableECC, Target: onGPU},
			JobDCGM, "DCGM_FI_DEV_XID_ERRORS", with(gpu, "err_code", "48"), until.Add(time.Hour),
			time.Time{},
			48, 48,
		},
		{
			"Xid counted",
			Trouble{Kind: GPUXidFatal, Target: onGPU, Value: 95},
			JobDCGM, "DCGM_EXP_XID_ERRORS_COUNT", with(gpu, "xid", "95"), from.Add(299 * time.Second),
			time.Time{},
			1, 1,
		},
		{
			"Xid in the log",
			Trouble{Kind: GPUXidFatal, Target: onGPU},
			JobProblemDetector, "problem_counter", with(node, "reason", "GPUXid"), from, from.Add(-time.Millisecond), 1, 1,
		},
		{
			"an application's",
			Trouble{Kind: GPUXidFatal, Target: onGPU, Value: 31},
			JobProblemDetector, "problem_counter", with(node, "reason", "GPUXidApplication"), from, from.Add(-time.Millisecond), 1, 1,
		},
		{
			"GPUs after 31",
			Trouble{Kind: GPUXidFatal, Target: onGPU, Value: 31},
			JobKubeStateMetrics, "kube_node_status_allocatable", with(node, "resource", "nvidia_com_gpu"), late,
			time.Time{},
			8, 8,
		},
		{
			"remap failed",
			Trouble{Kind: GPURowRemapFailure, Target: onGPU},
			JobDCGM, "DCGM_FI_DEV_ROW_REMAP_FAILURE", gpu, late,
			time.Time{},
			1, 1,
		},
		{
			"remap pending",
			Trouble{Kind: GPURowRemapPending, Target: onGPU},
			JobDCGM, "DCGM_FI_DEV_ROW_REMAP_PENDING", gpu, late,
			time.Time{},
			1, 1,
		},
		{"all probers", Trouble{Kind: NodeUnreachable, Target: onNode}, JobNodeMesh, "probe_success", node, late, time.Time{}, 0, 0},
		{
			"a prober of four",
			Trouble{Kind: NodeUnreachable, Target: onNode, Value: 0.25},
			JobNodeMesh, "probe_success", node, late,
			time.Time{},
			3, 3,
		},
		{"cut off from everybody", Trouble{Kind: NodeCutOff, Target: onNode}, JobNodeMesh, "probe_success", node, late, time.Time{}, 0, 0},
		{"a node that is gone", Trouble{Kind: NodeDown, Target: onNode}, JobNodeMesh, "probe_success", node, late, time.Time{}, 0, 0},
		{
			"not ready",
			Trouble{Kind: NodeNotReady, Target: onNode},
			JobKubeStateMetrics, "kube_node_status_condition", with(node, "condition", "Ready", "status", "false"), late,
			time.Time{},
			1, 1,
		},
		{
			"half of the fleet",
			Trouble{Kind: NodeNotReady, Target: fleet, Value: 0.5},
			JobKubeStateMetrics, "kube_node_status_condition",
			[]string{"condition", "Ready", "status", "true"},
			late,
			time.Time{},
			3, 3,
		},
		{
			"four of six cut off, by four probers",
			Trouble{Kind: NodeUnreachable, Target: fleet, Value: 0.67},
			JobNodeMesh, "probe_success",
			nil, late,
			time.Time{},
			8, 8,
		},
		{
			"no cooling, six nodes",
			Trouble{Kind: GPUHot, Target: fleet, Value: 1},
			JobDCGM, "DCGM_FI_DEV_GPU_TEMP",
			[]string{"gpu", "3"},
			late,
			time.Time{},
			6 * 92, 6 * 92,
		},
		{
			"recoveries on two nodes",
			Trouble{Kind: GPUNVLinkErrors, Target: fleet, Value: 0.34},
			JobDCGM, "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", nil, late, from, 2 * 8 * 79, 2 * 8 * 80,
		},
		{
			"disk full",
			Trouble{Kind: NodeDiskFull, Target: onNode, Value: 0.02},
			JobNode, "node_filesystem_avail_bytes", with(node, "mountpoint", "/"), late,
			time.Time{},
			0.01 * 4.7e11, 0.02 * 4.7e11,
		},
		{
			"disk gone",
			Trouble{Kind: NodeDiskError, Target: onNode},
			JobNode, "node_filesystem_device_error", with(node, "device_error", "input/output error"), late,
			time.Time{},
			1, 1,
		},
		{
			"I/O errors",
			Trouble{Kind: NodeDiskError, Target: onNode},
			JobProblemDetector, "problem_counter", with(node, "reason", "IOError"), late, from, 239, 240,
		},
		{
			"shut down",
			Trouble{Kind: NodeDiskError, Target: onNode},
			JobProblemDetector, "problem_gauge", with(node, "type", "XfsShutdown"), late,
			time.Time{},
			1, 1,
		},
		{
			"read-only",
			Trouble{Kind: NodeDiskReadOnly, Target: onNode},
			JobNode, "node_filesystem_readonly", with(node, "mountpoint", "/"), late,
			time.Time{},
			1, 1,
		},
		{
			"condition of it",
			Trouble{Kind: NodeDiskReadOnly, Target: onNode},
			JobKubeStateMetrics, "kube_node_status_condition", with(node, "condition", "ReadonlyFilesystem", "status", "true"), late,
			time.Time{},
			1, 1,
		},
		{
			"table filling",
			Trouble{Kind: NodeARPTableFilling, Target: onNode},
			JobNode, "node_arp_entries", node, from.Add(10 * time.Minute),
			time.Time{},
			0.89 * arpLimit, 0.94 * arpLimit,
		},
		{
			"table half-way",
			Trouble{Kind: NodeARPTableFilling, Target: onNode},
			JobNode, "node_arp_entries", node, from.Add(5 * time.Minute),
			time.Time{},
			0.3 * arpLimit, 0.7 * arpLimit,
		},
		{
			"table full",
			Trouble{Kind: NodeARPTableOverflow, Target: onNode},
			JobNode, "node_arp_entries", with(node, "device", "eth0"), late,
			time.Time{},
			arpLimit, arpLimit,
		},
		{
			"refused",
			Trouble{Kind: NodeARPTableOverflow, Target: onNode},
			JobNode, "node_lnstat_table_fulls_total", with(node, "subsystem", "arp_cache"), late, from, 2398, 2400,
		},
		{
			"rules of a third",
			Trouble{Kind: NetworkAccountingLost, Target: fleet, Value: 0.34},
			JobIPTables, "iptables_scrape_success", nil, late,
			time.Time{},
			6, 6,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.trouble.From, c.trouble.Until = from, until
			m := mustNew(t, Options{
				Seed: 5, Nodes: 6, IdleShare: 1, APIServers: 1, Exporters: AllExporters,
				Troubles: []Trouble{c.trouble},
			})
			v, n := look(t, m, c.at, c.job, c.fam, c.match...)
			if n == 0 {
				t.Fatal("there is no such series")
			}
			if !c.since.IsZero() {
				before, _ := look(t, m, c.since, c.job, c.fam, c.match...)
				v -= before
			}
			if v < c.lo || v > c.hi {
				t.Errorf("%s is %v, not %v to %v", c.fam, v, c.lo, c.hi)
			}
		})
	}
}

// The share of the nodes that lose their accounting rules, before relabelling
// and by its label: what a coverage alert divides.
func TestAccountingCoverage(t *testing.T) {
	tr := Trouble{Kind: NetworkAccountingLost, Target: fleet, From: testUntil.Add(-time.Hour), Until: testUntil, Value: 0.3}
	m := mustNew(t, Options{Nodes: 20, IdleShare: 1, APIServers: 1, Exporters: WithIPTables, Troubles: []Trouble{tr}})
	rule := ruleText("! -d 10.0.0.0/8", trafficComment("internet-out"))
	host := ruleText("! -d 10.0.0.0/8 ! -o lo", trafficComment("internet-out"))
	for at, want := range map[time.Time]int{tr.From.Add(-time.Second): 20, tr.From: 14, tr.Until.Add(-time.Second): 14, tr.Until: 20} {
		if _, n := look(t, m, at, JobIPTables, "iptables_rule_bytes_total", "rule", rule, "chain", "FORWARD"); n != want {
			t.Errorf("at %s %d nodes account for traffic, not %d", at, n, want)
		}
		if _, n := look(t, m, at, JobIPTables, "iptables_rule_bytes_total", "rule", host, "chain", "OUTPUT"); n != want {
			t.Errorf("at %s %d nodes account for what the host itself sends, not %d", at, n, want)
		}
	}
}

// A single prober that does not get through for a moment happens, and is
// outvoted: at no time does half of them miss a node that is well.
func TestProbersBlip(t *testing.T) {
	m := mustNew(t, Options{Seed: 1, Nodes: 10, IdleShare: 1, APIServers: 1, Exporters: WithNodeMesh})
	misses := 0
	for at := testUntil.Add(-24 * time.Hour); at.Before(testUntil); at = at.Add(20 * time.Second) {
		for n := range m.o.Nodes {
			if len(m.Troubles(NodeDown, m.nodeName(n), at, at.Add(1))) > 0 {
				continue
			}
			missed := 0
			for p := range probers {
				missed += len(m.tl.events(proberBlip, proberNode(p, n), at.UnixMilli(), at.UnixMilli()+1))
			}
			misses += missed
			if missed > 1 {
				t.Errorf("%d probers miss %s at %s", missed, m.nodeName(n), at)
			}
		}
	}
	if misses == 0 {
		t.Error("no prober ever misses a node")
	}
}

// A node_exporter outside the host's network shows neither the ARP table's
// limit nor its overflow, whatever happens to it.
func TestNodeExporterOffHost(t *testing.T) {
	o := Options{Seed: 1, Nodes: 2, IdleShare: 1, APIServers: 1, Detail: Full}
	o.Troubles = []Trouble{{Kind: NodeARPTableOverflow, Target: onNode, From: testUntil.Add(-time.Hour), Until: testUntil}}
	o.NodeExporterOffHost = true
	m := mustNew(t, o)
	tg, _ := m.Find(JobNode, "10.0.1.1:9100")
	gone, there := 0, 0
	for at := testUntil.Add(-time.Hour); at.Before(testUntil); at = at.Add(time.Minute) {
		entries := 0
		err := m.Series(tg, at, func(l labels.Labels, v float64, _ metricType) {
			name := l.Get(model.MetricNameLabel)
			switch {
			case l.Get("subsystem") == "arp_cache", name == "node_sysctl_net_ipv4_neigh_default_gc_thresh3":
				t.Errorf("it sees %s", l)
			case name == "node_arp_entries":
				if entries++; v != 1 || l.Get("device") != "eth0" {
					t.Errorf("%s is %v", l, v)
				}
			case l.Get("collector") == "sysctl" && name == "node_scrape_collector_success" && v != 0:
				t.Error("the sysctl collector succeeds")
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if there += entries; entries == 0 {
			gone++
		}
	}
	if gone == 0 || there == 0 {
		t.Errorf("its own neighbour is there at %d scrapes and gone at %d", there, gone)
	}
}

// Names, types and labels of the pages for which there is no list from a real
// server; their sources are named in docs/simulated-cluster.md.
func TestFamiliesWithoutAList(t *testing.T) {
	m := mustNew(t, Options{Seed: 1, Nodes: 4, Detail: Full, Exporters: AllExporters, Troubles: []Trouble{
		{Kind: GPUThrottled, Target: onGPU, From: testUntil.Add(-time.Hour), Until: testUntil.Add(time.Hour)},
		{Kind: GPUXidFatal, Target: onGPU, From: testUntil.Add(-time.Minute), Until: testUntil.Add(time.Hour), Value: 48},
	}})
	c, g := model.MetricTypeCounter, model.MetricTypeGauge
	gpu := "DCGM_FI_DRIVER_VERSION,Hostname,UUID,device,gpu,modelName,pci_bus_id"
	pod := "DCGM_FI_DRIVER_VERSION,Hostname,UUID,container,device,gpu,modelName,namespace,pci_bus_id,pod"
	want := map[string]struct {
		typ    metricType
		labels []string
	}{
		"problem_counter":        {c, []string{"reason"}},
		"problem_gauge":          {g, []string{"reason,type"}},
		"probe_success":          {g, []string{"node"}},
		"probe_duration_seconds": {g, []string{"node"}},
		"node_infiniband_port_data_received_bytes_total":    {c, []string{"device,port"}},
		"node_infiniband_port_data_transmitted_bytes_total": {c, []string{"device,port"}},
		"node_infiniband_port_errors_received_total":        {c, []string{"device,port"}},
		"node_infiniband_port_discards_transmitted_total":   {c, []string{"device,port"}},
		"node_infiniband_link_downed_total":                 {c, []string{"device,port"}},
		"node_infiniband_link_error_recovery_total":         {c, []string{"device,port"}},
		"node_infiniband_symbol_error_total":                {c, []string{"device,port"}},
		"node_infiniband_rate_bytes_per_second":             {g, []string{"device,port"}},
		"node_infiniband_state_id":                          {g, []string{"device,port"}},
		"node_infiniband_physical_state_id":                 {g, []string{"device,port"}},
		"node_infiniband_info":                              {g, []string{"board_id,device,firmware_version,hca_type"}},
		"DCGM_FI_DEV_GPU_TEMP":                              {g, []string{gpu, pod}},
		"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL":                     {c, []string{gpu, pod}},
		"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL":                     {c, []string{gpu, pod}},
		"DCGM_FI_DEV_ROW_REMAP_FAILURE":                     {g, []string{gpu, pod}},
		"DCGM_FI_DEV_ROW_REMAP_PENDING":                     {g, []string{gpu, pod}},
		"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS":           {c, []string{gpu, pod}},
		"DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL":     {c, []string{gpu, pod}},
		"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL":       {c, []string{gpu, pod}},
		"DCGM_FI_DEV_PCIE_REPLAY_COUNTER":                   {c, []string{gpu, pod}},
		"DCGM_FI_DEV_THERMAL_VIOLATION":                     {c, []string{gpu, pod}},
		"DCGM_FI_DEV_POWER_VIOLATION":                       {c, []string{gpu, pod}},
		"DCGM_FI_PROF_GR_ENGINE_ACTIVE":                     {g, []string{gpu, pod}},
		"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE":                   {g, []string{gpu, pod}},
		"DCGM_FI_DEV_XID_ERRORS":                            {g, []string{gpu + ",err_code,err_msg", pod + ",err_code,err_msg"}},
		"DCGM_EXP_XID_ERRORS_COUNT":                         {g, []string{gpu + ",window_size_in_ms,xid", pod + ",window_size_in_ms,xid"}},
		"DCGM_EXP_CLOCK_EVENTS_COUNT": {
			g,
			[]string{gpu + ",clock_event,window_size_in_ms", pod + ",clock_event,window_size_in_ms"},
		},
	}
	seen := map[string]bool{}
	for _, tg := range m.Targets() {
		err := m.Series(tg, testUntil, func(l labels.Labels, _ float64, typ metricType) {
			name := l.Get(model.MetricNameLabel)
			w, ok := want[name]
			if !ok {
				return
			}
			seen[name] = true
			if typ != w.typ {
				t.Errorf("%s is a %s, not a %s", name, typ, w.typ)
			}
			var names []string
			l.Range(func(x labels.Label) {
				if x.Name != model.MetricNameLabel {
					names = append(names, x.Name)
				}
			})
			for _, allowed := range w.labels {
				if sameLabels(names, allowed) {
					return
				}
			}
			t.Errorf("%s has the labels %v, not %v", name, names, w.labels)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range want {
		if !seen[name] {
			t.Errorf("%s is on no page", name)
		}
	}
}

// sameLabels compares a list with one that is joined by commas, in any order.
func sameLabels(names []string, joined string) bool {
	want := strings.Split(joined, ",")
	slices.Sort(want)
	slices.Sort(names)
	return slices.Equal(names, want)
}
