// What pages: many nodes or many GPUs at once. 75 sick nodes are one page.
//
// Where single nodes have an alert for the same thing, the one here stands before
// it comes from each of them, so that Alertmanager holds those back; and the
// remediation controller does nothing while one of these fires. They are kept on
// after their end, until nothing comes any more that the trouble has left behind.
{
  local c = $._config,
  local a = (import '../lib/alert.libsonnet')(c),
  local g = (import '../lib/gpu.libsonnet')(c),
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local th = c.thresholds.fleet,
  local cl = c.clusterLabel,
  local node = '%s, %s' % [cl, c.nodeLabel],

  local m = (import '../lib/mesh.libsonnet')(c),
  local within(text) = std.strReplace(std.rstripChars(text, '\n'), '\n', '\n    '),

  local sick = (import '../lib/sick.libsonnet')(c),

  // all is how many nodes there are, or while kube-state-metrics is away, which is when much else goes wrong, how many there usually are (rules/targets.libsonnet): what does not ask the control plane which
  // nodes are sick would have no share of them then, and stand in nobody's way.
  local all(indent) = std.strReplace(std.rstripChars(|||
    cluster:nodes:count
    or on (%s)
    cluster:nodes_usual:count
  ||| % cl, '\n'), '\n', '\n' + indent),

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'fleet',
        rules: [
          a.alert('FleetNodesNotReady', {
            // Nodes that somebody has taken out, or that have just come, are none of it: node:planned:bool.
            expr: |||
              (cluster:nodes_failed:count >= %(nodes)g)
              / on (%(cl)s)
              cluster:nodes:count
              > %(share)g
            ||| % { cl: cl, share: th.notReady, nodes: th.notReadyNodes },
            hold: '10m',
            // Exporters of nodes that were down are back as after FleetGPUExporterMissing.
            keep: '20m',
            severity: 'critical',
            summary: 'Many nodes are not ready.',
            description: '{{ $value | humanizePercentage }} of the nodes of {{ $labels.%s }} have not been ready for ten minutes, and nobody took them out. So many at once are no broken machines: look at the network, the API servers, a roll-out.' % cl,
            dashboard: 'fleet',
          }),
          a.alert('FleetNodesUnreachable', {
            // The probers' own path breaks as well as a node's, and NodeUnreachable asks for a reboot: this must stand first, of the same nodes. It does three minutes before.
            // Where kube-state-metrics is behind the same network the nodes that are probed are counted. Kept on so that the nodes that come back last are not rebooted meanwhile.
            expr: |||
              (
                count by (%(cl)s) (
                  %(unreachable)s
                )
                >= %(nodes)g
              )
              / on (%(cl)s)
              (
                cluster:nodes:count
                or on (%(cl)s)
                count by (%(cl)s) (%(probed)s)
              )
              > %(share)g
            ||| % { cl: cl, unreachable: within(m.unreachable), probed: m.probed, share: th.unreachable, nodes: th.unreachableNodes },
            hold: '2m',
            keep: '15m',
            severity: 'critical',
            summary: 'Many nodes cannot be reached.',
            description: 'Most probers have not reached {{ $value | humanizePercentage }} of the nodes of {{ $labels.%s }} for some minutes. So many at once are no broken machines, and a reboot mends none of them: look at the pod network, its roll-out, the path of the probers.' % cl,
            dashboard: 'node',
          }),
          a.alert('FleetGPUUnhealthy', {
            // While a driver is loaded anew its node has no GPU to give: on nodes that were cordoned for it, wave after wave, that is expected, and is no part of the share that is lost, however many
            // GPUs are sick beside it.
            expr: |||
              (
                (
                  cluster:gpu_capacity:sum
                  - on (%(cl)s) cluster:gpu_allocatable:sum
                  - on (%(cl)s) (
                    %(plannedCapacity)s
                    - on (%(cl)s)
                    %(plannedAllocatable)s
                    or on (%(cl)s)
                    0 * cluster:gpu_capacity:sum
                  )
                )
                / on (%(cl)s)
                cluster:gpu_capacity:sum
                > %(share)g
              )
              and on (%(cl)s)
              (
                count by (%(cl)s) (
                  (
                    node:gpu_capacity:max > on (%(node)s) node:gpu_allocatable:max
                    or on (%(node)s)
                    node:gpu_slices:sum{state="capacity"} > ignoring (state) node:gpu_slices:sum{state="allocatable"}
                  )
                  unless on (%(node)s)
                  node:planned:bool
                )
                >= %(nodes)g
              )
            ||| % {
              cl: cl,
              node: node,
              share: th.gpuUnhealthy,
              nodes: th.gpuUnhealthyNodes,
              // planned is what the nodes that were taken out have in the clusters' sums.
              local planned(gpus, state) = std.strReplace(std.rstripChars(|||
                sum by (%(cl)s) (
                  (
                    %(cards)s
                  )
                  and on (%(node)s)
                  node:planned:bool
                )
              ||| % { cl: cl, node: node, cards: within(g.cardsAndSlices(gpus, state)) }, '\n'), '\n', '\n      '),
              plannedCapacity: planned('node:gpu_capacity:max', 'capacity'),
              plannedAllocatable: planned('node:gpu_allocatable:max', 'allocatable'),
            },
            hold: '10m',
            // A driver that is loaded anew takes the exporters with it: as after FleetGPUExporterMissing.
            keep: '20m',
            severity: 'critical',
            summary: 'Many GPUs cannot be allocated.',
            description: 'No pod can have {{ $value | humanizePercentage }} of the GPUs of {{ $labels.%s }}: the device plugins took them out of use, or without plugins (DRA) DCGM no longer sees them. So many at once are no broken GPUs: look at the driver, the plugin, the cooling.' % cl,
            dashboard: 'gpuFleet',
          }),
          a.alert('FleetGPUExporterMissing', {
            // A page, though nothing is broken yet: no GPU alert can fire for what nobody measures, and a remediation controller that hears nothing looks as if the fleet were sound.
            // An exporter that answers and tells of no GPU is as blind as one that is gone; GPUFellOffBus comes from each node then.
            // A roll-out that restarts a tenth of the exporters at a time leaves each unseen for a minute or two: five in a row are asked for.
            // Ten minutes in all, so that it stands when GPUExporterMissing comes from every node after fifteen, and Alertmanager holds that back.
            // Where GPUs were never measured nothing was lost: a page for ever would tell nobody anything new, and hold the remediation controller for ever.
            // Kept on so that it outlasts those, and because counts that the exporters have had all along look risen for 15 minutes once they are back (risen in lib/gpu.libsonnet): the remediation
            // controller, which does nothing while a fleet alert fires, would drain nodes for that.
            expr: |||
              (
                sum by (%(cl)s) (
                  (
                    %(cards)s
                  )
                  unless on (%(node)s)
                  (max_over_time(node:gpu_seen:count[%(w)s]) > 0)
                  and on (%(node)s)
                  (node:ready:max == 1)
                  unless on (%(node)s)
                  node:planned:bool
                )
                >= %(gpus)g
              )
              / on (%(cl)s)
              cluster:gpu_capacity:sum
              > %(share)g
              and on (%(cl)s)
              (
                %(measured)s
              )
            ||| % { cl: cl, node: node, measured: std.strReplace(std.rstripChars(g.measured, '\n'), '\n', '\n  '), cards: std.strReplace(within(g.cardsAndSlices('node:gpu_capacity:max', 'capacity')), '\n', '\n  '), w: t.d('5m'), gpus: th.gpuUnmeasuredNodes * c.gpu.perNode, share: th.gpuUnmeasured },
            hold: '5m',
            keep: '20m',
            severity: 'critical',
            summary: 'Many GPUs are not measured.',
            description: 'Nothing has been known for ten minutes of {{ $value | humanizePercentage }} of the GPUs of {{ $labels.%s }}: their nodes are ready, and no dcgm-exporter tells of a GPU there. No GPU alert can fire for them. So many at once are no broken nodes: look at the roll-out of the GPU operator, the driver, the targets of the scrape.' % cl,
            dashboard: 'gpuFleet',
          }),
          a.alert('FleetGPUHot', {
            // A bad fan or dried paste is one GPU's, and has GPUHot. Where half of a node's GPUs are hot it is what all of them have: the air or the water.
            // Three minutes, so that it stands before GPUHot comes from every GPU after five. GPUs that have been too hot fall off the bus and report Xids: kept on so that nodes are not
            // drained for it as long as their hall is not cold again.
            expr: |||
              (
                count by (%(cl)s) (
                  node:gpu_overheated:count
                  >= on (%(node)s)
                  %(gpus)g * node:gpu_seen:count
                )
                >= %(nodes)g
              )
              / on (%(cl)s)
              (
                %(all)s
              )
              > %(share)g
            ||| % { cl: cl, node: node, all: all('  '), gpus: th.gpuHot, nodes: th.gpuHotNodes, share: th.gpuHotNodesShare },
            hold: '3m',
            keep: '15m',
            severity: 'critical',
            summary: 'Many nodes are hot.',
            description: 'On {{ $value | humanizePercentage }} of the nodes of {{ $labels.%s }} half of the GPUs are above %g °C or slowed down for their heat. So many at once are no bad fans: look at the cooling of their row or hall, before the GPUs switch themselves off.' % [cl, c.thresholds.gpu.hotCelsius],
            dashboard: 'gpuFleet',
          }),
          a.alert('FleetNodesFailing', {
            // The flood that nobody thought of: a driver, a firmware or a kernel that breaks links or disks on every node asks for every node to be drained. Nodes that have been sick for long are
            // none of it (cluster_node:sick_before:bool). It lasts for as long as those that fell sick together are: what ended by itself would let the remediation controller drain them one by one. Where no
            // rules ran an hour ago nobody knows which were sick before; until alerts fire again after a start takes ten minutes and more.
            // Few faults are the same on ten nodes within an hour by chance, however many nodes there are (failingAlike): a canary of 1 %, or a pool of 72 of 10,000, is what was rolled out there. What only keeps new work away may wait, and comes
            // by the hundred: one job fills the disks of all its nodes. An Xid is told of for five minutes, and its node is sick for longer.
            // What FleetNodesUnreachable and LocationLost do not see is a roll-out that shuts out one node after the other: each is rebooted, since no two fell silent at the same time. So slow a one takes three hours to tell, for which
            // those that were rebooted or cordoned meanwhile count as well; machines that die by themselves are ten in three hours once in years.
            // So long a memory outlasts rulers that were away for an hour and a half, in which the nodes were told of: what shuts them out goes on.
            expr: |||
              (
                count by (%(cl)s) (
                  %(fresh)s
                )
                >= %(nodes)g
              )
              / on (%(cl)s)
              %(fleet)s
              >= %(share)g
              or on (%(cl)s)
              (
                max by (%(cl)s) (
                  count by (%(cl)s, alertname, action) (
                    %(alike)s
                    or
                    %(unreachable)s
                    unless on (%(node)s)
                    last_over_time(cluster_node:unreachable_before:bool[%(lately)s])
                  )
                )
                >= %(same)g
              )
              / on (%(cl)s)
              %(kept)s
            ||| % {
              local fresh(now, indent) = std.join('\n' + indent, [now, 'unless on (%s)' % node, 'last_over_time(cluster_node:sick_before:bool[%s])' % t.recorded('5m'), 'unless on (%s)' % node, 'node:planned:bool']),
              // fleet is all of a cluster of which there was something an hour ago, known.
              local fleet(known) = std.rstripChars(|||
                (
                  (
                    %(all)s
                  )
                  and on (%(cl)s)
                  (
                    %(known)s
                    or on (%(cl)s)
                    cluster:nodes_usual:count offset %(w)s
                  )
                )
              ||| % { cl: cl, known: known, all: all('    '), w: t.d('75m') }, '\n'),
              fleet: fleet('cluster:nodes:count offset ' + t.d('75m')),
              kept: fleet('last_over_time(cluster:nodes:count[%s] offset %s)' % [t.recorded('6h'), t.d('75m')]),
              cl: cl,
              node: node,
              unreachable: sick.unreachable(t.d('3h'), by=['alertname', 'action']),
              lately: t.recorded('5m'),
              fresh: fresh(sick.sick(sick.elsewhere, together=true), '    '),
              alike: fresh(sick.sick(sick.elsewhere, by=['alertname', 'action'], passed=t.d('1h'), light='cordon|reset-when-idle'), '      '),
              nodes: th.failingNodes,
              share: th.failing,
              same: th.failingAlike,
            },
            hold: '2m',
            keep: '20m',
            severity: 'critical',
            summary: 'Many nodes have fallen sick together.',
            description: '{{ $value | humanizePercentage }} of the nodes of {{ $labels.%s }} have a finding for the remediation controller, and fell sick together. So many at once have one cause, and to drain them does not mend it: look at what they have in common and what was rolled out.' % cl,
            dashboard: 'alerts',
          }),
        ],
      },
    ],
  },
}
