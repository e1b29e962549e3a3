// Dashboards that the datasource for experiments brings along. Their panels, fields and colours are those of lib/; what they ask is a query type of the plugin
// and what is chosen, and no PromQL, so that an empty panel says what is missing. README.md of jsonnet/ has an example.
local field = import '../lib/field.libsonnet';

function(c) {
  local e = self,
  local get(o, key, default) = if std.objectHas(o, key) then o[key] else default,

  local plugin = 'spillway-experiments-datasource',
  // The variable is not called datasource: the list of dashboards hands all variables on, and the others' is a Prometheus.
  local datasource = { type: plugin, uid: '${source}' },
  local g = (import '../lib/g.libsonnet')(c),
  local panels = (import '../lib/panels.libsonnet')(datasource),

  row:: g.row,
  text:: g.text,

  // What a query is about, by the dashboard's variables: of(['experiment', 'cluster']).
  of(variables):: { [v + 's']: ['$' + v] for v in variables },

  // q is one query: a type of the plugin, what it is about, and the type's own fields. many says that it gives several series: each gets a colour by its name.
  q(type, chosen, o={}, many=false):: {
    // The panels' library tells by the legend whether there are several.
    legendFormat: if many then '{{many}}' else '',
    asked:: { queryType: type } + chosen + o,
  },

  // asked takes from a panel what Prometheus' queries have, and puts the plugin's there.
  local asked(p) = p { targets: [{ datasource: t.datasource, refId: t.refId } + t.asked for t in super.targets] },

  // Units come with the answers; `unit` is for fields that have none there.
  local plain(o) = { unit: 'none' } + o,
  local nothing = { noValue: 'Nothing was measured in this time' },
  timeseries(title, o):: asked(panels.timeseries(title, nothing + plain(o))),
  stat(title, o):: asked(panels.stat(title, plain(o))),

  // Cells of percent, a row for each series; nought is a cell too. Most of the colours are for the upper half, where a slow node differs from the others.
  heatmap(title, o):: asked(panels.heatmap(title, nothing { rows: true, unit: 'none', cellUnit: 'percent', cellMin: 0, cellMax: 100, maxDataPoints: 120 } + o)) + {
    options+: { filterValues: { le: -1 }, color+: { exponent: 2 } },
  },

  // A stat of some fields of one frame, by their names. It has no transformations: those that make one frame of several lose the notices, so that a green
  // number would not say that a part of it is missing.
  counts(title, fields, o):: e.stat(title, o) + { options+: { reduceOptions+: { fields: '/^(%s)$/' % std.join('|', fields) } } },

  // Rows of the plugin's tables. All columns stay but those of `without`, since links are made of them; `columns` says how some look:
  // {field, title, unit, thresholds, mappings, width, decimals, bar}. `empty` are the words of a table without rows.
  table(title, o)::
    assert std.objectHas(o, 'empty') : 'table "%s" does not say in `empty` what it means to have no rows' % title;
    local columns = get(o, 'columns', []);
    local without = get(o, 'without', []);
    local own = { [k]: o[k] for k in std.objectFields(o) if !std.member(['columns', 'without', 'empty'], k) };
    // The library's table wants at least one column, and names them all.
    local base = panels.table(title, plain(own) { columns: [{ field: 'x' }], noValue: o.empty });
    local shown(x) = field.override(
      { match: { name: x.field } }
      + { [k]: x[k] for k in std.objectFields(x) if !std.member(['field', 'bar'], k) }
      + (if std.objectHas(x, 'thresholds') || std.objectHas(x, 'mappings') then { cell: { type: 'color-text' } } else {})
      + (if get(x, 'bar', false) then { cell: { type: 'gauge', mode: 'basic', valueDisplayMode: 'text' } } else {})
    ) + (if std.objectHas(x, 'thresholds') then { properties+: [{ id: 'color', value: { mode: 'thresholds' } }] } else {});
    local given = [x.field for x in columns if std.objectHas(x, 'title')];
    local all = get(titles, o.targets[0].asked.queryType, {});
    local named = { [f]: all[f] for f in std.objectFields(all) if !std.member(given + without, f) };
    // What a table without rows says is not what a cell without a value says.
    local heads = [field.override({ match: { regex: '/.*/' }, noValue: '' })]
                  + [field.override({ match: { name: f }, title: named[f] }) for f in std.objectFields(named)];
    asked(base) {
      transformations: if without == [] then [] else [{ id: 'organize', options: { excludeByName: { [f]: true for f in without } } }],
      // A bar is as long as its share of its own column's largest value.
      fieldConfig+: { defaults+: { fieldMinMax: true }, overrides: heads + [shown(x) for x in columns] + [field.override(x) for x in get(o, 'overrides', [])] },
    },

  // Heads of columns whose names are not words, by the type of the query.
  local titles = {
    experiments: { gpus: 'GPUs' },
    pods: { exit_code: 'exit code', gpus: 'GPUs' },
    nodes: { gpus_held: 'GPUs held', gpus: 'GPUs', util: 'use', xid: 'Xid', xid_text: 'what that is' },
    cost: { gpu_hours: 'GPU hours', idle_gpu_hours: 'idle GPU hours', idle_share: 'idle' },
    compare: { gpu_hours: 'GPU hours', mean_util: 'use', gpus: 'GPUs' },
  },

  // Colours of runs that are compared, by the names that the plugin's front end gives to their fields: no experiment can be called so.
  runs:: [field.override({ match: { name: 'run %d' % i }, color: 'r%d' % i }) for i in std.range(1, 8)],

  // Colours of a whole, which query A gives, and of its parts by their names: a node has one colour on all panels.
  parts:: field.byName() + field.solid([field.override({ match: { ref: 'A' }, color: 'text', lineWidth: 3 })]),

  // How states and kinds of faults look in tables.
  states:: [['running', 'running', 'ok'], ['pending', 'pending', 'warn'], ['ended', 'ended', 'off']],
  phases:: [['Running', 'Running', 'ok'], ['Pending', 'Pending', 'warn'], ['Failed', 'Failed', 'bad'], ['Succeeded', 'Succeeded', 'off'], ['Unknown', 'Unknown', 'warn']],
  nodeStates:: [['ready', 'ready', 'ok'], ['not ready', 'not ready', 'bad'], ['unknown', 'unknown', 'warn'], ['gone', 'gone', 'bad']],

  // link leads to another of these dashboards, with the time and the variables given; e.field is a value of the table's row.
  field(name):: '${__data.fields.%s:percentencode}' % name,
  // `same` are variables that are handed on as they are.
  // range is the panel's, or that of the row.
  link(title, name, vars, same=[], range='${__url_time_range}'):: {
    title: title,
    url: '/d/%s?%s' % [g.uid(name), std.join('&', ['${%s:queryparam}' % v for v in ['source'] + same] + ['var-%s=%s' % [v, vars[v]] for v in std.objectFields(vars)] + [range])],
    targetBlank: false,
  },
  // list is a variable of names: a resource of the plugin, narrowed by other variables. Experiments come newest first. days is how many days back they are listed, 7 without it.
  // Options: multi, includeAll, limit, days, description.
  list(name, label, resource, narrow, o={})::
    local unknown = field.unknown(o, ['multi', 'includeAll', 'limit', 'days', 'description']);
    assert std.length(unknown) == 0 : 'variable %s has no option %s' % [name, std.join(', ', unknown)];
    {
      name: name,
      label: label,
      description: get(o, 'description', ''),
      type: 'query',
      datasource: datasource,
      definition: std.join(' ', [resource] + ['of $' + v for v in narrow]),
      query: { queryType: 'variable', resource: resource, refId: 'variable' } + { [v]: '$' + v for v in narrow } + { [k]: o[k] for k in ['limit', 'days'] if std.objectHas(o, k) },
      refresh: 1,
      regex: '',
      sort: if resource == 'experiments' then 0 else 1,
      multi: get(o, 'multi', false),
      includeAll: get(o, 'includeAll', false),
      hide: 0,
      skipUrlSync: false,
      options: [],
    } + (if get(o, 'includeAll', false) then { allValue: '.*', current: { selected: true, text: 'All', value: '$__all' } } else {}),

  clusterVar:: e.list('cluster', 'Cluster', 'clusters', [], { multi: true, includeAll: true, description: 'Clusters that have experiments.' })
               + { hide: if c.showMultiCluster then 0 else 2 },

  // siblings is a list of dashboards at the top of each.
  local siblings(title, tags, tooltip) = {
    type: 'dashboards',
    title: title,
    tags: tags,
    asDropdown: true,
    includeVars: true,
    keepTime: true,
    targetBlank: false,
    icon: 'external link',
    tooltip: tooltip + ', with this time and these variables',
    url: '',
  },

  dashboard(d)::
    local unknown = field.unknown(d, ['name', 'title', 'description', 'variables', 'rows', 'time', 'refresh', 'events']);
    assert std.length(unknown) == 0 : 'dashboard %s has no option %s' % [d.name, std.join(', ', unknown)];
    local all = [p for r in d.rows for p in r.panels];
    assert std.length(std.set([p.title for p in all])) == std.length(all) : 'dashboard %s has two panels of one title' % d.name;
    {
      uid: g.uid(d.name),
      title: d.title,
      description: d.description,
      tags: c.grafana.tags + ['experiments'],
      schemaVersion: 39,
      editable: true,
      graphTooltip: 1,
      refresh: d.refresh,
      time: { from: d.time, to: 'now' },
      timepicker: {},
      timezone: 'browser',
      fiscalYearStartMonth: 0,
      weekStart: '',
      annotations: {
        list: [
          {
            builtIn: 1,
            datasource: { type: 'grafana', uid: '-- Grafana --' },
            enable: true,
            hide: true,
            iconColor: field.colour('info'),
            name: 'Annotations & Alerts',
            type: 'dashboard',
          },
        ] + (
          if !std.objectHas(d, 'events') then [] else [{
            name: 'Events',
            datasource: datasource,
            enable: true,
            hide: false,
            iconColor: field.colour('warn'),
            target: { refId: 'Anno', queryType: 'events' } + d.events,
          }]
        ),
      },
      templating: { list: [{
        name: 'source',
        label: 'Data source',
        description: 'A data source of the type Spillway Experiments.',
        type: 'datasource',
        query: plugin,
        regex: '',
        refresh: 1,
        multi: false,
        includeAll: false,
        hide: 0,
        skipUrlSync: false,
        options: [],
      }] + d.variables },
      links: [siblings('Experiments', ['experiments'], 'Experiments, teams, comparisons'), siblings(c.grafana.folder, c.grafana.tags, 'All dashboards')],
      panels: g.place(d.rows),
    },
}
