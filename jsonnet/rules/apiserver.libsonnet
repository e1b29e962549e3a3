// What the alerts of the API server and their dashboard need, cheap to read over
// days: rates over five minutes, summed where they are made. A share over three
// days is then the ratio of two averages of a handful of series instead of a
// rate over every bucket of every API server.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local number = import '../lib/number.libsonnet',
  local slo = c.slo.apiserver,

  // Prometheus 3 stores the bound 1 as "1.0", Prometheus 2 as "1".
  local le(n) = if n == std.floor(n) then '%d(\\\\.0)?' % n else std.strReplace(number(n), '.', '\\\\.'),

  local f = {
    cluster: c.clusterLabel,
    apiserver: c.selectors.apiserver,
    notCounted: slo.notCounted,
    w: t.d('5m'),
    read: 'verb=~"LIST|GET"',
    write: 'verb=~"POST|PUT|PATCH|DELETE|DELETECOLLECTION|APPLY"',
    resource: le(slo.slowResource),
    namespace: le(slo.slowNamespace),
    everywhere: le(slo.slowCluster),
    writes: le(slo.slowWrite),
  },

  // inTime are the requests that were in time, by verb.
  local inTime = {
    local bucket(of) = 'sum by (%%(cluster)s, scope) (rate(apiserver_request_sli_duration_seconds_bucket{%%(apiserver)s,%s,subresource!~"%%(notCounted)s",%s}[%%(w)s]))' % of,
    read: std.join('\nor\n', [
      bucket(['%(read)s', 'scope=~"resource|",le=~"%(resource)s"']),
      bucket(['%(read)s', 'scope="namespace",le=~"%(namespace)s"']),
      bucket(['%(read)s', 'scope="cluster",le=~"%(everywhere)s"']),
    ]),
    write: bucket(['%(write)s', 'le=~"%(writes)s"']),
  },

  local both(record, expr) = [
    { record: record, labels: { verb: verb }, expr: expr % (f { verb: verb, verbs: f[verb] }) }
    for verb in ['read', 'write']
  ],

  prometheusRules+:: {
    groups+: [
      {
        name: 'apiserver.rates',
        rules:
          [
            {
              // Every answer by code, without probes: after a restart /readyz answers 500 a few dozen times, and nobody is hurt.
              record: 'cluster_code:apiserver_requests:rate5m',
              expr: |||
                sum by (%(cluster)s, code) (rate(apiserver_request_total{%(apiserver)s,subresource!~"/readyz|/livez|/healthz"}[%(w)s]))
              ||| % f,
            },
            {
              // Without streams and what is passed on to kubelets and pods as well: that a dead node's page or log cannot be had is no error of the API server.
              record: 'cluster_code:apiserver_requests_counted:rate5m',
              expr: |||
                sum by (%(cluster)s, code) (rate(apiserver_request_total{%(apiserver)s,subresource!~"%(notCounted)s"}[%(w)s]))
              ||| % f,
            },
            {
              // Refusals. The two counters count the same requests, the second one also those that name no resource;
              // apiserver_flowcontrol_rejected_requests_total stands still where the plain in-flight limit refuses. An eviction that a PodDisruptionBudget forbids is answered 429 too, each five seconds anew, and nothing is short.
              record: 'cluster:apiserver_throttled:rate5m',
              expr: |||
                max by (%(cluster)s) (
                  label_replace(sum by (%(cluster)s) (rate(apiserver_request_total{%(apiserver)s,code="429",subresource!="eviction"}[%(w)s])), "counter", "requests", "", "")
                  or
                  label_replace(sum by (%(cluster)s) (rate(apiserver_request_terminations_total{%(apiserver)s,code="429"}[%(w)s])), "counter", "terminations", "", "")
                )
              ||| % f,
            },
          ]
          + both('cluster_verb:apiserver_requests:rate5m', |||
            sum by (%(cluster)s) (rate(apiserver_request_total{%(apiserver)s,%(verbs)s,subresource!~"%(notCounted)s"}[%(w)s]))
          |||)
          // Zero where there are requests and no errors: an average over a window must not skip the good hours.
          + both('cluster_verb:apiserver_request_errors:rate5m', |||
            sum by (%(cluster)s) (rate(apiserver_request_total{%(apiserver)s,%(verbs)s,subresource!~"%(notCounted)s",code=~"5.."}[%(w)s]))
            or on (%(cluster)s)
            0 * sum by (%(cluster)s) (rate(apiserver_request_total{%(apiserver)s,%(verbs)s,subresource!~"%(notCounted)s"}[%(w)s]))
          |||)
          + both('cluster_verb_scope:apiserver_sli_requests:rate5m', |||
            sum by (%(cluster)s, scope) (rate(apiserver_request_sli_duration_seconds_count{%(apiserver)s,%(verbs)s,subresource!~"%(notCounted)s"}[%(w)s]))
          |||)
          // A scope whose bucket was dropped has no series here, and KubeAPIErrorBudgetBlind says so; the other scopes are still judged.
          + [
            { record: 'cluster_verb_scope:apiserver_sli_in_time:rate5m', labels: { verb: verb }, expr: inTime[verb] % f }
            for verb in ['read', 'write']
          ]
          // In one expression: the halves that were recorded may be of two evaluations, and where the traffic changes their difference would be requests that were slow.
          + [
            {
              record: 'cluster_verb:apiserver_sli_slow:rate5m',
              labels: { verb: verb },
              expr: |||
                sum by (%(cluster)s) (
                  clamp_min(
                    sum by (%(cluster)s, scope) (rate(apiserver_request_sli_duration_seconds_count{%(apiserver)s,%(verbs)s,subresource!~"%(notCounted)s"}[%(w)s]))
                    - on (%(cluster)s, scope)
                    (
                      %(inTime)s
                    ),
                    0
                  )
                )
              ||| % (f { verbs: f[verb], inTime: std.strReplace(inTime[verb] % f, '\n', '\n      ') }),
            }
            for verb in ['read', 'write']
          ]
          + [
            {
              // Requests whose time can be judged: the denominator of the slow share.
              record: 'cluster_verb:apiserver_sli_judged:rate5m',
              expr: |||
                sum by (%(cluster)s, verb) (
                  cluster_verb_scope:apiserver_sli_requests:rate5m
                  and on (%(cluster)s, verb, scope)
                  cluster_verb_scope:apiserver_sli_in_time:rate5m
                )
              ||| % f,
            },
            {
              record: 'cluster_resource:apiserver_watch_events_bytes:rate5m',
              expr: |||
                sum by (%(cluster)s, %(resource)s) (rate(apiserver_watch_events_sizes_sum{%(apiserver)s}[%(w)s]))
              ||| % (f { resource: c.k8s.watchResource }),
            },
            {
              record: 'cluster_verb_scope_le:apiserver_request_sli_duration_seconds_bucket:rate5m',
              expr: |||
                sum by (%(cluster)s, verb, scope, le) (rate(apiserver_request_sli_duration_seconds_bucket{%(apiserver)s,subresource!~"%(notCounted)s"}[%(w)s]))
              ||| % f,
            },
          ],
      },
    ],
  },
}
