// Both etcds: that of everything, and that of events. What goes wrong there
// shows as an API server that is slow or refuses writes.
{
  local c = $._config,
  local t = c.thresholds.etcd,
  local g = (import '../lib/g.libsonnet')(c),
  local f = {
    // Members that the reader chose.
    s: '%s, %s, job=~"$job", instance=~"$instance"' % [g.cl, c.selectors.etcdAll],
    r: '%s, job=~"$job"' % g.cl,
    ri: '%s, job=~"$job", instance=~"$instance"' % g.cl,
    cluster: c.clusterLabel,
    i: g.i,
    member: '%s, job, instance' % c.clusterLabel,
    apiserver: '%s, %s' % [g.cl, c.selectors.apiserver],
    resource: std.join(', ', c.k8s.etcdResource),
  },
  local memberLegend = '{{job}} {{instance}} {{%s}}' % c.clusterLabel,
  local jobLegend = '{{job}} {{%s}}' % c.clusterLabel,
  local q(expr, legend='', o={}) = g.q(expr % f, legend, o),

  grafanaDashboards+:: {
    'etcd.json': g.dashboard({
      name: 'etcd',
      title: 'etcd',
      description: 'Does every etcd have a leader, are its disks fast enough, and when is its database full?',
      variables: [
        g.clusterVar,
        g.var('job', 'etcd', 'label_values(etcd_server_has_leader{%s, %s}, job)' % [g.cl, c.selectors.etcdAll], {
          multi: true,
          includeAll: true,
          description: 'The main etcd, the one of events, or both.',
        }),
        g.var('instance', 'Member', 'label_values(etcd_server_has_leader{%s, %s, job=~"$job"}, instance)' % [g.cl, c.selectors.etcdAll], {
          multi: true,
          includeAll: true,
          description: 'Members to look at; alerts about one lead here with it.',
        }),
      ],
      rows: [
        g.row('', [
          g.stat('Without a leader', {
            description: 'Clusters of etcd in which no member sees a leader. Normal is none. With one, every write to its API server fails: look at the members below and at what changed in their network.',
            unit: 'none',
            verdict: true,
            mappings: [['0', 'None']],
            thresholds: [[null, 'ok'], [1, 'bad']],
            targets: [q(|||
              count(group by (%(cluster)s, job) (up{%(s)s}))
              - (
                count(max by (%(cluster)s, job) (etcd_server_has_leader{%(s)s}) == 1)
                or
                0 * count(up{%(s)s})
              )
            |||)],
            trouble: ['EtcdNoLeader', 'EtcdHung'],
          }),
          g.stat('Members down or cut off', {
            description: 'Members that do not answer or see no leader. Normal is none; of three, one may be gone, two stop the cluster.',
            unit: 'none',
            mappings: [['0', 'None']],
            thresholds: [[null, 'ok'], [1, 'warn'], [2, 'bad']],
            targets: [q(|||
              count(
                max by (%(member)s) (up{%(s)s} == 0)
                or
                max by (%(member)s) (etcd_server_has_leader{%(s)s} == 0)
              )
              or
              0 * count(up{%(s)s})
            |||)],
            trouble: ['EtcdNoLeader', 'EtcdHung'],
          }),
          g.stat('Slowest log fsync, p99', {
            description: 'The slowest member: 99 % of its writes to the log are on disk in this time. Local NVMe needs 1 to 5 ms; from 10 ms on heartbeats are missed and leaders change.',
            unit: 's',
            decimals: 1,
            sparkline: true,
            thresholds: [[null, 'ok'], [t.fsyncSeconds, 'warn'], [10 * t.fsyncSeconds, 'bad']],
            targets: [q('max(cluster_job_instance:etcd_disk_wal_fsync_duration_seconds:p99_rate5m{%(ri)s})')],
            trouble: ['EtcdFsyncSlow'],
          }),
          g.stat('Slowest commit, p99', {
            description: 'The slowest member: 99 % of its commits of the database end in this time. Up to 25 ms is usual, 250 ms is a disk that does not keep up.',
            unit: 's',
            decimals: 1,
            sparkline: true,
            thresholds: [[null, 'ok'], [0.025, 'warn'], [0.25, 'bad']],
            targets: [q('max(cluster_job_instance:etcd_disk_backend_commit_duration_seconds:p99_rate5m{%(ri)s})')],
            trouble: ['EtcdFsyncSlow'],
          }),
          g.stat('Fullest database', {
            description: 'Size of the database as a share of its quota. At 100 % the whole cluster becomes read-only: compact and defragment well before, or find who writes.',
            unit: 'percentunit',
            decimals: 0,
            sparkline: true,
            thresholds: [[null, 'ok'], [0.75 * t.quota, 'warn'], [t.quota, 'bad']],
            targets: [q('max(cluster_job:etcd_mvcc_db_total_size_in_bytes:max_share{%(r)s})')],
            trouble: ['EtcdDBGrows'],
          }),
          g.stat('Leader changes in 15 min', {
            description: 'Most changes of leader that a member saw. Normal is none; one is a restart, several are slow disks or a bad network between members.',
            unit: 'none',
            decimals: 0,
            thresholds: [[null, 'ok'], [1, 'warn'], [t.leaderChanges, 'bad']],
            targets: [q('max(increase(etcd_server_leader_changes_seen_total{%(s)s}[15m]))')],
            trouble: ['EtcdLeaderChurn'],
          }),
        ]),

        g.row('Who leads', [
          g.stateTimeline('Members', {
            description: 'What each member does. There should be one leader in each cluster for days; a member that defragments answers nothing meanwhile, so only one at a time should.',
            unit: 'none',
            w: 24,
            h: 8,
            mappings: [['0', 'down', 'bad'], ['1', 'sees no leader', 'bad'], ['2', 'follows', 'd'], ['3', 'leads', 'a'], ['4', 'defragments', 'warn']],
            targets: [q(|||
              max by (%(member)s) (4 * (etcd_disk_defrag_inflight{%(s)s} > 0))
              or on (%(member)s)
              max by (%(member)s) (1 + etcd_server_has_leader{%(s)s} + on (%(member)s) etcd_server_is_leader{%(s)s})
              or on (%(member)s)
              max by (%(member)s) (up{%(s)s} == 0)
            |||, memberLegend)],
            trouble: ['EtcdNoLeader', 'EtcdHung', 'EtcdLeaderChurn'],
          }),
          g.timeseries('Changes of leader', {
            description: 'Changes that a member saw, as many as the interval has. Writes stop for about a second during each.',
            unit: 'none',
            w: 6,
            softMax: 1,
            draw: 'bars',
            fill: 60,
            decimals: 0,
            targets: [q('max by (%(cluster)s, job) (increase(etcd_server_leader_changes_seen_total{%(s)s}[%(i)s]))', jobLegend)],
            trouble: ['EtcdLeaderChurn'],
          }),
          g.timeseries('Proposals waiting', {
            description: 'Writes that the members have not agreed on yet. A handful is normal; many that stay mean a slow disk or no leader.',
            unit: 'none',
            w: 6,
            targets: [q('max by (%(cluster)s, job) (etcd_server_proposals_pending{%(s)s})', jobLegend)],
            trouble: ['EtcdNoLeader'],
          }),
          g.timeseries('Proposals failed', {
            description: 'Writes a second that the members did not agree on. Normal is zero; they fail while there is no leader and when one goes.',
            unit: 'ops',
            w: 6,
            softMax: 1,
            targets: [q('sum by (%(cluster)s, job) (rate(etcd_server_proposals_failed_total{%(s)s}[%(i)s]))', jobLegend)],
            trouble: ['EtcdNoLeader', 'EtcdLeaderChurn'],
          }),
          g.timeseries('Slow applies', {
            description: 'Writes a second that took a member more than 100 ms to apply. Normal is zero.',
            unit: 'ops',
            w: 6,
            softMax: 1,
            targets: [q('sum by (%(cluster)s, job) (rate(etcd_server_slow_apply_total{%(s)s}[%(i)s]))', jobLegend)],
            trouble: ['EtcdFsyncSlow'],
          }),
        ]),

        g.row('Disks', [
          g.heatmap('How long fsyncs of the log take', {
            description: 'All members together. One dark band at a few milliseconds is good; a second band above is one member with a bad disk, a rising one is load.',
            unit: 's',
            cellUnit: 'ops',
            targets: [q('sum by (le) (rate(etcd_disk_wal_fsync_duration_seconds_bucket{%(s)s}[%(i)s]))', '{{le}}')],
            trouble: ['EtcdFsyncSlow'],
          }),
          g.heatmap('How long commits of the database take', {
            description: 'All members together. Commits wait for compactions and defragmentation too: spikes at equal distances are those.',
            unit: 's',
            cellUnit: 'ops',
            targets: [q('sum by (le) (rate(etcd_disk_backend_commit_duration_seconds_bucket{%(s)s}[%(i)s]))', '{{le}}')],
            trouble: ['EtcdFsyncSlow'],
          }),
          g.timeseries('Log fsync by member, p99', {
            description: 'Which member is slow. Above the dashed line heartbeats are missed; one that is slow alone has a bad disk or a noisy neighbour.',
            unit: 's',
            h: 9,
            thresholds: [[null, 'text'], [t.fsyncSeconds, 'warn']],
            softMax: 1.5 * t.fsyncSeconds,
            targets: [q('cluster_job_instance:etcd_disk_wal_fsync_duration_seconds:p99_rate5m{%(ri)s}', memberLegend)],
            trouble: ['EtcdFsyncSlow'],
          }),
          g.timeseries('Commit by member, p99', {
            description: 'Which member is slow to commit. If fsyncs are fast and commits are not, the database is large or is being defragmented.',
            unit: 's',
            h: 9,
            targets: [q('cluster_job_instance:etcd_disk_backend_commit_duration_seconds:p99_rate5m{%(ri)s}', memberLegend)],
            trouble: ['EtcdFsyncSlow'],
          }),
        ]),

        g.row('Room', [
          g.timeseries('Database against its quota', {
            description: 'Share of the quota now, and in four hours at the pace of the last one. Writes stop at 100 %.',
            unit: 'percentunit',
            thresholds: [[null, 'text'], [t.quota, 'bad']],
            softMax: 1,
            targets: [
              q('cluster_job:etcd_mvcc_db_total_size_in_bytes:max_share{%(r)s}', 'now ' + jobLegend),
              q(|||
                max by (%(cluster)s, job) (
                  predict_linear(etcd_mvcc_db_total_size_in_bytes{%(s)s}[1h], 4 * 3600)
                  / on (%(member)s)
                  etcd_server_quota_backend_bytes{%(s)s}
                )
              |||, 'in 4 h ' + jobLegend),
            ],
            overrides: [{ match: { regex: '/^in 4 h/' }, dash: [4, 4] }],
            trouble: ['EtcdDBGrows'],
          }),
          g.timeseries('Database, and what of it is in use', {
            description: 'Largest member. What lies between the two is given back by defragmenting; the events etcd turns over fastest.',
            unit: 'bytes',
            targets: [
              q('max by (%(cluster)s, job) (etcd_mvcc_db_total_size_in_bytes{%(s)s})', 'on disk ' + jobLegend),
              q('max by (%(cluster)s, job) (etcd_mvcc_db_total_size_in_use_in_bytes{%(s)s})', 'in use ' + jobLegend),
            ],
            trouble: ['EtcdDBGrows'],
          }),
        ]),

        g.row('What is asked of them', [
          g.timeseries('Reads and writes', {
            description: 'Ranges, puts and transactions a second, over all members. The level follows the number of nodes; a jump without new nodes is a controller gone wild.',
            unit: 'ops',
            w: 8,
            targets: [
              q('sum by (job) (rate(etcd_mvcc_range_total{%(s)s}[%(i)s]))', 'range {{job}}'),
              q('sum by (job) (rate(etcd_mvcc_put_total{%(s)s}[%(i)s]))', 'put {{job}}'),
              q('sum by (job) (rate(etcd_mvcc_txn_total{%(s)s}[%(i)s]))', 'txn {{job}}'),
            ],
            trouble: ['EtcdNoLeader'],
          }),
          g.timeseries('Calls that fail', {
            description: 'Calls over gRPC a second by code other than OK. Cancelled watches are normal; Unavailable and DeadlineExceeded are not.',
            unit: 'ops',
            w: 8,
            targets: [q('sum by (job, grpc_code) (rate(grpc_server_handled_total{%(s)s, grpc_code!="OK"}[%(i)s]))', '{{grpc_code}} {{job}}')],
            trouble: ['EtcdNoLeader'],
          }),
          g.bargauge('Who writes most', {
            description: 'Resources by creates, updates and deletes a second, as the API servers send them to etcd. The first three explain most of the load: leases, events and pods are usual.',
            unit: 'ops',
            w: 8,
            targets: [q('topk(10, sum by (%(resource)s) (rate(etcd_requests_total{%(apiserver)s, operation=~"create|update|delete"}[%(i)s])))', std.join('/', ['{{%s}}' % r for r in c.k8s.etcdResource]))],
            links: [g.link('API server', 'apiserver')],
          }),
          g.timeseries('Round trip between members', {
            description: 'Mean of ten minutes from each member to its peers; they measure it twice a minute. In one site it is under a millisecond; beyond 10 ms every write waits for it.',
            unit: 'ms',
            w: 8,
            legend: 'hidden',
            targets: [q(|||
              1000 * sum by (%(member)s) (increase(etcd_network_peer_round_trip_time_seconds_sum{%(s)s}[10m]))
              /
              (sum by (%(member)s) (increase(etcd_network_peer_round_trip_time_seconds_count{%(s)s}[10m])) > 0)
            |||, memberLegend)],
          }),
          g.timeseries('Traffic with API servers', {
            description: 'Bytes a second to and from clients, over all members. Much more sent than usual is somebody who lists everything.',
            unit: 'Bps',
            w: 8,
            targets: [
              q('sum by (job) (rate(etcd_network_client_grpc_sent_bytes_total{%(s)s}[%(i)s]))', 'sent {{job}}'),
              q('sum by (job) (rate(etcd_network_client_grpc_received_bytes_total{%(s)s}[%(i)s]))', 'received {{job}}'),
            ],
          }),
          g.timeseries('Resident memory', {
            description: 'Of each member. It follows the database and the number of watchers; a step up on one member alone is a large range read.',
            unit: 'bytes',
            w: 8,
            legend: 'hidden',
            targets: [q('max by (%(member)s) (process_resident_memory_bytes{%(s)s})', memberLegend)],
          }),
        ]),
      ],
    }),
  },
}
