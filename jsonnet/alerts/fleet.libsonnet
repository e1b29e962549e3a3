// What pages: many nodes or many GPUs at once. 75 sick nodes are one page.
{
  local c = $._config,
  local a = (import '../lib/alert.libsonnet')(c),
  local th = c.thresholds.fleet,
  local cl = c.clusterLabel,
  local node = '%s, %s' % [cl, c.nodeLabel],

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'fleet',
        rules: [
          a.alert('FleetNodesNotReady', {
            expr: |||
              (
                (cluster:nodes:count - on (%(cl)s) cluster:nodes_ready:sum)
                / on (%(cl)s)
                cluster:nodes:count
                > %(share)g
              )
              and on (%(cl)s)
              (cluster:nodes:count - on (%(cl)s) cluster:nodes_ready:sum >= %(nodes)g)
            ||| % { cl: cl, share: th.notReady, nodes: th.notReadyNodes },
            hold: '10m',
            severity: 'critical',
            summary: 'Many nodes are not ready.',
            description: '{{ $value | humanizePercentage }} of the nodes of {{ $labels.%s }} have not been ready for ten minutes. So many at once are no broken machines: look at the network, the API servers, a roll-out.' % cl,
            dashboard: 'fleet',
          }),
          a.alert('FleetGPUUnhealthy', {
            expr: |||
              (
                (cluster:gpu_capacity:sum - on (%(cl)s) cluster:gpu_allocatable:sum)
                / on (%(cl)s)
                cluster:gpu_capacity:sum
                > %(share)g
              )
              and on (%(cl)s)
              (
                count by (%(cl)s) (node:gpu_capacity:max > on (%(node)s) node:gpu_allocatable:max)
                >= %(nodes)g
              )
            ||| % { cl: cl, node: node, share: th.gpuUnhealthy, nodes: th.gpuUnhealthyNodes },
            hold: '10m',
            severity: 'critical',
            summary: 'Many GPUs cannot be allocated.',
            description: 'The device plugins have taken {{ $value | humanizePercentage }} of the GPUs of {{ $labels.%s }} out of use. So many at once are no broken GPUs: look at the driver, the plugin, the cooling.' % cl,
            dashboard: 'gpuFleet',
          }),
        ],
      },
    ],
  },
}
