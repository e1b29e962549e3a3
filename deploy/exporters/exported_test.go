package exporters

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	runtimes "github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/deploy/ruler"
)

// collectors are the collectors of node_exporter by how their metrics begin.
var collectors = []struct{ prefix, collector string }{
	{"node_arp_", "arp"},
	{"node_nf_conntrack_", "conntrack"},
	{"node_cpu_", "cpu"},
	{"node_disk_", "diskstats"},
	{"node_filefd_", "filefd"},
	{"node_filesystem_", "filesystem"},
	{"node_infiniband_", "infiniband"},
	{"node_load", "loadavg"},
	{"node_lnstat_", "lnstat"},
	{"node_md_", "mdadm"},
	{"node_memory_", "meminfo"},
	{"node_netstat_", "netstat"},
	{"node_nvme_", "nvme"},
	{"node_os_", "os"},
	{"spillway_canary_", "textfile"}, // docs/canary.md
	{"node_pressure_", "pressure"},
	{"node_boot_time_", "stat"},
	{"node_time_", "time"},
	{"node_timex_", "timex"},
	{"node_uname_", "uname"},
	{"node_vmstat_", "vmstat"},
	// Of both: netclass has what an interface is, netdev what it has done.
	{"node_network_receive_", "netdev"},
	{"node_network_transmit_", "netdev"},
	{"node_network_", "netclass"},
}

// pages are what the real servers export by themselves: facts taken from running ones.
var pages = map[string]string{
	"kube-apiserver":          "../../loadtest/cluster/testdata/genuine/kube-apiserver-1.34.4.tsv",
	"etcd":                    "../../loadtest/cluster/testdata/genuine/etcd-3.6.4.tsv",
	"etcd-events":             "../../loadtest/cluster/testdata/genuine/etcd-3.6.4.tsv",
	"kube-controller-manager": "../../loadtest/cluster/testdata/genuine/kube-controller-manager-1.34.4.tsv",
	"kube-scheduler":          "../../loadtest/cluster/testdata/genuine/kube-scheduler-1.34.4.tsv",
	"kubelet":                 "../../loadtest/cluster/testdata/genuine/kubelet-hollow-1.34.4.tsv",
	"iptables-exporter":       "../../loadtest/cluster/testdata/genuine/iptables_exporter-0.1.0.tsv",
	"prometheus":              "../../alerts/testdata/genuine/prometheus-3.15.0.tsv",
	"thanos-rule":             "../../alerts/testdata/genuine/thanos-rule-0.42.4.tsv",
	"alertmanager":            "../../alerts/testdata/genuine/alertmanager-0.25.0.tsv",
}

// byDefault are metrics of exporters that could not be run, by the job that has them; they export
// these without any flag.
var byDefault = map[string][]string{
	"coredns": {
		"coredns_dns_requests_total", "coredns_dns_responses_total", "coredns_dns_request_duration_seconds",
		"coredns_cache_hits_total", "coredns_forward_healthcheck_failures_total",
	},
	"cluster-autoscaler": {
		"cluster_autoscaler_cluster_safe_to_autoscale", "cluster_autoscaler_failed_scale_ups_total",
		"cluster_autoscaler_last_activity", "cluster_autoscaler_unschedulable_pods_count", "cluster_autoscaler_nodes_count",
	},
	"node-problem-detector": {"problem_counter", "problem_gauge"},
	"node-mesh":             {"probe_success", "probe_duration_seconds"},
	"remediator": {
		"remediator_acts", "remediator_decisions_total", "remediator_last_webhook_timestamp_seconds",
		"remediator_start_time_seconds", "remediator_waiting_nodes",
	},
	"cadvisor": {
		"container_memory_rss", "container_spec_memory_limit_bytes", "container_cpu_usage_seconds_total",
		"container_network_transmit_bytes_total", "container_network_receive_bytes_total",
	},
}

