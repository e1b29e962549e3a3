package experiments

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// podKeys are the labels of pods as Kubernetes spells them; kube-state-metrics' spelling cannot be
// turned back.
var podKeys = map[string]string{
	"label_experiment":                       "experiment",
	"label_jobset_sigs_k8s_io_jobset_name":   "jobset.sigs.k8s.io/jobset-name",
	"label_training_kubeflow_org_job_name":   "training.kubeflow.org/job-name",
	"label_ray_io_cluster":                   "ray.io/cluster",
	"label_leaderworkerset_sigs_k8s_io_name": "leaderworkerset.sigs.k8s.io/name",
	"label_kueue_x_k8s_io_pod_group_name":    "kueue.x-k8s.io/pod-group-name",
	"label_volcano_sh_job_name":              "volcano.sh/job-name",
	"label_batch_kubernetes_io_job_name":     "batch.kubernetes.io/job-name",
	"label_job_name":                         "job-name",
	"label_app_kubernetes_io_name":           "app.kubernetes.io/name",
	"label_run_id":                           "run-id",
}

// sources are the fields of DCGM that experiment:gpu:* is recorded from.
var sources = map[model.Metric]string{
	model.Util: "DCGM_FI_DEV_GPU_UTIL", model.Tensor: "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", model.DRAM: "DCGM_FI_PROF_DRAM_ACTIVE",
	model.Memory: "DCGM_FI_DEV_FB_USED", model.Power: "DCGM_FI_DEV_POWER_USAGE", model.Temp: "DCGM_FI_DEV_GPU_TEMP",
}

// allowList is the flag of kube-state-metrics that lets the labels of the chain through, and
// remarks where their spelling is not known.
func allowList(chain []string) string {
	keys, unknown := make([]string, len(chain)), []string{}
	for i, l := range chain {
		key, ok := podKeys[l]
		if !ok {
			key = strings.TrimPrefix(l, "label_")
			if strings.Contains(key, "_") {
				unknown = append(unknown, key)
			}
		}
		keys[i] = key
	}
	if !slices.Contains(keys, "team") {
		keys = append(keys, "team")
	}
	flag := "--metric-labels-allowlist=pods=[" + strings.Join(keys, ",") + "]"
	if len(unknown) > 0 {
		flag += fmt.Sprintf(" (write %s as your pods spell it, with its dots, slashes and dashes)", strings.Join(unknown, " and "))
	}
	return flag
}

// rendered tells how to get the recording rules of a file of the mixin, with the chain: rules of
// folder global run in the ruler, those of shard in each Prometheus.
func rendered(folder, file string, chain []string) string {
	where := map[string]string{"global": "the ruler that asks the proxy", "shard": "each Prometheus"}[folder]
	return fmt.Sprintf("Run `spillway mixin render --config values.yaml --out rendered` with `experimentLabels: [%s]` in values.yaml, and load rendered/alerts/%s/%s into %s.",
		strings.Join(chain, ", "), folder, file, where)
}

// set is a set of clusters.
type set map[string]bool

func (s set) without(t set) set {
	out := set{}
	for c := range s {
		if !t[c] {
			out[c] = true
		}
	}
	return out
}

func (s set) with(t set) set {
	out := maps.Clone(s)
	maps.Copy(out, t)
	return out
}

// names are those of the set, sorted.
func (s set) names() []string { return slices.Sorted(maps.Keys(s)) }

// in is where something is missing, for a sentence.
func (s set) in() string {
	names := s.names()
	const shown = 5
	switch n := len(names); {
	case n == 1 && names[0] == "":
		return "here"
	case n == 1:
		return fmt.Sprintf("in cluster %q", names[0])
	case n > shown:
		return fmt.Sprintf("in %d clusters, such as %q", n, names[0])
	}
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = fmt.Sprintf("%q", n)
	}
	return "in clusters " + strings.Join(quoted, ", ")
}

// diagnosis is one run of Diagnose. After an error nothing is asked any more, and everything is
// there.
type diagnosis struct {
	ctx      context.Context //nolint:containedctx // it lives as long as one call
	asker    prom.Asker
	settings model.Settings
	at       time.Time
	matcher  string // of the clusters; "" for all
	clusters set    // that are asked about

	need     Need // that is looked for
	findings []Finding
	warnings []string // each once
	err      error
}

