// How often alerts begin. A panel over a day of every alert's samples would read
// thousands of series; this leaves one for each severity.
//
// Alerts that each shard evaluates for itself are left out: two shards may say
// the same, and Spillway warns of equal series on two shards.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),

  local ofShards = std.set([
    rule.alert
    for group in $.prometheusAlerts.groups
    if std.objectHasAll(group, 'scope') && group.scope == 'shard'
    for rule in group.rules
  ]),
  local firing = 'ALERTS{alertstate="firing", severity!="", alertname!~"%s"}' % std.join('|', ofShards),

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
                %(firing)s
                unless
                %(firing)s offset %(w)s
              )
            ||| % { cl: c.clusterLabel, firing: firing, w: t.d('5m') },
          },
        ],
      },
    ],
  },
}
