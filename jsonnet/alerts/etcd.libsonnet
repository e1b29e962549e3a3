// etcd, the separate one of events included: alerts keep the label job, which
// tells the two apart.
{
  local c = $._config,
  local th = c.thresholds.etcd,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local a = (import '../lib/alert.libsonnet')(c),
  local number = import '../lib/number.libsonnet',

  local f = {
    cluster: c.clusterLabel,
    etcd: c.selectors.etcdAll,
    events: c.selectors.etcdEvents,
    written: c.selectors.apiserver + ',verb=~"POST|PUT|PATCH|APPLY|DELETE",code=~"2.."',
    w: t.d('5m'),
    w15: t.d('15m'),
    hour: t.d('1h'),
    ahead: number(t.s('4h')),
    name: a.cluster(),
  } + { [k]: number(th[k]) for k in std.objectFields(th) },

  local alert(name, o) = a.alert(name, { dashboard: 'etcd', vars: { job: 'job' } } + o { expr: o.expr % f, description: o.description % f }),

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'etcd',
        rules: [
          alert('EtcdNoLeader', {
            // One member that is cut off sees no leader either: only all of them together say that there is none. Members that are all dead say nothing; that they cannot be scraped is no proof while the API server still writes what they
            // keep: events where it is that of events. Reviews of tokens and of rights are answered with 201, and kept nowhere.
            expr: |||
              max by (%(cluster)s, job) (etcd_server_has_leader{%(etcd)s}) == 0
              or
              (
                max by (%(cluster)s, job) (up{%(etcd)s} unless up{%(events)s}) == 0
                unless on (%(cluster)s)
                sum by (%(cluster)s) (rate(apiserver_request_total{%(written)s,resource!~"events|tokenreviews|(self|local)?subject(access|rules)?reviews"}[%(w)s])) > 0
              )
              or
              (
                max by (%(cluster)s, job) (up{%(events)s}) == 0
                unless on (%(cluster)s)
                sum by (%(cluster)s) (rate(apiserver_request_total{%(written)s,resource="events"}[%(w)s])) > 0
              )
            |||,
            hold: '1m',
            severity: 'critical',
            summary: 'An etcd cluster has no leader and takes no writes.',
            description: 'No member of {{ $labels.job }} of %(name)s sees a leader, or none answers and the API server writes nothing that it keeps: every such write to the API server fails.',
          }),
          alert('EtcdMembersDown', {
            expr: |||
              count by (%(cluster)s, job) (
                max by (%(cluster)s, job, instance) (up{%(etcd)s} == 0)
                or
                max by (%(cluster)s, job, instance) (etcd_server_has_leader{%(etcd)s} == 0)
              )
            |||,
            hold: '5m',
            severity: 'warning',
            summary: 'Members of an etcd cluster are down or cut off.',
            description: '{{ $value }} members of {{ $labels.job }} of %(name)s do not answer or see no leader. More than half of them gone stops the cluster.',
          }),
          alert('EtcdLeaderChurn', {
            expr: |||
              max by (%(cluster)s, job) (increase(etcd_server_leader_changes_seen_total{%(etcd)s}[%(w15)s])) >= %(leaderChanges)s
            |||,
            hold: '5m',
            severity: 'warning',
            summary: 'An etcd cluster keeps changing its leader.',
            description: '{{ $labels.job }} of %(name)s had {{ $value | humanize }} changes of leader in 15 minutes. Writes stop during each one; slow disks or a slow network between members are the usual cause.',
          }),
          alert('EtcdFsyncSlow', {
            expr: |||
              histogram_quantile(0.99, sum by (%(cluster)s, job, instance, le) (rate(etcd_disk_wal_fsync_duration_seconds_bucket{%(etcd)s}[%(w)s]))) > %(fsyncSeconds)s
              and
              sum by (%(cluster)s, job, instance) (rate(etcd_disk_wal_fsync_duration_seconds_count{%(etcd)s}[%(w)s])) > %(fsyncsPerSecond)s
            |||,
            hold: '10m',
            severity: 'warning',
            vars: { job: 'job', instance: 'instance' },
            summary: 'The disk of an etcd member is slow.',
            description: '1%% of fsyncs of {{ $labels.job }} {{ $labels.instance }} of %(name)s take longer than {{ $value | humanizeDuration }}. A local NVMe disk needs a millisecond, a network disk under load does not keep up with thousands of nodes.',
          }),
          alert('EtcdDBNearQuota', {
            expr: |||
              max by (%(cluster)s, job) (etcd_mvcc_db_total_size_in_bytes{%(etcd)s} / etcd_server_quota_backend_bytes{%(etcd)s}) > %(quota)s
            |||,
            hold: '10m',
            severity: 'critical',
            summary: 'The database of an etcd cluster is close to its quota.',
            description: 'The database of {{ $labels.job }} of %(name)s uses {{ $value | humanizePercentage }} of its quota. At 100%% the whole cluster becomes read-only.',
          }),
          alert('EtcdDBFillsIn4h', {
            expr: |||
              max by (%(cluster)s, job) (
                predict_linear(etcd_mvcc_db_total_size_in_bytes{%(etcd)s}[%(hour)s], %(ahead)s) / etcd_server_quota_backend_bytes{%(etcd)s}
                and
                etcd_mvcc_db_total_size_in_bytes{%(etcd)s} / etcd_server_quota_backend_bytes{%(etcd)s} > %(forecastFrom)s
              ) > %(forecast)s
            |||,
            hold: '10m',
            severity: 'warning',
            summary: 'The database of an etcd cluster grows so fast that it will reach its quota within hours.',
            description: 'At the pace of the last hour the database of {{ $labels.job }} of %(name)s will use {{ $value | humanizePercentage }} of its quota in four hours.',
          }),
        ],
      },
    ],
  },
}
