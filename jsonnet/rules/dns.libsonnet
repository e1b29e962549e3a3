// What the dashboard of nodes and DNS shows over days.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local f = { cluster: c.clusterLabel, coredns: c.selectors.coredns, w: t.d('5m') },

  prometheusRules+:: {
    groups+: [
      {
        name: 'dns',
        rules: [
          {
            record: 'cluster_rcode:coredns_dns_responses:rate5m',
            expr: |||
              sum by (%(cluster)s, rcode) (rate(coredns_dns_responses_total{%(coredns)s}[%(w)s]))
            ||| % f,
          },
          {
            record: 'cluster_le:coredns_dns_request_duration_seconds_bucket:rate5m',
            expr: |||
              sum by (%(cluster)s, le) (rate(coredns_dns_request_duration_seconds_bucket{%(coredns)s}[%(w)s]))
            ||| % f,
          },
        ],
      },
    ],
  },
}
