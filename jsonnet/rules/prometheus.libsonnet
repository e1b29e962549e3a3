// Samples by job, which one wants to compare with those of yesterday. None of
// these run in the shards: what two of them recorded would be one series twice.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local f = { cluster: c.clusterLabel, seenBy: c.seenByLabel, prometheus: c.selectors.prometheus },

  prometheusRules+:: {
    groups+: [
      {
        name: 'prometheus',
        interval: t.d('1m'),
        rules: [
          {
            record: 'cluster_job:scrape_samples_post_metric_relabeling:sum',
            expr: 'sum by (%(cluster)s, job) (scrape_samples_post_metric_relabeling)' % f,
          },
          {
            // Of a target that answers.
            record: 'cluster_job:scrape_samples_post_metric_relabeling:avg',
            expr: 'avg by (%(cluster)s, job) (scrape_samples_post_metric_relabeling > 0)' % f,
          },
          {
            record: 'cluster_job:scrape_samples_scraped:sum',
            expr: 'sum by (%(cluster)s, job) (scrape_samples_scraped)' % f,
          },
          {
            // All of a minute: a burst is in one scrape, and whoever looks at a moment sees the last scrape only.
            record: 'cluster_job:scrape_series_added:sum1m',
            expr: 'sum by (%(cluster)s, job) (sum_over_time(scrape_series_added[%(w)s]))' % (f { w: t.d('1m') }),
          },
          {
            record: 'cluster_job:targets:count',
            expr: 'count by (%(cluster)s, job) (up)' % f,
          },
          {
            // Prometheus servers, which each shard scrapes, by the shard that tells of them.
            record: 'cluster_shard:targets:count',
            expr: 'count by (%(cluster)s, %(seenBy)s) (up{%(prometheus)s, %(seenBy)s!=""})' % f,
          },
          {
            record: 'cluster_job:targets_up:sum',
            expr: 'sum by (%(cluster)s, job) (up)' % f,
          },
          {
            record: 'cluster_job:scrape_duration_seconds:max',
            expr: 'max by (%(cluster)s, job) (scrape_duration_seconds)' % f,
          },
        ],
      },
    ],
  },
}
