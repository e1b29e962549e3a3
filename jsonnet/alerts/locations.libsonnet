// A rack or a zone whose nodes are lost together is named as one: it is a switch,
// a path or a power feed, and no node. What its nodes still answer to tells a
// place that is cut off from one that is dark.
{
  local c = $._config,
  local a = (import '../lib/alert.libsonnet')(c),
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local th = c.thresholds.fleet,
  local cl = c.clusterLabel,
  local node = '%s, %s' % [cl, c.nodeLabel],

  local lost(level, state) = a.alert('LocationLost', {
    local f = {
      by: '%s, %s' % [cl, level],
      node: node,
      info: 'node:%s:info' % level,
      exporter: c.selectors.nodeExporter,
      mesh: c.selectors.nodeMesh,
      share: th.location,
      nodes: th.locationNodes,
      answering: th.locationAnswering,
      state: if state == 'cut-off' then 'and' else 'unless',
    },
    expr: |||
      (
        count by (%(by)s) (%(info)s and on (%(node)s) node:lost:bool)
        >= %(nodes)g
      )
      / on (%(by)s)
      count by (%(by)s) (%(info)s)
      >= %(share)g
      %(state)s on (%(by)s)
      (
        count by (%(by)s) (
          %(info)s
          and on (%(node)s)
          node:lost:bool
          and on (%(node)s)
          (
            max by (%(node)s) (up{%(exporter)s}) == 1
            or on (%(node)s)
            max by (%(node)s) (probe_success{%(mesh)s}) == 1
          )
        )
        / on (%(by)s)
        count by (%(by)s) (%(info)s and on (%(node)s) node:lost:bool)
        >= %(answering)g
      )
    ||| % f,
    hold: '5m',
    // NodeUnreachable is held back meanwhile. Kept on so that the nodes that come back last are not rebooted.
    keep: '15m',
    severity: { rack: 'warning', zone: 'critical' }[level],
    labels: { level: level, state: state },
    summary: 'A %s is lost.' % level,
    description: '{{ $value | humanizePercentage }} of the nodes of %s {{ $labels.%s }} of {{ $labels.%s }} are not ready or cannot be reached. %s' % [
      level,
      level,
      cl,
      if state == 'cut-off' then 'Most of them answer to their scrape or to some prober: they run, and a path to them is cut.'
      else 'Hardly one of them answers to its scrape or to any prober: they have no power, or every path to them is cut.',
    ],
    dashboard: 'node',
  }),

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'locations',
        interval: t.d('1m'),
        rules: [lost(level, state) for level in ['rack', 'zone'] for state in ['cut-off', 'silent']],
      },
    ],
  },
}
