// Nodes that most probers do not reach, for what is said of one of them and of
// many. Most of those that answer must agree, and at least two: one prober behind
// a bad switch drains nothing, and one of three may be gone. Nodes that were taken out on purpose, or have just come, are
// left out: they are switched off and start as they should. Only probers that fail are asked for by name; the others are
// counted where they are.
function(config) {
  local t = (import 'time.libsonnet')(config.timeScale),
  local th = config.thresholds.node,
  local node = '%s, %s' % [config.clusterLabel, config.nodeLabel],

  // probed is one series for each node that somebody probes: by how many probers.
  probed:: 'count by (%s) (probe_success{%s})' % [node, config.selectors.nodeMesh],

  // unreachable is the share of the probers that do not reach a node, of nodes that most do not reach.
  unreachable::
    |||
      (
        count by (%(node)s) (
          avg_over_time(probe_success{%(mesh)s}[%(w)s]) < %(share)g
        )
        / on (%(node)s)
        (
          %(probed)s
          >= %(probers)g
        )
      )
      >= %(agree)g
      unless on (%(node)s)
      node:planned:bool
    ||| % { node: node, mesh: config.selectors.nodeMesh, probed: $.probed, w: t.d('5m'), share: th.reachable, probers: th.probers, agree: th.probersAgree },
}
