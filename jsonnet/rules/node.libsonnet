// Nodes' own pages, brought down to one series for each node on the shard that
// scrapes it, and from there to quantiles: no panel has to read 192 CPUs of
// 7,500 nodes.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local s = c.selectors.nodeExporter,
  local node = '%s, %s' % [c.clusterLabel, c.nodeLabel],
  local cl = c.clusterLabel,

  // name of the recorded series of a node: what its quantiles over the cluster are called.
  local quantiles = {
    'node:cpu_busy:ratio_rate5m': 'cluster:node_cpu_busy:quantile',
    'node:load1_per_cpu:ratio': 'cluster:node_load1_per_cpu:quantile',
    'node:memory_used:ratio': 'cluster:node_memory_used:quantile',
    'node:disk_busy:max_rate5m': 'cluster:node_disk_busy:quantile',
  },

  prometheusRules+:: {
    groups+: [
      {
        name: 'node.pages',
        scope:: 'shard',
        rules: [
          {
            record: 'node:cpu_busy:ratio_rate5m',
            expr: '1 - avg by (%s) (rate(node_cpu_seconds_total{%s, mode="idle"}[%s]))' % [node, s, t.d('5m')],
          },
          {
            record: 'node:load1_per_cpu:ratio',
            expr: |||
              max by (%(n)s) (node_load1{%(s)s})
              / on (%(n)s)
              count by (%(n)s) (node_cpu_seconds_total{%(s)s, mode="idle"})
            ||| % { n: node, s: s },
          },
          {
            record: 'node:memory_used:ratio',
            expr: '1 - max by (%(n)s) (node_memory_MemAvailable_bytes{%(s)s}) / on (%(n)s) max by (%(n)s) (node_memory_MemTotal_bytes{%(s)s})' % { n: node, s: s },
          },
          {
            record: 'node:disk_busy:max_rate5m',
            expr: 'max by (%s) (rate(node_disk_io_time_seconds_total{%s}[%s]))' % [node, s, t.d('5m')],
          },
          {
            // Of each local file system.
            record: 'node:filesystem_used:ratio',
            expr: |||
              max by (%(n)s, mountpoint, device) (
                1 - node_filesystem_avail_bytes{%(s)s, %(fs)s} / node_filesystem_size_bytes{%(s)s, %(fs)s}
              )
            ||| % { n: node, s: s, fs: c.node.filesystems },
          },
          {
            // The kernel's table is one for all devices; a device whose last entry goes loses its series.
            record: 'node:arp_entries:ratio',
            expr: |||
              sum by (%(n)s) (node_arp_entries{%(s)s})
              / on (%(n)s)
              max by (%(n)s) (node_sysctl_net_ipv4_neigh_default_gc_thresh3{%(s)s})
            ||| % { n: node, s: s },
          },
        ],
      },
      {
        name: 'node.quantiles',
        interval: t.d('1m'),
        rules: [
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
