package alerts_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

var (
	manifests   = flag.String("beside.manifests", "", "the directory manifests/ of a checkout of kube-prometheus: TestBesideKubePrometheus reads its alerts anew")
	besideOf    = flag.String("beside.of", "", "what that checkout is, such as a commit and its date")
	writeBeside = flag.Bool("beside.update", false, "TestBesideKubePrometheus writes docs/kube-prometheus.md")
)

const (
	factsPath  = "testdata/beside/kube-prometheus.yaml"
	besidePage = "../docs/kube-prometheus.md"
)

// theirFacts is what is known of the rules and boards of kube-prometheus: names, and what is read.
type theirFacts struct {
	Of     string       `yaml:"of"`
	Alerts []theirAlert `yaml:"alerts"`
	Boards []string     `yaml:"boards"`
}

type theirAlert struct {
	Component  string   `yaml:"component"`
	Alert      string   `yaml:"alert"`
	Severities []string `yaml:"severities,flow"`
	// Reads are metrics of exporters, through recorded ones.
	Reads []string `yaml:"reads,flow"`
}

type verdict struct {
	Alerts    []string `yaml:"alerts"`
	Do        string   `yaml:"do"`
	Ours      []string `yaml:"ours"`
	Otherwise bool     `yaml:"otherwise"`
	Why       string   `yaml:"why"`
}

