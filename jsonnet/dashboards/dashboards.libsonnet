// The dashboards. It only joins.
{
  local mixin = self,
  // What tests know of each panel, by dashboard and title: {trouble, quiet, budget}. No part of the JSON.
  panelFacts:: { [std.strReplace(name, '.json', '')]: mixin.grafanaDashboards[name].facts for name in std.objectFields(mixin.grafanaDashboards) },
  // The kinds of trouble that must change a panel, likewise.
  troubles:: {
    [name]: { [title]: mixin.panelFacts[name][title].trouble for title in std.objectFields(mixin.panelFacts[name]) if mixin.panelFacts[name][title].trouble != [] }
    for name in std.objectFields(mixin.panelFacts)
  },
}
+ (import 'fleet.libsonnet')
+ (import 'network.libsonnet')
+ (import 'prometheus.libsonnet')
+ (import 'proxy.libsonnet')
+ (import 'cardinality.libsonnet')
+ (import 'cost.libsonnet')
+ (import 'etcd.libsonnet')
+ (import 'gpu-fleet.libsonnet')
+ (import 'gpu-node.libsonnet')
+ (import 'gpu-use.libsonnet')
+ (import 'node.libsonnet')
+ (import 'pending.libsonnet')
+ (import 'alerts.libsonnet')
+ (import 'apiserver.libsonnet')
