// Spillway itself: does it answer, whom does it refuse and why, which shard
// keeps it waiting, and how much of its memory is taken.
{
  local c = $._config,
  local g = (import '../lib/g.libsonnet')(c),
  local th = c.thresholds.spillway,
  local slo = c.slo.proxy,
  local f = {
    cl: g.cl,
    cluster: c.clusterLabel,
    // One process.
    proxy: '%s, %s, instance=~"$instance"' % [g.cl, c.selectors.proxy],
    // One endpoint of it.
    on: '%s, %s, instance=~"$instance", endpoint=~"$endpoint"' % [g.cl, c.selectors.proxy],
    // What it asks.
    shards: '%s, %s, instance=~"$instance", group=~"$group", shard=~"$shard"' % [g.cl, c.selectors.proxy],
    // As the alerts have it: no fault of the caller.
    failed: 'outcome=~"internal|shard_failed|timeout|unavailable|overloaded"',
    capacity: (import '../lib/bounds.libsonnet').capacity,
    i: g.i,
  },
  local shards = (import '../lib/shards.libsonnet')(c, f),
  local replica = shards.replica,
  local shard = shards.shard,

  // share of the requests that come to such an end. A counter that has not begun is a share of nothing.
  local share(matcher) = '(sum(rate(spillway_requests_total{%(on)s, %(m)s}[%(i)s])) or 0 * sum(rate(spillway_requests_total{%(on)s}[%(i)s]))) / sum(rate(spillway_requests_total{%(on)s}[%(i)s]))' % (f { m: matcher }),

  grafanaDashboards+:: {
    'proxy.json': g.dashboard({
      name: 'proxy',
      title: 'Query proxy',
      description: 'Does Spillway answer, whom does it refuse and why, and which shard keeps it waiting.',
      variables: [
        g.clusterVar,
        g.var('instance', 'Spillway', 'label_values(spillway_config_last_reload_successful{%s, %s}, instance)' % [g.cl, c.selectors.proxy], { multi: true, includeAll: true, description: 'Spillway processes.' }),
        g.var('endpoint', 'Endpoint', 'label_values(spillway_requests_total{%s, %s}, endpoint)' % [g.cl, c.selectors.proxy], { multi: true, includeAll: true, description: 'Endpoints of the API that were asked.' }),
        g.var('group', 'Group', 'label_values(spillway_shard_replica_state{%s, %s}, group)' % [g.cl, c.selectors.proxy], { multi: true, includeAll: true, description: 'Groups of the configuration.' }),
        g.var('shard', 'Shard', 'label_values(spillway_shard_replica_state{%s, %s, group=~"$group"}, shard)' % [g.cl, c.selectors.proxy], { multi: true, includeAll: true, description: 'Shards of the groups.' }),
        g.textVar('bound', 'Bound', '.*', 'Regular expression over the names of bounds.'),
      ],
      rows: [
        g.row('', [
          g.stat('Requests failed', {
            description: 'Requests that failed although they were well asked, 429 for want of room among them, as a share. Next to none is normal; ProxyErrorRatio pages at %g %%. The outcomes below say whether a shard did it.' % (100 * th.errors),
            unit: 'percentunit',
            decimals: 2,
            thresholds: [[null, 'ok'], [1 - slo.availability, 'warn'], [th.errors, 'bad']],
            targets: [g.q(share(f.failed))],
            verdict: true,
          }),
          g.stat('Requests', {
            description: 'Requests a second that were answered, whatever the answer.',
            unit: 'reqps',
            sparkline: true,
            targets: [g.q('sum(rate(spillway_requests_total{%(on)s}[%(i)s]))' % f)],
          }),
          g.stat('99 % answer within', {
            description: '99 %% of requests take no longer. The objective is %g s for %g %% of them.' % [slo.latencySeconds, 100 * slo.latency],
            unit: 's',
            thresholds: [[null, 'ok'], [slo.latencySeconds / 2, 'warn'], [slo.latencySeconds, 'bad']],
            targets: [g.q('histogram_quantile(0.99, sum by (le) (rate(spillway_request_duration_seconds_bucket{%(on)s}[%(i)s])))' % f)],
          }),
          g.stat('Requests refused', {
            description: 'Requests that a bound refused, as a share. A few are what bounds are for; above %g %% a dashboard asks too much or a bound is too tight.' % (100 * th.refused),
            unit: 'percentunit',
            decimals: 2,
            thresholds: [[null, 'ok'], [th.refused / 2, 'warn'], [th.refused, 'bad']],
            targets: [g.q(share('verdict="refuse"'))],
          }),
          g.stat('Memory, of the budget', {
            description: 'The most that requests wanted of memory.budget at once within a minute or two, in the fullest process. What goes beyond 100 %% is refused with 429; ProxyMemoryNearBudget fires at %g %%.' % (100 * th.memory),
            unit: 'percentunit',
            decimals: 1,
            thresholds: [[null, 'ok'], [0.7 * th.memory, 'warn'], [th.memory, 'bad']],
            targets: [g.q('max(spillway_memory_budget_peak_bytes{%(proxy)s} / spillway_memory_budget_bytes{%(proxy)s})' % f)],
          }),
          g.stat('Shards out of reach', {
            description: 'Shards of which no replica can be asked. None is normal; queries that need one fail, and the ruler is blind there: ProxyShardDown.',
            unit: 'short',
            thresholds: [[null, 'ok'], [1, 'bad']],
            targets: [g.q('sum(max by (%(cluster)s, group, shard) (1 - max by (%(cluster)s, instance, group, shard) (spillway_shard_replica_state{%(shards)s, state="up"})))' % f)],
          }),
        ]),
        g.row('Who asks, and how does it end?', [
          g.timeseries('Requests by endpoint', {
            description: 'Requests a second by endpoint of the API. Grafana makes query_range and series; a flood of labels or series is usually a variable that refreshes too often.',
            unit: 'reqps',
            w: 12,
            stack: true,
            targets: [g.q('topk(10, sum by (endpoint) (rate(spillway_requests_total{%(on)s}[%(i)s])))' % f, '{{endpoint}}')],
            budget: 100,
          }),
          g.timeseries('Requests by outcome', {
            description: "How requests ended. too_expensive and overloaded are bounds; shard_failed and timeout are a shard's doing; canceled is a client that left; bad_data the caller's mistake.",
            unit: 'reqps',
            w: 12,
            stack: true,
            targets: [g.q('sum by (outcome) (rate(spillway_requests_total{%(on)s}[%(i)s])) > 0' % f, '{{outcome}}')],
            overrides: [
              { match: { name: 'success' }, color: 'd' },
              { match: { regex: '/internal|shard_failed|timeout|unavailable/' }, color: 'bad' },
              { match: { regex: '/too_expensive|overloaded/' }, color: 'warn' },
            ],
          }),
          g.timeseries('How long requests take', {
            description: 'The time that half, 90 % and 99 % of requests take no longer than, from arrival to the end of the answer. All three up: the shards; the last alone: a few heavy queries.',
            unit: 's',
            w: 12,
            targets: [
              g.q('histogram_quantile(%s, sum by (le) (rate(spillway_request_duration_seconds_bucket{%s}[%s])))' % [q[0], f.on, f.i], q[1])
              for q in [['0.5', 'p50'], ['0.9', 'p90'], ['0.99', 'p99']]
            ],
          }),
          g.timeseries('Slowest endpoints', {
            description: '99 % of the requests of an endpoint take no longer: the five slowest endpoints.',
            unit: 's',
            w: 12,
            targets: [g.q('topk(5, histogram_quantile(0.99, sum by (endpoint, le) (rate(spillway_request_duration_seconds_bucket{%(on)s}[%(i)s]))) > 0)' % f, '{{endpoint}}')],
            budget: 100,
          }),
          g.heatmap('Time of requests', {
            description: 'Requests a second by how long they took. Two bands are two sorts of callers; a band that climbs is a shard that slows down.',
            unit: 's',
            cellUnit: 'reqps',
            w: 12,
            targets: [g.q('sum by (le) (rate(spillway_request_duration_seconds_bucket{%(on)s}[%(i)s]))' % f, '{{le}}')],
          }),
          g.table('Endpoints', {
            description: 'What each endpoint costs now: requests, series held or returned, samples, bytes to clients and bytes read from shards, all a second. Much read for little written is work for the shards that nobody sees.',
            w: 12,
            targets: [
              g.q('sum by (endpoint) (rate(%s{%s}[%s])) > 0' % [m, f.on, f.i])
              for m in ['spillway_requests_total', 'spillway_series_total', 'spillway_samples_total', 'spillway_response_bytes_total', 'spillway_shard_read_bytes_total']
            ],
            columns: [
              { field: 'endpoint', title: 'Endpoint', link: g.link('Only this endpoint', 'proxy', { endpoint: g.field('endpoint') }) },
              { field: 'Value #A', title: 'Requests', unit: 'reqps', width: 110 },
              { field: 'Value #B', title: 'Series', unit: 'cps', width: 110 },
              { field: 'Value #C', title: 'Samples', unit: 'cps', width: 110 },
              { field: 'Value #D', title: 'To clients', unit: 'Bps', width: 110 },
              { field: 'Value #E', title: 'From shards', unit: 'Bps', width: 110 },
            ],
            sortBy: 'From shards',
          }),
        ]),
        g.row('Who is refused, and why?', [
          g.timeseries('Verdicts', {
            description: 'Requests a second that passed, were narrowed (clamp, metadata only) or were refused. Clamps cost nobody anything; refusals are shown in the panel that made them.',
            unit: 'reqps',
            w: 8,
            stack: true,
            targets: [g.q('sum by (verdict) (rate(spillway_requests_total{%(on)s}[%(i)s]))' % f, '{{verdict}}')],
            overrides: [
              { match: { name: 'pass' }, color: 'd' },
              { match: { name: 'clamp' }, color: 'a' },
              { match: { name: 'refuse' }, color: 'warn' },
            ],
          }),
          g.timeseries('Refusals by bound', {
            description: 'Requests a second that each bound refused. The page of a bound in docs/bounds says what to do: ask for less, or raise it for that tenant. Those in shadow (limits.shadow) would have refused, narrowed or cut.',
            unit: 'reqps',
            w: 8,
            stack: true,
            targets: [
              g.q('sum by (bound) (rate(spillway_refusals_total{%(on)s, bound=~"$bound"}[%(i)s]))' % f, '{{bound}}'),
              g.q('sum by (bound) (rate(spillway_shadow_requests_total{%(proxy)s, bound=~"$bound"}[%(i)s]))' % f, 'in shadow: {{bound}}'),
            ],
            quiet: 'no request was refused since Spillway was started',
          }),
          g.table('Refusals by endpoint and bound', {
            description: 'What was refused where in the last hour. One row far ahead of the others is one dashboard or one rule; the usage log names it.',
            w: 8,
            targets: [g.q('topk(20, sum by (endpoint, bound) (%s) > 0)' % shards.inHour('spillway_refusals_total', f.on + ', bound=~"$bound"'))],
            columns: [
              { field: 'endpoint', title: 'Endpoint' },
              { field: 'bound', title: 'Bound', link: g.linkOut('What it is', 'https://github.com/spillwayproject/spillway/blob/main/docs/bounds/${__value.raw}.md') },
              { field: 'Value', title: 'In an hour', unit: 'short', decimals: 0 },
            ],
            sortBy: 'In an hour',
            quiet: 'no request was refused within an hour',
          }),
          g.timeseries('Answers that lack shards', {
            softMax: 1,
            description: 'Shards a second that answers went without because their readers accept partial answers. The ruler never does.',
            unit: 'cps',
            w: 8,
            targets: [g.q('sum by (endpoint) (rate(spillway_partial_answers_total{%(on)s}[%(i)s])) or 0 * sum by (endpoint) (rate(spillway_requests_total{%(on)s}[%(i)s]))' % f, '{{endpoint}}')],
            budget: 100,
          }),
          g.timeseries('Clients that left', {
            softMax: 1,
            description: 'Requests a second whose client did not wait for the answer: dashboards that were closed, or answers that came too late.',
            unit: 'reqps',
            w: 8,
            targets: [g.q('sum(rate(spillway_cancellations_total{%(on)s}[%(i)s])) or 0 * sum(rate(spillway_requests_total{%(on)s}[%(i)s]))' % f, 'left')],
          }),
          g.timeseries('How queries are answered', {
            description: 'Plans a second. pass, splice and push leave the work to the shards; mixed and raw bring series into Spillway, which costs its memory. Much raw: see below whether replicas are whole.',
            unit: 'reqps',
            w: 8,
            stack: true,
            targets: [g.q('sum by (mode) (rate(spillway_query_plans_total{%(proxy)s}[%(i)s]))' % f, '{{mode}}')],
          }),
        ]),
        g.row('What does it cost here?', [
          g.timeseries('Why series are fetched', {
            description: 'Plans a second that fetch series, by cause. expression is what queries ask for, no_heartbeat a pair that the configuration gives no heartbeat; every other cause lies with servers, and ProxyRawPlans names it above %g %% of all.' % (100 * th.rawPlans),
            unit: 'reqps',
            w: 8,
            stack: true,
            targets: [g.q('sum by (cause) (rate(spillway_query_plans_total{%(proxy)s, cause!="none"}[%(i)s]))' % f, '{{cause}}')],
            quiet: 'no query needed series since Spillway was started',
          }),
          g.timeseries('Processors', {
            description: 'Share of the processors that each Spillway uses of those that it may use: GOMAXPROCS, or the CPU limit of its container where that is less. ProxyProcessorBusy fires above %g %%.' % (100 * th.processor),
            unit: 'percentunit',
            w: 8,
            softMax: 1,
            targets: [g.q('rate(process_cpu_seconds_total{%(proxy)s}[%(i)s]) / spillway_processors{%(proxy)s}' % f, '{{instance}}')],
          }),
          g.timeseries('Memory wanted at once', {
            description: 'The most that requests wanted of memory.budget within a minute or two; above 100 % some got 429. Peaks far above the mean are bursts: more of the same at once.',
            unit: 'percentunit',
            w: 8,
            softMax: 1,
            targets: [g.q('spillway_memory_budget_peak_bytes{%(proxy)s} / spillway_memory_budget_bytes{%(proxy)s}' % f, '{{instance}}')],
          }),
        ]),
        g.row('Is there room, and what is held back?', [
          g.timeseries('Memory held, of the ceiling', {
            description: 'What is really held after a collection, as a share of what the process may hold. Above 80 %% large requests get no more, above 90 %% the heaviest is ended; ProxyMemoryNearCeiling fires above %g %%.' % (100 * th.held),
            unit: 'percentunit',
            w: 8,
            softMax: 1,
            targets: [g.q('max by (instance) (spillway_memory_held_bytes{%(proxy)s} / spillway_memory_ceiling_bytes{%(proxy)s})' % f, '{{instance}}')],
          }),
          g.timeseries('Requests without room', {
            description: 'Requests a second that were ended so that memory lasts, and those that a bound of capacity refused with 429: whatever they ask for; by lane, calls that found no place at a shard. Refusals by bound, above, says by which; ProxyOverloaded fires above %g %% of requests.' % (100 * th.overloaded),
            unit: 'reqps',
            w: 8,
            softMax: 1,
            targets: [
              g.q('sum(rate(spillway_evictions_total{%(proxy)s}[%(i)s]))' % f, 'ended for memory'),
              g.q('sum(rate(spillway_refusals_total{%(proxy)s, bound=~"%(capacity)s"}[%(i)s])) or 0 * sum(rate(spillway_evictions_total{%(proxy)s}[%(i)s]))' % f, 'refused'),
              g.q('sum by (lane) (rate(spillway_lane_refused_total{%(proxy)s}[%(i)s]))' % f, 'no place, lane: {{lane}}'),
            ],
          }),
          g.timeseries('Evaluations', {
            description: 'Evaluations at work in each Spillway, and those that wait for a processor. Many that wait: more processors, fewer raw plans, or a recording rule.',
            unit: 'short',
            w: 8,
            softMax: 1,
            targets: [
              g.q('sum by (instance) (spillway_evaluations_running{%(proxy)s})' % f, 'running: {{instance}}'),
              g.q('sum by (instance) (spillway_evaluations_waiting{%(proxy)s})' % f, 'waiting: {{instance}}'),
            ],
          }),
          g.timeseries('Calls that wait for a place', {
            description: 'Calls that wait at any time, on average: for a place at a shard (replica_calls, the ten most, and by lane, docs/lanes.md) and for one in the process (process_calls). ProxyCallsWaiting fires above %g.' % th.callsWaiting,
            unit: 'short',
            w: 8,
            softMax: 1,
            targets: [
              g.q('topk(10, sum by (group, shard) (rate(spillway_shard_calls_wait_seconds_total{%(shards)s}[%(i)s])))' % f, shard),
              g.q('sum by (lane) (rate(spillway_lane_wait_seconds_total{%(proxy)s}[%(i)s]))' % f, 'lane: {{lane}}'),
              g.q('sum by (instance) (rate(spillway_calls_wait_seconds_total{%(proxy)s}[%(i)s]))' % f, 'process: {{instance}}'),
            ],
            budget: 100,
          }),
          g.timeseries('Calls, of process_calls', {
            description: 'Calls to all shards that are under way, as a share of how many there may be. At 100 % others wait. limits.process_calls says how many, or a quarter of the files that the process may open.',
            unit: 'percentunit',
            w: 8,
            softMax: 1,
            targets: [g.q('max by (instance) (spillway_calls_in_flight{%(proxy)s} / spillway_calls_limit{%(proxy)s})' % f, '{{instance}}')],
          }),
          g.timeseries('Silent replicas', {
            description: 'Replicas that take connections and answer nothing while no other one of their shard is sound, the ten first: 1 while requests that need one fail at once. ProxyReplicaSilent pages.',
            unit: 'short',
            w: 8,
            softMax: 1,
            targets: [g.q('topk(10, max by (group, shard, replica) (spillway_shard_replica_silent{%(shards)s}))' % f, replica)],
            budget: 100,
          }),
          g.timeseries('Queries held back', {
            description: 'Calls within the last hour, the ten most: on which a replica worked when it ended, whose queries are not sent to its copies for some minutes (ProxyQuarantine tells of each); and those spared a server that has nearly no memory left.',
            unit: 'short',
            w: 8,
            softMax: 1,
            targets: [
              g.q('topk(10, sum by (group, shard, replica) (increase(spillway_shard_quarantined_total{%(shards)s}[1h])))' % f, replica),
              g.q('sum(increase(spillway_shard_shed_total{%(shards)s}[1h])) or 0 * sum(increase(spillway_shard_quarantined_total{%(shards)s}[1h]))' % f, 'spared for memory'),
            ],
            budget: 100,
          }),
          g.timeseries('Tries that were not made', {
            description: 'Second tries a second that were not made, since a tenth of all calls were second ones already, and connections that this machine had no file, port or buffer left for. Both are none while all is well.',
            unit: 'cps',
            w: 8,
            softMax: 1,
            targets: [
              g.q('sum(rate(spillway_shard_retries_refused_total{%(proxy)s}[%(i)s]))' % f, 'second tries refused'),
              g.q('sum(rate(spillway_local_dial_failures_total{%(proxy)s}[%(i)s]))' % f, 'connections not to be had here'),
            ],
          }),
          g.timeseries('Memory of servers, of their limit', {
            description: 'What a server holds and cannot give back, by its own metrics, as a share of what it may (GOMEMLIMIT or memory_limit), the ten fullest; 0 where that is not known. From 80 % heavy queries go to a copy; from 90 %, where none has memory, they are refused. ProxyReplicaNoMemory tells after ten minutes.',
            unit: 'percentunit',
            w: 8,
            softMax: 1,
            targets: [g.q('topk(10, max by (group, shard, replica) (spillway_shard_memory_bytes{%(shards)s} / (spillway_shard_memory_limit_bytes{%(shards)s} > 0) or 0 * spillway_shard_memory_bytes{%(shards)s}))' % f, replica)],
            budget: 100,
          }),
        ]),
      ] + shards.rows + [
        g.row('The process', [
          g.timeseries('Memory', {
            description: "Resident memory of each process, what requests hold of it, and their budget. Resident far above held is Go's heap between collections.",
            unit: 'bytes',
            w: 12,
            targets: [
              g.q('max by (instance) (process_resident_memory_bytes{%(proxy)s})' % f, 'resident: {{instance}}'),
              g.q('max by (instance) (spillway_memory_budget_used_bytes{%(proxy)s})' % f, 'held by requests: {{instance}}'),
              g.q('min(spillway_memory_budget_bytes{%(proxy)s})' % f, 'budget'),
            ],
            overrides: [{ match: { name: 'budget' }, color: 'd', dash: [8, 6] }],
          }),
          g.heatmap('Most memory of one request', {
            description: 'Requests a second by the most memory that each held at once. The top rows are the dashboards worth rewriting.',
            unit: 'bytes',
            cellUnit: 'reqps',
            w: 12,
            targets: [g.q('sum by (le) (rate(spillway_request_peak_bytes_bucket{%(proxy)s}[%(i)s]))' % f, '{{le}}')],
          }),
          g.timeseries('Requests in flight', {
            description: 'Requests that are being answered, and open client connections of the main listener.',
            unit: 'short',
            w: 8,
            targets: [
              g.q('sum by (instance) (spillway_requests_in_flight{%(proxy)s})' % f, 'requests: {{instance}}'),
              g.q('sum by (instance) (spillway_connections{%(proxy)s, listener="main"})' % f, 'connections: {{instance}}'),
            ],
          }),
          g.timeseries('CPU', {
            description: 'Cores in use by each process. It follows raw and mixed plans and the bytes that are read from shards.',
            unit: 'short',
            w: 8,
            targets: [g.q('sum by (instance) (rate(process_cpu_seconds_total{%(proxy)s}[%(i)s]))' % f, '{{instance}}')],
          }),
          g.timeseries('Usage log', {
            softMax: 1,
            description: 'Lines a second written to the usage log, and lines lost because the disk was too slow or refused them. Lost lines are use that the drop rules will not know of.',
            unit: 'cps',
            w: 8,
            colors: ['a', 'bad'],
            targets: [
              g.q('sum(rate(spillway_usage_log_lines_total{%(proxy)s}[%(i)s]))' % f, 'written'),
              g.q('sum(rate(spillway_usage_log_dropped_total{%(proxy)s}[%(i)s]))' % f, 'lost'),
            ],
          }),
          g.table('Processes', {
            description: 'Version, configuration and age of each process. Two hashes among them: a reload reached one and not the other. Reloaded is red while the newest file was refused and the one before is in force.',
            w: 24,
            h: 5,
            targets: [
              g.q('max by (%(cluster)s, instance, version, goversion) (spillway_build_info{%(proxy)s})' % f),
              g.q('max by (%(cluster)s, instance, hash) (spillway_config_info{%(proxy)s})' % f),
              g.q('min by (%(cluster)s, instance) (spillway_config_last_reload_successful{%(proxy)s})' % f),
              g.q('time() - max by (%(cluster)s, instance) (spillway_config_last_reload_success_timestamp_seconds{%(proxy)s})' % f),
              g.q('time() - max by (%(cluster)s, instance) (process_start_time_seconds{%(proxy)s})' % f),
              g.q('sum by (%(cluster)s, instance) (increase(spillway_panics_total{%(proxy)s}[1d]))' % f),
            ],
            columns: [
              { field: 'instance', title: 'Spillway' },
              { field: 'version', title: 'Version' },
              { field: 'goversion', title: 'Go' },
              { field: 'hash', title: 'Configuration' },
              { field: 'Value #C', title: 'Reloaded', mappings: [[0, 'refused', 'bad'], [1, 'yes', 'ok']], thresholds: [[null, 'text']] },
              { field: 'Value #D', title: 'Loaded ago', unit: 's' },
              { field: 'Value #E', title: 'Up for', unit: 's' },
              { field: 'Value #F', title: 'Faults in a day', unit: 'short', decimals: 0, thresholds: [[null, 'text'], [1, 'bad']] },
            ],
            sortBy: 'Spillway',
            sortDesc: false,
          }),
        ]),
      ],
    }),
  },
}
