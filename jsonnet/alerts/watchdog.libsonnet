// Watchdog fires always. Whoever receives it raises the alarm when it stops: it
// is the one thing that a dead Prometheus or Alertmanager cannot hide.
{
  local c = $._config,
  local a = (import '../lib/alert.libsonnet')(c),

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
    ],
  },
}
