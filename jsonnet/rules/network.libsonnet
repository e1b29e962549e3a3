// Traffic to and from the internet, which iptables rules tag on each node and
// which the scrape relabelings turn into the label `traffic`.
//
// A counter knows the node, not the pod. A node's traffic is divided among the
// namespaces that hold its GPUs, by how many they hold: exact where one job has
// the whole node, which is how large jobs run. What flows while nobody holds a
// GPU there is on the namespace _config.unassignedTeam, so that the parts add
// up to the whole.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local node = '%s, %s' % [c.clusterLabel, c.nodeLabel],
  local cl = c.clusterLabel,
  local ns = c.namespaceLabel,

  local onNodes(direction) = {
    record: 'node:net_internet_%s_bytes:rate5m' % direction,
    expr: 'sum by (%s) (rate(%s{%s, %s="%s"}[%s]))' % [
      node,
      c.network.bytes,
      c.selectors.iptables,
      c.network.trafficLabel,
      c.network.traffic[direction],
      t.d('5m'),
    ],
  },

  local byNamespace(direction) = {
    record: 'namespace:net_internet_%s_bytes:rate5m' % direction,
    expr: |||
      sum by (%(cl)s, %(ns)s) (
        (
          sum by (%(node)s, %(ns)s) (pod:gpu_allocated:sum)
          / on (%(node)s) group_left ()
          (node:gpu_allocated:sum > 0)
        )
        * on (%(node)s) group_left ()
        node:net_internet_%(d)s_bytes:rate5m
      )
      or on (%(cl)s, %(ns)s)
      label_replace(
        sum by (%(cl)s) (
          node:net_internet_%(d)s_bytes:rate5m
          unless on (%(node)s)
          (node:gpu_allocated:sum > 0)
        ),
        "%(ns)s", "%(none)s", "", ""
      )
    ||| % { cl: cl, ns: ns, node: node, d: direction, none: c.unassignedTeam },
  },

  prometheusRules+:: {
    groups+: [
      {
        name: 'network.nodes',
        scope:: 'shard',
        rules: [
          onNodes('out'),
          onNodes('in'),
          {
            record: 'node:infiniband_transmitted_bytes:rate5m',
            expr: 'sum by (%s) (rate(node_infiniband_port_data_transmitted_bytes_total{%s}[%s]))' % [node, c.selectors.nodeExporter, t.d('5m')],
          },
          {
            record: 'node:infiniband_received_bytes:rate5m',
            expr: 'sum by (%s) (rate(node_infiniband_port_data_received_bytes_total{%s}[%s]))' % [node, c.selectors.nodeExporter, t.d('5m')],
          },
        ],
      },
      {
        name: 'network.namespaces',
        interval: t.d('1m'),
        rules: [
          byNamespace('out'),
          byNamespace('in'),
          { record: 'cluster:net_internet_out_bytes:rate5m', expr: 'sum by (%s) (node:net_internet_out_bytes:rate5m)' % cl },
          { record: 'cluster:net_internet_in_bytes:rate5m', expr: 'sum by (%s) (node:net_internet_in_bytes:rate5m)' % cl },
          { record: 'cluster:infiniband_transmitted_bytes:rate5m', expr: 'sum by (%s) (node:infiniband_transmitted_bytes:rate5m)' % cl },
          { record: 'cluster:net_accounted_nodes:count', expr: 'count by (%s) (node:net_internet_out_bytes:rate5m)' % cl },
        ],
      },
    ],
  },
}
