package live

// How an alert that is not staged is shown.
const (
	byRuleTest  = "rule test"
	byFixture   = "rule test over a dropped bucket (`alerts/tests/fixtures`)"
	notHere     = "rule test; "
	servicesOwn = notHere + "it is about a real server of the rig, whose sound state the rig shows: it must not fire in any run"
)

// Elsewhere are the alerts that no case stages, and what shows them instead.
var Elsewhere = map[string]string{
	"AlertmanagerNotificationsFailing": servicesOwn,
	"CostTeamUnassigned":               byRuleTest,
	"DropRulesNotEffective":            notHere + "needs a plan of drop rules",
	"EtcdMembersDown":                  notHere + "comes beside *etcd has no leader* and *etcd hangs*",
	"FleetGPUUnhealthy":                notHere + "may come beside *half the fleet not ready*",
	"GPUAllocatedIdle":                 notHere + "two hours are four minutes for one alert",
	"GPUPodsNotScheduled":              byRuleTest,
	"GPUXidFatalLegacy":                notHere + "for exporters without the count of Xids, which the rig's have",
	"GPUXidUnknown":                    notHere + "the model reports no Xid that has no class",
	"InternetEgressJump":               byRuleTest,
	"KubeAPIErrorBudgetBlind":          byFixture,
	"KubeAPISeatsSaturated":            notHere + "may come beside *one client asks too much*",
	"KubeStateMetricsIncomplete":       notHere + "the rig has one kube-state-metrics, which is not in shards",
	"LocationLost":                     notHere + "comes beside *half the fleet not ready*",
	"NodeClockNotSynchronised":         byRuleTest,
	"NodeClockSkewed":                  byRuleTest,
	"NodeConntrackNearLimit":           byRuleTest,
	"NodeFilesystemInodesFull":         byRuleTest,
	"PrometheusHACrashLooping":         servicesOwn,
	"PrometheusHAPairDown":             notHere + "Alertmanager holds it back where *a shard down* names the shard",
	"PrometheusHeadSeriesRunaway":      notHere + "needs a head of a million series",
	"PrometheusJobCardinalityJump":     byRuleTest,
	"PrometheusRemoteWriteBehind":      servicesOwn,
	"PrometheusRemoteWriteFailing":     servicesOwn,
	"PrometheusReplaySlow":             notHere + "the model's servers replay within minutes",
	"PrometheusRuleFailures":           notHere + "Alertmanager holds it back where *a shard down* names the shard",
	"PrometheusSeriesAPIUnbounded":     servicesOwn,
	"ProxyCallsWaiting":                servicesOwn,
	"ProxyConfigReloadFailed":          servicesOwn,
	"ProxyDown":                        servicesOwn,
	"ProxyErrorBudgetBurn":             notHere + "may come beside *a shard down*",
	"ProxyErrorRatio":                  notHere + "Alertmanager holds it back where *a shard down* names the shard",
	"ProxyMemoryNearBudget":            servicesOwn,
	"ProxyMemoryNearCeiling":           servicesOwn,
	"ProxyOverloaded":                  servicesOwn,
	"ProxyPartialAnswers":              servicesOwn,
	"ProxyGroupNotTrusted":             servicesOwn,
	"ProxyProcessorBusy":               servicesOwn,
	"ProxyQuarantine":                  notHere + "may come beside *one replica of a shard down*",
	"ProxyRawPlans":                    notHere + "may come beside *one replica of a shard down*",
	"ProxyRejectedByPolicy":            servicesOwn,
	"ProxyReplicaDown":                 notHere + "comes beside *one replica of a shard down*",
	"ProxyReplicaCutOff":               servicesOwn + ". That its metric tells who is cut off, TestTroublesPartition shows on real servers",
	"ProxyReplicaFailing":              servicesOwn,
	"ProxyReplicaNotWhole":             servicesOwn,
	"ProxyReplicaSilent":               servicesOwn,
	"ProxyShardSlow":                   servicesOwn,
	"ProxySlow":                        servicesOwn,
	"ProxyStoresLeftOut":               notHere + "the rig has no Thanos. TestStoresAway shows that its metric counts stores that are away, and proofs/thanos that real ones are asked around",
	"RemediatorStuck":                  notHere + "the rig has no remediation controller",
	"RulerFailing":                     notHere + "Alertmanager holds it back where *a shard down* names the shard",
	"ScrapeJobGone":                    notHere + "no target of the rig leaves service discovery; the rule test takes away each job by itself",
	"ScrapeTargetsGone":                notHere + "no target of the rig leaves service discovery",
	"TargetDown":                       notHere + "comes beside *one replica of a shard down*",
	"TeamReservationIdle":              byRuleTest,
}
