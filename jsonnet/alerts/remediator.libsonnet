// The remediation controller. What has severity auto is told to nobody else:
// where it refuses, fails or hears nothing, sick nodes stay in use and no one
// knows.
{
  local c = $._config,
  local a = (import '../lib/alert.libsonnet')(c),
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local number = import '../lib/number.libsonnet',
  local cl = c.clusterLabel,
  local f = { cl: cl, s: c.selectors.remediator, auto: c.severities.auto, quarter: t.d('15m'), hour: t.d('1h'), silent: number(t.s('30m')), heard: number(t.s('1h')), days: t.d('3d'), moment: t.d('5m'), began: number(t.s('5m')), settled: number(t.s('3m')) },

  // asked are the alerts of the last hour that ask for a node to be taken out, also those about what happened once and end after five minutes. raise-gc-thresh asks for something else.
  local asked = |||
    count by (%(cl)s) (
      last_over_time(
        ALERTS{alertstate="firing", severity="%(auto)s", action!="raise-gc-thresh"}[%(hour)s]
      )
    )
  |||,

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
            expr: 'sum by (%(cl)s) (increase(remediator_decisions_total{%(s)s, decision="failed"}[%(quarter)s])) > 0',
            hold: '30m',
            description: 'The remediation controller of {{ $labels.%(cl)s }} could not do what it had decided {{ $value | humanize }} times in a quarter of an hour: the API server or Alertmanager does not answer as it should.',
          }),
          stuck('refused', {
            // Of a fleet alert there is the next one, and who cordoned a node, takes it away or silenced it knows of it. Of a budget that is used up for so long nobody hears otherwise; a burst of a dozen sick nodes is worked off within it.
            expr: 'sum by (%(cl)s) (increase(remediator_decisions_total{%(s)s, decision="refused", reason!~"fleet_alert|planned|leaving|silenced|excluded"}[%(hour)s])) > 0',
            hold: '6h',
            description: 'The remediation controller of {{ $labels.%(cl)s }} has refused nodes for six hours, {{ $value | humanize }} times in the last one: its budget is used up, and sick nodes wait. What uses it up is hardly about single nodes.',
          }),
          stuck('excluded', {
            // Of a node of the control plane too, which no program may take out, nobody hears otherwise.
            expr: 'sum by (%(cl)s) (increase(remediator_decisions_total{%(s)s, decision="refused", reason="excluded"}[%(hour)s])) > 0',
            hold: '6h',
            description: 'For six hours alerts have asked the remediation controller of {{ $labels.%(cl)s }} for nodes that it must leave alone, {{ $value | humanize }} times in the last one: they belong to the control plane, or --exclude names them. Only people can take them out.',
          }),
          stuck('waited', {
            // What waits longest has no alert any more that fires, and the sick node stays in use.
            expr: 'sum by (%(cl)s) (increase(remediator_decisions_total{%(s)s, decision="ignored", reason=~"waited|queue_full|perhaps_rebooted"}[%(hour)s])) > 0',
            description: 'The remediation controller of {{ $labels.%(cl)s }} has given up sick nodes within the last hour ({{ printf "%%.0f" $value }}): they have waited for their turn for six hours, more of them wait than it remembers, or they became ready again while Kubernetes could not be asked, and may have been rebooted. Their alerts have ended and will not come again; its log names them.',
          }),
          stuck('restarted', {
            // What waits is in its memory, and of what has ended no alert comes again. Samples older than the start, by two minutes at most, tell how many waited.
            expr: |||
              max by (%(cl)s) (last_over_time(remediator_waiting_nodes{%(s)s}[%(quarter)s] offset %(moment)s)) > 0
              and on (%(cl)s)
              (time() - max by (%(cl)s) (remediator_start_time_seconds{%(s)s}) >= %(settled)s < %(began)s)
            |||,
            keep: '1h',
            description: 'The remediation controller of {{ $labels.%(cl)s }} was started again while {{ printf "%%.0f" $value }} sick nodes waited for their turn, and has forgotten them. Alerts that still fire come again; of errors that have ended none does. The log of the container before names them ("forgotten").',
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
          stuck('idle', {
            // It answers 200 to what is not meant for it, and to what it does not know: Alertmanager is content. What is inhibited or silenced it does not hear of, and then it has heard of nothing.
            expr: asked + |||
              unless on (%(cl)s)
              count by (%(cl)s) (last_over_time(ALERTS{alertstate="firing", alertname=~"Fleet.+|LocationLost"}[%(hour)s]))
              unless on (%(cl)s)
              sum by (%(cl)s) (increase(remediator_decisions_total{%(s)s, decision!="ignored"}[%(hour)s])) > 0
              and on (%(cl)s)
              time() - max by (%(cl)s) (remediator_last_webhook_timestamp_seconds{%(s)s}) < %(heard)s
            |||,
            hold: '30m',
            description: 'Alerts for the remediation controller of {{ $labels.%(cl)s }} have fired in the last hour ({{ $value | humanize }}), webhooks come, and it has ignored all that they ask for: it is started with the name of another cluster (--cluster), asks the API server of another one, or does not know the labels of the alerts.',
          }),
          stuck('elsewhere', {
            // A cluster that has no such controller at all has a program of its own, or wants none, unless another cluster's is asked for what it must ignore.
            expr: asked + |||
              unless on (%(cl)s)
              max by (%(cl)s) (max_over_time(remediator_acts{%(s)s}[%(hour)s]))
              and on ()
              sum(increase(remediator_decisions_total{%(s)s, decision="ignored", reason="cluster"}[%(hour)s])) > 0
            |||,
            hold: '30m',
            description: 'Alerts of {{ $labels.%(cl)s }} that ask for nodes to be taken out have fired in the last hour ({{ $value | humanize }}), and no remediation controller is scraped there; the one of another cluster is asked for nodes that are not of its own, and ignores that.',
          }),
          stuck('dry_run', {
            // A week is how long docs/remediation.md has it run without. Restarts are passed over.
            expr: |||
              sum by (%(cl)s) (increase(remediator_decisions_total{%(s)s, decision="dry_run"}[%(days)s])) > 0
              and on (%(cl)s)
              max by (%(cl)s) (max_over_time(remediator_acts{%(s)s}[%(hour)s])) == 0
            |||,
            hold: '7d',
            severity: 'info',
            description: 'The remediation controller of {{ $labels.%(cl)s }} has run without --act for a week, and would have taken out nodes {{ printf "%%.0f" $value }} times in the last three days. They stay in use.',
          }),
        ],
      },
    ],
  },
}
