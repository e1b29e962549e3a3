// The kinds of panels. Each is a function of a title and of options, which are
// listed in jsonnet/README.md; an option that a kind does not have is an error,
// since one that is silently not used would be a panel that is not as written.
local field = import 'field.libsonnet';

// Options that every kind has.
local common = ['description', 'targets', 'unit', 'w', 'h', 'decimals', 'min', 'max', 'thresholds', 'mappings', 'overrides', 'links', 'noValue', 'quiet', 'trouble', 'budget', 'interval', 'maxDataPoints', 'transformations', 'repeat'];

local get(o, key, default) = if std.objectHas(o, key) then o[key] else default;
local given(o, key, value) = if std.objectHas(o, key) then value else {};

local refs = std.stringChars('ABCDEFGHIJKLMNOPQRSTUVWXYZ');

// several says whether a query may give more series than one.
local several(target) = std.length(std.findSubstr('{{', target.legendFormat)) > 0;

function(datasource) {
  // queries gives targets their letters. What a kind needs (an answer for now only, a table) is under what the query itself says.
  local queries(o, defaults) = std.mapWithIndex(
    function(i, t) { datasource: datasource, refId: refs[i], legendFormat: '', editorMode: 'code', range: true } + defaults + t,
    get(o, 'targets', [])
  ),

  local panel(kind, title, o, own, size, defaults={}) =
    local unknown = field.unknown(o, common + own);
    assert std.length(unknown) == 0 : '%s "%s" has no option %s; it has %s' % [kind, title, std.join(', ', unknown), std.join(', ', std.set(common + own))];
    assert kind == 'text' || std.objectHas(o, 'description') : '%s "%s" has no description' % [kind, title];
    assert kind == 'text' || std.objectHas(o, 'unit') : '%s "%s" has no unit; "none" or "short" is one' % [kind, title];
    local targets = queries(o, defaults);
    {
      type: kind,
      title: title,
      description: std.rstripChars(get(o, 'description', ''), '\n ') + (if std.objectHas(o, 'quiet') then ' Empty while all is well: %s.' % std.rstripChars(o.quiet, '. ') else ''),
      datasource: datasource,
      gridPos: { w: get(o, 'w', size[0]), h: get(o, 'h', size[1]), x: 0, y: 0 },
      targets: targets,
      fieldConfig: {
        defaults: {
          unit: get(o, 'unit', 'none'),
          color: field.fixed('text'),
          mappings: if std.objectHas(o, 'mappings') then field.mappings(o.mappings) else [],
          thresholds: field.thresholds(get(o, 'thresholds', [[null, 'text']])),
          links: get(o, 'links', []),
        } + {
          [k]: o[k]
          for k in ['decimals', 'min', 'max', 'noValue']
          if std.objectHas(o, k)
        } + (if std.objectHas(o, 'quiet') && !std.objectHas(o, 'noValue') then { noValue: 'None' } else {}),
        overrides: [field.override(x) for x in get(o, 'overrides', [])],
      },
      options: {},
      pluginVersion: '11.0.0',
      // What tests know of the panel, and Grafana need not.
      facts:: {
        quiet: get(o, 'quiet', ''),
        trouble: get(o, 'trouble', []),
        budget:
          assert get(o, 'budget', 50) <= 200 : '%s "%s": no panel may return more than 200 series' % [kind, title];
          get(o, 'budget', 50),
      },
    }
    + { [k]: o[k] for k in ['interval', 'maxDataPoints', 'transformations', 'repeat'] if std.objectHas(o, k) }
    + given(o, 'repeat', { repeatDirection: 'h' }),

  // judged are the colours of what has thresholds or mappings; without them a value is text.
  local judged(o, otherwise='text') = {
    fieldConfig+: { defaults+: {
      color: if std.objectHas(o, 'thresholds') || std.objectHas(o, 'mappings') then { mode: 'thresholds' } else field.fixed(otherwise),
    } },
  },

  local legend(o, default) =
    local kind = get(o, 'legend', default);
    assert std.member(['list', 'table', 'hidden'], kind) : 'legend "%s" is none of list, table, hidden' % kind;
    {
      showLegend: kind != 'hidden',
      displayMode: kind,
      placement: get(o, 'legendPlacement', 'bottom'),
      calcs: get(o, 'calcs', if kind == 'table' then ['lastNotNull', 'max'] else []),
    } + (if kind == 'table' then { sortBy: 'Last *', sortDesc: true } else {}),

  // Lines over time. Several queries get the colours a to h in turn: one colour for a query of one series, its shades where the legend names a label. The series of a
  // single query look as their names say: field.byName.
  timeseries(title, o)::
    local own = ['stack', 'fill', 'legend', 'legendPlacement', 'calcs', 'colors', 'draw', 'lineWidth', 'softMax', 'log', 'points', 'axisLabel', 'thresholdLine', 'spanNulls', 'step'];
    local base = panel('timeseries', title, o, own, [12, 8]);
    local stack = get(o, 'stack', false);
    local n = std.length(base.targets);
    local colors = get(o, 'colors', field.series);
    local named = n == 1 && several(base.targets[0]) && !std.objectHas(o, 'colors');
    // An axis of nothing but zeros ends at a hundred; what is judged shows where trouble begins.
    local limits = [s[0] for s in get(o, 'thresholds', []) if s[0] != null];
    local line = get(o, 'thresholdLine', if limits == [] then 'off' else 'dashed');
    local softMax =
      if std.objectHas(o, 'softMax') then o.softMax
      else if std.objectHas(o, 'max') then null
      else if line != 'off' then 1.1 * limits[std.length(limits) - 1]
      else if o.unit == 'percentunit' then 0.01
      else if o.unit == 'short' || o.unit == 'none' then 1
      else null;
    local alone = n == 1 && !several(base.targets[0]);
    local lines = stack == false && get(o, 'draw', 'line') == 'line';
    local custom = {
      drawStyle: get(o, 'draw', 'line'),
      lineInterpolation: if get(o, 'step', false) then 'stepAfter' else 'linear',
      // In a stack the line of a series that is zero would run along the top of the others.
      lineWidth: get(o, 'lineWidth', if stack == false then 2 else 0),
      fillOpacity: get(o, 'fill', if stack != false then 65 else if alone then 12 else 0),
      gradientMode: 'none',
      showPoints: if get(o, 'points', false) then 'always' else 'never',
      pointSize: 4,
      spanNulls: get(o, 'spanNulls', false),
      stacking: { mode: if stack == false then 'none' else if stack == true then 'normal' else stack, group: 'A' },
      axisPlacement: 'auto',
      axisLabel: get(o, 'axisLabel', ''),
      axisColorMode: 'text',
      axisBorderShow: false,
      scaleDistribution: if get(o, 'log', false) then { type: 'log', log: 10 } else { type: 'linear' },
      hideFrom: { legend: false, tooltip: false, viz: false },
      thresholdsStyle: { mode: line },
    };
    local soft = (if std.objectHas(o, 'min') || get(o, 'log', false) then {} else { axisSoftMin: 0 })
                 + (if softMax == null then {} else { axisSoftMax: softMax });
    local byQuery = std.mapWithIndex(
      function(i, t)
        local name = colors[i % std.length(colors)];
        field.override({ match: { ref: t.refId } } + (if several(t) then { shades: name } else { color: name })),
      base.targets
    );
    base {
      fieldConfig+: {
        defaults+: { color: if alone then field.fixed(colors[0]) else field.shades(colors[0]), custom: custom + soft },
        overrides:
          if named && lines then field.byName() + field.solid(super.overrides)
          else (if named then field.byName(false) else if n < 2 then [] else byQuery) + super.overrides,
      },
      options: {
        legend: legend(o, 'list'),
        tooltip: { mode: 'multi', sort: 'desc' },
      },
    },

  local reduce(o) = { calcs: [get(o, 'calc', 'lastNotNull')], fields: '', values: false },

  // One number. The value has a colour where it is judged; `verdict: true` colours the background, for the one that answers "is it fine?".
  stat(title, o)::
    local sparkline = get(o, 'sparkline', false);
    panel('stat', title, o, ['sparkline', 'verdict', 'calc', 'textMode', 'orientation'], [4, 4], if sparkline then {} else { instant: true, range: false })
    + judged(o) + {
      options: {
        colorMode: if get(o, 'verdict', false) then 'background' else 'value',
        graphMode: if sparkline then 'area' else 'none',
        justifyMode: 'auto',
        orientation: get(o, 'orientation', 'auto'),
        reduceOptions: reduce(o),
        textMode: get(o, 'textMode', 'auto'),
        wideLayout: false,
        showPercentChange: false,
        percentChangeColorMode: 'standard',
      },
    },

  // Rows of the moment. `columns` says which fields show, in which order: `field` is a label, or Value (of several queries: "Value #A").
  table(title, o)::
    local columns = get(o, 'columns', []);
    local fields = [c.field for c in columns];
    assert std.length(fields) > 0 : 'table "%s" has no columns' % title;
    local base = panel('table', title, o { unit: get(o, 'unit', 'none') }, ['columns', 'sortBy', 'sortDesc', 'filterable', 'pageSize'], [24, 8], { instant: true, range: false, format: 'table' });
    local shown(c) = {
                       match: { name: if std.objectHas(c, 'title') then c.title else c.field },
                     } + { [k]: c[k] for k in std.objectFields(c) if !std.member(['field', 'title', 'hide', 'bar'], k) }
                     + (if std.objectHas(c, 'thresholds') then { cell: { type: 'color-text' } } else {})
                     + (if get(c, 'bar', false) then { cell: { type: 'gauge', mode: 'basic', valueDisplayMode: 'text' } } else {});
    base {
      transformations:
        (if std.length(base.targets) > 1 then [{ id: 'merge', options: {} }] else [])
        + [
          { id: 'filterFieldsByName', options: { include: { names: fields } } },
          {
            id: 'organize',
            options: {
              excludeByName: { [c.field]: true for c in columns if get(c, 'hide', false) },
              indexByName: { [columns[i].field]: i for i in std.range(0, std.length(columns) - 1) },
              renameByName: { [c.field]: c.title for c in columns if std.objectHas(c, 'title') },
            },
          },
        ] + get(o, 'transformations', []),
      fieldConfig+: {
        defaults+: { custom: { align: 'auto', cellOptions: { type: 'auto' }, inspect: false, filterable: get(o, 'filterable', false) } },
        overrides: std.filter(
          function(x) std.length(x.properties) > 0,
          [field.override(shown(c)) + (if std.objectHas(c, 'thresholds') then { properties+: [{ id: 'color', value: { mode: 'thresholds' } }] } else {}) for c in columns]
        ) + super.overrides,
      },
      options: {
        frameIndex: 0,
        showHeader: true,
        cellHeight: 'sm',
        footer: { show: false, reducer: ['sum'], countRows: false, fields: '', enablePagination: std.objectHas(o, 'pageSize') },
        sortBy: if std.objectHas(o, 'sortBy') then [{ displayName: o.sortBy, desc: get(o, 'sortDesc', true) }] else [],
      },
    },

  // One bar for each series of the moment.
  bargauge(title, o)::
    panel('bargauge', title, o, ['calc', 'orientation', 'display', 'color'], [8, 8], { instant: true, range: false })
    + judged(o, get(o, 'color', 'a')) + {
      fieldConfig+: { defaults+: { min: get(o, 'min', 0) } },
      options: {
        displayMode: get(o, 'display', 'basic'),
        orientation: get(o, 'orientation', 'horizontal'),
        reduceOptions: reduce(o),
        showUnfilled: true,
        valueMode: 'text',
        namePlacement: 'auto',
        text: { titleSize: 12, valueSize: 16 },
        sizing: 'manual',  // else a single bar fills the panel
        minVizWidth: 8,
        minVizHeight: 12,
        maxVizHeight: 32,
        legend: { showLegend: false, displayMode: 'hidden', placement: 'bottom', calcs: [] },
      },
    },

  // A dial, for a share of something.
  gauge(title, o)::
    panel('gauge', title, o, ['calc', 'orientation'], [4, 4], { instant: true, range: false })
    + judged(o, 'a') + {
      fieldConfig+: { defaults+: { min: get(o, 'min', 0), max: get(o, 'max', 1) } },
      options: {
        orientation: get(o, 'orientation', 'auto'),
        reduceOptions: reduce(o),
        showThresholdLabels: false,
        showThresholdMarkers: false,
        sizing: 'auto',
        minVizWidth: 75,
        minVizHeight: 75,
      },
    },

  // A cell for each bucket and time. `unit` is that of the buckets; `rows: true` for series that are rows of their own and no buckets of a histogram.
  heatmap(title, o)::
    local rows = get(o, 'rows', false);
    panel('heatmap', title, o, ['rows', 'cellUnit', 'scheme', 'cellMin', 'cellMax', 'reverse'], [12, 8], if rows then {} else { format: 'heatmap' }) + {
      fieldConfig+: { defaults+: { custom: { hideFrom: { legend: false, tooltip: false, viz: false }, scaleDistribution: { type: 'linear' } } } },
      options: {
        calculate: false,
        cellGap: 1,
        cellValues: { unit: get(o, 'cellUnit', 'short') },
        color: {
          mode: 'scheme',
          scheme: get(o, 'scheme', 'Blues'),
          fill: 'dark-blue',
          scale: 'exponential',
          exponent: 0.5,
          steps: 64,
          reverse: get(o, 'reverse', false),
        } + (if std.objectHas(o, 'cellMin') then { min: o.cellMin } else if rows then {} else { min: 0 }) + given(o, 'cellMax', { max: get(o, 'cellMax', null) }),
        exemplars: { color: field.colour('warn') },
        filterValues: { le: 1e-9 },
        legend: { show: true },
        rowsFrame: { layout: 'auto' },
        showValue: 'never',
        tooltip: { mode: 'single', yHistogram: !rows, showColorScale: true },
        yAxis: { axisPlacement: 'left', reverse: false, unit: o.unit },
      },
    },

  // A band for each series, coloured by what its value means: give it mappings or thresholds.
  stateTimeline(title, o)::
    assert std.objectHas(o, 'mappings') || std.objectHas(o, 'thresholds') : 'state time line "%s" has neither mappings nor thresholds: its colours would mean nothing' % title;
    panel('state-timeline', title, o, ['legend', 'legendPlacement', 'calcs', 'showValue', 'rowHeight', 'merge'], [24, 8]) + judged(o) + {
      fieldConfig+: { defaults+: { custom: { fillOpacity: 75, lineWidth: 0, spanNulls: false, insertNulls: false, hideFrom: { legend: false, tooltip: false, viz: false } } } },
      options: {
        alignValue: 'left',
        legend: legend(o, 'list'),
        mergeValues: get(o, 'merge', true),
        rowHeight: get(o, 'rowHeight', 0.85),
        showValue: get(o, 'showValue', 'never'),
        tooltip: { mode: 'single', sort: 'none' },
      },
    },

  // How the values of all series are spread.
  histogram(title, o)::
    panel('histogram', title, o, ['bucketSize', 'bucketCount', 'legend', 'legendPlacement', 'calcs', 'color'], [8, 8], { instant: true, range: false }) + {
      fieldConfig+: { defaults+: {
        color: field.fixed(get(o, 'color', 'a')),
        custom: { fillOpacity: 60, lineWidth: 1, gradientMode: 'none', hideFrom: { legend: false, tooltip: false, viz: false } },
      } },
      options: {
        combine: true,
        legend: legend(o, 'hidden'),
        tooltip: { mode: 'single', sort: 'none' },
      } + { [k]: o[k] for k in ['bucketSize', 'bucketCount'] if std.objectHas(o, k) },
    },

  // Markdown. It is the only panel without a query.
  text(title, markdown, o={}):: {
    type: 'text',
    title: title,
    description: get(o, 'description', ''),
    gridPos: { w: get(o, 'w', 24), h: get(o, 'h', 3), x: 0, y: 0 },
    transparent: true,
    options: { mode: 'markdown', content: markdown, code: { language: 'plaintext', showLineNumbers: false, showMiniMap: false } },
    pluginVersion: '11.0.0',
    facts:: { quiet: '', trouble: [], budget: 0 },
  },
}
