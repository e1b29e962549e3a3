// CoreDNS: at 2,500 nodes it was the cluster's DNS that fell over first.
{
  local c = $._config,
  local th = c.thresholds.dns,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local a = (import '../lib/alert.libsonnet')(c),
  local number = import '../lib/number.libsonnet',

  local f = {
    cluster: c.clusterLabel,
    coredns: c.selectors.coredns,
    w: t.d('5m'),
    name: a.cluster(),
  } + { [k]: number(th[k]) for k in std.objectFields(th) },

  local alert(name, o) = a.alert(name, { dashboard: 'node' } + o { expr: o.expr % f, description: o.description % f }),

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'dns',
        rules: [
          alert('ClusterDNSErrors', {
            expr: |||
              sum by (%(cluster)s) (rate(coredns_dns_responses_total{%(coredns)s,rcode="SERVFAIL"}[%(w)s])) / sum by (%(cluster)s) (rate(coredns_dns_responses_total{%(coredns)s}[%(w)s])) > %(errors)s
              and
              sum by (%(cluster)s) (rate(coredns_dns_responses_total{%(coredns)s,rcode="SERVFAIL"}[%(w)s])) > %(errorsPerSecond)s
            |||,
            hold: '10m',
            severity: 'warning',
            summary: 'The DNS of the cluster fails to answer.',
            description: '{{ $value | humanizePercentage }} of DNS answers in %(name)s are SERVFAIL.',
          }),
          alert('ClusterDNSSlow', {
            expr: |||
              histogram_quantile(0.99, sum by (%(cluster)s, le) (rate(coredns_dns_request_duration_seconds_bucket{%(coredns)s}[%(w)s]))) > %(slowSeconds)s
              and
              sum by (%(cluster)s) (rate(coredns_dns_request_duration_seconds_count{%(coredns)s}[%(w)s])) > %(answersPerSecond)s
            |||,
            hold: '10m',
            severity: 'warning',
            summary: 'The DNS of the cluster is slow.',
            description: '1%% of DNS requests in %(name)s take longer than {{ $value | humanizeDuration }}.',
          }),
        ],
      },
    ],
  },
}
