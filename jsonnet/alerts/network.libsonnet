// Traffic to the internet: whether it is measured, and whether it jumps.
{
  local c = $._config,
  local a = (import '../lib/alert.libsonnet')(c),
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local th = c.thresholds.network,
  local cl = c.clusterLabel,
  local ns = c.namespaceLabel,
  local node = '%s, %s' % [cl, c.nodeLabel],
  local where = 'node {{ $labels.%s }} of {{ $labels.%s }}' % [c.nodeLabel, cl],

  // jump is a rate that is many times its own mean of the week before, and large. The last hour is not part of the mean.
  local jump(series, by) =
    |||
      (
        %(x)s
        > on (%(by)s)
        %(factor)g * avg_over_time(%(x)s[%(week)s] offset %(hour)s)
      )
      * 8
      > %(bits)g
    ||| % { x: series, by: by, factor: th.egressFactor, week: t.d('1w'), hour: t.d('1h'), bits: th.egressBitsPerSecond },

  // ready are the ready nodes on which an exporter can run: on virtual ones none does.
  local ready = std.rstripChars(|||
    (
      cluster:nodes_ready:sum
      - on (%(cl)s)
      (
        sum by (%(cl)s) (node:ready:max{%(label)s=~"%(unmeasured)s"})
        or on (%(cl)s)
        0 * cluster:nodes_ready:sum
      )
    )
  ||| % { cl: cl, label: c.nodeLabel, unmeasured: c.node.unmeasured }, '\n'),
  local indented(s) = std.strReplace(s, '\n', '\n    '),

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'network',
        rules: [
          a.alert('NetworkAccountingLost', {
            // No node at all is a share of 0, not no answer, where there is an exporter. Clusters without iptables (Cilium's eBPF) have none; that all
            // exporters of a cluster have vanished is told by ScrapeJobGone. Counters that eBPF host routing keeps at 0 count as there: pods that send nothing out look the same.
            expr: |||
              (
                (
                  cluster:net_accounted_nodes:count
                  or on (%(cl)s)
                  0 * cluster:nodes:count
                )
                / on (%(cl)s)
                (%(ready)s > 0)
                < %(share)g
              )
              and on (%(cl)s)
              (
                %(ready)s
                - on (%(cl)s)
                (
                  cluster:net_accounted_nodes:count
                  or on (%(cl)s)
                  0 * cluster:nodes:count
                )
                >= %(nodes)g
              )
              and on (%(cl)s)
              (
                count by (%(cl)s) (up{%(iptables)s})
                or on (%(cl)s)
                cluster:net_accounted_nodes:count
              )
            ||| % { cl: cl, share: th.accounting, nodes: th.accountingNodes, iptables: c.selectors.iptables, ready: indented(ready) },
            hold: '15m',
            severity: 'warning',
            summary: 'Traffic is not accounted for on some nodes.',
            description: 'Only {{ $value | humanizePercentage }} of the ready nodes of {{ $labels.%s }} report tagged traffic counters: bills are too low and a leak there would not be seen.' % cl,
            dashboard: 'network',
          }),
          a.alert('InternetEgressJump', {
            expr: jump('namespace:net_internet_out_bytes:rate5m', '%s, %s' % [cl, ns]),
            hold: '30m',
            severity: 'warning',
            labels: { scope: 'namespace' },
            summary: 'A namespace sends far more to the internet than it used to.',
            description: 'Namespace {{ $labels.%s }} of {{ $labels.%s }} sends {{ $value | humanize }}bit/s to the internet, more than %g times its mean of a week.' % [ns, cl, th.egressFactor],
            dashboard: 'network',
            vars: { namespace: ns },
          }),
          a.alert('InternetEgressJump', {
            expr: jump('cluster:net_internet_out_bytes:rate5m', cl),
            hold: '30m',
            severity: 'warning',
            labels: { scope: 'cluster' },
            summary: 'A cluster sends far more to the internet than it used to.',
            description: 'Cluster {{ $labels.%s }} sends {{ $value | humanize }}bit/s to the internet, more than %g times its mean of a week. A namespace that is new has no mean of its own and shows up only here.' % [cl, th.egressFactor],
            dashboard: 'network',
          }),
          a.alert('NodeInfiniBandPortDown', {
            dashboard: 'network',
            // Against the median of its GPU model in the cluster, so that ports without a cable are nobody's fault, and one that was dead when the node came is told too.
            expr: |||
              (
                -(
                  node_model:infiniband_ports_active:sum
                  - on (%(cl)s, %(model)s) group_left ()
                  quantile by (%(cl)s, %(model)s) (0.5, node_model:infiniband_ports_active:sum)
                )
                >= %(ports)g
              )
              and on (%(cl)s, %(model)s)
              (count by (%(cl)s, %(model)s) (node_model:infiniband_ports_active:sum) >= %(peers)g)
              unless on (%(node)s)
              node:planned:bool
            ||| % { cl: cl, node: node, model: c.gpu.modelLabel, ports: th.infinibandPorts, peers: th.infinibandPeers },
            hold: '10m',
            severity: 'warning',
            summary: 'An InfiniBand port of a node is down.',
            description: 'On %s {{ $value | humanize }} InfiniBand ports fewer are active than on most nodes with {{ or $labels.%s "GPUs like its own" }}: a gang that has it is as slow as its narrowest node, or does not start.' % [where, c.gpu.modelLabel],
          }),
          a.alert('NodeInfiniBandLinkFlapping', {
            dashboard: 'network',
            expr: |||
              node:infiniband_link_downs:max1h > %(downs)g
              unless on (%(node)s)
              node:planned:bool
            ||| % { node: node, downs: th.infinibandDowns },
            hold: '5m',
            severity: 'warning',
            summary: 'An InfiniBand link of a node goes down again and again.',
            description: 'A link of %s went down {{ $value | humanize }} times in an hour. Each time NCCL waits or the job dies.' % where,
          }),
        ],
      },
    ],
  },
}