// notThere are metrics that a genuine page lacks, since nothing of the kind had happened, or ran,
// where it was taken; alerts/metrics.yaml says where they come from.
var notThere = map[string][]string{
	"thanos-rule": {
		"prometheus_remote_storage_highest_timestamp_in_seconds", "prometheus_remote_storage_queue_highest_sent_timestamp_seconds",
		"prometheus_remote_storage_queue_highest_timestamp_seconds", "prometheus_remote_storage_samples_failed_total",
		"prometheus_remote_storage_samples_pending", "prometheus_remote_storage_samples_total",
	},
	"kube-apiserver":          {"apiserver_admission_webhook_fail_open_count"},
	"prometheus":              {"reloader_last_reload_successful"}, // of the operator's config-reloader, which is scraped under this job
	"kube-controller-manager": {"leader_election_master_status"},
	"kube-scheduler":          {"leader_election_master_status"},
	"kubelet": {
		"kubelet_certificate_manager_client_expiration_renew_errors", "kubelet_certificate_manager_client_ttl_seconds",
		"kubelet_certificate_manager_server_ttl_seconds", "kubelet_server_expiration_renew_errors",
	},
}

// used is a selector of a rule.
type used struct {
	metric string
	jobs   []string // that its matchers name; empty: any
	where  string
}

// rules reads all rules that were generated: their selectors, the names that they record, and the
// text of their expressions.
func rules(t *testing.T) (uses []used, recorded map[string]bool, text string) {
	t.Helper()
	files, err := filepath.Glob("../../alerts/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := parser.NewParser(parser.Options{})
	recorded = map[string]bool{}
	n := 0
	for _, f := range files {
		if d := filepath.Base(filepath.Dir(f)); d != "global" && d != "shard" {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var groups rulefmt.RuleGroups
		if err := yaml.Unmarshal(b, &groups); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				n++
				if r.Record != "" {
					recorded[r.Record] = true
				}
				text += r.Expr + "\n"
				expr, err := p.ParseExpr(r.Expr)
				if err != nil {
					t.Fatalf("%s: %s: %v", f, r.Alert+r.Record, err)
				}
				parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
					vs, ok := node.(*parser.VectorSelector)
					if !ok {
						return nil
					}
					u := used{metric: vs.Name, where: fmt.Sprintf("%s (alerts/%s/%s)", r.Alert+r.Record, filepath.Base(filepath.Dir(f)),
						filepath.Base(f))}
					for _, m := range vs.LabelMatchers {
						switch {
						case m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual:
							u.metric = m.Value
						case m.Name == "job" && m.Type == labels.MatchEqual:
							u.jobs = []string{m.Value}
						case m.Name == "job" && m.Type == labels.MatchRegexp:
							u.jobs = m.SetMatches()
						}
					}
					uses = append(uses, u)
					return nil
				})
			}
		}
	}
	if n < 50 {
		t.Fatalf("../../alerts has %d rules: run make generate", n)
	}
	return uses, recorded, text
}

// families are the names of a page's families.
func families(t *testing.T, file string) map[string]bool {
	t.Helper()
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s has moved: this test needs what the real server exports", file)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string]bool{}
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if name, _, ok := strings.Cut(sc.Text(), "\t"); ok {
			out[name] = true
		}
	}
	if err := sc.Err(); err != nil || len(out) == 0 {
		t.Fatalf("%s: %d families, %v", file, len(out), err)
	}
	return out
}

// exporter says why a metric is not exported by a job as it is shipped here; "" if it is.
type exporter struct {
	dcgm, enabled map[string]bool
	sysctls       map[string]bool
	ksm           []*regexp.Regexp
	pages         map[string]map[string]bool
	jobs          map[string]bool
}

// offered are lines of dcgm-counters.csv that wait for an exporter which knows their field: their
// comment has no space after its sign.
var offered = regexp.MustCompile(`(?m)^#(DCGM_)`)

