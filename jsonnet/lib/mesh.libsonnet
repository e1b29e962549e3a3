// Nodes that most probers do not reach, for what is said of one of them and of
// many. Most of those that answer must agree, and at least two: one prober behind
// a bad switch drains nothing, and one of three may be gone. Nodes that were taken out on purpose, or have just come, are
// left out: they are switched off and start as they should. Only probers that fail are asked for by name; the others are
// counted where they are.
function(config) {
  local t = (import 'time.libsonnet')(config.timeScale),
  local th = config.thresholds.node,
  local cl = config.clusterLabel,
  local node = '%s, %s' % [cl, config.nodeLabel],

  // probed is one series for each node that somebody probes: by how many probers.
  probed:: 'count by (%s) (probe_success{%s})' % [node, config.selectors.nodeMesh],

  // unreachable is the share of the probers that do not reach a node, of nodes that most do not reach. A machine that its cloud says
  // is off is none of them: the control plane knows best, and NodeNotReady and FleetNodesNotReady tell of it. It stays so for an hour in which
  // kube-state-metrics says nothing of it, as what was planned does; but not where it said last that the node is ready: then it had been started.
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
      unless on (%(node)s)
      (
        group by (%(node)s) (kube_node_spec_taint{%(ksm)s, key=~"%(off)s"})
        or on (%(node)s)
        group by (%(node)s) (last_over_time(kube_node_spec_taint{%(ksm)s, key=~"%(off)s"}[%(hour)s]))
        unless on (%(node)s)
        node:ready:max
        unless on (%(node)s)
        last_over_time(node:ready:max[%(hour)s]) == 1
      )
    ||| % { hour: t.d('1h'), ksm: config.selectors.ksm, off: config.node.switchedOff, node: node, mesh: config.selectors.nodeMesh, probed: $.probed, w: t.d('5m'), share: th.reachable, probers: th.probers, agree: th.probersAgree },

  // unheard is that nobody said a while ago whether the node is ready: it may be silent for a moment only.
  local unheard = std.join('\n    ', ['', 'or on (%(node)s)', '(', '  node:ready:max', '  unless on (%(node)s)', '  last_over_time(node:ready:max[%(before)s] offset %(boot)s)', ')'])
                  % { node: node, boot: t.d(config.node.boot), before: t.d('5m') },

  // standing are those of unreachable that do not boot. A node that fell silent a moment ago may be booting, whoever restarted it: it is down, and not cut off. Where its exporter answers it runs, and what runs on it goes
  // on: the kubelet is broken, which is no reason to switch the machine off. What the control plane does not speak of is left alone: without kube-state-metrics nobody knows which nodes were taken out on
  // purpose. Where no rule was evaluated a while ago nobody knows that it has been silent for as long: with unheard such a node is left out.
  standing(silent=unheard)::
    |||
      %(unreachable)s
      and on (%(node)s)
      node:ready:max
      unless on (%(node)s)
      (
        node:ready:max == 0
        and on (%(node)s)
        (
          max_over_time(node:ready:max[%(boot)s]) == 1
          or on (%(node)s)
          max by (%(node)s) (up{%(exporter)s}) == 1%(silent)s
        )
      )
    ||| % { unreachable: std.rstripChars($.unreachable, '\n'), node: node, boot: t.d(config.node.boot), exporter: config.selectors.nodeExporter, silent: silent },

  // answers are the nodes of which an exporter answers to its scrape.
  answers::
    |||
      max by (%(node)s) (up{%(exporter)s}) == 1
      or on (%(node)s)
      max by (%(node)s) (up{%(dcgm)s}) == 1
    ||| % { node: node, exporter: config.selectors.nodeExporter, dcgm: config.selectors.dcgm },

  // runs are the nodes that are known to run: an exporter answers; and of those that cannot be reached and whose kubelet reports the ones that nobody scrapes while others of the cluster are scraped. Their shard
  // may be away, and who is not asked cannot answer. Where the kubelet is silent too there are two that say the same.
  runs::
    |||
      %(answers)s
      or on (%(node)s)
      (
        cluster_node:unreachable:ratio
        and on (%(node)s)
        node:ready:max == 1
        unless on (%(node)s)
        max by (%(node)s) (up{%(exporter)s} or up{%(dcgm)s})
        and on (%(cl)s)
        count by (%(cl)s) (up{%(exporter)s})
      )
    ||| % { answers: std.rstripChars($.answers, '\n'), cl: cl, node: node, exporter: config.selectors.nodeExporter, dcgm: config.selectors.dcgm },
}
