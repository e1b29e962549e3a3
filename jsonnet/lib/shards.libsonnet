// Rows of the proxy's dashboard about shards: which one is slow or out of
// reach, what its replicas lack, and how the panels there and in other rows
// name them. f has what expressions are filled with.
function(c, f) {
  local g = (import 'g.libsonnet')(c),
  local th = c.thresholds.spillway,
  local replica = self.replica,
  local shard = self.shard,
  local inHour = self.inHour,

  // Legends.
  replica:: '{{group}} {{shard}} {{replica}}',
  shard:: '{{group}} {{shard}}',

  // inHour is what a counter came to within an hour that begins with its first event: increase never sees that one.
  inHour(metric, matchers)::
    local series = '%s{%s}' % [metric, matchers];
    '(%s unless %s offset 1h) or increase(%s[1h])' % [series, series, series],

  // state of each replica as a number: 0 down, 1 misconfigured, 2 unknown, 3 up.
  local state = std.join(
    '\nor\n',
    [
      '%s * max by (%s, group, shard, replica) (spillway_shard_replica_state{%s, state="%s"} == 1)' % [s[0], c.clusterLabel, f.shards, s[1]]
      for s in [[0, 'down'], [1, 'misconfigured'], [2, 'unknown'], [3, 'up']]
    ]
  ),

  rows:: [
    g.row('Which shard?', [
      g.stateTimeline('Replicas', {
        description: 'Each replica as Spillway sees it. misconfigured: its external labels are not those of its group, so it is not asked; the log has the line to add.',
        unit: 'none',
        w: 24,
        h: 7,
        mappings: [[0, 'down', 'bad'], [1, 'misconfigured', 'bad'], [2, 'unknown', 'off'], [3, 'up', 'ok']],
        targets: [g.q(state, replica)],
        budget: 200,
      }),
      g.timeseries('Slowest shards', {
        description: '99 % of the calls of a shard take no longer, the ten slowest. One shard above the others sets the pace of every query that needs it.',
        unit: 's',
        w: 12,
        targets: [g.q('topk(10, histogram_quantile(0.99, sum by (group, shard, le) (rate(spillway_shard_request_duration_seconds_bucket{%(shards)s}[%(i)s]))) > 0)' % f, shard)],
        budget: 100,
      }),
      g.timeseries('Replicas that begin late', {
        description: 'Time that 90 %% of the answers of a replica take no longer to begin, the ten slowest. This is the server alone: that others are waited for is not in it. ProxyShardSlow fires above %g s for a replica that is twice as slow as the quickest quarter.' % th.shardSlowSeconds,
        unit: 's',
        w: 12,
        targets: [g.q('topk(10, histogram_quantile(0.9, sum by (group, shard, replica, le) (rate(spillway_shard_header_duration_seconds_bucket{%(shards)s}[%(i)s]))) > 0)' % f, replica)],
        budget: 100,
      }),
      g.timeseries('Calls that wait for an answer to begin', {
        description: 'Calls at each replica whose answer has not begun, the ten most. A replica that hangs is the one that stays here while the others come and go.',
        unit: 'short',
        w: 12,
        softMax: 1,
        targets: [g.q('topk(10, sum by (group, shard, replica) (spillway_shard_requests_unanswered{%(shards)s}))' % f, replica)],
        budget: 100,
      }),
      g.timeseries('Calls that fail, by replica', {
        description: 'Share of the calls to a replica that fail or are never answered, the ten worst. ProxyReplicaFailing fires above %g %% while its readiness page is sound.' % (100 * th.replicaFailures),
        unit: 'percentunit',
        w: 12,
        softMax: 1,
        targets: [g.q('topk(10, sum by (group, shard, replica) (rate(spillway_shard_requests_total{%(shards)s, outcome=~"timeout|shard_failed|silent"}[%(i)s])) / sum by (group, shard, replica) (rate(spillway_shard_requests_total{%(shards)s}[%(i)s])))' % f, replica)],
        quiet: 'no call has failed since Spillway was started',
        budget: 100,
      }),
      g.timeseries('Calls by outcome', {
        description: 'Calls to replicas by how they ended. cut is a shard that sent more than it was asked for, and was stopped; silent a call that was not made, to a replica that answers nothing.',
        unit: 'reqps',
        w: 12,
        stack: true,
        targets: [g.q('sum by (outcome) (rate(spillway_shard_requests_total{%(shards)s}[%(i)s])) > 0' % f, '{{outcome}}')],
        overrides: [
          { match: { name: 'ok' }, color: 'd' },
          { match: { regex: '/internal|shard_failed|timeout|unavailable|silent/' }, color: 'bad' },
        ],
      }),
      g.timeseries('Calls for each request', {
        description: 'Calls to shards for one request that Spillway answers. About the number of shards is normal; more means raw reads in pieces, or hedges and retries.',
        unit: 'none',
        decimals: 1,
        w: 8,
        targets: [g.q('sum(rate(spillway_shard_requests_total{%(shards)s}[%(i)s])) / sum(rate(spillway_requests_total{%(proxy)s}[%(i)s]))' % f, 'calls')],
      }),
      g.timeseries('Calls in flight and waiting', {
        description: 'Calls under way at each replica, and calls that wait for one of its slots. Waiting for long ends in 429: read_slots and unselective_slots.',
        unit: 'short',
        w: 8,
        targets: [
          g.q('topk(10, sum by (group, shard, replica) (spillway_shard_requests_in_flight{%(shards)s}))' % f, 'in flight: ' + replica),
          g.q('sum by (class) (spillway_shard_requests_waiting{%(shards)s})' % f, 'waiting: {{class}}'),
        ],
        legend: 'hidden',
        budget: 100,
      }),
      g.timeseries('Bytes from replicas', {
        description: 'Bytes a second that each replica sends, as they come over the wire; the ten largest.',
        unit: 'Bps',
        w: 8,
        legend: 'hidden',
        targets: [g.q('topk(10, sum by (group, shard, replica) (rate(spillway_shard_response_bytes_total{%(shards)s}[%(i)s])))' % f, replica)],
        budget: 100,
      }),
      g.table('State of replicas', {
        description: "Whole: the replica lacks nothing that another one of its shard has, so that queries can be pushed to it. Breaker: it failed so often that it is left alone for a while. Lagging: others are preferred. Clock: how far ahead of Spillway's.",
        w: 24,
        targets: [
          g.q('min by (%(cluster)s, group, shard, replica) (spillway_shard_replica_whole{%(shards)s})' % f),
          g.q('max by (%(cluster)s, group, shard, replica) (spillway_shard_breaker_open{%(shards)s})' % f),
          g.q('max by (%(cluster)s, group, shard, replica) (spillway_shard_replica_lagging{%(shards)s})' % f),
          g.q('max by (%(cluster)s, group, shard, replica) (spillway_shard_clock_skew_seconds{%(shards)s})' % f),
        ],
        columns: [
          { field: 'group', title: 'Group' },
          { field: 'shard', title: 'Shard' },
          { field: 'replica', title: 'Replica' },
          { field: 'Value #A', title: 'Whole', mappings: [[0, 'no', 'warn'], [1, 'yes', 'ok']], thresholds: [[null, 'text']] },
          { field: 'Value #B', title: 'Breaker', mappings: [[0, 'closed'], [1, 'open', 'bad']], thresholds: [[null, 'text']] },
          { field: 'Value #C', title: 'Lagging', mappings: [[0, 'no'], [1, 'yes', 'warn']], thresholds: [[null, 'text']] },
          { field: 'Value #D', title: 'Clock', unit: 's', decimals: 1, thresholds: [[null, 'text'], [30, 'bad']] },
        ],
        sortBy: 'Group',
        sortDesc: false,
        budget: 200,
      }),
      g.timeseries('Second tries', {
        description: 'Calls a second that went to another replica because one failed (failover), that another one was asked as well because one took longer than usual (hedge), and that were made again to the same one (retry). Nobody notices them; a steady rate is a replica to look at.',
        unit: 'cps',
        w: 12,
        softMax: 1,
        targets: [
          g.q('sum(rate(%s{%s}[%s])) or 0 * sum(rate(spillway_shard_requests_total{%s}[%s]))' % [m[0], f.shards, f.i, f.shards, f.i], m[1])
          for m in [['spillway_shard_failovers_total', 'failovers'], ['spillway_shard_hedged_total', 'hedges'], ['spillway_shard_retries_total', 'retries']]
        ],
      }),
      g.table('Replicas that need second tries', {
        description: 'Second tries within the last hour by the replica that made them necessary.',
        w: 12,
        targets: [
          g.q('topk(20, sum by (group, shard, replica) (%s) > 0)' % inHour(m, f.shards))
          for m in ['spillway_shard_failovers_total', 'spillway_shard_hedged_total', 'spillway_shard_retries_total']
        ],
        columns: [
          { field: 'group', title: 'Group' },
          { field: 'shard', title: 'Shard', width: 80 },
          { field: 'replica', title: 'Replica' },
          { field: 'Value #A', title: 'Failovers', unit: 'short', decimals: 0, width: 100 },
          { field: 'Value #B', title: 'Hedges', unit: 'short', decimals: 0, width: 100 },
          { field: 'Value #C', title: 'Retries', unit: 'short', decimals: 0, width: 100 },
        ],
        sortBy: 'Failovers',
        quiet: 'no replica needed one within an hour',
      }),
      g.timeseries('Calls that outlive their request', {
        description: 'Time that 99 % of calls go on no longer than after their request has ended. Seconds mean that a shard works on for nobody.',
        unit: 's',
        w: 12,
        targets: [g.q('topk(10, histogram_quantile(0.99, sum by (group, shard, le) (rate(spillway_shard_cancel_linger_seconds_bucket{%(shards)s}[%(i)s]))) >= 0)' % f, shard)],
        quiet: 'no request ended before its calls to shards did',
        budget: 100,
      }),
      g.table('Groups whose servers do not fit together', {
        description: 'What a group is sick with, or does not keep to. engine: query engines that differ. clock: more than 30 s off. copy: a replica listed as a shard. overlap: a target scraped by two shards. split: a shard listed as a replica. Queries of such a group are evaluated in Spillway. hashmod: series of another shard. names: a metric that the group is not said to have. More servers are asked then than need be. shard_by: series with the same labels on two shards. Nothing that relies on it runs on the shards then.',
        w: 12,
        targets: [g.q('max by (%(cluster)s, group, kind) ((spillway_group_sick{%(on)s} or label_replace(1 - spillway_shard_hashmod_trusted{%(on)s}, "kind", "hashmod", "", "") or label_replace(1 - spillway_shard_names_trusted{%(on)s}, "kind", "names", "", "") or label_replace(1 - spillway_shard_own_names_trusted{%(on)s}, "kind", "shard_names", "", "") or label_replace(1 - spillway_shard_by_trusted{%(on)s}, "kind", "shard_by", "", "")) == 1)' % (f { on: '%(cl)s, %(job)s, instance=~"$instance", group=~"$group"' % (f { job: c.selectors.proxy }) }))],
        columns: [
          { field: 'group', title: 'Group' },
          { field: 'kind', title: 'What does not fit' },
        ],
        quiet: 'all servers of each group fit together',
      }),
    ]),
    g.row("Do a shard's replicas hold the same?", [
      g.timeseries('Replicas that are cut off', {
        description: 'Share of the targets that another replica of the shard reaches and this one fails to, the ten most. The targets are well, and the other one is read; ProxyReplicaCutOff fires above %g %%.' % (100 * th.replicaUnreached),
        unit: 'percentunit',
        w: 8,
        softMax: 1,
        targets: [g.q('topk(10, max by (group, shard, replica) (spillway_shard_replica_unreached_ratio{%(shards)s}))' % f, replica)],
        budget: 100,
      }),
      g.timeseries('How long replicas have lacked something', {
        description: 'Since when a replica lacks scrapes that another one of its shard has, the ten longest. One that was away lacks what it missed for five to eleven minutes after it is back; who goes on to lack something raises ProxyReplicaNotWhole after %g s.' % th.replicaLackingSeconds,
        unit: 's',
        w: 8,
        targets: [g.q('topk(10, time() - min by (group, shard, replica) (spillway_shard_replica_lacking_since_timestamp_seconds{%(shards)s} > 0))' % f, replica)],
        quiet: 'each replica has what the others of its shard have',
        budget: 100,
      }),
      g.timeseries('Range queries in stretches', {
        description: 'Range queries a second that are answered in pieces, each by another replica, since each lacks something at some time. They end as the gaps leave the windows.',
        unit: 'reqps',
        w: 8,
        softMax: 1,
        targets: [g.q('sum(rate(spillway_query_plans_total{%(proxy)s, mode="stretches"}[%(i)s])) or 0 * sum(rate(spillway_query_plans_total{%(proxy)s}[%(i)s]))' % f, 'stretches')],
      }),
      g.timeseries('Shards for which series are fetched', {
        description: 'Queries a second that fetch series because of what is wrong with a shard, by cause, the ten most. not_whole: each of its replicas lacks something; the table says what is so now.',
        unit: 'reqps',
        w: 12,
        stack: true,
        targets: [g.q('topk(10, sum by (group, shard, cause) (rate(spillway_shard_raw_plans_total{%(shards)s}[%(i)s])) > 0)' % f, shard + ' {{cause}}')],
        quiet: 'no shard was the cause since Spillway was started',
        budget: 100,
      }),
      g.table('Replicas that lack something', {
        description: 'Who lacks something now, since how long, and from what share of the targets it is cut off that another one reaches. From none: its targets are others, or it missed scrapes. Whole: another Spillway may think otherwise.',
        w: 12,
        targets: [
          g.q('time() - min by (%(cluster)s, group, shard, replica) (spillway_shard_replica_lacking_since_timestamp_seconds{%(shards)s} > 0)' % f),
          g.q('max by (%(cluster)s, group, shard, replica) (spillway_shard_replica_unreached_ratio{%(shards)s} and spillway_shard_replica_lacking_since_timestamp_seconds{%(shards)s} > 0)' % f),
          g.q('max by (%(cluster)s, group, shard, replica) (spillway_shard_replica_whole{%(shards)s} and spillway_shard_replica_lacking_since_timestamp_seconds{%(shards)s} > 0)' % f),
        ],
        columns: [
          { field: 'group', title: 'Group' },
          { field: 'shard', title: 'Shard', width: 80 },
          { field: 'replica', title: 'Replica' },
          { field: 'Value #A', title: 'Lacks for', unit: 's', width: 110 },
          { field: 'Value #B', title: 'Cut off', unit: 'percentunit', decimals: 0, width: 100, thresholds: [[null, 'text'], [th.replicaUnreached, 'bad']] },
          { field: 'Value #C', title: 'Whole', width: 90, mappings: [[0, 'no', 'warn'], [1, 'yes', 'ok']], thresholds: [[null, 'text']] },
        ],
        sortBy: 'Lacks for',
        quiet: 'each replica has what the others of its shard have',
        budget: 200,
      }),
    ]),
  ],
}
