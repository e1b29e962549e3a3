// Nodes as the control plane sees them.
{
  local c = $._config,
  local node = '%s, %s' % [c.clusterLabel, c.nodeLabel],
  local cl = c.clusterLabel,

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
          { record: 'cluster:nodes:count', expr: 'count by (%s) (node:ready:max)' % cl },
          { record: 'cluster:nodes_ready:sum', expr: 'sum by (%s) (node:ready:max)' % cl },
          {
            record: 'cluster:nodes_cordoned:sum',
            expr: 'sum by (%s) (max by (%s) (kube_node_spec_unschedulable{%s}))' % [cl, node, c.selectors.ksm],
          },
        ],
      },
    ],
  },
}