// TestBesideKubePrometheus: each alert of kube-prometheus has a verdict; what is off for ours is
// told by alerts that are there and read what theirs reads; and the page says so.
func TestBesideKubePrometheus(t *testing.T) {
	if *manifests != "" {
		writeFacts(t)
	}
	var facts theirFacts
	readYAML(t, factsPath, &facts)
	var file struct {
		Verdicts []verdict `yaml:"verdicts"`
	}
	readYAML(t, "testdata/beside/verdicts.yaml", &file)
	of := map[string]*verdict{}
	for i := range file.Verdicts {
		v := &file.Verdicts[i]
		if !slices.Contains([]string{"keep", "narrow", "either", "off"}, v.Do) || v.Why == "" {
			t.Errorf("%q: do is %q and why %q", v.Alerts, v.Do, v.Why)
		}
		for _, a := range v.Alerts {
			if of[a] != nil {
				t.Errorf("%s has two verdicts", a)
			}
			of[a] = v
		}
	}
	ours := readsOf(t)
	for _, a := range facts.Alerts {
		v := of[a.Alert]
		if v == nil {
			t.Errorf("%s has no verdict", a.Alert)
			continue
		}
		if _, same := ours[a.Alert]; same && v.Do != "off" {
			t.Errorf("%s is an alert of ours too, and is not off", a.Alert)
		}
		shares := v.Otherwise || len(v.Ours) == 0
		for _, o := range v.Ours {
			if ours[o] == nil {
				t.Errorf("%s: there is no alert %s", a.Alert, o)
			}
			shares = shares || slices.ContainsFunc(a.Reads, func(m string) bool { return ours[o][m] })
		}
		if !shares {
			t.Errorf("%s reads %q, and none of %q does; say otherwise", a.Alert, a.Reads, v.Ours)
		}
	}
	for a := range of {
		if !slices.ContainsFunc(facts.Alerts, func(x theirAlert) bool { return x.Alert == a }) {
			t.Errorf("%s is no alert of kube-prometheus", a)
		}
	}
	page := besideText(&facts, of, ours)
	if *writeBeside {
		if err := os.WriteFile(besidePage, page, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(besidePage); err != nil || !bytes.Equal(got, page) {
		t.Errorf("%s is not what the tables say (%v); write it with -beside.update", besidePage, err)
	}
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		d := yaml.NewDecoder(bytes.NewReader(b))
		d.KnownFields(true)
		err = d.Decode(into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// named is what rules are called that read each other: alerts or recorded metrics, with the metrics
// that their expressions name.
type named map[string]map[string]bool

func (n named) add(name string, expr parser.Expr) {
	if n[name] == nil {
		n[name] = map[string]bool{}
	}
	for _, s := range parser.ExtractSelectors(expr) {
		for _, m := range s {
			if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
				n[name][m.Value] = true
			}
		}
	}
}

// raw are the metrics of exporters that a rule reads, through those that are recorded.
func (n named) raw(name string, recorded named, seen map[string]bool) map[string]bool {
	out := map[string]bool{}
	for m := range n[name] {
		if recorded[m] == nil {
			out[m] = true
		} else if !seen[m] {
			seen[m] = true
			for x := range recorded.raw(m, recorded, seen) {
				out[x] = true
			}
		}
	}
	return out
}

// readsOf are the metrics of exporters that each alert of ours reads.
func readsOf(t *testing.T) named {
	t.Helper()
	alerting, recorded := named{}, named{}
	for _, r := range rulesOf(t) {
		if r.Alert != "" {
			alerting.add(r.Alert, r.expr)
		} else {
			recorded.add(r.Record, r.expr)
		}
	}
	out := named{}
	for name := range alerting {
		out[name] = alerting.raw(name, recorded, map[string]bool{})
	}
	return out
}

// besideText is the page.
func besideText(facts *theirFacts, of map[string]*verdict, ours named) []byte {
	var b bytes.Buffer
	counts := map[string]int{}
	for _, a := range facts.Alerts {
		if v := of[a.Alert]; v != nil {
			counts[v.Do]++
		}
	}
	fmt.Fprintf(&b, besideHead, facts.Of, len(facts.Alerts), counts["keep"], counts["narrow"], counts["either"], counts["off"])
	component := ""
	for _, a := range facts.Alerts {
		v := of[a.Alert]
		if v == nil {
			continue
		}
		if a.Component != component {
			component = a.Component
			fmt.Fprintf(&b, "\n### %s\n\n| theirs | severity | what to do | ours | why |\n|---|---|---|---|---|\n", component)
		}
		var told, near []string
		for _, o := range v.Ours {
			told = append(told, runbookLink(o))
		}
		if len(told) == 0 {
			for _, o := range slices.Sorted(mapKeys(ours)) {
				if slices.ContainsFunc(a.Reads, func(m string) bool { return m != "up" && ours[o][m] && !common[m] }) {
					near = append(near, runbookLink(o))
				}
			}
		}
		cell := strings.Join(told, ", ")
		if len(near) > 0 && len(near) < 5 {
			cell = "(reads the same: " + strings.Join(near, ", ") + ")"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", a.Alert, strings.Join(a.Severities, ", "), v.Do, cell, v.Why)
	}
	b.WriteString(besideBoards)
	for _, board := range facts.Boards {
		fmt.Fprintf(&b, "| %s | %s |\n", board, boardVerdict(board))
	}
	return b.Bytes()
}

// common are metrics that so many alerts read that it says nothing.
var common = map[string]bool{
	"kube_node_status_condition": true, "kube_node_spec_unschedulable": true, "kube_pod_status_phase": true, "kube_node_info": true,
	"kube_node_labels": true, "kube_node_status_allocatable": true, "kube_node_spec_taint": true, "process_start_time_seconds": true,
}

func runbookLink(alert string) string { return fmt.Sprintf("[%s](runbooks/%s.md)", alert, alert) }

func mapKeys(n named) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range n {
			if !yield(k) {
				return
			}
		}
	}
}

// boardVerdict is what to do with a board of theirs.
func boardVerdict(title string) string {
	for _, x := range []struct{ part, text string }{
		{"Windows", "nothing here has Windows: keep it if you have"},
		{"AIX", "keep it if you have such machines"},
		{"MacOS", "keep it if you have such machines"},
		{"API server", "ours has the same and more, from recorded series: API server"},
		{"Compute Resources / Multi-Cluster", "keep; ours is Fleet at a glance"},
		{"Compute Resources / ", "keep: this is the depth by pod, namespace, workload and node that ours do not have. It reads series of containers raw: behind Spillway it is bounded, and on large namespaces refused until a pod or a workload is chosen"},
		{"Networking / ", "keep: traffic of pods inside the cluster. What leaves it, by namespace, is ours: Network"},
		{"Node Exporter / ", "for one machine in depth keep it; for many at once ours is Node health"},
		{"Prometheus / Overview", "ours is Prometheus"},
		{"Scheduler", "keep; whether it schedules is ours: Pending"},
		{"Controller Manager", "keep; a row of ours, API server, has leaders and queues"},
		{"Proxy", "keep: kube-proxy, of which nothing is said here"},
		{"Grafana", "keep"},
	} {
		if strings.Contains(title, x.part) {
			return x.text
		}
	}
	return "keep: nothing here shows it"
}

const besideHead = `# Beside kube-prometheus

<!-- Written by go test ./alerts -run TestBesideKubePrometheus -beside.update, from alerts/testdata/beside. -->

Most clusters have [kube-prometheus](https://github.com/prometheus-operator/kube-prometheus) already, and with it the rules of kubernetes-mixin, node-mixin and Prometheus' own. This mixin does not replace them: it says what matters on thousands of GPU nodes, and they say the rest. This page holds them
beside each other, alert by alert (%s). Of their %d alerts %d are to be kept, %d narrowed, of %d one of the two is enough, and %d are better turned off. "Off" is said only where an alert of ours tells the same, or where theirs tells nothing on such clusters. Where nothing of ours is named, alerts that read the same metric stand in brackets.

To turn one off with the Helm chart kube-prometheus-stack, set ` + "`defaultRules.disabled: {NAME: true}`" + `; with jsonnet, filter it out of the group. To narrow one, change the selectors of its mixin (` + "`kubeStateMetricsSelector`" + `, ` + "`nodeExporterSelector`" + `, ` + "`prefixedNamespaceSelector`" + `), or silence what is left.
Their recording rules stay in any case: their boards read them, and [drop rules](drop-rules.md) keep what they read as long as they are loaded.

To read another release of theirs: ` + "`go test ./alerts -run TestBesideKubePrometheus -beside.manifests=DIR/manifests -beside.of='…' -beside.update`" + `. What it has that is new fails the test until it has a verdict.

## Names of jobs

kube-prometheus calls its jobs otherwise. Render this mixin with ` + "`spillway mixin render --out=DIR --config=FILE`" + ` and the values of the way in which yours was installed, with whatever else you scrape in ` + "`targets.read`" + `, and give every series a label ` + "`cluster`" + `. A name that is wrong says nothing by itself: the alerts on that job never fire. "What is scraped" of the dashboard Alerts and remediation lists what a cluster does not have.

With its manifests (jsonnet):

    selectors:
      apiserver: 'job="apiserver", metrics_path="/metrics"'
      apiserverSLIs: 'job="apiserver", metrics_path="/metrics/slis"'
      scheduler: 'job="kube-scheduler", metrics_path="/metrics"'
      controllerManager: 'job="kube-controller-manager", metrics_path="/metrics"'
      kubelet: 'job="kubelet", metrics_path="/metrics"'
      cadvisor: 'job="kubelet", metrics_path="/metrics/cadvisor"'
      prometheus: 'job="prometheus-k8s", container="prometheus"'
      alertmanager: 'job="alertmanager-main"'
    targets:
      read: apiserver|kubelet|kube-state-metrics|node-exporter|dcgm-exporter|kube-scheduler|kube-controller-manager|coredns|prometheus-k8s|alertmanager-main|spillway

With the Helm chart kube-prometheus-stack, whose names of Prometheus and Alertmanager begin with those of the release and the chart (` + "`kubectl get servicemonitor -A`" + `):

    selectors:
      apiserver: 'job="apiserver"'
      kubelet: 'job="kubelet", metrics_path="/metrics"'
      cadvisor: 'job="kubelet", metrics_path="/metrics/cadvisor"'
      prometheus: 'job="kube-prometheus-stack-prometheus", container="prometheus"'
      alertmanager: 'job="kube-prometheus-stack-alertmanager"'
      etcd: 'job="kube-etcd"'
      etcdAll: 'job=~"kube-etcd|etcd-events"'
    targets:
      read: apiserver|kubelet|kube-state-metrics|node-exporter|dcgm-exporter|kube-etcd|kube-scheduler|kube-controller-manager|coredns|kube-prometheus-stack-prometheus|kube-prometheus-stack-alertmanager|spillway

## Labels of targets

What no value can mend has to be done by the monitors. Each list is one of ` + "`relabelings`" + ` of a ServiceMonitor's endpoint; the operator sets ` + "`namespace`" + `, ` + "`pod`" + `, ` + "`container`" + `, ` + "`service`" + ` and ` + "`endpoint`" + ` on every target before it.

| target | where | relabelings |
|---|---|---|
| API server, scheduler, controller manager | with the manifests: both endpoints of their ServiceMonitors, ` + "`/metrics`" + ` and ` + "`/metrics/slis`" + ` (the chart has one) | ` + "`[{sourceLabels: [__metrics_path__], targetLabel: metrics_path}]`" + ` |
| node_exporter | its ServiceMonitor; in the chart ` + "`prometheus-node-exporter.prometheus.monitor.relabelings`" + ` | ` + "`[{sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: node}]`" + ` |
| dcgm-exporter | NVIDIA's GPU operator: ClusterPolicy ` + "`dcgmExporter.serviceMonitor: {enabled: true, honorLabels: true, relabelings: …}`" + `; its own chart: ` + "`serviceMonitor.honorLabels: true`" + ` and ` + "`serviceMonitor.relabelings`" + ` | ` + "`[{action: labeldrop, regex: pod\\|namespace\\|container}, {sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: node}, {targetLabel: job, replacement: dcgm-exporter}]`" + ` |
| Prometheus | with the manifests: its ServiceMonitor; in the chart ` + "`prometheus.serviceMonitor.relabelings`" + ` | ` + "`[{targetLabel: prometheus_shard, replacement: \"0\"}, {sourceLabels: [__meta_kubernetes_pod_controller_name], regex: '.+-shard-(\\d+)', targetLabel: prometheus_shard}, {targetLabel: __tmp_disable_sharding, replacement: \"true\"}, {targetLabel: seen_by, replacement: $(SHARD)}]`" + ` |

Without ` + "`metrics_path`" + ` the two pages of a server have the same labels and write one ` + "`up`" + `, which is mostly that of ` + "`/metrics/slis`" + `: it is asked six times as often, and answers while etcd hangs and ` + "`/metrics`" + ` does not. KubeAPIServerNotMeasured then goes by what stands on ` + "`/metrics`" + ` alone, but TargetDown is blind for such a server and KubeLeaderLost comes late. The selectors above find nothing without it.

Prometheus and its config-reloader are two endpoints of one job, hence ` + "`container`" + ` in its selectors: else the board counts the reloaders as servers that are not ready. With ` + "`shards`" + ` the operator divides the servers among them like any target, so that most are seen by one shard that sees no copy of theirs: the third relabeling lets all shards scrape all servers, as [exporters.md](exporters.md#one-shards-prometheus) has it, the fourth tells what each of them saw (the operator fills ` + "`$(SHARD)`" + ` in), and the first two give the copies of a shard one number, by which [alertmanager.yml](../deploy/alertmanager/alertmanager.yml) knows a shard. Without them PrometheusHAPairDown
tells shards by the names of pods, and says nothing of a server that it sees alone; PrometheusStoresNothing and PrometheusHACrashLooping take all that one shard sees for copies of each other.

With ` + "`shards`" + ` the operator hashes addresses, and what is of one node lies on several shards: ` + "`network-rules.yaml`" + ` must not run there as it is, for it bills traffic to the wrong teams ([how to make it fit](alerts.md#kube-prometheus-and-the-prometheus-operator)).

The node has to be called as kube-state-metrics calls it. ` + "`instance`" + ` is the node's name with the manifests alone; with the chart it is an address, and a ` + "`node`" + ` that is copied from it is that of no node: NodeExporterMissing says nothing then, nor does any alert that asks kube-state-metrics about the node. The job of the GPU operator is ` + "`nvidia-dcgm-exporter`" + `, and its targets have no node: without the third line no alert on GPUs ever fires, FleetGPUExporterMissing and GPUExporterMissing among them, which want one GPU on a node that they know.

kube-state-metrics shows no label of nodes, pods and namespaces unless it is told to: give it ` + "`--metric-labels-allowlist`" + ` of [kube-state-metrics.flags](../deploy/exporters/kube-state-metrics.flags) (` + "`kube-state-metrics.metricLabelsAllowlist`" + ` of the chart, a list of ` + "`nodes=[…]`" + `, ` + "`namespaces=[…]`" + `, ` + "`pods=[…]`" + `). Without it LocationLost, GangPartiallyRunning and NodeInfiniBandPortDown never fire, no team is known, so that CostTeamUnassigned fires for the whole cluster, and GPUs that are shared in time are counted as often as they are shared.

## Alerts
`

const besideBoards = `
## Boards

Workload boards (pod, namespace, node in depth) are not built again here: theirs serve.

| theirs | |
|---|---|
`

// writeFacts reads the alerts and boards of a checkout.
func writeFacts(t *testing.T) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(*manifests, "*-prometheusRule.yaml"))
	if err != nil || len(paths) == 0 || *besideOf == "" {
		t.Fatalf("%d files in %s (%v); -beside.of says what they are: %q", len(paths), *manifests, err, *besideOf)
	}
	alerting, recorded := named{}, named{}
	facts := theirFacts{Of: *besideOf}
	p := newParser()
	for _, path := range paths {
		var file struct {
			Spec struct {
				Groups []struct {
					Rules []rulefmt.Rule `yaml:"rules"`
				} `yaml:"groups"`
			} `yaml:"spec"`
		}
		b, err := os.ReadFile(path)
		if err == nil {
			err = yaml.Unmarshal(b, &file)
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, g := range file.Spec.Groups {
			for _, r := range g.Rules {
				expr, err := p.ParseExpr(r.Expr)
				if err != nil {
					t.Fatalf("%s: %s: %v", path, r.Alert+r.Record, err)
				}
				if r.Alert == "" {
					recorded.add(r.Record, expr)
					continue
				}
				alerting.add(r.Alert, expr)
				i := slices.IndexFunc(facts.Alerts, func(a theirAlert) bool { return a.Alert == r.Alert })
				if i < 0 {
					i = len(facts.Alerts)
					component := strings.TrimSuffix(filepath.Base(path), "-prometheusRule.yaml")
					facts.Alerts = append(facts.Alerts, theirAlert{Component: component, Alert: r.Alert})
				}
				if s := r.Labels["severity"]; !slices.Contains(facts.Alerts[i].Severities, s) {
					facts.Alerts[i].Severities = append(facts.Alerts[i].Severities, s)
				}
			}
		}
	}
	for i := range facts.Alerts {
		a := &facts.Alerts[i]
		a.Reads = slices.Sorted(mapKeys(named{"": alerting.raw(a.Alert, recorded, map[string]bool{})}.of("")))
	}
	boards, err := os.ReadFile(filepath.Join(*manifests, "grafana-dashboardDefinitions.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(boards), "\n") {
		if title, ok := strings.CutPrefix(line, `          "title": "`); ok && strings.Contains(title, " / ") {
			facts.Boards = append(facts.Boards, strings.Join(strings.Fields(strings.TrimSuffix(title, `",`)), " "))
		}
	}
	slices.Sort(facts.Boards)
	facts.Boards = slices.Compact(facts.Boards)
	out, err := yaml.Marshal(facts)
	if err == nil {
		err = os.WriteFile(factsPath, out, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// of turns the metrics of one name into names.
func (n named) of(name string) named {
	out := named{}
	for m := range n[name] {
		out[m] = nil
	}
	return out
}
