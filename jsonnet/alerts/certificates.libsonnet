// Certificates by which the API server knows its clients, and those of kubelets.
{
  local c = $._config,
  local th = c.thresholds.certificates,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local a = (import '../lib/alert.libsonnet')(c),
  local number = import '../lib/number.libsonnet',

  local day = 24 * 3600,
  local days(seconds) = if seconds == day then '1 day' else '%s days' % number(seconds / day),

  // Prometheus 3 stores the bound 86400 as "86400.0", Prometheus 2 as "86400"; from a million on both write an exponent where that is shorter.
  local le = {
    '0': '0(\\\\.0)?',
    '86400': '86400(\\\\.0)?',
    '172800': '172800(\\\\.0)?',
    '345600': '345600(\\\\.0)?',
    '604800': '604800(\\\\.0)?',
    month: '2\\\\.592e\\\\+06',
  },
  local bucket(seconds) =
    assert std.objectHas(le, number(seconds)) : 'thresholds.certificates: %s seconds are no bucket of apiserver_client_certificate_expiration_seconds; 1, 2, 4 and 7 days are' % number(seconds);
    le[number(seconds)],

  local f = {
    cluster: c.clusterLabel,
    node: c.nodeLabel,
    apiserver: c.selectors.apiserver,
    kubelet: c.selectors.kubelet,
    w: t.d('30m'),
    name: a.cluster(),
  } + { [k]: number(th[k]) for k in std.objectFields(th) },

  // between is how many requests a second come with a certificate that ends within one bound and not within the other.
  local between(from, to, range, offset='') = |||
    sum by (%(cluster)s) (rate(apiserver_client_certificate_expiration_seconds_bucket{%(apiserver)s,le=~"%(to)s"}[%(range)s]%(offset)s))
    - on (%(cluster)s)
    sum by (%(cluster)s) (rate(apiserver_client_certificate_expiration_seconds_bucket{%(apiserver)s,le=~"%(from)s"}[%(range)s]%(offset)s))
  ||| % (f { from: from, to: to, range: range, offset: offset }),
  local within(text) = '(\n  %s\n)' % std.strReplace(std.rstripChars(text, '\n'), '\n', '\n  '),
  local inside(text) = std.strReplace(std.rstripChars(text, '\n'), '\n', '\n  '),

  // A certificate that ends now had a week more a week ago. Those that live shorter were below the bound then too, as they always are; and what has just been given out for hours was not above it.
  local expires(severity, seconds) = a.alert('KubeClientCertificateExpires', {
    local ago(from, to) = between(from, to, t.d('1d'), ' offset ' + t.d('7d')),
    expr: |||
      %(now)s
      * 60 > %(requestsPerMinute)s
      and on (%(cluster)s)
      %(now)s
      > on (%(cluster)s)
      %(usual)s * %(then)s
      and on (%(cluster)s)
      %(coming)s
      * 60 > %(requestsPerMinute)s
      unless on (%(cluster)s)
      count by (%(cluster)s) (0 < kubelet_certificate_manager_client_ttl_seconds{%(kubelet)s} < %(seconds)s)
    ||| % (f {
             now: within(between(le['0'], bucket(seconds), t.d('1h'))),
             'then': within(ago(le['0'], bucket(seconds))),
             coming: within(ago(bucket(seconds), le.month)),
             seconds: number(seconds),
           }),
    hold: '30m',
    severity: severity,
    dashboard: 'apiserver',
    summary: 'A client of the API server has a certificate that ends soon.',
    description: '{{ $value | humanize }} requests a minute reach the API server of %s with a certificate that ends within %s, many more than a week ago. When it ends the client is refused. It is no kubelet that renews its own.' % [f.name, days(seconds)],
  }),

  // failing are kubelets with little time left that keep failing to get a new certificate. How much is left says nothing by itself: where certificates live for a day it is always little.
  local failing(ttl, errors) = |||
    max by (%(cluster)s, %(node)s) (%(ttl)s{%(kubelet)s}) < %(kubeletSeconds)s
    and on (%(cluster)s, %(node)s)
    max by (%(cluster)s, %(node)s) (rate(%(errors)s{%(kubelet)s}[%(w)s])) > 0
  ||| % (f { ttl: ttl, errors: errors }),
  local client = failing('kubelet_certificate_manager_client_ttl_seconds', 'kubelet_certificate_manager_client_expiration_renew_errors'),
  local server = failing('kubelet_certificate_manager_server_ttl_seconds', 'kubelet_server_expiration_renew_errors'),

  local ofKubelet(which, expr, consequence) = a.alert('KubeletCertificateExpires', {
    expr: expr,
    hold: '1h',
    severity: 'warning',
    labels: { scope: 'node', certificate: which },
    dashboard: 'node',
    vars: { node: c.nodeLabel },
    summary: 'A kubelet does not get a new certificate.',
    description: 'The %s certificate of the kubelet of {{ $labels.%s }} of %s ends in {{ $value | humanizeDuration }}, and for more than an hour it has failed to get a new one. Then %s.' % [which, c.nodeLabel, f.name, consequence],
  }),

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'certificates',
        // Half an hour of every kubelet, and what changes in hours.
        interval: t.d('5m'),
        rules: [
          expires('warning', th.endsSeconds),
          expires('critical', th.endsSoonSeconds),
          ofKubelet('client', client, 'the node is lost'),
          ofKubelet('server', server, 'nobody who checks it gets logs or metrics from there'),
          a.alert('KubeletCertificateExpires', {
            // Before it comes from each of them, so that Alertmanager holds those back.
            expr: |||
              (
                count by (%(cluster)s) (
                  %(client)s
                  or
                  %(server)s
                )
                >= %(kubeletNodes)s
              )
              / on (%(cluster)s)
              cluster:nodes:count
              > %(kubelets)s
            ||| % (f { client: std.strReplace(inside(client), '\n', '\n  '), server: std.strReplace(inside(server), '\n', '\n  ') }),
            hold: '30m',
            severity: 'critical',
            labels: { scope: 'cluster' },
            dashboard: 'fleet',
            summary: 'Many kubelets do not get a new certificate.',
            description: '{{ $value | humanizePercentage }} of the kubelets of %s have a certificate that ends within %s, and fail to get a new one: look at who signs and approves. When client certificates end the nodes are lost, all about the same time.' % [f.name, days(th.kubeletSeconds)],
          }),
        ],
      },
    ],
  },
}
