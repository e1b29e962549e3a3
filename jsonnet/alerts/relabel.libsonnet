// Whether drop rules do what they were planned to do. drop_rules:expected_ratio
// is a recording rule that `spillway relabel emit` writes beside its rules, with
// the labels cluster and job.
{
  local c = $._config,
  local a = (import '../lib/alert.libsonnet')(c),
  local number = import '../lib/number.libsonnet',

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'relabel',
        rules: [
          a.alert('DropRulesNotEffective', {
            // A page of which each shard keeps its own lines is scraped as often as there are shards, and counts once. Of Prometheus' own every shard keeps all.
            expr: |||
              1 - sum by (%(cluster)s, job) (scrape_samples_post_metric_relabeling) / (
                sum by (%(cluster)s, job) (scrape_samples_scraped)
                / count by (%(cluster)s, job) (count by (%(cluster)s, job, %(seenBy)s) (scrape_samples_scraped))
                unless on (%(cluster)s, job) count by (%(cluster)s, job) (scrape_samples_scraped{%(prometheus)s})
                or sum by (%(cluster)s, job) (scrape_samples_scraped)
              )
              < on (%(cluster)s, job)
              %(achieved)s * max by (%(cluster)s, job) (drop_rules:expected_ratio)
            ||| % { cluster: c.clusterLabel, seenBy: c.seenByLabel, prometheus: c.selectors.prometheus, achieved: number(c.thresholds.relabel.achieved) },
            hold: '1h',
            severity: 'warning',
            dashboard: 'cardinality',
            vars: { job: 'job' },
            summary: 'Drop rules drop less than they were made for.',
            description: 'The drop rules of job {{ $labels.job }} of %s drop {{ $value | humanizePercentage }} of its samples, less than %s%% of what was planned. They were reverted, or their regex stopped matching: Prometheus 3 stores le="15" as le="15.0".' % [a.cluster(), number(100 * c.thresholds.relabel.achieved)],
          }),
        ],
      },
    ],
  },
}
