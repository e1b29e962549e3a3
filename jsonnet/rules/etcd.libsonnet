// What the dashboard of etcd shows over days.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local f = { cluster: c.clusterLabel, etcd: c.selectors.etcdAll, w: t.d('5m') },

  prometheusRules+:: {
    groups+: [
      {
        name: 'etcd',
        rules: [
          {
            record: 'cluster_job_instance:etcd_disk_wal_fsync_duration_seconds:p99_rate5m',
            expr: |||
              histogram_quantile(0.99, sum by (%(cluster)s, job, instance, le) (rate(etcd_disk_wal_fsync_duration_seconds_bucket{%(etcd)s}[%(w)s])))
            ||| % f,
          },
          {
            record: 'cluster_job_instance:etcd_disk_backend_commit_duration_seconds:p99_rate5m',
            expr: |||
              histogram_quantile(0.99, sum by (%(cluster)s, job, instance, le) (rate(etcd_disk_backend_commit_duration_seconds_bucket{%(etcd)s}[%(w)s])))
            ||| % f,
          },
          {
            record: 'cluster_job:etcd_mvcc_db_total_size_in_bytes:max_share',
            expr: |||
              max by (%(cluster)s, job) (etcd_mvcc_db_total_size_in_bytes{%(etcd)s} / etcd_server_quota_backend_bytes{%(etcd)s})
            ||| % f,
          },
        ],
      },
    ],
  },
}
