// Bills that do not add up, and reservations that nobody uses.
{
  local c = $._config,
  local a = (import '../lib/alert.libsonnet')(c),
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local th = c.thresholds.cost,
  local cl = c.clusterLabel,

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'cost',
        rules: [
          a.alert('CostTeamUnassigned', {
            // Recorded every five minutes: one that comes late is absent for a moment.
            expr: |||
              (
                last_over_time(team:gpu_hours:sum1h{team="%(none)s"}[%(w)s])
                / on (%(cl)s) group_left ()
                sum by (%(cl)s) (last_over_time(team:gpu_hours:sum1h[%(w)s]))
                > %(share)g
              )
              and on (%(cl)s, team)
              (last_over_time(team:gpu_hours:sum1h[%(w)s]) >= %(hours)g)
            ||| % { cl: cl, w: t.d('15m'), none: c.unassignedTeam, share: th.unassigned, hours: th.unassignedGPUs },
            hold: '6h',
            severity: 'info',
            summary: 'GPU-hours belong to no team.',
            description: '{{ $value | humanizePercentage }} of the GPU-hours of {{ $labels.%s }} go to namespaces without a team label, for six hours now. They are on the bill as %s.' % [cl, c.unassignedTeam],
            dashboard: 'cost',
          }),
          a.alert('TeamReservationIdle', {
            expr: |||
              (
                avg_over_time(team:gpu_reserved_used:sum[%(day)s])
                / on (%(cl)s, team)
                (avg_over_time(team:gpu_reserved:sum[%(day)s]) >= %(gpus)g)
                < %(share)g
              )
              and on (%(cl)s, team)
              team:gpu_reserved:sum offset %(day)s
              and on (%(cl)s, team)
              (
                avg_over_time(cluster:gpu_pending:sum[%(day)s])
                - on (%(cl)s) group_right ()
                avg_over_time(team:gpu_reserved_pending:sum[%(day)s])
                >= %(wanted)g
              )
            ||| % { cl: cl, day: t.d('24h'), gpus: th.reservationGPUs, share: th.reservationUsed, wanted: th.reservationWanted },
            hold: '1h',
            severity: 'info',
            summary: 'A reservation is idle while others wait.',
            description: 'Team {{ $labels.team }} used {{ $value | humanizePercentage }} of its reserved GPUs of {{ $labels.%s }} over a day in which pods of others waited for GPUs.' % cl,
            dashboard: 'cost',
          }),
        ],
      },
    ],
  },
}
