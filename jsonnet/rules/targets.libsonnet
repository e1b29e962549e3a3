// What there usually is to scrape, for alerts on what is no more. What is gone
// has no series: only the past tells of it.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local cl = c.clusterLabel,

  // usual is what a series was nine times out of ten, looked at once an hour: a burst does not raise it, and what was there for less than an hour may be forgotten.
  local usual(series) = 'quantile_over_time(0.9, %s[%s:%s])' % [series, t.d(c.targets.memory), t.d('1h')],

  local byJob = import '../lib/byjob.libsonnet',

  // watched is how many targets of a sort a cluster has, 0 of those that nobody scrapes there.
  local watched(what) = {
    record: 'cluster_watched:targets:count',
    labels: { watched: what, blind: c.targets.watched[what][1] },
    expr: |||
      sum by (%(cl)s) (cluster_job:targets:count{%(of)s})
      or on (%(cl)s)
      0 * group by (%(cl)s) (cluster_job:targets:count)
    ||| % { cl: cl, of: byJob(c.targets.watched[what][0]) },
  },

  prometheusRules+:: {
    groups+: [
      {
        name: 'targets.watched',
        interval: t.d('3m'),
        rules: [watched(what) for what in std.objectFields(c.targets.watched) if byJob(c.targets.watched[what][0]) != ''],
      },
      {
        name: 'targets.usual',
        interval: t.d('3m'),
        rules: [
          { record: 'cluster_job:targets_usual:count', expr: usual('cluster_job:targets:count') },
          { record: 'cluster:nodes_usual:count', expr: usual('cluster:nodes:count') },
          {
            // Until it is known for as long as all nodes are it has the same part of these as now: what was there in the hours since an upgrade may be a burst, and is unknown in the first one.
            record: 'cluster:nodes_measured_usual:count',
            expr: |||
              %(usual)s
              unless on (%(cl)s)
              count_over_time(cluster:nodes_measured:count[%(w)s]) < on (%(cl)s) 0.9 * count_over_time(cluster:nodes:count[%(w)s])
              or on (%(cl)s)
              cluster:nodes_usual:count * on (%(cl)s) cluster:nodes_measured:count / on (%(cl)s) cluster:nodes:count
            ||| % { usual: usual('cluster:nodes_measured:count'), cl: cl, w: '%s:%s' % [t.d(c.targets.memory), t.d('1h')] },
          },
        ],
      },
      {
        // How much of its usual machines a cluster has, as its API servers or as node exporters tell, whichever tells of more: where nodes are taken away both become fewer. Of nodes on which a node-exporter can run, where
        // there are some: virtual ones come and go by day and by night.
        name: 'targets.machines',
        interval: t.d('1m'),
        rules: [
          {
            record: 'cluster:machines:ratio',
            expr: |||
              max by (%(cl)s) (
                cluster_job:targets:count{job=~"%(machines)s"}
                / on (%(cl)s, job)
                cluster_job:targets_usual:count
                or
                (
                  cluster:nodes_measured:count
                  / on (%(cl)s)
                  (cluster:nodes_measured_usual:count > 0)
                  or on (%(cl)s)
                  cluster:nodes:count
                  / on (%(cl)s)
                  cluster:nodes_usual:count
                )
              )
            ||| % { cl: cl, machines: c.targets.machines },
          },
        ],
      },
    ],
  },
}
