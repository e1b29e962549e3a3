package live

import (
	"time"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// Reasons that several cases share.
const (
	becauseXid    = "the GPU reports an Xid with it"
	becauseGauge  = "the gauge of the last Xid keeps it, and the GPU is back when the count no longer shows it"
	becauseRow    = "the row is remapped at the next reset"
	becauseDead   = "the device plugin takes the GPU out of what can be allocated"
	becausePod    = "the pod on it dies and its gang is started again"
	becausePage   = "pages of the node are missing"
	becauseBurn   = "the error budget goes with it, and its longer windows remember"
	becauseSeries = "calls of its series API are what eats the memory"
	becauseGap    = "errors that were counted before it went are new when it is back"
	becauseSeats  = "requests that wait hold seats"
	becauseLate   = "the page stands minutes before, which are seconds here: where rules are late it comes before Alertmanager holds it back"
	becauseRacks  = "whole racks are among them, and each is named"
)

// burnt are the alerts on the API server's error budget, whose longest window is three days.
var burnt = map[string]time.Duration{"KubeAPIErrorBudgetBurnErrors": 72 * time.Hour, "KubeAPIErrorBudgetBurnSlow": 72 * time.Hour}

// remade are the alerts on pods that wait, which may come until a gang that lost a pod runs again:
// the model deletes it after up to 90 s, and it waits for up to 40 s and starts within 45 s; three
// minutes, and 90 of the rules'.
var remade = map[string]time.Duration{
	"GPUPodsPendingLong": 90 * time.Minute, "PendingWhileGPUsFree": 90 * time.Minute,
	"GangPartiallyRunning": 90 * time.Minute,
}

// xidWindow is how long DCGM_EXP_XID_ERRORS_COUNT shows an Xid; it is in real time and starts anew
// where the GPU was away.
const xidWindow = 6 * time.Minute

// Cases are the troubles that are staged live. What a rule test or back-filled blocks show instead
// is in Elsewhere.
var Cases = []Case{
	// Wave 1: what `make test` stages too, and GPUs, each trouble on a node of its own.
	{
		Name: "GPU off the bus", Kind: cluster.GPUXidFatal, Value: 79, Target: OnGPU, Wave: 1, After: xidWindow, Short: true,
		Want: []string{"GPUFellOffBus"}, On: ByGPUsNode,
		Beside: map[string]string{"GPUXidFatal": becauseXid, "GPUXidFatalLegacy": becauseGauge},
	},
	{
		Name: "node cut off", Kind: cluster.NodeCutOff, Target: OnNode, Wave: 1, Short: true, Remembered: remade,
		Want: []string{"NodeUnreachable"}, On: ByNode,
		Beside: map[string]string{
			"GPUPodsPendingLong": becausePod, "PendingWhileGPUsFree": becausePod, "GangPartiallyRunning": becausePod,
			"NodeExporterMissing": becausePage, "GPUExporterMissing": becausePage,
			"GPUUncorrectableECC": becauseGap, "GPUXidFatal": becauseXid,
		},
	},
	{
		Name: "one client asks too much", Kind: cluster.APIThrottling, Value: 0.1, Target: Named("service-accounts"), Wave: 1, Short: true,
		Want: []string{"KubeAPIThrottlingSevere", "KubeAPIFlowSchemaRejected"},
		Beside: map[string]string{
			"KubeAPIThrottling": "the milder form, unless Alertmanager holds it back", "KubeAPISeatsSaturated": becauseSeats,
		},
	},
	{
		Name: "slow disk of etcd", Kind: cluster.EtcdFsyncSlow, Target: OnInstance(cluster.JobEtcd), Wave: 1, Short: true,
		Want: []string{"EtcdFsyncSlow"}, On: By("instance"),
	},
	{
		Name: "DNS fails", Kind: cluster.DNSErrors, Target: Named(cluster.WholeCluster), Wave: 1, Short: true,
		Want: []string{"ClusterDNSErrors"},
	},
	{
		Name: "fatal Xid", Kind: cluster.GPUXidFatal, Value: 95, Target: OnGPU, Wave: 1, After: xidWindow,
		Want: []string{"GPUXidFatal"}, On: ByGPU,
	},
	{
		Name: "uncorrectable memory error", Kind: cluster.GPUUncorrectableECC, Target: OnGPU, Wave: 1, After: xidWindow,
		Want: []string{"GPUUncorrectableECC"}, On: ByGPU,
		Beside: map[string]string{"GPUXidFatal": becauseXid, "GPURowRemapPending": becauseRow},
	},
	{
		Name: "no spare rows", Kind: cluster.GPURowRemapFailure, Target: OnGPU, Wave: 1, After: xidWindow,
		Want: []string{"GPURowRemapFailure"}, On: ByGPU,
		Beside: map[string]string{"GPUXidFatal": becauseXid},
	},
	{
		Name: "row to be remapped", Kind: cluster.GPURowRemapPending, Target: OnGPU, Wave: 1, After: xidWindow,
		Want: []string{"GPURowRemapPending"}, On: ByGPU,
	},
	{
		Name: "hot GPU", Kind: cluster.GPUHot, Target: OnGPU, Wave: 1,
		Want: []string{"GPUHot"}, On: ByGPU,
	},
	{
		Name: "throttled GPU", Kind: cluster.GPUThrottled, Target: OnGPU, Wave: 1, Hold: 80 * time.Second,
		Want: []string{"GPUThrottled"}, On: ByGPU,
	},
	{
		Name: "NVLink errors", Kind: cluster.GPUNVLinkErrors, Value: 60, Target: OnGPU, Wave: 1,
		Want: []string{"GPUNVLinkErrors"}, On: ByGPU,
	},
	{
		Name: "PCIe replays", Kind: cluster.GPUPCIeReplay, Target: OnGPU, Wave: 1, Hold: 80 * time.Second,
		Want: []string{"GPUPCIeReplay"}, On: ByGPU,
	},

	// Wave 2: nodes and their disks, tables and exporters; the control plane's slow growths beside
	// them.
	{
		Name: "full disk", Kind: cluster.NodeDiskFull, Target: OnNode, Wave: 2,
		Want: []string{"NodeFilesystemFull"}, On: ByNode,
	},
	{
		Name: "read-only disk", Kind: cluster.NodeDiskReadOnly, Target: OnNode, Wave: 2,
		Want: []string{"NodeFilesystemReadOnly"}, On: ByNode,
		Beside: map[string]string{"NodeDiskError": "the kernel mounts it so after errors, which its log has"},
	},
	{
		Name: "failing disk", Kind: cluster.NodeDiskError, Target: OnNode, Wave: 2,
		Want: []string{"NodeDiskError", "NodeFilesystemDeviceError"}, On: ByNode,
	},
	{
		Name: "neighbour table filling", Kind: cluster.NodeARPTableFilling, Target: OnNode, Wave: 2,
		Want: []string{"NodeARPTableNearLimit"}, On: ByNode,
	},
	{
		Name: "neighbour table over", Kind: cluster.NodeARPTableOverflow, Target: OnNode, Wave: 2,
		Want: []string{"NodeARPTableOverflow"}, On: ByNode,
		Beside: map[string]string{"NodeARPTableNearLimit": "what is over its limit is near it"},
	},
	{
		Name: "GPU exporter gone", Kind: cluster.GPUExporterGone, Target: OnNode, Wave: 2, Hold: 80 * time.Second,
		Want: []string{"GPUExporterMissing"}, On: ByNode,
		Beside: map[string]string{"GPUUncorrectableECC": becauseGap, "GPUXidFatal": becauseXid},
	},
	{
		Name: "API server's memory", Kind: cluster.APIServerMemory, Target: OnInstance(cluster.JobAPIServer), Wave: 2,
		Hold: 100 * time.Second,
		Want: []string{"KubeAPIServerMemoryHigh", "KubeAPIServerMemoryImbalance"},
	},
	{
		Name: "watch traffic", Kind: cluster.APIWatchTraffic, Target: Named("pods"), Wave: 2, Hold: 90 * time.Second,
		Want: []string{"KubeAPIWatchTrafficHigh"}, On: By("resource"),
	},
	{
		Name: "etcd changes leaders", Kind: cluster.EtcdLeaderChurn, Value: 15, Target: Named(cluster.JobEtcdEvents), Wave: 2,
		Want: []string{"EtcdLeaderChurn"}, On: By("job"),
	},
	{
		Name: "DNS slow", Kind: cluster.DNSSlow, Target: Named(cluster.WholeCluster), Wave: 2,
		Want: []string{"ClusterDNSSlow"},
	},
	{
		Name: "autoscaler stands still", Kind: cluster.AutoscalerStuck, Target: Named(cluster.WholeCluster), Wave: 2,
		Hold: 100 * time.Second,
		Want: []string{"ClusterAutoscalerStuck"},
	},

	// Wave 3: pods that wait, a database that fills, monitoring that suffers.
	{
		Name: "etcd database fills", Kind: cluster.EtcdDBGrows, Target: Named(cluster.JobEtcd), Wave: 3, Hold: 4 * time.Minute,
		Want: []string{"EtcdDBNearQuota", "EtcdDBFillsIn4h"}, On: By("job"),
	},
	{
		// Until the gang is made anew and its first half runs, a minute of this may pass.
		Name: "half a gang waits", Kind: cluster.GangHalfPending, Target: OnGang(2), Wave: 3, Hold: 160 * time.Second,
		Want: []string{"GangPartiallyRunning"},
		Beside: map[string]string{
			"GPUPodsPendingLong":   "half of its pods wait",
			"PendingWhileGPUsFree": "its pods wait for GPUs that are free",
		},
	},
	{
		Name: "no machines to be had", Kind: cluster.AutoscalerScaleUpFailing, Value: 30, Target: Named(cluster.WholeCluster), Wave: 3,
		Hold: 80 * time.Second,
		Want: []string{"ClusterAutoscalerScaleUpFailing"},
	},
	{
		Name: "some clients are refused", Kind: cluster.APIThrottlingInFlight, Value: 0.02, Target: Named(cluster.WholeCluster), Wave: 3,
		Want: []string{"KubeAPIThrottling"},
	},
	{
		Name: "Prometheus near its limit", Kind: cluster.PrometheusMemoryNearLimit, Target: OnInstance(cluster.JobPrometheus), Wave: 3,
		Want:   []string{"PrometheusMemoryNearLimit"},
		Beside: map[string]string{"PrometheusSeriesAPIUnbounded": becauseSeries},
	},

	// Wave 4: pods pending although GPUs are free; Prometheus dies again and again.
	{
		Name: "GPUs free and pods wait", Kind: cluster.PodsPendingGPUsFree, Target: Named(cluster.WholeCluster), Wave: 4,
		Hold: 150 * time.Second,
		Want: []string{"PendingWhileGPUsFree", "GPUPodsPendingLong"},
	},
	{
		Name: "Prometheus out of memory", Kind: cluster.PrometheusOOMLoop, Value: 8, Target: OnInstance(cluster.JobPrometheus), Wave: 4,
		Hold: 2 * time.Minute,
		Want: []string{"PrometheusOOMLoop"}, Remembered: map[string]time.Duration{"PrometheusOOMLoop": 3 * time.Hour},
		Beside: map[string]string{
			"PrometheusMemoryNearLimit": "before each death it is near its limit", "PrometheusReplayingWAL": "after each death it replays",
			"PrometheusHACrashLooping": "it is half of the pair", "PrometheusSeriesAPIUnbounded": becauseSeries,
		},
	},

	// Wave 5: one thing at a time, whose consequences are wide.
	{
		Name: "Prometheus replays", Kind: cluster.PrometheusReplaying, Target: OnInstance(cluster.JobPrometheus), Wave: 5,
		Hold: 80 * time.Second,
		Want: []string{"PrometheusReplayingWAL"},
	},
	{
		Name: "network accounting lost", Kind: cluster.NetworkAccountingLost, Value: 0.5, Target: Named("fleet"), Wave: 5,
		Hold: 80 * time.Second,
		Want: []string{"NetworkAccountingLost"},
	},
	{
		// GPUExporterMissing of each node is not beside it: Alertmanager must hold those back.
		Name: "GPU exporters gone", Kind: cluster.GPUExporterGone, Value: 0.5, Target: Named("fleet"), Wave: 5, Hold: 80 * time.Second,
		Want: []string{"FleetGPUExporterMissing"},
		Beside: map[string]string{
			"TargetDown": "half of the exporters cannot be scraped", "GPUUncorrectableECC": becauseGap, "GPUNVLinkErrors": becauseGap,
			"GPUXidFatal": becauseXid,
		},
	},
	{
		Name: "aggregated API gone", Kind: cluster.APIAggregatorDown, Target: Named(cluster.WholeCluster), Wave: 5,
		Want: []string{"KubeAPIAggregatorUnavailable"},
	},
	{
		Name: "half the fleet not ready", Kind: cluster.NodeNotReady, Value: 0.5, Target: Named("fleet"), Wave: 6, Remembered: remade,
		Want: []string{"FleetNodesNotReady"},
		Beside: map[string]string{
			"FleetGPUUnhealthy": "GPUs of nodes that are not ready cannot be allocated", "NodeUnreachable": becausePage, "GPUPodsPendingLong": becausePod, "PendingWhileGPUsFree": becausePod,
			"GangPartiallyRunning": becausePod, "LocationLost": becauseRacks,
			"NodeNotReady": "the same of each node, unless Alertmanager holds it back",
		},
	},
	{
		Name: "etcd has no leader", Kind: cluster.EtcdNoLeader, Target: Named(cluster.JobEtcd), Wave: 7, Remembered: burnt,
		Want: []string{"EtcdNoLeader"}, On: By("job"),
		Beside: map[string]string{
			"EtcdMembersDown":     "no member sees a leader",
			"KubeAPIServerErrors": "writes to the API server fail", "KubeAPIErrorBudgetBurnErrors": becauseBurn,
			"KubeAPIErrorBudgetBurnSlow": "writes wait for a leader before they fail",
		},
	},
	{
		Name: "etcd hangs", Kind: cluster.EtcdHung, Target: Named(cluster.JobEtcd), Wave: 8, Remembered: burnt,
		Want: []string{"KubeAPIServerNotMeasured"},
		Beside: map[string]string{
			"EtcdMembersDown":     "its members do not answer",
			"KubeAPIServerErrors": "what failed meanwhile shows when pages are back", "KubeAPIErrorBudgetBurnErrors": becauseBurn,
			"KubeAPIErrorBudgetBurnSlow": becauseBurn,
			"TargetDown":                 "scrapes of etcd and of the API servers wait for it too",
		},
	},
	{
		// So many that the hour's budget burns whatever the waves before have burnt.
		Name: "API server fails", Kind: cluster.APIErrors, Value: 0.2, Target: Named(cluster.WholeCluster), Wave: 9, Hold: 80 * time.Second,
		Remembered: burnt,
		Want:       []string{"KubeAPIServerErrors", "KubeAPIErrorBudgetBurnErrors", "KubeAPIWebhookFailing"},
		Beside:     map[string]string{"KubeAPIErrorBudgetBurnSlow": becauseBurn},
	},
	{
		// It must be known who was sick an hour ago, which is two minutes here.
		Name: "links fail on every node", Kind: cluster.GPUNVLinkErrors, Target: Named("fleet"), Wave: 9, Hold: 150 * time.Second,
		Want:   []string{"FleetNodesFailing"},
		Beside: map[string]string{"GPUNVLinkErrors": "each node has it before it is known that so many have"},
	},
	{
		Name: "API server slow", Kind: cluster.APISlow, Target: Named(cluster.WholeCluster), Wave: 10, Remembered: burnt,
		Want:   []string{"KubeAPIErrorBudgetBurnSlow"},
		Beside: map[string]string{"KubeAPIErrorBudgetBurnErrors": becauseBurn, "KubeAPISeatsSaturated": becauseSeats},
	},
	{
		// That it stands before NodeUnreachable comes from each node is for the rule test to show,
		// minute by minute; that Alertmanager then holds those back, for the test of its
		// configuration.
		Name: "pod network breaks", Kind: cluster.NodeUnreachable, Value: 0.5, Target: Named("fleet"), Wave: 10,
		Want:   []string{"FleetNodesUnreachable"},
		Beside: map[string]string{"NodeUnreachable": becauseLate, "LocationLost": becauseRacks},
	},
	{
		Name: "cooling fails", Kind: cluster.GPUHot, Value: 0.5, Target: Named("fleet"), Wave: 10,
		Want:   []string{"FleetGPUHot"},
		Beside: map[string]string{"GPUHot": becauseLate},
	},
}

// replicaDown, shardDown and teamless are not troubles of the model: the rig kills servers.
var (
	replicaDown = Case{
		Name: "one replica of a shard down",
		Beside: map[string]string{
			"TargetDown":       "one Prometheus of five cannot be scraped",
			"ProxyReplicaDown": "its shard has one replica left",
			"ProxyQuarantine":  "it was killed while it worked on queries",
			"ProxyRawPlans":    "the one that is left misses what it missed before",
		},
	}
	// teamless is nobody's doing either: in a quiet cluster too a namespace may have no team.
	teamless = Case{
		Name:   "an experiment without a team",
		Beside: map[string]string{"CostTeamUnassigned": "its GPU-hours are on nobody's bill"},
	}
	// starting is true of the whole run: a replica is seen to be whole by closed stretches of five
	// minutes, which no scale of time makes shorter, and the rig's servers began a minute ago.
	starting = Case{
		Name:   "servers that have just started",
		Beside: map[string]string{"ProxyRawPlans": "no replica is known to be whole yet"},
	}
	// beginning is true of the time in which everything settles: all rules begin at once, nothing
	// is known yet of what they cost or of who is whole, and two processors answer them.
	beginning = Case{
		Name:   "rules that have just begun",
		Beside: map[string]string{"ProxyCallsWaiting": "the first evaluations of all groups come at once, and are read raw"},
	}
	shardDown = Case{
		Name: "a shard down",
		Want: []string{"ProxyShardDown"},
		Beside: map[string]string{
			"TargetDown":           "two of five Prometheus servers cannot be scraped",
			"PrometheusHAPairDown": "its neighbours say so too",
			"ProxyReplicaDown":     "until the other one is down too",
			"ProxyQuarantine":      "they were killed while they worked on queries",
			"ProxyRawPlans":        "the one that was left missed what it missed before",
			"ProxyErrorBudgetBurn": "the proxy's probes see the loss after up to five seconds, which at this scale is longer than this alert waits; from then on Alertmanager holds it back",
		},
	}
)