// diagnose is Diagnose that looks for some metrics of GPUs.
func diagnose(ctx context.Context, asker prom.Asker, settings model.Settings, needs Need, metrics []model.Metric, clusters []string,
	at time.Time,
) (findings []Finding, warnings []string, err error) {
	d := &diagnosis{ctx: ctx, asker: asker, settings: settings, at: at, matcher: OneOf("cluster", clusters...), clusters: set{}}
	for _, c := range clusters {
		d.clusters[c] = true
	}
	d.all(needs, metrics)
	if d.err != nil {
		return nil, nil, d.err
	}
	d.everywhere()
	if len(d.warnings) > 0 {
		for i := range d.findings {
			d.findings[i].Missing += " The proxy warned, so it may be there and not be seen: " + d.warnings[0]
		}
	}
	return d.findings, d.warnings, nil
}

func (d *diagnosis) all(needs Need, metrics []model.Metric) {
	known, merged := d.known()
	if len(d.clusters) == 0 { // all that the proxy has: nodes are fewer than pods
		if d.clusters = known.with(d.has("kube_node_info")); len(d.clusters) == 0 {
			d.clusters = d.has("kube_pod_info")
		}
	}
	if d.err != nil {
		return
	}
	if len(d.clusters) == 0 {
		d.nothing()
		return
	}
	if needs&(NeedPods|NeedGPUs|NeedHours) != 0 {
		d.need = NeedPods
		d.found(merged, "Clusters cannot be told apart %s: "+nodesCounted+", of which a cluster has one series, has several.",
			"Render the rules with clusterLabel: cluster, its default, and give each Prometheus server the external label cluster: this datasource knows no other. "+
				"If several rulers record the same, add the label in which they differ to the proxy's replica_labels.")
		d.pods(known)
	}
	if needs&(NeedHours|NeedGPUs) != 0 {
		d.need = NeedHours
		held := d.hours(keep(known, d.clusters))
		if needs&NeedGPUs != 0 {
			d.need = NeedGPUs
			d.gpus(held, metrics)
		}
	}
	if needs&NeedFaults != 0 {
		d.need = NeedFaults
		d.faults()
	}
	if needs&NeedInfiniband != 0 {
		d.need = NeedInfiniband
		d.network("InfiniBand", "--collector.infiniband", "node:infiniband_received_bytes:rate5m",
			"node_infiniband_port_data_received_bytes_total")
	}
	if needs&NeedEthernet != 0 {
		d.need = NeedEthernet
		d.network("Ethernet", "--collector.netdev", "node:ethernet_received_bytes:rate5m", "node_network_receive_bytes_total")
	}
	if needs&NeedNVLink != 0 {
		d.need = NeedNVLink
		d.nvlink()
	}
}

// known returns the clusters in which experiments are known, and those that are several: of which
// nodes are counted more than once.
func (d *diagnosis) known() (known, merged set) {
	series := d.series("group by (cluster) (" + d.selector("experiment:pod:info") + ") or " +
		`label_replace(count by (cluster) (` + d.selector(nodesCounted) + `) > 1, "merged", "yes", "", "")`)
	known, merged = set{}, set{}
	for _, s := range series {
		if s.Labels["merged"] == "" {
			known[s.Labels["cluster"]] = true
		} else {
			merged[s.Labels["cluster"]] = true
		}
	}
	return known, merged
}

// has returns the clusters that have series of the selector's metric with the matchers at the
// moment.
func (d *diagnosis) has(metric string, matchers ...string) set {
	return d.ask("group by (cluster) (" + d.selector(metric, matchers...) + ")")
}

// had are those of the clusters that had series of the metric lately: at any time of the last day,
// or at a whole hour of the last month.
func (d *diagnosis) had(metric string, clusters set) set {
	return d.lately(clusters, func(left set, window time.Duration) string {
		look := "[1d]"
		if window > 24*time.Hour {
			look = "[" + seconds(window) + ":" + seconds(time.Hour) + "]"
		}
		return "group by (cluster) (last_over_time(" + Selector(metric, OneOf("cluster", left.names()...)) + look + "))"
	})
}

// lately asks about the last day, and about the last month in the clusters that are not found so.
// Where a proxy lets nobody look back so far, less is known.
func (d *diagnosis) lately(clusters set, ask func(left set, window time.Duration) string) set {
	out := set{}
	for _, window := range []time.Duration{24 * time.Hour, mostBack} {
		left := clusters.without(out)
		if len(left) == 0 || d.err != nil {
			break
		}
		found := d.ask(ask(left, window))
		var no *prom.Refusal
		if errors.As(d.err, &no) && no.Status == http.StatusUnprocessableEntity {
			d.err = nil
			continue
		}
		out = out.with(found)
	}
	return out
}

