// Watchdog fires always. Whoever receives it raises the alarm when it stops: it
// is the one thing that a dead Prometheus or Alertmanager cannot hide.
{
  local c = $._config,
  local a = (import '../lib/alert.libsonnet')(c),
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local cl = c.clusterLabel,

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'watchdog',
        scope:: 'shard',
        rules: [
          a.alert('Watchdog', {
            expr: 'vector(1)',
            severity: 'info',
            dashboard: 'alerts',
            external: true,
            summary: 'Alerts reach you from here.',
            description: 'Always {{ $value }}, from a Prometheus of %s. Route it to a receiver that raises the alarm when it no longer comes.' % a.cluster(external=true),
          }),
        ],
      },
      {
        // In each Prometheus that scrapes rulers: the small ones beside them, which are gone where they are, and the shards of their cluster.
        name: 'watchdog.ruler',
        scope:: 'shard',
        rules: [
          a.alert('RulerFailing', {
            // A Prometheus that has not scraped any for days is not what watches it.
            expr: |||
              max by (%(cluster)s) (up{%(ruler)s}) == 0
              or
              absent(up{%(ruler)s}) and on () count(last_over_time(up{%(ruler)s}[%(usual)s]))
              or
              max by (%(cluster)s) (up{%(seen)s}) == 0
              or
              max by (%(cluster)s) (up{%(beside)s}) == 0
              or
              max without (job) (
                absent(up{%(seen)s}) and on () count(last_over_time(up{%(seen)s}[%(usual)s]))
                or
                absent(up{%(beside)s}) and on () count(last_over_time(up{%(beside)s}[%(usual)s]))
              )
            ||| % { cluster: cl, ruler: c.selectors.ruler, seen: c.selectors.rulerSeen, beside: c.selectors.rulerPrometheusSeen, usual: t.d(c.targets.memory) },
            hold: '5m',
            severity: 'critical',
            labels: { reason: 'down' },
            dashboard: 'alerts',
            external: true,
            summary: 'No ruler runs.',
            description: 'No ruler of %s can be scraped, or no Prometheus beside one ({{ $value }}: 0 for targets that do not answer, 1 for none at all). All alerts about the cluster come from them.' % a.cluster(external=true),
          }),
        ],
      },
      {
        name: 'watchdog.fleet',
        rules: [
          a.alert('Watchdog', {
            // Of each cluster whose nodes the rules know. While a rule fails Alertmanager hears nothing of its alert, and four minutes later takes it for over, FleetGPUUnhealthy too: where a shard is lost
            // nothing would hold the remediation controller back, which therefore asks for this one. It looks back for less than those four minutes: what is recorded can be read for five.
            // A ruler that was started anew begins each wait of less than --for-grace-period (10m) from its beginning: until those of fleet alerts are over it cannot vouch for them; FleetNodesNotReady's (10m), which is restored, ends with that period at the latest.
            expr: 'count by (%s) (last_over_time(node:ready:max[%s]))' % [cl, t.recorded('90s')],
            hold: '9m30s',
            severity: 'info',
            labels: { scope: 'fleet' },
            dashboard: 'alerts',
            summary: 'Alerts about the fleet reach you from here.',
            description: 'Always {{ $value }}, the nodes of %s that the rules about the fleet know. While this does not come, the remediation controller takes out no node.' % a.cluster(),
          }),
        ],
      },
    ],
  },
}
