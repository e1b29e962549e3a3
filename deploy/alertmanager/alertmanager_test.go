package alertmanager

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCheckConfig(t *testing.T) {
	if err := Check(t.Context(), Config); err != nil {
		t.Fatal(err)
	}
	if err := Check(t.Context(), bytes.Replace(Config, []byte("receiver: critical"), []byte("receiver: criticle"), 1)); err == nil {
		t.Error("a route to a receiver that is not there passes")
	}
}

// TestManifestLetsSickPodsGo: a pod that is not ready is evicted when its node is drained.
func TestManifestLetsSickPodsGo(t *testing.T) {
	text, err := os.ReadFile("kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split(string(text), "\n---\n") {
		if strings.Contains(doc, "kind: PodDisruptionBudget") && !strings.Contains(doc, "\n  unhealthyPodEvictionPolicy: AlwaysAllow\n") {
			t.Errorf("it stays:\n%s", doc)
		}
	}
}

// TestManifestNamesItsAddress: Alertmanager finds an address of its own only where it is a private
// one of IPv4. The flags of the manifest that are about its cluster start the program, over both
// families.
func TestManifestNamesItsAddress(t *testing.T) {
	text, err := os.ReadFile("kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`(?m)^ +- (--cluster\.(?:listen|advertise)-address=.+)$`).FindAllStringSubmatch(string(text), -1)
	if len(flags) != 2 || strings.Count(string(text), "[$(POD_IP)]:9094") != 2 ||
		!strings.Contains(string(text), "valueFrom: {fieldRef: {fieldPath: status.podIP}}") {
		t.Fatalf("the manifest has %q", flags)
	}
	program, err := Find("prometheus-alertmanager", "alertmanager")
	if err != nil {
		t.Fatal(err)
	}
	for _, ip := range []string{"127.0.0.1", "::1"} {
		if l, err := net.Listen("tcp", net.JoinHostPort(ip, "0")); err != nil {
			t.Logf("this machine does not have %s: %v", ip, err)
			continue
		} else if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		args := []string{"--config.file=alertmanager.yml", "--storage.path=" + t.TempDir(), "--web.listen-address=127.0.0.1:0"}
		for _, f := range flags {
			args = append(args, strings.NewReplacer("$(POD_IP)", ip, ":9094", ":0").Replace(f[1]))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cmd := exec.CommandContext(ctx, program, args...)
		log, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		for lines := bufio.NewScanner(log); lines.Scan(); {
			fmt.Fprintln(&said, lines.Text())
			if strings.Contains(lines.Text(), "Waiting for gossip to settle") {
				said.Reset()
				break
			}
		}
		cancel()
		_ = cmd.Wait() // it was ended
		if said.Len() > 0 {
			t.Errorf("%q: %s", args, said.String())
		}
	}
}

// TestRoutes asks amtool which receivers get an alert.
func TestRoutes(t *testing.T) {
	amtool, err := Find("amtool")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ labels, want string }{
		{"alertname=KubeAPIThrottlingSevere severity=critical cluster=jaguar", "critical"},
		{"alertname=KubeAPIThrottling severity=warning cluster=jaguar", "warning"},
		{"alertname=GPUAllocatedIdle severity=info cluster=jaguar namespace=research-a", "info"},
		{"alertname=GPUXidFatal severity=auto cluster=jaguar node=gpu-00001 gpu=3", "remediation"},
		{"alertname=Watchdog severity=info", "deadmansswitch"},
		{"alertname=Watchdog severity=critical cluster=jaguar", "deadmansswitch"},
		{"alertname=Watchdog", "deadmansswitch"},
		// The receiver that fails may be the one of its severity.
		{"alertname=AlertmanagerNotificationsFailing severity=critical cluster=jaguar integration=pagerduty", "two-roads"},
		// Where that is a program nobody is woken.
		{"alertname=AlertmanagerNotificationsFailing severity=warning cluster=jaguar integration=webhook", "warning"},
		// Nothing is lost, and nothing pages by mistake.
		{"alertname=SomebodyElses", "warning"},
		{"alertname=SomebodyElses severity=page", "warning"},
		{"alertname=SomebodyElses severity=CRITICAL", "warning"},
	} {
		out, err := exec.CommandContext(t.Context(), amtool,
			append([]string{"config", "routes", "test", "--config.file=alertmanager.yml"}, strings.Fields(c.labels)...)...).Output()
		if err != nil {
			t.Fatalf("%s: %v", c.labels, err)
		}
		if got := strings.TrimSpace(string(out)); got != c.want {
			t.Errorf("%s goes to %q, want %q", c.labels, got, c.want)
		}
	}
}

// TestAutoNeverReachesPeople reads the file: what gets severity auto is one webhook, and no route
// goes on to a second receiver.
func TestAutoNeverReachesPeople(t *testing.T) {
	var conf struct {
		Route     struct{ Routes []map[string]any }
		Receivers []map[string]any
	}
	if err := yaml.Unmarshal(Config, &conf); err != nil {
		t.Fatal(err)
	}
	for _, r := range conf.Route.Routes {
		if r["continue"] != nil {
			t.Errorf("route to %v continues: an alert would reach two receivers", r["receiver"])
		}
	}
	for _, r := range conf.Receivers {
		if r["name"] != "remediation" {
			continue
		}
		if keys := slices.Sorted(maps.Keys(r)); !slices.Equal(keys, []string{"name", "webhook_configs"}) {
			t.Errorf("remediation has %v: only a webhook belongs there", keys)
		}
		return
	}
	t.Error("no receiver remediation")
}

// TestTwoRoads: what says that a receiver fails goes by two roads, each of which another receiver
// has too.
func TestTwoRoads(t *testing.T) {
	var conf struct{ Receivers []map[string]any }
	if err := yaml.Unmarshal(Config, &conf); err != nil {
		t.Fatal(err)
	}
	roads := map[string][]string{}
	for _, r := range conf.Receivers {
		name, _ := r["name"].(string)
		for key := range r {
			if key != "name" {
				roads[name] = append(roads[name], key)
			}
		}
	}
	both := append(slices.Clone(roads["critical"]), roads["warning"]...)
	slices.Sort(both)
	if got := slices.Sorted(slices.Values(roads["two-roads"])); len(got) < 2 || !slices.Equal(got, both) {
		t.Errorf("two-roads has %v, not %v", got, both)
	}
}

// TestLive sends alerts to a real Alertmanager with the routes and inhibitions of the file and sees
// who is told of what.
func TestLive(t *testing.T) {
	xid := ls("alertname", "GPUXidFatal", "severity", "auto", "cluster", "jaguar", "node", "n1", "gpu", "3", "xid", "79")
	xidLegacy := ls("alertname", "GPUXidFatalLegacy", "severity", "auto", "cluster", "jaguar", "node", "n4", "gpu", "0", "xid", "79")
	xidUnknown := ls("alertname", "GPUXidUnknown", "severity", "info", "cluster", "jaguar", "node", "n4", "gpu", "0", "xid", "999")
	ecc := ls("alertname", "GPUUncorrectableECC", "severity", "auto", "cluster", "jaguar", "node", "n4", "gpu", "0")
	fleetNodes := ls("alertname", "FleetNodesNotReady", "severity", "critical", "cluster", "jaguar")
	fleetGPU := ls("alertname", "FleetGPUUnhealthy", "severity", "critical", "cluster", "jaguar")
	fleetUnseen := ls("alertname", "FleetGPUExporterMissing", "severity", "critical", "cluster", "jaguar")
	fleetCut := ls("alertname", "FleetNodesUnreachable", "severity", "critical", "cluster", "jaguar")
	fleetHot := ls("alertname", "FleetGPUHot", "severity", "critical", "cluster", "jaguar")
	fleetFailing := ls("alertname", "FleetNodesFailing", "severity", "critical", "cluster", "jaguar")
	fleetFailingIbis := ls("alertname", "FleetNodesFailing", "severity", "critical", "cluster", "ibis")
	rackLost := ls("alertname", "LocationLost", "severity", "warning", "cluster", "jaguar", "rack", "r7", "level", "rack")
	zoneLost := ls("alertname", "LocationLost", "severity", "critical", "cluster", "jaguar", "zone", "a", "level", "zone")
	unseen := ls("alertname", "GPUExporterMissing", "severity", "warning", "cluster", "jaguar", "node", "n2")
	offBus := ls("alertname", "GPUFellOffBus", "severity", "auto", "cluster", "jaguar", "node", "n3")
	unseenIbis := ls("alertname", "GPUExporterMissing", "severity", "warning", "cluster", "ibis", "node", "n2")
	diskFull := ls("alertname", "NodeFilesystemFull", "severity", "auto", "cluster", "jaguar", "node", "n2")
	hot := ls("alertname", "GPUHot", "severity", "warning", "cluster", "jaguar", "node", "n1", "gpu", "0")
	otherCluster := ls("alertname", "GPUXidFatal", "severity", "auto", "cluster", "ibis", "node", "n1", "gpu", "3")
	arp := ls("alertname", "NodeARPTableOverflow", "severity", "critical", "scope", "cluster", "cluster", "jaguar")
	arpNode := ls("alertname", "NodeARPTableOverflow", "severity", "auto", "scope", "node", "cluster", "jaguar", "node", "n1")
	arpIbis := ls("alertname", "NodeARPTableOverflow", "severity", "auto", "scope", "node", "cluster", "ibis", "node", "n1")
	arpNearIbis := ls("alertname", "NodeARPTableNearLimit", "severity", "warning", "cluster", "ibis", "node", "n1")
	arpNear := ls("alertname", "NodeARPTableNearLimit", "severity", "warning", "cluster", "jaguar", "node", "n1")
	certs := ls("alertname", "KubeletCertificateExpires", "severity", "critical", "scope", "cluster", "cluster", "jaguar")
	certNode := ls("alertname", "KubeletCertificateExpires", "severity", "warning", "scope", "node", "cluster", "jaguar", "node", "n1")
	certIbis := ls("alertname", "KubeletCertificateExpires", "severity", "warning", "scope", "node", "cluster", "ibis", "node", "n1")
	throttled := ls("alertname", "GPUThrottled", "severity", "warning", "cluster", "jaguar", "node", "n1", "gpu", "1")
	hotIbis := ls("alertname", "GPUHot", "severity", "warning", "cluster", "ibis", "node", "n1", "gpu", "0")
	notReady := ls("alertname", "NodeNotReady", "severity", "warning", "cluster", "jaguar", "node", "n2")
	blind := ls("alertname", "NodeExporterMissing", "severity", "warning", "cluster", "jaguar", "node", "n2")
	blindIbis := ls("alertname", "NodeExporterMissing", "severity", "warning", "cluster", "ibis", "node", "n2")
	exportersDown := ls("alertname", "TargetDown", "severity", "warning", "cluster", "jaguar", "job", "node-exporter")
	othersDown := ls("alertname", "TargetDown", "severity", "warning", "cluster", "ibis", "job", "dcgm-exporter")
	notReadyIbis := ls("alertname", "NodeNotReady", "severity", "warning", "cluster", "ibis", "node", "n2")
	unreachable := ls("alertname", "NodeUnreachable", "severity", "auto", "cluster", "jaguar", "node", "n2")
	neverReached := ls("alertname", "NodeUnreachable", "severity", "warning", "cluster", "jaguar", "node", "n2")
	xidThere := ls("alertname", "GPUXidFatal", "severity", "auto", "cluster", "jaguar", "node", "n2", "gpu", "3", "xid", "79")
	unreachableIbis := ls("alertname", "NodeUnreachable", "severity", "auto", "cluster", "ibis", "node", "n2")
	shardDown := ls("alertname", "ProxyShardDown", "severity", "critical", "cluster", "monitoring", "group", "jaguar", "shard", "1")
	shardDownHere := ls("alertname", "ProxyShardDown", "severity", "critical", "cluster", "jaguar", "group", "jaguar", "shard", "1")
	pairDown := ls("alertname", "PrometheusHAPairDown", "severity", "critical", "cluster", "jaguar", "prometheus_shard", "1")
	storesNothing := ls("alertname", "PrometheusStoresNothing", "severity", "critical", "cluster", "jaguar", "reason", "shard")
	storesItself := ls("alertname", "PrometheusStoresNothing", "severity", "critical", "cluster", "jaguar", "reason", "itself")
	copyWell := ls("alertname", "PrometheusStoresNothing", "severity", "warning", "cluster", "jaguar", "instance", "a", "reason", "server")
	accountingIbis := ls("alertname", "NetworkAccountingLost", "severity", "warning", "cluster", "ibis")
	evalFailsIbis := ls("alertname", "RulerFailing", "severity", "critical", "cluster", "ibis")
	jobGone := ls("alertname", "ScrapeJobGone", "severity", "critical", "cluster", "jaguar", "job", "kube-state-metrics")
	noNodes := ls("alertname", "FleetUnseen", "severity", "critical", "cluster", "jaguar")
	evalFails := ls("alertname", "RulerFailing", "severity", "critical", "cluster", "monitoring")
	rulerDown := ls("alertname", "RulerFailing", "severity", "critical", "cluster", "monitoring", "reason", "down")
	rulesFail := ls("alertname", "RulerFailing", "severity", "critical", "cluster", "monitoring", "reason", "rules")
	errorRatio := ls("alertname", "ProxyErrorRatio", "severity", "critical", "cluster", "monitoring")
	proxyDown := ls("alertname", "ProxyDown", "severity", "critical", "cluster", "monitoring")
	peoplesDown := ls("alertname", "ProxyDown", "severity", "critical", "cluster", "monitoring", "role", "people")
	shardSilent := ls("alertname", "ProxyReplicaSilent", "severity", "critical", "cluster", "monitoring", "group", "jaguar", "shard", "1",
		"replica", "a:9090")
	replicaSilent := ls("alertname", "ProxyReplicaSilent", "severity", "warning", "cluster", "monitoring", "group", "jaguar", "shard", "2",
		"replica", "a:9090")
	replicaFailing := ls("alertname", "ProxyReplicaFailing", "severity", "warning", "cluster", "monitoring", "group", "jaguar", "shard",
		"2", "replica", "a:9090")
	cutOff := ls("alertname", "ProxyReplicaCutOff", "severity", "warning", "cluster", "monitoring", "group", "jaguar", "shard", "2",
		"replica", "a:9090")
	notWhole := ls("alertname", "ProxyReplicaNotWhole", "severity", "warning", "cluster", "monitoring", "group", "jaguar", "shard", "2",
		"replica", "a:9090")
	otherNotWhole := ls("alertname", "ProxyReplicaNotWhole", "severity", "warning", "cluster", "monitoring", "group", "jaguar", "shard",
		"3", "replica", "a:9090")
	accounting := ls("alertname", "NetworkAccountingLost", "severity", "warning", "cluster", "jaguar")
	oom := ls("alertname", "PrometheusOOMLoop", "severity", "critical", "cluster", "jaguar", "instance", "p1")
	slowCrit := ls("alertname", "KubeAPIErrorBudgetBurnSlow", "severity", "critical", "cluster", "jaguar")
	slowWarn := ls("alertname", "KubeAPIErrorBudgetBurnSlow", "severity", "warning", "cluster", "jaguar", "long", "3d")
	slowIbis := ls("alertname", "KubeAPIErrorBudgetBurnSlow", "severity", "warning", "cluster", "ibis")
	noLeader := ls("alertname", "EtcdNoLeader", "severity", "critical", "cluster", "jaguar", "job", "etcd")
	noLeaderEvents := ls("alertname", "EtcdNoLeader", "severity", "critical", "cluster", "jaguar", "job", "etcd-events")
	notMeasured := ls("alertname", "KubeAPIServerNotMeasured", "severity", "critical", "cluster", "jaguar")
	apiErrors := ls("alertname", "KubeAPIServerErrors", "severity", "critical", "cluster", "jaguar")
	burnErrors := ls("alertname", "KubeAPIErrorBudgetBurnErrors", "severity", "critical", "cluster", "jaguar", "long", "1h")
	proxyBurn := ls("alertname", "ProxyErrorBudgetBurn", "severity", "critical", "cluster", "monitoring", "objective", "availability")
	proxyBurnSlow := ls("alertname", "ProxyErrorBudgetBurn", "severity", "critical", "cluster", "monitoring", "objective", "latency")
	proxyBurnPeople := ls("alertname", "ProxyErrorBudgetBurn", "severity", "critical", "cluster", "monitoring",
		"objective", "availability", "role", "people")
	severe := ls("alertname", "KubeAPIThrottlingSevere", "severity", "critical", "cluster", "jaguar")
	throttling := ls("alertname", "KubeAPIThrottling", "severity", "warning", "cluster", "jaguar")
	idle := ls("alertname", "GPUAllocatedIdle", "severity", "info", "cluster", "jaguar", "namespace", "a")
	stranger := ls("alertname", "SomebodyElses", "cluster", "jaguar")

	for _, c := range []struct {
		name   string
		alerts []map[string]string
		want   map[string][]string // receiver: alerts that it must be told of, and no others
	}{
		{"each severity to its own", []map[string]string{xid, hot, severe, idle, stranger}, map[string][]string{
			"remediation": {"GPUXidFatal jaguar n1"},
			"warning":     {"GPUHot jaguar n1", "SomebodyElses jaguar"},
			"critical":    {"KubeAPIThrottlingSevere jaguar"},
			"info":        {"GPUAllocatedIdle jaguar"},
		}},
		{
			"a fleet alert silences its cluster's nodes",
			[]map[string]string{fleetNodes, diskFull, notReady, hot, arpNear, ecc, xidUnknown, otherCluster},
			map[string][]string{
				"critical":    {"FleetNodesNotReady jaguar"},
				"remediation": {"GPUXidFatal ibis n1"},
			},
		},
		{
			"but an Xid that is over in five minutes is told to the controller, which keeps it, and to nobody else",
			[]map[string]string{fleetNodes, fleetGPU, fleetFailing, xid, xidLegacy, xidUnknown, ecc, diskFull, hot},
			map[string][]string{
				"critical":    {"FleetGPUUnhealthy jaguar", "FleetNodesNotReady jaguar"},
				"remediation": {"GPUXidFatal jaguar n1", "GPUXidFatalLegacy jaguar n4"},
			},
		},
		{
			"but never a page",
			[]map[string]string{fleetNodes, arp},
			map[string][]string{"critical": {"FleetNodesNotReady jaguar", "NodeARPTableOverflow jaguar"}},
		},
		{"sick GPUs everywhere do not hide a full disk", []map[string]string{fleetGPU, xid, ecc, hot, diskFull}, map[string][]string{
			"critical":    {"FleetGPUUnhealthy jaguar"},
			"remediation": {"GPUXidFatal jaguar n1", "NodeFilesystemFull jaguar n2"},
		}},
		{"GPUs that nobody measures are one page, and what is measured is told", []map[string]string{fleetUnseen, unseen, unseenIbis, offBus, xid, hot}, map[string][]string{
			"critical":    {"FleetGPUExporterMissing jaguar"},
			"warning":     {"GPUExporterMissing ibis n2", "GPUHot jaguar n1"},
			"remediation": {"GPUXidFatal jaguar n1"},
		}},
		{"a network that breaks is one page, and no node is rebooted for it", []map[string]string{fleetCut, unreachable, diskFull, unreachableIbis, xid}, map[string][]string{
			"critical":    {"FleetNodesUnreachable jaguar"},
			"remediation": {"GPUXidFatal jaguar n1", "NodeUnreachable ibis n2"},
		}},
		{"cooling that fails is one page", []map[string]string{fleetHot, hot, throttled, hotIbis, xid, diskFull}, map[string][]string{
			"critical":    {"FleetGPUHot jaguar"},
			"warning":     {"GPUHot ibis n1"},
			"remediation": {"GPUXidFatal jaguar n1", "NodeFilesystemFull jaguar n2"},
		}},
		{"nodes that fall sick together are not drained one by one", []map[string]string{fleetFailing, xid, ecc, diskFull, otherCluster, hot}, map[string][]string{
			"critical":    {"FleetNodesFailing jaguar"},
			"warning":     {"GPUHot jaguar n1"},
			"remediation": {"GPUXidFatal ibis n1", "GPUXidFatal jaguar n1"},
		}},
		{
			"and are no second page where the first says why",
			[]map[string]string{fleetHot, fleetFailing, fleetFailingIbis, xid},
			map[string][]string{
				"critical":    {"FleetGPUHot jaguar", "FleetNodesFailing ibis"},
				"remediation": {"GPUXidFatal jaguar n1"},
			},
		},
		{
			"an unreachable node is one finding",
			[]map[string]string{unreachable, diskFull, notReady, notReadyIbis, xid},
			map[string][]string{
				"remediation": {"GPUXidFatal jaguar n1", "NodeUnreachable jaguar n2"},
				"warning":     {"NodeNotReady ibis n2"},
			},
		},
		{
			"one that was never reached works, and has findings of its own",
			[]map[string]string{neverReached, diskFull, notReady, xidThere},
			map[string][]string{
				"remediation": {"GPUXidFatal jaguar n2", "NodeFilesystemFull jaguar n2"},
				"warning":     {"NodeNotReady jaguar n2", "NodeUnreachable jaguar n2"},
			},
		},
		{"a lost shard silences what follows from it", []map[string]string{
			shardDown, pairDown, evalFails, errorRatio, accounting, fleetUnseen, unseen, jobGone, noNodes, blind, oom, xid,
		}, map[string][]string{
			"critical":    {"PrometheusHAPairDown jaguar", "PrometheusOOMLoop jaguar", "ProxyShardDown monitoring"},
			"remediation": {"GPUXidFatal jaguar n1"},
		}},
		{"a shard that stores nothing silences what its silence makes of shares", []map[string]string{storesNothing, storesItself, accounting, noNodes, accountingIbis}, map[string][]string{
			"critical": {"PrometheusStoresNothing jaguar"},
			"warning":  {"NetworkAccountingLost ibis"},
		}},
		{"a server that stores nothing is a ticket where its copy does", []map[string]string{copyWell, storesItself, accounting}, map[string][]string{
			"warning": {"NetworkAccountingLost jaguar", "PrometheusStoresNothing jaguar"},
		}},
		{"exporters of many nodes", []map[string]string{exportersDown, othersDown, blind, blindIbis}, map[string][]string{
			"warning": {"NodeExporterMissing ibis n2", "TargetDown ibis", "TargetDown jaguar"},
		}},
		{"a job that is gone is one page", []map[string]string{jobGone, noNodes, xid}, map[string][]string{
			"critical":    {"ScrapeJobGone jaguar"},
			"remediation": {"GPUXidFatal jaguar n1"},
		}},
		{"in one page where Spillway is beside it", []map[string]string{shardDownHere, pairDown, noNodes, accounting}, map[string][]string{
			"critical": {"ProxyShardDown jaguar"},
		}},
		{"and nothing of other clusters", []map[string]string{shardDown, pairDown, accountingIbis, evalFailsIbis}, map[string][]string{
			"critical": {"PrometheusHAPairDown jaguar", "ProxyShardDown monitoring", "RulerFailing ibis"},
			"warning":  {"NetworkAccountingLost ibis"},
		}},
		{"nor does a Spillway that is down", []map[string]string{proxyDown, evalFailsIbis}, map[string][]string{
			"critical": {"ProxyDown monitoring", "RulerFailing ibis"},
		}},
		{
			"so does one that answers nothing",
			[]map[string]string{shardSilent, evalFails, errorRatio},
			map[string][]string{"critical": {"ProxyReplicaSilent monitoring"}},
		},
		{"not a replica that another one stands in for", []map[string]string{replicaSilent, replicaFailing, evalFails}, map[string][]string{
			"critical": {"RulerFailing monitoring"}, "warning": {"ProxyReplicaSilent monitoring"},
		}},
		{"one that is cut off is one alert, and what its own rules say of Spillway is none", []map[string]string{cutOff, notWhole, otherNotWhole, proxyDown}, map[string][]string{
			"warning": {"ProxyReplicaCutOff monitoring", "ProxyReplicaNotWhole monitoring"},
		}},
		{"but another role's Spillway may be down", []map[string]string{cutOff, peoplesDown}, map[string][]string{
			"critical": {"ProxyDown monitoring"}, "warning": {"ProxyReplicaCutOff monitoring"},
		}},
		{"what follows is told without it", []map[string]string{evalFails, errorRatio, accounting}, map[string][]string{
			"critical": {"ProxyErrorRatio monitoring", "RulerFailing monitoring"},
			"warning":  {"NetworkAccountingLost jaguar"},
		}},
		{"nothing hides a ruler that is down", []map[string]string{shardDown, proxyDown, rulerDown, rulesFail}, map[string][]string{
			"critical": {"ProxyDown monitoring", "ProxyShardDown monitoring", "RulerFailing monitoring"},
		}},
		{"only that its rules fail", []map[string]string{shardDown, rulesFail}, map[string][]string{
			"critical": {"ProxyShardDown monitoring"},
		}},
		{
			"an etcd without a leader is why the API fails",
			[]map[string]string{noLeader, notMeasured, apiErrors, burnErrors, slowCrit, slowIbis},
			map[string][]string{"critical": {"EtcdNoLeader jaguar"}, "warning": {"KubeAPIErrorBudgetBurnSlow ibis"}},
		},
		{"that of events is not", []map[string]string{noLeaderEvents, apiErrors}, map[string][]string{
			"critical": {"EtcdNoLeader jaguar", "KubeAPIServerErrors jaguar"},
		}},
		{"errors use up the budget of errors, in one page", []map[string]string{apiErrors, burnErrors, slowCrit}, map[string][]string{
			"critical": {"KubeAPIErrorBudgetBurnSlow jaguar", "KubeAPIServerErrors jaguar"},
		}},
		{"so does an API that nobody measures, with both", []map[string]string{notMeasured, burnErrors, slowCrit}, map[string][]string{
			"critical": {"KubeAPIServerNotMeasured jaguar"},
		}},
		{"and Spillway's errors", []map[string]string{errorRatio, proxyBurn, proxyBurnPeople}, map[string][]string{
			"critical": {"ProxyErrorBudgetBurn monitoring", "ProxyErrorRatio monitoring"},
		}},
		{"but no slowness", []map[string]string{errorRatio, proxyBurnSlow}, map[string][]string{
			"critical": {"ProxyErrorBudgetBurn monitoring", "ProxyErrorRatio monitoring"},
		}},
		{"a Spillway that is down silences the rules that fail", []map[string]string{proxyDown, evalFails, errorRatio}, map[string][]string{"critical": {"ProxyDown monitoring"}}},
		{
			"people's Spillway is not the ruler's",
			[]map[string]string{peoplesDown, evalFails},
			map[string][]string{"critical": {"ProxyDown monitoring", "RulerFailing monitoring"}},
		},
		{"an overflow silences what came before it", []map[string]string{arp, arpNode, arpNear, arpIbis, arpNearIbis}, map[string][]string{
			"critical":    {"NodeARPTableOverflow jaguar"},
			"remediation": {"NodeARPTableOverflow ibis n1"},
		}},
		{"certificates of many kubelets are one page", []map[string]string{certs, certNode, certIbis}, map[string][]string{
			"critical": {"KubeletCertificateExpires jaguar"},
			"warning":  {"KubeletCertificateExpires ibis n1"},
		}},
		{"the worse form silences the milder", []map[string]string{slowCrit, slowWarn, slowIbis, severe, throttling}, map[string][]string{
			"critical": {"KubeAPIErrorBudgetBurnSlow jaguar", "KubeAPIThrottlingSevere jaguar"},
			"warning":  {"KubeAPIErrorBudgetBurnSlow ibis"},
		}},
		{
			"a lost rack is no node to reboot",
			[]map[string]string{rackLost, unreachable, notReady, blind, unreachableIbis, xid},
			map[string][]string{
				"warning":     {"LocationLost jaguar r7"},
				"remediation": {"GPUXidFatal jaguar n1", "NodeUnreachable ibis n2"},
			},
		},
		{"and a lost zone does not hide another zone's rack", []map[string]string{zoneLost, rackLost}, map[string][]string{
			"critical": {"LocationLost jaguar a"}, "warning": {"LocationLost jaguar r7"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			h := &hook{seen: map[string]map[string]int{}}
			receiver := httptest.NewServer(h)
			defer receiver.Close()
			conf, err := Rehearsal(Config, receiver.URL, 150) // the longest group_wait becomes 2 s, the shortest 200 ms
			if err != nil {
				t.Fatal(err)
			}
			srv, err := Start(t.Context(), conf)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := srv.Stop(); err != nil {
					t.Error(err)
				}
			}()
			watchdog := ls("alertname", "Watchdog", "severity", "info")
			if err := post(t.Context(), srv.URL(), append(c.alerts, watchdog)...); err != nil {
				t.Fatal(err)
			}
			want := maps.Clone(c.want)
			want["deadmansswitch"] = []string{"Watchdog"}
			deadline := time.Now().Add(time.Minute)
			for !maps.EqualFunc(h.snapshot(), want, slices.Equal[[]string]) && time.Now().Before(deadline) {
				time.Sleep(20 * time.Millisecond)
			}
			// All are there. Whatever else comes would come in another round of every group: the
			// switch, which is told every group_interval (400 ms here), counts them, and info,
			// which waits longest, has waited 2 s.
			beats := h.count("deadmansswitch", "Watchdog")
			for h.count("deadmansswitch", "Watchdog") < beats+6 && time.Now().Before(deadline) {
				time.Sleep(20 * time.Millisecond)
			}
			if got := h.snapshot(); !maps.EqualFunc(got, want, slices.Equal[[]string]) {
				t.Errorf("told:\n%v\nwant:\n%v", got, want)
			}
			if got := h.count("deadmansswitch", "Watchdog"); got < beats+6 {
				t.Errorf("the dead man's switch was told %d times only: it must be told again and again", got)
			}
		})
	}
}

func TestRehearsalRefuses(t *testing.T) {
	for name, f := range map[string]func() error{
		"time scale below 1": func() error { _, err := Rehearsal(Config, "http://127.0.0.1:1", 0.5); return err },
		"slash at the end":   func() error { _, err := Rehearsal(Config, "http://127.0.0.1:1/", 1); return err },
		"no URL":             func() error { _, err := Rehearsal(Config, "here", 1); return err },
		"no YAML":            func() error { _, err := Rehearsal([]byte("{"), "http://127.0.0.1:1", 1); return err },
		"no receivers":       func() error { _, err := Rehearsal([]byte("route: {}"), "http://127.0.0.1:1", 1); return err },
		"a nameless one":     func() error { _, err := Rehearsal([]byte("receivers: [{}]"), "http://127.0.0.1:1", 1); return err },
		"a bad duration": func() error {
			_, err := Rehearsal([]byte("{receivers: [{name: a}], route: {group_wait: soon}}"), "http://127.0.0.1:1", 1)
			return err
		},
	} {
		if f() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestNamesExist: an alert that an inhibition names is one that the rules have. One that was
// renamed would silence nothing, without a word.
func TestNamesExist(t *testing.T) {
	files, err := filepath.Glob("../../alerts/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\s*-? ?alert: ['"]?(\w+)`).FindAllSubmatch(text, -1) {
			have[string(m[1])] = true
		}
	}
	if len(have) < 20 {
		t.Fatalf("../../alerts holds %d alerts: run make generate", len(have))
	}
	var conf struct {
		InhibitRules []struct {
			Source []string `yaml:"source_matchers"`
			Target []string `yaml:"target_matchers"`
		} `yaml:"inhibit_rules"`
		Route struct{ Routes []struct{ Matchers []string } }
	}
	if err := yaml.Unmarshal(Config, &conf); err != nil {
		t.Fatal(err)
	}
	var matchers []string
	for _, r := range conf.InhibitRules {
		matchers = append(append(matchers, r.Source...), r.Target...)
	}
	for _, r := range conf.Route.Routes {
		matchers = append(matchers, r.Matchers...)
	}
	named := 0
	for _, m := range matchers {
		g := regexp.MustCompile(`^alertname(=|!=|=~|!~)"(.*)"$`).FindStringSubmatch(m)
		if g == nil {
			continue
		}
		for _, name := range strings.Split(g[2], "|") {
			named++
			re, err := regexp.Compile("^(?:" + name + ")$")
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(slices.Collect(maps.Keys(have)), re.MatchString) {
				t.Errorf("%s: there is no alert %s", m, name)
			}
		}
	}
	if named == 0 {
		t.Error("no alert is named: the matchers were not read")
	}
}

// TestRehearsalKeepsRoutes compares all but receivers and waits.
func TestRehearsalKeepsRoutes(t *testing.T) {
	out, err := Rehearsal(Config, "http://127.0.0.1:1", 30)
	if err != nil {
		t.Fatal(err)
	}
	strip := func(text []byte) string {
		var doc map[string]any
		if err := yaml.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		delete(doc, "receivers")
		delete(doc, "global")
		var walk func(any)
		walk = func(n any) {
			switch n := n.(type) {
			case []any:
				for _, v := range n {
					walk(v)
				}
			case map[string]any:
				for _, k := range []string{"group_wait", "group_interval", "repeat_interval"} {
					delete(n, k)
				}
				for _, v := range n {
					walk(v)
				}
			}
		}
		walk(doc)
		b, err := yaml.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if a, b := strip(Config), strip(out); a != b {
		t.Errorf("routes or inhibitions changed:\n%s\n---\n%s", a, b)
	}
	if err := Check(t.Context(), out); err != nil {
		t.Error(err)
	}
}
