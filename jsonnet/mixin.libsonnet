// The mixin: configuration, alerts, recording rules, dashboards. It only joins.
{
  _config:: {},
  prometheusAlerts:: { groups: [] },
  prometheusRules:: { groups: [] },
  grafanaDashboards:: {},
}
+ (import 'config.libsonnet')
+ (import 'alerts/apiserver.libsonnet')
+ (import 'alerts/etcd.libsonnet')
+ (import 'alerts/fleet.libsonnet')
+ (import 'alerts/node.libsonnet')
+ (import 'alerts/gpu.libsonnet')
+ (import 'alerts/network.libsonnet')
+ (import 'alerts/pending.libsonnet')
+ (import 'alerts/dns.libsonnet')
+ (import 'alerts/cost.libsonnet')
+ (import 'alerts/prometheus.libsonnet')
+ (import 'alerts/targets.libsonnet')
+ (import 'alerts/spillway.libsonnet')
+ (import 'alerts/relabel.libsonnet')
+ (import 'alerts/watchdog.libsonnet')
+ (import 'rules/apiserver.libsonnet')
+ (import 'rules/etcd.libsonnet')
+ (import 'rules/fleet.libsonnet')
+ (import 'rules/node.libsonnet')
+ (import 'rules/gpu.libsonnet')
+ (import 'rules/gpu_faults.libsonnet')
+ (import 'rules/network.libsonnet')
+ (import 'rules/pending.libsonnet')
+ (import 'rules/dns.libsonnet')
+ (import 'rules/cost.libsonnet')
+ (import 'rules/experiment.libsonnet')
+ (import 'rules/prometheus.libsonnet')
+ (import 'rules/targets.libsonnet')
+ (import 'rules/alerts.libsonnet')
+ (import 'dashboards/dashboards.libsonnet')
+ (import 'lib/runbooks.libsonnet')