func (d *diagnosis) selector(metric string, matchers ...string) string {
	return Selector(metric, append([]string{d.matcher}, matchers...)...)
}

func (d *diagnosis) ask(query string) set {
	series := d.series(query)
	if d.err != nil {
		return maps.Clone(d.clusters)
	}
	return clustersIn(series)
}

// series are those of an answer; none after an error.
func (d *diagnosis) series(query string) []prom.Series {
	if d.err != nil {
		return nil
	}
	var a prom.Answer
	if a, d.err = d.asker.Instant(d.ctx, query, d.at); d.err != nil {
		return nil
	}
	for _, w := range a.Warnings {
		if !slices.Contains(d.warnings, w) {
			d.warnings = append(d.warnings, w)
		}
	}
	return a.Series
}

// found adds a finding about clusters, if there are any. missing has a %s for where.
func (d *diagnosis) found(clusters set, missing, fix string) {
	if d.err != nil || len(clusters) == 0 {
		return
	}
	d.findings = append(d.findings, Finding{
		Missing: fmt.Sprintf(missing, clusters.in()), Fix: fix, Clusters: slices.Sorted(maps.Keys(clusters)), Need: d.need,
	})
}

// everywhere fills in Finding.Everywhere.
func (d *diagnosis) everywhere() {
	lacking := map[Need]set{}
	for _, f := range d.findings {
		if lacking[f.Need] == nil {
			lacking[f.Need] = set{}
		}
		for _, c := range f.Clusters {
			lacking[f.Need][c] = true
		}
	}
	for i := range d.findings {
		d.findings[i].Everywhere = len(d.clusters.without(lacking[d.findings[i].Need])) == 0
	}
}

// nothing is what there is to say where no cluster has a pod.
func (d *diagnosis) nothing() {
	any := len(d.ask("group (up)")) > 0
	if d.err != nil {
		return
	}
	f := Finding{
		Need: NeedPods, Missing: "The proxy has no series about pods (kube_pod_info).",
		Fix: "Let Prometheus scrape kube-state-metrics, as deploy/exporters of Spillway has it, and check that the datasource's credentials may read its series.",
	}
	if !any {
		f.Missing = "The proxy has no series at all that this datasource may read."
		f.Fix = "Check the datasource's credentials and headers, what they permit, and that the proxy's configuration names your Prometheus servers."
	}
	d.findings = append(d.findings, f)
}

// pods looks for what experiment:pod:info is recorded from, in the clusters of which no experiment
// is known.
func (d *diagnosis) pods(known set) {
	missing := d.clusters.without(known)
	if len(missing) == 0 || d.err != nil {
		return
	}
	// A cluster that had experiments is set up, and lacks nothing where none runs now.
	had := d.had("experiment:pods:count", missing)
	d.still(had)
	if missing = missing.without(had.without(d.unnamed(had))); len(missing) == 0 {
		return
	}
	pods := d.has("kube_pod_info")
	d.found(missing.without(pods), "There are no series about pods %s (kube_pod_info).",
		"Let Prometheus scrape kube-state-metrics there, as deploy/exporters of Spillway has it; check the cluster's name, and that the datasource's credentials may read it.")
	missing = keep(missing, pods)
	if len(missing) == 0 {
		return
	}
	flag := "Start kube-state-metrics with " + allowList(d.settings.Labels) + ". Of two such flags only the last counts."
	labelled := d.has("kube_pod_labels")
	d.found(missing.without(labelled), "kube-state-metrics gives no labels of pods %s (kube_pod_labels).", flag)
	missing = keep(missing, labelled)
	if len(missing) == 0 {
		return
	}
	chain := make([]string, len(d.settings.Labels))
	for i, l := range d.settings.Labels {
		chain[i] = "group by (cluster) (" + d.selector("kube_pod_labels", l+`!=""`) + ")"
	}
	named := d.ask(strings.Join(chain, " or "))
	d.found(missing.without(named), "No pod %s has a label that names an experiment: kube_pod_labels has none of "+strings.ReplaceAll(strings.Join(d.settings.Labels, ", "), "%", "")+".",
		"Give your pods one of these labels and let it through: "+strings.TrimPrefix(flag, "Start ")+" If your controller sets another label, put it into the datasource's labels and into experimentLabels of the rules.")
	missing = keep(missing, named)
	d.found(missing, "The recording rules of experiments are missing %s: pods have labels that name experiments, and there is no experiment:pod:info.",
		rendered("global", "experiment-rules.yaml", d.settings.Labels))
}

