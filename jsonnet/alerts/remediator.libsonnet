// The remediation controller. What has severity auto is told to nobody else:
// where it refuses, fails or hears nothing, sick nodes stay in use and no one
// knows.
{
  local c = $._config,
  local a = (import '../lib/alert.libsonnet')(c),
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local number = import '../lib/number.libsonnet',
  local cl = c.clusterLabel,
  local f = { cl: cl, s: c.selectors.remediator, auto: c.severities.auto, w: t.d('30m'), hour: t.d('1h'), silent: number(t.s('30m')) },

  local stuck(reason, o) = a.alert('RemediatorStuck', {
    severity: 'warning',
    labels: { reason: reason },
    summary: 'Sick nodes are not taken out.',
    dashboard: 'alerts',
  } + o { expr: o.expr % f, description: o.description % f }),

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'remediation',
        interval: t.d('1m'),
        rules: [
          stuck('failed', {
            expr: 'sum by (%(cl)s) (increase(remediator_decisions_total{%(s)s, decision="failed"}[%(w)s])) > 0',
            hold: '30m',
            description: 'The remediation controller of {{ $labels.%(cl)s }} could not do what it had decided {{ $value | humanize }} times in half an hour: the API server or Alertmanager does not answer as it should.',
          }),
          stuck('refused', {
            // Of a fleet alert there is the next one, and who cordoned a node knows that it is out. Of a budget that is used up for so long nobody hears otherwise; a burst of a dozen sick nodes is worked off within it.
            expr: 'sum by (%(cl)s) (increase(remediator_decisions_total{%(s)s, decision="refused", reason!~"fleet_alert|planned"}[%(hour)s])) > 0',
            hold: '6h',
            description: 'The remediation controller of {{ $labels.%(cl)s }} has refused nodes for six hours, {{ $value | humanize }} times in the last one: its budget is used up, and sick nodes wait. What uses it up is hardly about single nodes.',
          }),
          stuck('held', {
            // A page that fires for so long is worked at by somebody who may have forgotten this; of a rack there is a ticket alone, on a Friday evening for Monday, and who silenced either sees neither.
            expr: 'sum by (%(cl)s) (increase(remediator_decisions_total{%(s)s, decision="refused", reason="fleet_alert"}[%(hour)s])) > 0',
            hold: '2h',
            description: 'The remediation controller of {{ $labels.%(cl)s }} has taken out no node for two hours, and refused {{ printf "%%.0f" $value }} times in the last one, because a fleet alert or a lost rack or zone holds it back. End what that is about, or cordon the nodes of the lost place: meanwhile every sick node of the cluster stays in use.',
          }),
          stuck('silent', {
            // Alertmanager repeats each finding every ten minutes. What a fleet alert or a lost rack inhibits it does not send.
            expr: |||
              (
                time() - max by (%(cl)s) (remediator_last_webhook_timestamp_seconds{%(s)s})
                > %(silent)s
              )
              and on (%(cl)s)
              count by (%(cl)s) (ALERTS{alertstate="firing", severity="%(auto)s"})
              unless on (%(cl)s)
              count by (%(cl)s) (ALERTS{alertstate="firing", alertname=~"Fleet.+|LocationLost"})
            |||,
            hold: '30m',
            description: 'Alerts for the remediation controller of {{ $labels.%(cl)s }} fire, and it has heard of none for {{ $value | humanizeDuration }}: Alertmanager does not reach it, or is refused.',
          }),
        ],
      },
    ],
  },
}
