// Two dashboards of the tests' own: one with every kind of panel, one in which every panel is wrong.

const datasource = { type: 'prometheus', uid: '${datasource}' };
const palette = { mode: 'palette-classic' };

let id = 0;
let at = { x: 0, y: 0 };

function panel(type, title, targets, rest = {}) {
  const gridPos = { ...at, w: 8, h: 7 };
  at = at.x >= 16 ? { x: 0, y: at.y + 7 } : { x: at.x + 8, y: at.y };
  return {
    id: ++id,
    type,
    title,
    description: `What ${title} says.`,
    datasource,
    gridPos,
    targets: targets.map((t, i) => ({ datasource, refId: String.fromCharCode(65 + i), range: true, ...t })),
    fieldConfig: { defaults: { color: palette, ...rest.defaults }, overrides: rest.overrides ?? [] },
    options: rest.options ?? {},
    ...(rest.transformations ? { transformations: rest.transformations } : {}),
  };
}

const now = { instant: true, range: false };
const thresholds = {
  mode: 'absolute',
  steps: [
    { color: 'green', value: null },
    { color: 'red', value: 0.5 },
  ],
};

const variables = [
  { type: 'datasource', name: 'datasource', query: 'prometheus', current: {} },
  {
    type: 'query',
    name: 'cluster',
    label: 'Cluster',
    datasource,
    query: { query: 'label_values(kube_node_info, cluster)', refId: 'v' },
    includeAll: true,
    allValue: '.*',
    multi: true,
    refresh: 2,
    current: {},
  },
];

function dashboard(uid, title, panels, rest = {}) {
  return {
    uid,
    title,
    description: title,
    tags: ['test'],
    schemaVersion: 39,
    panels,
    time: { from: 'now-15m', to: 'now' },
    refresh: '1m',
    templating: { list: variables },
    links: [],
    ...rest,
  };
}

/** kitchen has a panel of each kind, with what our dashboards use of it. */
export function kitchen() {
  id = 0;
  at = { x: 0, y: 0 };
  const cluster = 'cluster=~"$cluster"';
  const panels = [
    panel(
      'timeseries',
      'Lines',
      [{ expr: `sum by (cluster) (rate(node_cpu_seconds_total{${cluster}, mode!="idle"}[$__rate_interval]))`, legendFormat: '{{cluster}}' }],
      { options: { legend: { displayMode: 'table', showLegend: true, placement: 'bottom', calcs: ['max'] } } }
    ),
    panel('timeseries', 'Stacked', [{ expr: `sum by (cluster) (up{${cluster}})`, legendFormat: '{{cluster}}' }], {
      defaults: { custom: { stacking: { mode: 'normal', group: 'A' }, fillOpacity: 40 } },
    }),
    panel('stat', 'Number', [{ expr: `count(kube_node_info{${cluster}})` }], {
      defaults: { unit: 'short', links: [{ title: 'Nodes', url: '/d/spillway-fleet?${__url_time_range}' }] },
      options: { graphMode: 'area' },
    }),
    panel('stat', 'Nothing', [{ expr: `absent_metric{${cluster}}` }], { defaults: { noValue: 'None' } }),
    panel(
      'table',
      'Rows',
      [
        { expr: `kube_node_info{${cluster}}`, format: 'table', ...now },
        { expr: `sum by (node) (kube_node_info{${cluster}})`, format: 'table', ...now },
      ],
      {
        transformations: [
          { id: 'merge', options: {} },
          { id: 'organize', options: { excludeByName: { Time: true }, indexByName: {}, renameByName: { 'Value #B': 'How many' } } },
        ],
        overrides: [
          {
            matcher: { id: 'byName', options: 'How many' },
            properties: [
              { id: 'unit', value: 'percentunit' },
              { id: 'custom.cellOptions', value: { type: 'color-text' } },
            ],
          },
        ],
      }
    ),
    panel('bargauge', 'Bars', [{ expr: `count by (cluster) (kube_node_info{${cluster}})`, legendFormat: '{{cluster}}', ...now }], {
      options: { orientation: 'horizontal', displayMode: 'basic' },
    }),
    panel('gauge', 'Dial', [{ expr: `avg(up{${cluster}})`, ...now }], {
      defaults: { min: 0, max: 1, unit: 'percentunit', thresholds, color: { mode: 'thresholds' } },
    }),
    panel('heatmap', 'Buckets', [{ expr: `sum by (le) (rate(apiserver_request_duration_seconds_bucket{${cluster}}[$__rate_interval]))`, format: 'heatmap' }], {
      options: { calculate: false, yAxis: { unit: 's' }, color: { mode: 'scheme', scheme: 'Blues', steps: 64, scale: 'exponential', exponent: 0.5 } },
    }),
    panel('heatmap', 'Rows over time', [{ expr: `sum by (job) (up{${cluster}})`, legendFormat: '{{job}}' }]),
    panel('state-timeline', 'States', [{ expr: `min by (job) (up{${cluster}})`, legendFormat: '{{job}}' }], {
      defaults: {
        color: { mode: 'thresholds' },
        thresholds,
        mappings: [{ type: 'value', options: { 1: { text: 'up', color: 'green', index: 0 }, 0: { text: 'down', color: 'red', index: 1 } } }],
      },
    }),
    panel('histogram', 'Spread', [{ expr: `DCGM_FI_DEV_GPU_TEMP{${cluster}}`, ...now }], { defaults: { unit: 'celsius' }, options: { combine: true } }),
    panel('text', 'Words', [], { options: { mode: 'markdown', content: '**Markdown** of $cluster' } }),
    {
      id: ++id,
      type: 'row',
      title: 'A closed row',
      collapsed: true,
      gridPos: { x: 0, y: 100, w: 24, h: 1 },
      panels: [panel('timeseries', 'In a row', [{ expr: `sum(up{${cluster}})` }])],
    },
  ];
  panels.at(-1).panels[0].gridPos = { x: 0, y: 101, w: 24, h: 6 };
  return dashboard('test-kitchen', 'Every kind of panel', panels, {
    annotations: { list: [{ name: 'Always', enable: true, iconColor: 'red', datasource, expr: `sum(up{${cluster}}) > 0`, titleFormat: 'up', step: '60s' }] },
    links: [{ type: 'dashboards', title: 'Others', tags: ['test'], asDropdown: true, includeVars: true, keepTime: true }],
  });
}

/** broken is wrong in every way that must be found; its values are the sentences that tell so. */
export const complaints = {
  'A selector of everything': /selects nothing in particular|unselective/i,
  'No such panel': /no panel of type piechart/,
  'A component that fails': /could not be drawn/,
  'Nothing in it': /is blank/,
};

export function broken() {
  id = 0;
  at = { x: 0, y: 0 };
  const panels = [
    panel('timeseries', 'A selector of everything', [{ expr: '{job!=""}' }]),
    panel('piechart', 'No such panel', [{ expr: 'sum(up)' }]),
    panel('table', 'A component that fails', [{ expr: 'up', format: 'table', ...now }], { options: { sortBy: 7 } }),
    panel('text', 'Nothing in it', [], { options: { mode: 'markdown', content: '' } }),
    panel('stat', 'Sound among them', [{ expr: 'sum(up)' }]),
  ];
  return dashboard('test-broken', 'Everything is wrong', panels, {
    templating: { list: [...variables, { type: 'query', name: 'wrong', datasource, query: 'no_such_function(up)', refresh: 1, current: {} }] },
  });
}
