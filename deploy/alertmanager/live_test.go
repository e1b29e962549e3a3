package alertmanager

import "testing"

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
	unreachableTogether := ls("alertname", "NodeUnreachable", "severity", "warning", "state", "together", "cluster", "jaguar", "node", "n2")
	closed := ls("alertname", "NodeUnreachable", "severity", "warning", "state", "runs", "cluster", "jaguar", "node", "n2")
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
		{
			"so is one of several that nobody reaches, but for what the controller keeps",
			[]map[string]string{unreachableTogether, diskFull, notReady, blind, notReadyIbis, xidThere},
			map[string][]string{
				"remediation": {"GPUXidFatal jaguar n2"},
				"warning":     {"NodeNotReady ibis n2", "NodeUnreachable jaguar n2"},
			},
		},
		{
			"also where that it is so is held back itself",
			[]map[string]string{fleetCut, unreachableTogether, diskFull, notReady, blind},
			map[string][]string{"critical": {"FleetNodesUnreachable jaguar"}},
		},
		{
			"and not one that runs",
			[]map[string]string{closed, notReady},
			map[string][]string{"warning": {"NodeNotReady jaguar n2", "NodeUnreachable jaguar n2"}},
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
		{"in two pages, which may be two shards, where Spillway is beside it", []map[string]string{shardDownHere, pairDown, noNodes, accounting}, map[string][]string{
			"critical": {"PrometheusHAPairDown jaguar", "ProxyShardDown jaguar"},
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
			told(t, c.alerts, c.want)
		})
	}
}