// unnamed are those of clusters, in which no experiment is known, in which pods that held GPUs for
// one lately run on.
func (d *diagnosis) unnamed(clusters set) set {
	for _, ask := range runsUnnamed {
		clusters = d.lately(clusters, func(left set, window time.Duration) string {
			return ask(model.Query{Clusters: left.names()}, window)
		})
	}
	return clusters
}

// still looks whether rules are evaluated in clusters in which nothing seems to run: where they are
// not, nobody knows. A cluster of which nothing else is seen is lost, which is told elsewhere.
func (d *diagnosis) still(clusters set) {
	if len(clusters) == 0 || d.err != nil {
		return
	}
	silent := clusters.without(d.has(nodesCounted))
	if len(silent) == 0 || d.err != nil {
		return
	}
	d.found(keep(d.had(nodesCounted, silent), d.has("kube_node_info")),
		"The recording rules stand still %s: kube-state-metrics tells of nodes, and "+nodesCounted+", which is recorded of them, is not there any more.",
		"Look at the ruler that asks the proxy: whether it runs, and what its log says of the rules in rendered/alerts/global.")
}

// hours looks for experiment:pod:gpus in the clusters in which experiments are known, and returns
// those in which experiments hold GPUs.
func (d *diagnosis) hours(known set) set {
	held := d.has("experiment:pod:gpus")
	missing := known.without(held)
	if len(missing) == 0 || d.err != nil {
		return held
	}
	gpu := d.has("kube_pod_container_resource_requests", `resource="nvidia_com_gpu"`)
	if none := missing.without(gpu); len(none) > 0 {
		// Either no pod holds a GPU, or nothing is told of what pods ask for.
		d.found(none.without(d.has("kube_pod_container_resource_requests")), "kube-state-metrics does not tell %s what containers ask for (kube_pod_container_resource_requests).",
			"Add --metric-allowlist=^kube_pod_container_resource_requests$ to its flags, or take deploy/exporters/kube-state-metrics.flags of Spillway; the resource is spelled nvidia_com_gpu.")
		missing = missing.without(none)
	}
	if len(missing) == 0 {
		return held
	}
	// GPUs can be held by pods that belong to no experiment.
	d.found(missing.without(d.has("pod:gpu_allocated:sum")), "The recording rules of GPUs are missing %s: containers ask for GPUs, and there is no pod:gpu_allocated:sum.", rendered("global", "gpu-rules.yaml", d.settings.Labels))
	return held
}

// gpus looks for experiment:gpu:* of the metrics in the clusters in which experiments hold GPUs.
func (d *diagnosis) gpus(held set, metrics []model.Metric) {
	base, mended := held, set{}
	for _, m := range metrics {
		missing := base.without(mended)
		if len(missing) == 0 || d.err != nil {
			return
		}
		if missing = missing.without(d.has("experiment:gpu:" + string(m))); len(missing) == 0 {
			continue
		}
		source := sources[m]
		raw := d.has(source, `gpu="0"`)
		// Nothing else of DCGM is there where its first field is not; that is said once.
		if none := missing.without(raw); len(none) > 0 {
			dcgm := d.has("DCGM_FI_DEV_GPU_TEMP", `gpu="0"`).with(d.has("DCGM_FI_DEV_GPU_UTIL", `gpu="0"`))
			nothing := none.without(dcgm)
			d.found(nothing, "There are no series of dcgm-exporter %s.",
				"Run dcgm-exporter on each node with GPUs, with `-f` and deploy/exporters/dcgm-counters.csv of Spillway, and let Prometheus scrape it.")
			mended = mended.with(nothing)
			fix := "Start dcgm-exporter with `-f` and deploy/exporters/dcgm-counters.csv of Spillway, in which the field stands."
			if strings.HasPrefix(source, "DCGM_FI_PROF_") {
				fix += " Fields of profiling need the capability SYS_ADMIN."
			}
			d.found(none.without(nothing), "dcgm-exporter does not export "+source+" %s.", fix)
			missing = missing.without(none)
		}
		if len(missing) == 0 {
			continue
		}
		aside := d.has(source, `exported_pod!=""`)
		set := keep(missing, aside)
		d.found(set, "Of the GPUs %s the pods stand under exported_pod and exported_namespace, where the recording rules do not look.",
			"Scrape dcgm-exporter with honor_labels: true (honorLabels: true in its ServiceMonitor), or render the rules with `dcgm: {pod: exported_pod, namespace: exported_namespace}`.")
		mended, missing = mended.with(set), missing.without(set)
		if len(missing) == 0 {
			continue
		}
		set = missing.without(d.has(source, `pod!=""`))
		d.found(set, "dcgm-exporter does not say %s which pod has a GPU: its series have no label pod, though experiments hold GPUs.",
			"Start it with --kubernetes (DCGM_EXPORTER_KUBERNETES=true) and mount the kubelet's directory /var/lib/kubelet/pod-resources. It knows only GPUs that pods ask for as nvidia.com/gpu.")
		mended, missing = mended.with(set), missing.without(set)
		if len(missing) == 0 {
			continue
		}
		set = missing.without(d.has(source, `pod!=""`, `node!=""`))
		d.found(set, "The series of dcgm-exporter %s have no label node, by which GPUs and pods are joined.",
			"Make node from its label Hostname or hostname when it is scraped, as deploy/exporters/prometheus.yml of Spillway does: Xids, heat and NVLink are read by node from these series themselves, too.")
		mended, missing = mended.with(set), missing.without(set)
		d.found(missing, fmt.Sprintf("The recording rules of experiments' GPUs are missing %%s: there is %s with pods, and no experiment:gpu:%s.", source, m),
			rendered("global", "experiment-rules.yaml", d.settings.Labels))
	}
}

