// Prometheus itself. What is about one server or one pair of them runs in each
// Prometheus, over what it scrapes of the others: a server that is reading its
// log, or dead, cannot tell. What is about jobs, whose targets are spread over
// all shards, runs in the ruler.
{
  local c = $._config,
  local th = c.thresholds.prometheus,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local a = (import '../lib/alert.libsonnet')(c),
  local number = import '../lib/number.libsonnet',

  local f = {
    cluster: c.clusterLabel,
    namespace: c.namespaceLabel,
    pod: c.podLabel,
    shard: c.prometheusShardLabel,
    prometheus: c.selectors.prometheus,
    ruler: c.selectors.ruler,
    cadvisor: c.selectors.cadvisor,
    ksm: c.selectors.ksm,
    container: c.prometheusContainer,
    w: t.d('5m'),
    w10: t.d('10m'),
    hour: t.d('1h'),
    w3h: t.d('3h'),
    w6h: t.d('6h'),
    day: t.d('1d'),
    dayInSeconds: number(t.s('1d')),
    ahead: number(t.s('4h')),
    // Samples that a server stores, by server, and what it has to scrape: one with its volume full answers, says that it is ready, and stores none.
    stored: 'sum by (%s, %s, instance) (rate(prometheus_tsdb_head_samples_appended_total{%s}[%s]))' % [c.clusterLabel, c.prometheusShardLabel, c.selectors.prometheus, t.d('5m')],
    scrapes: 'sum by (%s, %s, instance) (prometheus_target_scrape_pool_targets{%s}) > 0' % [c.clusterLabel, c.prometheusShardLabel, c.selectors.prometheus],
    oldSeconds: number(t.s('3m')),
    minute: t.d('1m'),
    // What a server cannot give back as a share of its limit, where it says both.
    told: '(go_gc_heap_live_bytes{%(p)s} + go_memstats_sys_bytes{%(p)s} - go_memstats_heap_sys_bytes{%(p)s}) / (go_gc_gomemlimit_bytes{%(p)s} < 1e15)' % { p: c.selectors.prometheus },
    // Servers that know their limit, those too that could not be scraped of late.
    local limited(labels) = 'last_over_time(go_gc_gomemlimit_bytes{%s}[%s]) < 1e15' % [c.selectors.prometheus + labels, t.d('1h')],
    limited: limited(''),
    limitedUnnamed: limited(',%s=""' % c.podLabel),
  } + { [k]: number(th[k]) for k in std.objectFields(th) },

  local own(name, o) = a.alert(name, { dashboard: 'prometheus', external: true } + o {
    expr: o.expr % f,
    description: o.description % (f { name: a.cluster(external=true) }),
  }),
  local fleet(name, o) = a.alert(name, { dashboard: 'prometheus' } + o {
    expr: o.expr % f,
    description: o.description % (f { name: a.cluster() }),
  }),

  // late are the rule groups of some servers that take longer than from one evaluation to the next, or of which some were left out, with how long the last one took.
  local late(servers) = |||
    max by (%(g)s) (prometheus_rule_group_last_duration_seconds{%(s)s}) > max by (%(g)s) (prometheus_rule_group_interval_seconds{%(s)s})
    or
    max by (%(g)s) (prometheus_rule_group_last_duration_seconds{%(s)s})
    and
    sum by (%(g)s) (increase(prometheus_rule_group_iterations_missed_total{%(s)s}[%(w)s])) > 0
  ||| % { g: '%s, job, instance, rule_group' % c.clusterLabel, s: servers, w: t.d('10m') },

  // behind is by how much remote write of some servers lags. Before 3.7 a server has one newest timestamp for all of its queues: one that has nothing to send, as where little is kept for it, is not behind.
  local behind(servers) = |||
    max by (%(c)s, instance, remote_name) (
      (
        max_over_time(prometheus_remote_storage_queue_highest_timestamp_seconds{%(s)s}[%(w)s])
        or
        0 * max_over_time(prometheus_remote_storage_queue_highest_sent_timestamp_seconds{%(s)s}[%(w)s])
        + on (%(c)s, instance) group_left ()
        max by (%(c)s, instance) (max_over_time(prometheus_remote_storage_highest_timestamp_in_seconds{%(s)s}[%(w)s]))
        and
        max_over_time(prometheus_remote_storage_samples_pending{%(s)s}[%(w)s]) > 0
      )
      -
      max_over_time(prometheus_remote_storage_queue_highest_sent_timestamp_seconds{%(s)s}[%(w)s])
    ) > %(least)s
  ||| % { c: c.clusterLabel, s: servers, w: t.d('5m'), least: number(th.remoteWriteBehindSeconds) },

  // answers is how much of the time servers answered. Not their config-reloaders, which the operator makes targets of the same job, and which run on while Prometheus is dead: those that answered tell of themselves.
  local answers(shard, window='5m', over='avg') = '%(o)s_over_time(up{%(s)s}[%(w)s]) unless last_over_time(reloader_last_reload_successful{%(s)s}[%(w)s])' % {
    s: '%s,%s%s' % [c.selectors.prometheus, c.prometheusShardLabel, shard],
    w: t.d(window),
    o: over,
  },
  local named(expr) = 'label_replace(%s, "%s", "$1", "%s", "(.+)-[0-9]+")' % [expr, c.prometheusShardLabel, c.podLabel],

  // refused is what remote write of some servers gives up, as a share.
  local refused(servers) = |||
    sum by (%(c)s, instance, remote_name) (rate(prometheus_remote_storage_samples_failed_total{%(s)s}[%(w)s]))
    /
    (sum by (%(c)s, instance, remote_name) (rate(prometheus_remote_storage_samples_total{%(s)s}[%(w)s])) > 0)
    > %(least)s
  ||| % { c: c.clusterLabel, s: servers, w: t.d('5m'), least: number(th.remoteWriteFailed) },

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'prometheus',
        scope:: 'shard',
        rules: [
          own('PrometheusMemoryNearLimit', {
            // A Go process that knows its limit lets garbage grow until it comes near: a Prometheus 3, which takes 90 % of its container for GOMEMLIMIT, stands there all the time and is well. What was reachable at its last collection, and what is no heap, it
            // cannot give back. Of one that knows none (GOMEMLIMIT is 2^63 - 1 then, or not served) it is resident memory: not the working set, which has the page cache of mapped chunks that the kernel takes back before it kills.
            // Which server a pod has its target's labels tell, or its address; where neither does, as without kube-state-metrics, a cluster with servers that know their limit is looked at by that alone.
            // The limit of a container as the kernel has it; kube-prometheus-stack drops container_spec_* by default, and then it is the one that the pod asks for.
            expr: |||
              max by (%(cluster)s, %(namespace)s, %(pod)s, instance) (%(told)s) > %(reachable)s
              or
              (
                max by (%(cluster)s, %(namespace)s, %(pod)s) (container_memory_rss{%(cadvisor)s,container="%(container)s"})
                unless on (%(cluster)s, %(namespace)s, %(pod)s)
                (%(limited)s)
                unless on (%(cluster)s, %(namespace)s, %(pod)s)
                (
                  kube_pod_info{%(ksm)s}
                  and on (%(cluster)s, pod_ip)
                  label_replace(%(limited)s, "pod_ip", "$1", "instance", "\\[?(.+?)\\]?:[0-9]+")
                )
                unless on (%(cluster)s)
                (
                  %(limitedUnnamed)s
                  unless on (%(cluster)s)
                  kube_pod_container_resource_limits{%(ksm)s,container="%(container)s",resource="memory"}
                )
              )
              /
              (
                max by (%(cluster)s, %(namespace)s, %(pod)s) (container_spec_memory_limit_bytes{%(cadvisor)s,container="%(container)s"}) > 0
                or on (%(cluster)s, %(namespace)s, %(pod)s)
                max by (%(cluster)s, %(namespace)s, %(pod)s) (kube_pod_container_resource_limits{%(ksm)s,container="%(container)s",resource="memory"})
              )
              > %(memory)s
            |||,
            hold: '10m',
            severity: 'critical',
            vars: { pod: { label: c.podLabel, otherwise: '$__all' } },
            summary: 'A Prometheus is about to run out of memory.',
            description: 'Prometheus {{ or $labels.%(pod)s $labels.instance }} of %(name)s {{ if $labels.instance }}could not give back {{ $value | humanizePercentage }} of GOMEMLIMIT at its last collection{{ else }}uses {{ $value | humanizePercentage }} of its memory limit{{ end }}. After the kill it reads its log again before it answers.',
          }),
          own('PrometheusOOMLoop', {
            expr: |||
              sum by (%(cluster)s, %(namespace)s, %(pod)s) (
                max by (%(cluster)s, %(namespace)s, %(pod)s, uid) (increase(kube_pod_container_status_restarts_total{%(ksm)s,container="%(container)s"}[%(w3h)s]))
              ) >= %(oomRestarts)s
              and on (%(cluster)s, %(namespace)s, %(pod)s)
              max by (%(cluster)s, %(namespace)s, %(pod)s) (kube_pod_container_status_last_terminated_reason{%(ksm)s,container="%(container)s",reason="OOMKilled"}) == 1
            |||,
            severity: 'critical',
            vars: { pod: c.podLabel },
            summary: 'A Prometheus is killed for its memory again and again.',
            description: 'Prometheus {{ $labels.%(pod)s }} of %(name)s was started {{ $value | humanize }} times in three hours and last ended for lack of memory. Each start reads a longer log and needs more memory than the one before.',
          }),
          own('PrometheusReplayingWAL', {
            expr: |||
              min by (%(cluster)s, instance) (prometheus_ready{%(prometheus)s}) == 0
            |||,
            hold: '15m',
            severity: 'warning',
            vars: { instance: 'instance' },
            summary: 'A Prometheus has been starting for a long time.',
            description: 'Prometheus {{ $labels.instance }} of %(name)s is not ready (prometheus_ready is {{ $value }}): it reads its write-ahead log. It scrapes nothing until it is done.',
          }),
          own('PrometheusReplaySlow', {
            // The gauge stands until the next start: it counts for a day.
            expr: |||
              max by (%(cluster)s, instance) (prometheus_tsdb_data_replay_duration_seconds{%(prometheus)s}) > %(replaySeconds)s
              and on (%(cluster)s, instance)
              time() - max by (%(cluster)s, instance) (process_start_time_seconds{%(prometheus)s}) < %(dayInSeconds)s
            |||,
            hold: '5m',
            severity: 'warning',
            vars: { instance: 'instance' },
            summary: 'A Prometheus took long to read its log when it started.',
            description: 'Prometheus {{ $labels.instance }} of %(name)s took {{ $value | humanizeDuration }} to read its write-ahead log. The next crash costs at least as much.',
          }),
          own('PrometheusHeadSeriesRunaway', {
            // A server that reads its log fills its head from nothing: that is no growth.
            expr: |||
              max by (%(cluster)s, instance) (
                predict_linear(prometheus_tsdb_head_series{%(prometheus)s}[%(hour)s], %(ahead)s)
                / prometheus_tsdb_head_series{%(prometheus)s}
                and
                prometheus_tsdb_head_series{%(prometheus)s} > %(headSeries)s
                unless
                min_over_time(prometheus_ready{%(prometheus)s}[%(hour)s]) == 0
              ) > %(headGrowth)s
            |||,
            hold: '30m',
            severity: 'warning',
            vars: { instance: 'instance' },
            summary: 'The series of a Prometheus grow towards its end.',
            description: 'At the pace of the last hour Prometheus {{ $labels.instance }} of %(name)s will hold {{ $value | humanize }} times its series in four hours. PrometheusJobCardinalityJump names the job.',
          }),
          own('PrometheusSeriesAPIUnbounded', {
            expr: |||
              histogram_quantile(0.99, sum by (%(cluster)s, instance, le) (rate(prometheus_http_request_duration_seconds_bucket{%(prometheus)s,handler="/api/v1/series"}[%(w10)s]))) > %(seriesAPISeconds)s
              and on (%(cluster)s, instance)
              sum by (%(cluster)s, instance) (rate(prometheus_http_request_duration_seconds_bucket{%(prometheus)s,handler="/api/v1/series",le="+Inf"}[%(w10)s])) > %(seriesAPIRate)s
            |||,
            hold: '10m',
            severity: 'warning',
            vars: { instance: 'instance' },
            summary: 'Calls of /api/v1/series take very long.',
            description: '1%% of calls of /api/v1/series of Prometheus {{ $labels.instance }} of %(name)s take longer than %(seriesAPISeconds)s s. It bounds neither their time nor their memory: whoever calls should go through Spillway.',
          }),
          own('PrometheusHAPairDown', {
            // Where no label tells the shard the name of the pod does, without its number; and one that is seen alone may have a copy that answers, as among targets that the operator's shards divide. How many there are is looked at for an hour: a pod that waits for a node is no target, and a reloader that died no longer says that it is one.
            expr: |||
              max by (%(cluster)s, %(shard)s) (%(answers)s) < %(pairUp)s
              or
              (
                max by (%(cluster)s, %(shard)s) (%(unnamed)s) < %(pairUp)s
                and
                count by (%(cluster)s, %(shard)s) (count by (%(cluster)s, %(shard)s, host) (label_replace(%(seen)s, "host", "$1", "instance", "(.+?)(:[0-9]+)?"))) > 1
              )
            ||| % (f { answers: answers('!=""'), unnamed: named(answers('=""')), seen: named(answers('=""', '1h', 'last')) }),
            hold: '2m',
            severity: 'critical',
            summary: 'All Prometheus servers of a shard are down.',
            description: 'No Prometheus of shard {{ $labels.%(shard)s }} of %(name)s answers; the best of them did {{ $value | humanizePercentage }} of the time in the last five minutes. What they scrape is not measured.',
          }),
          own('PrometheusStoresNothing', {
            // Where a volume is full each scrape is given up as a whole, `up` with it; readiness is sound, and rules go on over what there was. Others see that no sample is added. The server itself, which may be the only one, or all may be full, has no newer sample of
            // what it scrapes of them, and no mark that these went: what is taken out of the scrape is marked at once, unless the server was started with another configuration meanwhile: any newer sample, of whatever job, says that it stores. It need not store anything to say so.
            expr: |||
              label_replace(
                max by (%(cluster)s, %(shard)s) (%(stored)s) == 0
                and on (%(cluster)s, %(shard)s)
                max by (%(cluster)s, %(shard)s) (%(scrapes)s),
                "reason", "shard", "", ""
              )
              or
              label_replace(
                max by (%(cluster)s) (last_over_time((time() - timestamp(up{%(prometheus)s}))[%(w6h)s:%(minute)s])) > %(oldSeconds)s
                unless on (%(cluster)s)
                up,
                "reason", "itself", "", ""
              )
            |||,
            hold: '8m',
            severity: 'critical',
            summary: 'A shard answers and stores nothing.',
            description: '{{ if eq $labels.reason "itself" }}A Prometheus of %(name)s has stored nothing of late that it scrapes: its newest samples of Prometheus servers are older than five minutes{{ else }}No Prometheus of shard {{ $labels.%(shard)s }} of %(name)s stores a sample ({{ $value }} a second), and all have targets{{ end }}. Its volume may be full. What it scrapes is not measured, and it answers as if that were not there.',
          }),
          own('PrometheusStoresNothing', {
            expr: |||
              %(stored)s == 0
              and
              %(scrapes)s
              and on (%(cluster)s, %(shard)s)
              max by (%(cluster)s, %(shard)s) (%(stored)s) > 0
            |||,
            hold: '5m',
            severity: 'warning',
            labels: { reason: 'server' },
            vars: { instance: 'instance' },
            summary: 'A Prometheus answers and stores nothing.',
            description: 'Prometheus {{ $labels.instance }} of %(name)s has targets and stores no sample of them ({{ $value }} a second), while another server of its shard does. Its volume may be full.',
          }),
          own('PrometheusHACrashLooping', {
            expr: |||
              count by (%(cluster)s, %(shard)s) (changes(process_start_time_seconds{%(prometheus)s}[%(hour)s]) >= %(crashes)s)
              /
              count by (%(cluster)s, %(shard)s) (changes(process_start_time_seconds{%(prometheus)s}[%(hour)s]))
              >= %(crashing)s
            |||,
            hold: '2m',
            severity: 'critical',
            summary: 'Prometheus servers of a shard start again and again.',
            description: '{{ $value | humanizePercentage }} of the Prometheus servers of shard {{ $labels.%(shard)s }} of %(name)s were started %(crashes)s times or more in the last hour. The others of the shard hold the same series and meet the same queries.',
          }),
          own('PrometheusRemoteWriteBehind', {
            // Of rulers too: what they evaluate is in no other place than where they write it.
            expr: behind(c.selectors.prometheus) + 'or\n' + behind(c.selectors.ruler),
            hold: '15m',
            severity: 'warning',
            vars: { instance: 'instance' },
            summary: 'Remote write is behind.',
            description: 'Remote write {{ $labels.remote_name }} of {{ $labels.instance }} of %(name)s is {{ $value | humanizeDuration }} behind.',
          }),
          own('PrometheusRemoteWriteFailing', {
            expr: refused(c.selectors.prometheus) + 'or\n' + refused(c.selectors.ruler),
            hold: '15m',
            severity: 'warning',
            vars: { instance: 'instance' },
            summary: 'Remote write loses samples.',
            description: 'Remote write {{ $labels.remote_name }} of {{ $labels.instance }} of %(name)s gives up {{ $value | humanizePercentage }} of its samples: the other side refuses them.',
          }),
          own('PrometheusRuleFailures', {
            // Some groups are evaluated every five minutes: a window of five has no step between two of its samples once in each of these. What is over within ten minutes, as while a shard starts, is in a window of ten for less than `for`.
            expr: |||
              sum by (%(cluster)s, job, instance, rule_group) (increase(prometheus_rule_evaluation_failures_total{%(prometheus)s}[%(w10)s])) > 0
              or
              sum by (%(cluster)s, job, instance, rule_group) (increase(prometheus_rule_evaluation_failures_total{%(ruler)s}[%(w10)s])) > 0
            |||,
            hold: '20m',
            severity: 'warning',
            vars: { instance: 'instance' },
            summary: 'Rules cannot be evaluated.',
            description: '{{ $value | humanize }} evaluations of rules of group {{ $labels.rule_group }} failed in {{ $labels.job }} {{ $labels.instance }} of %(name)s in ten minutes: their alerts are blind.',
          }),
          own('PrometheusRulesLate', {
            // Longer than the window: an evaluation that was left out once, as while a server starts or a shard is slow, is no trouble. A group that takes longer than its interval leaves some out for as long as it does.
            expr: late(c.selectors.prometheus) + 'or\n' + late(c.selectors.ruler),
            hold: '15m',
            severity: 'warning',
            vars: { instance: 'instance' },
            summary: 'Rules are evaluated too seldom.',
            description: 'Group {{ $labels.rule_group }} in {{ $labels.job }} {{ $labels.instance }} of %(name)s took {{ $value | humanizeDuration }} last time, and evaluations are left out: its alerts come late, and what it records has gaps.',
          }),
        ],
      },
      {
        name: 'prometheus.jobs',
        interval: t.d('1m'),
        rules: [
          fleet('TargetDown', {
            expr: |||
              1 - avg by (%(cluster)s, job) (up) > %(targetsDown)s
            |||,
            hold: '10m',
            severity: 'warning',
            vars: { job: 'job' },
            summary: 'Many targets of a job cannot be scraped.',
            description: '{{ $value | humanizePercentage }} of the targets of job {{ $labels.job }} of %(name)s cannot be scraped.',
          }),
          fleet('PrometheusJobCardinalityJump', {
            // More nodes are more targets, and more samples of what tells of nodes.
            expr: |||
              (
                cluster_job:scrape_samples_post_metric_relabeling:avg / cluster_job:scrape_samples_post_metric_relabeling:avg offset %(day)s
                / on (%(cluster)s) group_left ()
                (
                  clamp_min(cluster:nodes:count / cluster:nodes:count offset %(day)s, 1)
                  or on (%(cluster)s)
                  count by (%(cluster)s) (cluster_job:scrape_samples_post_metric_relabeling:avg) ^ 0
                )
              ) > %(jobGrowth)s
              and
              cluster_job:scrape_samples_post_metric_relabeling:sum > %(jobSamples)s
            |||,
            hold: '15m',
            severity: 'warning',
            dashboard: 'cardinality',
            vars: { job: 'job' },
            summary: 'A job has far more series than yesterday.',
            description: 'A scrape of a target of job {{ $labels.job }} of %(name)s gives {{ $value | humanize }} times the samples of a day ago, beyond what more nodes explain.',
          }),
        ],
      },
    ],
  },
}
