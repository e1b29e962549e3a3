// How an alert is written here:
//
//   local a = (import '../lib/alert.libsonnet')($._config);
//   a.alert('GPUHot', {
//     expr: ...,
//     hold: '5m',                     // becomes `for`, through the time scale; leave it out for none
//     keep: '10m',                    // becomes `keep_firing_for`, likewise
//     severity: 'warning',            // a key of _config.severities
//     summary: 'A GPU is hot.',       // one sentence, no values: notifications are grouped by it
//     description: 'GPU {{ $labels.gpu }} of {{ $labels.node }} is at {{ $value }} °C.',
//     dashboard: 'gpuNode',           // a key of _config.grafana.dashboards
//     vars: { node: 'node' },         // dashboard variable: alert label, or { label:, otherwise: } where not all of its alerts have it; the cluster is always among them
//     labels: {},                     // further labels
//     external: true,                 // the alert's own labels lack the cluster: Prometheus' external labels have it
//   })
//
// runbook_url is added to all rules at once by runbooks.libsonnet.
function(config) {
  local t = (import 'time.libsonnet')(config.timeScale),

  // cluster is the name of an alert's cluster as a template, for descriptions.
  cluster(external=false)::
    if external
    then '{{ or $labels.%(l)s $externalLabels.%(l)s }}' % { l: config.clusterLabel }
    else '{{ $labels.%s }}' % config.clusterLabel,

  // link is the address of a dashboard with its variables filled in from the
  // labels of the alert. urlquery is Go's own: a value cannot break the address.
  link(dashboard, vars={}, external=false)::
    assert std.objectHas(config.grafana.dashboards, dashboard) : 'no dashboard "%s" in _config.grafana.dashboards' % dashboard;
    local cluster = if external
    then 'or $labels.%(l)s $externalLabels.%(l)s' % { l: config.clusterLabel }
    else '$labels.%s' % config.clusterLabel;
    local value(of) = if std.isObject(of) then 'or $labels.%(label)s "%(otherwise)s"' % of else '$labels.%s' % of;
    local args = ['var-%s={{ %s | urlquery }}' % ['cluster', cluster]]
                 + ['var-%s={{ %s | urlquery }}' % [v, value(vars[v])] for v in std.objectFields(vars) if v != 'cluster'];
    '%s/d/%s%s?%s' % [config.grafana.url, config.grafana.uidPrefix, config.grafana.dashboards[dashboard], std.join('&', args)],

  alert(name, a)::
    assert std.objectHas(config.severities, a.severity) : '%s: severity "%s" is not in _config.severities' % [name, a.severity];
    {
      alert: name,
      expr: std.rstripChars(a.expr, '\n'),
      labels: { severity: config.severities[a.severity] } + (if std.objectHas(a, 'labels') then a.labels else {}),
      annotations: {
        summary: a.summary,
        description: '%s Dashboard: %s' % [
          std.rstripChars(a.description, '\n'),
          $.link(a.dashboard, if std.objectHas(a, 'vars') then a.vars else {}, std.objectHas(a, 'external') && a.external),
        ],
      },
    }
    + (if std.objectHas(a, 'hold') then { 'for': t.d(a.hold) } else {})
    + (if std.objectHas(a, 'keep') then { keep_firing_for: t.d(a.keep) } else {}),
}