func newExporter(t *testing.T) *exporter {
	t.Helper()
	e := &exporter{
		dcgm: map[string]bool{}, enabled: map[string]bool{}, sysctls: map[string]bool{}, pages: map[string]map[string]bool{},
		jobs: map[string]bool{},
	}
	r := csv.NewReader(strings.NewReader(offered.ReplaceAllString(DCGMCounters, "$1")))
	r.Comment, r.TrimLeadingSpace = '#', true
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if row[1] != "label" {
			e.dcgm[row[0]] = true
		}
	}
	for _, f := range Flags(NodeExporter) {
		if v, ok := strings.CutPrefix(f, "--collector.sysctl.include="); ok {
			e.sysctls["node_sysctl_"+strings.ReplaceAll(v, ".", "_")] = true
		} else if v, ok := strings.CutPrefix(f, "--collector."); ok && !strings.ContainsAny(v, ".=") {
			e.enabled[v] = true
		}
	}
	for _, f := range Flags(KubeStateMetrics) {
		if v, ok := strings.CutPrefix(f, "--metric-allowlist="); ok {
			for _, one := range strings.Split(v, ",") {
				re, err := regexp.Compile(one)
				if err != nil {
					t.Fatal(err)
				}
				e.ksm = append(e.ksm, re)
			}
		}
	}
	for job, file := range pages {
		e.pages[job] = families(t, file)
	}
	for job, names := range byDefault {
		e.pages[job] = map[string]bool{}
		for _, n := range names {
			e.pages[job][n] = true
		}
	}
	for job, names := range notThere {
		for _, n := range names {
			if e.pages[job][n] {
				t.Errorf("the page of %s has %s by now: it needs no row here", job, n)
			}
			e.pages[job][n] = true
		}
	}
	// Spillway's own metrics are those of its page of documentation.
	e.pages["spillway"] = map[string]bool{}
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllSubmatch(doc, -1) {
		e.pages["spillway"][string(m[1])] = true
	}
	own := prometheus.NewRegistry() // and those of the runtime and the process, which the page names as such
	own.MustRegister(runtimes.NewGoCollector(), runtimes.NewProcessCollector(runtimes.ProcessCollectorOpts{}))
	all, err := own.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		e.pages["spillway"][f.GetName()] = true
	}
	for _, sc := range load(t, 0, 1).ScrapeConfigs {
		e.jobs[sc.JobName] = true
		if strings.HasPrefix(sc.JobName, "node-mesh-") {
			e.jobs["node-mesh"] = true // what a relabeling calls them
		}
	}
	text, err := ruler.File("prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	var doc2 struct {
		ScrapeConfigs []struct {
			JobName string `yaml:"job_name"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(text), &doc2); err != nil {
		t.Fatal(err)
	}
	for _, sc := range doc2.ScrapeConfigs {
		e.jobs[sc.JobName] = true
	}
	return e
}

func (e *exporter) missing(metric, job string) string {
	if !e.jobs[job] {
		return fmt.Sprintf("no scrape configuration has the job %s", job)
	}
	base := metric
	for _, s := range []string{"_bucket", "_sum", "_count"} {
		base = strings.TrimSuffix(base, s)
	}
	switch {
	case metric == "up" || strings.HasPrefix(metric, "scrape_"):
		return "" // made by the server that scrapes
	case metric == "node_exporter_build_info":
		return "" // of no collector: on each page, whatever --web.disable-exporter-metrics leaves out
	case job == "dcgm-exporter":
		if !e.dcgm[metric] {
			return "not in dcgm-counters.csv"
		}
	case job == "kube-state-metrics":
		if !slices.ContainsFunc(e.ksm, func(re *regexp.Regexp) bool { return re.MatchString(metric) }) {
			return "not in --metric-allowlist of kube-state-metrics.flags"
		}
	case job == "node-exporter" && strings.HasPrefix(metric, "node_sysctl_"):
		if !e.enabled["sysctl"] || !e.sysctls[metric] {
			return "no --collector.sysctl.include in node-exporter.flags"
		}
	case job == "node-exporter":
		for _, c := range collectors {
			if strings.HasPrefix(metric, c.prefix) {
				if !e.enabled[c.collector] {
					return fmt.Sprintf("--collector.%s is not in node-exporter.flags", c.collector)
				}
				return ""
			}
		}
		return "no collector is known to export it: add it to collectors in this test"
	case !e.pages[job][metric] && !e.pages[job][base]:
		return "not among what the job is known to export"
	}
	return ""
}

// owner finds the job for selectors that name none.
func (e *exporter) owner(metric string) string {
	if strings.HasPrefix(metric, "spillway_canary_") { // a file of node_exporter's textfile collector
		return "node-exporter"
	}
	for prefix, job := range map[string]string{
		"DCGM_": "dcgm-exporter", "kube_": "kube-state-metrics", "node_": "node-exporter",
		"spillway_": "spillway", "container_": "cadvisor", "probe_": "node-mesh",
	} {
		if strings.HasPrefix(metric, prefix) {
			return job
		}
	}
	return ""
}

// TestEveryMetricIsExported reads the rules and names each metric that nothing here exports.
func TestEveryMetricIsExported(t *testing.T) {
	uses, recorded, _ := rules(t)
	e := newExporter(t)
	reported := map[string]bool{}
	checked := 0
	for _, u := range uses {
		// names with a colon are rules'; another test sees that they are recorded
		if recorded[u.metric] || strings.HasPrefix(u.metric, "ALERTS") || strings.Contains(u.metric, ":") {
			continue
		}
		jobs := u.jobs
		if len(jobs) == 0 && u.metric != "up" && !strings.HasPrefix(u.metric, "scrape_") {
			job := e.owner(u.metric)
			if job == "" {
				t.Errorf("%s: %q names no job, and its name does not tell who exports it", u.where, u.metric)
				continue
			}
			jobs = []string{job}
		}
		for _, job := range jobs {
			checked++
			if why := e.missing(u.metric, job); why != "" && !reported[job+u.metric] {
				reported[job+u.metric] = true
				t.Errorf("%s of %s: %s; used by %s", u.metric, job, why, u.where)
			}
		}
	}
	if checked < 50 {
		t.Errorf("%d metrics were checked: the rules were not read", checked)
	}
}

// TestWhatDashboardsReadIsExported: alerts/metrics.yaml lists what dashboards read, too; of jobs
// that are set up here each of those is let through.
func TestWhatDashboardsReadIsExported(t *testing.T) {
	b, err := os.ReadFile("../../alerts/metrics.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var facts map[string]struct{ Metrics map[string]any }
	if err := yaml.Unmarshal(b, &facts); err != nil {
		t.Fatal(err)
	}
	e := newExporter(t)
	for _, job := range []string{"dcgm-exporter", "kube-state-metrics", "node-exporter"} {
		if len(facts[job].Metrics) < 15 {
			t.Errorf("metrics.yaml has %d metrics of %s", len(facts[job].Metrics), job)
		}
		for _, metric := range slices.Sorted(maps.Keys(facts[job].Metrics)) {
			if why := e.missing(metric, job); why != "" {
				t.Errorf("%s of %s: %s; a rule or a dashboard reads it (alerts/metrics.yaml)", metric, job, why)
			}
		}
	}
}

var snake = regexp.MustCompile(`[^a-zA-Z0-9_]`)

// TestEveryLabelIsAllowed: labels of objects reach Prometheus only where kube-state-metrics is told
// to let them through.
func TestEveryLabelIsAllowed(t *testing.T) {
	allowed := map[string]bool{}
	lists := 0
	for _, f := range Flags(KubeStateMetrics) {
		v, ok := strings.CutPrefix(f, "--metric-labels-allowlist=")
		if !ok {
			continue
		}
		if lists++; lists > 1 {
			t.Error("--metric-labels-allowlist stands twice: kube-state-metrics takes the last one only")
		}
		for _, m := range regexp.MustCompile(`(\w+)=\[([^\]]*)\]`).FindAllStringSubmatch(v, -1) {
			for _, l := range strings.Split(m[2], ",") {
				if strings.Contains(l, "*") {
					t.Errorf("%s: all labels of %s: names with hashes would come with every rollout", l, m[1])
				}
				allowed["label_"+strings.ToLower(snake.ReplaceAllString(l, "_"))] = true
			}
		}
	}
	_, _, text := rules(t)
	seen := 0
	for _, l := range regexp.MustCompile(`\blabel_[a-z0-9_]+\b`).FindAllString(text, -1) {
		if l == "label_replace" || l == "label_join" {
			continue
		}
		seen++
		if !allowed[l] {
			t.Errorf("%s is used by a rule and is not in --metric-labels-allowlist", l)
			allowed[l] = true
		}
	}
	if seen == 0 {
		t.Error("no rule names a label of an object: the rules were not read")
	}
}

// TestMissingIsSeen: the check itself fails where something is left out.
func TestMissingIsSeen(t *testing.T) {
	e := newExporter(t)
	for _, c := range []struct{ metric, job string }{
		{"DCGM_FI_DEV_NO_SUCH_FIELD", "dcgm-exporter"},
		{"DCGM_FI_DRIVER_VERSION", "dcgm-exporter"}, // a label
		{"kube_lease_owner", "kube-state-metrics"},
		{"kube_pod_status_ready_time", "kube-state-metrics"}, // begins like one that is allowed
		{"node_sysctl_vm_swappiness", "node-exporter"},
		{"node_ethtool_info", "node-exporter"},
		{"apiserver_request_totals", "kube-apiserver"},
		{"apiserver_request_total", "kubelet"},
		{"up", "no-such-job"},
		{"spillway_no_such_total", "spillway"},
	} {
		if e.missing(c.metric, c.job) == "" {
			t.Errorf("%s of %s passes", c.metric, c.job)
		}
	}
	for _, c := range []struct{ metric, job string }{
		{"etcd_disk_wal_fsync_duration_seconds_bucket", "etcd"},
		{"node_lnstat_table_fulls_total", "node-exporter"},
		{"node_sysctl_net_ipv4_neigh_default_gc_thresh3", "node-exporter"},
		{"kube_node_status_capacity", "kube-state-metrics"},
		{"DCGM_EXP_XID_ERRORS_COUNT", "dcgm-exporter"},
		{"DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", "dcgm-exporter"}, // offered
		{"up", "apiserver-slis"},
	} {
		if why := e.missing(c.metric, c.job); why != "" {
			t.Errorf("%s of %s: %s", c.metric, c.job, why)
		}
	}
}

// TestFilesystemsOfNodesStay: the exclusions take the pods' mounts and leave the nodes' own.
func TestFilesystemsOfNodesStay(t *testing.T) {
	flags := map[string]*regexp.Regexp{}
	for _, f := range Flags(NodeExporter) {
		name, v, ok := strings.Cut(f, "=")
		if ok && strings.Contains(name, "exclude") || strings.Contains(name, "ignored") {
			re, err := regexp.Compile(v)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			flags[name] = re
		}
	}
	for _, c := range []struct {
		flag, value string
		excluded    bool
	}{
		{"--collector.filesystem.mount-points-exclude", "/", false},
		{"--collector.filesystem.mount-points-exclude", "/var", false},
		{"--collector.filesystem.mount-points-exclude", "/var/lib/kubelet", false},
		{"--collector.filesystem.mount-points-exclude", "/var/lib/containerd", false},
		{"--collector.filesystem.mount-points-exclude", "/mnt/nvme0", false},
		{"--collector.filesystem.mount-points-exclude", "/var/lib/kubelet/pods/1b/volumes/kubernetes.io~empty-dir/x", true},
		{"--collector.filesystem.mount-points-exclude", "/home/kubernetes/containerized_mounter/rootfs/var/lib/kubelet/plugins/kubernetes.io/csi/x/globalmount", true},
		{"--collector.filesystem.mount-points-exclude", "/home/kubernetes/containerized_mounter", false},
		{"--collector.filesystem.mount-points-exclude", "/run/containerd/io.containerd.runtime.v2.task/k8s.io/abc/rootfs", true},
		{"--collector.filesystem.mount-points-exclude", "/proc/sys/fs/binfmt_misc", true},
		{"--collector.filesystem.fs-types-exclude", "ext4", false},
		{"--collector.filesystem.fs-types-exclude", "xfs", false},
		{"--collector.filesystem.fs-types-exclude", "nfs4", false},
		{"--collector.filesystem.fs-types-exclude", "overlay", true},
		{"--collector.filesystem.fs-types-exclude", "tmpfs", true},
		{"--collector.netdev.device-exclude", "eth0", false},
		{"--collector.netdev.device-exclude", "ib0", false},
		{"--collector.netdev.device-exclude", "bond0", false},
		{"--collector.netdev.device-exclude", "enp1s0f0np0", false},
		{"--collector.netdev.device-exclude", "vethab12cd", true},
		{"--collector.netdev.device-exclude", "cali0123456789a", true},
		{"--collector.netclass.ignored-devices", "lxc1234", true},
		{"--collector.netclass.ignored-devices", "eth0", false},
		{"--collector.diskstats.device-exclude", "nvme0n1", false},
		{"--collector.diskstats.device-exclude", "sda", false},
		{"--collector.diskstats.device-exclude", "sda1", true},
		{"--collector.diskstats.device-exclude", "nvme0n1p2", true},
	} {
		re := flags[c.flag]
		if re == nil {
			t.Fatalf("no flag %s", c.flag)
		}
		if re.MatchString(c.value) != c.excluded {
			t.Errorf("%s: %s is excluded: %v, want %v", c.flag, c.value, !c.excluded, c.excluded)
		}
	}
}
