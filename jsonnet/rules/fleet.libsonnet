// Nodes as the control plane sees them.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local number = import '../lib/number.libsonnet',
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

  local sick = (import '../lib/sick.libsonnet')(c),

  // bad are the nodes that are not ready or have a finding for the remediation controller. One that is not ready and cordoned was cordoned first, if it was not bad before: who upgrades an idle node has it down within
  // seconds of the cordon.
  local bad = |||
    node:ready:max == 0
    unless on (%(node)s)
    (
      max by (%(node)s) (kube_node_spec_unschedulable{%(ksm)s}) == 1
      unless on (%(node)s)
      last_over_time(node:failed:bool[%(w)s])
    )
    or on (%(node)s)
    %(sick)s
  ||| % { node: node, ksm: c.selectors.ksm, w: t.recorded('5m'), sick: sick.sick() },

  // stopped are the nodes that may be switched off (keepsStopped), and of which a cloud says that they are.
  local kept = c.node.keepsStopped,
  local stopped = if kept.kube_node_labels == '' && kept.kube_node_spec_taint == '' then '' else '\n' + std.rstripChars(|||
    or on (%(node)s)
    (
      group by (%(node)s) (kube_node_spec_taint{%(ksm)s, key=~"%(off)s"})
      and on (%(node)s)
      (
        %(kept)s
      )
    )
  ||| % {
    node: node,
    ksm: c.selectors.ksm,
    off: c.node.switchedOff,
    kept: std.join('\n    or on (%s)\n    ' % node, ['group by (%s) (%s{%s, %s})' % [node, metric, c.selectors.ksm, kept[metric]] for metric in std.objectFields(kept) if kept[metric] != '']),
  }, '\n'),

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
          {
            // Those on which a node-exporter can run: what is compared with its targets. 0 where there are others only.
            record: 'cluster:nodes_measured:count',
            expr: |||
              count by (%(cl)s) (node:ready:max{%(label)s!~"%(unmeasured)s"})
              or on (%(cl)s)
              0 * cluster:nodes:count
            ||| % { cl: cl, label: c.nodeLabel, unmeasured: c.node.unmeasured },
          },
          { record: 'cluster:nodes_ready:sum', expr: 'sum by (%s) (node:ready:max)' % cl },
          {
            // 1 for each node that is cordoned, whatever it was before: NodeRestarts looks at six hours of it, which of all nodes' own series would be millions of samples.
            record: 'node:cordoned:bool',
            expr: cordoned('') + ' == 1',
          },
          {
            // 1 for each node that is cordoned, is about to be deleted or has just come, and was in order when that began: what it does now is expected. A cordon counts
            // after two minutes, so that one for what was found a moment ago does not look older than the finding;
            // what failed and was then taken out counts as planned after an hour: machines wait for repair for weeks.
            // Where nobody knew the cluster before, all of its nodes would have just come. kube-state-metrics may leave out when a node was created: then it is what was not there before.
            // A machine that its cloud stopped and keeps is planned at once: its cloud says so only of a node that is not ready (cloud-node-lifecycle-controller).
            // What was planned of a node stays so for an hour of silence about it: kube-state-metrics goes away while nodes are upgraded, whole or one shard of it, and they would page.
            record: 'node:planned:bool',
            expr: |||
              (
                max by (%(node)s) (min_over_time(kube_node_spec_unschedulable{%(ksm)s}[%(cordon)s])) == 1
                or on (%(node)s)
                group by (%(node)s) (kube_node_spec_taint{%(ksm)s, key=~"%(deleted)s"})
                or on (%(node)s)
                (
                  (
                    group by (%(node)s) (time() - kube_node_created{%(ksm)s} < %(youngSeconds)s)
                    or on (%(node)s)
                    group by (%(node)s) (node:ready:max)
                    unless on (%(node)s)
                    node:ready:max offset %(young)s
                    unless on (%(node)s)
                    kube_node_created{%(ksm)s}
                  )
                  and on (%(cl)s)
                  cluster:nodes:count offset %(young)s
                )
                or on (%(node)s)
                (
                  last_over_time(node:planned:bool[%(w)s])
                  and on (%(node)s)
                  last_over_time(node:ready:max[%(hour)s])
                  unless on (%(node)s)
                  node:ready:max
                )
              )
              unless on (%(node)s)
              (
                last_over_time(node:failed:bool[%(w)s])
                unless on (%(node)s)
                node:failed:bool offset %(hour)s
              )%(stopped)s
            ||| % { cl: cl, node: node, ksm: c.selectors.ksm, cordon: t.d('2m'), deleted: c.node.toBeDeleted, young: t.d(c.node.young), youngSeconds: number(t.s(c.node.young)), w: t.recorded('5m'), hour: t.d('1h'), stopped: stopped },
          },
          {
            // 1 for each node that is not ready or has a finding for the remediation controller, and was not taken out before. It stays so for an hour of being out for that.
            record: 'node:failed:bool',
            expr: |||
              group by (%(node)s) (
                %(bad)s
              )
              unless on (%(node)s)
              node:planned:bool
            ||| % { node: node, bad: std.strReplace(std.rstripChars(bad, '\n'), '\n', '\n  ') },
          },
          {
            // Nodes that are not ready though nobody took them out.
            record: 'cluster:nodes_failed:count',
            expr: |||
              count by (%(cl)s) (
                node:ready:max == 0
                unless on (%(node)s)
                node:planned:bool
              )
              or on (%(cl)s)
              0 * cluster:nodes:count
            ||| % { cl: cl, node: node },
          },
          {
            record: 'cluster:nodes_cordoned:sum',
            expr: 'sum by (%s) (max by (%s) (kube_node_spec_unschedulable{%s}))' % [cl, node, c.selectors.ksm],
          },
        ],
      },
      {
        name: 'fleet.sick',
        interval: t.d('1m'),
        rules: [
          {
            // 1 for each node with a finding for the remediation controller that fell sick one by one: it was sick an hour ago, and at no time since then were those that fell sick together so many that
            // FleetNodesFailing came. It stays so while it is sick and for an hour of being well. Without the second condition all would be sick before after an hour, those of a flood too.
            // Where no rule was evaluated for longer than that (a shard was away), nobody knows since when they are sick: who is so within twenty minutes of it, in which alerts are pending anew, counts as sick before.
            record: 'cluster_node:sick_before:bool',
            expr: |||
              group by (%(node)s) (
                %(now)s
              )
              and on (%(node)s)
              (
                last_over_time(cluster_node:sick_before:bool[%(carry)s])
                or on (%(node)s)
                (
                  %(then)s
                  or on (%(node)s)
                  (
                    %(now)s
                    and on (%(cl)s)
                    cluster:nodes:count
                    unless on (%(cl)s)
                    last_over_time(cluster:nodes:count[%(gap)s] offset %(after)s)
                  )
                )
                unless on (%(cl)s)
                last_over_time(ALERTS{alertname="FleetNodesFailing"}[%(flood)s])
              )
            ||| % { cl: cl, node: node, now: sick.sick(sick.elsewhere, together=true), 'then': sick.sick(sick.elsewhere, t.d('5m'), t.d('1h'), together=true), gap: t.d('45m'), after: t.d('20m'), carry: t.recorded('1h'), flood: t.d('65m') },
          },
          {
            // 1 for each node that nobody reached within three hours and neither did three hours before, as long as they were no ten; and for those that fell silent together with others, of which
            // there was a ticket: after one evaluation or two there is none, where exporters missed a scrape. One that was to be rebooted for itself half an hour before stays one
            // of those that were, when a switch is away for a moment. It stays so for those hours, and over a gap of up to six.
            record: 'cluster_node:unreachable_before:bool',
            expr: |||
              group by (%(node)s) (
                %(now)s
              )
              and on (%(node)s)
              (
                last_over_time(cluster_node:unreachable_before:bool[%(carry)s])
                or on (%(node)s)
                count_over_time(cluster_node:unreachable_together:bool[%(together)s]) > 2
                unless on (%(node)s)
                %(singly)s
                or on (%(node)s)
                %(then)s
                unless on (%(cl)s)
                (
                  max_over_time(cluster:nodes_unreachable_singly:count[%(flood)s]) >= %(same)g
                  or on (%(cl)s)
                  (
                    max_over_time(cluster:nodes_unreachable_singly:count[%(gone)s]) >= %(same)g
                    unless on (%(cl)s)
                    count_over_time(cluster:nodes:count[%(evaluated)s:%(step)s]) >= %(most)g
                  )
                )
              )
            ||| % { cl: cl, node: node, now: sick.unreachable(t.d('3h')), 'then': sick.unreachable(t.d('1h'), t.d('3h')), singly: sick.unreachable(t.d('3h'), t.d('30m')), carry: t.recorded('6h'), together: t.recorded('6h'), flood: t.recorded('85m'), gone: t.recorded('6h'), evaluated: t.d('85m'), step: t.d('1m'), most: 80, same: c.thresholds.fleet.failingAlike },
          },
          {
            // The other ones: ten of them are FleetNodesFailing. As long as they are, and for 85 minutes more, none of them becomes one of before; where no rule was evaluated for some of these, for six hours. A page for something else does not keep them from it. Where nobody knew the cluster that page does not come.
            record: 'cluster:nodes_unreachable_singly:count',
            expr: |||
              count by (%(cl)s) (
                %(now)s
                unless on (%(node)s)
                last_over_time(cluster_node:unreachable_before:bool[%(lately)s])
              )
              and on (%(cl)s)
              last_over_time(cluster:nodes:count[%(gap)s] offset %(known)s)
            ||| % { cl: cl, node: node, now: sick.unreachable(t.d('3h')), lately: t.recorded('5m'), known: t.d('75m'), gap: t.recorded('6h') },
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