// keep is what is in both.
func keep(s, t set) set { return s.without(s.without(t)) }

// faults looks for the fields of DCGM that tell of sick GPUs. Xids have series only where there
// were some, so they are not looked for.
func (d *diagnosis) faults() {
	gpus := keep(d.clusters, d.has("DCGM_FI_DEV_GPU_TEMP", `gpu="0"`))
	if len(gpus) == 0 {
		return
	}
	var ask []string
	for _, field := range []string{
		"DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
		"DCGM_EXP_XID_ERRORS_COUNT",
	} {
		ask = append(ask, "group by (cluster) ("+d.selector(field, `gpu="0"`)+")")
	}
	silent := gpus.without(d.ask(strings.Join(ask, " or ")))
	d.found(silent, "dcgm-exporter tells nothing %s of sick GPUs: no Xids, remapped rows or ECC errors.",
		"Start it with `-f` and deploy/exporters/dcgm-counters.csv of Spillway, in which DCGM_EXP_XID_ERRORS_COUNT, the rows and the ECC errors stand; its own default leaves most of them out.")
	told := gpus.without(silent)
	d.found(told.without(d.has("node:gpu_temp_celsius:max")), "The recording rules of sick GPUs are missing %s: dcgm-exporter tells of GPUs, and there is no node:gpu_temp_celsius:max, which is recorded with them.",
		rendered("shard", "gpu-rules.yaml", d.settings.Labels))
}

// network looks for the traffic of nodes.
func (d *diagnosis) network(what, collector, recorded, raw string) {
	missing := d.clusters.without(d.has(recorded))
	if len(missing) == 0 || d.err != nil {
		return
	}
	if missing = missing.without(d.has(raw)); len(missing) == 0 {
		return
	}
	nodes := d.has("node_load1")
	d.found(missing.without(nodes), "There are no series of node_exporter %s.", "Run node_exporter in the host's network on each node, with deploy/exporters/node-exporter.flags of Spillway, and let Prometheus scrape it.")
	d.found(keep(missing, nodes), "node_exporter tells nothing %s of "+what+" ("+raw+").",
		"Start it with "+collector+" and with the host's /sys and /proc; without such hardware there is nothing to see here.")
}

func (d *diagnosis) nvlink() {
	d.found(keep(d.clusters, d.has("DCGM_FI_DEV_GPU_TEMP", `gpu="0"`)).without(d.has("DCGM_FI_PROF_NVLINK_RX_BYTES", `gpu="0"`)), "dcgm-exporter tells nothing %s of NVLink (DCGM_FI_PROF_NVLINK_RX_BYTES).",
		"Start it with `-f` and deploy/exporters/dcgm-counters.csv of Spillway, and with the capability SYS_ADMIN; GPUs without NVLink have nothing to show here.")
}
