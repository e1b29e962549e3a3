package exporters

import (
	"encoding/csv"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/loadtest/cluster"
	proxyconfig "github.com/spillwayproject/spillway/proxy/config"
)

// sd is what prometheus.yml may say about discovery in Kubernetes. Prometheus as it is built here
// has no Kubernetes in it, so that part is read by this.
type sd struct {
	Role       string
	Namespaces struct{ Names []string }
}

// withoutDiscovery gives the configuration with discovery replaced by one static target each, for
// programs without Kubernetes and without files of targets. The discovery itself is checked.
func withoutDiscovery(t testing.TB, text string) string {
	t.Helper()
	var doc map[string]any
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	for _, sc := range doc["scrape_configs"].([]any) {
		m := sc.(map[string]any)
		found := 0
		if k, ok := m["kubernetes_sd_configs"]; ok {
			found++
			b, err := yaml.Marshal(k)
			if err != nil {
				t.Fatal(err)
			}
			d := yaml.NewDecoder(strings.NewReader(string(b)))
			d.KnownFields(true)
			var list []sd
			if err := d.Decode(&list); err != nil {
				t.Fatalf("%v: %v", m["job_name"], err)
			}
			for _, s := range list {
				if !slices.Contains([]string{"node", "pod", "endpointslice"}, s.Role) {
					t.Errorf("%v: role %q", m["job_name"], s.Role)
				}
				// Discovery of all pods of 7,500 nodes costs the API server a watch over them all,
				// and Prometheus their labels.
				if s.Role != "node" && len(s.Namespaces.Names) == 0 {
					t.Errorf("%v: discovers role %s in all namespaces", m["job_name"], s.Role)
				}
			}
			delete(m, "kubernetes_sd_configs")
		}
		if _, ok := m["file_sd_configs"]; ok {
			found++
			delete(m, "file_sd_configs")
		}
		if found != 1 {
			t.Errorf("%v: %d kinds of discovery, want one", m["job_name"], found)
		}
		m["static_configs"] = []any{map[string]any{"targets": []any{"127.0.0.1:1"}}}
	}
	out, err := yaml.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// load is the configuration of a shard as Prometheus reads it.
func load(t testing.TB, shard, shards int) *config.Config {
	t.Helper()
	text, err := Render(Options{Cluster: "jaguar", Shard: shard, Shards: shards, Replica: "a"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(withoutDiscovery(t, text), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func job(t testing.TB, c *config.Config, name string) *config.ScrapeConfig {
	t.Helper()
	for _, sc := range c.ScrapeConfigs {
		if sc.JobName == name {
			return sc
		}
	}
	t.Fatalf("no job %s", name)
	return nil
}

// target relabels what discovery says, as Prometheus does before it scrapes: with job, and instance
// from the address where no rule sets it. ok says whether it is scraped.
func target(sc *config.ScrapeConfig, meta map[string]string) (labels.Labels, bool) {
	lb := labels.NewBuilder(labels.FromMap(meta))
	if lb.Get("job") == "" {
		lb.Set("job", sc.JobName)
	}
	if !relabel.ProcessBuilder(lb, sc.RelabelConfigs...) {
		return labels.EmptyLabels(), false
	}
	if lb.Get("instance") == "" {
		lb.Set("instance", lb.Get("__address__"))
	}
	l := lb.Labels()
	return l, true
}

// sample gives a line of a page the labels of its target and relabels it, as Prometheus does when
// it scrapes. ok says whether it is stored.
func sample(sc *config.ScrapeConfig, line, target labels.Labels) (labels.Labels, bool) {
	lb := labels.NewBuilder(line)
	target.Range(func(l labels.Label) {
		switch {
		case strings.HasPrefix(l.Name, "__"):
		case !line.Has(l.Name):
			lb.Set(l.Name, l.Value)
		case !sc.HonorLabels:
			lb.Set("exported_"+l.Name, line.Get(l.Name))
			lb.Set(l.Name, l.Value)
		}
	})
	keep := relabel.ProcessBuilder(lb, sc.MetricRelabelConfigs...)
	return lb.Labels(), keep
}

func TestPromtool(t *testing.T) {
	for shard := range 2 {
		text, err := Render(Options{Cluster: "jaguar", Shard: shard, Shards: 2, Replica: "b"})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "prometheus.yml")
		if err := os.WriteFile(file, []byte(withoutDiscovery(t, text)), 0o600); err != nil {
			t.Fatal(err)
		}
		// The files of certificates are not here.
		if out, _, err := realprom.Promtool(t.Context(), "check", "config", "--syntax-only", file); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// TestClassicHistogramsStay: whoever has native histograms scraped, as Kubernetes exposes all of
// its own from 1.37 on, keeps the series that the rules read of every job.
func TestClassicHistogramsStay(t *testing.T) {
	text, err := Render(Options{Cluster: "jaguar", Shard: 0, Shards: 1, Replica: "a"})
	if err != nil {
		t.Fatal(err)
	}
	native := strings.Replace(withoutDiscovery(t, text), "global:", "global:\n    scrape_native_histograms: true", 1)
	c, err := config.Load(native, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, sc := range c.ScrapeConfigs {
		if n, c := sc.ScrapeNativeHistogramsEnabled(), sc.AlwaysScrapeClassicHistogramsEnabled(); !n || !c {
			t.Errorf("%s: native histograms %v, with their buckets %v", sc.JobName, n, c)
		}
	}
	if len(c.ScrapeConfigs) == 0 {
		t.Error("nothing is scraped")
	}
}

// TestRuleFilesExist: what a shard loads is what the ConfigMap of alerts/shard holds, and it loads
// all of it but what belongs to those that scrape Spillway.
func TestRuleFilesExist(t *testing.T) {
	c := load(t, 0, 1)
	loaded := map[string]bool{}
	for _, f := range c.RuleFiles {
		name, ok := strings.CutPrefix(f, "/etc/rules/shard/")
		files, err := filepath.Glob(filepath.Join("../../alerts/shard", name))
		if !ok || err != nil || len(files) == 0 {
			t.Errorf("%s: %v, %v", f, files, err)
		}
		for _, f := range files {
			loaded[filepath.Base(f)] = true
		}
	}
	all, err := filepath.Glob("../../alerts/shard/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if name := filepath.Base(f); loaded[name] == (name == "spillway.yaml") {
			t.Errorf("%s is loaded by the shards: %v", name, loaded[name])
		}
	}
}

// TestExternalLabels: both are named by the group of Spillway's configuration in docs/exporters.md.
func TestExternalLabels(t *testing.T) {
	c := load(t, 1, 4)
	if got, want := c.GlobalConfig.ExternalLabels.String(), `{cluster="jaguar", prometheus_replica="a"}`; got != want {
		t.Errorf("external labels are %s, want %s: Spillway's group names these", got, want)
	}
	lb := labels.NewBuilder(labels.FromStrings("alertname", "A", "cluster", "jaguar", "prometheus_replica", "a"))
	if !relabel.ProcessBuilder(lb, c.AlertingConfig.AlertRelabelConfigs...) || lb.Get("prometheus_replica") != "" ||
		lb.Get("cluster") != "jaguar" {
		t.Errorf("an alert goes out as %s: both copies of a shard must send the same", lb.Labels())
	}
}

// discovered is a target of each job as Kubernetes' discovery shows it, for the node or the
// instance numbered i.
var discovered = map[string]func(i int) map[string]string{
	"kube-apiserver": apiserver,
	"apiserver-slis": apiserver,
	"etcd": func(i int) map[string]string {
		return map[string]string{"__address__": fmt.Sprintf("10.0.0.%d:2381", 10+i)}
	},
	"etcd-events": func(i int) map[string]string {
		return map[string]string{"__address__": fmt.Sprintf("10.0.0.%d:2382", 10+i)}
	},
	"kube-controller-manager": systemPod("__meta_kubernetes_pod_label_component", "kube-controller-manager"),
	"kube-scheduler":          systemPod("__meta_kubernetes_pod_label_component", "kube-scheduler"),
	"cluster-autoscaler":      systemPod("__meta_kubernetes_pod_label_app", "cluster-autoscaler"),
	"coredns": func(i int) map[string]string {
		return map[string]string{
			"__address__": fmt.Sprintf("10.244.0.%d:9153", 10+i), "__meta_kubernetes_pod_label_k8s_app": "kube-dns",
			"__meta_kubernetes_pod_container_port_name": "metrics",
		}
	},
	"kube-state-metrics": func(i int) map[string]string {
		return map[string]string{
			"__address__": fmt.Sprintf("10.244.1.%d:8080", 10+i), "__meta_kubernetes_service_name": "kube-state-metrics",
			"__meta_kubernetes_endpointslice_port_name": "http-metrics",
		}
	},
	"remediator": func(i int) map[string]string {
		return map[string]string{
			"__address__": fmt.Sprintf("10.244.3.%d:8080", 10+i), "__meta_kubernetes_pod_label_app_kubernetes_io_name": "remediator",
			"__meta_kubernetes_pod_container_port_name": "web",
		}
	},
	"ruler":            func(i int) map[string]string { return rulerPod(2 * i) },
	"ruler-prometheus": func(i int) map[string]string { return rulerPod(2*i + 1) },
	"kubelet":          node, "cadvisor": node, "node-mesh-a": node, "node-mesh-b": node, "node-mesh-c": node,
	"node-exporter":         nodePod("node-exporter", "9100"),
	"dcgm-exporter":         nodePod("dcgm-exporter", "9400"),
	"iptables-exporter":     nodePod("iptables-exporter", "9455"),
	"node-problem-detector": nodePod("node-problem-detector", "20257"),
	"prometheus": func(i int) map[string]string {
		return map[string]string{
			"__address__": fmt.Sprintf("10.244.2.%d:9090", 10+i), "__meta_kubernetes_pod_label_app_kubernetes_io_name": "prometheus", "__meta_kubernetes_pod_container_port_name": "web",
			"__meta_kubernetes_pod_controller_name": fmt.Sprintf("prometheus-%d", i/2),
		}
	},
}

// rulerPod is a port of a pod of deploy/ruler.
func rulerPod(i int) map[string]string {
	port := []string{"thanos-rule", "prometheus"}[i%2]
	return map[string]string{
		"__address__": fmt.Sprintf("10.244.4.%d:%d", 10+i/2, map[string]int{"thanos-rule": 10902, "prometheus": 9090}[port]),
		"__meta_kubernetes_pod_label_app_kubernetes_io_name": "ruler", "__meta_kubernetes_pod_container_port_name": port,
		"__meta_kubernetes_pod_name": fmt.Sprintf("ruler-%d", i/2),
	}
}

func apiserver(i int) map[string]string {
	return map[string]string{
		"__address__": fmt.Sprintf("10.0.0.%d:6443", 10+i), "__meta_kubernetes_service_name": "kubernetes",
		"__meta_kubernetes_endpointslice_port_name": "https",
	}
}

func systemPod(label, value string) func(int) map[string]string {
	return func(i int) map[string]string {
		return map[string]string{
			"__address__":              fmt.Sprintf("10.244.3.%d", 10+i),
			"__meta_kubernetes_pod_ip": fmt.Sprintf("10.244.3.%d", 10+i), label: value,
		}
	}
}

func nodeName(i int) string { return fmt.Sprintf("gpu-%05d", i) }

func node(i int) map[string]string {
	ip := fmt.Sprintf("10.%d.%d.%d", (i+256)>>16, (i+256)>>8&0xff, (i+256)&0xff)
	return map[string]string{
		"__address__": ip + ":10250", "__meta_kubernetes_node_name": nodeName(i),
		"__meta_kubernetes_node_address_InternalIP": ip,
	}
}

func nodePod(name, port string) func(int) map[string]string {
	return func(i int) map[string]string {
		ip := strings.TrimSuffix(node(i)["__address__"], ":10250")
		return map[string]string{
			"__address__": ip + ":" + port, "__meta_kubernetes_pod_ip": ip, "__meta_kubernetes_pod_node_name": nodeName(i),
			"__meta_kubernetes_pod_name":                         name + "-x1z9",
			"__meta_kubernetes_pod_label_app_kubernetes_io_name": name, "__meta_kubernetes_pod_container_port_number": port,
		}
	}
}

// TestTargets: every target is on one shard, that which the rest of Spillway computes for it, and
// node targets have their node; other pods' targets are on none.
func TestTargets(t *testing.T) {
	const shards = 4
	var confs [shards]*config.Config
	for s := range confs {
		confs[s] = load(t, s, shards)
	}
	whole := []string{"kube-state-metrics", "prometheus", "ruler", "ruler-prometheus"}
	for _, sc := range confs[0].ScrapeConfigs {
		name := sc.JobName
		found, ok := discovered[name]
		if !ok {
			t.Errorf("job %s has no target here: add how discovery shows one", name)
			continue
		}
		for i := range 100 {
			var on []int
			var got labels.Labels
			for s := range confs {
				if l, ok := target(job(t, confs[s], name), found(i)); ok {
					on, got = append(on, s), l
					if slices.Contains(whole, name) && l.Get("seen_by") != fmt.Sprint(s) {
						t.Fatalf("%s: every shard has this target, and shard %d calls it %s: `up` of it would be the same series on two shards", name, s, l)
					}
				}
			}
			if slices.Contains(whole, name) {
				if len(on) != shards {
					t.Fatalf("%s: target %d is on shards %v, want all", name, i, on)
				}
				continue
			}
			ls := labels.EmptyLabels()
			if n := got.Get("node"); n != "" {
				ls = labels.FromStrings("node", n)
			}
			instance := got.Get("instance")
			if strings.HasPrefix(name, "node-mesh") {
				if got.Get("prober") == "" || got.Get("job") != "node-mesh" || got.Get("__param_target") != instance ||
					!strings.HasPrefix(got.Get("__address__"), "prober-") {
					t.Fatalf("%s: %s", name, got)
				}
			}
			want := cluster.Shard(cluster.Target{Job: name, Instance: instance, Labels: ls}, shards)
			if len(on) != 1 || on[0] != want {
				t.Fatalf("%s: target %d (%s) is on shards %v, want %d", name, i, got, on, want)
			}
			if _, isNode := found(i)["__meta_kubernetes_node_name"]; (isNode || found(i)["__meta_kubernetes_pod_node_name"] != "") &&
				got.Get("node") != nodeName(i) {
				t.Fatalf("%s: %s: want node %s", name, got, nodeName(i))
			}
			for _, l := range []string{"namespace", "pod", "container"} {
				if got.Get(l) != "" {
					t.Fatalf("%s: target label %s=%q would stand on series that name no pod", name, l, got.Get(l))
				}
			}
		}
		if strings.HasPrefix(name, "etcd") || found(0)["__meta_kubernetes_node_name"] != "" {
			continue // a file or a role of their own: every target is meant
		}
		stranger := map[string]string{"__address__": "10.9.9.9:80", "__meta_kubernetes_pod_ip": "10.9.9.9", "__meta_kubernetes_pod_label_app_kubernetes_io_name": "shop"}
		for s := range confs {
			if l, ok := target(job(t, confs[s], name), stranger); ok {
				t.Errorf("%s scrapes a stranger: %s", name, l)
			}
		}
	}
	for name := range discovered {
		job(t, confs[0], name)
	}
}

// TestPagesAboutManyNodes: a line of kube-state-metrics is on one shard; one about a node on the
// shard that has the rest about it.
func TestPagesAboutManyNodes(t *testing.T) {
	const shards = 4
	var jobs [shards]*config.ScrapeConfig
	for s := range jobs {
		jobs[s] = job(t, load(t, s, shards), "kube-state-metrics")
	}
	where := func(line labels.Labels) []int {
		var on []int
		for s, sc := range jobs {
			tl, ok := target(sc, discovered["kube-state-metrics"](0))
			if !ok {
				t.Fatal("kube-state-metrics is not scraped")
			}
			got, keep := sample(sc, line, tl)
			if !keep {
				continue
			}
			on = append(on, s)
			want := labels.NewBuilder(line).Set("job", "kube-state-metrics").Set("instance", "10.244.1.10:8080").Labels()
			if !labels.Equal(got, want) {
				t.Errorf("stored as %s, want %s", got, want)
			}
		}
		return on
	}
	used := map[int]bool{}
	for i := range 12 {
		for _, line := range []labels.Labels{
			labels.FromStrings("__name__", "kube_node_status_capacity", "node", nodeName(i), "resource", "nvidia_com_gpu", "unit",
				"integer"),
			labels.FromStrings("__name__", "kube_pod_info", "namespace", "research-a", "pod", fmt.Sprintf("train-%d", i), "node",
				nodeName(i)),
		} {
			want := cluster.Shard(cluster.Target{Labels: labels.FromStrings("node", nodeName(i))}, shards)
			if on := where(line); len(on) != 1 || on[0] != want {
				t.Errorf("%s is on shards %v, want %d", line, on, want)
			}
		}
		phase := labels.FromStrings("__name__", "kube_pod_status_phase", "namespace", "research-a", "pod", fmt.Sprintf("train-%d", i),
			"phase", "Running", "uid", "u")
		restarts := labels.FromStrings("__name__", "kube_pod_container_status_restarts_total", "namespace", "research-a", "pod",
			fmt.Sprintf("train-%d", i), "container", "c", "uid", "u")
		a, b := where(phase), where(restarts)
		if len(a) != 1 || !slices.Equal(a, b) {
			t.Errorf("lines of one pod are on shards %v and %v", a, b)
		} else {
			used[a[0]] = true
		}
	}
	if len(used) < 2 {
		t.Errorf("all pods are on shards %v", used)
	}
	if on := where(labels.FromStrings("__name__", "kube_namespace_created", "namespace", "research-a")); len(on) != 1 {
		t.Errorf("a namespace is on shards %v", on)
	}
}

func TestDCGMRelabeling(t *testing.T) {
	sc := job(t, load(t, 0, 1), "dcgm-exporter")
	tl, ok := target(sc, discovered["dcgm-exporter"](7))
	if !ok {
		t.Fatal("not scraped")
	}
	// Target labels of an operator's ServiceMonitor, which sets the exporter's own pod.
	line := func(more ...string) labels.Labels {
		return labels.FromStrings(append([]string{
			"__name__", "DCGM_FI_DEV_GPU_TEMP", "gpu", "3", "device", "nvidia3", "pci_bus_id", "00000000:3B:00.0", "DCGM_FI_DRIVER_VERSION",
			"570.86.15",
		}, more...)...)
	}
	stored := func(more ...string) string {
		return labels.FromStrings(append([]string{
			"__name__", "DCGM_FI_DEV_GPU_TEMP", "gpu", "3", "device", "nvidia3", "pci_bus_id", "00000000:3B:00.0", "DCGM_FI_DRIVER_VERSION",
			"570.86.15", "job", "dcgm-exporter", "instance", "10.0.1.7:9400",
		}, more...)...).String()
	}
	for _, c := range []struct {
		name string
		line labels.Labels
		want string
	}{
		{
			"up to 4.8", line("UUID", "GPU-1", "modelName", "NVIDIA H100 80GB HBM3", "Hostname", "gpu-00007", "namespace", "research-a",
				"pod", "train-0", "container", "c"),
			stored("UUID", "GPU-1", "modelName", "NVIDIA H100 80GB HBM3", "node", "gpu-00007", "namespace", "research-a", "pod", "train-0",
				"container", "c"),
		},
		{
			"hostname in small letters", line("UUID", "GPU-1", "modelName", "H100", "hostname", "gpu-00007", "namespace", "research-a",
				"pod", "train-0", "container", "c"),
			stored("UUID", "GPU-1", "modelName", "H100", "node", "gpu-00007", "namespace", "research-a", "pod", "train-0", "container",
				"c"),
		},
		{
			"an idle GPU names no pod", line("UUID", "GPU-1", "modelName", "H100", "Hostname", "gpu-00007"),
			stored("UUID", "GPU-1", "modelName", "H100", "node", "gpu-00007"),
		},
		{"the exporter's own name of the node does not matter", line("UUID", "GPU-1", "Hostname", "dcgm-exporter-x1z9"), stored("UUID", "GPU-1", "node", "gpu-00007")},
		{
			"NVLink's spelling", line("gpu_uuid", "GPU-1", "model_name", "H100", "hostname", "gpu-00007"),
			stored("UUID", "GPU-1", "modelName", "H100", "node", "gpu-00007"),
		},
		{
			"set aside by another scrape",
			line("UUID", "GPU-1", "exported_namespace", "research-a", "exported_pod", "train-0", "exported_container", "c"),
			stored("UUID", "GPU-1", "node", "gpu-00007", "namespace", "research-a", "pod", "train-0", "container", "c"),
		},
	} {
		got, keep := sample(sc, c.line, tl)
		if !keep || got.String() != c.want {
			t.Errorf("%s: %v\n got %s\nwant %s", c.name, keep, got, c.want)
		}
	}
	// A target without a node (an exporter outside of Kubernetes) takes it from the page.
	for _, l := range []string{"Hostname", "hostname"} {
		got, keep := sample(sc, line("UUID", "GPU-1", l, "gpu-00009"),
			labels.FromStrings("job", "dcgm-exporter", "instance", "10.0.1.7:9400"))
		if want := stored("UUID", "GPU-1", "node", "gpu-00009"); !keep || got.String() != want {
			t.Errorf("%s alone: %s", l, got)
		}
	}
}

func TestIptablesRelabeling(t *testing.T) {
	sc := job(t, load(t, 0, 1), "iptables-exporter")
	tl, ok := target(sc, discovered["iptables-exporter"](7))
	if !ok {
		t.Fatal("not scraped")
	}
	for _, c := range []struct {
		metric, rule string
		traffic      string
		keep         bool
	}{
		// As the real exporter spells rules: iptables-save's order, quotes escaped.
		{"iptables_rule_bytes_total", `-s 10.244.0.0/16 ! -d 10.0.0.0/8 -m comment --comment \"traffic=internet-out\" -j RETURN`, "internet-out", true},
		{"iptables_rule_packets_total", `-s 10.244.0.0/16 -m comment --comment traffic=internet-out`, "internet-out", true},
		{"iptables_rule_bytes_total", `-d 10.244.0.0/16 -m comment --comment \\\"team a: traffic=internet-in, do not remove\\\"`, "internet-in", true},
		{"iptables_rule_bytes_total", `-p tcp -m comment --comment \"default/web\" -m tcp -j DNAT --to-destination 10.0.0.4:80`, "", false},
		{"iptables_rule_packets_total", `-m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES`, "", false},
		{"iptables_rule_bytes_total", `-m comment --comment \"no-traffic=internet-in\"`, "", false},
		{"iptables_rule_bytes_total", "", "", false},
		{"iptables_default_bytes_total", "", "", false},
		{"iptables_bytes", "internet-in", "internet-in", true},
		{"iptables_packets", "traffic=internet-in", "internet-in", true},
		{"iptables_scrape_success", "", "", true},
		{"iptables_scrape_duration_seconds", "", "", true},
		{"process_resident_memory_bytes", "", "", true},
	} {
		line := labels.NewBuilder(labels.FromStrings("__name__", c.metric))
		if c.rule != "" {
			line.Set("rule", c.rule).Set("chain", "FORWARD").Set("table", "filter")
		}
		got, keep := sample(sc, line.Labels(), tl)
		if keep != c.keep {
			t.Errorf("%s %q: kept %v, want %v", c.metric, c.rule, keep, c.keep)
			continue
		}
		if keep && (got.Get("traffic") != c.traffic || got.Get("rule") != c.rule || got.Get("node") != nodeName(7)) {
			t.Errorf("%s %q: stored as %s", c.metric, c.rule, got)
		}
	}
}

// What is exported only where somebody takes the sign away is written like the rest, and is not
// loaded: an exporter that does not know the field does not start.
func TestDCGMCounters(t *testing.T) {
	for _, field := range []string{"DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", "DCGM_FI_DEV_GPU_RECOVERY_ACTION"} {
		if !strings.Contains(DCGMCounters, "\n#"+field+", ") {
			t.Errorf("%s is not offered, or is loaded", field)
		}
	}
	r := csv.NewReader(strings.NewReader(offered.ReplaceAllString(DCGMCounters, "$1")))
	r.Comment = '#'
	r.FieldsPerRecord = 3
	r.TrimLeadingSpace = true
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, row := range rows {
		if !regexp.MustCompile(`^DCGM_(FI|EXP)_[A-Z0-9_]+$`).MatchString(row[0]) ||
			!slices.Contains([]string{"gauge", "counter", "label"}, row[1]) || row[2] == "" || seen[row[0]] {
			t.Errorf("%q", row)
		}
		seen[row[0]] = true
	}
}

func TestRenderRefuses(t *testing.T) {
	good := Options{Cluster: "jaguar", Shard: 1, Shards: 2, Replica: "a"}
	if _, err := Render(good); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*Options){
		func(o *Options) { o.Cluster = "" },
		func(o *Options) { o.Cluster = "a\nb" },
		func(o *Options) { o.Replica = "'" },
		func(o *Options) { o.Shard = 2 },
		func(o *Options) { o.Shard = -1 },
		func(o *Options) { o.Shards = 0 },
		func(o *Options) { o.Shards = 65537 },
	} {
		o := good
		change(&o)
		if _, err := Render(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// TestProxyGroup: the group of Spillway's configuration that belongs to these servers names their
// external labels, and promises what the relabelings keep.
func TestProxyGroup(t *testing.T) {
	c, err := proxyconfig.Load("../ruler/spillway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range c.Groups {
		if g.Name != "jaguar" {
			continue
		}
		named := append(slices.Clone(g.ReplicaLabels), slices.Collect(maps.Keys(g.Labels))...)
		load(t, 0, 1).GlobalConfig.ExternalLabels.Range(func(l labels.Label) {
			if !slices.Contains(named, l.Name) {
				t.Errorf("external label %s is not named by the group: Spillway would not ask these servers", l.Name)
			}
		})
		if !slices.Equal(g.ShardBy, []string{"node"}) || !slices.Equal(g.Hashmod.Labels, []string{"node"}) {
			t.Errorf("shard_by %v, hashmod %+v: the targets are divided by node", g.ShardBy, g.Hashmod)
		}
		return
	}
	t.Error("no group jaguar")
}
