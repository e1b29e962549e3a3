// The canary (spillway mixin canary) asks once a day for what alerts, rules and
// dashboards look at. Its metrics come from node_exporter's textfile collector,
// of one machine, so that what it looked at has a label of its own.
{
  local c = $._config,
  local a = (import '../lib/alert.libsonnet')(c),
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local number = import '../lib/number.libsonnet',
  local cl = c.clusterLabel,

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'canary',
        interval: t.d('1m'),
        rules: [
          a.alert('CanaryFindsGaps', {
            // It may run on another node each day, and what it wrote on the one before stays there: the newest counts.
            expr: |||
              max by (%(cl)s, of_cluster) (
                spillway_canary_selectors{state="gone"}
                and on (%(cl)s, instance)
                (
                  spillway_canary_last_run_timestamp_seconds
                  == on (%(cl)s) group_left ()
                  max by (%(cl)s) (spillway_canary_last_run_timestamp_seconds)
                )
              )
              > 0
            ||| % { cl: cl },
            hold: '10m',
            severity: 'warning',
            summary: 'Alerts and dashboards look at series that are gone.',
            description: '{{ $value }} selectors of alerts, rules and dashboards find nothing any more in {{ $labels.of_cluster }}, and did on three days in a row: what reads them is quiet, and looks well. The output of spillway mixin canary, which ran in {{ $labels.%s }}, names them.' % cl,
            dashboard: 'alerts',
          }),
          a.alert('CanaryNotRun', {
            // It may rest over a weekend.
            expr: 'time() - max by (%(cl)s) (spillway_canary_last_run_timestamp_seconds) > %(late)s' % { cl: cl, late: number(t.s('96h')) },
            hold: '1h',
            severity: 'warning',
            summary: 'The canary has not run.',
            description: 'In {{ $labels.%s }} spillway mixin canary ran last {{ $value | humanizeDuration }} ago. Nobody looks whether what alerts read is still there.' % cl,
            dashboard: 'alerts',
          }),
        ],
      },
    ],
  },
}
