// Nodes as the control plane sees them.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local node = '%s, %s' % [c.clusterLabel, c.nodeLabel],
  local cl = c.clusterLabel,

  // turned counts the nodes that are cordoned (1) or are not (0) and were otherwise five minutes ago; 0 where there is none. A node that has just come is neither.
  local cordoned(offset) = 'max by (%s) (kube_node_spec_unschedulable{%s}%s)' % [node, c.selectors.ksm, offset],
  local turned(to) = |||
    count by (%(cl)s) (
      %(now)s == %(to)d
      and on (%(node)s)
      %(before)s == %(other)d
    )
    or on (%(cl)s)
    0 * cluster:nodes:count
  ||| % { cl: cl, node: node, to: to, other: 1 - to, now: cordoned(''), before: cordoned(' offset ' + t.d('5m')) },

  prometheusRules+:: {
    groups+: [
      {
        name: 'fleet.nodes',
        rules: [
          {
            // 1 while the node is ready, else 0.
            record: 'node:ready:max',
            expr: 'max by (%s) (kube_node_status_condition{%s, condition="Ready", status="true"})' % [node, c.selectors.ksm],
          },
          {
            record: 'node:rack:info',
            expr: |||
              max by (%(node)s, rack) (
                label_replace(
                  max by (%(node)s, %(l)s) (kube_node_labels{%(ksm)s, %(l)s!=""}),
                  "rack", "$1", "%(l)s", "(.+)"
                )
              )
            ||| % { node: node, ksm: c.selectors.ksm, l: c.node.rackLabel },
          },
          { record: 'cluster:nodes:count', expr: 'count by (%s) (node:ready:max)' % cl },
          { record: 'cluster:nodes_ready:sum', expr: 'sum by (%s) (node:ready:max)' % cl },
          {
            record: 'cluster:nodes_cordoned:sum',
            expr: 'sum by (%s) (max by (%s) (kube_node_spec_unschedulable{%s}))' % [cl, node, c.selectors.ksm],
          },
        ],
      },
      {
        // What changed since the evaluation before. Sums over them are how many were cordoned and given back, however short each time was.
        name: 'fleet.cordons',
        interval: t.d('5m'),
        rules: [
          { record: 'cluster:nodes_newly_cordoned:sum5m', expr: turned(1) },
          { record: 'cluster:nodes_uncordoned:sum5m', expr: turned(0) },
        ],
      },
    ],
  },
}
