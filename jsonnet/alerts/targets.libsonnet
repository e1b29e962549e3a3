// What vanishes from the scrape: TargetDown is about targets that do not answer,
// these are about targets that service discovery no longer has. Each alert that
// reads them is blind, and quiet.
{
  local c = $._config,
  local th = c.thresholds.targets,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local a = (import '../lib/alert.libsonnet')(c),
  local cl = c.clusterLabel,

  local f = {
    cl: cl,
    job: '%s, job' % cl,
    critical: c.targets.critical,
    read: c.targets.read,
    elastic: c.targets.elastic,
    machines: c.targets.machines,
    everywhere: c.targets.everywhere,
    w: t.recorded('5m'),
    left: '%g' % (1 - th.gone),
    gone: '%g' % th.gone,
    memory: t.d(c.targets.memory),
    hour: t.d('1h'),
  },

  // lost are the clusters of which a shard tells nothing any more, while as many answer as ever of late: what it scraped is gone with it, and no machine was taken away. One that was given up answers no more.
  local lost = |||
    count by (%(cl)s) (
      last_over_time(cluster_shard:targets:count[%(keep)s])
      unless
      cluster_shard:targets:count
    )
    and on (%(cl)s)
    %(shards)s
    >= on (%(cl)s)
    max_over_time((%(shards)s)[%(keep)s:%(step)s])
  ||| % {
    cl: cl,
    keep: t.recorded('6h'),
    step: t.recorded('5m'),
    shards: 'count by (%s) (group by (%s, %s) (up{%s} > 0))' % [cl, cl, c.prometheusShardLabel, c.selectors.prometheus],
  },

  // gone are the jobs of clusters that had targets and have none, while other jobs of the cluster have some: where nothing is left it is the Prometheus servers, or the cluster was given up.
  local gone(jobs) = |||
    (
      cluster_job:targets_usual:count{%(jobs)s}
      unless on (%(job)s)
      cluster_job:targets:count
    )
    and on (%(cl)s)
    count by (%(cl)s) (cluster_job:targets:count)
  ||| % (f { jobs: jobs % f }),

  local jobGone(severity, expr, description) = a.alert('ScrapeJobGone', {
    expr: expr,
    hold: '5m',
    severity: severity,
    labels: { scope: { critical: 'basis', warning: 'rules', info: 'other' }[severity] },
    summary: 'A job is no longer scraped.',
    description: description % f,
    dashboard: 'prometheus',
    vars: { job: 'job' },
    // Kept on for longer than FleetUnseen, which it holds back: that would page when all is well again.
  } + (if severity == 'critical' then { keep: '20m' } else {})),

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'targets',
        interval: t.d('1m'),
        rules: [
          // Most of what is known of nodes, pods and GPUs that are given out comes from here, and every share of the fleet.
          jobGone(
            'critical',
            gone('job=~"%(critical)s"'),
            'Job {{ $labels.job }} of {{ $labels.%(cl)s }} has no target any more, and had {{ $value }}. Alerts on nodes, pods and shares of the fleet are blind, and quiet.'
          ),
          jobGone(
            'warning',
            gone('job=~"%(read)s", job!~"%(critical)s"'),
            'Job {{ $labels.job }} of {{ $labels.%(cl)s }} has no target any more, and had {{ $value }}. What alerts and dashboards read of it is not there, and they say nothing about that.'
          ),
          // Experiments that are scraped come and go, and so do people's own exporters: for whoever reads a digest, and only what was there for long.
          jobGone(
            'info',
            |||
              %s
              and on (%s)
              count_over_time(cluster_job:targets:count{job!~"%s"}[%s:%s]) >= %g
            ||| % [std.rstripChars(gone('job!~"%(read)s"'), '\n'), f.job, f.read, f.memory, f.hour, th.hours],
            'Job {{ $labels.job }} of {{ $labels.%(cl)s }} has no target any more, and had {{ $value }}.'
          ),
          a.alert('ScrapeTargetsGone', {
            // Where machines are taken away, what runs on each of them goes with them. What autoscales has fewer each night. What is on all nodes, virtual ones too, is compared
            // with as many as the machines should be, and the virtual ones that there are. A shard that stores nothing takes all of this alike, and is no machine that is taken away.
            expr: |||
              (
                cluster_job:targets:count{job=~"%(read)s", job!~"%(elastic)s"}
                / on (%(job)s)
                cluster_job:targets_usual:count
                < %(left)s
              )
              unless on (%(job)s)
              (
                (
                  cluster_job:targets:count
                  / on (%(job)s)
                  cluster_job:targets_usual:count
                  >= on (%(cl)s) group_left ()
                  %(left)s * cluster:machines:ratio
                  or
                  cluster_job:targets:count{job=~"%(everywhere)s"}
                  / on (%(job)s)
                  cluster_job:targets_usual:count
                  >= on (%(cl)s) group_left ()
                  %(left)s
                  * (
                    cluster:machines:ratio * on (%(cl)s) cluster:nodes_measured_usual:count
                    + on (%(cl)s)
                    (cluster:nodes:count - on (%(cl)s) cluster:nodes_measured:count)
                  )
                  / on (%(cl)s)
                  cluster:nodes_usual:count
                )
                unless on (%(cl)s)
                (
                  %(lost)s
                )
              )
            ||| % (f { lost: std.strReplace(std.rstripChars(lost, '\n'), '\n', '\n    ') }),
            hold: '8m',
            severity: 'warning',
            summary: 'A job has far fewer targets than usual.',
            description: 'Job {{ $labels.job }} of {{ $labels.%(cl)s }} has {{ $value | humanizePercentage }} of its usual targets, and the nodes have not become fewer like that. What is gone is not scraped, and does not count as down.' % f,
            dashboard: 'prometheus',
            vars: { job: 'job' },
          }),
          a.alert('KubeStateMetricsIncomplete', {
            // The most nodes in some minutes: each Prometheus shard reads the page of kube-state-metrics and keeps its own nodes, and one scrape that it gives up is no trouble. Of nodes
            // on which a node-exporter can run: virtual ones come and go by day and by night, and its targets do not.
            expr: |||
              (
                max_over_time(cluster:nodes_measured:count[%(w)s])
                / on (%(cl)s)
                cluster:nodes_measured_usual:count
                < %(left)s
              )
              < on (%(cl)s)
              (
                %(left)s
                * max by (%(cl)s) (
                  cluster_job:targets:count{job=~"%(machines)s"}
                  / on (%(job)s)
                  cluster_job:targets_usual:count
                )
              )
            ||| % f,
            hold: '3m',
            severity: 'critical',
            summary: 'kube-state-metrics does not tell of all nodes.',
            description: 'kube-state-metrics tells of {{ $value | humanizePercentage }} of the usual nodes of {{ $labels.%(cl)s }}, and node exporters are scraped on more of them: one of its shards is gone. No share of the fleet is right, and alerts on the nodes, pods and GPUs that it told of are quiet.' % f,
            dashboard: 'fleet',
          }),
          a.alert('FleetUnseen', {
            // Of no nodes at all KubeStateMetricsIncomplete has no share, and ScrapeJobGone is only about targets that discovery no longer has, of whichever job. By its name it is a fleet alert: the remediation controller does
            // nothing while nobody knows which nodes there are, are ready or were taken out. Kept on until FleetNodesNotReady and FleetGPUUnhealthy, which need ten minutes of what it is blind for, may stand.
            expr: |||
              (
                cluster:nodes_usual:count
                unless on (%(cl)s)
                cluster:nodes:count
              )
              and on (%(cl)s)
              count by (%(cl)s) (cluster_job:targets:count)
            ||| % f,
            hold: '5m',
            keep: '15m',
            severity: 'critical',
            summary: 'kube-state-metrics tells of no node.',
            description: 'Nothing has been known for five minutes of the nodes of {{ $labels.%(cl)s }}, usually {{ $value | humanize }}: kube-state-metrics is gone, or does not answer. No share of the fleet is known, alerts on nodes, pods and GPUs that are given out are quiet, and no sick node is taken out.' % f,
            dashboard: 'fleet',
          }),
        ],
      },
    ],
  },
}
