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
  local ne = c.selectors.nodeExporter,

  // Errors of InfiniBand ports that a job notices: links that went down or had to recover, packets that came damaged.
  local portErrors = ['node_infiniband_link_downed_total', 'node_infiniband_link_error_recovery_total', 'node_infiniband_port_errors_received_total'],

  local onRacks(series) = {
    record: 'rack:' + series,
    expr: 'sum by (%s, rack) (node:%s * on (%s) group_left (rack) node:rack:info)' % [cl, series, node],
  },
  local quantiles = {
    'node:net_internet_out_bytes:rate5m': 'cluster:node_net_internet_out_bytes:quantile',
    'node:infiniband_transmitted_bytes:rate5m': 'cluster:node_infiniband_transmitted_bytes:quantile',
  },

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
          {
            record: 'node:infiniband_errors:rate5m',
            expr: std.join('\n+ on (%s)\n' % node, ['sum by (%s) (rate(%s{%s}[%s]))' % [node, m, ne, t.d('5m')] for m in portErrors]),
          },
          {
            // Of Ethernet, whatever its names: what InfiniBand carries is not counted twice where IP runs over it.
            record: 'node:ethernet_transmitted_bytes:rate5m',
            expr: 'sum by (%s) (rate(node_network_transmit_bytes_total{%s, %s}[%s]))' % [node, ne, c.network.ethernet, t.d('5m')],
          },
          {
            record: 'node:ethernet_received_bytes:rate5m',
            expr: 'sum by (%s) (rate(node_network_receive_bytes_total{%s, %s}[%s]))' % [node, ne, c.network.ethernet, t.d('5m')],
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
          { record: 'cluster:ethernet_transmitted_bytes:rate5m', expr: 'sum by (%s) (node:ethernet_transmitted_bytes:rate5m)' % cl },
          { record: 'cluster:ethernet_received_bytes:rate5m', expr: 'sum by (%s) (node:ethernet_received_bytes:rate5m)' % cl },
          onRacks('infiniband_transmitted_bytes:rate5m'),
          onRacks('infiniband_received_bytes:rate5m'),
          onRacks('infiniband_errors:rate5m'),
        ] + [
          {
            record: quantiles[name],
            labels: { quantile: '%g' % q },
            expr: 'quantile by (%s) (%g, %s)' % [cl, q, name],
          }
          for name in std.objectFields(quantiles)
          for q in c.quantiles
        ],
      },
    ],
  },
}
