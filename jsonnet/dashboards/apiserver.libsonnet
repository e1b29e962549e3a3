// The API server, in the order in which one asks: does it answer, whom does it
// refuse, what is slow, what makes the load, which server suffers.
{
  local c = $._config,
  local g = (import '../lib/g.libsonnet')(c),
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local th = c.thresholds.apiserver,
  local slo = c.slo.apiserver,
  local f = {
    cl: g.cl,
    cluster: c.clusterLabel,
    apiserver: c.selectors.apiserver,
    scheduler: c.selectors.scheduler,
    manager: c.selectors.controllerManager,
    i: g.i,
    // The reader may choose servers and priority levels.
    server: 'instance=~"$instance"',
    level: 'priority_level=~"$priority_level"',
    schema: 'flow_schema=~"$flow_schema"',
    watched: c.k8s.watchResource,
    objects: c.k8s.storedObjects,
    requests: 'sum(cluster_code:apiserver_requests:rate5m{%s})' % g.cl,
    budget: 1 - slo.target,
    days: slo.days,
  },
  local answers(matcher) = 'sum(cluster_code:apiserver_requests:rate5m{%s, %s}) or 0 * %s' % [g.cl, matcher, f.requests],
  local share(matcher) = '(%s) / %s' % [answers(matcher), f.requests],

  // spent is how many times faster than allowed the budget goes, over a window.
  local spent(bad, all, window, by='') =
    'sum%(by)s (avg_over_time(%(bad)s{%(cl)s}[%(w)s])) / sum%(by)s (avg_over_time(%(all)s{%(cl)s}[%(w)s])) / %(budget)g'
    % (f { bad: bad, all: all, w: t.d(window), by: if by == '' then '' else ' by (%s)' % by }),
  local errors(window, by='') = spent('cluster_verb:apiserver_request_errors:rate5m', 'cluster_verb:apiserver_requests:rate5m', window, by),
  local slow(window, by='') = spent('cluster_verb:apiserver_sli_slow:rate5m', 'cluster_verb:apiserver_sli_judged:rate5m', window, by),

  local quantile(q, by) =
    // Sums of fractions are not quite equal in buckets that are; rounded, no bucket is smaller than the one below it.
    'histogram_quantile(%g, round(sum by (%s, le) (cluster_verb_scope_le:apiserver_request_sli_duration_seconds_bucket:rate5m{%s, verb!="WATCH"}), 1e-6))' % [q, by, g.cl],

  // The verbs that there are, apart from each other.
  local verbs = [
    { match: { name: v[0] }, color: v[1] }
    for v in [['LIST', 'c'], ['GET', 'a'], ['POST', 'b'], ['PUT', 'f'], ['PATCH', 'g'], ['DELETE', 'd'], ['DELETECOLLECTION', 'h'], ['APPLY', 'e']]
  ],

  local seats = |||
    max by (priority_level) (
      sum by (%(cluster)s, instance, priority_level) (apiserver_flowcontrol_current_executing_seats{%(apiserver)s, %(cl)s, %(server)s, %(level)s, priority_level!="exempt"})
      / (sum by (%(cluster)s, instance, priority_level) (apiserver_flowcontrol_current_limit_seats{%(apiserver)s, %(cl)s, %(server)s, %(level)s, priority_level!="exempt"}) > 0)
    )
  ||| % f,

  grafanaDashboards+:: {
    'apiserver.json': g.dashboard({
      name: 'apiserver',
      title: 'API server',
      description: 'Does the API server answer, whom does it refuse, what is slow, and who makes the load?',
      variables: [
        g.clusterVar,
        g.var('instance', 'Server', 'label_values(up{%(apiserver)s, %(cl)s}, instance)' % f, { includeAll: true, multi: true }),
        g.var('priority_level', 'Priority level', 'label_values(apiserver_flowcontrol_current_limit_seats{%(apiserver)s, %(cl)s}, priority_level)' % f, { includeAll: true, multi: true }),
        g.var('flow_schema', 'Flow schema', 'label_values(apiserver_flowcontrol_current_executing_seats{%(apiserver)s, %(cl)s}, flow_schema)' % f, { includeAll: true, multi: true }),
      ],
      rows: [
        g.row('', [
          g.stat('Requests failed', {
            description: 'Answers with 5xx, as a share of all. Normal is next to nothing; above %g %% somebody is paged. The row of failures says which resource.' % (100 * th.errors),
            unit: 'percentunit',
            decimals: 2,
            verdict: true,
            thresholds: [[null, 'ok'], [th.errors / 4, 'warn'], [th.errors, 'bad']],
            targets: [g.q(share('code=~"5.."'))],
            trouble: ['APIErrors'],
          }),
          g.stat('Requests refused', {
            description: 'Answers with 429, as a share of all. Normal is zero; above %g %% one sort of client asks too much, above %g %% controllers and kubelets starve.' % [100 * th.throttling, 100 * th.throttlingSevere],
            unit: 'percentunit',
            decimals: 2,
            thresholds: [[null, 'ok'], [th.throttling, 'warn'], [th.throttlingSevere, 'bad']],
            targets: [g.q('sum(cluster:apiserver_throttled:rate5m{%(cl)s}) / %(requests)s' % f)],
            trouble: ['APIThrottling', 'APIThrottlingInFlight'],
          }),
          g.stat('Requests too slow', {
            description: 'Requests that took longer than the objective allows (%g s for one object or a write, %g s for a namespace, %g s for all), as a share of those that are judged. The objective allows %g %%.' % [slo.slowResource, slo.slowNamespace, slo.slowCluster, 100 * f.budget],
            unit: 'percentunit',
            decimals: 2,
            thresholds: [[null, 'ok'], [f.budget, 'warn'], [5 * f.budget, 'bad']],
            targets: [g.q('sum(cluster_verb:apiserver_sli_slow:rate5m{%(cl)s}) / sum(cluster_verb:apiserver_sli_judged:rate5m{%(cl)s})' % f)],
            trouble: ['APISlow'],
          }),
          g.stat('Error budget left', {
            description: 'What is left of the errors and slow answers that the objective of %g %% allows in %d days, for the worse of the two. At zero, stop risky changes.' % [100 * slo.target, slo.days],
            unit: 'percentunit',
            decimals: 0,
            thresholds: [[null, 'bad'], [0, 'warn'], [0.25, 'ok']],
            targets: [g.q('1 - max(%s or %s)' % [
              'label_replace(%s, "spent", "errors", "", "")' % errors('%dd' % slo.days, 'verb'),
              'label_replace(%s, "spent", "slow", "", "")' % slow('%dd' % slo.days, 'verb'),
            ])],
            trouble: ['APIErrors', 'APISlow'],
          }),
          g.stat('Seats taken', {
            description: 'Seats in use on the busiest server of the busiest priority level. Above %g %% requests queue, then are refused.' % (100 * th.seats),
            unit: 'percentunit',
            decimals: 0,
            thresholds: [[null, 'ok'], [th.seats * 0.8, 'warn'], [th.seats, 'bad']],
            targets: [g.q('max(%s)' % seats)],
            trouble: ['APIThrottling'],
          }),
          g.stat('Requests', {
            description: 'Requests answered in a second, probes left out.',
            unit: 'reqps',
            sparkline: true,
            targets: [g.q(f.requests)],
          }),
        ]),
        g.row('Answers', [
          g.timeseries('Answers by what became of them', {
            description: 'Requests in a second: served, refused with 429, failed with 5xx, and what clients asked wrongly (4xx). Red or orange that can be seen here is an incident.',
            unit: 'reqps',
            w: 12,
            stack: true,
            colors: ['a', 'd', 'warn', 'bad'],
            targets: [
              g.q(answers('code=~"[123].."'), 'served'),
              g.q(answers('code=~"4..", code!="429"'), 'asked wrongly (4xx)'),
              g.q(answers('code="429"'), 'refused (429)'),
              g.q(answers('code=~"5.."'), 'failed (5xx)'),
            ],
            trouble: ['APIErrors', 'APIThrottling'],
          }),
          g.timeseries('Failed and refused', {
            description: 'The same as shares, so that the little that matters can be seen. The dashed line is where people are paged for failures.',
            unit: 'percentunit',
            w: 12,
            colors: ['bad', 'warn'],
            thresholds: [[null, 'ok'], [th.errors, 'bad']],
            targets: [
              g.q(share('code=~"5.."'), 'failed (5xx)'),
              g.q('sum(cluster:apiserver_throttled:rate5m{%(cl)s}) / %(requests)s' % f, 'refused (429)'),
            ],
            trouble: ['APIErrors', 'APIThrottling', 'APIThrottlingInFlight'],
          }),
          g.timeseries('Failures by resource', {
            description: 'Answers with 5xx in a second by resource and verb, the eight most frequent. One resource is a webhook or an aggregated API; all of them are etcd.',
            unit: 'reqps',
            w: 8,
            quiet: 'nothing fails',
            targets: [g.q(|||
              topk(8, sum by (resource, verb) (
                rate(apiserver_request_total{%(apiserver)s, %(cl)s, %(server)s, code=~"5..", subresource!~"/readyz|/livez|/healthz"}[%(i)s])
              ) > 0)
            ||| % f, '{{verb}} {{resource}}')],
            trouble: ['APIErrors'],
          }),
          g.timeseries('Cut short and unreachable', {
            description: 'Requests that the server ended itself, by code: time-outs, and 503 for APIs that the aggregator cannot reach. The answers above do not count the latter.',
            unit: 'reqps',
            w: 8,
            quiet: 'no request is cut short',
            targets: [g.q(|||
              topk(8, sum by (component, code) (
                rate(apiserver_request_terminations_total{%(apiserver)s, %(cl)s, %(server)s, code!="429"}[%(i)s])
              ) > 0)
            ||| % f, '{{component}} {{code}}')],
            trouble: ['APIAggregatorDown'],
          }),
          g.timeseries('Reads and writes', {
            description: 'Requests that count towards the objective, in a second.',
            unit: 'reqps',
            w: 8,
            targets: [
              g.q('sum(cluster_verb:apiserver_requests:rate5m{%(cl)s, verb="read"})' % f, 'reads'),
              g.q('sum(cluster_verb:apiserver_requests:rate5m{%(cl)s, verb="write"})' % f, 'writes'),
            ],
          }),
        ]),
        g.row('Who is refused, and where it queues', [
          g.timeseries('Refused by flow schema', {
            description: 'Requests that priority and fairness refused, by the sort of client. This names the noisy one. Empty while 429 rises means that the plain in-flight limit refuses.',
            unit: 'reqps',
            w: 8,
            quiet: 'priority and fairness refuse nobody',
            noValue: 'None by priority and fairness',
            targets: [g.q(|||
              topk(8, sum by (flow_schema, reason) (
                rate(apiserver_flowcontrol_rejected_requests_total{%(apiserver)s, %(cl)s, %(server)s, %(level)s, %(schema)s}[%(i)s])
              ) > 0)
            ||| % f, '{{flow_schema}}: {{reason}}')],
            trouble: ['APIThrottling'],
          }),
          g.timeseries('Seats taken by priority level', {
            description: "Share of a level's seats in use on its busiest server, the eight fullest levels. At the dashed line requests begin to queue.",
            unit: 'percentunit',
            max: 1,
            w: 8,
            thresholds: [[null, 'ok'], [th.seats, 'bad']],
            targets: [g.q('topk(8, %s)' % seats, '{{priority_level}}')],
            trouble: ['APIThrottling'],
          }),
          g.timeseries('Seats by flow schema', {
            description: 'Seats that requests of a sort of client take, the eight largest: who makes the load, before anybody is refused.',
            unit: 'short',
            w: 8,
            stack: true,
            targets: [g.q('topk(8, sum by (flow_schema) (apiserver_flowcontrol_current_executing_seats{%(apiserver)s, %(cl)s, %(server)s, %(level)s, %(schema)s}))' % f, '{{flow_schema}}')],
            trouble: ['APIThrottling'],
          }),
        ]),
        g.row('Latency', [
          g.timeseries('Slow requests: 99 % by verb', {
            description: 'Time that 99 % of requests stay under, streams left out. LISTs of everything are slower by nature; a rise of writes is etcd or a webhook.',
            unit: 's',
            w: 8,
            overrides: verbs,
            targets: [g.q('topk(8, %s)' % quantile(0.99, 'verb'), '{{verb}}')],
            trouble: ['APISlow'],
          }),
          g.timeseries('Usual requests: 50 % by verb', {
            description: 'Time that half of the requests stay under. It moves only when everything is slow.',
            unit: 's',
            w: 8,
            overrides: verbs,
            targets: [g.q('topk(8, %s)' % quantile(0.5, 'verb'), '{{verb}}')],
            trouble: ['APISlow'],
          }),
          g.heatmap('How long requests take', {
            description: 'Requests in a second by the time they took, streams left out. A second band above the first one is a cause that only some requests meet.',
            unit: 's',
            w: 8,
            cellUnit: 'reqps',
            targets: [g.q('sum by (le) (cluster_verb_scope_le:apiserver_request_sli_duration_seconds_bucket:rate5m{%(cl)s, verb!="WATCH"})' % f, '{{le}}')],
            trouble: ['APISlow'],
          }),
          g.timeseries('Slow by what is asked', {
            description: 'Time that 99 %% of requests stay under by how much they ask for: one object, a namespace, everything. The objective allows %g, %g and %g s.' % [slo.slowResource, slo.slowNamespace, slo.slowCluster],
            unit: 's',
            w: 12,
            targets: [g.q(quantile(0.99, 'scope'), '{{scope}}')],
            trouble: ['APISlow'],
          }),
          g.timeseries('Admission webhooks: 99 %', {
            description: 'Time that 99 % of calls to a webhook stay under, the eight slowest. Each write of its resources waits for it: it should be far below a second.',
            unit: 's',
            w: 12,
            targets: [g.q(|||
              topk(8, histogram_quantile(0.99, round(sum by (name, le) (
                rate(apiserver_admission_webhook_admission_duration_seconds_bucket{%(apiserver)s, %(cl)s, %(server)s}[%(i)s])
              ), 1e-6)))
            ||| % f, '{{name}}')],
          }),
        ]),
        g.row('Error budget', [
          g.timeseries('Spent on errors', {
            description: 'How many times faster than allowed errors spend the budget, over each window that alerts judge. 1 spends it exactly in %d days; %g for an hour pages.' % [slo.days, c.slo.windows[0].factor],
            unit: 'none',
            w: 12,
            softMax: 2,
            targets: [g.q(errors(w.long), w.long) for w in c.slo.windows],
            trouble: ['APIErrors'],
          }),
          g.timeseries('Spent on slow answers', {
            description: 'The same for requests that took too long. It is judged apart from errors, since the causes are others.',
            unit: 'none',
            w: 12,
            softMax: 2,
            targets: [g.q(slow(w.long), w.long) for w in c.slo.windows],
            trouble: ['APISlow'],
          }),
        ]),
        g.row('What makes the load', [
          g.timeseries('Watch traffic by resource', {
            description: 'Bytes of watch events sent in a second, the eight heaviest resources. Each change goes to every watcher: Endpoints and Nodes grow with the square of the fleet.',
            unit: 'Bps',
            w: 8,
            thresholds: [[null, 'ok'], [th.watchBytesPerSecond, 'bad']],
            thresholdLine: 'off',
            targets: [g.q('topk(8, sum by (%(watched)s) (cluster_resource:apiserver_watch_events_bytes:rate5m{%(cl)s}))' % f, '{{%s}}' % c.k8s.watchResource)],
            trouble: ['APIWatchTraffic'],
          }),
          g.timeseries('Stored objects by resource', {
            description: 'Objects in etcd, the eight most numerous resources. What only grows is not cleaned up, and makes LISTs and restarts slow.',
            unit: 'short',
            w: 8,
            log: true,
            targets: [g.q('topk(8, max by (resource) (%(objects)s{%(apiserver)s, %(cl)s}))' % f, '{{resource}}')],
          }),
          g.timeseries('Requests under way', {
            description: 'Requests that change something and that only read, over all servers. A plateau is the in-flight limit.',
            unit: 'short',
            w: 8,
            targets: [g.q('sum by (request_kind) (apiserver_current_inflight_requests{%(apiserver)s, %(cl)s, %(server)s})' % f, '{{request_kind}}')],
          }),
        ]),
        g.row('Servers', [
          g.timeseries('Memory', {
            description: 'Resident memory of each server. One far above the others has kept the connections that others lost when they restarted; restart it to spread them.',
            unit: 'bytes',
            w: 8,
            thresholds: [[null, 'ok'], [th.memoryBytes, 'bad']],
            thresholdLine: 'off',
            targets: [g.q('max by (%(cluster)s, instance) (process_resident_memory_bytes{%(apiserver)s, %(cl)s, %(server)s})' % f, '{{%s}} {{instance}}' % c.clusterLabel)],
            trouble: ['APIServerMemory'],
          }),
          g.timeseries('Processors in use', {
            description: 'CPU of each server, in cores.',
            unit: 'none',
            w: 8,
            targets: [g.q('sum by (%(cluster)s, instance) (rate(process_cpu_seconds_total{%(apiserver)s, %(cl)s, %(server)s}[%(i)s]))' % f, '{{%s}} {{instance}}' % c.clusterLabel)],
          }),
          g.stateTimeline('Is it measured?', {
            description: 'Whether the page of each server could be scraped. While it cannot be, everything above is blind; suspect etcd first, for which the page waits.',
            unit: 'none',
            w: 8,
            legend: 'hidden',
            mappings: [[0, 'not scraped', 'bad'], [1, 'scraped', 'ok']],
            targets: [g.q('max by (%(cluster)s, instance) (up{%(apiserver)s, %(cl)s, %(server)s})' % f, '{{%s}} {{instance}}' % c.clusterLabel)],
            trouble: ['EtcdHung'],
          }),
        ]),
        g.row('Scheduler and controller manager', [
          g.stateTimeline('Who leads?', {
            description: 'Which instance of the scheduler and of the controller manager leads. One of each does; the others stand by and do nothing. Empty where their pages are not scraped.',
            unit: 'none',
            w: 6,
            legend: 'hidden',
            mappings: [[0, 'stands by', 'a2'], [1, 'leads', 'a']],
            targets: [g.q('max by (%(cluster)s, job, instance) (leader_election_master_status{%(scheduler)s, %(cl)s} or leader_election_master_status{%(manager)s, %(cl)s})' % f, '{{%s}} {{job}} {{instance}}' % c.clusterLabel)],
          }),
          g.timeseries('Pods that the scheduler has tried', {
            description: 'Tries in a second by what came of them. Nothing at all while pods wait in the active queue is a scheduler that hangs; many unschedulable ones are pods for which there is no room.',
            unit: 'ops',
            w: 6,
            targets: [g.q('sum by (result) (rate(scheduler_schedule_attempts_total{%(scheduler)s, %(cl)s}[%(i)s]))' % f, '{{result}}')],
          }),
          g.timeseries('What waits for controllers', {
            description: 'Objects that wait in queues of the controller manager, the eight longest. A queue that only grows is worked on by nobody, or too slowly.',
            unit: 'short',
            w: 6,
            targets: [g.q('topk(8, max by (name) (workqueue_depth{%(manager)s, %(cl)s}))' % f, '{{name}}')],
          }),
          g.timeseries('What controllers have had in hand for long', {
            description: 'How long the oldest object has been in work, the eight longest. Most are done within a second; what rises with the clock hangs, in a webhook, an API that is away or a cloud.',
            unit: 's',
            w: 6,
            targets: [g.q('topk(8, max by (name) (workqueue_longest_running_processor_seconds{%(manager)s, %(cl)s}))' % f, '{{name}}')],
          }),
        ]),
      ],
    }),
  },
}
