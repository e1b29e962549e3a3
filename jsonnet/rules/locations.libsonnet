// Where nodes stand, and which of them nobody hears of.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local cl = c.clusterLabel,
  local node = '%s, %s' % [cl, c.nodeLabel],

  prometheusRules+:: {
    groups+: [
      {
        name: 'locations.nodes',
        interval: t.d('1m'),
        rules: [
          {
            record: 'node:zone:info',
            expr: |||
              max by (%(node)s, zone) (
                label_replace(
                  max by (%(node)s, %(l)s) (kube_node_labels{%(ksm)s, %(l)s!=""}),
                  "zone", "$1", "%(l)s", "(.+)"
                )
              )
            ||| % { node: node, ksm: c.selectors.ksm, l: c.node.zoneLabel },
          },
          {
            // 1 for each node that is not ready or that most probers do not reach, and that nobody took out.
            record: 'node:lost:bool',
            expr: |||
              group by (%(node)s) (
                node:ready:max == 0
                or on (%(node)s)
                cluster_node:unreachable:ratio
              )
              unless on (%(node)s)
              node:planned:bool
            ||| % { node: node },
          },
        ],
      },
    ],
  },
}
