// The Prometheus servers that hold the shards: whether they are up, who is next
// to run out of memory and why, and whether what they scrape and evaluate comes
// in.
//
// Servers are few and named, so a line for each is right here. What is about
// targets, of which there are tens of thousands, is recorded by job.
{
  local c = $._config,
  local g = (import '../lib/g.libsonnet')(c),
  local th = c.thresholds.prometheus,
  local f = {
    cl: g.cl,
    cluster: c.clusterLabel,
    ns: c.namespaceLabel,
    pod: c.podLabel,
    shard: c.prometheusShardLabel,
    container: c.prometheusContainer,
    prometheus: '%s, %s, instance=~"$instance"' % [g.cl, c.selectors.prometheus],
    copies: '%s, %s' % [g.cl, c.selectors.prometheus],  // all of them, whichever is chosen
    cadvisor: '%s, %s, container="%s", %s=~"$pod"' % [g.cl, c.selectors.cadvisor, c.prometheusContainer, c.podLabel],
    ksm: '%s, %s, container="%s", %s=~"$pod"' % [g.cl, c.selectors.ksm, c.prometheusContainer, c.podLabel],
    jobs: '%s, job=~"$job"' % g.cl,
    i: g.i,
  },
  local server = '{{%(cluster)s}} {{instance}}' % f,
  local toCardinality = g.link('Cardinality of the job', 'cardinality', { job: g.field('job') }),

  // used is the memory of each server as a share of its limit: what it could not give back at its last collection where it knows its limit, resident memory where it does not. Pods are not looked up by their address here, which would read
  // all of a cluster's: where targets do not have the labels of their pod a cluster is shown one way or the other.
  local told = '(go_gc_heap_live_bytes{%(prometheus)s} + go_memstats_sys_bytes{%(prometheus)s} - go_memstats_heap_sys_bytes{%(prometheus)s}) / (go_gc_gomemlimit_bytes{%(prometheus)s} < 1e15)' % f,
  local used = |||
    max by (%(cluster)s, %(ns)s, %(pod)s, instance) (%(told)s)
    or
    (
      max by (%(cluster)s, %(ns)s, %(pod)s) (container_memory_rss{%(cadvisor)s})
      unless on (%(cluster)s, %(ns)s, %(pod)s)
      (go_gc_heap_live_bytes{%(copies)s, %(pod)s!=""} and go_gc_gomemlimit_bytes{%(copies)s} < 1e15)
      unless on (%(cluster)s)
      (go_gc_heap_live_bytes{%(copies)s, %(pod)s=""} and go_gc_gomemlimit_bytes{%(copies)s} < 1e15)
    )
    / on (%(cluster)s, %(ns)s, %(pod)s)
    (
      max by (%(cluster)s, %(ns)s, %(pod)s) (container_spec_memory_limit_bytes{%(cadvisor)s}) > 0
      or on (%(cluster)s, %(ns)s, %(pod)s)
      max by (%(cluster)s, %(ns)s, %(pod)s) (kube_pod_container_resource_limits{%(ksm)s, resource="memory"})
    )
  ||| % (f { told: told }),

  // behind is how far each queue of remote write is behind. Before 3.7 a server has one newest timestamp for all of its queues.
  local behind = |||
    (
      prometheus_remote_storage_queue_highest_timestamp_seconds{%(prometheus)s}
      or
      0 * prometheus_remote_storage_queue_highest_sent_timestamp_seconds{%(prometheus)s}
      + on (%(cluster)s, instance) group_left ()
      max by (%(cluster)s, instance) (prometheus_remote_storage_highest_timestamp_in_seconds{%(prometheus)s})
      and
      prometheus_remote_storage_samples_pending{%(prometheus)s} > 0
    )
    - prometheus_remote_storage_queue_highest_sent_timestamp_seconds{%(prometheus)s}
  ||| % f,

  // state is 0 of a server that does not answer, 1 of one that reads its log, 2 of one that is ready.
  local state = |||
    (
      max by (%(cluster)s, instance) (up{%(prometheus)s})
      + on (%(cluster)s, instance)
      max by (%(cluster)s, instance) (prometheus_ready{%(prometheus)s})
    )
    or on (%(cluster)s, instance)
    0 * max by (%(cluster)s, instance) (up{%(prometheus)s})
  ||| % f,

  // down is the share of a job's targets that cannot be scraped.
  local down = '1 - cluster_job:targets_up:sum{%(jobs)s} / on (%(cluster)s, job) cluster_job:targets:count{%(jobs)s}' % f,

  // lines is a panel with a line for each server.
  local lines(title, o) = g.timeseries(title, { w: 12, targets: [g.q(o.expr % f, server)] } + { [k]: o[k] for k in std.objectFields(o) if k != 'expr' }),

  grafanaDashboards+:: {
    'prometheus.json': g.dashboard({
      name: 'prometheus',
      title: 'Prometheus and shards',
      description: 'Do all shards answer, which server is next to fall over, and what fills it.',
      variables: [
        g.clusterVar,
        g.var('instance', 'Server', 'label_values(up{%s, %s}, instance)' % [g.cl, c.selectors.prometheus], { multi: true, includeAll: true, description: 'Prometheus servers.' }),
        g.var('pod', 'Pod', 'label_values(container_memory_rss{%s, %s, container="%s"}, %s)' % [g.cl, c.selectors.cadvisor, c.prometheusContainer, c.podLabel], { multi: true, includeAll: true, description: 'Pods that Prometheus runs in.' }),
        g.var('job', 'Job', 'label_values(cluster_job:targets:count{%(cl)s}, job)' % f, { multi: true, includeAll: true, description: 'Jobs that are scraped.' }),
      ],
      rows: [
        g.row('', [
          g.stat('Shards without a server', {
            description: 'Shards of which no server answers and is ready. None is normal; of such a shard nothing can be asked, and its alerts are blind: PrometheusHAPairDown.',
            unit: 'short',
            thresholds: [[null, 'ok'], [1, 'bad']],
            targets: [g.q('count(max by (%(cluster)s, %(shard)s) (up{%(prometheus)s} * on (%(cluster)s, instance) group_left () (max by (%(cluster)s, instance) (prometheus_ready{%(prometheus)s}) or on (%(cluster)s, instance) 0 * max by (%(cluster)s, instance) (up{%(prometheus)s}))) < 1) or 0 * count(up{%(prometheus)s})' % f)],
            verdict: true,
          }),
          g.stat('Servers ready', {
            description: 'Servers that are up and have read their log, as a share of all. While one of a pair is away the other one is all there is.',
            unit: 'percentunit',
            max: 1,
            thresholds: [[null, 'bad'], [th.crashing, 'warn'], [1, 'ok']],
            targets: [g.q('(sum(prometheus_ready{%(prometheus)s}) or 0 * count(up{%(prometheus)s})) / count(up{%(prometheus)s})' % f)],
            trouble: ['PrometheusReplaying'],
          }),
          g.stat('Fullest memory', {
            description: 'Memory of the fullest server as a share of its limit. PrometheusMemoryNearLimit pages at %g %% of GOMEMLIMIT, or of the container at %g %% where a server knows none: after the kill it reads its log before it answers.' % [100 * th.reachable, 100 * th.memory],
            unit: 'percentunit',
            decimals: 0,
            thresholds: [[null, 'ok'], [th.memory, 'warn'], [th.reachable, 'bad']],
            targets: [g.q('max(%s)' % used)],
            trouble: ['PrometheusMemoryNearLimit', 'PrometheusOOMLoop', 'CardinalityJump'],
          }),
          g.stat('Series in all heads', {
            description: 'Series in memory, over all servers: copies count as often as there are. Memory follows it.',
            unit: 'short',
            sparkline: true,
            targets: [g.q('sum(prometheus_tsdb_head_series{%(prometheus)s})' % f)],
            trouble: ['CardinalityJump'],
          }),
          g.stat('Targets not scraped', {
            description: 'Targets of the chosen jobs that did not answer, as a share. Some nodes of thousands are always away; TargetDown fires at %g %% of a job.' % (100 * th.targetsDown),
            unit: 'percentunit',
            decimals: 2,
            thresholds: [[null, 'ok'], [0.02, 'warn'], [th.targetsDown, 'bad']],
            targets: [g.q('1 - sum(cluster_job:targets_up:sum{%(jobs)s}) / sum(cluster_job:targets:count{%(jobs)s})' % f)],
            trouble: ['GPUExporterGone', 'EtcdHung'],
          }),
          g.stat('Remote write behind', {
            description: 'How far the slowest queue is behind what was scraped. Seconds are normal; at %g s PrometheusRemoteWriteBehind fires.' % th.remoteWriteBehindSeconds,
            unit: 's',
            decimals: 0,
            thresholds: [[null, 'ok'], [th.remoteWriteBehindSeconds / 2, 'warn'], [th.remoteWriteBehindSeconds, 'bad']],
            targets: [g.q('clamp_min(max(%s), 0)' % behind)],
          }),
        ]),
        g.row('Which server?', [
          g.stateTimeline('Servers', {
            description: 'Each server over time: ready, reading its write-ahead log, or gone. A comb of red and orange is a server that is killed, reads its log, and is killed again.',
            unit: 'none',
            w: 24,
            h: 7,
            mappings: [[0, 'gone', 'bad'], [1, 'reading its log', 'warn'], [2, 'ready', 'ok']],
            targets: [g.q(state, server)],
            trouble: ['PrometheusOOMLoop', 'PrometheusReplaying'],
            budget: 100,
          }),
          g.timeseries('Memory, of the limit', {
            description: "What each server could not give back at its last collection as a share of GOMEMLIMIT; of those that know none resident memory as a share of the container's limit. Steps come from heavy requests, slopes from new series; the rows below tell which.",
            unit: 'percentunit',
            w: 12,
            max: 1,
            thresholds: [[null, 'text'], [th.memory, 'warn'], [th.reachable, 'bad']],
            targets: [g.q('topk(20, %s)' % used, '{{%(cluster)s}} {{%(pod)s}} {{instance}}' % f)],
            trouble: ['PrometheusMemoryNearLimit', 'PrometheusOOMLoop', 'CardinalityJump', 'PrometheusReplaying'],
            budget: 100,
          }),
          g.table('Starts and replays', {
            description: 'How often each server was started within six hours, how long its last start took to read the log, and how long it has run. A replay of minutes is what the next crash costs at least.',
            w: 12,
            targets: [
              g.q('topk(20, max by (%(cluster)s, instance) (changes(process_start_time_seconds{%(prometheus)s}[6h])))' % f),
              g.q('topk(20, max by (%(cluster)s, instance) (prometheus_tsdb_data_replay_duration_seconds{%(prometheus)s}))' % f),
              g.q('bottomk(20, time() - max by (%(cluster)s, instance) (process_start_time_seconds{%(prometheus)s}))' % f),
              g.q('topk(20, max by (%(cluster)s, instance) (prometheus_tsdb_wal_storage_size_bytes{%(prometheus)s}))' % f),
            ],
            columns: [
              { field: c.clusterLabel, title: 'Cluster', width: 80, hide: !c.showMultiCluster },
              { field: 'instance', title: 'Server', link: g.link('Only this server', 'prometheus', { instance: g.field('instance') }) },
              { field: 'Value #A', title: 'Starts', unit: 'short', decimals: 0, width: 80, thresholds: [[null, 'text'], [1, 'warn'], [th.crashes, 'bad']] },
              { field: 'Value #B', title: 'Last replay', unit: 's', width: 110, thresholds: [[null, 'text'], [th.replaySeconds, 'bad']] },
              { field: 'Value #C', title: 'Up for', unit: 's', width: 100 },
              { field: 'Value #D', title: 'Log', unit: 'bytes', width: 100 },
            ],
            sortBy: 'Starts',
            trouble: ['PrometheusOOMLoop', 'PrometheusReplaying'],
          }),
          g.table('Killed for memory', {
            description: 'Servers whose container last ended for lack of memory, and how often it was started in three hours. More memory is seldom the cure: find the requests or the series that fill it.',
            w: 24,
            h: 5,
            targets: [
              g.q('topk(20, max by (%(cluster)s, %(ns)s, %(pod)s) (increase(kube_pod_container_status_restarts_total{%(ksm)s}[3h])) and on (%(cluster)s, %(ns)s, %(pod)s) max by (%(cluster)s, %(ns)s, %(pod)s) (kube_pod_container_status_last_terminated_reason{%(ksm)s, reason="OOMKilled"} == 1))' % f),
            ],
            columns: [
              { field: c.clusterLabel, title: 'Cluster', width: 80, hide: !c.showMultiCluster },
              { field: c.namespaceLabel, title: 'Namespace' },
              { field: c.podLabel, title: 'Pod' },
              { field: 'Value', title: 'Restarts in three hours', unit: 'short', decimals: 0, thresholds: [[null, 'text'], [1, 'warn'], [th.oomRestarts, 'bad']] },
            ],
            sortBy: 'Restarts in three hours',
            quiet: 'no server was killed for its memory since it was made',
            trouble: ['PrometheusOOMLoop'],
          }),
        ]),
        g.row('Is it the series?', [
          lines('Series in the head', {
            description: 'Series that each server holds in memory. A slope that does not level off ends in a kill; the panel beside it names the job.',
            unit: 'short',
            expr: 'max by (%(cluster)s, instance) (prometheus_tsdb_head_series{%(prometheus)s})',
            trouble: ['CardinalityJump', 'PrometheusOOMLoop', 'PrometheusReplaying'],
            budget: 100,
          }),
          g.timeseries('Samples by job', {
            description: 'What one scrape of all targets of a job gives, after drop rules: the ten largest jobs. PrometheusJobCardinalityJump compares it with the day before.',
            unit: 'short',
            w: 12,
            stack: true,
            legend: 'list',
            targets: [g.q('topk(10, sum by (job) (cluster_job:scrape_samples_post_metric_relabeling:sum{%(jobs)s}))' % f, '{{job}}')],
            links: [g.link('Cardinality of the job', 'cardinality', { job: g.label('job') })],
            trouble: ['CardinalityJump'],
            budget: 100,
          }),
          lines('Samples appended', {
            description: 'Samples a second that each server takes in. Two servers of one shard should lie on one another; none at all is a server that reads its log.',
            unit: 'cps',
            expr: 'sum by (%(cluster)s, instance) (rate(prometheus_tsdb_head_samples_appended_total{%(prometheus)s}[%(i)s]))',
            trouble: ['PrometheusReplaying'],
            budget: 100,
          }),
          g.timeseries('Do the copies of a shard agree?', {
            description: 'How much larger the fullest head of a shard is than the smallest, of all its servers, whichever are chosen above. Below a few per cent is normal; more means that one of them missed targets or has just been started.',
            unit: 'percentunit',
            w: 12,
            targets: [g.q('max by (%(cluster)s, %(shard)s) (prometheus_tsdb_head_series{%(copies)s}) / on (%(cluster)s, %(shard)s) (min by (%(cluster)s, %(shard)s) (prometheus_tsdb_head_series{%(copies)s}) > 0) - 1' % f, '{{%(cluster)s}} {{%(shard)s}}' % f)],
            trouble: ['PrometheusReplaying', 'PrometheusOOMLoop'],
            budget: 100,
          }),
        ]),
        g.row('Or is it what is asked?', [
          g.timeseries('Calls by endpoint', {
            description: 'Calls a second by endpoint, the ten busiest. Only Spillway and the servers themselves should call; whoever else does goes round every bound.',
            unit: 'reqps',
            w: 12,
            stack: true,
            targets: [g.q('topk(10, sum by (handler) (rate(prometheus_http_requests_total{%(prometheus)s}[%(i)s])))' % f, '{{handler}}')],
            budget: 100,
          }),
          g.timeseries('Slowest calls by endpoint', {
            description: '99 %% of the calls of an endpoint take no longer. /api/v1/series above %g s is PrometheusSeriesAPIUnbounded: its time and memory have no limit there.' % th.seriesAPISeconds,
            unit: 's',
            w: 12,
            targets: [g.q('topk(10, histogram_quantile(0.99, sum by (handler, le) (rate(prometheus_http_request_duration_seconds_bucket{%(prometheus)s}[%(i)s]))) > 0)' % f, '{{handler}}')],
            thresholds: [[null, 'text'], [th.seriesAPISeconds, 'bad']],
            thresholdLine: 'off',
            trouble: ['PrometheusMemoryNearLimit'],
            budget: 100,
          }),
          lines('Queries in flight', {
            description: 'Queries that each server evaluates at this moment. Near --query.max-concurrency (20) others wait; series and labels calls are not among them.',
            unit: 'short',
            expr: 'max by (%(cluster)s, instance) (prometheus_engine_queries{%(prometheus)s})',
            budget: 100,
          }),
          lines('CPU', {
            description: 'Cores that each server uses. Scrapes make a steady floor, queries and compactions the rest.',
            unit: 'short',
            expr: 'sum by (%(cluster)s, instance) (rate(process_cpu_seconds_total{%(prometheus)s}[%(i)s]))',
            budget: 100,
          }),
        ]),
        g.row('Does everything come in?', [
          g.table('Jobs that cannot be scraped in part', {
            description: 'Jobs with targets that do not answer. A job with most of them gone is a change of certificates, network policy or discovery and not a hundred broken nodes.',
            w: 12,
            targets: [
              g.q('topk(20, cluster_job:targets:count{%(jobs)s} - on (%(cluster)s, job) cluster_job:targets_up:sum{%(jobs)s} > 0)' % f),
              g.q('topk(20, %s > 0)' % down),
            ],
            columns: [
              { field: c.clusterLabel, title: 'Cluster', width: 80, hide: !c.showMultiCluster },
              { field: 'job', title: 'Job', link: toCardinality },
              { field: 'Value #A', title: 'Targets down', unit: 'short', decimals: 0 },
              { field: 'Value #B', title: 'Of all', unit: 'percentunit', decimals: 1, thresholds: [[null, 'text'], [0.02, 'warn'], [th.targetsDown, 'bad']] },
            ],
            sortBy: 'Of all',
            quiet: 'every target of every job answers',
            trouble: ['GPUExporterGone', 'EtcdHung'],
          }),
          g.timeseries('Targets down by job', {
            description: 'Targets of a job that do not answer, as a share, the ten worst jobs. Zero, or a node being rebooted, is normal.',
            unit: 'percentunit',
            w: 12,
            targets: [g.q('topk(10, max by (job) (%s))' % down, '{{job}}')],
            softMax: 0.1,
            trouble: ['GPUExporterGone', 'EtcdHung'],
            budget: 100,
          }),
          g.timeseries('Slowest scrape by job', {
            description: 'The longest scrape of each job, the ten longest. What reaches the scrape timeout is lost as a whole; an API server page slows down when its etcd does.',
            unit: 's',
            w: 12,
            targets: [g.q('topk(10, max by (job) (cluster_job:scrape_duration_seconds:max{%(jobs)s}))' % f, '{{job}}')],
            budget: 100,
          }),
          g.timeseries('Rule groups that take longest', {
            description: 'Time that the last evaluation of a rule group took, the ten longest. A group that needs longer than its interval misses evaluations.',
            unit: 's',
            w: 12,
            targets: [g.q('topk(10, max by (%(cluster)s, rule_group) (prometheus_rule_group_last_duration_seconds{%(prometheus)s}))' % f, '{{%(cluster)s}} {{rule_group}}' % f)],
            budget: 100,
          }),
          lines('Remote write: how far behind', {
            description: 'Age of the newest sample that was sent, against the newest that was scraped. A slope means that the other side takes less than comes in.',
            unit: 's',
            expr: 'clamp_min(max by (%(cluster)s, instance) (' + behind + '), 0)',
            softMax: 10,
            budget: 100,
          }),
          lines('Remote write: samples given up', {
            description: 'Samples that the other side refused, as a share of all. Above zero they are lost; PrometheusRemoteWriteFailing fires at %g %%.' % (100 * th.remoteWriteFailed),
            unit: 'percentunit',
            expr: 'sum by (%(cluster)s, instance) (rate(prometheus_remote_storage_samples_failed_total{%(prometheus)s}[%(i)s])) / on (%(cluster)s, instance) (sum by (%(cluster)s, instance) (rate(prometheus_remote_storage_samples_total{%(prometheus)s}[%(i)s])) > 0)',
            softMax: 0.01,
            budget: 100,
          }),
        ]),
      ],
    }),
  },
}
