// The API server: first that it refuses (429) and fails (5xx), which is what a
// large cluster shows before anything else, then why.
{
  local c = $._config,
  local th = c.thresholds.apiserver,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local a = (import '../lib/alert.libsonnet')(c),
  local number = import '../lib/number.libsonnet',

  local f = {
    cluster: c.clusterLabel,
    apiserver: c.selectors.apiserver,
    apiserverJob: (import '../lib/byjob.libsonnet')(c.selectors.apiserver),
    memory: t.d(c.targets.memory),
    slis: c.selectors.apiserverSLIs,
    kubelet: c.selectors.kubelet,
    nodeExporter: c.selectors.nodeExporter,
    dcgm: c.selectors.dcgm,
    prometheus: c.selectors.prometheus,
    w: t.d('5m'),
    watched: c.k8s.watchResource,
    measuredPercent: number(100 * th.measured),
    name: a.cluster(),
  } + { [k]: number(th[k]) for k in std.objectFields(th) },

  local alert(name, o) = a.alert(name, { dashboard: 'apiserver' } + o { expr: o.expr % f, description: o.description % f }),

  // burn is one pair of windows for one sort of bad request.
  local burn(name, w, bad, of, why) = a.alert(name, {
    expr: |||
      (
        avg_over_time(%(bad)s[%(long)s]) / avg_over_time(%(of)s[%(long)s]) > %(limit)s
        and
        avg_over_time(%(bad)s[%(short)s]) / avg_over_time(%(of)s[%(short)s]) > %(limit)s
      )
      and
      avg_over_time(%(of)s[%(long)s]) > %(budgetTrafficPerSecond)s
    ||| % (f {
             bad: bad,
             of: of,
             long: t.recorded(w.long),
             short: t.recorded(w.short),
             limit: number(w.factor * (1 - c.slo.apiserver.target)),
           }),
    hold: w.hold,
    severity: w.severity,
    labels: { long: w.long, short: w.short },
    dashboard: 'apiserver',
    summary: 'The API server is using up its error budget too fast.',
    description: |||
      {{ $value | humanizePercentage }} of {{ $labels.verb }} requests to the API server of %(name)s %(why)s over %(long)s, at least %(factor)s times what a budget of %(budget)s%% over %(days)d days allows.
    ||| % {
      name: f.name,
      why: why,
      long: w.long,
      factor: number(w.factor),
      budget: number(100 * (1 - c.slo.apiserver.target)),
      days: c.slo.apiserver.days,
    },
  }),

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'apiserver',
        rules: [
          alert('KubeAPIThrottling', {
            expr: |||
              cluster:apiserver_throttled:rate5m / on (%(cluster)s) sum by (%(cluster)s) (cluster_code:apiserver_requests:rate5m) > %(throttling)s
              and on (%(cluster)s)
              cluster:apiserver_throttled:rate5m > %(throttlingPerSecond)s
            |||,
            hold: '10m',
            severity: 'warning',
            summary: 'The API server refuses requests with 429.',
            description: '{{ $value | humanizePercentage }} of requests to the API server of %(name)s are refused with 429. KubeAPIFlowSchemaRejected names who asks too much; where it is silent the plain in-flight limit refuses.',
          }),
          alert('KubeAPIThrottlingSevere', {
            expr: |||
              cluster:apiserver_throttled:rate5m / on (%(cluster)s) sum by (%(cluster)s) (cluster_code:apiserver_requests:rate5m) > %(throttlingSevere)s
              and on (%(cluster)s)
              cluster:apiserver_throttled:rate5m > %(throttlingPerSecond)s
            |||,
            hold: '5m',
            severity: 'critical',
            summary: 'The API server refuses so many requests that controllers and kubelets starve.',
            description: '{{ $value | humanizePercentage }} of requests to the API server of %(name)s are refused with 429.',
          }),
          alert('KubeAPIServerErrors', {
            expr: |||
              sum by (%(cluster)s) (cluster_code:apiserver_requests_counted:rate5m{code=~"5.."}) / sum by (%(cluster)s) (cluster_code:apiserver_requests_counted:rate5m) > %(errors)s
              and
              sum by (%(cluster)s) (cluster_code:apiserver_requests_counted:rate5m{code=~"5.."}) > %(errorsPerSecond)s
            |||,
            hold: '5m',
            severity: 'critical',
            summary: 'The API server answers with errors.',
            description: '{{ $value | humanizePercentage }} of requests to the API server of %(name)s fail with 5xx. What it only passes on, and what the aggregator answers for an API it cannot reach, is not among them: KubeAPIAggregatorUnavailable.',
          }),
          alert('KubeAPIServerNotMeasured', {
            // A hung etcd makes /metrics take 20 s: the scrape fails and with it every alert above. /metrics/slis answers all the while, and so do nodes. A control plane that somebody else runs may not be scraped at all: then nothing was lost.
            // A kubelet asks the API server whether a scrape may be answered, and remembers it for two minutes: where all API servers are dead it does not answer either. Others ask nobody, unless kube-rbac-proxy stands before them.
            // Where both pages are targets of one job and nothing tells them apart (kube-prometheus' ServiceMonitor asks /metrics/slis six times as often) `up` is mostly that of the page that answers: so what
            // stands on /metrics alone has to be there of as many, where it was in the last days.
            expr: |||
              (
                count by (%(cluster)s) (up{%(slis)s} == 1)
                or on (%(cluster)s)
                count by (%(cluster)s) (up{%(nodeExporter)s} == 1)
                or on (%(cluster)s)
                count by (%(cluster)s) (up{%(kubelet)s} == 1)
                or on (%(cluster)s)
                count by (%(cluster)s) (up{%(dcgm)s} == 1)
                or on (%(cluster)s)
                count by (%(cluster)s) (up{%(prometheus)s} == 1)
              )
              and on (%(cluster)s)
              (
                count by (%(cluster)s) (up{%(apiserver)s})
                or on (%(cluster)s)
                cluster_job:targets_usual:count{%(apiserverJob)s}
              )
              unless on (%(cluster)s)
              (
                avg by (%(cluster)s) (avg_over_time(up{%(apiserver)s}[%(w)s])) >= %(measured)s
                unless on (%(cluster)s)
                (
                  group by (%(cluster)s) (last_over_time(process_resident_memory_bytes{%(apiserver)s}[%(memory)s]))
                  unless on (%(cluster)s)
                  count by (%(cluster)s) (present_over_time(process_resident_memory_bytes{%(apiserver)s}[%(w)s]))
                  / on (%(cluster)s)
                  count by (%(cluster)s) (up{%(apiserver)s}) >= %(measured)s
                )
              )
            |||,
            hold: '2m',
            severity: 'critical',
            summary: 'The API server is no longer measured, so its other alerts are blind.',
            description: 'Less than %(measuredPercent)s%% of the API servers of %(name)s have had their /metrics scraped in the last five minutes, while {{ $value }} other targets of the cluster answer. Suspect etcd first: the page waits for it. Where /metrics/slis does not answer either, the API servers are dead.',
          }),
          alert('KubeAPIAggregatorUnavailable', {
            expr: |||
              max by (%(cluster)s, name) (aggregator_unavailable_apiservice{%(apiserver)s}) == 1
              or
              (
                sum by (%(cluster)s) (rate(apiserver_request_terminations_total{%(apiserver)s,code="503",component="aggregator"}[%(w)s])) > %(aggregatorPerSecond)s
                unless on (%(cluster)s)
                max by (%(cluster)s) (aggregator_unavailable_apiservice{%(apiserver)s}) == 1
              )
            |||,
            hold: '10m',
            severity: 'warning',
            summary: 'An API that the API server only passes on does not answer.',
            description: '{{ if $labels.name }}API {{ $labels.name }} of %(name)s is unavailable{{ else }}The aggregator of %(name)s answers 503 {{ $value | humanize }} times a second{{ end }}. apiserver_request_total does not count these answers.',
          }),
          alert('KubeAPIWebhookFailing', {
            expr: |||
              sum by (%(cluster)s, name, type) (rate(apiserver_admission_webhook_rejection_count{%(apiserver)s,error_type=~"calling_webhook_error|apiserver_internal_error"}[%(w)s])) * 60 > %(webhookErrorsPerMinute)s
            |||,
            hold: '10m',
            severity: 'warning',
            summary: 'An admission webhook does not answer, and what it should look at is refused.',
            description: 'The {{ $labels.type }} webhook {{ $labels.name }} of %(name)s fails {{ $value | printf "%%.1f" }} times a minute, and with it the requests: pods that it looks at are neither made nor moved.',
          }),
          alert('KubeAPIWebhookFailOpen', {
            expr: |||
              sum by (%(cluster)s, name, type) (rate(apiserver_admission_webhook_fail_open_count{%(apiserver)s}[%(w)s])) * 60 > %(webhookErrorsPerMinute)s
            |||,
            hold: '10m',
            severity: 'warning',
            summary: 'An admission webhook does not answer, and requests pass unseen.',
            description: 'The {{ $labels.type }} webhook {{ $labels.name }} of %(name)s fails {{ $value | printf "%%.1f" }} times a minute; its failurePolicy is Ignore, so objects are stored that it has neither checked nor changed.',
          }),
          alert('KubeAPIFlowSchemaRejected', {
            expr: |||
              sum by (%(cluster)s, flow_schema, priority_level, reason) (rate(apiserver_flowcontrol_rejected_requests_total{%(apiserver)s}[%(w)s])) > %(rejectedPerSecond)s
            |||,
            hold: '10m',
            severity: 'warning',
            vars: { flow_schema: 'flow_schema' },
            summary: 'One sort of client has its requests refused.',
            description: 'Flow schema {{ $labels.flow_schema }} of %(name)s (priority level {{ $labels.priority_level }}) has {{ $value | humanize }} requests a second refused: {{ $labels.reason }}.',
          }),
          alert('KubeAPISeatsSaturated', {
            expr: |||
              max by (%(cluster)s, priority_level) (
                sum by (%(cluster)s, instance, priority_level) (apiserver_flowcontrol_current_executing_seats{%(apiserver)s,priority_level!="exempt"})
                /
                (sum by (%(cluster)s, instance, priority_level) (apiserver_flowcontrol_current_limit_seats{%(apiserver)s,priority_level!="exempt"}) > 0)
              ) > %(seats)s
            |||,
            hold: '10m',
            severity: 'warning',
            vars: { priority_level: 'priority_level' },
            summary: 'A priority level of the API server has hardly a free seat.',
            description: 'Priority level {{ $labels.priority_level }} of %(name)s uses {{ $value | humanizePercentage }} of its seats on its busiest API server: requests queue, then are refused.',
          }),
          alert('KubeAPIServerMemoryHigh', {
            expr: |||
              max by (%(cluster)s, instance) (process_resident_memory_bytes{%(apiserver)s}) > %(memoryBytes)s
            |||,
            hold: '15m',
            severity: 'warning',
            vars: { instance: 'instance' },
            summary: 'An API server uses much memory.',
            description: 'API server {{ $labels.instance }} of %(name)s holds {{ $value | humanize1024 }}B.',
          }),
          alert('KubeAPIServerMemoryImbalance', {
            expr: |||
              max by (%(cluster)s) (process_resident_memory_bytes{%(apiserver)s}) / min by (%(cluster)s) (process_resident_memory_bytes{%(apiserver)s}) > %(memoryImbalance)s
              and
              max by (%(cluster)s) (process_resident_memory_bytes{%(apiserver)s}) > %(memoryImbalanceBytes)s
            |||,
            hold: '30m',
            severity: 'warning',
            summary: 'One API server carries the load of several.',
            description: 'The largest API server of %(name)s holds {{ $value | humanize }} times the memory of the smallest one: connections stay where they were made when another one restarted.',
          }),
          alert('KubeAPIWatchTrafficHigh', {
            expr: |||
              cluster_resource:apiserver_watch_events_bytes:rate5m > %(watchBytesPerSecond)s
            |||,
            hold: '15m',
            severity: 'warning',
            summary: 'Watches of one resource cause heavy traffic.',
            description: 'The API servers of %(name)s send {{ $value | humanize }}B a second of watch events for {{ $labels.%(watched)s }}: each change goes to every watcher.',
          }),
        ],
      },
      {
        name: 'apiserver.budget',
        rules: [
          burn('KubeAPIErrorBudgetBurnErrors', w, 'cluster_verb:apiserver_request_errors:rate5m', 'cluster_verb:apiserver_requests:rate5m', 'failed with 5xx')
          for w in c.slo.windows
        ] + [
          burn('KubeAPIErrorBudgetBurnSlow', w, 'cluster_verb:apiserver_sli_slow:rate5m', 'cluster_verb:apiserver_sli_judged:rate5m', 'took too long')
          for w in c.slo.windows
        ] + [
          alert('KubeAPIErrorBudgetBlind', {
            // First: no time of requests at all. Second: one scope's decisive bucket is gone, as a drop rule on `le` does it.
            expr: |||
              (
                cluster_verb:apiserver_requests:rate5m > %(budgetTrafficPerSecond)s
                unless on (%(cluster)s, verb)
                cluster_verb_scope:apiserver_sli_requests:rate5m
              )
              or
              (
                cluster_verb_scope:apiserver_sli_requests:rate5m > 0
                unless on (%(cluster)s, verb, scope)
                cluster_verb_scope:apiserver_sli_in_time:rate5m
              )
            |||,
            hold: '15m',
            severity: 'warning',
            summary: 'The error budget of the API server is not measured although there is traffic.',
            description: '{{ $value | humanize }} {{ $labels.verb }} requests a second{{ with $labels.scope }} of scope {{ . }}{{ end }} reach the API server of %(name)s, and no series says how many are in time. A drop rule that takes a bucket away (a value of le) does this, and native histograms that are scraped without always_scrape_classic_histograms; an outage would then go unnoticed.',
          }),
        ],
      },
    ],
  },
}
