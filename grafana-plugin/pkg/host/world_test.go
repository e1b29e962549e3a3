package host

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/proxy/server/servertest"
)

// series are an hour, up to now, of one cluster with two experiments: what is scraped and what the
// mixin's rules record of it. run has two pods with two GPUs each, queued a pod that waits. A
// quarter of an hour ago run's containers were started again, and its GPUs had an Xid.
func series(cluster string) string {
	var b strings.Builder
	b.WriteString("load 1m\n")
	add := func(values, format string, args ...any) {
		metric, of, _ := strings.Cut(fmt.Sprintf(format, args...), "{")
		fmt.Fprintf(&b, "  %s{cluster=%q,%s %s\n", metric, cluster, of, values)
	}
	const always = "1x65"
	for i, pod := range []string{"run-0", "run-1"} {
		node := fmt.Sprintf("gpu-%d", i)
		id := fmt.Sprintf(`namespace="ml",pod=%q,uid="u%d"`, pod, i)
		named := id + `,experiment="run",team="vision"`
		add(always, `experiment:pod:labels{%s}`, named)
		add(always, `experiment:pod:info{%s,node=%q}`, named, node)
		add("2x65", `experiment:pod:gpus{%s,node=%q}`, named, node)
		add(always, `kube_pod_info{%s,node=%q}`, id, node)
		add(always, `kube_pod_labels{%s,label_experiment="run",label_team="vision"}`, id)
		add("2x65", `kube_pod_container_resource_requests{%s,node=%q,container="main",resource="nvidia_com_gpu",unit="integer"}`, id, node)
		add("0x44 1x20", `kube_pod_container_status_restarts_total{%s,container="main"}`, id)
		add("1760000000x65", `kube_pod_created{%s}`, id)
		add("1760000000x65", `kube_pod_start_time{%s}`, id)
		for _, phase := range []string{"Pending", "Running", "Succeeded", "Failed", "Unknown"} {
			value := "0x65"
			if phase == "Running" {
				value = always
			}
			add(value, `kube_pod_status_phase{%s,phase=%q}`, id, phase)
		}
		for gpu := range 2 {
			uuid := fmt.Sprintf("GPU-%s-%d-%d", cluster, i, gpu)
			held := fmt.Sprintf(`namespace="ml",pod=%q,node=%q,gpu="%d",UUID=%q,experiment="run",team="vision"`, pod, node, gpu, uuid)
			util := "90x65"
			if i == 1 && gpu == 1 {
				util = "40x65" // a straggler
			}
			for m, v := range map[string]string{
				"util": util, "tensor": "0.5x65", "dram": "0.4x65", "mem": "30000x65", "power": "400x65",
				"temp": "60x65",
			} {
				add(v, `experiment:gpu:%s{%s}`, m, held)
			}
			raw := fmt.Sprintf(`Hostname=%q,node=%q,gpu="%d",UUID=%q,modelName="NVIDIA H100 80GB HBM3",namespace="ml",pod=%q,container="main"`, node, node, gpu, uuid, pod)
			for m, v := range map[string]string{
				"DCGM_FI_DEV_GPU_UTIL": "90x65", "DCGM_FI_DEV_XID_ERRORS": "0x44 79x20", "DCGM_FI_DEV_GPU_TEMP": "60x65",
				"DCGM_FI_DEV_ROW_REMAP_FAILURE":           "0x65",
				"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "0x65", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "0+6000x65",
				"DCGM_FI_PROF_NVLINK_TX_BYTES": "1000x65",
				"DCGM_FI_PROF_NVLINK_RX_BYTES": "1000x65", "DCGM_FI_DEV_POWER_USAGE": "400x65",
			} {
				add(v, `%s{%s}`, m, raw)
			}
		}
		// What the gauge changed to, as rules record it.
		add("_x45 1x20", `gpu:xid_last:info{node=%q,gpu="0",UUID="GPU-%s-%d-0",modelName="NVIDIA H100 80GB HBM3",xid="79"}`, node, cluster, i)
		add("_x48 1 stale", `gpu:xid_errors:count5m{node=%q,gpu="0",UUID="GPU-%s-%d-0",modelName="NVIDIA H100 80GB HBM3",xid="79",class="dead"}`, node, cluster, i)
		add("60x65", `node:gpu_temp_celsius:max{node=%q}`, node)
		add(always, `kube_node_info{node=%q}`, node)
		for _, status := range []string{"true", "false", "unknown"} {
			value := "0x65"
			if status == "true" {
				value = always
			}
			add(value, `kube_node_status_condition{node=%q,condition="Ready",status=%q}`, node, status)
		}
		add("0x65", `kube_node_spec_unschedulable{node=%q}`, node)
		add("2x65", `kube_node_status_capacity{node=%q,resource="nvidia_com_gpu",unit="integer"}`, node)
		add("2x65", `kube_node_status_allocatable{node=%q,resource="nvidia_com_gpu",unit="integer"}`, node)
		for _, direction := range []string{"transmitted", "received"} {
			add("0+60000x65", `node_infiniband_port_data_%s_bytes_total{node=%q,instance="%s:9100",device="mlx5_0",port="1"}`, direction, node, node)
		}
		for _, fault := range []string{"link_downed", "link_error_recovery", "port_errors_received"} {
			add("0+6x65", `node_infiniband_%s_total{node=%q,instance="%s:9100",device="mlx5_0",port="1"}`, fault, node, node)
		}
		for _, direction := range []string{"transmit", "receive"} {
			for _, what := range []string{"bytes", "errs", "drop"} {
				add("0+600x65", `node_network_%s_%s_total{node=%q,instance="%s:9100",device="eth0"}`, direction, what, node, node)
			}
		}
	}
	id := `namespace="ml",pod="queued-0",uid="u9"`
	named := id + `,experiment="queued",team="vision"`
	add(always, `experiment:pod:labels{%s}`, named)
	add(always, `experiment:pod:info{%s,node=""}`, named)
	add(always, `kube_pod_info{%s,node=""}`, id)
	add(always, `kube_pod_labels{%s,label_experiment="queued",label_team="vision"}`, id)
	add(always, `kube_pod_status_phase{%s,phase="Pending"}`, id)
	add(always, `kube_pod_status_unschedulable{%s}`, id)
	add("1760000000x65", `kube_pod_created{%s}`, id)
	add("2x65", `experiment:pods:count{experiment="run",team="vision",phase="Running"}`)
	add(always, `experiment:pods:count{experiment="queued",team="vision",phase="Pending"}`)
	add("4x65", `cluster:gpu_seen:sum{}`)
	return b.String()
}

// shard is a Prometheus with the series of one cluster.
func shard(t *testing.T, cluster string) *localprom.Shard {
	t.Helper()
	s, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true, ExternalLabels: labels.FromStrings("cluster", cluster)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.LoadAt(series(cluster), time.Now().Truncate(time.Minute).Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	return s
}

// proxy serves the shards of clusters, each a group, until the test ends. limits are lines of its
// configuration.
func proxy(t *testing.T, limits string, shards map[string]string) string {
	t.Helper()
	text := limits + "\ngroups:\n"
	for _, cluster := range []string{"jaguar", "ibis"} {
		if url := shards[cluster]; url != "" {
			text += fmt.Sprintf("  - {name: %s, labels: {cluster: %s}, shards: [{replicas: [{url: %q}]}]}\n", cluster, cluster, url)
		}
	}
	url, _ := servertest.Start(t, text)
	return url
}

// whole is the proxy over both clusters.
func whole(t *testing.T) string {
	t.Helper()
	return proxy(t, "", map[string]string{"jaguar": shard(t, "jaguar").URL(), "ibis": shard(t, "ibis").URL()})
}
