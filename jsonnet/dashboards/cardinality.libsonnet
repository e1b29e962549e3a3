// How many series there are, which job brings them, what drop rules take away,
// and what comes and goes.
//
// All of it is recorded by job. A count by metric name would read every series
// of a head, which is the sort of query that Spillway exists to refuse; each
// server answers it for itself at /api/v1/status/tsdb, and Spillway merges that.
{
  local c = $._config,
  local g = (import '../lib/g.libsonnet')(c),
  local th = c.thresholds.prometheus,
  local f = {
    cl: g.cl,
    cluster: c.clusterLabel,
    jobs: '%s, job=~"$job"' % g.cl,
    prometheus: '%s, %s' % [g.cl, c.selectors.prometheus],
    shard: c.prometheusShardLabel,
    stored: 'cluster_job:scrape_samples_post_metric_relabeling:sum',
    scraped: 'cluster_job:scrape_samples_scraped:sum',
    added: 'cluster_job:scrape_series_added:sum1m',
    i: g.i,
  },
  local onlyJob = g.link('Only this job', 'cardinality', { job: g.field('job') }),

  // usual is a recorded series over its mean of a day: it needs no full day behind it, as a comparison with yesterday would.
  local usual = '%(stored)s{%(jobs)s} / on (%(cluster)s, job) avg_over_time(%(stored)s{%(jobs)s}[1d])' % f,

  // largest are the jobs that a table has room for.
  local largest = 'topk(30, %(stored)s{%(jobs)s})',

  grafanaDashboards+:: {
    'cardinality.json': g.dashboard({
      name: 'cardinality',
      title: 'Cardinality and drop rules',
      description: 'How many series there are, who brings them, and what drop rules save.',
      variables: [
        g.clusterVar,
        g.var('job', 'Job', 'label_values(%(stored)s{%(cl)s}, job)' % f, { multi: true, includeAll: true, description: 'Jobs that are scraped.' }),
      ],
      rows: [
        g.row('', [
          g.stat('Largest growth of a job', {
            description: 'The job that grew most, against its mean of a day. About 1 is normal; PrometheusJobCardinalityJump fires at %gx of the day before.' % th.jobGrowth,
            unit: 'none',
            decimals: 2,
            thresholds: [[null, 'ok'], [1.2, 'warn'], [th.jobGrowth, 'bad']],
            targets: [g.q('max((%s) and on (%s, job) %s{%s} > 1000)' % [usual, c.clusterLabel, f.stored, f.jobs])],
            verdict: true,
            trouble: ['CardinalityJump'],
          }),
          g.stat('Samples stored a scrape', {
            description: 'What one round of scrapes of the chosen jobs leaves after drop rules: the series that are alive, once, whatever the copies.',
            unit: 'short',
            sparkline: true,
            targets: [g.q('sum(%(stored)s{%(jobs)s})' % f)],
            trouble: ['CardinalityJump'],
          }),
          g.stat('Dropped by rules', {
            description: 'What drop rules take away of what exporters show, as a share. Zero: no rule has effect.',
            unit: 'percentunit',
            decimals: 1,
            targets: [g.q('1 - sum(%(stored)s{%(jobs)s}) / sum(%(scraped)s{%(jobs)s})' % f)],
          }),
          g.stat('New series', {
            description: 'Series that scrapes of the last hour met for the first time since their target or their server was started, as a share of those alive. A start meets all anew, once; without one, a few per cent are normal. Churn costs as much memory as size.',
            unit: 'percentunit',
            decimals: 1,
            targets: [g.q('sum(sum_over_time(%(added)s{%(jobs)s}[1h])) / sum(%(stored)s{%(jobs)s})' % f)],
            trouble: ['CardinalityJump'],
          }),
          g.stat('Series in the fullest head', {
            description: 'Series in memory of the fullest server. It holds what was alive within the last hours, not only now.',
            unit: 'short',
            sparkline: true,
            targets: [g.q('max(prometheus_tsdb_head_series{%(prometheus)s})' % f)],
            trouble: ['CardinalityJump'],
          }),
          g.stat('Memory for each series', {
            description: 'Resident memory of servers over the series in their heads. About 4 to 12 KiB is usual; far more is memory that queries hold.',
            unit: 'bytes',
            decimals: 1,
            targets: [g.q('sum(process_resident_memory_bytes{%(prometheus)s}) / sum(prometheus_tsdb_head_series{%(prometheus)s} > 0)' % f)],
            trouble: ['PrometheusMemoryNearLimit'],
          }),
        ]),
        g.row('Which job?', [
          g.timeseries('Series by job', {
            description: 'Samples that one round of scrapes of a job leaves: the ten largest jobs. A step up is a release or new nodes; a comb is a target that comes and goes.',
            unit: 'short',
            w: 12,
            h: 9,
            stack: true,
            targets: [g.q('topk(10, sum by (job) (%(stored)s{%(jobs)s}))' % f, '{{job}}')],
            trouble: ['CardinalityJump'],
            budget: 100,
          }),
          g.timeseries('Growth by job', {
            description: 'Samples of a job over its mean of a day: the five that grew most. A line that leaves 1 and stays is a new label or more targets.',
            unit: 'none',
            decimals: 2,
            w: 12,
            h: 9,
            thresholds: [[null, 'text'], [th.jobGrowth, 'bad']],
            targets: [g.q('topk(5, max by (job) (%s))' % usual, '{{job}}')],
            softMax: 2,
            trouble: ['CardinalityJump'],
            budget: 100,
          }),
          g.table('Jobs', {
            description: 'The thirty largest jobs: targets, samples that they show, what is stored of them, what rules drop, new series in an hour, and growth over a day. Begin with the largest; halve what nobody looks at.',
            w: 24,
            h: 10,
            targets: [
              g.q('%s and on (%s, job) %s' % [expr % f, c.clusterLabel, largest % f])
              for expr in [
                'sum by (%(cluster)s, job) (cluster_job:targets:count{%(jobs)s})',
                'sum by (%(cluster)s, job) (%(scraped)s{%(jobs)s})',
                'sum by (%(cluster)s, job) (%(stored)s{%(jobs)s})',
                '(1 - %(stored)s{%(jobs)s} / on (%(cluster)s, job) (%(scraped)s{%(jobs)s} > 0))',
                'sum_over_time(%(added)s{%(jobs)s}[1h])',
                '(%s)' % usual,
              ]
            ],
            columns: [
              { field: c.clusterLabel, title: 'Cluster', width: 90, hide: !c.showMultiCluster },
              { field: 'job', title: 'Job', link: onlyJob },
              { field: 'Value #A', title: 'Targets', unit: 'short', decimals: 0 },
              { field: 'Value #B', title: 'Shown', unit: 'short' },
              { field: 'Value #C', title: 'Stored', unit: 'short' },
              { field: 'Value #D', title: 'Dropped', unit: 'percentunit', decimals: 1 },
              { field: 'Value #E', title: 'New in an hour', unit: 'short' },
              { field: 'Value #F', title: 'Over its day', unit: 'none', decimals: 2, thresholds: [[null, 'text'], [1.2, 'warn'], [th.jobGrowth, 'bad']] },
            ],
            sortBy: 'Stored',
            trouble: ['CardinalityJump'],
            budget: 200,
          }),
        ]),
        g.row('Which target?', [
          g.table('Largest targets', {
            description: 'Targets of the chosen jobs by the samples that one scrape of them leaves. One far above its siblings has something that they do not: a debug flag, another version, a label with ids.',
            w: 12,
            targets: [g.q('topk(20, scrape_samples_post_metric_relabeling{%(jobs)s})' % f)],
            columns: [
              { field: c.clusterLabel, title: 'Cluster', width: 90, hide: !c.showMultiCluster },
              { field: 'job', title: 'Job', link: onlyJob },
              { field: 'instance', title: 'Target' },
              { field: 'Value', title: 'Stored', unit: 'short' },
            ],
            sortBy: 'Stored',
            trouble: ['CardinalityJump'],
          }),
          g.table('Targets with most new series', {
            description: 'Targets by the new series that the scrapes of an hour met. A target that has just been started shows all of its series as new; one that always does has ids in a label.',
            w: 12,
            targets: [g.q('topk(20, sum_over_time(scrape_series_added{%(jobs)s}[1h]))' % f)],
            columns: [
              { field: c.clusterLabel, title: 'Cluster', width: 90, hide: !c.showMultiCluster },
              { field: 'job', title: 'Job', link: onlyJob },
              { field: 'instance', title: 'Target' },
              { field: 'Value', title: 'New in an hour', unit: 'short' },
            ],
            sortBy: 'New in an hour',
            trouble: ['CardinalityJump'],
          }),
        ]),
        g.row('What comes and goes', [
          g.timeseries('New series by job', {
            description: 'Series that scrapes met for the first time, a minute, the ten jobs with most. Spikes are rollouts; a floor that never ends is a label that changes with each request, pod or hour.',
            unit: 'short',
            w: 12,
            stack: true,
            targets: [g.q('topk(10, sum by (job) (avg_over_time(%(added)s{%(jobs)s}[%(i)s])))' % f, '{{job}}')],
            trouble: ['CardinalityJump'],
            budget: 200,
          }),
          g.timeseries('Series in heads', {
            description: 'Series in memory of each server. The head is cut each two hours; between the cuts churn piles up.',
            unit: 'short',
            w: 12,
            targets: [g.q('max by (%(cluster)s, instance) (prometheus_tsdb_head_series{%(prometheus)s})' % f, '{{%(cluster)s}} {{instance}}' % f)],
            links: [g.link('The server', 'prometheus', { instance: g.label('instance') })],
            trouble: ['CardinalityJump'],
            budget: 100,
          }),
        ]),
        g.row('Do drop rules do what they were made for?', [
          g.timeseries('Dropped by job', {
            description: 'Share of what a job shows that drop rules take away, the ten jobs with most. A fall to zero is a rule that was reverted or stopped matching: Prometheus 3 stores le="15" as le="15.0".',
            unit: 'percentunit',
            w: 12,
            max: 1,
            targets: [g.q('topk(10, 1 - sum by (job) (%(stored)s{%(jobs)s}) / (sum by (job) (%(scraped)s{%(jobs)s}) > 0))' % f, '{{job}}')],
            budget: 100,
          }),
          g.bargauge('Largest savings', {
            description: 'Samples a scrape that drop rules keep out of storage, by job. Multiply by the copies of a shard for what memory is spared.',
            unit: 'short',
            w: 12,
            targets: [g.q('topk(5, sum by (job) (%(scraped)s{%(jobs)s}) - sum by (job) (%(stored)s{%(jobs)s}))' % f, '{{job}}')],
          }),
        ]),
      ],
    }),
  },
}
