package cluster

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

var allKinds = []NodeKind{
	{Sharing: WholeGPUs, System: ContainerOptimized},
	{Sharing: TimeSliced, System: Bottlerocket},
	{Sharing: MIGSingle, System: Talos},
	{Sharing: MIGMixed, Microseconds: true},
}

// pageValues are the values of a target's page by series; ErrDown where it does not answer.
func pageValues(t *testing.T, m *Model, job, node string, at time.Time) (map[string]float64, error) {
	t.Helper()
	out := map[string]float64{}
	for _, tg := range m.Targets() {
		if tg.Job != job || node != "" && tg.Labels.Get("node") != node {
			continue
		}
		err := m.Series(tg, at, func(l labels.Labels, v float64, _ model.MetricType) { out[l.String()] = v })
		return out, err
	}
	t.Fatalf("there is no page of %s on %q", job, node)
	return nil, nil
}

// sumOf adds up the series of a page that have all of these parts in their text.
func sumOf(page map[string]float64, parts ...string) (sum float64, n int) {
	for l, v := range page {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(l, p) }) {
			sum += v
			n++
		}
	}
	return sum, n
}

// TestNodeKinds: what each kind of node hands out, and who has it, is the same on the pages of
// kube-state-metrics and of DCGM as in the model's own words, over a day.
func TestNodeKinds(t *testing.T) {
	m := mustNew(t, Options{Seed: 3, Nodes: 4, NodesPerRack: 1, NodeKinds: allKinds, GPUModels: []string{"H100"}})
	want := []struct {
		product string
		offers  map[string]float64
		devices int
	}{
		{"NVIDIA-H100-80GB-HBM3", map[string]float64{"nvidia_com_gpu": 8}, 8},
		{"NVIDIA-H100-80GB-HBM3-SHARED", map[string]float64{"nvidia_com_gpu": 32}, 8},
		{"NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", map[string]float64{"nvidia_com_gpu": 56}, 56},
		{"NVIDIA-H100-80GB-HBM3", map[string]float64{"nvidia_com_gpu": 4, "nvidia_com_mig_3g_40gb": 8}, 12},
	}
	var parted, named int
	for h := range 24 {
		at := testUntil.Add(-time.Duration(h) * time.Hour)
		ksm, err := pageValues(t, m, JobKubeStateMetrics, "", at)
		if err != nil {
			t.Logf("%s: %v", at, err)
			continue
		}
		pages := map[string]map[string]float64{}
		for n, w := range want {
			node := m.nodeName(n)
			if v, _ := sumOf(ksm, "kube_node_labels", node, `product="`+w.product+`"`); v != 1 {
				t.Errorf("%s: the product of %s is not %s", at, node, w.product)
			}
			for resource, cap := range w.offers {
				of := fmt.Sprintf(`resource=%q`, resource)
				if v, _ := sumOf(ksm, "kube_node_status_capacity", node, of); v != cap {
					t.Errorf("%s: %s has %v of %s, not %v", at, node, v, resource, cap)
				}
				if v, _ := sumOf(ksm, "kube_pod_container_resource_requests", fmt.Sprintf("node=%q", node), of); v > cap {
					t.Errorf("%s: pods on %s ask for %v of %s, of which it has %v", at, node, v, resource, cap)
				}
			}
			dcgm, err := pageValues(t, m, JobDCGM, node, at)
			if err != nil {
				t.Logf("%s: %v", at, err)
				continue
			}
			pages[node] = dcgm
			if _, n := sumOf(dcgm, "DCGM_FI_DEV_GPU_UTIL"); n != w.devices {
				t.Errorf("%s: DCGM shows %d devices of %s, not %d", at, n, node, w.devices)
			}
			frame, _ := sumOf(dcgm, "DCGM_FI_DEV_FB_USED")
			if frame > 8*m.gpuModel(n).fbMiB {
				t.Errorf("%s: %v MiB are used on %s", at, frame, node)
			}
		}
		shares := map[string]float64{}
		for _, p := range m.Pods(at, at) {
			if p.Started.IsZero() || p.Started.After(at) || !p.Ended.After(at) {
				continue
			}
			for _, g := range p.GPUs {
				shares[fmt.Sprintf("%s/%d", p.Node, g)] += p.Share
			}
			if p.Share < 1 {
				parted++
			}
			dcgm, up := pages[p.Node]
			if _, n := sumOf(dcgm, "DCGM_FI_DEV_GPU_UTIL", fmt.Sprintf(`pod=%q`, p.Name)); up && n > 0 {
				named++
			} else if up && p.Node != "gpu-00001" { // there one of four is named
				t.Errorf("%s: nothing is said to be %s's on %s, which has %v of %v", at, p.Name, p.Node, p.Share, p.GPUs)
			}
		}
		for gpu, v := range shares {
			if v > 1+1e-9 {
				t.Errorf("%s: %v of %s is given away", at, v, gpu)
			}
		}
	}
	if parted < 500 || named < 500 {
		t.Errorf("%d pods with a part of a GPU were looked at, %d were named by DCGM", parted, named)
	}
}

