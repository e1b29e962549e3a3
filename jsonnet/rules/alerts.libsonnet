// How often alerts begin. A panel over a day of every alert's samples would read
// thousands of series; this leaves one for each severity.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),

  prometheusRules+:: {
    groups+: [
      {
        name: 'alerts.begun',
        interval: t.d('5m'),
        rules: [
          {
            // Alerts that fire and did not five minutes ago. Absent where none began.
            record: 'cluster_severity:alerts_begun:count5m',
            expr: |||
              count by (%(cl)s, severity) (
                ALERTS{alertstate="firing", severity!=""}
                unless
                ALERTS{alertstate="firing", severity!=""} offset %(w)s
              )
            ||| % { cl: c.clusterLabel, w: t.d('5m') },
          },
        ],
      },
    ],
  },
}
