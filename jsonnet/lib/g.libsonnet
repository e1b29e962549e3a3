// Dashboards in a few words. README.md lists every option; a dashboard is
//
//   local g = (import '../lib/g.libsonnet')($._config);
//   g.dashboard({
//     name: 'etcd',                         // file name and rest of the uid
//     title: 'etcd',
//     description: 'Is etcd healthy, and will it stay so?',
//     variables: [g.clusterVar],
//     rows: [
//       g.row('', [g.stat('Leaders', { description: ..., unit: 'short', targets: [g.q('...{%(cl)s}' % f)] })]),
//     ],
//   })
//
// What every dashboard must have is added here and cannot be forgotten: uid,
// tags, refresh, the datasource variable, annotations for trouble and deploys,
// links to the other dashboards, ids and places of panels.
local field = import 'field.libsonnet';

function(c) {
  local g = self,
  local get(o, key, default) = if std.objectHas(o, key) then o[key] else default,

  // All panels ask the datasource that the reader chose.
  local datasource = { type: 'prometheus', uid: '${datasource}' },
  local panels = (import 'panels.libsonnet')(datasource),

  // cl is the matcher that every selector has.
  cl:: '%s=~"$cluster"' % c.clusterLabel,
  // i is the window of rates: long enough for four scrapes at any zoom.
  i:: '$__rate_interval',
  // uid of a sibling by its file name.
  uid(file):: c.grafana.uidPrefix + file,

  // q is one query. Options: instant, format ('time_series', 'table', 'heatmap'), hide, interval.
  q(expr, legend='', o={})::
    local unknown = field.unknown(o, ['instant', 'format', 'hide', 'interval']);
    assert std.length(unknown) == 0 : 'a query has no option %s' % std.join(', ', unknown);
    { expr: std.rstripChars(expr, '\n '), legendFormat: legend }
    + (if std.objectHas(o, 'instant') then { instant: o.instant, range: !o.instant } else {})
    + { [k]: o[k] for k in ['format', 'hide', 'interval'] if std.objectHas(o, k) },

  // Kinds of panels.
  timeseries(title, o):: panels.timeseries(title, o),
  stat(title, o):: panels.stat(title, o),
  table(title, o):: panels.table(title, o),
  bargauge(title, o):: panels.bargauge(title, o),
  gauge(title, o):: panels.gauge(title, o),
  heatmap(title, o):: panels.heatmap(title, o),
  stateTimeline(title, o):: panels.stateTimeline(title, o),
  histogram(title, o):: panels.histogram(title, o),
  text(title, markdown, o={}):: panels.text(title, markdown, o),

  // row is a line across the dashboard and the panels below it; '' is no line.
  row(title, panels, collapsed=false):: { title: title, panels: panels, collapsed: collapsed },

  // Values of a data link: of the row of a table, and of the labels of a series.
  field(name):: '${__data.fields["%s"]}' % name,
  label(name):: '${__field.labels["%s"]}' % name,

  // link leads to a sibling, with the time and the cluster of this dashboard and the variables given. A variable `cluster` among them takes the place of this
  // dashboard's: in a table over all clusters the row knows better.
  link(title, file, vars={})::
    assert std.member(std.objectValues(c.grafana.dashboards), file) : 'there is no dashboard "%s" in _config.grafana.dashboards' % file;
    {
      title: title,
      url: '/d/%s?%s' % [
        g.uid(file),
        std.join('&', ['${datasource:queryparam}']
                      + (if std.objectHas(vars, 'cluster') then [] else ['${cluster:queryparam}'])
                      + ['var-%s=%s' % [v, vars[v]] for v in std.objectFields(vars)]
                      + ['${__url_time_range}']),
      ],
      targetBlank: false,
    },
  // linkOut leads to any other address.
  linkOut(title, url):: { title: title, url: url, targetBlank: true },

  // Variables.
  local variable(name, label, query, o) = {
    name: name,
    label: label,
    description: get(o, 'description', ''),
    type: 'query',
    datasource: datasource,
    definition: query,
    query: { qryType: 1, query: query, refId: 'PrometheusVariableQueryEditor-VariableQuery' },
    refresh: 2,
    regex: get(o, 'regex', ''),
    sort: get(o, 'sort', 1),
    multi: get(o, 'multi', false),
    includeAll: get(o, 'includeAll', false),
    hide: if get(o, 'hide', false) then 2 else 0,
    skipUrlSync: false,
    options: [],
  } + (if get(o, 'includeAll', false) then { allValue: get(o, 'allValue', '.*'), current: { selected: true, text: 'All', value: '$__all' } } else {}),

  // var is a variable of label values: g.var('node', 'Node', 'label_values(node:ready:max{%(cl)s}, %(node)s)' % f, { multi, includeAll, allValue, regex, sort, hide, description }).
  var(name, label, query, o={})::
    local unknown = field.unknown(o, ['multi', 'includeAll', 'allValue', 'regex', 'sort', 'hide', 'description']);
    assert std.length(unknown) == 0 : 'variable %s has no option %s' % [name, std.join(', ', unknown)];
    variable(name, label, query, o),
  // customVar is a choice of fixed values: g.customVar('top', 'Top', ['10', '20']). A value may be [text, value], of which the reader sees the text.
  customVar(name, label, values, description=''):: {
    local text(v) = if std.isArray(v) then v[0] else v,
    local value(v) = if std.isArray(v) then v[1] else v,
    name: name,
    label: label,
    description: description,
    type: 'custom',
    query: std.join(',', [if std.isArray(v) then '%s : %s' % v else v for v in values]),
    multi: false,
    includeAll: false,
    hide: 0,
    skipUrlSync: false,
    options: [{ selected: v == values[0], text: text(v), value: value(v) } for v in values],
    current: { selected: true, text: text(values[0]), value: value(values[0]) },
  },
  // textVar is a box to type in.
  textVar(name, label, default='', description=''):: {
    name: name,
    label: label,
    description: description,
    type: 'textbox',
    query: default,
    hide: 0,
    skipUrlSync: false,
    options: [{ selected: true, text: default, value: default }],
    current: { selected: true, text: default, value: default },
  },
  // clusterVar chooses the cluster. One recorded series for each cluster is read, and not the labels of everything.
  clusterVar:: variable('cluster', 'Cluster', 'label_values(cluster:nodes:count, %s)' % c.clusterLabel, {
    includeAll: true,
    hide: !c.showMultiCluster,
    description: 'Clusters that the recording rules see.',
  }),

  // oneClusterVar is for what is about one node: clusters may have nodes of one name.
  oneClusterVar:: g.clusterVar { includeAll: false, allValue:: null, current:: null },

  local datasourceVar = {
    name: 'datasource',
    label: 'Data source',
    description: 'Spillway, or a Prometheus that has all of the cluster.',
    type: 'datasource',
    query: 'prometheus',
    regex: c.grafana.datasourceRegex,
    refresh: 1,
    multi: false,
    includeAll: false,
    hide: 0,
    skipUrlSync: false,
    options: [],
  },

  // Annotations.
  annotation(name, expr, color, title, text, o={}):: {
    name: name,
    datasource: datasource,
    enable: get(o, 'enable', true),
    hide: false,
    iconColor: field.colour(color),
    expr: std.rstripChars(expr, '\n '),
    step: '60s',
    titleFormat: title,
    textFormat: text,
    tagKeys: get(o, 'tags', ''),
    useValueForTime: false,
  },

  // begun are the alerts of a severity that fire now and did not a step ago: a line where each begins, and no shade over hours of them.
  local begun(severity) =
    local firing = 'count by (%s, alertname) (ALERTS{%s, alertstate="firing", alertname!="Watchdog", severity="%s"}%%s)' % [c.clusterLabel, g.cl, c.severities[severity]];
    '%s\nunless\n%s' % [firing % '', firing % ' offset $__interval'],
  // Deployments whose specification somebody changed.
  local rolledOut = 'sum by (%s, %s, deployment) (changes(kube_deployment_status_observed_generation{%s, %s}[$__rate_interval])) > 0' % [c.clusterLabel, c.namespaceLabel, c.selectors.ksm, g.cl],

  local defaultAnnotations = [
    {
      builtIn: 1,
      datasource: { type: 'grafana', uid: '-- Grafana --' },
      enable: true,
      hide: true,
      iconColor: field.colour('info'),
      name: 'Annotations & Alerts',
      type: 'dashboard',
    },
    g.annotation('Pages', begun('critical'), 'bad', '{{alertname}}', '{{%s}}: somebody was paged' % c.clusterLabel),
    g.annotation('Deploys', rolledOut, 'info', '{{deployment}}', '{{%s}}: a deployment of {{%s}} was changed' % [c.clusterLabel, c.namespaceLabel]),
    g.annotation('Remediation', begun('auto'), 'warn', '{{alertname}}', '{{%s}}: a node or GPU, for the remediation controller' % c.clusterLabel, { enable: false }),
  ],

  // place gives panels their ids and places: from left to right, a new line where one does not fit.
  place(rows)::
    local put(acc, p) =
      local wrap = acc.x + p.gridPos.w > 24;
      local x = if wrap then 0 else acc.x;
      local y = if wrap then acc.y + acc.high else acc.y;
      {
        x: x + p.gridPos.w,
        y: y,
        high: if wrap then p.gridPos.h else std.max(acc.high, p.gridPos.h),
        id: acc.id + 1,
        done: acc.done + [p { id: acc.id, gridPos+: { x: x, y: y } }],
      };
    local inside(acc, list) = std.foldl(put, list, { x: 0, y: acc.y, high: 0, id: acc.id, done: [] });
    std.foldl(
      function(acc, row)
        if row.title == '' then
          local body = inside(acc, row.panels);
          { id: body.id, y: body.y + body.high, done: acc.done + body.done }
        else
          local line = { type: 'row', title: row.title, id: acc.id, collapsed: row.collapsed, gridPos: { x: 0, y: acc.y, w: 24, h: 1 }, panels: [] };
          local body = inside({ id: acc.id + 1, y: acc.y + 1 }, row.panels);
          if row.collapsed
          then { id: body.id, y: acc.y + 1, done: acc.done + [line { panels: body.done }] }
          else { id: body.id, y: body.y + body.high, done: acc.done + [line] + body.done },
      rows,
      { id: 1, y: 0, done: [] }
    ).done,

  dashboard(d)::
    local unknown = field.unknown(d, ['name', 'title', 'description', 'variables', 'rows', 'links', 'time', 'annotations']);
    assert std.length(unknown) == 0 : 'dashboard %s has no option %s' % [d.name, std.join(', ', unknown)];
    assert std.member(std.objectValues(c.grafana.dashboards), d.name) : 'dashboard %s is not in _config.grafana.dashboards' % d.name;
    local all = [p for r in d.rows for p in r.panels];
    assert std.length(std.set([p.title for p in all])) == std.length(all) : 'dashboard %s has two panels of one title' % d.name;
    {
      uid: g.uid(d.name),
      title: d.title,
      description: d.description,
      tags: c.grafana.tags,
      schemaVersion: 39,
      editable: true,
      graphTooltip: 1,
      refresh: c.grafana.refresh,
      time: get(d, 'time', { from: 'now-1h', to: 'now' }),
      timepicker: {},
      timezone: 'browser',
      fiscalYearStartMonth: 0,
      weekStart: '',
      annotations: { list: defaultAnnotations + get(d, 'annotations', []) },
      templating: { list: [datasourceVar] + d.variables },
      links: [{
        type: 'dashboards',
        title: c.grafana.folder,
        tags: c.grafana.tags,
        asDropdown: true,
        includeVars: true,
        keepTime: true,
        targetBlank: false,
        icon: 'external link',
        tooltip: 'The other dashboards, with this time and these variables',
        url: '',
      }] + get(d, 'links', []),
      panels: g.place(d.rows),
      // Of each panel by its title: why it may be empty, which troubles change it, how many series it may ask for.
      facts:: { [p.title]: p.facts for p in all },
    },
}