// TestSystems: what a system mounts read-only on purpose is so from the start, and a disk that
// fails takes the one that it writes to.
func TestSystems(t *testing.T) {
	from := testUntil.Add(-time.Hour)
	kinds := []NodeKind{{System: Ubuntu}, {System: ContainerOptimized}, {System: Bottlerocket}, {System: Talos}}
	o := Options{Nodes: 4, NodesPerRack: 1, NodeKinds: kinds, Detail: Full}
	for n := range kinds {
		o.Troubles = append(o.Troubles, Trouble{Kind: NodeDiskReadOnly, Target: fmt.Sprintf("gpu-%05d", n), From: from, Until: testUntil})
	}
	m := mustNew(t, o)
	for n, c := range []struct{ always, fails, image string }{
		{"", "/", "Ubuntu"},
		{"/ /usr/share/oem", "/mnt/stateful_partition", "Container-Optimized OS"},
		{"/", "/local /var", "Bottlerocket"},
		{"/", "/var", "Talos"},
	} {
		for _, at := range []time.Time{from.Add(-time.Minute), from.Add(time.Minute)} {
			page, err := pageValues(t, m, JobNode, m.nodeName(n), at)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Fields(c.always)
			if at.After(from) {
				want = append(want, strings.Fields(c.fails)...)
			}
			var got []string
			for l, v := range page {
				if strings.Contains(l, "node_filesystem_readonly") && v == 1 {
					got = append(got, attribute(l, "mountpoint"))
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s at %s: %q are read-only, want %q", c.image, at, got, want)
			}
			if _, n := sumOf(page, "node_os_info", `name="`+c.image); n != 1 {
				t.Errorf("node_os_info does not say %s", c.image)
			}
		}
		ksm, err := pageValues(t, m, JobKubeStateMetrics, "", testUntil)
		if _, found := sumOf(ksm, "kube_node_info", m.nodeName(n), c.image); err != nil || found != 1 {
			t.Errorf("%v: kube_node_info does not say %s", err, c.image)
		}
	}
}

// TestFullSystems: a full disk is that of the system, not of the jobs, whatever its mounts are.
func TestFullSystems(t *testing.T) {
	from := testUntil.Add(-time.Hour)
	mounts := [][]string{{"/"}, {"/mnt/stateful_partition"}, {"/local", "/var"}, {"/var"}}
	o := Options{
		Nodes: 4, NodesPerRack: 1, Detail: Full,
		NodeKinds: []NodeKind{{System: Ubuntu}, {System: ContainerOptimized}, {System: Bottlerocket}, {System: Talos}},
	}
	for n := range o.NodeKinds {
		o.Troubles = append(o.Troubles, Trouble{Kind: NodeDiskFull, Target: fmt.Sprintf("gpu-%05d", n), From: from, Until: testUntil})
	}
	m := mustNew(t, o)
	for n, fills := range mounts {
		for at, want := range map[time.Time][]string{from.Add(-time.Minute): nil, from.Add(time.Minute): fills} {
			page, err := pageValues(t, m, JobNode, m.nodeName(n), at)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for l, left := range page {
				mount := attribute(l, "mountpoint")
				size, _ := sumOf(page, "node_filesystem_size_bytes", `mountpoint="`+mount+`"`)
				readOnly, _ := sumOf(page, "node_filesystem_readonly", `mountpoint="`+mount+`"`)
				if strings.Contains(l, "node_filesystem_avail_bytes") && readOnly == 0 && left < 0.05*size {
					got = append(got, mount)
				}
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("node %d at %s: %q are full, want %q", n, at, got, want)
			}
		}
	}
}

// TestMicroseconds: an old DCGM counts the same time in another unit.
func TestMicroseconds(t *testing.T) {
	o := Options{Nodes: 2, Troubles: []Trouble{{Kind: GPUThrottled, Target: onGPU, From: testUntil.Add(-time.Hour), Until: testUntil}}}
	was, err := pageValues(t, mustNew(t, o), JobDCGM, onNode, testUntil)
	if err != nil {
		t.Fatal(err)
	}
	o.NodeKinds = []NodeKind{{Microseconds: true}}
	is, err := pageValues(t, mustNew(t, o), JobDCGM, onNode, testUntil)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for l, v := range was {
		if want := v / 1000; !strings.Contains(l, "_VIOLATION") {
			if is[l] != v {
				t.Errorf("%s: %v became %v", l, v, is[l])
			}
		} else if compared++; math.Abs(is[l]-want) > 2 {
			t.Errorf("%s: %v ns became %v µs", l, v, is[l])
		}
	}
	if compared != 16 {
		t.Errorf("%d counters of violations were compared, not 16", compared)
	}
}

// TestPlannedWork follows a node that is upgraded and one that is given back, minute by minute.
func TestPlannedWork(t *testing.T) {
	from := testUntil.Add(-3 * time.Hour)
	after := func(minutes float64) time.Time { return from.Add(time.Duration(minutes * float64(time.Minute))) }
	o := Options{Seed: 9, Nodes: 3, APIServers: 1, Exporters: AllExporters, Troubles: []Trouble{
		{Kind: NodeUpgrade, Target: "gpu-00001", From: from, Until: after(15)},
		{Kind: NodeAbsent, Target: "gpu-00002", From: from, Until: after(30)},
	}}
	m := mustNew(t, o)
	up := func(job, node string, minutes float64) bool {
		_, err := pageValues(t, m, job, node, after(minutes))
		if err != nil && !errors.Is(err, ErrDown) {
			t.Fatal(err)
		}
		return err == nil
	}
	ksm := func(minutes float64, parts ...string) (float64, int) {
		page, err := pageValues(t, m, JobKubeStateMetrics, "", after(minutes))
		if err != nil {
			t.Fatal(err)
		}
		return sumOf(page, parts...)
	}
	check := func(what string, got, want any) {
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	of := func(node, metric string, more ...string) []string {
		return append([]string{"\"" + metric + "\"", node}, more...)
	}
	first := func(v float64, _ int) float64 { return v }
	number := func(_ float64, n int) int { return n }

	const upgraded, gone = "gpu-00001", "gpu-00002"
	for _, node := range []string{upgraded, gone} {
		check(node+" is cordoned before", first(ksm(-1, of(node, "kube_node_spec_unschedulable")...)), 0.0)
		check(node+" is cordoned", first(ksm(1, of(node, "kube_node_spec_unschedulable")...)), 1.0)
		for _, p := range m.Pods(after(0.6), after(1.9)) {
			if p.Node == node && p.Ended.After(after(0.6)) {
				t.Errorf("%s still runs on %s", p.Name, node)
			}
		}
	}
	// The upgrade: down from the 5th to the 10th minute, without its driver for another one and a
	// half.
	for _, c := range []struct {
		minutes    float64
		node, dcgm bool
		gpus       float64
		driver     string
	}{
		{4, true, true, 8, drivers[0]},
		{7, false, false, 8, ""},
		{10.5, true, false, 0, ""},
		{12, true, true, 8, drivers[1]},
		{60, true, true, 8, drivers[1]},
	} {
		check(fmt.Sprintf("node_exporter after %v minutes", c.minutes), up(JobNode, upgraded, c.minutes), c.node)
		check(fmt.Sprintf("dcgm-exporter after %v minutes", c.minutes), up(JobDCGM, upgraded, c.minutes), c.dcgm)
		offered := first(ksm(c.minutes, of(upgraded, "kube_node_status_allocatable", gpuResource)...))
		check(fmt.Sprintf("GPUs after %v minutes", c.minutes), offered, c.gpus)
		if c.driver != "" {
			page, _ := pageValues(t, m, JobDCGM, upgraded, after(c.minutes))
			check("GPUs with their driver", number(sumOf(page, "DCGM_FI_DEV_GPU_TEMP", c.driver)), 8)
		}
	}
	check("the upgraded node is given back", first(ksm(16, of(upgraded, "kube_node_spec_unschedulable")...)), 0.0)

	check("taint of the autoscaler", number(ksm(1, of(gone, "kube_node_spec_taint", "ToBeDeletedByClusterAutoscaler")...)), 1)
	for _, metric := range []string{"kube_node_info", "kube_node_created", "kube_node_status_condition", "kube_pod_info"} {
		for _, c := range []struct {
			minutes float64
			is      bool
		}{{1, true}, {3, false}, {29, false}, {31, true}} {
			n := number(ksm(c.minutes, of(gone, metric)...))
			check(fmt.Sprintf("%s after %v minutes", metric, c.minutes), n > 0, c.is)
		}
	}
	check("it joined", first(ksm(31, of(gone, "kube_node_created")...)), float64(after(30).Unix()))
	for _, c := range []struct {
		minutes float64
		targets int
	}{{1, 6}, {3, 0}, {29, 0}, {30, 6}} {
		w := httptest.NewRecorder()
		m.Handler(func() time.Time { return after(c.minutes) }).ServeHTTP(w, httptest.NewRequest("GET", "/sd", nil))
		body, err := io.ReadAll(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprintf("targets after %v minutes", c.minutes), strings.Count(string(body), `"node":"`+gone), c.targets)
		probes, _ := pageValues(t, m, JobNodeMesh, "", after(c.minutes))
		check("it is probed", number(sumOf(probes, "probe_success", gone)) > 0, c.targets > 0)
	}
}

// TestAbsentTarget: a server drops what its discovery no longer has: markers, and then nothing.
func TestAbsentTarget(t *testing.T) {
	from := testUntil.Add(-time.Hour)
	m := mustNew(t, Options{Nodes: 1, Troubles: []Trouble{
		{Kind: NodeAbsent, Target: "gpu-00000", From: from, Until: from.Add(30 * time.Minute)},
	}})
	dir := t.TempDir()
	_, err := m.Backfill(t.Context(), dir, BackfillOptions{
		From: from.Add(-10 * time.Minute), Until: testUntil, Interval: time.Minute,
		Keep: func(tg Target) bool { return tg.Job == JobNode },
	})
	if err != nil {
		t.Fatal(err)
	}
	gone, back := from.Add(2*time.Minute).UnixMilli(), from.Add(30*time.Minute).UnixMilli()
	looked := 0
	for l, ss := range readAll(t, dir) {
		if !strings.Contains(l, `"up"`) && !strings.Contains(l, "node_load1\"") {
			continue
		}
		looked++
		markers := 0
		for _, x := range ss {
			if x.t < gone || x.t >= back {
				continue
			}
			if markers++; math.Float64bits(x.v) != math.Float64bits(staleNaN) || x.t > gone+60_000 {
				t.Errorf("%s: %v %s after the node went", l, x.v, time.Duration(x.t-gone)*time.Millisecond)
			}
		}
		if markers != 1 || ss[len(ss)-1].t < back {
			t.Errorf("%s: %d markers, and its last sample is %s", l, markers, time.UnixMilli(ss[len(ss)-1].t))
		}
	}
	if looked != 2 {
		t.Errorf("%d series were looked at", looked)
	}
}

// TestNodeKindsRefused: each sentence names the key.
func TestNodeKindsRefused(t *testing.T) {
	short := Trouble{Kind: NodeAbsent, Target: "gpu-00000", From: testUntil, Until: testUntil.Add(time.Minute)}
	first := []NodeKind{{}, {Sharing: MIGSingle}}
	for want, o := range map[string]Options{
		"node_kinds[1]: {Sharing:9":                         {Nodes: 2, NodeKinds: []NodeKind{{}, {Sharing: 9}}},
		"node_kinds[0]: {Sharing:0 System:-1":               {Nodes: 2, NodeKinds: []NodeKind{{System: -1}}},
		"node_kinds[0]: a device plugin shares GPUs":        {Nodes: 2, Claims: true, NodeKinds: []NodeKind{{Sharing: TimeSliced}}},
		"node_kinds[0]: the first gang needs 2 nodes":       {Nodes: 2, FirstGang: 2, NodeKinds: []NodeKind{{Sharing: MIGMixed}}},
		"node_kinds[1]: the first gang needs 9 nodes":       {Nodes: 9, NodesPerRack: 4, FirstGang: 9, NodeKinds: first},
		"troubles[0]: NodeAbsent gpu-00000: it ends before": {Nodes: 1, Troubles: []Trouble{short}},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
